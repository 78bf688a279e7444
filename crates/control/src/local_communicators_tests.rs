//! The effect of news on a communicator.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use unisono_backend::{Board, MessageWait, Question};
use unisono_communicator::{CallInfo, Collective, DType, Descriptor, Group, Site};

use super::*;
use crate::wire::{ConnectionRole, Departure};

const KEY: CommunicatorKey = CommunicatorKey { id: 5 << ID_LIST_BITS, epoch: 0 };

/// The last of its three ranks, 6 in the job.
const LAST: GroupRank = GroupRank::new(2);

/// The middle one of the ranks 2, 4 and 6 of a job.
fn local_communicator() -> (LocalCommunicator, Arc<Board>) {
    communicator(KEY)
}

fn communicator(key: CommunicatorKey) -> (LocalCommunicator, Arc<Board>) {
    let own = GroupRank::new(1);
    let group = Group::new(own, [2, 4, 6].map(JobRank::new).into(), [0; 3].into(), 0);
    let board = Arc::new(Board::new(own, 3));
    (LocalCommunicator::new(key, group, board.clone()), board)
}

/// Ranks 0 to 3 and 4 to 6 of the job share a host.
fn hosts() -> Hosts {
    Hosts::new([0, 0, 0, 0, 1, 1, 1].into())
}

fn local_communicators() -> (LocalCommunicators, Arc<Board>) {
    let (communicator, board) = local_communicator();
    let mut communicators = LocalCommunicators::new(hosts());
    communicators.add(communicator, &[], Instant::now());
    (communicators, board)
}

fn news(origin: u32, topic: Topic) -> News {
    News { origin: JobRank::new(origin), sequence: 1, topic }
}

fn lost(rank: u32) -> Topic {
    Topic::Lost { rank: JobRank::new(rank), certainty: Certainty::Confirmed, reason: "gone".into() }
}

fn revoked(cause: Error) -> Topic {
    Topic::Revoked { key: KEY, members: [2, 4, 6].map(JobRank::new).into_iter().collect(), cause }
}

fn history(calls: u64) -> CallHistory {
    CallHistory { calls, digest: calls }
}

fn closed(calls: u64, by_close: bool) -> Topic {
    let departure = Departure { history: history(calls), by_close, in_progress: 0, messages: 7, last: None };
    left_after(departure)
}

fn left_after(departure: Departure) -> Topic {
    Topic::Closed { key: KEY, members: [2, 4, 6].map(JobRank::new).into_iter().collect(), departure }
}

/// The only caller.
const CALLER: Caller = Caller(7);

fn close(communicators: &mut LocalCommunicators, calls: u64) {
    let topics = communicators.close(
        KEY,
        history(calls),
        (Instant::now(), Instant::now() + Duration::from_secs(60)),
        CALLER,
    );
    assert!(
        matches!(&topics[..], [Topic::Closed { departure, .. }] if departure.history.calls == calls),
        "{topics:?}"
    );
    // A rank's own news comes back to it.
    communicators.happened(&news(4, closed(calls, true)), Instant::now());
}

/// The answer to the caller, if there is one by now.
fn answer(communicators: &mut LocalCommunicators) -> Option<Result<(), Error>> {
    let answers = communicators.take_effects().into_iter().filter_map(|effect| match effect {
        Effect::Closed(caller, result) => Some((caller, result)),
        Effect::Agreed(caller, result) => Some((caller, result.map(drop))),
        _ => None,
    });
    let mut answers = answers.collect::<Vec<_>>();
    assert!(answers.len() < 2 && answers.iter().all(|(caller, _)| *caller == CALLER), "{answers:?}");
    answers.pop().map(|(_, result)| result)
}

#[test]
fn a_lost_rank_ends_the_communicators_that_need_it() {
    let (mut communicators, board) = local_communicators();
    board.calls().enter(
        &Descriptor::new(Collective::Barrier, DType::U8, 0),
        None,
        None,
        Site::caller(),
        None,
    );
    communicators.happened(&news(3, lost(5)), Instant::now());
    assert!(!board.first_cause().is_revoked(), "not a member");
    communicators.happened(&news(3, lost(6)), Instant::now());
    communicators.happened(&news(2, revoked(Error::closed())), Instant::now());
    let Some(Error::PeerLost { culprits, call, reported_by, .. }) = board.first_cause().error() else {
        panic!("the first cause stays, and it was seen by nobody in the group")
    };
    let ranks = (culprits[0].rank.get(), reported_by.get());
    assert_eq!((ranks, call.map(|call| call.number)), ((6, 3), Some(0)));
}

/// A rank whose thread has panicked may live, and report others as lost that have left because of that.
#[test]
fn who_has_told_its_own_failure_takes_nothing_back() {
    for tells_itself in [true, false] {
        let (mut communicators, board) = local_communicators();
        if tells_itself {
            let cause =
                local_communicator().0.gone(LAST, Certainty::Confirmed, "its thread panicked".to_owned());
            communicators.happened(&news(6, revoked(cause)), Instant::now());
        } else {
            communicators.happened(&news(2, lost(6)), Instant::now());
        }
        communicators.happened(&news(6, lost(2)), Instant::now());
        let blamed = board.first_cause().error().map(|error| error.lost_ranks());
        assert_eq!(blamed, Some(vec![JobRank::new(if tells_itself { 6 } else { 2 })]));
    }
}

/// The question to the last rank about this call.
fn asked(number: u64) -> Asked {
    Asked { rank: JobRank::new(6), communicator: KEY, number, is_message: false }
}

#[test]
fn who_has_closed_may_go() {
    let (mut communicators, board) = local_communicators();
    communicators.happened(&news(6, closed(2, true)), Instant::now());
    communicators.happened(&news(2, lost(6)), Instant::now());
    assert!(!board.first_cause().is_revoked());
    assert!(communicators.before_asking(asked(1)).is_none(), "it has done that call");
    assert!(
        communicators.before_asking(Asked { is_message: true, ..asked(2) }).is_none(),
        "what it had sent before may be on its way"
    );
    let Some(Topic::Revoked { cause: Error::PeerLost { culprits, evidence, .. }, .. }) =
        communicators.before_asking(asked(2))
    else {
        panic!("it will never make that call")
    };
    assert_eq!((culprits[0].rank.get(), evidence.as_str()), (6, "it left after call 1"));
    assert!(communicators.before_asking(asked(2)).is_none(), "told once");
}

/// A rank that had finished the call before it left has sent all that the call needs by its own program.
#[test]
fn who_leaves_after_more_or_other_calls_differs_and_is_not_lost() {
    let root = |root| Descriptor { root: Some(root), ..Descriptor::new(Collective::Reduce, DType::U8, 1) };
    let ours = CallInfo::new(1, root(0));
    // This rank is in call 1, in which the stream of rank 6 ends. Before or after that, rank 6 leaves.
    let told = |departure: Departure, is_ended_first: bool, more: Option<Topic>| {
        let (mut communicators, board) = local_communicators();
        for call in [&Descriptor::new(Collective::Barrier, DType::U8, 0), &ours.descriptor] {
            board.calls().enter(call, None, None, Site::caller(), None);
        }
        board.progress().leave(0);
        let left = news(6, left_after(departure));
        let mut topics = Vec::new();
        for ends in [is_ended_first, !is_ended_first] {
            match ends {
                true => topics.extend(communicators.stream_ended(KEY, LAST)),
                false => topics.extend(communicators.happened(&left, Instant::now())),
            }
        }
        let origin = |topic: &Topic| if matches!(topic, Topic::Goodbye) { 6 } else { 2 };
        let more = more.map(|topic| news(origin(&topic), topic));
        topics.extend(more.iter().flat_map(|news| communicators.happened(news, Instant::now())));
        let causes = topics.into_iter().map(|topic| match topic {
            Topic::Revoked { cause, .. } => cause.to_string(),
            other => panic!("{other:?}"),
        });
        (causes.collect::<Vec<_>>(), communicators.take_questions())
    };
    let left = |calls, by_close, last| Departure {
        history: history(calls),
        by_close,
        in_progress: 0,
        messages: 7,
        last,
    };
    let (lost_6, more) = ("lost rank 6", "rank 6 had finished its call 1: it left after call 3");
    let other = CallInfo::new(1, root(2));
    let in_progress = Departure { in_progress: 1, ..left(2, false, None) };
    for is_ended_first in [true, false] {
        for (departure, later, text) in [
            (left(1, false, None), None, lost_6),
            (in_progress.clone(), None, lost_6),
            (left(4, false, Some(CallInfo::new(3, root(0)))), None, more),
            (left(4, false, None), None, more),
            (left(2, false, Some(other.clone())), None, "root 0 / 2"),
            // It holds its communicator, so it is asked, until it leaves the job or dies.
            (left(4, true, None), Some(Topic::Goodbye), more),
            (left(4, true, None), Some(lost(6)), lost_6),
        ] {
            let by_close = departure.by_close;
            let (causes, questions) = told(departure.clone(), is_ended_first, later);
            assert!(causes.len() == 1 && causes[0].contains(text), "{departure:?}: {causes:?}");
            assert_eq!(questions, if by_close { vec![asked(1)] } else { Vec::new() });
        }
        assert!(told(left(4, true, None), is_ended_first, None).0.is_empty(), "its answer tells");
    }
    let (mut communicators, board) = local_communicators();
    board.calls().enter(&ours.descriptor, None, None, Site::caller(), None);
    let _waits = MessageWait::new(board.clone(), &ours.descriptor, Site::caller());
    communicators.stream_ended(KEY, LAST);
    let topics = communicators.happened(&news(6, closed(4, false)), Instant::now());
    assert!(
        matches!(&topics[..], [Topic::Revoked { cause: Error::PeerLost { .. }, .. }]),
        "a message is in no history: {topics:?}"
    );
}

#[test]
fn closing_waits_for_all_and_compares() {
    let (mut equal, _board) = local_communicators();
    close(&mut equal, 3);
    equal.happened(&news(6, closed(3, true)), Instant::now());
    assert!(answer(&mut equal).is_none() && equal.due().is_some());
    equal.happened(&news(2, closed(3, true)), Instant::now());
    assert!(matches!(answer(&mut equal), Some(Ok(()))) && equal.due().is_none());
    assert!(equal.leave(KEY, history(3)).is_empty(), "the goodbye has been said");

    let (mut unequal, _board) = local_communicators();
    unequal.happened(&news(6, closed(4, true)), Instant::now());
    close(&mut unequal, 3);
    // Its time is up, and it looks for the first call that differs. It is not answered, and has a second for that.
    let late = Instant::now() + Duration::from_secs(61);
    assert!(unequal.on_time(late).is_empty() && answer(&mut unequal).is_none());
    assert_eq!(unequal.take_questions(), [asked(0)]);
    unequal.on_time(late + Duration::from_secs(2));
    assert!(
        matches!(answer(&mut unequal), Some(Err(Error::Mismatch { calls, .. })) if calls[1].0.get() == 6)
    );

    let (mut searched, _board) = local_communicators();
    [(6, 4), (2, 3)].into_iter().for_each(|(rank, calls)| {
        searched.happened(&news(rank, closed(calls, true)), Instant::now());
    });
    close(&mut searched, 3);
    assert!(answer(&mut searched).is_none(), "the lowest rank looks for the call");
    searched.on_time(Instant::now() + Duration::from_secs(2));
    assert!(matches!(answer(&mut searched), Some(Err(Error::Mismatch { .. }))));

    let (mut early, _board) = local_communicators();
    early.happened(&news(6, closed(2, false)), Instant::now());
    close(&mut early, 3);
    early.on_time(Instant::now() + Duration::from_secs(61));
    let Some(Err(Error::PeerLost { culprits, evidence, .. })) = answer(&mut early) else {
        panic!("not a loss")
    };
    assert_eq!((culprits[0].rank.get(), evidence.as_str()), (6, "it left after call 1"));

    let (mut dropped, _board) = local_communicators();
    dropped.happened(&news(6, closed(3, false)), Instant::now());
    close(&mut dropped, 3);
    dropped.happened(&news(2, closed(3, true)), Instant::now());
    assert!(matches!(answer(&mut dropped), Some(Ok(()))), "it has made the same calls");

    let (mut untold, _board) = local_communicators();
    assert!(matches!(untold.leave(KEY, history(3))[..], [Topic::Closed { .. }]), "nobody has been told");
}

/// Its last call only had to send, so it has finished. Others have failed in theirs, and go on without it.
#[test]
fn the_goodbye_of_who_has_failed_is_not_compared() {
    let (mut communicators, board) = local_communicators();
    close(&mut communicators, 3);
    communicators.happened(&news(6, revoked(Error::closed())), Instant::now());
    communicators.happened(&news(6, closed(2, true)), Instant::now());
    assert!(matches!(answer(&mut communicators), Some(Ok(()))) && board.first_cause().is_revoked());
    let (mut late, _board) = local_communicators();
    late.happened(&news(6, revoked(Error::closed())), Instant::now());
    late.happened(&news(6, closed(2, true)), Instant::now());
    close(&mut late, 3);
    assert!(matches!(answer(&mut late), Some(Ok(()))), "nor by who closes after it");
}

/// Others may never be reached, and would be named although they wait.
#[test]
fn a_rank_that_begins_without_descriptors_says_so_in_its_time() {
    let (mut communicators, board) = local_communicators();
    let (now, second) = (Instant::now(), Duration::from_secs(1));
    let shortage = Error::System { what: "cannot connect".to_owned(), text: "no descriptors".to_owned() };
    let patience = 60 * second;
    let ask = |communicators: &mut LocalCommunicators, heeds_cause| {
        let (question, deadline) = (Question::Flag, now + 10 * second);
        let ask = Ask { question, number: 0, flag: true, finished_calls: 0, deadline, heeds_cause };
        communicators.agree(KEY, ask, CALLER, now);
    };
    let short = |communicators: &mut LocalCommunicators, seconds| {
        communicators.fall_short(&shortage, (now, patience), now + seconds * second)
    };
    ask(&mut communicators, true);
    assert!(short(&mut communicators, 4).is_empty() && answer(&mut communicators).is_none());
    let (mut impatient, _board) = local_communicators();
    ask(&mut impatient, true);
    assert!(impatient.fall_short(&shortage, (now, 2 * second), now + second).is_empty());
    assert_eq!(impatient.fall_short(&shortage, (now, 2 * second), now + 2 * second).len(), 1);
    let topics = short(&mut communicators, 5);
    assert!(
        matches!(&topics[..], [Topic::Revoked { key: KEY, cause: Error::System { .. }, .. }]),
        "{topics:?}"
    );
    let error = answer(&mut communicators).unwrap().unwrap_err();
    assert!(error.to_string().contains("cannot connect on rank 4: no descriptors"), "{error}");
    assert!(board.first_cause().is_revoked());
    // Survivors of a failure have more time.
    let (mut survivors, board) = local_communicators();
    ask(&mut survivors, false);
    assert!(short(&mut survivors, 5).is_empty() && answer(&mut survivors).is_none());
    assert!(!board.first_cause().is_revoked());
}

/// A broadcast from two roots shares no message.
#[test]
fn ranks_that_leave_after_different_calls_differ() {
    let left = |theirs: CallHistory, more: Option<Topic>| {
        let (mut communicators, board) = local_communicators();
        let root =
            |root| Descriptor { root: Some(root), ..Descriptor::new(Collective::Broadcast, DType::U8, 1) };
        board.calls().enter(&root(0), None, None, Site::caller(), None);
        board.progress().leave(0);
        let ours = history(1);
        assert!(matches!(communicators.leave(KEY, ours)[..], [Topic::Closed { .. }]));
        let last = Some(CallInfo::new(0, root(1)));
        for rank in [2, 6] {
            let history = if rank == 6 { theirs } else { ours };
            let departure =
                Departure { history, by_close: false, in_progress: 0, messages: 7, last: last.clone() };
            communicators.happened(&news(rank, left_after(departure)), Instant::now());
        }
        more.into_iter().for_each(|topic| drop(communicators.happened(&news(2, topic), Instant::now())));
        let all = communicators.left().differences().map(|(_, error)| error.to_string());
        (communicators.left().are_open(), all.collect::<Vec<_>>())
    };
    assert_eq!(left(history(1), None), (false, Vec::new()));
    let (is_open, told) = left(CallHistory { calls: 1, digest: 2 }, None);
    assert!(is_open && told.len() == 1 && told[0].contains("root 0 / 1"), "{told:?}");
    let (_, told) = left(CallHistory { calls: 3, digest: 1 }, None);
    assert!(told[0].contains("1 / 3 calls at their leave"), "{told:?}");
    let failed = revoked(Error::closed());
    assert_eq!(left(CallHistory { calls: 1, digest: 2 }, Some(failed)), (false, Vec::new()));
}

#[test]
fn what_came_before_the_communicator_counts() {
    let (communicator, board) = local_communicator();
    LocalCommunicators::new(hosts()).add(communicator, &[news(2, revoked(Error::closed()))], Instant::now());
    assert!(matches!(board.first_cause().revocation(), Some(revocation) if revocation.by.get() == 2));
    assert!(matches!(board.first_cause().error(), Some(Error::Closed { .. })));
}

/// Ranks that have heard in time that the lost rank had closed have lost nobody.
#[test]
fn a_loss_is_told_again_when_the_lost_rank_had_closed_before() {
    let (mut communicators, _board) = local_communicators();
    let two = JobRank::new(2);
    assert!(communicators.had_closed(two, KEY).is_none(), "nothing has failed");
    communicators.happened(&news(4, lost(2)), Instant::now());
    assert!(communicators.had_closed(JobRank::new(6), KEY).is_none(), "another rank");
    let told = communicators.had_closed(two, KEY);
    let Some(Topic::Revoked { key: KEY, cause, .. }) = &told else { panic!("{told:?}") };
    assert_eq!(cause.lost_ranks(), [two]);
    assert!(communicators.had_closed(two, KEY).is_none(), "once");
}

#[test]
fn what_becomes_of_a_connection_concerns_members_only() {
    let (mut communicators, board) = local_communicators();
    let slot = Slot { key: KEY, role: ConnectionRole::PointToPoint, peer: JobRank::new(6) };
    let stranger = Slot { peer: JobRank::new(3), ..slot };
    communicators.not_connected(stranger, Failure::Error(Error::closed()));
    assert!(communicators.take_effects().is_empty() && communicators.peer_of(stranger).is_none());
    communicators.not_connected(slot, Failure::Gone(Certainty::Suspected, "no answer".into()));
    let effects = communicators.take_effects();
    let [Effect::NotConnected(KEY, Error::PeerLost { culprits, reported_by, .. })] = &effects[..] else {
        panic!("{effects:?}")
    };
    assert_eq!((culprits[0].rank.get(), reported_by.get()), (6, 4));
    board.closings().note_closed(LAST);
    assert!(board.closings().has_closed(LAST));
    let (woken, wakes) = (Arc::new(AtomicU32::new(0)), |woken: &AtomicU32| woken.load(Ordering::SeqCst));
    let count = woken.clone();
    let read = Arc::new(move || {
        count.fetch_add(1, Ordering::SeqCst);
    });
    board.closings().on_close(Arc::new(|| {}), read);
    let of_calls = Slot { role: ConnectionRole::First, ..slot };
    communicators.connected(of_calls);
    assert_eq!((communicators.peer_of(of_calls), wakes(&woken)), (Some(LAST), 0), "it has no messages");
    communicators.connected(slot);
    assert_eq!((communicators.peer_of(slot), wakes(&woken)), (Some(LAST), 1));
    communicators.left_completely(KEY, JobRank::new(6));
    assert!(board.closings().is_complete(LAST));
}

#[test]
fn who_has_said_goodbye_says_nothing_more() {
    let (mut communicators, board) = local_communicators();
    close(&mut communicators, 3);
    assert!(communicators.abandon(KEY).is_none() && !board.first_cause().is_revoked());
    assert!(communicators.leave_all().is_empty());
    let (mut communicators, _board) = local_communicators();
    assert_eq!(communicators.leave_all().len(), 1);
    let times = (Instant::now(), Instant::now() + Duration::from_secs(60));
    assert!(communicators.close(KEY, history(0), times, CALLER).is_empty());
}

#[test]
fn started_calls_go_on_until_they_end_or_fail() {
    let (mut communicators, board) = local_communicators();
    assert!(!communicators.go_on() && communicators.await_left());
    board.unfinished().note_start(true);
    assert!(communicators.go_on() && !communicators.await_left());
    board.progress().await_rank(Some(LAST));
    assert!(!communicators.await_left());
    communicators.happened(&news(6, closed(1, false)), Instant::now());
    assert!(communicators.go_on() && communicators.await_left());
    let (other, idle) = communicator(CommunicatorKey { epoch: 1, ..KEY });
    communicators.add(other, &[], Instant::now());
    assert!(communicators.await_left(), "no call of the other one goes on");
    idle.unfinished().note_start(true);
    assert!(!communicators.await_left());
    for board in [board, idle] {
        board.first_cause().revoke(JobRank::new(2), Arc::new(Error::closed()));
    }
    assert!(!communicators.go_on());
}

/// Otherwise a caller would wait for nothing.
#[test]
fn every_caller_gets_an_answer_also_when_its_communicator_goes() {
    let (mut communicators, _board) = local_communicators();
    close(&mut communicators, 3);
    assert!(communicators.leave(KEY, history(3)).is_empty());
    assert!(matches!(answer(&mut communicators), Some(Err(Error::Closed { .. }))));
    let (now, deadline) = (Instant::now(), Instant::now() + Duration::from_secs(60));
    assert!(communicators.close(KEY, history(3), (now, deadline), CALLER).is_empty());
    assert!(matches!(answer(&mut communicators), Some(Err(Error::Closed { .. }))));
    let ask = Ask {
        question: Question::Flag,
        number: 0,
        flag: true,
        finished_calls: 0,
        deadline,
        heeds_cause: false,
    };
    assert!(communicators.agree(KEY, ask, CALLER, now).is_empty());
    assert!(matches!(answer(&mut communicators), Some(Err(Error::Closed { .. }))));
    communicators.add(local_communicator().0, &[], now);
    communicators.agree(KEY, ask, CALLER, now);
    communicators.leave(KEY, history(3));
    assert!(matches!(answer(&mut communicators), Some(Err(Error::Closed { .. }))));
}

#[test]
fn other_lists_of_the_same_origin_are_a_conflict() {
    let (mut communicators, board) = local_communicators();
    let other_list = Slot {
        key: CommunicatorKey { id: KEY.id + 1, ..KEY },
        role: ConnectionRole::First,
        peer: JobRank::new(6),
    };
    let other_origin = Slot { key: CommunicatorKey { id: KEY.id * 2, ..KEY }, ..other_list };
    assert!(communicators.other_group(other_origin).is_none());
    assert!(communicators.other_group(Slot { key: KEY, ..other_list }).is_none(), "the same list");
    let told = communicators.other_group(other_list).unwrap();
    assert_eq!((told.mine, told.yours, told.group.list.as_str()), (KEY, other_list.key, "[2, 4, 6]"));
    assert!(!board.first_cause().is_revoked(), "the other side knows both lists, and publishes");
    let group = GroupText { list: "[6, 1]".to_owned(), ..told.group.clone() };
    let theirs = OtherGroup { mine: told.yours, yours: told.mine, group };
    assert!(communicators.differs(JobRank::new(6), &told).is_empty(), "not ours");
    let keys: Vec<_> = communicators.differs(JobRank::new(6), &theirs).iter().map(Topic::key).collect();
    assert_eq!(keys, [Some(KEY), Some(other_list.key)]);
    let error = board.first_cause().error().unwrap();
    assert!(matches!(&error, Error::Refused { problem } if problem.contains("rank 6 for [6, 1]")), "{error}");
}
