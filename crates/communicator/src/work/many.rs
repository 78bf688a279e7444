//! Waits for several handles.

use std::time::{Duration, Instant};

use crate::call::options::deadline_after;
use crate::error::Result;
use crate::work::{TypedWork, Work};

/// The longest wait for one communicator while handles of another one may end too.
const TURN: Duration = Duration::from_millis(1);

impl AsRef<Work> for Work {
    fn as_ref(&self) -> &Work {
        self
    }
}

impl<R> AsRef<Work> for TypedWork<R> {
    fn as_ref(&self) -> &Work {
        self.as_work()
    }
}

/// Waits for all handles, and gives their results in the order of the handles.
///
/// ```
/// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
/// use unisono::{Collectives, CollectivesAsync, Solo, wait_all};
/// let comm = Solo::new();
/// let receives = vec![comm.recv_async(vec![0u8; 1], 0, 1), comm.recv_async(vec![0u8; 1], 0, 2)];
/// comm.send(&[20u8], 0, 2)?;
/// comm.send(&[10u8], 0, 1)?;
/// let values = wait_all(receives)?.into_iter().map(|(value, _)| value[0]);
/// assert_eq!(values.collect::<Vec<_>>(), [10, 20]);
/// # Ok::<(), unisono::Error>(())
/// ```
///
/// # Errors
/// The first error in the order of the handles, once all calls have ended.
#[doc(alias = "MPI_Waitall")]
pub fn wait_all<R>(works: impl IntoIterator<Item = TypedWork<R>>) -> Result<Vec<R>> {
    // All calls have begun; each wait moves those behind it too.
    let results: Vec<Result<R>> = works.into_iter().map(TypedWork::wait).collect();
    results.into_iter().collect()
}

/// Waits until one of the calls has ended, and gives its index: the lowest, if several have. `None` if there are no
/// handles. It takes no result: `works.swap_remove(index).wait()` does, and leaves the others for the next wait.
///
/// The thread moves the calls while it waits. Handles of several communicators take turns of a millisecond.
///
/// ```
/// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
/// use unisono::{Collectives, CollectivesAsync, Solo, wait_any};
/// let comm = Solo::new();
/// let mut receives = vec![comm.recv_async(vec![0u8; 1], 0, 1), comm.recv_async(vec![0u8; 1], 0, 2)];
/// comm.send(&[20u8], 0, 2)?;
/// let index = wait_any(&receives).unwrap();
/// assert_eq!((index, receives.swap_remove(index).wait()?.0), (1, vec![20]));
/// # comm.send(&[10u8], 0, 1)?;
/// # Ok::<(), unisono::Error>(())
/// ```
#[doc(alias = "MPI_Waitany")]
pub fn wait_any<W: AsRef<Work>>(works: &[W]) -> Option<usize> {
    wait_any_until(works, None)
}

/// [`wait_any`] for at most `timeout`; `None` too when no call has ended by then.
#[doc(alias = "MPI_Testany")]
pub fn wait_any_timeout<W: AsRef<Work>>(works: &[W], timeout: Duration) -> Option<usize> {
    wait_any_until(works, Some(deadline_after(Instant::now(), timeout)))
}

fn wait_any_until<W: AsRef<Work>>(works: &[W], until: Option<Instant>) -> Option<usize> {
    let sources = || works.iter().map(|work| &*work.as_ref().source);
    let mut turns = (0..works.len()).cycle();
    loop {
        // This also tells each communicator that somebody waits.
        if let Some(ended) = sources().position(|source| source.is_done()) {
            return Some(ended);
        }
        let turn = &*works[turns.next()?].as_ref().source;
        let now = Instant::now();
        if until.is_some_and(|until| now >= until) {
            return None;
        }
        let mover = turn.mover();
        let is_alone = works.len() == 1 || mover != 0 && sources().all(|source| source.mover() == mover);
        let turn_ends = if is_alone { until } else { Some(until.unwrap_or(now + TURN).min(now + TURN)) };
        turn.wait_until(turn_ends, &|| sources().any(|source| source.result().is_some()));
    }
}
