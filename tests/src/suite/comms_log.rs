//! The communication log over communicators with several ranks (rows I1, I3, I11). Its own tests are beside it.

use std::sync::Barrier;
use std::time::Duration;

use unisono_collectives::{Collectives, CollectivesAsync, CollectivesOfObjects, CollectivesUneven};
use unisono_communicator::{Bytes, CallOptions, CommsLogger, Communicator, Error, Peer, ReduceOp};
use unisono_compression::{CompressedCollectives, CompressionState, SignL1};

use crate::backend::Backend;
use crate::world::{options, run};

/// The rows as name, parent, ranks, size, count.
fn rows(log: &CommsLogger) -> Vec<(String, Option<String>, u32, u64, u64)> {
    let rows = log.report().rows.into_iter();
    rows.map(|row| (row.name, row.parent, row.ranks, row.bytes_max, row.count)).collect()
}

fn row(name: &str, ranks: u32, bytes: u64, count: u64) -> (String, Option<String>, u32, u64, u64) {
    (name.to_owned(), None, ranks, bytes, count)
}

/// The figures count the ranks of the group, not of the job, and uneven shares as they are.
pub fn i1_i3_figures_are_of_the_group(backend: &dyn Backend) {
    run(backend, 3, &options(), |comm| {
        let log = comm.group().comms_logger();
        let pair = comm.split(Some(comm.rank() / 2), 0).unwrap().unwrap();
        log.start();
        comm.all_reduce(&mut [1.0f32; 256], ReduceOp::Sum).unwrap();
        pair.all_gather(&[1u8; 8], &mut vec![0u8; 8 * pair.size() as usize]).unwrap();
        let mine = vec![0u16; comm.rank() as usize];
        comm.all_gather_v(&mine, &mut [0u16; 3], &[0, 1, 2]).unwrap();
        let size = pair.size();
        let expected = [
            row("all_gather", size, 8 * u64::from(size), 1),
            row("all_gather_v", 3, 6, 1),
            row("all_reduce", 3, 1024, 1),
        ];
        assert_eq!(rows(log), expected);
        let size = f64::from(size);
        for (row, expected) in log.report().rows.iter().zip([(size - 1.0) / size, 2.0 / 3.0, 4.0 / 3.0]) {
            let factor = row.bandwidth.busbw_gb_per_s / row.bandwidth.algbw_gb_per_s;
            assert!((factor - expected).abs() < 1e-9, "{} of {} ranks: {factor}", row.name, row.ranks);
            let gb_per_s = row.bytes_max as f64 / row.times.sum_ns() as f64;
            assert!((row.bandwidth.algbw_gb_per_s / gb_per_s - 1.0).abs() < 1e-9, "{}", row.name);
        }
        comm.close().unwrap();
    });
}

/// An asynchronous call is over when the library sees its end; nobody has to wait for it. Its time has the wait for the
/// other rank in it.
pub fn i11_asynchronous_calls_are_timed_without_waiting(backend: &dyn Backend) {
    let both = Barrier::new(2);
    run(backend, 2, &options(), |comm| {
        let (log, is_early) = (comm.group().comms_logger(), comm.rank() == 0);
        log.start();
        let early = is_early.then(|| comm.all_reduce_async(vec![1u32], ReduceOp::Sum));
        // Asking begins the call, unless the progress thread is about to.
        assert!(early.as_ref().is_none_or(|call| !call.is_done()));
        std::thread::sleep(Duration::from_millis(20));
        both.wait();
        if !is_early {
            std::thread::sleep(Duration::from_millis(50));
        }
        let call = early.unwrap_or_else(|| comm.all_reduce_async(vec![1u32], ReduceOp::Sum));
        while log.count("all_reduce") == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let shortest_ns = log.report().rows[0].times.min_ns();
        assert!(!is_early || shortest_ns >= 50_000_000, "{shortest_ns} ns");
        assert_eq!(call.wait().unwrap(), [2]);
        log.reset();
        let works: Vec<_> = (0..5).map(|_| comm.all_reduce_async(vec![1u32; 1000], ReduceOp::Sum)).collect();
        // It waits for the calls before it.
        comm.barrier().unwrap();
        assert_eq!(rows(log), [row("all_reduce", 2, 4000, 5), row("barrier", 2, 0, 1)]);
        let times = &log.report().rows[0].times;
        assert!(times.min_ns() > 0 && times.sum_ns() >= 5 * times.min_ns());
        let values: Vec<_> = works.into_iter().map(|work| work.wait().unwrap()[0]).collect();
        assert_eq!((values, log.count("all_reduce")), (vec![2; 5], 5));
        comm.close().unwrap();
    });
}

/// Copies and groups of the world have its log; a compressed call is one call with parts.
pub fn derived_communicators_and_parts(backend: &dyn Backend) {
    run(backend, 2, &options(), |comm| {
        let log = comm.group().comms_logger();
        log.start();
        let copy = comm.duplicate().unwrap();
        let group = comm.subgroup(&[1, 0]).unwrap().unwrap();
        for comm in [&copy, &group] {
            comm.with(CallOptions::new().log_name("mine")).broadcast(&mut [1u8; 64], 0).unwrap();
        }
        assert_eq!(rows(log), [row("mine", 2, 64, 2)]);
        log.reset();
        let mut state = CompressionState::new::<f32>(comm, SignL1::default(), 1024).unwrap();
        comm.compressed_all_reduce(&mut [1.0f32; 1024], ReduceOp::Avg, &mut state).unwrap();
        let all = log.report().rows;
        let parents: Vec<_> = all.iter().filter(|row| row.parent.is_none()).collect();
        assert_eq!((parents.len(), parents[0].bytes_max, log.count("all_reduce")), (1, 4096, 1));
        let parts = all.iter().filter(|row| row.parent.as_ref() == Some(&parents[0].name));
        assert!(parts.map(|row| row.count).sum::<u64>() >= 2);
        comm.close().unwrap();
    });
}

/// A call that was in progress when the log was switched on or off is not in it.
pub fn switched_in_mid_call(backend: &dyn Backend) {
    let both = Barrier::new(2);
    run(backend, 2, &options(), |comm| {
        let log = comm.group().comms_logger();
        for starts in [true, false] {
            if !starts {
                log.start();
            }
            let call = (comm.rank() == 0).then(|| comm.all_reduce_async(vec![1u32], ReduceOp::Sum));
            // Asking begins the call, unless the progress thread is about to.
            assert!(call.as_ref().is_none_or(|call| !call.is_done()));
            std::thread::sleep(Duration::from_millis(20));
            both.wait();
            if starts {
                log.start()
            } else {
                log.stop()
            }
            both.wait();
            let call = call.unwrap_or_else(|| comm.all_reduce_async(vec![1u32], ReduceOp::Sum));
            assert_eq!(call.wait().unwrap(), [2]);
            let has_seen_all = starts && comm.rank() == 1;
            assert_eq!(log.count("all_reduce"), u64::from(has_seen_all), "starts: {starts}");
            comm.barrier().unwrap();
            assert_eq!(log.count("barrier"), u64::from(starts));
            log.stop();
            log.reset();
        }
        comm.close().unwrap();
    });
}

/// A call that fails is counted as an error of its operation, once.
pub fn failures_are_errors(backend: &dyn Backend) {
    run(backend, 2, &options(), |comm| {
        let log = comm.group().comms_logger();
        log.start_counting();
        log.start();
        comm.barrier().unwrap();
        if comm.rank() == 0 {
            let soon = CallOptions::new().timeout(Duration::from_millis(200));
            let error = comm.with(soon).all_reduce(&mut [1u8], ReduceOp::Sum).unwrap_err();
            assert!(matches!(error, Error::Timeout { .. }), "{error}");
            let all_reduce = log.report().rows.into_iter().find(|row| row.name == "all_reduce").unwrap();
            assert_eq!((all_reduce.count, all_reduce.errors), (0, 1));
            assert_eq!(log.counters().of(all_reduce.operation).errors, 1);
        } else {
            // Until the failure of the other rank.
            let error = comm.recv(&mut [0u8], Peer::Rank(0), 3).unwrap_err();
            assert!(matches!(error.root_cause(), Error::Timeout { .. }), "{error}");
            let recv = log.report().rows.into_iter().find(|row| row.name == "recv").unwrap();
            assert_eq!((recv.count, recv.errors, log.counters().of(recv.operation).errors), (0, 1, 1));
        }
    });
}

/// A call on objects has the size of the objects, as a call on buffers of their lengths has, and not that of the blocks
/// that come first.
pub fn objects_have_their_own_size(backend: &dyn Backend) {
    const SIZE: usize = 5_000_000;
    run(backend, 2, &options(), |comm| {
        let (log, rank) = (comm.group().comms_logger(), comm.rank() as usize);
        log.start();
        let object = |size: usize| Bytes::from(vec![1; size]);
        comm.broadcast_object((rank == 0).then(|| object(SIZE)), 0).unwrap();
        comm.all_gather_object(object(10 * (rank + 1))).unwrap();
        comm.gather_object(object(SIZE * rank), 0).unwrap();
        comm.scatter_object((rank == 0).then(|| vec![object(7), object(SIZE)]), 0).unwrap();
        comm.barrier().unwrap();
        let all = log.report().rows;
        let parents: Vec<_> = all.iter().filter(|row| row.parent.is_none()).collect();
        let size = SIZE as u64;
        let expected = [
            ("all_gather_object", 30),
            ("barrier", 0),
            ("broadcast_object", size),
            ("gather_object", size),
            ("scatter_object", size + 7),
        ];
        assert_eq!(parents.iter().map(|row| (&*row.name, row.bytes_max)).collect::<Vec<_>>(), expected);
        for row in parents.iter().filter(|row| row.bytes_max >= size) {
            let gb_per_s = row.bytes_max as f64 / row.times.sum_ns() as f64;
            let ratio = row.bandwidth.algbw_gb_per_s / gb_per_s;
            assert!((0.99..1.01).contains(&ratio), "{}: {:?}", row.name, row.bandwidth);
        }
        comm.close().unwrap();
    });
}

/// A communicator remembers 1,024 messages, and more may be in flight.
pub fn three_thousand_messages_in_flight_are_all_counted(backend: &dyn Backend) {
    const MESSAGES: u32 = 3000;
    run(backend, 2, &options(), |comm| {
        let log = comm.group().comms_logger();
        log.start();
        if comm.rank() == 0 {
            let post = |tag| comm.recv_async(vec![0u32], Peer::Rank(1), tag);
            let works: Vec<_> = (0..MESSAGES).map(post).collect();
            comm.barrier().unwrap();
            works.into_iter().for_each(|work| drop(work.wait().unwrap()));
        } else {
            comm.barrier().unwrap();
            (0..MESSAGES).for_each(|tag| comm.send(&[tag], 0, tag).unwrap());
        }
        let operation = if comm.rank() == 0 { "recv" } else { "send" };
        assert_eq!(log.count(operation), u64::from(MESSAGES));
        comm.close().unwrap();
    });
}

/// Messages have the size that came, whichever side waits.
pub fn messages_are_recorded(backend: &dyn Backend) {
    run(backend, 2, &options(), |comm| {
        let (log, peer) = (comm.group().comms_logger(), 1 - comm.rank());
        log.start();
        let receive = comm.recv_async(vec![0u8; 4096], Peer::Any, 1);
        comm.send(&[1u8; 100], peer, 1).unwrap();
        receive.wait().unwrap();
        comm.send_async(vec![2u8; 100], peer, 2).wait().unwrap();
        comm.recv(&mut [0u8; 100], Peer::Rank(peer), 2).unwrap();
        assert_eq!(rows(log), [row("recv", 2, 100, 2), row("send", 2, 100, 2)]);
        comm.close().unwrap();
    });
}
