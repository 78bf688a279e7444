//! What an algorithm is: a name, what it requires, what it costs, and the function that builds its schedules.

use std::any::Any;
use std::borrow::Cow;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::verify::check_structure;
use crate::{
    Builder, Collective, Counterexample, Digest, Fault, Fraction, Layout, Refusal, Refused, Schedule, Shape,
};

/// What an algorithm requires of a call. An algorithm with all fields `false` can serve any call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Requires {
    /// The operator must be commutative: the reduction does not keep the order of the ranks.
    pub commutative: bool,
    /// The number of ranks must be a power of two.
    pub power_of_two: bool,
    /// All extents must have the same length, up to one element. An all-to-all in which a rank passes on data between
    /// two other ranks must require it: only then the rank knows the length of that data.
    pub even_counts: bool,
    /// Input and output must not be the same bytes. No algorithm of a collective with a root can require it: the root
    /// may pass one buffer for both, which no other rank sees.
    pub out_of_place: bool,
}

impl Requires {
    /// No requirement.
    pub const NOTHING: Self =
        Self { commutative: false, power_of_two: false, even_counts: false, out_of_place: false };
    /// Only that the operator is commutative.
    pub const COMMUTATIVE: Self = Self { commutative: true, ..Self::NOTHING };
}

/// What the schedules of a group cost: the largest figures of any rank, and the totals of all ranks. An algorithm
/// states its cost in closed form. The verifier counts the figures in the schedules and compares.
///
/// Bytes are fractions of the full vector, the larger of one rank's input and output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// The length of the longest chain of messages in which each message waits for the one before.
    pub rounds: u64,
    /// The messages that one rank sends and receives. Consecutive sends to one peer count as one, and so do
    /// consecutive receives from one peer. This is about the number of system calls of a small call.
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
    /// The messages, where consecutive sends to one peer count as one.
    pub messages: u64,
    /// The sent bytes, which are also the received bytes.
    pub sent: Fraction,
    /// The reduced bytes.
    pub reduced: Fraction,
}

impl Totals {
    /// `messages` messages of the whole vector each; `reduced` of them are reduced.
    pub(crate) const fn whole(messages: u64, reduced: u64) -> Self {
        Self { messages, sent: Fraction::new(messages, 1), reduced: Fraction::new(reduced, 1) }
    }

    /// `messages` messages that carry `sent` vectors in all, of which `reduced` are reduced.
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

/// A number that depends on the shape.
type Count = Arc<dyn Fn(&Shape) -> u32 + Send + Sync>;
/// Whether an algorithm fits a group.
type Fits = Arc<dyn Fn(&Shape) -> bool + Send + Sync>;
/// A cost that depends on the shape.
type Claim = Arc<dyn Fn(&Shape) -> Cost + Send + Sync>;
/// Gives the schedule of one rank.
type Make = Arc<dyn Fn(&Algorithm, &Shape, u32) -> Schedule + Send + Sync>;

/// An algorithm for one collective: a pure function of (rank, shape) to a schedule, with claims that are proved.
///
/// Anyone can make an algorithm. The verifier finds unstated figures in its schedules.
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
    /// What it requires of a call.
    pub requires: Requires,
    /// Whether it claims that every result is summed in the canonical tree ([`crate::canonical_tree`]).
    pub canonical: bool,
    /// The publication or the software that it comes from.
    pub source: Cow<'static, str>,
    /// What it does, in a sentence.
    pub summary: Cow<'static, str>,
    fits: Option<Fits>,
    chunks: Option<Count>,
    scratch_chunks: Option<Count>,
    cost: Option<Claim>,
    make: Make,
}

impl Algorithm {
    /// The algorithm whose steps `build` adds, for the builder's rank. `build` must do the same whenever it is called
    /// for the same rank and shape. A name that is made at run time becomes static by [`crate::intern`].
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

    /// The algorithm that consists of these schedules: one per rank, in order, for groups of that many ranks and, in a
    /// rooted collective, that root.
    pub fn from_schedules(
        name: &'static str,
        collective: Collective,
        shape: &Shape,
        schedules: Vec<Schedule>,
    ) -> Self {
        let (ranks, root, given) = (shape.ranks, shape.root, schedules.len());
        let chunks = schedules.first().map_or(0, |schedule| schedule.chunks);
        let make = move |_: &Self, _: &Shape, rank: u32| {
            // The verifier reports the empty schedule of a rank that was left out.
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
            make: Arc::new(make),
        }
    }

    /// What it requires of a call; without this, nothing.
    #[must_use]
    pub fn requires(self, requires: Requires) -> Self {
        Self { requires, ..self }
    }

    /// Which groups it can be used for, beside what it [requires](Algorithm::requires); without this, all.
    #[must_use]
    pub fn fits(self, fits: impl Fn(&Shape) -> bool + Send + Sync + 'static) -> Self {
        Self { fits: Some(Arc::new(fits)), ..self }
    }

    /// The number of extents; without this, [`Layout::unit`], which every number must be a multiple of.
    #[must_use]
    pub fn chunks(self, chunks: impl Fn(&Shape) -> u32 + Send + Sync + 'static) -> Self {
        Self { chunks: Some(Arc::new(chunks)), ..self }
    }

    /// Claims the largest number of scratch chunks of any rank; without this, it is counted.
    #[must_use]
    pub fn scratch_chunks(self, scratch_chunks: impl Fn(&Shape) -> u32 + Send + Sync + 'static) -> Self {
        Self { scratch_chunks: Some(Arc::new(scratch_chunks)), ..self }
    }

    /// Claims the cost in closed form; without this, it is counted.
    #[must_use]
    pub fn cost(self, cost: impl Fn(&Shape) -> Cost + Send + Sync + 'static) -> Self {
        Self { cost: Some(Arc::new(cost)), ..self }
    }

    /// Claims that every result is summed in the canonical tree; without this, it is found out where it is proved.
    #[must_use]
    pub fn canonical(self) -> Self {
        Self { canonical: true, ..self }
    }

    /// The publication or the software that it comes from.
    #[must_use]
    pub fn source(self, source: impl Into<Cow<'static, str>>) -> Self {
        Self { source: source.into(), ..self }
    }

    /// What it does, in a sentence.
    #[must_use]
    pub fn summary(self, summary: impl Into<Cow<'static, str>>) -> Self {
        Self { summary: summary.into(), ..self }
    }

    /// The name that is unique in a whole registry: `all_reduce/ring`.
    pub fn qualified_name(&self) -> String {
        format!("{}/{}", self.collective, self.name)
    }

    /// Whether this algorithm can be used for `shape`; [`Algorithm::check_fit`] says why not.
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

    /// The claimed largest number of scratch chunks of any rank, if one is claimed.
    pub fn scratch_chunks_of(&self, shape: &Shape) -> Option<u32> {
        self.scratch_chunks.as_ref().map(|scratch_chunks| scratch_chunks(shape))
    }

    /// The claimed cost, if one is claimed; a panic becomes an error.
    ///
    /// # Errors
    /// [`Refusal::Wrong`] with [`Fault::Panicked`].
    pub fn try_cost_of(&self, shape: &Shape) -> Result<Option<Cost>, Refused> {
        self.guarded(shape, || Ok(self.cost_of(shape)))
    }

    /// The claimed cost, if one is claimed.
    pub fn cost_of(&self, shape: &Shape) -> Option<Cost> {
        self.cost.as_ref().map(|cost| cost(shape))
    }

    /// The steps of one rank. This takes time linear in their number, so callers cache the result.
    ///
    /// # Panics
    /// If the algorithm does not support the shape, the rank is not in it, or the function that builds it panics.
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

    /// As [`Algorithm::schedule`], for an algorithm of which nothing is known: a panic becomes an error, and so does a
    /// step that cannot be carried out.
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

    /// As [`Algorithm::try_schedule`], for the verifier, which looks at every step itself.
    pub(crate) fn built(&self, shape: &Shape, rank: u32) -> Result<Schedule, Refused> {
        self.check_fit(shape)?;
        if rank >= shape.ranks {
            return Err(self.refused(Refusal::NoSuchRank { rank, ranks: shape.ranks }));
        }
        self.caught(shape, Some(rank), || Ok((self.make)(self, shape, rank)))
    }

    /// Runs code that calls the functions of this algorithm; a panic becomes an error.
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

    /// The digest of its name and of what it claims for a shape.
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

    pub(crate) fn refused(&self, reason: Refusal) -> Refused {
        Refused { algorithm: self.qualified_name(), reason }
    }

    /// The number of chunks in the full vector that [`Cost`] speaks of.
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
