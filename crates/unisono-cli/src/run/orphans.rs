//! Process 1 of a container has one more duty: the kernel makes it the parent of every process whose own parent has
//! ended, and such a process stays in the table until it is reaped.

use std::collections::BTreeSet;

use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};

/// The first process of a namespace.
const INIT: u32 = 1;

/// Whether orphans become children of this process.
pub(super) fn are_ours() -> bool {
    std::process::id() == INIT
}

/// Reaps the processes that have ended, but for these, whose status somebody waits for. No process may be started
/// meanwhile.
pub(super) fn reap(others: &BTreeSet<i32>) {
    if !are_ours() {
        return;
    }
    let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    // A child that must stay hides the children behind it. It is reaped soon, and then this is called again.
    while let Some(pid) = waitid(Id::All, look).ok().as_ref().and_then(WaitStatus::pid) {
        if others.contains(&pid.as_raw()) || waitpid(pid, Some(WaitPidFlag::WNOHANG)).is_err() {
            return;
        }
    }
}
