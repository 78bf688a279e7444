//! What news means to a communicator.

use std::time::Duration;

use crossbeam::channel::{Receiver, bounded, unbounded};
use unisono_communicator::{Collective, DType, Descriptor, Result, Site};

use super::*;
use crate::wire::ConnectionRole;

const KEY: CommunicatorKey = CommunicatorKey { id: 5 << ID_LIST_BITS, epoch: 0 };

/// The last of its three ranks, 6 in the job.
const LAST: GroupRank = GroupRank::new(2);

/// The middle one of the ranks 2, 4 and 6 of a job.
fn local_communicator() -> (LocalCommunicator, Arc<Board>, Receiver<Delivery>) {
    let own = GroupRank::new(1);
    let group = Group::new(own, [2, 4, 6].map(JobRank::new).into(), [0; 3].into(), 0);
    let board = Arc::new(Board::new(own, 3));
    let (outbox, inbox) = unbounded();
    (LocalCommunicator::new(KEY, group, board.clone(), (outbox, Arc::new(|| {}))), board, inbox)
}

/// Ranks 0 to 3 and 4 to 6 of the job share a host.
fn hosts() -> Hosts {
    Hosts::new([0, 0, 0, 0, 1, 1, 1].into())
}

fn local_communicators() -> (LocalCommunicators, Arc<Board>, Receiver<Delivery>) {
    let (communicator, board, inbox) = local_communicator();
    let mut communicators = LocalCommunicators::new(hosts());
    communicators.add(communicator, &[], Instant::now());
    (communicators, board, inbox)
}

fn news(origin: u32, topic: Topic) -> News {
    News { origin: JobRank::new(origin), sequence: 1, topic }
}

fn lost(rank: u32) -> Topic {
    Topic::Lost { rank: JobRank::new(rank), certainty: Certainty::Confirmed, reason: "gone".into() }
}

fn history(calls: u64) -> CallHistory {
    CallHistory { calls, digest: calls }
}

fn close(communicators: &mut LocalCommunicators, calls: u64) -> Receiver<Result<()>> {
    let (answer, answered) = bounded(1);
    let topic = communicators.close(
        KEY,
        history(calls),
        (Instant::now(), Instant::now() + Duration::from_secs(60)),
        answer,
    );
    assert!(matches!(topic, Some(Topic::Closed { history: said, .. }) if said.calls == calls));
    // A rank's own news comes back to it.
    communicators.happened(
        &news(4, Topic::Closed { key: KEY, history: history(calls), by_close: true }),
        Instant::now(),
    );
    answered
}

#[test]
fn a_lost_rank_ends_the_communicators_that_need_it() {
    let (mut communicators, board, _inbox) = local_communicators();
    board.enter(&Descriptor::new(Collective::Barrier, DType::U8, 0), None, None, Site::caller(), None);
    communicators.happened(&news(3, lost(5)), Instant::now());
    assert!(!board.is_revoked(), "not a member");
    communicators.happened(&news(3, lost(6)), Instant::now());
    communicators.happened(&news(2, Topic::Revoked { key: KEY, cause: Error::Closed }), Instant::now());
    let Some(Error::PeerLost { culprits, call, reported_by, .. }) = board.revocation_error() else {
        panic!("the first cause stays, and it was seen by nobody in the group")
    };
    let ranks = (culprits[0].rank.get(), reported_by.get());
    assert_eq!((ranks, call.map(|call| call.number)), ((6, 3), Some(0)));
}

/// A rank whose thread has panicked may live, and report others as lost that have left because of that.
#[test]
fn who_has_told_its_own_failure_takes_nothing_back() {
    for tells_itself in [true, false] {
        let (mut communicators, board, _inbox) = local_communicators();
        if tells_itself {
            let cause =
                local_communicator().0.gone(LAST, Certainty::Confirmed, "its thread panicked".to_owned());
            communicators.happened(&news(6, Topic::Revoked { key: KEY, cause }), Instant::now());
        } else {
            communicators.happened(&news(2, lost(6)), Instant::now());
        }
        communicators.happened(&news(6, lost(2)), Instant::now());
        let blamed = board.revocation_error().map(|error| error.lost_ranks());
        assert_eq!(blamed, Some(vec![JobRank::new(if tells_itself { 6 } else { 2 })]));
    }
}

#[test]
fn who_has_closed_may_go() {
    let (mut communicators, board, _inbox) = local_communicators();
    communicators
        .happened(&news(6, Topic::Closed { key: KEY, history: history(2), by_close: true }), Instant::now());
    communicators.happened(&news(2, lost(6)), Instant::now());
    assert!(!board.is_revoked());
    assert!(communicators.before_asking(KEY, LAST, 1).is_none(), "it has done that call");
    let Some(Topic::Revoked { cause: Error::PeerLost { culprits, evidence, .. }, .. }) =
        communicators.before_asking(KEY, LAST, 2)
    else {
        panic!("it will never make that call")
    };
    assert_eq!((culprits[0].rank.get(), evidence.as_str()), (6, "it left after call 1"));
    assert!(communicators.before_asking(KEY, LAST, 2).is_none(), "told once");
}

#[test]
fn closing_waits_for_all_and_compares() {
    let (mut equal, _board, _inbox) = local_communicators();
    let answered = close(&mut equal, 3);
    equal.happened(&news(6, Topic::Closed { key: KEY, history: history(3), by_close: true }), Instant::now());
    assert!(answered.is_empty() && equal.due().is_some());
    equal.happened(&news(2, Topic::Closed { key: KEY, history: history(3), by_close: true }), Instant::now());
    assert!(matches!(answered.try_recv(), Ok(Ok(()))) && equal.due().is_none());
    assert!(equal.leave(KEY, history(3), true).is_none(), "the goodbye has been said");

    let (mut unequal, _board, _inbox) = local_communicators();
    unequal
        .happened(&news(6, Topic::Closed { key: KEY, history: history(4), by_close: true }), Instant::now());
    let answered = close(&mut unequal, 3);
    unequal.on_time(Instant::now() + Duration::from_secs(61));
    assert!(matches!(answered.try_recv(), Ok(Err(Error::Mismatch { calls, .. })) if calls[1].0.get() == 6));

    let (mut early, _board, _inbox) = local_communicators();
    early
        .happened(&news(6, Topic::Closed { key: KEY, history: history(2), by_close: false }), Instant::now());
    let answered = close(&mut early, 3);
    early.on_time(Instant::now() + Duration::from_secs(61));
    let Ok(Err(Error::PeerLost { culprits, evidence, .. })) = answered.try_recv() else {
        panic!("not a loss")
    };
    assert_eq!((culprits[0].rank.get(), evidence.as_str()), (6, "it left after call 1"));

    let (mut untold, _board, _inbox) = local_communicators();
    assert!(
        matches!(untold.leave(KEY, history(3), false), Some(Topic::Closed { .. })),
        "nobody has been told"
    );
}

/// Its last call only had to send, so it has finished. Others have failed in theirs, and go on without it.
#[test]
fn the_goodbye_of_who_has_failed_is_not_compared() {
    let (mut communicators, board, _inbox) = local_communicators();
    let answered = close(&mut communicators, 3);
    communicators.happened(&news(6, Topic::Revoked { key: KEY, cause: Error::Closed }), Instant::now());
    communicators
        .happened(&news(6, Topic::Closed { key: KEY, history: history(2), by_close: true }), Instant::now());
    assert!(matches!(answered.try_recv(), Ok(Ok(()))) && board.is_revoked());
}

#[test]
fn what_came_before_the_communicator_counts() {
    let (communicator, board, _inbox) = local_communicator();
    LocalCommunicators::new(hosts()).add(
        communicator,
        &[news(2, Topic::Revoked { key: KEY, cause: Error::Closed })],
        Instant::now(),
    );
    assert!(matches!(board.revocation(), Some(revocation) if revocation.by.get() == 2));
    assert!(matches!(board.revocation_error(), Some(Error::Closed)));
}

#[test]
fn mail_reaches_members_only() {
    let (communicators, _board, inbox) = local_communicators();
    let slot = Slot { key: KEY, role: ConnectionRole::First, peer: JobRank::new(6) };
    let failure = Failure::Gone(Certainty::Suspected, "no answer".into());
    communicators.deliver_failure(Slot { peer: JobRank::new(3), ..slot }, Failure::Error(Error::Closed));
    assert!(inbox.is_empty(), "not a member");
    communicators.deliver_failure(slot, failure);
    let Ok(Delivery::Failed(Error::PeerLost { culprits, reported_by, .. })) = inbox.try_recv() else {
        panic!("no failure")
    };
    assert_eq!((culprits[0].rank.get(), reported_by.get()), (6, 4));
}

#[test]
fn other_lists_of_the_same_origin_are_a_conflict() {
    let (communicators, board, _inbox) = local_communicators();
    let other_list = Slot {
        key: CommunicatorKey { id: KEY.id + 1, ..KEY },
        role: ConnectionRole::First,
        peer: JobRank::new(6),
    };
    let other_origin = Slot { key: CommunicatorKey { id: KEY.id * 2, ..KEY }, ..other_list };
    assert!(communicators.other_list(other_origin).is_none());
    let told = communicators.other_list(other_list).unwrap();
    assert_eq!((told.mine, told.yours, told.list.as_str()), (KEY, other_list.key, "[2, 4, 6]"));
    assert!(!board.is_revoked(), "the other side knows both lists, and publishes");
    let theirs = OtherList { mine: told.yours, yours: told.mine, list: "[6, 1]".to_owned() };
    assert!(communicators.differs(JobRank::new(6), &told).is_empty(), "not ours");
    let keys: Vec<_> = communicators.differs(JobRank::new(6), &theirs).iter().map(Topic::key).collect();
    assert_eq!(keys, [Some(KEY), Some(other_list.key)]);
    let error = board.revocation_error().unwrap();
    assert!(matches!(&error, Error::Refused { problem } if problem.contains("rank 6 for [6, 1]")), "{error}");
}
