//! The reactions of one rank's control plane to requests and news, and the news that it ignores.

use std::sync::Arc;
use std::time::Instant;

use unisono_backend::{Ask, Board, CallElsewhere, CallHistory, CallStatus, Doing, Question};
use unisono_communicator::{
    CallInfo, Certainty, Collective, DType, Descriptor, Error, Group, GroupRank, JobRank, Operation, Peer,
    Site,
};

use super::hosts::Hosts;
use super::local_communicator::LocalCommunicator;
use super::local_communicators::LocalCommunicators;
use super::simulation::INTERVALS;
use super::slots::Slot;
use super::{Caller, ControlPlane, DialTimeouts, Effect, End, Request};
use crate::wire::{
    AgreementKey, Ballot, CommunicatorKey, Departure, Fate, Fates, JointNews, Message, News, Publisher, Topic,
};

const KEY: CommunicatorKey = CommunicatorKey { id: 5, epoch: 0 };

/// The job has three ranks on one host, and this is rank 1.
const RANKS: u32 = 3;

fn hosts() -> Hosts {
    Hosts::new([0; RANKS as usize].into())
}

fn group() -> Group {
    Group::world_on(1, [0; RANKS as usize].into())
}

fn communicator(key: CommunicatorKey) -> (LocalCommunicator, Arc<Board>) {
    let group = group();
    let board = Arc::new(Board::new(group.own_rank(), RANKS));
    (LocalCommunicator::new(key, group, board.clone()), board)
}

fn control_plane() -> (ControlPlane, Arc<Board>, Instant) {
    let now = Instant::now();
    let (mut control, (communicator, board)) = (
        ControlPlane::new(JobRank::new(1), hosts(), (INTERVALS, DialTimeouts::default()), now),
        communicator(KEY),
    );
    control.request(Request::Register(Box::new(communicator)), now);
    control.take_effects(now);
    (control, board, now)
}

fn hear(control: &mut ControlPlane, origin: u32, sequence: u64, topic: Topic) {
    let (rank, now) = (JobRank::new(origin), Instant::now());
    let joint = JointNews { origins: vec![Publisher { rank, sequence }], topic };
    control.plane.on_message(rank, Message::News(joint), now);
    control.take_effects(now);
}

fn lost(rank: u32) -> Topic {
    Topic::Lost { rank: JobRank::new(rank), certainty: Certainty::Confirmed, reason: "gone".to_owned() }
}

fn revoked(key: CommunicatorKey) -> Topic {
    Topic::Revoked { key, members: JobRank::all(RANKS).collect(), cause: Error::closed() }
}

fn history(calls: u64) -> CallHistory {
    CallHistory { calls, digest: calls }
}

fn closed(key: CommunicatorKey, calls: u64) -> Topic {
    let departure =
        Departure { history: history(calls), by_close: false, in_progress: 0, messages: 7, last: None };
    Topic::Closed { key, members: JobRank::all(RANKS).collect(), departure }
}

#[test]
fn news_about_other_communicators_does_nothing() {
    let (mut control, board, now) = control_plane();
    let other = CommunicatorKey { epoch: 1, ..KEY };
    let mut fates = Fates::all_live(RANKS);
    fates.note(GroupRank::new(1), Fate::Unproven);
    let agreement = AgreementKey { communicator: other, question: Question::Survivors, number: 0 };
    let decision = |communicator| Topic::Decision {
        agreement: AgreementKey { communicator, ..agreement },
        ballot: Ballot { flag: true, finished_calls: 0, fates: fates.clone() },
    };
    let (question, deadline) = (agreement.question, now + INTERVALS.suspect);
    let ask = Ask { question, number: 0, flag: true, finished_calls: 0, deadline, heeds_cause: false };
    control.request(Request::Agree { key: KEY, ask, caller: Caller(1) }, now);
    for origin in [0, 2] {
        let ballot = Ballot { flag: true, finished_calls: 0, fates: Fates::all_live(RANKS) };
        hear(&mut control, origin, 1, Topic::Ballot { agreement, ballot });
    }
    control.on_time(deadline);
    let answers = control.take_effects(deadline);
    assert!(
        answers.iter().any(|effect| matches!(effect, Effect::Agreed(_, Err(Error::Timeout { .. })))),
        "{answers:?}"
    );
    hear(&mut control, 0, 2, revoked(other));
    hear(&mut control, 0, 3, decision(other));
    assert!(!board.first_cause().is_revoked());
    hear(&mut control, 0, 4, decision(KEY));
    assert!(board.first_cause().eviction().is_some(), "the others go on without this rank");
}

#[test]
fn a_rank_that_is_gone_is_not_asked() {
    for topic in [lost(2), Topic::Goodbye] {
        let (mut control, _board, now) = control_plane();
        let origin = if matches!(topic, Topic::Goodbye) { 2 } else { 0 };
        let ask = |number| Request::Ask { key: KEY, awaited: GroupRank::new(2), number };
        let connection = control.on_accepted(Slot::control(JobRank::new(2)), now).unwrap();
        control.on_acknowledged(connection, Ok(()), now);
        control.on_ended(JobRank::new(2), connection, End::Changed, now);
        drop(control.take_effects(now));
        hear(&mut control, origin, 1, topic);
        control.plane.on_disconnected(JobRank::new(2), Certainty::Confirmed, "gone".to_owned(), now);
        control.request(ask(0), now);
        let effects = control.take_effects(now);
        assert!(effects.iter().all(|effect| !matches!(effect, Effect::Dial { .. })), "{effects:?}");
    }
}

/// In a ring of messages, a rank that has sent and received everything leaves before all ranks are that far.
#[test]
fn a_rank_that_waits_for_a_message_of_one_that_has_left_does_not_show_its_loss() {
    let recv = Descriptor { peer: Some(Peer::Rank(2)), ..Descriptor::new(Operation::Recv, DType::U8, 9) };
    let recv = Some(Box::new(CallInfo::new(0, recv)));
    for (message, is_lost) in [(recv, false), (None, true)] {
        let (mut control, board, now) = control_plane();
        [0, 2].into_iter().for_each(|rank| control.on_connected(Slot::control(JobRank::new(rank)), now));
        hear(&mut control, 2, 1, closed(KEY, 0));
        // This rank waits for rank 0, and that one for the rank that has left.
        control.request(Request::Ask { key: KEY, awaited: GroupRank::new(0), number: 0 }, now);
        let doing = Box::new(Doing { awaited: Some(JobRank::new(2)), message, ..Doing::default() });
        let status = CallStatus::NotYet { last: None, doing };
        control.plane.on_message(JobRank::new(0), Message::Answer { key: KEY, number: 0, status }, now);
        control.take_effects(now);
        assert_eq!(board.first_cause().error().is_some(), is_lost, "{:?}", board.first_cause().error());
    }
}

/// Rank 0 waits in another communicator for this rank, or for rank 2, which waits there for this one.
#[test]
fn questions_go_on_in_other_communicators_and_the_way_back_is_a_circle() {
    let other = CommunicatorKey { id: 6, epoch: 0 };
    let barrier = || CallInfo::new(4, Descriptor::new(Collective::Barrier, DType::U8, 0));
    let nothing = || CallStatus::NotYet { last: None, doing: Box::default() };
    let waits_for = |rank, communicator| {
        let (call, ranks, awaited) = (barrier(), "[0, 1]".to_owned(), Some(JobRank::new(rank)));
        let elsewhere = CallElsewhere { communicator, ranks, call, awaited, number: 4 };
        let doing = Box::new(Doing { elsewhere: Some(Box::new(elsewhere)), ..Doing::default() });
        CallStatus::NotYet { last: None, doing }
    };
    for through_2 in [false, true] {
        let (mut control, board, now) = control_plane();
        [0, 2].into_iter().for_each(|rank| control.on_connected(Slot::control(JobRank::new(rank)), now));
        board.calls().enter(&barrier().descriptor, None, None, Site::caller(), None);
        board.progress().await_rank(Some(GroupRank::new(0)));
        let told = || board.answers().not_arrived(&group(), vec![GroupRank::new(0)], 0)[0].to_string();
        let mut answer = |rank, key, number, status| {
            control.plane.on_message(JobRank::new(rank), Message::Answer { key, number, status }, now);
            let asked = control.take_effects(now).into_iter().filter_map(|effect| match effect {
                Effect::Send(rank, Message::Ask { key, number }) => Some((rank.get(), key, number)),
                _ => None,
            });
            asked.collect::<Vec<_>>()
        };
        assert!(answer(2, other, 4, waits_for(1, other)).is_empty(), "nobody has asked");
        if through_2 {
            assert_eq!(answer(0, KEY, 0, waits_for(2, other)), [(2, other, 4)]);
            assert!(!told().contains("each other"), "{}", told());
            assert!(answer(2, other, 4, waits_for(1, other)).is_empty(), "this rank knows where it is");
        } else {
            assert!(answer(0, KEY, 0, waits_for(1, other)).is_empty());
        }
        let circle = if through_2 { "ranks 1 -> 0 -> 2 -> 1" } else { "ranks 1 -> 0 -> 1" };
        assert!(told().contains(circle), "{} but not {circle}", told());
        assert!(
            told().starts_with("rank 0 is in call 4 barrier(0 x u8) of communicator 0000000000000006-0"),
            "{}",
            told()
        );
        assert!(answer(0, KEY, 0, nothing()).is_empty());
        assert_eq!(told(), "rank 0 has not called anything yet");
    }
}

#[test]
fn the_detector_ticks_when_it_is_due() {
    let (mut control, _board, now) = control_plane();
    control.on_connected(Slot::control(JobRank::new(2)), now);
    control.take_effects(now);
    control.on_time(now + INTERVALS.beat / 2);
    assert!(control.take_effects(now).is_empty());
    control.on_time(now + INTERVALS.beat);
    assert!(matches!(control.take_effects(now)[..], [Effect::Send(_, Message::Beat)]));
}

/// Later failures of others come from this rank's leaving.
#[test]
fn who_has_left_the_job_hears_nothing_of_its_communicators() {
    let (mut control, board, now) = control_plane();
    control.leave(now);
    control.take_effects(now);
    hear(&mut control, 0, 1, lost(2));
    hear(&mut control, 0, 2, revoked(KEY));
    assert!(!board.first_cause().is_revoked());
}

#[test]
fn communicators_that_failed_or_lost_a_rank_are_not_compared() {
    for failure in [lost(2), revoked(KEY)] {
        let (mut control, _board, now) = control_plane();
        control.request(Request::Unregister { key: KEY, ours: history(1) }, now);
        control.take_effects(now);
        assert!(control.communicators.left().are_open());
        hear(&mut control, 0, 1, revoked(CommunicatorKey { epoch: 1, ..KEY }));
        assert!(control.communicators.left().are_open());
        hear(&mut control, 0, 2, failure);
        assert!(!control.communicators.left().are_open());
    }
    let (mut control, board, now) = control_plane();
    board.first_cause().revoke(JobRank::new(0), Arc::new(Error::closed()));
    control.request(Request::Unregister { key: KEY, ours: history(1) }, now);
    assert!(!control.communicators.left().are_open());
}

/// Each takes tens of kilobytes.
#[test]
fn communicators_that_were_left_are_remembered_by_key_and_not_without_end() {
    let mut communicators = LocalCommunicators::new(hosts());
    let (key, now) = (|epoch| CommunicatorKey { epoch, ..KEY }, Instant::now());
    let mut leave = |epoch, theirs: [u64; 2]| {
        communicators.add(communicator(key(epoch)).0, &[], now);
        for (origin, calls) in [0, 2].into_iter().zip(theirs) {
            let topic = closed(key(epoch), calls);
            communicators.happened(&News { origin: JobRank::new(origin), sequence: 1, topic }, now);
        }
        communicators.leave(key(epoch), history(1));
        let open = communicators.left().differences().map(|(key, _)| key.epoch).collect::<Vec<_>>();
        (communicators.left().are_open(), open)
    };
    assert_eq!(leave(0, [1, 1]), (false, Vec::new()), "all have made the same calls");
    (1..101).for_each(|epoch| drop(leave(epoch, [1, 7])));
    assert_eq!(leave(101, [1, 1]), (true, (37..101).collect::<Vec<_>>()));
    let mut two = LocalCommunicators::new(hosts());
    for epoch in 0..2 {
        two.add(communicator(key(epoch)).0, &[], now);
        two.leave(key(epoch), history(1));
    }
    two.happened(&News { origin: JobRank::new(2), sequence: 1, topic: closed(key(1), 9) }, now);
    assert_eq!(two.left().differences().map(|(key, _)| key.epoch).collect::<Vec<_>>(), [1]);
}
