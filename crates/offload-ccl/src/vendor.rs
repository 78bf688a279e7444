//! oneCCL as a vendor of collectives: its calls, which block on memory of the host.

#![expect(unsafe_code, reason = "calls oneCCL")]

use std::ffi::c_int;
use std::ptr;
use std::sync::LazyLock;

use unisono_communicator::{DType, Error, Result};
use unisono_offload::{
    Arithmetic, Capabilities, Device, Elements, LibraryTurn, NanInMinMax, Native, NativeCall, NativeOp,
    Offloaded, RawStream, Vendor, lacks,
};
use unisono_vendor_library::Optional;

use crate::discovery::Ccl;
use crate::queue::{SyclDevice, SyclFunctions};
use crate::sys::{CommHandle, DataType, ReductionOp, UNIQUE_ID_BYTES, UniqueId};

/// The backend's name.
pub const BACKEND: &str = "ccl";

/// A communicator whose collectives oneCCL does.
pub type CclCommunicator = Offloaded<CclVendor>;

/// oneCCL on memory of the host, or on memory of a program's SYCL queues.
#[derive(Debug)]
pub struct CclVendor {
    ccl: &'static Ccl,
    queues: Option<SyclDevice>,
}

impl CclVendor {
    /// On memory of the host.
    pub fn on_host(ccl: &'static Ccl) -> CclVendor {
        CclVendor { ccl, queues: None }
    }

    /// On memory that SYCL's device number `device` reaches. The stream of a call is the address of a `sycl::queue` of
    /// that device; a call returns when the queue is done, and its ticket has its end then. Neither avg nor the
    /// pre-multiplied sum is there, and memory of the host is refused.
    ///
    /// With oneCCL's plugin for processors, which takes any pointer for a queue, this is tested on memory of the host.
    /// It has not run on a GPU.
    ///
    /// # Safety
    /// The functions must keep the promises of [`SyclFunctions`], on any thread, as long as the process lives.
    pub unsafe fn on_queues(ccl: &'static Ccl, functions: SyclFunctions, device: u32) -> CclVendor {
        CclVendor { ccl, queues: Some(SyclDevice::new(functions, device)) }
    }
}

/// With `CCL_WORKER_OFFLOAD=0` calls of two threads break each other's state, also on two communicators.
static TURN: LazyLock<LibraryTurn> = LazyLock::new(LibraryTurn::new);

/// The types that the plugin for processors reduces.
const REDUCIBLE: [DType; 10] = [
    DType::I8,
    DType::U8,
    DType::I32,
    DType::U32,
    DType::I64,
    DType::U64,
    DType::F16,
    DType::BF16,
    DType::F32,
    DType::F64,
];

/// The arithmetic of that plugin on this processor. Without AVX-512 it cuts the sums of bf16 off (measured with oneCCL
/// 2022.2).
pub fn arithmetic() -> Arithmetic {
    #[cfg(target_arch = "x86_64")]
    let has_avx512 = std::arch::is_x86_feature_detected!("avx512f");
    #[cfg(not(target_arch = "x86_64"))]
    let has_avx512 = false;
    Arithmetic {
        nan_in_min_max: NanInMinMax::AnyOperand,
        orders_zeros: false,
        truncates: if has_avx512 { &[] } else { &[DType::BF16] },
        equal_bits: true,
    }
}

/// A communicator of oneCCL.
pub struct CclComm {
    handle: CommHandle,
}

// SAFETY: oneCCL takes a communicator from any thread, one at a time: `TURN`.
unsafe impl Send for CclComm {}

// SAFETY: as above.
unsafe impl Sync for CclComm {}

/// oneCCL's number for an element type.
fn data_type(dtype: DType) -> Result<DataType> {
    Ok(match dtype {
        DType::I8 => DataType::Int8,
        DType::U8 => DataType::Uint8,
        DType::I32 => DataType::Int32,
        DType::U32 => DataType::Uint32,
        DType::I64 => DataType::Int64,
        DType::U64 => DataType::Uint64,
        DType::F16 => DataType::Float16,
        DType::BF16 => DataType::Bfloat16,
        DType::F32 => DataType::Float32,
        DType::F64 => DataType::Float64,
        other => {
            let what = format!("elements of {other}");
            return Err(Error::Unsupported { what, backend: BACKEND, instead: None });
        }
    })
}

fn reduction(op: NativeOp) -> Result<ReductionOp> {
    Ok(match op {
        NativeOp::Sum => ReductionOp::SUM,
        NativeOp::Prod => ReductionOp::PROD,
        NativeOp::Max => ReductionOp::MAX,
        NativeOp::Min => ReductionOp::MIN,
        NativeOp::Avg => ReductionOp::AVG,
        NativeOp::PreMulSum(_) => return Err(lacks::<CclVendor>("pre_mul_sum")),
    })
}

impl Ccl {
    /// A function that older versions lack.
    fn newer<F: Copy>(&self, function: &Optional<F>) -> Result<F> {
        function.require(BACKEND, &self.version().to_string(), "UNISONO_BACKEND=tcp")
    }
}

/// A rank, as C has it. There are at most 65,535.
fn number(rank: u32) -> c_int {
    rank as c_int
}

impl Vendor for CclVendor {
    const BACKEND: &'static str = BACKEND;
    const BACKEND_INLINE: &'static str = "ccl without meeting";
    const ID_BYTES: usize = UNIQUE_ID_BYTES;

    type Comm = CclComm;

    fn version(&self) -> String {
        format!("oneCCL {}{}", self.ccl.version(), self.ccl.table.library.mark())
    }

    fn capabilities(&self) -> Capabilities {
        let ops = [NativeOp::Sum, NativeOp::Prod, NativeOp::Max, NativeOp::Min];
        let reducing = |known: Capabilities, op| known.reducing(op, &REDUCIBLE);
        let always = [Native::AllToAll, Native::AllToAllInPlace, Native::Broadcast, Native::Reduce];
        let mut known = ops.into_iter().fold(Capabilities::new(arithmetic()), reducing);
        known = always.into_iter().fold(known, Capabilities::with);
        if self.queues.is_none() {
            known = known.scaling(&REDUCIBLE);
        }
        // Groups are there, but on memory of the host their end does not wait for the receives.
        if self.ccl.table.all_to_all_v.function.is_some() {
            known = known.with(Native::AllToAllV);
        }
        if self.ccl.table.scatter.function.is_some() {
            known = known.with(Native::Scatter);
        }
        known
    }

    /// Two ranks in one process wait for each other for ever.
    fn shares_processes(&self) -> bool {
        false
    }

    fn turn(&self) -> Option<&LibraryTurn> {
        Some(&TURN)
    }

    fn device(&self) -> Option<&dyn Device> {
        self.queues.as_ref().map(|device| device as &dyn Device)
    }

    fn unique_id(&self) -> Result<Vec<u8>> {
        let mut id = UniqueId { bytes: [0; UNIQUE_ID_BYTES] };
        // SAFETY: it writes one id.
        self.ccl.check("onecclGetUniqueId", unsafe { (self.ccl.table.get_unique_id)(&mut id) })?;
        Ok(id.bytes.to_vec())
    }

    fn init(
        &self,
        id: &[u8],
        rank: u32,
        ranks: u32,
        _: &dyn Fn() -> bool,
        _: &dyn Fn(&Error),
    ) -> Result<CclComm> {
        let mut own = UniqueId { bytes: [0; UNIQUE_ID_BYTES] };
        if id.len() != own.bytes.len() {
            return Err(Error::invalid("id", format!("{} bytes, not {UNIQUE_ID_BYTES}", id.len())));
        }
        own.bytes.copy_from_slice(id);
        let mut handle = ptr::null_mut();
        // SAFETY: it writes one handle; the id is one of `onecclGetUniqueId` of the group's first rank.
        let code = unsafe { (self.ccl.table.comm_init_rank)(&mut handle, ranks as usize, own, number(rank)) };
        self.ccl.check("onecclCommInitRank", code)?;
        Ok(CclComm { handle })
    }

    fn destroy(&self, comm: &CclComm) -> Result<()> {
        // SAFETY: the handle is one of `init`, and nobody uses it any more.
        self.ccl.check("onecclCommDestroy", unsafe { (self.ccl.table.comm_destroy)(comm.handle) })
    }

    // SAFETY: the terms are the trait's.
    unsafe fn call(&self, comm: &CclComm, call: &NativeCall<'_>, stream: RawStream) -> Result<()> {
        let (table, comm, queue) = (&self.ccl.table, comm.handle, stream.as_pointer());
        let bytes_of = DataType::Uint8;
        // SAFETY: the caller's. The input of an all-reduce is only read, although the header says no `const`; lists
        // have a length for each rank.
        let (name, code) = unsafe {
            match *call {
                NativeCall::AllReduce { input, output, elements: Elements { count, dtype, op } } => {
                    let (dtype, op) = (data_type(dtype)?, reduction(op)?);
                    let code = (table.all_reduce)(input.cast_mut(), output, count, dtype, op, comm, queue);
                    ("onecclAllReduce", code)
                }
                NativeCall::Reduce { input, output, elements: Elements { count, dtype, op }, root } => {
                    let (dtype, op, root) = (data_type(dtype)?, reduction(op)?, number(root));
                    ("onecclReduce", (table.reduce)(input, output, count, dtype, op, root, comm, queue))
                }
                NativeCall::ReduceScatter { input, output, elements: Elements { count, dtype, op } } => {
                    let (dtype, op) = (data_type(dtype)?, reduction(op)?);
                    let code = (table.reduce_scatter)(input, output, count, dtype, op, comm, queue);
                    ("onecclReduceScatter", code)
                }
                NativeCall::Broadcast { buffer, bytes, root } => {
                    let code = (table.broadcast)(buffer, buffer, bytes, bytes_of, number(root), comm, queue);
                    ("onecclBroadcast", code)
                }
                NativeCall::AllGather { input, output, bytes } => {
                    ("onecclAllGather", (table.all_gather)(input, output, bytes, bytes_of, comm, queue))
                }
                NativeCall::AllToAll { input, output, bytes } => {
                    ("onecclAllToAll", (table.all_to_all)(input, output, bytes, bytes_of, comm, queue))
                }
                NativeCall::AllToAllV { input, send, output, receive } => {
                    let (function, send, receive) =
                        (self.ccl.newer(&table.all_to_all_v)?, send.as_ptr(), receive.as_ptr());
                    ("onecclAllToAllV", function(input, send, output, receive, bytes_of, comm, queue))
                }
                NativeCall::Gather { .. } => return Err(lacks::<CclVendor>("gather")),
                NativeCall::Scatter { input, output, bytes, root } => {
                    let function = self.ccl.newer(&table.scatter)?;
                    ("onecclScatter", function(input, output, bytes, bytes_of, number(root), comm, queue))
                }
                NativeCall::Send { input, bytes, peer } => {
                    ("onecclSend", (table.send)(input, bytes, bytes_of, number(peer), comm, queue))
                }
                NativeCall::Recv { output, bytes, peer } => {
                    ("onecclRecv", (table.recv)(output, bytes, bytes_of, number(peer), comm, queue))
                }
            }
        };
        self.ccl.check(name, code)
    }
}
