//! Strings that a library gives away: they live for ever, and each is kept once.

use std::collections::HashMap;
use std::ffi::{CString, c_char};
use std::sync::Mutex;

use crate::lock;

/// The string with a zero at its end, for ever at this address.
pub fn for_ever(text: &str) -> *const c_char {
    static KEPT: Mutex<Option<HashMap<String, &'static CString>>> = Mutex::new(None);
    let mut kept = lock(&KEPT);
    let kept = kept.get_or_insert_default();
    if let Some(text) = kept.get(text) {
        return text.as_ptr();
    }
    let new: &'static CString =
        Box::leak(Box::new(CString::new(text.replace('\0', " ")).unwrap_or_default()));
    kept.insert(text.to_owned(), new);
    new.as_ptr()
}
