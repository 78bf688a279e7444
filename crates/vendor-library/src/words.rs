//! A library's words about its errors.

#![expect(unsafe_code, reason = "reads a C string of a library's")]

use std::ffi::{CStr, c_char};

use unisono_communicator::Error;

/// A copy of the text that a function of a library gave; empty for null.
///
/// # Safety
/// `text` must be null, or a string with a zero at its end, which nobody changes meanwhile.
pub unsafe fn text_at(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: see above.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().trim().to_owned()
}

/// A code that a function of a library returned, and the facts that are known about it.
#[derive(Clone, Debug)]
pub struct VendorCode<'a> {
    /// The library's name, version and file.
    pub library: String,
    /// The function.
    pub call: &'a str,
    /// The error code that it returned.
    pub code: i32,
    /// The code's name in the vendor's header.
    pub name: &'a str,
    /// The library's texts about it, from the general to the special; empty texts are left out.
    pub texts: Vec<String>,
    /// The remedy: an action of the user.
    pub remedy: &'a str,
}

impl From<VendorCode<'_>> for Error {
    fn from(vendor: VendorCode<'_>) -> Error {
        let name = vendor.name.to_owned();
        let parts = [name].into_iter().chain(vendor.texts).filter(|part| !part.is_empty());
        Error::Vendor {
            library: vendor.library.into(),
            call: vendor.call.into(),
            code: vendor.code,
            text: parts.collect::<Vec<_>>().join(": ").into(),
            remedy: vendor.remedy.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;

    #[test]
    fn texts_are_copied_without_what_is_around_them() {
        // SAFETY: null, and a string of the program.
        let texts = unsafe { [text_at(ptr::null()), text_at(c" out of memory\n".as_ptr())] };
        assert_eq!(texts, ["", "out of memory"]);
    }

    #[test]
    fn an_error_says_all_that_is_known() {
        let texts = ["no room".to_owned(), String::new(), "asked for 4 bytes".to_owned()];
        let code = VendorCode {
            library: "sums 2.1 (/lib/libsums.so)".to_owned(),
            call: "vendor_sum",
            code: -3,
            name: "sumsMemory",
            texts: texts.to_vec(),
            remedy: "free memory",
        };
        let words = "vendor_sum of sums 2.1 (/lib/libsums.so) failed with -3 (sumsMemory: no room: asked for 4 bytes); \
                     free memory";
        assert_eq!(Error::from(code).to_string(), words);
    }
}
