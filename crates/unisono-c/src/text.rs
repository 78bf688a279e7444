//! Memory that the library gives to C: texts, values of the store.

#![expect(unsafe_code, reason = "an exported function that frees memory by its address")]

use std::ptr;

use unisono::{Error, Result};

use crate::border::border;
use crate::input::check_address;
use crate::status::Status;

/// Bytes that the library gives. The caller frees them with unisono_bytes_free().
#[derive(Debug)]
#[repr(C)]
pub struct OwnedBytes {
    /// The bytes; behind the last one is a NUL, so that a text can be printed. Never null, but after it was freed.
    pub data: *mut u8,
    /// The number of bytes, without the NUL.
    pub length: usize,
}

/// Gives bytes to the caller.
///
/// # Safety
/// `place` is null, or writable.
pub(crate) unsafe fn give_bytes(place: *mut OwnedBytes, mut bytes: Vec<u8>) -> Result<()> {
    check_address("bytes", place)?;
    let length = bytes.len();
    bytes.push(0);
    let data = Box::into_raw(bytes.into_boxed_slice()).cast::<u8>();
    // SAFETY: the place is checked, and the caller promises that it is writable.
    unsafe { place.write(OwnedBytes { data, length }) };
    Ok(())
}

/// Frees bytes that the library has given, and empties the structure. Null and an empty structure are left alone.
///
/// # Safety
/// `bytes` is null, or as the library has filled it or left it empty.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_bytes_free(bytes: *mut OwnedBytes) -> Status {
    border(|| {
        if bytes.is_null() {
            return Ok(());
        }
        check_address("bytes", bytes)?;
        // SAFETY: the caller promises a structure that the library has filled, or an empty one.
        let OwnedBytes { data, length } =
            unsafe { bytes.replace(OwnedBytes { data: ptr::null_mut(), length: 0 }) };
        if data.is_null() {
            return Ok(());
        }
        let with_nul = length.checked_add(1).ok_or_else(|| Error::invalid("length", "was changed"))?;
        // SAFETY: `give_bytes` has made it of so many bytes.
        drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(data, with_nul)) });
        Ok(())
    })
}
