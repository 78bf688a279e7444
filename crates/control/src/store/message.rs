//! The messages between a rank that calls a store and the rank that holds it, and their limits.

use std::sync::Arc;

use unisono_backend::CommunicatorKey;

/// The most bytes of a key, with the prefix of the handle.
pub const KEY_BYTES_MAX: usize = 1024;

/// The most bytes of a value. Heartbeats share the connection, and wait while a value passes.
pub const VALUE_BYTES_MAX: usize = 16 * 1024;

/// The most bytes that a rank keeps for all stores that it holds: [`ENTRY_BYTES`] for each key and each wait, the bytes
/// of the keys and values, and the values in answers to [`StoreOperation::CompareAndSet`] until the slot is used again.
pub const STORE_BYTES_MAX: usize = 64 << 20;

/// The share of one key in the memory of the tables, beside its own bytes.
pub const ENTRY_BYTES: usize = 128;

/// The most calls of one rank that may be in progress at once.
pub const CALLS_MAX: u16 = 256;

/// A key of one store.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StoreKey {
    /// The communicator of the store.
    pub store: CommunicatorKey,
    /// The key in it.
    pub key: Box<str>,
}

/// The name of one call of one rank. A later call of the same slot has a greater sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreCallId {
    /// The slot, below [`CALLS_MAX`].
    pub slot: u16,
    /// The number of the call among all calls of the rank, from 1.
    pub sequence: u64,
}

/// An operation on one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreOperation {
    /// Stores this value.
    Set(Arc<[u8]>),
    /// Gives the value, once the key is there.
    Get,
    /// Gives the value if the key is there.
    TryGet,
    /// Ends once the key is there.
    Wait,
    /// Adds to the number in decimal digits that the value is. A missing key counts as 0.
    Add(i64),
    /// Stores the desired value if the value equals the expected one. A missing key counts as an empty value.
    CompareAndSet {
        /// The value that is replaced.
        expected: Box<[u8]>,
        /// The value in its place.
        desired: Arc<[u8]>,
    },
    /// Takes the key out.
    Delete,
    /// Counts the keys that begin with this one.
    Count,
}

impl StoreOperation {
    /// The name of its method.
    pub fn name(&self) -> &'static str {
        match self {
            StoreOperation::Set(_) => "set",
            StoreOperation::Get => "get",
            StoreOperation::TryGet => "try_get",
            StoreOperation::Wait => "wait",
            StoreOperation::Add(_) => "add",
            StoreOperation::CompareAndSet { .. } => "compare_and_set",
            StoreOperation::Delete => "delete",
            StoreOperation::Count => "count",
        }
    }
}

/// A request to the rank that holds the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreRequest {
    /// The call.
    pub call: StoreCallId,
    /// The key.
    pub key: StoreKey,
    /// The operation.
    pub operation: StoreOperation,
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreAnswer {
    /// The call.
    pub call: StoreCallId,
    /// The result.
    pub reply: StoreReply,
}

/// The result of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreReply {
    /// It is done: of `Set` and `Wait`.
    Done,
    /// The value: of `Get`, `TryGet` and `CompareAndSet`.
    Value(Arc<[u8]>),
    /// The key is not there: of `TryGet`.
    Missing,
    /// The sum: of `Add`.
    Number(i64),
    /// Whether the key was there: of `Delete`.
    Deleted(bool),
    /// The number of keys: of `Count`.
    Count(u64),
    /// Nothing has changed.
    Refused(StoreRefusal),
}

/// Why nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreRefusal {
    /// It would take more than [`STORE_BYTES_MAX`].
    Full,
    /// The value is no number.
    NotANumber,
    /// The sum is no `i64`.
    Overflow,
}
