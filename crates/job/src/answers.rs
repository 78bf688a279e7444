//! The wait of a caller's thread for the answer of the control thread, which a person may interrupt.

use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};
use unisono_communicator::{Error, JobRank, has_interrupt_check, interrupt_check};

/// The time that the control thread may take beyond a deadline: it may have much to do first. When a process was
/// stopped and goes on, its control thread must get a turn before both times are over.
const LATE_MAX: Duration = Duration::from_secs(1);

/// The longest sleep between two questions whether the wait must end.
const LOOK_PAUSE: Duration = Duration::from_millis(50);

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoAnswer {
    /// It did not come in time.
    Late,
    /// Nobody is there to give it.
    Gone,
    /// The calling thread was told to give up.
    Interrupted,
}

impl NoAnswer {
    /// The error of a call of rank `own`.
    pub(crate) fn error(self, own: JobRank) -> Error {
        let text = match self {
            NoAnswer::Interrupted => return Error::Aborted { by: own },
            NoAnswer::Late => "it is late",
            NoAnswer::Gone => "it has ended",
        };
        Error::System { what: "no answer from the control thread".to_owned(), text: text.to_owned() }
    }
}

/// Waits for the answer of the control thread, which comes by the deadline, or a little later.
pub(crate) fn await_control<T>(answered: &Receiver<T>, deadline: Instant) -> Result<T, NoAnswer> {
    await_answer(answered, deadline).or_else(|missing| match missing {
        NoAnswer::Late => await_answer(answered, Instant::now() + LATE_MAX),
        NoAnswer::Gone | NoAnswer::Interrupted => Err(missing),
    })
}

/// Waits until `until` for an answer, unless the calling thread is told to give up.
pub(crate) fn await_answer<T>(answered: &Receiver<T>, until: Instant) -> Result<T, NoAnswer> {
    let is_asked = has_interrupt_check();
    loop {
        let now = Instant::now();
        match answered.recv_deadline(if is_asked { until.min(now + LOOK_PAUSE) } else { until }) {
            Ok(answer) => return Ok(answer),
            Err(RecvTimeoutError::Disconnected) => return Err(NoAnswer::Gone),
            Err(RecvTimeoutError::Timeout) if !is_asked || now >= until => return Err(NoAnswer::Late),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if interrupt_check(now).is_some_and(|must_end| must_end()) {
            return Err(NoAnswer::Interrupted);
        }
    }
}

/// Gives up `work` once the calling thread is told to.
pub(crate) async fn unless_interrupted<T>(
    own: JobRank,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    if !has_interrupt_check() {
        return work.await;
    }
    let interrupted = async {
        while !interrupt_check(Instant::now()).is_some_and(|must_end| must_end()) {
            tokio::time::sleep(LOOK_PAUSE).await;
        }
    };
    tokio::select! {
        done = work => done,
        () = interrupted => Err(NoAnswer::Interrupted.error(own)),
    }
}

#[cfg(test)]
mod tests {
    use unisono_communicator::InterruptCheck;

    use super::*;
    use crate::task_thread::TaskThread;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_thread_that_is_told_to_gives_up() {
        let (answer, answered) = crossbeam_channel::bounded(1);
        let soon = Instant::now() + LOOK_PAUSE / 10;
        assert_eq!(await_answer(&answered, soon), Err(NoAnswer::Late));
        {
            let _check = InterruptCheck::begin(|| true);
            assert_eq!(await_answer(&answered, Instant::now() + LONG), Err(NoAnswer::Interrupted));
            let thread = TaskThread::start("test").unwrap();
            let never = std::future::pending::<Result<(), Error>>();
            let given_up = thread.wait_for(unless_interrupted(JobRank::new(3), never));
            assert!(matches!(given_up, Err(Error::Aborted { by }) if by.get() == 3), "{given_up:?}");
        }
        answer.send(7).unwrap();
        assert_eq!(await_answer(&answered, Instant::now() + LONG), Ok(7));
        drop(answer);
        assert_eq!(await_answer(&answered, Instant::now() + LONG), Err(NoAnswer::Gone));
    }
}
