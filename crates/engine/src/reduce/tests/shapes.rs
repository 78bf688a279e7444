//! Tests of the bytes that kernels read and write: every short length and misalignment, with two and with three
//! addresses.

use std::ops::Range;
use std::sync::atomic::AtomicU8;

use unisono_communicator::{DType, ReduceOp};
use unisono_schedule::SplitMix;

use super::reference::assert_equal;
use super::{built_in, random_bytes, reference};
use crate::reduce::dispatch::Isa;
use crate::reduce::{PeerBytes, Reducer};

const ELEMENTS_MAX: usize = 130;
const BUFFER_BYTES: usize = (ELEMENTS_MAX + 3) * 16;

struct Case {
    dtype: DType,
    op: ReduceOp,
    completes: bool,
    left: Vec<u8>,
    right: Vec<u8>,
    /// The reduction of the elements of `left` and `right`.
    expected: Vec<u8>,
}

impl Case {
    fn new(dtype: DType, op: ReduceOp, completes: bool, random: &mut SplitMix) -> Case {
        let count = ELEMENTS_MAX * dtype.bytes();
        let (left, right) = (random_bytes(random, count), random_bytes(random, count));
        let size = dtype.bytes();
        let expected = std::iter::zip(left.chunks(size), right.chunks(size))
            .flat_map(|(left, right)| reference::reduce(dtype, op, left, right, completes, 3))
            .collect();
        Case { dtype, op, completes, left, right, expected }
    }

    /// Runs `elements` elements with the destination, left and right operand at these misalignments.
    fn check(&self, isa: Isa, elements: usize, [at, left_at, right_at]: [usize; 3], in_place: bool) {
        const GUARD: u8 = 0xa5;
        let bytes = elements * self.dtype.bytes();
        let place = |offset: usize, content: &[u8]| {
            let mut buffer = vec![GUARD; BUFFER_BYTES];
            buffer[offset..offset + bytes].copy_from_slice(content);
            buffer
        };
        let part = |offset: usize| -> Range<usize> { offset..offset + bytes };
        let left = place(left_at, &self.left[..bytes]);
        let right = place(right_at, &self.right[..bytes]);
        let shared: Vec<AtomicU8> = right.iter().map(|byte| AtomicU8::new(*byte)).collect();
        let reducer = Reducer::with_isa(isa, self.dtype, self.op, 3, None);
        let operand = (!in_place).then(|| &left[part(left_at)]);
        for incoming in [PeerBytes::Own(&right[part(right_at)]), PeerBytes::Shared(&shared[part(right_at)])] {
            let mut destination =
                if in_place { place(at, &self.left[..bytes]) } else { vec![GUARD; BUFFER_BYTES] };
            reducer.reduce(&mut destination[part(at)], operand, incoming, true, self.completes).unwrap();

            let context = || format!("{isa:?} {} {} {elements} elements at {at}", self.dtype, self.op);
            let untouched = |range: Range<usize>| destination[range].iter().all(|byte| *byte == GUARD);
            assert!(untouched(0..at) && untouched(at + bytes..BUFFER_BYTES), "{}", context());
            assert_equal(self.dtype, &destination[part(at)], &self.expected[..bytes], &|_| context());
        }
    }
}

#[test]
fn every_length_at_every_misalignment() {
    let seed = 0x5eed_0005;
    eprintln!("seed {seed:#x}");
    let mut random = SplitMix(seed);
    for (dtype, op, completes) in built_in() {
        let case = Case::new(dtype, op, completes, &mut random);
        for isa in Isa::available() {
            for elements in 0..=ELEMENTS_MAX {
                let at = [elements % 9, random.next_u64() as usize % 9, random.next_u64() as usize % 9];
                case.check(isa, elements, at, true);
                case.check(isa, elements, at, false);
            }
        }
    }
}

#[test]
fn prescale_touches_its_buffer_only() {
    for isa in Isa::available() {
        for dtype in DType::ALL.iter().copied().filter(|&dtype| ReduceOp::PreMulSum(0.0).accepts(dtype)) {
            let size = dtype.bytes();
            let reducer = Reducer::with_isa(isa, dtype, ReduceOp::PreMulSum(0.0), 3, None);
            for elements in 0..=ELEMENTS_MAX {
                let at = elements % 9;
                // The bytes of a small positive number in every dtype. A factor of 0.0 gives 0.
                let mut buffer = vec![0x11; BUFFER_BYTES];
                reducer.prescale(&mut buffer[at..at + elements * size]);
                let scaled = at..at + elements * size;
                for (index, byte) in buffer.iter().enumerate() {
                    let expected = if scaled.contains(&index) { 0 } else { 0x11 };
                    assert_eq!(*byte, expected, "{isa:?} {dtype} {elements} elements, byte {index}");
                }
            }
        }
    }
}

#[test]
#[should_panic(expected = "the reduce operator does not accept complex64")]
fn complex_numbers_have_no_minimum() {
    Reducer::new(DType::Complex64, ReduceOp::Min, 2, None);
}

#[test]
#[should_panic(expected = "the reduce operator does not accept bool")]
fn an_op_that_the_dtype_refuses_is_a_broken_invariant() {
    Reducer::new(DType::Bool, ReduceOp::Sum, 2, None);
}
