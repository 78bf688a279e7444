//! Starts the ranks of a part as processes of this program, and collects what they have found.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use unisono_tests::cuda::kernels_for_host;

use crate::options::{Options, Part};
use crate::report::{Check, Line};

/// How long a rank goes on after another one has failed.
const GRACE: Duration = Duration::from_secs(20);

/// A call may take so long, in seconds.
const CALL_TIMEOUT_S: &str = "60";

/// A rank's process.
struct Rank {
    child: Child,
    status: Option<ExitStatus>,
}

/// Runs a part with so many ranks, all on one device.
pub(crate) fn run(options: &Options, part: Part, ranks: u32) -> Result<Vec<Line>, String> {
    let folder = tempfile::tempdir().map_err(|error| format!("a folder for the ranks: {error}"))?;
    let started: Result<Vec<Rank>, String> =
        (0..ranks).map(|rank| start(options, part, (rank, ranks), folder.path())).collect();
    // Those that have started before one that has not end with their folder.
    let mut started = started?;
    let ended_in_time = wait(&mut started, Duration::from_secs(options.part_timeout_s));
    let mut lines = Vec::new();
    for (rank, one) in started.iter_mut().enumerate() {
        let end = match one.status {
            Some(status) if status.success() => None,
            Some(status) => Some(status.to_string()),
            None => {
                let _ = one.child.kill();
                let _ = one.child.wait();
                let why = if ended_in_time { "after another rank had failed" } else { "in time" };
                Some(format!("it did not end {why}, and was killed"))
            }
        };
        lines.extend(found(&folder, rank, (part, ranks), end));
    }
    Ok(lines)
}

fn results(folder: &Path, rank: usize) -> std::path::PathBuf {
    folder.join(format!("rank-{rank}.jsonl"))
}

fn said(folder: &Path, rank: usize) -> std::path::PathBuf {
    folder.join(format!("rank-{rank}.log"))
}

fn start(options: &Options, part: Part, (rank, ranks): (u32, u32), folder: &Path) -> Result<Rank, String> {
    let problem = |error: std::io::Error| format!("rank {rank}: {error}");
    let log = File::create(said(folder, rank as usize)).map_err(problem)?;
    let mut command = Command::new(std::env::current_exe().map_err(problem)?);
    command.args(options.of_ranks(part)).arg("--results").arg(results(folder, rank as usize));
    command.env("UNISONO_RANK", rank.to_string()).env("UNISONO_WORLD_SIZE", ranks.to_string());
    command.env("UNISONO_JOB", "gpu-check").env("XDG_RUNTIME_DIR", folder).env("UNISONO_BACKEND", "nccl");
    command.env("UNISONO_CALL_TIMEOUT_S", CALL_TIMEOUT_S).env("UNISONO_JOIN_TIMEOUT_S", CALL_TIMEOUT_S);
    if ranks > 1 {
        // What NCCL 2.30 needs for several ranks on one device: few of its processors each, and no NVLink SHARP.
        command.env("NCCL_MULTI_RANK_GPU_ENABLE", "1").env("NCCL_NVLS_ENABLE", "0").env("NCCL_MAX_CTAS", "2");
    }
    if options.double {
        let kernels = kernels_for_host().ok_or("the kernels of the test double need g++")?;
        command.env("UNISONO_DOUBLE_KERNELS", kernels);
    }
    let child =
        command.stdin(std::process::Stdio::null()).stderr(log.try_clone().map_err(problem)?).stdout(log);
    Ok(Rank { child: child.spawn().map_err(problem)?, status: None })
}

/// Waits until all have ended, or the time is over, or some time after one has failed. Whether the time is not over.
fn wait(ranks: &mut [Rank], timeout: Duration) -> bool {
    let started = Instant::now();
    let mut first_failure = None;
    loop {
        for rank in ranks.iter_mut().filter(|rank| rank.status.is_none()) {
            rank.status = rank.child.try_wait().ok().flatten();
            if rank.status.is_some_and(|status| !status.success()) {
                first_failure.get_or_insert_with(Instant::now);
            }
        }
        if ranks.iter().all(|rank| rank.status.is_some()) {
            return true;
        }
        if started.elapsed() > timeout {
            return false;
        }
        if first_failure.is_some_and(|at| at.elapsed() > GRACE) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The lines of a rank, and one more if it has not ended well.
fn found(folder: &TempDir, rank: usize, (part, ranks): (Part, u32), end: Option<String>) -> Vec<Line> {
    let text = fs::read_to_string(results(folder.path(), rank)).unwrap_or_default();
    let mut lines: Vec<Line> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let name = format!("{part:?}, process of rank {rank} of {ranks}");
    let said = fs::read_to_string(said(folder.path(), rank)).unwrap_or_default();
    let failure = match end {
        None if lines.is_empty() => Some("it has checked nothing".to_owned()),
        None => None,
        Some(end) => Some(format!("{end}; its last words: {}", said.lines().last().unwrap_or("none"))),
    };
    lines.push(Line::Check(Check { name, failure }));
    lines
}

/// The arguments of a rank.
impl Options {
    fn of_ranks(&self, part: Part) -> Vec<OsString> {
        let mut words: Vec<OsString> = vec!["--part".into(), part.word().into()];
        words.extend(["--device".into(), self.device.to_string().into()]);
        words.extend(["--rounds".into(), self.rounds.to_string().into()]);
        let paths = [("--driver", &self.driver), ("--nccl", &self.nccl), ("--nvrtc", &self.nvrtc)];
        for (name, path) in paths {
            if let Some(path) = path {
                words.extend([name.into(), path.into()]);
            }
        }
        if self.double {
            words.push("--double".into());
        }
        words
    }
}
