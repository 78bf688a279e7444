//! The cost of a kernel on an adapter beside the processor: the host's time for a call, and the elements a second.
//! Every output is compared with the processor's before it is timed.
//!
//! `cargo run --release -p unisono-compression-wgpu --example overhead [ADAPTER [MI]]`: MI times 2^20 elements, one if
//! not given. Without the name of an adapter, a GPU is taken.

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
    println!("\n{mi} Mi elements, {RANKS} parts; million elements a second\n");
    println!("| kernel | adapter | one core |\n| --- | --- | --- |");
    let samples = Samples::new(mi << 20);
    let rows = [samples.signs(), samples.ints(), samples.shared(), samples.floats()];
    for row in rows.into_iter().flatten() {
        let (device, host) = row.measure(&kernels, samples.elements)?;
        println!("| `{}` | {device:.0} | {host:.0} |", row.name);
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
    let source = kernels.allocate(1)?;
    let copied = seconds(|| (0..100).try_for_each(|_| kernels.copy(&source, 0, &mut output, 0..1)))? / 100.0;
    println!("| submit of a copy without bindings, of 100 | {:.0} us |", copied * 1e6);
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
    fn new(name: &'static str, inputs: Vec<Vec<u32>>, outputs: &[usize], run: Run) -> Row {
        Row { name, inputs, outputs: outputs.to_vec(), run }
    }

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
            // A call that only enqueues its kernel has not ended.
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

/// The inputs of rows.
struct Samples {
    elements: usize,
    input: Vec<u32>,
    old: Vec<u32>,
    /// The messages of ranks.
    signs: Vec<Vec<u32>>,
    int8: Vec<Vec<u32>>,
    int4: Vec<u32>,
    narrow: Vec<Vec<u32>>,
}

impl Samples {
    fn new(elements: usize) -> Samples {
        let random = &mut Random::new(14);
        let input = words(&values(random, Mix::Usual, elements));
        let old = words(&residual(random, Mix::Usual, elements));
        let signs = |_| {
            let sent = SentSigns::new(random, Mix::Usual, elements, BLOCK);
            [words(&sent.scales), sent.bits].concat()
        };
        let signs = (0..RANKS).map(signs).collect();
        let mut ints = |format| {
            let sent = SentInts::new(random, Mix::Usual, elements, format);
            [words(&sent.scales), packed(&sent.codes)].concat()
        };
        let int8 = (0..RANKS).map(|_| ints(INT8)).collect();
        let int4 = ints(INT4);
        let narrow = vec![input[..elements / 2].iter().map(|bits| bits & 0xbfff_bfff).collect(); RANKS];
        Samples { elements, input, old, signs, int8, int4, narrow }
    }

    /// With the residual behind.
    fn with_old(&self, inputs: &[Vec<u32>]) -> Vec<Vec<u32>> {
        [inputs, std::slice::from_ref(&self.old)].concat()
    }

    fn own(&self) -> Vec<Vec<u32>> {
        vec![self.input.clone()]
    }

    fn signs(&self) -> Vec<Row> {
        let (elements, parts) = (self.elements, self.with_old(&self.signs));
        let encoded = [elements.div_ceil(BLOCK) + sign_words(elements), elements];
        let globals: Vec<_> =
            self.signs.iter().map(|part| part[elements.div_ceil(BLOCK) - 1..].to_vec()).collect();
        vec![
            Row::new("sign_encode", self.with_old(&self.own()), &encoded, |kernels, mut with| {
                let feedback = Some(with.feedback());
                kernels.sign_encode(with.input(), feedback, BLOCK, with.output()).map(drop)
            }),
            Row::new("sign_reduce_encode", parts, &encoded, |kernels, mut with| {
                let (elements, feedback, out) = (with.elements(), Some(with.feedback()), with.output());
                kernels.sign_reduce_encode(&with.inputs, elements, feedback, BLOCK, out).map(drop)
            }),
            Row::new("sign_decode_sum", self.signs.clone(), &[elements], |kernels, mut with| {
                let out = with.output();
                kernels.sign_decode_sum(&with.inputs, BLOCK, 0.25, out)
            }),
            Row::new("sign_expand", self.signs[..1].to_vec(), &[elements], |kernels, mut with| {
                kernels.sign_expand(with.input(), BLOCK, 0.25, with.output())
            }),
            Row::new("compensate", self.with_old(&self.own()), &[elements], |kernels, mut with| {
                let feedback = with.feedback();
                kernels.compensate(with.input(), feedback).map(drop)
            }),
            Row::new("sign_reduce_global", self.with_old(&globals), &[elements], |kernels, mut with| {
                let feedback = with.feedback();
                kernels.sign_reduce_global(&with.inputs, feedback).map(drop)
            }),
        ]
    }

    fn ints(&self) -> Vec<Row> {
        let (elements, parts) = (self.elements, self.with_old(&self.int8));
        let encoded = [self.int8[0].len(), elements];
        vec![
            Row::new("int_encode", self.with_old(&self.own()), &encoded, |kernels, mut with| {
                let feedback = Some(with.feedback());
                kernels.int_encode(with.input(), feedback, INT8, Rounding::Nearest, with.output()).map(drop)
            }),
            Row::new("int_reduce_encode", parts, &encoded, |kernels, mut with| {
                let (elements, feedback, out) = (with.elements(), Some(with.feedback()), with.output());
                let rounding = Rounding::Nearest;
                kernels.int_reduce_encode(&with.inputs, elements, feedback, INT8, rounding, out).map(drop)
            }),
            Row::new("int_decode_sum", self.int8.clone(), &[elements], |kernels, mut with| {
                let out = with.output();
                kernels.int_decode_sum(&with.inputs, INT8, 0.25, out)
            }),
            Row::new("int_expand", self.int8[..1].to_vec(), &[elements], |kernels, mut with| {
                kernels.int_expand(with.input(), INT8, 0.25, with.output())
            }),
            Row::new("int_expand, int4", vec![self.int4.clone()], &[elements], |kernels, mut with| {
                kernels.int_expand(with.input(), INT4, 0.25, with.output())
            }),
        ]
    }

    fn shared(&self) -> Vec<Row> {
        let (elements, input) = (self.elements, &self.input);
        let magnitudes = vec![1.0f32.to_bits(); elements / INT8.block];
        let (inputs, codes) = ([input, &magnitudes], [&input[..elements / 4], &magnitudes]);
        vec![
            Row::new("int_magnitudes", self.own(), &[magnitudes.len()], |kernels, mut with| {
                kernels.int_magnitudes(with.input(), None, INT8.block, with.output())
            }),
            Row::new(
                "int_encode_shared",
                inputs.map(Vec::clone).into(),
                &[elements / 4],
                |kernels, mut with| {
                    let shared = with.shared();
                    kernels.int_encode_shared(with.input(), None, Rounding::Nearest, shared, with.output())
                },
            ),
            Row::new(
                "int_expand_shared",
                codes.map(<[u32]>::to_vec).into(),
                &[elements],
                |kernels, mut with| {
                    let shared = with.shared();
                    kernels.int_expand_shared(with.input(), shared, 0.25, with.output())
                },
            ),
        ]
    }

    fn floats(&self) -> Vec<Row> {
        let elements = self.elements;
        vec![
            Row::new("bf16_encode", self.own(), &[elements / 2], |kernels, mut with| {
                kernels.bf16_encode(with.input(), with.output()).map(drop)
            }),
            Row::new("bf16_reduce_encode", self.narrow.clone(), &[elements / 2], |kernels, mut with| {
                let (elements, out) = (2 * with.elements(), with.output());
                kernels.bf16_reduce_encode(&with.inputs, elements, out).map(drop)
            }),
            Row::new("bf16_decode_sum", self.narrow.clone(), &[elements], |kernels, mut with| {
                let out = with.output();
                kernels.bf16_decode_sum(&with.inputs, 0.25, out)
            }),
            Row::new("bf16_expand", self.narrow[..1].to_vec(), &[elements], |kernels, mut with| {
                kernels.bf16_expand(with.input(), 0.25, with.output())
            }),
            Row::new("sum", vec![self.input.clone(); RANKS], &[elements], |kernels, mut with| {
                let out = with.output();
                kernels.sum(&with.inputs, out)
            }),
        ]
    }
}
