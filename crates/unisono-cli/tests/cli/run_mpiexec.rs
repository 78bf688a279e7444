//! Ranks on two hosts by the launchers of MPICH and of Intel MPI, which are fetched (`cargo xtask fetch-vendor mpich`,
//! `impi`). A script in place of ssh enters the hosts, which are network namespaces.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use tempfile::TempDir;
use unisono_tests::vendor_files::mpiexec;

use crate::network::Network;
use crate::support::{Finished, rank_command, sorted_lines, start_by};

/// A launcher: its name for `fetch-vendor`, and the words before its options.
type Launcher = (&'static str, fn(&str) -> Vec<String>);

const LAUNCHERS: [Launcher; 2] = [
    ("mpich", |rsh| {
        ["-launcher", "ssh", "-launcher-exec", rsh, "-localhost", "10.0.0.1"].map(str::to_owned).to_vec()
    }),
    ("impi", |rsh| ["-bootstrap", "ssh", "-bootstrap-exec", rsh].map(str::to_owned).to_vec()),
];

/// Two hosts that a launcher reaches.
struct Hosts {
    network: Network,
    folder: TempDir,
    words: Vec<String>,
}

impl Hosts {
    fn or_skip((name, words): Launcher) -> Option<Hosts> {
        let program = mpiexec(name)?;
        let network = Network::or_skip(2)?;
        let folder = tempfile::tempdir().unwrap();
        let rsh = folder.path().join("rsh");
        // Options of ssh, the host, and the words of the command.
        let [first, second] = [0, 1].map(|host| network.entering(host).join(" "));
        let script = format!(
            "#!/bin/sh\nwhile [ \"${{1#-}}\" != \"$1\" ]; do shift; done\nhost=$1; shift\n\
             case $host in 10.0.0.1) exec {first} sh -c \"$*\";; *) exec {second} sh -c \"$*\";; esac\n"
        );
        fs::write(&rsh, script).unwrap();
        fs::set_permissions(&rsh, fs::Permissions::from_mode(0o700)).unwrap();
        let mut all = network.entering(0).to_vec();
        all.push(program.display().to_string());
        all.extend(words(&rsh.display().to_string()));
        all.extend(["-hosts", "10.0.0.1,10.0.0.2", "-ppn", "2", "-n", "4"].map(str::to_owned));
        Some(Hosts { network, folder, words: all })
    }

    /// Runs a shell line in four ranks, two on each host, with or without a secret of the user's.
    fn shell(&self, has_secret: bool, line: &str) -> Finished {
        let home = self.folder.path().display().to_string();
        let mut by =
            vec!["env".to_owned(), "-u".to_owned(), "XDG_CONFIG_HOME".to_owned(), format!("HOME={home}")];
        if has_secret {
            by.push(format!("UNISONO_SECRET_FILE={}", self.network.secret_file().display()));
        }
        by.extend(self.words.iter().cloned());
        by.extend(["sh", "-c", line].map(str::to_owned));
        start_by(&by.iter().map(String::as_str).collect::<Vec<_>>(), &[]).finish()
    }
}

const BENCH: &str = concat!(env!("CARGO_BIN_EXE_unisono"), " bench all_reduce --sizes 4K");

/// With a secret on every host nothing has to be set. A rank that has ended ends no other one.
#[test]
fn c3_c4_ranks_of_two_hosts_meet_through_the_launchers_store() {
    for launcher in LAUNCHERS {
        let Some(hosts) = Hosts::or_skip(launcher) else { continue };
        let line = format!(
            "{BENCH} --json | grep '\"wrong\"'; [ $PMI_RANK = 3 ] && sleep 1; echo rank $PMI_RANK ends"
        );
        let done = hosts.shell(true, &line);
        assert!(done.status.success(), "{}: {}", launcher.0, done.err);
        let lines = sorted_lines(&done.out);
        let ends = lines.iter().filter(|line| line.starts_with("rank ")).count();
        assert!(
            ends == 4 && lines.iter().any(|line| line.contains("\"wrong\": 0")),
            "{}: {}",
            launcher.0,
            done.out
        );
    }
}

#[test]
fn c3_c4_ranks_of_two_hosts_without_a_secret_are_told_what_to_write() {
    for launcher in LAUNCHERS {
        let Some(hosts) = Hosts::or_skip(launcher) else { continue };
        let done = hosts.shell(false, BENCH);
        assert!(!done.status.success());
        let expected = "MPI_LOCALNRANKS=2: some of the ranks are on other hosts, and may meet only with a secret: \
                        mpiexec -genv UNISONO_SECRET_FILE FILE ...; UNISONO_SECRET_FILE must name a file";
        assert!(done.err.contains(expected), "{}: {}", launcher.0, done.err);
    }
}

#[test]
fn c3_c4_a_rank_that_dies_ends_the_job_on_two_hosts() {
    for launcher in LAUNCHERS {
        let Some(hosts) = Hosts::or_skip(launcher) else { continue };
        let done = hosts.shell(true, &rank_command("rank_1_aborts"));
        assert!(!done.status.success(), "{}: {}", launcher.0, done.out);
    }
}
