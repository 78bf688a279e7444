//! The program of the ranks of a simulated job: a list of calls, known to all, and after a failure `shrink` and on from
//! the last common call. The right result of every call is computed here, without the engine.

use std::sync::Arc;
use std::time::Duration;

use unisono_collectives::{Collectives, CollectivesPrefix};
use unisono_communicator::{
    CallOptions, Collective, Communicator, Determinism, Element, Error, Group, ReduceOp, Result, mix64,
};

use super::departure::EarlyDeparture;
use super::job::SimulatedJob;
use super::links::create;
use super::{Random, WORLD};

/// The most epochs of a program.
const EPOCHS_MAX: u32 = 12;

/// The program of all ranks of a job.
#[derive(Clone, Debug)]
pub(in super::super) struct Program {
    pub(in super::super) seed: u64,
    pub(in super::super) steps: u64,
    pub(in super::super) hosts: Vec<u32>,
    pub(in super::super) deviation: Option<Deviation>,
    pub(in super::super) departure: Option<EarlyDeparture>,
}

/// A call that one rank makes differently from the others.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Deviation {
    pub(in super::super) rank: u32,
    pub(in super::super) step: u64,
    pub(in super::super) kind: Other,
}

/// The field in which it differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Other {
    Count,
    DType,
    Operator,
    Root,
    Collective,
}

/// An event in the story of a rank.
#[derive(Debug)]
pub(in super::super) enum Moment {
    /// A call has returned, and its result was right.
    Done { step: u64, is_right: bool },
    /// A call has failed, this long after the start of the job, after the start of the call, and after the last byte
    /// that this rank has moved.
    Failed { epoch: u32, step: u64, at: Duration, waited: Duration, still: Duration, error: Error },
    /// The survivors, as ranks of the job, go on from that step; the agreement has taken so long.
    Shrunk { epoch: u32, members: Vec<u32>, step: u64, took: Duration },
    /// The ranks of this side do not go on.
    Ended(Error),
    /// All calls are made.
    Closed(Result<()>),
    /// It has ended before that; with this result of `close`, if it has called that.
    Departed(Result<()>),
}

const OPERATORS: [ReduceOp; 3] = [ReduceOp::Sum, ReduceOp::Max, ReduceOp::Min];

/// Algorithms that a program asks for. An algorithm that does not fit the call is refused before anything is sent.
const ALGORITHMS: [&str; 12] = [
    "bruck",
    "canonical",
    "chain",
    "circulant",
    "direct",
    "double_tree",
    "halving_doubling",
    "pairwise",
    "recursive_doubling",
    "ring",
    "scatter_all_gather",
    "leaders:2",
];

/// One call.
#[derive(Clone, Debug)]
struct Step {
    seed: u64,
    collective: Collective,
    /// Of an all-reduce: its output is another buffer than its input.
    is_into: bool,
    dtype: usize,
    count: usize,
    operator: usize,
    root: u32,
    options: CallOptions,
}

impl Program {
    fn step(&self, number: u64, members: &[u32], rank: u32) -> Step {
        let seed = mixed(self.seed, number);
        let mut random = Random::new(seed);
        // The first numbers of a small generator depend too much on each other.
        (0..4).for_each(|_| {
            random.below(2);
        });
        let count = match random.below(8) {
            0 => random.below(3),
            1 => random.below(800),
            _ => 1 + random.below(60),
        };
        let mut options = CallOptions::new();
        match random.below(3) {
            0 => options = options.determinism(Determinism::Fixed),
            1 => options = options.algorithm(ALGORITHMS[random.below(ALGORITHMS.len() as u64) as usize]),
            _ => {}
        }
        // The first collective, all-reduce, has two forms.
        let form = random.below(Collective::ALL.len() as u64 + 1) as usize;
        let mut step = Step {
            seed,
            collective: Collective::ALL[form.saturating_sub(1)],
            is_into: form == 1,
            dtype: random.below(DTYPES as u64) as usize,
            count: count as usize,
            operator: random.below(OPERATORS.len() as u64) as usize,
            root: random.below(members.len() as u64) as u32,
            options,
        };
        if let Some(deviation) = self.deviation.filter(|other| (other.rank, other.step) == (rank, number)) {
            step.deviate(deviation.kind, members.len() as u32);
        }
        step
    }

    /// Whether every rank needs bytes from every other one in a call.
    pub(in super::super) fn needs_everybody(&self, number: u64) -> bool {
        let step = self.step(number, &[0], u32::MAX);
        match step.collective {
            Collective::Barrier => true,
            Collective::AllReduce
            | Collective::ReduceScatter
            | Collective::AllGather
            | Collective::AllToAll => step.count > 0,
            Collective::Broadcast
            | Collective::Reduce
            | Collective::Gather
            | Collective::Scatter
            | Collective::Scan
            | Collective::Exscan => false,
        }
    }

    /// The ways in which another call may differ from the call of `step`. Nothing in common is left to choose an
    /// algorithm by.
    pub(in super::super) fn others(&self, number: u64) -> Vec<Other> {
        let members: Vec<u32> = (0..self.hosts.len() as u32).collect();
        let collective = self.step(number, &members, 0).collective;
        let mut others = vec![Other::Collective];
        if collective != Collective::Barrier {
            others.extend([Other::Count, Other::DType]);
        }
        if collective.reduces() {
            others.push(Other::Operator);
        }
        if collective.is_rooted() {
            others.push(Other::Root);
        }
        others
    }

    /// Runs one rank of the job, from the first call to the last.
    pub(in super::super) fn run(&self, simulated_job: &Arc<SimulatedJob>, rank: u32) -> Vec<Moment> {
        if let Some(departure) = self.departure {
            return self.run_with_departure(departure, simulated_job, rank);
        }
        let mut story = Vec::new();
        let group = Group::world_on(rank, self.hosts.as_slice().into());
        let mut communicator = create(simulated_job, WORLD, group).communicator();
        let mut from = 0;
        for _ in 0..EPOCHS_MAX {
            let Some(error) = self.epoch(simulated_job, &*communicator, from, &mut story) else {
                return story;
            };
            if matches!(error, Error::Mismatch { .. } | Error::Evicted { .. }) {
                return story;
            }
            let start = simulated_job.elapsed();
            match communicator.shrink() {
                Ok(shrunk) => {
                    communicator = shrunk.communicator;
                    from += shrunk.last_common_call;
                    let (members, epoch) = (ranks_of_job(communicator.group()), communicator.group().epoch());
                    let took = simulated_job.elapsed() - start;
                    story.push(Moment::Shrunk { epoch, members, step: from, took });
                }
                Err(error) => {
                    story.push(Moment::Ended(error));
                    return story;
                }
            }
        }
        story
    }

    /// Makes the calls of one epoch; returns its first cause when one of them fails.
    fn epoch(
        &self,
        simulated_job: &SimulatedJob,
        communicator: &dyn Communicator,
        from: u64,
        story: &mut Vec<Moment>,
    ) -> Option<Error> {
        let group = communicator.group();
        let rank = group.own_job_rank().get();
        for number in from..self.steps {
            simulated_job.nap(rank, Duration::from_millis(2));
            let (moment, failure) = self.make(simulated_job, communicator, number);
            story.push(moment);
            if failure.is_some() {
                return failure;
            }
        }
        story.push(Moment::Closed(communicator.close()));
        None
    }

    /// Makes one call; returns its event, and the first cause when it has failed.
    pub(super) fn make(
        &self,
        simulated_job: &SimulatedJob,
        communicator: &dyn Communicator,
        number: u64,
    ) -> (Moment, Option<Error>) {
        let group = communicator.group();
        let rank = group.own_job_rank().get();
        let start = simulated_job.elapsed();
        match self.step(number, &ranks_of_job(group), rank).call(communicator) {
            Ok(is_right) => (Moment::Done { step: number, is_right }, None),
            Err(error) => {
                let (cause, at) = (error.root_cause().clone(), simulated_job.elapsed());
                let (epoch, waited, still) = (group.epoch(), at - start, simulated_job.still_for(rank));
                (Moment::Failed { epoch, step: number, at, waited, still, error }, Some(cause))
            }
        }
    }
}

/// The ranks of a group in the simulated job, which knows no others.
fn ranks_of_job(group: &Group) -> Vec<u32> {
    group.job_ranks().iter().map(|rank| rank.get()).collect()
}

impl Step {
    fn deviate(&mut self, other: Other, ranks: u32) {
        match other {
            Other::Count => self.count += 1,
            Other::DType => self.dtype = (self.dtype + 1) % DTYPES,
            Other::Operator => self.operator = (self.operator + 1) % OPERATORS.len(),
            Other::Root => self.root = (self.root + 1) % ranks,
            Other::Collective => {
                let after = Collective::ALL.into_iter().skip_while(|other| *other != self.collective).nth(1);
                self.collective = after.unwrap_or(Collective::AllReduce);
                self.is_into = false;
            }
        }
        self.options = CallOptions::new();
    }

    /// Makes the call; returns whether its result is right.
    fn call(&self, communicator: &dyn Communicator) -> Result<bool> {
        let made = self.call_with(communicator, &self.options);
        match made {
            // This algorithm does not fit, which all ranks find before anything is sent.
            Err(error) if error.is_before_start() => self.call_with(communicator, &CallOptions::new()),
            made => made,
        }
    }

    fn call_with(&self, communicator: &dyn Communicator, options: &CallOptions) -> Result<bool> {
        match self.dtype {
            0 => self.typed::<u8>(communicator, options),
            1 => self.typed::<i32>(communicator, options),
            2 => self.typed::<f32>(communicator, options),
            _ => self.typed::<u64>(communicator, options),
        }
    }

    fn value(&self, rank: u32, index: usize) -> u64 {
        mixed(mixed(self.seed, u64::from(rank)), index as u64) % 8
    }

    /// Element `index` of the reduction over all members.
    fn reduced(&self, members: &[u32], index: usize) -> u64 {
        let values = members.iter().map(|&rank| self.value(rank, index));
        match OPERATORS[self.operator] {
            ReduceOp::Max => values.max().unwrap_or(0),
            ReduceOp::Min => values.min().unwrap_or(0),
            _ => values.sum(),
        }
    }

    fn typed<T: Sample>(&self, communicator: &dyn Communicator, options: &CallOptions) -> Result<bool> {
        let members = &ranks_of_job(communicator.group());
        let own = communicator.group().rank() as usize;
        let (ranks, count, root) = (members.len(), self.count, self.root);
        let operator = OPERATORS[self.operator];
        let comm = communicator.with(*options);
        let input = |elements: usize| -> Vec<T> {
            (0..elements).map(|index| T::of(self.value(members[own], index))).collect()
        };
        let mut output = vec![T::of(99); count];
        let mut outputs = vec![T::of(99); count * ranks];
        let is_root = own == root as usize;
        let right: Vec<T> = match self.collective {
            Collective::AllReduce => {
                if self.is_into {
                    comm.all_reduce_into(&input(count), &mut output, operator)?;
                } else {
                    output = input(count);
                    comm.all_reduce(&mut output, operator)?;
                }
                (0..count).map(|index| T::of(self.reduced(members, index))).collect()
            }
            Collective::ReduceScatter => {
                comm.reduce_scatter(&input(count * ranks), &mut output, operator)?;
                (0..count).map(|index| T::of(self.reduced(members, own * count + index))).collect()
            }
            Collective::AllGather => {
                comm.all_gather(&input(count), &mut outputs)?;
                return Ok(outputs == self.shares_of_all(members, count, 0));
            }
            Collective::AllToAll => {
                comm.all_to_all(&input(count * ranks), &mut outputs)?;
                return Ok(outputs == self.shares_of_all(members, count, own * count));
            }
            Collective::Broadcast => {
                output = input(count);
                comm.broadcast(&mut output, root)?;
                (0..count).map(|index| T::of(self.value(members[root as usize], index))).collect()
            }
            Collective::Reduce => {
                comm.reduce(&input(count), is_root.then_some(&mut output[..]), operator, root)?;
                return Ok(!is_root || (0..count).all(|at| output[at] == T::of(self.reduced(members, at))));
            }
            Collective::Gather => {
                comm.gather(&input(count), is_root.then_some(&mut outputs[..]), root)?;
                return Ok(!is_root || outputs == self.shares_of_all(members, count, 0));
            }
            Collective::Scatter => {
                let all = input(count * ranks);
                comm.scatter(is_root.then_some(&all[..]), &mut output, root)?;
                let from = members[root as usize];
                (0..count).map(|index| T::of(self.value(from, own * count + index))).collect()
            }
            Collective::Barrier => return comm.barrier().map(|()| true),
            Collective::Scan => {
                output = input(count);
                comm.scan(&mut output, operator)?;
                (0..count).map(|index| T::of(self.reduced(&members[..=own], index))).collect()
            }
            Collective::Exscan => {
                comm.exscan_into(&input(count), &mut output, operator)?;
                let of = |index| if own == 0 { 99 } else { self.reduced(&members[..own], index) };
                (0..count).map(|index| T::of(of(index))).collect()
            }
        };
        Ok(output == right)
    }

    /// Of every member, `count` values from `first` on.
    fn shares_of_all<T: Sample>(&self, members: &[u32], count: usize, first: usize) -> Vec<T> {
        let of = |&rank: &u32| (0..count).map(move |index| T::of(self.value(rank, first + index)));
        members.iter().flat_map(of).collect()
    }
}

const DTYPES: usize = 4;

/// An element of which small numbers are exact in any order of summation.
trait Sample: Element + PartialEq {
    fn of(small: u64) -> Self;
}

impl Sample for u8 {
    fn of(small: u64) -> u8 {
        small as u8
    }
}

impl Sample for i32 {
    fn of(small: u64) -> i32 {
        small as i32
    }
}

impl Sample for f32 {
    fn of(small: u64) -> f32 {
        small as f32
    }
}

impl Sample for u64 {
    fn of(small: u64) -> u64 {
        small
    }
}

/// A number that depends on all bits of both.
pub(in super::super) fn mixed(seed: u64, number: u64) -> u64 {
    mix64(seed ^ number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}
