//! A stream over sockets: nonblocking calls.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags};
use unisono_engine::Interest;
use unisono_job::sockets::DataSocket;

use crate::sleep::PollList;

/// One stream between two ranks. Both directions may share a socket.
pub(crate) struct SocketStream {
    sender: Direction,
    receiver: Direction,
}

struct Direction {
    socket: Arc<DataSocket>,
    is_lost: bool,
}

impl SocketStream {
    /// The stream that sends on the first socket, and receives on the second.
    pub(crate) fn new(sender: Arc<DataSocket>, receiver: Arc<DataSocket>) -> SocketStream {
        let direction = |socket| Direction { socket, is_lost: false };
        SocketStream { sender: direction(sender), receiver: direction(receiver) }
    }

    /// Lists its sockets for a sleep. A lost socket is always ready, so a thread that polls it together with others
    /// would never sleep.
    pub(crate) fn list<'a>(&'a self, interest: &Interest, sleep: &mut PollList<'a>) {
        let SocketStream { sender, receiver } = self;
        if interest.readable && !receiver.is_lost {
            sleep.add_readable(receiver.as_fd());
        }
        if interest.writable && !sender.is_lost {
            sleep.add_writable(sender.as_fd());
        }
    }

    /// Takes as many bytes as fit, from the first slice on. Errors are as for `Link::try_send`.
    pub(crate) fn send(&mut self, bytes: &[IoSlice<'_>]) -> io::Result<usize> {
        self.sender.send(bytes)
    }

    /// Fills the slices in order. Errors are as for `Link::try_recv`.
    pub(crate) fn recv(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.receiver.recv(into)
    }

    /// Receives no more, since bytes were changed on their way.
    pub(crate) fn distrust(&mut self) {
        self.receiver.is_lost = true;
    }

    /// As `Link::is_delivered`.
    pub(crate) fn is_delivered(&mut self) -> bool {
        self.sender.socket.is_delivered()
    }
}

impl AsFd for Direction {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
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
