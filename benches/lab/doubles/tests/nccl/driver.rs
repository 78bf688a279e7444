//! The CUDA driver: memory, streams, events, contexts.

use std::thread;

use crate::api::{Api, Config};
use crate::rank::{I32, Rank, SUM, await_that, enter, exit, new_id};

fn on_device(settings: &str, body: impl FnOnce(Rank<'_>)) {
    let api = &Api::open(settings);
    enter(api, 0);
    let mut stream = 0;
    assert_eq!(api.stream_create(&mut stream, 1), 0);
    body(Rank { api, rank: 0, comm: 0, stream });
    assert_eq!(api.stream_destroy(stream), 0);
    exit(api, 0);
    assert_eq!(api.control.live_handles(), 0);
}

#[test]
fn devices_are_as_many_as_were_asked_for() {
    let api = Api::open("devices=3");
    let mut count = 0;
    assert_eq!(api.device_count(&mut count), 0);
    assert_eq!(count, 3);
    let mut name = [0u8; 64];
    assert_eq!(api.device_name(name.as_mut_ptr(), 64, 2), 0);
    assert!(name.starts_with(b"test double"));
    assert_eq!(api.device_name(name.as_mut_ptr(), 64, 3), 101);
    assert_eq!(api.allocate(&mut 0, 4), 201, "no context is current");
}

#[test]
fn a_context_is_of_its_thread() {
    let api = &Api::open("contexts");
    let (mut first, mut second, mut found) = (0, 0, 0);
    assert_eq!(api.retain(&mut first, 0), 0);
    assert_eq!(api.retain(&mut second, 1), 0);
    assert_eq!(api.set_current(first), 0);
    assert_eq!(api.push(second), 0);
    assert_eq!(api.get_current(&mut found), 0);
    assert_eq!(found, second);
    assert_eq!(api.pop(&mut found), 0);
    assert_eq!(api.get_current(&mut found), 0);
    assert_eq!(found, first);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut none = 1;
            assert_eq!(api.get_current(&mut none), 0);
            assert_eq!(none, 0);
        });
    });
    assert_eq!(api.set_current(0), 0);
    assert_eq!((api.release(0), api.release(1), api.release(1)), (0, 0, 201));
    assert_eq!(api.push(first), 201, "it was released");
}

#[test]
fn memory_runs_out_and_addresses_are_known() {
    on_device("memory=4096", |rank| {
        let (mut address, mut free, mut total) = (0, 0, 0);
        assert_eq!(rank.api.allocate(&mut address, 4097), 2);
        assert_eq!(rank.api.allocate(&mut address, 0), 1);
        assert_eq!(rank.api.allocate(&mut address, 4000), 0);
        assert_eq!(rank.api.memory_info(&mut free, &mut total), 0);
        assert_eq!((free, total), (96, 4096));
        let kind_and_ordinal = |address| {
            let (mut kind, mut ordinal) = (7, 7);
            let values = [&raw mut kind, &raw mut ordinal];
            assert_eq!(rank.api.pointer_attributes(2, &[2, 9], &values, address), 0);
            (kind, ordinal)
        };
        assert_eq!(kind_and_ordinal(address + 3999), (2, 0), "memory of a device");
        assert_eq!(kind_and_ordinal(address + 4001), (0, -2), "memory of nobody");
        assert_eq!(rank.api.fill(address, 1, 1001, rank.stream), 1);
        assert_eq!(rank.api.free(address + 8), 1);
        assert_eq!(rank.api.free(address), 0);
    });
}

#[test]
fn a_write_past_the_end_is_an_illegal_address() {
    let api = &Api::open("overrun");
    enter(api, 0);
    let mut address = 0;
    assert_eq!(api.allocate(&mut address, 16), 0);
    assert_eq!(api.stream_synchronize(0), 0);
    api.poke(address + 16, 1);
    assert_eq!(api.stream_synchronize(0), 700);
    assert_eq!(api.allocate(&mut address, 16), 700, "the context is lost");
}

#[test]
fn a_stream_waits_for_the_event_of_another() {
    on_device("events", |rank| {
        let api = rank.api;
        let (mut other, mut event, mut later) = (0, 0, 0);
        assert_eq!(api.stream_create(&mut other, 1), 0);
        assert_eq!((api.event_create(&mut event, 0), api.event_create(&mut later, 0)), (0, 0));
        assert_eq!(api.event_query(event), 0, "never recorded");
        let memory = rank.room(4);
        api.control.hold_streams(true);
        assert_eq!(api.fill(memory, 1, 1, rank.stream), 0);
        assert_eq!(api.event_record(event, rank.stream), 0);
        assert_eq!(api.stream_wait(other, event, 0), 0);
        assert_eq!(api.fill(memory, 2, 1, other), 0);
        assert_eq!(api.event_record(later, other), 0);
        assert_eq!((api.event_query(event), api.event_query(later)), (600, 600));
        assert_eq!(api.event_elapsed(&mut 0.0, event, later), 600);
        api.control.hold_streams(false);
        assert_eq!(api.event_synchronize(later), 0);
        assert_eq!(rank.take_numbers(memory, 1), [2]);
        let mut milliseconds = -1.0;
        assert_eq!(api.event_elapsed(&mut milliseconds, event, later), 0);
        assert!(milliseconds >= 0.0);
        assert_eq!(
            (api.event_destroy(event), api.event_destroy(later), api.event_destroy(event)),
            (0, 0, 400)
        );
        assert_eq!(api.stream_destroy(other), 0);
    });
}

#[test]
fn the_default_stream_takes_turns_with_blocking_ones() {
    on_device("default", |rank| {
        let api = rank.api;
        let mut blocking = 0;
        assert_eq!(api.stream_create(&mut blocking, 0), 0);
        let memory = rank.room(4);
        for round in 0..20u32 {
            assert_eq!(api.fill(memory, 2 * round, 1, blocking), 0);
            assert_eq!(api.fill(memory, 2 * round + 1, 1, 0), 0);
            let mut bytes = [0; 4];
            assert_eq!(api.read(bytes.as_mut_ptr(), memory, 4, blocking), 0);
            assert_eq!(api.stream_synchronize(blocking), 0);
            assert_eq!(u32::from_le_bytes(bytes), 2 * round + 1);
        }
        assert_eq!(api.free(memory), 0);
        assert_eq!(api.stream_destroy(blocking), 0);
    });
}

/// A call that does not block is launched by a thread of NCCL's, whose per-thread stream is another one: an event
/// behind the call on its caller's is done although the work hangs. A call that blocks is launched by its caller.
#[test]
fn the_stream_of_a_thread_is_another_one_on_a_thread_of_nccls() {
    const PER_THREAD: usize = 2;
    let api = &Api::open("per-thread");
    enter(api, 0);
    for blocking in [0, 1] {
        let mut comm = 0;
        let config = Config::new(blocking);
        let code = api.init_rank_config(&mut comm, 1, new_id(api), 0, &config);
        assert_eq!(code, if blocking == 0 { 7 } else { 0 });
        let rank = Rank { api, rank: 0, comm, stream: PER_THREAD };
        await_that("the communicator", || rank.async_error() == 0);
        let (own, mut event) = (rank.put_numbers(&[1]), 0);
        assert_eq!((api.stream_synchronize(PER_THREAD), api.event_create(&mut event, 0)), (0, 0));
        api.control.hang_in_stream("ncclAllReduce", 1);
        let code = api.all_reduce(own, own, 1, I32, SUM, comm, PER_THREAD);
        assert!([0, 7].contains(&code));
        await_that("the call", || rank.async_error() == 0);
        await_that("the hang", || api.control.hangs() == 1);
        assert_eq!(api.event_record(event, PER_THREAD), 0);
        if blocking == 0 {
            await_that("the event", || api.event_query(event) == 0);
        } else {
            assert_eq!(api.event_query(event), 600);
        }
        assert_eq!(api.control.hangs(), 1);
        assert_eq!((api.abort(comm), api.event_destroy(event), api.free(own)), (0, 0, 0));
    }
    exit(api, 0);
}

#[test]
fn a_captured_stream_does_nothing() {
    on_device("capture", |rank| {
        let api = rank.api;
        let (mut status, mut graph, mut context, mut current) = (-1, 0, 0, 1);
        assert_eq!(api.stream_context(rank.stream, &mut context), 0);
        assert_eq!(api.get_current(&mut current), 0);
        assert_eq!(context, current);
        let memory = rank.put_numbers(&[1]);
        assert_eq!(api.begin_capture(rank.stream, 0), 0);
        assert_eq!(api.is_capturing(rank.stream, &mut status), 0);
        assert_eq!(status, 1);
        assert_eq!(api.fill(memory, 2, 1, rank.stream), 0);
        assert_eq!(api.end_capture(rank.stream, &mut graph), 0);
        assert_eq!(api.is_capturing(rank.stream, &mut status), 0);
        assert_eq!(status, 0);
        assert_eq!(api.graph_destroy(graph), 0);
        assert_eq!(rank.take_numbers(memory, 1), [1]);
    });
}

/// What no capture sees is refused by 900 and voids the capture: on the thread that captures, and on all others while
/// a capture in global mode goes on, unless the thread's own mode allows it.
#[test]
fn a_capture_is_void_after_what_it_does_not_see() {
    const GLOBAL: i32 = 0;
    const THREAD_LOCAL: i32 = 1;
    const RELAXED: i32 = 2;
    on_device("void", |rank| {
        let (api, mut event) = (rank.api, 0);
        let memory = rank.put_numbers(&[1]);
        assert_eq!((api.stream_synchronize(rank.stream), api.event_create(&mut event, 0)), (0, 0));
        for (of_capture, of_thread, is_here, is_allowed) in [
            (GLOBAL, GLOBAL, true, false),
            (GLOBAL, GLOBAL, false, false),
            (GLOBAL, THREAD_LOCAL, false, true),
            (GLOBAL, THREAD_LOCAL, true, false),
            (GLOBAL, RELAXED, true, true),
            (GLOBAL, RELAXED, false, true),
            (THREAD_LOCAL, GLOBAL, false, true),
            (THREAD_LOCAL, GLOBAL, true, false),
            (RELAXED, GLOBAL, true, true),
        ] {
            let case = (of_capture, of_thread, is_here);
            let expected = if is_allowed { 0 } else { 900 };
            let unsafe_calls = || {
                let (mut mode, mut other) = (of_thread, 0);
                assert_eq!((api.exchange_capture_mode(&mut mode), mode), (0, GLOBAL));
                let found = api.allocate(&mut other, 4);
                if is_allowed {
                    assert_eq!(api.free(other), 0, "{case:?}");
                }
                assert_eq!((found, api.event_query(event)), (expected, expected), "{case:?}");
                assert_eq!((api.exchange_capture_mode(&mut mode), mode), (0, of_thread));
            };
            let (mut status, mut graph) = (-1, 0);
            assert_eq!(api.begin_capture(rank.stream, of_capture), 0);
            if is_here {
                unsafe_calls();
            } else {
                let elsewhere = || {
                    enter(api, 0);
                    unsafe_calls();
                    exit(api, 0);
                };
                thread::scope(|scope| scope.spawn(elsewhere).join().unwrap());
            }
            assert_eq!(api.is_capturing(rank.stream, &mut status), 0);
            assert_eq!(status, if is_allowed { 1 } else { 2 }, "{case:?}");
            let ended = api.end_capture(rank.stream, &mut graph);
            assert_eq!(ended, if is_allowed { 0 } else { 901 }, "{case:?}");
            if is_allowed {
                assert_eq!(api.graph_destroy(graph), 0);
            }
        }
        assert_eq!(api.exchange_capture_mode(&mut 3), 1, "no mode");
        assert_eq!((api.event_destroy(event), api.free(memory)), (0, 0));
    });
}

#[test]
fn a_driver_without_devices_says_so() {
    let library = std::panic::catch_unwind(|| Api::open("devices=0"));
    assert!(library.is_err(), "cuInit gives CUDA_ERROR_NO_DEVICE");
}

#[test]
fn without_kernels_no_code_is_loaded() {
    on_device("kernels", |rank| {
        assert_eq!(rank.api.module_load(&mut 0, c"test double".as_ptr().cast()), 801);
        assert_eq!(rank.api.launch(1, 1, 1, 1, 128, 1, 1, 0, rank.stream, 0, 0), 801);
        assert!(!rank.api.control.load_kernels(std::path::Path::new("/there/is/none.so")));
    });
}
