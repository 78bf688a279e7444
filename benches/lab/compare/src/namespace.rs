//! A network namespace of our own, in which the default congestion control is set without touching the machine's.
//!
//! A process that waits for the end of its standard input holds it; when that process and all that run inside have
//! ended, the namespace is gone, also when this program was killed.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use crate::plan::Congestion;
use crate::problem::{Problem, Result, While};

/// As on a host with a network card: an interface that is not the loopback, whose own address is reached through the
/// loopback device. The peers' defaults about interfaces then hold.
const SET_UP: &str = "set -e
ip link set lo up
ip link add net0 type veth peer name net1
ip address add 10.77.0.1/24 dev net0
ip link set net0 up
ip link set net1 up
echo \"$1\" > /proc/sys/net/ipv4/tcp_congestion_control
cat /proc/sys/net/ipv4/tcp_congestion_control
exec cat";

/// A namespace, for as long as it lives.
#[derive(Debug)]
pub(crate) struct Namespace {
    holder: Child,
}

impl Namespace {
    pub(crate) fn create(congestion: Congestion) -> Result<Namespace> {
        let mut holder = Command::new("unshare")
            .args(["--net", "--", "sh", "-c", SET_UP, "sh", congestion.name()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Its own group, so that Ctrl-C does not end it before those inside.
            .process_group(0)
            .spawn()
            .during("unshare --net")?;
        let mut line = String::new();
        if let Some(output) = holder.stdout.take() {
            BufReader::new(output).read_line(&mut line).during("reading from the namespace")?;
        }
        let namespace = Namespace { holder };
        if line.trim() == congestion.name() {
            Ok(namespace)
        } else {
            let text =
                format!("a network namespace with {congestion} could not be set up; it needs root and `ip`");
            Err(Problem::Refused(text))
        }
    }

    /// The words before a command that is to run inside.
    pub(crate) fn entering(&self) -> Vec<String> {
        vec!["nsenter".to_owned(), format!("--net=/proc/{}/ns/net", self.holder.id()), "--".to_owned()]
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        drop(self.holder.stdin.take());
        // It has ended already, or ends now: it only reads.
        let _ = self.holder.wait();
    }
}
