//! Tests of user functions: the order of operands, no aliasing, panics.

use std::panic::panic_any;
use std::sync::Arc;

use unisono_communicator::{DType, OPAQUE_BYTES_MAX, ReduceOp, UserFunction, UserOp};
use unisono_schedule::SplitMix;

use super::random_bytes;
use crate::reduce::{Panicked, PeerBytes, Reducer};

const OP: ReduceOp = ReduceOp::User(UserOp::ordered("test"));

fn reducer(dtype: DType, function: impl Fn(&[u8], &[u8], &mut [u8]) + Send + Sync + 'static) -> Reducer {
    let function: UserFunction = Arc::new(function);
    Reducer::new(dtype, OP, 3, Some(function))
}

/// `left - 2 * right`, byte by byte. It does not commute, and a piece that is left out changes the result.
fn weigh(left: u8, right: u8) -> u8 {
    left.wrapping_sub(right.wrapping_mul(2))
}

fn weigh_slices(left: &[u8], right: &[u8], out: &mut [u8]) {
    assert!(left.len() == out.len() && right.len() == out.len());
    for (index, out) in out.iter_mut().enumerate() {
        *out = weigh(left[index], right[index]);
    }
}

#[test]
fn operands_come_in_the_order_of_ranks() {
    let mut random = SplitMix(0x5eed_0006);
    for bytes in [0, 1, 8, 4095, 4096, 4097, 3 * 4096 + 8] {
        let (operand, incoming) = (random_bytes(&mut random, bytes), random_bytes(&mut random, bytes));
        for operand_is_left in [true, false] {
            let expected: Vec<u8> = std::iter::zip(&operand, &incoming)
                .map(|(o, i)| if operand_is_left { weigh(*o, *i) } else { weigh(*i, *o) })
                .collect();
            let reducer = reducer(DType::U8, weigh_slices);
            let mut out = vec![0; bytes];
            reducer
                .reduce(&mut out, Some(&operand), PeerBytes::Own(&incoming), operand_is_left, true)
                .unwrap();
            assert_eq!(out, expected);
            let mut in_place = operand.clone();
            reducer.reduce(&mut in_place, None, PeerBytes::Own(&incoming), operand_is_left, false).unwrap();
            assert_eq!(in_place, expected);
        }
    }
}

/// Fills the output before it reads the inputs, which reveals an alias. Refuses a part of an element.
#[test]
fn the_output_aliases_nothing_and_holds_whole_elements() {
    let spoil_first = |left: &[u8], right: &[u8], out: &mut [u8]| {
        assert_eq!(out.len() % 8, 0);
        out.fill(0xff);
        weigh_slices(left, right, out);
    };
    let mut random = SplitMix(0x5eed_0007);
    let (operand, incoming) = (random_bytes(&mut random, 10_000), random_bytes(&mut random, 10_000));
    let mut in_place = operand.clone();
    reducer(DType::F64, spoil_first)
        .reduce(&mut in_place, None, PeerBytes::Own(&incoming), true, true)
        .unwrap();
    let expected: Vec<u8> = std::iter::zip(&operand, &incoming).map(|(o, i)| weigh(*o, *i)).collect();
    assert_eq!(in_place, expected);
}

/// Elements of any size, even larger than the chunk that is copied at a time.
#[test]
fn opaque_elements_stay_whole() {
    for size in [1, 3, 37, 4095, 4096, 4097, 10_000, OPAQUE_BYTES_MAX] {
        let whole = move |left: &[u8], right: &[u8], out: &mut [u8]| {
            assert!(
                !out.is_empty() && out.len().is_multiple_of(size),
                "{} bytes of elements of {size}",
                out.len()
            );
            weigh_slices(left, right, out);
        };
        let reducer = reducer(DType::opaque(size).unwrap(), whole);
        let mut random = SplitMix(size as u64);
        let (operand, incoming) = (random_bytes(&mut random, size * 5), random_bytes(&mut random, size * 5));
        let expected: Vec<u8> = std::iter::zip(&operand, &incoming).map(|(o, i)| weigh(*o, *i)).collect();
        let mut in_place = operand.clone();
        reducer.reduce(&mut in_place, None, PeerBytes::Own(&incoming), true, true).unwrap();
        assert_eq!(in_place, expected, "{size}");
        let mut out = vec![0; operand.len()];
        reducer.reduce(&mut out, Some(&operand), PeerBytes::Own(&incoming), true, true).unwrap();
        assert_eq!(out, expected, "{size}");
    }
}

#[test]
fn a_panic_becomes_an_error_with_its_text() {
    let run = |function: fn()| {
        let reducer = reducer(DType::U8, move |_, _, _| function());
        let three = reducer.reduce(&mut [0; 4], Some(&[1; 4]), PeerBytes::Own(&[2; 4]), true, true);
        assert_eq!(reducer.reduce(&mut [0; 4], None, PeerBytes::Own(&[2; 4]), true, true), three);
        three
    };
    let panicked = |text: &str| Err(Panicked { text: text.to_owned() });
    assert_eq!(run(|| panic!("division by zero")), panicked("division by zero"));
    assert_eq!(run(|| panic!("rank {}", 3)), panicked("rank 3"));
    assert_eq!(run(|| panic_any(7u32)), panicked("a panic without a text"));
    assert_eq!(run(|| ()), Ok(()));
}

#[test]
#[should_panic(expected = "a user op comes with its function")]
fn a_user_op_without_a_function_is_a_broken_invariant() {
    Reducer::new(DType::U8, OP, 3, None);
}
