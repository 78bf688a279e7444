//! Allocations as large as a user's data. Rust ends the process when one fails; these functions return an error.

use bytemuck::Zeroable;
use bytemuck::allocation::try_zeroed_vec;

use crate::error::{Error, Result};

/// A vector of zeros.
///
/// # Errors
/// [`Error::System`] when there is not enough memory.
///
/// ```
/// assert_eq!(unisono_communicator::zeroed::<f32>(3)?, [0.0; 3]);
/// assert!(unisono_communicator::zeroed::<f32>(usize::MAX / 8).is_err());
/// # Ok::<(), unisono_communicator::Error>(())
/// ```
pub fn zeroed<T: Zeroable>(elements: usize) -> Result<Vec<T>> {
    let no_memory = |()| no_memory(elements.saturating_mul(size_of::<T>()));
    try_zeroed_vec(elements).map_err(no_memory)
}

/// Makes room for `more_bytes` more bytes.
///
/// # Errors
/// [`Error::System`] when there is not enough memory; the contents of `memory` stay.
pub fn reserve(memory: &mut Vec<u8>, more_bytes: usize) -> Result<()> {
    memory.try_reserve_exact(more_bytes).map_err(|_| no_memory(more_bytes))
}

fn no_memory(bytes: usize) -> Error {
    let what = format!("no memory for the {bytes} bytes that a call needs");
    Error::System { what, text: "the allocation failed".to_owned() }
}
