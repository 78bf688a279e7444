//! The program from outside: what it prints, how it ends, what its ranks do.

#![expect(clippy::expect_used, clippy::unwrap_used, reason = "every function here is part of a test")]

mod algo;
mod backends;
mod bench;
mod calibrate;
mod demo;
mod discovery;
mod doctor;
mod input;
mod memory_limits;
mod run;
mod run_comms;
mod run_ends;
mod run_jobs;
mod run_losses;
mod run_output;
mod run_signals;
mod run_streams;
mod run_trouble;
mod settings;
mod slow_link;
mod support;
