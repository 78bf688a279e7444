//! The C API of HCCL, and the parts that it needs of ACL, the run-time library of Ascend devices, and of aclnn, their
//! operators. The signatures come from the public headers of CANN 9: `hccl.h` of hicann/hccl, `hccl_comm.h` and
//! `hccl_types.h` of hicann/hcomm, `acl_rt.h` and `acl_base.h` of hicann/runtime. Nobody has called Huawei's libraries
//! by them here.

use std::ffi::{c_char, c_int, c_void};

use unisono_vendor_library::functions;

/// An opaque pointer: `HcclComm`, `aclrtStream`, `aclrtContext`, `aclrtEvent`, `aclTensor *`, ...
pub(crate) type Handle = *mut c_void;

/// The bytes of the root's information.
pub(crate) const ROOT_INFO_BYTES: usize = 4108;

/// `HcclRootInfo`: opaque bytes, made by one rank, with which all ranks of a communicator find each other. It goes to
/// functions by pointer.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct RootInfo {
    pub(crate) bytes: [u8; ROOT_INFO_BYTES],
}

/// `HcclDataType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum DataType {
    Int8 = 0,
    Int16 = 1,
    Int32 = 2,
    Float16 = 3,
    Float32 = 4,
    Int64 = 5,
    Uint64 = 6,
    Uint8 = 7,
    Float64 = 10,
    Bfloat16 = 11,
}

/// `HcclReduceOp`. There is no average.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum ReduceOp {
    Sum = 0,
    Prod = 1,
    Max = 2,
    Min = 3,
}

/// `HcclSendRecvItem`: a message of a batch.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct SendRecvItem {
    pub(crate) kind: SendRecvKind,
    pub(crate) buffer: *mut c_void,
    pub(crate) count: u64,
    pub(crate) dtype: DataType,
    pub(crate) remote_rank: u32,
}

/// `HcclSendRecvType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub(crate) enum SendRecvKind {
    Send = 0,
    Recv = 1,
}

/// `aclrtMemMallocPolicy`: huge pages where they fit.
pub(crate) const MALLOC_HUGE_FIRST: c_int = 0;

/// `aclrtMemcpyKind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum CopyKind {
    HostToDevice = 1,
    DeviceToHost = 2,
    DeviceToDevice = 3,
}

/// `aclDataType`, whose numbers differ from [`DataType`]'s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) enum AclDataType {
    Float32 = 0,
    Float16 = 1,
    Int8 = 2,
    Int32 = 3,
    Uint8 = 4,
    Int16 = 6,
    Int64 = 9,
    Float64 = 11,
    Bfloat16 = 27,
}

/// `aclFormat`: `ACL_FORMAT_ND`.
pub(crate) const FORMAT_ND: c_int = 2;

/// `aclrtPtrAttributes`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct PointerAttributes {
    /// The device's number.
    pub(crate) location_id: u32,
    /// `aclrtMemLocationType`: 1 is a device.
    pub(crate) location_type: u32,
    page_size: u32,
    reserved: [u32; 4],
}

/// `ACL_MEM_LOCATION_TYPE_DEVICE`.
pub(crate) const LOCATION_DEVICE: u32 = 1;

const _: () = assert!(size_of::<RootInfo>() == 4108 && align_of::<RootInfo>() == 1);
const _: () = assert!(size_of::<SendRecvItem>() == 32 && std::mem::offset_of!(SendRecvItem, dtype) == 24);
const _: () = assert!(size_of::<AclDataType>() == 4 && size_of::<DataType>() == 4);
const _: () = assert!(size_of::<PointerAttributes>() == 28);
// Lists of lengths are `u64` in C, and `usize` here.
const _: () = assert!(size_of::<usize>() == 8);

functions! {
    /// HCCL's collectives, of `libhccl.so`. All return an `HcclResult`. Lengths are in elements, of the data to or from
    /// one rank. An operator stands before a root; the output of an all-to-all is `const` in the header.
    Collectives {
        required {
            all_reduce: "HcclAllReduce" (*mut c_void, *mut c_void, u64, DataType, ReduceOp, Handle, Handle);
            reduce: "HcclReduce" (*mut c_void, *mut c_void, u64, DataType, ReduceOp, u32, Handle, Handle);
            reduce_scatter: "HcclReduceScatter" (
                *mut c_void, *mut c_void, u64, DataType, ReduceOp, Handle, Handle,
            );
            broadcast: "HcclBroadcast" (*mut c_void, u64, DataType, u32, Handle, Handle);
            scatter: "HcclScatter" (*mut c_void, *mut c_void, u64, DataType, u32, Handle, Handle);
            all_gather: "HcclAllGather" (*mut c_void, *mut c_void, u64, DataType, Handle, Handle);
            all_to_all: "HcclAlltoAll" (
                *const c_void, u64, DataType, *const c_void, u64, DataType, Handle, Handle,
            );
            all_to_all_v: "HcclAlltoAllV" (
                *const c_void, *const c_void, *const c_void, DataType, *const c_void, *const c_void, *const c_void,
                DataType, Handle, Handle,
            );
            send: "HcclSend" (*mut c_void, u64, DataType, u32, Handle, Handle);
            recv: "HcclRecv" (*mut c_void, u64, DataType, u32, Handle, Handle);
            batch_send_recv: "HcclBatchSendRecv" (*mut SendRecvItem, u32, Handle, Handle);
        }
    }
}

functions! {
    /// The makers and enders of communicators: in newer versions they may be in `libhcomm.so`.
    Management {
        required {
            get_root_info: "HcclGetRootInfo" (*mut RootInfo);
            comm_init_root_info: "HcclCommInitRootInfo" (u32, *const RootInfo, u32, *mut Handle);
            comm_destroy: "HcclCommDestroy" (Handle);
        }
        optional {
            since "CANN 7": get_error_string: "HcclGetErrorString" (c_int) -> *const c_char;
            since "CANN 7": get_comm_async_error: "HcclGetCommAsyncError" (Handle, *mut c_int);
        }
    }
}

functions! {
    /// ACL's functions. All but the makers of strings return an `aclError`. A context is current on one thread.
    Acl {
        required {
            init: "aclInit" (*const c_char);
            finalize: "aclFinalize" ();
            get_recent_err_msg: "aclGetRecentErrMsg" () -> *const c_char;
            get_version: "aclrtGetVersion" (*mut i32, *mut i32, *mut i32);
            get_soc_name: "aclrtGetSocName" () -> *const c_char;
            get_device_count: "aclrtGetDeviceCount" (*mut u32);
            set_device: "aclrtSetDevice" (i32);
            reset_device: "aclrtResetDevice" (i32);
            get_current_context: "aclrtGetCurrentContext" (*mut Handle);
            set_current_context: "aclrtSetCurrentContext" (Handle);
            malloc: "aclrtMalloc" (*mut *mut c_void, usize, c_int);
            free: "aclrtFree" (*mut c_void);
            memcpy_async: "aclrtMemcpyAsync" (*mut c_void, usize, *const c_void, usize, CopyKind, Handle);
            create_stream: "aclrtCreateStream" (*mut Handle);
            destroy_stream: "aclrtDestroyStream" (Handle);
            synchronize_stream: "aclrtSynchronizeStream" (Handle);
            create_event: "aclrtCreateEvent" (*mut Handle);
            destroy_event: "aclrtDestroyEvent" (Handle);
            record_event: "aclrtRecordEvent" (Handle, Handle);
            synchronize_event: "aclrtSynchronizeEvent" (Handle);
            query_event_status: "aclrtQueryEventStatus" (Handle, *mut c_int);
        }
        optional {
            since "CANN 6": stream_query: "aclrtStreamQuery" (Handle, *mut u32);
            since "CANN 8": pointer_get_attributes: "aclrtPointerGetAttributes" (
                *const c_void, *mut PointerAttributes,
            );
            since "CANN 8": capture_get_info: "aclmdlRICaptureGetInfo" (Handle, *mut c_int, *mut Handle);
        }
    }
}

functions! {
    /// The arguments of aclnn's operators (`libnnopbase.so`).
    Tensors {
        required {
            create_tensor: "aclCreateTensor" (
                *const i64, u64, AclDataType, *const i64, i64, c_int, *const i64, u64, *mut c_void,
            ) -> Handle;
            destroy_tensor: "aclDestroyTensor" (Handle);
            create_scalar: "aclCreateScalar" (*mut c_void, AclDataType) -> Handle;
            destroy_scalar: "aclDestroyScalar" (Handle);
            create_int_array: "aclCreateIntArray" (*const i64, u64) -> Handle;
            destroy_int_array: "aclDestroyIntArray" (Handle);
        }
    }
}

/// The second phase of an operator: workspace, its bytes, the executor that the first phase has made, the stream.
pub(crate) type Launch = unsafe extern "C" fn(*mut c_void, u64, Handle, Handle) -> i32;

functions! {
    /// aclnn's operators that multiply and divide a tensor by a scalar: into the last operand, which may be the first.
    Operators {
        required {
            muls_workspace: "aclnnMulsGetWorkspaceSize" (Handle, Handle, Handle, *mut u64, *mut Handle);
            muls: "aclnnMuls" (*mut c_void, u64, Handle, Handle);
            divs_workspace: "aclnnDivsGetWorkspaceSize" (Handle, Handle, Handle, *mut u64, *mut Handle);
            divs: "aclnnDivs" (*mut c_void, u64, Handle, Handle);
        }
    }
}

/// The first phase of an operator on two tensors: both, the result, which may be one of them, and its outputs.
pub(crate) type PreparePair = unsafe extern "C" fn(Handle, Handle, Handle, *mut u64, *mut Handle) -> i32;

functions! {
    /// aclnn's operators that make one tensor of two. The sum takes the second one times a scalar, which is of an
    /// integer type for tensors of integers.
    Pairs {
        required {
            add_workspace: "aclnnAddGetWorkspaceSize" (Handle, Handle, Handle, Handle, *mut u64, *mut Handle);
            add: "aclnnAdd" (*mut c_void, u64, Handle, Handle);
            mul_workspace: "aclnnMulGetWorkspaceSize" (Handle, Handle, Handle, *mut u64, *mut Handle);
            mul: "aclnnMul" (*mut c_void, u64, Handle, Handle);
            maximum_workspace: "aclnnMaximumGetWorkspaceSize" (Handle, Handle, Handle, *mut u64, *mut Handle);
            maximum: "aclnnMaximum" (*mut c_void, u64, Handle, Handle);
            minimum_workspace: "aclnnMinimumGetWorkspaceSize" (Handle, Handle, Handle, *mut u64, *mut Handle);
            minimum: "aclnnMinimum" (*mut c_void, u64, Handle, Handle);
        }
    }
}

functions! {
    /// aclnn's operators that make bits of signs and signs of bits: elements, rows, the result.
    Signs {
        required {
            pack_workspace: "aclnnSignBitsPackGetWorkspaceSize" (Handle, i64, Handle, *mut u64, *mut Handle);
            pack: "aclnnSignBitsPack" (*mut c_void, u64, Handle, Handle);
            unpack_workspace: "aclnnSignBitsUnpackGetWorkspaceSize" (
                Handle, i64, AclDataType, Handle, *mut u64, *mut Handle,
            );
            unpack: "aclnnSignBitsUnpack" (*mut c_void, u64, Handle, Handle);
        }
    }
}

functions! {
    /// aclnn's norm: the tensor, p, the dimensions that become one number, whether they stay with a length of 1, the
    /// result.
    Norms {
        required {
            norm_workspace: "aclnnNormGetWorkspaceSize" (
                Handle, Handle, Handle, bool, Handle, *mut u64, *mut Handle,
            );
            norm: "aclnnNorm" (*mut c_void, u64, Handle, Handle);
        }
    }
}
