//! Every kernel on a device gives the words of the definition: every length up to 200 and longer ones, numbers of all
//! kinds, parts at any word of their memory.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use unisono_communicator::{Buffer, BufferMut};
use unisono_compression::{
    CodecKernels, DeviceMemory, Feedback, HostKernels, KernelDevice, Shared, View, ViewMut,
};
use unisono_compression_wgpu::{WgpuKernels, WgpuMemory};
use unisono_kernels::testing::{
    BLOCKS, MIXES, Mix, PARTS_MAX, Random, SentInts, SentSigns, WEIGHTS, bits_of, definition, formats,
    lengths, magnitudes, narrow, residual, roundings, values,
};
use unisono_kernels::{CodeSize, SHIFT_MAX, sign_words};

/// One word of memory that no kernel may touch, and what inputs and outputs hold before a call.
const GUARD: u32 = 0x5a5a_5a5a;
const STALE: u32 = 7;

/// What a kernel reads, and the words that it writes.
struct Case {
    about: String,
    inputs: Vec<Vec<u32>>,
    outputs: Vec<Vec<u32>>,
}

impl Case {
    fn new(about: &str, inputs: &[&[Vec<u32>]], output_words: &[usize]) -> Case {
        let outputs = output_words.iter().map(|words| vec![STALE; *words]).collect();
        Case { about: about.to_owned(), inputs: inputs.concat(), outputs }
    }

    /// Runs it on the host and on the device. Of outputs that are worthless only that they are is compared.
    fn check<R: PartialEq + std::fmt::Debug>(
        &self,
        device: &WgpuKernels,
        run: impl Fn(&dyn CodecKernels, Vec<Buffer<'_>>, Vec<BufferMut<'_>>) -> R,
        is_worthless: impl Fn(&R) -> bool,
    ) {
        let about = &self.about;
        let mut expected = self.outputs.clone();
        let inputs = self.inputs.iter().map(|words| Buffer::of(words)).collect();
        let outputs = expected.iter_mut().map(|words| BufferMut::of(words)).collect();
        let result = run(&HostKernels(definition()), inputs, outputs);

        let (memory, places) = together(device, &self.inputs);
        let mut written: Vec<WgpuMemory> =
            self.outputs.iter().map(|words| together(device, std::slice::from_ref(words)).0).collect();
        let views: Vec<View<'_>> = places.into_iter().map(|place| memory.view(place)).collect();
        let mut views_mut: Vec<ViewMut<'_>> = Vec::new();
        for (memory, words) in written.iter_mut().zip(&self.outputs) {
            views_mut.push(memory.view_mut(1..1 + words.len()));
        }
        let buffers = views.iter().map(View::buffer).collect();
        let found = run(device, buffers, views_mut.iter_mut().map(ViewMut::buffer).collect());
        assert_eq!(found, result, "{about}");
        if is_worthless(&result) {
            return;
        }
        for (number, (memory, expected)) in written.iter().zip(&expected).enumerate() {
            let mut found = vec![0; memory.words()];
            device.read(memory, 0, &mut found).unwrap();
            let guarded = [&[GUARD], &expected[..], &[GUARD]].concat();
            let differs = |word: &usize| {
                bits_of(&[f32::from_bits(found[*word])]) != bits_of(&[f32::from_bits(guarded[*word])])
            };
            if let Some(word) = (0..guarded.len()).find(differs) {
                let (found, expected) = (found[word], guarded[word]);
                panic!("{about}: output {number}, word {word}: {found:#x} instead of {expected:#x}");
            }
        }
    }
}

/// Memory with all of these, and where each lies.
fn together(device: &WgpuKernels, parts: &[Vec<u32>]) -> (WgpuMemory, Vec<std::ops::Range<usize>>) {
    let (mut words, mut places) = (vec![GUARD], Vec::new());
    for part in parts {
        places.push(words.len()..words.len() + part.len());
        words.extend(part);
        words.push(GUARD);
    }
    (device.to_read(words).unwrap(), places)
}

/// Once for each short length and some longer ones, with the mixes in turn.
fn for_all(seed: u64, check: impl Fn(&WgpuKernels, &mut Random, Mix, usize)) {
    let Some(device) = support::device() else { return };
    let mut random = Random::new(seed);
    for (number, count) in lengths(&mut random).into_iter().enumerate() {
        check(device, &mut random, MIXES[number % MIXES.len()], count);
    }
}

/// What an encoder is called with.
struct Encoder<'a, 'b> {
    kernels: &'a dyn CodecKernels,
    inputs: Vec<Buffer<'b>>,
    feedback: Option<Feedback<'b>>,
    out: BufferMut<'b>,
}

/// Checks an encoder with and without a residual, which is its last input, as the new one is its last output.
fn check_encoder<R: PartialEq + std::fmt::Debug>(
    device: &WgpuKernels,
    about: &str,
    inputs: &[Vec<u32>],
    old: &[u32],
    out_words: usize,
    run: impl Fn(Encoder<'_, '_>) -> R,
    is_worthless: impl Fn(&R) -> bool,
) {
    for has_feedback in [false, true] {
        let about = format!("{about}, residual {has_feedback}");
        let residual = [old.to_vec()];
        let words = [out_words, old.len()];
        let case = Case::new(&about, &[inputs, &residual], &words[..1 + usize::from(has_feedback)]);
        let call =
            |kernels: &dyn CodecKernels, mut inputs: Vec<Buffer<'_>>, mut outputs: Vec<BufferMut<'_>>| {
                let (old, new) = (inputs.pop().unwrap(), has_feedback.then(|| outputs.pop().unwrap()));
                let feedback = new.map(|new| Feedback { old, new });
                run(Encoder { kernels, inputs, feedback, out: outputs.pop().unwrap() })
            };
        case.check(device, call, &is_worthless);
    }
}

/// Checks what writes a vector.
fn check_decoder(
    device: &WgpuKernels,
    about: &str,
    inputs: &[Vec<u32>],
    count: usize,
    run: impl Fn(&dyn CodecKernels, Vec<Buffer<'_>>, BufferMut<'_>),
) {
    let call = |kernels: &dyn CodecKernels, inputs: Vec<Buffer<'_>>, mut outputs: Vec<BufferMut<'_>>| {
        run(kernels, inputs, outputs.pop().unwrap());
    };
    Case::new(about, &[inputs], &[count]).check(device, call, |()| false);
}

fn words(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

fn sent_signs(random: &mut Random, mix: Mix, count: usize, block: usize) -> Vec<Vec<u32>> {
    let ranks = 1 + random.below(PARTS_MAX);
    let sent = |_| {
        let SentSigns { scales, bits } = SentSigns::new(random, mix, count, block);
        [words(&scales), bits].concat()
    };
    (0..ranks).map(sent).collect()
}

#[test]
fn signs_are_the_same() {
    for_all(1, |device, random, mix, count| {
        let block = random.one_of(&BLOCKS);
        let about = format!("{count} {mix:?}, block {block}");
        let (input, old) = (words(&values(random, mix, count)), words(&residual(random, mix, count)));
        let out_words = count.div_ceil(block) + sign_words(count);
        check_encoder(
            device,
            &about,
            &[input],
            &old,
            out_words,
            |mut call| {
                call.kernels.sign_encode(call.inputs.pop().unwrap(), call.feedback, block, call.out).unwrap()
            },
            Option::is_some,
        );
        let sent = sent_signs(random, mix, count, block);
        let about = format!("{about}, {} parts", sent.len());
        check_encoder(
            device,
            &about,
            &sent,
            &old,
            out_words,
            |call| {
                call.kernels.sign_reduce_encode(&call.inputs, count, call.feedback, block, call.out).unwrap()
            },
            Option::is_some,
        );
        let weight = random.one_of(&WEIGHTS);
        let about = format!("{about}, weight {weight}");
        check_decoder(device, &about, &sent, count, |kernels, parts, out| {
            kernels.sign_decode_sum(&parts, block, weight, out).unwrap();
        });
        check_decoder(device, &about, &sent[..1], count, |kernels, mut parts, out| {
            kernels.sign_expand(parts.pop().unwrap(), block, weight, out).unwrap();
        });
    });
}

/// The sum of squares, if the numbers are of any worth.
fn finite(squares: f64) -> Option<u64> {
    squares.is_finite().then(|| squares.to_bits())
}

#[test]
fn signs_with_one_scale_are_the_same() {
    for_all(2, |device, random, mix, count| {
        let about = format!("{count} {mix:?}");
        let (input, old) = (words(&values(random, mix, count)), words(&residual(random, mix, count)));
        let sent: Vec<Vec<u32>> = sent_signs(random, mix, count.max(1), 1 << 20)
            .into_iter()
            .map(|part| part[..1 + sign_words(count)].to_vec())
            .collect();
        let case = Case::new(&about, &[&[input], std::slice::from_ref(&old)], &[count]);
        case.check(
            device,
            |kernels, mut inputs, mut outputs| {
                let feedback = Feedback { old: inputs.pop().unwrap(), new: outputs.pop().unwrap() };
                finite(kernels.compensate(inputs.pop().unwrap(), feedback).unwrap())
            },
            Option::is_none,
        );
        let about = format!("{about}, {} parts", sent.len());
        let case = Case::new(&about, &[&sent, std::slice::from_ref(&old)], &[count]);
        case.check(
            device,
            |kernels, mut inputs, mut outputs| {
                let feedback = Feedback { old: inputs.pop().unwrap(), new: outputs.pop().unwrap() };
                finite(kernels.sign_reduce_global(&inputs, feedback).unwrap())
            },
            Option::is_none,
        );
        let mut case = Case::new(&about, &[], &[count, 1 + sign_words(count)]);
        case.outputs[0] = old;
        case.check(
            device,
            |kernels, _, mut outputs| {
                let out = outputs.pop().unwrap();
                kernels.sign_pack(outputs.pop().unwrap(), 0.75, out).unwrap();
            },
            |()| false,
        );
    });
}

fn sent_integers(
    random: &mut Random,
    mix: Mix,
    count: usize,
    format: unisono_kernels::IntFormat,
) -> Vec<Vec<u32>> {
    let ranks = 1 + random.below(PARTS_MAX);
    let sent = |_| {
        let SentInts { scales, mut codes } = SentInts::new(random, mix, count, format);
        codes.resize(codes.len().next_multiple_of(4), 0);
        let codes =
            codes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
        words(&scales).into_iter().chain(codes).collect()
    };
    (0..ranks).map(sent).collect()
}

#[test]
fn integers_are_the_same() {
    for_all(3, |device, random, mix, count| {
        let (input, old) = (words(&values(random, mix, count)), words(&residual(random, mix, count)));
        for format in formats(random.one_of(&BLOCKS)) {
            let out_words = format.scales(count) + format.width.code_bytes(count).div_ceil(4);
            let (sent, weight) = (sent_integers(random, mix, count, format), random.one_of(&WEIGHTS));
            for rounding in roundings(random) {
                let about = format!("{count} {mix:?}, {format:?}, {rounding:?}");
                check_encoder(
                    device,
                    &about,
                    std::slice::from_ref(&input),
                    &old,
                    out_words,
                    |mut call| {
                        let input = call.inputs.pop().unwrap();
                        call.kernels.int_encode(input, call.feedback, format, rounding, call.out).unwrap()
                    },
                    Option::is_some,
                );
                check_encoder(
                    device,
                    &about,
                    &sent,
                    &old,
                    out_words,
                    |call| {
                        let (parts, out) = (&call.inputs, call.out);
                        call.kernels
                            .int_reduce_encode(parts, count, call.feedback, format, rounding, out)
                            .unwrap()
                    },
                    Option::is_some,
                );
            }
            let about = format!("{} parts of {count} {mix:?}, {format:?}, weight {weight}", sent.len());
            check_decoder(device, &about, &sent, count, |kernels, parts, out| {
                kernels.int_decode_sum(&parts, format, weight, out).unwrap();
            });
            check_decoder(device, &about, &sent[..1], count, |kernels, mut parts, out| {
                kernels.int_expand(parts.pop().unwrap(), format, weight, out).unwrap();
            });
        }
    });
}

#[test]
fn integers_by_shared_scales_are_the_same() {
    for_all(4, |device, random, mix, count| {
        let (input, old) = (values(random, mix, count), residual(random, mix, count));
        for format in formats(random.one_of(&BLOCKS)).into_iter().filter(|format| format.symmetric) {
            let about = format!("{count} {mix:?}, {format:?}");
            let inputs = [words(&input), words(&old)];
            for has_old in [false, true] {
                check_decoder(device, &about, &inputs, format.scales(count), |kernels, mut inputs, out| {
                    let old = inputs.pop().filter(|_| has_old);
                    kernels.int_magnitudes(inputs.pop().unwrap(), old, format.block, out).unwrap();
                });
            }
            let Some(magnitudes) = magnitudes(random, &input, Some(&old), format) else { continue };
            let inputs = [words(&input), magnitudes.clone()];
            for size in CodeSize::ALL {
                let (rounding, weight) = (random.clone().one_of(&roundings(random)), random.one_of(&WEIGHTS));
                let about = format!("{about}, {size:?}, {rounding:?}, weight {weight}");
                let code_words = (count * size.bytes()).div_ceil(4);
                check_encoder(
                    device,
                    &about,
                    &inputs,
                    &words(&old),
                    code_words,
                    |mut call| {
                        let shared = Shared { format, size, magnitudes: call.inputs.pop().unwrap() };
                        let input = call.inputs.pop().unwrap();
                        // Without its residual an input may exceed the magnitudes that were found with it.
                        let Some(feedback) = call.feedback else { return };
                        call.kernels
                            .int_encode_shared(input, Some(feedback), rounding, shared, call.out)
                            .unwrap();
                    },
                    |()| false,
                );
                let shift = if size == CodeSize::Four { 8 } else { 0 };
                let codes =
                    (0..code_words).map(|_| (random.bits() as i32 >> shift).cast_unsigned()).collect();
                check_decoder(
                    device,
                    &about,
                    &[codes, magnitudes.clone()],
                    count,
                    |kernels, mut inputs, out| {
                        let shared = Shared { format, size, magnitudes: inputs.pop().unwrap() };
                        kernels.int_expand_shared(inputs.pop().unwrap(), shared, weight, out).unwrap();
                    },
                );
            }
        }
    });
}

#[test]
fn bf16_is_the_same() {
    for_all(5, |device, random, mix, count| {
        let input = words(&values(random, mix, count));
        let ranks = 1 + random.below(PARTS_MAX);
        let narrow = |_| {
            let narrow = narrow(random, count.next_multiple_of(2));
            narrow.chunks_exact(2).map(|two| u32::from(two[0]) | u32::from(two[1]) << 16).collect()
        };
        let sent: Vec<Vec<u32>> = (0..ranks).map(narrow).collect();
        let weight = random.one_of(&WEIGHTS);
        let about = format!("{} parts of {count} {mix:?}, weight {weight}", sent.len());
        let out_words = count.div_ceil(2);
        Case::new(&about, &[&[input]], &[out_words]).check(
            device,
            |kernels, mut inputs, mut outputs| {
                kernels.bf16_encode(inputs.pop().unwrap(), outputs.pop().unwrap()).unwrap()
            },
            Option::is_some,
        );
        Case::new(&about, &[&sent], &[out_words]).check(
            device,
            |kernels, inputs, mut outputs| {
                kernels.bf16_reduce_encode(&inputs, count, outputs.pop().unwrap()).unwrap()
            },
            Option::is_some,
        );
        check_decoder(device, &about, &sent, count, |kernels, parts, out| {
            kernels.bf16_decode_sum(&parts, weight, out).unwrap();
        });
        check_decoder(device, &about, &sent[..1], count, |kernels, mut parts, out| {
            kernels.bf16_expand(parts.pop().unwrap(), weight, out).unwrap();
        });
    });
}

#[test]
fn vectors_are_the_same() {
    for_all(6, |device, random, mix, count| {
        let about = format!("{count} {mix:?}");
        let ranks = 1 + random.below(PARTS_MAX);
        let vector = |_| words(&values(random, mix, count));
        let vectors: Vec<Vec<u32>> = (0..ranks).map(vector).collect();
        check_decoder(device, &about, &vectors, count, |kernels, parts, out| {
            kernels.sum(&parts, out).unwrap()
        });
        let shift = random.below(SHIFT_MAX as usize + 1) as u32;
        let about = format!("{about}, shift {shift}");
        let mut case = Case::new(&about, &[&[words(&residual(random, mix, count))]], &[count]);
        case.outputs[0] = words(&residual(random, mix, count));
        case.check(
            device,
            |kernels, mut inputs, mut outputs| {
                kernels.average(inputs.pop().unwrap(), shift, outputs.pop().unwrap()).unwrap();
            },
            |()| false,
        );
        let mut case = Case::new(&about, &[], &[count]);
        case.outputs[0] = vectors[0].clone();
        case.check(
            device,
            |kernels, _, mut outputs| kernels.worst_element(outputs.pop().unwrap()).unwrap(),
            |_| false,
        );
    });
}
