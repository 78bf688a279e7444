//! A mapped segment.

#![expect(unsafe_code, reason = "memory that two processes share")]

use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::ptr;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use rustix::param::page_size;

use crate::indices::Page;

/// The access of this process to a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
}

/// The indices on the first page, then the ring twice.
#[derive(Debug)]
pub(super) struct Mapping {
    start: *mut u8,
    capacity: usize,
    /// The process that has mapped it: a forked child has other mappings there, or none.
    owner: u32,
}

// SAFETY: the memory belongs to the mapping, which does not depend on a thread. Threads share the page of indices,
// which has atomics only, and the ring, which is reached by copies only.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

fn is_capacity(bytes: usize) -> bool {
    bytes.is_power_of_two() && bytes.is_multiple_of(page_size()) && bytes <= 1 << 30
}

/// The bytes of a segment with a ring of this capacity.
pub(super) fn segment_bytes(capacity: usize) -> io::Result<u64> {
    let bytes = is_capacity(capacity).then(|| (page_size() + capacity) as u64);
    bytes.ok_or_else(|| ErrorKind::InvalidInput.into())
}

/// The capacity of a segment of so many bytes, if there are such segments.
pub(super) fn capacity_of(segment_bytes: u64) -> Option<usize> {
    let capacity = usize::try_from(segment_bytes).ok()?.checked_sub(page_size())?;
    is_capacity(capacity).then_some(capacity)
}

impl Mapping {
    /// Maps the segment in this file, which must have [`segment_bytes`] and keep them.
    pub(super) fn new(file: &impl AsFd, capacity: usize, access: Access) -> io::Result<Mapping> {
        const { assert!(size_of::<Page>() <= 4096, "it lies on one page") };
        let protection = match access {
            Access::Read => ProtFlags::READ,
            Access::Write => ProtFlags::READ | ProtFlags::WRITE,
        };
        let first = page_size() + capacity;
        // SAFETY: without an address the kernel chooses a place where nothing is mapped.
        let start = unsafe {
            let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
            mmap_anonymous(ptr::null_mut(), first + capacity, ProtFlags::empty(), flags)?
        };
        // From here on a failure unmaps all of it.
        let mapping = Mapping { start: start.cast(), capacity, owner: std::process::id() };
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: both places are within the mapping above, which this replaces; nobody has a reference into it.
        unsafe {
            mmap(start, first, protection, flags, file, 0)?;
            mmap(start.byte_add(first), capacity, protection, flags, file, page_size() as u64)?;
            // A forked child would hold the memory, and could write it.
            madvise(start, first + capacity, Advice::LinuxDontFork)?;
        }
        Ok(mapping)
    }

    #[inline]
    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    #[inline]
    pub(super) fn page(&self) -> &Page {
        // SAFETY: the first page is mapped as long as `self` lives, is aligned as a page, and has room for a `Page`,
        // which consists of atomics: any bytes are a value, and other processes may change them. A page that can only
        // be read is only read, which `Stream` sees to.
        unsafe { &*self.start.cast::<Page>() }
    }

    /// The place at which `bytes` bytes of the ring begin that have this index in the stream.
    #[inline]
    pub(super) fn at(&self, index: u64, bytes: usize) -> *mut u8 {
        assert!(bytes <= self.capacity, "{bytes} bytes in a ring of {}", self.capacity);
        let offset = (index % self.capacity as u64) as usize;
        // SAFETY: the ring is mapped twice behind the first page, so `capacity` bytes follow each of its bytes.
        unsafe { self.start.add(page_size() + offset) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if std::process::id() != self.owner {
            return;
        }
        let bytes = page_size() + 2 * self.capacity;
        // SAFETY: `new` has mapped so much there, and no reference into it outlives `self`. It fails only for a place
        // that is not a page's.
        let _ = unsafe { munmap(self.start.cast(), bytes) };
    }
}
