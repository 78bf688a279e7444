//! Prepared calls: arguments that are checked once and a plan that is made once, for calls of the same shape (MPI's
//! persistent collectives, MPI 4.1, section 6.13).

use std::collections::HashMap;
use std::fmt;
use std::marker::PhantomData;

use unisono_communicator::{
    Buffer, BufferMut, Call, CallOptions, Communicator, Counts, Descriptor, Element, Error, Lengths,
    MemoryKind, OwnedCall, OwnedMemory, Place, PreparedCall, ReduceOp, Result, TypedWork, lengths,
};
use unisono_schedule::Collective;

use crate::arguments::{reducing, reducing_at, rooted};
use crate::asynchronous::{in_place, separate, vector, without_memory};
use crate::collectives::Collectives;

/// Calls that are prepared once and made again and again. A prepared call gives the results of the plain call and may
/// meet it: other ranks need not prepare theirs. Lengths are in elements; `p` is the number of ranks.
///
/// Cost: the preparation sends nothing. A blocking call of it looks nothing up and allocates nothing, from the first
/// one on.
///
/// # Errors
/// The preparation has the errors of [`Communicator::supports`]. A call has the errors of the plain call, and
/// [`Error::InvalidArgument`] for a buffer of another length; after a failure the first cause: prepare again on the
/// communicator of [`Communicator::shrink`]. Where an algorithm was registered since, the next call makes a new plan.
pub trait CollectivesPrepared: Communicator {
    /// [`Collectives::all_reduce`] of `elements` elements.
    ///
    /// ```text
    /// rank                      0     1     2     3
    /// prepare_all_reduce(1, Sum), once
    /// before a call             1     2     3     4
    /// after it                 10    10    10    10
    /// after another            40    40    40    40
    /// ```
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
    /// use unisono::{CollectivesPrepared, ReduceOp, Solo};
    /// let comm = Solo::new();
    /// let sum = comm.prepare_all_reduce::<f32>(2, ReduceOp::Sum)?;
    /// let mut gradients = [1.0, 2.0];
    /// for _ in 0..3 {
    ///     sum.call(&mut gradients)?;
    /// }
    /// assert_eq!(sum.start(gradients.to_vec()).wait()?, [1.0, 2.0]);
    /// # Ok::<(), unisono::Error>(())
    /// ```
    #[doc(alias = "MPI_Allreduce_init")]
    #[track_caller]
    fn prepare_all_reduce<T: Element>(
        &self,
        elements: usize,
        op: ReduceOp,
    ) -> Result<PreparedInPlace<'_, Self, T>> {
        let descriptor = reducing(Collective::AllReduce, T::DTYPE, elements, op);
        prepare_in_place(self, descriptor)
    }

    /// [`Collectives::broadcast`] of `elements` elements.
    #[doc(alias = "MPI_Bcast_init")]
    #[track_caller]
    fn prepare_broadcast<T: Element>(
        &self,
        elements: usize,
        root: u32,
    ) -> Result<PreparedInPlace<'_, Self, T>> {
        prepare_in_place(self, rooted(Collective::Broadcast, T::DTYPE, elements, root))
    }

    /// [`Collectives::reduce_scatter`] of p shares of `share` elements.
    #[doc(alias = "MPI_Reduce_scatter_block_init")]
    #[track_caller]
    fn prepare_reduce_scatter<T: Element>(
        &self,
        share: usize,
        op: ReduceOp,
    ) -> Result<Prepared<'_, Self, T>> {
        prepare(self, reducing(Collective::ReduceScatter, T::DTYPE, share, op))
    }

    /// [`Collectives::all_gather`] of p shares of `share` elements.
    ///
    /// ```text
    /// rank           0               1               2               3
    /// prepare_all_gather(1), once
    /// first input    [1]             [2]             [3]             [4]
    /// its output     [1, 2, 3, 4]    [1, 2, 3, 4]    [1, 2, 3, 4]    [1, 2, 3, 4]
    /// ```
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
    /// use unisono::{CollectivesPrepared, Solo};
    /// let comm = Solo::new();
    /// let gather = comm.prepare_all_gather::<u8>(2)?;
    /// let mut all = [0; 2];
    /// gather.call(&[1, 2], &mut all)?;
    /// assert_eq!((all, gather.start(vec![3, 4]).wait()?), ([1, 2], vec![3, 4]));
    /// # Ok::<(), unisono::Error>(())
    /// ```
    #[doc(alias = "MPI_Allgather_init")]
    #[track_caller]
    fn prepare_all_gather<T: Element>(&self, share: usize) -> Result<Prepared<'_, Self, T>> {
        prepare(self, Descriptor::new(Collective::AllGather, T::DTYPE, share as u64))
    }

    /// [`Collectives::all_to_all`] of p parts of `part` elements.
    #[doc(alias = "MPI_Alltoall_init")]
    #[track_caller]
    fn prepare_all_to_all<T: Element>(&self, part: usize) -> Result<Prepared<'_, Self, T>> {
        prepare(self, Descriptor::new(Collective::AllToAll, T::DTYPE, part as u64))
    }

    /// [`Collectives::reduce`] of `elements` elements. The output is empty except at the root.
    #[doc(alias = "MPI_Reduce_init")]
    #[track_caller]
    fn prepare_reduce<T: Element>(
        &self,
        elements: usize,
        op: ReduceOp,
        root: u32,
    ) -> Result<Prepared<'_, Self, T>> {
        prepare(self, reducing_at(T::DTYPE, elements, op, root))
    }

    /// [`Collectives::gather`] of shares of `share` elements. The output is empty except at the root.
    #[doc(alias = "MPI_Gather_init")]
    #[track_caller]
    fn prepare_gather<T: Element>(&self, share: usize, root: u32) -> Result<Prepared<'_, Self, T>> {
        prepare(self, rooted(Collective::Gather, T::DTYPE, share, root))
    }

    /// [`Collectives::scatter`] of shares of `share` elements. The input is empty except at the root.
    #[doc(alias = "MPI_Scatter_init")]
    #[track_caller]
    fn prepare_scatter<T: Element>(&self, share: usize, root: u32) -> Result<Prepared<'_, Self, T>> {
        prepare(self, rooted(Collective::Scatter, T::DTYPE, share, root))
    }
}

impl<C: Communicator + ?Sized> CollectivesPrepared for C {}

/// A prepared call on one buffer; see [`CollectivesPrepared`]. Its plan is forgotten when it is dropped.
pub struct PreparedInPlace<'c, C: ?Sized, T> {
    comm: &'c C,
    call: PreparedCall,
    /// See [`checked_lengths`].
    lengths: Option<Lengths>,
    elements: PhantomData<fn(T) -> T>,
}

/// A prepared call from one buffer to another; see [`CollectivesPrepared`]. Its plan is forgotten when it is dropped.
pub struct Prepared<'c, C: ?Sized, T> {
    comm: &'c C,
    call: PreparedCall,
    /// See [`checked_lengths`].
    lengths: Option<Lengths>,
    elements: PhantomData<fn(T) -> T>,
}

impl<C: ?Sized, T> fmt::Debug for PreparedInPlace<'_, C, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.call.fmt(f)
    }
}

impl<C: ?Sized, T> fmt::Debug for Prepared<'_, C, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.call.fmt(f)
    }
}

impl<C: Communicator + ?Sized, T: Element> PreparedInPlace<'_, C, T> {
    /// Makes the call.
    ///
    /// # Errors
    /// As [`CollectivesPrepared`].
    #[track_caller]
    pub fn call(&self, buffer: &mut [T]) -> Result<()> {
        let fits = self.lengths.is_some_and(|lengths| lengths.output == buffer.len() as u64);
        let call = Call::in_place(self.call.descriptor, BufferMut::of(buffer));
        make(self.comm, filled(call, &self.call), fits)
    }

    /// Starts the call; the handle gives the buffer.
    #[track_caller]
    pub fn start(&self, buffer: Vec<T>) -> TypedWork<Vec<T>> {
        in_place(self.comm, owned(&self.call), OwnedMemory::of(buffer))
    }
}

impl<C: Communicator + ?Sized, T: Element> Prepared<'_, C, T> {
    /// Makes the call. A side that this rank has not is an empty slice.
    ///
    /// # Errors
    /// As [`CollectivesPrepared`].
    #[track_caller]
    pub fn call(&self, input: &[T], output: &mut [T]) -> Result<()> {
        let given = Lengths { input: input.len() as u64, output: output.len() as u64 };
        let call = Call::separate(self.call.descriptor, Buffer::of(input), BufferMut::of(output));
        make(self.comm, filled(call, &self.call), self.lengths == Some(given))
    }

    /// Starts the call; the handle gives the output.
    #[track_caller]
    pub fn start(&self, input: Vec<T>) -> TypedWork<Vec<T>> {
        let output = lengths(&self.call.descriptor, &Counts::Even, self.comm.group()).output;
        let output = vector::<T>(usize::try_from(output).unwrap_or(usize::MAX));
        separate(self.comm, owned(&self.call), OwnedMemory::of(input), output)
    }
}

/// Prepared all-reduces that the program finds again by numbers of its own, as `all_reduce_caching` of DeepSpeed finds
/// them by `match_id`: the first call of a number prepares it.
///
/// ```
/// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
/// use unisono::{AllReduceCache, ReduceOp, Solo};
/// let comm = Solo::new();
/// let mut cache = AllReduceCache::new(&comm);
/// for step in 0..3 {
///     let (mut layer_0, mut layer_1) = ([step as f32; 4], [step as f32; 2]);
///     cache.all_reduce(0, &mut layer_0, ReduceOp::Avg)?;
///     cache.all_reduce(1, &mut layer_1, ReduceOp::Avg)?;
/// }
/// assert!(cache.all_reduce(1, &mut [0.0f32; 3], ReduceOp::Avg).is_err(), "number 1 has two elements");
/// # Ok::<(), unisono::Error>(())
/// ```
#[doc(alias = "all_reduce_caching")]
pub struct AllReduceCache<'c, C: ?Sized> {
    comm: &'c C,
    calls: HashMap<u64, PreparedCall>,
}

impl<'c, C: Communicator + ?Sized> AllReduceCache<'c, C> {
    /// An empty cache.
    pub fn new(comm: &'c C) -> AllReduceCache<'c, C> {
        AllReduceCache { comm, calls: HashMap::new() }
    }

    /// [`Collectives::all_reduce`] by the plan of this number.
    ///
    /// # Errors
    /// As [`CollectivesPrepared`]; [`Error::InvalidArgument`] when the number has another length, element type or
    /// operator.
    #[track_caller]
    pub fn all_reduce<T: Element>(&mut self, match_id: u64, buffer: &mut [T], op: ReduceOp) -> Result<()> {
        let descriptor = reducing(Collective::AllReduce, T::DTYPE, buffer.len(), op);
        let call = Call::in_place(descriptor, BufferMut::of(buffer));
        let prepared = match self.calls.get(&match_id) {
            Some(prepared) if prepared.descriptor == call.descriptor => prepared,
            Some(other) => {
                let problem = format!("{match_id} is {}", other.descriptor);
                return Err(Error::invalid("match_id", problem).in_call(&call));
            }
            None => {
                let prepared = prepared(self.comm, call.descriptor)?;
                self.calls.entry(match_id).or_insert(prepared)
            }
        };
        self.comm.issue(filled(call, prepared)).map(drop)
    }
}

#[track_caller]
fn prepare_in_place<T: Element, C: Communicator + ?Sized>(
    comm: &C,
    descriptor: Descriptor,
) -> Result<PreparedInPlace<'_, C, T>> {
    let call = prepared(comm, Descriptor { place: Place::InPlace, ..descriptor })?;
    Ok(PreparedInPlace { comm, lengths: checked_lengths(comm, &call), call, elements: PhantomData })
}

#[track_caller]
fn prepare<T: Element, C: Communicator + ?Sized>(
    comm: &C,
    descriptor: Descriptor,
) -> Result<Prepared<'_, C, T>> {
    let call = prepared(comm, descriptor)?;
    Ok(Prepared { comm, lengths: checked_lengths(comm, &call), call, elements: PhantomData })
}

#[track_caller]
fn prepared<C: Communicator + ?Sized>(comm: &C, descriptor: Descriptor) -> Result<PreparedCall> {
    let call = format_args!("prepare {descriptor} at {}", unisono_communicator::Site::caller());
    let made = comm.life().prepare(comm.group(), &descriptor, &CallOptions::new(), MemoryKind::Host);
    made.map_err(|error| error.in_call(&call))
}

/// The lengths with which a call passes the check, and is not skipped; `None` if only the whole check can tell.
fn checked_lengths<C: Communicator + ?Sized>(comm: &C, prepared: &PreparedCall) -> Option<Lengths> {
    let PreparedCall { descriptor, options, .. } = prepared;
    let is_skipped = comm.group().skips(descriptor.operation) && !options.is_needed;
    let is_plain = !is_skipped && options.label.is_none();
    is_plain.then(|| lengths(descriptor, &Counts::Even, comm.group()))
}

/// Makes a call, which is checked unless its lengths `fit`: the preparation has checked all else.
#[inline]
#[track_caller]
fn make<C: Communicator + ?Sized>(comm: &C, mut call: Call<'_>, fits: bool) -> Result<()> {
    if fits {
        return comm.execute(&mut call).map(drop).map_err(|error| error.in_call(&call));
    }
    comm.issue(call).map(drop)
}

/// The call with the options and the plan of its preparation.
#[inline]
fn filled<'a>(call: Call<'a>, prepared: &PreparedCall) -> Call<'a> {
    Call { options: prepared.options, prepared: prepared.number, ..call }
}

#[track_caller]
fn owned(prepared: &PreparedCall) -> OwnedCall {
    let call = without_memory(prepared.descriptor);
    OwnedCall { options: prepared.options, prepared: prepared.number, ..call }
}
