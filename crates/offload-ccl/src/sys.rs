//! The C API of oneCCL: `oneapi/ccl.h` and `oneapi/ccl/v2/types.h` of 2022.2.0. The headers of 2022.1.2 differ only in
//! the functions that they lack.

use std::ffi::{c_char, c_int, c_uint, c_void};

use unisono_vendor_library::functions;

/// `onecclComm_t`, an opaque pointer. Its rank and size are kept beside it: on a communicator that came from a split,
/// `onecclCommCount` and `onecclCommUserRank` report success and write nothing that is right.
pub(crate) type CommHandle = *mut c_void;

/// A `sycl::queue`, on which a call is enqueued; null for memory of the host, with which a call blocks.
pub(crate) type Queue = *mut c_void;

/// The bytes of an id, `ONECCL_UNIQUE_ID_BYTES`.
pub(crate) const UNIQUE_ID_BYTES: usize = 4096;

/// `onecclUniqueId`: opaque bytes, made by one rank, with which all ranks of a communicator find each other. It goes to
/// functions by value.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct UniqueId {
    pub(crate) bytes: [u8; UNIQUE_ID_BYTES],
}

/// `onecclDataType_t`.
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

/// `onecclRedOp_t`: one of the constants, or an operation that was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct ReductionOp(pub(crate) c_uint);

impl ReductionOp {
    pub(crate) const SUM: ReductionOp = ReductionOp(0);
    pub(crate) const PROD: ReductionOp = ReductionOp(1);
    pub(crate) const MAX: ReductionOp = ReductionOp(2);
    pub(crate) const MIN: ReductionOp = ReductionOp(3);
    /// The plugin for processors has none: it returns 11.
    pub(crate) const AVG: ReductionOp = ReductionOp(4);
}

// Enumerations without negative constants are unsigned, and as long as an int.
const _: () = assert!(size_of::<DataType>() == 4 && align_of::<DataType>() == 4);
const _: () = assert!(size_of::<ReductionOp>() == 4 && align_of::<ReductionOp>() == 4);
const _: () = assert!(size_of::<UniqueId>() == 4096 && align_of::<UniqueId>() == 1);
const _: () = assert!(size_of::<CommHandle>() == size_of::<usize>());

functions! {
    /// oneCCL's functions. All but the makers of strings return an `onecclResult_t`. Lengths are in elements, of the
    /// data to or from one rank.
    Table {
        required {
            get_version: "onecclGetVersion" (*mut c_int);
            get_error_string: "onecclGetErrorString" (c_int) -> *const c_char;
            get_last_error: "onecclGetLastError" (CommHandle) -> *const c_char;
            get_unique_id: "onecclGetUniqueId" (*mut UniqueId);
            comm_init_rank: "onecclCommInitRank" (*mut CommHandle, usize, UniqueId, c_int);
            comm_finalize: "onecclCommFinalize" (CommHandle);
            comm_destroy: "onecclCommDestroy" (CommHandle);
            all_reduce: "onecclAllReduce" (
                *mut c_void, *mut c_void, usize, DataType, ReductionOp, CommHandle, Queue,
            );
            reduce: "onecclReduce" (
                *const c_void, *mut c_void, usize, DataType, ReductionOp, c_int, CommHandle, Queue,
            );
            reduce_scatter: "onecclReduceScatter" (
                *const c_void, *mut c_void, usize, DataType, ReductionOp, CommHandle, Queue,
            );
            broadcast: "onecclBroadcast" (
                *const c_void, *mut c_void, usize, DataType, c_int, CommHandle, Queue,
            );
            all_gather: "onecclAllGather" (*const c_void, *mut c_void, usize, DataType, CommHandle, Queue);
            all_to_all: "onecclAllToAll" (*const c_void, *mut c_void, usize, DataType, CommHandle, Queue);
            send: "onecclSend" (*const c_void, usize, DataType, c_int, CommHandle, Queue);
            recv: "onecclRecv" (*mut c_void, usize, DataType, c_int, CommHandle, Queue);
            group_start: "onecclGroupStart" ();
            group_end: "onecclGroupEnd" ();
            red_op_create_pre_mul_sum: "onecclRedOpCreatePreMulSum" (
                *mut ReductionOp, *mut c_void, DataType, c_uint, CommHandle,
            );
            red_op_destroy: "onecclRedOpDestroy" (ReductionOp, CommHandle);
        }
        optional {
            since "2022.2": scatter: "onecclScatter" (
                *const c_void, *mut c_void, usize, DataType, c_int, CommHandle, Queue,
            );
            since "2022.2": all_to_all_v: "onecclAllToAllV" (
                *const c_void, *const usize, *mut c_void, *const usize, DataType, CommHandle, Queue,
            );
        }
    }
}
