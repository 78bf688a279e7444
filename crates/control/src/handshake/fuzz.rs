//! Fuzzed handshakes: a target for cargo-fuzz.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::*;
use crate::fuzz::input::{Input, common_bytes};
use crate::secret::SECRET_BYTES;

const WORLD_SIZE: u32 = 4;
const SERVED: &[Purpose] = &[Purpose::Data, Purpose::Control];

/// The nonce of a handshake that an input cannot know, and of one between two ranks of the job.
const FRESH: Nonce = [9; NONCE_BYTES];
const INITIATORS: Nonce = [1; NONCE_BYTES];
const RESPONDERS: Nonce = [2; NONCE_BYTES];

/// Target `handshake`: a peer that does not know the secret, a real exchange that an attacker edits, members that do
/// not belong together, verdicts.
pub fn handshake(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    match input.below(5) {
        0 => unauthenticated(responder(expected(), FRESH), &mut input),
        1 => unauthenticated(initiator(&hello(), FRESH), &mut input),
        2 => relayed(&mut input),
        3 => members(&mut input),
        _ => verdict(&mut input),
    }
}

fn secret() -> Secret {
    Secret::take(&mut [7; SECRET_BYTES])
}

fn job(byte: u8) -> JobId {
    JobId([byte; 16])
}

fn hello() -> Hello {
    Hello {
        purpose: Purpose::Data,
        job: job(0),
        communicator: 0x1122_3344_5566_7788,
        epoch: 9,
        lane: 2,
        world_size: WORLD_SIZE,
        from: 3,
        to: 1,
    }
}

fn expected() -> Expected {
    Expected { purposes: SERVED, job: job(0), world_size: Some(WORLD_SIZE), rank: 1, lost: Arc::default() }
}

fn deadline() -> Instant {
    Instant::now() + Duration::from_secs(5)
}

fn initiator(hello: &Hello, nonce: Nonce) -> Handshake {
    Handshake::initiator(&secret(), hello, nonce, deadline())
}

fn responder(expected: Expected, nonce: Nonce) -> Handshake {
    Handshake::responder(&secret(), expected, nonce, deadline())
}

/// Feeds a side in pieces, and gives the number of bytes that it has taken. The bytes that it wants, keeps and sends
/// have their caps after each of them.
fn feed(side: &mut Handshake, bytes: &[u8], piece: usize) -> usize {
    let mut taken = 0;
    while taken < bytes.len() && side.wants() > 0 {
        let end = bytes.len().min(taken + piece);
        taken += side.receive(&bytes[taken..end]);
        assert!(side.wants() <= REPLY_BYTES && side.filled <= REPLY_BYTES);
        assert!(side.output.len() <= HELLO_BYTES + REPLY_BYTES, "sends {} bytes", side.output.len());
        assert!(side.output.capacity() <= 4 * REPLY_BYTES, "keeps {} bytes", side.output.capacity());
    }
    taken
}

/// A side whose peer does not know the secret: it never authenticates it, and answers only after a whole hello.
fn unauthenticated(mut side: Handshake, input: &mut Input<'_>) {
    let sent_before = side.output.len();
    let piece = 1 + usize::from(input.u8());
    let bytes = input.rest();
    let taken = feed(&mut side, bytes, piece);
    assert!(!side.finished().is_some_and(Result::is_ok), "it is authenticated without the secret");
    let is_hello = taken >= HELLO_BYTES && common_bytes(bytes, &MAGIC) == MAGIC.len();
    assert!(is_hello || side.output.len() == sent_before, "it answers before a whole hello");
    if common_bytes(bytes, &MAGIC) < MAGIC.len().min(bytes.len()) {
        assert_eq!(side.finished(), Some(&Err(Refusal::Protocol)));
        assert!(taken < MAGIC.len() + piece, "reads on behind a wrong byte");
    }
    side.on_closed("at last");
    let refusal = side.finished().cloned();
    assert!(matches!(refusal, Some(Err(_))));
    side.on_time(deadline() + Duration::from_secs(60));
    assert_eq!(side.finished().cloned(), refusal, "it changes its mind");
    assert_eq!(side.receive(&[0; REPLY_BYTES]), 0, "reads on behind its end");
}

/// A real exchange that an attacker edits on its way: a side authenticates the other exactly when it has read all that
/// the other has sent, and the other could authenticate it.
fn relayed(input: &mut Input<'_>) {
    let piece = 1 + usize::from(input.u8());
    let (mut dialling, mut listening) = (initiator(&hello(), INITIATORS), responder(expected(), RESPONDERS));
    let mut to_listening = dialling.output().to_vec();
    dialling.sent(HELLO_BYTES);
    input.edit(&mut to_listening);
    let mut taken = feed(&mut listening, &to_listening, piece);
    let mut to_dialling = listening.output().to_vec();
    listening.sent(to_dialling.len());
    input.edit(&mut to_dialling);
    feed(&mut dialling, &to_dialling, piece);
    let confirmation = dialling.output().len();
    to_listening.extend_from_slice(dialling.output());
    dialling.sent(confirmation);
    let edited_from = to_listening.len() - confirmation;
    let mut last = to_listening.split_off(edited_from);
    input.edit(&mut last);
    to_listening.append(&mut last);
    taken += feed(&mut listening, &to_listening[taken..], piece);

    let is_same = |read: &[u8], sent: &[u8], bytes: usize| {
        read.len() >= bytes && sent.len() >= bytes && read[..bytes] == sent[..bytes]
    };
    let hello_came = is_same(&to_listening, &dialling.output, HELLO_BYTES);
    let reply_came = hello_came && is_same(&to_dialling, &listening.output, REPLY_BYTES);
    let all_came = reply_came && is_same(&to_listening, &dialling.output, HELLO_BYTES + CONFIRMATION_BYTES);
    let is_believed = |side: &Handshake| side.finished().is_some_and(Result::is_ok);
    assert_eq!(is_believed(&dialling), reply_came, "the initiator: {:?}", dialling.finished());
    assert_eq!(is_believed(&listening), all_came, "the responder: {:?}", listening.finished());
    if all_came {
        assert_eq!(listening.finished(), Some(&Ok(hello())));
        assert_eq!(taken, HELLO_BYTES + CONFIRMATION_BYTES, "the next protocol's bytes are left");
    }
}

/// Two sides that know the secret, with any messages: both come to the same result, and succeed only if all fields fit.
fn members(input: &mut Input<'_>) {
    let (world_size, rank) = (u32::from(input.below(6)), u32::from(input.below(6)));
    let lost = u32::from(input.below(6));
    let expected =
        Expected { world_size: Some(world_size), rank, lost: Arc::new([lost].into()), ..expected() };
    let mut dialling = initiator(&hello(), INITIATORS);
    // Everything after the magic may differ, as in another version of this protocol.
    let mut said = dialling.initiator;
    let changed = input.take(HELLO_BYTES - MAGIC.len());
    for (byte, change) in said[MAGIC.len()..].iter_mut().zip(changed) {
        *byte ^= change;
    }
    dialling.initiator = said;
    dialling.output.copy_from_slice(&said);
    let mut listening = responder(expected, RESPONDERS);
    feed(&mut listening, &said, usize::MAX);
    feed(&mut dialling, &listening.output, usize::MAX);
    feed(&mut listening, &dialling.output[HELLO_BYTES..], usize::MAX);
    let (Some(dialled), Some(heard)) = (dialling.finished(), listening.finished()) else {
        panic!("between members nothing is open")
    };
    assert_eq!(dialled.as_ref().err(), heard.as_ref().err(), "both give the same reason");
    if let Ok(heard) = heard {
        assert!(heard.to == rank && heard.from < world_size && heard.from != rank && heard.from != lost);
        assert!(SERVED.contains(&heard.purpose) && heard.job == job(0) && heard.world_size == world_size);
        let again = WireHello::initiator(heard, INITIATORS).encode();
        let nonce_at = HELLO_BYTES - NONCE_BYTES;
        assert_eq!(WireHello::decode(&said).encode()[..nonce_at], again[..nonce_at], "the hello survives");
    }
}

/// Any verdict: if it is one, it is the same one when it is written again.
fn verdict(input: &mut Input<'_>) {
    if let Ok(verdict) = Verdict::decode(&input.array()) {
        assert_eq!(Verdict::decode(&verdict.encode()), Ok(verdict));
    }
}
