//! The name of a call in the communication log.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use crate::short_text::ShortText;

/// The most names that a process keeps.
const NAMES_MAX: usize = 4096;

/// Stands for the names for which there is no room.
static FURTHER: ShortText = ShortText::new("(further names)");

static NAMES: Names = Names(Mutex::new(BTreeSet::new()));

struct Names(Mutex<BTreeSet<&'static ShortText>>);

impl Names {
    fn keep(&self, text: ShortText) -> LogName {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kept) = names.get(&text) {
            return LogName(kept);
        }
        if names.len() >= NAMES_MAX {
            return LogName(&FURTHER);
        }
        let kept: &'static ShortText = Box::leak(Box::new(text));
        names.insert(kept);
        LogName(kept)
    }
}

/// The name of a call in the communication log. The process keeps the text for ever, so that options of calls, which
/// are copied often, hold a reference only. A process that makes more than 4,096 names has one name for all others.
///
/// The constructor takes longer texts than [`ShortText::BYTES_MAX`]; a call refuses them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogName(&'static ShortText);

impl LogName {
    /// The name. Cost: a lock and a search; make the options once, not for each call.
    pub fn new(text: &str) -> LogName {
        NAMES.keep(ShortText::new(text))
    }

    /// Its text.
    pub fn text(self) -> ShortText {
        *self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i12_a_name_is_kept_once_and_their_number_is_bounded() {
        let names = Names(Mutex::default());
        let keep = |text: &str| names.keep(ShortText::new(text));
        assert!(std::ptr::eq(keep("0").0, keep("0").0));
        for number in 0..NAMES_MAX {
            assert_ne!(keep(&number.to_string()).text(), FURTHER);
        }
        assert_eq!(keep("one more").text(), FURTHER);
        assert_eq!(keep("7").text().as_str(), "7");
        assert!(LogName::new(&"x".repeat(33)).text().is_too_long());
    }
}
