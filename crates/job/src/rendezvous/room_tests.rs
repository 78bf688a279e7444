//! A host that has few descriptors: a process of its own, whose limit is its own.

use std::fmt::Debug;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::str::FromStr;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use unisono_communicator::Error;

use super::key::job_key;
use super::tests::{
    Joining, PATIENT, config, joining, loopback, meet_as_a_world_would, secret, store, vacant, watched,
};
use super::{JobId, JoinConfig, StoreProcess};
use crate::config::Config;
use crate::descriptors::open_descriptors;
use crate::program::words;
use crate::secret::create_secret_file;
use crate::secret::tests::TestDirectory;

const RANKS: u32 = 48;
/// More than a process has open, and fewer than the host of so many ranks needs.
const FEW: u64 = 40;

/// The limits of a host: soft and hard.
#[derive(Clone, Copy)]
struct Limits(u64, u64);

fn limit(Limits(soft, hard): Limits) {
    setrlimit(Resource::Nofile, Rlimit { current: Some(soft), maximum: Some(hard) }).unwrap();
}

/// A variable of these tests, which no setting is.
#[expect(clippy::disallowed_methods, reason = "no setting")]
fn variable<T: FromStr<Err: Debug>>(name: &str) -> T {
    std::env::var(name).unwrap().parse().unwrap()
}

/// Rank 0, which hosts the meeting with these limits, and says at the end whether its limit is as before.
pub(crate) fn one_host() {
    watched(|| {
        let limits = Limits(variable("SOFT"), variable("HARD"));
        limit(limits);
        let config = Config::from_environment().unwrap();
        if limits.0 == limits.1 {
            let error = super::tests::meet(&config, loopback(1000), Vec::new()).unwrap_err();
            assert!(error.to_string().contains("RLIMIT_NOFILE"), "{error}");
        } else {
            assert_eq!(meet_as_a_world_would(&config).world_size, RANKS);
        }
        let until = Instant::now() + PATIENT;
        while getrlimit(Resource::Nofile).current != Some(limits.0) {
            assert!(Instant::now() < until, "the limit is not restored");
            thread::sleep(Duration::from_millis(5));
        }
    });
}

/// A store in a process whose descriptors are taken after it has counted them.
pub(crate) fn one_host_whose_descriptors_are_taken() {
    watched(|| {
        let address = variable::<SocketAddr>("STORE");
        limit(Limits(variable("HARD"), variable("HARD")));
        let store = store(RANKS, address);
        let mut taken = Vec::new();
        while let Ok(file) = std::fs::File::open("/dev/null") {
            taken.push(file);
        }
        // As many connections as this are accepted.
        taken.truncate(taken.len() - 6);
        std::io::stdout().write_all(b"ready\n").unwrap();
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).unwrap();
        drop(store);
    });
}

fn start(program: &str, variables: &[(&str, &str)]) -> Child {
    Command::new("env")
        .args(words(program))
        .envs(variables.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Rank 0 as a process with these limits, the others as threads.
fn ranks_at(directory: &Path, Limits(soft, hard): Limits) -> (Child, Vec<Joining>) {
    let secret_file = directory.join("secret");
    create_secret_file(&secret(), &secret_file).unwrap();
    let store = vacant();
    let (port, ranks) = ((store.port() - 1).to_string(), RANKS.to_string());
    let (soft, hard, patience) = (soft.to_string(), hard.to_string(), PATIENT.as_secs().to_string());
    let variables = [
        ("SOFT", soft.as_str()),
        ("HARD", &hard),
        ("UNISONO_RANK", "0"),
        ("UNISONO_WORLD_SIZE", &ranks),
        ("UNISONO_LOCAL_WORLD_SIZE", "1"),
        ("UNISONO_MASTER_ADDRESS", "127.0.0.1"),
        ("UNISONO_MASTER_PORT", &port),
        ("UNISONO_JOB", &port),
        ("UNISONO_SECRET_FILE", secret_file.to_str().unwrap()),
        ("UNISONO_JOIN_TIMEOUT_S", &patience),
    ];
    let value = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| value.to_string());
    let job = JobId::from_key(&job_key(&Config::from_lookup(&value).unwrap()));
    let host = start("host", &variables);
    let hosted_by = StoreProcess { rank: Some(0), pid: None };
    let others = (1..RANKS).map(|rank| joining(JoinConfig { job, hosted_by, ..config(store, rank, RANKS) }));
    (host, others.collect())
}

/// Checks that each of these was told of the lack, and that none has waited as long as it may.
fn told_of_the_lack(ranks: Vec<Joining>, parts: &[&str]) {
    for one in ranks {
        match one.join().unwrap() {
            Err(Error::Rendezvous { missing, problem }) if missing.is_empty() => {
                assert!(parts.iter().all(|part| problem.contains(part)), "{problem}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_host_raises_its_limit_as_long_as_it_hosts() {
    watched(|| {
        let directory = TestDirectory::new();
        let (mut host, others) = ranks_at(&directory.0, Limits(FEW, 4 * FEW));
        for one in others {
            assert_eq!(one.join().unwrap().unwrap().world_size, RANKS);
        }
        assert!(host.wait().unwrap().success());
    });
}

#[test]
fn a_host_that_cannot_have_the_descriptors_says_so_to_all() {
    watched(|| {
        let directory = TestDirectory::new();
        let (mut host, others) = ranks_at(&directory.0, Limits(FEW, FEW));
        told_of_the_lack(others, &["too few file descriptors", "RLIMIT_NOFILE, hard limit 40", "ulimit -n "]);
        assert!(host.wait().unwrap().success());
    });
}

#[test]
fn a_host_that_runs_out_of_descriptors_says_so_to_all() {
    watched(|| {
        let store = vacant();
        let (address, hard) = (store.to_string(), (open_descriptors() + 4 * u64::from(RANKS)).to_string());
        let mut host = start("host_whose_descriptors_are_taken", &[("STORE", &address), ("HARD", &hard)]);
        let (ready, is_ready) = mpsc::channel();
        let output = BufReader::new(host.stdout.take().unwrap());
        thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if line.ends_with("ready") {
                    let _ = ready.send(());
                }
            }
        });
        is_ready.recv_timeout(PATIENT).unwrap();
        let ranks = (0..RANKS).map(|rank| joining(config(store, rank, RANKS))).collect();
        told_of_the_lack(ranks, &["RLIMIT_NOFILE"]);
        let mut stdin: ChildStdin = host.stdin.take().unwrap();
        stdin.write_all(b"enough\n").unwrap();
        assert!(host.wait().unwrap().success());
    });
}
