//! Tests of the board: what is remembered, and which cause is the first.

use unisono_communicator::{Certainty, Collective, Counts, DType, Group, Site};

use super::*;
use crate::peers::Peers;

#[test]
fn remembers_the_last_calls_only() {
    let board = Board::new(GroupRank::new(0), 2);
    for count in 0..1500 {
        let number = board.enter(
            &Descriptor::new(Collective::Barrier, DType::U8, count),
            None,
            None,
            Site::caller(),
            None,
        );
        if count != 1499 {
            board.leave(number);
        }
    }
    assert_eq!(board.status(3), CallStatus::Forgotten);
    assert!(matches!(board.status(1400), CallStatus::Done { call } if call.descriptor.count == 1400));
    assert!(matches!(board.status(1499), CallStatus::Running { doing, .. } if doing.awaited.is_none()));
    assert!(matches!(board.status(1500), CallStatus::NotYet { last: Some(call), .. } if call.number == 1499));
}

#[test]
fn the_boards_of_threads_have_one_first_cause() {
    let boards = Board::of_threads(3);
    let woken = Arc::new(AtomicU32::new(0));
    for board in &boards {
        let woken = woken.clone();
        board.on_revoke(Arc::new(move || {
            woken.fetch_add(1, Ordering::Relaxed);
        }));
    }
    assert!(boards[2].revoke(JobRank::new(2), Arc::new(Error::closed())));
    assert!(!boards[0].revoke(JobRank::new(0), Arc::new(Error::invalid("x", "later"))));
    assert_eq!(woken.load(Ordering::Relaxed), 3);
    assert!(boards.iter().all(|board| board.revocation().is_some_and(|first| first.by.get() == 2)));
}

#[test]
fn the_first_cause_stays() {
    let board = Board::new(GroupRank::new(1), 2);
    assert!(board.revoke(JobRank::new(0), Arc::new(Error::closed())));
    assert!(!board.revoke(JobRank::new(1), Arc::new(Error::invalid("x", "later"))));
    assert!(matches!(board.revocation_error(), Some(Error::Closed { .. })));
}

#[test]
fn what_a_lost_rank_has_reported_is_the_cause_until_a_caller_is_told() {
    let own = GroupRank::new(0);
    let ranks: Vec<JobRank> = JobRank::all(3).collect();
    let lost = |rank| {
        let peers = Peers::new(Group::world(0, 3), Arc::new(Board::new(own, 3)));
        let evidence = "its connection ended".to_owned();
        Arc::new(peers.lost(GroupRank::new(rank), ranks[0], Certainty::Confirmed, evidence, None))
    };
    for is_told in [false, true] {
        let board = Board::new(own, 3);
        assert!(board.revoke(ranks[0], lost(2)));
        if is_told {
            assert_eq!(board.tell_cause().map(|cause| cause.lost_ranks()), Some(vec![ranks[2]]));
        }
        assert!(!board.revoke_reported(ranks[1], lost(2)), "nobody has lost rank 1");
        assert_eq!(board.revoke_reported(ranks[2], lost(1)), !is_told);
        assert_eq!(board.revocation_error().unwrap().lost_ranks(), [ranks[if is_told { 2 } else { 1 }]]);
    }
}

#[test]
fn an_enqueued_call_has_returned_and_is_not_finished() {
    let board = Board::new(GroupRank::new(0), 2);
    let barrier = Descriptor::new(Collective::Barrier, DType::U8, 0);
    for number in 0..2 {
        assert_eq!(board.enter(&barrier, None, None, Site::caller(), None), number);
        board.leave_enqueued(number);
    }
    assert_eq!((board.entered(), board.returned(), board.finished()), (2, 2, 0));
    assert!(matches!(board.status(0), CallStatus::Running { .. }));
    board.finish(0);
    assert_eq!((board.returned(), board.finished()), (2, 1));
    assert!(matches!(
        (board.status(0), board.status(1)),
        (CallStatus::Done { .. }, CallStatus::Running { .. })
    ));
}

/// Sizes are kept as long as the ring keeps their call.
#[test]
fn the_sizes_of_a_call_are_remembered_with_it() {
    let board = Board::new(GroupRank::new(0), 2);
    let gather = Descriptor { uneven: true, ..Descriptor::new(Collective::AllGather, DType::U8, 3) };
    for call in 0..3 * CALLS_REMEMBERED as u64 {
        let counts = Counts::PerRank(vec![call, 3]);
        let sizes = Sizes::of(DType::U8, &counts, None).filter(|_| call % 2 == 0).map(Arc::new);
        let number = board.enter(&gather, None, sizes.as_ref(), Site::caller(), None);
        assert_eq!(board.call_info(number).unwrap().sizes, sizes);
        let oldest = (call + 1).saturating_sub(CALLS_REMEMBERED as u64);
        let has_sizes = board.call_info(oldest).unwrap().sizes.is_some();
        assert_eq!(has_sizes, oldest % 2 == 0, "call {oldest} at {call}");
    }
}

/// The control thread asks while calls go on.
#[test]
fn a_part_of_a_scope_is_never_taken_for_a_plain_call() {
    let board = Board::new(GroupRank::new(0), 2);
    let barrier = Descriptor::new(Collective::Barrier, DType::U8, 0);
    let parent = Arc::new(ParentCall::new("whole", barrier));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            for _ in 0..300 * CALLS_REMEMBERED {
                board.enter(&barrier, None, None, Site::caller(), Some(&parent));
            }
            is_over.store(true, Ordering::SeqCst);
        });
        while !is_over.load(Ordering::SeqCst) {
            let oldest = board.entered().saturating_sub(CALLS_REMEMBERED as u64);
            let parents = (oldest..oldest + 4).filter_map(|number| Some(board.call_info(number)?.parent));
            parents.for_each(|parent| assert!(parent.is_some()));
        }
    });
}
