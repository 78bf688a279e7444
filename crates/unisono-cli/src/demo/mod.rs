//! The demonstration.

/// The hidden command of this program that is one rank of the demonstration.
pub(crate) const RANK_COMMAND: &str = "demo-rank";

mod digits;
mod network;
mod training;
