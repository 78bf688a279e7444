//! An algorithm: its name, requirements, claims, and the function that builds its schedules.

use std::any::Any;
use std::borrow::Cow;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::verify::check_structure;
use crate::{
    Builder, Collective, Counterexample, Digest, Fault, Fraction, Layout, Refusal, Refused, Schedule, Shape,
};

/// An algorithm's demands on a call. With all fields `false` it can serve any call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Requires {
    /// The operator must be commutative, because the reduction does not keep the order of the ranks.
    pub commutative: bool,
    /// The number of ranks must be a power of two.
    pub power_of_two: bool,
    /// All extents must have the same length, up to one element. An all-to-all in which ranks forward the data of
    /// others must require it: else a rank does not know the length of that data.
    pub even_counts: bool,
    /// Input and output must be different bytes. An algorithm with a root cannot require this: only the root knows
    /// whether its input and output are one buffer, and all ranks must choose the same algorithm.
    pub out_of_place: bool,
}

impl Requires {
    /// No requirement.
    pub const NOTHING: Self =
        Self { commutative: false, power_of_two: false, even_counts: false, out_of_place: false };
    /// Only that the operator is commutative.
    pub const COMMUTATIVE: Self = Self { commutative: true, ..Self::NOTHING };
}

/// The cost of a group's schedules: for each figure the largest of any rank, and the totals of all ranks. An algorithm
/// claims its cost in closed form; the verifier counts it in the schedules and compares.
///
/// Bytes are fractions of the full vector, which is the larger of one rank's input and output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// The longest chain of messages in which each message waits for the previous one.
    pub rounds: u64,
    /// The messages that one rank sends and receives, which is about the number of system calls of a small call.
    /// Consecutive sends to one peer count as one; so do consecutive receives from one peer.
    pub messages: u64,
    /// The number of ranks with which one rank exchanges messages.
    pub peers: u64,
    /// The bytes that one rank sends.
    pub sent: Fraction,
    /// The bytes that one rank receives.
    pub received: Fraction,
    /// The bytes that one rank reduces.
    pub reduced: Fraction,
    /// The totals of all ranks.
    pub all: Totals,
}

/// The totals of all ranks. They decide the time when ranks share cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Totals {
    /// The messages. Consecutive sends to one peer count as one.
    pub messages: u64,
    /// The sent bytes, which are also the received bytes.
    pub sent: Fraction,
    /// The reduced bytes.
    pub reduced: Fraction,
}

impl Totals {
    pub(crate) const fn whole(messages: u64, reduced: u64) -> Self {
        Self { messages, sent: Fraction::new(messages, 1), reduced: Fraction::new(reduced, 1) }
    }

    pub(crate) const fn new(messages: u64, sent: u64, reduced: u64) -> Self {
        Self { messages, sent: Fraction::new(sent, 1), reduced: Fraction::new(reduced, 1) }
    }
}

impl Cost {
    /// The cost of a group of one rank.
    pub const FREE: Self = Self {
        rounds: 0,
        messages: 0,
        peers: 0,
        sent: Fraction::ZERO,
        received: Fraction::ZERO,
        reduced: Fraction::ZERO,
        all: Totals::whole(0, 0),
    };
}

/// The part of a cost that goes between hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BetweenHosts {
    /// The messages between hosts in the longest chain of messages.
    pub(crate) rounds: u64,
    /// The bytes that a host sends.
    pub(crate) sent: Fraction,
}

type Count = Arc<dyn Fn(&Shape) -> u32 + Send + Sync>;
type Fits = Arc<dyn Fn(&Shape) -> bool + Send + Sync>;
type Claim = Arc<dyn Fn(&Shape) -> Cost + Send + Sync>;
type Far = fn(&Shape) -> BetweenHosts;
type Make = Arc<dyn Fn(&Algorithm, &Shape, u32) -> Schedule + Send + Sync>;

/// An algorithm for one collective: a pure function of (rank, shape) to a schedule, with claims that the verifier
/// proves.
///
/// Programs may add their own. The verifier counts the figures that an algorithm does not claim.
///
/// ```
/// # mod unisono { pub use unisono_schedule::*; pub use unisono_schedule as schedule; }
/// use unisono::Collective;
/// use unisono::schedule::{Algorithm, Shape, verify};
/// let around = Algorithm::new("around", Collective::AllGather, |builder| {
///     for hop in 1..builder.ranks() {
///         builder.send(builder.ahead(1), builder.behind(hop - 1));
///         builder.recv(builder.behind(1), builder.behind(hop));
///     }
///     builder.deliver(builder.rank());
/// });
/// assert_eq!(verify(&around, &Shape::new(5)).unwrap().cost.rounds, 4);
/// ```
#[derive(Clone)]
pub struct Algorithm {
    /// The name, unique among the algorithms of its collective.
    pub name: &'static str,
    /// The collective that it implements.
    pub collective: Collective,
    /// The requirements on a call.
    pub requires: Requires,
    /// Whether the algorithm claims the canonical tree ([`crate::canonical_tree`]) for every result.
    pub canonical: bool,
    /// Its publication or software.
    pub source: Cow<'static, str>,
    /// A description, in a sentence.
    pub summary: Cow<'static, str>,
    fits: Option<Fits>,
    chunks: Option<Count>,
    scratch_chunks: Option<Count>,
    cost: Option<Claim>,
    between_hosts: Option<Far>,
    make: Make,
}

impl Algorithm {
    /// The algorithm whose steps `build` adds for the builder's rank. `build` must add the same steps whenever rank and
    /// shape are the same. [`crate::intern`] makes a name static that is made at run time.
    pub fn new(
        name: &'static str,
        collective: Collective,
        build: impl Fn(&mut Builder) + Send + Sync + 'static,
    ) -> Self {
        Self::with_make(name, collective, move |algorithm, shape, rank| {
            let chunks = algorithm.chunks_of(shape);
            let in_place = !algorithm.requires.out_of_place;
            let mut builder = Builder::with_aliasing(algorithm.collective, shape, rank, chunks, in_place);
            build(&mut builder);
            builder.finish()
        })
    }

    /// An algorithm of fixed schedules, one per rank in order. It fits groups of that many ranks and, in a rooted
    /// collective, that root only.
    pub fn from_schedules(
        name: &'static str,
        collective: Collective,
        shape: &Shape,
        schedules: Vec<Schedule>,
    ) -> Self {
        let (ranks, root, given) = (shape.ranks, shape.root, schedules.len());
        let chunks = schedules.first().map_or(0, |schedule| schedule.chunks);
        let make = move |_: &Self, _: &Shape, rank: u32| {
            // A missing rank gets an empty schedule, which the verifier reports.
            let missing = || Schedule::new(rank, chunks, 0, Vec::new(), &[]);
            schedules.get(rank as usize).cloned().unwrap_or_else(missing)
        };
        Self::with_make(name, collective, make).chunks(move |_| chunks).fits(move |group| {
            group.ranks == ranks && given == ranks as usize && (!collective.is_rooted() || group.root == root)
        })
    }

    fn with_make(
        name: &'static str,
        collective: Collective,
        make: impl Fn(&Self, &Shape, u32) -> Schedule + Send + Sync + 'static,
    ) -> Self {
        Self {
            name,
            collective,
            requires: Requires::NOTHING,
            canonical: false,
            source: Cow::Borrowed(""),
            summary: Cow::Borrowed(""),
            fits: None,
            chunks: None,
            scratch_chunks: None,
            cost: None,
            between_hosts: None,
            make: Arc::new(make),
        }
    }

    /// Sets the demands on a call; without this call there are none.
    #[must_use]
    pub fn requires(self, requires: Requires) -> Self {
        Self { requires, ..self }
    }

    /// Limits the groups that the algorithm fits, besides its [demands](Algorithm::requires); without this call it fits
    /// all groups.
    #[must_use]
    pub fn fits(self, fits: impl Fn(&Shape) -> bool + Send + Sync + 'static) -> Self {
        Self { fits: Some(Arc::new(fits)), ..self }
    }

    /// Sets the number of extents, a multiple of [`Layout::unit`]; without this call it is [`Layout::unit`].
    #[must_use]
    pub fn chunks(self, chunks: impl Fn(&Shape) -> u32 + Send + Sync + 'static) -> Self {
        Self { chunks: Some(Arc::new(chunks)), ..self }
    }

    /// Claims the largest number of scratch chunks of any rank; without a claim it is counted.
    #[must_use]
    pub fn scratch_chunks(self, scratch_chunks: impl Fn(&Shape) -> u32 + Send + Sync + 'static) -> Self {
        Self { scratch_chunks: Some(Arc::new(scratch_chunks)), ..self }
    }

    /// Claims the cost in closed form; without a claim it is counted.
    #[must_use]
    pub fn cost(self, cost: impl Fn(&Shape) -> Cost + Send + Sync + 'static) -> Self {
        Self { cost: Some(Arc::new(cost)), ..self }
    }

    /// Claims the part of the cost between hosts, for algorithms whose exchanges at distances 1, 2, 4 and so on stay on
    /// the host while they can. The claim is asked for shapes of which this is true.
    #[must_use]
    pub(crate) fn between_hosts(self, between_hosts: Far) -> Self {
        Self { between_hosts: Some(between_hosts), ..self }
    }

    /// Claims the canonical tree for every result; without a claim, the proof finds it out.
    #[must_use]
    pub fn canonical(self) -> Self {
        Self { canonical: true, ..self }
    }

    /// Sets its publication or software.
    #[must_use]
    pub fn source(self, source: impl Into<Cow<'static, str>>) -> Self {
        Self { source: source.into(), ..self }
    }

    /// Sets a sentence that describes it.
    #[must_use]
    pub fn summary(self, summary: impl Into<Cow<'static, str>>) -> Self {
        Self { summary: summary.into(), ..self }
    }

    /// The name with its collective: `all_reduce/ring`.
    pub fn qualified_name(&self) -> String {
        format!("{}/{}", self.collective, self.name)
    }

    /// Whether it fits `shape`; [`Algorithm::check_fit`] says why not.
    pub fn supports(&self, shape: &Shape) -> bool {
        self.check_fit(shape).is_ok()
    }

    /// As [`Algorithm::supports`], with the reason.
    ///
    /// # Errors
    /// [`Refusal::DoesNotFit`]; [`Refusal::Wrong`] with [`Fault::Panicked`] when [`Algorithm::fits`] panics.
    pub fn check_fit(&self, shape: &Shape) -> Result<(), Refused> {
        let is_sound = (1..=Shape::RANKS_MAX).contains(&shape.ranks) && shape.root < shape.ranks;
        let has_power = !self.requires.power_of_two || shape.ranks.is_power_of_two();
        let fits = || Ok(self.fits.as_ref().is_none_or(|fits| fits(shape)));
        if is_sound && has_power && self.guarded(shape, fits)? {
            return Ok(());
        }
        Err(self.refused(Refusal::DoesNotFit { ranks: shape.ranks, root: shape.root }))
    }

    /// The number of extents.
    pub fn chunks_of(&self, shape: &Shape) -> u32 {
        self.chunks.as_ref().map_or(Layout::unit(self.collective, shape), |chunks| chunks(shape))
    }

    /// The claimed largest number of scratch chunks of any rank, if there is a claim.
    pub fn scratch_chunks_of(&self, shape: &Shape) -> Option<u32> {
        self.scratch_chunks.as_ref().map(|scratch_chunks| scratch_chunks(shape))
    }

    /// The claimed cost, if there is a claim. A panic becomes an error.
    ///
    /// # Errors
    /// [`Refusal::Wrong`] with [`Fault::Panicked`].
    pub fn try_cost_of(&self, shape: &Shape) -> Result<Option<Cost>, Refused> {
        self.guarded(shape, || Ok(self.cost_of(shape)))
    }

    /// The claimed cost, if there is a claim.
    pub fn cost_of(&self, shape: &Shape) -> Option<Cost> {
        self.cost.as_ref().map(|cost| cost(shape))
    }

    /// The steps of one rank. Cost: linear in their number, so callers cache them.
    ///
    /// # Panics
    /// If the algorithm does not support the shape, the rank is not in it, or the building function panics.
    ///
    /// ```
    /// # mod unisono { pub use unisono_schedule::*; pub use unisono_schedule as schedule; }
    /// use unisono::Collective;
    /// use unisono::schedule::{Shape, find};
    /// let ring = find(Collective::AllReduce, "ring").unwrap();
    /// assert_eq!(ring.schedule(&Shape::new(4), 0).steps.len(), 2 * 2 * 3);
    /// ```
    pub fn schedule(&self, shape: &Shape, rank: u32) -> Schedule {
        assert!(self.supports(shape), "{} does not support {shape:?}", self.qualified_name());
        assert!(rank < shape.ranks, "rank {rank} is not in a group of {}", shape.ranks);
        (self.make)(self, shape, rank)
    }

    /// As [`Algorithm::schedule`], for an untrusted algorithm: a panic, or an impossible step, becomes an error.
    ///
    /// # Errors
    /// [`Refusal::DoesNotFit`], [`Refusal::NoSuchRank`], [`Refusal::Wrong`].
    pub fn try_schedule(&self, shape: &Shape, rank: u32) -> Result<Schedule, Refused> {
        let schedule = self.built(shape, rank)?;
        self.guarded(shape, || {
            let wrong = |fault| self.refused(Refusal::Wrong(Counterexample::new(self, shape, "", fault)));
            check_structure(self, shape, &schedule).map_err(wrong)
        })?;
        Ok(schedule)
    }

    /// As [`Algorithm::try_schedule`] without the check of the steps, which the verifier does itself.
    pub(crate) fn built(&self, shape: &Shape, rank: u32) -> Result<Schedule, Refused> {
        self.check_fit(shape)?;
        if rank >= shape.ranks {
            return Err(self.refused(Refusal::NoSuchRank { rank, ranks: shape.ranks }));
        }
        self.caught(shape, Some(rank), || Ok((self.make)(self, shape, rank)))
    }

    /// Runs code that calls the algorithm's functions; a panic becomes an error.
    pub(crate) fn guarded<T>(
        &self,
        shape: &Shape,
        run: impl FnOnce() -> Result<T, Refused>,
    ) -> Result<T, Refused> {
        self.caught(shape, None, run)
    }

    fn caught<T>(
        &self,
        shape: &Shape,
        rank: Option<u32>,
        run: impl FnOnce() -> Result<T, Refused>,
    ) -> Result<T, Refused> {
        catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
            let fault = Fault::Panicked { rank, text: text_of(&*panic) };
            Err(self.refused(Refusal::Wrong(Counterexample::new(self, shape, "", fault))))
        })
    }

    /// The digest of its name and of its claims for a shape.
    ///
    /// # Errors
    /// [`Refusal::Wrong`] when one of its functions panics.
    pub fn claims(&self, shape: &Shape) -> Result<Digest, Refused> {
        self.guarded(shape, || {
            let claims = (self.requires, self.canonical, self.chunks_of(shape));
            let claims = format!("{claims:?} {:?} {:?}", self.scratch_chunks_of(shape), self.cost_of(shape));
            Ok(Digest::default().text(&self.qualified_name()).text(&claims))
        })
    }

    /// The claimed part of the cost between hosts; `None` on one host, without a claim, and if exchanges at distances
    /// 1, 2, 4 and so on may leave a host before all of its ranks have met.
    pub(crate) fn between_hosts_of(&self, shape: &Shape) -> Option<BetweenHosts> {
        let is_nested =
            shape.even_hosts && shape.ranks.is_power_of_two() && shape.ranks.is_multiple_of(shape.hosts);
        self.between_hosts.filter(|_| is_nested && shape.hosts > 1).map(|claim| claim(shape))
    }

    pub(crate) fn refused(&self, reason: Refusal) -> Refused {
        Refused { algorithm: self.qualified_name(), reason }
    }

    /// The number of chunks in the full vector, the unit of [`Cost`].
    pub fn width(&self, shape: &Shape) -> u32 {
        Layout::new(self.collective, shape, 0, self.chunks_of(shape)).width()
    }
}

/// The text of a panic.
fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("without a text").to_owned()
}

impl fmt::Debug for Algorithm {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.qualified_name())
    }
}
