//! The project's own commands. The checks are here; the programs that measure are in `benches/lab`.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a program for people at a terminal")]
#![expect(clippy::disallowed_methods, reason = "variables of tools, no settings of the library")]

mod fetch_vendor;
mod fuzz;
mod lab;
mod matrix;
mod python;
mod test;
mod tidy;
mod tool;
mod torch;

use std::process::ExitCode;

use test::shelter;

const USAGE: &str = "\
usage: cargo xtask <command>

  test [--full]
         the house rules and the tests, but for those of vendors, devices and programs that measure; --full adds these,
         format, clippy and documentation without warnings, the packages under examples and in benches/lab, loom, Miri,
         cargo-deny, and the archives of packages
  tidy   only the house rules
  matrix [--check]
         writes docs/matrix.md from the last full run of the tests, or compares them
  names  the names that programs reach in unisono, as crates/unisono/names.txt holds them
  package
         packs each published package, and builds it from its archive
  compare | converge [--install] [options]
         unisono beside Open MPI, MPICH, Intel MPI, oneCCL and Gloo; the cost of compressed gradients in accuracy on
         Fashion-MNIST; --install fetches these first; --help lists options
  compare python [options]
         unisono for Python beside mpi4py, which it fetches, over Open MPI and over MPICH; --help lists options
  fetch-vendor nvrtc | ccl | nccl | nccl-2.19
         what tests need of vendors, from wheels; prints the variables that name it
  fuzz [--inputs N | --keep] [target]
         10 million fuzzed inputs to every parser, found by coverage; needs cargo-fuzz; --keep
         adds the found inputs with new coverage to fuzz/corpus
  gpu-check [options]
         one program that checks and measures the CUDA kernels on a machine with a card; with options it is run here
  launchers
         Open MPI, MPICH, Intel MPI, torchrun, and Slurm on two nodes of this machine start 4 ranks of an example; those
         that are not here are skipped
  python build [--debug] | test [options of pytest]
         the wheel of the package for Python, with the program in it; test tests it with 4 ranks and alone
  scale  messages and simulated time of the control plane at 64 to 4,096 ranks, and a picture; takes gigabytes
  soak [options]
         kills and stops ranks of real jobs hundreds of times, and measures what the survivors make of it
  sheltered COMMAND [argument ...]
         runs a command as the tests are run: no process and no temporary file of it outlives it, however it ends
  torch build | test [options of pytest] | compare [options]
         the wheels of torch's backend for two minors of torch; test tests it; compare measures it beside Gloo; with the
         torch of VIRTUAL_ENV, or of python3
  slow-link [options]
         exact and compressed all-reduces between two hosts with a slow link, beside torch's Gloo; needs root
  two-hosts [options]
         calls between two hosts of two ranks each at several speeds, beside torch's Gloo and Open MPI; needs root
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["test"] | ["test", "--full"] | ["sheltered", _, ..] => match shelter::run(&words) {
            Ok(code) => return code,
            Err(error) => Err(error.to_string()),
        },
        [shelter::WITHIN, "test", options @ ..] => shelter::within(|| test::run(!options.is_empty())),
        [shelter::WITHIN, "sheltered", program, arguments @ ..] => {
            shelter::within(|| test::alone(program, arguments))
        }
        ["tidy"] => tidy::run(),
        ["matrix"] => matrix::write(),
        ["matrix", "--check"] => matrix::check(),
        ["names"] => tidy::names::run(),
        ["package"] => test::package(),
        ["fetch-vendor", options @ ..] => fetch_vendor::run(options),
        ["fuzz", options @ ..] => fuzz::run(options),
        ["compare" | "converge" | "gpu-check" | "launchers" | "slow-link" | "soak" | "two-hosts", ..] => {
            lab::run(&words)
        }
        ["python", words @ ..] => python::run(words),
        ["scale"] => lab::scale(),
        ["torch", words @ ..] => torch::run(words),
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("cargo xtask: {problem}");
            ExitCode::FAILURE
        }
    }
}
