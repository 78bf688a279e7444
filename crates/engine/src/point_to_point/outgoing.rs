//! The outgoing direction of a lane.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice};

use crate::links::{Broken, COPY_ALL, Link};

use super::frame::{FRAME_BYTES, Frame};
use super::transfer::{Borrowed, Transfer};

/// Frames of at most this many bytes together go in one plain call. A longer frame goes alone, in a gathering call.
const STAGE_BYTES: usize = 4096;

/// The most payload bytes of one system call, so that sender and receiver copy at the same time.
const CALL_BYTES_MAX: usize = 512 * 1024;

/// A frame on its way out.
struct Outgoing {
    header: [u8; FRAME_BYTES],
    sent: usize,
    /// The message after the header. It is finished when its last byte is out.
    payload: Option<Transfer>,
}

impl Outgoing {
    /// The unsent rest of the header and of the payload.
    fn rest<'a>(&'a self, lent: &'a [Borrowed<'_>]) -> (&'a [u8], &'a [u8]) {
        let payload = self.payload.as_ref().map_or(&[][..], |transfer| transfer.message(lent));
        let header = &self.header[self.sent.min(FRAME_BYTES)..];
        (header, &payload[self.sent.saturating_sub(FRAME_BYTES)..])
    }
}

/// The frames on their way out, in order.
#[derive(Default)]
pub(super) struct Outbox {
    frames: VecDeque<Outgoing>,
}

impl Outbox {
    /// Queues a frame, and the message that follows it.
    pub(super) fn push(&mut self, frame: Frame, credit: u64, payload: Option<Transfer>) {
        self.frames.push_back(Outgoing { header: frame.encode(credit), sent: 0, payload });
    }

    /// Whether nothing waits to be written.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Drops the frames without a transfer, because the link takes no more. Sends stay, to be failed.
    pub(super) fn keep_operations(&mut self) {
        self.frames.retain(|outgoing| outgoing.payload.is_some());
    }

    /// The sends among the frames.
    pub(super) fn transfers(&self) -> impl Iterator<Item = &Transfer> {
        self.frames.iter().filter_map(|outgoing| outgoing.payload.as_ref())
    }

    /// The sends among the frames.
    pub(super) fn transfers_mut(&mut self) -> impl Iterator<Item = &mut Transfer> {
        self.frames.iter_mut().filter_map(|outgoing| outgoing.payload.as_mut())
    }

    /// Takes the sends out.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Transfer> {
        self.frames.drain(..).filter_map(|outgoing| outgoing.payload)
    }

    /// Writes as much as fits. True if something was written. `stage` is a buffer for short frames.
    pub(super) fn flush<L: Link>(
        &mut self,
        link: &mut L,
        lent: &mut [Borrowed<'_>],
        stage: &mut Vec<u8>,
    ) -> Result<bool, Broken> {
        let mut moved = false;
        while let Some(front) = self.frames.front() {
            self.fill_stage(lent, stage);
            let sent = if stage.is_empty() {
                let (header, payload) = front.rest(lent);
                send_long(link, header, &payload[..payload.len().min(CALL_BYTES_MAX)])
            } else {
                link.try_send(&[IoSlice::new(stage)], COPY_ALL)
            };
            match sent {
                Ok(sent) => self.settle(sent, lent),
                Err(error) if is_pause(&error) => return Ok(moved),
                Err(error) => return Err(error.into()),
            }
            moved = true;
        }
        Ok(moved)
    }

    /// Fills the stage with as many whole frames as fit, from the first on.
    fn fill_stage(&self, lent: &[Borrowed<'_>], stage: &mut Vec<u8>) {
        stage.clear();
        for outgoing in &self.frames {
            let (header, payload) = outgoing.rest(lent);
            if stage.len() + header.len() + payload.len() > STAGE_BYTES {
                return;
            }
            stage.extend_from_slice(header);
            stage.extend_from_slice(payload);
        }
    }

    /// Counts `sent` bytes as written, and finishes the frames that they complete.
    fn settle(&mut self, mut sent: usize, lent: &mut [Borrowed<'_>]) {
        while let Some(front) = self.frames.front_mut() {
            let (header, payload) = front.rest(lent);
            let rest = header.len() + payload.len();
            if sent < rest {
                front.sent += sent;
                if let Some(transfer) = &mut front.payload {
                    transfer.moved(lent);
                }
                return;
            }
            sent -= rest;
            if let Some(done) = self.frames.pop_front().and_then(|outgoing| outgoing.payload) {
                let (tag, bytes) = (done.sent_tag(lent), done.message(lent).len() as u64);
                done.finish(lent, None, tag, bytes);
            }
        }
    }
}

/// Sends header and payload, or the rest of the payload, in one call. The link must copy the bytes, because a send ends
/// when the link has taken its message.
fn send_long<L: Link>(link: &mut L, header: &[u8], payload: &[u8]) -> io::Result<usize> {
    match header {
        [] => link.try_send(&[IoSlice::new(payload)], COPY_ALL),
        header => link.try_send(&[IoSlice::new(header), IoSlice::new(payload)], COPY_ALL),
    }
}

/// Whether an error only means "not now".
pub(super) fn is_pause(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
