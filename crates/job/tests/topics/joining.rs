//! Waiting to join, and the ways in which it goes wrong, as a user sees them: the lines of processes on standard error,
//! and the line in which they end.

use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use unisono_control::secret::Secret;
use unisono_job::Job;
use unisono_job::config::Config;
use unisono_job::rendezvous::{StoreConfig, StoreHost, store_job};
use unisono_job::secret::create_secret_file;

use crate::TRANSPORT;
use crate::child::words;
use crate::support::TEST_TIME_MAX;

pub(super) const WAITING: &str = "waiting to join for ";
/// The folders of programs, an administrator's too.
const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";
const JOINED: &str = "the end: joined";

/// The program of a rank.
pub(crate) fn one_rank() {
    let joined = Config::from_environment().and_then(|config| Job::join(&config, &TRANSPORT));
    match &joined {
        Ok(_) => eprintln!("{JOINED}"),
        Err(error) => eprintln!("the end: {error}"),
    }
    // It stays in the job until its parent has seen enough.
    let _ = std::io::stdin().read(&mut [0]);
}

/// A terminal in which a rank runs; closing it kills the rank.
pub(super) struct Terminal {
    process: Child,
    lines: mpsc::Receiver<String>,
}

impl Terminal {
    /// The next line with `part` in it.
    pub(super) fn line(&self, part: &str) -> String {
        let mut others = Vec::new();
        loop {
            match self.lines.recv_timeout(TEST_TIME_MAX) {
                Ok(line) if line.contains(part) => return line,
                Ok(line) => others.push(line),
                Err(error) => panic!("no line with {part:?}, but {others:#?}: {error}"),
            }
        }
    }

    /// The line in which it ended, and those before it.
    pub(super) fn end(&self) -> (String, Vec<String>) {
        let mut before = Vec::new();
        loop {
            let line = self.lines.recv_timeout(TEST_TIME_MAX).unwrap();
            match line.strip_prefix("the end: ") {
                Some(end) => return (end.to_owned(), before),
                None => before.push(line),
            }
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A user of this host, with directories of its own.
pub(super) struct User {
    home: TempDir,
}

impl User {
    pub(super) fn new() -> User {
        User { home: tempfile::Builder::new().prefix("unisono-").tempdir().unwrap() }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    pub(super) fn secret_file(&self) -> (Secret, String) {
        let (secret, path) = (Secret::random().unwrap(), self.path("secret"));
        create_secret_file(&secret, &path).unwrap();
        (secret, path.to_str().unwrap().to_owned())
    }

    /// A rank in an environment that has nothing but this.
    fn start(&self, rank: u32, ranks: u32, variables: &[(&str, &str)]) -> Terminal {
        self.start_by(&[], (rank, ranks), variables)
    }

    /// The same, by a command that runs another one.
    pub(super) fn start_by(
        &self,
        by: &[String],
        (rank, ranks): (u32, u32),
        variables: &[(&str, &str)],
    ) -> Terminal {
        let mut command = Command::new("env");
        command.args(by).arg("env").args(words("joining")).env_clear().env("PATH", PATH);
        command.env("RANK", rank.to_string()).env("WORLD_SIZE", ranks.to_string());
        command.env("XDG_RUNTIME_DIR", self.home.path()).env("TMPDIR", self.home.path());
        command.env("UNISONO_WARN_AFTER_S", "0.2").env("UNISONO_JOIN_TIMEOUT_S", "100");
        command.envs(variables.iter().copied());
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let text = BufReader::new(process.stderr.take().unwrap());
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            text.lines()
                .map_while(Result::ok)
                .take_while(|line| sender.send(line.clone()).is_ok())
                .for_each(drop);
        });
        Terminal { process, lines }
    }
}

/// The launcher's part: a store at an address of this host, and the variables that name it.
fn launcher(user: &User, ranks: u32, ip: IpAddr) -> (StoreHost, [(&'static str, String); 2]) {
    let (secret, file) = user.secret_file();
    let listen = SocketAddr::new(ip, free_port());
    let handshake_timeout = Duration::from_secs(60);
    let job = store_job(&listen.to_string());
    let store =
        StoreHost::start(StoreConfig { listen, world_size: ranks, secret, job, handshake_timeout }).unwrap();
    (store, [("UNISONO_STORE", listen.to_string()), ("UNISONO_SECRET_FILE", file)])
}

fn by_launcher<'a>(variables: &'a [(&'static str, String); 2], local: &'a str) -> [(&'a str, &'a str); 3] {
    let [store, secret] = variables;
    [(store.0, &store.1), (secret.0, &secret.1), ("LOCAL_RANK", local)]
}

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A port that is free on every loopback address. It lies below the ports that a system gives to a socket by itself, so
/// no rank of another test gets the port before a listener has it.
fn free_port() -> u16 {
    static TAKEN: AtomicU16 = AtomicU16::new(0);
    let first = 10_000 + (std::process::id() % 10_000) as u16 * 2;
    let in_use = |port: u16, ip: IpAddr| {
        let bound = TcpListener::bind((ip, port));
        bound.is_err_and(|error| error.kind() == ErrorKind::AddrInUse)
    };
    loop {
        let port = first + TAKEN.fetch_add(1, Ordering::Relaxed);
        if !in_use(port, Ipv4Addr::LOCALHOST.into()) && !in_use(port, Ipv6Addr::LOCALHOST.into()) {
            return port;
        }
    }
}

/// A port above which another one is free.
fn master_port() -> String {
    (free_port() - 1).to_string()
}

fn contains(line: &str, parts: &[&str]) {
    for part in parts {
        assert!(line.contains(part), "{part:?} is not in {line:?}");
    }
}

#[test]
fn ranks_in_two_terminals_say_how_they_meet() {
    let user = User::new();
    // In two terminals the parent is another process; here, variables that differ stand for that.
    let alone = user.start(0, 2, &[]);
    let line = alone.line(WAITING);
    contains(
        &line,
        &[
            "unisono: rank 0: waiting to join for ",
            "1 of 2 ranks has come, missing: rank 1; meeting by parent process ",
        ],
    );
    contains(
        &line,
        &[
            ", in the file ",
            ".store; ",
            "UNISONO_JOB=name, the same in each (or MASTER_ADDR and MASTER_PORT)",
        ],
    );
    let named = [("UNISONO_JOB", "x")];
    let (zero, other) = (user.start(0, 2, &named), user.start(1, 2, &[("UNISONO_JOB", "y")]));
    contains(&zero.line(WAITING), &["missing: rank 1; meeting by UNISONO_JOB=x, in the file "]);
    contains(
        &other.line(WAITING),
        &["missing: rank 0; meeting by UNISONO_JOB=y, in the file ", "same UNISONO_JOB=y"],
    );
    zero.line(WAITING);
    let one = user.start(1, 2, &named);
    assert_eq!((zero.end().0.as_str(), one.end().0.as_str()), ("joined", "joined"));
    // A rank that is started again while the job runs is told the reason why it cannot join.
    let again = user.start(1, 2, &named);
    contains(&again.line(WAITING), &["1 of 2 ranks has come", "a job that has begun takes no new ranks"]);
    let late = user.start(1, 2, &[("UNISONO_JOB", "z"), ("UNISONO_JOIN_TIMEOUT_S", "0.3")]);
    let end = late.end().0;
    contains(
        &end,
        &[
            "rank 1 has waited for the others as long as it may (UNISONO_JOIN_TIMEOUT_S); meeting by UNISONO_JOB=z, ",
        ],
    );
    assert!(end.ends_with("; missing: rank 0"), "{end}");
}

#[test]
fn under_a_launcher_one_rank_speaks_for_all() {
    let user = User::new();
    let (store, variables) = launcher(&user, 4, LOOPBACK);
    let start = |rank: u32| user.start(rank, 4, &by_launcher(&variables, &rank.to_string()));
    let one = start(1);
    contains(
        &one.line(WAITING),
        &["1 of 4 ranks has come, missing: ranks 0, 2-3; meeting at UNISONO_STORE=127.0.0.1:"],
    );
    let two = start(2);
    one.line("2 of 4 ranks have come, missing: ranks 0, 3; ");
    one.line(WAITING);
    one.line(WAITING);
    // The next lowest speaks now, and knows that a rank has left.
    drop(one);
    contains(&two.line(WAITING), &["1 of 4 ranks has come, missing: ranks 0-1, 3 (rank 1 came and left); "]);
    let all = [start(0), start(1), start(3)];
    assert!(all.iter().all(|rank| rank.end().0 == "joined"));
    assert_eq!(two.end().0, "joined");
    let again = start(2);
    contains(&again.line(WAITING), &["all have met here before", "cannot enter the running job"]);
    store.rank_ended(3, "was ended by signal 9 (SIGKILL)");
    contains(&again.end().0, &["rank 3 ended before it had joined: it was ended by signal 9 (SIGKILL)"]);
    let fifth = user.start(4, 5, &by_launcher(&variables, "4"));
    contains(
        &fifth.end().0,
        &["the world sizes differ: rank 4, pid ", "has 5; whoever hosts the store has 4; set the same"],
    );
}

#[test]
fn a_store_that_is_nowhere_is_named_with_what_is_wrong() {
    let user = User::new();
    let (_, secret) = user.secret_file();
    let secret = ("UNISONO_SECRET_FILE", secret.as_str());
    let nobody = master_port();
    let away =
        [("LOCAL_WORLD_SIZE", "1"), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", nobody.as_str()), secret];
    let waiting = user.start(1, 2, &[&away[..], &[("UNISONO_JOIN_TIMEOUT_S", "0.5")]].concat());
    let line = waiting.line(WAITING);
    contains(
        &line,
        &["no store answers: ", "one port above MASTER_PORT, which rank 0 hosts", "takes no new ranks"],
    );
    contains(&waiting.end().0, &["the store's host never came", "the same MASTER_ADDR, MASTER_PORT"]);

    let hurry = ("UNISONO_JOIN_TIMEOUT_S", "0.5");
    let unknown = user.start(1, 2, &[("UNISONO_STORE", "nosuchhost.invalid:1"), secret, hurry]);
    let (end, before) = unknown.end();
    assert!(end.starts_with("UNISONO_STORE=nosuchhost.invalid:1: the host's name does not resolve"), "{end}");
    assert!(before.iter().any(|line| line.contains("name of the store's host")), "{before:?}");
    let master = [("LOCAL_WORLD_SIZE", "1"), ("MASTER_ADDR", "nosuchhost.invalid"), ("MASTER_PORT", "4000")];
    let end = user.start(1, 2, &[&master[..], &[secret, hurry]].concat()).end().0;
    assert!(end.starts_with("MASTER_ADDR=nosuchhost.invalid: the host's name does not resolve"), "{end}");
    let malformed = [&master[..1], &[("MASTER_ADDR", "node..a"), master[2], secret]].concat();
    let end = user.start(1, 2, &malformed).end().0;
    assert!(end.starts_with("MASTER_ADDR=node..a: no host can have this name"), "{end}");
    for bad in ["node7", "node7:0", "node7:99999"] {
        let end = user.start(1, 2, &[("UNISONO_STORE", bad), secret]).end().0;
        assert!(end.starts_with(&format!("UNISONO_STORE={bad}: ")), "{end}");
        contains(&end, &["the form is host:port"]);
    }
}

#[test]
fn addresses_of_ipv6_are_taken_with_and_without_brackets() {
    let user = User::new();
    let loopback = IpAddr::from(Ipv6Addr::LOCALHOST);
    if TcpListener::bind((loopback, 0)).is_err() {
        return eprintln!("this host has no IPv6");
    }
    let (_store, variables) = launcher(&user, 2, loopback);
    let ranks = [0, 1].map(|rank| user.start(rank, 2, &by_launcher(&variables, "0")));
    assert_eq!(ranks.map(|rank| rank.end().0), ["joined"; 2]);
    for elsewhere in [None, Some(("LOCAL_WORLD_SIZE", "1"))] {
        let port = master_port();
        let ranks = [(0, "::1"), (1, "[::1]")].map(|(rank, address)| {
            let mut named = vec![
                ("MASTER_ADDR", address),
                ("MASTER_PORT", &port),
                ("UNISONO_SECRET_FILE", &variables[1].1),
            ];
            named.extend(elsewhere);
            user.start(rank, 2, &named)
        });
        assert_eq!(ranks.map(|rank| rank.end().0), ["joined"; 2]);
    }
}

#[test]
fn a_host_of_the_meeting_that_is_stopped_is_named() {
    let user = User::new();
    let (_, secret) = user.secret_file();
    let port = master_port();
    let elsewhere = [("LOCAL_WORLD_SIZE", "1"), ("UNISONO_SECRET_FILE", secret.as_str())];
    for more in [&[][..], &elsewhere] {
        let meeting = [("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", port.as_str())];
        let variables = [&meeting[..], more].concat();
        let host = user.start(0, 3, &variables);
        host.line(WAITING);
        kill_process(Pid::from_child(&host.process), Signal::STOP).unwrap();
        // It comes too late for an answer, or is in the middle of the meeting.
        let guest = user.start(1, 3, &[&variables[..], &[("UNISONO_JOIN_TIMEOUT_S", "2")]].concat());
        contains(
            &guest.end().0,
            &["the store, which rank 0", " hosts, did not answer within 2s", "missing: rank 0"],
        );
        kill_process(Pid::from_child(&host.process), Signal::CONT).unwrap();
    }
}

#[test]
fn a_host_removes_the_files_of_jobs_that_were_killed() {
    let user = User::new();
    let stores = || {
        let directories = std::fs::read_dir(user.home.path()).unwrap();
        let files = directories.flat_map(|directory| std::fs::read_dir(directory.unwrap().path()).unwrap());
        files.filter(|file| file.as_ref().unwrap().path().extension().is_some()).count()
    };
    for job in ["killed", "killed too"] {
        let host = user.start(0, 2, &[("UNISONO_JOB", job)]);
        host.line(WAITING);
        drop(host);
    }
    let waiting = user.start(0, 2, &[("UNISONO_JOB", "waiting")]);
    waiting.line(WAITING);
    assert_eq!(stores(), 1, "the files of both are gone");
    let both = [0, 1].map(|rank| user.start(rank, 2, &[("UNISONO_JOB", "another")]));
    assert_eq!(both.map(|rank| rank.end().0), ["joined"; 2]);
    assert_eq!(stores(), 1, "the file of the job that waits is not touched");
    let late = user.start(1, 2, &[("UNISONO_JOB", "waiting")]);
    assert_eq!([waiting, late].map(|rank| rank.end().0), ["joined"; 2]);
}

#[test]
fn two_spellings_of_one_address_meet() {
    let user = User::new();
    let (_, secret) = user.secret_file();
    let elsewhere = [("LOCAL_WORLD_SIZE", "1"), ("UNISONO_SECRET_FILE", secret.as_str())];
    let spellings = [(["localhost", "127.0.0.1"], &[][..]), (["::1", "0:0::1"], &elsewhere)];
    let has_ipv6 = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok();
    for (addresses, more) in spellings.into_iter().filter(|(_, more)| has_ipv6 || more.is_empty()) {
        let port = master_port();
        let ranks = [(0, addresses[0]), (1, addresses[1])].map(|(rank, address)| {
            let meeting = [("MASTER_ADDR", address), ("MASTER_PORT", port.as_str())];
            user.start(rank, 2, &[&meeting[..], more].concat())
        });
        assert_eq!(ranks.map(|rank| rank.end().0), ["joined"; 2], "{addresses:?}");
    }
}

/// As the agents of torchrun start them: each counts its own ranks. Nothing proves that the two share a host.
#[test]
fn two_launchers_on_one_host_make_a_job() {
    let user = User::new();
    let (_, secret) = user.secret_file();
    let port = master_port();
    let variables = [
        ("MASTER_ADDR", "localhost"),
        ("MASTER_PORT", port.as_str()),
        ("LOCAL_WORLD_SIZE", "2"),
        ("UNISONO_SECRET_FILE", secret.as_str()),
    ];
    let ranks = [0, 1, 2, 3].map(|rank| user.start(rank, 4, &variables));
    ranks[0].line("ranks 0-3 may share a host");
    assert_eq!(ranks.map(|rank| rank.end().0), ["joined"; 4]);
}

#[test]
fn two_jobs_with_one_name_or_port_are_told() {
    let user = User::new();
    let (_, secret) = user.secret_file();
    let port = master_port();
    let same_port = [("MASTER_ADDR", "localhost"), ("MASTER_PORT", port.as_str())];
    // On one host they meet by a file.
    let ranks = [0, 0].map(|rank| user.start(rank, 2, &same_port));
    for rank in &ranks {
        contains(
            &rank.end().0,
            &["two processes say that they are rank 0: pid ", "another UNISONO_JOB or MASTER_PORT"],
        );
    }
    // On several, at a port.
    let several = [("LOCAL_WORLD_SIZE", "1"), ("UNISONO_SECRET_FILE", secret.as_str())];
    let first = user.start(0, 2, &[&same_port[..], &several].concat());
    first.line(WAITING);
    let second = user.start(0, 2, &[&same_port[..], &several].concat());
    contains(
        &second.end().0,
        &["listen for the ranks on 127.0.0.1:", "set another MASTER_PORT, the same for all ranks"],
    );
    let one = user.start(1, 2, &[&same_port[..], &several].concat());
    assert_eq!((first.end().0.as_str(), one.end().0.as_str()), ("joined", "joined"));
}

#[test]
fn a_directory_that_cannot_be_used_is_named_with_the_remedy() {
    let user = User::new();
    let start = |runtime: &Path, temporary: &Path| {
        let directories =
            [("XDG_RUNTIME_DIR", runtime.to_str().unwrap()), ("TMPDIR", temporary.to_str().unwrap())];
        [0, 1].map(|rank| user.start(rank, 2, &directories))
    };
    let none = user.path("none");
    // The runtime directory is not there, so the ranks meet in the temporary one.
    assert!(start(&none, user.home.path()).iter().all(|rank| rank.end().0 == "joined"));
    for rank in start(&none, &none) {
        contains(
            &rank.end().0,
            &["create the directory ", "none/unisono-", "set XDG_RUNTIME_DIR for all ranks"],
        );
    }
}
