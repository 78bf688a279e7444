//! The prefix reductions: each rank's result is the reduction of the ranks up to it, or before it.

use unisono_communicator::{
    Buffer, BufferMut, Call, Communicator, Descriptor, Element, OwnedCall, OwnedMemory, ReduceOp, Result,
    TypedWork, UserOp,
};
use unisono_schedule::Collective;

use crate::arguments::{reducing, typed_function};
use crate::asynchronous::{in_place, input, separate, without_memory};
use crate::collectives::Collectives;

/// Prefix reductions over the ranks, as `MPI_Scan` and `MPI_Exscan` (MPI 4.1, sections 6.11.1 and 6.11.2).
///
/// The order of the ranks is always kept: lower ranks stand on the left of the operator. `n` is the length of the
/// buffer, the same on all ranks, and `p` the number of ranks. A rank with a low number may return before ranks with
/// higher numbers have called.
///
/// Cost: for short buffers ceil(log2 p) rounds of n elements; for long ones a chain, in which each rank sends its
/// elements once in a scan and twice in an exscan. `Determinism::Fixed` takes the chain, which sums from left to right.
///
/// # Errors
/// As [`crate::Collectives`]. [`ReduceOp::Avg`] is an `Error::InvalidArgument`, since each result is of another number
/// of ranks.
pub trait CollectivesPrefix: Communicator {
    /// Rank r's `buffer` becomes the reduction of the buffers of ranks 0 to r.
    ///
    /// ```text
    ///          before      after scan, Sum
    /// rank 0   [1, 10]     [1, 10]
    /// rank 1   [2, 20]     [3, 30]
    /// rank 2   [3, 30]     [6, 60]
    /// rank 3   [4, 40]     [10, 100]
    /// ```
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
    /// use unisono::{CollectivesPrefix, Communicator, ReduceOp, Solo};
    /// let comm = Solo::new();
    /// let mut seen = [u64::from(comm.rank()) + 1];
    /// comm.scan(&mut seen, ReduceOp::Sum)?;
    /// let r = u64::from(comm.rank());
    /// assert_eq!(seen, [(r + 1) * (r + 2) / 2]);
    /// # Ok::<(), unisono::Error>(())
    /// ```
    #[doc(alias = "MPI_Scan")]
    #[track_caller]
    fn scan<T: Element>(&self, buffer: &mut [T], op: ReduceOp) -> Result<()> {
        let descriptor = reducing(Collective::Scan, T::DTYPE, buffer.len(), op);
        self.issue(Call::in_place(descriptor, BufferMut::of(buffer))).map(drop)
    }

    /// [`CollectivesPrefix::scan`] from `input` to `output`, both of n elements.
    ///
    /// ```text
    ///          input   output before   output after, Max
    /// rank 0   [5]     [_]             [5]
    /// rank 1   [2]     [_]             [5]
    /// rank 2   [9]     [_]             [9]
    /// rank 3   [1]     [_]             [9]
    /// ```
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
    /// use unisono::{CollectivesPrefix, ReduceOp, Solo};
    /// let mut highest = [0u8];
    /// Solo::new().scan_into(&[5], &mut highest, ReduceOp::Max)?;
    /// assert_eq!(highest, [5]);
    /// # Ok::<(), unisono::Error>(())
    /// ```
    #[track_caller]
    fn scan_into<T: Element>(&self, input: &[T], output: &mut [T], op: ReduceOp) -> Result<()> {
        let descriptor = reducing(Collective::Scan, T::DTYPE, input.len(), op);
        self.issue(Call::separate(descriptor, Buffer::of(input), BufferMut::of(output))).map(drop)
    }

    /// [`CollectivesPrefix::scan`] with the caller's own operator: `function(left, right, out)` over slices of equal
    /// length. It must be associative. The order of the ranks is kept whether or not it commutes. The algorithm decides
    /// on which ranks it runs, and how often: on some ranks it may never run.
    ///
    /// ```text
    ///          before   after, with the last number that is not 0
    /// rank 0   [7]      [7]
    /// rank 1   [0]      [7]
    /// rank 2   [0]      [7]
    /// rank 3   [4]      [4]
    /// ```
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
    /// use unisono::{CollectivesPrefix, Solo, UserOp};
    /// let mut filled = [7u32, 0];
    /// Solo::new().scan_user(&mut filled, UserOp::ordered("last"), |left, right, out| {
    ///     for i in 0..out.len() { out[i] = if right[i] == 0 { left[i] } else { right[i] }; }
    /// })?;
    /// assert_eq!(filled, [7, 0]);
    /// # Ok::<(), unisono::Error>(())
    /// ```
    #[track_caller]
    fn scan_user<T: Element>(
        &self,
        buffer: &mut [T],
        op: UserOp,
        function: impl Fn(&[T], &[T], &mut [T]) + Send + Sync + 'static,
    ) -> Result<()> {
        let descriptor = reducing(Collective::Scan, T::DTYPE, buffer.len(), ReduceOp::User(op));
        let mut call = Call::in_place(descriptor, BufferMut::of(buffer));
        call.user_function = Some(typed_function(function));
        self.issue(call).map(drop)
    }

    /// Rank r's `buffer` becomes the reduction of the buffers of the ranks before it. Rank 0 has none before it, so its
    /// buffer does not change.
    ///
    /// ```text
    ///          before      after exscan, Sum
    /// rank 0   [1, 10]     [1, 10]
    /// rank 1   [2, 20]     [1, 10]
    /// rank 2   [3, 30]     [3, 30]
    /// rank 3   [4, 40]     [6, 60]
    /// ```
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
    /// use unisono::{CollectivesPrefix, Communicator, ReduceOp, Solo};
    /// let (comm, own_lines) = (Solo::new(), 7u64);
    /// let mut first_line = [own_lines];
    /// comm.exscan(&mut first_line, ReduceOp::Sum)?;
    /// let first_line = if comm.rank() == 0 { 0 } else { first_line[0] };
    /// assert_eq!(first_line, 7 * u64::from(comm.rank()));
    /// # Ok::<(), unisono::Error>(())
    /// ```
    #[doc(alias = "MPI_Exscan")]
    #[track_caller]
    fn exscan<T: Element>(&self, buffer: &mut [T], op: ReduceOp) -> Result<()> {
        self.issue(exscan_in_place(self, buffer, op)).map(drop)
    }

    /// [`CollectivesPrefix::exscan`] from `input` to `output`, both of n elements. On rank 0 `output` does not change,
    /// and may have any length.
    ///
    /// ```text
    ///          input   output before   output after, Sum
    /// rank 0   [5]     [0]             [0]
    /// rank 1   [2]     [0]             [5]
    /// rank 2   [9]     [0]             [7]
    /// rank 3   [1]     [0]             [16]
    /// ```
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
    /// use unisono::{CollectivesPrefix, Communicator, ReduceOp, Solo};
    /// // The neutral element on rank 0 makes the result right there, too.
    /// let (comm, mut first_line) = (Solo::new(), [0u64]);
    /// comm.exscan_into(&[7], &mut first_line, ReduceOp::Sum)?;
    /// assert_eq!(first_line, [7 * u64::from(comm.rank())]);
    /// # Ok::<(), unisono::Error>(())
    /// ```
    #[track_caller]
    fn exscan_into<T: Element>(&self, input: &[T], output: &mut [T], op: ReduceOp) -> Result<()> {
        let descriptor = reducing(Collective::Exscan, T::DTYPE, input.len(), op);
        let output = if self.group().rank() == 0 { BufferMut::empty() } else { BufferMut::of(output) };
        self.issue(Call::separate(descriptor, Buffer::of(input), output)).map(drop)
    }

    /// [`CollectivesPrefix::exscan`] with the caller's own operator, as in [`CollectivesPrefix::scan_user`].
    ///
    /// ```text
    ///          before   after, with the last number that is not 0
    /// rank 0   [7]      [7]
    /// rank 1   [0]      [7]
    /// rank 2   [5]      [7]
    /// rank 3   [4]      [5]
    /// ```
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
    /// use unisono::{CollectivesPrefix, Solo, UserOp};
    /// let mut last = [7u32];
    /// Solo::new().exscan_user(&mut last, UserOp::ordered("last"), |left, right, out| {
    ///     for i in 0..out.len() { out[i] = if right[i] == 0 { left[i] } else { right[i] }; }
    /// })?;
    /// assert_eq!(last, [7]);
    /// # Ok::<(), unisono::Error>(())
    /// ```
    #[track_caller]
    fn exscan_user<T: Element>(
        &self,
        buffer: &mut [T],
        op: UserOp,
        function: impl Fn(&[T], &[T], &mut [T]) + Send + Sync + 'static,
    ) -> Result<()> {
        let mut call = exscan_in_place(self, buffer, ReduceOp::User(op));
        call.user_function = Some(typed_function(function));
        self.issue(call).map(drop)
    }

    /// [`CollectivesPrefix::scan`] that returns at once, as [`crate::CollectivesAsync`]; the handle gives the result.
    ///
    /// ```text
    ///          buffer   of the handle, Sum
    /// rank 0   [1]      [1]
    /// rank 1   [2]      [3]
    /// rank 2   [3]      [6]
    /// rank 3   [4]      [10]
    /// ```
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
    /// use unisono::{CollectivesPrefix, ReduceOp, Solo};
    /// assert_eq!(Solo::new().scan_async(vec![1u16, 2], ReduceOp::Sum).wait()?, [1, 2]);
    /// # Ok::<(), unisono::Error>(())
    /// ```
    #[track_caller]
    fn scan_async<T: Element>(&self, buffer: Vec<T>, op: ReduceOp) -> TypedWork<Vec<T>> {
        let call = without_memory(reducing(Collective::Scan, T::DTYPE, buffer.len(), op));
        in_place(self, call, OwnedMemory::of(buffer))
    }

    /// [`CollectivesPrefix::scan_user`] that returns at once; the handle gives the result.
    #[track_caller]
    fn scan_user_async<T: Element>(
        &self,
        buffer: Vec<T>,
        op: UserOp,
        function: impl Fn(&[T], &[T], &mut [T]) + Send + Sync + 'static,
    ) -> TypedWork<Vec<T>> {
        let mut call = without_memory(reducing(Collective::Scan, T::DTYPE, buffer.len(), ReduceOp::User(op)));
        call.user_function = Some(typed_function(function));
        in_place(self, call, OwnedMemory::of(buffer))
    }

    /// [`CollectivesPrefix::exscan`] that returns at once, as [`crate::CollectivesAsync`]; the handle gives the result,
    /// and on rank 0 the unchanged buffer.
    ///
    /// ```text
    ///          buffer   of the handle, Sum
    /// rank 0   [1]      [1]
    /// rank 1   [2]      [1]
    /// rank 2   [3]      [3]
    /// rank 3   [4]      [6]
    /// ```
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
    /// use unisono::{CollectivesPrefix, ReduceOp, Solo};
    /// assert_eq!(Solo::new().exscan_async(vec![1u16, 2], ReduceOp::Sum).wait()?, [1, 2]);
    /// # Ok::<(), unisono::Error>(())
    /// ```
    #[track_caller]
    fn exscan_async<T: Element>(&self, buffer: Vec<T>, op: ReduceOp) -> TypedWork<Vec<T>> {
        let call = without_memory(reducing(Collective::Exscan, T::DTYPE, buffer.len(), op));
        exscan_started(self, call, OwnedMemory::of(buffer))
    }

    /// [`CollectivesPrefix::exscan_user`] that returns at once; the handle gives the result, and on rank 0 the
    /// unchanged buffer.
    #[track_caller]
    fn exscan_user_async<T: Element>(
        &self,
        buffer: Vec<T>,
        op: UserOp,
        function: impl Fn(&[T], &[T], &mut [T]) + Send + Sync + 'static,
    ) -> TypedWork<Vec<T>> {
        let mut call =
            without_memory(reducing(Collective::Exscan, T::DTYPE, buffer.len(), ReduceOp::User(op)));
        call.user_function = Some(typed_function(function));
        exscan_started(self, call, OwnedMemory::of(buffer))
    }
}

impl<C: Communicator + ?Sized> CollectivesPrefix for C {}

/// Starts an exscan. Rank 0 only gives its buffer, and gets it back.
fn exscan_started<T: Element, C: Communicator + ?Sized>(
    comm: &C,
    call: OwnedCall,
    buffer: OwnedMemory,
) -> TypedWork<Vec<T>> {
    if comm.group().rank() > 0 {
        return in_place(comm, call, buffer);
    }
    let nothing = || Ok(OwnedMemory::of(Vec::<T>::new()));
    TypedWork::new(separate::<Vec<T>, _>(comm, call, buffer, nothing).into_work(), input)
}

/// An exscan in place. Rank 0 only gives its buffer, so nothing can be written to it.
#[track_caller]
fn exscan_in_place<'a, T: Element, C: Communicator + ?Sized>(
    comm: &C,
    buffer: &'a mut [T],
    op: ReduceOp,
) -> Call<'a> {
    let descriptor: Descriptor = reducing(Collective::Exscan, T::DTYPE, buffer.len(), op);
    if comm.group().rank() == 0 {
        Call::separate(descriptor, Buffer::of(buffer), BufferMut::empty())
    } else {
        Call::in_place(descriptor, BufferMut::of(buffer))
    }
}
