//! `unisono bench kernels`: the kernels of compressed collectives beside a copy, on one core and without ranks.
//!
//! Every kernel is first checked against its definition, byte for byte, and then timed in turns with a copy of as many
//! elements. Encoders with a residual get two generations of it, which change places after each call, as collectives
//! do it.

mod buffers;

use std::time::Instant;

use serde::Serialize;
use unisono_kernels::{IntWidth, Kernels, Stores, Target};

use self::buffers::Buffers;
use super::timing::Timing;
use crate::arguments::KernelsArguments;
use crate::print::{self, Array};
use crate::problem::{Problem, Result};

/// Elements of a call: one size stays in the second-level cache, and the other in no cache.
const SIZES: [usize; 2] = [32 << 10, 16 << 20];
const SIGN_BLOCK: usize = 1024;
const INT_BLOCK: usize = 256;
/// Ranks of the kernels that sum.
const RANKS: usize = 2;

/// Long enough that the clock does not count.
const BLOCK_SECONDS: f64 = 4e-3;
const ROUNDS_MAX: usize = 21;
/// For slow kernels.
const ROUNDS_MIN: usize = 3;
const SECONDS_OF_ROUNDS: f64 = 1.2;

/// The kernel that is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Measured {
    SignEncode,
    SignEncodeGlobal,
    SignReduceEncode,
    SignDecodeSum,
    SignExpand,
    IntEncode(IntWidth),
    IntEncodeStochastic(IntWidth),
    IntEncodeResidual(IntWidth),
    IntDecodeSum(IntWidth),
    IntRequantise(IntWidth),
    IntExpand(IntWidth),
    IntMagnitudes,
    IntEncodeShared(IntWidth),
    IntExpandShared(IntWidth),
    Bf16Encode,
    Bf16DecodeSum,
    Bf16Expand,
    Sum,
    Average,
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
                IntEncodeShared(width),
                IntExpandShared(width),
            ]
        };
        let signs = [SignEncode, SignEncodeGlobal, SignReduceEncode, SignDecodeSum, SignExpand];
        let ints = ints(IntWidth::Eight).into_iter().chain(ints(IntWidth::Four));
        let others = [IntMagnitudes, Bf16Encode, Bf16DecodeSum, Bf16Expand, Sum, Average];
        signs.into_iter().chain(ints).chain(others)
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
            Measured::SignDecodeSum => "sign_decode_sum".to_owned(),
            Measured::SignExpand => "sign_expand".to_owned(),
            Measured::IntEncode(width) => int(width, "encode"),
            Measured::IntEncodeStochastic(width) => int(width, "encode_stochastic"),
            Measured::IntEncodeResidual(width) => int(width, "encode_residual"),
            Measured::IntDecodeSum(width) => int(width, "decode_sum"),
            Measured::IntRequantise(width) => int(width, "requantise"),
            Measured::IntExpand(width) => int(width, "expand"),
            Measured::IntMagnitudes => "int_magnitudes".to_owned(),
            Measured::IntEncodeShared(width) => int(width, "encode_shared"),
            Measured::IntExpandShared(width) => int(width, "expand_shared"),
            Measured::Bf16Encode => "bf16_encode".to_owned(),
            Measured::Bf16DecodeSum => "bf16_decode_sum".to_owned(),
            Measured::Bf16Expand => "bf16_expand".to_owned(),
            Measured::Sum => "sum".to_owned(),
            Measured::Average => "average".to_owned(),
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

/// `unisono bench kernels`. Each row is printed when it has been measured.
pub(crate) fn bench(arguments: &KernelsArguments) -> Result<()> {
    let cpu = processor_model().unwrap_or_else(|| "unknown processor".to_owned());
    let targets = targets(arguments)?;
    if arguments.json {
        let mut array = Array::new();
        measure(&targets, &cpu, |row| array.element(&row))?;
        return array.end();
    }
    print::line(&format!(
        "# {cpu}, one thread; Gelem/s; memcpy: 4 bytes an element, in turns with each kernel"
    ))?;
    print::line(&format!("# sign blocks of {SIGN_BLOCK}, int blocks of {INT_BLOCK}, sums of {RANKS} ranks"))?;
    print::line("kernel                   target     elements  gelem_s  memcpy_gelem_s  ratio")?;
    measure(&targets, &cpu, |row| {
        print::line(&format!(
            "{:<23}  {:<9}  {:<8}  {:<7.2}  {:<14.2}  {:.2}",
            row.kernel, row.target, row.elements, row.gelem_s, row.memcpy_gelem_s, row.ratio
        ))
    })
}

fn measure(targets: &[Target], cpu: &str, mut print: impl FnMut(KernelRow) -> Result<()>) -> Result<()> {
    for elements in SIZES {
        let mut buffers = Buffers::new(elements);
        for measured in Measured::all() {
            let expected = buffers.after(measured, kernels(Target::Reference, elements)?);
            for target in targets {
                let kernels = kernels(*target, elements)?;
                if buffers.after(measured, kernels) != expected {
                    let (name, target) = (measured.name(), target.name());
                    return Err(Problem::failed(
                        "bench kernels",
                        format!("{name}, {target}, {elements}: wrong"),
                    ));
                }
                print(row(measured, kernels, &mut buffers, cpu))?;
            }
        }
    }
    Ok(())
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

/// Times a kernel and the copy in turns.
fn row(measured: Measured, kernels: Kernels, buffers: &mut Buffers, cpu: &str) -> KernelRow {
    let elements = buffers.elements();
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
