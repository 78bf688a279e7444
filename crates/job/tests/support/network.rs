//! Hosts that this machine plays: network namespaces at one bridge, whose links can be cut and slowed down. Needs root
//! and iproute2.
//!
//! The laboratory includes this file too.

#![allow(dead_code, reason = "every user takes its own part")]

#[path = "../../../../tests/src/skip.rs"]
mod skip;

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::Ipv4Addr;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

pub(crate) use skip::skip;

/// Waits until its input ends, however that comes about, and removes the secret and all namespaces with the processes
/// in them. Links to the bridge go with the bridge's namespace. A signal to all processes of a test does not mean this
/// one.
const GUARD: &str = "trap '' HUP INT TERM; read -r line; rm -f -- \"$1\"; shift
for name; do
  ip netns pids \"$name\" | while read -r pid; do kill -KILL \"$pid\"; done
  ip netns delete \"$name\"
done";

/// The name of a host's link.
pub(crate) const INTERFACE: &str = "port";

/// A shaped host may send this long at the full speed of the machine before the shaping begins, ...
const BUCKET_US: u64 = 200;
/// ... and this much at least: with less it does not reach the rate.
const BUCKET_BYTES_MIN: u64 = 128 << 10;

const SECRET_BYTES: usize = 32;

/// The way in which a host loses the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// Its link goes down: both of its ends know.
    LinkDown,
    /// Its link is up, and every packet to and from it vanishes in between.
    Silence,
    /// Routes that lead nowhere, on both sides: a sender is told, but connections that exist are not.
    Blackhole,
    /// Senders and diallers are reset or refused, as by a router that answers in the place of the other side: each
    /// side has the other's addresses, at which nobody listens.
    Resets,
}

/// Hosts `10.0.0.1`, `10.0.0.2` and so on, which nobody else sees. All of it goes when this does, or its process.
pub(crate) struct Network {
    name: String,
    hosts: usize,
    secret_file: PathBuf,
    guard: Child,
}

impl Network {
    /// Makes so many hosts. An error says why this machine cannot.
    pub(crate) fn new(hosts: usize) -> io::Result<Network> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let name = format!("unisono-{}-{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let secret_file = std::env::temp_dir().join(format!("{name}-secret"));
        // In a group of its own, because an interrupt from the keyboard is for the whole group of this process.
        let guard = Command::new("sh")
            .args(["-c", GUARD, "sh"])
            .arg(&secret_file)
            .arg(switch(&name))
            .args((0..hosts).map(|host| namespace(&name, host)))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        let network = Network { name, hosts, secret_file, guard };
        network.build()?;
        Ok(network)
    }

    /// `None`, and a line that says why, where this machine cannot; a failure where `namespaces` is required.
    pub(crate) fn or_skip(hosts: usize) -> Option<Network> {
        match Network::new(hosts) {
            Ok(network) => Some(network),
            Err(reason) => {
                skip("namespaces", &reason.to_string());
                None
            }
        }
    }

    fn build(&self) -> io::Result<()> {
        write_secret(&self.secret_file)?;
        let (name, switch) = (&self.name, switch(&self.name));
        let mut ports = String::from("link add bridge type bridge\nlink set bridge up\n");
        run("ip", &["netns", "add", &switch], "")?;
        for host in 0..self.hosts {
            let namespace = namespace(name, host);
            run("ip", &["netns", "add", &namespace], "")?;
            ports += &format!("link add port{host} type veth peer name port netns {namespace}\n");
            ports += &format!("link set port{host} master bridge up\n");
        }
        run("ip", &["-n", &switch, "-batch", "-"], &ports)?;
        for host in 0..self.hosts {
            let address = Network::address(host);
            let lines = format!("link set lo up\naddress add {address}/24 dev port\nlink set port up\n");
            self.on_host(host, &lines)?;
        }
        Ok(())
    }

    /// The file of a secret that all hosts have.
    pub(crate) fn secret_file(&self) -> &Path {
        &self.secret_file
    }

    /// The address of a host.
    pub(crate) fn address(host: usize) -> Ipv4Addr {
        Ipv4Addr::new(10, 0, 0, host as u8 + 1)
    }

    /// The words before a command that is to run on a host. The process becomes the process of the command.
    pub(crate) fn entering(&self, host: usize) -> [String; 4] {
        ["ip".to_owned(), "netns".to_owned(), "exec".to_owned(), namespace(&self.name, host)]
    }

    /// Runs a program on a host. The child is the program itself.
    pub(crate) fn command(&self, host: usize, program: &Path) -> Command {
        let [first, rest @ ..] = self.entering(host);
        let mut command = Command::new(first);
        command.args(rest).arg(program);
        command
    }

    /// A program of a job whose ranks meet on host `store`, by the settings that a user would make. Namespaces have
    /// the machine's own name and boot: nothing but the namespace tells these hosts apart.
    pub(crate) fn rank(
        &self,
        (host, store): (usize, usize),
        (rank, ranks): (usize, usize),
        program: &Path,
    ) -> Command {
        let mut command = self.command(host, program);
        command
            .env("UNISONO_RANK", rank.to_string())
            .env("UNISONO_WORLD_SIZE", ranks.to_string())
            .env("UNISONO_MASTER_ADDRESS", Network::address(store).to_string())
            .env("UNISONO_MASTER_PORT", "29500")
            .env("UNISONO_SECRET_FILE", &self.secret_file);
        command
    }

    /// From now on every host sends at most so many bits per second (`tc-tbf(8)`).
    pub(crate) fn shape(&self, bits_per_s: u64) -> io::Result<()> {
        (0..self.hosts).try_for_each(|host| self.shape_host(host, bits_per_s))
    }

    /// From now on a host sends at most so many bits per second.
    pub(crate) fn shape_host(&self, host: usize, bits_per_s: u64) -> io::Result<()> {
        let bucket_bytes = (bits_per_s / 8 * BUCKET_US / 1_000_000).max(BUCKET_BYTES_MIN);
        let line = format!(
            "qdisc replace dev port root tbf rate {bits_per_s}bit burst {bucket_bytes} latency 50ms\n"
        );
        run("tc", &["-n", &namespace(&self.name, host), "-batch", "-"], &line)
    }

    /// From now on every host sends as fast as this machine lets it.
    pub(crate) fn unshape(&self) -> io::Result<()> {
        let line = "qdisc replace dev port root noqueue\n";
        (0..self.hosts)
            .try_for_each(|host| run("tc", &["-n", &namespace(&self.name, host), "-batch", "-"], line))
    }

    /// Cuts a host off from all others.
    pub(crate) fn cut(&self, host: usize, cut: Cut) -> io::Result<()> {
        match cut {
            Cut::LinkDown => self.on_switch(&format!("link set port{host} down")),
            Cut::Silence => self.on_switch(&format!("link set port{host} nomaster")),
            Cut::Blackhole => self.on_both_sides(host, |to| format!("route add blackhole {to}/32\n")),
            Cut::Resets => self.on_both_sides(host, |to| format!("address add {to}/32 dev lo\n")),
        }
    }

    /// Undoes the same cut.
    pub(crate) fn heal(&self, host: usize, cut: Cut) -> io::Result<()> {
        match cut {
            Cut::LinkDown => self.on_switch(&format!("link set port{host} up")),
            Cut::Silence => self.on_switch(&format!("link set port{host} master bridge")),
            Cut::Blackhole => self.on_both_sides(host, |to| format!("route delete blackhole {to}/32\n")),
            Cut::Resets => self.on_both_sides(host, |to| format!("address delete {to}/32 dev lo\n")),
        }
    }

    /// Changes the routes from a host to the others and back.
    fn on_both_sides(&self, host: usize, line: impl Fn(Ipv4Addr) -> String) -> io::Result<()> {
        let line = |to| line(Network::address(to));
        let others = || (0..self.hosts).filter(|other| *other != host);
        self.on_host(host, &others().map(line).collect::<String>())?;
        others().try_for_each(|other| self.on_host(other, &line(host)))
    }

    fn on_switch(&self, lines: &str) -> io::Result<()> {
        run("ip", &["-n", &switch(&self.name), "-batch", "-"], lines)
    }

    fn on_host(&self, host: usize, lines: &str) -> io::Result<()> {
        run("ip", &["-n", &namespace(&self.name, host), "-batch", "-"], lines)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        // Should it have been killed, there is nobody to tell.
        let _ = self.guard.wait();
    }
}

fn switch(name: &str) -> String {
    format!("{name}-switch")
}

fn namespace(name: &str, host: usize) -> String {
    format!("{name}-{host}")
}

fn write_secret(path: &Path) -> io::Result<()> {
    let mut secret = [0; SECRET_BYTES];
    File::open("/dev/urandom")?.read_exact(&mut secret)?;
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?.write_all(&secret)
}

/// Runs a program with these words and this input.
fn run(program: &str, words: &[&str], input: &str) -> io::Result<()> {
    let mut child = Command::new(program)
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("{program} {}: {}", words.join(" "), text.trim().replace('\n', ", "))))
}
