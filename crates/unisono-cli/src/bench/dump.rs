//! The input and output of a call as files, so that another program can check them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::case::Case;

/// The file `call.json`.
#[derive(Serialize)]
struct CallFile<'a> {
    op: &'a str,
    ranks: u32,
    dtype: &'a str,
    redop: Option<&'a str>,
    root: Option<u32>,
    count: u64,
}

/// The folder of one row.
pub(crate) struct Dump {
    folder: PathBuf,
}

impl Dump {
    /// The folder of row `row` in `directory`; created if it is missing.
    pub(crate) fn create(directory: &Path, row: usize) -> io::Result<Dump> {
        let folder = directory.join(row.to_string());
        fs::create_dir_all(&folder)?;
        Ok(Dump { folder })
    }

    /// Writes the call; rank 0 does so.
    pub(crate) fn call(&self, case: &Case, root: Option<u32>) -> io::Result<()> {
        if case.rank != 0 {
            return Ok(());
        }
        let redop = case.op.map(|op| op.name());
        let dtype = case.dtype.name();
        let (ranks, count) = (case.ranks, case.count);
        let call = CallFile { op: case.operation.name(), ranks, dtype, redop, root, count };
        let text = serde_json::to_vec_pretty(&call).map_err(io::Error::from)?;
        fs::write(self.folder.join("call.json"), text)
    }

    /// Writes a rank's buffer before (`in`) or after (`out`) the call, as it is in memory: little-endian.
    pub(crate) fn buffer(&self, rank: u32, side: &str, bytes: &[u8]) -> io::Result<()> {
        fs::write(self.folder.join(format!("rank{rank}.{side}")), bytes)
    }
}
