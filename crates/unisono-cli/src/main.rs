//! The program `unisono`.

mod bench;
mod demo;
mod problem;
mod random;
mod run;

fn main() {}
