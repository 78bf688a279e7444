//! The part of a call that an executor does, once the ranks have met: its memory, where that is, and its end.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use unisono_backend::{Done, Executor, Job, Waker};
use unisono_communicator::{
    Buffer, BufferMut, Buffers, Counts, Descriptor, Error, Group, GroupRank, OwnedBuffers, OwnedMemory,
    Result, Segments, deadline_after, zeroed,
};

use crate::lock;

/// A call that an executor runs.
pub(crate) struct Executed {
    executor: Arc<dyn Executor>,
    counts: Counts,
    timeout: Duration,
    group: Group,
    state: ExecutedState,
}

/// What the executor's thread leaves at the end.
type End = Arc<Mutex<Option<(Result<()>, Option<OwnedBuffers>)>>>;

enum ExecutedState {
    /// The ranks meet.
    Meeting(OwnedBuffers),
    /// The executor has the memory.
    Running(End),
    /// The memory is back, unless the executor's thread has lost it.
    Ended(Option<OwnedBuffers>),
}

impl Executed {
    /// A call on memory that nobody else uses, with this much time.
    pub(crate) fn new(
        executor: &Arc<dyn Executor>,
        (counts, buffers): (&Counts, OwnedBuffers),
        timeout: Duration,
        group: &Group,
    ) -> Executed {
        let (executor, counts, group) = (executor.clone(), counts.clone(), group.clone());
        Executed { executor, counts, timeout, group, state: ExecutedState::Meeting(buffers) }
    }

    /// The ranks that a running executor may wait for: all others, since what it waits for is not known. `None` while
    /// it does not run.
    pub(crate) fn awaited(&self) -> Option<impl Iterator<Item = GroupRank> + use<>> {
        let own = self.group.own_rank();
        self.is_running().then(|| self.group.ranks().filter(move |&rank| rank != own))
    }

    /// The executor's name, and the hash of its schedules.
    pub(crate) fn named(&self) -> (&'static str, u32) {
        (self.executor.name(), self.executor.schedules())
    }

    /// Whether the executor is at work.
    pub(crate) fn is_running(&self) -> bool {
        matches!(self.state, ExecutedState::Running(_))
    }

    /// Whether the executor has ended.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.state, ExecutedState::Ended(_))
    }

    /// Starts the call, whose ranks have met, or looks whether it has ended; `wake` is called at its end. True when
    /// something has changed.
    ///
    /// # Errors
    /// That of the executor.
    pub(crate) fn advance(&mut self, descriptor: &Descriptor, wake: impl FnOnce() -> Waker) -> Result<bool> {
        match std::mem::replace(&mut self.state, ExecutedState::Ended(None)) {
            ExecutedState::Meeting(buffers) => {
                let end = End::default();
                self.state = ExecutedState::Running(end.clone());
                let (counts, wake) = (std::mem::take(&mut self.counts), wake());
                let deadline = deadline_after(Instant::now(), self.timeout);
                let done = Done::new(move |result, buffers| {
                    *lock(&end) = Some((result, buffers));
                    wake();
                });
                self.executor.start(Job { descriptor: *descriptor, counts, buffers, deadline, done });
                Ok(true)
            }
            ExecutedState::Running(end) => {
                let ended = lock(&end).take();
                let Some((result, buffers)) = ended else {
                    self.state = ExecutedState::Running(end);
                    return Ok(false);
                };
                self.state = ExecutedState::Ended(buffers);
                result.map(|()| true)
            }
            ended @ ExecutedState::Ended(_) => {
                self.state = ended;
                Ok(false)
            }
        }
    }

    /// The memory; `None` while the executor has it, and after it was lost.
    pub(crate) fn take_buffers(&mut self) -> Option<OwnedBuffers> {
        match std::mem::replace(&mut self.state, ExecutedState::Ended(None)) {
            ExecutedState::Meeting(buffers) => Some(buffers),
            ExecutedState::Ended(buffers) => buffers,
            running @ ExecutedState::Running(_) => {
                self.state = running;
                None
            }
        }
    }
}

impl Drop for Executed {
    fn drop(&mut self) {
        if self.is_running() {
            self.executor.abandon();
        }
    }
}

/// A copy of a call's memory. What is only written is not copied.
///
/// # Errors
/// [`Error::System`] when there is no memory for it; [`Error::Unsupported`] for memory of a device.
pub(crate) fn copied(buffers: &Buffers<'_>, backend: &'static str) -> Result<OwnedBuffers> {
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

/// Copies what the call has written from its copy of the memory.
pub(crate) fn write_back(mut copy: OwnedBuffers, buffers: &mut Buffers<'_>) {
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
