//! The chunks in a rank's input and output, and the chunks among these that are the same bytes in place.
//!
//! A *location* is the number of a chunk in a rank's buffer. In a call in place, `Input` and `Output` of one location
//! are the same bytes. The location is the extent itself, except in all-to-all.

use std::ops::Range;

use crate::{Collective, Shape};

/// The chunks of one rank in one collective.
///
/// ```
/// use unisono_schedule::{Collective, Layout, Shape};
/// let layout = Layout::new(Collective::AllToAll, &Shape::new(4), 1, 16);
/// // In place, the bytes from rank 1 to rank 3 lie where rank 1 receives the bytes from rank 3.
/// assert_eq!(layout.input(1 * 4 + 3), Some(3));
/// assert_eq!(layout.output(3 * 4 + 1), Some(3));
/// assert_eq!(layout.input(2 * 4 + 3), None);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    collective: Collective,
    shape: Shape,
    rank: u32,
    chunks: u32,
}

impl Layout {
    /// The chunks of `rank` when the vector is cut into `chunks`.
    pub const fn new(collective: Collective, shape: &Shape, rank: u32, chunks: u32) -> Self {
        Self { collective, shape: *shape, rank, chunks }
    }

    /// The fewest extents of an algorithm of `collective`. Every number of extents is a multiple of it: with k times as
    /// many, each share, or each part of an all-to-all, is cut into k extents.
    ///
    /// ```
    /// use unisono_schedule::{Collective, Layout, Shape};
    /// // Twice as many extents as ranks: extents 2r and 2r + 1 are the halves of the share of rank r.
    /// assert_eq!(Layout::unit(Collective::AllGather, &Shape::new(3)), 3);
    /// let layout = Layout::new(Collective::AllGather, &Shape::new(3), 1, 6);
    /// assert_eq!([1, 2, 3, 4].map(|extent| layout.input(extent)), [None, Some(2), Some(3), None]);
    /// ```
    pub const fn unit(collective: Collective, shape: &Shape) -> u32 {
        match collective {
            Collective::AllReduce
            | Collective::Broadcast
            | Collective::Reduce
            | Collective::Barrier
            | Collective::Scan
            | Collective::Exscan => 1,
            Collective::ReduceScatter | Collective::AllGather | Collective::Gather | Collective::Scatter => {
                shape.ranks
            }
            Collective::AllToAll => shape.ranks * shape.ranks,
        }
    }

    /// The number of extents of each share, or of each part of an all-to-all.
    const fn cut(&self) -> u32 {
        let cut = self.chunks / Self::unit(self.collective, &self.shape);
        // The verifier refuses fewer extents than shares.
        if cut == 0 { 1 } else { cut }
    }

    /// The number of locations, which is also the number of chunks in the full vector of one rank.
    pub const fn width(&self) -> u32 {
        match self.collective {
            Collective::AllToAll => self.shape.ranks * self.cut(),
            _ => self.chunks,
        }
    }

    /// The sender and the receiver of an extent of an all-to-all, and the extent's number within its part.
    const fn pair(&self, extent: u32) -> (u32, u32, u32) {
        let (part, nth) = (extent / self.cut(), extent % self.cut());
        (part / self.shape.ranks, part % self.shape.ranks, nth)
    }

    /// The location of `extent` in the input, if this rank's input holds it.
    pub const fn input(&self, extent: u32) -> Option<u32> {
        let (from, to, nth) = self.pair(extent);
        let (held, location) = match self.collective {
            Collective::AllReduce
            | Collective::ReduceScatter
            | Collective::Reduce
            | Collective::Barrier
            | Collective::Scan
            | Collective::Exscan => (true, extent),
            Collective::AllGather | Collective::Gather => (extent / self.cut() == self.rank, extent),
            Collective::Scatter => (self.rank == self.shape.root, extent),
            Collective::Broadcast => (false, extent),
            Collective::AllToAll => (from == self.rank, to * self.cut() + nth),
        };
        if held && extent < self.chunks { Some(location) } else { None }
    }

    /// The location of `extent` in the output, if this rank's output holds it.
    pub const fn output(&self, extent: u32) -> Option<u32> {
        let (from, to, nth) = self.pair(extent);
        let (held, location) = match self.collective {
            Collective::AllReduce | Collective::AllGather | Collective::Broadcast | Collective::Scan => {
                (true, extent)
            }
            Collective::Exscan => (self.rank > 0, extent),
            Collective::ReduceScatter | Collective::Scatter => (extent / self.cut() == self.rank, extent),
            Collective::Reduce | Collective::Gather => (self.rank == self.shape.root, extent),
            Collective::Barrier => (false, extent),
            Collective::AllToAll => (to == self.rank, from * self.cut() + nth),
        };
        if held && extent < self.chunks { Some(location) } else { None }
    }

    /// The extent at `location` of the input, if the input holds that location.
    pub const fn input_extent(&self, location: u32) -> Option<u32> {
        let (peer, nth) = (location / self.cut(), location % self.cut());
        let extent = match self.collective {
            Collective::AllToAll => (self.rank * self.shape.ranks + peer) * self.cut() + nth,
            _ => location,
        };
        if self.input(extent).is_some() { Some(extent) } else { None }
    }

    /// The extent at `location` of the output, if the output holds that location.
    pub const fn output_extent(&self, location: u32) -> Option<u32> {
        let (peer, nth) = (location / self.cut(), location % self.cut());
        let extent = match self.collective {
            Collective::AllToAll => (peer * self.shape.ranks + self.rank) * self.cut() + nth,
            _ => location,
        };
        if self.output(extent).is_some() { Some(extent) } else { None }
    }

    /// The locations that the output holds.
    pub(crate) const fn output_locations(&self) -> Range<u32> {
        match self.collective {
            Collective::AllReduce
            | Collective::AllGather
            | Collective::Broadcast
            | Collective::AllToAll
            | Collective::Scan => 0..self.width(),
            Collective::Exscan if self.rank > 0 => 0..self.width(),
            Collective::ReduceScatter | Collective::Scatter => {
                self.rank * self.cut()..(self.rank + 1) * self.cut()
            }
            Collective::Reduce | Collective::Gather if self.rank == self.shape.root => 0..self.width(),
            Collective::Reduce | Collective::Gather | Collective::Barrier | Collective::Exscan => 0..0,
        }
    }

    /// Whether the output holds the result from the start, as at the root of a broadcast.
    pub const fn starts_with_output(&self) -> bool {
        matches!(self.collective, Collective::Broadcast) && self.rank == self.shape.root
    }

    /// The ranks whose contributions make `extent` of this rank's output, in their order. Where this rank has no
    /// output, the ranks whose contributions would make it.
    ///
    /// ```
    /// use unisono_schedule::{Collective, Layout, Shape};
    /// let of = |collective, rank| Layout::new(collective, &Shape::new(4), rank, 4).contributors(3);
    /// assert_eq!([Collective::AllReduce, Collective::AllGather].map(|one| of(one, 2)), [0..4, 3..4]);
    /// assert_eq!([Collective::Scan, Collective::Exscan].map(|one| of(one, 2)), [0..3, 0..2]);
    /// ```
    pub const fn contributors(&self, extent: u32) -> Range<u32> {
        match self.collective {
            Collective::AllReduce | Collective::ReduceScatter | Collective::Reduce | Collective::Barrier => {
                0..self.shape.ranks
            }
            Collective::Scan => 0..self.rank + 1,
            Collective::Exscan => 0..self.rank,
            Collective::AllGather | Collective::Gather => one(extent / self.cut()),
            Collective::Scatter | Collective::Broadcast => one(self.shape.root),
            Collective::AllToAll => one(self.pair(extent).0),
        }
    }
}

/// This rank alone.
const fn one(rank: u32) -> Range<u32> {
    rank..rank + 1
}
