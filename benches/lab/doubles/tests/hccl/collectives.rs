//! Every collective and message, on three ranks.

use std::sync::Barrier;

use unisono_double_common::memory::{POISON, Part};

use crate::api::{Api, Config, I32, Item, Rank, SUM, run, run_well};
use crate::numbers::{SIZE, input, inputs, sums};

const COUNT: usize = 4;

/// Makes a call with an input and an output, and takes the output.
fn with_buffers(
    rank: Rank<'_>,
    send: usize,
    recv: usize,
    call: impl FnOnce(usize, usize) -> i32,
) -> Vec<i32> {
    let from = rank.put_numbers(&inputs(rank.rank, send));
    let to = rank.room(4 * recv);
    assert_eq!(call(from, to), 0);
    let result = rank.take_numbers(to, recv);
    assert_eq!(rank.take_numbers(from, send), inputs(rank.rank, send), "the input");
    result
}

#[test]
fn collectives_have_the_results_of_their_definitions() {
    let api = &Api::open("collectives");
    let count = COUNT as u64;
    run_well(api, SIZE, |rank| {
        let Rank { comm, stream, .. } = rank;
        let untouched = i32::from_le_bytes([0x5c; 4]);
        let all = with_buffers(rank, COUNT, COUNT, |from, to| {
            api.all_reduce(from, to, count, I32, SUM, comm, stream)
        });
        assert_eq!(all, sums(0, COUNT));
        let own = rank.put_numbers(&inputs(rank.rank, COUNT));
        assert_eq!(api.broadcast(own, count, I32, 1, comm, stream), 0);
        assert_eq!(rank.take_numbers(own, COUNT), inputs(1, COUNT));
        let sum = with_buffers(rank, COUNT, COUNT, |from, to| {
            api.reduce(from, to, count, I32, SUM, 2, comm, stream)
        });
        assert_eq!(sum, if rank.rank == 2 { sums(0, COUNT) } else { vec![untouched; COUNT] });
        let scattered = with_buffers(rank, SIZE * COUNT, COUNT, |from, to| {
            api.reduce_scatter(from, to, count, I32, SUM, comm, stream)
        });
        assert_eq!(scattered, sums(rank.rank * COUNT, COUNT));
        let gathered = with_buffers(rank, COUNT, SIZE * COUNT, |from, to| {
            api.all_gather(from, to, count, I32, comm, stream)
        });
        assert_eq!(gathered, (0..SIZE).flat_map(|peer| inputs(peer, COUNT)).collect::<Vec<_>>());
        let part = |peer: usize, of: usize| inputs(peer, SIZE * COUNT)[of * COUNT..][..COUNT].to_vec();
        let exchanged = with_buffers(rank, SIZE * COUNT, SIZE * COUNT, |from, to| {
            api.all_to_all(from, count, I32, to, count, I32, comm, stream)
        });
        assert_eq!(exchanged, (0..SIZE).flat_map(|peer| part(peer, rank.rank)).collect::<Vec<_>>());
        let scattered = with_buffers(rank, SIZE * COUNT, COUNT, |from, to| {
            api.scatter(from, to, count, I32, 2, comm, stream)
        });
        assert_eq!(scattered, part(2, rank.rank));
        assert_eq!(api.barrier(comm, stream), 0);
        assert_eq!(api.synchronize(stream), 0);
    });
}

#[test]
fn uneven_collectives_follow_counts_and_displacements() {
    let api = &Api::open("uneven");
    // Rank 1 has nothing, and there is a gap before the part of rank 2.
    let (counts, displacements) = ([2u64, 0, 3], [0u64, 2, 3]);
    let whole = 6;
    run_well(api, SIZE, |rank| {
        let Rank { comm, stream, .. } = rank;
        let own = counts[rank.rank];
        let (start, end) = (displacements[rank.rank] as usize, (displacements[rank.rank] + own) as usize);
        let scattered = with_buffers(rank, whole, 3, |from, to| {
            let (counts, displacements) = (counts.as_ptr(), displacements.as_ptr());
            api.reduce_scatter_v(from, counts, displacements, to, own, I32, SUM, comm, stream)
        });
        assert_eq!(scattered[..end - start], sums(0, whole)[start..end]);
        let gathered = with_buffers(rank, 3, whole, |from, to| {
            let (counts, displacements) = (counts.as_ptr(), displacements.as_ptr());
            api.all_gather_v(from, own, to, counts, displacements, I32, comm, stream)
        });
        assert_eq!((&gathered[..2], &gathered[3..]), (&inputs(0, 2)[..], &inputs(2, 3)[..]));
        assert_eq!(gathered[2], i32::from_le_bytes([0x5c; 4]), "the gap");
    });
}

#[test]
fn an_uneven_exchange_follows_its_matrix() {
    let api = &Api::open("matrix");
    // Rank r sends 1 + r + p elements to rank p.
    let matrix: Vec<u64> =
        (0..SIZE).flat_map(|from| (0..SIZE).map(move |to| (1 + from + to) as u64)).collect();
    let row = |rank: usize| matrix[SIZE * rank..][..SIZE].to_vec();
    let starts = |counts: &[u64]| (0..SIZE).map(|at| counts[..at].iter().sum()).collect::<Vec<u64>>();
    run_well(api, SIZE, |rank| {
        let Rank { comm, stream, .. } = rank;
        // The matrix is symmetric, so what comes has the sizes of what goes.
        let counts = row(rank.rank);
        let whole = counts.iter().sum::<u64>() as usize;
        let expected: Vec<i32> = (0..SIZE)
            .flat_map(|peer| {
                let start = starts(&row(peer))[rank.rank] as usize;
                (start..start + counts[peer] as usize).map(move |at| input(peer, at))
            })
            .collect();
        let places = starts(&counts);
        let exchanged = with_buffers(rank, whole, whole, |from, to| {
            let (counts, places) = (counts.as_ptr(), places.as_ptr());
            api.all_to_all_v(from, counts, places, I32, to, counts, places, I32, comm, stream)
        });
        assert_eq!(exchanged, expected);
        let exchanged = with_buffers(rank, whole, whole, |from, to| {
            api.all_to_all_vc(from, matrix.as_ptr(), I32, to, I32, comm, stream)
        });
        assert_eq!(exchanged, expected);
    });
}

#[test]
fn messages_of_a_batch_go_at_once() {
    let api = &Api::open("batch");
    run_well(api, SIZE, |rank| {
        let Rank { comm, stream, .. } = rank;
        let (next, before) = ((rank.rank + 1) % SIZE, (rank.rank + SIZE - 1) % SIZE);
        let received = with_buffers(rank, COUNT, COUNT, |from, to| {
            let item = |kind: i32, buffer: usize, peer: usize| Item {
                kind,
                buffer,
                count: COUNT as u64,
                dtype: I32,
                peer: peer as u32,
            };
            let items = [item(1, to, before), item(0, from, next)];
            api.batch(items.as_ptr(), 2, comm, stream)
        });
        assert_eq!(received, inputs(before, COUNT));
        if rank.rank == 0 {
            let own = rank.put_numbers(&[5]);
            assert_eq!(api.send(own, 1, I32, 2, comm, stream), 0);
            rank.take_numbers(own, 1);
        } else if rank.rank == 2 {
            let own = rank.room(4);
            assert_eq!(api.recv(own, 1, I32, 0, comm, stream), 0);
            assert_eq!(rank.take_numbers(own, 1), [5]);
        }
    });
}

#[test]
fn an_output_is_rubbish_until_the_work_is_done() {
    let api = &Api::open("poison");
    let both = Barrier::new(2);
    run_well(api, 2, |rank| {
        let own = rank.put_numbers(&[1]);
        let result = rank.room(4);
        both.wait();
        api.control.hold_streams(true);
        both.wait();
        assert_eq!(api.all_reduce(own, result, 1, I32, SUM, rank.comm, rank.stream), 0);
        assert_eq!(api.peek(Part::new(result, 4)), [POISON; 4]);
        assert_eq!(api.synchronize_for(rank.stream, 5), 107_020);
        both.wait();
        api.control.hold_streams(false);
        assert_eq!(rank.take_numbers(result, 1), [2]);
        rank.take_numbers(own, 1);
    });
}

#[test]
fn sub_communicators_have_the_ranks_that_were_named() {
    let api = &Api::open("sub");
    let config = Config::new(0xf0f0_f0f0);
    let results = run_well(api, 3, |rank| {
        // 2 and 0 in this order; 1 is in none.
        let ranks = [2u32, 0];
        let mut child = 1;
        if rank.rank == 1 {
            let code = api.sub_comm(&rank.comm, 0, std::ptr::null(), 0xffff_ffff, 0, &config, &mut child);
            assert_eq!((code, child), (0, 0));
            return (0, 0);
        }
        let place = u32::from(rank.rank == 0);
        assert_eq!(api.sub_comm(&rank.comm, 2, ranks.as_ptr(), 7, place, &config, &mut child), 0);
        let mut own = 9;
        assert_eq!(api.rank_id(child, &mut own), 0);
        let memory = rank.put_numbers(&[10i32.pow(rank.rank as u32)]);
        assert_eq!(api.all_reduce(memory, memory, 1, I32, SUM, child, rank.stream), 0);
        let sum = rank.take_numbers(memory, 1)[0];
        assert_eq!(api.destroy(child), 0);
        (sum, own)
    });
    assert_eq!(results, [(101, 1), (0, 0), (101, 0)]);
}

#[test]
fn events_and_streams_wait() {
    let api = &Api::open("events");
    run(api, 1, |rank| {
        let (mut other, mut event, mut status) = (0, 0, -1);
        assert_eq!((api.stream_create(&mut other), api.event_create(&mut event)), (0, 0));
        let (from, to) = (rank.put_numbers(&[7]), rank.put_numbers(&[8]));
        api.control.hold_streams(true);
        assert_eq!(api.copy_async(to, 4, from, 4, 3, rank.stream), 0);
        assert_eq!(api.event_record(event, rank.stream), 0);
        assert_eq!(api.stream_wait(other, event), 0);
        let last = rank.put_numbers(&[9]);
        assert_eq!(api.copy_async(last, 4, to, 4, 3, other), 0);
        assert_eq!(api.event_query(event, &mut status), 0);
        assert_eq!(status, 0, "not yet");
        api.control.hold_streams(false);
        assert_eq!(api.event_synchronize(event), 0);
        assert_eq!(api.synchronize(other), 0);
        assert_eq!(rank.take_numbers(last, 1), [7]);
        let mut status = 1;
        assert_eq!(api.stream_query(other, &mut status), 0);
        assert_eq!(status, 0, "all is done");
        assert_eq!((api.free(from), api.free(to)), (0, 0));
        assert_eq!((api.event_destroy(event), api.stream_destroy(other)), (0, 0));
        assert_eq!(api.destroy(rank.comm), 0);
    });
    assert_eq!(api.control.live_handles(), 0);
}
