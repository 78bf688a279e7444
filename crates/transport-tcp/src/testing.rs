//! What tests of other crates need of this one: an error as bytes, as the control plane tells it to other ranks.

pub use crate::wire::{read_error, write_error};
