//! Many messages and many communicators at once: threads are bounded, and no message is lost.

use std::sync::Arc;

use unisono_collectives::{Collectives, CollectivesAsync};
use unisono_communicator::{Communicator, Executor, Peer, ReduceOp};
use unisono_engine::{EngineOptions, in_process};

use crate::support::watched;

/// Messages of many tags, received in reverse; each waits for one receive alone.
#[test]
fn messages_of_thousands_of_tags_find_their_receives() {
    const TAGS: u32 = 5000;
    watched(|| {
        let world = in_process::world(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let each_tag = (0..TAGS).map(|tag| world[1].send_async(vec![tag], 0, tag));
                // From any rank, in the order of sending. A blocking send would wait for its receive where the queue
                // of the other rank is full.
                let last = (0..100u32).map(|number| world[1].send_async(vec![number], 0, number % 2));
                let works: Vec<_> = each_tag.chain(last).collect();
                works.into_iter().for_each(|work| drop(work.wait().unwrap()));
                world[1].close().unwrap();
            });
            let receive = |source, tag| {
                let mut value = [0];
                world[0].recv(&mut value, source, tag).unwrap();
                value[0]
            };
            (0..TAGS).rev().for_each(|tag| assert_eq!(receive(Peer::Rank(1), tag), tag));
            for number in 0..50 {
                let source = if number % 3 == 0 { Peer::Rank(1) } else { Peer::Any };
                assert_eq!(receive(source, 1), 2 * number + 1);
            }
            (0..50).for_each(|number| assert_eq!(receive(Peer::Any, 0), 2 * number));
            world[0].close().unwrap();
        });
    });
}

/// Receives that are posted first, from one rank and from any, get the messages in the order of posting.
#[test]
fn a_message_goes_to_the_receive_that_was_posted_first() {
    watched(|| {
        let world = in_process::world(3);
        let sources = |number: usize| if number.is_multiple_of(2) { Peer::Any } else { Peer::Rank(1) };
        let works: Vec<_> =
            (0..40).map(|number| world[0].recv_async(vec![0u32], sources(number), 5)).collect();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                (0..20u32).for_each(|number| world[1].send(&[number], 0, 5).unwrap());
                world[1].send(&[0u8], 2, 6).unwrap();
                world[1].recv(&mut [0u8], Peer::Rank(2), 6).unwrap();
                (100..120u32).for_each(|number| world[1].send(&[number], 0, 5).unwrap());
            });
            scope.spawn(|| {
                world[2].recv(&mut [0u8], Peer::Rank(1), 6).unwrap();
                world[2].send(&[0u8], 1, 6).unwrap();
            });
            let got: Vec<u32> = works.into_iter().map(|work| work.wait().unwrap().0[0]).collect();
            assert_eq!(got, (0..20).chain(100..120).collect::<Vec<u32>>());
        });
    });
}

/// Each group's only call is unfinished when its handle goes, and rank 1 comes to the groups in reverse.
#[test]
fn calls_of_dropped_groups_end_and_need_few_threads() {
    const GROUPS: usize = 50;
    watched(|| {
        let options = EngineOptions::default();
        let world = in_process::world_of(2, &options, |_, links| links);
        std::thread::scope(|scope| {
            for comm in &world {
                let threads = &options.progress;
                scope.spawn(move || {
                    let mut groups: Vec<Arc<dyn Communicator>> =
                        (0..GROUPS).map(|_| comm.duplicate().unwrap()).collect();
                    if comm.group().rank() == 1 {
                        groups.reverse();
                    }
                    let works: Vec<_> = groups
                        .iter()
                        .map(|group| group.all_reduce_async(vec![1u32; 100], ReduceOp::Sum))
                        .collect();
                    drop(groups);
                    assert!((1..=8).contains(&threads.count()), "{threads:?}");
                    works.into_iter().for_each(|work| assert_eq!(work.wait().unwrap(), [2; 100]));
                });
            }
        });
    });
}
