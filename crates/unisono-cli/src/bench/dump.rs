//! What a call was given and what it gave, as files, so that someone else can judge it.

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
    /// Row `row` below `directory`; made where it is missing.
    pub(crate) fn create(directory: &Path, row: usize) -> io::Result<Dump> {
        let folder = directory.join(row.to_string());
        fs::create_dir_all(&folder)?;
        Ok(Dump { folder })
    }

    /// What was called; written by rank 0.
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

    /// A rank's buffer before (`in`) or after (`out`) the call, as it lies in memory: little-endian.
    pub(crate) fn buffer(&self, rank: u32, side: &str, bytes: &[u8]) -> io::Result<()> {
        fs::write(self.folder.join(format!("rank{rank}.{side}")), bytes)
    }
}
