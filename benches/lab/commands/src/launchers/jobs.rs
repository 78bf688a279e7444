//! The jobs of four ranks that are tried on every launcher, and the results that they must have.

use std::fmt;
use std::path::PathBuf;
use std::process::Output;

use super::way::Start;
use crate::workspaces::{cargo, succeed, target_folder};

pub(super) const RANKS: usize = 4;

/// The number of a rank, under any launcher.
pub(super) const RANK: &str = "${OMPI_COMM_WORLD_RANK-${PMI_RANK-${RANK-$SLURM_PROCID}}}";

/// The rank that `survive` ends.
const DEAD: usize = 2;

/// The statuses of `timeout`.
const HANGS: [i32; 2] = [124, 137];

/// The examples that ranks run.
pub(super) struct Programs {
    hello: PathBuf,
    survive: PathBuf,
}

impl Programs {
    pub(super) fn build() -> Result<Programs, String> {
        succeed(cargo("build").args(["--package", "unisono", "--example", "hello", "--example", "survive"]))?;
        let [hello, survive] =
            ["hello", "survive"].map(|name| target_folder().join("debug/examples").join(name));
        Ok(Programs { hello, survive })
    }
}

/// A job, and the result that it must have.
#[derive(Clone, Copy, Debug)]
pub(super) enum Job {
    /// The ranks find each other without a flag or a variable for it.
    Sum,
    /// A `RANK` that is left over in a shell is refused.
    LeftOver,
    /// A rank is killed: errors of survivors name this rank, and the job ends.
    Killed,
    /// The same under a launcher that kills the survivors too, before they can say anything.
    KilledWithAll,
    /// Rank 3 has another secret, and is refused.
    WrongSecret,
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Job::Sum => "4 ranks",
            Job::LeftOver => "RANK=0 is left over",
            Job::Killed | Job::KilledWithAll => "a rank is killed",
            Job::WrongSecret => "a wrong secret",
        })
    }
}

impl Job {
    /// Ranks of one host meet through a private file of their own; a secret that is named does not matter.
    pub(super) const ON_ONE_HOST: &[Job] = &[Job::Sum, Job::Killed];
    pub(super) const ON_TWO_HOSTS: &[Job] = &[Job::Sum, Job::Killed, Job::WrongSecret];

    pub(super) fn attempt(self, start: &Start<'_>, programs: &Programs) -> Result<(), String> {
        let output = start(&self.line(programs)).map_err(|error| error.to_string())?;
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        self.judge(&output, &out, &err).map_err(|why| format!("{why}; {}\n{out}{err}", output.status))
    }

    fn line(self, programs: &Programs) -> String {
        let (hello, survive) = (programs.hello.display(), programs.survive.display());
        match self {
            Job::Sum => format!("exec {hello}"),
            Job::LeftOver => format!("RANK=0 WORLD_SIZE=1 exec {hello}"),
            // Survivors end with an error, as most programs do: an agent of torchrun whose ranks succeed waits for the
            // other agents.
            Job::Killed | Job::KilledWithAll => format!("{survive} && exit 3"),
            // Open MPI lets the others wait.
            Job::WrongSecret => format!(
                "export UNISONO_JOIN_TIMEOUT_S=10; [ {RANK} != 3 ] || export UNISONO_SECRET_FILE=$WRONG_SECRET; \
                 exec {hello}"
            ),
        }
    }

    fn judge(self, output: &Output, out: &str, err: &str) -> Result<(), &'static str> {
        let must = |holds: bool, otherwise: &'static str| if holds { Ok(()) } else { Err(otherwise) };
        must(!output.status.code().is_some_and(|code| HANGS.contains(&code)), "it hangs")?;
        let sums = |rank: usize| {
            let line = format!("rank {rank} of {RANKS}: the sum is 10");
            out.lines().filter(|found| found.ends_with(&line)).count()
        };
        match self {
            Job::Sum => {
                must(output.status.success(), "it fails")?;
                must((0..RANKS).all(|rank| sums(rank) == 1), "not every rank has the sum")
            }
            Job::LeftOver => {
                must(!output.status.success() && !out.contains("the sum is"), "RANK=0 is obeyed")?;
                must(err.contains("it contradicts "), "nobody says what it contradicts")
            }
            Job::Killed | Job::KilledWithAll => {
                must(!output.status.success(), "it succeeds")?;
                let others = (0..RANKS).filter(|rank| *rank != DEAD);
                let names: Vec<String> = others.map(|rank| format!("rank {rank}: ")).collect();
                let said = |line: &&str| names.iter().any(|name| line.starts_with(name.as_str()));
                let mut said = out.lines().filter(said).peekable();
                let is_heard = said.peek().is_some() || matches!(self, Job::KilledWithAll);
                must(is_heard, "no survivor says anything")?;
                must(said.all(|line| line.contains(&format!("rank {DEAD}"))), "another rank is blamed")
            }
            Job::WrongSecret => {
                must(!output.status.success(), "it succeeds")?;
                must((0..RANKS).all(|rank| sums(rank) == 0), "ranks meet without a common secret")?;
                must(err.contains("different secrets"), "no rank says why")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use super::*;

    fn is_good(job: Job, status: i32, lines: &[&str], err: &str) -> bool {
        let status = ExitStatus::from_raw(status << 8);
        let output = Output { status, stdout: Vec::new(), stderr: Vec::new() };
        job.judge(&output, &lines.join("\n"), err).is_ok()
    }

    #[test]
    fn jobs_that_are_not_as_they_should_be_fail() {
        let mut lines: Vec<String> =
            [2, 0, 1, 3].map(|rank| format!("[0]: rank {rank} of 4: the sum is 10")).into();
        let sum = |lines: &[String], status| {
            is_good(Job::Sum, status, &lines.iter().map(String::as_str).collect::<Vec<_>>(), "")
        };
        assert!(sum(&lines, 0) && !sum(&lines, 1) && !sum(&lines, 124) && !sum(&lines[1..], 0));
        lines.push("rank 3 of 4: the sum is 10".to_owned());
        assert!(!sum(&lines, 0));
        assert!(!sum(&vec!["rank 0 of 1: the sum is 1".to_owned(); 4], 0));

        let lost = "rank 0: lost rank 2";
        assert!(is_good(Job::Killed, 1, &[lost, "rank 2 crashes"], ""));
        for (status, lines) in [(0, [lost, ""]), (1, [lost, "rank 3: lost rank 0"]), (1, ["", ""])] {
            assert!(!is_good(Job::Killed, status, &lines, ""), "{status} {lines:?}");
        }
        assert!(is_good(Job::KilledWithAll, 1, &["rank 2 crashes"], ""));
        assert!(!is_good(Job::KilledWithAll, 1, &["rank 3: lost rank 0"], ""));
        let said = "the two sides have different secrets";
        assert!(is_good(Job::WrongSecret, 1, &[], said));
        assert!(!is_good(Job::WrongSecret, 1, &[], "") && !is_good(Job::WrongSecret, 124, &[], said));
        assert!(!is_good(Job::WrongSecret, 1, &["rank 1 of 4: the sum is 10"], said));
        assert!(is_good(Job::LeftOver, 1, &[], "it contradicts x") && !is_good(Job::LeftOver, 1, &[], ""));
        assert!(!super::super::run(&["--all"]));
    }
}
