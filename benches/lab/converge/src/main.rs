//! `cargo xtask converge`: what compressed gradients cost in accuracy. `unisono demo --compress` trains with every
//! method and several seeds, with real ranks over loopback; here the results are put together, drawn and judged.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a program for people at a terminal")]

mod plot;
mod report;
mod trials;

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;

use report::Report;
use trials::Trials;

/// What went wrong, in one line.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {error}")]
pub(crate) struct Problem {
    what: String,
    error: String,
}

impl Problem {
    pub(crate) fn new(what: impl Display, error: impl Display) -> Problem {
        Problem { what: what.to_string(), error: error.to_string() }
    }
}

pub(crate) type Result<T> = std::result::Result<T, Problem>;

/// What compressed gradients cost in accuracy: trains a 784-128-10 network on Fashion-MNIST with every method, prints a
/// table, and fails if a method that is meant to be used falls short.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask converge")]
struct Arguments {
    /// The folder of the data set; without it, a 64-64-10 network learns the digits in the program.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// The program `unisono`.
    #[arg(long, value_name = "FILE")]
    program: PathBuf,
    /// Ranks of each job.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    ranks: u32,
    /// Trainings with each method.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// As for `unisono demo --compress`.
    #[arg(long, default_value = "sign,sign-no-feedback,sign-gradient,int8,int4,bf16")]
    methods: String,
    /// Train nothing: judge and draw the results in this file, of an earlier run.
    #[arg(long, value_name = "FILE.json")]
    report: Option<PathBuf>,
    /// Where the results go.
    #[arg(long, value_name = "FILE.json", default_value = "target/converge.json")]
    json: PathBuf,
    /// Where the picture goes: loss against bytes on the wire.
    #[arg(long, value_name = "FILE.svg", default_value = "target/converge.svg")]
    plot: PathBuf,
}

fn main() -> ExitCode {
    match converge(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(problem) => {
            println!("converge: {problem}");
            ExitCode::FAILURE
        }
    }
}

/// Whether every goal is reached.
fn converge(arguments: &Arguments) -> Result<bool> {
    let report = match &arguments.report {
        Some(file) => Report::read(file)?,
        None => {
            let report = Report::of(arguments, &train(arguments)?);
            write(&arguments.json, &report.json()?)?;
            report
        }
    };
    println!("\n{report}");
    write(&arguments.plot, &plot::draw(&report).map_err(|error| Problem::new("the picture", error))?)?;
    Ok(report.is_good())
}

fn train(arguments: &Arguments) -> Result<Trials> {
    let mut trials = Trials::default();
    for seed in 1..=arguments.seeds {
        println!("seed {seed} of {}", arguments.seeds);
        trials.run(arguments, seed)?;
    }
    Ok(trials)
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).map_err(|error| Problem::new(path.display(), error))?;
    println!("{}", path.display());
    Ok(())
}
