//! Streams and events. A stream is a queue and a thread that does what is in it, in order; nothing is done in the
//! call.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::memory::{self, Part};
use crate::{Handles, export, lock, settings, start_thread};

/// What is to be done; its code is 0, or that of a vendor's error.
pub type Work = Box<dyn FnOnce() -> i32 + Send>;

/// A stream.
pub struct Stream {
    device: u32,
    /// Whether it takes turns with the device's default stream.
    is_blocking: bool,
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    work: VecDeque<Work>,
    /// How much was enqueued and done, ever.
    enqueued: u64,
    done: u64,
    /// Of the first work that has failed; what is behind it is not done.
    error: i32,
    is_closed: bool,
    is_capturing: bool,
}

/// The streams that programs have made.
pub static STREAMS: Handles<Stream> = Handles::new("stream");

/// The default stream of a device, which is there without being made.
pub fn default_of(device: u32) -> Arc<Stream> {
    static DEFAULTS: Mutex<BTreeMap<u32, Arc<Stream>>> = Mutex::new(BTreeMap::new());
    lock(&DEFAULTS).entry(device).or_insert_with(|| Stream::start(device, true)).clone()
}

impl Stream {
    /// A stream of a device. One that is blocking takes turns with the default stream.
    pub fn start(device: u32, is_blocking: bool) -> Arc<Stream> {
        let queue = Mutex::new(Queue::default());
        let stream = Arc::new(Stream { device, is_blocking, queue, changed: Condvar::new() });
        let own = stream.clone();
        start_thread(move || own.work());
        stream
    }

    /// The number of its device.
    pub fn device(&self) -> u32 {
        self.device
    }

    /// Does what is in the queue until this is closed and empty.
    fn work(&self) {
        let mut is_idle = true;
        loop {
            let mut queue = lock(&self.queue);
            while queue.work.is_empty() {
                if queue.is_closed {
                    return;
                }
                is_idle = true;
                queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
            }
            drop(queue);
            if is_idle {
                thread::sleep(settings::delay());
                is_idle = false;
            }
            await_release();
            let mut queue = lock(&self.queue);
            let work = queue.work.pop_front();
            let has_failed = queue.error != 0;
            drop(queue);
            let code = work.filter(|_| !has_failed).map_or(0, |work| work());
            let mut queue = lock(&self.queue);
            queue.done += 1;
            if queue.error == 0 {
                queue.error = code;
            }
            drop(queue);
            self.changed.notify_all();
        }
    }

    /// Appends work, and gives its number for [`Stream::wait`]. While the stream is captured, the work is only noted,
    /// which here is: forgotten.
    pub fn enqueue(self: &Arc<Stream>, work: Work) -> u64 {
        // Two calls at once must not wait for each other.
        static ORDER: Mutex<()> = Mutex::new(());
        let _order = lock(&ORDER);
        if lock(&self.queue).is_capturing {
            return lock(&self.queue).enqueued;
        }
        for before in self.takes_turns_with() {
            self.push_wait(&before, before.enqueued());
        }
        self.push(work)
    }

    /// Appends work that writes `outputs`. They are rubbish until it is done, except where they are also read: from
    /// now on, or if something is before it on the stream, which may read them, from its beginning on.
    pub fn enqueue_output(
        self: &Arc<Stream>,
        [inputs, outputs]: [Vec<Part>; 2],
        work: impl FnOnce() -> i32 + Send + 'static,
    ) -> u64 {
        let is_idle = self.is_idle();
        if is_idle && !self.is_capturing() {
            memory::poison(&outputs, &inputs);
        }
        self.enqueue(Box::new(move || {
            if !is_idle {
                memory::poison(&outputs, &inputs);
            }
            work()
        }))
    }

    /// The streams whose work of now comes before new work on this one.
    fn takes_turns_with(self: &Arc<Stream>) -> Vec<Arc<Stream>> {
        if !self.is_blocking {
            return Vec::new();
        }
        let default = default_of(self.device);
        let mut list = vec![default.clone()];
        if Arc::ptr_eq(self, &default) {
            list = STREAMS.all();
        }
        list.retain(|one| {
            one.is_blocking && one.device == self.device && !Arc::ptr_eq(one, self) && !one.is_idle()
        });
        list
    }

    fn push(&self, work: Work) -> u64 {
        let mut queue = lock(&self.queue);
        queue.work.push_back(work);
        queue.enqueued += 1;
        let number = queue.enqueued;
        drop(queue);
        self.changed.notify_all();
        number
    }

    /// Lets what comes later wait for the work of this number on another stream.
    pub fn push_wait(&self, other: &Arc<Stream>, number: u64) {
        let other = other.clone();
        self.push(Box::new(move || {
            other.wait(number);
            0
        }));
    }

    /// The number of the last work.
    pub fn enqueued(&self) -> u64 {
        lock(&self.queue).enqueued
    }

    /// Whether all work is done.
    pub fn is_idle(&self) -> bool {
        let queue = lock(&self.queue);
        queue.done == queue.enqueued
    }

    /// Whether the work of this number is done.
    pub fn is_done(&self, number: u64) -> bool {
        lock(&self.queue).done >= number
    }

    /// Returns when the work of this number is done.
    pub fn wait(&self, number: u64) {
        let queue = lock(&self.queue);
        let done = self.changed.wait_while(queue, |queue| queue.done < number);
        drop(done.unwrap_or_else(PoisonError::into_inner));
    }

    /// Returns when all work of now is done: the code of the first that has failed. `None` when it takes longer.
    pub fn synchronize(&self, limit: Option<Duration>) -> Option<i32> {
        let queue = lock(&self.queue);
        let number = queue.enqueued;
        let is_under_way = |queue: &mut Queue| queue.done < number;
        let queue = match limit {
            None => self.changed.wait_while(queue, is_under_way).unwrap_or_else(PoisonError::into_inner),
            Some(limit) => {
                let waited = self.changed.wait_timeout_while(queue, limit, is_under_way);
                let (queue, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
                if timeout.timed_out() {
                    return None;
                }
                queue
            }
        };
        Some(queue.error)
    }

    /// The code of the first work that has failed.
    pub fn error(&self) -> i32 {
        lock(&self.queue).error
    }

    /// Begins or ends the capture of what is enqueued; whether it was captured before.
    pub fn set_capturing(&self, is_capturing: bool) -> bool {
        std::mem::replace(&mut lock(&self.queue).is_capturing, is_capturing)
    }

    /// Whether it is captured.
    pub fn is_capturing(&self) -> bool {
        lock(&self.queue).is_capturing
    }

    /// Ends the thread when all work is done.
    pub fn close(&self) {
        lock(&self.queue).is_closed = true;
        self.changed.notify_all();
    }
}

static HELD: Mutex<bool> = Mutex::new(false);
static RELEASED: Condvar = Condvar::new();

/// Returns when work may begin.
pub fn await_release() {
    let held = RELEASED.wait_while(lock(&HELD), |held| *held);
    drop(held.unwrap_or_else(PoisonError::into_inner));
}

/// Lets no stream begin work, and no call that does not block its operation, or lets them all go on: a test can see
/// what is there before the work is done.
pub fn hold(is_held: bool) {
    *lock(&HELD) = is_held;
    RELEASED.notify_all();
}

export! {
    plain fn unisono_double_hold_streams(is_held: i32) {
        hold(is_held != 0);
    }
}

/// A point in a stream.
#[derive(Default)]
pub struct Event {
    recorded: Mutex<Option<Recorded>>,
}

#[derive(Clone)]
struct Recorded {
    stream: Arc<Stream>,
    number: u64,
    time: Arc<OnceLock<Instant>>,
}

/// The events that programs have made.
pub static EVENTS: Handles<Event> = Handles::new("event");

impl Event {
    fn recorded(&self) -> Option<Recorded> {
        lock(&self.recorded).clone()
    }

    /// Becomes the point behind all work of now.
    pub fn record(&self, stream: &Arc<Stream>) {
        let time = Arc::new(OnceLock::new());
        let own = time.clone();
        let number = stream.enqueue(Box::new(move || {
            own.get_or_init(Instant::now);
            0
        }));
        *lock(&self.recorded) = Some(Recorded { stream: stream.clone(), number, time });
    }

    /// Whether the work before it is done, also when it was never recorded.
    pub fn is_done(&self) -> bool {
        self.recorded().is_none_or(|point| point.stream.is_done(point.number))
    }

    /// Returns when the work before it is done: the code of what has failed.
    pub fn synchronize(&self) -> i32 {
        self.recorded().map_or(0, |point| {
            point.stream.wait(point.number);
            point.stream.error()
        })
    }

    /// Lets what comes later on a stream wait for the work before it.
    pub fn hold_back(&self, stream: &Stream) {
        if let Some(point) = self.recorded() {
            stream.push_wait(&point.stream, point.number);
        }
    }

    /// Milliseconds from `start`. `None` when one was not recorded or is not done.
    pub fn elapsed_ms(&self, start: &Event) -> Option<f32> {
        let [start, end] = [start, self].map(|event| event.recorded()?.time.get().copied());
        let [start, end] = [start?, end?];
        let forward = end.saturating_duration_since(start).as_secs_f32();
        let backward = start.saturating_duration_since(end).as_secs_f32();
        Some((forward - backward) * 1e3)
    }
}
