//! Random schedules that the verifier accepts, with random counts, many of them zero. Every call must end with right
//! results. A link holds only a header and one element, as the proof assumes. About half of the calls run over links
//! that release bytes late.
//!
//! The test finds waiting rules that are too strict. For example, an empty step waits only for piece 0 of its
//! dependencies (`State::blocker_of_empty`). If it waited for their ends, 483 of the 613 accepted reduce-scatters would
//! hang.

use std::sync::{Arc, LazyLock};

use unisono_communicator::{Collective, Counts, DType, Descriptor, Place, ReduceOp};
use unisono_schedule::{
    Action, Algorithm, Builder, Choice, Requires, Schedule, Shape, Slot, SplitMix, StepIndex,
    verify_schedules,
};

use super::pipes::{Keeps, PipeDouble};
use super::{TestMemory, TestRank, round};
use crate::plan::PlanKey;
use crate::plan::header::HEADER_BYTES;

/// Bytes of an element.
const ELEMENT_BYTES: u64 = 4;

/// The room of a link, no more than the proof assumes.
const CAPACITY_BYTES: usize = HEADER_BYTES + ELEMENT_BYTES as usize;

/// A call with more polls fails: no call needs nearly as many.
const POLLS_MAX: usize = 1_000_000;

fn shuffle<T>(random: &mut SplitMix, list: &mut [T]) {
    for end in (1..list.len()).rev() {
        list.swap(end, random.below(end + 1));
    }
}

fn like(name: &'static str, collective: Collective, scratch_chunks: u32) -> Arc<Algorithm> {
    let like = Algorithm::new(name, collective, |_| {}).requires(Requires::COMMUTATIVE);
    Arc::new(like.chunks(|shape| shape.ranks).scratch_chunks(move |_| scratch_chunks))
}

/// Reduce-scatters whose partial sums share scratch chunks.
static SHARED: LazyLock<[Arc<Algorithm>; 3]> = LazyLock::new(|| {
    [
        like("one_scratch_chunk", Collective::ReduceScatter, 1),
        like("two_scratch_chunks", Collective::ReduceScatter, 2),
        like("three_scratch_chunks", Collective::ReduceScatter, 3),
    ]
});

/// All-reduces by exchanges. A call in place receives into the bytes that it sends.
static EXCHANGES: LazyLock<Arc<Algorithm>> = LazyLock::new(|| like("exchanges", Collective::AllReduce, 0));

/// All-gathers whose ranks forward bytes that they receive.
static RELAYS: LazyLock<Arc<Algorithm>> = LazyLock::new(|| like("relays", Collective::AllGather, 0));

/// An algorithm, a group, and schedules that may be right.
type Made = (Arc<Algorithm>, Shape, Vec<Schedule>);

/// The steps of one rank in order, as (extent, action).
type Steps = Vec<(u32, Action)>;

/// Swaps some neighbours in the lists at random, and makes schedules of the lists, with random waits besides the
/// builder's.
fn schedules(
    random: &mut SplitMix,
    algorithm: &Algorithm,
    shape: &Shape,
    mut lists: Vec<Steps>,
) -> Vec<Schedule> {
    let swaps = random.below(3);
    let waits = random.below(4);
    let mut made = Vec::new();
    for (rank, steps) in (0..).zip(&mut lists) {
        for _ in 0..swaps.min(steps.len() - 1) {
            let earlier = random.below(steps.len() - 1);
            steps.swap(earlier, earlier + 1);
        }
        let mut builder = Builder::new(algorithm.collective, shape, rank, algorithm.chunks_of(shape));
        for _ in 0..algorithm.scratch_chunks_of(shape).unwrap_or(0) {
            builder.scratch();
        }
        for (extent, action) in &*steps {
            builder.push(*extent, *action);
        }
        for _ in 0..waits.min(steps.len() - 1) {
            let step = 1 + random.below(steps.len() - 1);
            builder.after(StepIndex::new(step), StepIndex::new(random.below(step)));
        }
        made.push(builder.finish());
    }
    made
}

/// A reduce-scatter. All extents visit the ranks along a ring, or each in a random order of its own, and end at their
/// owners.
fn shared_scratch(random: &mut SplitMix) -> Made {
    let algorithm = SHARED[random.below(SHARED.len())].clone();
    let shape = Shape::new(3 + random.below(4) as u32);
    let (ranks, is_ring) = (shape.ranks as usize, random.below(3) > 0);
    let scratch = algorithm.scratch_chunks_of(&shape).unwrap_or(0) as usize;
    let paths: Vec<Vec<u32>> = (0..shape.ranks)
        .map(|owner| {
            let mut path: Vec<u32> = (1..=shape.ranks).map(|hop| (owner + hop) % shape.ranks).collect();
            if !is_ring {
                shuffle(random, &mut path[..ranks - 1]);
            }
            path
        })
        .collect();
    let mut hops: Vec<usize> = (0..ranks * (ranks - 1)).collect();
    if !is_ring {
        shuffle(random, &mut hops);
    }
    let (mut next, mut lists) = (vec![0; ranks], vec![Steps::new(); ranks]);
    // The slot of each rank's partial sum of an extent, and the extent that each scratch chunk holds.
    let (mut values, mut held) = (vec![vec![Slot::Input; ranks]; ranks], vec![vec![None; scratch]; ranks]);
    for nth in hops {
        let extent = nth % ranks;
        let (hop, path) = (next[extent], &paths[extent]);
        next[extent] += 1;
        let (from, to) = (path[hop] as usize, path[hop + 1] as usize);
        let completes = hop + 2 == ranks;
        let free: Vec<usize> = (0..scratch).filter(|chunk| held[to][*chunk].is_none()).collect();
        let destination = match (completes, free.len()) {
            (true, _) => Slot::Output,
            // No scratch chunk is free, so the verifier will refuse this schedule.
            (false, 0) => Slot::Scratch(0),
            (false, some) => Slot::Scratch(free[random.below(some)] as u32),
        };
        lists[from].push((extent as u32, Action::Send { peer: to as u16, source: values[from][extent] }));
        let (peer, operand, operand_is_left) = (from as u16, Slot::Input, false);
        let reduce = Action::RecvReduce { peer, operand, destination, operand_is_left, completes };
        lists[to].push((extent as u32, reduce));
        values[to][extent] = destination;
        if let Slot::Scratch(chunk) = values[from][extent] {
            held[from][chunk as usize] = None;
        }
        if let Slot::Scratch(chunk) = destination {
            held[to][chunk as usize] = Some(extent);
        }
    }
    let schedules = schedules(random, &algorithm, &shape, lists);
    (algorithm, shape, schedules)
}

/// An all-reduce by exchanges along the dimensions of a hypercube, which each extent takes in its own random order.
fn exchanges(random: &mut SplitMix) -> Made {
    let dimensions = 1 + random.below(3);
    let ranks = 1 << dimensions;
    let shape = Shape::new(ranks as u32);
    let mut orders: Vec<Vec<usize>> = vec![(0..dimensions).collect(); ranks];
    orders.iter_mut().for_each(|order| shuffle(random, order));
    let mut rounds: Vec<usize> = (0..ranks * dimensions).collect();
    if random.below(2) > 0 {
        shuffle(random, &mut rounds);
    }
    let (mut next, mut lists) = (vec![0; ranks], vec![Steps::new(); ranks]);
    for nth in rounds {
        let extent = nth % ranks;
        let nth = next[extent];
        next[extent] += 1;
        for (rank, steps) in lists.iter_mut().enumerate() {
            let peer = rank ^ 1 << orders[extent][nth];
            let source = if nth == 0 { Slot::Input } else { Slot::Output };
            let (operand_is_left, completes) = (rank < peer, nth + 1 == dimensions);
            let (peer, operand, destination) = (peer as u16, source, Slot::Output);
            let reduce = Action::RecvReduce { peer, operand, destination, operand_is_left, completes };
            steps.extend([(extent as u32, Action::Send { peer, source }), (extent as u32, reduce)]);
        }
    }
    let schedules = schedules(random, &EXCHANGES, &shape, lists);
    (EXCHANGES.clone(), shape, schedules)
}

/// An all-gather. Each share takes its own random tree over all ranks, from its owner through ranks that forward it.
fn relays(random: &mut SplitMix) -> Made {
    let shape = Shape::new(2 + random.below(5) as u32);
    let ranks = shape.ranks as usize;
    let trees: Vec<Vec<usize>> = (0..ranks)
        .map(|owner| {
            let mut order: Vec<usize> = (1..ranks).map(|hop| (owner + hop) % ranks).collect();
            shuffle(random, &mut order);
            order
        })
        .collect();
    let mut edges: Vec<usize> = (0..ranks * (ranks - 1)).collect();
    if random.below(3) > 0 {
        shuffle(random, &mut edges);
    }
    let (mut reached, mut lists) = (vec![0; ranks], vec![Steps::new(); ranks]);
    for nth in edges {
        let owner = nth % ranks;
        let to = trees[owner][reached[owner]];
        // A chain in half of the cases, so that bytes pass many ranks.
        let parent = if random.below(2) == 0 { reached[owner] } else { random.below(reached[owner] + 1) };
        let from = if parent == 0 { owner } else { trees[owner][parent - 1] };
        reached[owner] += 1;
        let source = if from == owner { Slot::Input } else { Slot::Output };
        lists[from].push((owner as u32, Action::Send { peer: to as u16, source }));
        lists[to].push((owner as u32, Action::Recv { peer: from as u16, destination: Slot::Output }));
    }
    for (owner, steps) in lists.iter_mut().enumerate() {
        let copy = Action::Copy { source: Slot::Input, destination: Slot::Output };
        steps.insert(random.below(steps.len() + 1), (owner as u32, copy));
    }
    let schedules = schedules(random, &RELAYS, &shape, lists);
    (RELAYS.clone(), shape, schedules)
}

/// One call of random sizes.
#[derive(Debug)]
struct Sizes {
    /// Elements of each extent.
    lengths: Vec<u64>,
    in_place: bool,
    piece_bytes: u64,
}

impl Sizes {
    /// An all-reduce cuts its vector evenly, so it has empty extents only if the vector is short.
    fn new(random: &mut SplitMix, collective: Collective, shape: &Shape) -> Sizes {
        let ranks = shape.ranks as usize;
        let lengths = match collective {
            Collective::AllReduce => {
                let count = random.below(6 * ranks);
                (0..ranks).map(|nth| (count * (nth + 1) / ranks - count * nth / ranks) as u64).collect()
            }
            _ => (0..ranks).map(|_| random.below(3).min(1) as u64 * random.below(14) as u64).collect(),
        };
        let piece_bytes = ELEMENT_BYTES * (1 + random.below(3)) as u64;
        Sizes { lengths, in_place: random.below(2) == 0, piece_bytes }
    }

    fn total(&self) -> u64 {
        self.lengths.iter().sum()
    }

    fn value(rank: u32, element: u64) -> u32 {
        (rank + 1).wrapping_mul(0x9e37_79b9).wrapping_add(element as u32 * 1_000_003)
    }
}

/// One rank of a call.
fn test_rank(choice: &Choice, schedule: &Schedule, sizes: &Sizes, links: Vec<PipeDouble>) -> TestRank {
    let rank = schedule.rank;
    let input: Vec<u32> = (0..sizes.total()).map(|element| Sizes::value(rank, element)).collect();
    let place = if sizes.in_place { Place::InPlace } else { Place::Separate };
    let op = Some(ReduceOp::Sum);
    let (descriptor, counts, share) = match choice.algorithm.collective {
        Collective::AllReduce => {
            let plain = Descriptor::new(Collective::AllReduce, DType::U32, sizes.total());
            (Descriptor { op, place, ..plain }, Counts::Even, sizes.total())
        }
        collective => {
            let share = sizes.lengths[rank as usize];
            let op = op.filter(|_| collective.reduces());
            let plain = Descriptor::new(collective, DType::U32, share);
            let counts = Counts::PerRank(sizes.lengths.clone());
            (Descriptor { op, place, uneven: true, ..plain }, counts, share)
        }
    };
    let key = PlanKey { descriptor, counts, segment_ends: None };
    let memory = match (sizes.in_place, choice.algorithm.collective) {
        (true, _) => TestMemory { input: None, output: input },
        (false, Collective::AllGather) => {
            let start = sizes.lengths[..rank as usize].iter().sum::<u64>() as usize;
            let share = input[start..start + share as usize].to_vec();
            TestMemory { input: Some(share), output: vec![0; sizes.total() as usize] }
        }
        (false, _) => TestMemory { input: Some(input), output: vec![0; share as usize] },
    };
    TestRank::new(choice, schedule.clone(), &key, sizes.piece_bytes, memory, links)
}

/// Runs one call of all ranks in random polls until nothing moves. Returns whether it has ended; if so, checks the
/// result.
fn ends(random: &mut SplitMix, choice: &Choice, schedules: &[Schedule], sizes: &Sizes) -> bool {
    let ranks = choice.shape.ranks;
    let keeps = if random.below(2) == 0 { Keeps::Nothing } else { Keeps::Unreceived };
    let links = PipeDouble::all(ranks as usize, keeps, CAPACITY_BYTES, Some(SplitMix(random.next_u64())));
    let rank = |(schedule, links)| test_rank(choice, schedule, sizes, links);
    let mut parts: Vec<TestRank> = schedules.iter().zip(links).map(rank).collect();
    if random.below(2) == 0 {
        parts.iter_mut().for_each(|part| part.staging.staged_send_bytes_max = 0);
    }
    for poll in 0.. {
        assert!(poll < POLLS_MAX, "a call goes on for ever");
        let moved = parts[random.below(ranks as usize)].poll();
        if !moved && !round(&mut parts) {
            break;
        }
    }
    if parts.iter().any(|part| !part.run.is_finished()) {
        return false;
    }
    let sum = |element| {
        (0..ranks).map(|rank| Sizes::value(rank, element)).fold(0, |sum, value| value.wrapping_add(sum))
    };
    let gathered = (0u32..).zip(&sizes.lengths).flat_map(|(owner, length)| vec![owner; *length as usize]);
    let expected: Vec<u32> = match choice.algorithm.collective {
        Collective::AllGather => (0..).zip(gathered).map(|(at, owner)| Sizes::value(owner, at)).collect(),
        _ => (0..sizes.total()).map(sum).collect(),
    };
    for (rank, part) in parts.iter().enumerate() {
        let (start, share) = match choice.algorithm.collective {
            Collective::AllReduce | Collective::AllGather => (0, sizes.total()),
            _ => (sizes.lengths[..rank].iter().sum(), sizes.lengths[rank]),
        };
        let (start, share) = (start as usize, share as usize);
        let output =
            if sizes.in_place { &part.memory.output[start..start + share] } else { &part.memory.output[..] };
        assert_eq!(output, &expected[start..start + share], "rank {rank}, {sizes:?}");
        assert_eq!(part.spoiled_bytes, 0, "rank {rank}, {sizes:?}");
    }
    true
}

/// Draws many schedules, and checks that every schedule that the verifier accepts ends with any sizes.
fn accepted_schedules_end(seed: u64, make: fn(&mut SplitMix) -> Made) {
    const DRAWN: u64 = 2_000;
    const CALLS: u64 = 4;
    let (mut accepted, mut hang) = (0, 0);
    for nth in 0..DRAWN {
        let mut random = SplitMix(seed.wrapping_add(nth << 32));
        let (algorithm, shape, schedules) = make(&mut random);
        if verify_schedules(&algorithm, &shape, &schedules).is_err() {
            continue;
        }
        accepted += 1;
        let choice = Choice { algorithm: algorithm.clone(), shape };
        let mut all_end = true;
        for _ in 0..CALLS {
            let sizes = Sizes::new(&mut random, algorithm.collective, &shape);
            let this_ends = ends(&mut random, &choice, &schedules, &sizes);
            if !this_ends && hang < 3 {
                eprintln!("seed {seed:#x}, schedule {nth} hangs: {shape:?}, {sizes:?}");
            }
            all_end &= this_ends;
        }
        hang += u64::from(!all_end);
    }
    eprintln!("seed {seed:#x}: {hang} of {accepted} accepted schedules hang, {DRAWN} drawn");
    assert!(hang == 0, "seed {seed:#x}: {hang} of {accepted} accepted schedules hang");
    assert!(accepted > DRAWN / 10, "seed {seed:#x}: only {accepted} of {DRAWN} schedules are accepted");
}

#[test]
fn reduce_scatters_with_shared_scratch_end_for_all_counts() {
    accepted_schedules_end(0x5c4a_7c15, shared_scratch);
}

#[test]
fn exchanges_in_place_end_for_all_counts() {
    accepted_schedules_end(0xe8c4_a96e, exchanges);
}

#[test]
fn relays_end_for_all_counts() {
    accepted_schedules_end(0x7e1a_5e11, relays);
}
