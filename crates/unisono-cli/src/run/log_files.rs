//! What each rank prints, also in a file of its own (`--log-dir`).

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::output::{Sink, Stream};
use crate::print;
use crate::problem::{Problem, Result};

/// A file of a rank, until writing to it has failed.
struct LogFile {
    path: PathBuf,
    file: Option<File>,
}

/// A sink that writes `DIR/rank-N.log`, both streams as they come, and passes everything on.
pub(super) struct LogFiles {
    files: Vec<Mutex<LogFile>>,
    sink: Arc<dyn Sink>,
}

impl LogFiles {
    /// Creates the folder, and the files, which are empty then.
    pub(super) fn create(folder: &Path, ranks: u32, sink: Arc<dyn Sink>) -> Result<LogFiles> {
        let problem = |path: &Path, error| Problem::failed(format!("--log-dir: {}", path.display()), error);
        std::fs::create_dir_all(folder).map_err(|error| problem(folder, error))?;
        let create = |rank| {
            let path = folder.join(format!("rank-{rank}.log"));
            let file = File::create(&path).map_err(|error| problem(&path, error))?;
            Ok(Mutex::new(LogFile { path, file: Some(file) }))
        };
        Ok(LogFiles { files: (0..ranks).map(create).collect::<Result<_>>()?, sink })
    }
}

impl LogFile {
    /// After an error, nothing more is written: a file with a hole would not tell the truth.
    fn write(&mut self, piece: &[u8]) -> io::Result<()> {
        let written = self.file.as_mut().map_or(Ok(()), |file| file.write_all(piece));
        if written.is_err() {
            self.file = None;
        }
        written
    }
}

impl Sink for LogFiles {
    fn piece(&self, rank: u32, stream: Stream, piece: &[u8]) {
        if let Some(file) = self.files.get(rank as usize) {
            let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
            if let Err(error) = file.write(piece) {
                print::tell(format_args!("--log-dir: {} ends here: {error}", file.path.display()));
            }
        }
        self.sink.piece(rank, stream, piece);
    }
}
