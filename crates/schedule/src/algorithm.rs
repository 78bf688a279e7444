//! What an algorithm is: a name, what it requires, what it costs, and the function that builds its schedules.

use crate::{Builder, Collective, Fraction, Layout, Schedule, Shape};

/// What an algorithm requires of a call. An algorithm with all fields `false` can serve any call.
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
    /// What one rank sends.
    pub sent: Fraction,
    /// What one rank receives.
    pub received: Fraction,
    /// What one rank reduces.
    pub reduced: Fraction,
    /// The totals of all ranks.
    pub all: Totals,
}

/// What all ranks do together. This decides the time when ranks share cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Totals {
    /// The messages, where consecutive sends to one peer count as one.
    pub messages: u64,
    /// What is sent, which is also what is received.
    pub sent: Fraction,
    /// What is reduced.
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

/// An algorithm for one collective: a pure function of (rank, shape) to a schedule, with claims that are proved.
#[derive(Clone, Copy, Debug)]
pub struct Algorithm {
    /// The name, unique among the algorithms of its collective.
    pub name: &'static str,
    /// The collective that it implements.
    pub collective: Collective,
    /// What it requires of a call.
    pub requires: Requires,
    /// The number of extents.
    pub chunks: fn(&Shape) -> u32,
    /// The largest number of scratch chunks of any rank.
    pub scratch_chunks: fn(&Shape) -> u32,
    /// The cost, in closed form.
    pub cost: fn(&Shape) -> Cost,
    /// Whether every result is summed in the canonical tree ([`crate::canonical_tree`]).
    pub canonical: bool,
    /// Adds the steps of the builder's rank.
    pub build: fn(&mut Builder),
    /// The publication or the software that it comes from.
    pub source: &'static str,
    /// What it does, in a sentence.
    pub summary: &'static str,
}

impl Algorithm {
    /// The name that is unique in the whole registry: `all_reduce/ring`.
    pub fn qualified_name(&self) -> String {
        format!("{}/{}", self.collective, self.name)
    }

    /// Whether this algorithm can be used for `shape`.
    pub fn supports(&self, shape: &Shape) -> bool {
        let sound = (1..=Shape::RANKS_MAX).contains(&shape.ranks) && shape.root < shape.ranks;
        sound && (!self.requires.power_of_two || shape.ranks.is_power_of_two())
    }

    /// The steps of one rank. This takes time linear in their number, so callers cache the result.
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

    /// The number of chunks in the full vector that [`Cost`] speaks of.
    pub fn width(&self, shape: &Shape) -> u32 {
        Layout::new(self.collective, shape, 0, (self.chunks)(shape)).width()
    }
}
