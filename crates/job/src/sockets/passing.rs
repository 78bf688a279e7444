//! Passing descriptors to the rank on the other side of a Unix socket (SCM_RIGHTS of unix(7)).

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};

use super::{DataSocket, SocketKind};

/// The most descriptors in one message.
pub const PASSED_DESCRIPTORS_MAX: usize = 8;

/// What carries the descriptors: a message without bytes would look like the end of the stream.
const CARRIER: u8 = 0xd5;

impl DataSocket {
    /// Passes descriptors to the other side, which calls [`DataSocket::receive_descriptors`] at the same place of the
    /// stream. The list may be empty.
    ///
    /// # Errors
    /// `InvalidInput` for more than [`PASSED_DESCRIPTORS_MAX`] and for a TCP socket; `WouldBlock` where the socket is
    /// full, which a new one is not; errors of sendmsg(2).
    pub fn send_descriptors(&self, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        // TCP would send the byte, and say nothing of the descriptors.
        if self.kind() != SocketKind::Unix || descriptors.len() > PASSED_DESCRIPTORS_MAX {
            return Err(ErrorKind::InvalidInput.into());
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PASSED_DESCRIPTORS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(ErrorKind::InvalidInput.into());
        }
        let bytes = [IoSlice::new(&[CARRIER])];
        rustix::net::sendmsg(self, &bytes, &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// The descriptors that the other side has passed here; they are closed in programs that this process starts.
    ///
    /// # Errors
    /// `WouldBlock` when nothing has come; `InvalidData` for anything else than one message of
    /// [`DataSocket::send_descriptors`], or when this process could not take all descriptors; `UnexpectedEof` at the
    /// end of the stream; errors of recvmsg(2).
    pub fn receive_descriptors(&self) -> io::Result<Vec<OwnedFd>> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PASSED_DESCRIPTORS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut carrier = [0];
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let received = rustix::net::recvmsg(self, &mut [IoSliceMut::new(&mut carrier)], &mut control, flags)?;
        let passed: Vec<OwnedFd> = control
            .drain()
            .filter_map(|message| match message {
                RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
                _ => None,
            })
            .flatten()
            .collect();
        match (received.bytes, carrier) {
            (0, _) => Err(ErrorKind::UnexpectedEof.into()),
            (_, [CARRIER]) if !received.flags.contains(ReturnFlags::CTRUNC) => Ok(passed),
            _ => Err(ErrorKind::InvalidData.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;

    use rustix::io::{FdFlags, fcntl_getfd};
    use unisono_communicator::JobRank;
    use unisono_control::wire::ConnectionRole;

    use super::*;

    fn socket(socket: impl Into<OwnedFd>, kind: SocketKind) -> Arc<DataSocket> {
        DataSocket::new(JobRank::new(1), (ConnectionRole::First, kind), socket.into())
    }

    fn pair() -> [Arc<DataSocket>; 2] {
        let (one, other) = UnixStream::pair().unwrap();
        [one, other].map(|end| socket(end, SocketKind::Unix))
    }

    #[test]
    fn descriptors_arrive_as_they_were_passed() {
        let [one, other] = pair();
        assert_eq!(other.receive_descriptors().unwrap_err().kind(), ErrorKind::WouldBlock);
        let files: Vec<_> = (0..PASSED_DESCRIPTORS_MAX).map(|_| tempfile::tempfile().unwrap()).collect();
        let all: Vec<_> = files.iter().map(AsFd::as_fd).collect();
        one.send_descriptors(&[]).unwrap();
        one.send_descriptors(&all).unwrap();
        assert!(other.receive_descriptors().unwrap().is_empty());
        let passed = other.receive_descriptors().unwrap();
        let inode = |one: BorrowedFd<'_>| rustix::fs::fstat(one).unwrap().st_ino;
        assert!(passed.iter().map(|one| inode(one.as_fd())).eq(all.iter().map(|one| inode(*one))));
        assert!(passed.iter().all(|one| fcntl_getfd(one).unwrap().contains(FdFlags::CLOEXEC)));
        drop(one);
        assert_eq!(other.receive_descriptors().unwrap_err().kind(), ErrorKind::UnexpectedEof);
    }

    #[test]
    fn what_cannot_be_passed_is_refused() {
        let [one, other] = pair();
        let file = tempfile::tempfile().unwrap();
        let refused = |socket: &DataSocket, count| {
            let kind = socket.send_descriptors(&vec![file.as_fd(); count]).unwrap_err().kind();
            assert_eq!(kind, ErrorKind::InvalidInput);
        };
        refused(&one, PASSED_DESCRIPTORS_MAX + 1);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let tcp = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        refused(&socket(tcp, SocketKind::Tcp), 1);
        rustix::net::send(&one, b"x", SendFlags::empty()).unwrap();
        assert_eq!(other.receive_descriptors().unwrap_err().kind(), ErrorKind::InvalidData);
    }
}
