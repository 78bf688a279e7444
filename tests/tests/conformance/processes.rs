//! Ranks as processes of their own that find each other as users' programs do.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use tempfile::TempDir;
use unisono_control::secret::Secret;
use unisono_job::rendezvous::{StoreConfig, StoreHost, store_job};
use unisono_job::secret::create_secret_file;
use unisono_tests::ccl::ccl_environment;
use unisono_tests::suite::SECONDS_MAX;
use unisono_tests::watchdog;

/// What one rank has to say may take as long as its watchdog.
const LINE_TIMEOUT: Duration = Duration::from_secs(SECONDS_MAX);

/// A process, ended with the test.
struct RankProgram {
    process: Child,
    lines: Receiver<String>,
}

impl RankProgram {
    fn start(program: &str, scenario: &str, settings: &[(&str, &str)]) -> RankProgram {
        let mut command = Command::new(program);
        // Whatever started the tests must not look like the launcher of these ranks.
        command.env_clear().envs(settings.iter().copied()).arg(scenario);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        RankProgram { process, lines }
    }

    fn line(&self) -> String {
        self.lines
            .recv_timeout(LINE_TIMEOUT)
            .unwrap_or_else(|_| panic!("rank {} says nothing", self.process.id()))
    }

    /// The next line that starts so: oneCCL writes lines of its own to standard output.
    fn line_from(&self, start: &str) -> String {
        loop {
            let line = self.line();
            if line.starts_with(start) {
                return line;
            }
        }
    }

    /// Lets it end by itself.
    fn end(mut self) -> ExitStatus {
        drop(self.process.stdin.take());
        self.process.wait().unwrap()
    }
}

impl Drop for RankProgram {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A directory that the ranks meet in, and the settings of each.
struct Job {
    directory: TempDir,
    ranks: u32,
}

impl Job {
    fn new(ranks: u32) -> Job {
        Job { directory: tempfile::tempdir().unwrap(), ranks }
    }

    fn start(&self, scenario: &str, rank: u32, more: &[(&str, &str)]) -> RankProgram {
        self.start_program(env!("CARGO_BIN_EXE_rank"), scenario, rank, more)
    }

    fn start_program(&self, program: &str, scenario: &str, rank: u32, more: &[(&str, &str)]) -> RankProgram {
        let (rank, ranks) = (rank.to_string(), self.ranks.to_string());
        let directory = self.directory.path().to_str().unwrap();
        let mut settings = vec![
            ("UNISONO_RANK", rank.as_str()),
            ("UNISONO_WORLD_SIZE", &ranks),
            ("UNISONO_LOCAL_WORLD_SIZE", &ranks),
            ("UNISONO_JOB", "processes of a test"),
            ("XDG_RUNTIME_DIR", directory),
            ("TMPDIR", directory),
            ("HOME", directory),
        ];
        settings.retain(|(name, _)| more.iter().all(|(other, _)| other != name));
        settings.extend(more);
        RankProgram::start(program, scenario, &settings)
    }

    fn start_all(&self, scenario: &str) -> Vec<RankProgram> {
        (0..self.ranks).map(|rank| self.start(scenario, rank, &[])).collect()
    }
}

fn mixed(ranks: u32) {
    watchdog(SECONDS_MAX, "mixed", || {
        for (rank, process) in Job::new(ranks).start_all("mixed").into_iter().enumerate() {
            assert_eq!(process.line(), "done", "rank {rank} of {ranks}");
            assert!(process.end().success());
        }
    });
}

#[test]
fn a_forked_child_is_refused_and_its_parent_goes_on() {
    watchdog(SECONDS_MAX, "fork", || {
        let job = Job::new(2);
        // With a thread that writes records, which a child must not wait for.
        let records = [("UNISONO_FLIGHT_DIR", job.directory.path().to_str().unwrap())];
        let start = |rank| job.start_program(env!("CARGO_BIN_EXE_forking"), "", rank, &records);
        for (rank, process) in [0, 1].map(start).into_iter().enumerate() {
            assert_eq!(process.line(), "done", "rank {rank}");
            assert!(process.end().success());
        }
    });
}

/// What ranks of oneCCL find in their environment; `None` without it.
fn ccl_settings() -> Option<Vec<(&'static str, &'static str)>> {
    let environment = ccl_environment()?;
    Some(environment.iter().map(|(name, value)| (*name, value.to_str().unwrap())).collect())
}

#[test]
fn a_forked_child_of_a_rank_of_oneccl_is_refused_and_its_parent_goes_on() {
    let Some(mut settings) = ccl_settings() else { return };
    // With deadlines, so that blocking calls meet those of handles.
    settings.extend([("UNISONO_BACKEND", "ccl"), ("UNISONO_CALL_TIMEOUT_S", "60")]);
    watchdog(SECONDS_MAX, "fork of oneCCL", || {
        let job = Job::new(2);
        let start = |rank| job.start_program(env!("CARGO_BIN_EXE_forking"), "", rank, &settings);
        for (rank, process) in [0, 1].map(start).into_iter().enumerate() {
            assert_eq!(process.line_from("done"), "done", "rank {rank}");
            assert!(process.end().success());
        }
    });
}

#[test]
fn a_rank_that_dies_in_the_init_of_oneccl() {
    let Some(settings) = ccl_settings() else { return };
    /// The moment of the death is one of the clock: on a busy machine not all are in the library by then.
    const ATTEMPTS_MAX: u32 = 5;
    watchdog(SECONDS_MAX, "death in init", || {
        let are_inside = || {
            let job = Job::new(3);
            let start = |rank| job.start_program(env!("CARGO_BIN_EXE_ccl_init"), "", rank, &settings);
            let [first, second, last] = [0, 1, 2].map(start);
            assert!(!last.end().success());
            [first, second].map(|survivor| {
                let line = survivor.line_from("ended: ");
                let rest = line.strip_prefix("ended: lost [2]; over TCP Ok(2); ");
                let is_inside = rest.unwrap_or_else(|| panic!("{line}")) == "inside";
                // Its exit takes oneCCL down around the thread that is inside, which may crash then.
                let status = survivor.end();
                assert!(status.success() || is_inside && status.signal() == Some(libc::SIGSEGV), "{status}");
                is_inside
            })
        };
        assert!((0..ATTEMPTS_MAX).any(|_| are_inside() == [true, true]), "nobody was in the library");
    });
}

#[test]
fn two_processes_run_a_mixed_program() {
    mixed(2);
}

#[test]
fn three_processes_run_a_mixed_program() {
    mixed(3);
}

#[test]
fn four_processes_run_a_mixed_program() {
    mixed(4);
}

#[test]
fn eight_processes_run_a_mixed_program() {
    mixed(8);
}

#[test]
fn every_survivor_names_the_process_that_was_killed() {
    watchdog(SECONDS_MAX, "killed", || {
        for (ranks, victim) in [(2, 1), (3, 0), (4, 2), (8, 5)] {
            let job = Job::new(ranks);
            let mut all = job.start_all("until_failure");
            // By then, ranks have heard of each other's calls.
            let said = ["joined", "has called"];
            all.iter().for_each(|rank| said.iter().for_each(|said| assert_eq!(rank.line(), *said)));
            let pid = all[victim as usize].process.id();
            all[victim as usize].process.kill().unwrap();
            let mut heard = false;
            for (rank, process) in (0..).zip(&all).filter(|(rank, _)| *rank != victim) {
                let line = process.line();
                let named = line.strip_prefix(&format!("lost rank {victim} pid Some({pid}) heard "));
                heard |= named.unwrap_or_else(|| panic!("rank {rank} of {ranks}: {line}")) == "true";
            }
            assert!(heard, "nobody of {ranks} knows a call of rank {victim}");
            all.remove(victim as usize);
            all.into_iter().for_each(|rank| assert!(rank.end().success()));
        }
    });
}

#[test]
fn a_stuck_test_says_what_it_was_doing_and_fails() {
    let output = Command::new(env!("CARGO_BIN_EXE_rank")).arg("stuck").output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(text.contains("WATCHDOG: stuck has not ended after 1 s"), "{text}");
    assert!(text.contains("the one seat: waits for nobody"), "{text}");
}

#[test]
fn ranks_that_never_arrive_are_named() {
    watchdog(SECONDS_MAX, "missing", || {
        for (ranks, missing) in [(2, vec![1]), (4, vec![2]), (5, vec![0, 3])] {
            let job = Job::new(ranks);
            let hurry = [("UNISONO_JOIN_TIMEOUT_S", "3")];
            let present = (0..ranks).filter(|rank| !missing.contains(rank));
            let all: Vec<RankProgram> = present.map(|rank| job.start("mixed", rank, &hurry)).collect();
            for rank in &all {
                assert_eq!(rank.line(), format!("missing {missing:?}"));
            }
        }
    });
}

/// A store of the launcher's, with its secret in a file.
fn store(ranks: u32, directory: &Path) -> (StoreHost, String) {
    let secret = Secret::random().unwrap();
    let file = directory.join("secret");
    create_secret_file(&secret, &file).unwrap();
    // The job is named after the store's address, so its port is chosen before the store starts.
    let listen = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    let job = store_job(&listen.to_string());
    let handshake_timeout = Duration::from_secs(5);
    let store = StoreHost::start(StoreConfig { listen, world_size: ranks, secret, job, handshake_timeout });
    (store.unwrap(), file.to_str().unwrap().to_owned())
}

#[test]
fn a_wrong_secret_is_refused_and_harms_nobody() {
    watchdog(SECONDS_MAX, "refused processes", || {
        let job = Job::new(2);
        let (store, secret) = store(2, job.directory.path());
        let address = store.address().to_string();
        let other = job.directory.path().join("other");
        create_secret_file(&Secret::random().unwrap(), &other).unwrap();
        let at_store = [("UNISONO_STORE", address.as_str()), ("UNISONO_SECRET_FILE", &secret)];

        let first = job.start("mixed", 0, &at_store);
        let wrong_secret = [at_store[0], ("UNISONO_SECRET_FILE", other.to_str().unwrap())];
        let refusal = job.start("mixed", 1, &wrong_secret).line();
        assert!(refusal.contains("secret"), "{refusal}");
        for rank in [job.start("mixed", 1, &at_store), first] {
            assert_eq!(rank.line(), "done");
            assert!(rank.end().success());
        }
    });
}

#[test]
fn a_wrong_world_size_is_told_to_every_rank() {
    watchdog(SECONDS_MAX, "ranks that count differently", || {
        let job = Job::new(2);
        let (store, secret) = store(2, job.directory.path());
        let address = store.address().to_string();
        let at_store = [("UNISONO_STORE", address.as_str()), ("UNISONO_SECRET_FILE", &secret)];
        let larger = Job { ranks: 3, directory: tempfile::tempdir().unwrap() };
        let told =
            [job.start("mixed", 0, &at_store), larger.start("mixed", 2, &at_store)].map(|rank| rank.line());
        assert!(told[0].contains("the world sizes differ: rank 2, pid "), "{}", told[0]);
        assert_eq!(told[0], told[1]);
    });
}
