//! The stores of a job as one rank takes part in them: its calls, and the stores that it holds itself.

use std::collections::BTreeMap;
use std::time::Instant;

use unisono_communicator::{Certainty, Culprit, Error, JobRank, Result};

use super::calls::{StoreCall, StoreCalls};
use super::message::{StoreAnswer, StoreReply, StoreRequest};
use super::table::StoreTable;

/// The tasks of the owner.
#[derive(Debug)]
pub enum StoreAction {
    /// Send this request to another rank, once there is a connection.
    Ask(JobRank, StoreRequest),
    /// Send this answer to another rank.
    Answer(JobRank, StoreAnswer),
    /// The call of this caller has ended.
    End(u64, Result<StoreReply>),
}

/// The part of one rank.
#[derive(Debug)]
pub struct StorePlane {
    rank: JobRank,
    calls: StoreCalls,
    table: StoreTable,
    /// The ranks that hold no store any more.
    gone: BTreeMap<JobRank, Error>,
    actions: Vec<StoreAction>,
}

impl StorePlane {
    /// The part of this rank, without calls and entries.
    pub fn new(rank: JobRank) -> StorePlane {
        let (calls, table) = (StoreCalls::default(), StoreTable::default());
        StorePlane { rank, calls, table, gone: BTreeMap::new(), actions: Vec::new() }
    }

    /// The actions since the last call.
    pub fn take_actions(&mut self) -> Vec<StoreAction> {
        std::mem::take(&mut self.actions)
    }

    /// A caller of this rank begins a call, whose arguments were checked. It ends once.
    pub fn call(&mut self, caller: u64, call: StoreCall, now: Instant) {
        let holder = call.holder;
        let over = self.gone.get(&self.rank).or_else(|| self.gone.get(&holder)).cloned();
        match over.map_or_else(|| self.calls.begin(caller, call, now), Err) {
            Err(error) => self.actions.push(StoreAction::End(caller, Err(error))),
            Ok(request) if holder == self.rank => self.on_request(holder, request),
            Ok(request) => self.actions.push(StoreAction::Ask(holder, request)),
        }
    }

    /// A rank that takes part asks this one.
    pub fn on_request(&mut self, from: JobRank, request: StoreRequest) {
        self.table.on_request(from, request);
        for (to, answer) in self.table.take_answers() {
            if to == self.rank {
                self.on_answer(to, answer);
            } else {
                self.actions.push(StoreAction::Answer(to, answer));
            }
        }
    }

    /// The rank that holds a store has answered.
    pub fn on_answer(&mut self, from: JobRank, answer: StoreAnswer) {
        let ended = self.calls.on_answer(from, answer);
        self.actions.extend(ended.map(|(caller, result)| StoreAction::End(caller, result)));
    }

    /// There is a new connection to a rank: an earlier one may have lost the requests to it, or their answers.
    pub fn on_connected(&mut self, peer: JobRank) {
        let again = self.calls.requests_to(peer).into_iter();
        self.actions.extend(again.map(|request| StoreAction::Ask(peer, request)));
    }

    /// A rank asks no more: it has left, or counts as lost.
    pub fn on_gone_caller(&mut self, rank: JobRank) {
        self.table.remove_rank(rank);
    }

    /// No answer of a rank can come any more: calls to it end, also later ones.
    pub fn on_gone_holder(&mut self, rank: JobRank, by: JobRank, certainty: Certainty, evidence: &str) {
        let evidence = evidence.to_owned();
        let error = match rank == self.rank {
            true => Error::Evicted { reported_by: by, evidence },
            false => Error::PeerLost {
                culprits: vec![Culprit { rank, process: None, last_call: None }],
                call: None,
                reported_by: by,
                certainty,
                evidence,
            },
        };
        let error = self.gone.entry(rank).or_insert(error);
        let is_over = |call: &StoreCall| call.holder == rank || rank == self.rank;
        let ended = self.calls.end(is_over, |_, _| error.clone());
        self.end_all(ended);
    }

    /// The first deadline of a call.
    pub fn due(&self) -> Option<Instant> {
        self.calls.due()
    }

    /// Time has passed.
    pub fn on_time(&mut self, now: Instant) {
        let ended = self.calls.expire(now);
        self.end_all(ended);
    }

    fn end_all(&mut self, ended: Vec<(u64, Error)>) {
        self.actions.extend(ended.into_iter().map(|(caller, error)| StoreAction::End(caller, Err(error))));
    }
}
