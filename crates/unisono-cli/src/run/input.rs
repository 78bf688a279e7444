//! The launcher's standard input, for the one rank that gets it (`--stdin`).
//!
//! A rank leads a process group of its own, so it cannot read from the terminal: the kernel would stop it. The launcher
//! reads there, and writes the input into the rank's pipe. So keys such as Ctrl-C and Ctrl-Z still reach the launcher,
//! which passes their signals on to all ranks.

use std::fs::File;
use std::io;
use std::process::ChildStdin;
use std::thread;

use rustix::io::fcntl_dupfd_cloexec;
use rustix::stdio;

/// No descriptor of a standard stream.
const FIRST_OTHER: i32 = 3;

/// Takes standard input to a rank from now on, until either side ends.
///
/// # Errors
/// When no descriptor or no thread is left.
pub(super) fn pass_on(mut rank: ChildStdin) -> io::Result<()> {
    // Not through the standard library's buffer, which would hold a line until it is full.
    let mut source = File::from(fcntl_dupfd_cloexec(stdio::stdin(), FIRST_OTHER)?);
    thread::Builder::new().name("input".into()).spawn(move || {
        // A rank that has ended reads no more, which its own end tells; a terminal that is gone ends the input.
        let _ = io::copy(&mut source, &mut rank);
    })?;
    Ok(())
}
