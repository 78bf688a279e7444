//! Memory that one process writes and another one reads: indices, short messages, and a ring of bytes that is mapped
//! twice in succession, so that no copy wraps.
//!
//! A segment is a memfd, which nobody can find by a name and which goes with its last descriptor. All of it is there
//! before it is used, and its size is sealed: an access never meets a hole or an end. It is sealed against writing too,
//! but for the mapping that its maker has by then.

#![expect(unsafe_code, reason = "memory that two processes share")]

mod mapping;
mod other_process;

use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate,
    memfd_create,
};
use rustix::process::{Resource, getrlimit};

use crate::indices::Page;
use crate::short::{HEADER_BYTES, Key, PAYLOAD_NEAR_BYTES};
use mapping::{Access, Mapping};
pub(crate) use other_process::is_readable;
pub use other_process::{Nonce, OtherProcess, let_others_read};

/// The seals on which the other side relies.
const SEALS: SealFlags =
    SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::FUTURE_WRITE).union(SealFlags::SEAL);

/// See [`Segment::bytes_in_process`].
static IN_PROCESS: AtomicU64 = AtomicU64::new(0);

/// The lengths of the blocks of `fstat`.
const BLOCK_BYTES: u64 = 512;

/// The segment of this side, which it alone writes.
#[derive(Debug)]
pub struct Segment(Mapping);

impl Segment {
    /// Makes the memory for a ring of `capacity` bytes, a power of two that is a multiple of the page size. The file
    /// is for the other side, which can read it and nothing else.
    ///
    /// # Errors
    /// `InvalidInput` for another capacity; where the system has no such memory, no sealing of it, none left, or a
    /// limit on the length of files that is lower (`ulimit -f`).
    pub fn create(capacity: usize) -> io::Result<(Segment, OwnedFd)> {
        let bytes = mapping::segment_bytes(capacity)?;
        // Where a file may not be so long, a signal would end this process.
        if getrlimit(Resource::Fsize).current.is_some_and(|limit| limit < bytes) {
            return Err(ErrorKind::FileTooLarge.into());
        }
        let file = memfd_create("unisono", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, bytes)?;
        fallocate(&file, FallocateFlags::empty(), 0, bytes)?;
        let memory = Mapping::new(&file, capacity, Access::Write)?;
        fcntl_add_seals(&file, SEALS)?;
        IN_PROCESS.fetch_add(capacity as u64, Ordering::Relaxed);
        Ok((Segment(memory), file))
    }

    /// The bytes of all rings that this process has made and not dropped.
    pub fn bytes_in_process() -> u64 {
        IN_PROCESS.load(Ordering::Relaxed)
    }

    /// The bytes of its ring.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.0.capacity()
    }

    #[inline]
    pub(crate) fn page(&self) -> &Page {
        self.0.page()
    }

    /// Copies bytes into the ring, at this index of the stream.
    ///
    /// # Panics
    /// For more bytes than the ring has.
    #[inline]
    pub(crate) fn store(&self, index: u64, bytes: &[u8]) {
        let place = self.0.at(index, bytes.len());
        // SAFETY: `at` gives so many bytes of a mapping that is as long as it says, and that this process can write.
        // Only this side writes there, in the one `Stream` of its segment, and `bytes` is not in it: nobody has a
        // reference into it.
        unsafe { place.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) }
    }

    /// Stores a message in a place: a header with its key and the second part behind it, or both parts, bare.
    ///
    /// # Panics
    /// When the parts are too long.
    #[inline]
    pub(crate) fn store_message(
        &self,
        place: usize,
        header: Option<(&[u8; HEADER_BYTES], Key)>,
        [first, second]: [&[u8]; 2],
    ) {
        let short = &self.page().short;
        let payload = short.payload(place);
        // The line of the word that publishes the message comes last. A reader that looks at it meanwhile takes it away
        // from this core, at most once.
        let parts: [(&[AtomicU8], &[u8]); 3] = match header {
            Some((header, _)) => {
                let (near, far) = second.split_at(second.len().min(PAYLOAD_NEAR_BYTES));
                let (near_place, far_place) = payload.split_at(PAYLOAD_NEAR_BYTES);
                [(short.header(place), header), (far_place, far), (near_place, near)]
            }
            None => {
                let (first_place, second_place) = payload.split_at(first.len());
                [(second_place, second), (first_place, first), (&[], &[])]
            }
        };
        for (place, bytes) in parts.into_iter().filter(|(_, bytes)| !bytes.is_empty()) {
            assert!(bytes.len() <= place.len(), "{} bytes in a place of {}", bytes.len(), place.len());
            // SAFETY: the place has so many bytes, which are atomics in memory that this process can write. Only the
            // one `Stream` of this segment writes there, and `bytes` is not in it.
            unsafe {
                place.as_ptr().cast::<u8>().cast_mut().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len())
            }
        }
        if let Some((_, key)) = header {
            for (word, value) in short.key_words(place).iter().zip(key) {
                word.store(value, Ordering::Relaxed);
            }
        }
    }
}

/// Copies bytes that the other side can change.
///
/// # Panics
/// When the lengths differ.
#[inline]
pub(crate) fn copy_out(from: &[AtomicU8], into: &mut [u8]) {
    assert_eq!(from.len(), into.len());
    // SAFETY: both have this length, and do not overlap, since `into` is borrowed alone. The other side may write
    // there meanwhile if it keeps no rule: the bytes are then any bytes. Each is read once.
    unsafe { into.as_mut_ptr().copy_from_nonoverlapping(from.as_ptr().cast(), into.len()) }
}

impl Drop for Segment {
    fn drop(&mut self) {
        IN_PROCESS.fetch_sub(self.capacity() as u64, Ordering::Relaxed);
    }
}

/// The segment of the other side, which this side reads.
#[derive(Debug)]
pub(crate) struct OtherSegment(Mapping);

impl OtherSegment {
    /// The segment in a file that the other side has passed.
    ///
    /// # Errors
    /// `InvalidData` for a file whose memory could go away, or that is no segment.
    pub(crate) fn open(file: &OwnedFd) -> io::Result<OtherSegment> {
        // Other files have no seals.
        let seals = fcntl_get_seals(file).unwrap_or(SealFlags::empty());
        let facts = fstat(file)?;
        let bytes = facts.st_size as u64;
        let capacity = mapping::capacity_of(bytes).filter(|_| seals.contains(SEALS));
        match capacity {
            Some(capacity) if facts.st_blocks as u64 * BLOCK_BYTES >= bytes => {
                Ok(OtherSegment(Mapping::new(file, capacity, Access::Read)?))
            }
            _ => Err(ErrorKind::InvalidData.into()),
        }
    }

    /// The bytes of its ring.
    #[inline]
    pub(crate) fn capacity(&self) -> usize {
        self.0.capacity()
    }

    #[inline]
    pub(crate) fn page(&self) -> &Page {
        self.0.page()
    }

    /// The bytes of the ring, from this index of the stream on. The other side can change them at any time.
    ///
    /// # Panics
    /// For more bytes than the ring has.
    #[inline]
    pub(crate) fn bytes(&self, index: u64, count: usize) -> &[AtomicU8] {
        let place = self.0.at(index, count);
        // SAFETY: `at` gives so many bytes of a mapping whose size is sealed, and which this segment keeps. Atomics may
        // change at any time. Nobody writes them through this reference, which the mapping would refuse: an
        // `AtomicU8` in memory that can only be read may be loaded.
        unsafe { std::slice::from_raw_parts(place.cast::<AtomicU8>(), count) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPACITY: usize = 64 << 10;

    #[test]
    fn the_other_side_can_only_read() {
        let (segment, file) = Segment::create(CAPACITY).unwrap();
        assert_eq!(rustix::io::write(&file, b"x"), Err(rustix::io::Errno::PERM));
        assert!(ftruncate(&file, 0).is_err() && ftruncate(&file, 1 << 30).is_err());
        assert!(Mapping::new(&file, CAPACITY, Access::Write).is_err(), "no other mapping can write");
        let other = OtherSegment::open(&file).unwrap();
        // Behind the end of the ring comes its start.
        segment.store(CAPACITY as u64 - 2, b"abcd");
        let read = |index| {
            let mut bytes = [0; 4];
            copy_out(other.bytes(index, 4), &mut bytes);
            bytes
        };
        assert_eq!((&read(3 * CAPACITY as u64 - 2), &read(0)[..2]), (b"abcd", &b"cd"[..]));
    }

    #[test]
    fn a_file_that_could_go_away_is_refused() {
        let bytes = mapping::segment_bytes(CAPACITY).unwrap();
        let refused = |what: &str, file: OwnedFd| {
            let error = OtherSegment::open(&file).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidData, "{what}");
        };
        let file = |length| {
            let file = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
            ftruncate(&file, length).unwrap();
            file
        };
        let full = |length| {
            let file = file(length);
            fallocate(&file, FallocateFlags::empty(), 0, length).unwrap();
            file
        };
        refused("no seals", full(bytes));
        let may_grow = full(bytes);
        fcntl_add_seals(&may_grow, SEALS.difference(SealFlags::GROW)).unwrap();
        refused("may grow", may_grow);
        let holes = file(bytes);
        fcntl_add_seals(&holes, SEALS).unwrap();
        refused("holes", holes);
        for length in [0, 4096, bytes + 1, bytes + 4096, (1 << 31) + 4096] {
            let other = file(length);
            fcntl_add_seals(&other, SEALS).unwrap();
            refused("of another length", other);
        }
        refused("no memory", std::fs::File::open("/dev/null").unwrap().into());
        for capacity in [0, 1, 4095, 3 << 12, 2 << 30] {
            assert_eq!(Segment::create(capacity).unwrap_err().kind(), ErrorKind::InvalidInput, "{capacity}");
        }
    }

    /// A forked child holds none of it.
    #[test]
    fn a_mapping_is_not_inherited() {
        let (segment, _file) = Segment::create(CAPACITY).unwrap();
        let start = format!("{:x}-", std::ptr::from_ref(segment.page()).addr());
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let of_ours = maps.split("\n").skip_while(|line| !line.starts_with(&start));
        let flags = of_ours.skip(1).find(|line| line.starts_with("VmFlags:")).unwrap();
        assert!(flags.split(' ').any(|flag| flag == "dc"), "{flags}");
    }
}
