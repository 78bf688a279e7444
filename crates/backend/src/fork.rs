//! Detects a forked child of the process that made a communicator, without a system call in each call.
//!
//! The kernel zeroes a marked page in a forked child (Linux, `MADV_WIPEONFORK`). Without such a page, each check
//! compares process ids, which costs a system call.

#![allow(unsafe_code, reason = "maps a page that the kernel zeroes in a forked child")]

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use unisono_communicator::{Error, Result};

/// The content of the page in the process that mapped it.
const ALIVE: u32 = 1;

/// The process that may use a communicator.
pub(crate) struct ForkGuard {
    pid: u32,
    page: Option<&'static AtomicU32>,
}

impl ForkGuard {
    pub(crate) fn new() -> ForkGuard {
        static PAGE: OnceLock<Option<&'static AtomicU32>> = OnceLock::new();
        let page = *PAGE.get_or_init(wiped_on_fork);
        // A forked child that makes its own communicator sees the parent's page, zeroed, and does not use it.
        ForkGuard { pid: std::process::id(), page: page.filter(|page| page.load(Ordering::Relaxed) == ALIVE) }
    }

    /// Refuses a forked child.
    ///
    /// # Errors
    /// [`Error::Forked`].
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        match self.page {
            Some(page) if page.load(Ordering::Relaxed) == ALIVE => Ok(()),
            Some(_) | None => self.ask(),
        }
    }

    #[cold]
    fn ask(&self) -> Result<()> {
        let pid = std::process::id();
        if pid == self.pid { Ok(()) } else { Err(Error::Forked { owner: self.pid, pid }) }
    }
}

/// A page that is never unmapped. It starts with [`ALIVE`], except in a forked child.
#[cfg(target_os = "linux")]
fn wiped_on_fork() -> Option<&'static AtomicU32> {
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
    let bytes = rustix::param::page_size();
    // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
    let page = unsafe {
        mmap_anonymous(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
    };
    let page = page.ok()?;
    // SAFETY: the page is ours alone, and nothing else is in it.
    if unsafe { madvise(page, bytes, Advice::LinuxWipeOnFork) }.is_err() {
        // SAFETY: the page was mapped above, and nobody has its address.
        let _ = unsafe { munmap(page, bytes) };
        return None;
    }
    // SAFETY: the page is never unmapped, is aligned, zeroed, and only used as this atomic.
    let alive = unsafe { AtomicU32::from_ptr(page.cast()) };
    alive.store(ALIVE, Ordering::Relaxed);
    Some(alive)
}

#[cfg(not(target_os = "linux"))]
fn wiped_on_fork() -> Option<&'static AtomicU32> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_that_made_it_passes_and_another_number_does_not() {
        let guard = ForkGuard::new();
        assert!(guard.check().is_ok());
        let child = ForkGuard { pid: guard.pid.wrapping_add(1), page: None };
        assert!(matches!(child.check(), Err(Error::Forked { .. })));
    }

    #[test]
    fn a_wiped_page_asks_for_the_number() {
        static WIPED: AtomicU32 = AtomicU32::new(0);
        let own = ForkGuard { pid: std::process::id(), page: Some(&WIPED) };
        assert!(own.check().is_ok());
        let child = ForkGuard { pid: std::process::id().wrapping_add(1), page: Some(&WIPED) };
        assert!(matches!(child.check(), Err(Error::Forked { .. })));
    }
}
