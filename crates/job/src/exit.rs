//! The end of a process that has not left its jobs: a world in a static, or `exit` in the middle of the program.
//!
//! Without a goodbye the others would take such a rank for dead, and the bytes in its sockets might be taken back. So a
//! handler at the exit of the process leaves every job in its place, bounded by the settings of each.

#![expect(unsafe_code, reason = "calls `atexit`")]

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

use unisono_communicator::{Severity, log};

use crate::job::Job;
use crate::{comms_log, pmi};

/// The process that has the handler. A forked child inherits the handler and must not say goodbye for its parent.
static PID: AtomicU32 = AtomicU32::new(0);

/// Sees to it that this process leaves its jobs, and that their tables and counts are written, when it exits.
pub(crate) fn act_at_exit() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        PID.store(std::process::id(), Ordering::SeqCst);
        // SAFETY: the handler is a function of this program, takes nothing, and does not unwind.
        let result = unsafe { libc::atexit(on_exit) };
        if result != 0 {
            let problem = "no handler for the exit of the process: drop every world before it ends";
            log(Severity::Warn, None, format_args!("{problem}"));
        }
    });
}

extern "C" fn on_exit() {
    if PID.load(Ordering::SeqCst) == std::process::id() {
        // Nobody is left who could be told of a panic, and it must not cross into the C library.
        let _ = std::panic::catch_unwind(Job::leave_all);
        let _ = std::panic::catch_unwind(comms_log::end_all);
        let _ = std::panic::catch_unwind(pmi::leave);
    }
}
