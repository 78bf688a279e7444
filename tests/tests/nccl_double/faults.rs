//! What goes wrong in the double of NCCL ends in a typed error on every rank, within the deadline of the call, and the
//! process goes on over TCP. In processes of their own: what is injected concerns every thread.

#![allow(clippy::print_stdout, reason = "the table of what was injected and what came of it")]

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use unisono_communicator::{
    CallOptions, Collectives, CollectivesOnDevice, Communicator, Error, OnStream, Outcome, ReduceOp, Result,
    With,
};
use unisono_offload::{HostMemory, OffloadOptions};
use unisono_offload_nccl::NcclCommunicator;
use unisono_tests::doubles::{Control, nccl};
use unisono_tests::watchdog;

use crate::on_device::{Rank, SECONDS_MAX};

/// Tells the process that it injects, and which part of the table.
const PART: &str = "TEST_PART";
/// The parts: most of the time is waited.
const PARTS: usize = 6;
const TIMEOUT: Duration = Duration::from_millis(300);
/// Each takes longer than a part of [`TIMEOUT`] that is as small.
const ATTEMPTS_MAX: u32 = 2000;
/// Of communicators that are made.
const INIT_TIMEOUT: Duration = Duration::from_millis(600);

/// What a rank does when it goes wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    /// An all-reduce of memory of the host, on the caller's thread.
    Inline,
    /// The same with a deadline.
    Met,
    /// A call on memory of the device, with a deadline.
    AllReduce,
    Scaled,
    Reduce,
    ReduceScatter,
    Broadcast,
    AllGather,
    AllToAll,
    Gather,
    Scatter,
    /// One that is sends and receives in a group.
    Messages,
    /// Another communicator is made.
    Make,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    /// The function returns this.
    Code(i32),
    /// The function does not return before an abort.
    Hang,
    /// The work that it gives to the stream fails with this, or does not end.
    InStream(i32),
    HangInStream,
}

/// NCCL's functions of calls, and the calls that come to them.
const CALLS: &[(&str, &[Way])] = &[
    ("ncclAllReduce", &[Way::Met, Way::AllReduce]),
    ("ncclReduce", &[Way::Reduce]),
    ("ncclReduceScatter", &[Way::ReduceScatter]),
    ("ncclBroadcast", &[Way::Broadcast]),
    ("ncclAllGather", &[Way::AllGather]),
    ("ncclAlltoAll", &[Way::AllToAll]),
    ("ncclGather", &[Way::Gather]),
    ("ncclScatter", &[Way::Scatter]),
    ("ncclSend", &[Way::Messages]),
    ("ncclRecv", &[Way::Messages]),
    ("ncclRedOpCreatePreMulSum", &[Way::Scaled]),
];

/// Their faults: every code of 2.18, and 8, which is newer. 7 says that a call is under way, so it is no fault there.
const OF_CALLS: &[Fault] = &[
    Fault::Code(1),
    Fault::Code(2),
    Fault::Code(3),
    Fault::Code(4),
    Fault::Code(5),
    Fault::Code(6),
    Fault::Code(8),
    Fault::Hang,
];

/// Of the work of those that give some to a stream.
const OF_WORK: &[Fault] = &[Fault::InStream(6), Fault::InStream(3), Fault::HangInStream];

/// Every other row: a function, its faults, and the calls that come to it.
const OTHERS: &[(&str, &[Fault], &[Way])] = &[
    ("ncclAllReduce", &[Fault::Code(3), Fault::InStream(6)], &[Way::Inline]),
    // No communicator is in these, so an abort ends no hang, and nothing is under way after 7.
    ("ncclGroupStart", &[Fault::Code(3), Fault::Code(7)], &[Way::Messages]),
    ("ncclGroupEnd", &[Fault::Code(3), Fault::Code(6)], &[Way::Messages]),
    ("ncclRedOpCreatePreMulSum", &[Fault::Code(7)], &[Way::Scaled]),
    ("ncclRedOpDestroy", &[Fault::Code(4), Fault::Code(7), Fault::Hang], &[Way::Scaled]),
    ("ncclGetUniqueId", &[Fault::Code(2), Fault::Code(7), Fault::Hang], &[Way::Make]),
    ("ncclCommInitRankConfig", &[Fault::Code(1), Fault::Code(5), Fault::Code(6)], &[Way::Make]),
    ("ncclCommInitRankConfig", &[Fault::InStream(2), Fault::HangInStream], &[Way::Make]),
    ("ncclCommGetAsyncError", &[Fault::Code(3), Fault::Code(7)], &[Way::Make]),
    ("cuCtxPushCurrent_v2", &[Fault::Code(201)], &[Way::Inline, Way::Met, Way::Make]),
    ("cuStreamIsCapturing", &[Fault::Code(400)], &[Way::AllReduce]),
    ("cuStreamGetCtx", &[Fault::Code(400)], &[Way::AllReduce]),
    ("cuStreamCreate", &[Fault::Code(2)], &[Way::Inline, Way::Met]),
    ("cuMemAlloc_v2", &[Fault::Code(2)], &[Way::Inline, Way::Met]),
    ("cuMemcpyHtoDAsync_v2", &[Fault::Code(719)], &[Way::Inline, Way::Met]),
    ("cuMemcpyHtoDAsync_v2", &[Fault::Hang], &[Way::Met]),
    ("cuMemcpyDtoHAsync_v2", &[Fault::Code(719)], &[Way::Inline, Way::Met]),
    ("cuMemcpyDtoHAsync_v2", &[Fault::Hang], &[Way::Met]),
    ("cuEventCreate", &[Fault::Code(2)], &[Way::AllReduce]),
    ("cuEventRecord", &[Fault::Code(400)], &[Way::AllReduce]),
    ("cuEventQuery", &[Fault::Code(719)], &[Way::AllReduce]),
    // These come to a communicator whose work hangs, and to one that is given back.
    (ABORT, &[Fault::Code(3), Fault::Hang], &[Way::Met]),
    (DESTROY, &[Fault::Code(1), Fault::Code(7), Fault::Hang], &[Way::Make]),
];

const ABORT: &str = "ncclCommAbort";
const DESTROY: &str = "ncclCommDestroy";

/// Functions by which arguments are checked.
const CHECKS: &[&str] = &["cuStreamIsCapturing", "cuStreamGetCtx"];

type Row = (&'static str, Fault, Way);

fn rows() -> Vec<Row> {
    let of = |(call, ways): &(&'static str, &'static [Way]), faults: &[Fault]| -> Vec<Row> {
        let each = |way: Way| faults.iter().map(move |&fault| (way, fault)).collect::<Vec<_>>();
        ways.iter().flat_map(|&way| each(way)).map(|(way, fault)| (*call, fault, way)).collect()
    };
    let calls = CALLS.iter().flat_map(|row| of(row, OF_CALLS));
    let work = CALLS.iter().filter(|(call, _)| !call.contains("RedOp")).flat_map(|row| of(row, OF_WORK));
    let others = OTHERS.iter().flat_map(|(call, faults, ways)| of(&(*call, *ways), faults));
    calls.chain(work).chain(others).collect()
}

fn inject(control: &Control, (call, fault, _): Row) {
    match fault {
        Fault::Code(code) => control.inject(call, 1, code),
        Fault::Hang => control.hang(call, 1),
        Fault::InStream(code) => control.inject_in_stream(call, 1, code),
        Fault::HangInStream => control.hang_in_stream(call, 1),
    }
}

type OnRank<'r> = OnStream<'r, With<'r, NcclCommunicator>>;

/// Makes the call on memory of the device that `way` says, and waits for it.
fn on_stream(rank: &Rank, on: &OnRank<'_>, way: Way) -> Result<()> {
    let [mut one, mut two] = [rank.array(&[rank.own(); 4]), rank.array(&[rank.own(); 4])];
    let mut half = rank.array(&[0.0; 2]);
    let is_root = rank.rank == 0;
    let issued = match way {
        Way::Scaled => on.all_reduce(&mut one.write(rank), ReduceOp::PreMulSum(0.5)),
        Way::Reduce => {
            let output = is_root.then(|| two.write(rank));
            on.reduce(&one.read(rank), output, ReduceOp::Sum, 0)
        }
        Way::ReduceScatter => on.reduce_scatter(&one.read(rank), &mut half.write(rank), ReduceOp::Sum),
        Way::Broadcast => on.broadcast(&mut one.write(rank), 0),
        Way::AllGather => on.all_gather(&half.read(rank), &mut one.write(rank)),
        Way::AllToAll => on.all_to_all(&one.read(rank), &mut two.write(rank)),
        Way::Gather => on.gather(&half.read(rank), is_root.then(|| two.write(rank)), 0),
        Way::Scatter => on.scatter(is_root.then(|| one.read(rank)), &mut half.write(rank), 0),
        Way::Messages => {
            let mut room = rank.array(&[0.0; 6]);
            let called = rank.all_to_all_v(&one, &mut room, TIMEOUT);
            return ended(rank, on, called);
        }
        Way::AllReduce | Way::Inline | Way::Met | Way::Make => {
            on.all_reduce(&mut one.write(rank), ReduceOp::Sum)
        }
    };
    ended(rank, on, issued)
}

fn ended(rank: &Rank, on: &OnRank<'_>, issued: Result<Outcome>) -> Result<()> {
    let ended = issued.and_then(|call| on.wait(call));
    // The memory is free when the library has let go of the stream.
    drop(rank.stream.synchronize());
    ended.map(drop)
}

fn attempt(rank: &Rank, way: Way) -> Result<()> {
    let deadline = rank.comm.with(CallOptions::new().timeout(TIMEOUT));
    match way {
        Way::Inline => rank.comm.all_reduce(&mut [rank.own()], ReduceOp::Sum),
        Way::Met => deadline.all_reduce(&mut [rank.own()], ReduceOp::Sum),
        Way::Make => rank.comm.duplicate().map(drop),
        _ => on_stream(rank, &deadline.on(rank.device_stream()), way),
    }
}

/// The first cause below what a rank sees.
fn root(error: &Error) -> &Error {
    match error {
        Error::Revoked { cause, .. } => root(cause),
        other => other,
    }
}

fn check((injected, fault, way): Row, error: &Error) {
    // Its error is that of the call that hangs.
    let fault = if injected == ABORT { Fault::Hang } else { fault };
    let shown = format!("{injected} {fault:?} by {way:?}: {error}");
    match (root(error), fault) {
        (Error::Vendor { call, code, library, remedy, .. }, Fault::Code(of)) => {
            assert!(injected.starts_with(&**call) && *code == of, "{shown}");
            assert!(!library.is_empty() && !remedy.is_empty(), "{shown}");
        }
        // An error in the stream is told by a later function.
        (Error::Vendor { code, .. }, Fault::InStream(of)) => assert_eq!(*code, of, "{shown}"),
        (Error::Timeout { .. }, Fault::Hang | Fault::HangInStream) => {}
        // Nobody is in a call yet.
        (Error::System { .. }, Fault::Hang) if injected == "ncclGetUniqueId" => {}
        // Found before the call had a number: the other rank waits for this one.
        (Error::Timeout { .. }, _) if way == Way::AllReduce && CHECKS.contains(&injected) => {}
        (other, _) => panic!("{shown}: {other:?}"),
    }
}

fn run(control: &Control, row: Row) -> String {
    let options = OffloadOptions::new(INIT_TIMEOUT, false);
    let options = OffloadOptions { host_memory: HostMemory::Staged, ..options };
    let errors = Rank::run_with(2, &options, |rank| {
        let tcp = rank.comm.companion().unwrap();
        // Staging is made by the first call on memory of the host.
        if !["cuStreamCreate", "cuMemAlloc_v2", "cuEventCreate"].contains(&row.0) {
            attempt(rank, row.2).unwrap();
        }
        tcp.barrier().unwrap();
        if rank.rank == 0 {
            inject(control, row);
            if row.0 == ABORT {
                control.hang_in_stream("ncclAllReduce", 1);
            }
        }
        tcp.barrier().unwrap();
        if row.0 == DESTROY {
            // The communicator that is given back has done its work: what goes wrong is a line in the log.
            attempt(rank, row.2).unwrap();
            tcp.barrier().unwrap();
            attempt(rank, Way::Met).unwrap();
            return "a line in the log".to_owned();
        }
        // The rank whose call goes well hears of the other at the latest in one that comes after its deadline.
        let error = (0..ATTEMPTS_MAX).find_map(|_| {
            std::thread::sleep(Duration::from_millis(1));
            attempt(rank, row.2).err()
        });
        let error = error.unwrap();
        check(row, &error);
        go_on(&rank.comm);
        error.to_string()
    });
    control.reset();
    errors[0].clone()
}

/// The process goes on over TCP.
fn go_on(comm: &Arc<NcclCommunicator>) {
    let survivors = comm.companion().unwrap().shrink().unwrap().communicator;
    let mut sum = [1u32];
    survivors.all_reduce(&mut sum, ReduceOp::Sum).unwrap();
    assert_eq!(sum, [2]);
}

#[test]
fn every_fault_ends_in_a_typed_error() {
    if let Some(part) = std::env::var_os(PART) {
        let part: usize = part.to_str().unwrap().parse().unwrap();
        return watchdog(SECONDS_MAX, "faults", move || {
            let control = Control::open(&nccl()).unwrap();
            for row in rows().into_iter().skip(part).step_by(PARTS) {
                let (call, fault, way) = row;
                println!("| {call} | {fault:?} | {way:?} | {} |", run(&control, row));
            }
        });
    }
    watchdog(SECONDS_MAX, "faults in processes", || {
        let start = |part: usize| {
            let mut child = Command::new(std::env::current_exe().unwrap());
            child.args(["--exact", "faults::every_fault_ends_in_a_typed_error", "--nocapture"]);
            child.env(PART, part.to_string()).spawn().unwrap()
        };
        let children: Vec<_> = (0..PARTS).map(start).collect();
        for mut child in children {
            assert!(child.wait().unwrap().success());
        }
    });
}
