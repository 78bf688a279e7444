//! A short time slice for a thread that waits for bytes beside other work.
//!
//! Linux gives each thread its share of a core in slices, by default of milliseconds. A thread with a shorter slice
//! keeps its share, runs more often for a shorter time, and on waking preempts a thread with a longer slice (since
//! Linux 6.12; `sched_setattr(2)`, `sched_runtime`). This suits a thread that computes for microseconds and then waits
//! for bytes. It needs no privilege, and other kernels ignore it.
//!
//! Threads and processes inherit the slice of the thread that starts them. So the slice is short only within our calls,
//! and not while a user's function runs there: other code of the program keeps its slice.

#![allow(unsafe_code, reason = "system calls without a safe function")]

use std::cell::Cell;

use libc::{c_long, pid_t};

/// The shortest slice that the kernel grants.
const SLICE_NS: u64 = 100_000;

/// `SCHED_OTHER` and `SCHED_BATCH`, the policies that have a slice.
const POLICIES: [u32; 2] = [libc::SCHED_OTHER as u32, libc::SCHED_BATCH as u32];

/// `struct sched_attr` in its first form, which every kernel accepts.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
}

const ATTRIBUTES_BYTES: u32 = size_of::<Attributes>() as u32;

thread_local! {
    /// The former slice of a thread whose slice is short now.
    static BEFORE_NS: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Gives the calling thread its former slice back when it is dropped.
pub(crate) struct GivesBack;

impl Drop for GivesBack {
    fn drop(&mut self) {
        be_short(false);
    }
}

/// Gives the calling thread a short slice, or its former slice. Does nothing where the system refuses, and for a thread
/// without a slice or with a shorter one.
///
/// Cost: two system calls of less than a microsecond together, or nothing if nothing changes.
#[inline]
pub(crate) fn be_short(is_short: bool) {
    match (is_short, BEFORE_NS.get()) {
        (true, None) => {
            let is_long = |now: &Attributes| now.runtime_ns > SLICE_NS && POLICIES.contains(&now.policy);
            let before = attributes().filter(is_long);
            before.inspect(|before| set_attributes(&Attributes { runtime_ns: SLICE_NS, ..*before }));
            // Also set if nothing was changed, so that it is not tried again.
            BEFORE_NS.set(Some(before.map_or(0, |before| before.runtime_ns)));
        }
        (false, Some(before_ns)) => {
            give_back(before_ns);
            BEFORE_NS.set(None);
        }
        (true, Some(_)) | (false, None) => {}
    }
}

/// Restores the slice only: the thread may have another policy or niceness by now.
fn give_back(before_ns: u64) {
    if before_ns > 0
        && let Some(now) = attributes().filter(|now| POLICIES.contains(&now.policy))
    {
        set_attributes(&Attributes { runtime_ns: before_ns, ..now });
    }
}

/// The slice of the calling thread.
#[cfg(all(test, target_os = "linux"))]
pub(crate) fn slice_ns() -> Option<u64> {
    attributes().map(|attributes| attributes.runtime_ns)
}

/// The scheduling of the calling thread.
#[cfg(target_os = "linux")]
fn attributes() -> Option<Attributes> {
    let mut found = Attributes { size: ATTRIBUTES_BYTES, ..Attributes::default() };
    let (this, no_flags): (pid_t, c_long) = (0, 0);
    // SAFETY: the kernel writes at most `ATTRIBUTES_BYTES` bytes, which `found` has, and every value of them is valid.
    let result =
        unsafe { libc::syscall(libc::SYS_sched_getattr, this, &raw mut found, ATTRIBUTES_BYTES, no_flags) };
    (result == 0).then_some(found)
}

/// Sets the scheduling of the calling thread. A refusal of the system is ignored.
#[cfg(target_os = "linux")]
fn set_attributes(wanted: &Attributes) {
    let (this, no_flags): (pid_t, c_long) = (0, 0);
    let wanted = Attributes { size: ATTRIBUTES_BYTES, ..*wanted };
    // SAFETY: the kernel reads as many bytes as `wanted.size` says, which `wanted` has.
    unsafe { libc::syscall(libc::SYS_sched_setattr, this, &raw const wanted, no_flags) };
}

#[cfg(not(target_os = "linux"))]
fn attributes() -> Option<Attributes> {
    None
}

#[cfg(not(target_os = "linux"))]
fn set_attributes(_wanted: &Attributes) {}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_slice_is_given_back() {
        let before = attributes().unwrap();
        for is_short in [false, true, true] {
            be_short(is_short);
        }
        // A kernel without slices says 0.
        assert!(attributes().unwrap().runtime_ns <= SLICE_NS);
        be_short(false);
        let after = attributes().unwrap();
        assert_eq!((after.policy, after.nice), (before.policy, before.nice));
        assert_eq!(after.runtime_ns, before.runtime_ns);
    }
}
