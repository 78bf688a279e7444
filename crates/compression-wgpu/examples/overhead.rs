//! What a kernel costs on an adapter beside the processor: what the host does for a call, and how many elements a
//! second. Every output is compared with the processor's before it is timed.
//!
//! `cargo run --release -p unisono-compression-wgpu --example overhead [ADAPTER]`; without the name of an adapter, a GPU
//! is taken.

#![allow(clippy::print_stdout, reason = "a program")]

use std::time::{Duration, Instant};

use unisono_communicator::{Buffer, BufferMut, Error, Result};
use unisono_compression::{
    CodecKernels, DeviceMemory, Feedback, HostKernels, KernelDevice, Shared, View, ViewMut,
};
use unisono_compression_wgpu::{AdapterChoice, OpenOptions, WgpuKernels};
use unisono_kernels::testing::{Mix, Random, SentInts, SentSigns, residual, values};
use unisono_kernels::{CodeSize, IntFormat, IntWidth, Kernels, Rounding, Stores, sign_words};

/// Parts that are summed.
const RANKS: usize = 4;
const BLOCK: usize = 1024;
const INT8: IntFormat = IntFormat { width: IntWidth::Eight, block: 256, symmetric: true };
const INT4: IntFormat = IntFormat { width: IntWidth::Four, block: 256, symmetric: true };

/// The least that a row is measured.
const LEAST: Duration = Duration::from_millis(300);

/// A row: a kernel on buffers. Feedback is the last input and the last output.
struct Row {
    name: &'static str,
    inputs: Vec<Vec<u32>>,
    outputs: Vec<usize>,
    run: Run,
}

type Run = fn(&dyn CodecKernels, Arguments<'_>) -> Result<()>;

/// The buffers of a row that are not taken yet.
struct Arguments<'a> {
    inputs: Vec<Buffer<'a>>,
    outputs: Vec<BufferMut<'a>>,
}

impl<'a> Arguments<'a> {
    /// The last one.
    fn input(&mut self) -> Buffer<'a> {
        self.inputs.pop().unwrap_or(Buffer::empty())
    }

    /// The last one.
    fn output(&mut self) -> BufferMut<'a> {
        self.outputs.pop().unwrap_or(BufferMut::empty())
    }

    fn feedback(&mut self) -> Feedback<'a> {
        Feedback { old: self.input(), new: self.output() }
    }

    /// Integers by shared scales; the magnitudes are the last input.
    fn shared(&mut self) -> Shared<'a> {
        Shared { format: INT8, size: CodeSize::One, magnitudes: self.input() }
    }

    /// Elements of the last input, a vector.
    fn elements(&self) -> usize {
        self.inputs.last().map_or(0, Buffer::bytes) / 4
    }
}

fn main() -> Result<()> {
    let adapter = std::env::args().nth(1).map_or(AdapterChoice::Gpu, AdapterChoice::Named);
    let start = Instant::now();
    let kernels = WgpuKernels::open(&OpenOptions { adapter, limits: None })?;
    println!("{kernels:?}: opened, and all kernels compiled, in {:.0?}\n", start.elapsed());
    overhead(&kernels)?;
    let mi: usize = std::env::args().nth(2).and_then(|mi| mi.parse().ok()).unwrap_or(1);
    {
        let elements = mi << 20;
        println!("\n{} Mi elements, {RANKS} parts; million elements a second\n", elements >> 20);
        println!("| kernel | adapter | one core |\n| --- | --- | --- |");
        for row in rows(elements) {
            let (device, host) = row.measure(&kernels, elements)?;
            println!("| `{}` | {device:.0} | {host:.0} |", row.name);
        }
    }
    Ok(())
}

/// The host's time for a call that computes next to nothing.
fn overhead(kernels: &WgpuKernels) -> Result<()> {
    let (input, mut narrow) = (kernels.allocate(64)?, kernels.allocate(32)?);
    let mut output = kernels.allocate(64)?;
    let encode = |narrow: &mut <WgpuKernels as KernelDevice>::Memory| {
        let (input, mut out) = (input.view(0..64), narrow.view_mut(0..32));
        kernels.bf16_encode(input.buffer(), out.buffer()).map(drop)
    };
    let expand = |output: &mut <WgpuKernels as KernelDevice>::Memory| {
        let (part, mut out) = (input.view(0..32), output.view_mut(0..64));
        kernels.bf16_expand(part.buffer(), 1.0, out.buffer())
    };
    println!("| one workgroup | time |\n| --- | --- |");
    let waited = seconds(|| encode(&mut narrow))?;
    println!("| submit to done, with a word of result | {:.0} us |", waited * 1e6);
    let enqueued = seconds(|| (0..100).try_for_each(|_| expand(&mut output)))? / 100.0;
    println!("| submit alone, of 100 | {:.0} us |", enqueued * 1e6);
    let read = seconds(|| kernels.read(&output, 0, &mut [0]))?;
    println!("| read of one word | {:.0} us |", read * 1e6);
    let message = seconds(|| {
        let memory = kernels.to_read(vec![0; 64])?;
        kernels.was_read(memory);
        Ok(())
    })?;
    println!("| message to the device | {:.0} us |", message * 1e6);
    Ok(())
}

/// The median time of runs that take [`LEAST`] together, of three at least.
fn seconds(mut run: impl FnMut() -> Result<()>) -> Result<f64> {
    let (mut times, begin) = (Vec::new(), Instant::now());
    run()?;
    while times.len() < 3 || begin.elapsed() < LEAST {
        let start = Instant::now();
        run()?;
        times.push(start.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

impl Row {
    /// Million elements a second on the device and on one core.
    fn measure(&self, kernels: &WgpuKernels, elements: usize) -> Result<(f64, f64)> {
        let host = HostKernels(Kernels::best().with_stores(Stores::of_call(elements)));
        let mut expected: Vec<Vec<u32>> = self.outputs.iter().map(|words| vec![0; *words]).collect();
        let on_host = seconds(|| {
            let inputs = self.inputs.iter().map(|words| Buffer::of(words)).collect();
            let outputs = expected.iter_mut().map(|words| BufferMut::of(words)).collect();
            (self.run)(&host, Arguments { inputs, outputs })
        })?;

        let inputs: Vec<_> =
            self.inputs.iter().map(|words| kernels.to_read(words.clone())).collect::<Result<_>>()?;
        let waited = kernels.allocate(1)?;
        let mut outputs: Vec<_> =
            self.outputs.iter().map(|words| kernels.allocate(*words)).collect::<Result<_>>()?;
        let on_device = seconds(|| {
            let views: Vec<View<'_>> = inputs.iter().map(|memory| memory.view(0..memory.words())).collect();
            let mut views_mut: Vec<ViewMut<'_>> = Vec::new();
            for (memory, words) in outputs.iter_mut().zip(&self.outputs) {
                views_mut.push(memory.view_mut(0..*words));
            }
            let inputs = views.iter().map(View::buffer).collect();
            let outputs = views_mut.iter_mut().map(ViewMut::buffer).collect();
            (self.run)(kernels, Arguments { inputs, outputs })?;
            // What only enqueues has not ended.
            kernels.read(&waited, 0, &mut [0])
        })?;
        for (memory, expected) in outputs.iter().zip(&expected) {
            let mut found = vec![0; expected.len()];
            kernels.read(memory, 0, &mut found)?;
            if found != *expected {
                let problem = format!("{} gave other words than the processor", self.name);
                return Err(Error::invalid("adapter", problem));
            }
        }
        let rate = |seconds: f64| elements as f64 / seconds / 1e6;
        Ok((rate(on_device), rate(on_host)))
    }
}

fn words(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

fn packed(codes: &[u8]) -> Vec<u32> {
    let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte));
    codes.chunks(4).map(word).collect()
}

fn rows(elements: usize) -> Vec<Row> {
    let random = &mut Random::new(14);
    let input = words(&values(random, Mix::Usual, elements));
    let old = words(&residual(random, Mix::Usual, elements));
    let signs = |random: &mut Random| {
        let sent = SentSigns::new(random, Mix::Usual, elements, BLOCK);
        [words(&sent.scales), sent.bits].concat()
    };
    let ints = |random: &mut Random, format| {
        let sent = SentInts::new(random, Mix::Usual, elements, format);
        [words(&sent.scales), packed(&sent.codes)].concat()
    };
    let signs: Vec<Vec<u32>> = (0..RANKS).map(|_| signs(random)).collect();
    let int8: Vec<Vec<u32>> = (0..RANKS).map(|_| ints(random, INT8)).collect();
    let int4: Vec<Vec<u32>> = (0..RANKS).map(|_| ints(random, INT4)).collect();
    let narrow: Vec<Vec<u32>> =
        (0..RANKS).map(|_| input[..elements / 2].iter().map(|bits| bits & 0xbfff_bfff).collect()).collect();
    let vectors: Vec<Vec<u32>> = (0..RANKS).map(|_| input.clone()).collect();
    let magnitudes = vec![1.0f32.to_bits(); elements / INT8.block];
    let with_old = |inputs: &[Vec<u32>]| [inputs, std::slice::from_ref(&old)].concat();
    let own = std::slice::from_ref(&input);
    let (sign_words, int8_words) = (elements.div_ceil(BLOCK) + sign_words(elements), int8[0].len());
    let row = |name, inputs: Vec<Vec<u32>>, outputs: &[usize], run: Run| Row {
        name,
        inputs,
        outputs: outputs.to_vec(),
        run,
    };
    let mut rows = sign_rows(&row, &with_old(own), &signs, &with_old(&signs), &[sign_words, elements]);
    rows.extend([
        row("int_encode", with_old(own), &[int8_words, elements], |kernels, mut with| {
            let feedback = Some(with.feedback());
            let (input, out) = (with.input(), with.output());
            kernels.int_encode(input, feedback, INT8, Rounding::Nearest, out).map(drop)
        }),
        row("int_reduce_encode", with_old(&int8), &[int8_words, elements], |kernels, mut with| {
            let elements = with.elements();
            let feedback = Some(with.feedback());
            let out = with.output();
            kernels
                .int_reduce_encode(&with.inputs, elements, feedback, INT8, Rounding::Nearest, out)
                .map(drop)
        }),
        row("int_decode_sum", int8.clone(), &[elements], |kernels, mut with| {
            let out = with.output();
            kernels.int_decode_sum(&with.inputs, INT8, 0.25, out)
        }),
        row("int_expand", int8[..1].to_vec(), &[elements], |kernels, mut with| {
            kernels.int_expand(with.input(), INT8, 0.25, with.output())
        }),
        row("int_expand, int4", int4[..1].to_vec(), &[elements], |kernels, mut with| {
            kernels.int_expand(with.input(), INT4, 0.25, with.output())
        }),
        row("int_magnitudes", own.to_vec(), &[elements / INT8.block], |kernels, mut with| {
            kernels.int_magnitudes(with.input(), None, INT8.block, with.output())
        }),
        row(
            "int_encode_shared",
            vec![input.clone(), magnitudes.clone()],
            &[elements / 4],
            |kernels, mut with| {
                let shared = with.shared();
                let (input, out) = (with.input(), with.output());
                kernels.int_encode_shared(input, None, Rounding::Nearest, shared, out)
            },
        ),
        row(
            "int_expand_shared",
            vec![input[..elements / 4].to_vec(), magnitudes],
            &[elements],
            |kernels, mut with| {
                let shared = with.shared();
                kernels.int_expand_shared(with.input(), shared, 0.25, with.output())
            },
        ),
        row("bf16_encode", own.to_vec(), &[elements / 2], |kernels, mut with| {
            kernels.bf16_encode(with.input(), with.output()).map(drop)
        }),
        row("bf16_reduce_encode", narrow.clone(), &[elements / 2], |kernels, mut with| {
            let elements = 2 * with.elements();
            let out = with.output();
            kernels.bf16_reduce_encode(&with.inputs, elements, out).map(drop)
        }),
        row("bf16_decode_sum", narrow.clone(), &[elements], |kernels, mut with| {
            let out = with.output();
            kernels.bf16_decode_sum(&with.inputs, 0.25, out)
        }),
        row("bf16_expand", narrow[..1].to_vec(), &[elements], |kernels, mut with| {
            kernels.bf16_expand(with.input(), 0.25, with.output())
        }),
        row("sum", vectors, &[elements], |kernels, mut with| {
            let out = with.output();
            kernels.sum(&with.inputs, out)
        }),
    ]);
    rows
}

fn sign_rows(
    row: &dyn Fn(&'static str, Vec<Vec<u32>>, &[usize], Run) -> Row,
    own: &[Vec<u32>],
    signs: &[Vec<u32>],
    signs_and_old: &[Vec<u32>],
    encoded: &[usize; 2],
) -> Vec<Row> {
    let elements = encoded[1];
    let global = |part: &Vec<u32>| part[elements.div_ceil(BLOCK) - 1..].to_vec();
    let mut globals: Vec<Vec<u32>> = signs.iter().map(global).collect();
    globals.push(own[1].clone());
    vec![
        row("sign_encode", own.to_vec(), encoded, |kernels, mut with| {
            let feedback = Some(with.feedback());
            kernels.sign_encode(with.input(), feedback, BLOCK, with.output()).map(drop)
        }),
        row("sign_reduce_encode", signs_and_old.to_vec(), encoded, |kernels, mut with| {
            let elements = with.elements();
            let feedback = Some(with.feedback());
            let out = with.output();
            kernels.sign_reduce_encode(&with.inputs, elements, feedback, BLOCK, out).map(drop)
        }),
        row("sign_decode_sum", signs.to_vec(), &[elements], |kernels, mut with| {
            let out = with.output();
            kernels.sign_decode_sum(&with.inputs, BLOCK, 0.25, out)
        }),
        row("sign_expand", signs[..1].to_vec(), &[elements], |kernels, mut with| {
            kernels.sign_expand(with.input(), BLOCK, 0.25, with.output())
        }),
        row("compensate", own.to_vec(), &[elements], |kernels, mut with| {
            let feedback = with.feedback();
            kernels.compensate(with.input(), feedback).map(drop)
        }),
        row("sign_reduce_global", globals, &[elements], |kernels, mut with| {
            let feedback = with.feedback();
            kernels.sign_reduce_global(&with.inputs, feedback).map(drop)
        }),
    ]
}
