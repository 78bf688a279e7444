//! Tests of the kernels' results: special values in all pairs, random bits, means, and the f16 conversions.

use unisono_communicator::{Bool, DType, Element, Kind, ReduceOp, bf16, f8e4m3, f8e5m2, f16};
use unisono_schedule::SplitMix;

use super::reference::{assert_equal, float, float_bytes, is_float, part};
use super::{built_in, bytes, random_bytes, reduced, reference};
use crate::reduce::dispatch::Isa;
use crate::reduce::narrow::{f16_to_f32, f32_to_f16};
use crate::reduce::{PeerBytes, Reducer};

const RANKS: &[u32] =
    &[2, 3, 5, 7, 10, 127, 128, 255, 256, 257, 300, 65_535, 65_536, 65_537, 1 << 31, u32::MAX];

/// Values at which behaviour changes: both ends, zero and its neighbours; for floats also the edges of subnormals,
/// infinities and NaNs, and ties of rounding. For an 8-bit type all values.
fn specials(dtype: DType) -> Vec<Vec<u8>> {
    if part(dtype) != dtype {
        let parts = specials(part(dtype));
        let others = parts.iter().cycle().skip(17);
        return parts.iter().zip(others).map(|(real, imaginary)| [&real[..], imaginary].concat()).collect();
    }
    if dtype.bytes() == 1 {
        return (0..=u8::MAX).map(|bits| vec![bits]).collect();
    }
    let width = dtype.bytes() as u32 * 8;
    let mask = u64::MAX >> (64 - width);
    let top = 1u64 << (width - 1);
    let mut list =
        vec![0, 1, 2, 3, 7, 100, top - 2, top - 1, top, top + 1, mask / 3, mask - 2, mask - 1, mask];
    if let Kind::Float(format) = dtype.kind() {
        let mantissa_bits = u64::from(format.digits - 1);
        let infinity = (top - 1) >> mantissa_bits << mantissa_bits;
        let quiet = infinity | 1 << (mantissa_bits - 1);
        let normal = 1 << mantissa_bits;
        let one = (infinity / 2) & !(normal - 1);
        list.extend([infinity, infinity - 1, infinity + 1, quiet, quiet + 1, normal, normal - 1, normal + 1]);
        list.extend([one, one + 1, one - 1, one + normal, one - (mantissa_bits << mantissa_bits)]);
        list.extend([
            one - ((mantissa_bits + 1) << mantissa_bits),
            one + ((mantissa_bits + 1) << mantissa_bits),
        ]);
        list.extend(list.clone().iter().map(|bits| bits ^ top));
    }
    list.iter().map(|bits| bits.to_le_bytes()[..dtype.bytes()].to_vec()).collect()
}

fn all_pairs(elements: &[Vec<u8>]) -> (Vec<u8>, Vec<u8>) {
    let pairs = || elements.iter().flat_map(|left| elements.iter().map(move |right| (left, right)));
    (
        pairs().flat_map(|(left, _)| left.iter().copied()).collect(),
        pairs().flat_map(|(_, right)| right.iter().copied()).collect(),
    )
}

fn check(dtype: DType, op: ReduceOp, completes: bool, ranks: u32, left: &[u8], right: &[u8]) {
    let size = dtype.bytes();
    let expected: Vec<u8> = std::iter::zip(left.chunks(size), right.chunks(size))
        .flat_map(|(left, right)| reference::reduce(dtype, op, left, right, completes, ranks))
        .collect();
    for isa in Isa::available() {
        let reducer = Reducer::with_isa(isa, dtype, op, ranks, None);
        let found = reduced(&reducer, left, right, completes);
        assert_equal(dtype, &found, &expected, &|index| {
            let element = index * size..(index + 1) * size;
            let (left, right) = (&left[element.clone()], &right[element]);
            format!("{isa:?} {dtype} {op} of {left:02x?} {right:02x?}, completes {completes}, {ranks} ranks")
        });
    }
}

#[test]
fn special_values_in_all_pairs() {
    for (dtype, op, completes) in built_in() {
        let (left, right) = all_pairs(&specials(dtype));
        check(dtype, op, completes, 3, &left, &right);
    }
}

#[test]
fn random_bits() {
    let mut random = SplitMix(0x5eed_0001);
    for (dtype, op, completes) in built_in() {
        let seed = random.0;
        eprintln!("{dtype} {op} seed {seed:#x}");
        let count = 20_000 * dtype.bytes();
        check(dtype, op, completes, 7, &random_bytes(&mut random, count), &random_bytes(&mut random, count));
    }
}

#[test]
fn means_truncate_for_every_number_of_ranks() {
    let every_16_bits: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    let mut random = SplitMix(0x5eed_0002);
    for &dtype in DType::ALL.iter().filter(|dtype| ReduceOp::Avg.accepts(**dtype)) {
        let size = dtype.bytes();
        let mut sums = if size <= 2 { every_16_bits.clone() } else { random_bytes(&mut random, 1 << 15) };
        for &ranks in RANKS {
            // Multiples of the divisor and their neighbours, which reveal a slightly wrong quotient.
            let near = (0..64).map(|_| random.next_u64() / u64::from(ranks) * u64::from(ranks));
            let near: Vec<u8> = near
                .flat_map(|n| [n, n.wrapping_sub(1), n.wrapping_add(1)])
                .flat_map(u64::to_le_bytes)
                .collect();
            sums.extend(near);
            check(dtype, ReduceOp::Avg, true, ranks, &sums, &vec![0; sums.len()]);
        }
    }
}

#[test]
fn the_mean_over_one_rank_is_its_sum() {
    for isa in Isa::available() {
        let reducer = Reducer::with_isa(isa, DType::I8, ReduceOp::Avg, 1, None);
        assert_eq!(reduced(&reducer, &[0x80, 5], &[0, 0xff], true), [0x80, 4]);
    }
}

/// The last step of a 16-bit average rounds once. 2049 is a tie in f16, and would become 2048 before the division.
#[test]
fn narrow_means_round_once() {
    let (left, right) = (bytes(&[f16::from_f32(2048.0)]), bytes(&[f16::from_f32(1.0)]));
    for isa in Isa::available() {
        let reducer = Reducer::with_isa(isa, DType::F16, ReduceOp::Avg, 3, None);
        assert_eq!(reduced(&reducer, &left, &right, false), bytes(&[f16::from_f32(2048.0)]));
        let once = f16::from_f32(2049.0 / 3.0);
        assert_ne!(once, f16::from_f32(2048.0 / 3.0));
        assert_eq!(reduced(&reducer, &left, &right, true), bytes(&[once]));
    }
}

/// An overflow gives the value that a conversion from f32 gives, even in the middle of a sum.
#[test]
fn eight_bit_sums_round_and_overflow_as_documented() {
    for isa in Isa::available() {
        let sum = |dtype| Reducer::with_isa(isa, dtype, ReduceOp::Sum, 3, None);
        let [left, right] = [[448.0, 448.0, -448.0, 16.0], [16.0, 17.0, -32.0, 1.0]];
        let [left, right] = [left, right].map(|floats| bytes(&floats.map(f8e4m3::from_f32)));
        let expected = [448.0, 448.0, f32::NAN, 16.0].map(|float| f8e4m3::from_f32(float).to_bits());
        let found = reduced(&sum(DType::F8E4M3), &left, &right, true);
        assert_equal(DType::F8E4M3, &found, &expected, &|index| format!("{isa:?} e4m3 {index}"));

        let [left, right] = [[57344.0, 57344.0, -57344.0, 8.0], [3584.0, 4096.0, -57344.0, 1.0]];
        let [left, right] = [left, right].map(|floats| bytes(&floats.map(f8e5m2::from_f32)));
        let infinity = f32::INFINITY;
        let expected = bytes(&[57344.0, infinity, -infinity, 8.0].map(f8e5m2::from_f32));
        assert_eq!(reduced(&sum(DType::F8E5M2), &left, &right, true), expected, "{isa:?} e5m2");
    }
}

/// The order of operands does not matter for any bit, NaNs and zeros included.
#[test]
fn minimum_and_maximum_commute_and_associate_in_every_bit() {
    for dtype in DType::ALL.iter().copied().filter(|&dtype| is_float(dtype)) {
        let elements = specials(dtype);
        let (left, right) = all_pairs(&elements);
        for (isa, op) in
            Isa::available().into_iter().flat_map(|isa| [(isa, ReduceOp::Min), (isa, ReduceOp::Max)])
        {
            let reducer = Reducer::with_isa(isa, dtype, op, 3, None);
            let apply = |left: &[u8], right: &[u8]| reduced(&reducer, left, right, true);
            let pairs = apply(&left, &right);
            assert_eq!(pairs, apply(&right, &left), "{isa:?} {dtype} {op}");
            // Some of the 256 values suffice as the third operand.
            for third in elements.iter().step_by(elements.len().div_ceil(64)) {
                let third = third.repeat(pairs.len() / third.len());
                assert_eq!(
                    apply(&pairs, &third),
                    apply(&left, &apply(&right, &third)),
                    "{isa:?} {dtype} {op}"
                );
            }
        }
    }
}

#[test]
fn bool_bytes_are_truth_values() {
    let values = [Bool(0), Bool(1), Bool(2), Bool(255)].map(|value| vec![value.0]);
    let (left, right) = all_pairs(&values);
    for isa in Isa::available() {
        let reducer = Reducer::with_isa(isa, Bool::DTYPE, ReduceOp::BitAnd, 2, None);
        assert_eq!(
            reduced(&reducer, &left, &right, true),
            [0, 0, 0, 0, 0, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1],
            "2 & 1 is true, though it has no bit in common"
        );
    }
}

#[test]
fn every_f16_converts_as_half_does() {
    for bits in 0..=u16::MAX {
        let narrow = f16::from_bits(bits);
        let (found, expected) = (f16_to_f32(narrow), narrow.to_f32());
        assert!(found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan(), "{bits:#x}");
        assert!(f32_to_f16(found) == narrow || narrow.is_nan() && f32_to_f16(found).is_nan(), "{bits:#x}");
    }
    // Every upper part of an f32, with lower parts around which rounding changes, for normals and subnormals.
    for upper in 0..=u16::MAX {
        for shift in 0..=16 {
            for offset in [-1, 0, 1] {
                let lower = ((1i64 << shift) + offset) as u32 & 0xffff;
                let wide = f32::from_bits(u32::from(upper) << 16 | lower);
                let (found, expected) = (f32_to_f16(wide), f16::from_f32(wide));
                let same = found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan();
                assert!(same, "{:#x}: {found:?} instead of {expected:?}", wide.to_bits());
            }
        }
    }
}

#[test]
fn prescale_multiplies_in_f32_and_rounds_once() {
    let nan_with_payload = f64::from_bits(0x7fff_ffff_ffff_ffff);
    for dtype in DType::ALL.iter().copied().filter(|&dtype| ReduceOp::PreMulSum(0.0).accepts(dtype)) {
        let part = part(dtype);
        let single = |value: f64| if part == DType::F64 { value } else { f64::from(value as f32) };
        let mut input: Vec<u8> = specials(dtype).concat();
        input.extend(random_bytes(&mut SplitMix(0x5eed_0003), 4096 + 3 * dtype.bytes()));
        for factor in [1.0, -0.5, 1.0 / 3.0, 1e-30, 1e30, 0.0, f64::INFINITY, f64::NAN, nan_with_payload] {
            let expected: Vec<u8> = input
                .chunks(part.bytes())
                .flat_map(|element| float_bytes(part, float(part, element) * single(factor)))
                .collect();
            for isa in Isa::available() {
                let reducer = Reducer::with_isa(isa, dtype, ReduceOp::PreMulSum(factor), 3, None);
                assert!(reducer.needs_prescale());
                let mut found = input.clone();
                reducer.prescale(&mut found);
                assert_equal(dtype, &found, &expected, &|_| format!("{isa:?} {dtype} times {factor}"));
                let sum = Reducer::with_isa(isa, dtype, ReduceOp::Sum, 3, None);
                let (left, right) = (&found, &input);
                assert_eq!(reduced(&reducer, left, right, true), reduced(&sum, left, right, true));
            }
        }
    }
    assert!(!Reducer::new(DType::F32, ReduceOp::Sum, 3, None).needs_prescale());
}

/// Runs all instruction sets on the same data: a large buffer at an odd address, as in the engine.
#[test]
fn every_instruction_set_gives_the_same_bytes() {
    let mut random = SplitMix(0x5eed_0004);
    let (left, right) = (random_bytes(&mut random, (1 << 16) + 1), random_bytes(&mut random, (1 << 16) + 1));
    for (dtype, op, completes) in built_in() {
        let mut results = Isa::available().into_iter().map(|isa| {
            let mut destination = left.clone();
            let reducer = Reducer::with_isa(isa, dtype, op, 5, None);
            reducer
                .reduce(&mut destination[1..], None, PeerBytes::Own(&right[1..]), true, completes)
                .unwrap();
            destination[1..].to_vec()
        });
        let first = results.next().unwrap();
        for other in results {
            assert_equal(dtype, &other, &first, &|_| format!("{dtype} {op} {completes}"));
        }
    }
    let bf16_max = bytes(&[bf16::MAX]);
    let best = Reducer::new(DType::BF16, ReduceOp::Sum, 2, None);
    assert_eq!(reduced(&best, &bf16_max, &bf16_max, true), bytes(&[bf16::INFINITY]));
}
