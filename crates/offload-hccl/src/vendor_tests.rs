//! HCCL's calls, errors and refusals, by the test double of HCCL, ACL and aclnn. It proves that the calls fit the
//! public headers, and the fate of errors; nothing about Huawei's libraries on a device.

#![expect(unsafe_code, reason = "calls the doubles of HCCL and ACL")]

use std::ffi::{CString, c_char, c_int, c_void};

use tempfile::TempDir;
use unisono_communicator::{DType, Error, ReduceOp, Result};
use unisono_offload::{Combination, Elements, Native, NativeCall, NativeOp, RawStream, Scale, Vendor};
use unisono_tests::vendor_rank::{VendorRank, vendor_world};
use unisono_tests::{doubles, watchdog};
use unisono_vendor_library::{Library, Process, functions};

use crate::discovery::HcclLibrary;
use crate::product::Product;
use crate::vendor::{Hccl, HcclOptions};

functions! {
    /// The functions of the double besides HCCL's, ACL's and aclnn's.
    Control {
        required {
            inject: "unisono_double_inject" (*const c_char, u32, c_int) -> ();
            live_handles: "unisono_double_live_handles" () -> u64;
            misuses: "unisono_double_misuses" () -> u64;
        }
    }
}

/// A copy of the double that no other test has.
pub(crate) struct Double {
    library: &'static HcclLibrary,
    control: Control,
    _folder: TempDir,
}

impl Double {
    pub(crate) fn new(settings: &str) -> Double {
        Double::without(settings, &[])
    }

    /// A double that lacks these functions.
    pub(crate) fn without(settings: &str, functions: &[&str]) -> Double {
        let folder = TempDir::new().unwrap();
        let file = doubles::hccl_with(folder.path(), settings, functions);
        // The double reads its settings from the name by which it is opened first.
        let control = Control::new(Library::open("test double", &[&file], "").unwrap()).unwrap();
        doubles::name_as_cann(&file, folder.path());
        let library = Process::<HcclLibrary>::Fresh.open(&Some(folder.path().to_owned())).unwrap();
        Double { library, control, _folder: folder }
    }

    pub(crate) fn open(&self, device: u32) -> Result<Hccl> {
        Hccl::on(self.library, &HcclOptions { directory: None, device })
    }

    pub(crate) fn library(&self) -> &'static HcclLibrary {
        self.library
    }

    pub(crate) fn live_handles(&self) -> u64 {
        // SAFETY: it takes nothing.
        unsafe { (self.control.live_handles)() }
    }

    fn inject(&self, call: &str, code: c_int) {
        let call = CString::new(call).unwrap();
        // SAFETY: it reads a string.
        unsafe { (self.control.inject)(call.as_ptr(), 1, code) };
    }

    /// Runs `body` on ranks that are threads, each with a device, a communicator and a stream.
    fn world(&self, ranks: u32, body: impl Fn(&Rank<'_>) + Sync) {
        vendor_world(ranks, |rank| self.open(rank).unwrap(), body);
        // SAFETY: they take nothing.
        let (live, misuses) = unsafe { ((self.control.live_handles)(), (self.control.misuses)()) };
        assert_eq!((live, misuses), (0, 0), "what was made was given back, and ranks made the same calls");
    }
}

type Rank<'a> = VendorRank<'a, Hccl>;

fn call(rank: &Rank<'_>, call: &NativeCall<'_>) -> Result<()> {
    // SAFETY: tests give memory that is long enough and lives until the work is done.
    unsafe { rank.call(call) }
}

/// The address of number `index`.
fn at(memory: *mut c_void, index: usize) -> *mut c_void {
    memory.wrapping_byte_add(4 * index)
}

const SUM: Elements = Elements { count: 1, dtype: DType::F32, op: NativeOp::Sum };

/// Every call with its function's name, on memory with a number of each rank before a number for each.
fn calls(memory: *mut c_void, ranks: usize) -> Vec<(&'static str, NativeCall<'static>)> {
    let (input, output, root) = (memory.cast_const(), at(memory, ranks), 0);
    vec![
        ("HcclAllReduce", NativeCall::AllReduce { input, output, elements: SUM }),
        ("HcclReduce", NativeCall::Reduce { input, output, elements: SUM, root }),
        ("HcclReduceScatter", NativeCall::ReduceScatter { input, output, elements: SUM }),
        ("HcclBroadcast", NativeCall::Broadcast { buffer: output, bytes: 4, root }),
        ("HcclAllGather", NativeCall::AllGather { input, output, bytes: 4 }),
        ("HcclAlltoAll", NativeCall::AllToAll { input, output, bytes: 4 }),
        ("HcclScatter", NativeCall::Scatter { input, output, bytes: 4, root }),
    ]
}

#[test]
fn every_operator_reduces() {
    watchdog(60, "every_operator_reduces", || {
        Double::new("operators").world(3, |rank| {
            for (op, expected) in [
                (NativeOp::Sum, [6.0, -6.0]),
                (NativeOp::Prod, [6.0, -8.0]),
                (NativeOp::Max, [3.0, -2.0]),
                (NativeOp::Min, [1.0, -2.0]),
            ] {
                let elements = Elements { count: 2, dtype: DType::F32, op };
                let found = rank.result(&[rank.rank as f32 + 1.0, -2.0], |memory| {
                    call(rank, &NativeCall::AllReduce { input: memory, output: memory, elements })
                });
                assert_eq!(found, expected, "{op}");
            }
        });
    });
}

/// Rows: F2
#[test]
fn every_call_moves_what_it_should() {
    watchdog(60, "every_call_moves_what_it_should", || {
        Double::new("calls").world(3, |rank| {
            let (own, me) = (rank.rank as f32 * 10.0, rank.rank as f32);
            let numbers = [own, own + 1.0, own + 2.0, -1.0, -1.0, -1.0];
            for (index, expected) in [
                [30.0, -1.0, -1.0].map(Some),
                if rank.rank == 0 { [30.0, -1.0, -1.0].map(Some) } else { [None, Some(-1.0), Some(-1.0)] },
                [Some(30.0 + 3.0 * me), Some(-1.0), Some(-1.0)],
                [-1.0; 3].map(Some),
                [0.0, 10.0, 20.0].map(Some),
                [me, 10.0 + me, 20.0 + me].map(Some),
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
            let found = rank.result(&numbers, |memory| {
                call(rank, &NativeCall::Broadcast { buffer: at(memory, 1), bytes: 4, root: 1 })
            });
            assert_eq!(found[1], 11.0);
            // Rank r sends r numbers to everybody.
            let [send, receive] = [[rank.rank as usize * 4; 3], [0, 4, 8]];
            let found = rank.result(&[[own; 6], [-1.0; 6]].concat(), |memory| {
                let (input, output) = (memory.cast_const(), at(memory, 6));
                call(rank, &NativeCall::AllToAllV { input, send: &send, output, receive: &receive })
            });
            assert_eq!(found[6..], [10.0, 20.0, 20.0, -1.0, -1.0, -1.0]);
        });
    });
}

#[test]
fn messages_of_a_group_are_one_batch() {
    watchdog(60, "messages_of_a_group_are_one_batch", || {
        Double::new("groups").world(3, |rank| {
            let [next, previous] = [(rank.rank + 1) % rank.ranks, (rank.rank + 2) % rank.ranks];
            let found = rank.result(&[rank.rank as f32, -1.0], |memory| {
                rank.vendor.group_start()?;
                call(rank, &NativeCall::Recv { output: at(memory, 1), bytes: 4, peer: previous })?;
                call(rank, &NativeCall::Send { input: memory, bytes: 4, peer: next })?;
                rank.vendor.group_end()
            });
            assert_eq!(found, [rank.rank as f32, previous as f32]);
            let alone = rank.result(&[rank.rank as f32], |memory| {
                let (bytes, peer) = (4, 1 - rank.rank.min(1));
                match rank.rank {
                    0 => call(rank, &NativeCall::Send { input: memory, bytes, peer }),
                    1 => call(rank, &NativeCall::Recv { output: memory, bytes, peer }),
                    _ => Ok(()),
                }
            });
            assert_eq!(alone, [if rank.rank == 2 { 2.0 } else { 0.0 }]);
        });
    });
}

/// HCCL takes one message to a rank in a batch, and one from it; a group may have several, and another number of them
/// in each direction.
#[test]
fn several_messages_to_one_rank_are_several_batches() {
    watchdog(60, "several_messages_to_one_rank_are_several_batches", || {
        Double::new("several").world(2, |rank| {
            let [me, peer] = [rank.rank, 1 - rank.rank];
            let own = me as f32 * 10.0;
            let found = rank.result(&[own, own + 1.0, own + 2.0, -1.0, -1.0, -1.0], |memory| {
                let send = |index| NativeCall::Send { input: at(memory, index), bytes: 4, peer };
                let recv = |index| NativeCall::Recv { output: at(memory, index), bytes: 4, peer };
                rank.vendor.group_start()?;
                // Rank 0 sends three and receives one.
                let messages = if me == 0 {
                    [send(0), send(1), recv(3), send(2)]
                } else {
                    [recv(3), send(0), recv(4), recv(5)]
                };
                messages.iter().try_for_each(|one| call(rank, one))?;
                rank.vendor.group_end()
            });
            let received = if me == 0 { [10.0, -1.0, -1.0] } else { [0.0, 1.0, 2.0] };
            assert_eq!(found[3..], received);
        });
    });
}

/// A call that does not belong into a group ends it, and none of its messages is sent.
#[test]
fn a_call_that_fails_ends_its_group() {
    watchdog(60, "a_call_that_fails_ends_its_group", || {
        Double::new("group-ends").world(2, |rank| {
            let found = rank.result(&[1.0], |memory| {
                rank.vendor.group_start()?;
                call(rank, &NativeCall::Send { input: memory, bytes: 4, peer: 1 - rank.rank })?;
                let one = NativeCall::AllReduce { input: memory, output: memory, elements: SUM };
                let error = call(rank, &one).unwrap_err();
                assert!(error.to_string().contains("collectives within groups"), "{error}");
                rank.vendor.group_end()?;
                call(rank, &one)
            });
            assert_eq!(found, [2.0]);
        });
    });
}

#[test]
fn sums_are_scaled_on_the_device() {
    watchdog(60, "sums_are_scaled_on_the_device", || {
        Double::new("scaling").world(1, |rank| {
            let device = rank.device();
            for (by, expected) in [(Scale::Divide(4), [1.5, -0.5]), (Scale::Multiply(0.5), [3.0, -1.0])] {
                let found = rank.result(&[6.0, -2.0], |memory| {
                    // SAFETY: there are two numbers.
                    unsafe { device.scale(memory, 2, DType::F32, by, rank.stream) }
                });
                assert_eq!(found, expected, "{by:?}");
            }
            // SAFETY: it is refused.
            let refused =
                unsafe { device.scale(std::ptr::null_mut(), 1, DType::I32, Scale::Divide(2), rank.stream) };
            assert!(matches!(refused, Err(Error::Unsupported { .. })), "{refused:?}");
        });
    });
}

/// The first two of six numbers with the next two, into the numbers from `to` on.
fn combine(rank: &Rank<'_>, memory: *mut c_void, to: usize, by: Combination) -> Result<()> {
    let operands = [memory.cast_const(), at(memory, 2).cast_const()];
    // SAFETY: two numbers each, of six.
    unsafe { rank.device().combine(at(memory, to), operands, 2, DType::F32, by, rank.stream) }
}

#[test]
fn two_vectors_become_one_on_the_device() {
    watchdog(60, "two_vectors_become_one_on_the_device", || {
        let double = &Double::new("combining");
        double.world(1, |rank| {
            let numbers = [6.0, -2.0, 3.0, 0.5, -1.0, -1.0];
            for (by, expected) in [
                (Combination::Sum, [9.0, -1.5]),
                (Combination::Prod, [18.0, -1.0]),
                (Combination::Max, [6.0, 0.5]),
                (Combination::Min, [3.0, -2.0]),
            ] {
                // Apart, and where an operand is.
                for to in [4, 0, 2] {
                    let found = rank.result(&numbers, |memory| combine(rank, memory, to, by));
                    assert_eq!(found[to..][..2], expected, "{by:?}");
                }
            }
            for by in [Combination::Mean { ranks: 2 }, Combination::BitXor] {
                let (refused, _) = rank.with(&numbers, |memory| combine(rank, memory, 4, by));
                assert!(matches!(refused, Err(Error::Unsupported { .. })), "{refused:?}");
            }
        });
        // No world of the double's: of an operator that fails to begin nobody knows whether it uses its workspace.
        vendor_world(
            1,
            |rank| double.open(rank).unwrap(),
            |rank: &Rank<'_>| {
                for function in ["aclnnAddGetWorkspaceSize", "aclnnAdd"] {
                    double.inject(function, 161_002);
                    let (failed, _) =
                        rank.with(&[1.0; 6], |memory| combine(rank, memory, 4, Combination::Sum));
                    let error = failed.unwrap_err();
                    assert!(matches!(&error, Error::Vendor { call, .. } if **call == *function), "{error}");
                }
            },
        );
    });
}

#[test]
fn without_an_operator_nothing_is_combined() {
    let double = Double::without("no-maximum", &["aclnnMaximum"]);
    let vendor = double.open(0).unwrap();
    let known = vendor.capabilities();
    assert!(!known.combines(ReduceOp::Sum, DType::F32) && known.reduces(NativeOp::Sum, DType::F32));
    let (null, by) = (std::ptr::null_mut(), Combination::Sum);
    let device = vendor.device().unwrap();
    // SAFETY: it is refused.
    let refused = unsafe { device.combine(null, [null, null], 1, DType::F32, by, RawStream::HOST) };
    assert!(matches!(refused, Err(Error::Unsupported { .. })), "{refused:?}");
}

/// Every code of every function becomes the error of that function, with its name and a remedy.
#[test]
fn every_code_of_every_call_is_its_error() {
    watchdog(120, "every_code_of_every_call_is_its_error", || {
        let double = &Double::new("codes");
        let fails = |function: &str, code: c_int, start: &str, act: &dyn Fn() -> Result<()>| {
            double.inject(function, code);
            let error = act().expect_err(function);
            let Error::Vendor { call, code: found, text, remedy, .. } = &error else { panic!("{error}") };
            assert_eq!((&**call, *found), (function, code), "{error}");
            assert!(text.starts_with(start) && remedy.len() > 20, "{error}");
            act().unwrap();
        };
        let check = |function: &str, act: &dyn Fn() -> Result<()>| {
            (1..=24).chain([1041]).for_each(|code| fails(function, code, "HCCL_E_", act));
        };
        double.world(1, |rank| {
            rank.with(&[1.0, 2.0, 3.0], |memory| {
                for (function, one) in calls(memory, 1) {
                    check(function, &|| call(rank, &one));
                }
                let (input, output) = (memory.cast_const(), at(memory, 1));
                let one = NativeCall::AllToAllV { input, send: &[4], output, receive: &[4] };
                check("HcclAlltoAllV", &|| call(rank, &one));
                let device = rank.device();
                // SAFETY: the bytes are within the memory.
                let copy = || unsafe { device.copy(output, input, 4, rank.stream) };
                for code in [100_000, 107_003, 507_899] {
                    fails("aclrtMemcpyAsync", code, "ACL_ERROR_", &copy);
                }
            });
            check("HcclGetRootInfo", &|| rank.vendor.unique_id().map(drop));
            check("HcclGetCommAsyncError", &|| rank.vendor.late_error(rank.comm));
            check("HcclCommInitRootInfo", &|| {
                let comm = rank.vendor.init(&rank.vendor.unique_id()?, 0, 1, &|| false, &|_| ())?;
                rank.vendor.destroy(&comm)
            });
            fails("aclrtMalloc", 207_001, "ACL_ERROR_RT_MEMORY_ALLOCATION", &|| {
                let device = rank.device();
                let memory = device.allocate(8)?;
                // SAFETY: it was just made.
                unsafe { device.free(memory) };
                Ok(())
            });
        });
    });
}

#[test]
fn what_a_product_lacks_is_not_claimed_and_not_done() {
    watchdog(60, "what_a_product_lacks_is_not_claimed_and_not_done", || {
        for (setting, product) in [
            ("950", Product::Ascend950),
            ("910b", Product::AtlasA3A2),
            ("910", Product::Atlas910),
            ("310p", Product::Atlas310P),
        ] {
            Double::new(&format!("products.product={setting}")).world(1, |rank| {
                assert_eq!(rank.vendor.product(), product);
                let known = rank.vendor.capabilities();
                rank.with(&[1.0, 2.0, 3.0, 4.0], |memory| {
                    let ops = [NativeOp::Sum, NativeOp::Prod, NativeOp::Max, NativeOp::Min];
                    let dtypes = [DType::I8, DType::I16, DType::I32, DType::I64, DType::U64, DType::F16];
                    for dtype in dtypes.into_iter().chain([DType::BF16, DType::F32, DType::F64]) {
                        for op in ops {
                            let elements = Elements { count: 1, dtype, op };
                            let one = NativeCall::AllReduce { input: memory, output: memory, elements };
                            let done = call(rank, &one).is_ok();
                            assert_eq!(done, known.reduces(op, dtype), "{product:?} {op} {dtype}");
                        }
                    }
                    let one = NativeCall::Broadcast { buffer: memory, bytes: 4, root: 0 };
                    assert_eq!(call(rank, &one).is_ok(), known.has(Native::Broadcast), "{product:?}");
                });
            });
        }
    });
}

/// The order of CANN: a device that was brought up is torn down, and can be brought up again.
#[test]
fn devices_come_and_go() {
    watchdog(60, "devices_come_and_go", || {
        let double = Double::new("devices.devices=2");
        let error = double.open(2).unwrap_err();
        assert!(error.to_string().starts_with("invalid device: 2, and ACL has 2: npu-smi info"), "{error}");
        for _ in 0..2 {
            let [one, same, other] = [0, 0, 1].map(|device| double.open(device).unwrap());
            drop(one);
            let device = same.device().unwrap();
            let memory = device.allocate(64).expect("another value has the device still");
            // SAFETY: it was just made.
            unsafe { device.free(memory) };
            assert_eq!(other.device().unwrap().ordinal(), 1);
        }
        // SAFETY: it takes nothing.
        assert_eq!(unsafe { (double.control.live_handles)() }, 0);
        double.inject("aclInit", 500_000);
        let error = double.open(0).unwrap_err();
        assert!(error.to_string().contains("ACL_ERROR_INTERNAL_ERROR"), "{error}");
        double.inject("aclrtGetDeviceCount", 207_004);
        let error = double.open(0).unwrap_err();
        assert!(error.to_string().contains("this machine has no Ascend device"), "{error}");
        let vendor = double.open(0).unwrap();
        let Err(error) = vendor.init(&[0; 4096], 0, 1, &|| false, &|_| ()) else {
            panic!("the id is too short")
        };
        assert_eq!(error.to_string(), "invalid id: 4096 bytes, not 4108");
    });
}
