//! NCCL's calls, errors and hangs, by the test double of NCCL and of the CUDA driver. It proves that the calls fit the
//! public headers, and the fate of errors; nothing about NCCL on a device.

#![expect(unsafe_code, reason = "calls the doubles of NCCL and of the driver")]

use std::ffi::{CString, c_char, c_int, c_void};
use std::path::PathBuf;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use tempfile::TempDir;
use unisono_communicator::{DType, Error, Result};
use unisono_cuda::Driver;
use unisono_offload::{Elements, Native, NativeCall, NativeOp, RawStream, Vendor};
use unisono_tests::vendor_rank::{VendorRank, vendor_world};
use unisono_tests::{doubles, watchdog};
use unisono_vendor_library::{Library, Process, functions};

use crate::discovery::NcclLibrary;
use crate::vendor::{Nccl, NcclOptions};

functions! {
    /// The functions of the double besides NCCL's and the driver's.
    Control {
        required {
            inject: "unisono_double_inject" (*const c_char, u32, c_int) -> ();
            hangs: "unisono_double_hangs" () -> u64;
            live_handles: "unisono_double_live_handles" () -> u64;
            misuses: "unisono_double_misuses" () -> u64;
            begin_capture: "cuStreamBeginCapture_v2" (*mut c_void, c_int);
            end_capture: "cuStreamEndCapture" (*mut c_void, *mut *mut c_void);
        }
    }
}

/// A call that is to hang.
const HANG: c_int = c_int::MIN;

/// A copy of the double that no other test has.
struct Double {
    file: PathBuf,
    library: &'static NcclLibrary,
    control: Control,
    _folder: TempDir,
}

impl Double {
    fn new(settings: &str, version: Option<u32>) -> Double {
        let folder = TempDir::new().unwrap();
        let file = doubles::nccl_with(folder.path(), settings, version);
        let control = Control::new(Library::open("test double", &[&file], "").unwrap()).unwrap();
        let library = Process::<NcclLibrary>::Fresh.open(&Some(file.clone())).unwrap();
        Double { file, library, control, _folder: folder }
    }

    fn open(&self, device: u32, blocking: bool) -> Result<Nccl> {
        let (library, driver) = (Some(self.file.clone()), Some(self.file.clone()));
        Nccl::on(self.library, &NcclOptions { library, driver, device, blocking, ..NcclOptions::default() })
    }

    fn inject(&self, call: &str, code: c_int) {
        let call = CString::new(call).unwrap();
        // SAFETY: it reads a string.
        unsafe { (self.control.inject)(call.as_ptr(), 1, code) };
    }

    /// Runs `body` on ranks that are threads, each with a device, a communicator and a stream.
    fn world(&self, ranks: u32, blocking: bool, body: impl Fn(&Rank<'_>) + Sync) {
        vendor_world(ranks, |rank| self.open(rank, blocking).unwrap(), body);
        // SAFETY: they take nothing.
        let (live, misuses) = unsafe { ((self.control.live_handles)(), (self.control.misuses)()) };
        assert_eq!((live, misuses), (0, 0), "what was made was given back, and ranks made the same calls");
    }
}

type Rank<'a> = VendorRank<'a, Nccl>;

fn call(rank: &Rank<'_>, call: &NativeCall<'_>) -> Result<()> {
    // SAFETY: tests give memory that is long enough and lives until the work is done.
    unsafe { rank.call(call) }
}

/// The results for the ranks' numbers: 1, 2, 3 and so on, and -2 of each.
fn reduced(rank: &Rank<'_>, op: NativeOp) -> Vec<f32> {
    let elements = Elements { count: 2, dtype: DType::F32, op };
    rank.result(&[rank.rank as f32 + 1.0, -2.0], |memory| {
        call(rank, &NativeCall::AllReduce { input: memory, output: memory, elements })
    })
}

/// The address of number `index`.
fn at(memory: *mut c_void, index: usize) -> *mut c_void {
    memory.wrapping_byte_add(4 * index)
}

fn vendor_error(error: &Error) -> (&str, i32, &str, &str) {
    let Error::Vendor { call, code, text, remedy, .. } = error else { panic!("{error}") };
    (call, *code, text, remedy)
}

const SUM: Elements = Elements { count: 1, dtype: DType::F32, op: NativeOp::Sum };

/// Every call with its function's name, on memory with a number of each rank before a number for each.
fn calls(memory: *mut c_void, ranks: usize) -> Vec<(&'static str, NativeCall<'static>)> {
    let (input, output, root) = (memory.cast_const(), at(memory, ranks), 0);
    vec![
        ("ncclAllReduce", NativeCall::AllReduce { input, output, elements: SUM }),
        ("ncclReduce", NativeCall::Reduce { input, output, elements: SUM, root }),
        ("ncclReduceScatter", NativeCall::ReduceScatter { input, output, elements: SUM }),
        ("ncclBroadcast", NativeCall::Broadcast { buffer: output, bytes: 4, root }),
        ("ncclAllGather", NativeCall::AllGather { input, output, bytes: 4 }),
        ("ncclAlltoAll", NativeCall::AllToAll { input, output, bytes: 4 }),
        ("ncclGather", NativeCall::Gather { input, output, bytes: 4, root }),
        ("ncclScatter", NativeCall::Scatter { input, output, bytes: 4, root }),
    ]
}

#[test]
fn every_operator_reduces() {
    watchdog(60, "every_operator_reduces", || {
        Double::new("operators", None).world(3, false, |rank| {
            for (op, expected) in [
                (NativeOp::Sum, [6.0, -6.0]),
                (NativeOp::Prod, [6.0, -8.0]),
                (NativeOp::Max, [3.0, -2.0]),
                (NativeOp::Min, [1.0, -2.0]),
                (NativeOp::Avg, [2.0, -2.0]),
                // Each rank has its own factor.
                (NativeOp::PreMulSum(f64::from(rank.rank)), [8.0, -6.0]),
            ] {
                let found = reduced(rank, op);
                assert!(
                    found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-5),
                    "{op} {found:?}"
                );
            }
        });
    });
}

/// Rows: E2
#[test]
fn every_call_moves_what_it_should() {
    watchdog(60, "every_call_moves_what_it_should", || {
        Double::new("calls", None).world(3, false, |rank| {
            let own = rank.rank as f32 * 10.0;
            // Parts for ranks 0, 1 and 2, and room.
            let numbers = [own, own + 1.0, own + 2.0, -1.0, -1.0, -1.0];
            let of_rank = |of: u32, part: f32| of as f32 * 10.0 + part;
            let me = rank.rank as f32;
            for (index, expected) in [
                [30.0, -1.0, -1.0].map(Some),
                if rank.rank == 0 { [30.0, -1.0, -1.0].map(Some) } else { [None, Some(-1.0), Some(-1.0)] },
                [Some(30.0 + 3.0 * me), Some(-1.0), Some(-1.0)],
                [-1.0; 3].map(Some),
                [0.0, 10.0, 20.0].map(Some),
                [0, 1, 2].map(|of| Some(of_rank(of, me))),
                if rank.rank == 0 { [0.0, 10.0, 20.0].map(Some) } else { [-1.0; 3].map(Some) },
                [Some(me), Some(-1.0), Some(-1.0)],
            ]
            .into_iter()
            .enumerate()
            {
                let mut name = "";
                let found = rank.result(&numbers, |memory| {
                    let (of, one) = calls(memory, 3)[index];
                    name = of;
                    call(rank, &one)
                });
                let is_right = expected.iter().zip(&found[3..]).all(|(e, f)| e.is_none_or(|e| e == *f));
                assert!(is_right && found[..3] == numbers[..3], "{name}: {found:?}, not {expected:?}");
            }
            let other = of_rank(1, 1.0);
            let found = rank.result(&numbers, |memory| {
                call(rank, &NativeCall::Broadcast { buffer: at(memory, 1), bytes: 4, root: 1 })
            });
            assert_eq!(found[1], other);
        });
    });
}

#[test]
fn messages_of_a_group_are_one_call() {
    watchdog(60, "messages_of_a_group_are_one_call", || {
        for blocking in [false, true] {
            Double::new(&format!("groups-{blocking}"), None).world(3, blocking, |rank| {
                let [next, previous] = [(rank.rank + 1) % rank.ranks, (rank.rank + 2) % rank.ranks];
                let found = rank.result(&[rank.rank as f32, -1.0], |memory| {
                    rank.vendor.group_start()?;
                    // With either of them first, one of three would wait for ever outside a group.
                    call(rank, &NativeCall::Recv { output: at(memory, 1), bytes: 4, peer: previous })?;
                    call(rank, &NativeCall::Send { input: memory, bytes: 4, peer: next })?;
                    rank.vendor.group_end()
                });
                assert_eq!(found, [rank.rank as f32, previous as f32]);
            });
        }
    });
}

/// Every code of every function becomes the error of that function, with its name and a remedy.
#[test]
fn every_code_of_every_call_is_its_error() {
    watchdog(120, "every_code_of_every_call_is_its_error", || {
        let double = &Double::new("codes", None);
        let names = [
            "ncclUnhandledCudaError",
            "ncclSystemError",
            "ncclInternalError",
            "ncclInvalidArgument",
            "ncclInvalidUsage",
            "ncclRemoteError",
            "",
            "ncclTimeout",
        ];
        let check = |function: &str, act: &dyn Fn() -> Result<()>| {
            for (code, name) in (1..).zip(names).filter(|(_, name)| !name.is_empty()) {
                double.inject(function, code);
                let error = act().expect_err(function);
                let (call, found, text, remedy) = vendor_error(&error);
                assert_eq!((call, found), (function, code), "{error}");
                assert!(text.starts_with(name) && remedy.len() > 20, "{error}");
                act().unwrap();
            }
        };
        double.world(1, false, |rank| {
            let ((), _) = rank.with(&[1.0, 2.0, 3.0], |memory| {
                for (function, one) in calls(memory, 1) {
                    check(function, &|| call(rank, &one));
                }
                let op = NativeOp::PreMulSum(0.5);
                let one =
                    NativeCall::AllReduce { input: memory, output: memory, elements: Elements { op, ..SUM } };
                check("ncclRedOpCreatePreMulSum", &|| call(rank, &one));
                let send = NativeCall::Send { input: memory, bytes: 4, peer: 0 };
                let recv = NativeCall::Recv { output: at(memory, 1), bytes: 4, peer: 0 };
                let group = || {
                    rank.vendor.group_start()?;
                    let called = [send, recv].iter().try_for_each(|one| call(rank, one));
                    let ended = rank.vendor.group_end();
                    called.and(ended)
                };
                for function in ["ncclGroupStart", "ncclSend", "ncclRecv", "ncclGroupEnd"] {
                    check(function, &group);
                }
            });
            check("ncclGetUniqueId", &|| rank.vendor.unique_id().map(drop));
            check("ncclCommGetAsyncError", &|| rank.vendor.late_error(rank.comm));
            check("ncclCommInitRankConfig", &|| {
                let id = rank.vendor.unique_id()?;
                let comm = rank.vendor.init(&id, 0, 1, &|| false, &|_| ())?;
                rank.vendor.destroy(&comm)
            });
        });
    });
}

/// None of the calls of a group is made when one has failed, before or after the others, and later calls are.
#[test]
fn a_call_that_fails_fails_its_group() {
    watchdog(60, "a_call_that_fails_fails_its_group", || {
        let double = &Double::new("group-ends", None);
        double.world(1, false, |rank| {
            let found = rank.result(&[5.0, -1.0], |memory| {
                let send = NativeCall::Send { input: at(memory, 1), bytes: 4, peer: 0 };
                let recv = NativeCall::Recv { output: memory, bytes: 4, peer: 0 };
                for (function, code) in [("ncclRecv", 3), ("ncclSend", 5)] {
                    rank.vendor.group_start()?;
                    double.inject(function, code);
                    let called = [send, recv].map(|one| call(rank, &one));
                    assert_eq!(called.iter().filter(|called| called.is_err()).count(), 1, "{called:?}");
                    let ended = rank.vendor.group_end().unwrap_err();
                    assert_eq!(vendor_error(&ended).1, code);
                }
                call(rank, &NativeCall::AllGather { input: memory, output: at(memory, 1), bytes: 4 })?;
                Ok(())
            });
            // The message that had been noted is not sent.
            assert_eq!(found[0], 5.0);
        });
    });
}

/// A thread that hangs in a call is got out of it by an abort of another, and the communicator is of no use then.
#[test]
fn an_abort_ends_a_call_that_hangs() {
    watchdog(60, "an_abort_ends_a_call_that_hangs", || {
        let double = &Double::new("hangs", None);
        // An operator that was made for a call goes with the communicator.
        for op in [NativeOp::Sum, NativeOp::PreMulSum(2.0)] {
            double.world(1, false, |rank| {
                rank.with(&[1.0], |memory| {
                    let elements = Elements { op, ..SUM };
                    double.inject("ncclAllReduce", HANG);
                    thread::scope(|scope| {
                        scope.spawn(|| {
                            // SAFETY: it takes nothing.
                            while unsafe { (double.control.hangs)() } == 0 {
                                thread::sleep(Duration::from_millis(1));
                            }
                            assert!(rank.vendor.abort(rank.comm));
                            assert!(rank.vendor.abort(rank.comm), "once more");
                        });
                        let address = memory;
                        let one = NativeCall::AllReduce { input: address, output: address, elements };
                        call(rank, &one).unwrap_err();
                    });
                    let one = NativeCall::AllReduce { input: memory, output: memory, elements };
                    assert!(matches!(call(rank, &one), Err(Error::Closed { .. })));
                    assert!(matches!(rank.vendor.late_error(rank.comm), Err(Error::Closed { .. })));
                });
            });
        }
    });
}

#[test]
fn an_init_in_which_a_rank_does_not_come_can_be_given_up() {
    watchdog(60, "an_init_in_which_a_rank_does_not_come_can_be_given_up", || {
        let double = Double::new("absent", None);
        let vendor = double.open(0, false).unwrap();
        let id = vendor.unique_id().unwrap();
        let asked = std::cell::Cell::new(0);
        let gives_up = || {
            asked.set(asked.get() + 1);
            asked.get() > 200
        };
        let Err(error) = vendor.init(&id, 0, 2, &gives_up, &|_| ()) else { panic!("a rank is absent") };
        assert!(
            matches!(error, Error::Closed { .. }) && asked.get() == 201,
            "{error}, asked {} times",
            asked.get()
        );
    });
}

#[test]
fn what_an_older_version_lacks_is_not_claimed() {
    watchdog(60, "what_an_older_version_lacks_is_not_claimed", || {
        Double::new("older", Some(21_903)).world(1, false, |rank| {
            let known = rank.vendor.capabilities();
            assert!(known.has(Native::Groups) && known.has(Native::Broadcast) && known.abort);
            assert!(
                !known.has(Native::AllToAll) && !known.has(Native::Gather) && !known.has(Native::Scatter)
            );
            rank.with(&[1.0, 2.0], |memory| {
                for (name, one) in calls(memory, 1) {
                    let called = call(rank, &one);
                    if ["ncclAlltoAll", "ncclGather", "ncclScatter"].contains(&name) {
                        let words =
                            format!("nccl does not support {name}, which needs version 2.28: this is 2.19.3");
                        assert!(called.unwrap_err().to_string().starts_with(&words));
                    } else {
                        called.unwrap();
                    }
                }
            });
        });
        let known = Double::new("newer", None).open(0, false).unwrap().capabilities();
        assert!(known.has(Native::AllToAll) && known.has(Native::Gather) && known.has(Native::Scatter));
        assert!(known.reduces(NativeOp::Avg, DType::U32) && !known.reduces(NativeOp::Avg, DType::I32));
    });
}

#[test]
fn devices_that_are_not_there_are_errors() {
    watchdog(60, "devices_that_are_not_there_are_errors", || {
        let double = Double::new("two.devices=2", None);
        let error = double.open(2, false).unwrap_err();
        assert_eq!(error.to_string(), "invalid device: 2, and the driver has 2");
        let nothing = Double::new("nothing.devices=0", None);
        let error = nothing.open(0, false).unwrap_err();
        assert!(error.to_string().contains("nvidia-smi") || error.to_string().contains("has 0"), "{error}");
        let driver = Some(PathBuf::from("/nowhere/libcuda.so.1"));
        let error = Nccl::on(double.library, &NcclOptions { driver, ..NcclOptions::default() }).unwrap_err();
        assert!(
            matches!(error, Error::LibraryMissing { .. }) && error.to_string().contains("libcuda.so.1"),
            "{error}"
        );
        let vendor = double.open(0, false).unwrap();
        let Err(error) = vendor.init(&[0; 127], 0, 1, &|| false, &|_| ()) else {
            panic!("the id is too short")
        };
        assert_eq!(error.to_string(), "invalid id: 127 bytes, not 128");
    });
}

#[test]
fn streams_and_memory_of_others_are_refused() {
    watchdog(60, "streams_and_memory_of_others_are_refused", || {
        let double = Double::new("refused", None);
        let [one, other] = [0, 1].map(|device| double.open(device, false).unwrap());
        let [device, beside] = [one.device().unwrap(), other.device().unwrap()];
        let (own, theirs) = (device.create_stream().unwrap(), beside.create_stream().unwrap());
        // SAFETY: all streams live.
        unsafe {
            device.check_stream(own).unwrap();
            for default in [0, 1] {
                device.check_stream(RawStream(default)).unwrap();
            }
            let error = device.check_stream(RawStream(2)).unwrap_err();
            assert!(matches!(error, Error::Unsupported { instead: Some(_), .. }), "{error}");
            assert!(error.to_string().contains("CU_STREAM_PER_THREAD"), "{error}");
            let error = device.check_stream(theirs).unwrap_err();
            assert!(matches!(error, Error::InvalidArgument { argument: "stream", .. }), "{error}");
            let driver = Driver::open(Some(&double.file)).unwrap();
            let context = driver.context(0).unwrap();
            let code = || Ok((double.control.begin_capture)(own.as_pointer(), 2));
            assert_eq!(context.with_current(code).unwrap(), 0);
            let error = device.check_stream(own).unwrap_err();
            assert!(error.to_string().contains("captured into a graph"), "{error}");
            let mut graph = std::ptr::null_mut();
            let code = || Ok((double.control.end_capture)(own.as_pointer(), &mut graph));
            assert_eq!(context.with_current(code).unwrap(), 0);
            device.check_stream(own).unwrap();
        }
        let [near, far] = [device.allocate(16).unwrap(), beside.allocate(16).unwrap()];
        device.check_address("output", near.expose_provenance()).unwrap();
        let error = device.check_address("output", far.expose_provenance()).unwrap_err();
        assert!(error.to_string().contains("in memory of device 1: the communicator is on 0"), "{error}");
        let host = [0u8; 4];
        let error = device.check_address("input", host.as_ptr().expose_provenance()).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { argument: "input", .. }), "{error}");
        // SAFETY: none of them is used again.
        unsafe {
            device.free(near);
            beside.free(far);
            device.destroy_stream(own);
            beside.destroy_stream(theirs);
        }
    });
}

/// Ranks of one process may come to a barrier of their own between calls: nothing of the library is held meanwhile.
#[test]
fn threads_of_a_process_are_in_the_library_at_once() {
    watchdog(60, "threads_of_a_process_are_in_the_library_at_once", || {
        let barrier = Barrier::new(4);
        Double::new("threads", None).world(4, false, |rank| {
            for _ in 0..20 {
                barrier.wait();
                assert_eq!(reduced(rank, NativeOp::Sum), [10.0, -8.0]);
            }
        });
    });
}
