//! Plain calls, which few rules can refuse. A short call takes less time than the rules, so each thread remembers the
//! shapes that have passed.

use std::cell::Cell;

use crate::call::Call;
use crate::call::shape::{CallShape, SHAPE_WORDS, are_equal};
use crate::check::{check_arguments, check_lengths};
use crate::error::Result;
use crate::group::Group;

/// The shapes that a thread remembers. A power of two.
const PLACES: usize = 32;

/// A shape, and the rank and the size of its group: the check depends on nothing else.
type Passed = [u64; SHAPE_WORDS + 1];

thread_local! {
    /// The shapes that have passed the check, each in a place of its own. All zeros is no shape.
    static PASSED: [Cell<Passed>; PLACES] = const { [const { Cell::new([0; SHAPE_WORDS + 1]) }; PLACES] };
}

/// Checks a plain call of this shape. Only the rules about arguments that every call has, and about lengths, can refuse
/// it.
#[inline]
pub(super) fn check_plain(call: &Call<'_>, shape: CallShape, group: &Group) -> Result<()> {
    let [kinds, count, root, input, output, factor] = shape.words();
    let passed =
        [kinds, count, root, input, output, factor, u64::from(group.rank()) << 32 | u64::from(group.size())];
    let mixed = (kinds ^ count << 24 ^ root << 8).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let place = (mixed >> 32) as usize % PLACES;
    if PASSED.with(|table| are_equal(&table[place].get(), &passed)) {
        return Ok(());
    }
    let own = check_arguments(&call.descriptor, group)?;
    check_lengths(call, own, group)?;
    PASSED.with(|table| table[place].set(passed));
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::select;
    use unisono_schedule::Collective;

    use super::*;
    use crate::call::descriptor::{Descriptor, Peer, Place, Tag};
    use crate::call::operation::Operation;
    use crate::check::{check, check_all};
    use crate::elements::dtype::DType;
    use crate::elements::reduce_op::{ReduceOp, UserOp};
    use crate::group::Group;
    use crate::memory::{Buffer, BufferMut, Buffers};
    use crate::short_text::ShortText;

    fn operations() -> Vec<Operation> {
        let collectives = Collective::ALL.map(Operation::Collective);
        [&collectives[..], &[Operation::Send, Operation::Recv]].concat()
    }

    fn descriptors() -> impl Strategy<Value = Descriptor> {
        let ops = [ReduceOp::Sum, ReduceOp::Avg, ReduceOp::BitOr, ReduceOp::User(UserOp::ordered("mine"))]
            .map(Some);
        let op = select([&ops[..], &[None]].concat());
        let peers = vec![None, Some(Peer::Any), Some(Peer::None), Some(Peer::Rank(1)), Some(Peer::Rank(3))];
        let counts = select(vec![0, 1, 2, 6, u64::MAX / 2]);
        let dtypes = select(vec![DType::U8, DType::F32, DType::Bool]);
        let root = select(vec![None, Some(0), Some(1), Some(3)]);
        let tag = select(vec![Tag::Is(0), Tag::Any]);
        let label = select(vec![None, None, None, Some(ShortText::new(&"x".repeat(33)))]);
        let place = select(vec![Place::Separate, Place::InPlace]);
        let parts = (select(operations()), dtypes, counts, op, root, select(peers), tag, label, place);
        (parts, prop::bool::weighted(0.1)).prop_map(|(parts, uneven)| {
            let (operation, dtype, count, op, root, peer, tag, label, place) = parts;
            Descriptor { operation, dtype, count, op, root, peer, tag, label, place, uneven }
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        /// The few rules and all rules give the same answer.
        #[test]
        fn plain_calls_break_no_other_rule(
            descriptor in descriptors(),
            (rank, ranks) in (0u32..3, 1u32..4).prop_filter("a rank of the group", |(rank, ranks)| rank < ranks),
            (input, output) in (select(vec![0usize, 1, 2, 4, 6, 8]), select(vec![0usize, 1, 2, 4, 6, 8])),
            in_place: bool,
        ) {
            let (read, mut written) = (vec![0u8; input], vec![0u8; output]);
            let output = BufferMut::of(&mut written);
            let buffers = match in_place {
                true => Buffers::InOut(output),
                false => Buffers::Separate { input: Buffer::of(&read), output },
            };
            let (call, group) = (Call::new(descriptor, buffers), Group::world(rank, ranks));
            let told = |checked: Result<()>| checked.map_err(|error| error.to_string());
            let all = told(check_all(&call, &group));
            // The second answer may come from the thread's memory.
            prop_assert_eq!([(); 2].map(|()| told(check(&call, &group))), [all.clone(), all]);
        }
    }
}
