//! Runs all ranks of a call in one thread, which polls them in turn.

mod cost;
mod late;
mod pipes;
mod random;

use std::sync::Arc;

use unisono_communicator::{
    Buffer, BufferMut, Buffers, Collective, Counts, DType, Descriptor, Group, ReduceOp,
};
use unisono_schedule::{Algorithm, Builder, Choice, Own, Requires, Schedule, Shape};

use super::{PollContext, Run, Staging};
use crate::links::doubles::LinksDouble;
use crate::links::{Edge, Link};
use crate::memory::Memory;
use crate::plan::header::CallHeader;
use crate::plan::{Identity, Plan, PlanKey};
use crate::reduce::Reducer;
use pipes::{Keeps, PipeDouble};
use unisono_backend::Heard;

/// The links of a rank, by peer.
impl<L: Link + Send> LinksDouble for Vec<L> {
    type Stream = L;

    fn stream(&mut self, edge: Edge) -> &mut L {
        &mut self[edge.peer.index()]
    }
}

/// The memory of one rank. In place, there is only an output.
struct TestMemory {
    input: Option<Vec<u32>>,
    output: Vec<u32>,
}

/// One rank of a test, whose call adds numbers.
struct TestRank {
    run: Run,
    links: Vec<PipeDouble>,
    memory: TestMemory,
    scratch: Vec<u8>,
    staging: Staging,
    /// The number of bytes that this rank has changed after a link had taken them and before it delivered them.
    spoiled_bytes: usize,
}

impl TestRank {
    fn new(
        choice: &Choice,
        schedule: Schedule,
        key: &PlanKey,
        piece_bytes: u64,
        memory: TestMemory,
        links: Vec<PipeDouble>,
    ) -> TestRank {
        let (rank, ranks) = (schedule.rank, choice.shape.ranks);
        let identity = Identity::of(choice, None).expect("a short name");
        let group = Group::world(rank, ranks);
        let plan = Plan::new(choice, Arc::new(schedule), key, &group, piece_bytes, identity);
        let header = CallHeader::new(&key.descriptor, 0, plan.algorithm_hash, plan.piece_bytes).behind(0);
        TestRank {
            scratch: vec![0; plan.scratch_bytes],
            run: Run::new(Arc::new(plan), header),
            links,
            memory,
            staging: Staging::new(Heard::new(ranks)),
            spoiled_bytes: 0,
        }
    }

    fn poll(&mut self) -> bool {
        let reducer = Reducer::new(DType::U32, ReduceOp::Sum, 2, None);
        let output = BufferMut::of(&mut self.memory.output);
        let mut buffers = match &self.memory.input {
            Some(input) => Buffers::Separate { input: Buffer::of(input), output },
            None => Buffers::InOut(output),
        };
        let memory = Memory::new(&mut buffers, None, &mut self.scratch).expect("host memory");
        let mut context =
            PollContext { memory, links: &mut self.links, staging: &mut self.staging, reducer: &reducer };
        let moved = self.run.advance(&mut context).expect("no failure");
        let input = self.memory.input.as_deref().unwrap_or(&[]);
        let memory = [bytemuck::cast_slice(input), bytemuck::cast_slice(&self.memory.output), &self.scratch];
        self.spoiled_bytes += self.links.iter().map(|link| link.look(&memory)).sum::<usize>();
        moved
    }
}

/// Polls every rank, in order; true when something moved.
fn round(ranks: &mut [TestRank]) -> bool {
    ranks.iter_mut().fold(false, |moved, rank| rank.poll() | moved)
}

/// Runs an all-reduce of two ranks until nothing moves, and checks that it is over and right.
fn check(algorithm: &Arc<Algorithm>, count: usize) {
    let plain = Descriptor::new(Collective::AllReduce, DType::U32, count as u64);
    let descriptor = Descriptor { op: Some(ReduceOp::Sum), ..plain };
    let key = PlanKey { descriptor, counts: Counts::Even, segment_ends: None };
    let choice = Choice { algorithm: algorithm.clone(), shape: Shape::new(2) };
    let links = PipeDouble::all(2, Keeps::Nothing, usize::MAX, None);
    let rank = |(rank, links)| {
        let input = (1..=count as u32).map(|value| value * (rank + 1)).collect();
        let memory = TestMemory { input: Some(input), output: vec![0; count] };
        TestRank::new(&choice, algorithm.schedule(&choice.shape, rank), &key, 8, memory, links)
    };
    let mut ranks: Vec<TestRank> = (0..).zip(links).map(rank).collect();
    while round(&mut ranks) {}
    for (rank, state) in ranks.iter().enumerate() {
        assert!(state.run.is_finished(), "rank {rank} of {}, {count} elements", algorithm.name);
        let expected: Vec<u32> = (1..=count as u32).map(|value| value * 3).collect();
        assert_eq!(state.memory.output, expected, "rank {rank} of {}, {count} elements", algorithm.name);
    }
}

/// Rank 0 answers a chunk that may be empty before its list comes to a chunk that is not.
fn empty_first() -> Algorithm {
    let build = |builder: &mut Builder| {
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
    };
    let requires = Requires { power_of_two: true, out_of_place: true, ..Requires::NOTHING };
    Algorithm::new("empty_first", Collective::AllReduce, build).requires(requires).chunks(|_| 3)
}

#[test]
fn a_step_without_bytes_does_not_wait_for_the_bytes_of_the_next() {
    let algorithm = Arc::new(empty_first());
    for count in 0..40 {
        check(&algorithm, count);
    }
}

#[test]
fn registered_schedules_run_in_lockstep() {
    for algorithm in unisono_schedule::algorithms() {
        if algorithm.collective == Collective::AllReduce {
            (0..40).for_each(|count| check(algorithm, count));
        }
    }
}

/// A piece that ends inside an element would never finish, so `Plan::new` refuses it.
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
