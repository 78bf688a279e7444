//! The code that runs a collective in place of a schedule, such as a call into a vendor's library.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::error::Result;
use crate::memory::Buffers;
use crate::memory::owned::OwnedBuffers;

/// Code that runs a collective in place of a schedule, such as a call into a vendor's library. The engine calls it once
/// the ranks have met. A body works on its own copy of the memory, so a caller may drop it while it runs: nobody waits
/// for a dropped body.
///
/// The ranks meet in a barrier whose headers describe the call. So the engine notices a mismatch, and a dead or late
/// rank, before the body starts. If a body is dropped early, a blocking caller's memory is unchanged, and memory that
/// moved in is lost.
pub trait CallBody: Send {
    /// The algorithm's name in outcomes and errors, and the hash of its schedules; 0 for an algorithm of the library
    /// itself.
    fn named(&self) -> (&'static str, u32);

    /// Copies the memory of a blocking call.
    ///
    /// # Errors
    /// [`crate::Error::System`] when there is no memory for it. The call fails where the ranks meet.
    fn copy_in(&mut self, buffers: &Buffers<'_>) -> Result<()>;

    /// Takes the memory of an asynchronous call.
    fn move_in(&mut self, buffers: OwnedBuffers);

    /// Starts the body on the first call, asks for its end on later calls, and does not block. The body has `timeout`
    /// from its start, and calls the function that `waker` returns when it ends. True when something has changed.
    ///
    /// # Errors
    /// The error that ends the call.
    fn advance(&mut self, timeout: Duration, waker: &dyn Fn() -> Arc<dyn Fn() + Send + Sync>)
    -> Result<bool>;

    /// The current stage.
    fn stage(&self) -> BodyStage;

    /// Copies the results into the memory of a blocking call.
    fn copy_out(&mut self, buffers: &mut Buffers<'_>);

    /// Gives the memory of an asynchronous call back; `None` while the body runs, and when the memory is lost.
    fn move_out(&mut self) -> Option<OwnedBuffers>;
}

impl fmt::Debug for dyn CallBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CallBody").field(&self.named().0).finish()
    }
}

/// The stages of a [`CallBody`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyStage {
    /// The ranks have not met yet.
    Waiting,
    /// It runs.
    Running,
    /// It is over.
    Ended,
}
