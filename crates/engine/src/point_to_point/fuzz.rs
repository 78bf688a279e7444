//! Arbitrary bytes on the point-to-point lane: a part of the fuzz target `frame`.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use unisono_communicator::{
    Buffer, BufferMut, Buffers, Call, DType, Descriptor, Group, Operation, Outcome, OwnedBuffers, OwnedCall,
    OwnedMemory, Peer, Segments, SegmentsMut, Tag,
};

use super::frame::{EAGER_BYTES_MAX, FRAME_BYTES, Frame, Message};
use super::{AtOnce, PointToPoint, Posted};
use crate::calls::monitor::Monitor;
use crate::calls::request::Request;
use crate::fuzz::LONG_ONE_IN;
use crate::fuzz::input::Input;
use crate::links::doubles::WireDouble;
use unisono_backend::Board;
use unisono_backend::Peers;

/// The two ranks, as errors name them.
static PEERS: LazyLock<Peers> = LazyLock::new(|| {
    let group = Group::world(0, 2);
    let board = Arc::new(Board::new(group.own_rank(), group.size()));
    Peers::new(group, board)
});

/// The other rank.
const PEER: u32 = 1;

/// Every byte of the messages in this file's frames.
const PAYLOAD: u8 = 0xa5;

/// The factor that makes a message long enough to need a request.
const LONG: u64 = 700;

/// The most bytes that the peer sends for one input.
const STREAM_BYTES_MAX: usize = 512 * 1024;

const TIMEOUT: Duration = Duration::from_secs(3600);

/// Decodes an arbitrary header. A valid frame must survive encoding.
pub(crate) fn frames(input: &mut Input<'_>) {
    let header: [u8; FRAME_BYTES] = input.array();
    if let Some((frame, credit)) = Frame::decode(&header) {
        assert_eq!(Frame::decode(&frame.encode(credit)), Some((frame, credit)));
    }
}

/// Runs receives and sends of a rank whose peer sends arbitrary bytes. Every transfer must end. A receive must get only
/// payload, only of its message, and never more than its room.
pub(crate) fn messages(input: &mut Input<'_>) {
    let mut messages = PointToPoint::new(PEERS.clone());
    let piece = [1, 33, 5000, usize::MAX][usize::from(input.below(4))];
    let mut wire = WireDouble::new(Vec::new(), piece);
    wire.is_direct = input.below(2) == 0;
    let (mut requests, mut is_junk) = (Vec::new(), false);
    while !input.is_empty() && wire.arrived.len() < STREAM_BYTES_MAX {
        match input.below(8) {
            0 => requests.push(post(&mut messages, Operation::Recv, input)),
            1 => requests.push(post(&mut messages, Operation::Send, input)),
            2 => attempt(&mut messages, &mut wire, input, is_junk),
            3 => {
                let count = usize::from(input.u8());
                wire.arrived.extend_from_slice(input.take(count));
                is_junk = true;
            }
            _ => arrive(&mut wire.arrived, input),
        }
        if !advance(&mut messages, &mut wire) {
            break;
        }
    }
    wire.is_closed = true;
    if advance(&mut messages, &mut wire) {
        messages.fail(&unisono_communicator::Error::closed());
    }
    requests.iter().for_each(|request| check(request, is_junk));
}

/// Moves the messages until nothing moves. After a failure it fails all transfers and returns false.
fn advance(messages: &mut PointToPoint, wire: &mut WireDouble) -> bool {
    // A poll that moves something takes a byte or ends a transfer, so the number of polls is bounded.
    for _ in 0..4 * STREAM_BYTES_MAX {
        match messages.advance(wire, &mut []) {
            Ok(true) => {}
            Ok(false) => return true,
            Err(error) => {
                messages.fail(&error);
                return false;
            }
        }
    }
    panic!("the lane moves for ever");
}

/// Tries a send and a receive that pass at once, and checks the memory of the receive.
fn attempt(messages: &mut PointToPoint, wire: &mut WireDouble, input: &mut Input<'_>, is_junk: bool) {
    for operation in [Operation::Send, Operation::Recv] {
        let descriptor = descriptor(operation, input);
        let (message, mut room) = memory(&descriptor);
        let buffers = Buffers::Separate {
            input: Buffer::Host(Segments::One(&message)),
            output: BufferMut::Host(SegmentsMut::One(&mut room)),
        };
        let mut ahead = 0;
        let passed = messages.pass_at_once(wire, &mut Call::new(descriptor, buffers), &mut ahead);
        match passed {
            AtOnce::Done(outcome) if is_receive(operation) => {
                check_received(&descriptor, &outcome, &room, is_junk);
            }
            AtOnce::Done(outcome) => assert_eq!(outcome.bytes, message.len() as u64),
            AtOnce::Waits | AtOnce::General => assert!(room[ahead..].iter().all(|byte| *byte == 0)),
        }
    }
}

/// An arbitrary send or receive.
fn descriptor(operation: Operation, input: &mut Input<'_>) -> Descriptor {
    let dtype = [DType::U8, DType::F32][usize::from(input.below(2))];
    let peer =
        [Peer::Rank(PEER), Peer::Any][usize::from(input.below(2)) & usize::from(is_receive(operation))];
    let count = u64::from(input.u8()) * if input.rarely(LONG_ONE_IN) { LONG } else { 1 };
    Descriptor {
        peer: Some(peer),
        tag: match input.below(if is_receive(operation) { 4 } else { 3 }) {
            3 => Tag::Any,
            tag => Tag::Is(tag.into()),
        },
        ..Descriptor::new(operation, dtype, count)
    }
}

/// The message of a send, or the room of a receive.
fn memory(descriptor: &Descriptor) -> (Vec<u8>, Vec<u8>) {
    let bytes = descriptor.count as usize * descriptor.dtype.bytes();
    if is_receive(descriptor.operation) { (Vec::new(), vec![0; bytes]) } else { (vec![1; bytes], Vec::new()) }
}

fn post(messages: &mut PointToPoint, operation: Operation, input: &mut Input<'_>) -> Arc<Request> {
    let descriptor = descriptor(operation, input);
    let (message, room) = memory(&descriptor);
    let buffers = OwnedBuffers::Separate { input: OwnedMemory::of(message), output: OwnedMemory::of(room) };
    let request = Request::new(OwnedCall::new(descriptor, buffers), Arc::new(Monitor::default()));
    messages.post(Posted::Transfer { request: request.clone(), timeout: TIMEOUT });
    request
}

fn is_receive(operation: Operation) -> bool {
    operation == Operation::Recv
}

/// Adds a frame that the peer could send to the stream. Its payload may be too short.
fn arrive(stream: &mut Vec<u8>, input: &mut Input<'_>) {
    let kind = input.below(7);
    let (tag, number) = (u32::from(input.below(3)), u64::from(input.below(4)));
    let dtype = [DType::U8, DType::F32][usize::from(input.below(2))];
    let bytes = match input.below(LONG_ONE_IN) {
        0 => input.u64(),
        1 => u64::from(input.u8()) * LONG * 4,
        _ => u64::from(input.u8()) * 4,
    };
    let credit = match input.below(8) {
        0 => input.u64(),
        1 => 4096,
        2 => 256,
        _ => 0,
    };
    let message = Message { dtype, tag, number, bytes };
    let frame = match kind {
        0 | 1 => Frame::Eager(message),
        2 => Frame::Request(message),
        3 => Frame::Grant { number },
        4 => Frame::Data { number, bytes },
        5 => Frame::Credit,
        _ => Frame::Goodbye,
    };
    stream.extend_from_slice(&frame.encode(credit));
    let payload_bytes = match frame {
        Frame::Eager(_) if bytes <= EAGER_BYTES_MAX => bytes,
        Frame::Data { .. } if bytes <= STREAM_BYTES_MAX as u64 => bytes,
        Frame::Eager(_) | Frame::Data { .. } | Frame::Request(_) => 0,
        Frame::Grant { .. } | Frame::Credit | Frame::Goodbye => 0,
    };
    stream.resize(stream.len() + payload_bytes as usize, PAYLOAD);
}

/// Checks that the transfer has ended, and that its memory holds only allowed bytes.
fn check(request: &Request, is_junk: bool) {
    assert!(request.is_done(), "{} waits", request.descriptor);
    let Some(result) = request.ending.result() else { panic!("{} has no result", request.descriptor) };
    let (Ok(outcome), Some(OwnedBuffers::Separate { output: OwnedMemory::One(output), .. })) =
        (result, request.ending.take_buffers())
    else {
        return;
    };
    if is_receive(request.descriptor.operation) {
        check_received(&request.descriptor, &outcome, output.bytes(), is_junk);
    }
}

fn check_received(descriptor: &Descriptor, outcome: &Outcome, room: &[u8], is_junk: bool) {
    assert!(outcome.source == Some(PEER) && descriptor.tag.fits(outcome.tag));
    assert!(outcome.bytes <= room.len() as u64, "{descriptor} got {} bytes", outcome.bytes);
    let (message, behind) = room.split_at(outcome.bytes as usize);
    assert!(behind.iter().all(|byte| *byte == 0), "written behind the message");
    assert!(is_junk || message.iter().all(|byte| *byte == PAYLOAD), "more than payload");
}
