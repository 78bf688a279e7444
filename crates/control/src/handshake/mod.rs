//! Mutual authentication of every connection, as a state machine without sockets, clock or randomness of its own.
//!
//! Three messages of fixed length, all integers little-endian:
//!
//! | message | from | bytes |
//! | --- | --- | --- |
//! | hello | initiator | [`HELLO_BYTES`]: the initiator's hello |
//! | reply | responder | [`REPLY_BYTES`]: the responder's hello, HMAC("responder", both hellos) |
//! | confirmation | initiator | [`CONFIRMATION_BYTES`]: 0, HMAC("initiator", both hellos); or 1, zeros: not believed |
//!
//! | byte of a hello | field |
//! | --- | --- |
//! | 0 | magic, 8 bytes |
//! | 8 | version, 2 bytes |
//! | 10 | role: 1 initiator, 2 responder |
//! | 11 | purpose: 1 data, 2 control, 3 store |
//! | 12 | lane |
//! | 13 | 1 if the sender counts the receiver as lost, else 0 |
//! | 14 | zero, 2 bytes |
//! | 16 | epoch, 4 bytes |
//! | 20 | world size, 4 bytes |
//! | 24 | the sender's rank, 4 bytes |
//! | 28 | the receiver's rank, 4 bytes |
//! | 32 | communicator, 8 bytes |
//! | 40 | job, 16 bytes |
//! | 56 | nonce, 32 bytes |
//!
//! The secret belongs to the job, so a handshake proves that the other side belongs to the job; its rank is a claim.
//! The fields travel in clear and are compared after the tags verify, by both sides alike: a wrong world size is
//! reported as such on both sides, not as a wrong secret. A responder accepts any lane, epoch and communicator: the
//! layer above handles a connection for a communicator that does not exist here yet. A store accepts any world size
//! too. Length, magic and the place of the version never change, so that versions can refuse each other by name.

#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod hello;
mod refusal;
#[cfg(test)]
mod tests;
mod verdict;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

pub use hello::{Hello, JobId, Purpose, RANK_STORE};
pub use refusal::Refusal;
pub use verdict::{VERDICT_BYTES, Verdict};

use crate::secret::{Secret, TAG_BYTES};
use hello::{MAGIC, WireHello};

/// Version of the protocol, frames included. A change of the wire format counts it up, so that two builds that do not
/// understand each other say so.
pub const VERSION: u16 = 16;

/// Length of a hello.
pub const HELLO_BYTES: usize = 88;

/// Length of the responder's message.
pub const REPLY_BYTES: usize = HELLO_BYTES + TAG_BYTES;

/// Length of the initiator's last message.
pub const CONFIRMATION_BYTES: usize = 1 + TAG_BYTES;

/// Length of a nonce.
pub const NONCE_BYTES: usize = 32;

/// Fresh random bytes, once per handshake and side.
pub type Nonce = [u8; NONCE_BYTES];

const RESPONDER_LABEL: &[u8] = b"unisono handshake responder";
const INITIATOR_LABEL: &[u8] = b"unisono handshake initiator";
const CONFIRMED: u8 = 0;
const NOT_BELIEVED: u8 = 1;

/// The demands of a responder on the initiator.
#[derive(Clone, Debug)]
pub struct Expected {
    /// The purposes served here; at least one.
    pub purposes: &'static [Purpose],
    /// The job.
    pub job: JobId,
    /// The size of the job; `None` accepts any, for a store, which tells all ranks that theirs differ.
    pub world_size: Option<u32>,
    /// Our rank, or [`RANK_STORE`].
    pub rank: u32,
    /// The ranks that count as lost here. They are told so.
    pub lost: Arc<BTreeSet<u32>>,
}

#[derive(Clone, Debug)]
enum HandshakeState {
    /// A responder waits for the hello.
    Hello { expected: Expected, nonce: Nonce },
    /// An initiator waits for the reply.
    Reply,
    /// A responder waits for the confirmation.
    Confirmation,
    /// Nothing more is read.
    Done(Result<Hello, Refusal>),
}

/// One side of one handshake: bytes and time in, bytes and a result out.
///
/// The owner of the socket sends the bytes of [`Handshake::output`], also after the result is there, reads exactly
/// [`Handshake::wants`] bytes at a time, so that the first byte of the next protocol stays in the socket, and calls
/// [`Handshake::on_time`] when its deadline passes. It allocates a few hundred bytes and never depends on a length that
/// came from the wire.
#[derive(Debug)]
pub struct Handshake {
    secret: Secret,
    state: HandshakeState,
    deadline: Instant,
    input: [u8; REPLY_BYTES],
    filled: usize,
    output: Vec<u8>,
    sent: usize,
    initiator: [u8; HELLO_BYTES],
    responder: [u8; HELLO_BYTES],
}

impl Handshake {
    /// The side that dialled, with its hello to send. `nonce` must be fresh and random.
    pub fn initiator(secret: &Secret, hello: &Hello, nonce: Nonce, deadline: Instant) -> Handshake {
        let bytes = WireHello::initiator(hello, nonce).encode();
        let mut handshake = Handshake::new(secret, HandshakeState::Reply, deadline);
        handshake.initiator = bytes;
        handshake.output.extend_from_slice(&bytes);
        handshake
    }

    /// The side that was dialled. `nonce` must be fresh and random.
    pub fn responder(secret: &Secret, expected: Expected, nonce: Nonce, deadline: Instant) -> Handshake {
        Handshake::new(secret, HandshakeState::Hello { expected, nonce }, deadline)
    }

    fn new(secret: &Secret, state: HandshakeState, deadline: Instant) -> Handshake {
        Handshake {
            secret: secret.clone(),
            state,
            deadline,
            input: [0; REPLY_BYTES],
            filled: 0,
            output: Vec::with_capacity(REPLY_BYTES),
            sent: 0,
            initiator: [0; HELLO_BYTES],
            responder: [0; HELLO_BYTES],
        }
    }

    /// The bytes to send now.
    pub fn output(&self) -> &[u8] {
        &self.output[self.sent..]
    }

    /// Notes that the first `bytes` of the output were sent.
    pub fn sent(&mut self, bytes: usize) {
        self.sent = (self.sent + bytes).min(self.output.len());
    }

    /// The number of bytes to read now, exactly; 0 when nothing more is to be read.
    pub fn wants(&self) -> usize {
        self.message_bytes() - self.filled
    }

    /// Takes bytes that were read, at most [`Handshake::wants`] of them, and returns how many it took.
    pub fn receive(&mut self, bytes: &[u8]) -> usize {
        let taken = bytes.len().min(self.wants());
        self.input[self.filled..][..taken].copy_from_slice(&bytes[..taken]);
        self.filled += taken;
        if taken > 0 {
            self.advance();
        }
        taken
    }

    /// Fails the handshake if its deadline has passed.
    pub fn on_time(&mut self, now: Instant) {
        if now >= self.deadline {
            self.refuse(Refusal::Deadline);
        }
    }

    /// Fails the handshake because the connection ended.
    pub fn on_closed(&mut self, text: impl Into<String>) {
        self.refuse(Refusal::Closed { text: text.into() });
    }

    /// The other side's hello, or why there is none; `None` while the handshake goes on.
    pub fn finished(&self) -> Option<&Result<Hello, Refusal>> {
        match &self.state {
            HandshakeState::Done(result) => Some(result),
            _ => None,
        }
    }

    fn message_bytes(&self) -> usize {
        match self.state {
            HandshakeState::Hello { .. } => HELLO_BYTES,
            HandshakeState::Reply => REPLY_BYTES,
            HandshakeState::Confirmation => CONFIRMATION_BYTES,
            HandshakeState::Done(_) => self.filled,
        }
    }

    fn refuse(&mut self, refusal: Refusal) {
        if self.finished().is_none() {
            self.state = HandshakeState::Done(Err(refusal));
        }
    }

    fn advance(&mut self) {
        // An unauthenticated connection is refused at its first wrong byte, not after a whole message.
        let head = self.filled.min(MAGIC.len());
        let starts_with_hello = matches!(self.state, HandshakeState::Hello { .. } | HandshakeState::Reply);
        if starts_with_hello && self.input[..head] != MAGIC[..head] {
            return self.refuse(Refusal::Protocol);
        }
        if self.filled < self.message_bytes() {
            return;
        }
        self.filled = 0;
        match std::mem::replace(&mut self.state, HandshakeState::Confirmation) {
            HandshakeState::Hello { expected, nonce } => self.on_hello(&expected, nonce),
            HandshakeState::Reply => self.on_reply(),
            HandshakeState::Confirmation => self.on_confirmation(),
            done @ HandshakeState::Done(_) => self.state = done,
        }
    }

    fn on_hello(&mut self, expected: &Expected, nonce: Nonce) {
        self.initiator.copy_from_slice(&self.input[..HELLO_BYTES]);
        let theirs = WireHello::decode(&self.initiator);
        self.responder = theirs.answer(expected, nonce).encode();
        let tag = self.secret.tag(&[RESPONDER_LABEL, &self.initiator, &self.responder]);
        self.output.extend_from_slice(&self.responder);
        self.output.extend_from_slice(&tag);
    }

    fn on_reply(&mut self) {
        self.responder.copy_from_slice(&self.input[..HELLO_BYTES]);
        let tag = &self.input[HELLO_BYTES..REPLY_BYTES];
        if !self.secret.verifies(&[RESPONDER_LABEL, &self.initiator, &self.responder], tag) {
            self.output.push(NOT_BELIEVED);
            self.output.extend_from_slice(&[0; TAG_BYTES]);
            return self.refuse(Refusal::Secret);
        }
        // The confirmation goes out even if the fields differ: only then does the other side believe ours and can
        // say the same reason.
        let tag = self.secret.tag(&[INITIATOR_LABEL, &self.initiator, &self.responder]);
        self.output.push(CONFIRMED);
        self.output.extend_from_slice(&tag);
        let (initiator, responder) = self.decoded();
        self.state = HandshakeState::Done(
            WireHello::compare(&initiator, &responder).map(|purpose| responder.hello(purpose)),
        );
    }

    fn on_confirmation(&mut self) {
        let (code, tag) = (self.input[0], &self.input[1..CONFIRMATION_BYTES]);
        let believed = self.secret.verifies(&[INITIATOR_LABEL, &self.initiator, &self.responder], tag);
        if code != CONFIRMED || !believed {
            return self.refuse(Refusal::Secret);
        }
        let (initiator, responder) = self.decoded();
        self.state = HandshakeState::Done(
            WireHello::compare(&initiator, &responder).map(|purpose| initiator.hello(purpose)),
        );
    }

    fn decoded(&self) -> (WireHello, WireHello) {
        (WireHello::decode(&self.initiator), WireHello::decode(&self.responder))
    }
}
