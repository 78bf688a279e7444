//! The commands of `cargo xtask` that measure or start other systems: each finds or fetches its needs, builds its
//! program and hands over to it.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a program for people at a terminal")]
#![expect(clippy::disallowed_methods, reason = "variables of tools, no settings of the library")]

mod between_hosts;
mod compare;
mod converge;
mod gpu_check;
mod launchers;
mod python;
mod workspaces;

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let passed = match words.as_slice() {
        ["compare", "python", options @ ..] => python::run(options),
        ["compare", options @ ..] => compare::run(options),
        ["converge", options @ ..] => converge::run(options),
        ["gpu-check", options @ ..] => gpu_check::run(options),
        ["launchers", options @ ..] => launchers::run(options),
        [part @ ("slow-link" | "two-hosts"), options @ ..] => between_hosts::run(part, options),
        ["soak", options @ ..] => workspaces::become_program("unisono-soak", |command| command.args(options)),
        _ => {
            let commands = "compare | converge | gpu-check | launchers | slow-link | soak | two-hosts";
            eprintln!("usage: cargo xtask {commands} [options]");
            return ExitCode::from(2);
        }
    };
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
