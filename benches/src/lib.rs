//! Rank 0 of a group whose other ranks are a recording: the cost of a call, without threads, sockets or waiting.
//!
//! One call is run in a world of threads, and the bytes that rank 0 receives are kept. A [`Replay`] then hands out
//! exactly these bytes again, call after call, and takes all that is sent. Into the header of a collective it writes
//! the number of the call; a message has none that is compared. So the engine does all of its work, compared headers
//! included, and never has to wait.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a benchmark that cannot run ends")]

use std::collections::HashMap;
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::atomic::AtomicU8;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Instant;

use unisono_backend::{Agreed, Ask, Board, CallHistory, Companion, Control, Waker};
use unisono_communicator::{Communicator, Error, Group, GroupOptions, GroupRank, Result};
use unisono_engine::in_process::{InProcessLinks, world_of};
use unisono_engine::{
    Edge, EngineCommunicator, EngineOptions, HEADER_BYTES, HeaderBytes, HeaderKey, Interest, Lane, Link,
    Links, Parts, Wake, header_digest,
};

/// The place of the call's number in a header.
const NUMBER: std::ops::Range<usize> = 8..16;

/// The place of the digest of earlier calls in a header.
const DIGEST: std::ops::Range<usize> = 56..64;

/// The bytes that rank 0 received in one call, by edge.
type Heard = Arc<Mutex<HashMap<Edge, Vec<u8>>>>;

/// Rank 0 of `ranks` ranks, for calls like `call`: the same collective, shape and algorithm, any number of times.
///
/// `call` is made once here, by all ranks, each with its own data: the others' data stay the same from then on.
pub fn replay(
    ranks: u32,
    call: impl Fn(&dyn Communicator) -> Result<()> + Sync,
) -> Arc<EngineCommunicator<ReplayLinks>> {
    let heard = Heard::default();
    let options = EngineOptions::default();
    let world = world_of(ranks, &options, |rank, links| Recording {
        link: RecordingLink {
            links,
            heard: (rank == 0).then(|| heard.clone()),
            edge: Edge { peer: GroupRank::new(0), lane: Lane::Small },
        },
    });
    std::thread::scope(|scope| {
        for comm in &world {
            scope.spawn(|| call(&**comm).unwrap());
        }
    });
    drop(world);
    let replay_of = |bytes: Vec<u8>| {
        let shared = bytes.iter().copied().map(AtomicU8::new).collect();
        Replay { bytes, shared, position: 0, call: 0, digest: 0, has_headers: true }
    };
    let heard = std::mem::take(&mut *heard.lock().unwrap());
    let mut links: Vec<_> = (0..ranks as usize * Lane::ALL.len()).map(|_| replay_of(Vec::new())).collect();
    for (edge, bytes) in heard {
        let has_headers = edge.lane != Lane::PointToPoint;
        links[edge.index()] = Replay { has_headers, ..replay_of(bytes) };
    }
    let links = ReplayLinks { links };
    EngineCommunicator::new(Parts {
        group: Group::world(0, ranks),
        links,
        control: Arc::new(NoControl),
        board: Arc::new(Board::new(GroupRank::new(0), ranks)),
        options,
        backend: "replay",
    })
}

/// In-process links whose incoming bytes are written down.
struct Recording {
    link: RecordingLink,
}

/// The link that was asked for last.
struct RecordingLink {
    links: InProcessLinks,
    heard: Option<Heard>,
    edge: Edge,
}

impl Link for RecordingLink {
    fn try_send(&mut self, bytes: &[IoSlice<'_>], copied_bytes: usize) -> io::Result<usize> {
        self.links.link(self.edge).try_send(bytes, copied_bytes)
    }

    fn unreleased_bytes(&mut self) -> io::Result<u64> {
        self.links.link(self.edge).unreleased_bytes()
    }

    fn try_recv(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let received = self.links.link(self.edge).try_recv(into)?;
        if let Some(heard) = &self.heard {
            let bytes = into.iter().flat_map(|slice| slice.iter().copied()).take(received);
            heard.lock().unwrap().entry(self.edge).or_default().extend(bytes);
        }
        Ok(received)
    }

    fn is_delivered(&mut self) -> bool {
        self.links.link(self.edge).is_delivered()
    }
}

impl Links for Recording {
    type L = RecordingLink;

    fn open(&mut self, edges: &[Edge]) -> Poll<Result<()>> {
        self.link.links.open(edges)
    }

    fn is_open(&mut self, edge: Edge) -> bool {
        self.link.links.is_open(edge)
    }

    fn link(&mut self, edge: Edge) -> &mut RecordingLink {
        self.link.edge = edge;
        &mut self.link
    }

    fn wait(&mut self, interest: &[Interest], until: Instant) -> Wake {
        self.link.links.wait(interest, until)
    }

    fn waker(&self) -> Waker {
        self.link.links.waker()
    }

    fn shut_down(&mut self) {}

    fn close(&mut self) {
        self.link.links.close();
    }
}

/// The longest payload of a short message.
const SHORT_BYTES_MAX: usize = 100;

/// A peer that says the same in every call.
pub struct Replay {
    /// One call: a header, then the payload.
    bytes: Vec<u8>,
    /// The same, for a reader that takes them where they lie.
    shared: Vec<AtomicU8>,
    position: usize,
    call: u64,
    /// Of the calls so far, as their headers hold it.
    digest: u64,
    /// Whether the bytes are of a collective.
    has_headers: bool,
}

impl Link for Replay {
    fn try_send(&mut self, bytes: &[IoSlice<'_>], _copied_bytes: usize) -> io::Result<usize> {
        Ok(bytes.iter().map(|slice| slice.len()).sum())
    }

    fn unreleased_bytes(&mut self) -> io::Result<u64> {
        Ok(0)
    }

    fn try_recv(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let mut received = 0;
        for slice in into {
            let mut filled = 0;
            while filled < slice.len() && !self.bytes.is_empty() {
                if self.position == 0 && self.has_headers {
                    assert!(self.bytes.len() >= HEADER_BYTES, "a recording starts with a header");
                    self.bytes[NUMBER].copy_from_slice(&self.call.to_le_bytes());
                    self.bytes[DIGEST].copy_from_slice(&self.digest.to_le_bytes());
                    if let Some(header) = self.bytes.first_chunk() {
                        self.digest = header_digest(header);
                    }
                }
                let length = (slice.len() - filled).min(self.bytes.len() - self.position);
                let source = &self.bytes[self.position..self.position + length];
                slice[filled..filled + length].copy_from_slice(source);
                filled += length;
                self.position += length;
                if self.position == self.bytes.len() {
                    (self.position, self.call) = (0, self.call + 1);
                }
            }
            received += filled;
        }
        if received == 0 { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(received) }
    }

    /// Short messages, as over memory.
    fn takes_whole(&self, bytes: u64) -> bool {
        bytes <= SHORT_BYTES_MAX as u64
    }

    fn try_send_whole(&mut self, _: &HeaderBytes, _: HeaderKey, bytes: &[u8]) -> io::Result<bool> {
        Ok(bytes.len() <= SHORT_BYTES_MAX)
    }

    fn try_send_all(&mut self, _: [IoSlice<'_>; 2]) -> io::Result<bool> {
        Ok(true)
    }

    fn peek(&mut self, most: usize, header: Option<HeaderKey>) -> Option<io::Result<(bool, &[AtomicU8])>> {
        if !self.has_headers {
            let arrived = &self.shared[self.position..];
            return Some(Ok((false, &arrived[..arrived.len().min(most)])));
        }
        let payload = self.shared.get(HEADER_BYTES..)?;
        let (0, Some([digest, _]), true) = (self.position, header, payload.len() <= SHORT_BYTES_MAX) else {
            return None;
        };
        (self.position, self.digest) = (HEADER_BYTES, digest);
        Some(Ok((true, &payload[..payload.len().min(most - HEADER_BYTES)])))
    }

    fn consume(&mut self, count: usize) {
        self.position += count;
        if self.position == self.bytes.len() {
            (self.position, self.call) = (0, self.call + 1);
        }
    }

    fn is_delivered(&mut self) -> bool {
        true
    }
}

/// The recorded peers of rank 0.
pub struct ReplayLinks {
    /// By edge; nothing was heard on an edge on which rank 0 only sends.
    links: Vec<Replay>,
}

impl Links for ReplayLinks {
    type L = Replay;

    fn open(&mut self, _edges: &[Edge]) -> Poll<Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn is_open(&mut self, _edge: Edge) -> bool {
        true
    }

    fn link(&mut self, edge: Edge) -> &mut Replay {
        &mut self.links[edge.index()]
    }

    fn wait(&mut self, interest: &[Interest], _until: Instant) -> Wake {
        panic!("a recorded call never waits, but this one wants {interest:?}")
    }

    fn waker(&self) -> Waker {
        Arc::new(|| {})
    }

    fn shut_down(&mut self) {}

    fn close(&mut self) {
        self.links.clear();
    }
}

/// Nobody to tell or to ask.
struct NoControl;

impl Control for NoControl {
    fn stream_ended(&self, _peer: GroupRank) {}

    fn flood(&self, cause: Arc<Error>) {
        panic!("a recorded call has failed: {cause}");
    }

    fn ask(&self, _awaited: GroupRank, _number: u64) {}

    fn close(&self, _ours: CallHistory, _deadline: Instant) -> Result<()> {
        Ok(())
    }

    fn agree(&self, ask: &Ask) -> Result<Agreed> {
        panic!("a recorded call has failed, and its survivors ask for {:?}", ask.question)
    }

    fn succeed(&self, survivors: &[GroupRank], _number: u64) -> Result<Companion> {
        panic!("a recorded call has failed, and only {survivors:?} go on")
    }

    fn derive(
        &self,
        _ranks: &[GroupRank],
        _options: &GroupOptions,
        _counter: u64,
    ) -> Result<Option<Companion>> {
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_collectives::Collectives;
    use unisono_communicator::{CallOptions, ReduceOp};

    #[test]
    fn a_recording_gives_the_same_results_again_and_again() {
        for name in ["ring", "recursive_doubling", "direct"] {
            let call = |comm: &dyn Communicator| {
                let input: Vec<u32> = (0..1000).map(|index| index * (comm.group().rank() + 1)).collect();
                let mut output = vec![0; input.len()];
                let forced = comm.with(CallOptions::new().algorithm(name));
                forced.all_reduce_into(&input, &mut output, ReduceOp::Sum)?;
                assert!((0..).zip(&output).all(|(index, &sum)| sum == index * 15), "{name}");
                Ok(())
            };
            let comm = replay(5, call);
            for _ in 0..10 {
                call(&*comm).unwrap();
            }
        }
    }
}
