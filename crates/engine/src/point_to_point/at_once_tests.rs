//! Messages between two ranks, each at once or the general way as chance has it: every receive gets the message that
//! MPI's order gives it (MPI 4.1, section 3.5).

use std::sync::Arc;
use std::time::Duration;

use unisono_backend::{Board, Peers};
use unisono_communicator::{
    Buffer, BufferMut, Call, DType, Descriptor, Group, Operation, Outcome, OwnedBuffers, OwnedCall,
    OwnedMemory, Peer, Segments, SegmentsMut, Site, SplitMix, Tag,
};

use super::frame::{Frame, Message};
use super::{AtOnce, Borrowed, PointToPoint, Posted};
use crate::calls::request::Request;
use crate::links::doubles::WireDouble;

/// The lengths of messages: some pass at once, and some are too long.
const LENGTHS: [usize; 7] = [0, 1, 16, 100, 4096, 5000, 525_000];

/// The most bytes of any message.
const BYTES_MAX: usize = LENGTHS[LENGTHS.len() - 1];

/// One rank of the two, with its end of the wire.
struct Rank {
    messages: PointToPoint,
    wire: WireDouble,
    peer: u32,
}

/// A receive: its tag, and its message once it has one.
struct Receive {
    tag: Tag,
    received: Receipt,
}

enum Receipt {
    Before(Outcome, Vec<u8>),
    Later(Arc<Request>),
}

impl Rank {
    /// Its wire moves so many bytes a call.
    fn new(rank: u32, call_bytes: usize) -> Rank {
        let group = Group::world(rank, 2);
        let board = Arc::new(Board::new(group.own_rank(), group.size()));
        let mut wire = WireDouble::new(Vec::new(), call_bytes);
        (wire.is_direct, wire.capacity) = (true, 10_000);
        Rank { messages: PointToPoint::new(Peers::new(group, board)), wire, peer: 1 - rank }
    }

    fn descriptor(&self, operation: Operation, tag: Tag, bytes: usize) -> Descriptor {
        let peer = Some(Peer::Rank(self.peer));
        Descriptor { peer, tag, ..Descriptor::new(operation, DType::U8, bytes as u64) }
    }

    fn post(&mut self, descriptor: Descriptor, message: Vec<u8>, room: Vec<u8>) -> Arc<Request> {
        let (input, output) = (OwnedMemory::of(message), OwnedMemory::of(room));
        let call = OwnedCall::new(descriptor, OwnedBuffers::Separate { input, output });
        let request = Request::new(call, Arc::default());
        let timeout = Duration::from_secs(3600);
        self.messages.post(Posted::Transfer { request: request.clone(), timeout });
        request
    }

    /// True if the message has passed at once.
    fn send(&mut self, tag: u32, message: &[u8], is_at_once: bool) -> bool {
        let descriptor = self.descriptor(Operation::Send, Tag::Is(tag), message.len());
        let input = Buffer::Host(Segments::One(message));
        let mut call = Call::separate(descriptor, input, BufferMut::Host(SegmentsMut::One(&mut [])));
        if is_at_once
            && matches!(self.messages.pass_at_once(&mut self.wire, &mut call, &mut 0), AtOnce::Done(_))
        {
            return true;
        }
        self.post(descriptor, message.to_vec(), Vec::new());
        false
    }

    fn receive(&mut self, tag: Tag, is_at_once: bool) -> Receive {
        let descriptor = self.descriptor(Operation::Recv, tag, BYTES_MAX);
        let mut room = vec![0; BYTES_MAX];
        let output = BufferMut::Host(SegmentsMut::One(&mut room));
        let mut call = Call::separate(descriptor, Buffer::Host(Segments::One(&[])), output);
        if is_at_once
            && let AtOnce::Done(outcome) = self.messages.pass_at_once(&mut self.wire, &mut call, &mut 0)
        {
            room.truncate(outcome.bytes as usize);
            return Receive { tag, received: Receipt::Before(outcome, room) };
        }
        Receive { tag, received: Receipt::Later(self.post(descriptor, Vec::new(), room)) }
    }

    /// A blocking receive that takes the general way. It may read beyond its message.
    fn receive_lent(&mut self, tag: Tag, other: &mut Rank) -> Receive {
        let (descriptor, mut room) = (self.descriptor(Operation::Recv, tag, BYTES_MAX), vec![0; BYTES_MAX]);
        let mut lent = [Borrowed::new(descriptor, Site::caller(), &[], &mut room)];
        self.messages.lend(&mut self.wire, &mut lent);
        for _ in 0..1000 {
            if lent[0].is_over() {
                break;
            }
            self.messages.advance_lent(&mut self.wire, &mut lent).unwrap();
            other.wire.arrived.append(&mut self.wire.sent);
            other.advance(self, usize::MAX);
        }
        self.messages.leave(&mut self.wire, &mut lent);
        let outcome = lent[0].result.take().unwrap().unwrap();
        room.truncate(outcome.bytes as usize);
        Receive { tag, received: Receipt::Before(outcome, room) }
    }

    /// Polls so many times while something moves, and lets the sent bytes arrive at the other rank.
    fn advance(&mut self, other: &mut Rank, polls: usize) {
        let mut advance = || self.messages.advance(&mut self.wire, &mut []).unwrap();
        let _ = (0..polls).all(|_| advance());
        other.wire.arrived.append(&mut self.wire.sent);
    }
}

impl Receive {
    fn message(self) -> (u32, Vec<u8>) {
        match self.received {
            Receipt::Before(outcome, bytes) => (outcome.tag, bytes),
            Receipt::Later(request) => {
                let outcome = request.ending.result().expect("it is over").unwrap();
                let Some(OwnedBuffers::Separate { output: OwnedMemory::One(room), .. }) =
                    request.ending.take_buffers()
                else {
                    panic!("a receive has its room")
                };
                (outcome.tag, room.bytes()[..outcome.bytes as usize].to_vec())
            }
        }
    }
}

/// The number of sends and of receives that passed at once.
fn exchange(seed: u64) -> [usize; 2] {
    let mut random = SplitMix(seed);
    let mut below = |limit: usize| (random.next_u64() % limit as u64) as usize;
    let call_bytes = [5, 33, 5000, usize::MAX][below(4)];
    let (mut sender, mut receiver) = (Rank::new(0, call_bytes), Rank::new(1, call_bytes));
    let (mut sent, mut receives, mut at_once) = (Vec::new(), Vec::new(), [0; 2]);
    // Receives that wait keep later ones from passing at once. A ready receiver asks for the next message.
    let is_ready = below(2) == 0;
    for number in 0..1 + below(40) {
        // Its bytes look like frames.
        let inner = Message { dtype: DType::U8, tag: 0, number: number as u64, bytes: 0 };
        let bytes = Frame::Eager(inner).encode(0).into_iter().cycle().take(LENGTHS[below(LENGTHS.len())]);
        let (message, tag) = (bytes.collect::<Vec<u8>>(), below(2) as u32);
        at_once[0] += usize::from(sender.send(tag, &message, below(5) > 0));
        sent.push((tag, message));
        let polls = if is_ready { usize::MAX } else { below(3) };
        sender.advance(&mut receiver, polls);
        for _ in 0..below(1 + usize::from(!is_ready) + sent.len() - receives.len()) {
            let tag = match sent.get(receives.len()) {
                Some((tag, _)) if is_ready => Tag::Is(*tag),
                Some(_) | None => [Tag::Is(0), Tag::Is(1), Tag::Any][below(3)],
            };
            if is_ready && sent.len() > receives.len() && below(4) == 0 {
                receives.push(receiver.receive_lent(tag, &mut sender));
                continue;
            }
            let receive = receiver.receive(tag, below(5) > 0);
            at_once[1] += usize::from(matches!(receive.received, Receipt::Before(..)));
            receives.push(receive);
        }
        receiver.advance(&mut sender, polls);
    }
    // Receives for the messages that are left come last.
    let tags = sent.iter().map(|_| Tag::Any).collect::<Vec<_>>();
    receives.extend(tags.into_iter().map(|tag| receiver.receive(tag, false)));
    for _ in 0..2 * sent.iter().map(|(_, message)| message.len() / 10_000 + 2).sum::<usize>() {
        sender.advance(&mut receiver, usize::MAX);
        receiver.advance(&mut sender, usize::MAX);
    }
    for receive in receives {
        let Some(place) = sent.iter().position(|(tag, _)| receive.tag.fits(*tag)) else { continue };
        assert!(receive.message() == sent.remove(place), "another message");
    }
    assert!(sent.is_empty());
    at_once
}

#[test]
fn messages_at_once_and_the_general_way_keep_their_order() {
    let mut at_once = [0; 2];
    for seed in 0..150 {
        let exchanged = std::panic::catch_unwind(|| exchange(seed));
        let [sends, receives] = exchanged.unwrap_or_else(|_| panic!("seed {seed}"));
        at_once = [at_once[0] + sends, at_once[1] + receives];
    }
    assert!(at_once.iter().all(|count| *count > 40), "{at_once:?}");
}

/// A receive that has seen a part of its message goes on with the rest, or the general way receives all of it.
#[test]
fn a_message_that_comes_in_parts_is_received_once() {
    let message: Vec<u8> = (0..5000).map(|index| (index / 7) as u8).collect();
    for (part, gives_up) in [(31, true), (32, false), (33, true), (33, false), (5000, true), (5031, false)] {
        let (mut sender, mut receiver) = (Rank::new(0, usize::MAX), Rank::new(1, usize::MAX));
        assert!(!sender.send(0, &[1], true), "the first opens the lane");
        sender.advance(&mut receiver, usize::MAX);
        let first = receiver.receive(Tag::Is(0), false);
        receiver.advance(&mut sender, usize::MAX);
        assert!(sender.send(1, &message, true));
        let rest = sender.wire.sent.split_off(part);
        receiver.wire.arrived.append(&mut sender.wire.sent);
        let (descriptor, mut room) =
            (receiver.descriptor(Operation::Recv, Tag::Is(1), BYTES_MAX), vec![0; BYTES_MAX]);
        let output = BufferMut::Host(SegmentsMut::One(&mut room));
        let mut call = Call::separate(descriptor, Buffer::Host(Segments::One(&[])), output);
        let (mut ahead, before) = (0, part.saturating_sub(32));
        let passed = receiver.messages.pass_at_once(&mut receiver.wire, &mut call, &mut ahead);
        // A part of a header tells nothing.
        assert!(matches!(passed, AtOnce::Waits) == (part >= 32) && ahead == before, "{part}");
        receiver.wire.arrived.extend(rest);
        if gives_up {
            let receive = receiver.receive(Tag::Is(1), false);
            receiver.advance(&mut sender, usize::MAX);
            assert_eq!(receive.message(), (1, message.clone()));
        } else {
            let passed = receiver.messages.pass_at_once(&mut receiver.wire, &mut call, &mut ahead);
            assert!(matches!(passed, AtOnce::Done(outcome) if outcome.bytes == 5000));
            assert_eq!(room[..5000], message);
        }
        assert_eq!(first.message(), (0, vec![1]));
    }
}

#[test]
fn messages_at_once_fill_no_more_than_the_queue_of_their_receiver() {
    let (mut sender, mut receiver) = (Rank::new(0, usize::MAX), Rank::new(1, usize::MAX));
    sender.wire.capacity = usize::MAX;
    assert!(!sender.send(0, &[1], true), "the first opens the lane");
    sender.advance(&mut receiver, usize::MAX);
    let passed = (0..5000).take_while(|_| sender.send(0, &[1], true)).count();
    // Each counts 256 bytes of a mebibyte.
    assert_eq!(passed, 4095);
}
