//! The program that all ranks of a job run, worked out from its seed: every step is one collective of the job's
//! communicator, whatever else it does, so that `last_common_call` says from which step to go on. Every result is
//! compared with what each rank works out by itself.

use std::ops::Range;
use std::time::Duration;

use unisono::call::Place;
use unisono::{
    CallOptions, Collective, Collectives, CollectivesAsync, CollectivesPrefix, Communicator, DType,
    Determinism, Peer, ReduceOp, Result, TypedWork,
};
use unisono_tests::case::{Amount, Case, Operands};
use unisono_tests::sample::{mix, op_in};
use unisono_tests::suite::reductions::pairs;

use super::plan::Random;

/// Deadline of a call of a subgroup: longer than any pause. Where a member has failed in an earlier call of the whole
/// job and shrinks that, nobody can tell the others that it will not come: the subgroup may have lost nobody.
const SUBGROUP_TIMEOUT: Duration = Duration::from_secs(4);

/// One step.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// A blocking call.
    Call(Case),
    /// A call whose result is looked at later.
    Start(Start),
    /// A call of some of the ranks, then a barrier of all.
    Subgroup(Vec<u32>, Case),
    /// Everybody sends so many elements to the next rank, then a barrier.
    Messages(usize),
}

/// An asynchronous call on `u64`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start {
    collective: Collective,
    count: usize,
    root: u32,
    seed: u64,
}

/// What all ranks do in step `number` of the program of `seed`, when there are `ranks` of them.
pub(crate) fn step(seed: u64, number: u64, ranks: u32) -> Step {
    let mut random = Random::new(mix(seed) ^ number);
    match random.below(10) {
        0..=5 => Step::Call(case(&mut random, ranks)),
        6 | 7 => Step::Start(Start {
            collective: any_collective(&mut random),
            count: count(&mut random),
            root: random.below(u64::from(ranks)) as u32,
            seed: random.any(),
        }),
        8 if ranks > 1 => {
            let members = 1 + random.below(u64::from(ranks)) as usize;
            let list = random.some(members, ranks);
            let mut case = case(&mut random, list.len() as u32);
            case.options.timeout = Some(SUBGROUP_TIMEOUT);
            Step::Subgroup(list, case)
        }
        9 if ranks > 1 => Step::Messages(count(&mut random)),
        _ => Step::Call(Case::new(Collective::Barrier, DType::U8, 0)),
    }
}

fn any_collective(random: &mut Random) -> Collective {
    Collective::ALL[random.below(Collective::ALL.len() as u64) as usize]
}

/// Mostly few elements, zero among them; sometimes so many that a call takes a while.
fn count(random: &mut Random) -> usize {
    let bound = [3, 40, 900, 20_000][random.below(4) as usize];
    random.below(bound) as usize
}

fn case(random: &mut Random, ranks: u32) -> Case {
    let collective = any_collective(random);
    let is_barrier = collective == Collective::Barrier;
    let every_pair: Vec<(DType, ReduceOp)> = pairs().collect();
    let (mut dtype, mut op) = every_pair[random.below(every_pair.len() as u64) as usize];
    let mut operands = Operands::Exact;
    let mut options = CallOptions::new();
    if collective.reduces() && random.percent(30) {
        // Sums whose order shows, in the one order that is promised.
        (dtype, op, operands) = (DType::F32, ReduceOp::Sum, Operands::Rough);
        options = options.determinism(Determinism::Fixed);
    }
    let count = if is_barrier { 0 } else { count(random) };
    let amount = if random.percent(40) { uneven(random, collective, count, ranks) } else { None };
    Case {
        op: collective.reduces().then_some(op_in(collective, op)),
        amount: amount.unwrap_or(Amount::Even(count)),
        root: if collective.is_rooted() { random.below(u64::from(ranks)) as u32 } else { 0 },
        place: if random.percent(50) && !is_barrier { Place::InPlace } else { Place::Separate },
        segments: random.percent(20).then(|| random.any()),
        operands,
        options,
        seed: random.any(),
        ..Case::new(collective, dtype, count)
    }
}

/// Shares of up to twice the count, with zeros among them.
fn uneven(random: &mut Random, collective: Collective, count: usize, ranks: u32) -> Option<Amount> {
    let seed = random.any();
    let mut share = || match random.below(3) {
        0 => 0,
        _ => random.below(2 * count as u64 + 1) as usize,
    };
    match collective {
        Collective::ReduceScatter | Collective::AllGather | Collective::Gather | Collective::Scatter => {
            Some(Amount::PerRank((0..ranks).map(|_| share()).collect()))
        }
        Collective::AllToAll => {
            // The same both ways, so that it works in place too.
            let pair = |from: u64, to: u64| {
                let random = mix(seed ^ mix(from.min(to) << 32 | from.max(to)));
                (random % (2 * count as u64 + 1)) as usize / ranks as usize * (random >> 32 & 1) as usize
            };
            let ranks = u64::from(ranks);
            let pairs = (0..ranks).map(|from| (0..ranks).map(|to| pair(from, to)).collect()).collect();
            Some(Amount::PerPair(pairs))
        }
        _ => None,
    }
}

impl Start {
    fn value(&self, rank: u32, index: usize) -> u64 {
        mix(self.seed ^ (u64::from(rank) << 48) ^ index as u64)
    }

    fn values(&self, rank: u32, indices: Range<usize>) -> impl Iterator<Item = u64> {
        let start = *self;
        indices.map(move |index| start.value(rank, index))
    }

    fn sum(&self, ranks: u32, index: usize) -> u64 {
        (0..ranks).fold(0, |sum, rank| sum.wrapping_add(self.value(rank, index)))
    }

    /// Starts it.
    pub(crate) fn start(&self, communicator: &dyn Communicator) -> TypedWork<Vec<u64>> {
        let (rank, ranks) = (communicator.rank(), communicator.size() as usize);
        let own = |elements| self.values(rank, 0..elements).collect::<Vec<u64>>();
        match self.collective {
            Collective::AllReduce => communicator.all_reduce_async(own(self.count), ReduceOp::Sum),
            Collective::ReduceScatter => {
                communicator.reduce_scatter_async(own(self.count * ranks), ReduceOp::Sum)
            }
            Collective::AllGather => communicator.all_gather_async(own(self.count)),
            Collective::AllToAll => communicator.all_to_all_async(own(self.count * ranks)),
            Collective::Broadcast => communicator.broadcast_async(own(self.count), self.root),
            Collective::Reduce => communicator.reduce_async(own(self.count), ReduceOp::Sum, self.root),
            Collective::Gather => communicator.gather_async(own(self.count), self.root),
            Collective::Scatter => {
                let shares = if rank == self.root { ranks } else { 0 };
                communicator.scatter_async(own(self.count * shares), self.count, self.root)
            }
            Collective::Barrier => {
                TypedWork::new(communicator.barrier_async().into_work(), |_, _| Vec::new())
            }
            Collective::Scan => communicator.scan_async(own(self.count), ReduceOp::Sum),
            Collective::Exscan => communicator.exscan_async(own(self.count), ReduceOp::Sum),
        }
    }

    /// What must come of it.
    pub(crate) fn expected(&self, rank: u32, ranks: u32) -> Vec<u64> {
        let own = rank as usize * self.count..(rank as usize + 1) * self.count;
        let sums = |indices: Range<usize>| indices.map(|index| self.sum(ranks, index)).collect();
        let prefix = |first| (0..self.count).map(|index| self.sum(first, index)).collect();
        let all =
            |indices: Range<usize>| (0..ranks).flat_map(|from| self.values(from, indices.clone())).collect();
        let is_elsewhere = rank != self.root;
        match self.collective {
            Collective::AllReduce => sums(0..self.count),
            Collective::ReduceScatter => sums(own),
            Collective::AllGather => all(0..self.count),
            Collective::AllToAll => all(own),
            Collective::Broadcast => self.values(self.root, 0..self.count).collect(),
            Collective::Reduce | Collective::Gather if is_elsewhere => Vec::new(),
            Collective::Reduce => sums(0..self.count),
            Collective::Gather => all(0..self.count),
            Collective::Scatter => self.values(self.root, own).collect(),
            Collective::Barrier => Vec::new(),
            Collective::Scan => prefix(rank + 1),
            // Rank 0 gets its vector back.
            Collective::Exscan => prefix(rank.max(1)),
        }
    }
}

/// Passes `count` elements on around the ring.
pub(crate) fn messages(communicator: &dyn Communicator, count: usize, seed: u64) -> Result<()> {
    let (rank, ranks) = (communicator.rank(), communicator.size());
    let (next, previous) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
    let message = |from: u32| -> Vec<u64> {
        (0..count as u64).map(|index| mix(seed ^ (u64::from(from) << 40) ^ index)).collect()
    };
    let receive = communicator.recv_async(vec![0u64; count], Peer::Rank(previous), 1);
    let send = communicator.send_async(message(rank), next, 1);
    let (received, sent) = (receive.wait(), send.wait());
    let (buffer, _) = received?;
    sent?;
    assert_eq!(buffer, message(previous), "wrong result: a message from {previous}");
    communicator.barrier()
}

#[cfg(test)]
mod tests {
    use unisono::in_process;

    use super::*;

    #[test]
    fn every_collective_that_is_started_gives_what_is_expected() {
        const RANKS: u32 = 3;
        for collective in Collective::ALL {
            let start = Start { collective, count: 7, root: 1, seed: 5 };
            let world = in_process::world(RANKS);
            let check = |communicator: &dyn Communicator| {
                let got = start.start(communicator).wait().unwrap();
                assert_eq!(got, start.expected(communicator.rank(), RANKS), "{collective}");
            };
            std::thread::scope(|scope| world.iter().for_each(|comm| drop(scope.spawn(|| check(&**comm)))));
        }
    }
}
