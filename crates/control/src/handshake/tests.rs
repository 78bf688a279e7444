//! The handshake as two state machines, with every byte and the clock in the test's hands.

use std::sync::Arc;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;
use crate::secret::SECRET_BYTES;

const TIMEOUT: Duration = Duration::from_secs(5);
const WORLD_SIZE: u32 = 4;

fn secret(byte: u8) -> Secret {
    Secret::take(&mut [byte; SECRET_BYTES])
}

fn job() -> JobId {
    JobId::from_key("job")
}

fn hello() -> Hello {
    Hello {
        purpose: Purpose::Data,
        job: job(),
        communicator: 0x1122_3344_5566_7788,
        epoch: 9,
        lane: 2,
        world_size: WORLD_SIZE,
        from: 3,
        to: 1,
    }
}

fn expected() -> Expected {
    Expected {
        purposes: &[Purpose::Data, Purpose::Control],
        job: job(),
        world_size: Some(WORLD_SIZE),
        rank: 1,
        lost: Arc::default(),
    }
}

fn pair(hello: &Hello, expected: Expected) -> (Handshake, Handshake) {
    let deadline = Instant::now() + TIMEOUT;
    let initiator = Handshake::initiator(&secret(1), hello, [1; NONCE_BYTES], deadline);
    (initiator, Handshake::responder(&secret(1), expected, [2; NONCE_BYTES], deadline))
}

/// Moves the output of `from` to `to`, at most `piece` bytes at a time, each changed by `alter(position)`.
fn carry(from: &mut Handshake, to: &mut Handshake, piece: usize, alter: &mut impl FnMut(u8) -> u8) -> usize {
    let mut moved = 0;
    while !from.output().is_empty() && to.wants() > 0 {
        let count = piece.min(from.output().len());
        let bytes: Vec<u8> = from.output()[..count].iter().map(|byte| alter(*byte)).collect();
        let taken = to.receive(&bytes);
        from.sent(taken);
        moved += taken;
    }
    moved
}

fn run(initiator: &mut Handshake, responder: &mut Handshake, piece: usize, mut alter: impl FnMut(u8) -> u8) {
    while carry(initiator, responder, piece, &mut alter) + carry(responder, initiator, piece, &mut alter) > 0
    {
    }
}

type Finished = Option<Result<Hello, Refusal>>;

fn results(mut initiator: Handshake, mut responder: Handshake) -> (Finished, Finished) {
    run(&mut initiator, &mut responder, usize::MAX, |byte| byte);
    (initiator.finished().cloned(), responder.finished().cloned())
}

#[test]
fn both_sides_learn_who_the_other_is() {
    for piece in [1, 7, usize::MAX] {
        let (mut initiator, mut responder) = pair(&hello(), expected());
        run(&mut initiator, &mut responder, piece, |byte| byte);
        assert_eq!(responder.finished(), Some(&Ok(hello())));
        assert_eq!(initiator.finished(), Some(&Ok(Hello { from: 1, to: 3, ..hello() })));
        assert_eq!((initiator.wants(), responder.wants()), (0, 0));
        assert_eq!(responder.receive(b"the next protocol"), 0, "what follows is left alone");
    }
}

#[test]
fn every_wrong_field_is_refused_by_its_name_on_both_sides() {
    let (fine, at) = (hello(), expected());
    let sizes = Refusal::WorldSize { from: 3, initiator: 5, to: 1, responder: 4 };
    let cases = [
        (Hello { world_size: 5, ..fine }, at.clone(), sizes),
        (Hello { job: JobId::from_key("another"), ..fine }, at.clone(), Refusal::Job),
        (Hello { to: 2, ..fine }, at.clone(), Refusal::WrongRank { dialled: 2, reached: 1 }),
        (Hello { from: 4, ..fine }, at.clone(), Refusal::NoSuchRank { from: 4, world_size: 4 }),
        (Hello { from: 1, ..fine }, at.clone(), Refusal::NoSuchRank { from: 1, world_size: 4 }),
        (Hello { purpose: Purpose::Store, ..fine }, at, Refusal::Purpose { asked: Some(Purpose::Store) }),
    ];
    for (hello, expected, refusal) in cases {
        let (initiator, responder) = pair(&hello, expected);
        let (dialling, listening) = results(initiator, responder);
        assert_eq!(dialling, Some(Err(refusal.clone())));
        assert_eq!(listening, Some(Err(refusal)));
    }
}

#[test]
fn another_version_is_refused_by_its_number_on_both_sides() {
    // The machine under test speaks only VERSION, so the other version's side is made by rewriting its tags.
    let (mut initiator, mut responder) = pair(&hello(), expected());
    let other = VERSION + 1;
    initiator.initiator[MAGIC.len()] = other as u8;
    initiator.output[MAGIC.len()] = other as u8;
    run(&mut initiator, &mut responder, usize::MAX, |byte| byte);
    let refusal = Refusal::Version { initiator: other, responder: VERSION };
    assert_eq!(initiator.finished(), Some(&Err(refusal.clone())));
    assert_eq!(responder.finished(), Some(&Err(refusal)));
}

#[test]
fn another_secret_is_refused_as_such_on_both_sides_even_if_fields_differ_too() {
    for hello in [hello(), Hello { world_size: 99, ..hello() }] {
        let (_, responder) = pair(&hello, expected());
        let deadline = Instant::now() + TIMEOUT;
        let initiator = Handshake::initiator(&secret(2), &hello, [1; NONCE_BYTES], deadline);
        let (dialling, listening) = results(initiator, responder);
        assert_eq!((dialling, listening), (Some(Err(Refusal::Secret)), Some(Err(Refusal::Secret))));
    }
}

#[test]
fn no_changed_bit_survives() {
    let bytes = HELLO_BYTES + REPLY_BYTES + CONFIRMATION_BYTES;
    for position in 0..bytes {
        for bit in 0..8 {
            let (mut initiator, mut responder) = pair(&hello(), expected());
            let mut index = 0;
            run(&mut initiator, &mut responder, 1, |byte| {
                index += 1;
                if index == position + 1 { byte ^ (1 << bit) } else { byte }
            });
            assert!(index > position, "byte {position} was sent");
            let refused = responder.finished().is_some_and(Result::is_err);
            // A side that was not told waits for its deadline; nobody gets through.
            let waits = responder.finished().is_none();
            assert!(refused || waits, "responder accepts with bit {bit} of byte {position} changed");
            let sent_by_initiator_last = position >= HELLO_BYTES + REPLY_BYTES;
            let through = initiator.finished().is_some_and(Result::is_ok);
            assert_eq!(through, sent_by_initiator_last, "initiator, bit {bit} of byte {position}");
        }
    }
}

#[test]
fn a_reflected_handshake_is_refused() {
    let deadline = Instant::now() + TIMEOUT;
    // An attacker that sends our own hello back as the start of its reply cannot compute the tag.
    let mut initiator = Handshake::initiator(&secret(1), &hello(), [1; NONCE_BYTES], deadline);
    let mut mirrored = initiator.output().to_vec();
    mirrored.resize(REPLY_BYTES, 0);
    initiator.receive(&mirrored);
    assert_eq!(initiator.finished(), Some(&Err(Refusal::Secret)));
    // An attacker that relays our connection back to our own listener gets our true tags, but the rank is ours.
    let own = Expected { rank: 3, ..expected() };
    let responder = Handshake::responder(&secret(1), own, [2; NONCE_BYTES], deadline);
    let initiator = Handshake::initiator(&secret(1), &hello(), [1; NONCE_BYTES], deadline);
    let (dialling, listening) = results(initiator, responder);
    assert_eq!(dialling, Some(Err(Refusal::WrongRank { dialled: 1, reached: 3 })));
    assert_eq!(listening, dialling);
    // A recorded confirmation does not fit another handshake's nonce.
    let (mut initiator, mut responder) = pair(&hello(), expected());
    run(&mut initiator, &mut responder, usize::MAX, |byte| byte);
    let mut other = Handshake::responder(&secret(1), expected(), [3; NONCE_BYTES], deadline);
    let (hello, confirmation) = initiator.output.split_at(HELLO_BYTES);
    other.receive(hello);
    other.receive(confirmation);
    assert_eq!(other.finished(), Some(&Err(Refusal::Secret)));
}

#[test]
fn a_truncated_handshake_ends_at_its_deadline_or_with_its_connection() {
    let start = Instant::now();
    for bytes in 0..HELLO_BYTES {
        let make = || Handshake::responder(&secret(1), expected(), [2; NONCE_BYTES], start + TIMEOUT);
        let whole = Handshake::initiator(&secret(1), &hello(), [1; NONCE_BYTES], start + TIMEOUT);
        let mut slow = make();
        // One byte each 50 ms, as a slow-loris would: every byte is in time, the handshake is not.
        for (index, byte) in whole.output()[..bytes].iter().enumerate() {
            slow.on_time(start + Duration::from_millis(50 * index as u64));
            assert_eq!(slow.receive(&[*byte]), 1);
        }
        assert_eq!(slow.finished(), None);
        slow.on_time(start + TIMEOUT - Duration::from_nanos(1));
        assert_eq!(slow.finished(), None);
        slow.on_time(start + TIMEOUT);
        assert_eq!(slow.finished(), Some(&Err(Refusal::Deadline)));
        assert_eq!((slow.wants(), slow.receive(&[0])), (0, 0));

        let mut cut = make();
        cut.receive(&whole.output()[..bytes]);
        cut.on_closed("reset");
        assert_eq!(cut.finished(), Some(&Err(Refusal::Closed { text: "reset".into() })));
    }
}

#[test]
fn a_finished_handshake_does_not_change_its_mind() {
    let (mut initiator, mut responder) = pair(&hello(), expected());
    run(&mut initiator, &mut responder, usize::MAX, |byte| byte);
    responder.on_time(Instant::now() + 2 * TIMEOUT);
    responder.on_closed("later");
    assert_eq!(responder.finished(), Some(&Ok(hello())));
}

proptest! {
    // proptest prints the seed of a failing case.
    #[test]
    fn junk_is_refused_at_the_responder(junk in proptest::collection::vec(any::<u8>(), 1..512)) {
        let (_, mut responder) = pair(&hello(), expected());
        let mut rest = &junk[..];
        while !rest.is_empty() && responder.wants() > 0 {
            rest = &rest[responder.receive(rest)..];
        }
        let wrong = junk.iter().zip(&MAGIC).any(|(byte, magic)| byte != magic);
        prop_assert_eq!(responder.finished() == Some(&Err(Refusal::Protocol)), wrong);
        prop_assert!(responder.output().is_empty() || !wrong, "an unauthenticated connection gets no answer");
    }

    #[test]
    fn junk_behind_a_good_beginning_is_refused_too(
        junk in proptest::collection::vec(any::<u8>(), REPLY_BYTES + CONFIRMATION_BYTES)
    ) {
        let mut bytes = junk.clone();
        bytes[..MAGIC.len()].copy_from_slice(&MAGIC);
        let (mut initiator, mut responder) = pair(&hello(), expected());
        let taken = responder.receive(&bytes);
        responder.receive(&bytes[taken..]);
        prop_assert_eq!(responder.finished(), Some(&Err(Refusal::Secret)));
        initiator.receive(&bytes);
        prop_assert_eq!(initiator.finished(), Some(&Err(Refusal::Secret)));
    }

    #[test]
    fn any_two_sides_agree_on_the_outcome(
        from in 0u32..6, to in 0u32..6, world in 3u32..6, rank in 0u32..6, purpose in 0usize..3, lost in 0u32..6
    ) {
        let purpose = [Purpose::Data, Purpose::Control, Purpose::Store][purpose];
        let dialled = Hello { from, to, world_size: world, purpose, ..hello() };
        let (initiator, responder) = pair(&dialled, Expected { rank, lost: Arc::new([lost].into()), ..expected() });
        let (dialling, listening) = results(initiator, responder);
        let (dialling, listening) = (dialling.unwrap(), listening.unwrap());
        prop_assert_eq!(dialling.as_ref().err(), listening.as_ref().err());
        let fits = world == WORLD_SIZE && to == rank && from < world && from != rank && purpose != Purpose::Store;
        prop_assert_eq!(listening.is_ok(), fits && from != lost);
        let is_told = dialling == Err(Refusal::Lost { from, to });
        prop_assert_eq!(is_told, fits && from == lost);
    }
}
