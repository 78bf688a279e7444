//! A short time slice for a thread that waits for bytes beside other work.
//!
//! Linux gives each thread its share of a core in slices, by default of milliseconds. A thread that asks for a shorter
//! slice keeps its share, is scheduled more often for a shorter time, and preempts one with a longer slice when it
//! wakes (since Linux 6.12; `sched_setattr(2)`, `sched_runtime`). That is what a thread wants that computes for
//! microseconds and then waits for the next bytes. It needs no privilege. Other kernels ignore it.
//!
//! Threads and processes inherit the slice of the thread that starts them. So it is short only within a call of ours,
//! and not while a function of the user's runs there: whatever else the program does has the slice that it had before.

#![allow(unsafe_code)]

use std::cell::Cell;

use libc::{c_long, pid_t};

/// The shortest slice that the kernel grants.
const SLICE_NS: u64 = 100_000;

/// `SCHED_OTHER` and `SCHED_BATCH`: the policies that have a slice.
const POLICIES: [u32; 2] = [libc::SCHED_OTHER as u32, libc::SCHED_BATCH as u32];

/// `struct sched_attr` in its first form, which every kernel takes.
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

/// The size of [`Attributes`], as the kernel is told.
const ATTRIBUTES_BYTES: u32 = size_of::<Attributes>() as u32;

thread_local! {
    /// The slice that this thread had before it was to be short.
    static BEFORE_NS: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Gives the calling thread back the slice that it had before, when this is dropped.
pub(crate) struct GivesBack;

impl Drop for GivesBack {
    fn drop(&mut self) {
        be_short(false);
    }
}

/// Gives the calling thread a short slice, or its former slice. Nothing changes where the system refuses, and for a
/// thread without a slice or with a shorter one.
///
/// Cost: nothing when there is nothing to change, else two calls of the system, of less than a microsecond together.
pub(crate) fn be_short(is_short: bool) {
    match (is_short, BEFORE_NS.get()) {
        (true, None) => {
            let is_long = |now: &Attributes| now.runtime_ns > SLICE_NS && POLICIES.contains(&now.policy);
            let before = attributes().filter(is_long);
            before.inspect(|before| set_attributes(&Attributes { runtime_ns: SLICE_NS, ..*before }));
            // Also when nothing was changed: it is not tried again and again.
            BEFORE_NS.set(Some(before.map_or(0, |before| before.runtime_ns)));
        }
        (false, Some(before_ns)) => {
            give_back(before_ns);
            BEFORE_NS.set(None);
        }
        (true, Some(_)) | (false, None) => {}
    }
}

/// Changes nothing else: the thread may have got another policy or niceness meanwhile.
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

/// Sets the scheduling of the calling thread, unless the system refuses.
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
        // A kernel that knows no slices says 0.
        assert!(attributes().unwrap().runtime_ns <= SLICE_NS);
        be_short(false);
        let after = attributes().unwrap();
        assert_eq!((after.policy, after.nice), (before.policy, before.nice));
        assert_eq!(after.runtime_ns, before.runtime_ns);
    }
}
