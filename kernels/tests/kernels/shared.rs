//! Integers by shared scales: every body gives the bytes of the definition, and sums of codes are codes of the sum.

use crate::equality::{for_all, same};
use unisono_kernels::testing::{
    BLOCKS, Mix, Random, WEIGHTS, bits_of, bodies, definition, formats, magnitudes, residual, roundings,
    values,
};
use unisono_kernels::{CodeSize, IntFormat, IntWidth, Kernels, Residual, Rounding, Threads};

/// Codes, and their errors.
fn encode(
    kernels: Kernels,
    input: &[f32],
    old: Option<&[f32]>,
    (format, rounding, size): (IntFormat, Rounding, CodeSize),
    magnitudes: &[u32],
) -> (Vec<u8>, Vec<u32>) {
    let mut new = vec![7.0; old.map_or(0, <[f32]>::len)];
    let mut codes = vec![7; input.len() * size.bytes()];
    let residual = old.map(|old| Residual { old, new: &mut new });
    kernels.int_encode_shared(input, residual, format, rounding, magnitudes, size, &mut codes);
    (codes, bits_of(&new))
}

fn symmetric_formats(block: usize) -> impl Iterator<Item = IntFormat> {
    formats(block).into_iter().filter(|format| format.symmetric)
}

#[test]
fn shared_integers_are_the_same() {
    for_all(8, |random, mix, count, bodies| {
        let (input, old) = (values(random, mix, count), residual(random, mix, count));
        for format in symmetric_formats(random.one_of(&BLOCKS)) {
            let old = random.one_of(&[None, Some(&old[..])]);
            let about = format!("{count} {mix:?} {format:?}, residual {}", old.is_some());
            same(bodies, &about, |kernels| {
                let mut magnitudes = vec![7; format.scales(count)];
                kernels.int_magnitudes(&input, old, format.block, &mut magnitudes);
                magnitudes
            });
            let Some(magnitudes) = magnitudes(random, &input, old, format) else { continue };
            for size in CodeSize::ALL {
                let how = (format, roundings(random)[random.below(2)], size);
                same(bodies, &format!("{about} {how:?}"), |kernels| {
                    encode(kernels, &input, old, how, &magnitudes)
                });
            }
        }
    });
}

/// Sums of ranks: any sums of codes.
fn sums(random: &mut Random, count: usize, size: CodeSize) -> Vec<u8> {
    let code = |random: &mut Random| {
        let bits = random.bits() as i32;
        match size {
            CodeSize::One | CodeSize::Two => bits,
            // Below 2^24.
            CodeSize::Four => bits >> 8 | 1,
        }
    };
    (0..count).flat_map(|_| code(random).to_le_bytes().into_iter().take(size.bytes())).collect()
}

#[test]
fn shared_sums_are_expanded_to_the_same() {
    for_all(9, |random, mix, count, bodies| {
        let input = values(random, mix, count);
        for format in symmetric_formats(random.one_of(&BLOCKS)) {
            let Some(magnitudes) = magnitudes(random, &input, None, format) else { continue };
            for size in CodeSize::ALL {
                let (codes, weight) = (sums(random, count, size), random.one_of(&WEIGHTS));
                let about = format!("{count} {mix:?} {format:?} {size:?}, weight {weight}");
                same(bodies, &about, |kernels| {
                    let mut output = vec![7.0; count];
                    kernels.int_expand_shared(&codes, size, format, &magnitudes, weight, &mut output);
                    bits_of(&output)
                });
            }
        }
    });
}

/// No element hides a NaN, an infinity or an overflow.
#[test]
fn magnitudes_show_what_is_not_finite() {
    let infinity = f32::INFINITY.to_bits();
    for kernels in bodies().into_iter().chain([definition()]) {
        for (value, old) in
            [(f32::NAN, 0.0), (-f32::NAN, 1.0), (f32::NEG_INFINITY, 0.0), (f32::MAX, f32::MAX)]
        {
            for at in [0, 63, 64, 100, 299] {
                let (mut input, mut residual) = (vec![1.0; 300], vec![0.0; 300]);
                (input[at], residual[at]) = (value, old);
                let mut magnitudes = [7; 5];
                kernels.int_magnitudes(&input, Some(&residual), 64, &mut magnitudes);
                let mut expected = [1f32.to_bits(); 5];
                expected[at / 64] = infinity;
                assert_eq!(magnitudes, expected, "{kernels:?}: {value} + {old} at {at}");
            }
        }
    }
}

/// By integers, so that neither the order of ranks nor their number makes a difference.
#[test]
fn sums_of_codes_miss_the_sum_by_half_a_step_for_each_rank() {
    let (mut random, count, ranks) = (Random::new(10), 1000, 8);
    let format = IntFormat { width: IntWidth::Four, block: 256, symmetric: true };
    let inputs: Vec<Vec<f32>> = (0..ranks).map(|_| values(&mut random, Mix::Usual, count)).collect();
    for kernels in [definition(), Kernels::best()] {
        let mut shared = vec![0; format.scales(count)];
        for input in &inputs {
            let mut own = vec![0; shared.len()];
            kernels.int_magnitudes(input, None, format.block, &mut own);
            shared.iter_mut().zip(own).for_each(|(shared, own)| *shared = own.max(*shared));
        }
        let mut sums = vec![0i16; count];
        for input in &inputs {
            let how = (format, Rounding::Nearest, CodeSize::Two);
            let (codes, _) = encode(kernels, input, None, how, &shared);
            for (sum, code) in sums.iter_mut().zip(codes.as_chunks().0) {
                let code = i16::from_le_bytes(*code);
                assert!((-7..=7).contains(&code), "{code}");
                *sum += code;
            }
        }
        let codes: Vec<u8> = sums.iter().flat_map(|sum| sum.to_le_bytes()).collect();
        let mut output = vec![0.0; count];
        kernels.int_expand_shared(&codes, CodeSize::Two, format, &shared, 1.0, &mut output);
        for (index, output) in output.iter().enumerate() {
            let exact: f32 = inputs.iter().map(|input| input[index]).sum();
            let scale = format.scale(f32::from_bits(shared[index / format.block])).expect("a scale");
            let bound = 0.5001 * scale * ranks as f32;
            assert!((output - exact).abs() <= bound, "element {index}: {output}, not {exact}, step {scale}");
        }
    }
}

#[test]
fn any_number_of_threads_leaves_the_same_codes() {
    let (mut random, count) = (Random::new(11), (1 << 20) + 777);
    let (input, old) = (values(&mut random, Mix::Finite, count), residual(&mut random, Mix::Finite, count));
    let format = IntFormat { width: IntWidth::Eight, block: 256, symmetric: true };
    let how = (format, roundings(&mut random)[1], CodeSize::Two);
    let run = |kernels: Kernels| {
        let mut magnitudes = vec![0; format.scales(count)];
        kernels.int_magnitudes(&input, Some(&old), format.block, &mut magnitudes);
        let (codes, mut new) = encode(kernels, &input, Some(&old), how, &magnitudes);
        let mut outputs = [vec![0.0; count], vec![0.0; count], old.clone()];
        kernels.int_expand_shared(&codes, CodeSize::Two, format, &magnitudes, 0.3, &mut outputs[0]);
        kernels.sum(&[&input, &old, &input], &mut outputs[1]);
        kernels.average(&input, 3, &mut outputs[2]);
        new.extend(outputs.iter().flat_map(|output| bits_of(output)));
        (magnitudes, codes, new)
    };
    let expected = run(Kernels::best());
    for threads in [2, 3, 7] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool");
        let found = pool.install(|| run(Kernels::best().with_threads(Threads::Pool)));
        assert!(found == expected, "{threads} threads");
    }
}
