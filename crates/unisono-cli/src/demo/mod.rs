//! The demonstration.

mod digits;
mod network;
mod training;
