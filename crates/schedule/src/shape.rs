//! The shape of a group: all that an algorithm may depend on, besides its own rank.

/// The number of ranks, the root, and how the ranks are placed on hosts.
///
/// ```
/// # mod unisono { pub use unisono_schedule as schedule; }
/// use unisono::schedule::Shape;
/// let shape = Shape::new(8).with_root(3);
/// assert_eq!((shape.ranks, shape.root, shape.hosts, shape.leaders), (8, 3, 1, 1));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Shape {
    /// The number of ranks, at least 1 and at most [`Shape::RANKS_MAX`].
    pub ranks: u32,
    /// The root; 0 for a collective without one.
    pub root: u32,
    /// The number of hosts on which the ranks run.
    pub hosts: u32,
    /// The number of leaders. A leader adds up the vectors of several ranks for them.
    pub leaders: u32,
    /// Whether the ranks of each host are consecutive and every host has as many.
    pub even_hosts: bool,
}

impl Shape {
    /// The most ranks of a group. A step has 16 bits for its peer, and 32 bits must count the extents of an all-to-all,
    /// one for each pair of ranks.
    pub const RANKS_MAX: u32 = u16::MAX as u32;

    /// `ranks` ranks on one host, root 0.
    pub const fn new(ranks: u32) -> Self {
        Self { ranks, root: 0, hosts: 1, leaders: 1, even_hosts: true }
    }

    /// The same shape with another root.
    #[must_use]
    pub const fn with_root(self, root: u32) -> Self {
        Self { root, ..self }
    }

    /// The largest number of leaders such that every leader has at least one rank to lead.
    pub const fn leaders_max(&self) -> u32 {
        if self.ranks < 2 { 1 } else { self.ranks / 2 }
    }

    /// The same shape with another number of leaders, at least 1.
    #[must_use]
    pub const fn with_leaders(self, leaders: u32) -> Self {
        Self { leaders, ..self }
    }
}
