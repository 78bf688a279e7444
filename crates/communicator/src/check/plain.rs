//! The calls that few rules can refuse. A short call takes less time than all the rules.

use crate::call::Call;
use crate::call::counts::Counts;
use crate::elements::reduce_op::ReduceOp;
use crate::memory::host::{Segments, SegmentsMut};
use crate::memory::{Buffer, BufferMut, Buffers};

/// Whether only the rules about the arguments that every call has, and about lengths, can refuse the call: it has one
/// segment of host memory on each side, even counts, no text and no function.
#[inline]
pub(super) fn is_plain(call: &Call<'_>) -> bool {
    let (descriptor, options) = (&call.descriptor, &call.options);
    let has_text = descriptor.label.is_some() || options.log_name.is_some() || options.algorithm.is_some();
    let is_user = matches!(descriptor.op, Some(ReduceOp::User(_)));
    let is_uneven = descriptor.uneven || !matches!(call.counts, Counts::Even);
    let is_one = |output: &BufferMut<'_>| matches!(output, BufferMut::Host(SegmentsMut::One(_)));
    let is_whole = match &call.buffers {
        Buffers::InOut(buffer) => is_one(buffer),
        Buffers::Separate { input: Buffer::Host(Segments::One(_)), output } => is_one(output),
        Buffers::Separate { .. } => false,
    };
    is_whole && call.stream.is_none() && !has_text && !is_user && !is_uneven
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
    use crate::elements::reduce_op::UserOp;
    use crate::group::Group;
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
            let told = |checked: crate::Result<()>| checked.map_err(|error| error.to_string());
            prop_assert_eq!(told(check(&call, &group)), told(check_all(&call, &group)));
        }
    }
}
