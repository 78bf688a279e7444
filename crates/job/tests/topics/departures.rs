//! Messages and ranks that leave in good order: messages that were sent before are delivered first, and a call that
//! waits for more ends at once. The deadline of every call is a minute, so a call that waits in vain fails its test.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use unisono_collectives::{Collectives, CollectivesAsync, CollectivesOfObjects};
use unisono_communicator::{Communicator, Error, JobRank, Peer, Result};
use unisono_job::Job;

use crate::support::{config, on_each, worlds};

/// The way in which a rank leaves.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    /// It closes the communicator, and lives on.
    Close,
    /// It drops everything.
    Drop,
}

const WAYS: [Way; 2] = [Way::Close, Way::Drop];

/// Signals between the ranks of one job, past the job.
struct Signals {
    senders: Vec<Sender<()>>,
    receivers: Vec<Mutex<Receiver<()>>>,
}

impl Signals {
    fn new(ranks: u32) -> Arc<Signals> {
        let (senders, receivers) = (0..ranks).map(|_| channel()).unzip::<_, _, _, Vec<_>>();
        let receivers = receivers.into_iter().map(Mutex::new).collect();
        Arc::new(Signals { senders, receivers })
    }

    fn tell(&self, rank: u32) {
        self.senders[rank as usize].send(()).unwrap();
    }

    fn hear(&self, rank: u32) {
        let receiver = self.receivers[rank as usize].lock().unwrap();
        receiver.recv_timeout(crate::support::TEST_TIME_MAX).unwrap();
    }
}

/// Runs a job of `ranks` ranks with each way to leave. Rank 0 runs `stays`; the others run
/// `leaves`, leave, and live until rank 0 is done.
fn with_leavers(
    ranks: u32,
    stays: impl Fn(&Arc<dyn Communicator>, &Signals) + Send + Sync + Copy + 'static,
    leaves: impl Fn(&Arc<dyn Communicator>, &Signals) + Send + Sync + Copy + 'static,
) {
    for way in WAYS {
        let signals = Signals::new(ranks);
        on_each(worlds(ranks, &config(&[])), move |world: Job, comm| {
            let rank = comm.group().rank();
            if rank == 0 {
                stays(&comm, &signals);
                (1..ranks).for_each(|peer| signals.tell(peer));
                return;
            }
            leaves(&comm, &signals);
            match way {
                Way::Close => comm.close().unwrap(),
                Way::Drop => drop((comm, world)),
            }
            signals.hear(rank);
        });
    }
}

/// The call has ended since rank 1 has left.
fn assert_left<T>(result: Result<T>) {
    let error = result.map(drop).unwrap_err();
    assert!(matches!(error, Error::PeerLost { .. }), "{error}");
    assert_eq!(error.lost_ranks(), [JobRank::new(1)], "{error}");
}

#[test]
fn a_receive_from_a_rank_that_has_left_ends() {
    with_leavers(2, |comm, _| assert_left(comm.recv(&mut [0u8], Peer::Rank(1), 7)), |_, _| {});
}

#[test]
fn an_asynchronous_receive_from_a_rank_that_has_left_ends() {
    let stays = |comm: &Arc<dyn Communicator>, _: &Signals| {
        let work = comm.recv_async(vec![0u8], Peer::Rank(1), 7);
        assert_left(work.wait());
    };
    with_leavers(2, stays, |_, _| {});
}

#[test]
fn a_thousand_receives_end_when_their_rank_leaves() {
    let stays = |comm: &Arc<dyn Communicator>, signals: &Signals| {
        let post = |tag| comm.recv_async(vec![0u8], Peer::Rank(1), tag);
        let works: Vec<_> = (0..1000).map(post).collect();
        signals.tell(1);
        works.into_iter().for_each(|work| assert_left(work.wait()));
    };
    with_leavers(2, stays, |_, signals| signals.hear(1));
}

#[test]
fn a_receive_from_any_rank_ends_when_the_last_one_leaves() {
    let stays = |comm: &Arc<dyn Communicator>, signals: &Signals| {
        let mut value = [0u32];
        signals.tell(1);
        comm.recv(&mut value, Peer::Any, 7).unwrap();
        assert_eq!(value, [1]);
        signals.tell(2);
        comm.recv(&mut value, Peer::Any, 7).unwrap();
        assert_eq!(value, [2], "the last possible sender");
        let error = comm.recv(&mut value, Peer::Any, 7).unwrap_err();
        let Error::PeerLost { culprits, .. } = &error else { panic!("{error}") };
        assert_eq!(culprits.len(), 2, "{error}");
    };
    let leaves = |comm: &Arc<dyn Communicator>, signals: &Signals| {
        let rank = comm.group().rank();
        signals.hear(rank);
        comm.send(&[rank], 0, 7).unwrap();
    };
    with_leavers(3, stays, leaves);
}

/// A program may post the receive first, and then send to itself.
#[test]
fn a_receive_from_any_rank_may_wait_for_a_message_of_its_own() {
    let stays = |comm: &Arc<dyn Communicator>, signals: &Signals| {
        let work = comm.recv_async(vec![0u8], Peer::Any, 7);
        signals.tell(1);
        // The news of the departure usually comes meanwhile.
        std::thread::sleep(Duration::from_millis(300));
        comm.send(&[9u8], 0, 7).unwrap();
        assert_eq!(work.wait().unwrap().0, [9]);
    };
    with_leavers(2, stays, |_, signals| signals.hear(1));
}

#[test]
fn a_receive_whose_handle_was_dropped_ends_in_silence() {
    let stays = |comm: &Arc<dyn Communicator>, signals: &Signals| {
        drop(comm.recv_async(vec![0u8], Peer::Rank(1), 7).into_work());
        signals.tell(1);
        let mut value = [0u8];
        // Rank 2 sends until rank 1 has been gone for long.
        for round in 0..100u8 {
            comm.recv(&mut value, Peer::Rank(2), 8).unwrap();
            assert_eq!(value, [round]);
            comm.send(&[round], 2, 8).unwrap();
        }
    };
    let leaves = |comm: &Arc<dyn Communicator>, signals: &Signals| match comm.group().rank() {
        1 => signals.hear(1),
        _ => (0..100u8).for_each(|round| {
            std::thread::sleep(Duration::from_millis(2));
            comm.send(&[round], 0, 8).unwrap();
            comm.recv(&mut [0u8], Peer::Rank(0), 8).unwrap();
        }),
    };
    with_leavers(3, stays, leaves);
}

/// Messages and the news of the departure travel on connections of their own, and neither must overtake the other.
#[test]
fn what_was_sent_before_is_received_first() {
    for round in 0..20 {
        let stays = move |comm: &Arc<dyn Communicator>, signals: &Signals| {
            let mut value = [0u32; 3];
            if round % 2 == 1 {
                signals.tell(1);
            }
            for number in 0..10 {
                comm.recv(&mut value, Peer::Rank(1), 7).unwrap();
                assert_eq!(value, [number; 3]);
            }
            assert_left(comm.recv(&mut value, Peer::Rank(1), 7));
        };
        let leaves = move |comm: &Arc<dyn Communicator>, signals: &Signals| {
            if round % 2 == 1 {
                signals.hear(1);
            }
            (0..10u32).for_each(|number| comm.send(&[number; 3], 0, 7).unwrap());
        };
        with_leavers(2, stays, leaves);
    }
}

#[test]
fn an_object_is_received_from_a_rank_that_has_left_and_the_next_one_fails() {
    let stays = |comm: &Arc<dyn Communicator>, _: &Signals| {
        let (text, _) = comm.recv_object::<String>(Peer::Rank(1), 7).unwrap();
        assert_eq!(text, "last words");
        assert_left(comm.recv_object::<String>(Peer::Rank(1), 7));
    };
    let leaves = |comm: &Arc<dyn Communicator>, _: &Signals| {
        comm.send_object("last words".to_owned(), 0, 7).unwrap();
    };
    with_leavers(2, stays, leaves);
}

#[test]
fn a_send_above_the_eager_limit_to_a_rank_that_has_left_ends() {
    let message = || vec![1u8; 10 << 20];
    with_leavers(2, move |comm, _| assert_left(comm.send(&message(), 1, 7)), |_, _| {});
    // On a stream that is there already.
    let stays = move |comm: &Arc<dyn Communicator>, signals: &Signals| {
        comm.send(&[1u8], 1, 7).unwrap();
        signals.tell(1);
        assert_left(comm.send(&message(), 1, 7));
    };
    let leaves = |comm: &Arc<dyn Communicator>, signals: &Signals| {
        comm.recv(&mut [0u8], Peer::Rank(0), 7).unwrap();
        signals.hear(1);
    };
    with_leavers(2, stays, leaves);
}

/// A rank that has left before this one made the group: its stream waits here for the group.
#[test]
fn a_message_in_a_group_that_is_made_late_is_received() {
    let stays = |comm: &Arc<dyn Communicator>, signals: &Signals| {
        signals.hear(0);
        let group = comm.duplicate().unwrap();
        let mut value = [0u8];
        group.recv(&mut value, Peer::Rank(1), 7).unwrap();
        assert_eq!(value, [3]);
        assert_left(group.recv(&mut value, Peer::Rank(1), 7));
    };
    let leaves = |comm: &Arc<dyn Communicator>, signals: &Signals| {
        let group = comm.duplicate().unwrap();
        // The other side cannot take it yet.
        let work = group.send_async(vec![3u8], 0, 7);
        signals.tell(0);
        work.wait().unwrap();
        group.close().unwrap();
    };
    with_leavers(2, stays, leaves);
}
