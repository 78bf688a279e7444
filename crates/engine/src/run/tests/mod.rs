//! Runs of schedules that no registered algorithm has, in one thread: every rank takes its turn.

mod cost;
mod random;

use std::collections::{HashMap, VecDeque};
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Instant;

use unisono_communicator::{
    Buffer, BufferMut, Buffers, Collective, Counts, DType, Descriptor, Group, ReduceOp, Result,
};
use unisono_schedule::{Algorithm, Choice, Cost, Own, Requires, Shape};

use super::{Run, Staging, Turn};
use crate::links::{Edge, Interest, Link, Links, Wake};
use crate::lock;
use crate::memory::Memory;
use crate::plan::header::CallHeader;
use crate::plan::{Plan, PlanKey};
use crate::reduce::Reducer;
use unisono_backend::Heard;
use unisono_backend::Waker;

type Pipes = Arc<Mutex<HashMap<(u32, u32), VecDeque<u8>>>>;

/// The links of one rank, of which the one last asked for is in use.
struct Lockstep {
    rank: u32,
    peer: u32,
    pipes: Pipes,
}

impl Link for Lockstep {
    fn try_send(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut pipes = lock(&self.pipes);
        let pipe = pipes.entry((self.rank, self.peer)).or_default();
        slices.iter().for_each(|slice| pipe.extend(slice.iter()));
        Ok(slices.iter().map(|slice| slice.len()).sum())
    }

    fn try_recv(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let mut pipes = lock(&self.pipes);
        let pipe = pipes.entry((self.peer, self.rank)).or_default();
        let mut received = 0;
        for slice in into {
            received += pipe.make_contiguous().as_ref().read(slice)?;
            pipe.drain(..received.min(pipe.len()).min(slice.len()));
        }
        if received == 0 { Err(ErrorKind::WouldBlock.into()) } else { Ok(received) }
    }

    fn is_delivered(&mut self) -> bool {
        true
    }
}

impl Links for Lockstep {
    type L = Lockstep;

    fn open(&mut self, _edges: &[Edge]) -> Poll<Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn is_open(&mut self, _edge: Edge) -> bool {
        true
    }

    fn link(&mut self, edge: Edge) -> &mut Lockstep {
        self.peer = edge.peer;
        self
    }

    fn wait(&mut self, _interest: &[Interest], _until: Instant) -> Wake {
        Wake::Expired
    }

    fn waker(&self) -> Waker {
        Arc::new(|| {})
    }

    fn shut_down(&mut self) {}

    fn close(&mut self) {}
}

/// One rank of a test.
struct TestRank {
    run: Run,
    links: Lockstep,
    input: Vec<u32>,
    output: Vec<u32>,
    scratch: Vec<u8>,
    staging: Staging,
}

impl TestRank {
    fn new(algorithm: &'static Algorithm, rank: u32, ranks: u32, count: usize, pipes: &Pipes) -> TestRank {
        let descriptor = Descriptor {
            op: Some(ReduceOp::Sum),
            ..Descriptor::new(Collective::AllReduce, DType::U32, count as u64)
        };
        let choice = Choice { algorithm, shape: Shape::new(ranks) };
        let schedule = Arc::new(algorithm.schedule(&choice.shape, rank));
        let key = PlanKey { descriptor, counts: Counts::Even, segment_ends: None };
        let plan = Arc::new(Plan::new(&choice, schedule, &key, &Group::world(rank, ranks), 8));
        let header = CallHeader::new(&descriptor, 0, plan.algorithm_hash, plan.piece_bytes);
        TestRank {
            scratch: vec![0; plan.scratch_bytes],
            run: Run::new(plan, header),
            links: Lockstep { rank, peer: rank, pipes: pipes.clone() },
            input: (1..=count as u32).map(|value| value * (rank + 1)).collect(),
            output: vec![0; count],
            staging: Staging::new(Heard::new(ranks)),
        }
    }

    fn turn(&mut self) -> bool {
        let reducer = Reducer::new(DType::U32, ReduceOp::Sum, 2, None);
        let mut buffers =
            Buffers::Separate { input: Buffer::of(&self.input), output: BufferMut::of(&mut self.output) };
        let memory = Memory::new(&mut buffers, None, &mut self.scratch).expect("host memory");
        let mut turn = Turn { memory, links: &mut self.links, staging: &mut self.staging, reducer: &reducer };
        self.run.advance(&mut turn).expect("no failure")
    }
}

/// Runs an all-reduce of two ranks until nothing moves, and checks that it is over and right.
fn check(algorithm: &'static Algorithm, count: usize) {
    let pipes = Pipes::default();
    let mut ranks: Vec<TestRank> =
        (0..2).map(|rank| TestRank::new(algorithm, rank, 2, count, &pipes)).collect();
    while ranks.iter_mut().fold(false, |moved, rank| rank.turn() | moved) {}
    for (rank, state) in ranks.iter().enumerate() {
        assert!(state.run.is_finished(), "rank {rank} of {}, {count} elements", algorithm.name);
        let expected: Vec<u32> = (1..=count as u32).map(|value| value * 3).collect();
        assert_eq!(state.output, expected, "rank {rank} of {}, {count} elements", algorithm.name);
    }
}

/// TestRank 0 answers a chunk that may be empty before it comes to one that is not.
static EMPTY_FIRST: Algorithm = Algorithm {
    name: "empty_first",
    collective: unisono_schedule::Collective::AllReduce,
    requires: Requires { power_of_two: true, out_of_place: true, ..Requires::NOTHING },
    chunks: |_| 3,
    scratch_chunks: |_| 0,
    cost: |_| Cost::FREE,
    canonical: false,
    build: |builder| {
        if builder.rank() == 0 {
            let whole = builder.recv_reduce(1, 1, Own::Left, true);
            let empty = builder.recv_reduce(1, 0, Own::Left, true);
            builder.after(empty, whole);
            let answer = builder.send(1, 2);
            builder.after(answer, empty);
            builder.recv(1, 2);
            builder.send(1, 1);
            builder.send(1, 0);
        } else {
            builder.send(0, 1);
            builder.send(0, 0);
            builder.recv_reduce(0, 2, Own::Right, true);
            builder.send(0, 2);
            builder.recv(0, 1);
            builder.recv(0, 0);
        }
    },
    source: "this test",
    summary: "an order in which a step without bytes stands before one that waits for its answer",
};

#[test]
fn a_step_without_bytes_does_not_wait_for_the_bytes_of_the_next() {
    for count in 0..40 {
        check(&EMPTY_FIRST, count);
    }
}

#[test]
fn registered_schedules_run_in_lockstep() {
    for algorithm in unisono_schedule::algorithms() {
        if algorithm.collective == unisono_schedule::Collective::AllReduce {
            (0..40).for_each(|count| check(algorithm, count));
        }
    }
}

/// A piece that ended inside an element would never be over, so `Plan::new` refuses one.
#[test]
fn a_piece_is_whole_elements_whatever_was_asked_for() {
    for element_bytes in [1, 4, 12, 4097, unisono_communicator::OPAQUE_BYTES_MAX as u64] {
        for asked in [None, Some(1), Some(1000), Some(65_536), Some(u64::MAX)] {
            for scratch_chunks in [0, 1, 7, u32::MAX] {
                let piece = crate::plan::piece_bytes(asked, scratch_chunks, element_bytes);
                assert!(piece >= element_bytes && piece.is_multiple_of(element_bytes));
            }
        }
    }
}
