//! The key-value store of a communicator, for coordination that is not a collective.

#![expect(unsafe_code, reason = "exported functions that take pointers")]

use std::ffi::{c_char, c_void};
use std::time::Duration;

use unisono::{Result, Store};

use crate::border::border;
use crate::handle::{CommHandle, handle_of, taken, value_of};
use crate::input::{check_address, give, list, needed_text, seconds};
use crate::status::Status;
use crate::text::{OwnedBytes, give_bytes};

/// A key-value store that the ranks of a communicator share. Rank 0 of the communicator holds it in memory; its library
/// answers, also while its program does something else. Any thread may use it. A call that returns has had its effect
/// exactly once. A key has at most 1,024 bytes, a value 16 KiB.
pub struct StoreHandle {
    store: Store,
}

/// The store of a communicator. Makes no message.
///
/// @param comm The communicator.
/// @param prefix A text before every key, or empty.
/// @param store Where the store goes, which the caller frees with unisono_store_free().
///
/// # Safety
/// The handle is not freed, `prefix` is a text, and `store` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_store_of(
    comm: *const CommHandle,
    prefix: *const c_char,
    store: *mut *mut StoreHandle,
) -> Status {
    border(|| {
        check_address("store", store)?;
        // SAFETY: the caller promises all of it.
        unsafe {
            let comm = value_of("comm", comm)?;
            let found = comm.world.store_of(&*comm.communicator).prefixed(needed_text("prefix", prefix)?);
            store.write(handle_of(StoreHandle { store: found }));
        }
        Ok(())
    })
}

/// Sets a value, in place of an earlier one, and ends the waits for the key.
///
/// @param store The store.
/// @param key The key.
/// @param value The value.
/// @param length Its length in bytes.
///
/// # Safety
/// The handle is not freed, `key` is a text, and `value` has so many readable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_store_set(
    store: *const StoreHandle,
    key: *const c_char,
    value: *const c_void,
    length: usize,
) -> Status {
    border(|| {
        // SAFETY: the caller promises all of it.
        unsafe {
            let store = value_of("store", store)?;
            store.store.set(needed_text("key", key)?, list("value", value.cast::<u8>(), length)?)
        }
    })
}

/// The value of a key, for which it waits.
///
/// @param store The store.
/// @param key The key.
/// @param timeout_s The longest wait in seconds; 0 for the communicator's deadline.
/// @param value Where the value goes; freed with unisono_bytes_free().
/// @return UNISONO_STATUS_STORE_TIMEOUT when the key has not come.
///
/// # Safety
/// The handle is not freed, `key` is a text, and `value` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_store_get(
    store: *const StoreHandle,
    key: *const c_char,
    timeout_s: f64,
    value: *mut OwnedBytes,
) -> Status {
    border(|| {
        check_address("value", value)?;
        // SAFETY: the caller promises all of it.
        unsafe {
            let (store, timeout) = (value_of("store", store)?, timeout(timeout_s)?);
            give_bytes(value, store.store.get(needed_text("key", key)?, timeout)?)
        }
    })
}

/// The value of a key, if it is there now.
///
/// @param store The store.
/// @param key The key.
/// @param value Where the value goes; its `data` is null if there is none. Freed with unisono_bytes_free().
///
/// # Safety
/// As unisono_store_get().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_store_try_get(
    store: *const StoreHandle,
    key: *const c_char,
    value: *mut OwnedBytes,
) -> Status {
    border(|| {
        check_address("value", value)?;
        // SAFETY: the caller promises all of it.
        unsafe {
            let store = value_of("store", store)?;
            match store.store.try_get(needed_text("key", key)?)? {
                Some(found) => give_bytes(value, found),
                None => {
                    value.write(OwnedBytes { data: std::ptr::null_mut(), length: 0 });
                    Ok(())
                }
            }
        }
    })
}

/// Waits until each of these keys has been there.
///
/// @param store The store.
/// @param keys The keys.
/// @param key_count Their number.
/// @param timeout_s The longest wait in seconds, in all; 0 for the communicator's deadline.
///
/// # Safety
/// The handle is not freed, and the keys are texts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_store_wait(
    store: *const StoreHandle,
    keys: *const *const c_char,
    key_count: usize,
    timeout_s: f64,
) -> Status {
    border(|| {
        // SAFETY: the caller promises all of it.
        unsafe {
            let store = value_of("store", store)?;
            let keys = list("keys", keys, key_count)?;
            let keys = keys.iter().map(|key| needed_text("keys", *key)).collect::<Result<Vec<&str>>>()?;
            store.store.wait(&keys, timeout(timeout_s)?)
        }
    })
}

/// Adds to a number, and gives the sum. A missing key counts as 0. The value is the number in decimal digits.
///
/// @param store The store.
/// @param key The key.
/// @param number The number.
/// @param sum Where the sum goes, or null.
///
/// # Safety
/// The handle is not freed, `key` is a text, and `sum` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_store_add(
    store: *const StoreHandle,
    key: *const c_char,
    number: i64,
    sum: *mut i64,
) -> Status {
    border(|| {
        // SAFETY: the caller promises all of it.
        unsafe {
            let store = value_of("store", store)?;
            give("sum", sum, store.store.add(needed_text("key", key)?, number)?)
        }
    })
}

/// Sets `desired` if the value is `expected`; a missing key counts as an empty value.
///
/// @param store The store.
/// @param key The key.
/// @param expected The value that is expected.
/// @param expected_length Its length.
/// @param desired The new value.
/// @param desired_length Its length.
/// @param value Where the value goes that is there then; freed with unisono_bytes_free().
///
/// # Safety
/// The handle is not freed, `key` is a text, the values are readable, and `value` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_store_compare_and_set(
    store: *const StoreHandle,
    key: *const c_char,
    expected: *const c_void,
    expected_length: usize,
    desired: *const c_void,
    desired_length: usize,
    value: *mut OwnedBytes,
) -> Status {
    border(|| {
        check_address("value", value)?;
        // SAFETY: the caller promises all of it.
        unsafe {
            let (store, key) = (value_of("store", store)?, needed_text("key", key)?);
            let expected = list("expected", expected.cast::<u8>(), expected_length)?;
            let desired = list("desired", desired.cast::<u8>(), desired_length)?;
            give_bytes(value, store.store.compare_and_set(key, expected, desired)?)
        }
    })
}

/// Takes a key out.
///
/// @param store The store.
/// @param key The key.
/// @param was_there Where 1 goes if it was there, else 0; or null.
///
/// # Safety
/// The handle is not freed, `key` is a text, and `was_there` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_store_delete(
    store: *const StoreHandle,
    key: *const c_char,
    was_there: *mut i32,
) -> Status {
    border(|| {
        // SAFETY: the caller promises all of it.
        unsafe {
            let store = value_of("store", store)?;
            give("was_there", was_there, i32::from(store.store.delete(needed_text("key", key)?)?))
        }
    })
}

/// The number of keys that begin with the prefix of this handle.
///
/// @param store The store.
/// @param count Where the number goes.
///
/// # Safety
/// The handle is not freed, and `count` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_store_count(store: *const StoreHandle, count: *mut u64) -> Status {
    border(|| {
        check_address("count", count)?;
        // SAFETY: the caller promises it.
        unsafe {
            let store = value_of("store", store)?;
            give("count", count, store.store.count()?)
        }
    })
}

/// Frees a store; null is left alone. The keys stay.
///
/// # Safety
/// The handle is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_store_free(store: *mut StoreHandle) -> Status {
    // SAFETY: the caller gives the handle up.
    border(|| unsafe { taken("store", store) }.map(drop))
}

fn timeout(timeout_s: f64) -> Result<Option<Duration>> {
    seconds("timeout_s", timeout_s)
}
