//! What happens to a job, worked out from a seed: how many ranks, how long a program, which faults when.

use std::time::Duration;

use unisono_tests::sample::mix;

/// A stream of random numbers.
pub(crate) struct Random(u64);

impl Random {
    /// The same numbers for the same seed.
    pub(crate) fn new(seed: u64) -> Random {
        Random(mix(seed))
    }

    /// Any number.
    pub(crate) fn any(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(1);
        mix(self.0)
    }

    /// A number below `bound`, which is not 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.any() % bound
    }

    /// True so many times of a hundred.
    pub(crate) fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// `count` different numbers below `bound`, ascending.
    pub(crate) fn some(&mut self, count: usize, bound: u32) -> Vec<u32> {
        let mut all: Vec<(u64, u32)> = (0..bound).map(|number| (self.any(), number)).collect();
        all.sort_unstable();
        let mut some: Vec<u32> = all.into_iter().take(count).map(|one| one.1).collect();
        some.sort_unstable();
        some
    }
}

/// When a fault happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// When the first rank says that it has come to this step, or later.
    Step(u64),
    /// So long after the fault before: often while the ranks recover from that.
    After(Duration),
}

/// What the proxy does to the streams between two ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Harm {
    /// Everything that passes waits so long, for a fifth of a second.
    Delay(Duration),
    /// A few bytes per write, for a fifth of a second.
    Dribble,
    /// Both directions end.
    Cut,
    /// One direction ends.
    HalfClose,
    /// One bit changes.
    Flip,
}

/// The streams of one pair of ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) low: u32,
    pub(crate) high: u32,
    /// Its control connection, or its data connections.
    pub(crate) is_control: bool,
}

/// What happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// SIGKILL to these ranks, one right after the other.
    Kill(Vec<u32>),
    /// SIGSTOP, and SIGCONT after the pause.
    Stop(u32, Duration),
    /// On the way between two ranks.
    Wire(Pair, Harm),
}

impl Fault {
    /// Whether no rank may notice it: streams are slow, or a control connection has to be made again.
    pub(crate) fn is_gentle(&self) -> bool {
        match self {
            Fault::Wire(pair, Harm::Cut | Harm::HalfClose) => pair.is_control,
            Fault::Wire(_, Harm::Delay(_) | Harm::Dribble) => true,
            Fault::Wire(_, Harm::Flip) | Fault::Kill(_) | Fault::Stop(..) => false,
        }
    }
}

/// One fault of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) when: When,
    pub(crate) fault: Fault,
}

/// One job and what happens to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) ranks: u32,
    /// Of the program of every rank.
    pub(crate) steps: u64,
    /// Behind a proxy, with checksums.
    pub(crate) has_proxy: bool,
    pub(crate) events: Vec<Event>,
}

/// The first steps pass in peace.
const PEACEFUL_STEPS: u64 = 4;

impl Plan {
    /// The same plan for the same seed.
    pub(crate) fn from_seed(seed: u64) -> Plan {
        let mut random = Random::new(seed);
        let ranks = 2 + random.below(5) as u32;
        let steps = 60 + random.below(120);
        let faults = match random.below(8) {
            0 | 1 => vec![Fault::Kill(random.some(1, ranks))],
            2 | 3 => kills(&mut random, ranks),
            4 => vec![stop(&mut random, ranks)],
            5 => {
                let stop = stop(&mut random, ranks);
                kills(&mut random, ranks).into_iter().chain([stop]).rev().collect()
            }
            6 => wires(&mut random, ranks),
            _ => wires(&mut random, ranks).into_iter().chain(kills(&mut random, ranks)).collect(),
        };
        let has_proxy = faults.iter().any(|fault| matches!(fault, Fault::Wire(..)));
        let events = schedule(&mut random, faults, steps);
        Plan { seed, ranks, steps, has_proxy, events }
    }

    /// Whether this is the only kind of fault.
    pub(crate) fn has_only(&self, is_such: impl Fn(&Fault) -> bool) -> bool {
        self.events.iter().all(|event| is_such(&event.fault))
    }

    /// The ranks that are stopped for a while.
    pub(crate) fn is_stopped(&self, rank: u32) -> bool {
        self.events.iter().any(|event| matches!(event.fault, Fault::Stop(stopped, _) if stopped == rank))
    }
}

/// Kills from one rank to all but one, in groups.
fn kills(random: &mut Random, ranks: u32) -> Vec<Fault> {
    let count = 1 + random.below(u64::from(ranks) - 1) as usize;
    let mut kills: Vec<Vec<u32>> = Vec::new();
    for victim in random.some(count, ranks) {
        match kills.last_mut() {
            Some(group) if random.percent(40) => group.push(victim),
            _ => kills.push(vec![victim]),
        }
    }
    if random.percent(50) {
        kills.reverse();
    }
    kills.into_iter().map(Fault::Kill).collect()
}

fn stop(random: &mut Random, ranks: u32) -> Fault {
    Fault::Stop(random.below(u64::from(ranks)) as u32, Duration::from_millis(50 + random.below(1951)))
}

/// One to three things that happen on the way.
fn wires(random: &mut Random, ranks: u32) -> Vec<Fault> {
    (0..1 + random.below(3))
        .map(|_| {
            let pair = random.some(2, ranks);
            let harm = match random.below(6) {
                0 => Harm::Delay(Duration::from_millis(1 + random.below(20))),
                1 => Harm::Dribble,
                2 | 3 => Harm::Cut,
                4 => Harm::HalfClose,
                _ => Harm::Flip,
            };
            // Only data has checksums.
            let is_control = harm != Harm::Flip && random.percent(40);
            Fault::Wire(Pair { low: pair[0], high: pair[1], is_control }, harm)
        })
        .collect()
}

fn schedule(random: &mut Random, faults: Vec<Fault>, steps: u64) -> Vec<Event> {
    let mut at = PEACEFUL_STEPS;
    let mut events: Vec<Event> = Vec::new();
    for fault in faults {
        let when = if !events.is_empty() && random.percent(50) {
            When::After(Duration::from_micros(random.below(30_000)))
        } else {
            at += random.below((steps - at) / 2);
            When::Step(at)
        };
        events.push(Event { when, fault });
    }
    events
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_one_plan_and_someone_survives() {
        for seed in 0..3000 {
            let plan = Plan::from_seed(seed);
            assert_eq!(plan, Plan::from_seed(seed));
            let mut killed: Vec<u32> = Vec::new();
            for event in &plan.events {
                match &event.fault {
                    Fault::Kill(ranks) => killed.extend(ranks),
                    Fault::Stop(rank, pause) => {
                        assert!(*rank < plan.ranks && *pause <= Duration::from_secs(2));
                    }
                    Fault::Wire(pair, _) => assert!(pair.low < pair.high && pair.high < plan.ranks),
                }
                assert!(!matches!(event.when, When::Step(step) if step >= plan.steps));
            }
            killed.sort_unstable();
            let count = killed.len();
            killed.dedup();
            assert!(killed.len() == count && count < plan.ranks as usize, "seed {seed}: {plan:?}");
        }
    }

    #[test]
    fn every_kind_of_fault_occurs() {
        let plans: Vec<Plan> = (0..200).map(Plan::from_seed).collect();
        let occurs = |is_such: &dyn Fn(&Fault) -> bool| {
            plans.iter().filter(|plan| plan.events.iter().any(|event| is_such(&event.fault))).count()
        };
        assert!(occurs(&|fault| matches!(fault, Fault::Kill(ranks) if ranks.len() > 1)) > 10);
        assert!(occurs(&|fault| matches!(fault, Fault::Kill(ranks) if ranks.contains(&0))) > 20);
        assert!(occurs(&|fault| matches!(fault, Fault::Stop(..))) > 20);
        for harm in [Harm::Dribble, Harm::Cut, Harm::HalfClose, Harm::Flip] {
            assert!(occurs(&|fault| matches!(fault, Fault::Wire(_, one) if *one == harm)) > 5, "{harm:?}");
        }
    }
}
