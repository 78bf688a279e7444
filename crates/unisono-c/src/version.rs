//! The versions of the ABI and of the library.

#![expect(unsafe_code, reason = "exported functions")]

use std::ffi::{CString, c_char};
use std::sync::LazyLock;

use crate::error::c_text;

/// The version of the ABI that this header describes. A structure may grow at its end without a new one, and functions
/// may be added.
pub const ABI_VERSION: u32 = 1;

/// The version of the ABI that the library has. A program may compare it with UNISONO_ABI_VERSION of the header that it
/// was compiled with.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_abi_version() -> u32 {
    ABI_VERSION
}

/// The version of the library, such as "0.1.0"; valid for ever.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_version() -> *const c_char {
    static VERSION: LazyLock<CString> = LazyLock::new(|| c_text(env!("CARGO_PKG_VERSION")));
    VERSION.as_ptr()
}
