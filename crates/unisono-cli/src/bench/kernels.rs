//! `unisono bench kernels`: the kernels of compressed collectives beside a copy, on one core and without ranks.
//!
//! Every kernel is first checked against its definition, byte for byte, and then timed in turns with a copy of as many
//! elements. Encoders with a residual get two generations of it, which change places after each call, as collectives
//! do it.

use std::time::Instant;

use bytemuck::{Pod, Zeroable};
use serde::Serialize;
use unisono_kernels::{
    Counter, IntFormat, IntPart, IntPartMut, IntWidth, Kernels, Residual, Rounding, SignPart, SignPartMut,
    Stores, Target, sign_words,
};

use super::timing::Timing;
use crate::arguments::KernelsArguments;
use crate::print::{self, Table};
use crate::problem::{Problem, Result};

/// Elements of a call: what stays in the second-level cache, and what does not stay in any.
const SIZES: [usize; 2] = [32 << 10, 16 << 20];
const SIGN_BLOCK: usize = 1024;
const INT_BLOCK: usize = 256;
/// Ranks of the kernels that sum.
const RANKS: usize = 2;
const COUNTER: Counter = Counter { key: 1, first: 0 };

/// Long enough that the clock does not count.
const BLOCK_SECONDS: f64 = 4e-3;
const ROUNDS_MAX: usize = 21;
/// For slow kernels.
const ROUNDS_MIN: usize = 3;
const SECONDS_OF_ROUNDS: f64 = 1.2;

/// What is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Measured {
    SignEncode,
    SignEncodeGlobal,
    SignReduceEncode,
    SignExpand,
    IntEncode(IntWidth),
    IntEncodeStochastic(IntWidth),
    IntEncodeResidual(IntWidth),
    IntDecodeSum(IntWidth),
    IntRequantise(IntWidth),
    IntExpand(IntWidth),
    Bf16Encode,
    Bf16DecodeSum,
    Bf16Expand,
}

impl Measured {
    fn all() -> impl Iterator<Item = Measured> {
        use Measured::*;
        let ints = |width| {
            [
                IntEncode(width),
                IntEncodeStochastic(width),
                IntEncodeResidual(width),
                IntDecodeSum(width),
                IntRequantise(width),
                IntExpand(width),
            ]
        };
        let signs = [SignEncode, SignEncodeGlobal, SignReduceEncode, SignExpand];
        let ints = ints(IntWidth::Eight).into_iter().chain(ints(IntWidth::Four));
        signs.into_iter().chain(ints).chain([Bf16Encode, Bf16DecodeSum, Bf16Expand])
    }

    fn name(self) -> String {
        let int = |width, what| match width {
            IntWidth::Eight => format!("int8_{what}"),
            IntWidth::Four => format!("int4_{what}"),
        };
        match self {
            Measured::SignEncode => "sign_encode".to_owned(),
            Measured::SignEncodeGlobal => "sign_encode_global".to_owned(),
            Measured::SignReduceEncode => "sign_reduce_encode".to_owned(),
            Measured::SignExpand => "sign_expand".to_owned(),
            Measured::IntEncode(width) => int(width, "encode"),
            Measured::IntEncodeStochastic(width) => int(width, "encode_stochastic"),
            Measured::IntEncodeResidual(width) => int(width, "encode_residual"),
            Measured::IntDecodeSum(width) => int(width, "decode_sum"),
            Measured::IntRequantise(width) => int(width, "requantise"),
            Measured::IntExpand(width) => int(width, "expand"),
            Measured::Bf16Encode => "bf16_encode".to_owned(),
            Measured::Bf16DecodeSum => "bf16_decode_sum".to_owned(),
            Measured::Bf16Expand => "bf16_expand".to_owned(),
        }
    }
}

/// One row of the result.
#[derive(Clone, Debug, Serialize)]
struct KernelRow {
    kernel: String,
    target: &'static str,
    elements: usize,
    /// Thousand million elements a second.
    gelem_s: f64,
    memcpy_gelem_s: f64,
    ratio: f64,
    cpu: String,
}

/// `unisono bench kernels`.
pub(crate) fn bench(arguments: &KernelsArguments) -> Result<()> {
    let cpu = processor_model().unwrap_or_else(|| "unknown processor".to_owned());
    let mut rows = Vec::new();
    for elements in SIZES {
        let mut buffers = Buffers::new(elements);
        for measured in Measured::all() {
            let expected = buffers.after(measured, kernels(Target::Reference, elements)?);
            for target in targets(arguments)? {
                let kernels = kernels(target, elements)?;
                if buffers.after(measured, kernels) != expected {
                    let (name, target) = (measured.name(), target.name());
                    return Err(Problem::failed(
                        "bench kernels",
                        format!("{name}, {target}, {elements}: wrong"),
                    ));
                }
                rows.push(row(measured, kernels, &mut buffers, &cpu));
            }
        }
    }
    if arguments.json { print::document(&rows) } else { print_table(&rows, &cpu) }
}

fn processor_model() -> Option<String> {
    let info = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = info.lines().find(|line| line.starts_with("model name"))?;
    line.split_once(": ").map(|(_, model)| model.to_owned())
}

/// The bodies to measure.
fn targets(arguments: &KernelsArguments) -> Result<Vec<Target>> {
    let available = |name: &String| {
        let target = Target::ALL.into_iter().find(|target| target.name() == name.as_str());
        target.filter(|target| Kernels::of(*target).is_some()).ok_or_else(|| {
            let there = Target::ALL.into_iter().filter(|target| Kernels::of(*target).is_some());
            let there: Vec<_> = there.map(Target::name).collect();
            Problem::usage(format!("--target {name}: this processor runs {}", there.join(", ")))
        })
    };
    if arguments.target.is_empty() {
        return Ok(vec![Kernels::best().target()]);
    }
    arguments.target.iter().map(available).collect()
}

/// As a call with so many elements uses them.
fn kernels(target: Target, elements: usize) -> Result<Kernels> {
    let kernels = Kernels::of(target).ok_or_else(|| Problem::failed("bench kernels", target.name()))?;
    Ok(kernels.with_stores(Stores::of_call(elements)))
}

fn print_table(rows: &[KernelRow], cpu: &str) -> Result<()> {
    print::line(&format!(
        "# {cpu}, one thread; Gelem/s; memcpy: 4 bytes an element, in turns with each kernel"
    ))?;
    print::line(&format!("# sign blocks of {SIGN_BLOCK}, int blocks of {INT_BLOCK}, sums of {RANKS} ranks"))?;
    let mut table = Table::new(&["kernel", "target", "elements", "gelem_s", "memcpy_gelem_s", "ratio"]);
    for row in rows {
        table.row(vec![
            row.kernel.clone(),
            row.target.to_owned(),
            row.elements.to_string(),
            format!("{:.2}", row.gelem_s),
            format!("{:.2}", row.memcpy_gelem_s),
            format!("{:.2}", row.ratio),
        ]);
    }
    print::line(table.to_string().trim_end())
}

/// Times a kernel and the copy in turns.
fn row(measured: Measured, kernels: Kernels, buffers: &mut Buffers, cpu: &str) -> KernelRow {
    let elements = buffers.input.slice().len();
    let mut kernel = |buffers: &mut Buffers| buffers.run(measured, kernels);
    let mut copy = |buffers: &mut Buffers| buffers.copy();
    let calls = [calls_per_block(buffers, &mut kernel), calls_per_block(buffers, &mut copy)];
    let (mut kernel_seconds, mut copy_seconds) = (Vec::new(), Vec::new());
    let start = Instant::now();
    while kernel_seconds.len() < ROUNDS_MIN
        || kernel_seconds.len() < ROUNDS_MAX && start.elapsed().as_secs_f64() < SECONDS_OF_ROUNDS
    {
        kernel_seconds.push(seconds(buffers, &mut kernel, calls[0]));
        copy_seconds.push(seconds(buffers, &mut copy, calls[1]));
    }
    let rate = |seconds| elements as f64 / Timing::new(seconds).median() / 1e9;
    let (gelem_s, memcpy_gelem_s) = (rate(kernel_seconds), rate(copy_seconds));
    KernelRow {
        kernel: measured.name(),
        target: kernels.target().name(),
        elements,
        gelem_s,
        memcpy_gelem_s,
        ratio: gelem_s / memcpy_gelem_s,
        cpu: cpu.to_owned(),
    }
}

/// Also warms the caches.
fn calls_per_block(buffers: &mut Buffers, call: &mut impl FnMut(&mut Buffers)) -> usize {
    let mut calls = 1;
    while seconds(buffers, call, calls) * (calls as f64) < BLOCK_SECONDS {
        calls *= 2;
    }
    calls
}

/// The seconds of one of `calls` calls.
fn seconds(buffers: &mut Buffers, call: &mut impl FnMut(&mut Buffers), calls: usize) -> f64 {
    let start = Instant::now();
    for _ in 0..calls {
        call(buffers);
    }
    start.elapsed().as_secs_f64() / calls as f64
}

/// A line of the cache: streaming stores write whole ones.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C, align(64))]
struct Line([f32; 16]);

/// f32 that begin with a line of the cache.
#[derive(Clone, Debug, PartialEq)]
struct Floats(Vec<Line>);

impl Floats {
    /// A multiple of 16.
    fn new(count: usize) -> Floats {
        Floats(vec![Line::zeroed(); count / 16])
    }

    fn slice(&self) -> &[f32] {
        bytemuck::cast_slice(&self.0)
    }

    fn slice_mut(&mut self) -> &mut [f32] {
        bytemuck::cast_slice_mut(&mut self.0)
    }

    fn fill(&mut self, seed: u32, size: f32) {
        let mut word = seed;
        for value in self.slice_mut() {
            word ^= word << 13;
            word ^= word >> 17;
            word ^= word << 5;
            *value = (word as i32 >> 8) as f32 * size;
        }
    }
}

/// What the kernels write.
#[derive(Clone, Debug, PartialEq)]
struct Outputs {
    /// The newer residual, then the older one.
    residuals: [Floats; 2],
    floats: Floats,
    scales: Vec<f32>,
    bits: Vec<u32>,
    codes: Vec<u8>,
    narrow: Vec<u16>,
}

/// What one rank sent.
#[derive(Clone, Debug)]
struct Sent {
    sign_scales: Vec<f32>,
    bits: Vec<u32>,
    int_scales: Vec<f32>,
    /// For codes of four bits, half of these.
    codes: Vec<u8>,
    narrow: Vec<u16>,
}

struct Buffers {
    input: Floats,
    outputs: Outputs,
    sent: [Sent; RANKS],
}

fn format(width: IntWidth) -> IntFormat {
    IntFormat { width, block: INT_BLOCK, symmetric: true }
}

impl Sent {
    /// Any codes and scales will do.
    fn new(elements: usize, seed: u32) -> Sent {
        let mut values = Floats::new(elements);
        values.fill(seed, 1e-9);
        let words: Vec<u32> =
            values.slice()[..sign_words(elements)].iter().map(|value| value.to_bits()).collect();
        let bits = words.iter().map(|word| word.wrapping_mul(0x9e37_79b1)).collect();
        let bytes: &[u8] = bytemuck::cast_slice(values.slice());
        Sent {
            sign_scales: (0..elements / SIGN_BLOCK).map(|block| 0.5 + block as f32 * 1e-5).collect(),
            bits,
            int_scales: (0..elements / INT_BLOCK)
                .map(|block| f32::from_bits((127 << 23) + ((block as u32 % 99) << 8)))
                .collect(),
            codes: bytes[..elements].to_vec(),
            narrow: values.slice().iter().map(|value| (value.to_bits() >> 16) as u16).collect(),
        }
    }

    fn signs(&self) -> SignPart<'_> {
        SignPart { scales: &self.sign_scales, bits: &self.bits }
    }

    fn ints(&self, width: IntWidth) -> IntPart<'_> {
        let bytes = width.code_bytes(self.codes.len());
        IntPart { scales: &self.int_scales, codes: &self.codes[..bytes] }
    }
}

impl Buffers {
    fn new(elements: usize) -> Buffers {
        let floats = || Floats::new(elements);
        let mut input = floats();
        input.fill(1, 1e-7);
        let outputs = Outputs {
            residuals: [floats(), floats()],
            floats: floats(),
            scales: vec![0.0; elements / INT_BLOCK],
            bits: vec![0; sign_words(elements)],
            codes: vec![0; elements],
            narrow: vec![0; elements],
        };
        Buffers { input, outputs, sent: [Sent::new(elements, 2), Sent::new(elements, 3)] }
    }

    /// What one call leaves, which begins with the same residual every time.
    fn after(&mut self, measured: Measured, kernels: Kernels) -> Outputs {
        // What the kernel does not write is the same each time too.
        let Outputs { residuals: [old, new], floats, scales, bits, codes, narrow } = &mut self.outputs;
        old.fill(4, 1e-8);
        new.slice_mut().fill(0.0);
        floats.slice_mut().fill(0.0);
        scales.fill(0.0);
        bits.fill(0);
        codes.fill(0);
        narrow.fill(0);
        self.run(measured, kernels);
        self.outputs.clone()
    }

    fn copy(&mut self) {
        self.outputs.floats.slice_mut().copy_from_slice(self.input.slice());
        std::hint::black_box(&mut self.outputs.floats);
    }

    /// One call; residuals change places after it.
    fn run(&mut self, measured: Measured, kernels: Kernels) {
        let Buffers { input, outputs, sent } = self;
        let (input, elements) = (input.slice(), input.slice().len());
        let Outputs { residuals, floats, scales, bits, codes, narrow } = outputs;
        let floats = floats.slice_mut();
        let [old, new] = residuals;
        let residual = Residual { old: old.slice(), new: new.slice_mut() };
        match measured {
            Measured::SignEncode => {
                let output = SignPartMut { scales: &mut scales[..elements / SIGN_BLOCK], bits };
                kernels.sign_encode(input, Some(residual), SIGN_BLOCK, output);
            }
            Measured::SignEncodeGlobal => {
                kernels.sign_encode_global(input, residual, bits);
            }
            Measured::SignReduceEncode => {
                let parts = sent.each_ref().map(Sent::signs);
                let output = SignPartMut { scales: &mut scales[..elements / SIGN_BLOCK], bits };
                kernels.sign_reduce_encode(&parts, elements, Some(residual), SIGN_BLOCK, output);
            }
            Measured::SignExpand => kernels.sign_expand(sent[0].signs(), SIGN_BLOCK, 0.5, floats),
            Measured::IntEncode(width)
            | Measured::IntEncodeStochastic(width)
            | Measured::IntEncodeResidual(width) => {
                let is_stochastic = matches!(measured, Measured::IntEncodeStochastic(_));
                let rounding = if is_stochastic { Rounding::Stochastic(COUNTER) } else { Rounding::Nearest };
                let residual = matches!(measured, Measured::IntEncodeResidual(_)).then_some(residual);
                let output = IntPartMut { scales, codes: &mut codes[..width.code_bytes(elements)] };
                kernels.int_encode(input, residual, format(width), rounding, output);
            }
            Measured::IntDecodeSum(width) => {
                kernels.int_decode_sum(
                    &sent.each_ref().map(|sent| sent.ints(width)),
                    format(width),
                    1.0,
                    floats,
                );
            }
            Measured::IntRequantise(width) => {
                let parts = sent.each_ref().map(|sent| sent.ints(width));
                let output = IntPartMut { scales, codes: &mut codes[..width.code_bytes(elements)] };
                kernels.int_reduce_encode(&parts, elements, None, format(width), Rounding::Nearest, output);
            }
            Measured::IntExpand(width) => kernels.int_expand(sent[0].ints(width), format(width), 0.5, floats),
            Measured::Bf16Encode => {
                kernels.bf16_encode(input, narrow);
            }
            Measured::Bf16DecodeSum => {
                kernels.bf16_decode_sum(&sent.each_ref().map(|sent| &sent.narrow[..]), 1.0, floats)
            }
            Measured::Bf16Expand => kernels.bf16_expand(&sent[0].narrow, 0.5, floats),
        }
        self.outputs.residuals.swap(0, 1);
        std::hint::black_box(&mut self.outputs);
    }
}
