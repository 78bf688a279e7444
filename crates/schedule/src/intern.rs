//! Names that live as long as the process, so that values with a name can be `Copy`.

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// The most names that a process may intern; their memory is never freed.
pub const INTERNED_MAX: usize = 4096;

/// The longest name, in bytes.
pub const INTERNED_BYTES_MAX: usize = 256;

static INTERNED: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());

/// Why a name was not interned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotInterned {
    /// The name has this many bytes, more than [`INTERNED_BYTES_MAX`].
    TooLong(usize),
    /// The process keeps [`INTERNED_MAX`] other names already.
    TooMany,
}

impl fmt::Display for NotInterned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotInterned::TooLong(bytes) => write!(f, "{bytes} bytes, at most {INTERNED_BYTES_MAX} are kept"),
            NotInterned::TooMany => write!(f, "the process has already kept {INTERNED_MAX} names"),
        }
    }
}

impl Error for NotInterned {}

/// The same text with static lifetime. Equal texts give the same memory.
///
/// Cost: a lock and a search. A new text also takes memory that is never freed.
///
/// # Errors
/// [`NotInterned`] for a text that is too long, and when the process keeps too many texts.
///
/// ```
/// use unisono_schedule::intern;
/// let (first, second) = (intern(&format!("ri{}", "ng"))?, intern("ring")?);
/// assert!(std::ptr::eq(first, second));
/// # Ok::<(), unisono_schedule::NotInterned>(())
/// ```
pub fn intern(text: &str) -> Result<&'static str, NotInterned> {
    if text.len() > INTERNED_BYTES_MAX {
        return Err(NotInterned::TooLong(text.len()));
    }
    let mut interned = INTERNED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = interned.get(text) {
        return Ok(known);
    }
    if interned.len() == INTERNED_MAX {
        return Err(NotInterned::TooMany);
    }
    let kept: &'static str = Box::leak(Box::from(text));
    interned.insert(kept);
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_long_is_refused() {
        let longest = "x".repeat(INTERNED_BYTES_MAX);
        assert_eq!(intern(&longest), Ok(longest.as_str()));
        let refused = intern(&(longest + "x")).unwrap_err();
        assert_eq!(refused.to_string(), "257 bytes, at most 256 are kept");
    }
}
