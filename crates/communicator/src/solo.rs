//! The world of one: every operation without a network. The examples in the documentation use it.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

use crate::buffer::{Buffer, BufferMut, Buffers, OwnedBuffers, Segments, SegmentsMut};
use crate::call::{CALL_TIMEOUT_DEFAULT, Call, Completion, Outcome, OwnedCall, deadline_after};
use crate::communicator::{Communicator, Shrunk};
use crate::descriptor::Descriptor;
use crate::dtype::{DType, Kind};
use crate::error::{Awaited, CallInfo, Error, Result};
use crate::group::Group;
use crate::operation::Operation;
use crate::rank::{GroupRank, JobRank};
use crate::reduce_op::ReduceOp;
use crate::work::{Finished, Work, WorkSource};

const BACKEND: &str = "solo";
const ALGORITHM: &str = "local";

/// The only rank of the job.
const OWN: JobRank = JobRank::new(0);

/// A communicator with one rank. All algorithms do the same here, so every name is accepted as a forced one.
///
/// ```
/// use unisono_communicator::{Collectives, ReduceOp, Solo};
/// let comm = Solo::new();
/// let mut values = [1.0f32, 2.0];
/// comm.all_reduce(&mut values, ReduceOp::Avg).unwrap();
/// assert_eq!(values, [1.0, 2.0]);
/// ```
pub struct Solo {
    group: Group,
    queue: Arc<MessageQueue>,
}

impl Default for Solo {
    fn default() -> Solo {
        Solo::new()
    }
}

impl Solo {
    /// A world of one.
    pub fn new() -> Solo {
        Solo { group: Group::world(0, 1), queue: Arc::default() }
    }
}

impl Communicator for Solo {
    fn group(&self) -> &Group {
        &self.group
    }

    fn execute(&self, call: Call<'_>) -> Result<Outcome> {
        if call.buffers.on_device() {
            let instead = Some("a vendor's backend, or copy to the host".to_owned());
            return Err(Error::Unsupported { what: "device memory".to_owned(), backend: BACKEND, instead });
        }
        let deadline = deadline_after(Instant::now(), call.options.timeout.unwrap_or(CALL_TIMEOUT_DEFAULT));
        match call.descriptor.operation {
            Operation::Send => self.queue.send(call),
            Operation::Recv => self.queue.receive(call, deadline),
            Operation::Collective(_) => collective(call),
        }
    }

    fn submit(&self, call: OwnedCall) -> Work {
        match call.descriptor.operation {
            Operation::Recv => Work::new(PendingReceive {
                queue: self.queue.clone(),
                deadline: deadline_after(
                    Instant::now(),
                    call.options.timeout.unwrap_or(CALL_TIMEOUT_DEFAULT),
                ),
                state: Mutex::new((Some(call), None)),
            }),
            Operation::Collective(_) | Operation::Send => {
                let mut call = call;
                let result = self.execute(call.borrow());
                Work::finished(Finished { result, buffers: Some(call.buffers) })
            }
        }
    }

    fn backend(&self) -> &'static str {
        BACKEND
    }

    fn subgroup(&self, ranks: &[u32]) -> Result<Option<Arc<dyn Communicator>>> {
        match ranks {
            [] => Ok(None),
            [0] => Ok(Some(Arc::new(Solo::new()))),
            _ => Err(Error::invalid("ranks", format!("{ranks:?}, but the group has rank 0 only"))),
        }
    }

    fn duplicate(&self) -> Result<Arc<dyn Communicator>> {
        Ok(Arc::new(Solo::new()))
    }

    fn shrink(&self) -> Result<Shrunk> {
        let communicator = self.duplicate()?;
        Ok(Shrunk { communicator, new_ranks: vec![Some(0)], last_common_call: 0 })
    }

    fn agree(&self, flag: bool) -> Result<bool> {
        Ok(flag)
    }

    fn close(&self) -> Result<()> {
        Ok(())
    }
}

fn collective(call: Call<'_>) -> Result<Outcome> {
    let factor = match call.descriptor.op {
        Some(ReduceOp::PreMulSum(factor)) => Some(factor),
        _ => None,
    };
    let bytes = match call.buffers {
        Buffers::InOut(BufferMut::Host(mut buffer)) => {
            scale(&mut buffer, call.descriptor.dtype, factor);
            buffer.bytes()
        }
        Buffers::Separate { input: Buffer::Host(input), output: BufferMut::Host(mut output) } => {
            copy(&input, &mut output);
            scale(&mut output, call.descriptor.dtype, factor);
            output.bytes()
        }
        _ => 0,
    };
    Ok(Outcome::done(bytes as u64, ALGORITHM))
}

fn copy(input: &Segments<'_>, output: &mut SegmentsMut<'_>) {
    match (input, output) {
        (Segments::One(from), SegmentsMut::One(to)) => to.copy_from_slice(from),
        (input, output) => output.write_front(input),
    }
}

fn scale(buffer: &mut SegmentsMut<'_>, dtype: DType, factor: Option<f64>) {
    if let Some(factor) = factor {
        buffer.for_each(|slice| scale_slice(slice, dtype, factor));
    }
}

fn scale_slice(bytes: &mut [u8], dtype: DType, factor: f64) {
    // INVARIANT: `check` has called `ReduceOp::accepts`, which admits floats and complex numbers only.
    let (Kind::Float(format) | Kind::Complex(format)) = dtype.kind() else {
        unreachable!("a factor on {dtype}")
    };
    for float in bytes.chunks_exact_mut(format.bytes) {
        let value = format.read(float);
        let is_wide = format.digits > f32::MANTISSA_DIGITS;
        let product = if is_wide { value * factor } else { f64::from(value as f32 * factor as f32) };
        format.write(product, float);
    }
}

#[derive(Default)]
struct MessageQueue {
    messages: Mutex<Messages>,
    arrived: Condvar,
}

struct Message {
    tag: u32,
    dtype: DType,
    bytes: Vec<u8>,
}

#[derive(Default)]
struct Messages {
    queue: VecDeque<Message>,
    waiting: Vec<Waker>,
}

impl MessageQueue {
    fn lock(&self) -> MutexGuard<'_, Messages> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, call: Call<'_>) -> Result<Outcome> {
        let Buffers::Separate { input: Buffer::Host(input), .. } = &call.buffers else {
            return Ok(Outcome::done(0, ALGORITHM));
        };
        let message = input.copied()?;
        let bytes = message.len() as u64;
        let Descriptor { tag, dtype, .. } = call.descriptor;
        let mut messages = self.lock();
        messages.queue.push_back(Message { tag, dtype, bytes: message });
        messages.waiting.drain(..).for_each(Waker::wake);
        self.arrived.notify_all();
        Ok(Outcome::done(bytes, ALGORITHM))
    }

    fn take(&self, tag: u32) -> Option<Message> {
        let mut messages = self.lock();
        let position = messages.queue.iter().position(|message| message.tag == tag)?;
        messages.queue.remove(position)
    }

    fn wait_until(&self, tag: u32, deadline: Instant) -> Option<Message> {
        let mut messages = self.lock();
        loop {
            if let Some(position) = messages.queue.iter().position(|message| message.tag == tag) {
                return messages.queue.remove(position);
            }
            let left = deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())?;
            messages = self.arrived.wait_timeout(messages, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn receive(&self, call: Call<'_>, deadline: Instant) -> Result<Outcome> {
        let started = Instant::now();
        match self.wait_until(call.descriptor.tag, deadline) {
            Some(message) => deliver(call, &message),
            None => Err(timeout(&call, started.elapsed())),
        }
    }
}

fn deliver(call: Call<'_>, message: &Message) -> Result<Outcome> {
    let Descriptor { tag, dtype, .. } = call.descriptor;
    if dtype != message.dtype {
        return Err(Error::invalid("dtype", format!("{dtype}, but rank 0 sent {}", message.dtype)));
    }
    let message = &message.bytes;
    let mut bytes = 0;
    if let Buffers::Separate { output: BufferMut::Host(mut output), .. } = call.buffers {
        bytes = message.len() as u64;
        let room_bytes = output.bytes() as u64;
        if bytes > room_bytes {
            let source_rank = GroupRank::new(0);
            return Err(Error::Truncated { source_rank, tag, sent_bytes: bytes, room_bytes });
        }
        output.write_front(&Segments::One(message));
    }
    Ok(Outcome { completion: Completion::Done, source: Some(0), tag, bytes, algorithm: ALGORITHM })
}

fn timeout(call: &Call<'_>, waited: Duration) -> Error {
    let info = CallInfo {
        number: 0,
        descriptor: call.descriptor,
        algorithm: None,
        site: Some(call.site.into()),
        sizes: None,
    };
    let not_arrived = vec![Awaited { rank: OWN, status: "has not sent".to_owned() }];
    Error::Timeout { call: Box::new(info), reported_by: OWN, waited, not_arrived }
}

/// An asynchronous receive; this rank may send the message later.
struct PendingReceive {
    queue: Arc<MessageQueue>,
    deadline: Instant,
    state: Mutex<(Option<OwnedCall>, Option<Finished>)>,
}

impl PendingReceive {
    fn finish(&self, message: Option<Message>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(mut call) = state.0.take() else { return };
        let waited = call.options.timeout.unwrap_or(CALL_TIMEOUT_DEFAULT);
        let result = match message {
            Some(message) => deliver(call.borrow(), &message),
            None => Err(timeout(&call.borrow(), waited)),
        };
        let buffers: OwnedBuffers = call.buffers;
        state.1 = Some(Finished { result, buffers: Some(buffers) });
    }

    fn tag(&self) -> Option<u32> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.0.as_ref().map(|call| call.descriptor.tag)
    }
}

impl WorkSource for PendingReceive {
    fn is_done(&self) -> bool {
        let Some(tag) = self.tag() else { return true };
        match self.queue.take(tag) {
            Some(message) => self.finish(Some(message)),
            None if Instant::now() >= self.deadline => self.finish(None),
            None => return false,
        }
        true
    }

    fn wait(&self) {
        if let Some(tag) = self.tag() {
            self.finish(self.queue.wait_until(tag, self.deadline));
        }
    }

    fn register(&self, waker: &Waker) {
        let mut messages = self.queue.lock();
        if !messages.waiting.iter().any(|waiting| waiting.will_wake(waker)) {
            messages.waiting.push(waker.clone());
        }
    }

    fn take(&self) -> Option<Finished> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).1.take()
    }

    fn cancel(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(mut call) = state.0.take() else { return };
        let borrowed = call.borrow();
        let info = CallInfo {
            number: 0,
            descriptor: borrowed.descriptor,
            algorithm: None,
            site: Some(borrowed.site.into()),
            sizes: None,
        };
        let result = Err(Error::Cancelled { by: OWN, call: Box::new(info) });
        state.1 = Some(Finished { result, buffers: Some(call.buffers) });
    }
}
