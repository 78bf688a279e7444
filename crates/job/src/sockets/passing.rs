//! Passing descriptors to the rank on the other side of a Unix socket (SCM_RIGHTS of unix(7)).

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};

use super::DataSocket;

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
