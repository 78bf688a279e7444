//! What runs a collective in place of a schedule.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::error::Result;
use crate::memory::Buffers;
use crate::memory::owned::OwnedBuffers;

/// Runs a collective in place of a schedule once its ranks have met, such as a vendor's library. It has memory of
/// its own. Dropped while it runs, it is given up: nobody waits for it any more.
///
/// The ranks meet in a barrier whose headers describe the call. So a mismatch, and a rank that is dead or late, are
/// noticed before the body starts. A call that is given up leaves the caller's memory alone; memory that has moved in
/// does not come back.
pub trait CallBody: Send {
    /// Its name in outcomes and errors, and the hash of schedules that do not come with the library; else 0.
    fn named(&self) -> (&'static str, u32);

    /// Copies the memory of a blocking call.
    ///
    /// # Errors
    /// [`crate::Error::System`] when there is no memory for it. The call fails where the ranks meet.
    fn copy_in(&mut self, buffers: &Buffers<'_>) -> Result<()>;

    /// Takes the memory of an asynchronous call.
    fn move_in(&mut self, buffers: OwnedBuffers);

    /// Starts it, or looks whether it has ended; does not block. It has `timeout` from its start, and calls what
    /// `waker` gives at its end. True when something has changed.
    ///
    /// # Errors
    /// What ends the call.
    fn advance(&mut self, timeout: Duration, waker: &dyn Fn() -> Arc<dyn Fn() + Send + Sync>)
    -> Result<bool>;

    /// How far it is.
    fn stage(&self) -> BodyStage;

    /// Copies what the call has written.
    fn copy_out(&mut self, buffers: &mut Buffers<'_>);

    /// Gives the memory back; `None` while it runs, and when it is lost.
    fn move_out(&mut self) -> Option<OwnedBuffers>;
}

impl fmt::Debug for dyn CallBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CallBody").field(&self.named().0).finish()
    }
}

/// How far a [`CallBody`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyStage {
    /// The ranks meet.
    Waiting,
    /// It runs.
    Running,
    /// It is over.
    Ended,
}
