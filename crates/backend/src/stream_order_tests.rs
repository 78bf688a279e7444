//! Tests of the order of calls on streams: which call is ahead, and which orders are a mismatch.

#![expect(unsafe_code, reason = "made-up streams of a device")]

use unisono_communicator::{Collective, DType, Descriptor, DeviceStream, GroupRank, Site};

use super::*;

const RANKS: [JobRank; 2] = [JobRank::new(0), JobRank::new(1)];

/// The boards of one rank: of its world, and of two other communicators.
struct Boards([Board; 3]);

impl Boards {
    fn of(rank: u32) -> Boards {
        Boards([0; 3].map(|_| Board::new(GroupRank::new(rank), 2)))
    }

    fn membership(&self, which: usize) -> Membership<'_> {
        let key = CommunicatorKey { id: which as u64, epoch: 0 };
        Membership { key, ranks: &RANKS, board: &self.0[which] }
    }

    fn all(&self) -> impl Iterator<Item = Membership<'_>> {
        (0..3).map(|which| self.membership(which))
    }

    /// Puts a call of a communicator on a stream.
    fn put(&self, which: usize, stream: usize) -> u64 {
        let (board, descriptor) = (&self.0[which], Descriptor::new(Collective::Barrier, DType::U8, 0));
        let number = board.calls().enter(&descriptor, None, None, Site::caller(), None);
        // SAFETY: nobody uses it.
        board.on_streams().note(number, unsafe { DeviceStream::from_raw(stream, 0) });
        board.progress().leave_enqueued(number);
        number
    }

    fn answer(&self, which: usize, number: u64) -> CallStatus {
        let asked = self.membership(which);
        with_call_ahead(asked.board.status(number), asked, self.all())
    }

    /// The verdict of rank 0, which has these boards, on an answer of rank 1.
    fn judge(&self, which: usize, answer: &CallStatus) -> Option<Error> {
        let find = |key| self.all().find(|one| one.key == key);
        order_mismatch(RANKS[0], self.membership(which), RANKS[1], answer, find)
    }
}

fn ahead(answer: &CallStatus) -> Option<(u64, u64)> {
    match answer {
        CallStatus::Running { ahead, .. } => {
            ahead.as_ref().map(|ahead| (ahead.communicator.map_or(u64::MAX, |key| key.id), ahead.call.number))
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_first_call_on_the_stream_is_ahead() {
    let boards = Boards::of(1);
    assert_eq!(boards.put(1, 7), 0);
    assert_eq!(boards.put(2, 8), 0);
    assert_eq!(boards.put(2, 7), 1);
    assert_eq!(boards.put(0, 7), 0);
    assert_eq!(ahead(&boards.answer(0, 0)), Some((1, 0)));
    assert_eq!(ahead(&boards.answer(2, 1)), Some((1, 0)));
    assert_eq!(ahead(&boards.answer(1, 0)), None);
    assert_eq!(ahead(&boards.answer(2, 0)), None, "alone on its stream");
    boards.0[1].finish(0, None);
    assert_eq!(ahead(&boards.answer(0, 0)), Some((2, 1)));
    boards.0[2].first_cause().revoke(RANKS[0], Error::closed().into());
    assert_eq!(ahead(&boards.answer(0, 0)), None, "what is revoked keeps nobody waiting");
}

#[test]
fn a_call_that_waits_for_its_device_says_who_has_it() {
    let boards = Boards::of(1);
    boards.put(1, 7);
    boards.put(0, 7);
    let holder = boards.0[1].calls().info(0);
    boards.0[0].on_streams().wait_behind(holder);
    let answer = boards.answer(0, 0);
    assert_eq!(ahead(&answer), Some((u64::MAX, 0)), "the device comes before the stream");
    assert!(boards.judge(0, &answer).is_none(), "no order on a stream");
    boards.0[0].on_streams().wait_behind(None);
    assert_eq!(ahead(&boards.answer(0, 0)), Some((1, 0)));
}

#[test]
fn a_call_behind_one_of_its_own_communicator_has_none_ahead() {
    let boards = Boards::of(1);
    boards.put(1, 7);
    boards.put(1, 7);
    assert_eq!(ahead(&boards.answer(1, 1)), None);
}

#[test]
fn two_orders_on_one_stream_are_a_mismatch() {
    let (ours, theirs) = (Boards::of(0), Boards::of(1));
    ours.put(1, 3);
    ours.put(2, 3);
    theirs.put(2, 9);
    theirs.put(1, 9);
    let error = ours.judge(1, &theirs.answer(1, 0)).unwrap().to_string();
    let (one, two) = ("0000000000000001-0 of ranks [0, 1]", "0000000000000002-0 of ranks [0, 1]");
    for part in ["rank 0 called call 0 barrier", "rank 1 called call 0 barrier", "order on one stream"] {
        assert!(error.contains(part), "{error}");
    }
    let (one, two) = (format!("call 0 of communicator {one}"), format!("call 0 of communicator {two}"));
    assert!(error.contains(&format!("{one} before {two} / {two} before {one}")), "{error}");
    assert!(ours.judge(2, &theirs.answer(2, 0)).is_none(), "the one that is first there waits for ours");
}

#[test]
fn any_other_order_is_right() {
    // The same order; two streams on either side; a call that has not been made; a finished call.
    type Put = fn(&Boards);
    let behind: Put = |boards| {
        boards.put(2, 5);
        boards.put(1, 5);
    };
    let cases: [Put; 4] = [
        behind,
        |boards| {
            boards.put(1, 5);
            boards.put(2, 6);
        },
        |boards| {
            boards.put(1, 5);
        },
        |boards| {
            boards.put(1, 5);
            boards.put(2, 5);
            boards.0[1].finish(0, None);
        },
    ];
    for (case, put) in cases.into_iter().enumerate() {
        let (ours, theirs) = (Boards::of(0), Boards::of(1));
        put(&ours);
        behind(&theirs);
        let error = ours.judge(1, &theirs.answer(1, 0));
        assert!(error.is_none(), "case {case}: {error:?}");
    }
    // A communicator without this rank.
    let (ours, theirs) = (Boards::of(0), Boards::of(1));
    ours.put(1, 5);
    ours.put(2, 5);
    behind(&theirs);
    let answer = theirs.answer(1, 0);
    assert!(order_mismatch(RANKS[0], ours.membership(1), RANKS[1], &answer, |_| None).is_none());
}
