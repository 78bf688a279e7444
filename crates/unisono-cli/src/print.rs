//! Standard output: it is flushed after each line, so that a reader sees lines at once.

use std::fmt::{self, Display};
use std::io::{self, Write};

use rustix::io::fcntl_dupfd_cloexec;
use rustix::stdio;
use serde::Serialize;
use unisono_algorithms_cli::print;

use crate::problem::{Problem, Result};

/// The first descriptor that is no standard stream.
const FIRST_OTHER: i32 = 3;

/// The most items that a list names.
const NAMED_MAX: usize = 8;

/// Prints a line, or several.
pub(crate) fn line(text: &str) -> Result<()> {
    print::line(&mut io::stdout().lock(), text)
}

/// Writes a line with the program's name to standard error. Nobody is left to tell if that fails, and no work stops
/// because of it.
pub(crate) fn tell(text: impl Display) {
    let _ = io::stderr().lock().write_all(format!("unisono: {text}\n").as_bytes());
}

/// The first items, and how many more there are.
pub(crate) fn listed(mut items: Vec<String>, separator: &str) -> String {
    let more = items.len().saturating_sub(NAMED_MAX);
    items.truncate(NAMED_MAX);
    items.extend((more > 0).then(|| format!("and {more} more")));
    items.join(separator)
}

/// Prints a JSON document with line breaks, for people.
pub(crate) fn document(document: &impl Serialize) -> Result<()> {
    print::document(&mut io::stdout().lock(), document)
}

/// Does work in which a vendor's library may print: its warnings go to standard error, because results are read from
/// standard output.
pub(crate) fn aside<R>(work: impl FnOnce() -> R) -> R {
    let out = fcntl_dupfd_cloexec(stdio::stdout(), FIRST_OTHER);
    let out = out.and_then(|out| stdio::dup2_stdout(stdio::stderr()).map(|()| out));
    let done = work();
    if let Ok(out) = out {
        // It was standard output before.
        let _ = stdio::dup2_stdout(out);
    }
    done
}

/// A JSON array whose elements are printed as they come, each on a line of its own.
pub(crate) struct Array {
    elements: usize,
}

impl Array {
    pub(crate) fn new() -> Array {
        Array { elements: 0 }
    }

    /// Prints one more element.
    pub(crate) fn element(&mut self, element: &impl Serialize) -> Result<()> {
        let text = serde_json::to_string(element).map_err(|error| Problem::failed("the document", error))?;
        self.elements += 1;
        line(&format!("{}{text}", if self.elements == 1 { '[' } else { ',' }))
    }

    /// After the last one.
    pub(crate) fn end(self) -> Result<()> {
        line(if self.elements == 0 { "[]" } else { "]" })
    }
}

/// Rows of cells, printed in columns as wide as their widest cell.
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(header: &[&str]) -> Table {
        Table { rows: vec![header.iter().map(|&name| name.to_owned()).collect()] }
    }

    /// Adds a row with a cell for each column.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }
}

impl Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut widths = vec![0; self.rows[0].len()];
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = cell.chars().count().max(*width);
            }
        }
        for row in &self.rows {
            let cells = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:<width$}"));
            writeln!(f, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
        }
        Ok(())
    }
}
