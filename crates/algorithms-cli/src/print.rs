//! Output that is flushed after each line, so that a reader sees lines at once.

use std::io::{Error, ErrorKind, Write};

use serde::Serialize;

use crate::problem::{Problem, Result};

/// Prints a line, or several.
///
/// # Errors
/// When `out` takes no more.
pub fn line(out: &mut dyn Write, text: &str) -> Result<()> {
    writeln!(out, "{text}").and_then(|()| out.flush()).map_err(|error| unprinted(&error))
}

/// The reason why standard output takes no more. A reader that has closed the pipe, as `head` does, has enough: the
/// program ends, with status 0.
pub fn unprinted(error: &Error) -> Problem {
    match error.kind() {
        ErrorKind::BrokenPipe => Problem::silent(0),
        _ => Problem::failed("standard output", error),
    }
}

/// Prints a JSON document with line breaks, for people.
///
/// # Errors
/// As [`line()`].
pub fn document(out: &mut dyn Write, document: &impl Serialize) -> Result<()> {
    let text =
        serde_json::to_string_pretty(document).map_err(|error| Problem::failed("the document", error))?;
    line(out, &text)
}
