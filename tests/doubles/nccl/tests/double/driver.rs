//! The CUDA driver: memory, streams, events, contexts.

use std::thread;

use crate::api::Api;
use crate::rank::{Rank, enter, exit};

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
        let (mut address, mut free, mut total, mut value) = (0, 0, 0, 0);
        assert_eq!(rank.api.allocate(&mut address, 4097), 2);
        assert_eq!(rank.api.allocate(&mut address, 0), 1);
        assert_eq!(rank.api.allocate(&mut address, 4000), 0);
        assert_eq!(rank.api.memory_info(&mut free, &mut total), 0);
        assert_eq!((free, total), (96, 4096));
        assert_eq!(rank.api.pointer_attribute(&mut value, 2, address + 3999), 0);
        assert_eq!(value as u32, 2, "memory of a device");
        assert_eq!(rank.api.pointer_attribute(&mut value, 9, address + 4001), 1);
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
        assert_eq!(api.stream_synchronize(rank.stream), 900);
        assert_eq!(api.end_capture(rank.stream, &mut graph), 0);
        assert_eq!(api.is_capturing(rank.stream, &mut status), 0);
        assert_eq!(status, 0);
        assert_eq!(api.graph_destroy(graph), 0);
        assert_eq!(rank.take_numbers(memory, 1), [1]);
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
