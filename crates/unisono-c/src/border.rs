//! The border between C and Rust, which every exported function crosses: an error becomes a status, and no panic goes
//! further.

use std::panic::{AssertUnwindSafe, catch_unwind};

use unisono::{Error, Result};

use crate::error::{keep, keep_panic};
use crate::status::Status;

/// Runs a function of the ABI.
pub(crate) fn border(run: impl FnOnce() -> Result<()>) -> Status {
    border_or(|| run().map(|()| Status::Ok))
}

/// Runs a function of the ABI that has more than one way to succeed.
pub(crate) fn border_or(run: impl FnOnce() -> Result<Status>) -> Status {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(status)) => status,
        Ok(Err(error)) => keep(&error),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a text");
            let status = keep_panic(text);
            // Its drop is foreign code, which may panic once more.
            std::mem::forget(panic);
            status
        }
    }
}

/// Runs a function of the ABI that gives a value, and `otherwise` after an error.
pub(crate) fn value_or<T>(otherwise: T, run: impl FnOnce() -> Result<T>) -> T {
    let mut value = otherwise;
    border(|| {
        value = run()?;
        Ok(())
    });
    value
}

/// The error of a function that the ABI does not have.
pub(crate) fn unsupported(what: impl Into<String>, instead: &str) -> Error {
    Error::Unsupported { what: what.into(), backend: "unisono-c", instead: Some(instead.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_status() {
        assert_eq!(border(|| panic!("in a test")), Status::Internal);
        assert_eq!(border_or(|| Ok(Status::Pending)), Status::Pending);
        assert_eq!(value_or(-1, || Err(Error::closed())), -1);
    }
}
