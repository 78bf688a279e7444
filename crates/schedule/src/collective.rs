//! The collectives and their names, for calls and schedules.

use std::fmt;
use std::str::FromStr;

/// An operation in which every rank of a group takes part.
///
/// ```
/// # mod unisono { pub use unisono_schedule::*; }
/// use unisono::Collective;
/// assert_eq!("all_reduce".parse::<Collective>(), Ok(Collective::AllReduce));
/// assert!(Collective::Broadcast.is_rooted() && !Collective::Broadcast.reduces());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Collective {
    /// Every rank ends with the reduction of all ranks' vectors.
    AllReduce,
    /// Rank r ends with share r of the reduction of all ranks' vectors.
    ReduceScatter,
    /// Every rank ends with the shares of all ranks, in rank order.
    AllGather,
    /// Rank r ends with the parts that all ranks sent to it, in rank order.
    AllToAll,
    /// Every rank ends with the root's vector.
    Broadcast,
    /// The root ends with the reduction of all ranks' vectors.
    Reduce,
    /// The root ends with the shares of all ranks, in rank order.
    Gather,
    /// Rank r ends with share r of the root's vector.
    Scatter,
    /// No rank leaves before every rank has entered.
    Barrier,
    /// Rank r ends with the reduction of the vectors of ranks 0 to r, in rank order.
    Scan,
    /// Rank r ends with the reduction of the vectors of the ranks before r, in rank order; rank 0 gets nothing.
    Exscan,
}

impl Collective {
    /// All collectives, in a fixed order.
    pub const ALL: [Self; 11] = [
        Self::AllReduce,
        Self::ReduceScatter,
        Self::AllGather,
        Self::AllToAll,
        Self::Broadcast,
        Self::Reduce,
        Self::Gather,
        Self::Scatter,
        Self::Barrier,
        Self::Scan,
        Self::Exscan,
    ];

    /// The name in text: logs, the command line, `FromStr`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "all_reduce",
            Self::ReduceScatter => "reduce_scatter",
            Self::AllGather => "all_gather",
            Self::AllToAll => "all_to_all",
            Self::Broadcast => "broadcast",
            Self::Reduce => "reduce",
            Self::Gather => "gather",
            Self::Scatter => "scatter",
            Self::Barrier => "barrier",
            Self::Scan => "scan",
            Self::Exscan => "exscan",
        }
    }

    /// Whether the collective has a root.
    pub const fn is_rooted(self) -> bool {
        matches!(self, Self::Broadcast | Self::Reduce | Self::Gather | Self::Scatter)
    }

    /// Whether one call may be in place on some ranks and not on others: where some ranks lack an input or an output.
    pub const fn place_may_differ(self) -> bool {
        self.is_rooted() || matches!(self, Self::Exscan)
    }

    /// Whether contributions are combined by a reduction operator.
    pub const fn reduces(self) -> bool {
        matches!(self, Self::AllReduce | Self::ReduceScatter | Self::Reduce | Self::Scan | Self::Exscan)
    }

    /// Whether every rank's result is a reduction of its own: of the ranks up to it, or before it.
    ///
    /// ```
    /// # mod unisono { pub use unisono_schedule::*; }
    /// use unisono::Collective;
    /// assert!(Collective::Exscan.is_prefix() && !Collective::AllReduce.is_prefix());
    /// ```
    pub const fn is_prefix(self) -> bool {
        matches!(self, Self::Scan | Self::Exscan)
    }
}

impl fmt::Display for Collective {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

/// The text is not the name of a [`Collective`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownCollective(pub String);

impl fmt::Display for UnknownCollective {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?} is not a collective; the names are", self.0)?;
        Collective::ALL.iter().try_for_each(|collective| write!(formatter, " {collective}"))
    }
}

impl std::error::Error for UnknownCollective {}

impl FromStr for Collective {
    type Err = UnknownCollective;

    fn from_str(text: &str) -> Result<Self, UnknownCollective> {
        let found = Self::ALL.into_iter().find(|collective| collective.name() == text);
        found.ok_or_else(|| UnknownCollective(text.to_owned()))
    }
}
