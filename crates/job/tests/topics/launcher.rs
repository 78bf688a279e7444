//! A job whose launcher was stopped, or is busy.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::fd::OwnedFd;
use std::process::Command;
use std::time::Instant;

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use unisono_collectives::Collectives;
use unisono_communicator::{Communicator, ReduceOp, Result};
use unisono_job::Job;
use unisono_job::config::Config;
use unisono_job::report::{ErrorReport, REPORT_BYTES_MAX, ReportPipe};

use crate::TRANSPORT;
use crate::child::{Rank, say, words};
use crate::support::TEST_TIME_MAX;

const RANKS: u32 = 3;

/// If each of their reports took a tenth of a second, a rank would be silent for 20 seconds.
const GROUPS: usize = 200;

/// The program of a rank.
pub(crate) fn one_rank() {
    let mut lines = std::io::stdin().lines().map_while(std::io::Result::ok);
    let world = Job::join(&Config::from_environment().unwrap(), &TRANSPORT).unwrap();
    let communicator = world.communicator().unwrap();
    say(&match lose_a_rank(&*communicator, &mut lines) {
        Ok(sum) => format!("goes on with {sum}"),
        Err(error) => error.to_string(),
    });
    // Its process stays until the parent has read the reports.
    lines.next();
}

fn lose_a_rank(communicator: &dyn Communicator, lines: &mut impl Iterator<Item = String>) -> Result<u32> {
    let all: Vec<u32> = (0..RANKS).collect();
    let groups: Vec<_> = (0..GROUPS).map(|_| communicator.subgroup(&all)).collect::<Result<_>>()?;
    communicator.barrier()?;
    say("ready");
    lines.next();
    while communicator.barrier().is_ok() {}
    // Until this rank has heard of the loss in each of them.
    groups.iter().flatten().for_each(|group| assert!(group.barrier().is_err()));
    let shrunk = communicator.shrink()?.communicator;
    let mut sum = [1];
    shrunk.all_reduce(&mut sum, ReduceOp::Sum)?;
    Ok(sum[0])
}

fn fill(pipe: &OwnedFd) {
    while rustix::io::write(pipe, &[b'\n'; REPORT_BYTES_MAX]) != Err(Errno::AGAIN) {}
}

/// The reports that wait in the pipe or behind it, as soon as there are so many.
fn read(pipe: &ReportPipe, expected: usize) -> Vec<ErrorReport> {
    let mut file = File::from(pipe.reading.try_clone().unwrap());
    let (mut held, mut reports, mut piece) = (Vec::new(), Vec::new(), [0; REPORT_BYTES_MAX]);
    let until = Instant::now() + TEST_TIME_MAX;
    while reports.len() < expected && Instant::now() < until {
        match file.read(&mut piece) {
            Ok(bytes) => held.extend_from_slice(&piece[..bytes]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
        reports.extend(ErrorReport::take_all(&mut held));
    }
    reports
}

#[test]
fn a_launcher_that_does_not_read_makes_no_rank_silent_and_has_the_reports_when_it_reads_again() {
    let pipe = ReportPipe::new().unwrap();
    let (_lines, lines_written) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).unwrap();
    let (name, value) = &pipe.variable;
    let job = format!("test-launcher-{}", std::process::id());
    let (size, job) = (RANKS.to_string(), job.as_str());
    let start = |rank: u32| {
        let number = rank.to_string();
        // Rank 0 would notice that the others are silent.
        let pipe = if rank == 0 { "" } else { value };
        let variables =
            [("UNISONO_RANK", &*number), ("UNISONO_WORLD_SIZE", &size), ("UNISONO_JOB", job), (name, pipe)];
        let mut command = Command::new("env");
        command.args(words("launcher")).envs(variables).env("UNISONO_LOG", "debug");
        Rank::start(format!("rank {rank}"), command.stderr(lines_written.try_clone().unwrap()))
    };
    let mut ranks: Vec<Rank> = (0..RANKS).map(start).collect();
    ranks.iter().for_each(|rank| assert_eq!(rank.hear(), "ready"));
    fill(&pipe.writing);
    fill(&lines_written);
    // A write of a rank waits.
    fcntl_setfl(&lines_written, OFlags::empty()).unwrap();
    ranks.iter_mut().for_each(|rank| rank.tell("go on"));
    // Killed.
    drop(ranks.pop());
    ranks.iter().for_each(|rank| assert_eq!(rank.hear(), "goes on with 2"));
    // The world's first cause is reported too, and each one again when a call has returned it.
    let expected = 2 * (ranks.len() - 1) * (GROUPS + 1);
    let reports = read(&pipe, expected);
    assert!(reports.iter().all(|report| report.culprits == [RANKS - 1]), "{reports:?}");
    assert_eq!(reports.len(), expected);
    ranks.into_iter().for_each(Rank::end);
}
