//! Copies out of the memory of another process, by process_vm_readv(2).
//!
//! A process is known by its [`Nonce`]: random bytes at an address of its own, which are read again with each copy. So
//! no byte comes from another process that has got the same number, or from another program in the same process. A
//! forked child has zeros there.

#![expect(unsafe_code, reason = "a system call on memory, and a page of its own")]

use std::io::{self, ErrorKind};
use std::ptr;
use std::sync::{Mutex, PoisonError};

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
use rustix::param::page_size;
use rustix::process::{PTracer, set_ptracer};
use rustix::rand::{GetRandomFlags, getrandom};

/// The size of the random bytes.
const NONCE_BYTES: usize = 16;

/// Random bytes of a process, and their address there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nonce {
    address: u64,
    value: [u8; NONCE_BYTES],
}

/// The process that has made a nonce, and the nonce.
static OWN: Mutex<Option<(u32, Nonce)>> = Mutex::new(None);

impl Nonce {
    /// The size of [`Nonce::to_bytes`].
    pub const BYTES: usize = size_of::<u64>() + NONCE_BYTES;

    /// The nonce of this process, which stays the same.
    ///
    /// # Errors
    /// When no memory is left.
    pub fn of_this_process() -> io::Result<Nonce> {
        let mut own = OWN.lock().unwrap_or_else(PoisonError::into_inner);
        let process = std::process::id();
        match *own {
            Some((maker, nonce)) if maker == process => Ok(nonce),
            _ => Ok(own.insert((process, Nonce::new()?)).1),
        }
    }

    /// On a page that stays until the process ends.
    fn new() -> io::Result<Nonce> {
        let mut value = [0; NONCE_BYTES];
        getrandom(&mut value, GetRandomFlags::empty())?;
        // SAFETY: without an address the kernel chooses a place where nothing is mapped. The page is long enough for
        // the value, and nobody else knows of it.
        let page = unsafe {
            let page = mmap_anonymous(
                ptr::null_mut(),
                page_size(),
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )?;
            madvise(page, page_size(), Advice::LinuxWipeOnFork)?;
            page.cast::<[u8; NONCE_BYTES]>().write(value);
            page
        };
        Ok(Nonce { address: page.addr() as u64, value })
    }

    /// For the other side.
    pub fn to_bytes(self) -> [u8; Nonce::BYTES] {
        let mut bytes = [0; Nonce::BYTES];
        let (address, value) = bytes.split_at_mut(size_of::<u64>());
        address.copy_from_slice(&self.address.to_le_bytes());
        value.copy_from_slice(&self.value);
        bytes
    }

    /// The nonce of the other side.
    pub fn from_bytes(bytes: &[u8; Nonce::BYTES]) -> Nonce {
        let (mut address, mut value) = ([0; size_of::<u64>()], [0; NONCE_BYTES]);
        address.copy_from_slice(&bytes[..size_of::<u64>()]);
        value.copy_from_slice(&bytes[size_of::<u64>()..]);
        Nonce { address: u64::from_le_bytes(address), value }
    }
}

/// A process whose memory this process may read.
#[derive(Debug)]
pub struct OtherProcess {
    process: i32,
    nonce: Nonce,
}

impl OtherProcess {
    /// The process with this number and this nonce, if the kernel lets this process read its memory (ptrace(2), "Ptrace
    /// access mode checking").
    ///
    /// # Errors
    /// The kernel's reason; `NotFound` when another process has this number, as seen from here.
    pub fn new(process: i32, nonce: Nonce) -> io::Result<OtherProcess> {
        let other = OtherProcess { process, nonce };
        other.copy(0, &mut [])?;
        Ok(other)
    }

    /// Copies bytes of that process, which may change meanwhile.
    ///
    /// # Errors
    /// `UnexpectedEof` when it has ended; otherwise the text says whose memory cannot be reached.
    pub(crate) fn read(&self, address: u64, into: &mut [u8]) -> io::Result<()> {
        let Err(error) = self.copy(address, into) else { return Ok(()) };
        match Errno::from_io_error(&error) {
            Some(Errno::SRCH) => Err(ErrorKind::UnexpectedEof.into()),
            Some(Errno::FAULT) => Err(self.fault(address, into.len() as u64)),
            _ if error.kind() == ErrorKind::NotFound => Err(ErrorKind::UnexpectedEof.into()),
            _ => Err(io::Error::new(
                error.kind(),
                format!("its memory cannot be read any more: {error} (UNISONO_SINGLE_COPY=off reads none)"),
            )),
        }
    }

    /// The error after a fault in the memory of one of the two processes.
    fn fault(&self, address: u64, bytes: u64) -> io::Error {
        let page = page_size() as u64;
        let end = address.saturating_add(bytes);
        let mut places = (address..end).step_by(page_size()).chain([end - 1]);
        let text = match places.find(|&place| self.copy(place, &mut [0]).is_err()) {
            Some(place) => format!(
                "its buffer cannot be read at {:#x}: it may lie in a file that was cut, or in a device's memory",
                place - place % page
            ),
            None => {
                "the buffer for its bytes cannot be written: it may lie in a file that was cut".to_owned()
            }
        };
        io::Error::new(ErrorKind::AddrNotAvailable, text)
    }

    /// Copies, and compares the nonce.
    fn copy(&self, address: u64, into: &mut [u8]) -> io::Result<()> {
        let mut nonce = [0; NONCE_BYTES];
        let bytes = into.len() + NONCE_BYTES;
        let local =
            [part(into.as_mut_ptr().addr(), into.len()), part(nonce.as_mut_ptr().addr(), NONCE_BYTES)];
        let remote = [part(address as usize, into.len()), part(self.nonce.address as usize, NONCE_BYTES)];
        // SAFETY: the kernel writes into the two local parts alone, which are borrowed here, and checks the addresses
        // of the other process.
        let copied =
            unsafe { libc::process_vm_readv(self.process, local.as_ptr(), 2, remote.as_ptr(), 2, 0) };
        match usize::try_from(copied) {
            Err(_) => Err(io::Error::last_os_error()),
            // It stops at the first byte that it cannot reach.
            Ok(copied) if copied < bytes => Err(Errno::FAULT.into()),
            Ok(_) if nonce != self.nonce.value => Err(ErrorKind::NotFound.into()),
            Ok(_) => Ok(()),
        }
    }
}

/// Whether other processes could copy these bytes of this process, as its first and its last one tell: the kernel
/// copies nothing out of a device's memory.
pub(crate) fn is_readable(bytes: &[u8]) -> bool {
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else { return true };
    let mut copies = [0; 2];
    let local = [part(copies.as_mut_ptr().addr(), copies.len())];
    let remote = [first, last].map(|byte| part(ptr::from_ref(byte).addr(), 1));
    let own = std::process::id() as libc::pid_t;
    // SAFETY: the kernel writes into the one local part alone, which is borrowed here.
    let copied = unsafe { libc::process_vm_readv(own, local.as_ptr(), 1, remote.as_ptr(), 2, 0) };
    copied == 2
}

fn part(address: usize, bytes: usize) -> libc::iovec {
    libc::iovec { iov_base: ptr::without_provenance_mut(address), iov_len: bytes }
}

/// Lets any process of the same user read this one's memory, where Yama's `ptrace_scope` is 1.
///
/// # Errors
/// The kernel's reason. No error where the kernel has no Yama.
pub fn let_others_read() -> io::Result<()> {
    match set_ptracer(PTracer::Any) {
        Ok(()) | Err(Errno::INVAL) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> OtherProcess {
        OtherProcess::new(std::process::id() as i32, Nonce::of_this_process().unwrap()).unwrap()
    }

    fn address(bytes: &[u8]) -> u64 {
        bytes.as_ptr().addr() as u64
    }

    #[test]
    fn a_process_is_known_by_its_nonce() {
        let nonce = Nonce::of_this_process().unwrap();
        assert_eq!((Nonce::of_this_process().unwrap(), Nonce::from_bytes(&nonce.to_bytes())), (nonce, nonce));
        let (bytes, mut copy) = (vec![7; 100_000], vec![0; 100_000]);
        own().read(address(&bytes), &mut copy).unwrap();
        assert_eq!(copy, bytes);
        // Another process, also one with this number.
        let mut others = nonce;
        others.value[0] ^= 1;
        let process = std::process::id() as i32;
        assert_eq!(OtherProcess::new(process, others).unwrap_err().kind(), ErrorKind::NotFound);
        let ended = OtherProcess { process, nonce: others };
        assert_eq!(ended.read(address(&bytes), &mut copy).unwrap_err().kind(), ErrorKind::UnexpectedEof);
        let nobody = OtherProcess { process: i32::MAX, nonce };
        assert_eq!(nobody.read(address(&bytes), &mut copy).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_fault_is_named() {
        let (file, page) = (tempfile::tempfile().unwrap(), page_size());
        file.set_len(3 * page as u64).unwrap();
        // SAFETY: a new mapping, of which no byte is touched here.
        let start = unsafe {
            let flags = ProtFlags::READ | ProtFlags::WRITE;
            rustix::mm::mmap(ptr::null_mut(), 3 * page, flags, MapFlags::SHARED, &file, 0).unwrap()
        };
        let (address, mut bytes) = (start.addr() as u64, vec![0; 3 * page]);
        own().read(address, &mut bytes).unwrap();
        file.set_len(page as u64).unwrap();
        let error = own().read(address, &mut bytes).unwrap_err().to_string();
        assert!(error.contains(&format!("{:#x}", address + page as u64)), "{error}");
        // SAFETY: only the kernel touches the bytes.
        let mapped = unsafe { std::slice::from_raw_parts_mut(start.cast::<u8>(), 3 * page) };
        assert!(is_readable(&mapped[..page]) && !is_readable(mapped) && !is_readable(&mapped[page..]));
        let error = own().read(self::address(&bytes), mapped).unwrap_err().to_string();
        assert!(error.contains("cannot be written"), "{error}");
    }
}
