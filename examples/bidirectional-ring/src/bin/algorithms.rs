//! Answers questions about the algorithms of this package: `algorithms list | show | verify | price`.

use std::process::ExitCode;

use bidirectional_ring::bidirectional_ring;

fn main() -> ExitCode {
    unisono::algorithms_main(&[bidirectional_ring()])
}
