//! The calls that are measured, what goes in, and what must come out.

use unisono::{Collective, Collectives, CollectivesPrefix, Communicator, Peer, ReduceOp, Result};
use unisono_compare::ComparedOperation;

/// Values repeat after a prime number of elements, so that a shift by any block length shows.
const PATTERN_PERIOD: usize = 61;
/// Of the messages of a round trip.
const TAG: u32 = 7;

/// Element i of rank r's input is (r + 1) * (i % PATTERN_PERIOD + 1): every sum of ranks is exact in f32.
fn pattern(scale: u32, first: usize) -> impl Iterator<Item = f32> {
    let cycle = (1..=PATTERN_PERIOD).cycle().skip(first % PATTERN_PERIOD);
    cycle.map(move |value| scale as f32 * value as f32)
}

fn matches(found: &[f32], scale: u32, first: usize) -> bool {
    found.iter().zip(pattern(scale, first)).all(|(found, expected)| *found == expected)
}

/// Sets `input` up for rank `rank`.
pub(crate) fn fill(input: &mut [f32], rank: u32) {
    for (element, value) in input.iter_mut().zip(pattern(rank + 1, 0)) {
        *element = value;
    }
}

/// One call. `a` is the input, or both in place; `b` the output, and where a message is received. Both are as long as
/// the whole buffer of the operation.
pub(crate) fn call(
    operation: ComparedOperation,
    comm: &dyn Communicator,
    root: u32,
    a: &mut [f32],
    b: &mut [f32],
) -> Result<()> {
    let share = a.len() / comm.group().size() as usize;
    let is_root = comm.group().rank() == root;
    match operation {
        ComparedOperation::Collective(collective) => match collective {
            Collective::AllReduce => comm.all_reduce(a, ReduceOp::Sum),
            Collective::ReduceScatter => comm.reduce_scatter(a, &mut b[..share], ReduceOp::Sum),
            Collective::AllGather => comm.all_gather(&a[..share], b),
            Collective::AllToAll => comm.all_to_all(a, b),
            Collective::Broadcast => comm.broadcast(a, root),
            Collective::Reduce => comm.reduce_in_place(a, ReduceOp::Sum, root),
            Collective::Gather => comm.gather(&a[..share], is_root.then_some(b), root),
            Collective::Scatter => comm.scatter(is_root.then_some(&*a), &mut b[..share], root),
            Collective::Barrier => comm.barrier(),
            Collective::Scan => comm.scan(a, ReduceOp::Sum),
            Collective::Exscan => comm.exscan(a, ReduceOp::Sum),
        },
        ComparedOperation::SendRecv => match comm.group().rank() {
            0 => {
                comm.send(a, 1, TAG)?;
                comm.recv(b, Peer::Rank(1), TAG).map(drop)
            }
            1 => {
                comm.recv(b, Peer::Rank(0), TAG)?;
                comm.send(b, 0, TAG)
            }
            _ => Ok(()),
        },
    }
}

/// Whether every element on this rank is what the operation with root 0 must give after [`fill`]. A barrier has none.
pub(crate) fn is_right(operation: ComparedOperation, rank: u32, ranks: u32, a: &[f32], b: &[f32]) -> bool {
    let share = a.len() / ranks as usize;
    let own = share * rank as usize;
    let sum = ranks * (ranks + 1) / 2;
    let parts =
        |first: usize| (0..ranks).all(|from| matches(&b[share * from as usize..][..share], from + 1, first));
    match operation {
        ComparedOperation::Collective(collective) => match collective {
            Collective::AllReduce => matches(a, sum, 0),
            Collective::ReduceScatter => matches(&b[..share], sum, own),
            Collective::AllGather => parts(0),
            Collective::AllToAll => parts(own),
            Collective::Broadcast => matches(a, 1, 0),
            Collective::Reduce => rank != 0 || matches(a, sum, 0),
            Collective::Gather => rank != 0 || parts(0),
            Collective::Scatter => matches(&b[..share], 1, own),
            Collective::Barrier => true,
            Collective::Scan => matches(a, (rank + 1) * (rank + 2) / 2, 0),
            // Rank 0 keeps its vector.
            Collective::Exscan => matches(a, if rank == 0 { 1 } else { rank * (rank + 1) / 2 }, 0),
        },
        ComparedOperation::SendRecv => rank > 1 || matches(b, 1, 0),
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use unisono::in_process;

    use super::*;

    #[test]
    fn right_results_pass_and_one_wrong_element_does_not() {
        const RANKS: u32 = 4;
        const ELEMENTS: usize = 512;
        let collectives = Collective::ALL.into_iter().map(ComparedOperation::Collective);
        for operation in collectives.chain([ComparedOperation::SendRecv]) {
            let check = |comm: &dyn Communicator| {
                let rank = comm.group().rank();
                let (mut a, mut b) = (vec![0.0; ELEMENTS], vec![0.0; ELEMENTS]);
                fill(&mut a, rank);
                call(operation, comm, 0, &mut a, &mut b).unwrap();
                assert!(is_right(operation, rank, RANKS, &a, &b), "{operation} on rank {rank}");
                (a[3], b[3]) = (a[3] + 1.0, b[3] + 1.0);
                let has_none = match operation {
                    ComparedOperation::Collective(Collective::Barrier) => true,
                    ComparedOperation::Collective(Collective::Reduce | Collective::Gather) => rank != 0,
                    ComparedOperation::Collective(_) => false,
                    ComparedOperation::SendRecv => rank > 1,
                };
                assert_eq!(is_right(operation, rank, RANKS, &a, &b), has_none, "{operation} on rank {rank}");
            };
            let world = in_process::world(RANKS);
            thread::scope(|scope| world.iter().for_each(|comm| drop(scope.spawn(|| check(&**comm)))));
        }
    }
}
