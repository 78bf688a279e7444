//! Grouped calls: collectives that travel together where they can, and messages that start together.

use unisono_communicator::{
    Buffer, BufferMut, Buffers, Call, CallOptions, Communicator, Descriptor, Division, Element, Error, Group,
    Operation, ParentCall, Peer, Place, Received, ReduceOp, Result, SegmentList, Segments, SegmentsMut, Site,
    Tag, check,
};
use unisono_schedule::Collective;

use crate::arguments::{optional, reducing, reducing_at, rooted};
use crate::collectives::Collectives;
use crate::point_to_point::{exchanged, recv_call, send_call};

/// Several calls as one; see [`CollectivesGrouped::group_calls`].
pub trait CollectivesGrouped: Communicator {
    /// Runs all calls that `fill` adds, as NCCL's group and `_coalescing_manager` of torch. The messages start together
    /// and come first, as a batch ([`crate::PointToPoint::exchange`]). The collectives follow in their order;
    /// neighbours of the same collective, element type, operator and root travel as one coalesced call (but for
    /// [`ReduceOp::PreMulSum`], whose factors are the rank's own). All are in one scope, so that no other thread's call
    /// comes between. Every rank groups the same collectives. Gives the results of the receives.
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
    fn group_calls<'a>(&'a self, fill: impl FnOnce(&mut GroupedCalls<'a>)) -> Result<Vec<Received>> {
        let mut group = GroupedCalls {
            group: self.group(),
            messages: Vec::new(),
            collectives: Vec::new(),
            problem: None,
        };
        fill(&mut group);
        run(self, group)
    }
}

impl<C: Communicator + ?Sized> CollectivesGrouped for C {}

/// The number of calls of one kind for which a group has room without growing.
const USUAL_CALLS: usize = 16;

/// The calls of a group. They take the arguments of the blocking calls of [`Collectives`].
pub struct GroupedCalls<'a> {
    group: &'a Group,
    messages: Vec<Call<'a>>,
    collectives: Vec<Grouped<'a>>,
    /// The first argument that does not fit: no call starts.
    problem: Option<Error>,
}

/// A call of the communicator.
enum Grouped<'a> {
    Alone(Box<Call<'a>>),
    Together(Together<'a>),
}

/// Calls that travel as one, in their order. Only the memory of each is kept: a call has half a kilobyte.
struct Together<'a> {
    /// Of the first call, with the elements of all.
    descriptor: Descriptor,
    /// The line of the first call.
    site: Site,
    inputs: Vec<&'a [u8]>,
    outputs: Vec<&'a mut [u8]>,
}

impl<'a> GroupedCalls<'a> {
    /// Any call, made by hand: it travels alone.
    pub fn call(&mut self, call: Call<'a>) {
        if !self.fits(&call) {
            return;
        }
        match call.descriptor.operation {
            Operation::Collective(_) => self.collectives.push(Grouped::Alone(Box::new(call))),
            Operation::Send | Operation::Recv => self.messages.push(call),
        }
    }

    /// Whether the arguments of all calls fit, up to this one.
    fn fits(&mut self, call: &Call<'_>) -> bool {
        if self.problem.is_none() {
            self.problem = check(call, self.group).err().map(|error| error.in_call(call));
        }
        self.problem.is_none()
    }

    /// A call on one buffer, which travels with the neighbours of its kind. Behind one of these, nothing is left to
    /// check: the length of the buffer is the count.
    #[inline]
    #[track_caller]
    fn add_in_place<T: Element>(&mut self, descriptor: Descriptor, buffer: &'a mut [T]) {
        match self.collectives.last_mut() {
            Some(Grouped::Together(last)) if last.takes(&descriptor) => {
                last.descriptor.count += descriptor.count;
                last.outputs.push(bytemuck::cast_slice_mut(buffer));
            }
            Some(_) | None => self.add(Call::in_place(descriptor, BufferMut::of(buffer))),
        }
    }

    /// A call that travels with the neighbours of its kind.
    fn add(&mut self, call: Call<'a>) {
        if !self.fits(&call) {
            return;
        }
        let Call { descriptor, site, buffers, .. } = call;
        if !matches!(self.collectives.last(), Some(Grouped::Together(last)) if last.takes(&descriptor)) {
            let (inputs, outputs) = (Vec::new(), Vec::with_capacity(USUAL_CALLS));
            let none = Descriptor { count: 0, ..descriptor };
            self.collectives.push(Grouped::Together(Together { descriptor: none, site, inputs, outputs }));
        }
        if let Some(Grouped::Together(last)) = self.collectives.last_mut() {
            last.descriptor.count += descriptor.count;
            let (input, output) = match buffers {
                Buffers::InOut(buffer) => (None, buffer),
                Buffers::Separate { input, output } => (piece(&input), output),
            };
            last.inputs.extend(input);
            last.outputs.extend(piece_mut(output));
        }
    }

    /// As [`Collectives::all_reduce`].
    #[track_caller]
    pub fn all_reduce<T: Element>(&mut self, buffer: &'a mut [T], op: ReduceOp) {
        let descriptor = reducing(Collective::AllReduce, T::DTYPE, buffer.len(), op);
        self.add_in_place(descriptor, buffer);
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
        let ranks = self.group.size() as usize;
        let descriptor = Descriptor::new(Collective::AllToAll, T::DTYPE, (input.len() / ranks) as u64);
        let call = Call::separate(descriptor, Buffer::of(input), BufferMut::of(output));
        if !input.len().is_multiple_of(ranks) {
            let problem = format!("{} elements do not divide among {ranks} ranks", input.len());
            self.problem.get_or_insert(Error::invalid("input", problem).in_call(&call));
        }
        self.call(call);
    }

    /// As [`Collectives::broadcast`].
    #[track_caller]
    pub fn broadcast<T: Element>(&mut self, buffer: &'a mut [T], root: u32) {
        let descriptor = rooted(Collective::Broadcast, T::DTYPE, buffer.len(), root);
        self.add_in_place(descriptor, buffer);
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
        self.call(Call::separate(descriptor, Buffer::of(input), optional(output)));
    }

    /// As [`Collectives::scatter`].
    #[track_caller]
    pub fn scatter<T: Element>(&mut self, input: Option<&'a [T]>, output: &'a mut [T], root: u32) {
        let descriptor = rooted(Collective::Scatter, T::DTYPE, output.len(), root);
        self.call(Call::separate(descriptor, Buffer::of(input.unwrap_or(&[])), BufferMut::of(output)));
    }

    /// As [`Collectives::send`].
    #[track_caller]
    pub fn send<T: Element>(&mut self, message: &'a [T], peer: impl Into<Peer>, tag: u32) {
        self.call(send_call(message, peer.into(), tag));
    }

    /// As [`Collectives::recv`].
    #[track_caller]
    pub fn recv<T: Element>(&mut self, buffer: &'a mut [T], peer: impl Into<Peer>, tag: impl Into<Tag>) {
        self.call(recv_call(buffer, peer.into(), tag.into()));
    }
}

fn run<C: Communicator + ?Sized>(comm: &C, group: GroupedCalls<'_>) -> Result<Vec<Received>> {
    let GroupedCalls { group, mut messages, collectives, problem } = group;
    problem.map_or(Ok(()), Err)?;
    let received = exchanged(comm, &mut messages)?;
    let ranks = group.size() as usize;
    let mut calls = collectives.into_iter().map(|grouped| match grouped {
        Grouped::Alone(call) => *call,
        Grouped::Together(together) => together.into_call(ranks),
    });
    if calls.len() < 2 {
        calls.try_for_each(|call| comm.issue(call).map(drop))?;
    } else if let Some(first) = calls.next() {
        let descriptor = Descriptor { place: Place::Separate, ..first.descriptor };
        let parent = ParentCall { site: Some(first.site), ..ParentCall::new("group_calls", descriptor) };
        let opened = comm.scope(parent.clone(), &CallOptions::new());
        let scope = opened.map_err(|error| error.in_call(&parent.with_site()))?;
        std::iter::once(first).chain(calls).try_for_each(|call| scope.issue(call).map(drop))?;
    }
    Ok(received)
}

impl<'a> Together<'a> {
    /// Whether a call with this descriptor is of the same kind. Each rank answers alike, so no factor of a
    /// [`ReduceOp::PreMulSum`] is compared: it is the rank's own.
    fn takes(&self, descriptor: &Descriptor) -> bool {
        if let Some(ReduceOp::PreMulSum(_)) = descriptor.op {
            return false;
        }
        let kind = |descriptor: &Descriptor| {
            let Descriptor { operation, dtype, op, root, .. } = *descriptor;
            (operation, dtype, op, root)
        };
        kind(&self.descriptor) == kind(descriptor)
    }

    /// One call of all.
    fn into_call(self, ranks: usize) -> Call<'a> {
        let Together { descriptor, site, mut inputs, mut outputs } = self;
        let (input, output) = match descriptor.operation.collective() {
            // Each call has an output, if only an empty one.
            _ if outputs.len() == 1 => {
                let input = inputs.pop().unwrap_or_default();
                (Buffer::Host(Segments::One(input)), BufferMut::Host(SegmentsMut::One(outputs.remove(0))))
            }
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
        Call { site, ..Call::new(descriptor, buffers) }
    }
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
