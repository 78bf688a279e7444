//! A text inside its owner, so that the owner is `Copy` and needs no allocation.

use std::fmt;

/// A text of at most [`ShortText::BYTES_MAX`] bytes: the label of a call, the name of a user's reduce operator.
///
/// The constructor takes longer texts, so that constants need no `unwrap`; a call refuses them
/// ([`crate::Error::InvalidArgument`]).
///
/// ```
/// use unisono_communicator::ShortText;
/// const LOSS: ShortText = ShortText::new("loss");
/// assert_eq!(LOSS.as_str(), "loss");
/// assert!(!LOSS.is_too_long() && ShortText::new(&"x".repeat(33)).is_too_long());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShortText {
    bytes: [u8; ShortText::BYTES_MAX],
    /// The length of the text; one more than fits if the text was too long.
    length: u8,
}

impl ShortText {
    /// Longest text in bytes.
    pub const BYTES_MAX: usize = 32;

    /// The text, or the beginning of a text that is too long.
    pub const fn new(text: &str) -> ShortText {
        let text = text.as_bytes();
        let mut bytes = [0; ShortText::BYTES_MAX];
        let mut length = 0;
        while length < text.len() && length < ShortText::BYTES_MAX {
            bytes[length] = text[length];
            length += 1;
        }
        let is_too_long = text.len() > ShortText::BYTES_MAX;
        ShortText { bytes, length: length as u8 + is_too_long as u8 }
    }

    /// Whether the text has more than [`ShortText::BYTES_MAX`] bytes.
    pub const fn is_too_long(&self) -> bool {
        self.length as usize > ShortText::BYTES_MAX
    }

    /// The text, or the beginning of a text that is too long.
    pub fn as_str(&self) -> &str {
        let bytes = &self.bytes[..usize::from(self.length).min(ShortText::BYTES_MAX)];
        // A text that is too long may have been cut within a character, which is left out.
        bytes.utf8_chunks().next().map_or("", |chunk| chunk.valid())
    }
}

/// The longest beginning of `text` with at most `bytes_max` bytes that cuts no character.
///
/// ```
/// use unisono_communicator::beginning;
/// assert_eq!((beginning("na\u{ef}ve", 3), beginning("na\u{ef}ve", 4), beginning("no", 9)), ("na", "na\u{ef}", "no"));
/// ```
pub fn beginning(text: &str, bytes_max: usize) -> &str {
    let end = (0..=bytes_max.min(text.len())).rev().find(|&at| text.is_char_boundary(at));
    &text[..end.unwrap_or(0)]
}

impl fmt::Debug for ShortText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for ShortText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_is_too_long_is_cut_between_characters() {
        let long = "\u{e9}".repeat(17);
        let text = ShortText::new(&long);
        assert_eq!((text.as_str(), text.is_too_long()), (&long[..32], true));
        let text = ShortText::new(&format!("x{long}"));
        assert_eq!((text.as_str().len(), text.is_too_long()), (31, true));
        let text = ShortText::new(&long[..32]);
        assert_eq!((text.as_str(), text.is_too_long()), (&long[..32], false));
        assert_eq!(ShortText::new("").as_str(), "");
    }
}
