//! The control planes of whole jobs, simulated: the ranks that learn of each event.

use std::sync::Arc;
use std::time::{Duration, Instant};

use unisono_backend::{Ask, CallStatus, Question};
use unisono_communicator::{Certainty, Culprit, Error, GroupRank, JobRank};

use super::hosts::Hosts;
use super::plane::{Action, Plane, Presence};
use super::simulation::{INTERVALS, MS, Simulation};
use crate::wire::{CommunicatorKey, Departure, JointNews, Message, News, Publisher, Topic};

/// The news that a communicator of the ranks 0 to 3 is revoked.
fn revoked(key: CommunicatorKey, cause: Error) -> Topic {
    Topic::Revoked { key, members: JobRank::all(4).collect(), cause }
}

/// The news that a rank has left the world of the ranks 0 to 3.
fn closed() -> Topic {
    let (key, departure) = (CommunicatorKey { id: 0, epoch: 0 }, Departure::before_first_call());
    Topic::Closed { key, members: JobRank::all(4).collect(), departure }
}

#[test]
fn a_killed_rank_is_known_to_all_survivors_and_nobody_else_is_blamed() {
    for size in 2..=64u32 {
        let mut simulation = Simulation::new(size, u64::from(size));
        simulation.run(MS * 500);
        let victim = size * 7 / 11;
        simulation.kill(victim);
        let before = simulation.messages;
        simulation.run(MS * 30);
        simulation.assert_lost(&[victim], &[victim], "killed");
        let links = simulation.links().len() as u64;
        assert!(simulation.messages - before < 40 * links.max(4), "{size}: {before}");
        simulation.run(MS * 5000);
        simulation.assert_lost(&[victim], &[victim], "killed, 5 s later");
    }
}

#[test]
fn a_stopped_rank_is_suspected_and_blames_nobody_when_it_wakes() {
    for size in [2u32, 3, 5, 16, 33] {
        let mut simulation = Simulation::new(size, 99 + u64::from(size));
        simulation.run(MS * 350);
        simulation.stop(1, MS * 4000);
        simulation.run(MS * 900);
        simulation.assert_lost(&[], &[1], "stopped for less than the patience");
        simulation.run(MS * 600);
        simulation.assert_lost(&[1], &[1], "stopped");
        simulation.run(MS * 6000);
        simulation.assert_lost(&[1], &[], "awake again");
    }
}

#[test]
fn a_short_stop_raises_no_alarm() {
    let mut simulation = Simulation::new(6, 5);
    simulation.run(MS * 320);
    // All ranks stop at once, as when the whole machine is held up: none has listened, so none may suspect another.
    (0..6).for_each(|rank| simulation.stop(rank, MS * 9000));
    simulation.run(MS * 15_000);
    simulation.assert_lost(&[], &[], "the machine was held up");
}

#[test]
fn several_deaths_are_all_known() {
    for seed in 0..20 {
        let mut simulation = Simulation::new(24, seed);
        simulation.run(MS * 300);
        let victims = [3u32, 4, 5, 11, 12, 20];
        for victim in victims {
            simulation.kill(victim);
            let pause = MS * simulation.random.below(4) as u32;
            simulation.run(pause);
        }
        simulation.run(MS * 300);
        simulation.assert_lost(&victims, &victims, &format!("seed {seed}"));
    }
}

#[test]
fn everybody_hears_the_first_cause_before_the_death_that_follows_it() {
    for seed in 0..50 {
        let size = 2 + (seed as u32 * 5) % 40;
        let mut simulation = Simulation::new(size, seed);
        simulation.run(MS * 200);
        let key = CommunicatorKey { id: 1, epoch: 0 };
        let author = seed as u32 % size;
        simulation.publish(author, revoked(key, Error::closed()));
        simulation.kill(author);
        simulation.run(MS * 100);
        for rank in (0..size).filter(|&rank| rank != author) {
            let topics: Vec<_> = simulation.heard[rank as usize].iter().map(|news| &news.topic).collect();
            let ordered = matches!(topics[..], [Topic::Revoked { .. }, Topic::Lost { .. }, ..]);
            assert!(ordered, "seed {seed}, rank {rank} of {size}: {topics:?}");
        }
    }
}

#[test]
fn a_goodbye_is_not_a_death() {
    let mut simulation = Simulation::new(9, 3);
    simulation.run(MS * 200);
    for rank in [2u32, 7, 3] {
        simulation.publish(rank, Topic::Goodbye);
        simulation.kill(rank);
        simulation.run(MS * 50);
    }
    simulation.run(MS * 3000);
    simulation.assert_lost(&[], &[2, 3, 7], "they said goodbye");
    simulation.kill(5);
    simulation.run(MS * 100);
    simulation.assert_lost(&[5], &[2, 3, 5, 7], "the rest still watches");
}

#[test]
fn questions_reach_ranks_without_a_standing_connection() {
    let mut simulation = Simulation::new(32, 8);
    simulation.run(MS * 50);
    let key = CommunicatorKey { id: 0, epoch: 0 };
    let far = 11;
    assert!(!simulation.links().contains(&(0, far)));
    simulation.with_plane(0, |plane, _| {
        plane.ask(JobRank::new(far), key, 4);
        plane.ask(JobRank::new(far), key, 5);
    });
    simulation.run(MS * 50);
    let nothing = CallStatus::NotYet { last: None, doing: Box::default() };
    assert_eq!(simulation.answers, [(0, far, nothing.clone()), (0, far, nothing)]);
}

#[test]
fn news_keeps_its_cause() {
    let mut simulation = Simulation::new(10, 4);
    simulation.run(MS * 100);
    let key = CommunicatorKey { id: 3, epoch: 1 };
    let cause = Error::Revoked { by: JobRank::new(1), cause: Arc::new(Error::invalid("x", "y")) };
    simulation.publish(6, revoked(key, cause));
    simulation.run(MS * 30);
    for (rank, heard) in simulation.heard.iter().enumerate() {
        let origins: Vec<_> =
            heard.iter().map(|news| (news.origin.get(), news.sequence, news.topic.key())).collect();
        assert_eq!(origins, [(6, 1, Some(key))], "rank {rank}");
    }
}

#[test]
fn connections_that_end_on_their_way_lose_neither_ranks_nor_news() {
    for seed in 0..50 {
        let size = 2 + (seed as u32 * 3) % 20;
        let mut simulation = Simulation::new(size, seed);
        simulation.run(MS * 200);
        for id in 0..20 {
            let links: Vec<(u32, u32)> = simulation.links().into_iter().collect();
            for link in links {
                if simulation.random.below(3) == 0 {
                    simulation.break_link(link);
                }
            }
            let key = CommunicatorKey { id, epoch: 0 };
            let author = simulation.random.below(u64::from(size)) as u32;
            simulation.publish(author, revoked(key, Error::closed()));
            let pause = MS * simulation.random.below(5) as u32;
            simulation.run(pause);
        }
        simulation.run(MS * 3000);
        simulation.assert_lost(&[], &[], &format!("seed {seed}"));
        assert!(
            simulation.heard.iter().all(|heard| heard.len() == 20),
            "seed {seed}: somebody has missed news"
        );
        simulation.kill(0);
        simulation.run(MS * 30);
        simulation.assert_lost(&[0], &[0], &format!("seed {seed}, killed"));
    }
}

/// Also when the question has come, and the answer is lost.
#[test]
fn a_question_is_answered_also_when_its_connection_ends() {
    let key = CommunicatorKey { id: 0, epoch: 0 };
    for seed in 0..200 {
        let mut simulation = Simulation::new(2, seed);
        simulation.run(MS * 50);
        simulation.with_plane(0, |plane, _| plane.ask(JobRank::new(1), key, 4));
        let pause = Duration::from_micros(100 * simulation.random.below(40));
        simulation.run(pause);
        simulation.break_link((0, 1));
        simulation.run(MS * 50);
        assert!(!simulation.answers.is_empty(), "seed {seed}");
        let before = simulation.answers.len();
        simulation.break_link((0, 1));
        simulation.run(MS * 50);
        assert_eq!(simulation.answers.len(), before, "seed {seed}: asked again although it was answered");
    }
}

#[test]
fn messages_that_change_on_their_way_lose_neither_ranks_nor_news() {
    for seed in 0..100 {
        let size = 2 + seed as u32 % 20;
        let mut simulation = Simulation::new(size, seed);
        for _ in 0..20 {
            let (number, bit) =
                (simulation.random.below(40 * u64::from(size)), simulation.random.below(4000));
            simulation.change_message(number, bit);
        }
        simulation.run(MS * 100);
        for id in 0..20 {
            let key = CommunicatorKey { id, epoch: 0 };
            let author = simulation.random.below(u64::from(size)) as u32;
            simulation.publish(author, revoked(key, Error::closed()));
            let pause = MS * simulation.random.below(5) as u32;
            simulation.run(pause);
        }
        simulation.run(MS * 4000);
        assert_eq!(simulation.unchanged(), 0, "seed {seed}");
        simulation.assert_lost(&[], &[], &format!("seed {seed}"));
        let is_whole = simulation.heard.iter().all(|heard| heard.len() == 20);
        assert!(is_whole, "seed {seed}: somebody has missed news");
    }
}

/// Ranks on another host may report a killed one first, which proves nothing. When its neighbour has seen its end and
/// is killed too, the neighbour's report must have arrived: else the two on that host could go on alone.
#[test]
fn the_word_of_a_witness_counts_also_when_others_have_named_the_rank_before() {
    for seed in 0..100 {
        let mut simulation = Simulation::on_hosts(&[0, 0, 1, 1], seed);
        simulation.run(MS * 250);
        let (first, second) = if seed % 2 == 0 { (0, 1) } else { (1, 0) };
        simulation.kill(first);
        simulation.run(MS * 30);
        simulation.kill(second);
        simulation.run(MS * 30);
        simulation.assert_lost(&[0, 1], &[0, 1], "killed one after the other");
        let deadline = simulation.now + MS * 1000;
        let ask = Ask {
            question: Question::Survivors,
            number: 0,
            flag: true,
            finished_calls: 0,
            deadline,
            heeds_cause: false,
        };
        let answers = [2, 3].map(|rank| simulation.agree(rank, ask));
        simulation.run(MS * 100);
        for answer in answers {
            let survivors = answer.try_recv().map(|answer| answer.map(|agreed| agreed.survivors));
            assert!(
                matches!(&survivors, Ok(Ok(ranks)) if *ranks == [2, 3].map(GroupRank::new)),
                "seed {seed}: {survivors:?}"
            );
        }
    }
}

/// No rank on the other host is left that could say whether its ranks are dead or cut off.
#[test]
fn a_host_that_dies_as_a_whole_leaves_no_proof() {
    let survivors_of = |hosts: &[u32], dead: [u32; 2]| {
        let mut simulation = Simulation::on_hosts(hosts, 7);
        simulation.run(MS * 250);
        dead.into_iter().for_each(|rank| simulation.kill(rank));
        simulation.run(MS * 30);
        let deadline = simulation.now + MS * 1000;
        let ask = Ask {
            question: Question::Survivors,
            number: 0,
            flag: true,
            finished_calls: 0,
            deadline,
            heeds_cause: false,
        };
        let ranks: Vec<u32> = (0..simulation.size()).filter(|rank| !dead.contains(rank)).collect();
        let answers: Vec<_> = ranks.into_iter().map(|rank| simulation.agree(rank, ask)).collect();
        simulation.run(MS * 100);
        let all: Vec<_> = answers.into_iter().map(|answer| answer.try_recv().unwrap()).collect();
        all.into_iter().map(|answer| answer.map(|agreed| agreed.survivors)).collect::<Vec<_>>()
    };
    for answer in survivors_of(&[0, 0, 1, 1], [0, 1]) {
        assert!(
            matches!(&answer, Err(Error::NoQuorum { silent, .. }) if *silent == [0, 1].map(JobRank::new)),
            "{answer:?}"
        );
    }
    for answer in survivors_of(&[0, 0, 1, 1], [2, 3]) {
        assert!(matches!(&answer, Ok(ranks) if *ranks == [0, 1].map(GroupRank::new)), "{answer:?}");
    }
    for answer in survivors_of(&[0, 0, 1, 1, 1], [0, 1]) {
        assert!(matches!(&answer, Ok(ranks) if *ranks == [2, 3, 4].map(GroupRank::new)), "{answer:?}");
    }
}

/// The rank that dials may die before it has dialled: then no connection exists whose end could show that.
#[test]
fn a_rank_that_a_communicator_has_lost_is_looked_for_at_once() {
    let (mut plane, ranks, now) = plane();
    assert_eq!(dialled(&mut plane), ranks[2..], "rank 0 dials us");
    let cause = lost_by(ranks[1], ranks[0]);
    plane.publish(revoked(CommunicatorKey { id: 0, epoch: 0 }, cause.clone()), now);
    assert_eq!(dialled(&mut plane), [ranks[0]]);
    plane.publish(revoked(CommunicatorKey { id: 1, epoch: 0 }, cause), now);
    assert!(dialled(&mut plane).is_empty(), "it is being dialled");
    plane.ask(ranks[1], CommunicatorKey { id: 3, epoch: 0 }, 0);
    assert!(dialled(&mut plane).is_empty(), "a rank does not dial itself");
}

/// Rank 1 of four ranks, 3 of which are on its host.
fn plane() -> (Plane, Vec<JobRank>, Instant) {
    let (ranks, now): (Vec<JobRank>, Instant) = (JobRank::all(4).collect(), Instant::now());
    (Plane::new(ranks[1], Hosts::new([0, 0, 0, 1].into()), INTERVALS, now), ranks, now)
}

fn dialled(plane: &mut Plane) -> Vec<JobRank> {
    let peer = |action| match action {
        Action::Connect(peer) => Some(peer),
        _ => None,
    };
    plane.take_actions().into_iter().filter_map(peer).collect()
}

/// The cause that a rank has found another one lost.
pub(super) fn lost_by(reported_by: JobRank, rank: JobRank) -> Error {
    let culprits = vec![Culprit { rank, process: None, last_call: None }];
    let (certainty, evidence) = (Certainty::Confirmed, "its stream ended".to_owned());
    Error::PeerLost { culprits, call: None, reported_by, certainty, evidence }
}

/// The news for a plane's communicators, and its messages to other ranks.
fn told(plane: &mut Plane) -> (Vec<News>, Vec<(JobRank, Message)>) {
    let (mut news, mut messages) = (Vec::new(), Vec::new());
    for action in plane.take_actions() {
        match action {
            Action::Happened(one) => news.push(one),
            Action::Send(peer, message) => messages.push((peer, message)),
            _ => {}
        }
    }
    (news, messages)
}

fn hear(plane: &mut Plane, origin: JobRank, sequence: u64, topic: Topic) {
    let origins = vec![Publisher { rank: origin, sequence }];
    plane.on_message(origin, Message::News(JointNews { origins, topic }), Instant::now());
}

fn lost(rank: JobRank) -> Topic {
    Topic::Lost { rank, certainty: Certainty::Confirmed, reason: "gone".to_owned() }
}

#[test]
fn the_last_questions_wait_for_a_connection_each_of_them_once() {
    let (mut plane, ranks, now) = plane();
    let key = |id| CommunicatorKey { id, epoch: 0 };
    (0..100).for_each(|number| plane.ask(ranks[3], key(0), number));
    plane.ask(ranks[3], key(0), 98);
    plane.ask(ranks[3], key(1), 98);
    assert!(told(&mut plane).1.is_empty(), "there is no connection");
    plane.on_connected(ranks[3], now);
    let asked = told(&mut plane).1.into_iter().filter_map(|(_, message)| match message {
        Message::Ask { key, number } => Some((key.id, number)),
        _ => None,
    });
    let expected = (37..98).chain([99, 98]).map(|number| (0, number)).chain([(1, 98)]);
    assert_eq!(asked.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
}

#[test]
fn a_beat_goes_over_connections_that_exist() {
    let (mut plane, ranks, now) = plane();
    plane.on_connected(ranks[2], now);
    told(&mut plane);
    plane.on_tick(now + INTERVALS.beat);
    let beats = told(&mut plane).1;
    assert!(matches!(&beats[..], [(peer, Message::Beat)] if *peer == ranks[2]), "{beats:?}");
    plane.on_disconnected(ranks[2], Certainty::Confirmed, "gone".to_owned(), now);
    told(&mut plane);
    (2..40).for_each(|tick| plane.on_tick(now + INTERVALS.beat * tick));
    assert!(told(&mut plane).0.is_empty(), "who has never been heard of is not silent");
}

#[test]
fn who_has_left_is_neither_dialled_nor_awaited() {
    let (mut plane, ranks, now) = plane();
    plane.on_connected(ranks[2], now);
    assert!(plane.awaits_goodbyes());
    [ranks[2], ranks[3]].into_iter().for_each(|peer| plane.ask(peer, CommunicatorKey { id: 0, epoch: 0 }, 4));
    hear(&mut plane, ranks[3], 1, Topic::Goodbye);
    told(&mut plane);
    plane.on_connected(ranks[3], now);
    let messages = told(&mut plane).1;
    assert!(messages.iter().all(|(_, message)| !matches!(message, Message::Ask { .. })), "{messages:?}");
    hear(&mut plane, ranks[2], 1, Topic::Goodbye);
    assert!(!plane.awaits_goodbyes() && !plane.on_ended(ranks[2], now), "it has left");
    told(&mut plane);
    plane.on_disconnected(ranks[2], Certainty::Confirmed, "gone".to_owned(), now);
    assert!(told(&mut plane).0.is_empty(), "it is not lost");
    assert!(plane.on_ended(ranks[0], now), "perhaps it lives");
}

/// Else it would reach ranks that go on, in the place of ranks that should.
#[test]
fn who_leaves_or_counts_as_lost_connects_to_nobody_and_reports_nobody() {
    for is_lost in [true, false] {
        let (mut plane, ranks, now) = plane();
        let cause = lost_by(ranks[2], ranks[0]);
        assert!(!plane.is_connected() && plane.take_actions().len() == 2);
        match is_lost {
            true => hear(&mut plane, ranks[2], 1, lost(ranks[1])),
            false => plane.publish(Topic::Goodbye, now),
        }
        assert!(plane.is_connected(), "it needs no connection");
        hear(&mut plane, ranks[2], 2, revoked(CommunicatorKey { id: 0, epoch: 0 }, cause));
        assert!(!plane.on_ended(ranks[2], now));
        (1..40).for_each(|tick| plane.on_tick(now + INTERVALS.beat * tick));
        plane.on_process_gone(ranks[0], "ended".to_owned(), now);
        plane.on_disconnected(ranks[2], Certainty::Confirmed, "gone".to_owned(), now);
        let actions = plane.take_actions();
        let is_quiet = |action: &Action| match action {
            Action::Happened(news) => !matches!(news.topic, Topic::Lost { rank, .. } if rank != ranks[1]),
            action => !matches!(action, Action::Connect(_)),
        };
        assert!(actions.iter().all(is_quiet), "{actions:?}");
    }
}

#[test]
fn only_the_end_of_a_process_on_this_host_is_proof() {
    let (mut plane, ranks, now) = plane();
    assert!(plane.needs_proof(ranks[0]) && plane.needs_proof(ranks[2]));
    assert!(!plane.needs_proof(ranks[1]) && !plane.needs_proof(ranks[3]), "itself, and another host");
    plane.on_process_gone(ranks[3], "ended".to_owned(), now);
    assert!(told(&mut plane).0.is_empty());
    (0..2).for_each(|_| plane.on_process_gone(ranks[0], "ended".to_owned(), now));
    assert!(told(&mut plane).0.len() == 1 && !plane.needs_proof(ranks[0]), "told once");
    for peer in &ranks[2..] {
        plane.on_connected(*peer, now);
        plane.on_message(*peer, Message::Beat, now);
    }
    let late = now + INTERVALS.suspect * 2;
    assert_eq!(plane.silent_neighbours(late), [ranks[2]], "whose process can be looked at");
    let is_dialled = plane.on_ended(ranks[2], now);
    (1..40).for_each(|tick| plane.on_tick(now + INTERVALS.beat * tick));
    assert!(is_dialled && told(&mut plane).0.len() == 2, "watched also while it is dialled");
}

/// It may have missed anything.
#[test]
fn who_counts_as_lost_listens_to_nobody() {
    let (mut plane, ranks, _) = plane();
    hear(&mut plane, ranks[2], 1, lost(ranks[1]));
    let origins: Vec<JobRank> = told(&mut plane).0.iter().map(|news| news.origin).collect();
    assert_eq!(origins, [ranks[2], ranks[1]], "it says so itself, so that nobody waits for it");
    for topic in [closed(), Topic::Goodbye] {
        hear(&mut plane, ranks[3], 1, topic);
    }
    let actions = plane.take_actions();
    assert!(actions.is_empty(), "{actions:?}");
}

/// An owner may end connections when it hears of a loss.
#[test]
fn a_failure_is_sent_before_this_rank_acts_on_it() {
    let (mut plane, ranks, now) = plane();
    plane.on_connected(ranks[2], now);
    plane.take_actions();
    plane.publish(lost(ranks[1]), now);
    let actions = plane.take_actions();
    assert!(matches!(actions[..], [Action::Send(..), Action::Happened(_)]), "{actions:?}");
}

#[test]
fn a_rank_that_does_not_concern_us_is_not_looked_for() {
    let (ranks, now): (Vec<JobRank>, Instant) = (JobRank::all(16).collect(), Instant::now());
    let mut plane = Plane::new(ranks[1], Hosts::new([0; 16].into()), INTERVALS, now);
    let at_first = dialled(&mut plane);
    plane.publish(revoked(CommunicatorKey { id: 0, epoch: 0 }, lost_by(ranks[1], ranks[8])), now);
    assert!(dialled(&mut plane).is_empty() && !at_first.contains(&ranks[8]));
}

/// A rank that is broken may send anything.
#[test]
fn news_of_unknown_ranks_and_in_our_name_does_nothing() {
    let (mut plane, ranks, _) = plane();
    hear(&mut plane, ranks[2], 1, lost(JobRank::new(4)));
    assert_eq!(plane.presence(JobRank::new(4)), Presence::Lost);
    told(&mut plane);
    for topic in [Topic::Goodbye, closed()] {
        hear(&mut plane, ranks[1], 7, topic);
    }
    assert!(told(&mut plane).0.is_empty() && plane.presence(ranks[1]) == Presence::Live);
}
