//! Tests of turns on a device: one at a time, in order, with deadlines, and with the calls that waiting users show.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use unisono_communicator::{Collective, DType, GroupRank, Site};
use unisono_tests::watchdog;

use super::*;

const SHORT: Duration = Duration::from_millis(20);
const LONG: Duration = Duration::from_secs(60);

fn user() -> User {
    let board = Arc::new(Board::new(GroupRank::new(0), 2));
    let descriptor = Descriptor::new(Collective::Broadcast, DType::U16, 7);
    let number = board.calls().enter(&descriptor, None, None, Site::caller(), None);
    User { board, purpose: Purpose::Call(descriptor, Some(number)) }
}

fn never() -> bool {
    false
}

fn await_waiters(turn: &DeviceTurn, count: usize) {
    while turn.lock().waiting.len() != count {
        thread::yield_now();
    }
}

#[test]
fn there_is_one_turn_and_it_goes_in_order() {
    watchdog(60, "there_is_one_turn", || {
        let (turn, users) = (DeviceTurn::new(), [(); 3].map(|()| user()));
        let pass = turn.take(&users[0], None, never).unwrap();
        let served = AtomicU32::new(0);
        thread::scope(|scope| {
            for (index, user) in users[1..].iter().enumerate() {
                let (turn, served) = (&turn, &served);
                scope.spawn(move || {
                    let _pass = turn.take(user, Some(Instant::now() + LONG), never).unwrap();
                    assert_eq!(served.fetch_add(1, Ordering::SeqCst), index as u32);
                });
                await_waiters(turn, index + 1);
            }
            drop(pass);
        });
        assert_eq!(served.load(Ordering::SeqCst), 2);
        assert!(turn.take(&users[0], None, never).is_some());
    });
}

#[test]
fn whoever_waits_shows_for_whom_until_it_has_the_turn() {
    watchdog(60, "whoever_waits_shows_for_whom", || {
        let (turn, holder, other) = (DeviceTurn::new(), user(), user());
        let pass = turn.take(&holder, None, never).unwrap();
        assert!(turn.take(&other, Some(Instant::now() + SHORT), never).is_none());
        let behind = other.board.on_streams().behind().unwrap().to_string();
        assert!(behind.starts_with("call 0 broadcast(7 x u16"), "{behind}");
        assert!(turn.lock().waiting.is_empty() && holder.board.on_streams().behind().is_none());
        thread::scope(|scope| {
            let waits = scope.spawn(|| drop(turn.take(&other, None, never).unwrap()));
            await_waiters(&turn, 1);
            drop(pass);
            waits.join().unwrap();
        });
        assert!(other.board.on_streams().behind().is_none());
    });
}

#[test]
fn whoever_gives_up_leaves_the_queue_to_the_others() {
    watchdog(60, "whoever_gives_up", || {
        let (turn, users, gave_up) = (DeviceTurn::new(), [(); 3].map(|()| user()), AtomicBool::new(false));
        let pass = turn.take(&users[0], None, never).unwrap();
        thread::scope(|scope| {
            let first =
                scope.spawn(|| turn.take(&users[1], None, || gave_up.load(Ordering::SeqCst)).is_some());
            await_waiters(&turn, 1);
            let second = scope.spawn(|| turn.take(&users[2], None, never).is_some());
            await_waiters(&turn, 2);
            gave_up.store(true, Ordering::SeqCst);
            turn.recheck();
            assert!(!first.join().unwrap());
            drop(pass);
            assert!(second.join().unwrap());
        });
    });
}

#[test]
fn a_turn_that_has_lapsed_is_the_next_ones() {
    watchdog(60, "a_turn_that_has_lapsed", || {
        let (turn, users) = (DeviceTurn::new(), [(); 3].map(|()| user()));
        let old = turn.take(&users[0], None, never).unwrap();
        old.lapse_at(Instant::now() + SHORT);
        let new = turn.take(&users[1], Some(Instant::now() + LONG), never).unwrap();
        // The drop of the lapsed pass does not give the turn back.
        drop(old);
        assert!(turn.take(&users[2], Some(Instant::now() + SHORT), never).is_none());
        drop(new);
        assert!(turn.take(&users[2], None, never).is_some());
    });
}
