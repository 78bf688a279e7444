//! A call whose ranks have met, on the thread of the communicator: its memory, where that is, and its end.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use unisono_backend::Waker;
use unisono_communicator::{
    BodyStage, Buffer, BufferMut, Buffers, CallBody, Counts, Descriptor, Error, OwnedBuffers, OwnedMemory,
    Result, Segments, deadline_after, zeroed,
};

use crate::scheduled::Means;
use crate::thread::{VendorThread, panicked};
use crate::vendor::Vendor;

/// A collective for the thread of a communicator. All its ranks have met.
pub(crate) struct Job {
    pub(crate) descriptor: Descriptor,
    pub(crate) counts: Counts,
    /// Its memory, which nobody else uses.
    pub(crate) buffers: OwnedBuffers,
    pub(crate) means: Means,
    /// When it is given up.
    pub(crate) deadline: Instant,
    /// Takes its end.
    pub(crate) done: Done,
}

type End = (Result<()>, Option<OwnedBuffers>);

/// Takes the end of a [`Job`]. Dropped without one, it says that the thread has ended.
pub(crate) struct Done {
    end: Arc<Mutex<Option<End>>>,
    /// Called at the end, once.
    wake: Option<Waker>,
}

impl Done {
    /// The job is over, and this is its memory.
    pub(crate) fn end(mut self, result: Result<()>, buffers: OwnedBuffers) {
        self.set((result, Some(buffers)));
    }

    fn set(&mut self, end: End) {
        if let Some(wake) = self.wake.take() {
            *self.end.lock().unwrap_or_else(PoisonError::into_inner) = Some(end);
            wake();
        }
    }
}

impl Drop for Done {
    fn drop(&mut self) {
        self.set((Err(panicked()), None));
    }
}

/// A call by the library, or by a schedule over it.
pub(crate) struct VendorBody<V: Vendor> {
    thread: Arc<VendorThread<V>>,
    means: Means,
    descriptor: Descriptor,
    counts: Counts,
    state: BodyState,
}

enum BodyState {
    /// The ranks meet.
    Waiting(OwnedBuffers),
    /// The thread has the memory.
    Running(Arc<Mutex<Option<End>>>),
    /// The memory is back, unless the thread has lost it.
    Ended(Option<OwnedBuffers>),
}

impl<V: Vendor> VendorBody<V> {
    /// A call that has no memory yet.
    pub(crate) fn new(
        thread: &Arc<VendorThread<V>>,
        means: Means,
        descriptor: &Descriptor,
        counts: &Counts,
    ) -> VendorBody<V> {
        let (thread, counts) = (thread.clone(), counts.clone());
        VendorBody {
            thread,
            means,
            descriptor: *descriptor,
            counts,
            state: BodyState::Waiting(OwnedBuffers::None),
        }
    }

    /// Hands the call to the thread.
    fn start(&mut self, buffers: OwnedBuffers, timeout: Duration, wake: Waker) {
        let end = Arc::default();
        self.state = BodyState::Running(Arc::clone(&end));
        self.thread.start_job(Job {
            descriptor: self.descriptor,
            counts: std::mem::take(&mut self.counts),
            buffers,
            means: self.means.clone(),
            deadline: deadline_after(Instant::now(), timeout),
            done: Done { end, wake: Some(wake) },
        });
    }
}

impl<V: Vendor> CallBody for VendorBody<V> {
    fn named(&self) -> (&'static str, u32) {
        self.means.named::<V>()
    }

    fn copy_in(&mut self, buffers: &Buffers<'_>) -> Result<()> {
        self.state = BodyState::Waiting(copied(buffers, V::BACKEND)?);
        Ok(())
    }

    fn move_in(&mut self, buffers: OwnedBuffers) {
        self.state = BodyState::Waiting(buffers);
    }

    fn advance(&mut self, timeout: Duration, wake: &dyn Fn() -> Waker) -> Result<bool> {
        match std::mem::replace(&mut self.state, BodyState::Ended(None)) {
            BodyState::Waiting(buffers) => {
                self.start(buffers, timeout, wake());
                Ok(true)
            }
            BodyState::Running(end) => {
                let ended = end.lock().unwrap_or_else(PoisonError::into_inner).take();
                let Some((result, buffers)) = ended else {
                    self.state = BodyState::Running(end);
                    return Ok(false);
                };
                self.state = BodyState::Ended(buffers);
                result.map(|()| true)
            }
            ended @ BodyState::Ended(_) => {
                self.state = ended;
                Ok(false)
            }
        }
    }

    fn stage(&self) -> BodyStage {
        match self.state {
            BodyState::Waiting(_) => BodyStage::Waiting,
            BodyState::Running(_) => BodyStage::Running,
            BodyState::Ended(_) => BodyStage::Ended,
        }
    }

    fn copy_out(&mut self, buffers: &mut Buffers<'_>) {
        if let Some(copy) = self.move_out() {
            write_back(copy, buffers);
        }
    }

    fn move_out(&mut self) -> Option<OwnedBuffers> {
        match std::mem::replace(&mut self.state, BodyState::Ended(None)) {
            BodyState::Waiting(buffers) => Some(buffers),
            BodyState::Ended(buffers) => buffers,
            running @ BodyState::Running(_) => {
                self.state = running;
                None
            }
        }
    }
}

impl<V: Vendor> Drop for VendorBody<V> {
    fn drop(&mut self) {
        if self.stage() == BodyStage::Running {
            self.thread.shared.give_up();
        }
    }
}

/// A copy of a call's memory. Memory that the call only writes is not copied.
///
/// # Errors
/// [`Error::System`] when there is no memory for it; [`Error::Unsupported`] for memory of a device.
fn copied(buffers: &Buffers<'_>, backend: &'static str) -> Result<OwnedBuffers> {
    let device = || Err(Error::no_device(backend));
    match buffers {
        Buffers::InOut(BufferMut::Host(buffer)) => Ok(OwnedBuffers::InOut(OwnedMemory::of(buffer.copied()?))),
        Buffers::Separate { input: Buffer::Host(input), output: BufferMut::Host(output) } => {
            let (input, output) = (input.copied()?, zeroed::<u8>(output.bytes())?);
            let (input, output) = (OwnedMemory::of(input), OwnedMemory::of(output));
            Ok(OwnedBuffers::Separate { input, output })
        }
        Buffers::InOut(BufferMut::Device(_)) | Buffers::Separate { .. } => device(),
    }
}

/// Copies the results of the call back from its copy of the memory.
fn write_back(mut copy: OwnedBuffers, buffers: &mut Buffers<'_>) {
    let (copied, target) = match (copy.borrow(), buffers) {
        (Buffers::InOut(copied), Buffers::InOut(target)) => (copied, target),
        (Buffers::Separate { output: copied, .. }, Buffers::Separate { output: target, .. }) => {
            (copied, target)
        }
        (Buffers::InOut(_) | Buffers::Separate { .. }, _) => return,
    };
    if let (BufferMut::Host(mut copied), BufferMut::Host(target)) = (copied, target) {
        copied.for_each(|bytes| target.write_front(&Segments::One(bytes)));
    }
}
