//! Says in words how two calls differ that should be equal.

use unisono_communicator::{
    CallInfo, Collective, Descriptor, Group, GroupRank, LENGTHS_KNOWN_MAX, LengthList, Place, ReduceOp, Sizes,
};

/// The name of a difference in earlier calls, as the last item of a list of differences.
pub const EARLIER_CALLS: &str = "earlier calls";

/// The longest list of lengths that is shown whole.
const LENGTHS_SHOWN_MAX: u64 = 12;

/// The difference of two calls of one number in fields that must be equal; `None` when they agree. Uneven counts are
/// left to the headers, since two ranks need not agree on counts between other ranks.
pub(crate) fn call_difference(ours: &CallInfo, theirs: &CallInfo) -> Option<String> {
    let fields = descriptor_difference(&ours.descriptor, &theirs.descriptor);
    let algorithm = match (&ours.algorithm, &theirs.algorithm) {
        // Two algorithms may share no message, and then no header shows the difference.
        (Some(ours), Some(theirs)) if ours.name != theirs.name => {
            Some(format!("algorithm {ours} / {theirs}"))
        }
        (Some(ours), Some(theirs)) if ours.schedules != theirs.schedules => {
            Some(format!("schedules of {ours} differ"))
        }
        _ => None,
    };
    let parts = part_difference(ours, theirs);
    // If other fields differ, the segments differ for that reason.
    let segments = if fields.is_none() { segments_difference(ours, theirs) } else { None };
    let list: Vec<String> = fields.into_iter().chain(parts).chain(algorithm).chain(segments).collect();
    (!list.is_empty()).then(|| list.join(", "))
}

/// The difference of the parent calls.
fn part_difference(ours: &CallInfo, theirs: &CallInfo) -> Option<String> {
    let is_same = match (&ours.parent, &theirs.parent) {
        (None, None) => true,
        (Some(ours), Some(theirs)) => {
            let is_same = ours.name == theirs.name
                && descriptor_difference(&ours.descriptor, &theirs.descriptor).is_none();
            if is_same && let Some(text) = sizes_difference(ours.sizes.as_deref(), theirs.sizes.as_deref()) {
                return Some(format!("{text} of {ours}"));
            }
            is_same
        }
        (Some(_), None) | (None, Some(_)) => false,
    };
    let text = |call: &CallInfo| match &call.parent {
        Some(parent) => format!("part of {parent}"),
        None => "a plain call".to_owned(),
    };
    (!is_same).then(|| format!("{} / {}", text(ours), text(theirs)))
}

/// The difference in the sizes of two parents that are alike otherwise.
fn sizes_difference(ours: Option<&Sizes>, theirs: Option<&Sizes>) -> Option<String> {
    let text = |ours, theirs, what| list_difference(ours, theirs).map(|text| format!("{what} {text}"));
    match (ours, theirs) {
        (Some(Sizes::Segments(ours)), Some(Sizes::Segments(theirs))) => text(ours, theirs, "segment lengths"),
        (Some(Sizes::PerRank(ours)), Some(Sizes::PerRank(theirs))) => text(ours, theirs, "counts"),
        (ours, theirs) => (ours != theirs).then(|| "sizes".to_owned()),
    }
}

/// The difference in the segments of two calls of one count. A call that is not coalesced has one segment.
fn segments_difference(ours: &CallInfo, theirs: &CallInfo) -> Option<String> {
    let segments = |call: &CallInfo| match call.sizes.as_deref() {
        Some(Sizes::Segments(list)) => Some(list.clone()),
        None if !call.descriptor.uneven => Some(LengthList::new([call.descriptor.count].into_iter())),
        Some(Sizes::PerRank(_) | Sizes::PerPair { .. }) | None => None,
    };
    let text = list_difference(&segments(ours)?, &segments(theirs)?)?;
    Some(format!("segment lengths {text}"))
}

/// Says where the uneven counts of two ranks disagree. If every rank gives the counts of all ranks, this compares the
/// whole lists. Otherwise it compares the counts that each of the two ranks sends to the other with the counts that the
/// other rank expects.
pub(crate) fn counts_difference(
    group: &Group,
    ours: &CallInfo,
    their_rank: GroupRank,
    theirs: &CallInfo,
) -> Option<String> {
    let our_rank = group.own_rank();
    match (ours.sizes.as_deref()?, theirs.sizes.as_deref()?) {
        (Sizes::PerRank(ours), Sizes::PerRank(theirs)) => {
            list_difference(ours, theirs).map(|text| format!("counts {text}"))
        }
        (
            Sizes::PerPair { send: our_send, receive: our_receive },
            Sizes::PerPair { send: their_send, receive: their_receive },
        ) => {
            let pairs = [
                (our_rank, their_rank, our_send, their_receive),
                (their_rank, our_rank, their_send, our_receive),
            ];
            pairs.into_iter().find_map(|(from, to, send, receive)| {
                let (sent, awaited) = (send.known().get(to.index())?, receive.known().get(from.index())?);
                let (from, to) = (group.job_rank(from), group.job_rank(to));
                let text =
                    || format!("counts: rank {from} sends {sent} to rank {to}, which expects {awaited}");
                (sent != awaited).then(text)
            })
        }
        (Sizes::Segments(_) | Sizes::PerRank(_) | Sizes::PerPair { .. }, _) => None,
    }
}

/// The difference of the known parts of two lists: "[4, 2] / [2, 4]".
fn list_difference(ours: &LengthList, theirs: &LengthList) -> Option<String> {
    if ours == theirs {
        return None;
    }
    if ours.count().max(theirs.count()) <= LENGTHS_SHOWN_MAX {
        return Some(format!("{:?} / {:?}", ours.known(), theirs.known()));
    }
    let counts = format!("of {} / {}", ours.count(), theirs.count());
    let mut pairs = ours.known().iter().zip(theirs.known()).enumerate();
    Some(match pairs.find(|(_, (ours, theirs))| ours != theirs) {
        Some((position, (ours, theirs))) => format!("{ours} / {theirs} at position {position} {counts}"),
        None if ours.count() == theirs.count() => {
            format!("differ beyond the first {LENGTHS_KNOWN_MAX} {counts}")
        }
        None => counts,
    })
}

/// The compared fields in which two descriptors differ, as "dtype f32 / f64, root 0 / 1"; `None` when they agree.
///
/// An empty label counts as no label. Two fields are not always compared: whether a rooted call or an exscan is in
/// place, and the descriptor's count of a call with uneven counts.
pub fn descriptor_difference(ours: &Descriptor, theirs: &Descriptor) -> Option<String> {
    let mut list = Vec::new();
    let mut field = |name: &str, text: &dyn Fn(&Descriptor) -> Option<String>| {
        if let (Some(ours), Some(theirs)) = (text(ours), text(theirs))
            && ours != theirs
        {
            list.push(format!("{name} {ours} / {theirs}"));
        }
    };
    // A field that only one of the two operations has says nothing new.
    field("collective", &|call| Some(call.operation.to_string()));
    field("dtype", &|call| Some(call.dtype.to_string()));
    field("op", &|call| call.op.map(|op| op.name().to_owned()));
    field("in place", &|call| is_in_place(call).map(|is_it| is_it.to_string()));
    field("uneven", &|call| Some(call.uneven.to_string()));
    let has_list = ours.uneven || theirs.uneven;
    field("count", &|call| (!has_list).then(|| call.count.to_string()));
    field("root", &|call| call.root.map(|root| root.to_string()));
    field("label", &|call| Some(label_text(call)));
    field("user op", &|call| Some(user_op(call)));
    (!list.is_empty()).then(|| list.join(", "))
}

/// Whether a call is in place; `None` for a collective in which ranks may differ.
fn is_in_place(call: &Descriptor) -> Option<bool> {
    let is_compared = |of: Collective| !of.place_may_differ() && of != Collective::Barrier;
    let is_compared = call.operation.collective().is_none_or(is_compared);
    is_compared.then_some(call.place == Place::InPlace)
}

fn label_text(call: &Descriptor) -> String {
    let label = call.label.filter(|label| !label.as_str().is_empty());
    label.map_or("none".to_owned(), |label| format!("{:?}", label.as_str()))
}

fn user_op(call: &Descriptor) -> String {
    match call.op {
        Some(ReduceOp::User(user)) => user.name.to_string(),
        Some(_) | None => "none".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use unisono_communicator::{Collective, Counts, DType, JobRank, ParentCall, ShortText, UserOp};

    use super::*;

    fn all_reduce(count: u64) -> Descriptor {
        Descriptor { op: Some(ReduceOp::Sum), ..Descriptor::new(Collective::AllReduce, DType::F32, count) }
    }

    #[test]
    fn every_compared_field_is_named() {
        let ours = all_reduce(5);
        let user = |name| Some(ReduceOp::User(UserOp::commutative(name)));
        let opaque = |bytes| DType::opaque(bytes).unwrap();
        let cases = [
            (Descriptor { dtype: DType::F64, ..ours }, "dtype f32 / f64"),
            (Descriptor { dtype: opaque(24), ..ours }, "dtype f32 / opaque[24]"),
            (Descriptor { count: 6, ..ours }, "count 5 / 6"),
            (Descriptor { op: Some(ReduceOp::Max), ..ours }, "op sum / max"),
            (Descriptor { op: user("affine"), ..ours }, "user op none / affine"),
            (Descriptor { place: Place::InPlace, ..ours }, "in place false / true"),
            (Descriptor { label: Some(ShortText::new("x")), ..ours }, "label none / \"x\""),
            (
                Descriptor { operation: Collective::Reduce.into(), root: Some(1), ..ours },
                "collective all_reduce / reduce",
            ),
        ];
        for (theirs, text) in cases {
            let difference = descriptor_difference(&ours, &theirs).unwrap();
            assert!(difference.contains(text), "{difference}");
        }
        assert_eq!(descriptor_difference(&ours, &ours), None);
    }

    #[test]
    fn labels_are_compared_and_one_without_text_is_none() {
        let labelled = |text| Descriptor { label: Some(ShortText::new(text)), ..all_reduce(5) };
        assert_eq!(descriptor_difference(&labelled(""), &all_reduce(5)), None);
        let text = descriptor_difference(&labelled("red"), &labelled("blue"));
        assert_eq!(text.as_deref(), Some(r#"label "red" / "blue""#));
    }

    #[test]
    fn a_count_is_not_compared_with_a_list() {
        let even = Descriptor::new(Collective::AllGather, DType::U8, 4);
        let uneven = Descriptor { uneven: true, count: 0, ..even };
        assert_eq!(descriptor_difference(&even, &uneven).as_deref(), Some("uneven false / true"));
    }

    fn call(counts: &Counts, ends: Option<&[usize]>) -> CallInfo {
        let uneven = *counts != Counts::Even;
        let descriptor = Descriptor { uneven, ..all_reduce(6) };
        let sizes = Sizes::of(descriptor.dtype, counts, ends).map(Arc::new);
        CallInfo { sizes, ..CallInfo::new(3, descriptor) }
    }

    #[test]
    fn segments_are_compared_with_their_lengths() {
        let of = |ends: &[usize]| call(&Counts::Even, Some(ends));
        let text = call_difference(&of(&[16, 24]), &of(&[8, 24]));
        assert_eq!(text.as_deref(), Some("segment lengths [4, 2] / [2, 4]"));
        assert_eq!(call_difference(&of(&[16, 24]), &of(&[16, 24])), None);
        let whole = call(&Counts::Even, None);
        let text = call_difference(&of(&[0, 24]), &whole);
        assert_eq!(text.as_deref(), Some("segment lengths [0, 6] / [6]"));
        let nothing = CallInfo { descriptor: all_reduce(0), ..whole };
        let empty = CallInfo { descriptor: all_reduce(0), ..of(&[]) };
        assert_eq!(call_difference(&empty, &nothing).as_deref(), Some("segment lengths [] / [0]"));
        assert_eq!(call_difference(&of(&[16, 24]), &nothing).as_deref(), Some("count 6 / 0"));
    }

    #[test]
    fn parents_are_compared_with_their_lengths() {
        let of = |lengths: &[u64]| {
            let sizes = Sizes::Segments(LengthList::new(lengths.iter().copied()));
            let parent =
                ParentCall { sizes: Some(Arc::new(sizes)), ..ParentCall::new("sums", all_reduce(6)) };
            CallInfo { parent: Some(Arc::new(parent)), ..call(&Counts::Even, None) }
        };
        assert_eq!(call_difference(&of(&[4, 2]), &of(&[4, 2])), None);
        let text = call_difference(&of(&[4, 2]), &of(&[2, 4]));
        assert_eq!(text.as_deref(), Some("segment lengths [4, 2] / [2, 4] of sums(6 x f32, sum)"));
        let whole = ParentCall::new("sums", all_reduce(6));
        let whole = CallInfo { parent: Some(Arc::new(whole)), ..of(&[]) };
        let text = call_difference(&of(&[6]), &whole);
        assert_eq!(text.as_deref(), Some("sizes of sums(6 x f32, sum)"));
    }

    #[test]
    fn long_lists_show_where_they_differ() {
        let long = |odd: usize| {
            let length = |index| if index == odd { 9 } else { 8 };
            LengthList::new((0..100).map(length).collect::<Vec<_>>().into_iter())
        };
        assert_eq!(long(0).known().len(), LENGTHS_KNOWN_MAX);
        let text = list_difference(&long(20), &long(100));
        assert_eq!(text.as_deref(), Some("9 / 8 at position 20 of 100 / 100"));
        let text = list_difference(&long(99), &long(100));
        assert_eq!(text.as_deref(), Some("differ beyond the first 64 of 100 / 100"));
        let shorter = LengthList::new([8; 90].into_iter());
        assert_eq!(list_difference(&long(99), &shorter).as_deref(), Some("of 100 / 90"));
    }

    #[test]
    fn counts_of_pairs_are_those_that_two_ranks_have_for_each_other() {
        let of = |send: [u64; 2], receive: [u64; 2]| {
            call(&Counts::PerPair { send: send.into(), receive: receive.into() }, None)
        };
        let (own, peer) = (GroupRank::new(0), GroupRank::new(1));
        let group = Group::new(own, [3, 5].map(JobRank::new).into(), [0; 2].into(), 0);
        let difference = |ours, theirs| counts_difference(&group, &ours, peer, &theirs);
        let text = difference(of([1, 5], [1, 3]), of([3, 7], [6, 7]));
        assert_eq!(text.as_deref(), Some("counts: rank 3 sends 5 to rank 5, which expects 6"));
        let text = difference(of([1, 5], [1, 2]), of([3, 7], [5, 7]));
        assert_eq!(text.as_deref(), Some("counts: rank 5 sends 3 to rank 3, which expects 2"));
        assert_eq!(difference(of([1, 5], [1, 3]), of([3, 7], [5, 7])), None);
    }

    #[test]
    fn the_place_of_a_rooted_call_is_its_ranks_own() {
        let reduce = Descriptor { operation: Collective::Reduce.into(), root: Some(0), ..all_reduce(5) };
        let there = Descriptor { place: Place::InPlace, ..reduce };
        assert_eq!(descriptor_difference(&reduce, &there), None);
    }
}
