//! One program that carries the CUDA kernels to a machine with a card: checks that every kernel gives the bytes of the
//! definition there, and measures it beside the card's own copy and beside PyTorch. `cargo xtask gpu-check` builds it.
//!
//! It needs NVIDIA's driver, and nothing else. With python3 and torch there, it also measures what DeepSpeed does.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a program for people at a terminal")]

mod checks;
mod kinds;
mod measure;
mod peer;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use serde::Serialize;
use unisono_compression_cuda::cuda::{Capability, Code, Nvrtc};
use unisono_compression_cuda::{Compiled, CudaKernels, CudaOptions, KernelCode, compile};
use unisono_tests::cuda::{DOUBLE_CODE, driver_double};

/// The kernels that this program holds: the number of a capability, and code for it.
static CUBINS: &[(u32, &[u8])] = include!(concat!(env!("OUT_DIR"), "/cubins.rs"));

/// The cards that `--compile-to` compiles for.
const CARDS: [u32; 3] = [80, 90, 100];

#[derive(Parser)]
#[command(about = "Checks and measures unisono's CUDA kernels on a card.", version)]
struct Options {
    /// The number of the card
    #[arg(long, default_value_t = 0)]
    device: u32,
    /// The path of libcuda.so.1, where the system does not find it
    #[arg(long)]
    driver: Option<PathBuf>,
    /// Only check, on the test double of the driver, which g++ builds from the repository
    #[arg(long, conflicts_with = "driver")]
    double: bool,
    /// The seed of the checks' inputs
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The size of the measured vector, in MiB
    #[arg(long, default_value_t = 256)]
    size_mib: usize,
    /// Measurements of each kernel, in turns
    #[arg(long, default_value_t = 21)]
    rounds: usize,
    /// A python3 with torch, if there is one
    #[arg(long, default_value = "python3")]
    python: String,
    /// Where the results go
    #[arg(long, default_value = "gpu-check.json")]
    json: PathBuf,
    /// Only compile the kernels by the NVRTC at `--nvrtc`, into this folder; needs no card
    #[arg(long, requires = "nvrtc", value_name = "FOLDER")]
    compile_to: Option<PathBuf>,
    /// The path of libnvrtc.so, in place of the kernels that this program holds
    #[arg(long)]
    nvrtc: Option<PathBuf>,
}

/// What the program has found.
#[derive(Serialize)]
struct Report {
    card: String,
    capability: String,
    cuda: String,
    checks: Vec<checks::Check>,
    /// Nothing on a test double, which has no speed.
    measured: Option<measure::Measured>,
    pytorch: Option<peer::Pytorch>,
}

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
    if let (Some(folder), Some(nvrtc)) = (&options.compile_to, &options.nvrtc) {
        return compile_all(folder, nvrtc).map(|()| true);
    }
    let kernels = CudaKernels::open(&cuda_options(options)?).map_err(|error| error.to_string())?;
    let (context, version) = (kernels.context(), kernels.context().driver().version());
    println!("{}, {}, driver of CUDA {version}", context.name(), context.capability());
    let checks = checks::run(&kernels, options.seed);
    let is_right = checks.iter().all(|check| check.failure.is_none());
    let mut report = Report {
        card: context.name().to_owned(),
        capability: context.capability().to_string(),
        cuda: version.to_string(),
        checks,
        measured: None,
        pytorch: None,
    };
    if options.double {
        println!("\na test double has no speed: nothing is measured");
    } else {
        let measured = measure::run(&kernels, options.size_mib << 18, options.rounds);
        let measured = measured.map_err(|error| error.to_string())?;
        print!("\n{measured}");
        report.pytorch = peer::run(&options.python, options.size_mib << 18, options.device, &measured);
        report.measured = Some(measured);
    }
    let text = serde_json::to_string_pretty(&report).map_err(|error| error.to_string())?;
    std::fs::write(&options.json, text).map_err(|error| format!("{}: {error}", options.json.display()))?;
    println!("\nresults are in {}", options.json.display());
    Ok(is_right)
}

fn cuda_options(options: &Options) -> Result<CudaOptions, String> {
    let compiled = |(number, code): (u32, &[u8])| Compiled {
        capability: Capability::from_number(number),
        code: Code::new(code),
    };
    if options.double {
        let driver = driver_double().ok_or("the test double needs g++")?.to_owned();
        let code = KernelCode::Compiled(vec![compiled((90, DOUBLE_CODE))]);
        return Ok(CudaOptions { driver: Some(driver), code, device: 0 });
    }
    let code = match (&options.nvrtc, CUBINS) {
        (None, [_, ..]) => KernelCode::Compiled(CUBINS.iter().copied().map(compiled).collect()),
        (nvrtc, _) => KernelCode::Nvrtc(nvrtc.clone()),
    };
    Ok(CudaOptions { driver: options.driver.clone(), code, device: options.device })
}

fn compile_all(folder: &std::path::Path, nvrtc: &std::path::Path) -> Result<(), String> {
    let nvrtc = Nvrtc::open(Some(nvrtc), 12).map_err(|error| error.to_string())?;
    std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    for number in CARDS {
        let code = compile(&nvrtc, Capability::from_number(number)).map_err(|error| error.to_string())?;
        let path = folder.join(format!("sm_{number}.cubin"));
        std::fs::write(&path, code.bytes()).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}
