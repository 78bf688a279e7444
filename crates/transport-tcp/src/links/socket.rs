//! One byte stream to one peer: nonblocking calls on sockets.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags};
use unisono_engine::Link;
use unisono_job::sockets::DataSocket;

use super::records;

/// One stream between two ranks. Both directions may share a socket.
pub struct TcpLink {
    sender: Direction,
    receiver: Direction,
    /// On a checked stream.
    records: Option<Box<Records>>,
}

struct Records {
    sender: records::Sender,
    receiver: records::Receiver,
}

struct Direction {
    socket: Arc<DataSocket>,
    is_lost: bool,
}

impl TcpLink {
    pub(super) fn new(sender: Arc<DataSocket>, receiver: Arc<DataSocket>, is_checked: bool) -> TcpLink {
        let direction = |socket| Direction { socket, is_lost: false };
        let records = is_checked.then(|| {
            Box::new(Records { sender: records::Sender::default(), receiver: records::Receiver::new() })
        });
        TcpLink { sender: direction(sender), receiver: direction(receiver), records }
    }

    /// Whether bytes that have been read from the socket wait here.
    pub(super) fn holds_bytes(&self) -> bool {
        self.records.as_ref().is_some_and(|records| records.receiver.holds_bytes())
    }

    /// The socket to poll before sending. `None` when it is lost: a lost socket is always ready, so a thread that polls
    /// it together with others would never sleep.
    pub(super) fn send_fd(&self) -> Option<BorrowedFd<'_>> {
        (!self.sender.is_lost).then(|| self.sender.socket.as_fd())
    }

    /// The socket to poll before receiving; `None` when it is lost.
    pub(super) fn recv_fd(&self) -> Option<BorrowedFd<'_>> {
        (!self.receiver.is_lost).then(|| self.receiver.socket.as_fd())
    }
}

impl Link for TcpLink {
    fn try_send(&mut self, bytes: &[IoSlice<'_>], _copied_bytes: usize) -> io::Result<usize> {
        let socket = &mut self.sender;
        match &mut self.records {
            None => socket.send(bytes),
            Some(records) => records.sender.send(bytes, |slices| socket.send(slices)),
        }
    }

    fn unreleased_bytes(&mut self) -> io::Result<u64> {
        Ok(0)
    }

    fn try_recv(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let socket = &mut self.receiver;
        match &mut self.records {
            None => socket.recv(into),
            Some(records) => {
                let received = records.receiver.recv(into, |room| socket.recv(&mut [IoSliceMut::new(room)]));
                socket.is_lost |= matches!(&received, Err(error) if error.kind() == ErrorKind::InvalidData);
                received
            }
        }
    }

    fn is_delivered(&mut self) -> bool {
        self.sender.socket.is_delivered()
    }
}

impl Direction {
    fn send(&mut self, bytes: &[IoSlice<'_>]) -> io::Result<usize> {
        let socket = &*self.socket;
        let sent = match bytes {
            // The vectored call costs more to set up.
            [one] => rustix::net::send(socket, one, SendFlags::NOSIGNAL),
            many => {
                let mut control = SendAncillaryBuffer::default();
                rustix::net::sendmsg(socket, many, &mut control, SendFlags::NOSIGNAL)
            }
        };
        self.settle(sent)
    }

    fn recv(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let socket = &*self.socket;
        let received = match &mut *into {
            [one] => rustix::net::recv(socket, &mut **one, RecvFlags::empty()).map(|(_, bytes)| bytes),
            many => rustix::io::readv(socket, many),
        };
        let bytes = self.settle(received)?;
        self.is_lost |= bytes == 0 && into.iter().any(|slice| !slice.is_empty());
        Ok(bytes)
    }

    fn settle(&mut self, moved: Result<usize, Errno>) -> io::Result<usize> {
        match moved {
            Ok(bytes) => Ok(bytes),
            // The kernel may be short of memory for a moment, or a signal may come: the socket still works.
            Err(Errno::INTR | Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM) => {
                Err(ErrorKind::WouldBlock.into())
            }
            Err(error) => {
                self.is_lost = true;
                Err(error.into())
            }
        }
    }
}
