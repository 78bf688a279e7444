//! How processes end: a rank that has finished harms nobody, and whoever goes too early is named alike by all others,
//! also when each of them ends at once.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use unisono_tests::suite::SECONDS_MAX;

/// How often each job runs; the environment variable UNISONO_TEST_ROUNDS says otherwise.
const ROUNDS: u32 = 5;

pub(crate) fn rounds() -> u32 {
    let set = std::env::var("UNISONO_TEST_ROUNDS").ok();
    set.map_or(ROUNDS, |rounds| rounds.parse().unwrap())
}

/// The processes of one job, killed when this goes.
pub(crate) struct EndingJob {
    _directory: TempDir,
    started: Instant,
    ranks: Vec<Child>,
}

/// What a rank has said, what the library has written, and how it ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) said: String,
    pub(crate) written: String,
    pub(crate) is_success: bool,
    /// After the start of the job.
    pub(crate) took: Duration,
}

impl EndingJob {
    fn start(ranks: u32, words: &[&str]) -> EndingJob {
        EndingJob::start_program(env!("CARGO_BIN_EXE_departing"), ranks, words, &[])
    }

    /// Starts the ranks of a job of this program, with these variables.
    pub(crate) fn start_program(
        program: &str,
        ranks: u32,
        words: &[&str],
        variables: &[(&str, &str)],
    ) -> EndingJob {
        let directory = tempfile::tempdir().unwrap();
        let start = |rank: u32| {
            let mut command = Command::new(program);
            // Whatever started the tests must not look like the launcher of these ranks.
            command.env_clear().args(words);
            command.env("UNISONO_RANK", rank.to_string()).env("UNISONO_WORLD_SIZE", ranks.to_string());
            command.env("UNISONO_JOB", "endings").env("XDG_RUNTIME_DIR", directory.path());
            // Where the first is not to the library's liking, it must not meet the jobs of other tests.
            command.env("TMPDIR", directory.path()).env("HOME", directory.path());
            command.env("UNISONO_CALL_TIMEOUT_S", "60").envs(variables.iter().copied());
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
            command.spawn().unwrap()
        };
        let ranks = (0..ranks).map(start).collect();
        EndingJob { _directory: directory, started: Instant::now(), ranks }
    }

    /// Kills the last rank once it says that it is ready.
    fn kill_last(&mut self) {
        let last = self.ranks.last_mut().unwrap();
        let mut first = [0; 8];
        last.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
        last.kill().unwrap();
    }

    pub(crate) fn end(&mut self) -> Vec<Ended> {
        let until = Instant::now() + Duration::from_secs(SECONDS_MAX);
        let end = |rank: &mut Child| {
            let status = loop {
                match rank.try_wait().unwrap() {
                    Some(status) => break status,
                    None if Instant::now() < until => std::thread::sleep(Duration::from_millis(2)),
                    None => panic!("process {} does not end", rank.id()),
                }
            };
            let (mut said, mut written) = (String::new(), String::new());
            rank.stdout.take().unwrap().read_to_string(&mut said).unwrap();
            rank.stderr.take().unwrap().read_to_string(&mut written).unwrap();
            let took = self.started.elapsed();
            Ended { said: said.trim().to_owned(), written, is_success: status.success(), took }
        };
        self.ranks.iter_mut().map(end).collect()
    }
}

impl Drop for EndingJob {
    fn drop(&mut self) {
        for rank in &mut self.ranks {
            let _ = rank.kill();
            let _ = rank.wait();
        }
    }
}

/// The children have nothing to say: neither the table of their parent nor its counts.
#[test]
fn a_forked_child_prints_no_table_and_writes_no_counts() {
    let folder = tempfile::tempdir().unwrap();
    let counts = folder.path().to_str().unwrap();
    let variables = [("UNISONO_COMMS_LOGGER", "on"), ("UNISONO_METRICS", counts)];
    let ended = EndingJob::start_program(env!("CARGO_BIN_EXE_forking"), 2, &[], &variables).end();
    assert!(ended.iter().all(|one| one.is_success && one.said == "done"), "{ended:#?}");
    let tables = ended.iter().map(|one| one.written.matches("calls of this rank by size").count());
    assert_eq!(tables.collect::<Vec<_>>(), [1, 0], "{ended:#?}");
    for (rank, message) in ["send", "recv"].into_iter().enumerate() {
        let text = std::fs::read_to_string(folder.path().join(format!("unisono-rank-{rank}.prom"))).unwrap();
        let line = format!("unisono_calls_total{{rank=\"{rank}\",operation=\"{message}\"}} 1\n");
        assert!(text.contains(&line), "{text}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2, "no file is left half written");
}

/// Runs a right program; every rank of every round must succeed.
fn all_finish(work: &str) {
    for ranks in [3, 4] {
        for end in ["exit", "return"] {
            for hold in ["static", "local"] {
                for round in 0..rounds() {
                    let ended = EndingJob::start(ranks, &["finish", work, end, hold]).end();
                    let what = format!("{work}, {end}, {hold}, {ranks} ranks, round {round}");
                    assert!(ended.iter().all(|one| one.is_success), "{what}: {ended:#?}");
                }
            }
        }
    }
}

#[test]
fn ranks_end_after_one_call() {
    all_finish("once");
}

#[test]
fn ranks_end_after_a_long_call() {
    all_finish("long");
}

#[test]
fn ranks_end_after_many_asynchronous_calls() {
    all_finish("many");
}

#[test]
fn ranks_end_after_their_messages() {
    all_finish("messages");
}

/// How many jobs run at once whose ranks sleep for most of their time.
const SLEEPING_JOBS: usize = 5;

/// The last rank goes in one way; all others say the same of the same ranks.
fn all_agree(way: &str) {
    let jobs_at_once = if way == "timeout" { SLEEPING_JOBS } else { 1 };
    let rounds: Vec<u32> = (0..rounds()).collect();
    for ranks in [3, 4, 8] {
        for at_once in rounds.chunks(jobs_at_once) {
            std::thread::scope(|threads| {
                for &round in at_once {
                    threads.spawn(move || ranks_agree(way, ranks, round));
                }
            });
        }
    }
}

fn ranks_agree(way: &str, ranks: u32, round: u32) {
    let kind = match way {
        "timeout" => format!("timeout of Some({}): ", ranks - 1),
        _ => format!("lost [{}]: ", ranks - 1),
    };
    let mut job = EndingJob::start(ranks, &["go", way]);
    if way == "kill" {
        job.kill_last();
    }
    let ended = job.end();
    let others = if way == "timeout" { &ended[..] } else { &ended[..ended.len() - 1] };
    let agree = others.iter().all(|one| one.said.starts_with(&kind));
    assert!(agree, "{way} of {ranks}, round {round}: {ended:#?}");
}

#[test]
fn a_panic_is_named_alike_by_all() {
    all_agree("panic");
}

#[test]
fn a_panic_with_a_communicator_in_a_static_is_named_alike_by_all() {
    all_agree("panic-static");
}

#[test]
fn an_exit_is_named_alike_by_all() {
    all_agree("exit");
    all_agree("exit-static");
}

#[test]
fn an_early_return_is_named_alike_by_all() {
    all_agree("return");
}

#[test]
fn an_abort_is_named_alike_by_all() {
    all_agree("abort");
}

#[test]
fn a_kill_is_named_alike_by_all() {
    all_agree("kill");
}

#[test]
fn a_timeout_is_told_alike_by_all() {
    all_agree("timeout");
}
