//! The state of a world of one rank. It keeps the rules of the call gate, which every call of other backends passes.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::Waker;
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use unisono_communicator::{
    Buffer, Buffers, CALL_TIMEOUT_DEFAULT, Call, CallInfo, CallOptions, DoneCallback, EnteredCall, Error,
    Group, OpenScope, Outcome, OwnedBuffers, OwnedCall, ParentCall, RecordedEnd, Recording, Result, ScopeId,
    Tag, WhenBusy, Work, WorkSource, call_back, deadline_after,
};

use crate::solo::messages::{ALGORITHM, Message, OWN, PostedReceive, deadline, info, no_message, timeout};

#[derive(Default)]
pub(crate) struct World {
    state: Mutex<State>,
    changed: Condvar,
    /// The world from which this one was made.
    parent: Weak<World>,
}

#[derive(Default)]
pub(crate) struct State {
    cause: Option<Error>,
    /// The world in which the rank has gone on after a failure.
    survivors: Option<Arc<World>>,
    pub(crate) is_closed: bool,
    /// The number of collectives that have had their turn, which is the right to run.
    pub(crate) calls: u64,
    /// The number of calls that have asked for a turn.
    asked: u64,
    /// The number and the scope of each call that has its turn or waits for it. The first call of each scope has its
    /// turn, and so has the first call without a scope.
    turns: VecDeque<(u64, Option<ScopeId>)>,
    open: Weak<ScopeCalls>,
    /// The number of the next message.
    sent: u64,
    /// Messages without a receive, in the order of sends, and receives without a message. For one tag, one of the two
    /// lists is empty.
    messages: VecDeque<Message>,
    pub(crate) receives: VecDeque<Arc<PostedReceive>>,
    /// Whether a thread looks after the deadlines of the receives.
    pub(crate) is_watched: bool,
}

/// The properties that a scope gives to its calls.
struct ScopeCalls {
    id: ScopeId,
    parent: Arc<ParentCall>,
    first: u64,
    deadline: Instant,
    options: CallOptions,
    opener: ThreadId,
    /// Whether another thread ends the scope.
    is_handed_over: AtomicBool,
}

/// The right to run one collective, or the collectives of a scope, until it is dropped.
pub(crate) struct Turn {
    world: Arc<World>,
    number: u64,
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.world.lock().turns.retain(|turn| turn.0 != self.number);
        self.world.changed.notify_all();
    }
}

impl State {
    /// Refuses calls after a failure, and after `close`.
    pub(crate) fn check(&self) -> Result<()> {
        match &self.cause {
            Some(cause) => Err(cause.clone()),
            None if self.is_closed => Err(Error::closed()),
            None => Ok(()),
        }
    }

    /// Refuses a call past the scope that this thread has open: the call would wait for itself. After a failure no call
    /// waits.
    fn check_own_scope(&self) -> Result<()> {
        let is_own = |open: &Arc<ScopeCalls>| {
            open.opener == thread::current().id() && !open.is_handed_over.load(Ordering::Relaxed)
        };
        match self.open.upgrade().filter(is_own) {
            Some(open) if self.cause.is_none() => Err(Error::past_scope(&open.parent)),
            Some(_) | None => Ok(()),
        }
    }

    fn take_message(&mut self, tag: Tag) -> Option<Message> {
        let position = self.messages.iter().position(|message| tag.fits(message.tag))?;
        self.messages.remove(position)
    }

    /// Keeps a message at its place in the order of sends.
    fn keep(&mut self, message: Message) {
        let place = self.messages.partition_point(|other| other.number < message.number);
        self.messages.insert(place, message);
    }

    pub(crate) fn take_receive(
        &mut self,
        is_it: impl Fn(&Arc<PostedReceive>) -> bool,
    ) -> Option<Arc<PostedReceive>> {
        let position = self.receives.iter().position(is_it)?;
        self.receives.remove(position)
    }
}

impl World {
    /// A world made from this one.
    pub(crate) fn derive(self: &Arc<World>) -> Arc<World> {
        Arc::new(World { parent: Arc::downgrade(self), ..World::default() })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a change, at most until `until`.
    pub(crate) fn wait<'a>(&self, state: MutexGuard<'a, State>, until: Instant) -> MutexGuard<'a, State> {
        let left = until.saturating_duration_since(Instant::now());
        self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Notifies the waiting threads. Taking the lock first reaches a thread that has checked the state and is about to
    /// sleep.
    fn notify(&self) {
        drop(self.lock());
        self.changed.notify_all();
    }

    /// Makes `error` the first cause, if there is none, and ends every waiting call. Gives the first cause.
    pub(crate) fn fail(&self, error: Error) -> Error {
        let mut state = self.lock();
        let cause = state.cause.get_or_insert(error).clone();
        self.end_receives(state, &cause);
        cause
    }

    fn end_receives(&self, mut state: MutexGuard<'_, State>, error: &Error) {
        let ended = std::mem::take(&mut state.receives);
        drop(state);
        ended.into_iter().for_each(|receive| receive.end(|_| Err(error.clone())));
        self.notify();
    }

    /// After a failure, the rank goes on in another world. So it has also survived the failures of the worlds from
    /// which this one was made.
    pub(crate) fn set_survivors(self: &Arc<World>, survivors: &Arc<World>) {
        let is_survived = |world: &Arc<World>| !Arc::ptr_eq(world, self) && world.is_survived();
        for world in std::iter::successors(Some(self.clone()), |world| world.parent.upgrade()) {
            if !is_survived(&world) {
                let mut state = world.lock();
                state.survivors = state.cause.is_some().then(|| survivors.clone());
            }
        }
    }

    /// Whether the newest world has not failed, or was closed before.
    fn is_survived(&self) -> bool {
        let Some(survivors) = self.lock().survivors.clone() else { return false };
        let state = survivors.lock();
        let goes_on = state.cause.is_none();
        drop(state);
        goes_on || survivors.is_survived()
    }

    /// Waits for earlier calls, then refuses later calls.
    pub(crate) fn close(self: &Arc<Self>) -> Result<()> {
        let state = self.lock();
        if state.is_closed {
            return Ok(());
        }
        state.check_own_scope().map_err(|error| error.in_call(&"close"))?;
        drop(state);
        let turn = self.wait_for_turn(None, CALL_TIMEOUT_DEFAULT);
        if let Ok(None) = turn {
            return Err(Error::ConcurrentUse { call: "close".to_owned() });
        }
        let mut state = self.lock();
        if std::mem::replace(&mut state.is_closed, true) {
            return Ok(());
        }
        self.end_receives(state, &Error::closed());
        turn.map(drop).or_else(|error| if self.is_survived() { Ok(()) } else { Err(error) })
    }

    /// The options of a call: its own, completed by its scope's, and with the time that is left in the scope.
    ///
    /// # Errors
    /// As [`State::check`]; [`Error::InvalidArgument`] for a scope that is not open.
    pub(crate) fn admit(&self, scope: Option<ScopeId>, own: &CallOptions) -> Result<CallOptions> {
        let state = self.lock();
        state.check()?;
        let Some(id) = scope else { return Ok(*own) };
        let open = state.open.upgrade().filter(|open| open.id == id);
        let open = open.ok_or_else(|| Error::invalid("scope", "not open on this communicator"))?;
        let left = open.deadline.saturating_duration_since(Instant::now());
        Ok(CallOptions { timeout: Some(own.timeout.unwrap_or(left).min(left)), ..own.or(&open.options) })
    }

    /// The turn of a collective or of a scope. A call waits for its turn if it has a label or asks for the queue. If
    /// the turn does not come in time, the communicator fails.
    pub(crate) fn take_turn(
        self: &Arc<Self>,
        scope: Option<ScopeId>,
        call: CallInfo,
        options: &CallOptions,
    ) -> Result<Turn> {
        let may_wait = options.when_busy == WhenBusy::Queue || call.descriptor.label.is_some();
        let patience =
            if may_wait { options.timeout.unwrap_or(CALL_TIMEOUT_DEFAULT) } else { Duration::ZERO };
        let started = Instant::now();
        if scope.is_none() {
            self.lock().check_own_scope()?;
        }
        let turn = self.wait_for_turn(scope, patience)?;
        let mut state = self.lock();
        if let Some(turn) = turn {
            state.calls += u64::from(call.parent.is_none());
            return Ok(turn);
        }
        if !may_wait {
            let shown = call.parent.map_or(call.descriptor.to_string(), |parent| parent.to_string());
            return Err(Error::ConcurrentUse { call: shown });
        }
        let before = match state.open.upgrade().filter(|_| scope.is_none()) {
            Some(open) => format!("is within the scope of {}, which has not ended,", open.parent.with_site()),
            None => "is in another thread's call,".to_owned(),
        };
        drop(state);
        let status = format!("{before} behind which this one waits");
        Err(self.fail(timeout(call, started.elapsed(), status)))
    }

    /// Waits for earlier calls, at most for `timeout`; `None` when they are not over by then.
    fn wait_for_turn(self: &Arc<Self>, scope: Option<ScopeId>, timeout: Duration) -> Result<Option<Turn>> {
        let until = deadline_after(Instant::now(), timeout);
        let mut state = self.lock();
        let number = state.asked;
        state.asked += 1;
        state.turns.push_back((number, scope));
        let turn = Turn { world: self.clone(), number };
        loop {
            let (checked, first) = (state.check(), state.turns.iter().find(|turn| turn.1 == scope));
            let has_turn = first.is_some_and(|first| first.0 == number);
            if checked.is_err() || has_turn || Instant::now() >= until {
                drop(state);
                return checked.map(|()| has_turn.then_some(turn));
            }
            state = self.wait(state, until);
        }
    }

    /// Takes the turn for all calls of `parent`.
    pub(crate) fn open_scope(
        self: &Arc<Self>,
        parent: ParentCall,
        own: &CallOptions,
        group: &Group,
    ) -> Result<SoloScope> {
        let deadline = deadline_after(Instant::now(), own.timeout.unwrap_or(CALL_TIMEOUT_DEFAULT));
        let parent = Arc::new(parent);
        let call = CallInfo { parent: Some(parent.clone()), ..CallInfo::new(0, parent.descriptor) };
        let turn = self.take_turn(None, call, own).map_err(|error| error.in_call(&parent.with_site()))?;
        let mut state = self.lock();
        let (id, first) = (ScopeId::new_unique(), state.calls);
        let options = CallOptions { timeout: None, label: None, ..*own };
        let (opener, is_handed_over) = (thread::current().id(), AtomicBool::new(false));
        let calls = ScopeCalls { id, parent, first, deadline, options, opener, is_handed_over };
        let calls = Arc::new(calls);
        state.open = Arc::downgrade(&calls);
        drop(state);
        let recording = Recording::begin(&EnteredCall::parent(&calls.parent, own, group.size()), group);
        Ok(SoloScope { calls, turn, recording, size: OnceLock::new() })
    }

    /// Records a call that has its turn, if the log wants it.
    pub(crate) fn record(&self, call: &Call<'_>, group: &Group) -> Option<Recording> {
        if group.comms_logger().is_idle() {
            return None;
        }
        let open = call.scope.and_then(|_| self.lock().open.upgrade());
        let parent = open.as_ref().map(|open| &*open.parent);
        Recording::begin(&EnteredCall { parent, ..EnteredCall::of(call, group.size()) }, group)
    }

    /// Gives the message to the receive that waits for it, or keeps it.
    pub(crate) fn send(&self, call: &Call<'_>) -> Result<Outcome> {
        let Buffers::Separate { input: Buffer::Host(input), .. } = &call.buffers else {
            return Ok(Outcome::done(0, ALGORITHM));
        };
        let bytes = input.copied()?;
        let outcome = Outcome::done(bytes.len() as u64, ALGORITHM);
        let (dtype, tag) = (call.descriptor.dtype, call.descriptor.tag.one().unwrap_or_default());
        let mut state = self.lock();
        state.check()?;
        state.sent += 1;
        let number = state.sent;
        self.give(state, Message { number, tag, dtype, bytes }).map(|()| outcome)
    }

    /// Gives a message to the receive that waits for it, or keeps it.
    pub(crate) fn give(&self, mut state: MutexGuard<'_, State>, message: Message) -> Result<()> {
        match state.take_receive(|receive| receive.tag.fits(message.tag)) {
            None => {
                state.keep(message);
                drop(state);
            }
            Some(receive) => {
                drop(state);
                if Instant::now() >= receive.deadline {
                    self.end_late(&receive);
                    return self.lock().check();
                }
                receive.end(|call| message.deliver_owned(call));
            }
        }
        self.notify();
        Ok(())
    }

    /// Takes the message that the receive of `call` would get. If it `waits`, until there is one.
    pub(crate) fn take(&self, call: &Call<'_>, waits: bool) -> Result<Option<Message>> {
        let (started, deadline) = (Instant::now(), deadline(call));
        let mut state = self.lock();
        loop {
            state.check()?;
            let message = state.take_message(call.descriptor.tag);
            if message.is_some() || !waits {
                return Ok(message);
            }
            if Instant::now() >= deadline {
                drop(state);
                return Err(self.fail(no_message(call, started.elapsed())));
            }
            state = self.wait(state, deadline);
        }
    }

    /// Waits for the message of a blocking receive.
    pub(crate) fn receive(&self, call: &mut Call<'_>) -> Result<Outcome> {
        match self.take(call, true)? {
            Some(message) => message.deliver(call),
            None => Err(Error::closed()),
        }
    }

    /// Posts a receive; this rank may send its message later.
    pub(crate) fn post(self: &Arc<Self>, mut call: OwnedCall, group: &Group) -> Work {
        let recording = self.record(&call.borrow(), group);
        let receive = Arc::new(PostedReceive::new(call, recording));
        let mut state = self.lock();
        match state.check().map(|()| state.take_message(receive.tag)).transpose() {
            None => {
                state.receives.push_back(receive.clone());
                drop(state);
                // Its deadline may be the next one.
                self.changed.notify_all();
            }
            Some(message) => {
                drop(state);
                receive.end(|call| message?.deliver_owned(call));
            }
        }
        Work::new(ReceiveHandle { world: self.clone(), receive })
    }

    /// Fails the communicator with a receive that the caller has taken out of the list.
    fn fail_receive(&self, receive: &PostedReceive, error: impl FnOnce(&Call<'_>) -> Error) {
        receive.end(|call| Err(self.fail(error(&call.borrow()))));
        self.notify();
    }

    pub(crate) fn end_late(&self, receive: &PostedReceive) {
        self.fail_receive(receive, |call| no_message(call, receive.posted.elapsed()));
    }
}

/// An open scope of [`crate::Solo`].
pub(crate) struct SoloScope {
    calls: Arc<ScopeCalls>,
    turn: Turn,
    recording: Option<Recording>,
    /// The size of the parent there, unless it is the descriptor's.
    size: OnceLock<u64>,
}

impl Drop for SoloScope {
    fn drop(&mut self) {
        if let Some(recording) = self.recording.take() {
            let has_failed = self.turn.world.lock().cause.is_some();
            let size = self.size.get().copied();
            recording.end(if has_failed { RecordedEnd::Failed } else { RecordedEnd::Done(size) });
        }
    }
}

impl OpenScope for SoloScope {
    fn id(&self) -> ScopeId {
        self.calls.id
    }

    fn parent(&self) -> &Arc<ParentCall> {
        &self.calls.parent
    }

    fn numbers(&self) -> Range<u64> {
        self.calls.first..self.turn.world.lock().calls
    }

    fn hand_over(&self) {
        self.calls.is_handed_over.store(true, Ordering::Relaxed);
    }

    fn note_size(&self, bytes: u64) {
        // A second size would be of another call.
        let _ = self.size.set(bytes);
    }
}

struct ReceiveHandle {
    world: Arc<World>,
    receive: Arc<PostedReceive>,
}

impl ReceiveHandle {
    /// Takes the receive out of the list; false if it has its message, or has ended.
    fn withdraw(&self) -> bool {
        self.world.lock().take_receive(|other| Arc::ptr_eq(other, &self.receive)).is_some()
    }
}

impl WorkSource for ReceiveHandle {
    fn is_done(&self) -> bool {
        let is_late = !self.receive.ending.is_done() && Instant::now() >= self.receive.deadline;
        if is_late && self.withdraw() {
            self.world.end_late(&self.receive);
        }
        self.receive.ending.is_done()
    }

    fn wait_until(&self, until: Option<Instant>, is_enough: &dyn Fn() -> bool) {
        while !self.is_done() && !is_enough() && until.is_none_or(|until| Instant::now() < until) {
            let state = self.world.lock();
            if !self.receive.ending.is_done() {
                let deadline = self.receive.deadline;
                drop(self.world.wait(state, until.map_or(deadline, |until| until.min(deadline))));
            }
        }
    }

    fn mover(&self) -> usize {
        Arc::as_ptr(&self.world).addr()
    }

    fn register(&self, waker: &Waker) {
        self.receive.ending.register(waker);
        if !self.receive.ending.is_done() {
            self.world.watch();
        }
    }

    fn on_done(&self, callback: DoneCallback) {
        match self.receive.ending.on_done(callback) {
            Some((callback, result)) => call_back(callback, result),
            None => self.world.watch(),
        }
    }

    fn result(&self) -> Option<Result<Outcome>> {
        self.receive.ending.result()
    }

    fn take_buffers(&self) -> Option<OwnedBuffers> {
        self.receive.ending.take_buffers()
    }

    fn cancel(&self) {
        if self.withdraw() {
            let cancelled = |call: &Call<'_>| Error::Cancelled { by: OWN, call: Box::new(info(call)) };
            self.world.fail_receive(&self.receive, cancelled);
        }
    }
}
