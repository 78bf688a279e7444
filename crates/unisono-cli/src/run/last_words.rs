//! The last words of each rank on standard error: most programs say there why they end.
//!
//! Not every last line is about the end: the library's table of calls comes last, a warning may. So each line is judged
//! by its looks. The message of a panic and a line that calls itself an error count before any other line, also before
//! later ones; a warning and a row of a table never count.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::output::pieces;

/// More characters are cut off: it becomes a part of a line.
const CHARACTERS_MAX: usize = 200;
/// The number of bytes of a line that are looked at.
const BYTES_MAX: usize = 4 * CHARACTERS_MAX;
/// A line that a rank wrote longer than this before its end does not say why it ended.
const AGE_MAX: Duration = Duration::from_secs(1);
/// The same of an error: destructors that run after it may wait for other ranks.
const ERROR_AGE_MAX: Duration = Duration::from_secs(60);

/// The kind of a line, by its looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LineKind {
    /// It may be anything.
    Line,
    /// It calls itself an error.
    Error,
    /// The message of a panic.
    Panic,
}

impl LineKind {
    fn age_max(self) -> Duration {
        if self == LineKind::Line { AGE_MAX } else { ERROR_AGE_MAX }
    }
}

/// A line, and when it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Words {
    pub(super) kind: LineKind,
    pub(super) text: String,
    pub(super) at: Instant,
}

impl Words {
    /// Whether they may be about an end at `at`.
    fn is_recent(&self, at: Instant) -> bool {
        at.saturating_duration_since(self.at) <= self.kind.age_max()
    }
}

/// The lines of a rank so far.
#[derive(Default)]
struct RankLines {
    words: Option<Words>,
    /// The beginning of a line whose end has not come.
    begun: Vec<u8>,
    /// The place at which a thread has panicked; the message is next.
    panicked: Option<String>,
}

/// The last words of all ranks.
pub(super) struct LastWords {
    of_ranks: Vec<Mutex<RankLines>>,
}

impl LastWords {
    pub(super) fn new(ranks: u32) -> LastWords {
        LastWords { of_ranks: (0..ranks).map(|_| Mutex::default()).collect() }
    }

    fn heard(&self, rank: u32) -> Option<MutexGuard<'_, RankLines>> {
        Some(self.of_ranks.get(rank as usize)?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The words of `rank` about its end at `at`.
    pub(super) fn of(&self, rank: u32, at: Instant) -> Option<Words> {
        self.heard(rank)?.words.clone().filter(|words| words.is_recent(at))
    }

    /// Hears some bytes of a rank.
    pub(super) fn hear(&self, rank: u32, text: &[u8]) {
        let Some(mut heard) = self.heard(rank) else { return };
        let at = Instant::now();
        for piece in pieces(text) {
            let room = BYTES_MAX.saturating_sub(heard.begun.len());
            heard.begun.extend_from_slice(&piece[..piece.len().min(room)]);
            match piece.last() {
                Some(b'\n') => heard.end_line(at),
                // The next state of a progress bar takes its place.
                Some(b'\r') => heard.begun.clear(),
                _ => {}
            }
        }
    }

    /// A rank says no more.
    pub(super) fn end(&self, rank: u32) {
        if let Some(mut heard) = self.heard(rank) {
            heard.end_line(Instant::now());
        }
    }
}

impl RankLines {
    fn end_line(&mut self, at: Instant) {
        let Some(text) = said(&std::mem::take(&mut self.begun)) else { return };
        let (kind, text) = match (self.panicked.take(), place_of_panic(&text)) {
            (None, Some(place)) if place.ends_with(':') => {
                self.panicked = Some(place.to_owned());
                return;
            }
            // As Rust said it until 1.72, and others do, in one line.
            (None, Some(_)) => (LineKind::Panic, text),
            (Some(place), _) => (LineKind::Panic, shortened(&format!("panicked at {place} {text}"))),
            (None, None) => match judged(&text) {
                Some(kind) => (kind, text),
                None => return,
            },
        };
        // The first panic makes others, and no later line takes an error back.
        let stays = self
            .words
            .as_ref()
            .is_some_and(|words| words.is_recent(at) && (words.kind > kind || words.kind == LineKind::Panic));
        if !stays {
            self.words = Some(Words { kind, text, at });
        }
    }
}

/// The line as plain text, if it says anything: an indented one only continues another, as the frames of a stack do,
/// and the lines after the message of a panic are about backtraces.
fn said(piece: &[u8]) -> Option<String> {
    let text = plain(&String::from_utf8_lossy(piece));
    let text = text.trim_end();
    if text.is_empty() || text.starts_with(' ') || text.starts_with("note: ") || text == "stack backtrace:" {
        return None;
    }
    Some(shortened(text))
}

fn shortened(text: &str) -> String {
    let mut said: String = text.chars().take(CHARACTERS_MAX).collect();
    if said.len() < text.len() {
        said.push_str("...");
    }
    said
}

/// Behind the words with which Rust begins to tell of a panic: the place, and a colon if the message has its own line.
fn place_of_panic(text: &str) -> Option<&str> {
    let (thread, place) = text.split_once(" panicked at ")?;
    thread.starts_with("thread ").then_some(place)
}

/// The kind of a line; `None` if it says itself that it is no error.
fn judged(text: &str) -> Option<LineKind> {
    let lower = text.to_lowercase();
    // As a compiler, a logger or an interpreter marks it: `warning: x`, `2026-01-01 WARN x`, `a.py:3: UserWarning: x`.
    let begins = |words: &[&str]| {
        words.iter().any(|word| {
            let rest = lower.strip_prefix(word);
            rest.is_some_and(|rest| !rest.starts_with(|next: char| next.is_alphanumeric() || next == '_'))
        })
    };
    let words = || text.split(|character: char| !character.is_alphanumeric() && character != '.');
    let has_level = |levels: &[&str]| words().any(|word| levels.contains(&word));
    let is_called = |ends: &[&str]| {
        text.split(' ')
            .filter_map(|word| word.strip_suffix(':'))
            .any(|name| ends.iter().any(|end| name.ends_with(end)))
    };
    if begins(&["error", "fatal", "panic"])
        || has_level(&["ERROR", "FATAL", "CRITICAL"])
        || is_called(&["Error", "Exception"])
        || lower.contains(": error:")
    {
        return Some(LineKind::Error);
    }
    let is_mild = begins(&["warning", "warn", "info", "debug", "trace", "hint", "help", "unisono: rank"])
        || has_level(&["WARN", "WARNING", "INFO", "DEBUG", "TRACE"])
        || is_called(&["Warning"])
        || lower.contains(": warning:");
    // Three columns or more.
    let is_row = text.split("  ").filter(|cell| !cell.trim().is_empty()).count() > 2;
    (!is_mild && !is_row).then_some(LineKind::Line)
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

    fn after(text: &str) -> Option<(LineKind, String)> {
        let words = LastWords::new(1);
        words.hear(0, text.as_bytes());
        words.end(0);
        words.of(0, Instant::now()).map(|words| (words.kind, words.text))
    }

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
        let (_, long) = after(&"\u{e4}".repeat(5000)).unwrap();
        assert_eq!(long, "\u{e4}".repeat(CHARACTERS_MAX) + "...");
    }

    #[test]
    fn the_message_of_the_first_panic_stays_whatever_comes_behind() {
        let text = "thread 'worker' (77) panicked at src/main.rs:5:9:\na bug\nof two lines\nnote: run with `X`\n\
                    thread 'main' (1) panicked at src/main.rs:9:1:\nworker: Any { .. }\nError: late\nbye\n";
        assert_eq!(after(text), Some((LineKind::Panic, "panicked at src/main.rs:5:9: a bug".to_owned())));
        let old = "thread 'main' panicked at 'a bug', src/main.rs:5:9\n";
        assert_eq!(after(old), Some((LineKind::Panic, old.trim_end().to_owned())));
    }

    #[test]
    fn what_is_called_an_error_stays_and_a_warning_or_a_row_never_counts() {
        for error in [
            "Error: no data",
            "ValueError: bad",
            "torch.cuda.OutOfMemoryError: 3 GiB",
            "java.lang.IllegalStateException: x",
            "a.c:3:1: error: no type",
            "2026-01-01T00:00:00Z ERROR step: failed",
            "[rank0]:[E] fatal: ERROR",
            "fatal: no repository",
        ] {
            let expected = Some((LineKind::Error, error.to_owned()));
            assert_eq!(after(&format!("{error}\nretrying\n")), expected);
        }
        for aside in [
            "warning: unused",
            "WARN x",
            "a.py:3: UserWarning: x",
            "2026-01-01T00:00:00Z  INFO step: done",
            "unisono: rank 2: TCP segments sent again: 1",
            "all_reduce  3  1.00 KiB  2",
        ] {
            assert_eq!(
                after(&format!("no data\n{aside}\n")),
                Some((LineKind::Line, "no data".to_owned())),
                "{aside}"
            );
            assert_eq!(after(aside), None, "{aside}");
        }
        assert_eq!(after("50%\r"), None, "the next state takes its place");
        assert_eq!(
            after("errors: 0, warnings ignored\n"),
            Some((LineKind::Line, "errors: 0, warnings ignored".to_owned()))
        );
    }

    #[test]
    fn what_was_said_long_ago_is_not_about_the_end() {
        let words = LastWords::new(1);
        words.hear(0, b"no data\n");
        let at = |after| Instant::now() + after;
        assert_eq!(words.of(0, at(2 * AGE_MAX)), None);
        words.hear(0, b"error: no data\n");
        assert!(words.of(0, at(2 * AGE_MAX)).is_some());
        assert_eq!(words.of(0, at(2 * ERROR_AGE_MAX)), None);
    }
}
