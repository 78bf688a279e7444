//! What a library has given away and not got back.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::{Text, export, lock};

/// How many of each kind live.
static LIVE: Mutex<BTreeMap<&'static str, u64>> = Mutex::new(BTreeMap::new());

/// Counts one more, or one less, of a kind.
pub fn count(kind: &'static str, change: i64) {
    let mut live = lock(&LIVE);
    let number = live.entry(kind).or_default();
    *number = number.saturating_add_signed(change);
}

/// A number that was never given away: what a C program has in place of a pointer. It points nowhere.
fn next() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0x0d0b_1e00_0000);
    NEXT.fetch_add(64, Ordering::SeqCst)
}

/// The handles of one kind. A handle that was given back, or never given away, is found out.
#[derive(Debug)]
pub struct Handles<T> {
    kind: &'static str,
    live: Mutex<BTreeMap<usize, Arc<T>>>,
}

impl<T> Handles<T> {
    /// None yet. `kind` is their name for [`count`].
    pub const fn new(kind: &'static str) -> Handles<T> {
        Handles { kind, live: Mutex::new(BTreeMap::new()) }
    }

    /// Gives a handle away.
    pub fn insert(&self, value: T) -> usize {
        self.insert_with(|_| Arc::new(value)).0
    }

    /// Gives a handle away to a thing that knows it.
    pub fn insert_with(&self, make: impl FnOnce(usize) -> Arc<T>) -> (usize, Arc<T>) {
        let handle = next();
        let value = make(handle);
        lock(&self.live).insert(handle, value.clone());
        count(self.kind, 1);
        (handle, value)
    }

    /// The thing.
    pub fn get(&self, handle: usize) -> Option<Arc<T>> {
        lock(&self.live).get(&handle).cloned()
    }

    /// Takes a handle back.
    pub fn remove(&self, handle: usize) -> Option<Arc<T>> {
        let removed = lock(&self.live).remove(&handle);
        if removed.is_some() {
            count(self.kind, -1);
        }
        removed
    }

    /// All that live.
    pub fn all(&self) -> Vec<Arc<T>> {
        lock(&self.live).values().cloned().collect()
    }
}

export! {
    plain fn unisono_double_live_handles() -> u64 {
        lock(&LIVE).values().sum()
    }

    plain fn unisono_double_live(kind: Text) -> u64 {
        let kind = kind.get().unwrap_or_default();
        lock(&LIVE).get(kind.as_str()).copied().unwrap_or(0)
    }
}
