//! What goes wrong in the double of NCCL ends in a typed error on every rank, within the deadline of the call, and the
//! process goes on over TCP. In a process of its own: what is injected concerns every thread.

#![allow(unsafe_code)]
#![allow(clippy::print_stdout, reason = "the table of what was injected and what came of it")]

use std::ffi::{CString, c_char};
use std::process::Command;
use std::time::Duration;

use unisono_communicator::{
    CallOptions, Collectives, CollectivesOnDevice, Communicator, Error, ReduceOp, Result,
};
use unisono_offload::HostMemory;
use unisono_tests::{doubles, watchdog};

use crate::on_device::{Rank, SECONDS_MAX};

/// Tells the process that it injects.
const INJECTS: &str = "TEST_INJECTS";
const HANG: i32 = i32::MIN;
const TIMEOUT: Duration = Duration::from_millis(400);

/// How a rank makes the call that fails.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    /// Memory of the host, on the caller's thread.
    Inline,
    /// Memory of the host, with a deadline.
    Met,
    /// Memory of the device.
    OnStream,
}

struct Case {
    call: &'static str,
    is_in_stream: bool,
    code: i32,
    ways: &'static [Way],
}

const ALL: &[Way] = &[Way::Inline, Way::Met, Way::OnStream];
const WITH_DEADLINE: &[Way] = &[Way::Met, Way::OnStream];
const STAGED: &[Way] = &[Way::Inline, Way::Met];

const fn case(call: &'static str, code: i32, ways: &'static [Way]) -> Case {
    Case { call, is_in_stream: false, code, ways }
}

const fn in_stream(call: &'static str, code: i32, ways: &'static [Way]) -> Case {
    Case { call, is_in_stream: true, code, ways }
}

const CASES: &[Case] = &[
    case("ncclAllReduce", 1, ALL),
    case("ncclAllReduce", 2, ALL),
    case("ncclAllReduce", 3, ALL),
    case("ncclAllReduce", 4, ALL),
    case("ncclAllReduce", 5, ALL),
    case("ncclAllReduce", 6, ALL),
    case("ncclAllReduce", HANG, WITH_DEADLINE),
    in_stream("ncclAllReduce", 6, ALL),
    in_stream("ncclAllReduce", 3, ALL),
    in_stream("ncclAllReduce", HANG, WITH_DEADLINE),
    case("cuMemcpyHtoDAsync_v2", 719, STAGED),
    case("cuMemcpyDtoHAsync_v2", 719, STAGED),
    case("cuEventRecord", 400, &[Way::OnStream]),
    case("cuEventQuery", 719, &[Way::OnStream]),
];

type Inject = unsafe extern "C" fn(*const c_char, u32, i32);

/// The double's functions for tests.
struct Injection(libloading::Library);

impl Injection {
    fn open() -> Injection {
        // SAFETY: the double does nothing when it is opened.
        Injection(unsafe { libloading::Library::new(doubles::nccl()) }.unwrap())
    }

    fn inject(&self, case: &Case) {
        let name =
            if case.is_in_stream { "unisono_double_inject_in_stream" } else { "unisono_double_inject" };
        let call = CString::new(case.call).unwrap();
        // SAFETY: the function has these arguments, and copies the name.
        unsafe { self.0.get::<Inject>(name).unwrap()(call.as_ptr(), 1, case.code) };
    }

    fn reset(&self) {
        // SAFETY: the function has no arguments.
        unsafe { self.0.get::<unsafe extern "C" fn()>("unisono_double_reset").unwrap()() };
    }
}

fn attempt(rank: &Rank, way: Way) -> Result<()> {
    let deadline = rank.comm.with(CallOptions::new().timeout(TIMEOUT));
    match way {
        Way::Inline => rank.comm.all_reduce(&mut [rank.own()], ReduceOp::Sum),
        Way::Met => deadline.all_reduce(&mut [rank.own()], ReduceOp::Sum),
        Way::OnStream => {
            let mut array = rank.array(&[rank.own(); 4]);
            let on = deadline.on(rank.device_stream());
            let ended = on.all_reduce(&mut array.write(rank), ReduceOp::Sum).and_then(|call| on.wait(call));
            // The memory is free when the library has let go of the stream.
            drop(rank.stream.synchronize());
            ended.map(drop)
        }
    }
}

/// The first cause below what a rank sees.
fn root(error: &Error) -> &Error {
    match error {
        Error::Revoked { cause, .. } => root(cause),
        other => other,
    }
}

fn check(case: &Case, way: Way, error: &Error) {
    let shown = format!("{} {} by {way:?}: {error}", case.call, case.code);
    match root(error) {
        Error::Vendor { call, code, library, remedy, .. } => {
            // An error in the stream is told by a later function.
            let is_it = case.call.starts_with(&**call) && *code == case.code;
            assert!(case.is_in_stream || is_it, "{shown}");
            assert!(!library.is_empty() && !remedy.is_empty(), "{shown}");
        }
        Error::Timeout { .. } => assert_eq!(case.code, HANG, "{shown}"),
        other => panic!("{shown}: {other:?}"),
    }
}

fn run_cases() {
    let injection = Injection::open();
    for case in CASES {
        for &way in case.ways {
            let errors = Rank::run(2, HostMemory::Staged, |rank| {
                let tcp = rank.comm.companion().unwrap();
                attempt(rank, way).unwrap();
                tcp.barrier().unwrap();
                if rank.rank == 0 {
                    injection.inject(case);
                }
                tcp.barrier().unwrap();
                // The rank whose call goes well hears of the other at the latest in its next one.
                let error = (0..100).find_map(|_| attempt(rank, way).err()).unwrap();
                check(case, way, &error);
                let survivors = rank.comm.companion().unwrap().shrink().unwrap().communicator;
                let mut sum = [1u32];
                survivors.all_reduce(&mut sum, ReduceOp::Sum).unwrap();
                assert_eq!(sum, [2]);
                error.to_string()
            });
            println!("| {} | {} | {way:?} | {} |", case.call, case.code, errors[0]);
            injection.reset();
        }
    }
}

#[test]
fn every_fault_ends_in_a_typed_error() {
    if std::env::var_os(INJECTS).is_some() {
        return watchdog(SECONDS_MAX, "faults", run_cases);
    }
    watchdog(SECONDS_MAX, "faults in a process", || {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "faults::every_fault_ends_in_a_typed_error", "--nocapture"]);
        assert!(child.env(INJECTS, "").status().unwrap().success());
    });
}
