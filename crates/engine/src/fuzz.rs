//! Arbitrary bytes from a peer for the engine's receivers: a target for cargo-fuzz (`fuzz/`), and a plain test.
//!
//! Compiled for tests and cargo-fuzz only.

#[allow(dead_code, reason = "another crate needs the rest of it")]
#[path = "../../../fuzz/shared/input.rs"]
pub(crate) mod input;
#[cfg(test)]
#[path = "../../../fuzz/shared/replay.rs"]
mod replay;

use std::sync::Arc;

use unisono_communicator::{
    Buffer, BufferMut, Buffers, Collective, Counts, DType, Descriptor, Group, Place, ReduceOp,
};
use unisono_schedule::{Algorithm, Choice, Shape};

use crate::links::doubles::WireDouble;
use crate::memory::Memory;
use crate::plan::header::{CallHeader, HEADER_BYTES, HeaderBytes, decode, header_difference, header_digest};
use crate::plan::{Identity, Plan, PlanKey};
use crate::point_to_point::fuzz;
use crate::reduce::Reducer;
use crate::run::{Failure, PollContext, Run, Staging};
use input::{Input, common_bytes};
use unisono_backend::Heard;

/// The number of kinds of input of target `frame`. The first byte of an input is its kind; the transport handles the
/// last two kinds.
const KINDS: u8 = 6;

/// Numbers of elements of the fuzzed calls: none, few, and enough for some to skip the staging buffer.
const COUNTS: [usize; 3] = [0, 5, 5000];

/// One of this many calls and messages is long. Long ones take most of the time and find little more.
pub(crate) const LONG_ONE_IN: u8 = 64;

/// The engine's part of target `frame`: call headers, the receiver of a call, frames of the point-to-point lane, and
/// the receiver of messages.
pub fn frame(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    match input.below(KINDS) {
        0 => headers(&mut input),
        1 => call(&mut input),
        2 => fuzz::frames(&mut input),
        3 => fuzz::messages(&mut input),
        _ => {}
    }
}

/// Decodes two arbitrary headers. Encoding them again keeps their meaning, and a difference is reported exactly if the
/// headers differ.
fn headers(input: &mut Input<'_>) {
    let ours: HeaderBytes = input.array();
    let mut theirs = ours;
    match input.below(2) {
        0 => theirs = input.array(),
        _ => theirs[usize::from(input.below(HEADER_BYTES as u8))] ^= input.u8(),
    }
    let difference = header_difference(&ours, &theirs);
    assert_eq!(difference.is_none(), ours == theirs, "{difference:?}");
    assert!(difference.is_none_or(|text| !text.is_empty()), "a difference without a name");
    let mut other_plan = ours;
    other_plan[48..56].copy_from_slice(&theirs[48..56]);
    assert_eq!(header_digest(&ours), header_digest(&other_plan), "the digest is the same on every link");
    if let Some(call) = decode(&theirs) {
        describes(&call.descriptor, call.number);
    }
}

/// Checks that a header from a decoded description describes the same call.
fn describes(said: &Descriptor, number: u64) {
    let again = decode(&CallHeader::new(said, number, 0, 0).with_plan_hash(0));
    let Some(again) = again else { panic!("{said} is not understood when said again") };
    assert_eq!(again.number, number);
    // A label travels as a hash, which is decoded as its text. Fields that are not compared do not travel.
    let said = Descriptor {
        label: again.descriptor.label,
        place: if said.operation.collective().is_some_and(Collective::place_may_differ) {
            Place::Separate
        } else {
            said.place
        },
        count: if said.uneven { 0 } else { said.count },
        ..*said
    };
    assert_eq!(unisono_backend::descriptor_difference(&said, &again.descriptor), None);
    assert_eq!(format!("{said:?}"), format!("{:?}", again.descriptor));
}

/// A call, and the bytes that the other rank sent in an earlier run.
struct Recorded {
    plan: Arc<Plan>,
    header: CallHeader,
    stream: Vec<u8>,
    expected: Vec<u32>,
}

/// One rank of a call of two.
struct FuzzedRank {
    run: Run,
    wire: WireDouble,
    input: Vec<u32>,
    output: Vec<u32>,
    scratch: Vec<u8>,
}

impl FuzzedRank {
    fn new(plan: &Arc<Plan>, header: CallHeader, factor: u32, count: usize, wire: WireDouble) -> FuzzedRank {
        FuzzedRank {
            scratch: vec![0; plan.scratch_bytes],
            run: Run::new(plan.clone(), header),
            wire,
            input: (1..=count as u32).map(|value| value * factor).collect(),
            output: vec![0; count],
        }
    }

    fn poll(&mut self, staging: &mut Staging) -> Result<bool, Failure> {
        let reducer = Reducer::new(DType::U32, ReduceOp::Sum, 2, None);
        let (input, output) = (Buffer::of(&self.input), BufferMut::of(&mut self.output));
        let mut buffers = Buffers::Separate { input, output };
        let Some(memory) = Memory::new(&mut buffers, None, &mut self.scratch) else {
            panic!("memory of this host")
        };
        self.run.advance(&mut PollContext { memory, links: &mut self.wire, staging, reducer: &reducer })
    }
}

/// Polls two ranks in turn until both have finished. Records the bytes of the second rank.
fn record(algorithm: &Arc<Algorithm>, count: usize, staging: &mut Staging) -> Recorded {
    let descriptor = Descriptor {
        op: Some(ReduceOp::Sum),
        ..Descriptor::new(Collective::AllReduce, DType::U32, count as u64)
    };
    let choice = Choice { algorithm: algorithm.clone(), shape: Shape::new(2) };
    let key = PlanKey { descriptor, counts: Counts::Even, segment_ends: None };
    #[expect(clippy::expect_used, reason = "names of this repository are short and few")]
    let identity = Identity::of(&choice, None).expect("a name of ours");
    let mut ranks = [0, 1].map(|rank| {
        let schedule = Arc::new(algorithm.schedule(&choice.shape, rank));
        let plan = Arc::new(Plan::new(&choice, schedule, &key, &Group::world(rank, 2), 4096, identity));
        let header = CallHeader::new(&descriptor, 0, plan.algorithm_hash, plan.piece_bytes).behind(0);
        FuzzedRank::new(&plan, header, rank + 1, count, WireDouble::new(Vec::new(), usize::MAX))
    });
    let mut moved = true;
    while moved {
        moved = ranks.iter_mut().any(|rank| rank.poll(staging).is_ok_and(|moved| moved));
        let [first, second] = &mut ranks;
        first.wire.arrived.clone_from(&second.wire.sent);
        second.wire.arrived.clone_from(&first.wire.sent);
    }
    let [first, second] = ranks;
    assert!(first.run.is_finished() && second.run.is_finished(), "{} of {count}", algorithm.name);
    let plan = first.run.plan.clone();
    let header = CallHeader::new(&descriptor, 0, plan.algorithm_hash, plan.piece_bytes).behind(0);
    Recorded { plan, header, stream: second.wire.sent, expected: first.output }
}

thread_local! {
    /// Every all-reduce of two ranks, and their common staging area.
    static CALLS: std::cell::RefCell<(Vec<Recorded>, Staging)> = std::cell::RefCell::new({
        let mut staging = Staging::new(Heard::new(2));
        let all = unisono_schedule::algorithms().iter();
        let all = all.filter(|one| one.collective == Collective::AllReduce);
        let calls = all.flat_map(|one| COUNTS.map(|count| (one, count)));
        (calls.map(|(one, count)| record(one, count, &mut staging)).collect(), staging)
    });
}

/// Runs a call on edited bytes from the other rank. It must succeed only with exactly the expected header, and take no
/// byte beyond its own.
fn call(input: &mut Input<'_>) {
    CALLS.with_borrow_mut(|(calls, staging)| {
        let algorithm = usize::from(input.u8()) * COUNTS.len() % calls.len();
        let count = if input.rarely(LONG_ONE_IN) { 2 } else { input.below(2) };
        let recorded = &calls[algorithm + usize::from(count)];
        let (count, genuine) = (recorded.expected.len(), &recorded.stream);
        let piece = [1, 63, 4096, usize::MAX][usize::from(input.below(4))];
        let mut stream = genuine.clone();
        input.edit(&mut stream);
        let same_bytes = common_bytes(&stream, genuine);
        let has_header = stream.len() >= HEADER_BYTES;
        let mut rank =
            FuzzedRank::new(&recorded.plan, recorded.header, 1, count, WireDouble::new(stream, piece));
        let has_failed = loop {
            match rank.poll(staging) {
                Ok(true) => {}
                Ok(false) => break false,
                Err(failure) => {
                    let is_named = matches!(failure, Failure::Mismatch { .. } | Failure::Broken { .. });
                    assert!(is_named, "{failure:?}");
                    break true;
                }
            }
        };
        let (name, is_finished) = (recorded.plan.algorithm, rank.run.is_finished());
        assert_eq!(has_failed, has_header && same_bytes < HEADER_BYTES, "{name} of {count}");
        assert!(!is_finished || same_bytes >= HEADER_BYTES, "{name} of {count} believes another header");
        assert!(!is_finished || rank.wire.read == genuine.len(), "{name} of {count} reads on");
        if same_bytes == genuine.len() {
            assert!(is_finished && rank.output == recorded.expected, "{name} of {count}");
        }
    });
}

#[cfg(test)]
mod tests {
    #[test]
    fn fuzzed_frames_do_no_harm() {
        super::replay::replay("frame", super::frame);
    }
}
