//! Reductions with the caller's own operator, beside [`crate::Collectives::all_reduce_user`].

use unisono_communicator::{
    Buffer, BufferMut, Call, Communicator, Descriptor, Element, OwnedCall, OwnedMemory, ReduceOp, Result,
    TypedWork, UserOp,
};
use unisono_schedule::Collective;

use crate::arguments::{optional, reducing, rooted, share_of, typed_function};
use crate::asynchronous::{in_place, output, refused, separate, vector, without_memory};
use crate::collectives::Collectives;

/// Reductions with an operator of the program: `function(left, right, out)` over slices of equal length, as for
/// [`crate::Collectives::all_reduce_user`]. It must be associative; the order of ranks is kept unless `op.commutative`.
/// The algorithm decides on which ranks it runs, and how often.
///
/// # Errors
/// As [`crate::Collectives`]; a panic of the function ends the calls of all ranks.
pub trait UserOperators: Communicator {
    /// [`crate::Collectives::reduce`] with the caller's own operator.
    ///
    /// Cost: as [`crate::Collectives::reduce`], and the calls of the function on the ranks of its tree.
    ///
    /// ```text
    /// rank                          0     1       2     3
    /// input                         2     3       5     7
    /// output, product, root 1       -     210     -     -
    /// ```
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
    /// use unisono::{Solo, UserOp, UserOperators};
    /// let (op, mut product) = (UserOp::ordered("product"), [0u64]);
    /// Solo::new().reduce_user(&[7], Some(&mut product), op, 0, |a, b, out| out[0] = a[0] * b[0])?;
    /// assert_eq!(product, [7]);
    /// # Ok::<(), unisono::Error>(())
    /// ```
    #[track_caller]
    fn reduce_user<T: Element>(
        &self,
        input: &[T],
        output: Option<&mut [T]>,
        op: UserOp,
        root: u32,
        function: impl Fn(&[T], &[T], &mut [T]) + Send + Sync + 'static,
    ) -> Result<()> {
        let descriptor = rooted(Collective::Reduce, T::DTYPE, input.len(), root);
        let descriptor = Descriptor { op: Some(ReduceOp::User(op)), ..descriptor };
        let mut call = Call::separate(descriptor, Buffer::of(input), optional(output));
        call.user_function = Some(typed_function(function));
        self.issue(call).map(drop)
    }

    /// [`crate::Collectives::reduce_scatter`] with the caller's own operator.
    ///
    /// Cost: as [`crate::Collectives::reduce_scatter`]; with an ordered operator not by `ring` or `circulant`.
    ///
    /// ```text
    /// rank               0               1               2               3
    /// input              [2, 1, 1, 9]    [3, 1, 8, 1]    [5, 7, 1, 1]    [7, 1, 1, 1]
    /// output, product    [210]           [7]             [8]             [9]
    /// ```
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
    /// use unisono::{Solo, UserOp, UserOperators};
    /// let (op, mut share) = (UserOp::commutative("product"), [0u64]);
    /// Solo::new().reduce_scatter_user(&[7], &mut share, op, |a, b, out| out[0] = a[0] * b[0])?;
    /// assert_eq!(share, [7]);
    /// # Ok::<(), unisono::Error>(())
    /// ```
    #[track_caller]
    fn reduce_scatter_user<T: Element>(
        &self,
        input: &[T],
        output: &mut [T],
        op: UserOp,
        function: impl Fn(&[T], &[T], &mut [T]) + Send + Sync + 'static,
    ) -> Result<()> {
        let descriptor = reducing(Collective::ReduceScatter, T::DTYPE, output.len(), ReduceOp::User(op));
        let mut call = Call::separate(descriptor, Buffer::of(input), BufferMut::of(output));
        call.user_function = Some(typed_function(function));
        self.issue(call).map(drop)
    }

    /// [`crate::Collectives::all_reduce_user`]; the handle gives the reduced vector.
    ///
    /// ```text
    /// rank                       0       1      2       3
    /// buffer                     [12]    [8]    [20]    [9]
    /// of the handle, smallest    [8]     [8]    [8]     [8]
    /// ```
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
    /// use unisono::{Solo, UserOp, UserOperators};
    /// let smaller = |a: &[u32], b: &[u32], out: &mut [u32]| out[0] = a[0].min(b[0]);
    /// let work = Solo::new().all_reduce_user_async(vec![12], UserOp::commutative("smallest"), smaller);
    /// assert_eq!(work.wait()?, [12]);
    /// # Ok::<(), unisono::Error>(())
    /// ```
    #[track_caller]
    fn all_reduce_user_async<T: Element>(
        &self,
        buffer: Vec<T>,
        op: UserOp,
        function: impl Fn(&[T], &[T], &mut [T]) + Send + Sync + 'static,
    ) -> TypedWork<Vec<T>> {
        let descriptor = reducing(Collective::AllReduce, T::DTYPE, buffer.len(), ReduceOp::User(op));
        in_place(self, with_function(descriptor, function), OwnedMemory::of(buffer))
    }

    /// [`UserOperators::reduce_user`]; the handle gives the reduction at the root, an empty vector elsewhere.
    #[track_caller]
    fn reduce_user_async<T: Element>(
        &self,
        input: Vec<T>,
        op: UserOp,
        root: u32,
        function: impl Fn(&[T], &[T], &mut [T]) + Send + Sync + 'static,
    ) -> TypedWork<Vec<T>> {
        let elements = if self.rank() == root { input.len() } else { 0 };
        let descriptor = rooted(Collective::Reduce, T::DTYPE, input.len(), root);
        let descriptor = Descriptor { op: Some(ReduceOp::User(op)), ..descriptor };
        separate(self, with_function(descriptor, function), OwnedMemory::of(input), vector::<T>(elements))
    }

    /// [`UserOperators::reduce_scatter_user`]; the handle gives this rank's share of the reduction.
    #[track_caller]
    fn reduce_scatter_user_async<T: Element>(
        &self,
        input: Vec<T>,
        op: UserOp,
        function: impl Fn(&[T], &[T], &mut [T]) + Send + Sync + 'static,
    ) -> TypedWork<Vec<T>> {
        match share_of(self, Collective::ReduceScatter, T::DTYPE, input.len(), "input") {
            Ok(share) => {
                let op = ReduceOp::User(op);
                let descriptor = reducing(Collective::ReduceScatter, T::DTYPE, share, op);
                let call = with_function(descriptor, function);
                separate(self, call, OwnedMemory::of(input), vector::<T>(share))
            }
            Err(error) => TypedWork::new(refused(OwnedMemory::of(input), error), output),
        }
    }
}

impl<C: Communicator + ?Sized> UserOperators for C {}

#[track_caller]
fn with_function<T: Element>(
    descriptor: Descriptor,
    function: impl Fn(&[T], &[T], &mut [T]) + Send + Sync + 'static,
) -> OwnedCall {
    OwnedCall { user_function: Some(typed_function(function)), ..without_memory(descriptor) }
}
