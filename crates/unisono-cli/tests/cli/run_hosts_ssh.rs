//! `unisono run` on two hosts over ssh: OpenSSH's server in two namespaces. Needs root, iproute2 and the server.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::network::{Network, skip};
use crate::support::{Finished, start_by, wait_until};

const SERVER: &str = "/usr/sbin/sshd";
/// The folder that the server wants, which its service makes when it starts.
const SERVER_FOLDER: &str = "/run/sshd";

/// Two hosts that answer ssh with a key of this test.
struct SshHosts {
    servers: Vec<Child>,
    network: Network,
    folder: TempDir,
}

impl SshHosts {
    /// `None`, and a line that says why, where this machine cannot.
    fn or_skip() -> Option<SshHosts> {
        if !Path::new(SERVER).exists() {
            skip("sshd", &format!("{SERVER} is not there"));
            return None;
        }
        let network = Network::or_skip(2)?;
        fs::create_dir_all(SERVER_FOLDER).unwrap();
        let mut hosts = SshHosts { servers: Vec::new(), network, folder: tempfile::tempdir().unwrap() };
        hosts.write_files();
        let server = |host| {
            let mut command = hosts.network.command(host, Path::new(SERVER));
            command.arg("-D").arg("-f").arg(hosts.folder.path().join("sshd_config"));
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
        };
        hosts.servers = vec![server(0), server(1)];
        for host in [0, 1] {
            wait_until(&format!("host {host} answers"), || hosts.answers(host));
        }
        Some(hosts)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write_files(&self) {
        for name in ["host", "user", "stranger"] {
            let mut command = Command::new("ssh-keygen");
            command.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(self.path(name));
            assert!(command.status().unwrap().success());
        }
        let [host, user, known] = ["host", "user", "known"].map(|name| self.path(name).display().to_string());
        let banner = self.path("banner").display().to_string();
        fs::write(&banner, "authorised use only\n").unwrap();
        let server = format!(
            "HostKey {host}\nAuthorizedKeysFile {user}.pub\nPidFile none\nStrictModes no\nUsePAM no\n\
             PasswordAuthentication no\nPermitRootLogin prohibit-password\nBanner {banner}\n"
        );
        fs::write(self.path("sshd_config"), server).unwrap();
        let client = format!(
            "Host *\n  IdentitiesOnly yes\n  StrictHostKeyChecking accept-new\n  UserKnownHostsFile {known}\n"
        );
        fs::write(self.path("ssh_config"), client).unwrap();
    }

    /// The command that reaches a host, with one of the keys.
    fn ssh(&self, key: &str) -> String {
        let (config, key) = (self.path("ssh_config"), self.path(key));
        format!("ssh -F {} -i {} -T -o BatchMode=yes", config.display(), key.display())
    }

    fn answers(&self, host: usize) -> bool {
        let ssh = self.ssh("user");
        let mut words = ssh.split(' ');
        let mut command = self.network.command(0, Path::new(words.next().unwrap()));
        command.args(words).arg(Network::address(host).to_string()).arg("true");
        command.stdin(Stdio::null()).stderr(Stdio::null()).status().unwrap().success()
    }

    /// Runs a program in four ranks, two on each host, from the first host.
    fn run(&self, key: &str, program: &[&str]) -> Finished {
        let hosts = [0, 1].map(|host| format!("{}:2", Network::address(host))).join(",");
        let (entering, ssh) = (self.network.entering(0), self.ssh(key));
        let by: Vec<&str> = entering.iter().map(String::as_str).collect();
        let options = ["run", "--tag-output", "off", "--rsh", &ssh, "--hosts", &hosts, "--"];
        start_by(&by, &[&options[..], program].concat()).finish()
    }
}

impl Drop for SshHosts {
    fn drop(&mut self) {
        for server in &mut self.servers {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

#[test]
fn c10_ssh_starts_the_ranks_of_two_hosts() {
    let Some(hosts) = SshHosts::or_skip() else { return };
    let program = [env!("CARGO_BIN_EXE_unisono"), "bench", "all_reduce", "--sizes", "64K", "--json"];
    let done = hosts.run("user", &program);
    assert!(done.status.success(), "{}", done.err);
    let rows: Vec<serde_json::Value> = serde_json::from_str(&done.out).unwrap();
    assert!(rows[0]["wrong"] == 0 && rows[0]["ranks"] == 4, "{rows:?}");
    for host in [0, 1].map(Network::address) {
        assert!(done.err.contains(&format!("unisono: host {host}: authorised use only\n")), "{}", done.err);
    }
    let done = hosts.run("user", &["sh", "-c", "[ $RANK = 3 ] && kill -KILL $$; sleep 600"]);
    assert_eq!(done.status.code(), Some(137), "{}", done.err);
    let end = "unisono: first failure: rank 3 was ended by signal 9 (SIGKILL)";
    assert_eq!(done.err.lines().last().unwrap(), end, "{}", done.err);
}

#[test]
fn c10_a_host_that_does_not_know_the_key_is_named() {
    let Some(hosts) = SshHosts::or_skip() else { return };
    let done = hosts.run("stranger", &["true"]);
    assert_eq!(done.status.code(), Some(1), "{}", done.err);
    let last = done.err.lines().last().unwrap();
    assert!(last.starts_with("unisono: host 10.0.0.") && last.contains("Permission denied"), "{}", done.err);
}
