//! A key-value store for the program: the calls of one rank, and the table of the rank that holds a store.
//!
//! A store belongs to a communicator, whose rank 0 holds it. A call is one request over the control connection to the
//! holder, and one answer. A connection that ends loses the messages under way, so every request without an answer
//! goes out again on the next one. All the same, each call has its effect once: a rank numbers its calls by *slots*,
//! and the holder keeps the last call of each slot with its answer. A slot is free again when its call has ended, so
//! the memory for answers is bounded, and nobody confirms an answer.
//!
//! Source of the slots: RFC 8881 (NFS version 4.1), section 2.10.6, "Exactly Once Semantics".
//!
//! | file | contents |
//! | --- | --- |
//! | `message` | the limits, requests and answers |
//! | `table` | the entries, the ranks that wait, the last call of each slot |
//! | `calls` | the calls of this rank that have no answer yet |
//! | `store_plane` | both of one rank |

mod calls;
mod message;
#[cfg(test)]
mod simulated_tests;
mod store_plane;
mod table;
#[cfg(test)]
mod table_tests;

pub use calls::StoreCall;
pub use message::{
    CALLS_MAX, ENTRY_BYTES, KEY_BYTES_MAX, STORE_BYTES_MAX, StoreAnswer, StoreCallId, StoreKey,
    StoreOperation, StoreRefusal, StoreReply, StoreRequest, VALUE_BYTES_MAX,
};
pub use store_plane::{StoreAction, StorePlane};
