//! The descriptors of a process that hosts the meeting: one for the connection of each rank.
//!
//! The usual soft limit is 1,024. The host counts before it listens, and raises a limit that is too low as long as the
//! meeting lasts. A host that cannot have as many tells every rank so at once: else all ranks would wait for their
//! whole timeouts, and name innocent ranks as missing.

use super::key::own_process;
use crate::descriptors::{RaisedLimit, limit, limit_max, open_descriptors};

/// The descriptors that a host needs beside one for each rank: its listening socket, its own connection, and a few for
/// files that its program opens meanwhile.
const BESIDE: u64 = 8;

/// The excess of a raised limit over that: the share of strangers, and connections of ranks that begin already.
const SPARE: u64 = 64;
const SPARE_PART: u64 = 7;

/// The room of a host for its ranks. Dropping it restores the limit on descriptors.
#[derive(Debug)]
pub(super) struct Room {
    limit: RaisedLimit,
}

impl Room {
    /// Nothing is known yet.
    pub(super) fn new() -> Room {
        Room { limit: RaisedLimit::new() }
    }

    /// Makes room for the connections of so many more ranks.
    ///
    /// # Errors
    /// The message for the ranks where that cannot be.
    pub(super) fn make(&mut self, ranks: u32) -> Result<(), String> {
        let open = open_descriptors();
        let needed = open + u64::from(ranks) + BESIDE;
        match self.limit.raise(needed, needed + needed / SPARE_PART + SPARE) {
            true => Ok(()),
            false => Err(too_few(open, ranks, needed)),
        }
    }

    /// The message for the ranks after `error`, for lack of something, when so many ranks are still to come; `None` if
    /// there is room now.
    pub(super) fn after(&mut self, error: &std::io::Error, ranks: u32) -> Option<String> {
        let before = limit();
        match self.make(ranks) {
            Ok(()) if limit() != before => None,
            Ok(()) => Some(format!("{} can accept no more ranks: {error}", host())),
            Err(problem) => Some(problem),
        }
    }
}

fn host() -> String {
    format!("the process that hosts the meeting ({})", own_process().process)
}

fn too_few(open: u64, ranks: u32, needed: u64) -> String {
    let shown = |limit: Option<u64>| limit.map_or_else(|| "unlimited".to_owned(), |limit| limit.to_string());
    let (soft, hard) = (shown(limit()), shown(limit_max()));
    format!(
        "{} has too few file descriptors: it needs {needed}, {open} that are open and one for each of {ranks} ranks \
         and a few more, and has {soft} (RLIMIT_NOFILE, hard limit {hard}): raise the hard limit, and start that \
         process with ulimit -n {needed}, or more",
        host()
    )
}
