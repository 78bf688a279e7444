//! One program that carries the CUDA kernels, and NCCL's backend, to a machine with a card. It checks there that every
//! kernel gives the bytes of the definition, and that NCCL's calls give right results with one rank and with two on
//! the one card. It measures both: kernels beside the card's own copy and beside PyTorch, calls beside NCCL's own
//! functions. `cargo xtask gpu-check` builds it.
//!
//! It needs NVIDIA's driver, and nothing else. With libnccl.so.2 there, it checks NCCL; with python3 and torch there,
//! it also measures what DeepSpeed does.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `options.rs`, `report.rs` | what the program is told, and what it has found |
//! | `checks.rs`, `kinds.rs`, `measure.rs`, `peer.rs` | the kernels of compression |
//! | `code.rs` | the kernels that it holds |
//! | `job.rs`, `rank.rs` | processes of ranks, and what each does |
//! | `calls.rs`, `typed.rs`, `late.rs` | the calls that ranks check |
//! | `overhead.rs`, `direct.rs` | what a call costs beside NCCL's own function |

#![allow(clippy::print_stdout, reason = "a program for people at a terminal")]

mod calls;
mod checks;
mod code;
mod direct;
mod job;
mod kinds;
mod late;
mod measure;
mod options;
mod overhead;
mod peer;
mod rank;
mod report;
mod typed;

use std::process::ExitCode;

use clap::Parser;
use unisono_compression_cuda::{CudaKernels, CudaOptions};
use unisono_offload_nccl::{CudaDevice, NcclLibrary, Version};
use unisono_tests::cuda::driver_double;
use unisono_tests::kernels_suite::Density;

use crate::code::{COMBINE, COMPRESSION, code, compile_all};
use crate::options::{Options, Part};
use crate::report::{Check, Line, Report, date, driver};

/// The parts that need NCCL.
const OF_NCCL: [Part; 4] = [Part::Calls, Part::Compressed, Part::Late, Part::Overhead];

/// The first NCCL in which several ranks may have one device.
const SEVERAL_RANKS: Version = Version { major: 2, minor: 30, patch: 0 };

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(problem) => {
            eprintln!("gpu-check: {problem}");
            ExitCode::FAILURE
        }
    }
}

/// Whether all checks have passed.
fn run(options: &Options) -> Result<bool, String> {
    if let Some(one) = &options.rank {
        return rank::run(options, one).map(|()| true);
    }
    if let (Some(folder), Some(nvrtc)) = (&options.compile_to, &options.nvrtc) {
        return compile_all(folder, nvrtc).map(|()| true);
    }
    let device = CudaDevice::open(options.driver_file().as_deref(), options.device, &code(options, COMBINE));
    let device = device.map_err(|error| error.to_string())?;
    let (context, version) = (device.context(), device.context().driver().version());
    println!("{}, {}, driver of CUDA {version}", context.name(), context.capability());
    let mut report = Report {
        date: date(),
        card: context.name().to_owned(),
        capability: context.capability().to_string(),
        cuda: version.to_string(),
        driver: driver(),
        nccl: None,
        double: options.double,
        checks: Vec::new(),
        left_out: Vec::new(),
        overhead: Vec::new(),
        measured: None,
        pytorch: None,
    };
    if options.has(Part::Compression) {
        compression(options, &mut report)?;
    }
    part(options, Part::Arithmetic, 1, &mut report)?;
    if OF_NCCL.into_iter().any(|part| options.has(part)) {
        nccl(options, &mut report)?;
    }
    if options.double {
        leave_out(&mut report, "figures: a test double has no speed".to_owned());
    }
    let text = serde_json::to_string_pretty(&report).map_err(|error| error.to_string())?;
    std::fs::write(&options.json, text).map_err(|error| format!("{}: {error}", options.json.display()))?;
    println!("\nresults are in {}", options.json.display());
    Ok(report.checks.iter().all(|check| check.failure.is_none()))
}

fn leave_out(report: &mut Report, what: String) {
    println!("LEFT OUT: {what}");
    report.left_out.push(what);
}

/// The kernels of compression: whether they are right, and how fast they are.
fn compression(options: &Options, report: &mut Report) -> Result<(), String> {
    let kernels = CudaKernels::open(&cuda_options(options)?).map_err(|error| error.to_string())?;
    let density = if options.quick { Density::QUICK } else { Density::FULL };
    let checks = checks::run(&kernels, density, options.seed);
    report::print(Part::Compression.word(), &checks);
    report.checks.extend(checks);
    if options.double {
        return Ok(());
    }
    let measured = measure::run(&kernels, options.size_mib << 18, options.rounds);
    let measured = measured.map_err(|error| error.to_string())?;
    print!("\n{measured}");
    report.pytorch = peer::run(&options.python, options.size_mib << 18, options.device, &measured);
    report.measured = Some(measured);
    Ok(())
}

/// The parts of NCCL, where it is found.
fn nccl(options: &Options, report: &mut Report) -> Result<(), String> {
    let library = match NcclLibrary::open(&options.nccl_file()) {
        Ok(library) => library,
        // A file that was named must be the one.
        Err(error) if options.nccl.is_some() => return Err(error.to_string()),
        Err(error) => {
            leave_out(report, format!("everything of NCCL, which is not found: {error}"));
            return Ok(());
        }
    };
    println!("\nNCCL {} in {}", library.version(), library.file());
    report.nccl = Some(format!("{} in {}", library.version(), library.file()));
    let ranks: &[u32] = if library.version() >= SEVERAL_RANKS { &[1, 2] } else { &[1] };
    for &ranks in ranks {
        OF_NCCL.into_iter().try_for_each(|of_nccl| part(options, of_nccl, ranks, report))?;
    }
    if library.version() < SEVERAL_RANKS {
        let what =
            format!("2 ranks on one device, which need NCCL {SEVERAL_RANKS}: this is {}", library.version());
        leave_out(report, what);
    }
    Ok(())
}

/// A part that processes of its own do, if it is to be done.
fn part(options: &Options, part: Part, ranks: u32, report: &mut Report) -> Result<(), String> {
    // One rank has nobody to wait for.
    if !options.has(part) || (part == Part::Late && ranks == 1) {
        return Ok(());
    }
    let mut checks: Vec<Check> = Vec::new();
    for line in job::run(options, part, ranks)? {
        match line {
            Line::Check(check) => checks.push(check),
            Line::Overhead(row) => {
                println!("{row}");
                report.overhead.push(row);
            }
        }
    }
    report::print(&format!("{}, ranks: {ranks}", part.word()), &checks);
    report.checks.extend(checks);
    Ok(())
}

fn cuda_options(options: &Options) -> Result<CudaOptions, String> {
    let code = code(options, COMPRESSION);
    if options.double {
        let driver = driver_double().ok_or("the test double needs g++")?.to_owned();
        return Ok(CudaOptions { driver: Some(driver), code, device: 0 });
    }
    Ok(CudaOptions { driver: options.driver.clone(), code, device: options.device })
}
