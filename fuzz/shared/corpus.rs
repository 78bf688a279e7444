//! The corpus of a fuzz target in one file: an input a line, in hexadecimal digits, in the order of the lines.

use std::fs;
use std::path::Path;

/// The inputs of the target `name`; an error names the line.
pub(crate) fn read(repository: &Path, name: &str) -> Result<Vec<Vec<u8>>, String> {
    let file = repository.join(format!("fuzz/corpus/{name}.hex"));
    let problem = |what: &dyn std::fmt::Display| format!("{}: {what}", file.display());
    let text = fs::read_to_string(&file).map_err(|error| problem(&error))?;
    let inputs = text.lines().map(|line| bytes(line).ok_or_else(|| problem(&line)));
    inputs.collect()
}

fn bytes(line: &str) -> Option<Vec<u8>> {
    let byte = |start| u8::from_str_radix(line.get(start..start + 2)?, 16).ok();
    (0..line.len()).step_by(2).map(byte).collect()
}
