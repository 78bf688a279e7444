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
use unisono_shared_memory::{Budget, Segment, Segments};

use super::{SingleCopy, Stream, single_copy};

/// The bytes of the ring of one direction of a connection.
///
/// A direction must hold the largest element and a header, or calls in place wait for each other. A longer ring is not
/// faster (benches/lab/measurements.md), and takes longer to make.
pub const RING_BYTES: usize = 256 << 10;

/// The memory that a rank may still need for itself when it has joined: stacks, buffers of sockets, plans.
const REST_BYTES: u64 = 1 << 20;

/// The byte that carries a descriptor: a message without bytes would look like the end of the stream.
const CARRIER: u8 = 0xd5;

/// The two words about the other side's segment.
const MAPPED: u8 = 1;
const NOT_MAPPED: u8 = 0;

/// The part of a rank in the budget of its host. For more connections it uses sockets.
#[derive(Clone, Debug)]
pub(crate) struct RingShare {
    budget: Budget,
    /// The bytes that the rings of this process may have.
    bytes: u64,
    /// The bytes that stay free for the rest of all ranks of this host.
    rest_bytes: u64,
    single_copy: SingleCopy,
}

impl RingShare {
    /// The share of one of `ranks` ranks of this host.
    pub(crate) fn of_one_among(ranks: usize, single_copy: SingleCopy) -> RingShare {
        let (budget, ranks) = (Budget::read(), ranks as u64);
        let rest_bytes = ranks.saturating_mul(REST_BYTES);
        RingShare { bytes: budget.bytes() / ranks, budget, rest_bytes, single_copy }
    }

    /// A segment of this process, if it may have one more beside rings of `in_process_bytes`, and can.
    fn segment(&self, in_process_bytes: u64) -> Option<(Segment, OwnedFd)> {
        let one = RING_BYTES as u64;
        let may = in_process_bytes + one <= self.bytes && self.budget.has_room(one + self.rest_bytes);
        may.then(|| Segment::create(RING_BYTES).ok()).flatten()
    }
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
pub(super) async fn agree(mut stream: UnixStream, share: &RingShare) -> io::Result<Stream> {
    let own = share.segment(Segment::bytes_in_process());
    pass(&stream, own.as_ref().map(|(_, file)| file)).await?;
    let passed = take_passed(&stream).await?;
    let segments = match (own, passed) {
        (Some((own, _)), Some(file)) => Segments::new(own, &file).ok(),
        _ => None,
    };
    stream.write_all(&[if segments.is_some() { MAPPED } else { NOT_MAPPED }]).await?;
    match (segments, stream.read_u8().await?) {
        (Some(segments), MAPPED) => {
            let segments = single_copy::agree(&mut stream, share.single_copy, segments).await?;
            Ok(Stream::Memory(stream, Arc::new(segments)))
        }
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
    use std::sync::LazyLock;

    use rustix::io::{FdFlags, fcntl_getfd};

    use super::*;
    use crate::task_thread::TaskThread;

    fn pair() -> (UnixStream, UnixStream) {
        UnixStream::pair().unwrap()
    }

    static AMPLE: LazyLock<RingShare> = LazyLock::new(|| RingShare::of_one_among(2, SingleCopy::Auto));

    fn run<T>(future: impl Future<Output = T>) -> T {
        TaskThread::start("test").unwrap().wait_for(future)
    }

    #[test]
    fn two_sides_share_memory() {
        let (one, other) = run(async {
            let (one, other) = pair();
            tokio::join!(agree(one, &AMPLE), agree(other, &AMPLE))
        });
        let (Ok(Stream::Memory(..)), Ok(Stream::Memory(..))) = (one, other) else {
            panic!("over the socket")
        };
    }

    /// Rows: J4
    #[test]
    fn where_a_side_has_no_memory_both_use_the_socket() {
        // The answers of the other side: nothing, a file that is no segment, or a segment that it could not map.
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
                let (agreed, heard) = tokio::join!(agree(one, &AMPLE), other_side);
                assert!(matches!(agreed, Ok(Stream::Unix(_))), "{passes:?}");
                assert_eq!(heard, if passes == Some(true) { MAPPED } else { NOT_MAPPED });
            });
        }
    }

    /// Rows: D9
    #[test]
    fn a_side_that_keeps_no_rule_is_refused() {
        let refused = |bytes: &'static [u8]| {
            run(async {
                let (one, mut other) = pair();
                let other_side = async {
                    other.write_all(bytes).await.unwrap();
                    other.shutdown().await.unwrap();
                };
                tokio::join!(agree(one, &AMPLE), other_side).0.unwrap_err().kind()
            })
        };
        assert_eq!(refused(&[]), ErrorKind::UnexpectedEof);
        assert_eq!(refused(&[CARRIER]), ErrorKind::UnexpectedEof);
        assert_eq!(refused(&[!CARRIER]), ErrorKind::InvalidData);
        assert_eq!(refused(&[CARRIER, 7]), ErrorKind::InvalidData);
    }

    #[test]
    fn ranks_have_as_many_rings_as_their_share_holds() {
        let (one, share) = (RING_BYTES as u64, RingShare::of_one_among(3, SingleCopy::Auto));
        assert_eq!(share.bytes, Budget::read().bytes() / 3);
        assert!(share.segment(share.bytes - one).is_some() && share.segment(share.bytes - one + 1).is_none());
        assert!(RingShare::of_one_among(1 << 40, SingleCopy::Off).segment(0).is_none());
    }
}
