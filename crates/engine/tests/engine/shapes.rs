//! Calls that differ although their counts are equal: in the division of their memory, the lengths of coalesced
//! buffers, the bits of a factor.

use std::sync::mpsc;
use std::time::Duration;

use unisono_collectives::Collectives;
use unisono_communicator::{Communicator, Error, ReduceOp, Result};
use unisono_engine::in_process;

const WATCHDOG: Duration = Duration::from_secs(60);

/// The result of `body` on each of `ranks` ranks.
fn on_each<T: Send + 'static>(
    ranks: u32,
    body: impl Fn(&dyn Communicator) -> T + Send + Sync + Clone + 'static,
) -> Vec<T> {
    let (done, results) = mpsc::channel();
    let all = std::thread::spawn(move || {
        let world = in_process::world(ranks);
        let results: Vec<T> = std::thread::scope(|scope| {
            let ranks: Vec<_> = world
                .iter()
                .map(|comm| (comm, body.clone()))
                .map(|(comm, body)| scope.spawn(move || body(&**comm)))
                .collect();
            ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
        });
        let _ = done.send(results);
    });
    match results.recv_timeout(WATCHDOG) {
        Ok(results) => results,
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("the test hangs"),
        Err(mpsc::RecvTimeoutError::Disconnected) => std::panic::resume_unwind(all.join().unwrap_err()),
    }
}

/// Reduces coalesced buffers of these lengths, with all elements 1. A barrier follows, so that every rank learns of a
/// mismatch that only other ranks can see.
fn coalesced(comm: &dyn Communicator, lengths: &[usize]) -> Result<Vec<Vec<f32>>> {
    let mut buffers: Vec<Vec<f32>> = lengths.iter().map(|length| vec![1.0; *length]).collect();
    let mut list: Vec<&mut [f32]> = buffers.iter_mut().map(Vec::as_mut_slice).collect();
    comm.all_reduce_coalesced(&mut list, ReduceOp::Sum)?;
    comm.barrier()?;
    Ok(buffers)
}

#[test]
fn segments_of_other_lengths_are_a_mismatch_on_every_rank() {
    let large: [&[usize]; 2] = [&[70_000, 2], &[2, 70_000]];
    let cases: [([&[usize]; 2], &str); 5] = [
        ([&[4, 2], &[2, 4]], "segment lengths [4, 2] / [2, 4]"),
        ([&[6], &[0, 6]], "segment lengths [6] / [0, 6]"),
        ([&[6, 0], &[3, 3]], "segment lengths [6, 0] / [3, 3]"),
        ([&[], &[0]], "segment lengths [] / [0]"),
        (large, "segment lengths [70000, 2] / [2, 70000]"),
    ];
    for ranks in [2, 3] {
        for (lengths, expected) in cases {
            let odd = move |comm: &dyn Communicator| usize::from(comm.group().rank() + 1 == ranks);
            let errors = on_each(ranks, move |comm| coalesced(comm, lengths[odd(comm)]).unwrap_err());
            for error in errors {
                let Error::Mismatch { difference, .. } = error.root_cause() else { panic!("{error}") };
                let reverse = format!("segment lengths {:?} / {:?}", lengths[1], lengths[0]);
                assert!([expected, &reverse].contains(&&**difference), "{ranks} ranks: {error}");
                assert!(!error.to_string().contains('#'), "{error}");
            }
        }
    }
}

#[test]
fn equal_segments_are_reduced_whatever_came_before() {
    let shapes: [&[usize]; 6] = [&[4, 2], &[2, 4], &[0, 6, 0], &[6], &[], &[0, 0]];
    let all = on_each(3, move |comm| {
        // Twice, so that the plans of the first round are used again.
        let rounds = shapes.iter().chain(&shapes);
        rounds.map(|lengths| coalesced(comm, lengths).unwrap()).collect::<Vec<_>>()
    });
    for (lengths, buffers) in all.iter().flat_map(|of_rank| shapes.iter().chain(&shapes).zip(of_rank)) {
        let expected: Vec<Vec<f32>> = lengths.iter().map(|length| vec![3.0; *length]).collect();
        assert_eq!(*buffers, expected);
    }
}

#[test]
fn one_segment_is_as_good_as_none() {
    let all = on_each(2, |comm| {
        let mut buffer = [1i32; 5];
        match comm.group().rank() {
            0 => comm.all_reduce_coalesced(&mut [&mut buffer], ReduceOp::Sum).unwrap(),
            _ => comm.all_reduce(&mut buffer, ReduceOp::Sum).unwrap(),
        }
        buffer
    });
    assert_eq!(all, [[2; 5]; 2]);
}

#[test]
fn a_list_here_is_a_slice_there() {
    let all = on_each(2, |comm| {
        let is_list = comm.group().rank() == 0;
        let (mut share, mut gathered) = ([0i32; 2], [0i32; 4]);
        for _ in 0..2 {
            if is_list {
                comm.reduce_scatter_list(&[&[1, 2], &[3, 4]], &mut share, ReduceOp::Sum).unwrap();
                let (first, second) = gathered.split_at_mut(2);
                comm.all_gather_list(&share, &mut [first, second]).unwrap();
            } else {
                comm.reduce_scatter(&[10, 20, 30, 40], &mut share, ReduceOp::Sum).unwrap();
                comm.all_gather(&share, &mut gathered).unwrap();
            }
        }
        gathered
    });
    assert_eq!(all, [[11, 22, 33, 44]; 2]);
}

#[test]
fn a_list_whose_parts_are_not_the_shares_is_refused() {
    let all = on_each(2, |comm| {
        let scattered = comm.reduce_scatter_list(&[&[1, 2, 3], &[10]], &mut [0; 2], ReduceOp::Sum);
        let (mut long, mut short) = ([0; 3], [0; 1]);
        let gathered = comm.all_gather_list(&[1, 2], &mut [&mut long, &mut short]);
        comm.barrier().unwrap();
        [scattered, gathered].map(|result| result.unwrap_err().to_string())
    });
    for [scattered, gathered] in all {
        let problem = "segment 0 has 3 elements, but the share of rank 0 in";
        let expected = |argument: &str, call: &str| {
            format!("invalid {argument}: {problem} {call} has 2, in {call} at {}:", file!())
        };
        assert!(scattered.starts_with(&expected("input", "reduce_scatter(2 x i32, sum)")), "{scattered}");
        assert!(gathered.starts_with(&expected("output", "all_gather(2 x i32)")), "{gathered}");
    }
}

#[test]
fn factors_are_told_apart_by_their_bits() {
    let all = on_each(2, |comm| {
        [0.0, -0.0, f64::NAN, 0.0].map(|factor| {
            let mut buffer = [1.0f32];
            comm.all_reduce(&mut buffer, ReduceOp::PreMulSum(factor)).unwrap();
            buffer[0].to_bits()
        })
    });
    for [plus, minus, nan, again] in all {
        assert_eq!([plus, minus, again], [0.0f32.to_bits(), (-0.0f32).to_bits(), 0.0f32.to_bits()]);
        assert!(f32::from_bits(nan).is_nan());
    }
}

#[test]
fn uneven_counts_that_differ_are_shown() {
    let errors = on_each(2, |comm| {
        use unisono_collectives::CollectivesUneven;
        let counts = [[3, 4], [3, 9]][comm.group().rank() as usize];
        let own = vec![1u8; counts[comm.group().rank() as usize]];
        let mut all = vec![0u8; counts[0] + counts[1]];
        comm.all_gather_v(&own, &mut all, &counts).and_then(|()| comm.barrier()).unwrap_err()
    });
    for error in errors {
        let Error::Mismatch { difference, .. } = error.root_cause() else { panic!("{error}") };
        assert!(["counts [3, 4] / [3, 9]", "counts [3, 9] / [3, 4]"].contains(&&**difference), "{error}");
    }
}
