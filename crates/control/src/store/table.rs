//! The stores that a rank holds: their entries, the ranks that wait for a key, and the last call of each slot. Requests
//! and losses of ranks go in, answers come out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use unisono_communicator::JobRank;

use super::message::{
    ENTRY_BYTES, STORE_BYTES_MAX, StoreAnswer, StoreCallId, StoreKey, StoreOperation, StoreRefusal,
    StoreReply, StoreRequest,
};

/// A slot of a rank.
type SlotPlace = (JobRank, u16);

/// All stores that a rank holds.
#[derive(Debug, Default)]
pub(super) struct StoreTable {
    entries: BTreeMap<StoreKey, Arc<[u8]>>,
    /// The slots whose call waits for a key.
    waits: BTreeMap<StoreKey, BTreeSet<SlotPlace>>,
    last_calls: BTreeMap<SlotPlace, LastCall>,
    /// As [`STORE_BYTES_MAX`] counts.
    bytes: usize,
    answers: Vec<(JobRank, StoreAnswer)>,
}

/// The last call of a slot.
#[derive(Debug)]
struct LastCall {
    sequence: u64,
    state: LastState,
}

/// The state of the last call of a slot.
#[derive(Debug)]
enum LastState {
    /// It waits for this key, and wants its value or not.
    Waits { key: StoreKey, wants_value: bool },
    /// It has changed nothing, so a repetition of the request is carried out again.
    Read,
    /// It has this answer, and a repetition of the request gets the same.
    Answered(StoreReply),
}

impl LastState {
    fn bytes(&self) -> usize {
        match self {
            LastState::Waits { key, .. } => entry_bytes(key, 0),
            LastState::Answered(StoreReply::Value(value)) => value.len(),
            LastState::Read | LastState::Answered(_) => 0,
        }
    }
}

fn entry_bytes(key: &StoreKey, value_bytes: usize) -> usize {
    ENTRY_BYTES + key.key.len() + value_bytes
}

/// The answer to an operation, for a call that has it at once.
enum Carried {
    Waits { wants_value: bool },
    Read(StoreReply),
    Changed(StoreReply),
}

impl StoreTable {
    /// The answers since the last call, and their receivers.
    pub(super) fn take_answers(&mut self) -> Vec<(JobRank, StoreAnswer)> {
        std::mem::take(&mut self.answers)
    }

    /// A request has come, perhaps once more.
    pub(super) fn on_request(&mut self, from: JobRank, request: StoreRequest) {
        let StoreRequest { call, key, operation } = request;
        let place = (from, call.slot);
        match self.last_calls.get(&place) {
            // Its caller has given it up, and used the slot again.
            Some(last) if last.sequence > call.sequence => return,
            Some(last) if last.sequence == call.sequence => match &last.state {
                LastState::Waits { .. } => return,
                LastState::Answered(reply) => return self.answers.push((from, answer(call, reply.clone()))),
                LastState::Read => {}
            },
            Some(_) | None => {}
        }
        self.forget(place);
        let (state, reply) = match self.carry_out(&key, operation) {
            Carried::Waits { wants_value } => {
                let state = LastState::Waits { key: key.clone(), wants_value };
                if self.has_room(state.bytes()) {
                    self.waits.entry(key).or_default().insert(place);
                    (state, None)
                } else {
                    (LastState::Read, Some(StoreReply::Refused(StoreRefusal::Full)))
                }
            }
            Carried::Read(reply) => (LastState::Read, Some(reply)),
            Carried::Changed(reply) => (LastState::Answered(reply.clone()), Some(reply)),
        };
        self.bytes += state.bytes();
        self.last_calls.insert(place, LastCall { sequence: call.sequence, state });
        self.answers.extend(reply.map(|reply| (from, answer(call, reply))));
    }

    /// A rank takes no part any more.
    pub(super) fn remove_rank(&mut self, rank: JobRank) {
        let places: Vec<SlotPlace> =
            self.last_calls.range((rank, 0)..=(rank, u16::MAX)).map(|(place, _)| *place).collect();
        places.into_iter().for_each(|place| self.forget(place));
    }

    /// A slot has no call any more.
    fn forget(&mut self, place: SlotPlace) {
        let Some(last) = self.last_calls.remove(&place) else { return };
        self.bytes -= last.state.bytes();
        match last.state {
            LastState::Waits { key, .. } => {
                if let Some(places) = self.waits.get_mut(&key) {
                    places.remove(&place);
                    if places.is_empty() {
                        self.waits.remove(&key);
                    }
                }
            }
            LastState::Read | LastState::Answered(_) => {}
        }
    }

    fn has_room(&self, bytes: usize) -> bool {
        self.bytes + bytes <= STORE_BYTES_MAX
    }

    fn carry_out(&mut self, key: &StoreKey, operation: StoreOperation) -> Carried {
        let value = self.entries.get(key).cloned();
        match (operation, value) {
            (StoreOperation::Get, Some(value)) | (StoreOperation::TryGet, Some(value)) => {
                Carried::Read(StoreReply::Value(value))
            }
            (StoreOperation::Get, None) => Carried::Waits { wants_value: true },
            (StoreOperation::TryGet, None) => Carried::Read(StoreReply::Missing),
            (StoreOperation::Wait, Some(_)) => Carried::Read(StoreReply::Done),
            (StoreOperation::Wait, None) => Carried::Waits { wants_value: false },
            (StoreOperation::Count, _) => {
                let begins = |one: &&StoreKey| one.store == key.store && one.key.starts_with(&*key.key);
                let keys = self.entries.range(key.clone()..).map(|(one, _)| one).take_while(begins);
                Carried::Read(StoreReply::Count(keys.count() as u64))
            }
            (StoreOperation::Set(new), _) => Carried::Changed(self.put(key, new, 0, StoreReply::Done)),
            (StoreOperation::Add(number), value) => Carried::Changed(self.add(key, value, number)),
            (StoreOperation::CompareAndSet { expected, desired }, value) => {
                let value = value.unwrap_or_default();
                let reply = if *value == *expected {
                    let room = desired.len();
                    self.put(key, desired.clone(), room, StoreReply::Value(desired))
                } else if self.has_room(value.len()) {
                    StoreReply::Value(value)
                } else {
                    StoreReply::Refused(StoreRefusal::Full)
                };
                Carried::Changed(reply)
            }
            (StoreOperation::Delete, value) => {
                self.entries.remove(key);
                self.bytes -= value.as_ref().map_or(0, |value| entry_bytes(key, value.len()));
                Carried::Changed(StoreReply::Deleted(value.is_some()))
            }
        }
    }

    fn add(&mut self, key: &StoreKey, value: Option<Arc<[u8]>>, number: i64) -> StoreReply {
        let text = value.as_deref().map_or(Ok("0"), std::str::from_utf8);
        let Some(before) = text.ok().and_then(|text| text.parse::<i64>().ok()) else {
            return StoreReply::Refused(StoreRefusal::NotANumber);
        };
        match before.checked_add(number) {
            None => StoreReply::Refused(StoreRefusal::Overflow),
            Some(sum) => self.put(key, sum.to_string().into_bytes().into(), 0, StoreReply::Number(sum)),
        }
    }

    /// Stores a value if it and the answer, which needs so much room, fit; returns that answer then.
    fn put(
        &mut self,
        key: &StoreKey,
        value: Arc<[u8]>,
        answer_bytes: usize,
        reply: StoreReply,
    ) -> StoreReply {
        let before = self.entries.get(key).map_or(0, |old| entry_bytes(key, old.len()));
        let after = self.bytes - before + entry_bytes(key, value.len());
        if after + answer_bytes > STORE_BYTES_MAX {
            return StoreReply::Refused(StoreRefusal::Full);
        }
        self.bytes = after;
        self.entries.insert(key.clone(), value.clone());
        self.wake(key, &value);
        reply
    }

    /// Answers the calls that wait for a key.
    fn wake(&mut self, key: &StoreKey, value: &Arc<[u8]>) {
        for place in self.waits.remove(key).unwrap_or_default() {
            let Some(last) = self.last_calls.get_mut(&place) else { continue };
            self.bytes -= last.state.bytes();
            let state = std::mem::replace(&mut last.state, LastState::Read);
            let wants_value = matches!(state, LastState::Waits { wants_value: true, .. });
            let reply = if wants_value { StoreReply::Value(value.clone()) } else { StoreReply::Done };
            let call = StoreCallId { slot: place.1, sequence: last.sequence };
            self.answers.push((place.0, answer(call, reply)));
        }
    }

    /// The bytes that the table keeps, counted anew.
    #[cfg(test)]
    pub(super) fn counted_bytes(&self) -> (usize, usize) {
        let entries = self.entries.iter().map(|(key, value)| entry_bytes(key, value.len())).sum::<usize>();
        let calls = self.last_calls.values().map(|last| last.state.bytes()).sum::<usize>();
        (self.bytes, entries + calls)
    }

    /// The number of slots that wait, and of slots with any call.
    #[cfg(test)]
    pub(super) fn slots(&self) -> (usize, usize) {
        (self.waits.values().map(BTreeSet::len).sum(), self.last_calls.len())
    }
}

fn answer(call: StoreCallId, reply: StoreReply) -> StoreAnswer {
    StoreAnswer { call, reply }
}
