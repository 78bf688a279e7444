//! How many bytes of a socket the peer's system has not acknowledged: what the end of this process could still lose.

#![allow(unsafe_code)]

use std::os::fd::AsFd;

/// The number of bytes that have been written to a TCP socket and not been acknowledged; `None` where the system does
/// not tell.
#[cfg(target_os = "linux")]
pub(super) fn unacknowledged_bytes(socket: &impl AsFd) -> Option<usize> {
    use rustix::ioctl::{Getter, ioctl};
    /// SIOCOUTQ of linux/sockios.h, the same number as TIOCOUTQ.
    const SIOCOUTQ: rustix::ioctl::Opcode = outq_opcode();
    // SAFETY: for a socket this operation stores one `int`, and changes nothing.
    let bytes = unsafe { ioctl(socket, Getter::<SIOCOUTQ, std::ffi::c_int>::new()) };
    bytes.ok().and_then(|bytes| usize::try_from(bytes).ok())
}

/// Differs on a few processors.
#[cfg(target_os = "linux")]
const fn outq_opcode() -> u32 {
    if cfg!(any(target_arch = "mips", target_arch = "mips64")) {
        0x7472
    } else if cfg!(any(target_arch = "powerpc", target_arch = "powerpc64", target_arch = "sparc64")) {
        0x4004_7473
    } else {
        0x5411
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn unacknowledged_bytes(_socket: &impl AsFd) -> Option<usize> {
    None
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn bytes_that_nobody_has_room_for_stay_unacknowledged() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut theirs, _) = listener.accept().unwrap();
        assert_eq!(unacknowledged_bytes(&ours), Some(0));
        ours.set_nonblocking(true).unwrap();
        let mut written = 0;
        while let Ok(bytes) = ours.write(&[1u8; 1 << 16]) {
            written += bytes;
        }
        assert!(unacknowledged_bytes(&ours).is_some_and(|bytes| bytes > 0));
        let mut all = vec![0u8; written];
        theirs.read_exact(&mut all).unwrap();
        while unacknowledged_bytes(&ours) != Some(0) {
            std::thread::yield_now();
        }
    }
}
