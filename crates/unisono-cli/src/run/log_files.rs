//! The output of each rank, also in a file of its own (`--log-dir`).

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::output::pieces;
use super::queue::lost_text;
use crate::problem::{Problem, Result};

/// A file of a rank, until writing to it has failed.
struct LogFile {
    path: PathBuf,
    file: Option<File>,
    /// Lines that are not in it, and why the first of them is not.
    lost: u64,
    why: String,
}

/// The files `DIR/rank-N.log`, which hold both streams as they come.
pub(super) struct LogFiles {
    files: Vec<Mutex<LogFile>>,
}

impl LogFiles {
    /// Creates the folder, and the files, which are empty then.
    pub(super) fn create(folder: &Path, ranks: u32) -> Result<LogFiles> {
        let problem = |path: &Path, error| Problem::failed(format!("--log-dir: {}", path.display()), error);
        std::fs::create_dir_all(folder).map_err(|error| problem(folder, error))?;
        let create = |rank| {
            let path = folder.join(format!("rank-{rank}.log"));
            let file = File::create(&path).map_err(|error| problem(&path, error))?;
            Ok(Mutex::new(LogFile { path, file: Some(file), lost: 0, why: String::new() }))
        };
        Ok(LogFiles { files: (0..ranks).map(create).collect::<Result<_>>()? })
    }

    /// Writes whole lines of a rank. After the first failure, of which it tells in words, nothing more is written to
    /// that file: one with a hole would not tell the truth.
    pub(super) fn write(&self, rank: u32, lines: &[u8]) -> Option<String> {
        let mut log = self.files.get(rank as usize)?.lock().unwrap_or_else(PoisonError::into_inner);
        let (unwritten, error) = match &mut log.file {
            Some(file) => write_most(file, lines).err()?,
            None => {
                log.lost += pieces(lines).count() as u64;
                return None;
            }
        };
        log.file = None;
        log.lost = pieces(unwritten).count() as u64;
        log.why = error.to_string();
        Some(format!("--log-dir: {} ends here: {error}", log.path.display()))
    }

    /// The lines that are not in their files, in words, one text for each file.
    pub(super) fn lost(&self) -> Vec<String> {
        let text = |log: &Mutex<LogFile>| {
            let log = log.lock().unwrap_or_else(PoisonError::into_inner);
            lost_text(log.lost, &log.path.display().to_string(), &log.why)
        };
        self.files.iter().filter_map(text).collect()
    }
}

/// Writes everything, or gives the rest that could not be written, and the reason.
fn write_most<'b>(file: &mut File, bytes: &'b [u8]) -> Result<(), (&'b [u8], io::Error)> {
    let mut rest = bytes;
    while !rest.is_empty() {
        match file.write(rest) {
            Ok(0) => return Err((rest, io::ErrorKind::WriteZero.into())),
            Ok(written) => rest = &rest[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err((rest, error)),
        }
    }
    Ok(())
}
