//! The last line that each rank wrote to standard error: most programs say there why they end.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use super::output::pieces;

/// More characters are cut off: it becomes a part of a line.
const CHARACTERS_MAX: usize = 200;

/// A line, and when it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Words {
    pub(super) text: String,
    pub(super) at: Instant,
}

/// The last words of all ranks.
pub(super) struct LastWords {
    of_ranks: Vec<Mutex<Option<Words>>>,
}

impl LastWords {
    pub(super) fn new(ranks: u32) -> LastWords {
        LastWords { of_ranks: (0..ranks).map(|_| Mutex::default()).collect() }
    }

    /// What `rank` wrote last.
    pub(super) fn of(&self, rank: u32) -> Option<Words> {
        let words = self.of_ranks.get(rank as usize)?;
        words.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Hears whole lines of a rank.
    pub(super) fn hear(&self, rank: u32, text: &[u8]) {
        let Some(words) = self.of_ranks.get(rank as usize) else { return };
        let at = Instant::now();
        if let Some(text) = pieces(text).collect::<Vec<_>>().into_iter().rev().find_map(said) {
            *words.lock().unwrap_or_else(PoisonError::into_inner) = Some(Words { text, at });
        }
    }
}

/// The line as plain text, if it says anything: an indented one only continues another, as the frames of a stack do,
/// and what follows the message of a panic is about backtraces.
fn said(piece: &[u8]) -> Option<String> {
    let text = plain(&String::from_utf8_lossy(&piece[..piece.len().min(4 * CHARACTERS_MAX)]));
    let text = text.trim_end();
    if text.is_empty() || text.starts_with(' ') || text.starts_with("note: ") || text == "stack backtrace:" {
        return None;
    }
    let mut said: String = text.chars().take(CHARACTERS_MAX).collect();
    if said.len() < text.len() {
        said.push_str("...");
    }
    Some(said)
}

/// The text without control characters and without the sequences that colour it on a terminal.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            // ESC [ parameters, and a letter at the end.
            '\x1b' if characters.next_if_eq(&'[').is_some() => {
                while characters.next().is_some_and(|character| !('@'..='~').contains(&character)) {}
            }
            '\t' => plain.push(' '),
            character if character.is_control() => {}
            character => plain.push(character),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_plain_bounded_and_say_something() {
        assert_eq!(said(b"boom\n").unwrap(), "boom");
        assert_eq!(said(b"\x1b[1;31merror\x1b[0m:\tno \x07memory\r\n").unwrap(), "error: no memory");
        assert_eq!(said(b"\xff!\n").unwrap(), "\u{fffd}!");
        assert_eq!(said(b"\x1b[").as_deref(), None);
        let panicked = ["stack backtrace:\n", "   0: main\n", "note: run with `RUST_BACKTRACE=full`\n"];
        for nothing in ["", "\n", " \r", "\tat Main.main(Main.java:5)\n"].iter().chain(&panicked) {
            assert_eq!(said(nothing.as_bytes()), None, "{nothing}");
        }
        let long = said("\u{e4}".repeat(5000).as_bytes()).unwrap();
        assert_eq!(long, "\u{e4}".repeat(CHARACTERS_MAX) + "...");
    }
}
