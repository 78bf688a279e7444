//! A communicator for device memory only, as a vendor's library has it: a call is enqueued on a stream, and its end is
//! known later.

#![expect(unsafe_code, reason = "memory of a call, by its address")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

use unisono_backend::Tickets;
use unisono_communicator::{
    AfterEnd, Buffer, BufferMut, Buffers, Call, CallInfo, CallOptions, Communicator, DType, Descriptor,
    DeviceBuffer, DeviceStream, DoneCallback, Ending, Error, Executor, Group, Life, MemoryKind, Outcome,
    OwnedBuffer, OwnedBuffers, OwnedCall, OwnedMemory, Result, SegmentList, Site, Ticket, Work, WorkSource,
    call_back,
};

use super::device::Device;

const BACKEND: &str = "double";

/// Runs calls on the memory of a [`Device`] through another communicator, which serves nothing else meanwhile. Calls on
/// several streams run in the order in which they were issued.
pub struct DeviceDouble {
    shared: Arc<Shared>,
}

struct Shared {
    inner: Arc<dyn Communicator>,
    device: Arc<Device>,
    tickets: Arc<Tickets>,
    turns: Mutex<Turns>,
    has_passed: Condvar,
    /// The first error that revoked the inner communicator.
    failure: OnceLock<Error>,
    is_closed: AtomicBool,
}

/// Calls issued, and calls that have run.
#[derive(Default)]
struct Turns {
    issued: u64,
    run: u64,
}

impl DeviceDouble {
    /// A communicator of the same ranks, on `device`.
    pub fn new(inner: Arc<dyn Communicator>, device: Arc<Device>) -> DeviceDouble {
        let (tickets, turns, has_passed) = (Tickets::new(), Mutex::default(), Condvar::new());
        let (failure, is_closed) = (OnceLock::new(), AtomicBool::new(false));
        let shared = Shared { inner, device, tickets, turns, has_passed, failure, is_closed };
        DeviceDouble { shared: Arc::new(shared) }
    }
}

impl Shared {
    fn turns(&self) -> MutexGuard<'_, Turns> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses what cannot be enqueued, before it has a number.
    fn admit(&self, memory: MemoryKind, stream: Option<DeviceStream>) -> Result<DeviceStream> {
        if self.is_closed.load(Ordering::Acquire) {
            return Err(Error::closed());
        }
        if let Some(failure) = self.failure.get() {
            return Err(failure.clone());
        }
        refuse_host(memory)?;
        stream.ok_or_else(|| Error::invalid("stream", "missing"))
    }

    /// Enqueues a call, and gives its ticket. `end` is called with its result, before the ticket has it.
    fn enqueue(
        self: &Arc<Self>,
        stream: DeviceStream,
        mut call: OwnedCall,
        end: impl FnOnce(Result<Outcome>) + Send + 'static,
    ) -> Result<Ticket> {
        let queue = self.device.queue(stream)?;
        // Held until the call is in the queue: two threads must not enqueue in another order than their numbers'.
        let mut turns = self.turns();
        let (shared, number, open) = (self.clone(), turns.issued, self.tickets.issue());
        let ticket = open.ticket();
        queue.put(move || {
            shared.await_turn(number);
            let result = shared.run(&mut call);
            end(result.clone());
            open.end(result);
            shared.turns().run += 1;
            shared.has_passed.notify_all();
        });
        turns.issued += 1;
        Ok(ticket)
    }

    /// Runs a call whose turn it is, unless one before it has failed.
    fn run(&self, call: &mut OwnedCall) -> Result<Outcome> {
        if let Some(failure) = self.failure.get() {
            return Err(failure.clone());
        }
        let run = catch_unwind(AssertUnwindSafe(|| self.inner.execute(&mut call.borrow())));
        let result = run.unwrap_or_else(|_| {
            Err(Error::System { what: "a call on a stream".to_owned(), text: "it has panicked".to_owned() })
        });
        if let Err(error) = &result
            && !error.is_before_start()
        {
            // Only the call whose turn it is sets it.
            let _ = self.failure.set(error.clone());
        }
        result
    }

    fn await_turn(&self, number: u64) {
        let before = self.has_passed.wait_while(self.turns(), |turns| turns.run < number);
        drop(before.unwrap_or_else(PoisonError::into_inner));
    }

    /// Waits until every call that was issued has run.
    fn drain(&self) {
        let number = self.turns().issued;
        self.await_turn(number);
    }
}

fn refuse_host(memory: MemoryKind) -> Result<()> {
    match memory {
        MemoryKind::Device => Ok(()),
        MemoryKind::Host => {
            let instead = Some("copy to the device".to_owned());
            Err(Error::Unsupported { what: "host memory".to_owned(), backend: BACKEND, instead })
        }
    }
}

/// The host memory that a device buffer is.
fn host_memory(buffer: &DeviceBuffer, dtype: DType) -> Result<OwnedMemory> {
    let mut spans = Vec::new();
    for span in buffer.spans() {
        let start = std::ptr::with_exposed_provenance_mut(span.address());
        // SAFETY: whoever made the buffer has promised that the memory is valid until its call has completed in the
        // order of the stream, and that nothing else uses it meanwhile. The stream's thread is that order.
        spans.push(unsafe { OwnedBuffer::from_raw(start, span.bytes(), dtype, Box::new(())) }?);
    }
    Ok(match (buffer.divided(), spans.pop()) {
        (None, Some(span)) => span.into(),
        (None, None) => OwnedMemory::of(Vec::<u8>::new()),
        (Some((division, _)), last) => {
            spans.extend(last);
            OwnedMemory::Many(SegmentList::from(spans).divided(division))
        }
    })
}

/// The same buffers as host memory.
fn host_buffers(buffers: &Buffers<'_>, dtype: DType) -> Result<OwnedBuffers> {
    let nothing = || OwnedMemory::of(Vec::<u8>::new());
    let written = |output: &BufferMut<'_>| match output {
        BufferMut::Device(buffer) => host_memory(buffer, dtype),
        BufferMut::Host(_) => Ok(nothing()),
    };
    Ok(match buffers {
        Buffers::InOut(buffer) => OwnedBuffers::InOut(written(buffer)?),
        Buffers::Separate { input, output } => {
            let input = match input {
                Buffer::Device(buffer) => host_memory(buffer, dtype)?,
                Buffer::Host(_) => nothing(),
            };
            OwnedBuffers::Separate { input, output: written(output)? }
        }
    })
}

/// The same call on host memory, and its size in bytes.
fn on_host(call: &mut Call<'_>) -> Result<(OwnedCall, u64)> {
    let buffers = host_buffers(&call.buffers, call.descriptor.dtype)?;
    let bytes = match &call.buffers {
        Buffers::InOut(buffer) => buffer.bytes(),
        Buffers::Separate { input, output } => input.bytes().max(output.bytes()),
    };
    let &mut Call { descriptor, options, scope, site, .. } = call;
    let (counts, user_function) = (std::mem::take(&mut call.counts), call.user_function.take());
    let call =
        OwnedCall { counts, options, user_function, scope, site, ..OwnedCall::new(descriptor, buffers) };
    Ok((call, bytes as u64))
}

impl Executor for DeviceDouble {
    fn group(&self) -> &Group {
        self.shared.inner.group()
    }

    fn execute(&self, call: &mut Call<'_>) -> Result<Outcome> {
        let stream = self.shared.admit(call.memory(), call.stream)?;
        let (call, bytes) = on_host(call)?;
        let ticket = self.shared.enqueue(stream, call, drop)?;
        Ok(Outcome::enqueued(ticket, bytes, BACKEND))
    }

    fn submit(&self, mut call: OwnedCall) -> Work {
        let (descriptor, site) = (call.descriptor, call.site);
        let (ending, slot) = (Arc::new(Ending::default()), Arc::new(Mutex::new(None)));
        let (at_end, kept) = (ending.clone(), slot.clone());
        let end = move |result| {
            let buffers = kept.lock().unwrap_or_else(PoisonError::into_inner).take();
            at_end.end(result, buffers).into_iter().for_each(AfterEnd::run);
        };
        // Held until the buffers are in the slot: the call may run at once.
        let mut guard = slot.lock().unwrap_or_else(PoisonError::into_inner);
        let enqueued = self.shared.admit(call.memory(), call.stream).and_then(|stream| {
            let (call, _) = on_host(&mut call.borrow())?;
            self.shared.enqueue(stream, call, end)
        });
        match enqueued {
            Ok(ticket) => {
                *guard = Some(call.buffers);
                Work::new(StreamWork { shared: self.shared.clone(), ticket, ending, descriptor, site })
            }
            Err(error) => Work::refused(call, error),
        }
    }

    fn life(&self) -> &dyn Life {
        self
    }
}

impl Life for DeviceDouble {
    fn backend(&self) -> &'static str {
        BACKEND
    }

    fn supports(
        &self,
        _: &Group,
        descriptor: &Descriptor,
        options: &CallOptions,
        memory: MemoryKind,
    ) -> Result<()> {
        refuse_host(memory)?;
        self.shared.inner.supports(descriptor, options, MemoryKind::Host)
    }

    fn resolve_within(&self, ticket: Ticket, timeout: Duration) -> Result<Option<Outcome>> {
        self.shared.tickets.resolve_within(ticket, timeout)
    }

    fn revoke(&self, cause: Error) -> Result<()> {
        self.shared.inner.revoke(cause)
    }

    fn abort(&self) -> Result<()> {
        self.shared.inner.abort()
    }

    fn close(&self) -> Result<()> {
        self.shared.is_closed.store(true, Ordering::Release);
        self.shared.drain();
        self.shared.inner.close()
    }
}

/// The handle of a call on a stream.
struct StreamWork {
    shared: Arc<Shared>,
    ticket: Ticket,
    ending: Arc<Ending>,
    descriptor: Descriptor,
    site: Site,
}

impl WorkSource for StreamWork {
    fn is_done(&self) -> bool {
        self.ending.is_done()
    }

    fn wait_until(&self, until: Option<Instant>, _: &dyn Fn() -> bool) {
        let left = || until.map_or(Duration::MAX, |until| until.saturating_duration_since(Instant::now()));
        while !self.ending.is_done() && !left().is_zero() {
            // The result is that of the ending, which comes first.
            let _ = self.shared.tickets.resolve_within(self.ticket, left());
        }
    }

    fn register(&self, waker: &Waker) {
        self.ending.register(waker);
    }

    fn on_done(&self, callback: DoneCallback) {
        if let Some((callback, result)) = self.ending.on_done(callback) {
            call_back(callback, result);
        }
    }

    fn result(&self) -> Option<Result<Outcome>> {
        self.ending.result()
    }

    fn take_buffers(&self) -> Option<OwnedBuffers> {
        self.ending.take_buffers()
    }

    fn cancel(&self) {
        if !self.is_done() {
            let call = CallInfo {
                site: Some(self.site.into()),
                ..CallInfo::new(self.ticket.number(), self.descriptor)
            };
            let by = self.shared.inner.group().own_job_rank();
            let _ = self.shared.inner.revoke(Error::Cancelled { by, call: Box::new(call) });
        }
    }
}
