//! The check of buffers in segments: no element is cut, shares have their lengths, the collective can be coalesced.

use unisono_schedule::Collective;

use crate::call::Call;
use crate::call::counts::Counts;
use crate::call::descriptor::Place;
use crate::call::operation::Operation;
use crate::error::{Error, Result};
use crate::group::Group;
use crate::memory::Buffers;
use crate::memory::segments::Division;

/// The role of a buffer in its call.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Side {
    Input,
    Output,
}

/// One segmented buffer of a call.
struct Segmented<'a> {
    side: Side,
    /// Its name in errors.
    argument: &'static str,
    division: Division,
    /// The ends of its segments, in bytes.
    ends: &'a [usize],
}

impl<'a> Segmented<'a> {
    fn new(
        divided: Option<(Division, &'a [usize])>,
        side: Side,
        argument: &'static str,
    ) -> Option<Segmented<'a>> {
        divided.map(|(division, ends)| Segmented { side, argument, division, ends })
    }

    /// The bytes of each segment.
    fn bytes(&self) -> impl Iterator<Item = usize> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        self.ends.iter().zip(starts).map(|(end, start)| end - start)
    }

    fn error(&self, problem: String) -> Error {
        Error::invalid(self.argument, problem)
    }
}

/// Checks that each list of shares has a segment for each rank. It comes before the check of the counts, which a typed
/// call may have taken from the list.
pub(crate) fn check_share_numbers(call: &Call<'_>, group: &Group) -> Result<()> {
    let is_list = |buffer: &&Segmented<'_>| buffer.division == Division::Shares;
    segmented(call)
        .iter()
        .flatten()
        .filter(is_list)
        .try_for_each(|list| check_share_number(call, group, list))
}

/// Checks the segments of a call's buffers. Its counts, and the number of its shares, are already checked.
pub(crate) fn check_segments(call: &Call<'_>) -> Result<()> {
    let sides = segmented(call);
    if let [None, None] = sides {
        return Ok(());
    }
    for buffer in sides.iter().flatten() {
        check_elements(call, buffer)?;
        match buffer.division {
            Division::Anywhere => {}
            Division::Shares => check_share_lengths(call, buffer)?,
            Division::Coalesced => check_coalesced(call, buffer)?,
        }
    }
    match &sides {
        [Some(input), Some(output)]
            if [input.division, output.division] == [Division::Coalesced; 2] && input.ends != output.ends =>
        {
            let problem = "its segments are not as many and as long as those of the input";
            Err(output.error(problem.to_owned()))
        }
        _ => Ok(()),
    }
}

/// The segmented input and output of a call.
fn segmented<'a>(call: &'a Call<'_>) -> [Option<Segmented<'a>>; 2] {
    let (input, output, name) = match &call.buffers {
        Buffers::InOut(buffer) => (None, buffer, "buffer"),
        Buffers::Separate { input, output } => (Some(input), output, "output"),
    };
    let input = input.and_then(|input| Segmented::new(input.divided(), Side::Input, "input"));
    let output = Segmented::new(output.divided(), Side::Output, name);
    [input, output]
}

/// Checks that no element is in two segments.
fn check_elements(call: &Call<'_>, buffer: &Segmented<'_>) -> Result<()> {
    let element = call.descriptor.dtype.bytes();
    match buffer.bytes().position(|bytes| bytes % element != 0) {
        Some(at) => {
            let bytes = buffer.bytes().nth(at).unwrap_or_default();
            Err(buffer.error(format!("segment {at} has {bytes} bytes, but elements have {element}")))
        }
        None => Ok(()),
    }
}

/// Checks that a list of shares has one segment for each rank.
fn check_share_number(call: &Call<'_>, group: &Group, buffer: &Segmented<'_>) -> Result<()> {
    let descriptor = &call.descriptor;
    let in_place = descriptor.place == Place::InPlace;
    let holds_shares = match descriptor.operation {
        Operation::Collective(collective) => match (collective, buffer.side) {
            (Collective::ReduceScatter | Collective::Scatter, Side::Input)
            | (Collective::AllGather | Collective::Gather, Side::Output)
            | (Collective::AllToAll, Side::Input | Side::Output) => true,
            (Collective::ReduceScatter | Collective::Scatter, Side::Output)
            | (Collective::AllGather | Collective::Gather, Side::Input) => in_place,
            (
                Collective::AllReduce
                | Collective::Broadcast
                | Collective::Reduce
                | Collective::Barrier
                | Collective::Scan
                | Collective::Exscan,
                Side::Input | Side::Output,
            ) => false,
        },
        Operation::Send | Operation::Recv => false,
    };
    if !holds_shares {
        return Err(buffer.error(format!("a list of shares, but there {descriptor} has one buffer")));
    }
    let is_elsewhere = descriptor.root.is_some_and(|root| root != group.rank());
    let expected = if is_elsewhere { 0 } else { group.size() as usize };
    if buffer.ends.len() != expected {
        let (found, rank) = (buffer.ends.len(), group.rank());
        return Err(
            buffer.error(format!("{found} segments, but {descriptor} needs {expected} on rank {rank}"))
        );
    }
    Ok(())
}

/// Checks that each segment has the length of its rank's share.
fn check_share_lengths(call: &Call<'_>, buffer: &Segmented<'_>) -> Result<()> {
    let descriptor = &call.descriptor;
    let share = |rank: usize| match (&call.counts, buffer.side) {
        (Counts::Even, _) => descriptor.count,
        (Counts::PerRank(list), _) => list[rank],
        (Counts::PerPair { send, .. }, Side::Input) => send[rank],
        (Counts::PerPair { receive, .. }, Side::Output) => receive[rank],
    };
    let element = descriptor.dtype.bytes();
    let lengths = buffer.bytes().map(|bytes| (bytes / element) as u64);
    match lengths.enumerate().find(|(rank, length)| *length != share(*rank)) {
        Some((rank, length)) => Err(buffer.error(format!(
            "segment {rank} has {length} elements, but the share of rank {rank} in {descriptor} has {}",
            share(rank)
        ))),
        None => Ok(()),
    }
}

/// Refuses buffers that have no coalesced form. The segments must be the same on every rank, so in an all_gather and
/// in a reduce_scatter it is the buffer of all shares that has this form.
fn check_coalesced(call: &Call<'_>, buffer: &Segmented<'_>) -> Result<()> {
    match (call.descriptor.operation, buffer.side) {
        (
            Operation::Collective(Collective::AllReduce | Collective::Broadcast | Collective::Reduce),
            Side::Input | Side::Output,
        )
        | (Operation::Collective(Collective::AllGather), Side::Output)
        | (Operation::Collective(Collective::ReduceScatter), Side::Input) => Ok(()),
        (other, Side::Input | Side::Output) => {
            Err(buffer.error(format!("{other} has no coalesced form there")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::descriptor::Descriptor;
    use crate::check::check;
    use crate::elements::dtype::DType;
    use crate::elements::reduce_op::ReduceOp;
    use crate::memory::{Buffer, BufferMut};

    fn call<'a>(collective: Collective, count: u64, counts: Counts, buffers: Buffers<'a>) -> Call<'a> {
        let place = match buffers {
            Buffers::InOut(_) => Place::InPlace,
            Buffers::Separate { .. } => Place::Separate,
        };
        let descriptor = Descriptor {
            op: collective.reduces().then_some(ReduceOp::Sum),
            root: collective.is_rooted().then_some(0),
            place,
            uneven: counts != Counts::Even,
            ..Descriptor::new(collective, DType::U16, count)
        };
        Call { counts, ..Call::new(descriptor, buffers) }
    }

    fn input<'a>(lengths: &[usize], division: Division) -> Buffer<'a> {
        static ZEROS: [u16; 16] = [0; 16];
        let list: Vec<&[u16]> = lengths.iter().map(|length| &ZEROS[..*length]).collect();
        Buffer::of_list(&list, division)
    }

    /// The check, on rank 0 of two, of a call with these lengths.
    fn checked(
        collective: Collective,
        (count, counts): (u64, Counts),
        from: &[usize],
        to: &[usize],
        [input_is, output_is]: [Division; 2],
    ) -> Result<(), String> {
        let mut memory: Vec<Vec<u16>> = to.iter().map(|length| vec![0; *length]).collect();
        let output = BufferMut::of_list(memory.iter_mut().map(Vec::as_mut_slice), output_is);
        let buffers = Buffers::Separate { input: input(from, input_is), output };
        let call = call(collective, count, counts, buffers);
        check(&call, &Group::world(0, 2)).map_err(|error| error.to_string())
    }

    use Division::{Anywhere, Coalesced, Shares};

    #[test]
    fn a_share_of_another_length_is_named() {
        let even = |count| (count, Counts::Even);
        let scatter =
            |from: &[usize]| checked(Collective::ReduceScatter, even(2), from, &[2], [Shares, Anywhere]);
        assert_eq!(scatter(&[2, 2]), Ok(()));
        let text = scatter(&[3, 1]).unwrap_err();
        assert!(
            text.starts_with("invalid input: segment 0 has 3 elements, but the share of rank 0 in "),
            "{text}"
        );
        assert!(text.ends_with(" has 2"), "{text}");
        for from in [&[][..], &[4], &[2, 2, 0], &[0, 2, 2]] {
            let text = scatter(from).unwrap_err();
            assert!(text.contains(&format!("{} segments, but ", from.len())), "{text}");
        }
        let gather = |to: &[usize]| checked(Collective::AllGather, even(2), &[2], to, [Anywhere, Shares]);
        assert_eq!(gather(&[2, 2]), Ok(()));
        assert!(gather(&[2, 3]).unwrap_err().starts_with("invalid output: segment 1 has 3 elements"));
        let none = checked(Collective::AllGather, even(0), &[0], &[0, 0], [Anywhere, Shares]);
        assert_eq!(none, Ok(()), "shares without elements");
    }

    #[test]
    fn shares_of_uneven_counts_are_those_of_their_side() {
        let per_rank = || (1, Counts::PerRank(vec![1, 3]));
        let gather = |to: &[usize]| checked(Collective::Gather, per_rank(), &[1], to, [Anywhere, Shares]);
        assert_eq!(gather(&[1, 3]), Ok(()));
        assert!(gather(&[3, 1]).is_err());
        let pairs = || (3, Counts::PerPair { send: vec![1, 2], receive: vec![1, 0] });
        let exchange =
            |from: &[usize], to: &[usize]| checked(Collective::AllToAll, pairs(), from, to, [Shares, Shares]);
        assert_eq!(exchange(&[1, 2], &[1, 0]), Ok(()));
        assert!(exchange(&[2, 1], &[1, 0]).unwrap_err().contains("input: segment 0"));
        assert!(exchange(&[1, 2], &[0, 1]).unwrap_err().contains("output: segment 0"));
    }

    #[test]
    fn divisions_that_a_call_does_not_know_are_refused() {
        let one = |collective, divisions| checked(collective, (2, Counts::Even), &[2, 0], &[0, 2], divisions);
        assert!(one(Collective::AllReduce, [Shares, Anywhere]).unwrap_err().contains("one buffer"));
        assert_eq!(one(Collective::AllReduce, [Coalesced, Anywhere]), Ok(()));
        let text = one(Collective::AllReduce, [Coalesced; 2]).unwrap_err();
        assert!(text.contains("as many and as long"), "{text}");
        let gather = |divisions| checked(Collective::AllGather, (2, Counts::Even), &[2], &[2, 2], divisions);
        assert_eq!(gather([Anywhere, Coalesced]), Ok(()));
        assert!(gather([Coalesced, Anywhere]).unwrap_err().contains("no coalesced form"));
    }

    #[test]
    fn a_rank_that_is_not_the_root_has_no_shares() {
        let mut memory = [[0u16; 1]; 2];
        let list = memory.iter_mut().map(|part| &mut part[..]);
        let output = BufferMut::of_list(list, Shares);
        let buffers = Buffers::Separate { input: input(&[1], Anywhere), output };
        let call = call(Collective::Gather, 1, Counts::Even, buffers);
        let error = check(&call, &Group::world(1, 2)).unwrap_err();
        assert!(error.to_string().contains("2 segments, but"), "{error}");
    }
}
