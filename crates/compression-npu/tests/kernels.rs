//! Kernels on the test double's device: given the same scale, the bytes of the processor.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::sync::Arc;

use unisono_collectives::Solo;
use unisono_communicator::{Buffer, BufferMut, Error, Result};
use unisono_compression::{
    Bf16, Codec, CodecKernels, CompressionState, DeviceMemory, Feedback, HostKernels, Int4, Int8,
    KernelDevice, SignL1, SignRms, View, ViewMut,
};
use unisono_compression_npu::{HcclOptions, NpuKernels};
use unisono_kernels::testing::Random;
use unisono_kernels::{Kernels, sign_words};
use unisono_tests::doubles;

fn open() -> NpuKernels {
    NpuKernels::open(&HcclOptions { directory: Some(doubles::hccl_folder()), device: 0 }).unwrap()
}

fn host() -> HostKernels {
    HostKernels(Kernels::best())
}

/// Around bytes, words and a tile.
const LENGTHS: [usize; 12] = [0, 1, 7, 8, 9, 31, 32, 33, 1024, 1025, 1 << 20, (1 << 20) + 37];

fn numbers(random: &mut Random, count: usize) -> Vec<u32> {
    // Normal numbers of both signs and several magnitudes; some are zero.
    let number = |_| match random.below(16) {
        0 => 0.0f32,
        kind => (random.below(2001) as f32 - 1000.0) * 10f32.powi(kind as i32 % 5 - 2),
    };
    (0..count).map(number).map(|number| (number + 0.0).to_bits()).collect()
}

/// A part: a scale, and any bits.
fn part(random: &mut Random, elements: usize) -> Vec<u32> {
    let scale = [0.5f32, 1.0, 3.7, 1e-3, 0.0][random.below(5)];
    let mut part = vec![scale.to_bits(); usize::from(elements > 0)];
    part.extend((0..sign_words(elements)).map(|_| random.below(1 << 32) as u32));
    let last = part.len().wrapping_sub(1);
    if !elements.is_multiple_of(32) {
        part[last] &= (1 << (elements % 32)) - 1;
    }
    part
}

/// Memory with these words, which stand behind and before others.
fn put<D: KernelDevice>(device: &D, words: &[u32]) -> D::Memory {
    let mut memory = device.allocate(words.len() + 2).unwrap();
    device.write(words, &mut memory, 1).unwrap();
    memory
}

fn view<M: DeviceMemory>(memory: &M) -> View<'_> {
    memory.view(1..memory.words() - 1)
}

fn view_mut<M: DeviceMemory>(memory: &mut M) -> ViewMut<'_> {
    let words = memory.words();
    memory.view_mut(1..words - 1)
}

/// All words, of which the first and the last are nobody's.
fn take<D: KernelDevice>(device: &D, memory: &D::Memory) -> Vec<u32> {
    let mut words = vec![0; memory.words()];
    device.read(memory, 0, &mut words).unwrap();
    assert_eq!((words[0], words[words.len() - 1]), (0, 0), "beside the output");
    words
}

/// A kernel on words: its result, and the words that it writes.
type Run = fn(&dyn CodecKernels, &[Buffer<'_>], [BufferMut<'_>; 2]) -> Result<f64>;

/// Runs it on inputs and on two outputs that begin with these words.
fn run<D: KernelDevice>(
    device: &D,
    inputs: &[Vec<u32>],
    outputs: [&[u32]; 2],
    kernel: Run,
) -> (f64, [Vec<u32>; 2]) {
    let inputs: Vec<_> = inputs.iter().map(|words| put(device, words)).collect();
    let mut written = outputs.map(|words| put(device, words));
    let views: Vec<_> = inputs.iter().map(view).collect();
    let buffers: Vec<_> = views.iter().map(View::buffer).collect();
    let [first, second] = &mut written;
    let (mut first, mut second) = (view_mut(first), view_mut(second));
    let given = kernel(device, &buffers, [first.buffer(), second.buffer()]).unwrap();
    (given, written.each_ref().map(|memory| take(device, memory)))
}

/// The same on the device and on the processor.
fn check(what: &str, inputs: &[Vec<u32>], outputs: [&[u32]; 2], kernel: Run) {
    let (found, words) = run(&open(), inputs, outputs, kernel);
    let (expected, expected_words) = run(&host(), inputs, outputs, kernel);
    let is_near = found == expected || ((found - expected) / expected).abs() < 1e-6;
    assert!(is_near, "{what}: {found}, not {expected}");
    for (words, expected) in words.iter().zip(&expected_words) {
        let first = words.iter().zip(expected).position(|(found, expected)| found != expected);
        assert!(words == expected, "{what}: first at {first:?} of {}", words.len());
    }
}

const SCALE: f32 = 2.5;

/// Longer than any part.
const BLOCK: usize = 1 << 30;

/// Rows: G13
#[test]
fn encoders_have_the_bytes_of_the_processor_given_the_scale() {
    let random = &mut Random::new(1);
    for elements in LENGTHS {
        let [input, old] = [(); 2].map(|()| numbers(random, elements));
        let zeros = vec![0; elements];
        check(
            &format!("compensate {elements}"),
            &[input.clone(), old],
            [&zeros, &[]],
            |kernels, inputs, [new, _]| {
                kernels.compensate(again(&inputs[0]), Feedback { old: again(&inputs[1]), new })
            },
        );
        let out = vec![0; 1 + sign_words(elements)];
        check(&format!("sign_pack {elements}"), &[], [&input, &out], |kernels, _, [values, out]| {
            kernels.sign_pack(values, SCALE, out).map(|()| 0.0)
        });
    }
}

/// The same memory, for another kernel.
fn again<'a>(buffer: &'a Buffer<'_>) -> Buffer<'a> {
    match buffer {
        Buffer::Host(segments) => Buffer::Host(segments.clone()),
        Buffer::Device(device) => Buffer::Device(device),
    }
}

#[test]
fn decoders_and_owners_have_the_bytes_of_the_processor() {
    let random = &mut Random::new(2);
    for elements in LENGTHS {
        // Fours of parts, and their rest.
        for ranks in if elements > 10_000 { 5..=5 } else { 1..=9 } {
            let parts: Vec<_> = (0..ranks).map(|_| part(random, elements)).collect();
            let what = format!("{elements} elements of {ranks} ranks");
            let zeros = vec![0; elements];
            check(&what, &parts, [&zeros, &[]], |kernels, parts, [out, _]| {
                kernels.sign_decode_sum(parts, BLOCK, 0.3, out).map(|()| 0.0)
            });
            check(&what, &parts[..1], [&zeros, &[]], |kernels, parts, [out, _]| {
                kernels.sign_expand(again(&parts[0]), BLOCK, 0.3, out).map(|()| 0.0)
            });
            // A share without elements has no owner.
            if elements > 0 {
                let inputs = [&parts[..], &[numbers(random, elements)]].concat();
                check(&what, &inputs, [&zeros, &[]], |kernels, inputs, [new, _]| {
                    let (old, parts) = inputs.split_last().unwrap();
                    kernels.sign_reduce_global(parts, Feedback { old: again(old), new })
                });
            }
            let vectors: Vec<_> = (0..ranks).map(|_| numbers(random, elements)).collect();
            check(&what, &vectors, [&zeros, &[]], |kernels, parts, [out, _]| {
                kernels.sum(parts, out).map(|()| 0.0)
            });
        }
    }
}

/// Squares that f32 does not hold: they vanish, or are infinite.
#[test]
fn norms_beyond_f32_are_taken_again() {
    for magnitude in [1e-37f32, 1e-25, 1e-12, 1.0, 1e18, 1e25, 3e38] {
        let input = vec![magnitude.to_bits(); 1025];
        let zeros = vec![0; 1025];
        check(
            &format!("{magnitude}"),
            &[input, zeros.clone()],
            [&zeros, &[]],
            |kernels, inputs, [new, _]| {
                kernels.compensate(again(&inputs[0]), Feedback { old: again(&inputs[1]), new })
            },
        );
    }
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let device = open();
        let mut words = vec![1f32.to_bits(); 100];
        words[77] = bad.to_bits();
        let (squares, _) =
            run(&device, &[words.clone(), vec![0; 100]], [&[0; 100], &[]], |kernels, inputs, [new, _]| {
                kernels.compensate(again(&inputs[0]), Feedback { old: again(&inputs[1]), new })
            });
        assert!(!squares.is_finite(), "{bad}");
        let mut memory = put(&device, &words);
        assert_eq!(device.worst_element(view_mut(&mut memory).buffer()).unwrap(), 77);
    }
}

#[test]
fn other_codecs_are_refused_before_a_state_is_made() {
    let (comm, device) = (Solo::new(), open());
    let codecs: [Arc<dyn Codec>; 4] =
        [Arc::new(SignL1::default()), Arc::new(Int8::default()), Arc::new(Int4::default()), Arc::new(Bf16)];
    for codec in codecs {
        let error = CompressionState::on(&comm, device.clone(), codec.clone(), 100).unwrap_err();
        let Error::Unsupported { what, instead: Some(instead), .. } = &error else { panic!("{error}") };
        assert!(*what == format!("the codec {}", codec.name()) && instead.contains("sign-rms"), "{error}");
    }
    drop(CompressionState::on(&comm, device, Arc::new(SignRms::default()), 100).unwrap());
}

#[test]
fn memory_that_kernels_do_not_reach_is_refused() {
    let device = open();
    let (part, mut out) = (put(&device, &[0; 3]), put(&device, &[0; 40]));
    let on_host = [0u32; 3];
    let expand = |part: Buffer<'_>, out: &mut ViewMut<'_>, block| {
        device.sign_expand(part, block, 1.0, out.buffer()).unwrap_err()
    };
    let error = expand(Buffer::of(&on_host), &mut view_mut(&mut out), 64);
    assert!(matches!(&error, Error::Unsupported { what, .. } if what == "host memory as part"), "{error}");
    let error = expand(view(&part).buffer(), &mut view_mut(&mut out), 32);
    assert!(error.to_string().contains("a scale for each block"), "{error}");
    let error = expand(part.view(1..3).buffer(), &mut view_mut(&mut out), 64);
    assert!(matches!(&error, Error::InvalidArgument { argument: "part", .. }), "{error}");
    let other =
        NpuKernels::open(&HcclOptions { directory: Some(doubles::hccl_folder()), device: 1 }).unwrap();
    let elsewhere = put(&other, &[0; 3]);
    let error = expand(view(&elsewhere).buffer(), &mut view_mut(&mut out), 64);
    assert!(matches!(&error, Error::InvalidArgument { argument: "part", .. }), "{error}");
}
