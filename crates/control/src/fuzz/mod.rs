//! Fuzz targets: arbitrary bytes for the parsers and state machines of this crate, under cargo-fuzz and as plain tests.
//!
//! Compiled for tests and for cargo-fuzz alone.

mod control;
#[allow(dead_code, reason = "another crate needs the rest of it")]
#[path = "../../../../fuzz/shared/input.rs"]
pub(crate) mod input;
mod news;
#[cfg(test)]
#[path = "../../../../fuzz/shared/replay.rs"]
mod replay;
mod store;

pub use crate::handshake::fuzz::handshake;
pub use control::control;

#[cfg(test)]
mod tests {
    use super::replay::replay;

    #[test]
    fn fuzzed_handshakes_do_no_harm() {
        replay("handshake", super::handshake);
    }

    #[test]
    fn fuzzed_control_messages_do_no_harm() {
        replay("control", super::control);
    }
}
