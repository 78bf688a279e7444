//! Names that live as long as the process, so that values with a name can be `Copy`.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::error::Error;
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// The most names that a process may intern; their memory is never freed.
pub const INTERNED_MAX: usize = 4096;

/// The longest name, in bytes.
pub const INTERNED_BYTES_MAX: usize = 256;

static INTERNED: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());

thread_local! {
    /// The names that this thread has asked for lately, by `slot`: a binding asks for the file of every call.
    static RECENT: [Cell<&'static str>; 1 << SLOT_BITS] = const { [const { Cell::new("") }; 1 << SLOT_BITS] };
}

/// As many bits as number the names that a thread remembers.
const SLOT_BITS: u32 = 3;

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
/// Cost: a comparison for a text that this thread has asked for lately, else a lock and a search. A new text also takes
/// memory that is never freed.
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
    let slot = slot(text);
    let recent = RECENT.try_with(|recent| recent[slot].get()).unwrap_or_default();
    if recent == text && !text.is_empty() {
        return Ok(recent);
    }
    let kept = kept(text)?;
    // A thread that ends remembers nothing.
    let _ = RECENT.try_with(|recent| recent[slot].set(kept));
    Ok(kept)
}

/// The text as the process keeps it, from now on at the latest.
fn kept(text: &str) -> Result<&'static str, NotInterned> {
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

/// The place of a text among the names that a thread remembers. Names of files differ at their ends.
fn slot(text: &str) -> usize {
    const GOLDEN_RATIO: u64 = 0x9E37_79B9_7F4A_7C15;
    let end = text.as_bytes().last_chunk().map_or(0, |end| u64::from_le_bytes(*end));
    ((end ^ text.len() as u64).wrapping_mul(GOLDEN_RATIO) >> (u64::BITS - SLOT_BITS)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_the_same_memory_however_many_others_come_between() {
        let text = |number: usize| format!("folder of the program/part {number}.c");
        let first: Vec<_> = (0..100).map(|number| intern(&text(number)).unwrap()).collect();
        let elsewhere = std::thread::spawn(move || intern(&text(7)).unwrap()).join().unwrap();
        assert!(std::ptr::eq(first[7], elsewhere));
        for (number, known) in first.iter().enumerate().rev() {
            assert_eq!(*known, text(number));
            assert!(std::ptr::eq(*known, intern(&text(number)).unwrap()));
            assert!(std::ptr::eq(*known, intern(&text(number)).unwrap()));
        }
        assert!(std::ptr::eq(intern("").unwrap(), intern("").unwrap()));
    }

    #[test]
    fn what_is_too_long_is_refused() {
        let longest = "x".repeat(INTERNED_BYTES_MAX);
        assert_eq!(intern(&longest), Ok(longest.as_str()));
        let refused = intern(&(longest + "x")).unwrap_err();
        assert_eq!(refused.to_string(), "257 bytes, at most 256 are kept");
    }
}
