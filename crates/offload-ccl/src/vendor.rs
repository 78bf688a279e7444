//! oneCCL as a vendor of collectives: its calls on memory of the host, with which they block.

#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::LazyLock;

use unisono_communicator::{DType, Error, Result};
use unisono_offload::{
    Arithmetic, Capabilities, Elements, LibraryTurn, NanInMinMax, Native, NativeOp, Offloaded, Vendor,
};

use crate::discovery::Ccl;
use crate::sys::{CommHandle, DataType, Queue, ReductionOp, UNIQUE_ID_BYTES, UniqueId};

/// The backend's name.
pub const BACKEND: &str = "ccl";

/// A communicator whose collectives oneCCL does.
pub type CclCommunicator = Offloaded<&'static Ccl>;

/// With `CCL_WORKER_OFFLOAD=0` calls of two threads break each other's state, also on two communicators.
static TURN: LazyLock<LibraryTurn> = LazyLock::new(LibraryTurn::new);

/// What the plugin for processors reduces.
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

/// How that plugin adds and compares.
pub const ARITHMETIC: Arithmetic = Arithmetic {
    nan_in_min_max: NanInMinMax::AnyOperand,
    orders_zeros: false,
    truncates: &[],
    equal_bits: true,
};

/// Null: memory of the host, and a call that blocks.
const HOST: Queue = ptr::null_mut();

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

fn reduction(op: NativeOp) -> ReductionOp {
    match op {
        NativeOp::Sum => ReductionOp::SUM,
        NativeOp::Prod => ReductionOp::PROD,
        NativeOp::Max => ReductionOp::MAX,
        NativeOp::Min => ReductionOp::MIN,
        NativeOp::Avg => ReductionOp::AVG,
    }
}

/// A rank, as C has it. There are at most 65,535.
fn number(rank: u32) -> c_int {
    rank as c_int
}

impl Vendor for &'static Ccl {
    const BACKEND: &'static str = BACKEND;
    const BACKEND_INLINE: &'static str = "ccl without meeting";
    const ID_BYTES: usize = UNIQUE_ID_BYTES;

    type Comm = CclComm;

    fn version(&self) -> String {
        format!("oneCCL {}", Ccl::version(self))
    }

    fn capabilities(&self) -> Capabilities {
        let ops = [NativeOp::Sum, NativeOp::Prod, NativeOp::Max, NativeOp::Min];
        let reducing = |known: Capabilities, op| known.reducing(op, &REDUCIBLE);
        let mut known = ops.into_iter().fold(Capabilities::new(ARITHMETIC), reducing);
        // Groups are there, but on memory of the host their end does not wait for the receives.
        if self.table.all_to_all_v.function.is_some() {
            known = known.with(Native::AllToAllV);
        }
        if self.table.scatter.function.is_some() {
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

    fn unique_id(&self) -> Result<Vec<u8>> {
        let mut id = UniqueId { bytes: [0; UNIQUE_ID_BYTES] };
        // SAFETY: it writes one id.
        self.check("onecclGetUniqueId", unsafe { (self.table.get_unique_id)(&mut id) })?;
        Ok(id.bytes.to_vec())
    }

    fn init(&self, id: &[u8], rank: u32, ranks: u32) -> Result<CclComm> {
        let mut own = UniqueId { bytes: [0; UNIQUE_ID_BYTES] };
        if id.len() != own.bytes.len() {
            return Err(Error::invalid("id", format!("{} bytes, not {UNIQUE_ID_BYTES}", id.len())));
        }
        own.bytes.copy_from_slice(id);
        let mut handle = ptr::null_mut();
        // SAFETY: it writes one handle; the id is one of `onecclGetUniqueId` of the group's first rank.
        let code = unsafe { (self.table.comm_init_rank)(&mut handle, ranks as usize, own, number(rank)) };
        self.check("onecclCommInitRank", code)?;
        Ok(CclComm { handle })
    }

    fn destroy(&self, comm: &CclComm) -> Result<()> {
        // SAFETY: the handle is one of `init`, and nobody uses it any more.
        self.check("onecclCommDestroy", unsafe { (self.table.comm_destroy)(comm.handle) })
    }

    // SAFETY: the terms are those of the trait.
    unsafe fn all_reduce(
        &self,
        comm: &CclComm,
        input: *const c_void,
        output: *mut c_void,
        elements: Elements,
    ) -> Result<()> {
        let (dtype, op) = (data_type(elements.dtype)?, reduction(elements.op));
        // SAFETY: the caller's. The input is only read, whatever the header says.
        let code = unsafe {
            (self.table.all_reduce)(input.cast_mut(), output, elements.count, dtype, op, comm.handle, HOST)
        };
        self.check("onecclAllReduce", code)
    }

    // SAFETY: the terms are those of the trait.
    unsafe fn reduce(
        &self,
        comm: &CclComm,
        input: *const c_void,
        output: *mut c_void,
        elements: Elements,
        root: u32,
    ) -> Result<()> {
        let (dtype, op) = (data_type(elements.dtype)?, reduction(elements.op));
        // SAFETY: the caller's.
        let code = unsafe {
            (self.table.reduce)(input, output, elements.count, dtype, op, number(root), comm.handle, HOST)
        };
        self.check("onecclReduce", code)
    }

    // SAFETY: the terms are those of the trait.
    unsafe fn reduce_scatter(
        &self,
        comm: &CclComm,
        input: *const c_void,
        output: *mut c_void,
        elements: Elements,
    ) -> Result<()> {
        let (dtype, op) = (data_type(elements.dtype)?, reduction(elements.op));
        // SAFETY: the caller's.
        let code = unsafe {
            (self.table.reduce_scatter)(input, output, elements.count, dtype, op, comm.handle, HOST)
        };
        self.check("onecclReduceScatter", code)
    }

    // SAFETY: the terms are those of the trait.
    unsafe fn broadcast(&self, comm: &CclComm, buffer: *mut c_void, bytes: usize, root: u32) -> Result<()> {
        // SAFETY: the caller's.
        let code = unsafe {
            (self.table.broadcast)(buffer, buffer, bytes, DataType::Uint8, number(root), comm.handle, HOST)
        };
        self.check("onecclBroadcast", code)
    }

    // SAFETY: the terms are those of the trait.
    unsafe fn all_gather(
        &self,
        comm: &CclComm,
        input: *const c_void,
        output: *mut c_void,
        bytes: usize,
    ) -> Result<()> {
        // SAFETY: the caller's.
        let code =
            unsafe { (self.table.all_gather)(input, output, bytes, DataType::Uint8, comm.handle, HOST) };
        self.check("onecclAllGather", code)
    }

    // SAFETY: the terms are those of the trait.
    unsafe fn all_to_all(
        &self,
        comm: &CclComm,
        input: *const c_void,
        output: *mut c_void,
        bytes: usize,
    ) -> Result<()> {
        // SAFETY: the caller's.
        let code =
            unsafe { (self.table.all_to_all)(input, output, bytes, DataType::Uint8, comm.handle, HOST) };
        self.check("onecclAllToAll", code)
    }

    // SAFETY: the terms are those of the trait.
    unsafe fn all_to_all_v(
        &self,
        comm: &CclComm,
        input: *const c_void,
        send: &[usize],
        output: *mut c_void,
        receive: &[usize],
    ) -> Result<()> {
        let version = Ccl::version(self).to_string();
        let function = self.table.all_to_all_v.require(BACKEND, &version, "UNISONO_BACKEND=tcp")?;
        let (send, receive) = (send.as_ptr(), receive.as_ptr());
        // SAFETY: the caller's; the lists have a length for each rank.
        let code = unsafe { function(input, send, output, receive, DataType::Uint8, comm.handle, HOST) };
        self.check("onecclAllToAllV", code)
    }

    // SAFETY: the terms are those of the trait.
    unsafe fn scatter(
        &self,
        comm: &CclComm,
        input: *const c_void,
        output: *mut c_void,
        bytes: usize,
        root: u32,
    ) -> Result<()> {
        let version = Ccl::version(self).to_string();
        let function = self.table.scatter.require(BACKEND, &version, "UNISONO_BACKEND=tcp")?;
        // SAFETY: the caller's.
        let code =
            unsafe { function(input, output, bytes, DataType::Uint8, number(root), comm.handle, HOST) };
        self.check("onecclScatter", code)
    }

    // SAFETY: the terms are those of the trait.
    unsafe fn send(&self, comm: &CclComm, input: *const c_void, bytes: usize, peer: u32) -> Result<()> {
        // SAFETY: the caller's.
        let code =
            unsafe { (self.table.send)(input, bytes, DataType::Uint8, number(peer), comm.handle, HOST) };
        self.check("onecclSend", code)
    }

    // SAFETY: the terms are those of the trait.
    unsafe fn recv(&self, comm: &CclComm, output: *mut c_void, bytes: usize, peer: u32) -> Result<()> {
        // SAFETY: the caller's.
        let code =
            unsafe { (self.table.recv)(output, bytes, DataType::Uint8, number(peer), comm.handle, HOST) };
        self.check("onecclRecv", code)
    }
}
