//! Fuzzed control connections: a target for cargo-fuzz.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use unisono_backend::{Agreed, Ask, Board, Question, Revocation};
use unisono_communicator::{Collective, DType, Descriptor, Error, Group, GroupRank, JobRank, Result, Site};

use super::input::Input;
use super::news::{SIZE, rank, topic};
use super::store::{store_answer, store_request};
use crate::checksum::CheckedHeader;
use crate::handshake::Verdict;
use crate::hosts::Hosts;
use crate::local_communicator::LocalCommunicator;
use crate::slots::Slot;
use crate::store::{StoreCall, StoreRequest};
use crate::wire::{
    CommunicatorKey, ConnectionRole, FRAME_BYTES_MAX, JointNews, Message, News, encode, read_frame,
    take_message,
};
use crate::{
    Caller, ConnectionNumber, ConnectionStep, ControlPlane, DialFailure, Effect, End, Presence, Request,
};

const RANK: JobRank = JobRank::new(1);

const WORLD: CommunicatorKey = CommunicatorKey { id: 0, epoch: 0 };

/// The time that a caller waits for an agreement, or in its close.
const PATIENCE: Duration = Duration::from_millis(700);

/// The callers of this rank.
const CLOSING: Caller = Caller(9);

/// Target `control`: the messages of the other ranks over their control connections, while connections come and go,
/// time passes, and this rank calls, asks, agrees and closes.
pub fn control(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut node = FuzzedNode::new();
    node.act();
    while !input.is_empty() {
        node.on_event(&mut input);
        node.act();
        node.check();
    }
    node.end();
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Awaited {
    Verdict,
    Acknowledgement,
}

/// This rank.
struct FuzzedNode {
    now: Instant,
    control: ControlPlane,
    board: Arc<Board>,
    /// By rank: the control connection in use.
    connected: [Option<ConnectionNumber>; SIZE as usize],
    /// The connections on which this rank waits for an answer of that rank: a verdict, or an acknowledgement.
    waiting: Vec<(ConnectionNumber, JobRank, Awaited)>,
    /// The ranks that were found to have gone.
    gone: [bool; SIZE as usize],
    /// The number of pieces of news that have come from each rank.
    heard: [u64; SIZE as usize],
    first_cause: Option<Revocation>,
    /// Whether a caller has been told the first cause, which nothing may replace from then on.
    is_told: bool,
    /// Agreements on a flag and on survivors, which have the callers 0 and 1: how many there were, and whether one is
    /// waited for.
    agreements: [(u64, bool); 2],
    /// The progress of the close.
    closing: Option<Poll<()>>,
    /// By rank: the last question about its clock.
    asked_ns: [u64; SIZE as usize],
    /// The number of calls of stores, and the calls that have no end yet.
    store_calls: u64,
    storing: BTreeSet<Caller>,
}

impl FuzzedNode {
    fn new() -> FuzzedNode {
        let now = Instant::now();
        let board = Arc::new(Board::new(in_world(RANK), SIZE));
        let group = Group::world_on(RANK.get(), [0, 0, 0, 1, 1].into());
        let (hosts, times) = (Hosts::new([0, 0, 0, 1, 1].into()), Default::default());
        let mut control = ControlPlane::new(RANK, hosts, times, now);
        let world = LocalCommunicator::new(WORLD, group, board.clone());
        control.request(Request::Register(Box::new(world)), now);
        FuzzedNode {
            now,
            control,
            board,
            connected: [None; SIZE as usize],
            waiting: Vec::new(),
            gone: [false; SIZE as usize],
            heard: [0; SIZE as usize],
            first_cause: None,
            is_told: false,
            agreements: [(0, false); 2],
            closing: None,
            asked_ns: [0; SIZE as usize],
            store_calls: 0,
            storing: BTreeSet::new(),
        }
    }

    fn on_event(&mut self, input: &mut Input<'_>) {
        let kind = input.below(10);
        let peer = JobRank::new((RANK.get() + 1 + u32::from(input.below(SIZE as u8 - 1))) % SIZE);
        match kind {
            0 if self.control.plane.presence(peer) == Presence::Lost => {
                self.control.on_process_ended(peer, "its process has ended".into(), self.now);
            }
            0 if self.connected[peer.index()].is_some() => self.end_connection(peer, input.below(2) == 0),
            0 | 1 => self.connect(peer),
            2 => {
                let count = usize::from(input.u16());
                let piece = 1 + usize::from(input.u8());
                self.receive(peer, &in_frames(input.take(count)), piece);
            }
            3 => {
                let count = usize::from(input.u8());
                self.receive(peer, &framed(input.take(count)), usize::MAX);
            }
            4 | 5 => {
                let news = News { origin: rank(input), sequence: input.u8().into(), topic: topic(input) };
                self.receive(peer, &encoded(&Message::News(news.into())), usize::MAX);
            }
            6 => self.pass(Duration::from_millis(u64::from(input.u8()) * 10)),
            7 => self.call(peer, input),
            8 => self.begin_connection(peer, input.below(2) == 0),
            _ => match input.below(8) {
                4 | 5 => self.call_store(input),
                6 => self.receive(peer, &encoded(&Message::StoreRequest(store_request(input))), usize::MAX),
                7 => self.receive(peer, &encoded(&Message::StoreAnswer(store_answer(input))), usize::MAX),
                kind => self.answer(kind),
            },
        }
    }

    /// A connection between this rank and another one is proven.
    fn begin_connection(&mut self, peer: JobRank, is_dialled: bool) {
        let slot = Slot::control(peer);
        let is_lost = self.control.plane.presence(peer) == Presence::Lost;
        let number = match is_dialled {
            true => self.control.on_dialled(slot, self.now),
            false => self.control.on_accepted(slot, self.now),
        };
        assert_eq!(number.is_none(), is_lost, "a rank that counts as lost is not let in");
        self.act();
    }

    /// The other side of the oldest connection answers, or does not.
    fn answer(&mut self, kind: u8) {
        if self.waiting.is_empty() {
            return;
        }
        let (number, _, awaited) = self.waiting.remove(0);
        match (awaited, kind) {
            (Awaited::Verdict, 0 | 1) => self.control.on_verdict(number, Ok(Verdict::Keep), self.now),
            (Awaited::Verdict, 2) => self.control.on_verdict(number, Ok(Verdict::Drop), self.now),
            (Awaited::Verdict, _) => self.control.on_verdict(number, Err("closed".into()), self.now),
            (Awaited::Acknowledgement, 0 | 1) => self.control.on_acknowledged(number, Ok(()), self.now),
            (Awaited::Acknowledgement, _) => {
                self.control.on_acknowledged(number, Err("closed".into()), self.now);
            }
        }
        self.act();
    }

    /// Answers until a rank has a connection, unless it counts as lost.
    fn connect(&mut self, peer: JobRank) {
        if self.connected[peer.index()].is_none() {
            self.begin_connection(peer, peer > RANK);
            while self.waiting.iter().any(|(_, rank, _)| *rank == peer) {
                self.answer(0);
            }
        }
    }

    fn end_connection(&mut self, peer: JobRank, is_gone: bool) {
        let Some(number) = self.connected[peer.index()] else { return };
        let end = if is_gone { End::Closed("its connection ended".to_owned()) } else { End::Changed };
        self.control.on_ended(peer, number, end, self.now);
        if is_gone {
            let failure = DialFailure::Absent("nobody is there".to_owned());
            self.control.on_dial_failed(Slot::control(peer), failure, self.now);
        }
        self.act();
    }

    /// Takes the next step of a connection.
    fn on_step(&mut self, peer: JobRank, number: ConnectionNumber, step: ConnectionStep) {
        let connected = &mut self.connected[peer.index()];
        match step {
            ConnectionStep::Keep(_) => self.waiting.push((number, peer, Awaited::Acknowledgement)),
            ConnectionStep::AwaitVerdict(_) => self.waiting.push((number, peer, Awaited::Verdict)),
            ConnectionStep::Use => {
                let before = connected.replace(number);
                assert_eq!(before, None, "the older connection to rank {peer} was not closed");
                self.control.on_connected(Slot::control(peer), self.now);
            }
            ConnectionStep::Drop | ConnectionStep::Close if *connected == Some(number) => *connected = None,
            ConnectionStep::Drop | ConnectionStep::Close => {}
        }
    }

    /// Reads everything from a connection, up to the first bytes that are no message, which end it.
    fn receive(&mut self, peer: JobRank, bytes: &[u8], piece: usize) {
        self.connect(peer);
        let (mut pieces, mut received) = (bytes.chunks(piece), Vec::new());
        while let Some(number) = self.connected[peer.index()] {
            let before = received.clone();
            match take_message(&mut received) {
                Ok(None) => match pieces.next() {
                    Some(piece) => received.extend_from_slice(piece),
                    None if received.is_empty() => return,
                    None => self.end_connection(peer, false),
                },
                Ok(Some(mut message)) => {
                    check_message(&message);
                    // The fuzzer cannot guess the time of this rank, which every answer repeats.
                    if let Message::Clock { asked_ns, .. } = &mut message {
                        *asked_ns = self.asked_ns[peer.index()];
                    }
                    self.control.on_message(peer, number, message, self.now);
                    self.act();
                }
                Err(bad) => {
                    self.control.on_ended(peer, number, bad.into(), self.now);
                    self.act();
                }
            }
            let is_bad = |header| {
                let header = CheckedHeader::decode(header);
                header.is_none_or(|header| !(1..=FRAME_BYTES_MAX).contains(&header.length))
            };
            if before.first_chunk().is_some_and(is_bad) {
                assert_ne!(
                    self.connected[peer.index()],
                    Some(number),
                    "a frame with a header that is not allowed"
                );
                assert!(received.capacity() < 2 * FRAME_BYTES_MAX, "read in spite of its length");
            }
        }
    }

    /// Lets time pass, with the ticks that are due.
    fn pass(&mut self, span: Duration) {
        self.now += span;
        self.control.on_time(self.now);
    }

    /// The actions of this rank's caller.
    fn call(&mut self, peer: JobRank, input: &mut Input<'_>) {
        match input.below(7) {
            0 => {
                let collective = [Collective::AllReduce, Collective::Broadcast][usize::from(input.below(2))];
                let descriptor = Descriptor::new(collective, DType::F32, input.below(4).into());
                self.board.calls().enter(&descriptor, None, None, Site::caller(), None);
                self.board.progress().await_rank(Some(in_world(peer)));
            }
            1 => self.board.progress().leave(self.board.calls().entered().saturating_sub(1)),
            2 => {
                let number = self.board.calls().entered().saturating_sub(1);
                self.request(Request::Ask { key: WORLD, awaited: in_world(peer), number });
            }
            3 => self.agree(Question::Flag, input),
            4 => self.agree(Question::Survivors, input),
            5 if self.closing.is_none() => {
                self.closing = Some(Poll::Pending);
                let (ours, deadline) = (self.board.calls().history(), self.now + PATIENCE);
                self.request(Request::Close { key: WORLD, ours, deadline, caller: CLOSING });
            }
            6 => self.is_told |= self.board.first_cause().tell().is_some(),
            _ => {}
        }
    }

    fn agree(&mut self, question: Question, input: &mut Input<'_>) {
        let (number, waiting) = &mut self.agreements[question as usize];
        if !std::mem::replace(waiting, true) {
            let deadline = self.now + PATIENCE;
            let flag = input.below(2) > 0;
            let ask = Ask {
                question,
                number: *number,
                flag,
                finished_calls: self.board.progress().finished(),
                deadline,
                heeds_cause: false,
            };
            self.request(Request::Agree { key: WORLD, ask, caller: Caller(question as u64) });
        }
    }

    /// Calls a store of this rank or of another one.
    fn call_store(&mut self, input: &mut Input<'_>) {
        let StoreRequest { key, operation, .. } = store_request(input);
        let holder = JobRank::new(u32::from(input.below(SIZE as u8)));
        self.store_calls += 1;
        let caller = Caller(self.store_calls);
        self.storing.insert(caller);
        let call = Box::new(StoreCall { holder, key, operation, deadline: self.now + PATIENCE });
        self.request(Request::Store { call, caller });
    }

    fn request(&mut self, request: Request) {
        self.control.request(request, self.now);
    }

    /// Takes the effects, and checks them.
    fn act(&mut self) {
        loop {
            let effects = self.control.take_effects(self.now);
            if effects.is_empty() {
                return;
            }
            effects.into_iter().for_each(|effect| self.on_effect(effect));
        }
    }

    fn on_effect(&mut self, effect: Effect) {
        match effect {
            Effect::Dial { slot: Slot { role, peer, .. }, .. } => {
                assert!(role == ConnectionRole::Control && peer.get() < SIZE && peer != RANK, "dials {peer}");
            }
            Effect::Connection { slot, number, step } => self.on_step(slot.peer, number, step),
            Effect::FindAbsent(peer) => assert!([0, 2].contains(&peer.get()), "{peer} is not on this host"),
            Effect::Send(peer, message) => {
                assert!(peer.get() < SIZE && peer != RANK, "sends to {peer}");
                if let Message::AskClock { asked_ns } = &message {
                    self.asked_ns[peer.index()] = *asked_ns;
                }
                let is_of_others = |news: &JointNews| news.origins.iter().any(|origin| origin.rank != RANK);
                // News of other ranks was checked when it came.
                if !matches!(&message, Message::News(news) if is_of_others(news)) {
                    check_sent(&message);
                }
            }
            Effect::Happened(news) => {
                assert!(news.origin.get() < SIZE, "news of {}", news.origin);
                let heard = &mut self.heard[news.origin.index()];
                assert!(news.sequence > std::mem::replace(heard, news.sequence), "{news:?} comes again");
            }
            Effect::Wake(key) | Effect::Left(key, _) => assert_eq!(key, WORLD),
            Effect::NotConnected(..) => panic!("no connection is wanted"),
            Effect::Measured(offset) => assert!(offset.host == 1 && offset.rank.get() > 2, "{offset:?}"),
            Effect::Agreed(caller, result) => self.on_agreed(caller, result),
            Effect::Closed(caller, _) => {
                let before = self.closing.replace(Poll::Ready(()));
                assert!(caller == CLOSING && before == Some(Poll::Pending), "answered twice");
            }
            Effect::StoreCalled(caller, result) => {
                assert!(self.storing.remove(&caller), "{result:?} comes again");
            }
        }
    }

    fn on_agreed(&mut self, caller: Caller, result: Result<Agreed>) {
        let (number, is_waiting) = &mut self.agreements[caller.0 as usize];
        assert!(std::mem::take(is_waiting), "answered twice");
        match result {
            Ok(agreed) => {
                *number += 1;
                let survivors = &agreed.survivors;
                assert!(survivors.is_sorted() && survivors.iter().all(|rank| rank.get() < SIZE));
                assert!(survivors.contains(&in_world(RANK)), "{agreed:?} without us");
            }
            Err(Error::Timeout { .. } | Error::Evicted { .. }) => {}
            Err(Error::NoQuorum { .. }) => *number += 1,
            Err(error) => panic!("an agreement ends with {error}"),
        }
    }

    /// Checks the invariants after every event.
    fn check(&mut self) {
        for (rank, gone) in JobRank::all(SIZE).zip(&mut self.gone) {
            let is_gone = self.control.plane.presence(rank) != Presence::Live;
            assert!(is_gone || !*gone, "rank {rank} is back");
            *gone = is_gone;
        }
        let revocation = self.board.first_cause().revocation();
        if let Some(first) = &self.first_cause {
            let Some(Revocation { by, cause }) = &revocation else { panic!("{} is taken back", first.cause) };
            // The report of a rank replaces the loss of that rank, unless it has told that itself.
            let may_change = !self.is_told && *by != first.by && first.cause.lost_ranks() == [*by];
            let is_same = Arc::ptr_eq(cause, &first.cause);
            assert!(is_same || may_change, "the first cause is {}, then {cause}", first.cause);
        }
        self.first_cause = revocation;
    }

    /// After every deadline, no caller waits any more.
    fn end(mut self) {
        // A close that is late may look for a difference first.
        for _ in 0..2 {
            self.pass(2 * PATIENCE);
            self.act();
        }
        self.check();
        let waits = self.agreements.iter().any(|(_, is_waiting)| *is_waiting);
        assert!(!waits, "an agreement has no end");
        assert_ne!(self.closing, Some(Poll::Pending), "a close has no end");
        assert_eq!(self.storing, BTreeSet::new(), "calls of stores have no end");
    }
}

/// A rank of the job in the communicator of all of them.
fn in_world(rank: JobRank) -> GroupRank {
    GroupRank::new(rank.get())
}

/// The frame of a message.
fn encoded(message: &Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(message, &mut bytes);
    bytes
}

/// A frame with this content.
fn framed(body: &[u8]) -> Vec<u8> {
    [&CheckedHeader::of(body).encode(), body].concat()
}

/// Frames with lengths that the bytes give, a `u32` before each, and contents. The rest stays as it is.
fn in_frames(mut bytes: &[u8]) -> Vec<u8> {
    let mut frames = Vec::new();
    while let Some((length, behind)) = bytes.split_first_chunk()
        && let Some((body, rest)) = behind.split_at_checked(u32::from_le_bytes(*length) as usize)
    {
        frames.extend(framed(body));
        bytes = rest;
    }
    frames.extend_from_slice(bytes);
    frames
}

/// A message that was decoded is the same when it is encoded again.
fn check_message(message: &Message) {
    let again = check_sent(message);
    assert_eq!(format!("{again:?}"), format!("{message:?}"));
}

/// Every message that is sent fits a frame, and is decoded to itself, to the last byte.
fn check_sent(message: &Message) -> Message {
    let (mut bytes, mut again) = (Vec::new(), Vec::new());
    encode(message, &mut bytes);
    let Ok(Some((read, length))) = read_frame(&bytes) else { panic!("{message:?} cannot be read") };
    assert_eq!(length, bytes.len());
    encode(&read, &mut again);
    assert_eq!(bytes, again, "{message:?}");
    read
}
