//! A key-value store that the program brings, through which ranks find each other.

use std::error::Error;
use std::fmt::Debug;
use std::time::Instant;

/// A key-value store that the program brings, through which the ranks of a job find each other. All ranks see the same
/// keys. The thread that joins calls it, and only until it has joined.
///
/// It carries the address of rank 0. If the settings name no secret, it also carries a fresh one: **every process that
/// can read it can join the job** then.
///
/// Several jobs may use one store one after the other, also after a failure. Jobs at the same time need a prefix each.
pub trait MeetingStore: Debug + Send + Sync {
    /// Sets the value of `key`, at most 128 bytes, in place of an earlier one.
    ///
    /// # Errors
    /// Any; the rank ends its attempt to join with the text.
    fn set(&self, key: &str, value: &[u8]) -> Result<(), Box<dyn Error + Send + Sync>>;

    /// The value of `key`. It may wait for one until `deadline`, or return `None` sooner and be asked again.
    ///
    /// # Errors
    /// Any but the absence of a value; the rank ends its attempt to join with the text.
    fn get(&self, key: &str, deadline: Instant) -> Result<Option<Vec<u8>>, Box<dyn Error + Send + Sync>>;
}
