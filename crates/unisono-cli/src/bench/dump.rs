//! The input and output of a call as files, so that another program can check them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;
use unisono::{DType, ReduceOp};

use super::case::Case;
use super::operations::CompressedOperation;

/// The file `call.json`.
#[derive(Serialize)]
struct CallFile<'a> {
    op: &'a str,
    ranks: u32,
    dtype: &'a str,
    redop: Option<&'a str>,
    root: Option<u32>,
    count: u64,
    /// Of a compressed call.
    #[serde(skip_serializing_if = "Option::is_none")]
    codec: Option<&'a str>,
}

/// The folder of one row.
pub(crate) struct Dump {
    folder: PathBuf,
}

impl Dump {
    /// The folder of row `row` in `directory`; created if it is missing.
    pub(crate) fn create(directory: &Path, row: usize) -> io::Result<Dump> {
        let folder = directory.join(row.to_string());
        fs::create_dir_all(&folder).map_err(|error| at(&folder, &error))?;
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
        self.call_file(&CallFile { op: case.operation.name(), ranks, dtype, redop, root, count, codec: None })
    }

    /// The same for a compressed mean of f32.
    pub(crate) fn compressed_call(&self, codec: &str, rank: u32, ranks: u32, count: u64) -> io::Result<()> {
        if rank != 0 {
            return Ok(());
        }
        let (op, dtype, redop) =
            (CompressedOperation::AllReduce.name(), DType::F32.name(), Some(ReduceOp::Avg.name()));
        self.call_file(&CallFile { op, ranks, dtype, redop, root: None, count, codec: Some(codec) })
    }

    fn call_file(&self, call: &CallFile<'_>) -> io::Result<()> {
        let text = serde_json::to_vec_pretty(call).map_err(io::Error::from)?;
        write(&self.folder.join("call.json"), &text)
    }

    /// Writes a rank's buffer before (`in`) or after (`out`) the call, as it is in memory: little-endian. Of a
    /// compressed call also the residual that it has left (`residual`) and, where it is the rank's own vector that is
    /// encoded, that (`encoded`).
    pub(crate) fn buffer(&self, rank: u32, side: &str, bytes: &[u8]) -> io::Result<()> {
        write(&self.folder.join(format!("rank{rank}.{side}")), bytes)
    }
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    fs::write(path, bytes).map_err(|error| at(path, &error))
}

/// The same error, with the path that the system leaves out.
fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}
