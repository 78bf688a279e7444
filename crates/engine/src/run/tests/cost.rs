//! Measures the cost of a run over links that take and give all bytes at once: `cargo test --release -p unisono-engine
//! -- --ignored --nocapture cost`

use std::hint::black_box;
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;
use std::time::Instant;

use unisono_communicator::{
    Buffer, BufferMut, Buffers, Collective, Counts, DType, Descriptor, Group, GroupRank, Operation, Peer,
    ReduceOp, Site,
};
use unisono_schedule::{Choice, Registry, Shape};

use crate::links::{COPY_ALL, Link};
use crate::memory::Memory;
use crate::plan::header::{CallHeader, HEADER_BYTES, HeaderBytes};
use crate::plan::{Identity, Plan, PlanKey};
use crate::reduce::{PeerBytes, Reducer};
use crate::run::{PollContext, Run, Staging};
use unisono_backend::Board;
use unisono_backend::Heard;

/// Elements of a call, so few that arithmetic takes almost no time.
const COUNT: usize = 64;
const CALLS: u32 = 20_000;
const REPEATS: usize = 9;

/// A double of a link whose peer has sent the right header, and any payload.
struct WillingDouble {
    header: HeaderBytes,
    given: usize,
}

impl Link for WillingDouble {
    fn try_send(&mut self, bytes: &[IoSlice<'_>], _copied_bytes: usize) -> io::Result<usize> {
        Ok(bytes.iter().map(|slice| slice.len()).sum())
    }

    fn unreleased_bytes(&mut self) -> io::Result<u64> {
        Ok(0)
    }

    fn try_recv(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let mut total = 0;
        for slice in into {
            let header = &self.header[self.given.min(HEADER_BYTES)..];
            let bytes = header.len().min(slice.len());
            slice[..bytes].copy_from_slice(&header[..bytes]);
            self.given += slice.len();
            total += slice.len();
        }
        Ok(total)
    }

    fn is_delivered(&mut self) -> bool {
        true
    }
}

/// The mean time of one call, in nanoseconds: the smallest of several means, which other work has disturbed least.
fn nanoseconds(mut work: impl FnMut()) -> f64 {
    let mut least = f64::INFINITY;
    for _ in 0..REPEATS {
        let start = Instant::now();
        for _ in 0..CALLS {
            work();
        }
        least = least.min(start.elapsed().as_nanos() as f64 / f64::from(CALLS));
    }
    least
}

fn descriptor() -> Descriptor {
    Descriptor { op: Some(ReduceOp::Sum), ..Descriptor::new(Collective::AllReduce, DType::U32, COUNT as u64) }
}

fn measure_run(name: &str, ranks: u32) {
    let choice = Choice::named(&Registry::built_in(), Collective::AllReduce, name, &Shape::new(ranks));
    let choice = choice.expect("a registered algorithm");
    let group = Group::world(0, ranks);
    let schedule = Arc::new(choice.algorithm.schedule(&choice.shape, 0));
    let key = PlanKey { descriptor: descriptor(), counts: Counts::Even, segment_ends: None };
    let identity = Identity::of(&choice, None).expect("a short name");
    let plan = Arc::new(Plan::new(&choice, schedule, &key, &group, crate::plan::PIECE_BYTES, identity));
    let header = CallHeader::new(&descriptor(), 0, plan.algorithm_hash, plan.piece_bytes).behind(0);
    let mut links: Vec<WillingDouble> =
        (0..ranks).map(|_| WillingDouble { header: [0; HEADER_BYTES], given: 0 }).collect();
    for link in &plan.links {
        links[link.edge.peer.index()].header = header.with_plan_hash(link.recv.plan_hash);
    }
    let steps = plan.steps.len();
    let mut scratch = vec![0; plan.scratch_bytes];
    let mut run = Run::new(plan, header);
    let reducer = Reducer::new(DType::U32, ReduceOp::Sum, ranks, None);
    let (mut staging, input, mut output) =
        (Staging::new(Heard::new(ranks)), vec![1u32; COUNT], vec![0u32; COUNT]);
    let per_call = nanoseconds(|| {
        run.reset(header);
        links.iter_mut().for_each(|link| link.given = 0);
        while !run.is_finished() {
            let mut buffers =
                Buffers::Separate { input: Buffer::of(&input), output: BufferMut::of(&mut output) };
            let memory = Memory::new(&mut buffers, None, &mut scratch).expect("host memory");
            let mut context =
                PollContext { memory, links: &mut links, staging: &mut staging, reducer: &reducer };
            assert!(run.advance(&mut context).expect("the header is right"), "a poll moves something");
        }
    });
    eprintln!(
        "{name} {ranks} ranks: {per_call:.0} ns per call, {:.1} per step of {steps}",
        per_call / steps as f64
    );
}

/// Measures a hand-written ring for comparison: the same links, headers, staging area and kernels, but no schedule and
/// no run.
fn measure_direct_coded_ring(ranks: u32) {
    const ELEMENT_BYTES: usize = 4;
    let parts = ranks as usize;
    let part = |number: usize| {
        let number = number % parts;
        ELEMENT_BYTES * (COUNT * number / parts)..ELEMENT_BYTES * (COUNT * (number + 1) / parts)
    };
    let header = CallHeader::new(&descriptor(), 0, 7, crate::plan::PIECE_BYTES).with_plan_hash(9);
    let (mut next, mut previous) = (WillingDouble { header, given: 0 }, WillingDouble { header, given: 0 });
    let reducer = Reducer::new(DType::U32, ReduceOp::Sum, ranks, None);
    let (mut stage, mut output) =
        (vec![0u8; HEADER_BYTES + ELEMENT_BYTES * COUNT], vec![1u8; ELEMENT_BYTES * COUNT]);
    let rounds = 2 * (parts - 1);
    let per_call = nanoseconds(|| {
        (next.given, previous.given) = (0, 0);
        for round in 0..rounds {
            let first = if round == 0 { HEADER_BYTES } else { 0 };
            let (sent, received) = (part(2 * parts - round), part(2 * parts - round - 1));
            stage[..first].copy_from_slice(&header[..first]);
            let end = first + sent.len();
            stage[first..end].copy_from_slice(&output[sent]);
            let taken = next.try_send(&[IoSlice::new(&stage[..end])], COPY_ALL).expect("a willing link");
            assert_eq!(taken, end);
            let end = first + received.len();
            let given = previous.try_recv(&mut [IoSliceMut::new(&mut stage[..end])]).expect("a willing link");
            assert!(given == end && stage[..first] == header[..first]);
            let incoming = &stage[first..end];
            if round < parts - 1 {
                reducer
                    .reduce(&mut output[received], None, PeerBytes::Own(incoming), true, false)
                    .expect("no user function");
            } else {
                output[received].copy_from_slice(incoming);
            }
        }
    });
    eprintln!("direct-coded ring {ranks} ranks: {per_call:.0} ns per call");
}

#[test]
#[ignore = "a measurement"]
fn cost_of_runs() {
    for ranks in [4, 8, 64] {
        measure_direct_coded_ring(ranks);
    }
    measure_run("recursive_doubling", 2);
    for ranks in [4, 8, 64] {
        measure_run("recursive_doubling", ranks);
        measure_run("ring", ranks);
        measure_run("direct", ranks);
    }
}

#[test]
#[ignore = "a measurement"]
fn cost_of_header_and_slot() {
    let descriptor = descriptor();
    let mut number = 0;
    let encode = nanoseconds(|| {
        number += 1;
        black_box(CallHeader::new(black_box(&descriptor), number, 7, 512).with_plan_hash(number));
    });
    let ours = CallHeader::new(&descriptor, 1, 7, 512).with_plan_hash(9);
    let theirs = ours;
    let compare = nanoseconds(|| assert!(black_box(&ours) == black_box(&theirs)));
    let board = Board::new(GroupRank::new(0), 2);
    let publish = nanoseconds(|| {
        let number = board.calls().enter(black_box(&descriptor), None, None, Site::caller(), None);
        board.progress().leave(number);
    });
    let send = Descriptor { peer: Some(Peer::Rank(1)), ..Descriptor::new(Operation::Send, DType::U8, 64) };
    let message = nanoseconds(|| {
        let number = board.messages().enter(black_box(&send), Site::caller());
        board.messages().leave(number);
    });
    eprintln!("header: encode {encode:.1} ns, compare {compare:.1} ns");
    eprintln!("slot: a call entered and left {publish:.1} ns, a message {message:.1} ns");
}
