//! The death of a rank in the middle of the training, as asked for by `--kill RANK@STEP`.

use std::fmt;
use std::str::FromStr;

use rustix::process::{Signal, getpid, kill_process};
use unisono::Group;

/// The rank that dies, and the step after which it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kill {
    /// The rank of the job.
    pub(crate) rank: u32,
    /// The number of steps that it does before; at least one, so that all ranks have entered the training.
    pub(crate) step: u64,
}

impl Kill {
    /// Ends this process by SIGKILL if it is this rank and `step` has come, so that it cannot tell anybody.
    pub(crate) fn strike(self, group: &Group, steps_done: u64) {
        if group.own_job_rank().get() == self.rank && steps_done == self.step {
            // If a process may not kill itself, the training simply goes on.
            let _ = kill_process(getpid(), Signal::KILL);
        }
    }
}

impl FromStr for Kill {
    type Err = String;

    fn from_str(text: &str) -> Result<Kill, String> {
        let parsed = text.split_once('@').and_then(|(rank, step)| {
            let step = step.parse().ok().filter(|step| *step > 0)?;
            Some(Kill { rank: rank.parse().ok()?, step })
        });
        parsed.ok_or_else(|| format!("unknown kill {text:?}: RANK@STEP, the first step is 1"))
    }
}

impl fmt::Display for Kill {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}@{}", self.rank, self.step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kill_names_a_rank_and_a_step_of_the_training() {
        assert_eq!("2@300".parse(), Ok(Kill { rank: 2, step: 300 }));
        assert_eq!(Kill { rank: 2, step: 300 }.to_string(), "2@300");
        for wrong in ["", "2", "2@", "@3", "2@0", "-1@3", "2@3@4", "a@b"] {
            assert!(wrong.parse::<Kill>().is_err(), "{wrong}");
        }
    }
}
