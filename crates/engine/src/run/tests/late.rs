//! All algorithms over links that keep bytes in place until the peer has received them. In a random order of polls
//! every call must end, be right, and change no byte before it is released.

use std::sync::Arc;

use unisono_communicator::{Collective, Counts, DType, Descriptor, Group, Place, ReduceOp};
use unisono_schedule::{Algorithm, Choice, Layout, Schedule, Shape, SplitMix, algorithms, find_by_name};

use super::pipes::{Keeps, PipeDouble};
use super::{TestMemory, TestRank, round};
use crate::links::Interest;
use crate::plan::PlanKey;
use crate::plan::header::HEADER_BYTES;
use crate::plan::offset_table::OffsetTable;

/// Bytes of an element.
const ELEMENT_BYTES: u64 = 4;

/// A call with more polls fails, since it would go on for ever.
const POLLS_MAX: usize = 1_000_000;

/// After this many rounds without a move, a call is over or hangs. In some rounds a pipe only reports a released
/// header.
const QUIET_ROUNDS: usize = 64;

/// One call of all ranks.
struct LateCall {
    choice: Choice,
    count: u64,
    place: Place,
    keeps: Keeps,
    seed: u64,
}

/// The end of a call.
#[derive(Debug, PartialEq, Eq)]
enum Ending {
    /// Nothing moves, and the call is not over.
    Hangs,
    /// The call is over, with this many wrong elements, and bytes that were changed too early.
    Ends { wrong: usize, spoiled_bytes: usize },
}

const RIGHT: Ending = Ending::Ends { wrong: 0, spoiled_bytes: 0 };

impl LateCall {
    fn collective(&self) -> Collective {
        self.choice.algorithm.collective
    }

    fn descriptor(&self) -> Descriptor {
        let collective = self.collective();
        Descriptor {
            op: collective.reduces().then_some(ReduceOp::Sum),
            root: collective.is_rooted().then_some(self.choice.shape.root),
            place: self.place,
            ..Descriptor::new(collective, DType::U32, self.count)
        }
    }

    fn table(&self, rank: u32) -> OffsetTable {
        let shape = &self.choice.shape;
        let (group, chunks) = (Group::world(rank, shape.ranks), self.choice.algorithm.chunks_of(shape));
        OffsetTable::new(self.collective(), &self.descriptor(), &Counts::Even, &group, chunks)
    }

    fn layout(&self, rank: u32) -> Layout {
        let shape = &self.choice.shape;
        Layout::new(self.collective(), shape, rank, self.choice.algorithm.chunks_of(shape))
    }

    fn extents(&self) -> std::ops::Range<u32> {
        0..self.choice.algorithm.chunks_of(&self.choice.shape)
    }

    fn value(rank: u32, element: u64) -> u32 {
        (rank + 1).wrapping_mul(0x9e37_79b9).wrapping_add(element as u32 * 1_000_003)
    }

    fn memory(&self, rank: u32) -> TestMemory {
        let (table, layout) = (self.table(rank), self.layout(rank));
        let end = |held: &dyn Fn(u32) -> bool, offset: &dyn Fn(u32) -> u64| {
            let ends =
                self.extents().filter(|&extent| held(extent)).map(|one| offset(one) + table.length(one));
            ends.max().unwrap_or(0)
        };
        let input = end(&|extent| layout.input(extent).is_some(), &|extent| table.input_offset(extent));
        let output = end(&|extent| layout.output(extent).is_some(), &|extent| table.output_offset(extent));
        let values = |elements| (0..elements).map(|element| LateCall::value(rank, element)).collect();
        match self.place {
            Place::InPlace => TestMemory { input: None, output: values(input.max(output)) },
            _ if layout.starts_with_output() => TestMemory { input: Some(vec![]), output: values(output) },
            _ => TestMemory { input: Some(values(input)), output: vec![0; output as usize] },
        }
    }

    /// The element that rank `source` contributes to an extent.
    fn contribution(&self, source: u32, extent: u32, nth: u64) -> u32 {
        let table = self.table(source);
        let start = match self.layout(source).starts_with_output() {
            true => table.output_offset(extent),
            false => table.input_offset(extent),
        };
        LateCall::value(source, start + nth)
    }

    /// The number of wrong elements in a rank's output.
    fn wrong(&self, rank: u32, output: &[u32]) -> usize {
        let (table, layout) = (self.table(rank), self.layout(rank));
        let mut wrong = 0;
        for extent in self.extents().filter(|&extent| layout.output(extent).is_some()) {
            for nth in 0..table.length(extent) {
                let sources = layout.contributors(extent);
                let expected =
                    sources.map(|source| self.contribution(source, extent, nth)).fold(0, u32::wrapping_add);
                wrong += usize::from(output[(table.output_offset(extent) + nth) as usize] != expected);
            }
        }
        wrong
    }

    fn run(&self) -> Ending {
        let (shape, mut random) = (&self.choice.shape, SplitMix(self.seed));
        let ranks = shape.ranks as usize;
        // The little room that the proof assumes, or unlimited room.
        let capacity = [HEADER_BYTES + ELEMENT_BYTES as usize, usize::MAX][random.below(2)];
        let piece_bytes = ELEMENT_BYTES * (1 + random.below(3)) as u64;
        let links = PipeDouble::all(ranks, self.keeps, capacity, Some(SplitMix(random.next_u64())));
        let key = PlanKey { descriptor: self.descriptor(), counts: Counts::Even, segment_ends: None };
        let rank = |(rank, links)| {
            let schedule = self.choice.algorithm.schedule(shape, rank);
            let mut made = TestRank::new(&self.choice, schedule, &key, piece_bytes, self.memory(rank), links);
            // A link copies staged bytes, and so releases them at once. Here nothing is staged.
            made.staging.staged_send_bytes_max = 0;
            made
        };
        let mut parts: Vec<TestRank> = (0..).zip(links).map(rank).collect();
        for poll in 0.. {
            assert!(poll < POLLS_MAX, "a call goes on for ever");
            let part = &mut parts[random.below(ranks)];
            let moved = part.poll();
            if part.run.is_finished() && self.keeps == Keeps::Unreceived {
                assert!(!part.links.iter().any(PipeDouble::is_keeping), "{}", describe(self));
            }
            if !moved && !(0..QUIET_ROUNDS).any(|_| round(&mut parts)) {
                break;
            }
        }
        if parts.iter().any(|part| !part.run.is_finished()) {
            return Ending::Hangs;
        }
        let wrong = (0..).zip(&parts).map(|(rank, part)| self.wrong(rank, &part.memory.output)).sum();
        Ending::Ends { wrong, spoiled_bytes: parts.iter().map(|part| part.spoiled_bytes).sum() }
    }
}

/// Every algorithm with up to 6 ranks and with 8, several roots and leaders, in place and not, and some counts.
fn every_case(seed: u64, keeps: Keeps) -> impl Iterator<Item = LateCall> {
    let mut random = SplitMix(seed);
    let shapes = |algorithm: &'static Arc<Algorithm>| {
        let numbers = [2, 3, 4, 5, 6, 8].map(Shape::new);
        let roots = |shape: Shape| match algorithm.collective.is_rooted() {
            true => vec![shape, shape.with_root(shape.ranks - 1)],
            false => vec![shape, shape.with_leaders(shape.leaders_max())],
        };
        numbers.into_iter().flat_map(roots).filter(|shape| algorithm.supports(shape))
    };
    let choices = algorithms().iter().flat_map(move |algorithm| {
        shapes(algorithm).map(|shape| Choice { algorithm: algorithm.clone(), shape })
    });
    let places = |choice: Choice| match choice.algorithm.requires.out_of_place {
        true => vec![(choice, Place::Separate)],
        false => vec![(choice.clone(), Place::Separate), (choice, Place::InPlace)],
    };
    choices.flat_map(places).flat_map(move |(choice, place)| {
        let counts = [0, 1 + random.below(3) as u64, 4 + random.below(12) as u64];
        counts.map(|count| LateCall { choice: choice.clone(), count, place, keeps, seed: random.next_u64() })
    })
}

fn describe(case: &LateCall) -> String {
    let LateCall { choice, count, place, keeps, seed } = case;
    let (name, shape) = (choice.algorithm.qualified_name(), choice.shape);
    format!("{name}, {shape:?}, {count} elements, {place:?}, {keeps:?}, seed {seed:#x}")
}

/// The ranks to which a schedule has a buffered send.
fn buffered_peers(schedule: &Schedule) -> Vec<u32> {
    let buffered = schedule.indexed().filter(|(index, _)| schedule.is_buffered(*index));
    buffered.filter_map(|(_, step)| step.action.link()).map(|(peer, _)| peer.into()).collect()
}

/// Whether two ranks have a buffered send to each other. In a scan they go up only, so they wait for no circle.
fn ranks_exchange(choice: &Choice) -> bool {
    let peers = |rank| buffered_peers(&choice.algorithm.schedule(&choice.shape, rank));
    (0..choice.shape.ranks).any(|rank| peers(rank).into_iter().any(|peer| peers(peer).contains(&rank)))
}

#[test]
fn every_algorithm_is_right_over_links_that_release_late() {
    for case in every_case(0x6c61_7465, Keeps::Unreceived) {
        assert_eq!(case.run(), RIGHT, "{}", describe(&case));
    }
}

/// A sleeping engine also waits for the release of posted bytes.
#[test]
fn a_call_waits_until_its_bytes_are_released() {
    let algorithm = find_by_name("broadcast/chain");
    let algorithm = algorithm.expect("registered").clone();
    let choice = Choice { algorithm, shape: Shape::new(2) };
    let case = LateCall { choice, count: 10, place: Place::InPlace, keeps: Keeps::Unreceived, seed: 0 };
    let key = PlanKey { descriptor: case.descriptor(), counts: Counts::Even, segment_ends: None };
    let links = PipeDouble::all(2, case.keeps, usize::MAX, None);
    let rank = |(rank, links)| {
        let schedule = case.choice.algorithm.schedule(&case.choice.shape, rank);
        let mut made = TestRank::new(&case.choice, schedule, &key, 8, case.memory(rank), links);
        made.staging.staged_send_bytes_max = 0;
        made
    };
    let [mut root, mut other]: [TestRank; 2] =
        (0..).zip(links).map(rank).collect::<Vec<_>>().try_into().ok().unwrap();
    while root.poll() {}
    assert!(!root.run.is_finished());
    let (mut interest, mut awaited) = (Vec::new(), Vec::new());
    root.run.interest(&mut interest);
    root.run.awaited(&mut awaited);
    let edge = root.run.plan.links[0].edge;
    assert_eq!(interest, [Interest { edge, readable: false, writable: false, releasable: true }]);
    assert_eq!(awaited, [edge.peer]);
    while other.poll() {}
    assert!(other.run.is_finished() && root.poll() && root.run.is_finished());
    interest.clear();
    root.run.interest(&mut interest);
    assert_eq!(interest, []);
}

/// If links also kept the bytes of buffered sends, exchanges in place would hang, and no other call.
#[test]
fn an_exchange_needs_its_sends_buffered() {
    let mut hang = 0;
    for case in every_case(0x6b65_6570, Keeps::Everything) {
        let outcome = case.run();
        match ranks_exchange(&case.choice) && case.count > 0 {
            true => {
                assert_eq!(outcome, Ending::Hangs, "{}", describe(&case));
                hang += 1;
            }
            false => assert_eq!(outcome, RIGHT, "{}", describe(&case)),
        }
    }
    assert!(hang > 0);
    let doubling = find_by_name("all_reduce/recursive_doubling").expect("registered");
    assert_eq!(buffered_peers(&doubling.schedule(&Shape::new(2), 0)), [1]);
}

/// If posted bytes counted as released, ranks would overwrite bytes that are yet to be read.
#[test]
fn a_posted_byte_may_not_be_overwritten_yet() {
    let (mut wrong, mut spoiled) = (0, 0);
    for case in every_case(0x7370_6f69, Keeps::Secretly) {
        match case.run() {
            Ending::Hangs => panic!("hangs: {}", describe(&case)),
            Ending::Ends { wrong: some, spoiled_bytes } => {
                wrong += usize::from(some > 0);
                spoiled += usize::from(spoiled_bytes > 0);
            }
        }
    }
    eprintln!("{wrong} calls are wrong, {spoiled} overwrite bytes too early");
    assert!(wrong > 0 && spoiled >= wrong);
}
