//! The transport's part of the fuzz target `frame`, under cargo-fuzz and as a plain test.
//!
//! Compiled for tests and for cargo-fuzz alone.

#[allow(dead_code, reason = "another crate needs the rest of it")]
#[path = "../../../fuzz/shared/input.rs"]
pub(crate) mod input;
#[cfg(test)]
#[path = "../../../fuzz/shared/replay.rs"]
mod replay;

pub use crate::records::fuzz::frame;

#[cfg(test)]
mod tests {
    use super::replay::replay;

    #[test]
    fn fuzzed_records_do_no_harm() {
        replay("frame", super::frame);
    }
}
