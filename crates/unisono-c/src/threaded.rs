//! Compressed calls with handles: a thread makes the call, and the caller goes on when the call has its place in the
//! order of calls.

#![expect(unsafe_code, reason = "the memory of a caller goes to another thread")]

use std::sync::Arc;

use unisono::{Communicator, Outcome, Work};

use crate::buffers::Release;
use crate::call::Request;
use crate::compressed::compressed;
use crate::handle::StateHandle;
use crate::sited::Sited;

/// The call of the thread, with the caller's memory.
struct Job {
    request: Request,
    state: Arc<StateHandle>,
    /// Dropped when nobody uses the memory any more.
    _release: Option<Arc<Release>>,
}

// SAFETY: the caller of `unisono_start` has promised that nobody else uses the memory until the call has ended, on any
// thread.
unsafe impl Send for Job {}

/// Starts a compressed call. Returns when the call has its turn, or has ended: so the calls of this rank keep their
/// order.
///
/// # Safety
/// Nobody writes the call's input, and nobody else uses its output, until the call has ended, or `release` is dropped.
pub(crate) unsafe fn start_compressed(
    communicator: &Arc<dyn Communicator>,
    state: Arc<StateHandle>,
    request: Request,
    release: Option<Arc<Release>>,
) -> Work {
    let (own, job) = (communicator.clone(), Job { request, state, _release: release });
    Work::on_thread(communicator.clone(), move |opened| {
        let job = { job };
        let sited = Sited::new(own, job.request.site).that_tells(opened);
        // SAFETY: as the caller of this function promises.
        unsafe { compressed(&sited, &job.state, &job.request) }?;
        Ok(Outcome::done(job.request.sides.output().bytes(), "compressed"))
    })
}
