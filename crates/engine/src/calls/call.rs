//! One collective in progress: its run, its reducer, its deadline, and the errors of its failures.

use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use unisono_backend::{CallGate, Course, Enclosing, Heard, Peers};
use unisono_communicator::{
    BodyStage, Buffer, BufferMut, Buffers, Call, CallAlgorithm, CallBody, CallInfo, CallOptions, CallShape,
    Collective, Counts, DType, Descriptor, Error, Group, GroupRank, Outcome, OwnedBuffers, ParentCall,
    ReduceOp, Result, Segments, Site, Sizes, monotonic_ns, reserve,
};

use crate::calls::idling::Idling;
use crate::calls::pause::Pause;
use crate::calls::step::Step;
use crate::calls::time_slice;
use crate::calls::wait::{Due, Wait};
use crate::links::Links;
use crate::memory::{Memory, TOKEN};
use crate::options::EngineOptions;
use crate::plan::header::{CallHeader, hash_named};
use crate::plan::planner::{Planned, Planner};
use crate::reduce::Reducer;
use crate::run::{Failure, PollContext, Staging};

/// The time for which a body may continue with a call after a first cause: nobody sees whether its bytes move.
const BODY_GRACE: Duration = Duration::from_millis(500);

/// The state that only the holder of the links uses.
pub(crate) struct Engine<L> {
    pub(crate) links: L,
    pub(crate) planner: Planner,
    /// Kept for the next sleep, so that sleeping allocates nothing.
    pub(crate) pause: Pause,
    pub(crate) idling: Idling,
    pub(crate) staging: Staging,
    pub(crate) scratch: Vec<u8>,
}

impl<L: Links> Engine<L> {
    pub(crate) fn new(links: L, planner: Planner, heard: Heard, (ranks, idling): (u32, Idling)) -> Engine<L> {
        let (pause, staging) = (Pause::for_ranks(ranks), Staging::new(heard));
        Engine { links, planner, pause, idling, staging, scratch: Vec::new() }
    }
}

/// A collective that has its number.
pub(crate) struct ActiveCall {
    pub(crate) number: u64,
    collective: Collective,
    wait: Wait,
    descriptor: Descriptor,
    site: Site,
    planned: Box<Planned>,
    /// The scaled input of a PreMulSum, whose own input must not change.
    scaled: Option<Vec<u8>>,
    /// The call lacks memory. It has its number nevertheless, so that the other ranks learn which call fails.
    shortage: Option<Box<Error>>,
    links_open: bool,
    /// The parent call, for a call in a scope.
    parent: Option<Arc<ParentCall>>,
    /// The body, which runs after the plan. The plan is then a barrier.
    body: Option<Box<dyn CallBody>>,
    /// Lengths besides the count.
    sizes: Option<Arc<Sizes>>,
    /// Whether the communication log records the call.
    is_recorded: bool,
    /// When its first byte came, for the communication log.
    first_byte_ns: u64,
}

impl ActiveCall {
    /// Plans a call; for a call with a body, the barrier before it. After an error nothing has changed.
    pub(crate) fn plan<L: Links>(
        collective: Collective,
        call: &Call<'_>,
        engine: &mut Engine<L>,
    ) -> Result<Box<Planned>> {
        if call.body.is_some() {
            let barrier = Descriptor::new(Collective::Barrier, DType::U8, 0);
            let (counts, options) = (Counts::Even, CallOptions::default());
            return engine.planner.take(Collective::Barrier, &barrier, &counts, None, &options);
        }
        let planner = &mut engine.planner;
        let planned = match call.prepared {
            Some(number) => planner.take_prepared(number),
            None => CallShape::of(call).and_then(|shape| planner.take_known(shape)),
        };
        if let Some(planned) = planned {
            return Ok(planned);
        }
        let segment_ends = call.buffers.segment_ends();
        let taken = planner.take(collective, &call.descriptor, &call.counts, segment_ends, &call.options);
        let mut planned = taken?;
        if let Some(number) = call.prepared {
            planner.renew(number, &mut planned);
        }
        Ok(planned)
    }

    /// Gives a planned call its number.
    pub(crate) fn begin<L: Links>(
        collective: Collective,
        mut planned: Box<Planned>,
        call: &mut Call<'_>,
        engine: &mut Engine<L>,
        gate: &CallGate,
        enclosing: Option<&Enclosing>,
    ) -> ActiveCall {
        let (descriptor, ranks) = (call.descriptor, gate.group().size());
        let body = call.body.take();
        let room = enlarge(&mut engine.scratch, planned.run.plan.scratch_bytes);
        let (collective, prepared, named, sizes, header) = match &body {
            None => {
                planned.bind(call, ranks);
                let prepared = room.and_then(|()| prescale(&planned.reducer, &mut call.buffers));
                let plan = &planned.run.plan;
                (collective, prepared, plan.named(), plan.sizes.clone(), planned.header)
            }
            Some(body) => {
                planned.bind_to_barrier(ranks);
                let (named, segment_ends) = (body.named(), call.buffers.segment_ends());
                let header = CallHeader::new(&descriptor, 0, hash_named(named), 0);
                let header = header.with_sizes(&call.counts, segment_ends);
                let sizes = Sizes::of(descriptor.dtype, &call.counts, segment_ends).map(Arc::new);
                (Collective::Barrier, room.map(|()| None), named, sizes, header)
            }
        };
        let (scaled, shortage) = match prepared {
            Ok(scaled) => (scaled, None),
            Err(error) => (None, Some(Box::new(error))),
        };
        let entered = enter(gate, call, named, sizes.as_ref(), enclosing, header, |header| {
            planned.run.reset(header);
        });
        let (number, is_recorded) = entered;
        ActiveCall {
            wait: Wait::new(timeout_within(enclosing, &call.options, gate)),
            parent: enclosing.map(|enclosing| enclosing.parent.clone()),
            scaled,
            shortage,
            body,
            sizes,
            ..ActiveCall::plain(collective, number, planned, call, gate, is_recorded)
        }
    }

    /// A call that has its number, outside scopes, without a body, and without anything that its plan lacks.
    pub(crate) fn plain(
        collective: Collective,
        number: u64,
        planned: Box<Planned>,
        call: &Call<'_>,
        gate: &CallGate,
        is_recorded: bool,
    ) -> ActiveCall {
        ActiveCall {
            number,
            collective,
            wait: Wait::new(timeout_within(None, &call.options, gate)),
            descriptor: call.descriptor,
            site: call.site,
            planned,
            scaled: None,
            shortage: None,
            links_open: false,
            parent: None,
            body: None,
            sizes: None,
            is_recorded,
            first_byte_ns: 0,
        }
    }

    /// Copies the memory of a blocking call for its body, if any.
    pub(crate) fn copy_in(&mut self, buffers: &Buffers<'_>) {
        if let Some(body) = &mut self.body
            && let Err(error) = body.copy_in(buffers)
        {
            self.shortage.get_or_insert(Box::new(error));
        }
    }

    /// Moves the memory of an asynchronous call to its body, if any.
    pub(crate) fn move_in(&mut self, buffers: &mut OwnedBuffers) {
        if let Some(body) = &mut self.body {
            body.move_in(std::mem::replace(buffers, OwnedBuffers::None));
        }
    }

    /// Copies the results of the body, if any.
    pub(crate) fn copy_out(&mut self, buffers: &mut Buffers<'_>) {
        if let Some(body) = &mut self.body {
            body.copy_out(buffers);
        }
    }

    /// The memory to give back: from the body if there is one, else `buffers`.
    pub(crate) fn move_out(&mut self, buffers: OwnedBuffers) -> Option<OwnedBuffers> {
        match &mut self.body {
            Some(body) => body.move_out(),
            None => Some(buffers),
        }
    }

    /// One poll: moves all bytes that can move.
    ///
    /// # Errors
    /// The error that ends the call.
    pub(crate) fn step<L: Links>(
        &mut self,
        engine: &mut Engine<L>,
        buffers: &mut Buffers<'_>,
        gate: &CallGate,
    ) -> Result<Step> {
        let _callback = matches!(self.descriptor.op, Some(ReduceOp::User(_))).then(|| {
            // The function may start threads, which would inherit the short slice.
            time_slice::be_short(false);
            gate.begin_callback()
        });
        let has_met = self.shortage.is_none() && self.planned.run.is_finished();
        let moved = if let Some(body) = self.body.as_mut().filter(|_| has_met) {
            body.advance(self.wait.timeout(), &|| engine.links.waker())?
        } else if self.open_links(&mut engine.links)? {
            let Planned { run, reducer, .. } = &mut *self.planned;
            let is_barrier = self.collective == Collective::Barrier;
            let scaled = self.scaled.as_deref().map(Segments::One);
            let substitute = if is_barrier { Some(&TOKEN) } else { scaled.as_ref() };
            // The barrier before a body has no data, even if the call has memory.
            let mut none = Buffers::none();
            let buffers = if self.body.is_some() { &mut none } else { buffers };
            let memory = Memory::new(buffers, substitute, &mut engine.scratch);
            #[expect(clippy::expect_used, reason = "`execute` and `submit` have refused device memory")]
            let memory = memory.expect("host memory");
            let Engine { links, staging, .. } = engine;
            match run.advance(&mut PollContext { memory, links, staging, reducer }) {
                Ok(moved) => {
                    if moved && self.is_recorded {
                        self.note_first_byte(gate);
                    }
                    moved
                }
                Err(failure) => return Err(self.error(failure, gate.peers())),
            }
        } else {
            false
        };
        Ok(match (self.is_finished(), moved) {
            (true, _) => Step::Finished,
            (false, true) => {
                self.wait.moved();
                Step::Moved
            }
            (false, false) => Step::Idle,
        })
    }

    /// Notes the time if the first bytes from another rank have come. A call that does not wait needs no clock for it.
    #[cold]
    fn note_first_byte(&mut self, gate: &CallGate) {
        let is_first = self.first_byte_ns == 0 && self.wait.has_begun();
        if is_first && gate.board().heard().has_anything_of(self.number) {
            self.first_byte_ns = monotonic_ns(Instant::now());
        }
    }

    /// The way of the call to its end, if the communication log records it.
    #[inline]
    pub(crate) fn course(&self) -> Option<Course> {
        let course = || Course { first_byte_ns: self.first_byte_ns, has_waited: self.wait.has_begun() };
        self.is_recorded.then(course)
    }

    /// Whether the plan's links are open. Starts to open them.
    fn open_links<L: Links>(&mut self, links: &mut L) -> Result<bool> {
        if !self.links_open {
            if let Some(error) = self.shortage.take() {
                return Err(*error);
            }
            match links.open(&self.planned.run.plan.edges) {
                Poll::Ready(opened) => opened?,
                Poll::Pending => return Ok(false),
            }
            self.links_open = true;
        }
        Ok(true)
    }

    #[inline]
    pub(crate) fn is_finished(&self) -> bool {
        self.planned.run.is_finished() && self.stage().is_none_or(|stage| stage == BodyStage::Ended)
    }

    /// The stage of its body, if any.
    fn stage(&self) -> Option<BodyStage> {
        self.body.as_ref().map(|body| body.stage())
    }

    /// The time for which it may stand still after a first cause, beyond the time of other calls.
    pub(crate) fn grace(&self) -> Duration {
        if self.stage() == Some(BodyStage::Running) { BODY_GRACE } else { Duration::ZERO }
    }

    /// Notes that nothing of the call has moved at `now`, and does the due action.
    ///
    /// # Errors
    /// [`Error::Timeout`] after the deadline.
    pub(crate) fn idle<L: Links>(
        &mut self,
        links: &mut L,
        gate: &CallGate,
        options: &EngineOptions,
        now: Instant,
    ) -> Result<()> {
        match self.wait.look(now, options) {
            Due::Nothing => Ok(()),
            Due::End => Err(self.timed_out(links, gate, now)),
            Due::Attention(attention) => {
                let mut awaited = Vec::new();
                self.awaited(links, gate.group(), &mut awaited);
                let info = self.info();
                self.wait.pay(attention, gate, &info, &awaited, self.number);
                Ok(())
            }
        }
    }

    /// Adds the events that this call waits for to `pause`.
    pub(crate) fn pause<L: Links>(&self, links: &mut L, group: &Group, pause: &mut Pause) {
        // A finished run waits for no direction of a link; a socket with room for bytes would end each sleep at once.
        if self.links_open && !self.planned.run.is_finished() {
            self.planned.run.interest(&mut pause.interest);
        }
        pause.end_by(self.wait.next());
        self.awaited(links, group, &mut pause.awaited);
    }

    /// The ranks that the call waits for, the next one first. For a running body, all other ranks, since nobody knows
    /// which.
    fn awaited<L: Links>(&self, links: &mut L, group: &Group, awaited: &mut Vec<GroupRank>) {
        if self.stage() == Some(BodyStage::Running) {
            return awaited.extend(group.ranks().filter(|&rank| rank != group.own_rank()));
        }
        if self.links_open {
            return self.planned.run.awaited(awaited);
        }
        let edges = self.planned.run.plan.edges.iter();
        awaited.extend(edges.filter(|&&edge| !links.is_open(edge)).map(|edge| edge.peer));
    }

    /// The call as errors name it.
    pub(crate) fn info(&self) -> CallInfo {
        let (name, schedules) = self.named();
        CallInfo {
            number: self.number,
            descriptor: self.descriptor,
            algorithm: Some(CallAlgorithm { name: name.into(), schedules }),
            site: self.site.text(),
            sizes: self.sizes.clone(),
            parent: self.parent.clone(),
        }
    }

    /// Ends the call, and gives the run back to the planner.
    pub(crate) fn finish<L: Links>(self, engine: &mut Engine<L>, group: &Group, bytes: u64) -> Outcome {
        if self.wait.has_warned() {
            self.wait.tell_end(group, &self.info(), engine.links.now());
        }
        let outcome = Outcome::done(bytes, self.named().0);
        engine.planner.put_back(self.planned);
        outcome
    }

    /// The error for a failure of the run.
    pub(crate) fn error(&self, failure: Failure, peers: &Peers) -> Error {
        let (call, group) = (self.info(), peers.group());
        let rank = group.own_job_rank();
        match failure {
            Failure::Broken { peer, broken } => broken.error(peers, peer, Some(call)),
            Failure::Mismatch { peer, theirs, difference } => {
                let theirs = (group.job_rank(peer), *theirs);
                Error::Mismatch { calls: Box::new([(rank, call), theirs]), difference }
            }
            Failure::Panicked(panicked) => {
                Error::Panicked { rank, call: Box::new(call), text: panicked.text }
            }
        }
    }

    /// The algorithm or body that runs the call, and the hash of its schedules.
    #[inline]
    fn named(&self) -> (&'static str, u32) {
        match &self.body {
            Some(body) => body.named(),
            None => self.planned.run.plan.named(),
        }
    }

    fn timed_out<L: Links>(&self, links: &mut L, gate: &CallGate, now: Instant) -> Error {
        let (board, group, mut direct) = (gate.board(), gate.group(), Vec::new());
        self.awaited(links, group, &mut direct);
        let not_arrived = board.answers().not_arrived(group, direct, self.number);
        let (call, reported_by) = (Box::new(self.info()), group.own_job_rank());
        Error::Timeout { call, reported_by, waited: self.wait.waited(now), not_arrived }
    }
}

/// Enters a call on the board as [`unisono_backend::Board::enter`], and passes its complete header to `reset`. `named`
/// is the name and hash of the algorithm or body.
#[inline]
pub(crate) fn enter(
    gate: &CallGate,
    call: &Call<'_>,
    named: (&'static str, u32),
    sizes: Option<&Arc<Sizes>>,
    enclosing: Option<&Enclosing>,
    header: CallHeader,
    reset: impl FnOnce(CallHeader),
) -> (u64, bool) {
    let (board, parent) = (gate.board(), enclosing.map(|enclosing| &enclosing.parent));
    let (number, is_recorded) = board.enter(call, Some(named), sizes, parent);
    let context = enclosing.map_or(0, |enclosing| enclosing.context);
    let header = header.numbered(number).within(context).behind(board.calls().history().digest);
    board.calls().set_digest(header.digest());
    reset(header);
    (number, is_recorded)
}

/// The time that a call may wait; in a scope, at most the time that the scope has left.
#[inline]
pub(crate) fn timeout_within(
    enclosing: Option<&Enclosing>,
    options: &CallOptions,
    gate: &CallGate,
) -> Duration {
    let own = options.timeout.unwrap_or(gate.timeout());
    enclosing.map_or(own, |enclosing| enclosing.timeout(own))
}

/// Multiplies the input by the factor of a PreMulSum, in place or into a copy.
fn prescale(reducer: &Reducer, buffers: &mut Buffers<'_>) -> Result<Option<Vec<u8>>> {
    if !reducer.needs_prescale() {
        return Ok(None);
    }
    match buffers {
        Buffers::InOut(BufferMut::Host(buffer)) => buffer.for_each(|slice| reducer.prescale(slice)),
        Buffers::Separate { input: Buffer::Host(input), .. } => {
            let mut copy = input.copied()?;
            reducer.prescale(&mut copy);
            return Ok(Some(copy));
        }
        Buffers::InOut(BufferMut::Device(_)) | Buffers::Separate { .. } => {}
    }
    Ok(None)
}

fn enlarge(memory: &mut Vec<u8>, bytes: usize) -> Result<()> {
    if memory.len() < bytes {
        reserve(memory, bytes - memory.len())?;
        memory.resize(bytes, 0);
    }
    Ok(())
}
