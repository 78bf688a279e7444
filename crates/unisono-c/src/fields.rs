//! The structure of a call, as C fills it.

#![expect(unsafe_code, reason = "a promise about the bytes of a structure")]

use std::ffi::{c_char, c_void};

use crate::buffers::{Piece, ReleaseFunction};
use crate::handle::{PreparedHandle, StateHandle};
use crate::input::Versioned;
use crate::outcome::OutcomeFields;
use crate::user_op::UserOpFields;

/// A call. Set everything to zero first, then `struct_size`, then the fields of the operation: a field that an
/// operation does not have stays 0. unisono_call_of() in this header does the first two. Counts are in elements. The
/// structure and its lists are read before the function returns; the memory of data is used until the call has ended.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct CallFields {
    /// sizeof(unisono_call_t).
    pub struct_size: usize,
    /// A unisono_operation.
    pub operation: i32,
    /// A unisono_dtype; 0 in a barrier.
    pub dtype: i32,
    /// Bytes of an element of UNISONO_DTYPE_OPAQUE, 1 to 65535; else 0.
    pub element_bytes: u32,
    /// A unisono_op, in calls that reduce.
    pub op: i32,
    /// The factor of UNISONO_OP_PRE_MUL_SUM.
    pub factor: f64,
    /// The operator of UNISONO_OP_USER.
    pub user_op: *const UserOpFields,
    /// The number of elements, as the operation says. With `counts` it is 0: they say it.
    pub count: u64,
    /// The root, a rank of the communicator, in broadcast, reduce, gather and scatter.
    pub root: i32,
    /// The other side of send and recv: a rank of the communicator, UNISONO_NOBODY, or UNISONO_ANY in recv.
    pub peer: i32,
    /// The tag of send and recv, 0 to 2^32 - 1, or UNISONO_ANY in recv.
    pub tag: i64,
    /// Flags: UNISONO_IN_PLACE, UNISONO_FIXED_ORDER, UNISONO_QUEUED, UNISONO_NEEDED, UNISONO_HOST_BY_COMPANION,
    /// UNISONO_PROFILED, UNISONO_NOT_PROFILED.
    pub flags: u32,
    /// The line of the caller, which errors of all ranks show; __LINE__.
    pub line: u32,
    /// The file of the line; __FILE__. Null: errors show no line. The library keeps a copy of each name for ever.
    pub file: *const c_char,
    /// The data that is read, aligned as its elements are. Where this rank has no input, it is not looked at.
    pub input: *const c_void,
    /// The data that is written. Where this rank has no output, it is not looked at. It may not overlap the input.
    pub output: *mut c_void,
    /// In place of `input`: a list of pieces.
    pub inputs: *const Piece,
    /// The number of pieces.
    pub input_count: usize,
    /// In place of `output`: a list of pieces.
    pub outputs: *const Piece,
    /// The number of pieces.
    pub output_count: usize,
    /// A unisono_division: the meaning of the lists.
    pub division: i32,
    /// 0.
    pub reserved: i32,
    /// Shares that differ by rank: of reduce_scatter, all_gather, gather and scatter the elements of each rank, the
    /// same list on all ranks; of all_to_all the elements that this rank sends to each. Null for equal shares.
    pub counts: *const u64,
    /// The length of `counts`: the number of ranks.
    pub counts_length: usize,
    /// The elements that this rank receives from each rank, in all_to_all with `counts`.
    pub receive_counts: *const u64,
    /// The length of `receive_counts`.
    pub receive_counts_length: usize,
    /// The deadline in seconds from the start; 0 for the communicator's. INFINITY for none.
    pub timeout_s: f64,
    /// A label of at most 32 bytes, which ranks compare; or null.
    pub label: *const c_char,
    /// The algorithm by name, or null. The library keeps a copy of each name for ever.
    pub algorithm: *const c_char,
    /// The name of the call in the communication log, of at most 32 bytes; or null.
    pub log_name: *const c_char,
    /// A plan of unisono_prepare() with the same arguments, or null. The call has the options of the plan.
    pub prepared: *const PreparedHandle,
    /// The state of a compressed call, or null for an exact one. The call is all_reduce, reduce_scatter or all_gather,
    /// and the state was made for it.
    pub state: *const StateHandle,
    /// The place for the outcome of a call that blocks, or null.
    pub outcome: *mut OutcomeFields,
    /// For unisono_start(): told once when the memory is no longer used, on any thread; or null. The memory may be
    /// freed there. It is told of a call that is refused too, unless the structure itself cannot be read.
    pub release: ReleaseFunction,
    /// The argument of `release`.
    pub release_context: *mut c_void,
}

// SAFETY: the size is the first field; the rest are pointers, numbers and an optional function.
unsafe impl Versioned for CallFields {
    const BYTES_MIN: usize = size_of::<CallFields>();
}
