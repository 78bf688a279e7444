//! A test double of HCCL, of the ACL run time and of the aclnn operators that compression needs: one library with
//! the C ABI of all, so that they share streams and memory. It is none of them, and says so in its product's name
//! and texts.
//!
//! Signatures, codes and enums are those of Huawei's public headers: hicann/hccl `include/hccl.h`, hicann/hcomm
//! `include/hccl/hccl_comm.h` and `hccl_types.h`, hicann/runtime `include/external/acl/acl_rt.h` (HEAD of
//! 2026-08-22), and the operators' pages in the CANN documentation. What a product lacks is refused after hicann/hccl
//! `docs/zh/api_ref/comm_op_interface` ([`product`]).
//!
//! * A null stream, communicator or buffer is `HCCL_E_PTR`; addresses must be aligned to their elements.
//! * Two messages to one rank, or from one, in a batch are `HCCL_E_PARA` (`collectives.rs`).
//! * A dead peer makes the work fail: `HcclGetCommAsyncError` gives `HCCL_E_TCP_TRANSFER`, and so does each later
//!   call; waiting for the stream gives `ACL_ERROR_RT_INTERNAL_ERROR`. Whether Huawei's library gives these is unknown.
//! * HCCL has no abort: calls of ranks that do not go together hang, until `unisono_double_reset`.

mod codes;
mod collectives;
mod communicator;
mod init;
mod operators;
pub mod product;
mod request;
mod runtime;
mod runtime_memory;
mod runtime_stream;
mod tensors;
