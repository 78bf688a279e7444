//! Pointers that C gives: each is checked before it is read, and a structure may be of another version.

#![expect(unsafe_code, reason = "memory of a caller, by its address")]

use std::ffi::{CStr, c_char};
use std::mem::MaybeUninit;
use std::time::Duration;

use unisono::{Error, Result};

/// Larger structures are none: the caller has not set their size.
const STRUCTURE_BYTES_MAX: usize = 1 << 16;

/// A structure whose first field is its size in bytes, as its caller was compiled.
///
/// # Safety
/// The first field is a `usize`, and the structure may have any bytes, all zero among them.
pub unsafe trait Versioned: Copy {
    /// The size of its first version.
    const BYTES_MIN: usize;
}

/// Reads a structure. Fields that the caller's version lacks are zero. Fields that this version lacks must be zero.
///
/// # Safety
/// `pointer` is null, or the start of as many readable bytes as its first field says.
pub(crate) unsafe fn structure<T: Versioned>(argument: &'static str, pointer: *const T) -> Result<T> {
    check_address(argument, pointer)?;
    // SAFETY: the pointer is aligned and not null, and `Versioned` promises the field.
    let bytes = unsafe { pointer.cast::<usize>().read() };
    if !(T::BYTES_MIN..=STRUCTURE_BYTES_MAX).contains(&bytes) {
        let problem =
            format!("{bytes}, but it has at least {} bytes; set it to the structure's size", T::BYTES_MIN);
        return Err(Error::invalid("struct_size", problem));
    }
    let known = bytes.min(size_of::<T>());
    // SAFETY: the caller promises so many bytes.
    let behind = unsafe { std::slice::from_raw_parts(pointer.cast::<u8>().add(known), bytes - known) };
    if behind.iter().any(|&byte| byte != 0) {
        let problem = format!(
            "{bytes}, of which this version knows {}; a later field of {argument} is set, and cannot be honoured",
            size_of::<T>()
        );
        return Err(Error::invalid("struct_size", problem));
    }
    let mut own = MaybeUninit::<T>::zeroed();
    // SAFETY: both have `known` bytes, and any bytes are a `T`.
    unsafe {
        std::ptr::copy_nonoverlapping(pointer.cast::<u8>(), own.as_mut_ptr().cast::<u8>(), known);
        Ok(own.assume_init())
    }
}

/// Refuses an address at which no `T` can be.
pub(crate) fn check_address<T>(argument: &'static str, pointer: *const T) -> Result<()> {
    if pointer.is_null() {
        return Err(Error::invalid(argument, "null"));
    }
    if !pointer.is_aligned() {
        let problem = format!("{pointer:?}, which is no multiple of {}", align_of::<T>());
        return Err(Error::invalid(argument, problem));
    }
    Ok(())
}

/// A list of values. Without values, any pointer will do.
///
/// # Safety
/// `pointer` is null, or the start of `length` readable values that nobody writes while the result is used.
pub(crate) unsafe fn list<'a, T>(
    argument: &'static str,
    pointer: *const T,
    length: usize,
) -> Result<&'a [T]> {
    if length == 0 {
        return Ok(&[]);
    }
    check_list(argument, pointer, length)?;
    // SAFETY: it is checked, and the caller promises the values.
    Ok(unsafe { std::slice::from_raw_parts(pointer, length) })
}

/// As [`list`], to write.
///
/// # Safety
/// As [`list`], for values that only the result uses.
pub(crate) unsafe fn list_mut<'a, T>(
    argument: &'static str,
    pointer: *mut T,
    length: usize,
) -> Result<&'a mut [T]> {
    if length == 0 {
        return Ok(&mut []);
    }
    check_list(argument, pointer, length)?;
    // SAFETY: it is checked, and the caller promises the values.
    Ok(unsafe { std::slice::from_raw_parts_mut(pointer, length) })
}

fn check_list<T>(argument: &'static str, pointer: *const T, length: usize) -> Result<()> {
    check_address(argument, pointer)?;
    match length.checked_mul(size_of::<T>()).filter(|&bytes| isize::try_from(bytes).is_ok()) {
        Some(_) => Ok(()),
        None => Err(Error::invalid(argument, format!("{length} values exceed the address space"))),
    }
}

/// A text; `None` for null.
///
/// # Safety
/// `pointer` is null, or the start of a text that ends with a NUL and that nobody writes while the result is used.
pub(crate) unsafe fn text<'a>(argument: &'static str, pointer: *const c_char) -> Result<Option<&'a str>> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller promises it.
    let bytes = unsafe { CStr::from_ptr(pointer) };
    bytes.to_str().map(Some).map_err(|error| Error::invalid(argument, format!("not UTF-8: {error}")))
}

/// As [`text`], refused when it is null.
///
/// # Safety
/// As [`text`].
pub(crate) unsafe fn needed_text<'a>(argument: &'static str, pointer: *const c_char) -> Result<&'a str> {
    // SAFETY: the caller promises the same.
    unsafe { text(argument, pointer) }?.ok_or_else(|| Error::invalid(argument, "null"))
}

/// Writes a result, unless its place is null.
///
/// # Safety
/// `place` is null, or writable.
pub(crate) unsafe fn give<T>(argument: &'static str, place: *mut T, value: T) -> Result<()> {
    if place.is_null() {
        return Ok(());
    }
    check_address(argument, place)?;
    // SAFETY: it is checked, and the caller promises that it is writable.
    unsafe { place.write(value) };
    Ok(())
}

/// A time in seconds. `None` for 0; a time that no clock can count is endless.
pub(crate) fn seconds(argument: &'static str, seconds: f64) -> Result<Option<Duration>> {
    if seconds == 0.0 {
        return Ok(None);
    }
    if seconds.is_nan() || seconds < 0.0 {
        return Err(Error::invalid(argument, format!("{seconds}, but a time is at least 0 s")));
    }
    Ok(Some(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq)]
    #[repr(C)]
    struct Second {
        struct_size: usize,
        first: u64,
        added: u64,
    }

    // SAFETY: three integers, the first of them the size.
    unsafe impl Versioned for Second {
        const BYTES_MIN: usize = 16;
    }

    fn read(words: &[u64]) -> Result<Second> {
        // SAFETY: the first word never says more than there is.
        unsafe { structure("second", words.as_ptr().cast()) }
    }

    #[test]
    fn structures_of_other_versions_are_read_as_far_as_they_can_be_honoured() {
        assert_eq!(read(&[16, 7]).unwrap(), Second { struct_size: 16, first: 7, added: 0 });
        assert_eq!(read(&[24, 7, 8]).unwrap().added, 8);
        assert_eq!(read(&[40, 7, 8, 0, 0]).unwrap().added, 8);
        let refused = [read(&[40, 7, 8, 0, 1]), read(&[8]), read(&[0]), read(&[u64::MAX])];
        for refused in refused {
            let text = refused.unwrap_err().to_string();
            assert!(text.starts_with("invalid struct_size: "), "{text}");
        }
    }

    #[test]
    fn addresses_are_checked() {
        let words = [24u64, 0, 0, 0];
        let odd = words.as_ptr().cast::<u8>().wrapping_add(1).cast::<Second>();
        // SAFETY: neither is read.
        let refused = unsafe { [structure("s", std::ptr::null::<Second>()), structure("s", odd)] };
        let texts = refused.map(|refused| refused.unwrap_err().to_string());
        assert!(texts[0] == "invalid s: null" && texts[1].ends_with("no multiple of 8"), "{texts:?}");
        // SAFETY: neither is read.
        let (none, many) =
            unsafe { (list::<u64>("l", std::ptr::null(), 0), list::<u64>("l", words.as_ptr(), usize::MAX)) };
        assert!(none.is_ok_and(<[u64]>::is_empty) && many.is_err());
    }

    #[test]
    fn times_are_checked() {
        assert_eq!(seconds("t", 0.0).unwrap(), None);
        assert_eq!(seconds("t", f64::INFINITY).unwrap(), Some(Duration::MAX));
        assert!(seconds("t", -1.0).is_err() && seconds("t", f64::NAN).is_err());
    }
}
