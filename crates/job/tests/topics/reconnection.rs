//! Control connections that end on their way, between ranks that live: they are made again, and no call notices.

use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::proxy::Meddler;
use unisono_collectives::Collectives;
use unisono_communicator::{Communicator, JobRank, ReduceOp};
use unisono_control::store::{StoreCall, StoreKey, StoreOperation, StoreReply};
use unisono_control::wire::CommunicatorKey;
use unisono_job::Job;

const RANKS: u32 = 4;

/// The number of times that all control connections are cut.
const ROUNDS: usize = 12;

/// The patience of the detector. A rank is silent while its connections are made again, and a busy machine may halt it
/// for longer than the rest of the usual patience.
const SUSPECT_AFTER_MS: &str = "2000";

/// Between two cuts: some come while the connections are being made again, some after the patience of the detector.
const PAUSES_MS: [u64; 4] = [1, 30, 3, 2300];

/// All control connections that there have been, by both their sides.
#[derive(Clone, Default)]
struct Cutter {
    streams: Arc<Mutex<Vec<[TcpStream; 2]>>>,
    hides_ends: bool,
}

impl Meddler for Cutter {
    fn on_stream(&self, is_data: bool, sides: [&TcpStream; 2]) {
        if !is_data {
            self.streams.lock().unwrap().push(sides.map(|side| side.try_clone().unwrap()));
        }
    }

    fn hides_ends(&self, is_data: bool) -> bool {
        self.hides_ends && !is_data
    }
}

impl Cutter {
    /// Ends all connections, of some only one direction or at one side; returns how many there were.
    fn cut(&self, round: usize) -> usize {
        let streams = std::mem::take(&mut *self.streams.lock().unwrap());
        for (index, [dialled, accepted]) in streams.iter().enumerate() {
            // A stream that has ended already cannot be ended again.
            let _ = match (index + round) % 3 {
                0 => dialled.shutdown(Shutdown::Write),
                1 => accepted.shutdown(Shutdown::Write),
                _ if self.hides_ends => dialled.shutdown(Shutdown::Both),
                _ => dialled.shutdown(Shutdown::Both).and(accepted.shutdown(Shutdown::Both)),
            };
        }
        streams.len()
    }
}

fn all_reduce(communicator: &dyn Communicator, round: u64) {
    let mut values: Vec<u64> = (0..5000).map(|index| index ^ round).collect();
    communicator.all_reduce(&mut values, ReduceOp::Sum).unwrap();
    let expected = (0..5000).map(|index| u64::from(RANKS) * (index ^ round));
    assert!(values.iter().copied().eq(expected), "a wrong result in round {round}");
}

#[test]
fn control_connections_that_end_on_their_way_are_made_again() {
    cut_and_go_on(Cutter::default());
}

/// Something on the way has forgotten a connection, and says so to the side that sends next.
#[test]
fn an_end_that_one_side_alone_learns_of_is_noticed_by_the_other() {
    cut_and_go_on(Cutter { hides_ends: true, ..Cutter::default() });
}

fn cut_and_go_on(cutter: Cutter) {
    let config = crate::support::config(&[("UNISONO_SUSPECT_AFTER_MS", SUSPECT_AFTER_MS)]);
    let worlds = crate::proxy::worlds(RANKS, &config, &cutter);
    let cuts = crate::support::on_each(worlds, move |_world, communicator| {
        let mut cuts = 0;
        for round in 0..ROUNDS {
            communicator.barrier().unwrap();
            if communicator.group().rank() == 0 {
                cuts += cutter.cut(round);
                thread::sleep(Duration::from_millis(PAUSES_MS[round % PAUSES_MS.len()]));
            }
            // Questions to the rank that has slept, and the news of a communicator that is closed.
            all_reduce(&*communicator, round as u64);
            let copy = communicator.duplicate().unwrap();
            all_reduce(&*copy, round as u64);
            copy.close().unwrap();
        }
        communicator.close().unwrap();
        cuts
    });
    assert!(cuts[0] > 3 * RANKS as usize, "only {} connections were cut", cuts[0]);
}

/// Between two cuts: some come in the handshake of the new connections, some after many calls.
const CUT_PAUSES_MS: [u64; 4] = [1, 30, 3, 100];

/// The number of additions of each rank to the number in the store.
const ADDITIONS: i64 = 400;

/// Rows: B26
#[test]
fn calls_of_the_store_take_effect_once_while_control_connections_end() {
    let cutter = Cutter::default();
    let config = crate::support::config(&[("UNISONO_SUSPECT_AFTER_MS", SUSPECT_AFTER_MS)]);
    let worlds = crate::proxy::worlds(RANKS, &config, &cutter);
    let sums = crate::support::on_each(worlds, move |world, communicator| {
        let add = |number| match call_store(&world, StoreOperation::Add(number)) {
            StoreReply::Number(sum) => sum,
            reply => panic!("{reply:?}"),
        };
        if communicator.group().rank() == 0 {
            for round in 0..2 * ROUNDS {
                cutter.cut(round);
                thread::sleep(Duration::from_millis(CUT_PAUSES_MS[round % CUT_PAUSES_MS.len()]));
            }
        } else {
            let add_one = |_| {
                thread::sleep(Duration::from_millis(1));
                add(1)
            };
            let sums: Vec<i64> = (0..ADDITIONS).map(add_one).collect();
            assert!(sums.is_sorted_by(|before, after| before < after), "{sums:?}");
        }
        communicator.barrier().unwrap();
        add(0)
    });
    assert_eq!(sums, [i64::from(RANKS - 1) * ADDITIONS; RANKS as usize]);
}

fn call_store(world: &Job, operation: StoreOperation) -> StoreReply {
    let key = StoreKey { store: CommunicatorKey { id: 0, epoch: 0 }, key: "n".into() };
    let deadline = Instant::now() + crate::support::TEST_TIME_MAX;
    world.call_store(StoreCall { holder: JobRank::new(0), key, operation, deadline }).unwrap()
}
