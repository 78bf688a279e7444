//! A state on the communicator that the survivors of a failure go on with.

use std::ops::Range;

use unisono_communicator::{CollectivesUneven, Error, JobRank, Result, Shrunk, zeroed};

use crate::layout::Layout;
use crate::state::{CompressionState, Generations, Members};

/// What [`CompressionState::rebind`] has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rebound {
    /// Whether this rank had ended a call that another survivor had not. The state is as before that call; the caller
    /// takes the call's result back too, as after any collective that not all have completed.
    pub went_back: bool,
    /// The ranks of the job that are gone, with what they owed.
    pub lost: Vec<JobRank>,
    /// The elements that those had summed: what was owed to their sums is gone too.
    pub lost_elements: Vec<Range<usize>>,
}

impl CompressionState {
    /// Takes the state to the communicator of the survivors: what this rank owes stays, what the survivors owe to the
    /// sums is divided anew among them. Collective over the survivors, once after each shrink.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] when `shrunk` did not come from this state's communicator. Errors of the collective
    /// that moves residuals; the state is then as before.
    pub fn rebind(&mut self, shrunk: &Shrunk) -> Result<Rebound> {
        let comm = &shrunk.communicator;
        let members = Members::of(comm.group());
        let old_ranks = self.survivors(shrunk, &members)?;
        let went_back = self.last_call.as_ref().is_some_and(|call| call.end > shrunk.last_common_call);
        if went_back {
            self.turn();
        }
        let layout = Layout::new(&*self.codec, self.layout.elements, members.ranks.len());
        let moved = if self.codec.has_feedback() {
            self.moved(shrunk, &members, &layout, &old_ranks)
        } else {
            Ok(None)
        };
        let moved = moved.inspect_err(|_| {
            if went_back {
                self.turn();
            }
        })?;
        let gone = (0..self.layout.ranks).filter(|rank| shrunk.new_ranks[*rank].is_none());
        let rebound = Rebound {
            went_back,
            lost: gone.clone().map(|rank| self.members.ranks[rank]).collect(),
            lost_elements: gone
                .map(|rank| self.layout.share(rank))
                .filter(|share| !share.is_empty())
                .collect(),
        };
        if let Some((worker, owner, first_pieces)) = moved {
            (self.worker, self.owner, self.first_pieces) = (worker, owner, first_pieces);
        }
        self.calls -= u64::from(went_back);
        (self.members, self.layout, self.last_call) = (members, layout, None);
        Ok(rebound)
    }

    fn turn(&mut self) {
        self.worker.turn();
        self.owner.turn();
    }

    /// The old rank of each new one.
    fn survivors(&self, shrunk: &Shrunk, members: &Members) -> Result<Vec<usize>> {
        let mut old_ranks = vec![None; members.ranks.len()];
        for (old, new) in shrunk.new_ranks.iter().enumerate() {
            let job_rank = self.members.ranks.get(old);
            if let Some(new) = new.map(|new| new as usize)
                && job_rank.is_some()
                && members.ranks.get(new) == job_rank
            {
                old_ranks[new] = Some(old);
            }
        }
        let whole: Option<Vec<usize>> = old_ranks.into_iter().collect();
        let is_ours = shrunk.new_ranks.len() == self.members.ranks.len();
        whole.filter(|_| is_ours).ok_or_else(|| {
            Error::invalid("shrunk", "is of another communicator than the one that this state is for")
        })
    }

    /// The residuals in the new layout.
    fn moved(
        &self,
        shrunk: &Shrunk,
        members: &Members,
        layout: &Layout,
        old_ranks: &[usize],
    ) -> Result<Option<(Generations, Generations, Vec<f32>)>> {
        let mut worker = Generations::zeroed(layout.padded)?;
        let kept = layout.padded.min(self.layout.padded);
        worker.current_mut()[..kept].copy_from_slice(&self.worker.current()[..kept]);

        let mut owner = Generations::zeroed(layout.share(members.own).len())?;
        let own_old = self.layout.share(self.members.own);
        let own_new = layout.share(members.own);
        let overlap = |left: &Range<usize>, right: &Range<usize>| {
            let start = left.start.max(right.start);
            start..left.end.min(right.end).max(start)
        };
        let ranks = 0..members.ranks.len();
        let sent: Vec<Range<usize>> =
            ranks.clone().map(|new| overlap(&own_old, &layout.share(new))).collect();
        let received: Vec<Range<usize>> =
            ranks.map(|new| overlap(&self.layout.share(old_ranks[new]), &own_new)).collect();
        let lengths = |ranges: &[Range<usize>]| ranges.iter().map(ExactSizeIterator::len).collect::<Vec<_>>();
        let slices = sent.iter().map(|range| {
            if range.is_empty() {
                &[][..]
            } else {
                &self.owner.current()[range.start - own_old.start..range.end - own_old.start]
            }
        });
        let input: Vec<f32> = slices.flatten().copied().collect();
        let mut output = zeroed::<f32>(received.iter().map(ExactSizeIterator::len).sum())?;
        shrunk.communicator.all_to_all_v(&input, &lengths(&sent), &mut output, &lengths(&received))?;
        let mut rest = &output[..];
        for range in received {
            if let Some(part) = rest.split_off(..range.len())
                && !part.is_empty()
            {
                owner.current_mut()[range.start - own_new.start..range.end - own_new.start]
                    .copy_from_slice(part);
            }
        }
        let first_pieces = if self.codec.measures() { Vec::new() } else { zeroed(layout.first_pieces())? };
        Ok(Some((worker, owner, first_pieces)))
    }
}
