//! The key-value store of a world, as a program holds it.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use unisono_backend::CommunicatorKey;
use unisono_communicator::{Error, Group, GroupRank, JobRank, Result, beginning, deadline_after};
use unisono_control::store::{StoreCall, StoreKey, StoreOperation, StoreReply};

use crate::world::Shared;

/// The most bytes of an unexpected answer that an error shows.
const SHOWN_BYTES_MAX: usize = 128;

/// A key-value store that the ranks of a communicator share, for coordination that is not a collective: addresses,
/// elections, counters, barriers among ranks that are not known before. [`World::store`] and [`World::store_of`] give
/// it. The methods have the names of torch.distributed's `Store` where it has them.
///
/// Rank 0 of the communicator holds all keys and values in its memory. Its control thread answers, also while its
/// program does nothing for the job. A clone is another handle of the same store; any thread may use any handle,
/// several at once.
///
/// **Life.** The store is empty at first and lives as long as its holder takes part in the job: until the last handle
/// of the world, its groups and its stores is dropped there, or the process ends. Then, and when the holder is lost,
/// all waits end with [`Error::PeerLost`], which names the holder, and so do later calls. The death of another rank
/// ends its own waits only; the keys that it has set stay. A holder that may be needed should leave last: a barrier of
/// the communicator before the end is enough. Like a group, a store goes on after the
/// [`close`](crate::Communicator::close) of the world's communicator.
///
/// **Effect.** A call that returns has had its effect exactly once, also when the connection to the holder was lost and
/// made again in between. A call that ends with [`Error::StoreTimeout`] or [`Error::PeerLost`] may have had it. Calls
/// of all ranks take effect one after the other, and a call that begins after the end of another one after that.
///
/// **Deadlines.** Every call has the deadline of calls in its communicator (`UNISONO_CALL_TIMEOUT_S`, or the group's
/// own); [`get`](Store::get) and [`wait`](Store::wait) take another one.
///
/// **Limits.** A key has at most 1,024 bytes, with its prefix, and a value at most 16 KiB: heartbeats share the
/// connection; send more by a collective or a message. A holder keeps at most 64 MiB in all its stores, which count 128
/// bytes for each key and each wait beside their own, so half a million keys. A rank has at most 256 calls in progress.
///
/// **Cost.** A call is one message each way, over the control connection of the two ranks. The first call makes this
/// connection where there is none: a holder has one descriptor for each rank that calls.
///
/// ```
/// use std::time::Duration;
///
/// let world = unisono::init()?;
/// let store = world.store().prefixed("epoch 7/");
///
/// // The first rank that comes is the leader.
/// let name = format!("rank {}", world.rank());
/// let leader = store.compare_and_set("leader", b"", name.as_bytes())?;
/// if leader == name.as_bytes() {
///     store.set("learning rate", b"0.1")?;
/// }
/// assert_eq!(store.get("learning rate", Duration::from_secs(60))?, b"0.1");
///
/// // A barrier: the last rank opens the gate.
/// if store.add("arrived", 1)? == i64::from(world.size()) {
///     store.set("gate", b"")?;
/// }
/// store.wait(&["gate"], None)?;
/// # Ok::<(), unisono::Error>(())
/// ```
///
/// [`World::store`]: crate::World::store
/// [`World::store_of`]: crate::World::store_of
#[derive(Clone)]
pub struct Store {
    /// The world stays as long as its store is used.
    world: Arc<Shared>,
    communicator: CommunicatorKey,
    holder: JobRank,
    timeout: Duration,
    prefix: Arc<str>,
}

impl Store {
    /// The store of a group of the world.
    pub(crate) fn new(world: Arc<Shared>, group: &Group) -> Store {
        let communicator = CommunicatorKey { id: group.id(), epoch: group.epoch() };
        let (holder, timeout) = (group.job_rank(GroupRank::new(0)), world.call_timeout(group));
        Store { world, communicator, holder, timeout, prefix: "".into() }
    }

    /// A handle that puts `prefix` before every key: the keys of a library, or of one epoch. Unlike torch's
    /// `PrefixStore` it adds no slash. Prefixes of prefixes are joined.
    ///
    /// ```
    /// let world = unisono::init()?;
    /// world.store().prefixed("a/").prefixed("b/").set("c", b"1")?;
    /// assert_eq!(world.store().get("a/b/c", None)?, b"1");
    /// # Ok::<(), unisono::Error>(())
    /// ```
    #[must_use]
    pub fn prefixed(&self, prefix: &str) -> Store {
        Store { prefix: [&*self.prefix, prefix].concat().into(), ..self.clone() }
    }

    /// Stores a value, in the place of an earlier one, and ends the waits for the key.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a key or a value that is too long, with the limit; [`Error::StoreFull`] when it
    /// does not fit into the store, or this rank has too many calls in progress; [`Error::StoreTimeout`] when the
    /// holder does not answer in time; [`Error::PeerLost`] when it is lost or has left, [`Error::Evicted`] when this
    /// rank counts as lost; [`Error::Closed`] when this process ends meanwhile; [`Error::Forked`] in a forked child.
    pub fn set(&self, key: &str, value: &[u8]) -> Result<()> {
        match self.call(key, StoreOperation::Set(value.into()), self.timeout)? {
            StoreReply::Done => Ok(()),
            reply => Err(odd_reply(&reply)),
        }
    }

    /// The value of a key, for which it waits. Without a timeout it waits as long as a call of the communicator may.
    ///
    /// ```
    /// use std::time::Duration;
    /// use unisono::Error;
    ///
    /// let world = unisono::init()?;
    /// let error = world.store().get("never set", Duration::from_millis(10)).unwrap_err();
    /// assert!(matches!(error, Error::StoreTimeout { key, .. } if &*key == "never set"));
    /// # Ok::<(), unisono::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Store::set`]; [`Error::StoreTimeout`], which names the key, also when no rank has set it in time.
    pub fn get(&self, key: &str, timeout: impl Into<Option<Duration>>) -> Result<Vec<u8>> {
        let timeout = timeout.into().unwrap_or(self.timeout);
        match self.call(key, StoreOperation::Get, timeout)? {
            StoreReply::Value(value) => Ok(value.to_vec()),
            reply => Err(odd_reply(&reply)),
        }
    }

    /// The value of a key, if it is there now.
    ///
    /// # Errors
    /// As [`Store::set`].
    pub fn try_get(&self, key: &str) -> Result<Option<Vec<u8>>> {
        match self.call(key, StoreOperation::TryGet, self.timeout)? {
            StoreReply::Value(value) => Ok(Some(value.to_vec())),
            StoreReply::Missing => Ok(None),
            reply => Err(odd_reply(&reply)),
        }
    }

    /// Waits until each of these keys has been there, in all at most for the timeout, or for as long as a call of the
    /// communicator may. Costs one call for each key.
    ///
    /// # Errors
    /// As [`Store::get`]; [`Error::StoreTimeout`] names the first key that did not come.
    pub fn wait(&self, keys: &[&str], timeout: impl Into<Option<Duration>>) -> Result<()> {
        let start = Instant::now();
        let timeout = timeout.into().unwrap_or(self.timeout);
        for key in keys {
            let left = timeout.saturating_sub(start.elapsed());
            match self.call(key, StoreOperation::Wait, left)? {
                StoreReply::Done => {}
                reply => return Err(odd_reply(&reply)),
            }
        }
        Ok(())
    }

    /// Adds to a number, and gives the sum. The value is the number in decimal digits, which [`Store::get`] shows; a
    /// missing key counts as 0.
    ///
    /// # Errors
    /// As [`Store::set`]; [`Error::InvalidArgument`] when the value is no number of 64 bits, or the sum is none. Then
    /// nothing has changed.
    pub fn add(&self, key: &str, number: i64) -> Result<i64> {
        match self.call(key, StoreOperation::Add(number), self.timeout)? {
            StoreReply::Number(sum) => Ok(sum),
            reply => Err(odd_reply(&reply)),
        }
    }

    /// Stores `desired` if the value is `expected`, and gives the value that is in the store then: `desired` when it
    /// was stored. A missing key counts as an empty value, so an empty `expected` sets a key that is not there. Unlike
    /// here, torch's `compare_set` gives `expected` when the key is missing and `expected` is not empty; here the
    /// result is empty.
    ///
    /// # Errors
    /// As [`Store::set`].
    pub fn compare_and_set(&self, key: &str, expected: &[u8], desired: &[u8]) -> Result<Vec<u8>> {
        let (expected, desired) = (expected.into(), desired.into());
        match self.call(key, StoreOperation::CompareAndSet { expected, desired }, self.timeout)? {
            StoreReply::Value(value) => Ok(value.to_vec()),
            reply => Err(odd_reply(&reply)),
        }
    }

    /// Takes a key out, and gives whether it was there.
    ///
    /// # Errors
    /// As [`Store::set`].
    pub fn delete(&self, key: &str) -> Result<bool> {
        match self.call(key, StoreOperation::Delete, self.timeout)? {
            StoreReply::Deleted(was_there) => Ok(was_there),
            reply => Err(odd_reply(&reply)),
        }
    }

    /// The number of keys that begin with the prefix of this handle: of all keys without one. The holder looks at each
    /// of them. Torch's `num_keys` counts all keys, also of other prefixes.
    ///
    /// # Errors
    /// As [`Store::set`].
    pub fn count(&self) -> Result<u64> {
        match self.call("", StoreOperation::Count, self.timeout)? {
            StoreReply::Count(keys) => Ok(keys),
            reply => Err(odd_reply(&reply)),
        }
    }

    fn call(&self, key: &str, operation: StoreOperation, timeout: Duration) -> Result<StoreReply> {
        let key = [&*self.prefix, key].concat().into();
        let key = StoreKey { store: self.communicator, key };
        let deadline = deadline_after(Instant::now(), timeout);
        self.world.call_store(StoreCall { holder: self.holder, key, operation, deadline })
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Store { communicator, holder, prefix, .. } = self;
        write!(formatter, "Store(of communicator {communicator}, held by rank {holder}, prefix {prefix:?})")
    }
}

/// The error for an answer to another operation.
fn odd_reply(reply: &StoreReply) -> Error {
    let text = format!("its holder has answered another operation: {reply:?}");
    Error::System {
        what: "a call of the store".to_owned(),
        text: beginning(&text, SHOWN_BYTES_MAX).to_owned(),
    }
}
