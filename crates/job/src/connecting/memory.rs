//! Two ranks of one host agree that their data goes through memory: each passes the other a segment of its own over
//! the Unix socket (SCM_RIGHTS of unix(7)), and says whether it has mapped the other's. If either cannot, the data goes
//! over the socket.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::UnixStream;
use unisono_shared_memory::{Segment, Segments};

use super::Stream;

/// A direction must hold the largest element and a header, or calls in place wait for each other. A longer ring is not
/// faster (docs/measurements.md), and takes longer to make.
const RING_BYTES: usize = 256 << 10;

/// The rings of a process, together. A process with more connections uses sockets for the others.
const RINGS_BYTES_MAX: u64 = 64 << 20;

/// What carries a descriptor: a message without bytes would look like the end of the stream.
const CARRIER: u8 = 0xd5;

/// The two words about the other side's segment.
const MAPPED: u8 = 1;
const NOT_MAPPED: u8 = 0;

/// A segment of this process, if it may have one more beside rings of `in_process_bytes`, and can.
fn own_segment(in_process_bytes: u64) -> Option<(Segment, OwnedFd)> {
    (in_process_bytes < RINGS_BYTES_MAX).then(|| Segment::create(RING_BYTES).ok()).flatten()
}

/// Why the ranks of this process can share no memory with others of its host; `None` if they can.
///
/// ```
/// if let Some(problem) = unisono_job::memory_problem() {
///     println!("within this host data goes over sockets: {problem}");
/// }
/// ```
pub fn memory_problem() -> Option<String> {
    Segment::create(RING_BYTES).err().map(|error| error.to_string())
}

/// Agrees with the other side, which does the same, right behind the handshake.
///
/// # Errors
/// When the other side has gone, or keeps no rule. A lack of memory or of descriptors is no error.
pub(super) async fn agree(mut stream: UnixStream) -> io::Result<Stream> {
    let own = own_segment(Segment::bytes_in_process());
    pass(&stream, own.as_ref().map(|(_, file)| file)).await?;
    let passed = take_passed(&stream).await?;
    let segments = match (own, passed) {
        (Some((own, _)), Some(file)) => Segments::new(own, &file).ok(),
        _ => None,
    };
    stream.write_all(&[if segments.is_some() { MAPPED } else { NOT_MAPPED }]).await?;
    match (segments, stream.read_u8().await?) {
        (Some(segments), MAPPED) => Ok(Stream::Memory(stream, Arc::new(segments))),
        (_, MAPPED | NOT_MAPPED) => Ok(Stream::Unix(stream)),
        _ => Err(ErrorKind::InvalidData.into()),
    }
}

async fn pass(stream: &UnixStream, file: Option<&OwnedFd>) -> io::Result<()> {
    let send = || {
        let descriptor = file.map(AsFd::as_fd);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if let Some(descriptor) = &descriptor {
            control.push(SendAncillaryMessage::ScmRights(std::slice::from_ref(descriptor)));
        }
        let sent =
            rustix::net::sendmsg(stream, &[IoSlice::new(&[CARRIER])], &mut control, SendFlags::NOSIGNAL)?;
        Ok(sent)
    };
    stream.async_io(Interest::WRITABLE, send).await.map(drop)
}

/// The other side's file. `None` if it has none to pass, or if this process has no descriptor left for it.
async fn take_passed(stream: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let receive = || {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut carrier = [0];
        let into = &mut [IoSliceMut::new(&mut carrier)];
        let received = rustix::net::recvmsg(stream, into, &mut control, RecvFlags::CMSG_CLOEXEC)?;
        let file = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
            _ => None,
        });
        match (received.bytes, carrier) {
            (0, _) => Err(ErrorKind::UnexpectedEof.into()),
            (_, [CARRIER]) => Ok(file),
            _ => Err(ErrorKind::InvalidData.into()),
        }
    };
    stream.async_io(Interest::READABLE, receive).await
}

#[cfg(test)]
mod tests {
    use rustix::io::{FdFlags, fcntl_getfd};

    use super::*;
    use crate::task_thread::TaskThread;

    fn pair() -> (UnixStream, UnixStream) {
        UnixStream::pair().unwrap()
    }

    fn run<T>(future: impl Future<Output = T>) -> T {
        TaskThread::start("test").unwrap().wait_for(future)
    }

    #[test]
    fn two_sides_share_memory() {
        let (one, other) = run(async {
            let (one, other) = pair();
            tokio::join!(agree(one), agree(other))
        });
        let (Ok(Stream::Memory(..)), Ok(Stream::Memory(..))) = (one, other) else {
            panic!("over the socket")
        };
    }

    #[test]
    fn where_a_side_has_no_memory_both_use_the_socket() {
        // What the other side passes and says: nothing, a file that is no segment, or a segment that it could not map.
        for (passes, says) in [(None, NOT_MAPPED), (Some(false), NOT_MAPPED), (Some(true), NOT_MAPPED)] {
            run(async {
                let (one, mut other) = pair();
                let file = passes.map(|is_segment| match is_segment {
                    true => Segment::create(RING_BYTES).unwrap().1,
                    false => tempfile::tempfile().unwrap().into(),
                });
                let other_side = async {
                    pass(&other, file.as_ref()).await.unwrap();
                    let passed = take_passed(&other).await.unwrap().expect("a segment");
                    assert!(fcntl_getfd(&passed).unwrap().contains(FdFlags::CLOEXEC));
                    other.write_u8(says).await.unwrap();
                    other.read_u8().await.unwrap()
                };
                let (agreed, heard) = tokio::join!(agree(one), other_side);
                assert!(matches!(agreed, Ok(Stream::Unix(_))), "{passes:?}");
                assert_eq!(heard, if passes == Some(true) { MAPPED } else { NOT_MAPPED });
            });
        }
    }

    #[test]
    fn a_side_that_keeps_no_rule_is_refused() {
        let refused = |bytes: &'static [u8]| {
            run(async {
                let (one, mut other) = pair();
                let other_side = async {
                    other.write_all(bytes).await.unwrap();
                    other.shutdown().await.unwrap();
                };
                tokio::join!(agree(one), other_side).0.unwrap_err().kind()
            })
        };
        assert_eq!(refused(&[]), ErrorKind::UnexpectedEof);
        assert_eq!(refused(&[CARRIER]), ErrorKind::UnexpectedEof);
        assert_eq!(refused(&[!CARRIER]), ErrorKind::InvalidData);
        assert_eq!(refused(&[CARRIER, 7]), ErrorKind::InvalidData);
    }

    #[test]
    fn a_process_has_only_so_many_rings() {
        assert!(own_segment(RINGS_BYTES_MAX - 1).is_some() && own_segment(RINGS_BYTES_MAX).is_none());
    }
}
