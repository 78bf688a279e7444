//! Peers that break the rules of a lane: the stream counts as lost, and memory stays bounded.

use std::sync::Arc;
use std::time::Duration;

use unisono_backend::{Board, Peers};
use unisono_communicator::{
    DType, Descriptor, Error, Group, Operation, OwnedBuffers, OwnedCall, OwnedMemory, Peer, Site, Tag,
};

use super::frame::{Frame, Message};
use super::transfer::Transfer;
use super::{Borrowed, PointToPoint, Posted};
use crate::calls::request::Request;
use crate::links::doubles::WireDouble;

/// A rank with a posted receive of tag 9 from its peer, rank 1.
fn waiting_rank() -> (PointToPoint, Arc<Request>) {
    let group = Group::world(0, 2);
    let board = Arc::new(Board::new(group.own_rank(), group.size()));
    let mut messages = PointToPoint::new(Peers::new(group, board));
    let descriptor = Descriptor {
        peer: Some(Peer::Rank(1)),
        tag: Tag::Is(9),
        ..Descriptor::new(Operation::Recv, DType::U8, 8)
    };
    let buffers = OwnedBuffers::Separate {
        input: OwnedMemory::of(Vec::<u8>::new()),
        output: OwnedMemory::of(vec![0u8; 8]),
    };
    let request = Request::new(OwnedCall::new(descriptor, buffers), Arc::default());
    messages.post(Posted::Transfer { request: request.clone(), timeout: Duration::from_secs(3600) });
    (messages, request)
}

/// Lets these frames arrive, each with as many bytes as it announces.
fn arrive(frames: impl IntoIterator<Item = Frame>) -> WireDouble {
    let mut bytes = Vec::new();
    for frame in frames {
        bytes.extend_from_slice(&frame.encode(0));
        if let Frame::Eager(message) = frame {
            bytes.resize(bytes.len() + message.bytes as usize, 7);
        }
    }
    WireDouble::new(bytes, usize::MAX)
}

/// Moves all messages that can move.
fn advance(messages: &mut PointToPoint, wire: &mut WireDouble) -> Result<(), Error> {
    while messages.advance(wire, &mut [])? {}
    Ok(())
}

fn eager(number: u64, bytes: u64) -> Frame {
    Frame::Eager(Message { dtype: DType::U8, tag: 3, number, bytes })
}

#[test]
fn a_sender_that_ignores_its_credit_is_lost() {
    // As many as there is room for, then one more. Even an empty message counts.
    for (bytes, room) in [(0, 4096), (256, 4096), (1024, 1024), (512 * 1024, 2)] {
        let (mut messages, _request) = waiting_rank();
        let mut wire = arrive((0..room).map(|number| eager(number, bytes)));
        advance(&mut messages, &mut wire).unwrap();
        let (mut messages, request) = waiting_rank();
        let mut wire = arrive((0..=room).map(|number| eager(number, bytes)));
        let error = advance(&mut messages, &mut wire).unwrap_err();
        assert!(matches!(error, Error::PeerLost { .. }), "{error}");
        assert!(error.to_string().contains("more short messages than there is room for"), "{error}");
        messages.fail(&error);
        assert!(request.is_done());
    }
}

/// A message that finds its receive takes no room once its sender has been told.
#[test]
fn credit_that_was_given_back_may_be_used_again() {
    let (mut messages, _request) = waiting_rank();
    let mut number = 0;
    for _ in 0..20 {
        let mut wire = arrive((number..number + 2048).map(|number| eager(number, 8)));
        number += 2048;
        advance(&mut messages, &mut wire).unwrap();
        for _ in 0..2048 {
            let descriptor = Descriptor {
                peer: Some(Peer::Any),
                tag: Tag::Is(3),
                ..Descriptor::new(Operation::Recv, DType::U8, 8)
            };
            let (mut room, site) = ([0u8; 8], Site::caller());
            let mut lent = [Borrowed::new(descriptor, site, &[], &mut room)];
            let (unread, receive) = messages.matching.post(Transfer::Lent(0), &lent).unwrap();
            assert_eq!(unread.from(), (1, 3));
            messages.deliver_arrived(unread, receive, &mut lent);
            assert!(lent[0].is_over() && *lent[0].room == [7; 8]);
        }
    }
}

#[test]
fn a_request_with_the_number_of_an_earlier_one_ends_the_stream() {
    let request_of = |number| Frame::Request(Message { dtype: DType::U8, tag: 3, number, bytes: 1 << 20 });
    let (mut messages, _request) = waiting_rank();
    advance(&mut messages, &mut arrive([request_of(4), request_of(5)])).unwrap();
    let (mut messages, _request) = waiting_rank();
    let error = advance(&mut messages, &mut arrive([request_of(4), request_of(4)])).unwrap_err();
    assert!(error.to_string().contains("the number of an earlier one"), "{error}");
}
