//! The operations on lists of buffers: a list with a buffer for each rank, and lists that one call handles together.

use std::ops::Range;

use unisono_communicator::{
    Buffer, BufferMut, Call, Communicator, Counts, Descriptor, Division, Element, OwnedMemory, ReduceOp,
    Result, TypedWork,
};
use unisono_schedule::Collective;

use crate::arguments::rooted;
use crate::asynchronous::{separate, vector, vectors, without_memory};
use crate::coalesced::{self, Coalesced, share_of_rank};
use crate::collectives::Collectives;
use crate::uneven::{own, per_rank, uneven, uneven_call, wide};

/// Collectives on lists of buffers that lie apart. Each link carries one message for any number of buffers, and nothing
/// is copied together. Lengths are in elements; `p` is the number of ranks.
///
/// # Errors
/// As [`crate::Collectives`]. A list with another number of buffers, and a buffer of another length, is an
/// [`InvalidArgument`](unisono_communicator::Error::InvalidArgument) that names the list, before anything is sent.
/// Lengths that differ between ranks where they must not are a
/// [`Mismatch`](unisono_communicator::Error::Mismatch).
pub trait CollectivesOfLists: Communicator {
    /// `inputs[j]` goes to rank j, and `outputs[i]` receives the buffer of rank i. Lengths may differ: rank j's
    /// `outputs[i]` is as long as rank i's `inputs[j]`. Other ranks may call
    /// [`crate::CollectivesUneven::all_to_all_v`].
    ///
    /// Cost: as [`crate::CollectivesUneven::all_to_all_v`].
    ///
    /// ```text
    /// rank       0                      1                     2                      3
    /// inputs     [1] [] [] [2, 3]       [4] [5] [6] [7]       [] [] [8] []           [9] [] [] [0]
    /// outputs    [1] [4] [] [9]         [] [5] [] []          [] [6] [8] []          [2, 3] [7] [] [0]
    /// ```
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
    /// use unisono::{CollectivesOfLists, Solo};
    /// let mut received = [0u16; 2];
    /// Solo::new().all_to_all_list(&[&[4, 5]], &mut [&mut received])?;
    /// assert_eq!(received, [4, 5]);
    /// # Ok::<(), unisono::Error>(())
    /// ```
    #[track_caller]
    fn all_to_all_list<T: Element>(&self, inputs: &[&[T]], outputs: &mut [&mut [T]]) -> Result<()> {
        let send: Vec<u64> = inputs.iter().map(|input| input.len() as u64).collect();
        let receive = outputs.iter().map(|output| output.len() as u64).collect();
        let descriptor = Descriptor::new(Collective::AllToAll, T::DTYPE, send.iter().sum());
        let (input, output) = (Buffer::of_list(inputs, Division::Shares), shares_mut(outputs));
        let counts = Counts::PerPair { send, receive };
        self.issue(Call { counts, ..Call::separate(uneven(descriptor), input, output) }).map(drop)
    }

    /// [`CollectivesOfLists::all_to_all_list`] of vectors: `receive_counts[i]` elements come from rank i. The handle
    /// gives a vector of each rank.
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
    /// use unisono::{CollectivesOfLists, Solo};
    /// assert_eq!(Solo::new().all_to_all_list_async(vec![vec![4u16, 5]], &[2]).wait()?, [[4, 5]]);
    /// # Ok::<(), unisono::Error>(())
    /// ```
    #[track_caller]
    fn all_to_all_list_async<T: Element>(
        &self,
        inputs: Vec<Vec<T>>,
        receive_counts: &[usize],
    ) -> TypedWork<Vec<Vec<T>>> {
        let send: Vec<u64> = inputs.iter().map(|input| input.len() as u64).collect();
        let descriptor = Descriptor::new(Collective::AllToAll, T::DTYPE, send.iter().sum());
        let call = uneven_call(descriptor, Counts::PerPair { send, receive: wide(receive_counts) });
        let outputs = vectors::<T>(receive_counts.iter().copied(), Division::Shares);
        separate(self, call, OwnedMemory::of_list(inputs, Division::Shares), outputs)
    }

    /// [`crate::Collectives::all_gather_list`] of inputs of unequal lengths: on every rank `outputs[r]` is as long as
    /// rank r's input. Other ranks may call [`crate::CollectivesUneven::all_gather_v`].
    ///
    /// Cost: as [`crate::CollectivesUneven::all_gather_v`].
    ///
    /// ```text
    /// rank       0                      1                      2                      3
    /// input      [1]                    [2, 3]                 []                     [4]
    /// outputs    [1] [2, 3] [] [4]      [1] [2, 3] [] [4]      [1] [2, 3] [] [4]      [1] [2, 3] [] [4]
    /// ```
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
    /// use unisono::{CollectivesOfLists, Solo};
    /// let mut from_rank_0 = [0u64; 2];
    /// Solo::new().all_gather_list_v(&[8, 9], &mut [&mut from_rank_0])?;
    /// assert_eq!(from_rank_0, [8, 9]);
    /// # Ok::<(), unisono::Error>(())
    /// ```
    #[track_caller]
    fn all_gather_list_v<T: Element>(&self, input: &[T], outputs: &mut [&mut [T]]) -> Result<()> {
        let counts: Vec<usize> = outputs.iter().map(|output| output.len()).collect();
        let descriptor = uneven(Descriptor::new(Collective::AllGather, T::DTYPE, input.len() as u64));
        let call = Call::separate(descriptor, Buffer::of(input), shares_mut(outputs));
        self.issue(Call { counts: per_rank(&counts), ..call }).map(drop)
    }

    /// [`CollectivesOfLists::all_gather_list_v`] with `counts[r]` elements from rank r; the handle gives a vector of
    /// each rank.
    #[track_caller]
    fn all_gather_list_v_async<T: Element>(&self, input: Vec<T>, counts: &[usize]) -> TypedWork<Vec<Vec<T>>> {
        let descriptor = Descriptor::new(Collective::AllGather, T::DTYPE, input.len() as u64);
        let outputs = vectors::<T>(counts.iter().copied(), Division::Shares);
        separate(self, uneven_call(descriptor, per_rank(counts)), OwnedMemory::of(input), outputs)
    }

    /// [`crate::Collectives::gather`] into a list: the root's `outputs[r]`, as long as `input`, receives rank r's
    /// input; the other ranks give `None`.
    ///
    /// Cost: as [`crate::Collectives::gather`].
    ///
    /// ```text
    /// rank               0      1                  2      3
    /// input              [1]    [2]                [3]    [4]
    /// outputs, root 1    -      [1] [2] [3] [4]    -      -
    /// ```
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
    /// use unisono::{CollectivesOfLists, Solo};
    /// let mut from_rank_0 = [0u64; 1];
    /// Solo::new().gather_list(&[9], Some(&mut [&mut from_rank_0]), 0)?;
    /// assert_eq!(from_rank_0, [9]);
    /// # Ok::<(), unisono::Error>(())
    /// ```
    #[track_caller]
    fn gather_list<T: Element>(
        &self,
        input: &[T],
        outputs: Option<&mut [&mut [T]]>,
        root: u32,
    ) -> Result<()> {
        let descriptor = rooted(Collective::Gather, T::DTYPE, input.len(), root);
        let output = outputs.map_or(BufferMut::empty(), shares_mut);
        self.issue(Call::separate(descriptor, Buffer::of(input), output)).map(drop)
    }

    /// [`CollectivesOfLists::gather_list`]; the handle gives a vector of each rank at the root, an empty list
    /// elsewhere.
    #[track_caller]
    fn gather_list_async<T: Element>(&self, input: Vec<T>, root: u32) -> TypedWork<Vec<Vec<T>>> {
        let (count, ranks) = (input.len(), self.size());
        let call = without_memory(rooted(Collective::Gather, T::DTYPE, count, root));
        let lengths = (0..ranks).map(move |_| count);
        separate(self, call, OwnedMemory::of(input), at_root::<T, _>(self, root, lengths))
    }

    /// [`CollectivesOfLists::gather_list`] with `counts[r]` elements from rank r. Every rank gives the same counts.
    ///
    /// Cost: as [`crate::CollectivesUneven::gather_v`].
    ///
    /// ```text
    /// rank               0      1                      2     3
    /// input              [1]    [2, 3]                 []    [4]
    /// outputs, root 1    -      [1] [2, 3] [] [4]      -     -
    /// ```
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
    /// use unisono::{CollectivesOfLists, Solo};
    /// let mut from_rank_0 = [0u64; 2];
    /// Solo::new().gather_list_v(&[8, 9], Some(&mut [&mut from_rank_0]), &[2], 0)?;
    /// assert_eq!(from_rank_0, [8, 9]);
    /// # Ok::<(), unisono::Error>(())
    /// ```
    #[track_caller]
    fn gather_list_v<T: Element>(
        &self,
        input: &[T],
        outputs: Option<&mut [&mut [T]]>,
        counts: &[usize],
        root: u32,
    ) -> Result<()> {
        let descriptor = uneven(rooted(Collective::Gather, T::DTYPE, input.len(), root));
        let output = outputs.map_or(BufferMut::empty(), shares_mut);
        let call = Call::separate(descriptor, Buffer::of(input), output);
        self.issue(Call { counts: per_rank(counts), ..call }).map(drop)
    }

    /// [`CollectivesOfLists::gather_list_v`]; the handle gives a vector of each rank at the root, an empty list
    /// elsewhere.
    #[track_caller]
    fn gather_list_v_async<T: Element>(
        &self,
        input: Vec<T>,
        counts: &[usize],
        root: u32,
    ) -> TypedWork<Vec<Vec<T>>> {
        let descriptor = rooted(Collective::Gather, T::DTYPE, input.len(), root);
        let outputs = at_root::<T, _>(self, root, counts.iter().copied());
        separate(self, uneven_call(descriptor, per_rank(counts)), OwnedMemory::of(input), outputs)
    }

    /// [`crate::Collectives::scatter`] from a list: the root's `inputs[r]`, as long as `output`, goes to rank r; the
    /// other ranks give `None`.
    ///
    /// Cost: as [`crate::Collectives::scatter`].
    ///
    /// ```text
    /// rank              0      1                  2      3
    /// inputs, root 1    -      [1] [2] [3] [4]    -      -
    /// output            [1]    [2]                [3]    [4]
    /// ```
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
    /// use unisono::{CollectivesOfLists, Solo};
    /// let mut share = [0i16; 2];
    /// Solo::new().scatter_list(Some(&[&[3, 4]]), &mut share, 0)?;
    /// assert_eq!(share, [3, 4]);
    /// # Ok::<(), unisono::Error>(())
    /// ```
    #[track_caller]
    fn scatter_list<T: Element>(&self, inputs: Option<&[&[T]]>, output: &mut [T], root: u32) -> Result<()> {
        let descriptor = rooted(Collective::Scatter, T::DTYPE, output.len(), root);
        let input = inputs.map_or(Buffer::empty(), |inputs| Buffer::of_list(inputs, Division::Shares));
        self.issue(Call::separate(descriptor, input, BufferMut::of(output))).map(drop)
    }

    /// [`CollectivesOfLists::scatter_list`] of vectors of `count` elements; `inputs` is empty except at the root, and
    /// the handle gives this rank's vector.
    #[track_caller]
    fn scatter_list_async<T: Element>(
        &self,
        inputs: Vec<Vec<T>>,
        count: usize,
        root: u32,
    ) -> TypedWork<Vec<T>> {
        let call = without_memory(rooted(Collective::Scatter, T::DTYPE, count, root));
        separate(self, call, of_root(self, root, inputs), vector::<T>(count))
    }

    /// [`CollectivesOfLists::scatter_list`] with `counts[r]` elements to rank r. Every rank gives the same counts.
    ///
    /// Cost: as [`crate::CollectivesUneven::scatter_v`].
    ///
    /// ```text
    /// rank              0      1                      2     3
    /// inputs, root 1    -      [1] [2, 3] [] [4]      -     -
    /// output            [1]    [2, 3]                 []    [4]
    /// ```
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
    /// use unisono::{CollectivesOfLists, Solo};
    /// let mut share = [0i16; 2];
    /// Solo::new().scatter_list_v(Some(&[&[3, 4]]), &mut share, &[2], 0)?;
    /// assert_eq!(share, [3, 4]);
    /// # Ok::<(), unisono::Error>(())
    /// ```
    #[track_caller]
    fn scatter_list_v<T: Element>(
        &self,
        inputs: Option<&[&[T]]>,
        output: &mut [T],
        counts: &[usize],
        root: u32,
    ) -> Result<()> {
        let descriptor = uneven(rooted(Collective::Scatter, T::DTYPE, output.len(), root));
        let input = inputs.map_or(Buffer::empty(), |inputs| Buffer::of_list(inputs, Division::Shares));
        let call = Call::separate(descriptor, input, BufferMut::of(output));
        self.issue(Call { counts: per_rank(counts), ..call }).map(drop)
    }

    /// [`CollectivesOfLists::scatter_list_v`]; `inputs` is empty except at the root, and the handle gives this rank's
    /// vector.
    #[track_caller]
    fn scatter_list_v_async<T: Element>(
        &self,
        inputs: Vec<Vec<T>>,
        counts: &[usize],
        root: u32,
    ) -> TypedWork<Vec<T>> {
        let share = own(self, counts);
        let call = uneven_call(rooted(Collective::Scatter, T::DTYPE, share, root), per_rank(counts));
        separate(self, call, of_root(self, root, inputs), vector::<T>(share))
    }

    /// One all-gather for many buffers: `outputs[i]` becomes all ranks' `inputs[i]` in rank order. Every rank gives the
    /// same number of outputs with the same lengths. A length need not divide among the ranks: `inputs[i]` has the
    /// elements of this rank's [`CollectivesOfLists::coalesced_share`] of `outputs[i]`.
    ///
    /// Cost: one all-gather of all elements together.
    ///
    /// ```text
    /// rank                     0             1             2          3
    /// inputs                   [1, 2] [6]    [3, 4] [7]    [5] [8]    [] [9]
    /// outputs of each rank     [1, 2, 3, 4, 5] [6, 7, 8, 9]
    /// ```
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
    /// use unisono::{CollectivesOfLists, Solo};
    /// let (mut weights, mut biases) = ([0.0f32; 3], [0.0f32; 1]);
    /// Solo::new().all_gather_coalesced(&[&[1.0, 2.0, 3.0], &[4.0]], &mut [&mut weights, &mut biases])?;
    /// assert_eq!((weights, biases), ([1.0, 2.0, 3.0], [4.0]));
    /// # Ok::<(), unisono::Error>(())
    /// ```
    #[track_caller]
    fn all_gather_coalesced<T: Element>(&self, inputs: &[&[T]], outputs: &mut [&mut [T]]) -> Result<()> {
        let whole: Vec<usize> = outputs.iter().map(|output| output.len()).collect();
        let shares: Vec<usize> = inputs.iter().map(|input| input.len()).collect();
        let shape = Coalesced::new(self, Collective::AllGather, T::DTYPE, &whole, ["outputs", "inputs"]);
        shape.check_own(&shares)?;
        let mut rests: Vec<&mut [T]> = outputs.iter_mut().map(|output| &mut **output).collect();
        let parts = shape.parts().map(|(buffer, part)| {
            let (part, rest) = std::mem::take(&mut rests[buffer]).split_at_mut(part.len());
            rests[buffer] = rest;
            part
        });
        let output = BufferMut::of_list(parts, Division::Coalesced);
        let input = Buffer::of_list(inputs, Division::Anywhere);
        let descriptor = shape.descriptor(None);
        self.issue(Call { counts: shape.counts(), ..Call::separate(descriptor, input, output) }).map(drop)
    }

    /// One reduce-scatter for many buffers: `outputs[i]` becomes this rank's share of the reduction of all ranks'
    /// `inputs[i]`; the inputs stay as they are. Every rank gives the same number of inputs with the same lengths. A
    /// length need not divide among the ranks: `outputs[i]` has the elements of this rank's
    /// [`CollectivesOfLists::coalesced_share`] of `inputs[i]`.
    ///
    /// Cost: one reduce-scatter of all elements together.
    ///
    /// ```text
    /// rank                     0           1           2            3
    /// inputs of each rank      [1, 2, 3, 4] [5, 6, 7, 8]
    /// outputs, Sum             [4] [20]    [8] [24]    [12] [28]    [16] [32]
    /// ```
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
    /// use unisono::{CollectivesOfLists, ReduceOp, Solo};
    /// let (mut weights, mut biases) = ([0.0f32; 3], [0.0f32; 1]);
    /// let gradients: [&[f32]; 2] = [&[1.0, 2.0, 3.0], &[4.0]];
    /// Solo::new().reduce_scatter_coalesced(&gradients, &mut [&mut weights, &mut biases], ReduceOp::Avg)?;
    /// assert_eq!((weights, biases), ([1.0, 2.0, 3.0], [4.0]));
    /// # Ok::<(), unisono::Error>(())
    /// ```
    #[track_caller]
    fn reduce_scatter_coalesced<T: Element>(
        &self,
        inputs: &[&[T]],
        outputs: &mut [&mut [T]],
        op: ReduceOp,
    ) -> Result<()> {
        let whole: Vec<usize> = inputs.iter().map(|input| input.len()).collect();
        let shares: Vec<usize> = outputs.iter().map(|output| output.len()).collect();
        let shape = Coalesced::new(self, Collective::ReduceScatter, T::DTYPE, &whole, ["inputs", "outputs"]);
        shape.check_own(&shares)?;
        let parts: Vec<&[T]> = shape.parts().map(|(buffer, part)| &inputs[buffer][part]).collect();
        let input = Buffer::of_list(&parts, Division::Coalesced);
        let output = BufferMut::of_list(outputs.iter_mut().map(|output| &mut **output), Division::Anywhere);
        let descriptor = shape.descriptor(Some(op));
        self.issue(Call { counts: shape.counts(), ..Call::separate(descriptor, input, output) }).map(drop)
    }

    /// [`CollectivesOfLists::all_gather_coalesced`] into buffers of `lengths` elements; the handle gives them.
    ///
    /// Cost: a copy of the output beside the all-gather, which ends with the shares of each rank together.
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
    /// use unisono::{CollectivesOfLists, Solo};
    /// let work = Solo::new().all_gather_coalesced_async(vec![vec![1.0f32, 2.0], vec![3.0]], &[2, 1]);
    /// assert_eq!(work.wait()?, [vec![1.0, 2.0], vec![3.0]]);
    /// # Ok::<(), unisono::Error>(())
    /// ```
    #[track_caller]
    fn all_gather_coalesced_async<T: Element>(
        &self,
        inputs: Vec<Vec<T>>,
        lengths: &[usize],
    ) -> TypedWork<Vec<Vec<T>>> {
        coalesced::all_gather(self, inputs, lengths)
    }

    /// [`CollectivesOfLists::reduce_scatter_coalesced`]; the handle gives this rank's share of each buffer.
    ///
    /// Cost: a copy of the input beside the reduce-scatter, which reads the shares of each rank together.
    #[track_caller]
    fn reduce_scatter_coalesced_async<T: Element>(
        &self,
        inputs: Vec<Vec<T>>,
        op: ReduceOp,
    ) -> TypedWork<Vec<Vec<T>>> {
        coalesced::reduce_scatter(self, inputs, op)
    }

    /// The elements that rank `rank` has of a buffer of `elements` elements in the coalesced calls: all ranks but the
    /// last ones have `elements / p`, rounded up; the last ones have fewer, or none. It sends nothing.
    ///
    /// ```text
    /// rank           0       1       2       3
    /// 8 elements     0..2    2..4    4..6    6..8
    /// 5 elements     0..2    2..4    4..5    5..5
    /// ```
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
    /// use unisono::{CollectivesOfLists, Communicator, Solo};
    /// let comm = Solo::new();
    /// assert_eq!(comm.coalesced_share(6, comm.rank()), 0..6);
    /// # Ok::<(), unisono::Error>(())
    /// ```
    fn coalesced_share(&self, elements: usize, rank: u32) -> Range<usize> {
        share_of_rank(elements, self.size() as usize, rank as usize)
    }
}

impl<C: Communicator + ?Sized> CollectivesOfLists for C {}

fn shares_mut<'a, T: Element>(list: &'a mut [&mut [T]]) -> BufferMut<'a> {
    BufferMut::of_list(list.iter_mut().map(|part| &mut **part), Division::Shares)
}

/// The lists of a gather's output, which the root alone has.
fn at_root<T: Element, C: Communicator + ?Sized>(
    comm: &C,
    root: u32,
    lengths: impl Iterator<Item = usize>,
) -> impl FnOnce() -> Result<OwnedMemory> {
    let is_root = comm.rank() == root;
    move || {
        if is_root { vectors::<T>(lengths, Division::Shares)() } else { vector::<T>(0)() }
    }
}

/// The lists of a scatter's input, which the root alone has.
fn of_root<T: Element, C: Communicator + ?Sized>(comm: &C, root: u32, inputs: Vec<Vec<T>>) -> OwnedMemory {
    if comm.rank() != root && inputs.is_empty() {
        return OwnedMemory::of(Vec::<T>::new());
    }
    OwnedMemory::of_list(inputs, Division::Shares)
}
