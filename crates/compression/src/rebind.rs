//! A state on the communicator that the survivors of a failure go on with.
//!
//! Survivors first tell each other the vectors of their states and how many calls each has ended: a state that is a
//! call ahead goes back. Then the residuals of the sums move to the new owners. At last they agree that all of them
//! have got that far, so that after another failure all states are still on the old communicator, and can follow the
//! next shrink.

use std::ops::Range;

use unisono_collectives::{Collectives, CollectivesUneven};
use unisono_communicator::{CallOptions, Communicator, Error, Group, JobRank, Result, Shrunk, zeroed};

use crate::auto::Auto;
use crate::device::{DeviceMemory, KernelDevice};
use crate::layout::{Layout, Part};
use crate::residuals::Residuals;
use crate::route::{Route, Teams};
use crate::state::{CompressionState, LastCall, Members, Shape, owed};

/// The outcome of [`CompressionState::rebind`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rebound {
    /// Whether this rank had ended a call that another survivor had not. The state is as before that call; the caller
    /// takes the call's result back too, as after any collective that not all have completed.
    pub went_back: bool,
    /// The ranks of the job that are gone, with their residuals.
    pub lost: Vec<JobRank>,
    /// The elements that these ranks had summed: the residuals of their sums are gone too.
    pub lost_elements: Vec<Range<usize>>,
}

/// The options of calls by which survivors agree: they are made although their operation is switched off, and on memory
/// of the host that no program has given.
pub(crate) fn own_calls() -> CallOptions {
    CallOptions::new().needed().host_by_companion()
}

/// The parts of a state that move to the new communicator.
struct Moved<M> {
    went_back: bool,
    layout: Layout,
    worker: Residuals<M>,
    owner: Residuals<M>,
}

/// Elements of the vector that follow each other in a residual.
type Ranges = Vec<Range<usize>>;

impl<D: KernelDevice> CompressionState<D> {
    /// Takes the state to the communicator of the survivors: this rank's own residuals stay, the residuals of the sums
    /// are divided anew among the survivors. A state that chooses ([`CompressionState::or_exact`]) chooses again.
    ///
    /// Collective over the survivors, once after each shrink. When ranks fail meanwhile, it fails on all survivors, and
    /// all states are as before: shrink again, and rebind to that.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] when `shrunk` did not come from this state's communicator, and, on all ranks, when
    /// their states are not of one vector or are more than one call apart. [`Error::Unsupported`], on all ranks and
    /// before anything is sent, for a reduce-scatter of several vectors and for an all-gather: among other ranks their
    /// elements have other places. Errors of the collectives.
    pub fn rebind(&mut self, shrunk: &Shrunk) -> Result<Rebound> {
        let comm = &*shrunk.communicator;
        let members = Members::of(comm.group());
        let old_ranks = self.survivors(shrunk, &members)?;
        self.check_places()?;
        let moved = self.moved(comm, &members, &old_ranks);
        if let Err(error) = &moved
            && !error.is_before_start()
        {
            // The others may wait for messages that this rank will not send.
            let _ = comm.revoke(error.clone());
        }
        let is_whole = comm.agree(moved.is_ok());
        if !matches!(is_whole, Ok(true)) {
            self.failed_rebind = Some(members.clone());
        }
        let moved = match (moved, is_whole?) {
            (Err(error), _) => return Err(error),
            // Another rank could not, and has revoked the communicator.
            (Ok(_), false) => return Err(comm.with(own_calls()).barrier().err().unwrap_or(Error::closed())),
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

    /// Residuals move by the numbers of elements, which must not depend on the ranks.
    fn check_places(&self) -> Result<()> {
        let what = match &self.shape {
            Shape::Whole(_) => return Ok(()),
            Shape::Vectors(lengths) if lengths.iter().filter(|length| **length > 0).count() < 2 => {
                return Ok(());
            }
            Shape::Vectors(_) => "a rebind of the state of a reduce_scatter of several vectors",
            Shape::Shares(_) => "a rebind of the state of an all_gather",
        };
        Err(Error::Unsupported {
            what: what.to_owned(),
            backend: "compression",
            instead: Some("a new state on the communicator of the survivors, which owes nothing".to_owned()),
        })
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
            #[expect(clippy::expect_used, reason = "a chunk has eight bytes")]
            u64::from_le_bytes(word.try_into().expect("eight bytes"))
        }));
        let described = own.len();
        let can_go_back = self.last_call.is_some();
        own.extend([self.calls, self.calls - u64::from(can_go_back)]);
        let mut all = zeroed::<u64>(own.len() * comm.size() as usize)?;
        comm.with(own_calls()).all_gather(&own, &mut all)?;
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
    fn moved(
        &self,
        comm: &dyn Communicator,
        members: &Members,
        old_ranks: &[usize],
    ) -> Result<Moved<D::Memory>> {
        let went_back = self.goes_back(comm)?;
        let (old, group) = (&self.layout, comm.group());
        let teams = Teams::new(self.route, group);
        let layout = self.shape.layout(&*self.codec, members.ranks.len(), teams);
        let (codec, kept) = (&*self.codec, self.worker.kept);
        let [mut worker, mut owner] = owed(&self.device, codec, kept, &self.shape, &layout, members.own)?;
        let turns_back = went_back && self.last_call == Some(LastCall::Compressed);
        let of = |residuals: &Residuals<D::Memory>| {
            let memory = if turns_back { residuals.previous() } else { residuals.current() };
            let mut words = zeroed::<u32>(memory.words())?;
            self.device.read(memory, 0, &mut words)?;
            residuals.decoded(words)
        };
        let ranges = |parts: &mut dyn Iterator<Item = Part>| merged(parts.map(|part| part.elements));
        let [encodes, sums] = self.shape.encoders().map(|is_used| is_used && codec.has_feedback());
        if encodes {
            let moves = Move {
                from: old_ranks.iter().map(|rank| ranges(&mut old.collected(*rank))).collect(),
                to: (0..layout.ranks).map(|rank| ranges(&mut layout.collected(rank))).collect(),
                may: &|from, to| self.is_heir(group, from, to),
            };
            let moved = worker.encoded(moves.run(comm, &of(&self.worker)?)?)?;
            self.device.write(&moved, worker.current_mut(), 0)?;
        }
        if sums {
            let moves = Move {
                from: old_ranks.iter().map(|rank| ranges(&mut old.pieces_of(*rank))).collect(),
                to: (0..layout.ranks).map(|rank| ranges(&mut layout.pieces_of(rank))).collect(),
                may: &|_, _| true,
            };
            let moved = owner.encoded(moves.run(comm, &of(&self.owner)?)?)?;
            self.device.write(&moved, owner.current_mut(), 0)?;
        }
        Ok(Moved { went_back, layout, worker, owner })
    }

    /// Whether `to` inherits the residuals of `from`, for the elements that `to` encodes.
    fn is_heir(&self, group: &Group, from: usize, to: usize) -> bool {
        match self.route {
            Route::Direct | Route::SummedCodes => from == to,
            Route::TwoLevels => group.hosts()[from] == group.hosts()[to],
        }
    }
}

/// The ranges; ranges that touch become one.
fn merged(ranges: impl Iterator<Item = Range<usize>>) -> Ranges {
    let mut merged: Ranges = Vec::new();
    for range in ranges.filter(|range| !range.is_empty()) {
        match merged.last_mut().filter(|last| last.end == range.start) {
            Some(last) => last.end = range.end,
            None => merged.push(range),
        }
    }
    merged
}

/// Residuals on their way from ranks to ranks.
struct Move<'a> {
    /// The elements that each rank has, and the elements that it will have.
    from: Vec<Ranges>,
    to: Vec<Ranges>,
    /// Whether one rank gets elements of another.
    may: &'a dyn Fn(usize, usize) -> bool,
}

impl Move<'_> {
    /// The places of common elements in the residuals that `from` has and `to` will have, in the same order.
    fn common(&self, from: usize, to: usize) -> Vec<[Range<usize>; 2]> {
        let mut common = Vec::new();
        let mut to_at = 0;
        for wanted in &self.to[to] {
            let mut from_at = 0;
            for had in &self.from[from] {
                let (start, end) = (wanted.start.max(had.start), wanted.end.min(had.end));
                if start < end && (self.may)(from, to) {
                    let place = |at: usize, first: usize| at + start - first..at + end - first;
                    common.push([place(from_at, had.start), place(to_at, wanted.start)]);
                }
                from_at += had.len();
            }
            to_at += wanted.len();
        }
        common
    }

    /// Collective: gives this rank's residuals from now on; zeros where nobody sends.
    fn run(&self, comm: &dyn Communicator, residual: &[f32]) -> Result<Vec<f32>> {
        let (own, ranks) = (comm.rank() as usize, 0..self.to.len());
        let sent: Vec<_> = ranks.clone().map(|to| self.common(own, to)).collect();
        let received: Vec<_> = ranks.map(|from| self.common(from, own)).collect();
        let lengths = |all: &[Vec<[Range<usize>; 2]>]| -> Vec<usize> {
            all.iter().map(|one| one.iter().map(|[place, _]| place.len()).sum()).collect()
        };
        let input: Vec<f32> =
            sent.iter().flatten().flat_map(|[place, _]| &residual[place.clone()]).copied().collect();
        let (send, receive) = (lengths(&sent), lengths(&received));
        let mut output = zeroed::<f32>(receive.iter().sum())?;
        comm.with(own_calls()).all_to_all_v(&input, &send, &mut output, &receive)?;
        let mut moved = zeroed::<f32>(self.to[own].iter().map(ExactSizeIterator::len).sum())?;
        let mut rest = &output[..];
        for [_, place] in received.into_iter().flatten() {
            if let Some(part) = rest.split_off(..place.len()) {
                moved[place].copy_from_slice(part);
            }
        }
        Ok(moved)
    }
}
