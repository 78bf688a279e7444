//! The C API of NCCL: the parts that `nccl.h` of 2.19, the oldest version that is used, has had since 2.18.1, and the
//! additions of later versions up to 2.32.3.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr;

use unisono_vendor_library::functions;

/// `ncclComm_t`, an opaque pointer.
pub(crate) type CommHandle = *mut c_void;

/// `cudaStream_t`, which is the driver's `CUstream`.
pub(crate) type StreamHandle = *mut c_void;

/// The bytes of an id, `NCCL_UNIQUE_ID_BYTES`.
pub(crate) const UNIQUE_ID_BYTES: usize = 128;

/// `ncclUniqueId`: opaque bytes, made by one rank, with which all ranks of a communicator find each other. It goes to
/// most functions by value.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct UniqueId {
    pub(crate) bytes: [u8; UNIQUE_ID_BYTES],
}

/// `ncclDataType_t`. Since 2.24 there are two types of 8 bits, for cards from `sm_90` on: the result for sums that they
/// cannot hold is not documented, so they travel as bytes only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum DataType {
    Int8 = 0,
    Uint8 = 1,
    Int32 = 2,
    Uint32 = 3,
    Int64 = 4,
    Uint64 = 5,
    Float16 = 6,
    Float32 = 7,
    Float64 = 8,
    Bfloat16 = 9,
}

/// `ncclRedOp_t`: one of the constants, or an operation that was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct ReductionOp(pub(crate) c_uint);

impl ReductionOp {
    pub(crate) const SUM: ReductionOp = ReductionOp(0);
    pub(crate) const PROD: ReductionOp = ReductionOp(1);
    pub(crate) const MAX: ReductionOp = ReductionOp(2);
    pub(crate) const MIN: ReductionOp = ReductionOp(3);
    pub(crate) const AVG: ReductionOp = ReductionOp(4);
}

/// `ncclScalarResidence_t`: the scalar lies in memory of the host, and is read before the function returns.
pub(crate) const SCALAR_HOST_IMMEDIATE: c_uint = 1;

/// `NCCL_CONFIG_UNDEF_INT`: the library's default.
const UNDEFINED: c_int = c_int::MIN;

/// `ncclConfig_t` as 2.18 has it (`ncclConfig_v21700`). Later versions only append fields: they copy the bytes that
/// `size` counts, and give the fields that `version` did not know their defaults (`parseCommConfig` in `src/init.cc`).
/// So this layout goes to all versions.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Config {
    size: usize,
    magic: c_uint,
    version: c_uint,
    /// 1: functions return when they are done; 0: they may return `ncclInProgress`.
    pub(crate) blocking: c_int,
    cga_cluster_size: c_int,
    min_ctas: c_int,
    max_ctas: c_int,
    net_name: *const c_char,
    split_share: c_int,
    /// Padding in 2.18, which 2.25 has filled with a field: it is copied, so it has a value.
    padding: c_int,
}

impl Config {
    /// The library's defaults, but for whether functions block.
    pub(crate) fn new(blocking: bool) -> Config {
        Config {
            size: size_of::<Config>(),
            magic: 0xcafe_beef,
            // 2.18.1, whose fields these are.
            version: 21_801,
            blocking: c_int::from(blocking),
            cga_cluster_size: UNDEFINED,
            min_ctas: UNDEFINED,
            max_ctas: UNDEFINED,
            net_name: ptr::null(),
            split_share: UNDEFINED,
            padding: UNDEFINED,
        }
    }
}

// Enumerations without negative constants are unsigned, and as long as an int.
const _: () = assert!(size_of::<DataType>() == 4 && align_of::<DataType>() == 4);
const _: () = assert!(size_of::<ReductionOp>() == 4 && align_of::<ReductionOp>() == 4);
const _: () = assert!(size_of::<UniqueId>() == 128 && align_of::<UniqueId>() == 1);
const _: () = assert!(size_of::<Config>() == 48 && std::mem::offset_of!(Config, net_name) == 32);
const _: () = assert!(std::mem::offset_of!(Config, blocking) == 16);

functions! {
    /// NCCL's functions. All but the makers of strings return an `ncclResult_t`. Lengths are in elements; for an
    /// all-gather, a reduce-scatter, an all-to-all, a gather and a scatter, of the data to or from one rank.
    Table {
        required {
            get_version: "ncclGetVersion" (*mut c_int);
            get_error_string: "ncclGetErrorString" (c_int) -> *const c_char;
            get_last_error: "ncclGetLastError" (CommHandle) -> *const c_char;
            get_unique_id: "ncclGetUniqueId" (*mut UniqueId);
            comm_init_rank_config: "ncclCommInitRankConfig" (*mut CommHandle, c_int, UniqueId, c_int, *mut Config);
            comm_destroy: "ncclCommDestroy" (CommHandle);
            comm_abort: "ncclCommAbort" (CommHandle);
            comm_get_async_error: "ncclCommGetAsyncError" (CommHandle, *mut c_int);
            red_op_create_pre_mul_sum: "ncclRedOpCreatePreMulSum" (
                *mut ReductionOp, *mut c_void, DataType, c_uint, CommHandle,
            );
            red_op_destroy: "ncclRedOpDestroy" (ReductionOp, CommHandle);
            all_reduce: "ncclAllReduce" (
                *const c_void, *mut c_void, usize, DataType, ReductionOp, CommHandle, StreamHandle,
            );
            reduce: "ncclReduce" (
                *const c_void, *mut c_void, usize, DataType, ReductionOp, c_int, CommHandle, StreamHandle,
            );
            reduce_scatter: "ncclReduceScatter" (
                *const c_void, *mut c_void, usize, DataType, ReductionOp, CommHandle, StreamHandle,
            );
            broadcast: "ncclBroadcast" (
                *const c_void, *mut c_void, usize, DataType, c_int, CommHandle, StreamHandle,
            );
            all_gather: "ncclAllGather" (
                *const c_void, *mut c_void, usize, DataType, CommHandle, StreamHandle,
            );
            send: "ncclSend" (*const c_void, usize, DataType, c_int, CommHandle, StreamHandle);
            recv: "ncclRecv" (*mut c_void, usize, DataType, c_int, CommHandle, StreamHandle);
            group_start: "ncclGroupStart" ();
            group_end: "ncclGroupEnd" ();
        }
        optional {
            since "2.28": all_to_all: "ncclAlltoAll" (
                *const c_void, *mut c_void, usize, DataType, CommHandle, StreamHandle,
            );
            since "2.28": gather: "ncclGather" (
                *const c_void, *mut c_void, usize, DataType, c_int, CommHandle, StreamHandle,
            );
            since "2.28": scatter: "ncclScatter" (
                *const c_void, *mut c_void, usize, DataType, c_int, CommHandle, StreamHandle,
            );
        }
    }
}
