//! The fate of a socket's bytes in the kernels on both sides. Bytes that were not acknowledged could still be lost when
//! this process ends.

#![allow(unsafe_code, reason = "system calls without a safe function")]

use std::os::fd::AsFd;

/// The number of bytes that have been written to a TCP socket and not been acknowledged; `None` where the system does
/// not tell.
#[cfg(target_os = "linux")]
pub(crate) fn unacknowledged_bytes(socket: &impl AsFd) -> Option<usize> {
    use rustix::ioctl::{Getter, ioctl};
    /// SIOCOUTQ of linux/sockios.h, the same number as TIOCOUTQ.
    const SIOCOUTQ: rustix::ioctl::Opcode = outq_opcode();
    // SAFETY: for a socket this operation stores one `int`, and changes nothing.
    let bytes = unsafe { ioctl(socket, Getter::<SIOCOUTQ, std::ffi::c_int>::new()) };
    bytes.ok().and_then(|bytes| usize::try_from(bytes).ok())
}

/// The value differs on a few processors.
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
pub(crate) fn unacknowledged_bytes(_socket: &impl AsFd) -> Option<usize> {
    None
}

/// Whether the other side's kernel has everything that was sent on a TCP socket, the end of the stream included: the
/// outgoing half must have been shut down. True as well when the connection is gone, since nothing more can arrive
/// then, and where the system does not tell.
#[cfg(target_os = "linux")]
pub(crate) fn is_acknowledged(socket: &impl AsFd) -> bool {
    /// The states of a socket after the other side has acknowledged its end: TCP_FIN_WAIT2, TCP_TIME_WAIT, TCP_CLOSE
    /// (linux/include/net/tcp_states.h).
    const ACKNOWLEDGED: [u8; 3] = [5, 6, 7];
    // A socket of another kind has nothing to be acknowledged.
    tcp_info(socket).is_none_or(|(info, _)| ACKNOWLEDGED.contains(&info.tcpi_state))
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn is_acknowledged(_socket: &impl AsFd) -> bool {
    true
}

/// The kernel's counts of a TCP socket since it was connected.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TcpTimes {
    /// The time for which sent bytes were unacknowledged, without the time in which the receiver or the buffers had no
    /// room.
    pub(crate) busy_us: u64,
    /// The number of sent bytes that were acknowledged.
    pub(crate) acknowledged_bytes: u64,
    /// The rate at which bytes were delivered when they were sent without a pause; 0 before the first measurement.
    pub(crate) bytes_per_s: u64,
    /// The shortest round trip of the last minutes; 0 before the first.
    pub(crate) min_round_trip_us: u32,
    /// The number of segments with data that were sent.
    pub(crate) sent_segments: u32,
    /// The number of segments that were sent again, because they were not acknowledged in time.
    pub(crate) retransmitted_segments: u32,
    /// The number of segments that the other side says that it got twice (RFC 2883); 0 before Linux 4.19.
    pub(crate) duplicate_segments: u32,
}

/// The counts of a TCP socket; `None` for other sockets, and where the system does not tell (Linux before 4.10).
#[cfg(target_os = "linux")]
pub(crate) fn tcp_times(socket: &impl AsFd) -> Option<TcpTimes> {
    const BYTES_MIN: usize = std::mem::offset_of!(libc::tcp_info, tcpi_delivered);
    let (info, _) = tcp_info(socket).filter(|(_, bytes)| *bytes >= BYTES_MIN)?;
    let limited_us = info.tcpi_rwnd_limited + info.tcpi_sndbuf_limited;
    Some(TcpTimes {
        busy_us: info.tcpi_busy_time.saturating_sub(limited_us),
        acknowledged_bytes: info.tcpi_bytes_acked,
        bytes_per_s: info.tcpi_delivery_rate,
        min_round_trip_us: Some(info.tcpi_min_rtt).filter(|&us| us < u32::MAX).unwrap_or(0),
        sent_segments: info.tcpi_data_segs_out,
        retransmitted_segments: info.tcpi_total_retrans,
        duplicate_segments: info.tcpi_dsack_dups,
    })
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn tcp_times(_socket: &impl AsFd) -> Option<TcpTimes> {
    None
}

/// The kernel's answer, and the number of its bytes: an older kernel has fewer.
#[cfg(target_os = "linux")]
fn tcp_info(socket: &impl AsFd) -> Option<(libc::tcp_info, usize)> {
    use std::os::fd::AsRawFd;
    // SAFETY: tcp_info is plain data, for which zeros are a value.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut bytes = size_of::<libc::tcp_info>() as libc::socklen_t;
    let descriptor = socket.as_fd().as_raw_fd();
    let place = (&raw mut info).cast();
    // SAFETY: the descriptor is open as long as it is borrowed; the kernel writes at most `bytes` bytes, which `info`
    // has.
    let result =
        unsafe { libc::getsockopt(descriptor, libc::IPPROTO_TCP, libc::TCP_INFO, place, &mut bytes) };
    (result == 0).then_some((info, bytes as usize))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpListener, TcpStream};
    use std::time::{Duration, Instant};

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

    #[test]
    fn an_end_is_acknowledged_when_all_before_it_has_arrived() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let mut ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (theirs, _) = listener.accept().unwrap();
        assert!(!is_acknowledged(&ours), "it has not ended");
        ours.set_nonblocking(true).unwrap();
        // More than the other side's kernel takes while nobody reads there.
        while ours.write(&[1; 64 * 1024]).is_ok() {}
        ours.shutdown(Shutdown::Write).unwrap();
        assert!(!is_acknowledged(&ours), "nobody has read");
        // The other side goes: bytes that it has not read are lost, and nothing more can arrive.
        drop(theirs);
        let until = Instant::now() + Duration::from_secs(30);
        while !is_acknowledged(&ours) {
            assert!(Instant::now() < until, "the connection is gone");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
