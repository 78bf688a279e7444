//! The communicators of a rank by key. A rank may have thousands of them, so frequent events look at few of them only:
//! at the changed communicators, and at communicators whose callers wait for a time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use super::local_communicator::LocalCommunicator;
use crate::wire::CommunicatorKey;

/// The communicators of a rank.
#[derive(Default)]
pub(super) struct CommunicatorMap {
    all: BTreeMap<CommunicatorKey, LocalCommunicator>,
    /// The communicators that may have changed since the last [`CommunicatorMap::settle`].
    touched: BTreeSet<CommunicatorKey>,
    /// The communicators whose callers waited for a time then.
    timed: BTreeSet<CommunicatorKey>,
}

impl CommunicatorMap {
    pub(super) fn get(&self, key: CommunicatorKey) -> Option<&LocalCommunicator> {
        self.all.get(&key)
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &LocalCommunicator> {
        self.all.values()
    }

    pub(super) fn insert(&mut self, communicator: LocalCommunicator) {
        self.touched.insert(communicator.key);
        self.all.insert(communicator.key, communicator);
    }

    pub(super) fn remove(&mut self, key: CommunicatorKey) -> Option<LocalCommunicator> {
        self.touched.remove(&key);
        self.timed.remove(&key);
        self.all.remove(&key)
    }

    /// One of them, to change it.
    pub(super) fn get_mut(&mut self, key: CommunicatorKey) -> Option<&mut LocalCommunicator> {
        let communicator = self.all.get_mut(&key)?;
        self.touched.insert(key);
        Some(communicator)
    }

    /// All of them, to change them.
    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut LocalCommunicator> {
        self.touched = self.all.keys().copied().collect();
        self.all.values_mut()
    }

    /// The changed ones.
    pub(super) fn touched(&mut self) -> Vec<&mut LocalCommunicator> {
        match self.touched.len() {
            0 => Vec::new(),
            1 => self.touched.first().and_then(|key| self.all.get_mut(key)).into_iter().collect(),
            _ => self.all.values_mut().filter(|one| self.touched.contains(&one.key)).collect(),
        }
    }

    /// The effects of the changed communicators have been taken. Their questions may be left.
    pub(super) fn settle(&mut self) {
        for key in std::mem::take(&mut self.touched) {
            let Some(communicator) = self.all.get(&key) else { continue };
            match communicator.due() {
                Some(_) => self.timed.insert(key),
                None => self.timed.remove(&key),
            };
            if !communicator.questions.is_empty() {
                self.touched.insert(key);
            }
        }
    }

    /// The keys of the communicators whose callers wait for a time.
    pub(super) fn timed(&self) -> Vec<CommunicatorKey> {
        self.timed.union(&self.touched).copied().collect()
    }

    /// When the first of them is due.
    pub(super) fn due(&self) -> Option<Instant> {
        self.timed.union(&self.touched).filter_map(|key| self.all.get(key)?.due()).min()
    }
}
