//! Headers of calls: every field that is compared is named where it differs.

use super::*;

/// The difference between the headers of two calls.
fn difference(ours: &Descriptor, theirs: &Descriptor) -> Option<String> {
    let header = |call| CallHeader::new(call, 9, 1, 4096).with_plan_hash(3);
    header_difference(&header(ours), &header(theirs))
}

fn all_reduce(count: u64) -> Descriptor {
    Descriptor { op: Some(ReduceOp::Sum), ..Descriptor::new(Collective::AllReduce, DType::F32, count) }
}

#[test]
fn a_header_decodes_to_its_descriptor() {
    let bytes = CallHeader::new(&all_reduce(5), 9, 1, 4096).with_plan_hash(3);
    let call = decode(&bytes).unwrap();
    assert_eq!((call.number, call.descriptor), (9, all_reduce(5)));
    let moved = Descriptor::new(Collective::AllGather, opaque(0x1234), 7);
    let bytes = CallHeader::new(&moved, 9, 1, 4096).with_plan_hash(3);
    assert_eq!(decode(&bytes).unwrap().descriptor, moved);
}

fn opaque(bytes: usize) -> DType {
    DType::opaque(bytes).unwrap()
}

#[test]
fn the_size_of_opaque_elements_is_compared() {
    let ours = Descriptor { dtype: opaque(0x0108), ..all_reduce(5) };
    for bytes in [0x0109, 0x0208] {
        let difference = difference(&ours, &Descriptor { dtype: opaque(bytes), ..ours });
        assert_eq!(difference, Some(format!("dtype opaque[264] / opaque[{bytes}]")));
    }
}

#[test]
fn every_compared_field_is_named() {
    let ours = all_reduce(5);
    let cases = [
        (Descriptor { dtype: DType::F64, ..ours }, "dtype f32 / f64"),
        (Descriptor { dtype: opaque(24), ..ours }, "dtype f32 / opaque[24]"),
        (Descriptor { count: 6, ..ours }, "count 5 / 6"),
        (Descriptor { op: Some(ReduceOp::Max), ..ours }, "op sum / max"),
        (Descriptor { place: Place::InPlace, ..ours }, "in place false / true"),
        (
            Descriptor { operation: Collective::Reduce.into(), root: Some(1), ..ours },
            "collective all_reduce / reduce",
        ),
    ];
    for (theirs, text) in cases {
        let difference = difference(&ours, &theirs).unwrap();
        assert!(difference.contains(text), "{difference}");
    }
    assert_eq!(difference(&ours, &ours), None);
    let uneven = Descriptor { uneven: true, ..Descriptor::new(Collective::AllGather, DType::U8, 1) };
    assert_eq!(difference(&uneven, &Descriptor { count: 2, ..uneven }), None, "the plan hash has counts");
}

#[test]
fn a_label_without_text_is_none() {
    let labelled = |text| Descriptor { label: Some(ShortText::new(text)), ..all_reduce(5) };
    assert_eq!(difference(&labelled(""), &all_reduce(5)), None);
    assert!(difference(&labelled("x"), &all_reduce(5)).is_some());
}

#[test]
fn equal_calls_behind_different_ones_differ() {
    let call = |number, count| CallHeader::new(&all_reduce(count), number, 1, 4096);
    let digests = [call(0, 5).behind(0).digest(), call(0, 6).behind(0).digest()];
    let [ours, theirs] = digests.map(|digest| call(1, 5).behind(digest).with_plan_hash(3));
    let difference = header_difference(&ours, &theirs).unwrap();
    assert!(difference.starts_with(EARLIER_CALLS), "{difference}");
    assert_eq!(call(1, 5).behind(digests[0]).digest(), call(1, 5).behind(digests[0]).digest());
    assert_ne!(call(1, 5).behind(digests[0]).digest(), call(1, 5).behind(digests[1]).digest());
}

#[test]
fn algorithms_are_named() {
    for name in ["ring", "leaders:4"] {
        let bytes = CallHeader::new(&all_reduce(5), 9, hash_name(name), 4096).with_plan_hash(3);
        assert_eq!(decode(&bytes).unwrap().algorithm.unwrap().name, *name);
    }
    let named = |name| CallHeader::new(&all_reduce(5), 9, hash_name(name), 4096).with_plan_hash(3);
    let difference = header_difference(&named("ring"), &named("leaders:1000"));
    assert_eq!(difference.as_deref(), Some("algorithm ring / another"));
}

#[test]
fn no_hash_reaches_a_reader() {
    let labelled = |text| Descriptor { label: Some(ShortText::new(text)), ..all_reduce(5) };
    let user = |name| {
        let op = Some(ReduceOp::User(UserOp::commutative(name)));
        Descriptor { op, ..all_reduce(5) }
    };
    let uneven = Descriptor { uneven: true, ..Descriptor::new(Collective::AllGather, DType::U8, 1) };
    let header = |descriptor: &Descriptor, piece, plan| {
        CallHeader::new(descriptor, 3, hash_name("ring"), piece).behind(plan).with_plan_hash(plan)
    };
    let plain = all_reduce(5);
    let difference = |ours: &Descriptor, theirs: &Descriptor, [piece, plan]: [u64; 2]| {
        let text = header_difference(&header(ours, 8, 1), &header(theirs, piece, plan)).unwrap();
        assert!(!text.contains('#'), "{text}");
        text
    };
    let earlier = "earlier calls differ";
    assert_eq!(difference(&labelled("red"), &labelled("blue"), [8, 1]), "label differs");
    assert_eq!(difference(&labelled("red"), &plain, [8, 1]), "label given / none");
    assert_eq!(difference(&user("a"), &user("b"), [8, 1]), "name of the user op differs");
    assert_eq!(difference(&plain, &plain, [8, 2]), format!("segment lengths differ, {earlier}"));
    assert_eq!(difference(&uneven, &uneven, [8, 2]), format!("counts differ, {earlier}"));
    assert_eq!(difference(&plain, &plain, [16, 1]), "piece bytes 8 / 16");
    assert_eq!(difference(&plain, &all_reduce(6), [16, 2]), format!("count 5 / 6, {earlier}"));
    let shown = decode(&header(&labelled("red"), 8, 1)).unwrap().to_string();
    assert!(!shown.contains('#'), "{shown}");
}

#[test]
fn parts_of_other_calls_differ() {
    let parent = |name, count| context_of(&ParentCall::new(name, all_reduce(count)));
    let contexts = [0, parent("a", 5), parent("b", 5), parent("a", 6)];
    let header = |context| CallHeader::new(&all_reduce(5), 9, 1, 4096).within(context).with_plan_hash(3);
    for (index, &ours) in contexts.iter().enumerate() {
        for (other, &theirs) in contexts.iter().enumerate() {
            let expected = match (index, other) {
                (index, other) if index == other => None,
                (0, _) => Some("a plain call / part of another call"),
                (_, 0) => Some("part of another call / a plain call"),
                (_, _) => Some("part of one call / part of another"),
            };
            assert_eq!(header_difference(&header(ours), &header(theirs)).as_deref(), expected);
        }
    }
    let digest = |context| CallHeader::new(&all_reduce(5), 9, 1, 4096).within(context).behind(0).digest();
    assert_ne!(digest(contexts[0]), digest(contexts[1]), "also when no message shows it");
}
