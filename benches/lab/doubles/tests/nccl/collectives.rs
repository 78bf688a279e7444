//! Every collective and message, on three ranks.

use std::sync::Barrier;

use unisono_double_common::memory::{POISON, Part};

use crate::api::Api;
use crate::numbers::{SIZE, input, inputs, sums};
use crate::rank::{F32, I8, I32, Rank, SUM, run_well};

const COUNT: usize = 5;

/// Makes a call with an input and an output, and takes the output.
fn with_buffers(
    rank: Rank<'_>,
    send: usize,
    recv: usize,
    call: impl FnOnce(usize, usize) -> i32,
) -> Vec<i32> {
    let from = rank.put_numbers(&inputs(rank.rank, send));
    let to = rank.room(4 * recv);
    assert_eq!(call(from, to), 0, "{}", rank.api.text(rank.api.last_error(rank.comm)));
    let result = rank.take_numbers(to, recv);
    assert_eq!(rank.take_numbers(from, send), inputs(rank.rank, send), "the input");
    result
}

#[test]
fn collectives_have_the_results_of_their_definitions() {
    let api = &Api::open("collectives");
    run_well(api, SIZE, |rank| {
        let Rank { comm, stream, .. } = rank;
        let all = with_buffers(rank, COUNT, COUNT, |from, to| {
            api.all_reduce(from, to, COUNT, I32, SUM, comm, stream)
        });
        assert_eq!(all, sums(0, COUNT));
        let copy =
            with_buffers(rank, COUNT, COUNT, |from, to| api.broadcast(from, to, COUNT, I32, 1, comm, stream));
        assert_eq!(copy, inputs(1, COUNT));
        let scattered = with_buffers(rank, SIZE * COUNT, COUNT, |from, to| {
            api.reduce_scatter(from, to, COUNT, I32, SUM, comm, stream)
        });
        assert_eq!(scattered, sums(rank.rank * COUNT, COUNT));
        let gathered = with_buffers(rank, COUNT, SIZE * COUNT, |from, to| {
            api.all_gather(from, to, COUNT, I32, comm, stream)
        });
        assert_eq!(gathered, (0..SIZE).flat_map(|peer| inputs(peer, COUNT)).collect::<Vec<_>>());
        let part = |peer: usize, of: usize| inputs(peer, SIZE * COUNT)[of * COUNT..][..COUNT].to_vec();
        let exchanged = with_buffers(rank, SIZE * COUNT, SIZE * COUNT, |from, to| {
            api.all_to_all(from, to, COUNT, I32, comm, stream)
        });
        assert_eq!(exchanged, (0..SIZE).flat_map(|peer| part(peer, rank.rank)).collect::<Vec<_>>());
        let scattered = with_buffers(rank, SIZE * COUNT, COUNT, |from, to| {
            api.scatter(from, to, COUNT, I32, 2, comm, stream)
        });
        assert_eq!(scattered, part(2, rank.rank));
    });
    assert_eq!((api.control.live_handles(), api.control.misuses()), (0, 0));
}

#[test]
fn only_the_root_has_the_result_of_a_rooted_call() {
    let api = &Api::open("rooted");
    let untouched = i32::from_le_bytes([0x5c; 4]);
    run_well(api, SIZE, |rank| {
        let Rank { comm, stream, .. } = rank;
        let sum = with_buffers(rank, COUNT, COUNT, |from, to| {
            api.reduce(from, to, COUNT, I32, SUM, 2, comm, stream)
        });
        let expected = if rank.rank == 2 { sums(0, COUNT) } else { vec![untouched; COUNT] };
        assert_eq!(sum, expected);
        let gathered = with_buffers(rank, COUNT, SIZE * COUNT, |from, to| {
            api.gather(from, to, COUNT, I32, 0, comm, stream)
        });
        let all = (0..SIZE).flat_map(|peer| inputs(peer, COUNT)).collect();
        assert_eq!(gathered, if rank.rank == 0 { all } else { vec![untouched; SIZE * COUNT] });
    });
    assert_eq!(api.control.live_handles(), 0);
}

#[test]
fn calls_work_in_place() {
    let api = &Api::open("in-place");
    run_well(api, SIZE, |rank| {
        let Rank { comm, stream, .. } = rank;
        let own = rank.put_numbers(&inputs(rank.rank, COUNT));
        assert_eq!(api.all_reduce(own, own, COUNT, I32, SUM, comm, stream), 0);
        assert_eq!(rank.take_numbers(own, COUNT), sums(0, COUNT));

        let all = rank.room(4 * SIZE * COUNT);
        let own = all + 4 * rank.rank * COUNT;
        let bytes: Vec<u8> = inputs(rank.rank, COUNT).iter().flat_map(|one| one.to_le_bytes()).collect();
        assert_eq!(api.write(own, bytes.as_ptr(), bytes.len(), stream), 0);
        assert_eq!(api.all_gather(own, all, COUNT, I32, comm, stream), 0);
        let expected: Vec<i32> = (0..SIZE).flat_map(|peer| inputs(peer, COUNT)).collect();
        assert_eq!(rank.take_numbers(all, SIZE * COUNT), expected);
    });
}

#[test]
fn operators_scale_before_the_sum() {
    let api = &Api::open("operators");
    run_well(api, SIZE, |rank| {
        let factor = (rank.rank + 2) as f32;
        let mut op = 0;
        let bytes = factor.to_le_bytes();
        assert_eq!(api.create_operator(&mut op, bytes.as_ptr(), F32, 1, rank.comm), 0);
        let device = rank.put(&factor.to_le_bytes());
        let mut op_on_device = 0;
        let pointer = device as *const u8;
        assert_eq!(api.create_operator(&mut op_on_device, pointer, F32, 0, rank.comm), 0);
        for op in [op, op_on_device] {
            let own = rank.put(&10f32.to_le_bytes());
            assert_eq!(api.all_reduce(own, own, 1, F32, op, rank.comm, rank.stream), 0);
            assert_eq!(rank.take(own, 4), 90f32.to_le_bytes());
            assert_eq!(
                api.all_reduce(device, device, 1, I32, op, rank.comm, rank.stream),
                4,
                "of another type"
            );
            assert_eq!(api.destroy_operator(op, rank.comm), 0);
        }
        assert_eq!(api.all_reduce(device, device, 1, F32, op, rank.comm, rank.stream), 4, "destroyed");
        assert_eq!(api.free(device), 0);
    });
    assert_eq!(api.control.live_handles(), 0);
}

#[test]
fn messages_of_a_group_go_at_once() {
    let api = &Api::open("messages");
    run_well(api, SIZE, |rank| {
        let Rank { comm, stream, .. } = rank;
        let next = ((rank.rank + 1) % SIZE) as i32;
        let before = (rank.rank + SIZE - 1) % SIZE;
        let (own, other) = (rank.put_numbers(&inputs(rank.rank, COUNT)), rank.room(4 * COUNT));
        let (own_again, zero) = (rank.room(4 * COUNT), rank.rank as i32);
        assert_eq!(api.group_start(), 0);
        assert_eq!(api.recv(other, COUNT, I32, before as i32, comm, stream), 0);
        assert_eq!(api.send(own, COUNT, I32, zero, comm, stream), 0);
        assert_eq!(api.send(own, COUNT, I32, next, comm, stream), 0);
        assert_eq!(api.recv(own_again, COUNT, I32, zero, comm, stream), 0);
        assert_eq!(api.group_end(), 0);
        assert_eq!(rank.take_numbers(other, COUNT), inputs(before, COUNT));
        assert_eq!(rank.take_numbers(own_again, COUNT), inputs(rank.rank, COUNT));
        assert_eq!(rank.take_numbers(own, COUNT), inputs(rank.rank, COUNT));
    });
    assert_eq!((api.control.live_handles(), api.control.misuses()), (0, 0));
}

#[test]
fn a_send_waits_for_its_receive() {
    let api = &Api::open("send");
    run_well(api, 2, |rank| {
        let memory = rank.put(&[7; 4]);
        assert_eq!(api.stream_synchronize(rank.stream), 0);
        if rank.rank == 0 {
            assert_eq!(api.send(memory, 4, I8, 1, rank.comm, rank.stream), 0);
            // Nothing was received: rank 1 waits for this one's message first.
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert_eq!(api.stream_query(rank.stream), 600);
            assert_eq!(api.free(rank.room(1)), 0, "waits for the receive");
        } else {
            std::thread::sleep(std::time::Duration::from_millis(100));
            assert_eq!(api.recv(memory, 4, I8, 0, rank.comm, rank.stream), 0);
        }
        rank.take(memory, 4);
    });
}

#[test]
fn an_output_is_rubbish_until_the_work_is_done() {
    let api = &Api::open("poison");
    let both = Barrier::new(2);
    run_well(api, 2, |rank| {
        let own = rank.put_numbers(&inputs(rank.rank, COUNT));
        let result = rank.room(4 * COUNT);
        assert_eq!(api.stream_synchronize(rank.stream), 0);
        both.wait();
        api.control.hold_streams(true);
        both.wait();
        assert_eq!(api.all_reduce(own, result, COUNT, I32, SUM, rank.comm, rank.stream), 0);
        assert_eq!(api.peek(Part::new(result, 4 * COUNT)), [POISON; 4 * COUNT]);
        assert_eq!(api.peek(Part::new(own, 1)), [input(rank.rank, 0) as u8], "the input stays");
        assert_eq!(api.stream_query(rank.stream), 600);
        both.wait();
        api.control.hold_streams(false);
        let expected: Vec<i32> = (0..COUNT).map(|at| input(0, at) + input(1, at)).collect();
        assert_eq!(rank.take_numbers(result, COUNT), expected);
        rank.take_numbers(own, COUNT);
    });
}

#[test]
fn a_reader_before_the_call_has_what_was_there() {
    let api = &Api::open("reader");
    run_well(api, 2, |rank| {
        let own = rank.put_numbers(&[1]);
        let result = rank.put_numbers(&[42]);
        let copy = rank.room(4);
        assert_eq!(api.copy(copy, result, 4, rank.stream), 0);
        assert_eq!(api.all_reduce(own, result, 1, I32, SUM, rank.comm, rank.stream), 0);
        assert_eq!(rank.take_numbers(copy, 1), [42]);
        assert_eq!(rank.take_numbers(result, 1), [2]);
        rank.take_numbers(own, 1);
    });
}

#[test]
fn every_type_is_summed() {
    let api = &Api::open("types");
    // The encodings of 1 and 3, for i8, u8, i32, u32, i64, u64, f16, f32, f64, bf16, f8e4m3 and f8e5m2.
    let ones: [(&[u8], &[u8]); 12] = [
        (&[1], &[3]),
        (&[1], &[3]),
        (&[1, 0, 0, 0], &[3, 0, 0, 0]),
        (&[1, 0, 0, 0], &[3, 0, 0, 0]),
        (&[1, 0, 0, 0, 0, 0, 0, 0], &[3, 0, 0, 0, 0, 0, 0, 0]),
        (&[1, 0, 0, 0, 0, 0, 0, 0], &[3, 0, 0, 0, 0, 0, 0, 0]),
        (&[0, 0x3c], &[0, 0x42]),
        (&[0, 0, 0x80, 0x3f], &[0, 0, 0x40, 0x40]),
        (&[0, 0, 0, 0, 0, 0, 0xf0, 0x3f], &[0, 0, 0, 0, 0, 0, 8, 0x40]),
        (&[0x80, 0x3f], &[0x40, 0x40]),
        (&[0x38], &[0x44]),
        (&[0x3c], &[0x42]),
    ];
    run_well(api, SIZE, |rank| {
        for (dtype, (one, three)) in (0..).zip(ones) {
            let own = rank.put(one);
            assert_eq!(api.all_reduce(own, own, 1, dtype, SUM, rank.comm, rank.stream), 0);
            assert_eq!(rank.take(own, one.len()), three, "type {dtype}");
        }
    });
}
