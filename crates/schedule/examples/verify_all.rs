//! Verifies every registered algorithm for a range of group sizes and prints the proofs and their duration.
//!
//! `cargo run --release -p unisono-schedule --features parallel --example verify_all -- 1 128`

#![allow(clippy::print_stdout)]

use std::time::Instant;

use unisono_schedule::{Algorithm, algorithms, verify_range};

fn main() {
    let numbers: Vec<u32> = std::env::args().skip(1).filter_map(|text| text.parse().ok()).collect();
    let (first, last) = match numbers[..] {
        [first, last] => (first, last),
        _ => (1, 128),
    };
    let all: Vec<&Algorithm> = algorithms().iter().map(|one| &**one).collect();
    let start = Instant::now();
    for (algorithm, result) in all.iter().zip(verify_range(&all, first..=last)) {
        match result {
            Ok(summary) => {
                let (shapes, steps) = (summary.shapes, summary.steps);
                let name = algorithm.qualified_name();
                println!("ok    {name:<30} {shapes:>5} shapes {steps:>9} steps");
            }
            Err(counterexample) => println!("WRONG {counterexample}"),
        }
    }
    println!("{} algorithms, {first} to {last} ranks: {:.1} s", all.len(), start.elapsed().as_secs_f64());
}
