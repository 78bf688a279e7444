//! The line of the program that makes a call: the innermost Python frame whose file is not of this package.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use unisono::extend::calls::Site;

use crate::foreign::Frame;

/// The most lines that are kept. A program with more of them forgets all and begins anew.
const LINES_MAX: usize = 4096;

/// The most bytes of a file's name that are kept: of a longer one its end, which says more than its beginning.
const NAME_BYTES_MAX: usize = 250;

/// Whether the file of a line is of this package.
#[derive(Clone, Copy)]
enum Line {
    OfProgram(Site),
    OfPackage,
}

/// The lines by the address of their code object and the number of their instruction in it, which is at hand: the
/// number of the line takes a walk through the code's table of lines. The code objects are kept, so that no other one
/// gets an address.
struct Lines(Mutex<BTreeMap<(usize, i32), Known>>);

/// A line, and its code object.
type Known = (Line, Py<PyAny>);

static LINES: PyOnceLock<Lines> = PyOnceLock::new();
static FOLDER: PyOnceLock<String> = PyOnceLock::new();

/// The line that calls; unknown without a Python frame, as in a thread of another language.
pub(crate) fn site(py: Python<'_>) -> Site {
    found(py).unwrap_or(Site::UNKNOWN)
}

fn found(py: Python<'_>) -> PyResult<Site> {
    let mut frame = Frame::current(py);
    while let Some(running) = frame {
        match line(py, &running)? {
            Line::OfProgram(site) => return Ok(site),
            Line::OfPackage => frame = running.back()?,
        }
    }
    Ok(Site::UNKNOWN)
}

fn line(py: Python<'_>, frame: &Frame<'_>) -> PyResult<Line> {
    let code = frame.code();
    let key = (code.as_ptr().addr(), frame.instruction()?);
    let lines = LINES.get_or_init(py, || Lines(Mutex::default()));
    if let Some((line, _)) = lines.0.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
        return Ok(*line);
    }
    let line = read(&code, frame.line())?;
    let mut known = lines.0.lock().unwrap_or_else(PoisonError::into_inner);
    // Code objects are dropped behind the lock, because that runs code of the interpreter.
    let forgotten = if known.len() < LINES_MAX { BTreeMap::new() } else { std::mem::take(&mut *known) };
    known.insert(key, (line, code.unbind()));
    drop(known);
    drop(forgotten);
    Ok(line)
}

fn read(code: &Bound<'_, PyAny>, number: u32) -> PyResult<Line> {
    let py = code.py();
    let folder = FOLDER.get_or_try_init(py, || -> PyResult<String> {
        let mut folder: String = py.import("unisono")?.getattr("__path__")?.get_item(0)?.extract()?;
        folder.push('/');
        Ok(folder)
    })?;
    let file: String = code.getattr("co_filename")?.extract()?;
    if file.starts_with(folder.as_str()) {
        return Ok(Line::OfPackage);
    }
    let site = Site::interned(ending(&file), number).unwrap_or(Site::UNKNOWN);
    Ok(Line::OfProgram(site))
}

/// The end of a name that is too long.
fn ending(file: &str) -> &str {
    let from = file.len().saturating_sub(NAME_BYTES_MAX);
    (from..=file.len()).find_map(|start| file.get(start..)).unwrap_or_default()
}
