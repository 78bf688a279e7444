//! From a call to a run: chooses the algorithm, builds the schedule, binds the sizes. All three are cached by shape.

use std::sync::Arc;

use unisono_communicator::{
    AlgorithmName, Call, CallOptions, CallShape, Collective, Counts, DType, Descriptor, Determinism, Error,
    Group, PreparedNumber, ReduceOp, Result, Severity, UserFunction, is_logged, log,
};
use unisono_schedule::{Choice, Facts, Schedule};

use crate::options::EngineOptions;
use crate::plan::header::CallHeader;
use crate::plan::in_place::in_place_bytes_min;
use crate::plan::selector::Selector;
use crate::plan::{Identity, Plan, PlanKey, piece_bytes};
use crate::reduce::Reducer;
use crate::run::Run;

/// The number of finished runs that are kept for the next call of the same shape.
const RUNS_KEPT_MAX: usize = 64;

/// The number of schedules that are kept, over all algorithms and shapes.
const SCHEDULES_KEPT_MAX: usize = 256;

struct KeptSchedule {
    choice: Choice,
    schedule: Arc<Schedule>,
}

/// The properties of a call that determine its run.
#[derive(Clone, PartialEq)]
struct PlanRequest {
    descriptor: Descriptor,
    counts: Counts,
    segment_ends: Option<Box<[usize]>>,
    algorithm: Option<AlgorithmName>,
    determinism: Determinism,
}

/// A run and its request. Calls move only the box.
pub(crate) struct Planned {
    request: PlanRequest,
    /// The shape of the last call, if that was plain.
    shape: Option<CallShape>,
    /// Whether the run is bound to its call already: the last call had the same shape.
    is_bound: bool,
    /// The header of the last call, but for its number, and for the calls before and around it.
    pub(crate) header: CallHeader,
    /// The number of the prepared call to which it belongs.
    prepared: Option<PreparedNumber>,
    pub(crate) run: Run,
    /// The kernels of the run.
    pub(crate) reducer: Reducer,
    op: Option<ReduceOp>,
}

impl Planned {
    /// Binds the run to a call, unless the last call had the same shape.
    #[inline]
    pub(crate) fn bind(&mut self, call: &mut Call<'_>, ranks: u32) {
        if !self.is_bound {
            self.bind_to(&call.descriptor, CallShape::of(call), ranks, call.user_function.take());
        }
    }

    /// Binds the run to the barrier before a body.
    pub(crate) fn bind_to_barrier(&mut self, ranks: u32) {
        self.bind_to(&Descriptor::new(Collective::Barrier, DType::U8, 0), None, ranks, None);
    }

    fn bind_to(
        &mut self,
        descriptor: &Descriptor,
        shape: Option<CallShape>,
        ranks: u32,
        user: Option<UserFunction>,
    ) {
        let plan = &self.run.plan;
        self.header = CallHeader::new(descriptor, 0, plan.algorithm_hash, plan.piece_bytes);
        self.shape = shape;
        self.bind_op(descriptor.dtype, descriptor.op, ranks, user);
    }

    /// The kernels stay if the last call had the same operator.
    fn bind_op(&mut self, dtype: DType, op: Option<ReduceOp>, ranks: u32, user: Option<UserFunction>) {
        if self.op != op || user.is_some() {
            self.reducer = match op {
                Some(op) => Reducer::new(dtype, op, ranks, user),
                None => Reducer::nothing(),
            };
            self.op = op;
        }
    }
}

/// Chooses algorithms, builds schedules, binds them to the sizes of calls, and keeps the results.
pub(crate) struct Planner {
    group: Group,
    selector: Arc<Selector>,
    piece_bytes: Option<u64>,
    /// Whether ranks share cores.
    is_crowded: bool,
    schedules: Vec<KeptSchedule>,
    /// Boxed, so that a call moves only a pointer.
    #[allow(clippy::vec_box, reason = "what is moved is the box")]
    kept: Vec<Box<Planned>>,
    /// The runs of prepared calls, by their numbers, which grow.
    prepared: Vec<(PreparedNumber, PreparedRun)>,
}

/// The run of a prepared call.
enum PreparedRun {
    Kept(Box<Planned>),
    /// A call has it.
    Taken,
    /// The choice of algorithms has changed: the next call plans anew.
    Stale,
}

impl Planner {
    pub(crate) fn new(group: &Group, options: &EngineOptions) -> Planner {
        Planner {
            group: group.clone(),
            selector: Arc::new(Selector::new(group, options)),
            piece_bytes: options.piece_bytes,
            is_crowded: options.cost_model.ranks_per_core_thousandths > 1_000,
            schedules: Vec::new(),
            kept: Vec::new(),
            prepared: Vec::new(),
        }
    }

    /// The choice of algorithms.
    pub(crate) fn selector(&self) -> &Arc<Selector> {
        &self.selector
    }

    /// Replaces the selector and forgets all plans, since another algorithm may be cheaper now.
    pub(crate) fn set_selector(&mut self, selector: Arc<Selector>) {
        self.selector = selector;
        self.schedules.clear();
        self.kept.clear();
        self.prepared.iter_mut().for_each(|(_, run)| *run = PreparedRun::Stale);
    }

    /// Makes a run for a prepared call, and keeps it until it is forgotten.
    ///
    /// # Errors
    /// As [`Planner::take`].
    pub(crate) fn prepare(
        &mut self,
        number: PreparedNumber,
        collective: Collective,
        descriptor: &Descriptor,
        options: &CallOptions,
    ) -> Result<()> {
        let planned = self.take(collective, descriptor, &Counts::Even, None, options)?;
        let place = self.prepared.partition_point(|(other, _)| *other < number);
        let run = PreparedRun::Kept(Box::new(Planned { prepared: Some(number), ..*planned }));
        self.prepared.insert(place, (number, run));
        Ok(())
    }

    #[inline]
    fn prepared(&mut self, number: PreparedNumber) -> Option<&mut PreparedRun> {
        let place = self.prepared.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        self.prepared.get_mut(place).map(|(_, run)| run)
    }

    /// Takes the run of a prepared call; `None` while another call has it, and if it is stale.
    pub(crate) fn take_prepared(&mut self, number: PreparedNumber) -> Option<Box<Planned>> {
        let run = self.prepared(number)?;
        match std::mem::replace(run, PreparedRun::Taken) {
            PreparedRun::Kept(planned) => Some(planned),
            PreparedRun::Taken => None,
            PreparedRun::Stale => {
                *run = PreparedRun::Stale;
                None
            }
        }
    }

    /// Makes a new run the run of a prepared call whose old one is stale.
    pub(crate) fn renew(&mut self, number: PreparedNumber, planned: &mut Planned) {
        if let Some(run @ PreparedRun::Stale) = self.prepared(number) {
            *run = PreparedRun::Taken;
            planned.prepared = Some(number);
        }
    }

    /// Forgets the run of a prepared call.
    pub(crate) fn forget(&mut self, number: PreparedNumber) {
        self.prepared.retain(|(other, _)| *other != number);
    }

    /// The run of a prepared call that has been made before, so that it is bound.
    #[inline]
    pub(crate) fn known_prepared(&mut self, number: PreparedNumber) -> Option<&mut Planned> {
        match self.prepared(number)? {
            PreparedRun::Kept(planned) if planned.shape.is_some() => Some(planned),
            PreparedRun::Kept(_) | PreparedRun::Taken | PreparedRun::Stale => None,
        }
    }

    /// The run that a call of this shape has left. It is the newest from now on.
    #[inline]
    pub(crate) fn known(&mut self, shape: CallShape) -> Option<&mut Planned> {
        let position = self.kept.iter().rposition(|kept| kept.shape == Some(shape))?;
        if position + 1 < self.kept.len() {
            self.kept[position..].rotate_left(1);
        }
        self.kept.last_mut().map(|kept| &mut **kept)
    }

    /// Takes the run that [`Planner::known_prepared`] or [`Planner::known`] has given.
    pub(crate) fn take_given(&mut self, prepared: Option<PreparedNumber>) -> Box<Planned> {
        let planned = match prepared {
            Some(number) => self.take_prepared(number),
            None => self.kept.pop(),
        };
        #[expect(clippy::expect_used, reason = "nothing has come between the two")]
        planned.expect("a known run")
    }

    /// Takes the run of the last call of this shape, if it is kept.
    #[inline]
    pub(crate) fn take_known(&mut self, shape: CallShape) -> Option<Box<Planned>> {
        self.known(shape)?;
        let mut planned = self.take_given(None);
        planned.is_bound = true;
        Some(planned)
    }

    /// Takes or makes a run for a call; [`Run::reset`] must give it its number. `segment_ends` are the ends of a
    /// coalesced call's segments, in bytes.
    ///
    /// # Errors
    /// `Unsupported` or `InvalidArgument` when no proven algorithm fits the call.
    pub(crate) fn take(
        &mut self,
        collective: Collective,
        descriptor: &Descriptor,
        counts: &Counts,
        segment_ends: Option<&[usize]>,
        options: &CallOptions,
    ) -> Result<Box<Planned>> {
        let algorithm = options.algorithm.or(self.selector.forced);
        let plain = normalised(descriptor);
        let matches = |kept: &Planned| {
            kept.request.descriptor == plain
                && kept.request.counts == *counts
                && kept.request.segment_ends.as_deref() == segment_ends
                && kept.request.algorithm == algorithm
                && kept.request.determinism == options.determinism
        };
        if let Some(position) = self.kept.iter().rposition(|kept| matches(kept)) {
            let mut planned = self.kept.remove(position);
            planned.is_bound = false;
            return Ok(planned);
        }
        let request = PlanRequest {
            descriptor: plain,
            counts: counts.clone(),
            segment_ends: segment_ends.map(Box::from),
            algorithm,
            determinism: options.determinism,
        };
        let (choice, facts) = self.selector.choose(collective, descriptor, counts, options)?;
        if is_logged(Severity::Debug) {
            self.log_choice(&choice, &facts, algorithm, descriptor, counts);
        }
        let schedule = self.schedule(&choice)?;
        let element_bytes = descriptor.dtype.bytes() as u64;
        let piece = piece_bytes(self.piece_bytes, facts.scratch_chunks, element_bytes);
        let segment_ends = request.segment_ends.clone();
        let key = PlanKey { descriptor: *descriptor, counts: counts.clone(), segment_ends };
        let identity = Identity::of(&choice, facts.digest)?;
        let mut plan = Plan::new(&choice, schedule, &key, &self.group, piece, identity);
        plan.in_place_bytes_min = in_place_bytes_min(collective, self.is_crowded);
        let header = CallHeader::new(descriptor, 0, plan.algorithm_hash, piece);
        let run = Run::new(Arc::new(plan), header);
        let reducer = Reducer::nothing();
        let (shape, is_bound, prepared, op) = (None, false, None, None);
        Ok(Box::new(Planned { request, shape, is_bound, header, prepared, run, reducer, op }))
    }

    /// Logs the choice for a new plan. Later calls of the same shape reuse the plan and log nothing.
    fn log_choice(
        &self,
        choice: &Choice,
        facts: &Facts,
        forced: Option<AlgorithmName>,
        descriptor: &Descriptor,
        counts: &Counts,
    ) {
        let predicted = self.selector.predicted(choice, facts, descriptor, counts);
        let predicted = predicted.map(|time| format!(", predicted to take {time:.1?}")).unwrap_or_default();
        // `leaders:4` is `leaders` with a number. A collective without an algorithm of this name gets the cheapest.
        let is_it = |name: &str| name.split(':').next() == Some(choice.algorithm.name);
        let is_forced = forced.and_then(|name| name.text().ok()).is_some_and(is_it);
        let why = if is_forced { "asked for" } else { "the cheapest" };
        let rank = self.group.own_job_rank().get();
        log(Severity::Debug, Some(rank), format_args!("plans {descriptor} by {choice}, {why}{predicted}"));
    }

    /// Keeps a finished run for the next call of its shape. A full cache drops the least recently used run.
    pub(crate) fn put_back(&mut self, mut planned: Box<Planned>) {
        if let Some(ReduceOp::User(_)) = planned.op {
            // The function belongs to the user, so the kept run drops it.
            planned.bind_op(planned.request.descriptor.dtype, None, self.group.size(), None);
        }
        if let Some(number) = planned.prepared {
            // A call that was under way when its preparation was dropped or became stale leaves nothing.
            if let Some(run @ PreparedRun::Taken) = self.prepared(number) {
                *run = PreparedRun::Kept(planned);
            }
            return;
        }
        if self.kept.len() == RUNS_KEPT_MAX {
            self.kept.remove(0);
        }
        self.kept.push(planned);
    }

    fn schedule(&mut self, choice: &Choice) -> Result<Arc<Schedule>> {
        if let Some(kept) = self.schedules.iter().find(|kept| kept.choice == *choice) {
            return Ok(kept.schedule.clone());
        }
        let schedule =
            choice.algorithm.try_schedule(&choice.shape, self.group.rank()).map_err(Error::refused)?;
        let schedule = Arc::new(schedule);
        if self.schedules.len() == SCHEDULES_KEPT_MAX {
            self.schedules.remove(0);
        }
        self.schedules.push(KeptSchedule { choice: choice.clone(), schedule: schedule.clone() });
        Ok(schedule)
    }
}

/// The descriptor without the fields that do not affect the plan.
fn normalised(descriptor: &Descriptor) -> Descriptor {
    let op = descriptor.op.map(|op| if op.is_commutative() { ReduceOp::Sum } else { op });
    Descriptor { op, label: None, ..*descriptor }
}
