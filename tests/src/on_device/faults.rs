//! What goes wrong in a double ends in a typed error on every rank, within the deadline of the call, and the process
//! goes on over TCP. A vendor's part is a [`FaultTable`]. In processes of their own: what is injected concerns every
//! thread.

use std::fs::DirEntry;
use std::process::Command;
use std::time::{Duration, Instant};

use unisono_collectives::{Collectives, CollectivesOnDevice, DeviceBatch, OnStream, With};
use unisono_communicator::{CallOptions, Communicator, Error, Outcome, ReduceOp, Result};
use unisono_double_common::control::Control;
use unisono_offload::{HostMemory, OffloadOptions, Offloaded, Vendor};

use super::{DeviceRank, SECONDS_MAX, VendorDouble};
use crate::watchdog;

/// Tells the process that it injects, and which part of the table.
const PART: &str = "TEST_PART";
/// The parts: most of the time is waited.
const PARTS: usize = 6;
/// Of calls that nothing but their deadline ends.
const TIMEOUT: Duration = Duration::from_millis(300);
/// Of all others, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// The attempts of a rank whose call goes well, each at least a millisecond long.
const ATTEMPTS_MAX: u32 = 2000;
/// The algorithm of calls by name: one that adds nothing, which needs no kernels.
const BY_NAME: &str = "ring";
/// Of communicators whose making goes wrong: what hangs takes all of it.
const INIT_TIMEOUT: Duration = Duration::from_secs(2);

/// What a rank does when it goes wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(
    missing_docs,
    reason = "calls on memory of the device, with a deadline, but for those that say otherwise"
)]
pub enum Way {
    /// An all-reduce of memory of the host, on the caller's thread.
    Inline,
    /// The same with a deadline.
    Met,
    AllReduce,
    /// A pre-multiplied sum.
    Scaled,
    /// An average.
    Averaged,
    Reduce,
    ReduceScatter,
    Broadcast,
    AllGather,
    AllToAll,
    Gather,
    Scatter,
    /// An uneven all-to-all.
    Messages,
    /// Messages between the two ranks, as one batch.
    Exchange,
    /// An all-gather by an algorithm of ours, whose rounds are groups of messages.
    ByName,
    /// The same of memory of the host.
    MetByName,
    /// Another communicator is made.
    Make,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FaultKind {
    /// The function returns this.
    Code(i32),
    /// The function does not return.
    Hang,
    /// The work that it gives to the stream fails with this.
    InStream(i32),
    /// That work does not end.
    HangInStream,
}

impl FaultKind {
    fn hangs(self) -> bool {
        matches!(self, FaultKind::Hang | FaultKind::HangInStream)
    }
}

/// A function, what goes wrong in it, and the calls that come to it.
pub type FaultRow = (&'static str, &'static [FaultKind], &'static [Way]);

/// What goes wrong in a vendor's double.
#[derive(Clone, Copy, Debug)]
pub struct FaultTable {
    /// What is injected.
    pub rows: &'static [FaultRow],
    /// Functions that the first call comes to, and no later one.
    pub first: &'static [&'static str],
    /// Functions by which arguments are checked: the other rank waits for a call that had no number.
    pub checks: &'static [&'static str],
    /// Functions in which nobody waits for another rank yet when they hang.
    pub alone: &'static [&'static str],
    /// Functions that are called only when work hangs: in these ways a call's work does, and its error is that of a
    /// hang.
    pub behind: &'static [(&'static str, Way, &'static str)],
    /// Functions whose failure is a line in the log: their communicator has done its work.
    pub harmless: &'static [&'static str],
    /// Whether an error in a stream is told with the code that was injected.
    pub tells_codes: bool,
}

type Injection = (&'static str, FaultKind, Way);

impl FaultTable {
    /// How many faults are injected.
    pub fn count(&self) -> usize {
        self.rows.iter().map(|(_, faults, ways)| faults.len() * ways.len()).sum()
    }

    /// The function whose work hangs for a row.
    fn hanging_work(&self, (call, _, way): Injection) -> Option<&'static str> {
        let row = self.behind.iter().find(|(behind, of, _)| *behind == call && *of == way);
        row.map(|(_, _, work)| *work)
    }

    /// Whether something hangs in a row.
    fn hangs(&self, row: Injection) -> bool {
        row.1.hangs() || self.hanging_work(row).is_some()
    }

    /// How long the calls of a row may take.
    fn timeout(&self, row: Injection) -> Duration {
        if self.hangs(row) || self.checks.contains(&row.0) { TIMEOUT } else { PATIENCE }
    }

    /// The rows, those that hang last: what is left of them may still go on behind the next one.
    fn each(&self) -> Vec<Injection> {
        let of = |(call, faults, ways): &FaultRow| -> Vec<Injection> {
            let of = |way: Way| faults.iter().map(move |&fault| (*call, fault, way));
            ways.iter().flat_map(|&way| of(way)).collect()
        };
        let mut rows: Vec<Injection> = self.rows.iter().flat_map(of).collect();
        rows.sort_by_key(|row| self.hangs(*row));
        rows
    }

    fn check(&self, row: Injection, error: &Error) {
        let (injected, fault, way) = row;
        // The error is that of the call that hangs.
        let fault = if self.hanging_work(row).is_some() { FaultKind::Hang } else { fault };
        let shown = format!("{injected} {fault:?} by {way:?}: {error}");
        match (root(error), fault) {
            (Error::Vendor { call, code, library, remedy, .. }, FaultKind::Code(of)) => {
                assert!(injected.starts_with(&**call) && *code == of, "{shown}");
                assert!(!library.is_empty() && !remedy.is_empty(), "{shown}");
            }
            // An error in the stream is told by a later function, maybe in its own words.
            (Error::Vendor { code, library, remedy, .. }, FaultKind::InStream(of)) => {
                assert!(*code == of || !self.tells_codes, "{shown}");
                assert!(!library.is_empty() && !remedy.is_empty(), "{shown}");
            }
            (Error::Timeout { .. }, FaultKind::Hang | FaultKind::HangInStream) => {}
            (Error::System { .. }, FaultKind::Hang) if self.alone.contains(&injected) => {}
            (Error::Timeout { .. }, _) if self.checks.contains(&injected) => {}
            (other, _) => panic!("{shown}: {other:?}"),
        }
    }
}

fn inject(control: &Control, (call, fault, _): Injection) {
    match fault {
        FaultKind::Code(code) => control.inject(call, 1, code),
        FaultKind::Hang => control.hang(call, 1),
        FaultKind::InStream(code) => control.inject_in_stream(call, 1, code),
        FaultKind::HangInStream => control.hang_in_stream(call, 1),
    }
}

type OnRank<'r, D> = OnStream<'r, With<'r, Offloaded<<D as VendorDouble>::Vendor>>>;

/// Makes the call on memory of the device that `way` says, and waits for it.
fn on_stream<D: VendorDouble>(
    rank: &DeviceRank<D>,
    on: &OnRank<'_, D>,
    way: Way,
    timeout: Duration,
) -> Result<()> {
    let [mut one, mut two] = [rank.array(&[rank.own(); 4]), rank.array(&[rank.own(); 4])];
    let (mut half, mut room) = (rank.array(&[0.0; 2]), rank.array(&[0.0; 6]));
    let is_root = rank.rank == 0;
    let issued = match way {
        Way::Scaled => on.all_reduce(&mut one.write(rank), ReduceOp::PreMulSum(0.5)),
        Way::Averaged => on.all_reduce(&mut one.write(rank), ReduceOp::Avg),
        Way::Reduce => {
            let output = is_root.then(|| two.write(rank));
            on.reduce(&one.read(rank), output, ReduceOp::Sum, 0)
        }
        Way::ReduceScatter => on.reduce_scatter(&one.read(rank), &mut half.write(rank), ReduceOp::Sum),
        Way::Broadcast => on.broadcast(&mut one.write(rank), 0),
        Way::AllGather | Way::ByName => on.all_gather(&half.read(rank), &mut one.write(rank)),
        Way::AllToAll => on.all_to_all(&one.read(rank), &mut two.write(rank)),
        Way::Gather => on.gather(&half.read(rank), is_root.then(|| two.write(rank)), 0),
        Way::Scatter => on.scatter(is_root.then(|| one.read(rank)), &mut half.write(rank), 0),
        Way::Messages => rank.all_to_all_v(&one, &mut room, timeout),
        Way::Exchange => {
            let (message, mut buffer, mut batch) = (one.read(rank), two.write(rank), DeviceBatch::new());
            batch.send(&message, 1 - rank.rank).recv(&mut buffer, 1 - rank.rank);
            on.exchange(batch)
        }
        Way::AllReduce | Way::Inline | Way::Met | Way::MetByName | Way::Make => {
            on.all_reduce(&mut one.write(rank), ReduceOp::Sum)
        }
    };
    let ended = issued.and_then(|call: Outcome| on.wait(call));
    if ended.is_ok() || rank.comm.capabilities().abort {
        // The memory is free when the library has let go of the stream. Where it never does, the device keeps it.
        drop(rank.stream.synchronize());
    }
    ended.map(drop)
}

fn attempt<D: VendorDouble>(rank: &DeviceRank<D>, way: Way, timeout: Duration) -> Result<()> {
    let options = CallOptions::new().timeout(timeout);
    let is_by_name = matches!(way, Way::ByName | Way::MetByName);
    let deadline = (*rank.comm).with(if is_by_name { options.algorithm(BY_NAME) } else { options });
    match way {
        Way::Inline => rank.comm.all_reduce(&mut [rank.own()], ReduceOp::Sum),
        Way::Met => deadline.all_reduce(&mut [rank.own()], ReduceOp::Sum),
        Way::MetByName => deadline.all_gather(&[rank.own()], &mut [0.0; 2]),
        Way::Make => rank.comm.duplicate().map(drop),
        _ => on_stream(rank, &deadline.on(rank.device_stream()), way, timeout),
    }
}

/// The first cause below what a rank sees.
fn root(error: &Error) -> &Error {
    match error {
        Error::Revoked { cause, .. } => root(cause),
        other => other,
    }
}

/// What rank 0 sees.
fn run<D: VendorDouble>(table: &FaultTable, control: &Control, row: Injection) -> String {
    let init_timeout = if row.2 == Way::Make { INIT_TIMEOUT } else { PATIENCE };
    let options = OffloadOptions::new(init_timeout, false);
    let options = OffloadOptions { host_memory: HostMemory::Staged, ..options };
    let errors = DeviceRank::<D>::run_with(2, &options, |rank| {
        let tcp = rank.comm.companion().unwrap();
        if !table.first.contains(&row.0) {
            attempt(rank, row.2, PATIENCE).unwrap();
        }
        tcp.barrier().unwrap();
        if rank.rank == 0 {
            inject(control, row);
            if let Some(work) = table.hanging_work(row) {
                control.hang_in_stream(work, 1);
            }
        }
        tcp.barrier().unwrap();
        if table.harmless.contains(&row.0) {
            attempt(rank, row.2, PATIENCE).unwrap();
            tcp.barrier().unwrap();
            attempt(rank, Way::Met, PATIENCE).unwrap();
            return "a line in the log".to_owned();
        }
        // The rank whose call goes well hears of the other at the latest in one that comes after its deadline.
        let error = (0..ATTEMPTS_MAX).find_map(|_| {
            std::thread::sleep(Duration::from_millis(1));
            attempt(rank, row.2, table.timeout(row)).err()
        });
        let error = error.unwrap_or_else(|| panic!("nothing came of {row:?}"));
        table.check(row, &error);
        // The process goes on over TCP.
        let survivors = rank.comm.companion().unwrap().shrink().unwrap().communicator;
        let mut sum = [1u32];
        survivors.all_reduce(&mut sum, ReduceOp::Sum).unwrap();
        assert_eq!(sum, [2]);
        error.to_string()
    });
    control.reset();
    if table.hangs(row) {
        // Where nothing can be aborted, threads that were given up go on now, and must not meet the next fault.
        await_end_of_threads(&format!("unisono-{}", D::Vendor::BACKEND));
    }
    errors[0].clone()
}

/// Waits until this process has no thread of this name.
fn await_end_of_threads(name: &str) {
    let started = Instant::now();
    let is_one = |task: std::io::Result<DirEntry>| {
        let comm = task.and_then(|task| std::fs::read_to_string(task.path().join("comm")));
        // It may have ended meanwhile.
        comm.is_ok_and(|comm| comm.trim_end() == name)
    };
    while std::fs::read_dir("/proc/self/task").unwrap().any(is_one) {
        assert!(started.elapsed() < PATIENCE, "a thread {name} goes on after its fault");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Injects every row, in processes of this program in which only the test of this name runs. Each prints its part of
/// the table of what was injected and what came of it.
///
/// # Panics
/// When something ends in another way.
#[allow(clippy::print_stdout, reason = "the table")]
pub fn every_fault_ends_in_a_typed_error<D: VendorDouble>(table: &'static FaultTable, test: &'static str) {
    if let Some(part) = std::env::var_os(PART) {
        let part: usize = part.to_str().unwrap().parse().unwrap();
        return watchdog(SECONDS_MAX, "faults", move || {
            let control = D::control();
            for row in table.each().into_iter().skip(part).step_by(PARTS) {
                let (call, fault, way) = row;
                println!("| {call} | {fault:?} | {way:?} | {} |", run::<D>(table, &control, row));
            }
        });
    }
    watchdog(SECONDS_MAX, "faults in processes", || {
        let start = |part: usize| {
            let mut child = Command::new(std::env::current_exe().unwrap());
            child.args(["--exact", test, "--nocapture"]);
            child.env(PART, part.to_string()).spawn().unwrap()
        };
        let children: Vec<_> = (0..PARTS).map(start).collect();
        for mut child in children {
            assert!(child.wait().unwrap().success());
        }
    });
}
