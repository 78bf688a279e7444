//! A state on the communicator that the survivors of a failure go on with.
//!
//! Survivors first tell each other what their states are for and how many calls each has ended: one that is a call
//! ahead goes back. Then what is owed to the sums moves to the new owners. At last they agree that all of them have
//! got that far, so that after another failure all states are still on the old communicator, and can follow the next
//! shrink.

use std::ops::Range;

use unisono_communicator::{
    Collectives, CollectivesUneven, Communicator, Error, JobRank, Result, Shrunk, zeroed,
};

use crate::auto::Auto;
use crate::layout::Layout;
use crate::state::{CompressionState, Generations, LastCall, Members};

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

/// What moves to the new communicator.
struct Moved {
    went_back: bool,
    layout: Layout,
    worker: Generations,
    owner: Generations,
}

impl CompressionState {
    /// Takes the state to the communicator of the survivors: what this rank owes stays, what the survivors owe to the
    /// sums is divided anew among them. A state that chooses ([`CompressionState::or_exact`]) chooses again.
    ///
    /// Collective over the survivors, once after each shrink. When ranks fail meanwhile, it fails on all survivors, and
    /// all states are as before: shrink again, and rebind to that.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] when `shrunk` did not come from this state's communicator, and, on all ranks, when
    /// their states are not of one vector or are more than one call apart. Errors of the collectives.
    pub fn rebind(&mut self, shrunk: &Shrunk) -> Result<Rebound> {
        let comm = &*shrunk.communicator;
        let members = Members::of(comm.group());
        let old_ranks = self.survivors(shrunk, &members)?;
        let moved = self.moved(comm, &members, &old_ranks);
        if let Err(error) = &moved
            && !error.is_before_start()
        {
            // The others may wait for what this rank will not send.
            let _ = comm.revoke(error.clone());
        }
        let is_whole = comm.agree(moved.is_ok());
        if !matches!(is_whole, Ok(true)) {
            self.failed_rebind = Some(members.clone());
        }
        let moved = match (moved, is_whole?) {
            (Err(error), _) => return Err(error),
            // Another rank could not, and has revoked the communicator.
            (Ok(_), false) => return Err(comm.barrier().err().unwrap_or(Error::Closed)),
            (Ok(moved), true) => moved,
        };
        let is_gone = |rank: &usize| !members.ranks.contains(&self.members.ranks[*rank]);
        let gone: Vec<usize> = (0..self.layout.ranks).filter(is_gone).collect();
        let shares = gone.iter().map(|rank| self.layout.share(*rank));
        let rebound = Rebound {
            went_back: moved.went_back,
            lost: gone.iter().map(|rank| self.members.ranks[*rank]).collect(),
            lost_elements: shares.filter(|share| !share.is_empty()).collect(),
        };
        self.calls -= u64::from(moved.went_back);
        (self.layout, self.members) = (moved.layout, members);
        (self.worker, self.owner) = (moved.worker, moved.owner);
        (self.last_call, self.failed_rebind) = (None, None);
        self.auto = self.auto.map(|_| Auto::Undecided);
        Ok(rebound)
    }

    /// The old rank of each new one.
    fn survivors(&self, shrunk: &Shrunk, members: &Members) -> Result<Vec<usize>> {
        let is_parent = |parent: &&Members| {
            let is_right = |(old, new): (&JobRank, &Option<u32>)| {
                new.is_none_or(|new| members.ranks.get(new as usize) == Some(old))
            };
            parent.ranks.len() == shrunk.new_ranks.len()
                && parent.ranks.iter().zip(&shrunk.new_ranks).all(is_right)
                && shrunk.new_ranks.iter().flatten().count() == members.ranks.len()
        };
        let mut parents = [Some(&self.members), self.failed_rebind.as_ref()].into_iter().flatten();
        let old_rank = |new: &JobRank| self.members.ranks.iter().position(|old| old == new);
        let old_ranks = parents.find(is_parent).and_then(|_| members.ranks.iter().map(old_rank).collect());
        old_ranks.ok_or_else(|| {
            Error::invalid("shrunk", "is of another communicator than the one that this state is for")
        })
    }

    /// Whether this rank goes back by a call, so that all survivors have ended as many.
    fn goes_back(&self, comm: &dyn Communicator) -> Result<bool> {
        let mut tag = self.codec.tag().into_bytes();
        tag.extend(self.dtype.code());
        tag.resize(2 * size_of::<u64>(), 0);
        let mut own: Vec<u64> = vec![self.layout.elements as u64, self.members.epoch.into()];
        own.extend(tag.chunks_exact(size_of::<u64>()).map(|word| {
            // INVARIANT: a chunk has eight bytes.
            u64::from_le_bytes(word.try_into().expect("eight bytes"))
        }));
        let described = own.len();
        let can_go_back = self.last_call.is_some();
        own.extend([self.calls, self.calls - u64::from(can_go_back)]);
        let mut all = zeroed::<u64>(own.len() * comm.group().size() as usize)?;
        comm.all_gather(&own, &mut all)?;
        let states = || all.chunks_exact(own.len());
        if states().any(|other| other[..described] != all[..described]) {
            return Err(Error::invalid(
                "state",
                "is of another vector, codec or communicator than other ranks'",
            ));
        }
        let calls = states().map(|other| other[described]);
        let fewest = calls.clone().min().unwrap_or_default();
        if states().any(|other| other[described + 1] > fewest) {
            let most = calls.max().unwrap_or_default();
            return Err(Error::invalid(
                "state",
                format!("ranks have ended {fewest} to {most} calls with it, and not all can go back so far"),
            ));
        }
        Ok(self.calls > fewest)
    }

    /// The state in the new layout.
    fn moved(&self, comm: &dyn Communicator, members: &Members, old_ranks: &[usize]) -> Result<Moved> {
        let went_back = self.goes_back(comm)?;
        let layout = Layout::new(&*self.codec, self.layout.elements, members.ranks.len());
        if !self.codec.has_feedback() {
            let (worker, owner) = Default::default();
            return Ok(Moved { went_back, layout, worker, owner });
        }
        let turns_back = went_back && self.last_call == Some(LastCall::Compressed);
        let [old_worker, old_owner] = [&self.worker, &self.owner]
            .map(|residuals| if turns_back { residuals.previous() } else { residuals.current() });
        let mut worker = Generations::zeroed(layout.padded)?;
        let kept = layout.padded.min(self.layout.padded);
        worker.current_mut()[..kept].copy_from_slice(&old_worker[..kept]);
        let owner = self.moved_sums(comm, members, &layout, old_ranks, old_owner)?;
        Ok(Moved { went_back, layout, worker, owner })
    }

    /// What is owed to the sums, at the new owners.
    fn moved_sums(
        &self,
        comm: &dyn Communicator,
        members: &Members,
        layout: &Layout,
        old_ranks: &[usize],
        old_owner: &[f32],
    ) -> Result<Generations> {
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
                &old_owner[range.start - own_old.start..range.end - own_old.start]
            }
        });
        let input: Vec<f32> = slices.flatten().copied().collect();
        let mut output = zeroed::<f32>(received.iter().map(ExactSizeIterator::len).sum())?;
        comm.all_to_all_v(&input, &lengths(&sent), &mut output, &lengths(&received))?;
        let mut rest = &output[..];
        for range in received {
            if let Some(part) = rest.split_off(..range.len())
                && !part.is_empty()
            {
                owner.current_mut()[range.start - own_new.start..range.end - own_new.start]
                    .copy_from_slice(part);
            }
        }
        Ok(owner)
    }
}
