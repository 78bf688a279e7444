//! Grouped calls: collectives that travel together where they can, and messages that start together.

use unisono_communicator::{
    Buffer, BufferMut, Buffers, Call, CallOptions, Communicator, Descriptor, Division, Element, Error,
    ParentCall, Peer, Place, Received, ReduceOp, Result, SegmentList, Segments, SegmentsMut, Tag, check,
};
use unisono_schedule::Collective;

use crate::arguments::{optional, reducing, reducing_at, rooted};
use crate::collectives::Collectives;
use crate::point_to_point::{exchanged, recv_call, send_call};

/// Several calls as one; see [`CollectivesGrouped::group_calls`].
pub trait CollectivesGrouped: Communicator {
    /// Runs all calls that `fill` adds, as NCCL's group and `_coalescing_manager` of torch. The messages start together
    /// and come first, as a batch ([`crate::PointToPoint::exchange`]). The collectives follow in their order;
    /// neighbours of the same collective, element type, operator and root travel as one coalesced call, and all of them
    /// are in one scope, so that no other thread's call comes between. Every rank groups the same collectives. Gives
    /// the results of the receives.
    ///
    /// Cost: collectives that travel together cost one call of all their elements; nothing is copied together.
    ///
    /// ```text
    /// rank                                0          1          2          3
    /// weights, biases, step before        1, 5, 9    2, 5, 8    3, 5, 7    4, 5, 6
    /// all_reduce of both, as one call     10, 20     10, 20     10, 20     10, 20
    /// broadcast of step from rank 0       9          9          9          9
    /// ```
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
    /// use unisono::{CollectivesGrouped, ReduceOp, Solo};
    /// let (mut weights, mut biases, mut step) = ([1.0f32; 6], [2.0f32; 2], [3u64]);
    /// Solo::new().group_calls(|group| {
    ///     group.all_reduce(&mut weights, ReduceOp::Sum);
    ///     group.all_reduce(&mut biases, ReduceOp::Sum);
    ///     group.broadcast(&mut step, 0);
    /// })?;
    /// assert_eq!((weights[0], biases[0], step), (1.0, 2.0, [3]));
    /// # Ok::<(), unisono::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for any of the calls, and none starts; [`Error::Unsupported`] within a scope for
    /// collectives that do not all travel together. Else the error of the first call that fails; later calls do not
    /// start.
    #[doc(alias = "ncclGroupStart")]
    #[track_caller]
    fn group_calls<'a>(&self, fill: impl FnOnce(&mut GroupedCalls<'a>)) -> Result<Vec<Received>> {
        let mut group = GroupedCalls { ranks: self.size() as usize, calls: Vec::new(), problem: None };
        fill(&mut group);
        run(self, group)
    }
}

impl<C: Communicator + ?Sized> CollectivesGrouped for C {}

/// The calls of a group. They take the arguments of the blocking calls of [`Collectives`].
pub struct GroupedCalls<'a> {
    ranks: usize,
    /// Each call, and whether it may travel with others.
    calls: Vec<(Call<'a>, bool)>,
    /// The first argument that no call could be made of.
    problem: Option<Error>,
}

impl<'a> GroupedCalls<'a> {
    /// Any call, made by hand: it travels alone.
    pub fn call(&mut self, call: Call<'a>) {
        self.calls.push((call, false));
    }

    fn add(&mut self, call: Call<'a>) {
        self.calls.push((call, true));
    }

    /// As [`Collectives::all_reduce`].
    #[track_caller]
    pub fn all_reduce<T: Element>(&mut self, buffer: &'a mut [T], op: ReduceOp) {
        let descriptor = reducing(Collective::AllReduce, T::DTYPE, buffer.len(), op);
        self.add(Call::in_place(descriptor, BufferMut::of(buffer)));
    }

    /// As [`Collectives::reduce_scatter`].
    #[track_caller]
    pub fn reduce_scatter<T: Element>(&mut self, input: &'a [T], output: &'a mut [T], op: ReduceOp) {
        let descriptor = reducing(Collective::ReduceScatter, T::DTYPE, output.len(), op);
        self.add(Call::separate(descriptor, Buffer::of(input), BufferMut::of(output)));
    }

    /// As [`Collectives::all_gather`].
    #[track_caller]
    pub fn all_gather<T: Element>(&mut self, input: &'a [T], output: &'a mut [T]) {
        let descriptor = Descriptor::new(Collective::AllGather, T::DTYPE, input.len() as u64);
        self.add(Call::separate(descriptor, Buffer::of(input), BufferMut::of(output)));
    }

    /// As [`Collectives::all_to_all`].
    #[track_caller]
    pub fn all_to_all<T: Element>(&mut self, input: &'a [T], output: &'a mut [T]) {
        let share = (input.len() / self.ranks) as u64;
        let descriptor = Descriptor::new(Collective::AllToAll, T::DTYPE, share);
        let call = Call::separate(descriptor, Buffer::of(input), BufferMut::of(output));
        if !input.len().is_multiple_of(self.ranks) {
            let problem = format!("{} elements do not divide among {} ranks", input.len(), self.ranks);
            self.problem.get_or_insert(Error::invalid("input", problem).in_call(&call));
        }
        self.add(call);
    }

    /// As [`Collectives::broadcast`].
    #[track_caller]
    pub fn broadcast<T: Element>(&mut self, buffer: &'a mut [T], root: u32) {
        let descriptor = rooted(Collective::Broadcast, T::DTYPE, buffer.len(), root);
        self.add(Call::in_place(descriptor, BufferMut::of(buffer)));
    }

    /// As [`Collectives::reduce`].
    #[track_caller]
    pub fn reduce<T: Element>(
        &mut self,
        input: &'a [T],
        output: Option<&'a mut [T]>,
        op: ReduceOp,
        root: u32,
    ) {
        let descriptor = reducing_at(T::DTYPE, input.len(), op, root);
        self.add(Call::separate(descriptor, Buffer::of(input), optional(output)));
    }

    /// As [`Collectives::gather`].
    #[track_caller]
    pub fn gather<T: Element>(&mut self, input: &'a [T], output: Option<&'a mut [T]>, root: u32) {
        let descriptor = rooted(Collective::Gather, T::DTYPE, input.len(), root);
        self.add(Call::separate(descriptor, Buffer::of(input), optional(output)));
    }

    /// As [`Collectives::scatter`].
    #[track_caller]
    pub fn scatter<T: Element>(&mut self, input: Option<&'a [T]>, output: &'a mut [T], root: u32) {
        let descriptor = rooted(Collective::Scatter, T::DTYPE, output.len(), root);
        self.add(Call::separate(descriptor, Buffer::of(input.unwrap_or(&[])), BufferMut::of(output)));
    }

    /// As [`Collectives::send`].
    #[track_caller]
    pub fn send<T: Element>(&mut self, message: &'a [T], peer: impl Into<Peer>, tag: u32) {
        self.add(send_call(message, peer.into(), tag));
    }

    /// As [`Collectives::recv`].
    #[track_caller]
    pub fn recv<T: Element>(&mut self, buffer: &'a mut [T], peer: impl Into<Peer>, tag: impl Into<Tag>) {
        self.add(recv_call(buffer, peer.into(), tag.into()));
    }
}

#[track_caller]
fn run<C: Communicator + ?Sized>(comm: &C, group: GroupedCalls<'_>) -> Result<Vec<Received>> {
    let GroupedCalls { ranks, calls, problem } = group;
    problem.map_or(Ok(()), Err)?;
    for (call, _) in &calls {
        check(call, comm.group()).map_err(|error| error.in_call(call))?;
    }
    let (mut messages, mut runs): (Vec<Call<'_>>, Vec<Vec<(Call<'_>, bool)>>) = (Vec::new(), Vec::new());
    for added in calls {
        match runs.last_mut() {
            _ if added.0.descriptor.operation.collective().is_none() => messages.push(added.0),
            Some(run) if go_together(&run[0], &added) => run.push(added),
            Some(_) | None => runs.push(vec![added]),
        }
    }
    let received = exchanged(comm, &mut messages)?;
    if runs.len() == 1 {
        runs.into_iter().try_for_each(|run| comm.issue(one_of(run, ranks)).map(drop))?;
    } else if let Some(((first, _), _)) = runs.first().and_then(|run| run.split_first()) {
        let descriptor = Descriptor { place: Place::Separate, ..first.descriptor };
        let parent = ParentCall { site: Some(first.site), ..ParentCall::new("group_calls", descriptor) };
        let opened = comm.scope(parent.clone(), &CallOptions::new());
        let scope = opened.map_err(|error| error.in_call(&parent.with_site()))?;
        runs.into_iter().try_for_each(|run| scope.issue(one_of(run, ranks)).map(drop))?;
    }
    Ok(received)
}

/// Whether two calls can be one coalesced call, which each rank answers alike.
fn go_together((first, may_first): &(Call<'_>, bool), (second, may_second): &(Call<'_>, bool)) -> bool {
    let kind = |call: &Call<'_>| {
        let Descriptor { operation, dtype, op, root, .. } = call.descriptor;
        (operation, dtype, op, root)
    };
    let has_form = match first.descriptor.operation.collective() {
        Some(
            Collective::AllReduce
            | Collective::ReduceScatter
            | Collective::AllGather
            | Collective::Broadcast
            | Collective::Reduce,
        ) => true,
        Some(
            Collective::AllToAll
            | Collective::Gather
            | Collective::Scatter
            | Collective::Scan
            | Collective::Exscan
            | Collective::Barrier,
        )
        | None => false,
    };
    has_form && *may_first && *may_second && kind(first) == kind(second)
}

/// One call of all calls of a run, which go together.
fn one_of(mut run: Vec<(Call<'_>, bool)>, ranks: usize) -> Call<'_> {
    if run.len() == 1 {
        return run.remove(0).0;
    }
    let count = run.iter().map(|(call, _)| call.descriptor.count).sum();
    let (descriptor, site) = (run[0].0.descriptor, run[0].0.site);
    let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
    for (call, _) in run {
        match call.buffers {
            Buffers::InOut(buffer) => outputs.extend(piece_mut(buffer)),
            Buffers::Separate { input, output } => {
                inputs.extend(piece(&input));
                outputs.extend(piece_mut(output));
            }
        }
    }
    let (input, output) = match descriptor.operation.collective() {
        Some(Collective::AllGather) => {
            let outputs = by_rank(
                outputs,
                ranks,
                |all| all.len(),
                |all, at| {
                    let (share, rest) = std::mem::take(all).split_at_mut(at);
                    *all = rest;
                    share
                },
            );
            (list(inputs, Division::Anywhere), list_mut(outputs, Division::Coalesced))
        }
        Some(Collective::ReduceScatter) => {
            let inputs = by_rank(
                inputs,
                ranks,
                |all| all.len(),
                |all, at| {
                    let (share, rest) = all.split_at(at);
                    *all = rest;
                    share
                },
            );
            (list(inputs, Division::Coalesced), list_mut(outputs, Division::Anywhere))
        }
        Some(_) | None => (list(inputs, Division::Coalesced), list_mut(outputs, Division::Coalesced)),
    };
    let buffers = match descriptor.place {
        Place::InPlace => Buffers::InOut(output),
        Place::Separate => Buffers::Separate { input, output },
    };
    Call { site, ..Call::new(Descriptor { count, ..descriptor }, buffers) }
}

/// The shares of rank 0 in all buffers, then the shares of rank 1, and so on.
fn by_rank<S>(
    mut buffers: Vec<S>,
    ranks: usize,
    length: impl Fn(&S) -> usize,
    split: impl Fn(&mut S, usize) -> S,
) -> Vec<S> {
    let shares: Vec<usize> = buffers.iter().map(|buffer| length(buffer) / ranks).collect();
    let mut parts = Vec::with_capacity(buffers.len() * ranks);
    for _ in 0..ranks {
        parts.extend(buffers.iter_mut().zip(&shares).map(|(buffer, share)| split(buffer, *share)));
    }
    parts
}

fn piece<'a>(buffer: &Buffer<'a>) -> Option<&'a [u8]> {
    match buffer {
        Buffer::Host(Segments::One(bytes)) => Some(bytes),
        Buffer::Host(Segments::Many(_) | Segments::Owned(_)) | Buffer::Device(_) => None,
    }
}

fn piece_mut(buffer: BufferMut<'_>) -> Option<&mut [u8]> {
    match buffer {
        BufferMut::Host(SegmentsMut::One(bytes)) => Some(bytes),
        BufferMut::Host(SegmentsMut::Many(_) | SegmentsMut::Owned(_)) | BufferMut::Device(_) => None,
    }
}

fn list(pieces: Vec<&[u8]>, division: Division) -> Buffer<'_> {
    Buffer::Host(Segments::Many(SegmentList::from(pieces).divided(division)))
}

/// A list; no memory at all for a rank that has no output.
fn list_mut(pieces: Vec<&mut [u8]>, division: Division) -> BufferMut<'_> {
    if pieces.iter().all(|piece| piece.is_empty()) {
        return BufferMut::empty();
    }
    BufferMut::Host(SegmentsMut::Many(SegmentList::from(pieces).divided(division)))
}
