//! Messages that the only rank of a job sends to itself.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

use crate::call::descriptor::Descriptor;
use crate::call::info::CallInfo;
use crate::call::options::{CALL_TIMEOUT_DEFAULT, deadline_after};
use crate::call::outcome::{Completion, Outcome};
use crate::call::{Call, OwnedCall};
use crate::elements::dtype::DType;
use crate::error::{Awaited, Error, Result};
use crate::group::rank::{GroupRank, JobRank};
use crate::memory::host::Segments;
use crate::memory::owned::OwnedBuffers;
use crate::memory::{Buffer, BufferMut, Buffers};
use crate::work::ending::{AfterEnd, DoneCallback, Ending, call_back};
use crate::work::{Work, WorkSource};

/// The name of what moves bytes, in outcomes.
pub(crate) const ALGORITHM: &str = "local";
/// The only rank of the job.
const OWN: JobRank = JobRank::new(0);

/// Messages without a receive, and receives without a message: never both of one tag.
#[derive(Default)]
pub(crate) struct MessageQueue {
    waiting: Mutex<Waiting>,
    changed: Condvar,
    /// Set with the lock held, so that a receive is either refused or ended.
    is_aborted: AtomicBool,
}

#[derive(Default)]
struct Waiting {
    messages: VecDeque<Message>,
    receives: VecDeque<Arc<PostedReceive>>,
}

struct Message {
    tag: u32,
    dtype: DType,
    bytes: Vec<u8>,
}

impl Waiting {
    fn take_message(&mut self, tag: u32) -> Option<Message> {
        let position = self.messages.iter().position(|message| message.tag == tag)?;
        self.messages.remove(position)
    }

    fn take_receive(&mut self, tag: u32) -> Option<Arc<PostedReceive>> {
        let position = self.receives.iter().position(|receive| receive.tag == tag)?;
        self.receives.remove(position)
    }
}

impl MessageQueue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses calls after an abort.
    pub(crate) fn check(&self) -> Result<()> {
        if self.is_aborted.load(Ordering::Relaxed) { Err(Error::Aborted { by: OWN }) } else { Ok(()) }
    }

    /// Ends every receive that waits, and those to come.
    pub(crate) fn abort(&self) {
        let mut waiting = self.lock();
        self.is_aborted.store(true, Ordering::Relaxed);
        let ended = std::mem::take(&mut waiting.receives);
        drop(waiting);
        ended.into_iter().for_each(|receive| receive.end_with(|_| Err(Error::Aborted { by: OWN })));
        self.notify();
    }

    /// Gives the message to the receive that waits for it, or keeps it.
    pub(crate) fn send(&self, call: &Call<'_>) -> Result<Outcome> {
        let Buffers::Separate { input: Buffer::Host(input), .. } = &call.buffers else {
            return Ok(Outcome::done(0, ALGORITHM));
        };
        let bytes = input.copied()?;
        let outcome = Outcome::done(bytes.len() as u64, ALGORITHM);
        let Descriptor { tag, dtype, .. } = call.descriptor;
        let mut message = Some(Message { tag, dtype, bytes });
        let mut waiting = self.lock();
        let mut ended = Vec::new();
        while message.is_some() {
            let Some(receive) = waiting.take_receive(tag) else { break };
            let is_late = Instant::now() >= receive.deadline;
            ended.push((receive, message.take_if(|_| !is_late)));
        }
        waiting.messages.extend(message);
        drop(waiting);
        ended.into_iter().for_each(|(receive, message)| receive.end(message));
        self.notify();
        Ok(outcome)
    }

    /// Notifies the threads that wait. A thread that has looked but does not sleep yet holds the lock.
    fn notify(&self) {
        drop(self.lock());
        self.changed.notify_all();
    }

    /// Waits for the message of a blocking receive.
    pub(crate) fn receive(&self, call: &mut Call<'_>) -> Result<Outcome> {
        let (started, deadline) = (Instant::now(), deadline(call));
        let mut waiting = self.lock();
        loop {
            self.check()?;
            if let Some(message) = waiting.take_message(call.descriptor.tag) {
                drop(waiting);
                return deliver(call, &message);
            }
            let Some(left) = time_left(deadline) else { return Err(timeout(call, started.elapsed())) };
            waiting = self.changed.wait_timeout(waiting, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Posts a receive; this rank may send its message later.
    pub(crate) fn post(self: &Arc<Self>, mut call: OwnedCall) -> Work {
        let (tag, deadline) = (call.descriptor.tag, deadline(&call.borrow()));
        let (call, ending) = (Mutex::new(Some(call)), Ending::default());
        let receive = Arc::new(PostedReceive { tag, deadline, call, ending });
        let mut waiting = self.lock();
        match (self.check(), waiting.take_message(tag)) {
            (Err(aborted), _) => {
                drop(waiting);
                receive.end_with(|_| Err(aborted));
            }
            (Ok(()), Some(message)) => {
                drop(waiting);
                receive.end(Some(message));
            }
            (Ok(()), None) => waiting.receives.push_back(receive.clone()),
        }
        Work::new(ReceiveHandle { queue: self.clone(), receive })
    }

    /// Takes back a receive that no message has reached; false when one has.
    fn withdraw(&self, receive: &Arc<PostedReceive>) -> bool {
        let mut waiting = self.lock();
        let position = waiting.receives.iter().position(|other| Arc::ptr_eq(other, receive));
        position.is_some_and(|position| waiting.receives.remove(position).is_some())
    }
}

fn deadline(call: &Call<'_>) -> Instant {
    deadline_after(Instant::now(), call.options.timeout.unwrap_or(CALL_TIMEOUT_DEFAULT))
}

fn time_left(until: Instant) -> Option<Duration> {
    until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
}

fn deliver(call: &mut Call<'_>, message: &Message) -> Result<Outcome> {
    let Descriptor { tag, dtype, .. } = call.descriptor;
    if dtype != message.dtype {
        return Err(Error::invalid("dtype", format!("{dtype}, but rank 0 sent {}", message.dtype)));
    }
    let message = &message.bytes;
    let mut bytes = 0;
    if let Buffers::Separate { output: BufferMut::Host(output), .. } = &mut call.buffers {
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

fn info(call: &Call<'_>) -> Box<CallInfo> {
    Box::new(CallInfo { site: Some(call.site.into()), ..CallInfo::new(0, call.descriptor) })
}

fn timeout(call: &Call<'_>, waited: Duration) -> Error {
    let not_arrived = vec![Awaited { rank: OWN, status: "has not sent".to_owned() }];
    Error::Timeout { call: info(call), reported_by: OWN, waited, not_arrived }
}

/// A receive that returned at once.
struct PostedReceive {
    tag: u32,
    deadline: Instant,
    call: Mutex<Option<OwnedCall>>,
    ending: Ending,
}

impl PostedReceive {
    /// Ends it with its message, or because it is late. The caller has taken it from the queue, and holds nothing.
    fn end(&self, message: Option<Message>) {
        self.end_with(|call| match message {
            Some(message) => deliver(call, &message),
            None => {
                let waited = call.options.timeout.unwrap_or(CALL_TIMEOUT_DEFAULT);
                Err(timeout(call, waited))
            }
        });
    }

    fn end_with(&self, result: impl FnOnce(&mut Call<'_>) -> Result<Outcome>) {
        let call = self.call.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut call) = call else { return };
        let result = result(&mut call.borrow()).map_err(|error| error.in_call(&call));
        self.ending.end(result, Some(call.buffers)).into_iter().for_each(AfterEnd::run);
    }
}

struct ReceiveHandle {
    queue: Arc<MessageQueue>,
    receive: Arc<PostedReceive>,
}

impl WorkSource for ReceiveHandle {
    fn is_done(&self) -> bool {
        let is_late = !self.receive.ending.is_done() && Instant::now() >= self.receive.deadline;
        if is_late && self.queue.withdraw(&self.receive) {
            self.receive.end(None);
            self.queue.notify();
        }
        self.receive.ending.is_done()
    }

    fn wait_until(&self, until: Option<Instant>) {
        let last = until.map_or(self.receive.deadline, |until| until.min(self.receive.deadline));
        while !self.is_done() {
            let waiting = self.queue.lock();
            let Some(left) = time_left(last) else {
                if until.is_some_and(|until| until <= last) {
                    return;
                }
                // The thread that has taken the receive from the queue is about to end it.
                drop(waiting);
                std::thread::yield_now();
                continue;
            };
            if !self.receive.ending.is_done() {
                drop(self.queue.changed.wait_timeout(waiting, left));
            }
        }
    }

    fn register(&self, waker: &Waker) {
        self.receive.ending.register(waker);
    }

    fn on_done(&self, callback: DoneCallback) {
        if let Some((callback, result)) = self.receive.ending.on_done(callback) {
            call_back(callback, result);
        }
    }

    fn result(&self) -> Option<Result<Outcome>> {
        self.receive.ending.result()
    }

    fn take_buffers(&self) -> Option<OwnedBuffers> {
        self.receive.ending.take_buffers()
    }

    fn cancel(&self) {
        if self.queue.withdraw(&self.receive) {
            self.receive.end_with(|call| Err(Error::Cancelled { by: OWN, call: info(call) }));
            self.queue.notify();
        }
    }
}
