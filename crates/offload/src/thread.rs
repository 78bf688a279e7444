//! The thread of one communicator of a vendor's: it makes the communicator, runs the calls whose ranks have met, looks
//! after a call that another thread is in, and frees the communicator. If the library never returns, the thread stays
//! in it with the memory of its call, and the process goes on without them.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use unisono_backend::Companion;
use unisono_communicator::{
    Buffers, CallInfo, Counts, Descriptor, Error, Holding, Result, Severity, deadline_after, log,
};

use crate::body::Job;
use crate::capabilities::Capabilities;
use crate::device_turn::Purpose;
use crate::pending::Pending;
use crate::run::run_on_host;
use crate::scheduled::Means;
use crate::signal::Slot;
use crate::staged::{Staging, Turns};
use crate::vendor::Vendor;
use crate::watch::{Inline, InlineWatch, Stall, Stuck, Visit};

/// The pause between two looks at calls on streams, if nobody waits for them.
const TEND_PAUSE: Duration = Duration::from_micros(500);

/// The state that the thread and its users share.
pub(crate) struct VendorShared<V: Vendor> {
    /// This value, for threads of its own.
    pub(crate) own: Weak<VendorShared<V>>,
    pub(crate) vendor: Arc<V>,
    /// The communicator beneath.
    pub(crate) companion: Companion,
    /// A second one, for messages between ranks about the library.
    pub(crate) inner: Companion,
    pub(crate) capabilities: Capabilities,
    comm: OnceLock<V::Comm>,
    /// The way of memory of the host to the device, if the library works on one.
    staging: Staging<V>,
    /// Whether the thread is in the library.
    visit: Visit,
    pub(crate) inline: InlineWatch,
    inline_stall: Stall,
    /// Calls that are on streams.
    pub(crate) pending: Pending<V>,
    pub(crate) enqueued_stall: Stall,
    /// Whether work was given up on a stream that may never end.
    has_left_work: AtomicBool,
    commands: Sender<Command>,
}

enum Command {
    Run(Box<Job>),
    /// There are handles of calls on streams to look after.
    Tend,
    End,
}

/// A communicator of a vendor's, and its thread.
pub(crate) struct VendorThread<V: Vendor> {
    pub(crate) shared: Arc<VendorShared<V>>,
    ended: Arc<Slot<()>>,
    /// `None` when it is being dropped.
    thread: Option<JoinHandle<()>>,
}

impl<V: Vendor> VendorThread<V> {
    /// Starts the thread, which makes the communicator of this id, at most until `until`.
    ///
    /// # Errors
    /// The error of the library; [`Error::System`] when there is no thread left; the first cause; [`Error::Timeout`].
    pub(crate) fn start(
        vendor: Arc<V>,
        companions: [Companion; 2],
        capabilities: Capabilities,
        id: Vec<u8>,
        until: Instant,
    ) -> Result<Arc<VendorThread<V>>> {
        let [companion, inner] = companions;
        let (commands, received) = channel();
        let shared = Arc::new_cyclic(|own| VendorShared {
            own: own.clone(),
            pending: Pending::new(&vendor),
            staging: Staging::new(&vendor),
            vendor,
            companion,
            inner,
            capabilities,
            comm: OnceLock::new(),
            visit: Visit::default(),
            inline: InlineWatch::default(),
            inline_stall: Stall::default(),
            enqueued_stall: Stall::default(),
            has_left_work: AtomicBool::new(false),
            commands,
        });
        let (made, ended) = (Arc::new(Slot::default()), Arc::new(Slot::default()));
        let (mine, at_made, at_end) = (shared.clone(), made.clone(), ended.clone());
        let body = move || {
            let _ended = AtEnd(at_end);
            // It holds turns that calls of others need.
            let _holding = Holding::begin();
            let making = catch_unwind(AssertUnwindSafe(|| mine.make(&id, until)));
            let result = making.unwrap_or_else(|_| Err(panicked()));
            let is_made = result.is_ok();
            at_made.set(result);
            if is_made {
                mine.serve(&received);
            }
            drop(mine);
        };
        let spawned = std::thread::Builder::new().name(format!("unisono-{}", V::BACKEND)).spawn(body);
        let thread =
            spawned.map_err(|error| Error::system("cannot start the thread of a library", &error))?;
        let thread = Arc::new(VendorThread { shared, ended, thread: Some(thread) });
        thread.await_made(&made, until)?;
        thread.shared.watch_revocation();
        Ok(thread)
    }

    /// Has the thread run a job.
    pub(crate) fn start_job(&self, job: Job) {
        // A job that is not taken says so when it is dropped.
        let _ = self.shared.commands.send(Command::Run(Box::new(job)));
    }

    /// Waits until the communicator is made.
    fn await_made(&self, made: &Slot<Result<()>>, until: Instant) -> Result<()> {
        let (shared, started) = (&self.shared, Instant::now());
        let gates = [shared.companion.gate(), shared.inner.gate()];
        let is_revoked = || gates.iter().any(|gate| gate.board().first_cause().is_revoked());
        let known = || gates.iter().try_for_each(|gate| gate.check_revoked());
        match made.take(until, is_revoked) {
            // The thread saw that another rank had given up.
            Some(Err(Error::Closed { .. })) => return known().and(Err(Error::closed())),
            Some(result) => return result,
            None => {}
        }
        // The cause first: giving up aborts calls that others may wait for.
        let error = known().err().unwrap_or_else(|| shared.late("init", started));
        shared.inner.gate().fail(error.clone());
        shared.give_up();
        Err(error)
    }
}

impl<V: Vendor> VendorShared<V> {
    /// Whether a call on a stream may still come to a good end.
    fn check_progress(&self, comm: &V::Comm) -> Result<()> {
        if self.is_given_up() || self.companion.gate().board().first_cause().is_revoked() {
            return Err(Error::closed());
        }
        self.vendor.late_error(comm)
    }

    /// The library's communicator.
    pub(crate) fn comm(&self) -> Result<&V::Comm> {
        self.comm.get().ok_or(Error::closed())
    }

    /// Makes the communicator, when all ranks are in the library, and connects them there.
    fn make(&self, id: &[u8], until: Instant) -> Result<()> {
        let passes = self.together(until, Some(Purpose::Init))?;
        let group = self.companion.group();
        let gives_up = || self.is_given_up();
        let tell = |error: &Error| {
            if !self.is_given_up() {
                self.companion.gate().fail(error.clone());
            }
        };
        let init = || self.vendor.init(id, group.rank(), group.size(), &gives_up, &tell);
        let made = self.visit.during(self.vendor.turn(), gives_up, init)?;
        // It is set once, by this thread.
        drop(self.comm.set(made));
        let connected = self.visit.during(self.vendor.turn(), gives_up, || self.connect());
        connected.inspect_err(|error| {
            tell(error);
            self.abort_or_leave();
        })?;
        drop(passes);
        Ok(())
    }

    /// Serves until the communicator is dropped.
    fn serve(&self, commands: &Receiver<Command>) {
        let (idle, mut has_ended) = (Stall::pause(self.companion.gate().stall_options()), false);
        loop {
            let pause = if self.pending.is_empty() { idle } else { TEND_PAUSE };
            match commands.recv_timeout(pause) {
                Ok(Command::Run(job)) => self.run(*job),
                Ok(Command::Tend) => {}
                Err(RecvTimeoutError::Timeout) => self.look_at_inline(),
                Ok(Command::End) | Err(RecvTimeoutError::Disconnected) => return self.free(),
            }
            self.tend();
            if !has_ended
                && self.vendor.device().is_some()
                && self.companion.gate().board().first_cause().is_revoked()
            {
                has_ended = true;
                self.fail_pending();
                // A call that has failed may have left work on its stream, for which others wait there.
                self.abort();
                self.end_inline();
            }
            self.tell_over();
        }
    }

    /// The call that another thread is in, if it makes no progress. One without a deadline cannot be ended.
    fn look_at_inline(&self) {
        let Some(Inline { number, timeout }) = self.inline.now() else { return };
        let (gate, messages) = (self.companion.gate(), self.inline.messages());
        let deadline = if timeout.is_some() { "" } else { ", and has no deadline," };
        let place = format!("in {}{deadline}", V::BACKEND);
        let still = match &messages {
            Some(messages) => self.look_at_messages(&self.inline_stall, messages, &place),
            None => self.inline_stall.look(gate, &Stuck::collective(gate, number), &place),
        };
        if timeout.is_some_and(|timeout| still >= timeout) && !gate.board().first_cause().is_revoked() {
            gate.fail(match &messages {
                Some(messages) => self.messages_timed_out(messages, still),
                None => self.timed_out(number, still),
            });
        }
    }

    /// The thread has handles of calls on streams to look after.
    pub(crate) fn ask_to_tend(&self) {
        // A thread that is gone has none.
        let _ = self.commands.send(Command::Tend);
    }

    fn run(&self, job: Job) {
        let Job { descriptor, counts, mut buffers, means, deadline, done } = job;
        let result = self.run_together(&descriptor, &counts, &mut buffers.borrow(), &means, deadline);
        done.end(result, buffers);
    }

    fn run_together(
        &self,
        descriptor: &Descriptor,
        counts: &Counts,
        buffers: &mut Buffers<'_>,
        means: &Means,
        deadline: Instant,
    ) -> Result<()> {
        let passes = self.together(deadline, None)?;
        let call = || self.run_call(descriptor, None, counts, buffers, means, Some(deadline));
        let result = self.visit.during(self.vendor.turn(), || self.is_given_up(), call);
        drop(passes);
        result
    }

    /// Runs a call on memory of the host on this thread, with this number if that is known. Every rank does.
    pub(crate) fn run_call(
        &self,
        descriptor: &Descriptor,
        number: Option<u64>,
        counts: &Counts,
        buffers: &mut Buffers<'_>,
        means: &Means,
        until: Option<Instant>,
    ) -> Result<()> {
        let program = self.program(descriptor, counts, means)?;
        match self.vendor.device() {
            Some(device) => {
                let comm = self.comm()?;
                let has_begun = Cell::new(true);
                let take_turn = || {
                    let pass = self.take_device(descriptor, number, until);
                    has_begun.set(pass.is_ok());
                    pass
                };
                let turns = Turns { take_turn: &take_turn, gives_up: &|| self.check_progress(comm) };
                let run = self.staging.run(device, comm, &program, buffers, &turns);
                run.inspect_err(|_| {
                    if has_begun.get() {
                        self.leave_work();
                    }
                })
            }
            None => run_on_host(&*self.vendor, self.comm()?, &program, buffers),
        }
    }

    /// Whether nobody waits any more for the thread's work.
    pub(crate) fn is_given_up(&self) -> bool {
        self.inner.gate().board().first_cause().is_revoked()
    }

    /// Gives up the thread's work.
    pub(crate) fn give_up(&self) {
        // A thread that waits for the other ranks beneath stops.
        let _ = self.inner.abort();
        if !self.visit.is_inside() || self.abort() || !self.visit.give_up(self.vendor.turn()) {
            return;
        }
        let rank = self.companion.group().own_job_rank().get();
        let text = "does not end a call that was given up, and cannot be interrupted: what works on the call and its \
                    memory stay until the end of the process";
        log(Severity::Warn, Some(rank), format_args!("{} {text}", self.vendor.version()));
    }

    /// The failure of something that has no number.
    fn late(&self, what: &'static str, started: Instant) -> Error {
        let gate = self.companion.gate();
        let number = gate.board().calls().entered();
        let call = CallInfo::without_data(number, what);
        let (reported_by, waited) = (gate.group().own_job_rank(), started.elapsed());
        let not_arrived = self.behind().into_iter().collect();
        gate.fail(Error::Timeout { call: Box::new(call), reported_by, waited, not_arrived })
    }

    /// Work that was begun on a stream, and failed or was given up, goes on as far as anybody knows.
    pub(crate) fn leave_work(&self) {
        self.has_left_work.store(true, Ordering::SeqCst);
        if let (false, Some(device)) = (self.capabilities.abort, self.vendor.device()) {
            device.leave_work();
        }
    }

    /// Ends the work that is under way on streams; false when it goes on.
    pub(crate) fn abort_or_leave(&self) -> bool {
        let is_ended = self.abort();
        if !is_ended {
            self.leave_work();
        }
        is_ended
    }

    /// Frees the communicator, unless a thread hangs in the library: an earlier or later failure is no reason to keep
    /// its connections.
    fn free(&self) {
        let until = deadline_after(Instant::now(), self.companion.gate().stall_options().drop_timeout);
        self.drain(until);
        if !self.pending.is_empty() {
            self.fail_pending();
        }
        self.tell_over();
        let pass = match self.vendor.turn().map(|turn| turn.take(Some(until), || false)) {
            Some(None) => return,
            Some(pass) => pass,
            None => None,
        };
        // The library would wait for work that was given up.
        let has_failed = self.companion.gate().board().first_cause().is_revoked();
        let is_aborted = has_failed && self.abort();
        if has_failed && !is_aborted && self.has_left_work.load(Ordering::SeqCst) {
            return;
        }
        let rank = Some(self.companion.group().own_job_rank().get());
        // An aborted communicator is free already.
        let device = self.device_turn().filter(|_| !is_aborted);
        let device_pass = device.map(|turn| turn.take(&self.user(Purpose::Destroy), Some(until), || false));
        match &device_pass {
            Some(None) => {
                let text = "a communicator stays, since its turn on the device has not come to free it";
                return log(Severity::Warn, rank, format_args!("{}: {text}", self.vendor.version()));
            }
            // The library may wait in it for the other ranks of the host, and these ranks do not know of each other.
            // Threads that wait for the device do not wait for them.
            Some(Some(pass)) => pass.lapse_at(until),
            None => {}
        }
        if let Some(comm) = self.comm.get()
            && let Err(error) = self.visit.during(self.vendor.turn(), || false, || self.vendor.destroy(comm))
        {
            log(Severity::Warn, rank, format_args!("{error}"));
        }
        drop((device_pass, pass));
    }
}

/// Says that the thread has ended, also by a panic.
struct AtEnd(Arc<Slot<()>>);

impl Drop for AtEnd {
    fn drop(&mut self) {
        self.0.set(());
    }
}

/// The panic of a library, or of its caller.
pub(crate) fn panicked() -> Error {
    let (what, text) = ("the executor of a call".to_owned(), "its thread has panicked".to_owned());
    Error::System { what, text }
}

/// No call can be made any more by this process.
pub(crate) fn stuck<V: Vendor>() -> Error {
    let what = "calls after one that hangs in the library".to_owned();
    let instead = "Communicator::companion(), or what its shrink() gives after a failure: over tcp";
    let instead = Some(instead.to_owned());
    Error::Unsupported { what, backend: V::BACKEND, instead }
}

impl<V: Vendor> Drop for VendorThread<V> {
    fn drop(&mut self) {
        // A forked child has no such thread.
        if !self.shared.companion.gate().is_owner() {
            return;
        }
        if std::thread::panicking() {
            // Where ranks are threads, this one is dying: the others must learn it, although the library's thread
            // still has the communicators beneath.
            let both = [&self.shared.companion, &self.shared.inner];
            both.into_iter().for_each(|companion| companion.gate().control().abandon());
        }
        // Asked before the thread goes in to free the communicator: that must not run while the process ends.
        let is_inside = self.shared.visit.is_inside();
        let _ = self.shared.commands.send(Command::End);
        if !is_inside && !std::thread::panicking() {
            let until =
                deadline_after(Instant::now(), self.shared.companion.gate().stall_options().drop_timeout);
            // A thread that the library knows must be gone before the process takes the library down.
            if self.ended.take(until, || false).is_some()
                && let Some(thread) = self.thread.take()
            {
                let _ = thread.join();
            }
        }
    }
}
