//! Every body of every kernel gives the bytes of the definition.

use unisono_kernels::testing::{
    BLOCKS, MIXES, Mix, PARTS_MAX, Random, SentInts, SentSigns, WEIGHTS, bits_of, bodies, definition,
    formats, lengths, narrow, residual, roundings, values,
};
use unisono_kernels::{
    GlobalSignPart, IntFormat, IntPartMut, Kernels, Residual, Rounding, SHIFT_MAX, SignPartMut, sign_words,
};

/// The outputs of a call; of worthless outputs only the bad block.
#[derive(Debug, PartialEq)]
enum Left {
    Bad(usize),
    Good { scales: Vec<u32>, payload: Vec<u8>, new: Vec<u32> },
}

fn sign_encode(kernels: Kernels, input: &[f32], old: Option<&[f32]>, block: usize) -> Left {
    let mut new = vec![7.0; old.map_or(0, <[f32]>::len)];
    let (mut scales, mut bits) = (vec![7.0; input.len().div_ceil(block)], vec![7; sign_words(input.len())]);
    let output = SignPartMut { scales: &mut scales, bits: &mut bits };
    let bad = kernels.sign_encode(input, old.map(|old| Residual { old, new: &mut new }), block, output);
    left(bad, &scales, bits.iter().flat_map(|word| word.to_le_bytes()).collect(), &new)
}

fn left(bad: Option<usize>, scales: &[f32], payload: Vec<u8>, new: &[f32]) -> Left {
    bad.map_or_else(|| Left::Good { scales: bits_of(scales), payload, new: bits_of(new) }, Left::Bad)
}

/// For each short length and some longer ones, once with each mix, checks all bodies.
pub(crate) fn for_all(seed: u64, check: impl Fn(&mut Random, Mix, usize, &[Kernels])) {
    let mut random = Random::new(seed);
    let bodies = bodies();
    assert!(!bodies.is_empty());
    for count in lengths(&mut random) {
        for mix in MIXES {
            check(&mut random, mix, count, &bodies);
        }
    }
}

pub(crate) fn same<T: PartialEq + std::fmt::Debug>(
    bodies: &[Kernels],
    about: &str,
    run: impl Fn(Kernels) -> T,
) {
    let expected = run(definition());
    for body in bodies {
        let found = run(*body);
        assert!(found == expected, "{body:?}, {about}: {found:?} instead of {expected:?}");
    }
}

/// Rows: G13
#[test]
fn sign_encode_is_the_same() {
    for_all(1, |random, mix, count, bodies| {
        let (input, old) = (values(random, mix, count), residual(random, mix, count));
        let block = random.one_of(&BLOCKS);
        for old in [None, Some(&old[..])] {
            let about = format!("{count} {mix:?}, block {block}, residual {}", old.is_some());
            same(bodies, &about, |kernels| sign_encode(kernels, &input, old, block));
        }
    });
}

#[test]
fn sign_reduce_encode_and_expand_are_the_same() {
    for_all(2, |random, mix, count, bodies| {
        let block = random.one_of(&BLOCKS);
        let ranks = 1 + random.below(PARTS_MAX);
        let sent: Vec<SentSigns> = (0..ranks).map(|_| SentSigns::new(random, mix, count, block)).collect();
        let parts: Vec<_> = sent.iter().map(SentSigns::part).collect();
        let old = residual(random, mix, count);
        for old in [None, Some(&old[..])] {
            let about =
                format!("{ranks} parts of {count} {mix:?}, block {block}, residual {}", old.is_some());
            same(bodies, &about, |kernels| {
                let mut new = vec![7.0; old.map_or(0, <[f32]>::len)];
                let (mut scales, mut bits) = (vec![7.0; count.div_ceil(block)], vec![7; sign_words(count)]);
                let output = SignPartMut { scales: &mut scales, bits: &mut bits };
                let residual = old.map(|old| Residual { old, new: &mut new });
                let bad = kernels.sign_reduce_encode(&parts, count, residual, block, output);
                left(bad, &scales, bits.iter().flat_map(|word| word.to_le_bytes()).collect(), &new)
            });
        }
        let weight = random.one_of(&WEIGHTS);
        same(
            bodies,
            &format!("{ranks} parts of {count} {mix:?}, block {block}, weight {weight}"),
            |kernels| {
                let mut output = vec![7.0; count];
                kernels.sign_decode_sum(&parts, block, weight, &mut output);
                bits_of(&output)
            },
        );
        same(bodies, &format!("expand {count} {mix:?}, block {block}, weight {weight}"), |kernels| {
            let mut output = vec![7.0; count];
            kernels.sign_expand(parts[0], block, weight, &mut output);
            bits_of(&output)
        });
    });
}

#[test]
fn sign_encode_global_is_the_same() {
    for_all(3, |random, mix, count, bodies| {
        let (input, old) = (values(random, mix, count), residual(random, mix, count));
        same(bodies, &format!("{count} {mix:?}"), |kernels| {
            let (mut new, mut bits) = (vec![7.0; count], vec![7; sign_words(count)]);
            let scale = kernels.sign_encode_global(&input, Residual { old: &old, new: &mut new }, &mut bits);
            scale.map(|scale| (scale.to_bits(), bits_of(&new), bits))
        });
        let sent: Vec<SentSigns> = (0..1 + random.below(PARTS_MAX))
            .map(|_| SentSigns::new(random, mix, count.max(1), 1 << 20))
            .collect();
        let words = sign_words(count);
        let part = |one: &SentSigns| (one.scales[0], one.bits[..words].to_vec());
        let sent: Vec<_> = sent.iter().map(part).collect();
        let parts: Vec<_> = sent.iter().map(|(scale, bits)| GlobalSignPart { scale: *scale, bits }).collect();
        same(bodies, &format!("{} parts of {count} {mix:?}", parts.len()), |kernels| {
            let mut sum = vec![7.0; count];
            let squares = kernels.sign_reduce_global(&parts, &old, &mut sum);
            // Which NaN it is may differ.
            squares.is_finite().then(|| (squares.to_bits(), bits_of(&sum)))
        });
    });
}

fn int_encode(
    kernels: Kernels,
    input: &[f32],
    old: Option<&[f32]>,
    format: IntFormat,
    rounding: Rounding,
) -> Left {
    let mut new = vec![7.0; old.map_or(0, <[f32]>::len)];
    let mut scales = vec![7.0; format.scales(input.len())];
    let mut codes = vec![7; format.width.code_bytes(input.len())];
    let output = IntPartMut { scales: &mut scales, codes: &mut codes };
    let residual = old.map(|old| Residual { old, new: &mut new });
    let bad = kernels.int_encode(input, residual, format, rounding, output);
    left(bad, &scales, codes, &new)
}

/// Rows: G13, H2
#[test]
fn int_encode_is_the_same() {
    for_all(4, |random, mix, count, bodies| {
        let (input, old) = (values(random, mix, count), residual(random, mix, count));
        for format in formats(random.one_of(&BLOCKS)) {
            for rounding in roundings(random) {
                for old in [None, Some(&old[..])] {
                    let about =
                        format!("{count} {mix:?} {format:?} {rounding:?}, residual {}", old.is_some());
                    same(bodies, &about, |kernels| int_encode(kernels, &input, old, format, rounding));
                }
            }
        }
    });
}

#[test]
fn int_sums_are_the_same() {
    for_all(5, |random, mix, count, bodies| {
        for format in formats(random.one_of(&BLOCKS)) {
            let sent: Vec<SentInts> =
                (0..1 + random.below(PARTS_MAX)).map(|_| SentInts::new(random, mix, count, format)).collect();
            let parts: Vec<_> = sent.iter().map(SentInts::part).collect();
            let about = format!("{} parts of {count} {mix:?} {format:?}", parts.len());
            let weight = random.one_of(&WEIGHTS);
            same(bodies, &format!("{about}, weight {weight}"), |kernels| {
                let mut output = vec![7.0; count];
                kernels.int_decode_sum(&parts, format, weight, &mut output);
                bits_of(&output)
            });
            same(bodies, &format!("expand {count} {mix:?} {format:?}, weight {weight}"), |kernels| {
                let mut output = vec![7.0; count];
                kernels.int_expand(parts[0], format, weight, &mut output);
                bits_of(&output)
            });
            let old = residual(random, mix, count);
            let rounding = roundings(random)[random.below(2)];
            for old in [None, Some(&old[..])] {
                let about = format!("{about} {rounding:?}, residual {}", old.is_some());
                same(bodies, &about, |kernels| {
                    let mut new = vec![7.0; old.map_or(0, <[f32]>::len)];
                    let mut scales = vec![7.0; format.scales(count)];
                    let mut codes = vec![7; format.width.code_bytes(count)];
                    let output = IntPartMut { scales: &mut scales, codes: &mut codes };
                    let residual = old.map(|old| Residual { old, new: &mut new });
                    let bad = kernels.int_reduce_encode(&parts, count, residual, format, rounding, output);
                    left(bad, &scales, codes, &new)
                });
            }
        }
    });
}

#[test]
fn bf16_is_the_same() {
    for_all(6, |random, mix, count, bodies| {
        let input = values(random, mix, count);
        same(bodies, &format!("{count} {mix:?}"), |kernels| {
            let mut output = vec![7; count];
            let bad = kernels.bf16_encode(&input, &mut output);
            bad.map_or_else(|| Ok(output), Err)
        });
        let ranks = 1 + random.below(PARTS_MAX);
        let sent: Vec<_> = (0..ranks).map(|_| narrow(random, count)).collect();
        let parts: Vec<&[u16]> = sent.iter().map(Vec::as_slice).collect();
        let weight = random.one_of(&WEIGHTS);
        same(bodies, &format!("{ranks} parts of {count}, weight {weight}"), |kernels| {
            let mut output = vec![7.0; count];
            kernels.bf16_decode_sum(&parts, weight, &mut output);
            bits_of(&output)
        });
        same(bodies, &format!("expand {count}, weight {weight}"), |kernels| {
            let mut output = vec![7.0; count];
            kernels.bf16_expand(parts[0], weight, &mut output);
            bits_of(&output)
        });
    });
}

#[test]
fn sums_and_averages_are_the_same() {
    for_all(7, |random, mix, count, bodies| {
        let ranks = 1 + random.below(PARTS_MAX);
        let sent: Vec<_> = (0..ranks).map(|_| values(random, mix, count)).collect();
        let parts: Vec<&[f32]> = sent.iter().map(Vec::as_slice).collect();
        same(bodies, &format!("{ranks} parts of {count} {mix:?}"), |kernels| {
            let mut output = vec![7.0; count];
            kernels.sum(&parts, &mut output);
            bits_of(&output)
        });
        let (old, new) = (residual(random, mix, count), residual(random, mix, count));
        let shift = random.below(SHIFT_MAX as usize + 1) as u32;
        same(bodies, &format!("average of {count} {mix:?}, shift {shift}"), |kernels| {
            let mut new = new.clone();
            kernels.average(&old, shift, &mut new);
            bits_of(&new)
        });
    });
}
