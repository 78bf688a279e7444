//! Messages whose sender has ended before anybody receives them: a message arrives once its `send` has returned, after
//! `close` and after a mere drop.
//!
//! The sender is a process of its own, and so is the receiver: only then does an end close sockets.

use unisono_collectives::{Collectives, CollectivesAsync};
use unisono_communicator::Peer;
use unisono_job::Job;
use unisono_job::config::Config;

use crate::TRANSPORT;
use crate::child::{Rank, say};

/// The end of the sender.
const ENDS: [&str; 2] = ["close", "drop"];

/// The numbers of messages and of their `u64`, which the system takes although nobody reads: short ones of which there
/// are so many that credit comes back, and a long one.
const MESSAGES: [(usize, usize); 3] = [(4096, 1), (40, 100), (1, 8192)];

fn message(number: usize, length: usize) -> Vec<u64> {
    (0..length).map(|index| (number << 32 | index) as u64).collect()
}

/// The program of a rank: rank 1 sends and goes, rank 0 receives when it is told to.
pub(crate) fn one_rank() {
    let mut lines = std::io::stdin().lines().map_while(std::io::Result::ok);
    let first = lines.next().unwrap();
    let numbers: Vec<usize> = first.split(' ').map(|word| word.parse().unwrap()).collect();
    let (end, count, length) = (ENDS[numbers[0]], numbers[1], numbers[2]);
    let world = Job::join(&Config::from_environment().unwrap(), &TRANSPORT).unwrap();
    let communicator = world.communicator().unwrap();
    communicator.barrier().unwrap();
    if communicator.group().rank() == 1 {
        // The messages of the other side must not stay unread in a socket that is closed.
        communicator.recv(&mut [0u64], Peer::Rank(0), 2).unwrap();
        for number in 0..count {
            // A detached send is seen off by `close` alone.
            if number % 2 == 0 || end == "drop" {
                communicator.send(&message(number, length), 0, 1).unwrap();
            } else {
                drop(communicator.send_async(message(number, length), 0, 1).into_work());
            }
        }
        if end == "close" {
            communicator.close().unwrap();
        }
        drop((communicator, world));
        return say("gone");
    }
    for _ in 0..3 {
        communicator.send(&[1u64], 1, 2).unwrap();
    }
    say("ready");
    lines.next();
    for number in 0..count {
        let mut buffer = vec![0; length];
        if let Err(error) = communicator.recv(&mut buffer, Peer::Rank(1), 1) {
            return say(&format!("message {number}: {error}"));
        }
        assert_eq!(buffer, message(number, length));
    }
    say("all received");
}

fn send_and_go(end: usize, (count, length): (usize, usize)) {
    let job = format!("last-messages-{}-{end}-{count}", std::process::id());
    let start = |rank: &str| {
        let settings = [("UNISONO_RANK", rank), ("UNISONO_WORLD_SIZE", "2"), ("UNISONO_JOB", &job)];
        let name = format!("rank {rank}, {count} messages of {length}, {}", ENDS[end]);
        let mut rank = Rank::again(name, "last_messages", &settings);
        rank.tell(&format!("{end} {count} {length}"));
        rank
    };
    let [mut receiver, sender] = ["0", "1"].map(start);
    assert_eq!(receiver.hear(), "ready");
    // The receiver is inside no call, and the sender goes all the same.
    assert_eq!(sender.hear(), "gone");
    sender.end();
    receiver.tell("receive");
    assert_eq!(receiver.hear(), "all received", "{count} messages of {length} before a {}", ENDS[end]);
}

#[test]
fn what_was_sent_before_a_close_is_received_when_the_sender_has_ended() {
    MESSAGES.into_iter().for_each(|messages| send_and_go(0, messages));
}

#[test]
fn what_was_sent_before_a_drop_is_received_when_the_sender_has_ended() {
    MESSAGES.into_iter().for_each(|messages| send_and_go(1, messages));
}
