//! The built-in codecs, a file for each family.

mod bf16;
mod int;
mod sign_l1;
mod sign_rms;

pub use bf16::Bf16;
pub use int::{INT_BLOCK_DEFAULT, INT_BLOCK_MAX, Int4, Int8, IntOptions};
pub use sign_l1::{SIGN_BLOCK_DEFAULT, SIGN_BLOCK_MAX, SignL1};
pub use sign_rms::{BitOrder, SignRms};
