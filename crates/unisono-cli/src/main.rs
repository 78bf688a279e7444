//! The program `unisono`.

mod demo;
mod random;

fn main() {}
