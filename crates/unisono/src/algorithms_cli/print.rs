//! What is printed is flushed after each line, so that a reader sees lines at once.

use std::io::{ErrorKind, Write};

use serde::Serialize;

use super::problem::{Problem, Result};

/// What a shell reports of a program that was ended by SIGPIPE.
const STATUS_READER_GONE: u8 = 141;

/// Prints a line, or several.
///
/// # Errors
/// When `out` takes no more.
pub fn line(out: &mut dyn Write, text: &str) -> Result<()> {
    writeln!(out, "{text}").and_then(|()| out.flush()).map_err(|error| match error.kind() {
        // The reader has closed the pipe, as `head` does.
        ErrorKind::BrokenPipe => Problem::silent(STATUS_READER_GONE),
        _ => Problem::failed("standard output", error),
    })
}

/// Prints a JSON document with line breaks, for people.
///
/// # Errors
/// As [`line`].
pub fn document(out: &mut dyn Write, document: &impl Serialize) -> Result<()> {
    let text =
        serde_json::to_string_pretty(document).map_err(|error| Problem::failed("the document", error))?;
    line(out, &text)
}
