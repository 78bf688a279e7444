//! Tests of the communication log, on the world of one.

use unisono_collectives::{Collectives, CollectivesAsync, Solo};
use unisono_communicator::{
    Buffers, Call, CallOptions, Collective, CommsLogger, CommsLoggerConfig, Communicator, Counted, DType,
    Descriptor, EnteredCall, Error, Operation, ParentCall, Peer, ReduceOp,
};

fn solo() -> (Solo, CommsLogger) {
    let comm = Solo::new();
    let log = comm.group().comms_logger().clone();
    (comm, log)
}

/// The rows as name, size, count and errors.
fn rows(log: &CommsLogger) -> Vec<(String, u64, u64, u64)> {
    let rows = log.report().rows.into_iter();
    rows.map(|row| (row.name, row.bytes_max, row.count, row.errors)).collect()
}

#[test]
fn i1_a_row_has_name_size_count_latency_and_bandwidth() {
    let (comm, log) = solo();
    comm.barrier().unwrap();
    log.start();
    for count in [256, 256, 1024] {
        comm.all_reduce(&mut vec![1.0f32; count], ReduceOp::Sum).unwrap();
    }
    comm.broadcast(&mut [0u8; 0], 0).unwrap();
    let expected = [("all_reduce", 1024, 2, 0), ("all_reduce", 4096, 1, 0), ("broadcast", 0, 1, 0)];
    assert_eq!(
        rows(&log),
        expected.map(|(name, size, count, errors)| (name.to_owned(), size, count, errors))
    );
    let row = &log.report().rows[0];
    let seconds = row.times.sum_ns() as f64 / 1e9;
    assert_eq!(row.bandwidth.algbw_gb_per_s, 2.0 * 1024.0 / seconds / 1e9);
    assert_eq!((row.bandwidth.busbw_gb_per_s, row.ranks), (0.0, 1));
    assert!(row.times.min_ns() >= 1 && row.times.max_ns() >= row.times.quantile_ns(0.5));
}

#[test]
fn i2_every_key_is_obeyed_and_enabled_false_is_off() {
    let run = |config: CommsLoggerConfig| {
        let (comm, log) = solo();
        log.configure(config);
        comm.all_reduce(&mut [1u8], ReduceOp::Sum).unwrap();
        comm.barrier().unwrap();
        comm.with(CallOptions::new().profiled(true)).broadcast(&mut [1u8], 0).unwrap();
        comm.with(CallOptions::new().profiled(false)).reduce(&[1u8], None, ReduceOp::Sum, 0).unwrap_err();
        comm.with(CallOptions::new().profiled(false)).all_gather(&[1u8], &mut [0u8]).unwrap();
        log.names()
    };
    let on = CommsLoggerConfig::enabled;
    assert_eq!(run(CommsLoggerConfig::default()), [""; 0]);
    assert_eq!(run(CommsLoggerConfig { verbose: true, debug: true, ..Default::default() }), [""; 0]);
    assert_eq!(run(on()), ["all_reduce", "barrier", "broadcast"]);
    assert_eq!(run(CommsLoggerConfig { prof_all: false, ..on() }), ["broadcast"]);
    let prof_ops = vec!["barrier".to_owned()];
    let some = CommsLoggerConfig { prof_all: false, prof_ops, ..on() };
    assert_eq!(run(some), ["barrier", "broadcast"]);
    let lines = run(CommsLoggerConfig { debug: true, ..on() });
    assert!(
        lines.iter().all(|line| line.contains(" | [") && line.contains("tests/comms_log.rs:")),
        "{lines:?}"
    );
}

#[test]
fn i5_the_results_are_there_as_data_and_reset_forgets_them() {
    let (comm, log) = solo();
    assert!(!log.has_calls() && log.count("all_reduce") == 0 && log.names().is_empty());
    log.start();
    for _ in 0..3 {
        comm.all_reduce(&mut [1u8], ReduceOp::Sum).unwrap();
    }
    comm.with(CallOptions::new().log_name("loss")).all_reduce(&mut [1u8], ReduceOp::Sum).unwrap();
    comm.with(CallOptions::new().label("grads")).all_reduce(&mut [1u8], ReduceOp::Sum).unwrap();
    let counts =
        ["all_reduce", "inference_all_reduce", "loss", "grads", "nothing"].map(|name| log.count(name));
    assert_eq!(counts, [5, 5, 1, 1, 0]);
    assert_eq!(log.names(), ["all_reduce", "grads", "loss"]);
    let raw: u32 = log.report().rows[0].times.buckets().map(|(_, count)| count).sum();
    assert_eq!(raw, 3);
    log.reset();
    assert!(!log.has_calls() && log.is_on());
}

#[test]
fn i8_operations_are_started_and_stopped_at_run_time() {
    let (comm, log) = solo();
    let calls = || {
        log.reset();
        comm.all_reduce(&mut [1u8], ReduceOp::Sum).unwrap();
        comm.barrier().unwrap();
        comm.with(CallOptions::new().label("loss")).barrier().unwrap();
        log.names()
    };
    assert_eq!(calls(), [""; 0]);
    log.start_operations(&["barrier"]);
    assert_eq!(calls(), ["barrier", "loss"]);
    log.stop_operations(&["barrier"]);
    assert_eq!(calls(), [""; 0]);
    log.start_operations(&["loss"]);
    assert_eq!(calls(), ["loss"]);
    log.configure(CommsLoggerConfig::enabled());
    log.stop_operations(&["all_reduce"]);
    assert_eq!(calls(), ["barrier", "loss"]);
    log.stop();
    assert_eq!(calls(), [""; 0]);
    log.start();
    assert_eq!(calls(), ["barrier", "loss"], "the selection stays");
}

#[test]
fn i8_an_operation_more_takes_none_away_from_a_log_that_is_on() {
    let (comm, log) = solo();
    let calls = || {
        log.reset();
        comm.all_reduce(&mut [1u8], ReduceOp::Sum).unwrap();
        comm.barrier().unwrap();
        log.names()
    };
    log.start();
    log.start_operations(&["barrier"]);
    assert_eq!(calls(), ["all_reduce", "barrier"]);
    assert!(log.config().prof_all);
    log.stop();
    log.start_operations(&["barrier"]);
    assert_eq!(calls(), ["barrier"], "a log that is off gets these operations only");
    // DeepSpeed's start_profiling_comms and stop_profiling_comms.
    log.configure(CommsLoggerConfig { prof_all: true, ..log.config() });
    assert_eq!(calls(), ["all_reduce", "barrier"]);
    log.configure(CommsLoggerConfig { prof_all: false, ..log.config() });
    assert_eq!(calls(), ["barrier"]);
}

#[test]
fn i9_the_report_has_the_names_of_prof_ops_that_no_call_has_had() {
    let (comm, log) = solo();
    let prof_ops =
        ["all_reduce", "all_gather_into_tensor", "barrier", "loss", "grads", "los"].map(String::from);
    let some =
        CommsLoggerConfig { prof_all: false, prof_ops: prof_ops.to_vec(), ..CommsLoggerConfig::enabled() };
    log.configure(some.clone());
    assert_eq!(log.report().without_calls, prof_ops);
    // The log name hides the label in the rows, and the operation alone would have selected the call.
    let named = CallOptions::new().log_name("loss").label("grads");
    comm.with(named).all_reduce(&mut [1u8], ReduceOp::Sum).unwrap();
    comm.with(CallOptions::new().profiled(false)).barrier().unwrap();
    log.reset();
    let report = log.report();
    assert_eq!(report.without_calls, ["all_gather_into_tensor", "barrier", "los"]);
    let last = "no call was recorded for these names of prof_ops: all_gather_into_tensor, barrier, los\n";
    assert!(report.to_string().ends_with(last), "{report}");
    log.configure(CommsLoggerConfig { prof_all: true, ..some });
    assert_eq!(log.report().without_calls, [""; 0]);
}

#[test]
fn i9_an_unknown_operation_is_never_an_error() {
    let (comm, log) = solo();
    let prof_ops = vec!["all_reduse".to_owned(), "monitored_barrier".to_owned()];
    log.configure(CommsLoggerConfig { prof_all: false, prof_ops, ..CommsLoggerConfig::enabled() });
    comm.all_reduce(&mut [1u8], ReduceOp::Sum).unwrap();
    comm.monitored_barrier(std::time::Duration::from_secs(1)).unwrap();
    log.stop_operations(&["never was"]);
    assert_eq!(log.names(), [""; 0]);
}

#[test]
fn i10_a_log_that_is_off_wants_no_call_and_a_counted_call_no_clock() {
    let (comm, log) = solo();
    assert!(log.is_idle());
    log.start();
    log.stop();
    assert!(log.is_idle());
    log.start_counting();
    assert!(!log.is_idle() && !log.is_on());
    let descriptor = Descriptor::new(Collective::Barrier, DType::U8, 0);
    let call = Call::new(descriptor, Buffers::none());
    assert_eq!(log.enter(&EnteredCall::of(&call, 1)).map(|call| call.entered_ns), Some(0));
    comm.barrier().unwrap();
    assert!(!log.has_calls());
}

#[test]
fn i11_an_asynchronous_call_ends_when_the_library_sees_its_end() {
    let (comm, log) = solo();
    log.start();
    let receive = comm.recv_async(vec![0u8; 4], Peer::Any, 7);
    assert_eq!(log.count("recv"), 0);
    comm.send(&[1u8, 2], 0, 7).unwrap();
    // Nobody has waited.
    assert_eq!(rows(&log), [("recv".to_owned(), 2, 1, 0), ("send".to_owned(), 2, 1, 0)]);
    drop(receive);
}

#[test]
fn a_parent_call_has_its_parts_behind_it_and_they_are_no_calls_of_the_program() {
    let (comm, log) = solo();
    log.start();
    let all_reduce =
        Descriptor { op: Some(ReduceOp::Sum), ..Descriptor::new(Collective::AllReduce, DType::F32, 1024) };
    let scope = comm.scope(ParentCall::new("twice", all_reduce), &CallOptions::new()).unwrap();
    scope.barrier().unwrap();
    scope.all_reduce(&mut [1u8], ReduceOp::Sum).unwrap();
    drop(scope);
    comm.all_reduce(&mut [1u8], ReduceOp::Sum).unwrap();
    let report = log.report();
    let rows: Vec<_> = report.rows.iter().map(|row| (row.name.as_str(), row.parent.as_deref())).collect();
    let parts = [("twice", None), ("all_reduce", Some("twice")), ("barrier", Some("twice"))];
    assert_eq!(rows, [&[("all_reduce", None)][..], &parts].concat());
    assert_eq!((report.rows[1].bytes_max, log.count("all_reduce")), (4096, 2));
    assert!(report.to_string().contains("\n  barrier"), "{report}");
}

#[test]
fn a_call_that_fails_is_an_error_and_has_no_time() {
    let (comm, log) = solo();
    log.start();
    comm.revoke(Error::Closed { call: None }).unwrap();
    comm.barrier().unwrap_err();
    assert!(!log.has_calls(), "a refused call is none");
    let (comm, log) = solo();
    log.start();
    comm.send(&[1u8, 2, 3], 0, 7).unwrap();
    comm.recv(&mut [0u8], Peer::Any, 7).unwrap_err();
    let row = log.report().rows.into_iter().find(|row| row.name == "recv").unwrap();
    assert_eq!((row.count, row.errors, row.times.count()), (0, 1, 0));
    assert!(log.report().to_string().lines().next().unwrap().ends_with("errors"));
}

#[test]
fn counters_are_there_without_the_log_and_in_the_text_of_prometheus() {
    let (comm, log) = solo();
    comm.barrier().unwrap();
    log.start_counting();
    log.configure(CommsLoggerConfig::default());
    comm.all_reduce(&mut [1u32; 8], ReduceOp::Sum).unwrap();
    comm.send(&[1u8, 2], 0, 7).unwrap();
    comm.recv(&mut [0u8; 9], Peer::Any, 7).unwrap();
    assert!(!log.has_calls() && !log.is_on());
    let counted = |operation| log.counters().of(operation);
    let all_reduce = Counted { calls: 1, bytes: 32, errors: 0, waits: 0 };
    assert_eq!(counted(Collective::AllReduce.into()), all_reduce);
    assert_eq!(counted(Operation::Recv).bytes, 2);
    assert_eq!(counted(Collective::Barrier.into()), Counted::default());
    let text = log.counters().prometheus("rank=\"3\"");
    assert!(text.contains("\nunisono_bytes_total{rank=\"3\",operation=\"all_reduce\"} 32\n"), "{text}");
    assert!(text.starts_with("# HELP unisono_calls_total ") && text.ends_with('\n'));
}

#[test]
fn i4_the_table_has_a_line_of_headings_and_a_line_for_each_row() {
    let (comm, log) = solo();
    log.start();
    comm.all_reduce(&mut vec![0u8; 1536], ReduceOp::Sum).unwrap();
    comm.all_reduce(&mut vec![0u8; 1280], ReduceOp::Sum).unwrap();
    let report = log.report();
    let table = report.to_string();
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), 2);
    let headings =
        "operation   ranks  size  count  total ms  mean ms  median ms  max ms  algbw GB/s  busbw GB/s";
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(words(lines[0]), words(headings));
    assert!(
        words(lines[1]).starts_with(&["all_reduce", "1", "1.25", "KiB..1.50", "KiB", "2"].map(String::from))
    );
    assert!(lines.iter().all(|line| line.len() == lines[0].len()), "{table}");
    let (times, bandwidth) = (&report.rows[0].times, report.rows[0].bandwidth);
    let ns = [times.sum_ns() as f64, times.mean_ns(), times.quantile_ns(0.5) as f64, times.max_ns() as f64];
    let gb_per_s = [bandwidth.algbw_gb_per_s, bandwidth.busbw_gb_per_s];
    let figures: Vec<String> =
        ns.iter().map(|ns| ns / 1e6).chain(gb_per_s).map(|one| format!("{one:.3}")).collect();
    assert_eq!(words(lines[1])[6..], figures, "{table}");
}
