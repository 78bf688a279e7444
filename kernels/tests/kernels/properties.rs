//! The promises of the encoders, beyond being the same everywhere. All hold for the definition and for the fastest
//! body.

use proptest::prelude::*;
use unisono_kernels::testing::{Mix, Random, bits_of, definition, formats, residual, values};
use unisono_kernels::{
    Counter, IntFormat, IntPart, IntPartMut, IntWidth, Kernels, Residual, Rounding, SignPart, SignPartMut,
    Threads, sign_words,
};

const BLOCK: usize = 256;

fn both() -> [Kernels; 2] {
    [definition(), Kernels::best()]
}

/// Scales, words and residuals of `input`.
fn sign_encode(kernels: Kernels, input: &[f32]) -> (Vec<f32>, Vec<u32>, Vec<f32>) {
    let (old, mut new) = (vec![0.0; input.len()], vec![0.0; input.len()]);
    let (mut scales, mut bits) = (vec![0.0; input.len().div_ceil(BLOCK)], vec![0; sign_words(input.len())]);
    let output = SignPartMut { scales: &mut scales, bits: &mut bits };
    assert_eq!(kernels.sign_encode(input, Some(Residual { old: &old, new: &mut new }), BLOCK, output), None);
    (scales, bits, new)
}

/// Scales, codes and their values.
fn int_encode(
    kernels: Kernels,
    input: &[f32],
    format: IntFormat,
    rounding: Rounding,
) -> (Vec<f32>, Vec<u8>, Vec<f32>) {
    let mut scales = vec![0.0; format.scales(input.len())];
    let mut codes = vec![0; format.width.code_bytes(input.len())];
    let output = IntPartMut { scales: &mut scales, codes: &mut codes };
    assert_eq!(kernels.int_encode(input, None, format, rounding, output), None);
    let mut values = vec![0.0; input.len()];
    kernels.int_expand(IntPart { scales: &scales, codes: &codes }, format, 1.0, &mut values);
    (scales, codes, values)
}

/// Rows: G4
#[test]
fn bits_are_lowest_first() {
    // Signs of DeepSpeed's example: 11111001 11110000 in the order of elements.
    let signs = [1, 1, 1, 1, 1, 0, 0, 1, 1, 1, 1, 1, 0, 0, 0, 0];
    let input: Vec<f32> = signs.iter().map(|plus| if *plus == 1 { 1.0 } else { -1.0 }).collect();
    for kernels in both() {
        let (scales, bits, new) = sign_encode(kernels, &input);
        assert_eq!((scales, bits[0].to_le_bytes(), new), (vec![1.0], [159, 15, 0, 0], vec![0.0; 16]));
    }
}

#[test]
fn a_bit_is_clear_only_for_negative_normal_numbers() {
    let input = [0.0, -0.0, 1e-45, -1e-45, -1e-39, f32::MIN_POSITIVE, -f32::MIN_POSITIVE, -1.0];
    for kernels in both() {
        assert_eq!(sign_encode(kernels, &input).1, [0b0011_1111]);
    }
}

/// Rows: H2
#[test]
fn int_codes_stand_in_order() {
    let input = [7.0, -7.0, 0.0, 1.0, -1.0];
    for kernels in both() {
        let four = IntFormat { width: IntWidth::Four, block: 64, symmetric: true };
        assert_eq!(int_encode(kernels, &input, four, Rounding::Nearest).1, [0x97, 0x10, 0x0f]);
        let eight = IntFormat { width: IntWidth::Eight, block: 64, symmetric: true };
        assert_eq!(int_encode(kernels, &input, eight, Rounding::Nearest).1, [127, 129, 0, 18, 238]);
        let four = IntFormat { width: IntWidth::Four, block: 64, symmetric: false };
        assert_eq!(int_encode(kernels, &input, four, Rounding::Nearest).1, [0x0f, 0x97, 0x06]);
        let eight = IntFormat { width: IntWidth::Eight, block: 64, symmetric: false };
        assert_eq!(
            int_encode(kernels, &[255.0, 0.0, 3.0, 128.0], eight, Rounding::Nearest).1,
            [255, 0, 3, 128]
        );
    }
}

#[test]
fn blocks_of_zeros_stay_zero() {
    for kernels in both() {
        for zero in [0.0, -0.0, 1e-42] {
            let input = vec![zero; 300];
            let (scales, _, new) = sign_encode(kernels, &input);
            assert_eq!((bits_of(&scales), bits_of(&new)), (vec![0; 2], vec![0; 300]));
            for format in formats(BLOCK) {
                let (scales, codes, values) = int_encode(kernels, &input, format, Rounding::Nearest);
                assert!(scales.iter().all(|scale| scale.to_bits() == 0), "{scales:?}");
                assert!(codes.iter().all(|code| *code == 0) && values.iter().all(|value| *value == 0.0));
            }
        }
    }
}

#[test]
fn the_largest_number_of_a_block_gets_the_largest_code() {
    let mut random = Random::new(7);
    for round in 0..400 {
        let size = (random.below(200) as f32 - 100.0).exp2();
        let mut input: Vec<f32> = (0..64).map(|_| random.unit() * size).collect();
        input[random.below(64)] = size * (1.0 + random.unit().abs());
        let counter = Counter { key: random.bits(), first: 0 };
        for rounding in [Rounding::Nearest, Rounding::Stochastic(counter)] {
            for format in formats(64) {
                for kernels in both() {
                    let (scales, _, values) = int_encode(kernels, &input, format, rounding);
                    assert!(format.is_scale(scales[0]), "round {round}: {scales:?}");
                    // A code that left its range would come back with the other sign, or as zero.
                    for (value, input) in values.iter().zip(&input) {
                        assert!(
                            (value - input).abs() <= scales[0] * 1.01,
                            "round {round}, {format:?}: {value} {input}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn stochastic_rounding_is_unbiased() {
    let format = IntFormat { width: IntWidth::Four, block: 64, symmetric: true };
    // In each block the first element makes the scale; the others lie between two codes.
    let count = 1 << 18;
    for fraction in [0.1, 0.25, 0.5, 0.9] {
        let input: Vec<f32> =
            (0..count).map(|index| if index % 64 == 0 { 7.0 } else { 2.0 + fraction }).collect();
        for (key, first) in [(1, 0), (2, 1), (0x1234_5678_9abc, u64::MAX - 99)] {
            let rounding = Rounding::Stochastic(Counter { key, first });
            let (scales, _, values) = int_encode(Kernels::best(), &input, format, rounding);
            let others =
                values.iter().enumerate().filter(|(index, _)| index % 64 != 0).map(|(_, value)| value);
            let ups: Vec<bool> = others.map(|value| value / scales[0] > 2.5).collect();
            let expected = f64::from(2.0 + fraction) / f64::from(scales[0]) - 2.0;
            let found = ups.iter().filter(|up| **up).count() as f64 / ups.len() as f64;
            let deviation = (expected * (1.0 - expected) / ups.len() as f64).sqrt();
            assert!(
                (found - expected).abs() < 5.0 * deviation,
                "key {key}, first {first}: {found}, not {expected}"
            );
            // Neighbours, who share a word, are independent.
            let both =
                ups.windows(2).filter(|pair| pair[0] && pair[1]).count() as f64 / (ups.len() - 1) as f64;
            let deviation = (expected * expected / ups.len() as f64).sqrt();
            assert!((both - expected * expected).abs() < 6.0 * deviation, "key {key}, first {first}: {both}");
        }
    }
}

#[test]
fn pieces_have_the_random_bits_of_the_whole() {
    let input = values(&mut Random::new(8), Mix::Usual, 1001);
    let format = IntFormat { width: IntWidth::Eight, block: 64, symmetric: true };
    let counter = Counter { key: 5, first: 3 };
    let (_, whole, _) = int_encode(Kernels::best(), &input, format, Rounding::Stochastic(counter));
    let later = Counter { first: counter.first + 640, ..counter };
    let (_, piece, _) = int_encode(Kernels::best(), &input[640..], format, Rounding::Stochastic(later));
    assert_eq!(whole[640..], piece);
}

#[test]
fn any_number_of_threads_leaves_the_same() {
    let mut random = Random::new(9);
    let count = (1 << 20) + 777;
    let (input, old) = (values(&mut random, Mix::Finite, count), residual(&mut random, Mix::Finite, count));
    let format = IntFormat { width: IntWidth::Four, block: BLOCK, symmetric: true };
    let rounding = Rounding::Stochastic(Counter { key: 1, first: 5 });
    let run = |kernels: Kernels| {
        let (mut new, mut bits) = (vec![0.0; count], vec![0; sign_words(count)]);
        let scale = kernels.sign_encode_global(&input, Residual { old: &old, new: &mut new }, &mut bits);
        let (scales, words, left) = sign_encode(kernels, &input);
        let part = SignPart { scales: &scales, bits: &words };
        let (mut sums, mut sum_bits) = (vec![0.0; scales.len()], vec![0; words.len()]);
        let output = SignPartMut { scales: &mut sums, bits: &mut sum_bits };
        assert_eq!(kernels.sign_reduce_encode(&[part; 3], count, None, BLOCK, output), None);
        let mut expanded = vec![0.0; count];
        kernels.sign_expand(part, BLOCK, 0.3, &mut expanded);
        let (int_scales, codes, decoded) = int_encode(kernels, &input, format, rounding);
        let ints = IntPart { scales: &int_scales, codes: &codes };
        let mut decoded_sum = vec![0.0; count];
        kernels.int_decode_sum(&[ints; 3], format, 0.3, &mut decoded_sum);
        let (mut requantised, mut requantised_scales) = (vec![0; codes.len()], vec![0.0; int_scales.len()]);
        let output = IntPartMut { scales: &mut requantised_scales, codes: &mut requantised };
        assert_eq!(kernels.int_reduce_encode(&[ints; 3], count, None, format, rounding, output), None);
        let mut narrow = vec![0; count];
        let bad = kernels.bf16_encode(&input, &mut narrow);
        let mut wide = [vec![0.0; count], vec![0.0; count]];
        kernels.bf16_decode_sum(&[&narrow, &narrow], 0.3, &mut wide[0]);
        kernels.bf16_expand(&narrow, 0.3, &mut wide[1]);
        let floats =
            [new, left, sums, expanded, decoded, decoded_sum, requantised_scales, int_scales, scales];
        let floats = floats.iter().chain(&wide).flat_map(|floats| bits_of(floats)).collect::<Vec<_>>();
        (scale.map(f32::to_bits), floats, [bits, words, sum_bits], [codes, requantised], narrow, bad)
    };
    let expected = run(Kernels::best());
    for threads in 1..=8 {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool");
        let found = pool.install(|| run(Kernels::best().with_threads(Threads::Pool)));
        assert!(found == expected, "{threads} threads");
    }
}

#[test]
fn the_first_bad_block_is_named_for_any_number_of_threads() {
    let mut input = vec![1.0; 1 << 19];
    for index in [300_000, 400_000] {
        input[index] = f32::NAN;
    }
    let pool = rayon::ThreadPoolBuilder::new().num_threads(4).build().expect("a pool");
    for threads in [Threads::One, Threads::Pool] {
        let kernels = Kernels::best().with_threads(threads);
        let (mut scales, mut bits) = (vec![0.0; input.len() / BLOCK], vec![0; sign_words(input.len())]);
        let output = SignPartMut { scales: &mut scales, bits: &mut bits };
        let bad = pool.install(|| kernels.sign_encode(&input, None, BLOCK, output));
        assert_eq!(bad, Some(300_000 / BLOCK));
        let mut narrow = vec![0; input.len()];
        assert_eq!(pool.install(|| kernels.bf16_encode(&input, &mut narrow)), Some(300_000 / 1024));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn signs_contract(input in prop::collection::vec(-1e6f32..1e6, 1..600)) {
        for kernels in both() {
            let (_, _, new) = sign_encode(kernels, &input);
            for (input, new) in input.chunks(BLOCK).zip(new.chunks(BLOCK)) {
                let square = |values: &[f32]| values.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>();
                let bound = (1.0 - 1.0 / input.len() as f64) * square(input);
                prop_assert!(square(new) <= bound + 1e-6 * square(input), "{} > {bound}", square(new));
            }
        }
    }

    #[test]
    fn powers_of_two_scale_scales(
        input in prop::collection::vec(-1f32..1.0, 1..600),
        exponent in -100i32..100,
    ) {
        // A number may become subnormal by scaling: its code would differ.
        let input: Vec<f32> = input.iter().map(|value| if value.abs() < 1e-4 { 0.5 } else { *value }).collect();
        let factor = f32::from_bits(((exponent + 127) as u32) << 23);
        let scaled: Vec<f32> = input.iter().map(|value| value * factor).collect();
        let old = vec![0.0; input.len()];
        for kernels in both() {
            let (scales, bits, new) = sign_encode(kernels, &input);
            let times = |values: &[f32]| values.iter().map(|value| value * factor).collect::<Vec<f32>>();
            prop_assert_eq!(sign_encode(kernels, &scaled), (times(&scales), bits, times(&new)));
            let global = |input: &[f32]| {
                let (mut new, mut bits) = (vec![0.0; input.len()], vec![0; sign_words(input.len())]);
                let residual = Residual { old: &old, new: &mut new };
                (kernels.sign_encode_global(input, residual, &mut bits), bits)
            };
            let (scale, bits) = global(&input);
            prop_assert_eq!(global(&scaled), (scale.map(|scale| scale * factor), bits));
        }
    }

    #[test]
    fn integers_miss_by_half_a_step(input in prop::collection::vec(-1e3f32..1e3, 1..600)) {
        for kernels in both() {
            for format in formats(BLOCK) {
                let (scales, _, values) = int_encode(kernels, &input, format, Rounding::Nearest);
                for (index, (input, value)) in input.iter().zip(&values).enumerate() {
                    let scale = scales[index / BLOCK * format.scales_per_block()];
                    // Half a step, and the roundings of the reciprocal and the product.
                    let bound = 0.5 * scale + 2e-4 * scale;
                    prop_assert!((input - value).abs() <= bound, "{format:?}: {input} became {value}, step {scale}");
                }
            }
        }
    }
}
