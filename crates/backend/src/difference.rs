//! In what two calls differ that ought to be equal, in words.

use unisono_communicator::{Descriptor, Place, ReduceOp};

/// How a difference of earlier calls is named; it is the last in a list of differences.
pub const EARLIER_CALLS: &str = "earlier calls";

/// The compared fields in which two descriptors differ, as "dtype f32 / f64, root 0 / 1"; `None` when they agree.
///
/// A label without text is none. The place is not compared in rooted calls, nor the count where ranks have lists of
/// their own.
pub fn descriptor_difference(ours: &Descriptor, theirs: &Descriptor) -> Option<String> {
    let mut list = Vec::new();
    let mut field = |name: &str, text: &dyn Fn(&Descriptor) -> String| {
        let (ours, theirs) = (text(ours), text(theirs));
        if ours != theirs {
            list.push(format!("{name} {ours} / {theirs}"));
        }
    };
    field("collective", &|call| call.collective.to_string());
    field("dtype", &|call| call.dtype.to_string());
    field("op", &|call| op_text(call).to_owned());
    field("in place", &|call| is_in_place(call).to_string());
    field("uneven", &|call| call.uneven.to_string());
    field("count", &|call| if call.uneven { String::new() } else { call.count.to_string() });
    field("root", &|call| call.root.map_or("none".to_owned(), |root| root.to_string()));
    field("label", &|call| label_text(call));
    field("user op", &|call| user_op(call).to_owned());
    (!list.is_empty()).then(|| list.join(", "))
}

/// Whether a call is in place, as far as ranks compare it.
fn is_in_place(call: &Descriptor) -> bool {
    call.place == Place::InPlace && !call.collective.is_rooted()
}

/// The kind of operator: the name of a user's is compared on its own.
fn op_text(call: &Descriptor) -> &'static str {
    match call.op {
        Some(ReduceOp::User(_)) => "user",
        Some(op) => op.name(),
        None => "none",
    }
}

fn label_text(call: &Descriptor) -> String {
    let label = call.label.filter(|label| !label.as_str().is_empty());
    label.map_or("none".to_owned(), |label| format!("{:?}", label.as_str()))
}

fn user_op(call: &Descriptor) -> &'static str {
    match call.op {
        Some(ReduceOp::User(user)) => user.name,
        Some(_) | None => "none",
    }
}

#[cfg(test)]
mod tests {
    use unisono_communicator::{Collective, DType, Label, UserOp};

    use super::*;

    fn all_reduce(count: u64) -> Descriptor {
        Descriptor { op: Some(ReduceOp::Sum), ..Descriptor::new(Collective::AllReduce, DType::F32, count) }
    }

    #[test]
    fn every_compared_field_is_named() {
        let ours = all_reduce(5);
        let user = |name| Some(ReduceOp::User(UserOp { name, commutative: true }));
        let opaque = |bytes| DType::opaque(bytes).unwrap();
        let cases = [
            (Descriptor { dtype: DType::F64, ..ours }, "dtype f32 / f64"),
            (Descriptor { dtype: opaque(24), ..ours }, "dtype f32 / opaque[24]"),
            (Descriptor { count: 6, ..ours }, "count 5 / 6"),
            (Descriptor { op: Some(ReduceOp::Max), ..ours }, "op sum / max"),
            (Descriptor { op: user("affine"), ..ours }, "user op none / affine"),
            (Descriptor { place: Place::InPlace, ..ours }, "in place false / true"),
            (Descriptor { label: Label::new("x"), ..ours }, "label none / \"x\""),
            (
                Descriptor { collective: Collective::Reduce, root: Some(1), ..ours },
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
    fn a_label_without_text_is_none() {
        let labelled = |text| Descriptor { label: Label::new(text), ..all_reduce(5) };
        assert_eq!(descriptor_difference(&labelled(""), &all_reduce(5)), None);
    }

    #[test]
    fn the_place_of_a_rooted_call_is_its_ranks_own() {
        let reduce = Descriptor { collective: Collective::Reduce, root: Some(0), ..all_reduce(5) };
        let there = Descriptor { place: Place::InPlace, ..reduce };
        assert_eq!(descriptor_difference(&reduce, &there), None);
    }
}
