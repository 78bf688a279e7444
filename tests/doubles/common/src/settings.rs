//! What a double is told before it is loaded. Each setting is looked for in the name of the library's own file
//! (`libnccl-double.devices=2.version=22703.so`), then in the environment (`UNISONO_DOUBLE_DEVICES=2`).
//!
//! | setting | default | meaning |
//! | --- | --- | --- |
//! | devices | 8 | how many there are |
//! | memory | 4294967296 | bytes of each device |
//! | version | the vendor's newest | what the library calls itself |
//! | product | 910b | which of Huawei's products it is: 910b, 910, 310p, 950 |
//! | delay | 100 | microseconds between the call that gives an idle stream work and the beginning of it |
//! | meet | 0 | milliseconds that a thread stays in a communicator unless another one comes ([`crate::callers`]) |
//! | meet_on_device | 0 | the same on a device, for a thread with another communicator |
//! | connect | early | `late`: ranks connect in their first call ([`crate::mesh::Mesh::connect_for`]) |
//! | kernels | | the library of kernels for the host (`kernels/cuda/host/kernels.cpp`); in the environment only |
//! | inject | | faults, as [`crate::fault`] reads them; in the environment only |

#![expect(unsafe_code, reason = "asks the loader for the library's own file")]

use std::ffi::{CStr, CString, OsStr, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

/// The file from which this library was loaded.
fn own_file() -> &'static Path {
    static FILE: OnceLock<PathBuf> = OnceLock::new();
    FILE.get_or_init(|| {
        // SAFETY: all zeros are a value of this struct.
        let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
        let here: fn() -> &'static Path = own_file;
        // SAFETY: it only looks the address up, and fills the struct.
        let found = unsafe { libc::dladdr(here as *const c_void, &mut info) };
        if found == 0 || info.dli_fname.is_null() {
            return PathBuf::new();
        }
        // SAFETY: a string of the loader's, which lives as long as this library.
        let name = unsafe { CStr::from_ptr(info.dli_fname) };
        PathBuf::from(OsStr::from_bytes(name.to_bytes()))
    })
}

/// Keeps this library in the process for ever: its threads run on after the last `dlclose`.
pub fn stay_loaded() {
    static DONE: OnceLock<()> = OnceLock::new();
    DONE.get_or_init(|| {
        if let Ok(name) = CString::new(own_file().as_os_str().as_bytes()) {
            // SAFETY: the library is loaded already, so nothing of it runs.
            unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_NODELETE) };
        }
    });
}

/// The value in a file's name: `2` for `devices` in `a.devices=2.so`.
fn in_name<'a>(file: &'a str, name: &str) -> Option<&'a str> {
    file.split('.').find_map(|part| part.strip_prefix(name)?.strip_prefix('='))
}

/// A setting, by its name in the table above.
pub fn text(name: &str) -> Option<String> {
    let file = own_file().file_name().map(|file| file.to_string_lossy().into_owned()).unwrap_or_default();
    if let Some(value) = in_name(&file, name) {
        return Some(value.to_owned());
    }
    let variable = format!("UNISONO_DOUBLE_{}", name.to_uppercase());
    #[expect(clippy::disallowed_methods, reason = "settings of a double, no settings of the library")]
    std::env::var_os(variable).map(|value| value.to_string_lossy().into_owned())
}

/// A setting that is a number.
///
/// # Panics
/// When it is none.
pub fn number(name: &str, otherwise: u64) -> u64 {
    let Some(value) = text(name) else { return otherwise };
    value.parse().unwrap_or_else(|_| panic!("test double: {name}={value} is no number"))
}

/// The number of devices.
pub fn devices() -> u32 {
    static DEVICES: OnceLock<u32> = OnceLock::new();
    *DEVICES.get_or_init(|| number("devices", 8) as u32)
}

/// Bytes of memory of each device.
pub fn memory_bytes() -> usize {
    static BYTES: OnceLock<usize> = OnceLock::new();
    *BYTES.get_or_init(|| number("memory", 1 << 32) as usize)
}

/// How long an idle stream waits before it begins.
pub fn delay() -> Duration {
    static DELAY: OnceLock<Duration> = OnceLock::new();
    *DELAY.get_or_init(|| Duration::from_micros(number("delay", 100)))
}

/// Whether ranks connect in their first call.
pub fn connects_late() -> bool {
    static IS_LATE: OnceLock<bool> = OnceLock::new();
    *IS_LATE.get_or_init(|| text("connect").is_some_and(|value| value == "late"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_found_in_the_name_of_a_file() {
        let name = "libx.devices=2.version=22703.so";
        assert_eq!(in_name(name, "devices"), Some("2"));
        assert_eq!(in_name(name, "version"), Some("22703"));
        assert_eq!(in_name(name, "device"), None);
        assert_eq!(in_name("libx.so", "devices"), None);
    }
}
