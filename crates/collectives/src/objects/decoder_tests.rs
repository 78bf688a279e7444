//! Values that nest deeply, and bytes that lie, on a thread with a small stack.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::thread;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{EMPTY_ELEMENTS_MAX, LEVELS_MAX, decode};

/// A quarter of Rust's stack for a thread: the tests are not optimised, so their frames are large.
const STACK_BYTES: usize = 512 << 10;

/// The bytes of an attack: each of them says "one more level".
const ATTACK_BYTES: usize = 2 << 20;

fn on_a_small_stack(body: impl FnOnce() + Send + 'static) {
    thread::Builder::new().stack_size(STACK_BYTES).spawn(body).unwrap().join().unwrap();
}

fn bytes_of<T: Serialize>(value: &T) -> Vec<u8> {
    postcard::to_allocvec(value).unwrap()
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum List {
    End,
    Element(Box<List>),
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Linked {
    id: u8,
    next: Option<Box<Linked>>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Nested(Vec<Nested>);

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
struct Bare(Vec<Bare>);

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Folder(BTreeMap<u8, Folder>);

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Outer(Inner);

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Inner((Option<Box<Outer>>,));

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Term {
    Leaf,
    Sum { parts: Vec<Term> },
}

/// Whether exactly the values of at most [`LEVELS_MAX`] levels are taken, and no bytes harm.
fn has_its_limit<T: Serialize + DeserializeOwned + Debug + PartialEq>(made: impl Fn(u32) -> T) {
    for levels in [1, 2, LEVELS_MAX - 2, LEVELS_MAX - 1, LEVELS_MAX] {
        let value = made(levels);
        assert_eq!(decode::<T>(&bytes_of(&value)), Ok(value), "{levels} levels");
    }
    for levels in [LEVELS_MAX + 1, 2 * LEVELS_MAX] {
        let problem = decode::<T>(&bytes_of(&made(levels))).unwrap_err();
        assert_eq!(problem, "no value of its type: more than 128 levels", "{levels} levels");
    }
    for byte in 0..=u8::MAX {
        let attack = decode::<T>(&vec![byte; ATTACK_BYTES]);
        assert!(attack.is_err(), "bytes of {byte}");
    }
}

#[test]
fn b19_values_nest_to_the_limit_whatever_their_type() {
    on_a_small_stack(|| {
        let boxed = |list| List::Element(Box::new(list));
        has_its_limit(|levels| (1..levels).fold(List::End, |list, _| boxed(list)));
        let linked = |next: Option<Linked>| Linked { id: 1, next: next.map(Box::new) };
        has_its_limit(|levels| (1..levels).fold(linked(None), |next, _| linked(Some(next))));
        has_its_limit(|levels| (1..levels).fold(Nested(vec![]), |inner, _| Nested(vec![inner])));
        has_its_limit(|levels| (1..levels).fold(Bare(vec![]), |inner, _| Bare(vec![inner])));
        let folder = |inner| Folder(BTreeMap::from([(1, inner)]));
        has_its_limit(|levels| (1..levels).fold(Folder(BTreeMap::new()), |inner, _| folder(inner)));
        let outer = |inner: Option<Outer>| Outer(Inner((inner.map(Box::new),)));
        has_its_limit(|levels| (1..levels).fold(outer(None), |inner, _| outer(Some(inner))));
        // A sum and the list of its parts are a level each, and so is the leaf.
        let sum = |parts| Term::Sum { parts };
        let innermost = |levels: u32| if levels.is_multiple_of(2) { sum(vec![]) } else { Term::Leaf };
        has_its_limit(|levels| (0..(levels - 1) / 2).fold(innermost(levels), |term, _| sum(vec![term])));
    });
}

#[derive(Debug, Deserialize)]
struct Endless(#[allow(dead_code, reason = "no value has it")] Box<Endless>);

#[derive(Debug, Deserialize)]
#[allow(dead_code, reason = "no value has them")]
struct EndlessList {
    id: u8,
    next: Box<EndlessList>,
}

#[test]
fn b19_a_type_without_values_has_no_value() {
    on_a_small_stack(|| {
        let attack = vec![1; ATTACK_BYTES];
        let problem = "no value of its type: more than 128 structs in each other";
        assert_eq!(decode::<Endless>(&attack).unwrap_err(), problem);
        assert_eq!(decode::<EndlessList>(&attack).unwrap_err(), problem);
    });
}

fn is_refused<T: DeserializeOwned + Debug>(bytes: &[u8]) {
    let problem = decode::<T>(bytes).unwrap_err();
    assert!(problem.starts_with("no value of its type: "), "{problem}");
}

#[test]
fn b19_lengths_that_lie_are_refused_at_once() {
    for length in [1 << 30, u64::from(u32::MAX), u64::MAX / 2, u64::MAX] {
        let lie = bytes_of(&length);
        is_refused::<String>(&lie);
        is_refused::<Vec<u8>>(&lie);
        is_refused::<Vec<[u64; 32]>>(&lie);
        is_refused::<BTreeMap<String, u64>>(&lie);
        is_refused::<Option<Vec<String>>>(&[&[1][..], &lie].concat());
        // No byte is missing: the elements have none.
        is_refused::<Vec<()>>(&lie);
        is_refused::<Vec<((), [u8; 0])>>(&lie);
        is_refused::<BTreeMap<(), ()>>(&lie);
        // A lie within every element.
        is_refused::<Vec<Vec<()>>>(&bytes_of(&vec![length; 1000]));
    }
    is_refused::<Vec<()>>(&bytes_of(&(EMPTY_ELEMENTS_MAX + 1)));
    let many = vec![(); EMPTY_ELEMENTS_MAX as usize];
    assert_eq!(decode::<Vec<()>>(&bytes_of(&many)), Ok(many));
    let with_bytes: Vec<(u8, ())> = vec![(1, ()); EMPTY_ELEMENTS_MAX as usize + 1];
    assert_eq!(decode::<Vec<(u8, ())>>(&bytes_of(&with_bytes)), Ok(with_bytes));
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Shape {
    Point,
    Circle(f64),
    Box(i16, i16),
    Text { words: String, mark: char },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Unit;

/// All of serde's data model that postcard has.
type Everything = (
    (bool, u8, u16, u32, u64, u128),
    (i8, i16, i32, i64, i128, f32, f64),
    (char, String, Unit, (), Box<[u8]>),
    Vec<Shape>,
    (Option<u16>, Option<()>, BTreeMap<String, Vec<u32>>, [u8; 3]),
);

#[test]
fn b19_bytes_mean_what_they_mean_to_postcard() {
    let text = || Shape::Text { words: "caf\u{e9}".to_owned(), mark: '\u{1f600}' };
    let shapes = vec![Shape::Point, Shape::Circle(0.5), Shape::Box(-300, 7), text()];
    let words = BTreeMap::from([("one".to_owned(), vec![1, 70_000]), ("none".to_owned(), vec![])]);
    let value: Everything = (
        (true, 200, 60_000, 4_000_000_000, u64::MAX, u128::MAX),
        (-100, -30_000, -2_000_000_000, i64::MIN, i128::MIN, 1.5, -0.0),
        ('x', "text".to_owned(), Unit, (), Box::new([1, 2])),
        shapes,
        (Some(500), Some(()), words, [7, 8, 9]),
    );
    let bytes = bytes_of(&value);
    assert_eq!(decode::<Everything>(&bytes), Ok(value));
    // A NaN is not itself, so values are compared as they print.
    let compared = |bytes: &[u8]| {
        let expected = match postcard::take_from_bytes::<Everything>(bytes) {
            Ok((value, [])) => Some(format!("{value:?}")),
            Ok(_) | Err(_) => None,
        };
        let decoded = decode::<Everything>(bytes).ok().map(|value| format!("{value:?}"));
        assert_eq!(decoded, expected, "{bytes:?}");
        usize::from(expected.is_some())
    };
    assert_eq!((0..bytes.len()).map(|end| compared(&bytes[..end])).sum::<usize>(), 0);
    let changes = (0..bytes.len()).flat_map(|at| (0..=u8::MAX).map(move |byte| (at, byte)));
    let values: usize = changes.map(|(at, byte)| compared(&with_byte(&bytes, at, byte))).sum();
    assert!(values > bytes.len() && values < bytes.len() * 256, "{values} values");
}

fn with_byte(bytes: &[u8], at: usize, byte: u8) -> Vec<u8> {
    let mut changed = bytes.to_vec();
    changed[at] = byte;
    changed
}
