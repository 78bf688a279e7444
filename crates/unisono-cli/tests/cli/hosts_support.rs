//! Hosts that this machine plays: a shell script in place of ssh.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use tempfile::TempDir;

use crate::support::{Finished, Running, start, unisono};

/// A script in place of ssh. Its `$1` is the host and its `$2` the line to run there; `in_session` runs the line, as
/// sshd does, without the variables of the launcher.
pub(crate) struct Rsh {
    folder: TempDir,
}

const IN_SESSION: &str = "in_session() { exec env -i \"PATH=$PATH\" \"HOME=$HOME\" sh -c \"$1\"; }";

impl Rsh {
    /// A script with this body.
    pub(crate) fn new(body: &str) -> Rsh {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rsh");
        fs::write(&path, format!("#!/bin/sh\n{IN_SESSION}\n{body}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        Rsh { folder }
    }

    /// Every host is reached.
    pub(crate) fn of_reachable_hosts() -> Rsh {
        Rsh::new("in_session \"$2\"")
    }

    /// A file beside the script.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn arguments(&self, options: &[&str], program: &[&str]) -> Vec<String> {
        let rsh = self.file("rsh").display().to_string();
        let words = [&["run", "--rsh", &rsh][..], options, &["--"], program].concat();
        words.into_iter().map(str::to_owned).collect()
    }

    /// Starts a program on hosts.
    pub(crate) fn start(&self, options: &[&str], program: &[&str]) -> Running {
        let words = self.arguments(options, program);
        start(&words.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Runs a program on hosts to its end.
    pub(crate) fn run(&self, options: &[&str], program: &[&str]) -> Finished {
        let words = self.arguments(options, program);
        unisono(&words.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Runs a shell line in every rank.
    pub(crate) fn shell(&self, options: &[&str], line: &str) -> Finished {
        self.run(options, &["sh", "-c", line])
    }
}
