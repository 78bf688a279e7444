//! The calls of this rank to stores that have no answer yet: their slots, their deadlines, and their errors.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use unisono_communicator::{Error, JobRank, Result, beginning};

use super::message::{
    CALLS_MAX, ENTRY_BYTES, KEY_BYTES_MAX, STORE_BYTES_MAX, StoreAnswer, StoreCallId, StoreKey,
    StoreOperation, StoreRefusal, StoreReply, StoreRequest, VALUE_BYTES_MAX,
};

/// The most bytes of a key that an error shows.
const SHOWN_BYTES_MAX: usize = 64;

/// One call of a store.
#[derive(Clone, Debug)]
pub struct StoreCall {
    /// The rank that holds the store.
    pub holder: JobRank,
    /// The key.
    pub key: StoreKey,
    /// The operation.
    pub operation: StoreOperation,
    /// The end of the call without an answer.
    pub deadline: Instant,
}

impl StoreCall {
    /// Refuses a key or a value that is too long.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`], which has the limit.
    pub fn check(&self) -> Result<()> {
        let limit = |argument, bytes: usize, most| match bytes <= most {
            true => Ok(()),
            false => {
                let problem = format!("has {bytes} bytes, and at most {most} are allowed");
                Err(Error::invalid(argument, problem).in_call(&self.title()))
            }
        };
        limit("key", self.key.key.len(), KEY_BYTES_MAX)?;
        match &self.operation {
            StoreOperation::Set(value) => limit("value", value.len(), VALUE_BYTES_MAX),
            StoreOperation::CompareAndSet { expected, desired } => {
                limit("expected", expected.len(), VALUE_BYTES_MAX)?;
                limit("desired", desired.len(), VALUE_BYTES_MAX)
            }
            StoreOperation::Get
            | StoreOperation::TryGet
            | StoreOperation::Wait
            | StoreOperation::Add(_)
            | StoreOperation::Delete
            | StoreOperation::Count => Ok(()),
        }
    }

    /// The call in errors, such as `store.get("epoch")`.
    pub fn title(&self) -> String {
        format!("store.{}({:?})", self.operation.name(), beginning(&self.key.key, SHOWN_BYTES_MAX))
    }

    fn refused(&self, refusal: StoreRefusal) -> Error {
        let invalid = |problem: &str| Error::invalid("key", problem).in_call(&self.title());
        match refusal {
            StoreRefusal::Full => {
                let problem = format!(
                    "rank {}, which holds the store, keeps at most {STORE_BYTES_MAX} bytes for it, {ENTRY_BYTES} for \
                     each key and each wait beside their own",
                    self.holder
                );
                Error::StoreFull { call: self.title().into(), problem: problem.into() }
            }
            StoreRefusal::NotANumber => invalid("its value is no number in decimal digits of 64 bits"),
            StoreRefusal::Overflow => invalid("its number and the addend have a sum beyond 64 bits"),
        }
    }

    fn timed_out(&self, waited: Duration) -> Error {
        let holder = self.holder;
        let problem = match self.operation {
            StoreOperation::Get | StoreOperation::Wait => {
                format!("rank {holder}, which holds the store, has not said that the key is there")
            }
            StoreOperation::Set(_)
            | StoreOperation::TryGet
            | StoreOperation::Add(_)
            | StoreOperation::CompareAndSet { .. }
            | StoreOperation::Delete
            | StoreOperation::Count => format!("rank {holder}, which holds the store, has not answered"),
        };
        let (call, problem) = (self.title().into(), problem.into());
        Error::StoreTimeout { call, key: self.key.key.clone(), waited, problem }
    }
}

/// A call without an answer.
#[derive(Debug)]
struct OpenCall {
    caller: u64,
    sequence: u64,
    since: Instant,
    call: StoreCall,
}

/// The calls of this rank, by slot.
#[derive(Debug, Default)]
pub(super) struct StoreCalls {
    sequence: u64,
    open: BTreeMap<u16, OpenCall>,
}

impl StoreCalls {
    /// Begins a call in the lowest free slot; returns its request.
    ///
    /// # Errors
    /// [`Error::StoreFull`] when no slot is free.
    pub(super) fn begin(&mut self, caller: u64, call: StoreCall, now: Instant) -> Result<StoreRequest> {
        let Some(slot) = (0..CALLS_MAX).find(|slot| !self.open.contains_key(slot)) else {
            let problem =
                format!("this rank has {CALLS_MAX} calls of stores in progress, and no more may be");
            return Err(Error::StoreFull { call: call.title().into(), problem: problem.into() });
        };
        self.sequence += 1;
        let open = OpenCall { caller, sequence: self.sequence, since: now, call };
        let request = request(slot, &open);
        self.open.insert(slot, open);
        Ok(request)
    }

    /// The requests to a rank that have no answer.
    pub(super) fn requests_to(&self, holder: JobRank) -> Vec<StoreRequest> {
        let to_holder = self.open.iter().filter(|(_, open)| open.call.holder == holder);
        to_holder.map(|(slot, open)| request(*slot, open)).collect()
    }

    /// An answer has come. Returns the caller and its result, unless the call has ended before.
    pub(super) fn on_answer(
        &mut self,
        from: JobRank,
        answer: StoreAnswer,
    ) -> Option<(u64, Result<StoreReply>)> {
        let StoreAnswer { call: StoreCallId { slot, sequence }, reply } = answer;
        let is_answered = |open: &OpenCall| open.sequence == sequence && open.call.holder == from;
        if !self.open.get(&slot).is_some_and(is_answered) {
            return None;
        }
        let OpenCall { caller, call, .. } = self.open.remove(&slot)?;
        let result = match reply {
            StoreReply::Refused(refusal) => Err(call.refused(refusal)),
            reply => Ok(reply),
        };
        Some((caller, result))
    }

    /// Ends the calls for which this is true, and returns their callers and errors.
    pub(super) fn end(
        &mut self,
        is_over: impl Fn(&StoreCall) -> bool,
        error: impl Fn(&StoreCall, Instant) -> Error,
    ) -> Vec<(u64, Error)> {
        let (over, open) =
            std::mem::take(&mut self.open).into_iter().partition(|(_, open)| is_over(&open.call));
        self.open = open;
        let over: BTreeMap<u16, OpenCall> = over;
        over.into_values().map(|open| (open.caller, error(&open.call, open.since))).collect()
    }

    /// Ends the calls whose deadline has passed.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<(u64, Error)> {
        let timed_out = |call: &StoreCall, since| call.timed_out(now.saturating_duration_since(since));
        self.end(|call| call.deadline <= now, timed_out)
    }

    /// The first deadline.
    pub(super) fn due(&self) -> Option<Instant> {
        self.open.values().map(|open| open.call.deadline).min()
    }
}

fn request(slot: u16, open: &OpenCall) -> StoreRequest {
    let call = StoreCallId { slot, sequence: open.sequence };
    StoreRequest { call, key: open.call.key.clone(), operation: open.call.operation.clone() }
}
