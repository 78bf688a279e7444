//! The control planes of whole jobs in one thread: a clock, a queue of messages, and ranks that die or stop.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use unisono_communicator::Error;

use super::*;

const MS: Duration = Duration::from_millis(1);
const INTERVALS: Intervals = Intervals { beat: Duration::from_millis(100), suspect: Duration::from_secs(1) };

/// A small generator for delays; the seed is in every failure message.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % bound
    }
}

enum Event {
    Message(u32, Message),
    Connected(u32),
    Reset(u32),
    Refused(u32),
    Tick,
}

struct Simulation {
    start: Instant,
    now: Instant,
    planes: Vec<Option<Plane>>,
    stopped: BTreeMap<u32, Instant>,
    queue: BTreeMap<(Instant, u64), (u32, Event)>,
    last_arrival: BTreeMap<(u32, u32), Instant>,
    links: BTreeSet<(u32, u32)>,
    count: u64,
    messages: u64,
    random: Random,
    heard: Vec<Vec<News>>,
    answers: Vec<(u32, u32, CallStatus)>,
}

impl Simulation {
    fn new(size: u32, seed: u64) -> Simulation {
        let start = Instant::now();
        let planes = (0..size).map(|rank| Some(Plane::new((rank, size), INTERVALS, start))).collect();
        let mut simulation = Simulation {
            start,
            now: start,
            planes,
            stopped: BTreeMap::new(),
            queue: BTreeMap::new(),
            last_arrival: BTreeMap::new(),
            links: BTreeSet::new(),
            count: 0,
            messages: 0,
            random: Random(seed),
            heard: vec![vec![]; size as usize],
            answers: vec![],
        };
        for rank in 0..size {
            simulation.act(rank);
            simulation.push(rank, INTERVALS.beat, Event::Tick);
        }
        simulation
    }

    fn push(&mut self, to: u32, after: Duration, event: Event) {
        self.count += 1;
        self.queue.insert((self.now + after, self.count), (to, event));
    }

    /// Messages take up to 2 ms and keep their order per pair.
    fn deliver(&mut self, from: u32, to: u32, event: Event) {
        let delay = MS * self.random.below(3) as u32;
        let arrival = (self.now + delay).max(*self.last_arrival.entry((from, to)).or_insert(self.now));
        self.last_arrival.insert((from, to), arrival);
        self.push(to, arrival - self.now, event);
    }

    fn act(&mut self, rank: u32) {
        let Some(plane) = &mut self.planes[rank as usize] else { return };
        for action in plane.take_actions() {
            match action {
                Action::Connect(peer) if self.planes[peer as usize].is_none() => {
                    self.push(rank, MS, Event::Refused(peer));
                }
                Action::Connect(peer) => {
                    self.links.insert((rank.min(peer), rank.max(peer)));
                    self.deliver(peer, rank, Event::Connected(peer));
                    self.deliver(rank, peer, Event::Connected(rank));
                }
                Action::Send(peer, message) => {
                    self.messages += 1;
                    self.deliver(rank, peer, Event::Message(rank, message));
                }
                Action::Happened(news) => self.heard[rank as usize].push(news),
                Action::Asked { from, key, number } => {
                    let status = CallStatus::Forgotten;
                    self.deliver(rank, from, Event::Message(rank, Message::Answer { key, number, status }));
                }
                Action::Answered { from, status, .. } => self.answers.push((rank, from, status)),
            }
        }
    }

    fn kill(&mut self, rank: u32) {
        self.planes[rank as usize] = None;
        let (cut, kept) = self.links.iter().partition(|link| link.0 == rank || link.1 == rank);
        self.links = kept;
        let cut: BTreeSet<(u32, u32)> = cut;
        for link in cut {
            let peer = if link.0 == rank { link.1 } else { link.0 };
            self.deliver(rank, peer, Event::Reset(rank));
        }
    }

    fn run(&mut self, span: Duration) {
        let end = self.now + span;
        while let Some(entry) = self.queue.first_entry().filter(|entry| entry.key().0 <= end) {
            let ((at, _), (rank, event)) = entry.remove_entry();
            self.now = at;
            if let Some(&until) = self.stopped.get(&rank).filter(|&&until| until > at) {
                self.push(rank, until - at, event);
                continue;
            }
            let Some(plane) = &mut self.planes[rank as usize] else { continue };
            match event {
                Event::Message(from, message) => plane.on_message(from, message, at),
                Event::Connected(peer) => plane.on_connected(peer, at),
                Event::Reset(peer) => plane.on_disconnected(peer, Certainty::Confirmed, "closed".into(), at),
                Event::Refused(peer) => {
                    plane.on_disconnected(peer, Certainty::Confirmed, "refused".into(), at)
                }
                Event::Tick => {
                    plane.on_tick(at);
                    self.push(rank, INTERVALS.beat, Event::Tick);
                }
            }
            self.act(rank);
        }
        self.now = end;
    }

    /// Whom a rank has heard to be lost.
    fn lost(&self, rank: u32) -> BTreeSet<u32> {
        let lost = |news: &News| match news.topic {
            Topic::Lost { rank, .. } => Some(rank),
            _ => None,
        };
        self.heard[rank as usize].iter().filter_map(lost).collect()
    }

    fn assert_lost(&self, expected: &[u32], except: &[u32], what: &str) {
        let expected: BTreeSet<u32> = expected.iter().copied().collect();
        for rank in (0..self.planes.len() as u32).filter(|rank| !except.contains(rank)) {
            assert_eq!(self.lost(rank), expected, "{what}: on rank {rank} of {}", self.planes.len());
        }
    }
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
        let links = simulation.links.len() as u64;
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
        simulation.stopped.insert(1, simulation.now + MS * 4000);
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
    // All at once, as when the whole machine is held up: nobody has listened, so nobody may judge.
    simulation.stopped = (0..6).map(|rank| (rank, simulation.now + MS * 9000)).collect();
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
        let (author, now) = (seed as u32 % size, simulation.now);
        if let Some(plane) = &mut simulation.planes[author as usize] {
            plane.publish(Topic::Revoked { key, cause: Error::Closed }, now);
        }
        simulation.act(author);
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
        let now = simulation.now;
        if let Some(plane) = &mut simulation.planes[rank as usize] {
            plane.publish(Topic::Goodbye, now);
        }
        simulation.act(rank);
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
    assert!(!simulation.links.contains(&(0, far)));
    if let Some(plane) = &mut simulation.planes[0] {
        plane.ask(far, key, 4);
        plane.ask(far, key, 4);
    }
    simulation.act(0);
    simulation.run(MS * 50);
    assert_eq!(simulation.answers, [(0, far, CallStatus::Forgotten), (0, far, CallStatus::Forgotten)]);
}

#[test]
fn news_keeps_its_cause() {
    let mut simulation = Simulation::new(10, 4);
    simulation.run(MS * 100);
    let key = CommunicatorKey { id: 3, epoch: 1 };
    let cause = Error::Revoked { by: 1, cause: Arc::new(Error::invalid("x", "y")) };
    let now = simulation.now;
    if let Some(plane) = &mut simulation.planes[6] {
        plane.publish(Topic::Revoked { key, cause }, now);
    }
    simulation.act(6);
    simulation.run(MS * 30);
    for (rank, heard) in simulation.heard.iter().enumerate() {
        let origins: Vec<_> =
            heard.iter().map(|news| (news.origin, news.sequence, news.topic.key())).collect();
        assert_eq!(origins, [(6, 1, Some(key))], "rank {rank}");
    }
    assert!(simulation.now > simulation.start);
}
