//! Operators that MPI has and [`ReduceOp`](unisono_communicator::ReduceOp) has not, each as a name and a function for
//! the calls that take the caller's own operator: `comm.all_reduce_user(&mut best, MIN_LOC, min_loc)`, and so in
//! `reduce_user`, `reduce_scatter_user`, `scan_user`, `exscan_user` and their asynchronous twins.
//!
//! | MPI | name | function | result of two elements |
//! | --- | --- | --- | --- |
//! | `MPI_MINLOC` | [`MIN_LOC`] | [`min_loc`] | the smaller value and its index; of equal values the smaller index |
//! | `MPI_MAXLOC` | [`MAX_LOC`] | [`max_loc`] | the larger value and its index; of equal values the smaller index |
//! | `MPI_LAND` | [`LOGICAL_AND`] | [`logical_and`] | 1 if both are not 0, else 0 |
//! | `MPI_LOR` | [`LOGICAL_OR`] | [`logical_or`] | 1 if one of them is not 0, else 0 |
//! | `MPI_LXOR` | [`LOGICAL_XOR`] | [`logical_xor`] | 1 if exactly one of them is not 0, else 0 |
//! | `MPI_REPLACE` | [`REPLACE`] | [`replace`] | the element of the higher rank |
//!
//! The only contribution of a world of one stays as it is: a logical result is then any number. A NaN is smaller than
//! every number for [`min_loc`] and larger for [`max_loc`], so that it is found, as by `Min` and `Max`.

use std::cmp::Ordering;
use std::fmt::Debug;

use bytemuck::{Pod, Zeroable};
use unisono_communicator::{DType, Element, UserOp};

/// The name of [`min_loc`].
pub const MIN_LOC: UserOp = UserOp::commutative("min_loc");
/// The name of [`max_loc`].
pub const MAX_LOC: UserOp = UserOp::commutative("max_loc");
/// The name of [`logical_and`].
pub const LOGICAL_AND: UserOp = UserOp::commutative("logical_and");
/// The name of [`logical_or`].
pub const LOGICAL_OR: UserOp = UserOp::commutative("logical_or");
/// The name of [`logical_xor`].
pub const LOGICAL_XOR: UserOp = UserOp::commutative("logical_xor");
/// The name of [`replace`].
pub const REPLACE: UserOp = UserOp::ordered("replace");

/// A value and its place, such as a rank: MPI's pairs, `MPI_DOUBLE_INT` and the like.
///
/// ```
/// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
/// use unisono::operators::{Located, MIN_LOC, min_loc};
/// use unisono::{Collectives, Communicator, Solo};
/// let comm = Solo::new();
/// let mut best = [Located { value: 0.25f64, index: comm.rank() }];
/// comm.all_reduce_user(&mut best, MIN_LOC, min_loc)?;
/// assert_eq!(best, [Located { value: 0.25, index: 0 }]);
/// # Ok::<(), unisono::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C, packed)]
pub struct Located<V, I>
where
    V: Pod,
    I: Pod,
{
    /// The value.
    pub value: V,
    /// Its place.
    pub index: I,
}

impl<V, I> Element for Located<V, I>
where
    V: Pod + Send + Sync + PartialEq + Debug,
    I: Pod + Send + Sync + PartialEq + Debug,
{
    const DTYPE: DType = DType::opaque_of::<Located<V, I>>();
}

/// The smaller values, with their indices.
pub fn min_loc<V: Pod + PartialOrd, I: Pod + Ord>(
    left: &[Located<V, I>],
    right: &[Located<V, I>],
    out: &mut [Located<V, I>],
) {
    choose(left, right, out, in_order);
}

/// The larger values, with their indices.
pub fn max_loc<V: Pod + PartialOrd, I: Pod + Ord>(
    left: &[Located<V, I>],
    right: &[Located<V, I>],
    out: &mut [Located<V, I>],
) {
    choose(left, right, out, |left, right| in_order(right, left));
}

/// The order of two numbers, neither of which is a NaN.
fn in_order<V: PartialOrd>(left: V, right: V) -> Ordering {
    left.partial_cmp(&right).unwrap_or(Ordering::Equal)
}

fn choose<V: Pod + PartialOrd, I: Pod + Ord>(
    left: &[Located<V, I>],
    right: &[Located<V, I>],
    out: &mut [Located<V, I>],
    order: impl Fn(V, V) -> Ordering,
) {
    for ((left, right), out) in left.iter().zip(right).zip(out) {
        let is_nan = |value: V| value.partial_cmp(&value).is_none();
        let (first, second) = (left.index, right.index);
        let order = match (is_nan(left.value), is_nan(right.value)) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
            (false, false) => order(left.value, right.value),
        };
        let is_left = match order {
            Ordering::Less => true,
            Ordering::Equal => first <= second,
            Ordering::Greater => false,
        };
        *out = if is_left { *left } else { *right };
    }
}

/// 1 where both numbers are not 0, else 0.
pub fn logical_and<T: Element + From<bool>>(left: &[T], right: &[T], out: &mut [T]) {
    logical(left, right, out, |left, right| left && right);
}

/// 1 where one of the numbers is not 0, else 0.
pub fn logical_or<T: Element + From<bool>>(left: &[T], right: &[T], out: &mut [T]) {
    logical(left, right, out, |left, right| left || right);
}

/// 1 where exactly one of the numbers is not 0, else 0.
pub fn logical_xor<T: Element + From<bool>>(left: &[T], right: &[T], out: &mut [T]) {
    logical(left, right, out, |left, right| left != right);
}

fn logical<T: Element + From<bool>>(
    left: &[T],
    right: &[T],
    out: &mut [T],
    combine: impl Fn(bool, bool) -> bool,
) {
    let is_true = |number: &T| *number != T::from(false);
    for ((left, right), out) in left.iter().zip(right).zip(out) {
        *out = T::from(combine(is_true(left), is_true(right)));
    }
}

/// The elements of the higher rank.
pub fn replace<T: Element>(_: &[T], right: &[T], out: &mut [T]) {
    out.copy_from_slice(right);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(
        function: impl Fn(&[Located<f32, u32>], &[Located<f32, u32>], &mut [Located<f32, u32>]),
        pair: [(f32, u32); 2],
    ) -> (f32, u32) {
        let [left, right] = pair.map(|(value, index)| [Located { value, index }]);
        let mut out = [Located { value: 0.0, index: 0 }];
        function(&left, &right, &mut out);
        (out[0].value, out[0].index)
    }

    #[test]
    fn equal_values_take_the_smaller_index_and_a_nan_is_found() {
        assert_eq!(of(min_loc, [(2.0, 1), (1.0, 7)]), (1.0, 7));
        assert_eq!(of(max_loc, [(2.0, 1), (1.0, 7)]), (2.0, 1));
        for pair in [[(1.0, 7), (1.0, 3)], [(1.0, 3), (1.0, 7)], [(0.0, 3), (-0.0, 7)]] {
            assert_eq!((of(min_loc, pair).1, of(max_loc, pair).1), (3, 3));
        }
        for pair in [[(f32::NAN, 7), (1.0, 3)], [(1.0, 3), (f32::NAN, 7)], [(f32::NAN, 9), (f32::NAN, 7)]] {
            assert_eq!((of(min_loc, pair).1, of(max_loc, pair).1), (7, 7));
        }
    }

    #[test]
    fn logical_results_are_0_or_1() {
        let (left, right) = ([0i8, 0, -3, 4], [0i8, 5, 0, 4]);
        let all = |function: fn(&[i8], &[i8], &mut [i8])| {
            let mut out = [9; 4];
            function(&left, &right, &mut out);
            out
        };
        assert_eq!(all(logical_and), [0, 0, 0, 1]);
        assert_eq!(all(logical_or), [0, 1, 1, 1]);
        assert_eq!(all(logical_xor), [0, 1, 1, 0]);
        assert_eq!(all(replace), right);
    }
}
