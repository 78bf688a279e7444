//! What an algorithm is: a name, what it requires, what it costs, and the function that builds its schedules.

use crate::{Builder, Collective, Fraction, Layout, Schedule, Shape};

/// What must hold for an algorithm to be used. All `false` is the most useful algorithm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Requires {
    /// The operator must be commutative: the reduction does not keep the order of the ranks.
    pub commutative: bool,
    /// The number of ranks must be a power of two.
    pub power_of_two: bool,
    /// All extents must have the same length, up to one element.
    pub even_counts: bool,
    /// Input and output must not be the same bytes.
    pub out_of_place: bool,
}

impl Requires {
    /// No requirement.
    pub const NOTHING: Self =
        Self { commutative: false, power_of_two: false, even_counts: false, out_of_place: false };
    /// Only that the operator is commutative.
    pub const COMMUTATIVE: Self = Self { commutative: true, ..Self::NOTHING };
}

/// What the schedules of a group cost: of any rank the most, and of all ranks together. The verifier counts it all.
///
/// Bytes are fractions of the full vector, the larger of one rank's input and output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// The longest chain of messages of which each waits for the one before.
    pub rounds: u64,
    /// Messages that one rank sends and receives: runs of consecutive sends to one peer, and runs of consecutive
    /// receives from one. About the number of system calls of a small call.
    pub messages: u64,
    /// Ranks that one rank exchanges messages with.
    pub peers: u64,
    /// Sent by one rank.
    pub sent: Fraction,
    /// Received by one rank.
    pub received: Fraction,
    /// Reduced by one rank.
    pub reduced: Fraction,
    /// Of all ranks together.
    pub all: Totals,
}

/// What all ranks together do: what counts when they share cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Totals {
    /// Runs of consecutive sends to one peer.
    pub messages: u64,
    /// Sent, and received.
    pub sent: Fraction,
    /// Reduced.
    pub reduced: Fraction,
}

impl Totals {
    /// Whole messages and whole vectors; `reduced` of them are reductions.
    pub(crate) const fn whole(messages: u64, reduced: u64) -> Self {
        Self { messages, sent: Fraction::new(messages, 1), reduced: Fraction::new(reduced, 1) }
    }

    /// `messages` that carry `sent` vectors, of which `reduced` are reductions.
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

/// An algorithm for one collective: a pure function of (rank, shape) to a schedule, with claims that are proved.
#[derive(Clone, Copy, Debug)]
pub struct Algorithm {
    /// The name, unique among the algorithms of its collective.
    pub name: &'static str,
    /// What it implements.
    pub collective: Collective,
    /// What must hold for it to be used.
    pub requires: Requires,
    /// The number of extents.
    pub chunks: fn(&Shape) -> u32,
    /// The most scratch chunks of any rank.
    pub scratch_chunks: fn(&Shape) -> u32,
    /// The cost, in closed form.
    pub cost: fn(&Shape) -> Cost,
    /// Whether every result is summed in the canonical tree ([`crate::canonical_tree`]).
    pub canonical: bool,
    /// Adds the steps of the builder's rank.
    pub build: fn(&mut Builder),
    /// Where it comes from.
    pub source: &'static str,
    /// What it does, in a sentence.
    pub summary: &'static str,
}

impl Algorithm {
    /// The name that is unique in the whole registry: `all_reduce/ring`.
    pub fn qualified_name(&self) -> String {
        format!("{}/{}", self.collective, self.name)
    }

    /// Whether it can be used for that shape.
    pub fn supports(&self, shape: &Shape) -> bool {
        let sound = (1..=Shape::RANKS_MAX).contains(&shape.ranks) && shape.root < shape.ranks;
        sound && (!self.requires.power_of_two || shape.ranks.is_power_of_two())
    }

    /// The steps of one rank. Costs time linear in their number; callers cache it.
    ///
    /// # Panics
    /// If the algorithm does not support the shape, or the rank is not in it.
    ///
    /// ```
    /// use unisono_schedule::{Collective, Shape, find};
    /// let ring = find(Collective::AllReduce, "ring").unwrap();
    /// assert_eq!(ring.schedule(&Shape::new(4), 0).steps.len(), 2 * 2 * 3);
    /// ```
    pub fn schedule(&self, shape: &Shape, rank: u32) -> Schedule {
        assert!(self.supports(shape), "{} does not support {shape:?}", self.qualified_name());
        assert!(rank < shape.ranks, "rank {rank} is not in a group of {}", shape.ranks);
        let chunks = (self.chunks)(shape);
        let in_place = !self.requires.out_of_place;
        let mut builder = Builder::with_aliasing(self.collective, shape, rank, chunks, in_place);
        (self.build)(&mut builder);
        builder.finish()
    }

    /// How many chunks make the full vector that [`Cost`] speaks of.
    pub fn width(&self, shape: &Shape) -> u32 {
        Layout::new(self.collective, shape, 0, (self.chunks)(shape)).width()
    }
}
