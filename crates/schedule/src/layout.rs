//! Says which chunks a rank's input and output hold, and which of these are the same bytes in place.
//!
//! A *location* is the number of a chunk in a rank's buffers. In a call in place, `Input` and `Output` of one location
//! are the same bytes. In every collective but all-to-all the location is the extent itself.

use crate::{Collective, Shape};

/// The chunks that one rank holds in one collective.
///
/// ```
/// use unisono_schedule::{Collective, Layout, Shape};
/// let layout = Layout::new(Collective::AllToAll, &Shape::new(4), 1, 16);
/// // In place, what rank 1 sends to rank 3 is where it receives what rank 3 sends.
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

    /// The number of extents that `collective` prescribes; `None` if the algorithm may choose it.
    pub const fn chunks_of(collective: Collective, shape: &Shape) -> Option<u32> {
        match collective {
            Collective::AllReduce | Collective::Broadcast | Collective::Reduce => None,
            Collective::ReduceScatter | Collective::AllGather | Collective::Gather | Collective::Scatter => {
                Some(shape.ranks)
            }
            Collective::AllToAll => Some(shape.ranks * shape.ranks),
            Collective::Barrier => Some(1),
        }
    }

    /// The number of locations, which is also the number of chunks in the full vector of one rank.
    pub const fn width(&self) -> u32 {
        match self.collective {
            Collective::AllToAll => self.shape.ranks,
            _ => self.chunks,
        }
    }

    /// The location of `extent` in the input, if this rank's input holds it.
    pub const fn input(&self, extent: u32) -> Option<u32> {
        let held = match self.collective {
            Collective::AllReduce | Collective::ReduceScatter | Collective::Reduce | Collective::Barrier => {
                true
            }
            Collective::AllGather | Collective::Gather => extent == self.rank,
            Collective::Scatter => self.rank == self.shape.root,
            Collective::Broadcast => false,
            Collective::AllToAll => extent / self.shape.ranks == self.rank,
        };
        let location = match self.collective {
            Collective::AllToAll => extent % self.shape.ranks,
            _ => extent,
        };
        if held && extent < self.chunks { Some(location) } else { None }
    }

    /// The location of `extent` in the output, if this rank's output holds it.
    pub const fn output(&self, extent: u32) -> Option<u32> {
        let held = match self.collective {
            Collective::AllReduce | Collective::AllGather | Collective::Broadcast => true,
            Collective::ReduceScatter | Collective::Scatter => extent == self.rank,
            Collective::Reduce | Collective::Gather => self.rank == self.shape.root,
            Collective::Barrier => false,
            Collective::AllToAll => extent % self.shape.ranks == self.rank,
        };
        let location = match self.collective {
            Collective::AllToAll => extent / self.shape.ranks,
            _ => extent,
        };
        if held && extent < self.chunks { Some(location) } else { None }
    }

    /// The extent at `location` of the input, if the input holds that location.
    pub const fn input_extent(&self, location: u32) -> Option<u32> {
        let extent = match self.collective {
            Collective::AllToAll => self.rank * self.shape.ranks + location,
            _ => location,
        };
        if self.input(extent).is_some() { Some(extent) } else { None }
    }

    /// The extent at `location` of the output, if the output holds that location.
    pub const fn output_extent(&self, location: u32) -> Option<u32> {
        let extent = match self.collective {
            Collective::AllToAll => location * self.shape.ranks + self.rank,
            _ => location,
        };
        if self.output(extent).is_some() { Some(extent) } else { None }
    }

    /// Whether the output holds the result before the first step, as at the root of a broadcast.
    pub const fn starts_with_output(&self) -> bool {
        matches!(self.collective, Collective::Broadcast) && self.rank == self.shape.root
    }

    /// The only rank that contributes to `extent`; `None` if all ranks do.
    pub const fn source(&self, extent: u32) -> Option<u32> {
        match self.collective {
            Collective::AllReduce | Collective::ReduceScatter | Collective::Reduce | Collective::Barrier => {
                None
            }
            Collective::AllGather | Collective::Gather => Some(extent),
            Collective::Scatter | Collective::Broadcast => Some(self.shape.root),
            Collective::AllToAll => Some(extent / self.shape.ranks),
        }
    }
}
