//! A test double of NCCL and of the CUDA driver: one library with the C ABI of both, so that they share streams and
//! memory. It is neither of them, and says so in its device's name and in its texts.
//!
//! Signatures, codes and enums are those of NVIDIA's public headers: `nccl.h` of NVIDIA/nccl (`src/nccl.h.in`, 2.18
//! to 2.30) and `cuda.h` (CUDA 12.9). What is refused and how follows NCCL's `src/init.cc`, `src/misc/argcheck.cc`
//! and `src/group.cc`.
//!
//! * A dead peer is noticed as NCCL notices it: `ncclCommGetAsyncError` gives `ncclRemoteError`, and the work stays
//!   in the stream until `ncclCommAbort`.
//! * Calls of ranks that do not go together hang, until `ncclCommAbort`, and are counted (`unisono_double_misuses`).
//! * Addresses are always checked, as NCCL does with `NCCL_CHECK_POINTERS=1`.
//! * Two ranks on one device are refused, as without `NCCL_MULTI_RANK_GPU_ENABLE=1`.
//! * Captured work is forgotten: a graph cannot be launched. What a capture does not see voids it (`capture.rs`).
//! * CU_STREAM_PER_THREAD is another stream on each thread. A call that does not block is launched by a thread of
//!   NCCL's (`groupLaunchNonBlocking` in `src/group.cc`), and so on another stream than its caller's.
//!
//! Of 2.30 it lacks what nobody here calls: `ncclCommInitRankScalable`, `ncclCommGrow`, `ncclCommRevoke`, windows,
//! signals and the device's functions. One that pretends to be older needs `version` in its settings, and a copy of
//! its file in which the newer symbols have other names ([`NEWER`]).

mod capture;
mod children;
mod codes;
mod collectives;
mod communicator;
mod config;
mod context;
mod driver;
mod driver_memory;
mod driver_stream;
mod group;
mod init;

/// The functions that are newer than 2.18, each with the first version that has it, as `ncclGetVersion` counts: what
/// [`copy`] must take away from a library that pretends to be older.
///
/// [`copy`]: unisono_double_common::file::copy
pub const NEWER: &[(&str, u32)] = &[
    ("ncclCommRegister", 21903),
    ("ncclCommDeregister", 21903),
    ("ncclMemAlloc", 21903),
    ("ncclMemFree", 21903),
    ("ncclCommShrink", 22703),
    ("ncclAlltoAll", 22803),
    ("ncclGather", 22803),
    ("ncclScatter", 22803),
];
