//! Standard output: it is flushed after each line, so that a reader sees lines at once.

use std::io;

use serde::Serialize;
use unisono::algorithms_cli::print;

use crate::problem::Result;

/// Prints a line, or several.
pub(crate) fn line(text: &str) -> Result<()> {
    print::line(&mut io::stdout().lock(), text)
}

/// Prints a JSON document with line breaks, for people.
pub(crate) fn document(document: &impl Serialize) -> Result<()> {
    print::document(&mut io::stdout().lock(), document)
}
