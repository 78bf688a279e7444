//! What a test asks the process of a rank, and what the process asks the test. The answer to each question is a value
//! whose type both sides know from the question.

use std::time::Duration;

use unisono_communicator::{
    CallOptions, Collective, CostModel, Counts, DType, Descriptor, Division, Error, Group, GroupOptions,
    MemoryKind, Outcome, ParentCall, Result, Site, SkippedOperations, Ticket,
};

use super::wire::{Bytes, wire_enum, wire_struct};

/// The number of something that a process keeps: a communicator, a scope, a handle, lent memory, a function.
pub(super) type Id = u64;

wire_enum! {
    /// A question of the test to a rank. `on` is a communicator or a scope, `work` a handle.
    Request {
        /// Joins a world: `Result<CommunicatorInfo>`.
        0 Join { world: WorldMessage }
        /// Drops everything that belongs to the world: `bool`, whether nothing is still running.
        1 Leave {}
        /// `Result<CommunicatorInfo>`.
        2 MakeGroup { key: String, ranks: Vec<u32> }
        /// `Executed`.
        3 Execute { on: Id, call: CallMessage }
        /// The handle's number.
        4 Submit { on: Id, call: CallMessage }
        /// `Result<()>`.
        5 Supports { on: Id, descriptor: Descriptor, options: CallOptions, memory: MemoryKind }
        /// `Result<Option<Outcome>>`.
        6 ResolveWithin { on: Id, ticket: Ticket, timeout: Duration }
        /// `Result<Option<CommunicatorInfo>>`.
        7 Subgroup { on: Id, ranks: Vec<u32>, options: GroupOptions }
        /// `Result<CommunicatorInfo>`.
        8 Duplicate { on: Id }
        /// `Result<ShrunkMessage>`.
        9 Shrink { on: Id }
        /// `Result<bool>`.
        10 Agree { on: Id, flag: bool }
        /// `Result<ScopeInfo>`.
        11 Scope { on: Id, parent: ParentCall, options: CallOptions }
        /// The numbers' start and end.
        12 Numbers { on: Id }
        /// `Result<()>`.
        13 Revoke { on: Id, cause: Error }
        /// `Result<()>`.
        14 Abort { on: Id }
        /// `Result<()>`.
        15 Close { on: Id }
        /// Drops a communicator or a scope.
        16 Drop { on: Id }
        /// Whether it has ended, without waiting.
        17 IsDone { work: Id }
        /// Whether it has ended after this time.
        18 Wait { work: Id, timeout: Duration }
        /// Asks for [`Upcall::Ended`]. Whether it can still come.
        19 Notify { work: Id }
        /// The result and the buffers of what has ended: `FinishedMessage`.
        20 Finish { work: Id }
        /// Cancels it.
        21 Cancel { work: Id }
        /// Drops the handle.
        22 Detach { work: Id }
        /// Registers an algorithm that looks like one of the test, and that nobody can run: `Result<()>`.
        23 Register { on: Id, name: &'static str, collective: Collective, is_proved: bool }
        /// Says that another thread ends a scope.
        24 HandOver { on: Id }
        /// `Result<()>`.
        25 MonitoredBarrier { on: Id, timeout: Duration }
        /// Says what the size of a scope's parent is.
        26 NoteSize { on: Id, bytes: u64 }
        /// A batch of messages: `Result<Vec<Executed>>`.
        27 Exchange { on: Id, calls: Vec<CallMessage> }
        /// `Result<Option<ProbedMessage>>`.
        28 Probe { on: Id, call: CallMessage, waits: bool }
        /// Receives the message of a probe. The handle's number.
        29 ReceiveProbed { probed: Id, call: CallMessage }
        /// Drops the message of a probe.
        30 DropProbed { probed: Id }
    }
}

wire_enum! {
    /// A question of a rank to the test.
    Upcall {
        /// Calls a user's function: `std::result::Result<Bytes, String>`, the text of its panic.
        0 Function { function: Id, left: Bytes, right: Bytes, out_bytes: u64 }
        /// An asynchronous call has ended; answered when the functions that wait for it have returned.
        1 Ended { work: Id, result: Result<Outcome> }
        /// A call has dropped the keeper of lent memory, which looks like this.
        2 Returned { lent: Id, bytes: Bytes }
    }
}

/// Where and how a rank joins: what [`unisono_engine::EngineOptions`] and the pool say.
#[derive(Clone, Debug)]
pub(super) struct WorldMessage {
    pub(super) rank: u32,
    pub(super) ranks: u32,
    pub(super) store: String,
    pub(super) secret_file: String,
    pub(super) timeout: Duration,
    pub(super) probe_after: Duration,
    pub(super) piece_bytes: Option<u64>,
    pub(super) algorithm: Option<String>,
    pub(super) skipped: SkippedOperations,
}

/// A communicator in the process of a rank.
pub(super) struct CommunicatorInfo {
    pub(super) id: Id,
    pub(super) group: Group,
    pub(super) backend: &'static str,
    pub(super) natives: Vec<Collective>,
    pub(super) cost_model: CostModel,
}

pub(super) struct ScopeInfo {
    pub(super) communicator: CommunicatorInfo,
    pub(super) parent: ParentCall,
}

pub(super) struct ShrunkMessage {
    pub(super) communicator: CommunicatorInfo,
    pub(super) new_ranks: Vec<Option<u32>>,
    pub(super) last_common_call: u64,
}

/// A call with its memory.
pub(super) struct CallMessage {
    pub(super) descriptor: Descriptor,
    pub(super) buffers: BuffersMessage,
    /// Handle and device of a stream.
    pub(super) stream: Option<(u64, u32)>,
    pub(super) counts: Counts,
    pub(super) options: CallOptions,
    pub(super) function: Option<Id>,
    pub(super) site: Site,
}

wire_enum! {
    /// The buffers of a call.
    BuffersMessage {
        /// None at all.
        0 None {}
        /// One for input and output.
        1 InOut { buffer: MemoryMessage }
        /// Two.
        2 Separate { input: MemoryMessage, output: MemoryMessage }
    }
}

wire_enum! {
    /// One argument of a call.
    MemoryMessage {
        /// One segment, or a list that is divided.
        0 Host { division: Option<Division>, parts: Vec<PartMessage> }
        /// Addresses, sizes in bytes, and the device of each span; and the keeper, if there is one.
        1 Device { division: Option<Division>, spans: Vec<SpanMessage>, lent: Option<Id> }
    }
}

/// Contiguous memory on the host.
pub(super) struct PartMessage {
    pub(super) dtype: DType,
    /// For memory that has a keeper.
    pub(super) lent: Option<Id>,
    /// For memory that makes room for a message: the most bytes.
    pub(super) room_bytes_max: Option<u64>,
    pub(super) bytes: Bytes,
}

pub(super) struct SpanMessage {
    pub(super) address: u64,
    pub(super) bytes: u64,
    pub(super) device: u32,
}

/// What a blocking call has left behind.
pub(super) struct Executed {
    pub(super) result: Result<Outcome>,
    /// Whether the input is as it was.
    pub(super) is_input_intact: bool,
    /// The segments of the output.
    pub(super) output: Vec<Bytes>,
}

/// A message that a probe has found.
pub(super) struct ProbedMessage {
    pub(super) id: Id,
    pub(super) source: u32,
    pub(super) tag: u32,
    pub(super) dtype: DType,
    pub(super) bytes: u64,
}

/// What a handle gives back.
pub(super) struct FinishedMessage {
    pub(super) result: Result<Outcome>,
    /// The segments of the input, then those of the output; none where memory was lent.
    pub(super) parts: Option<Vec<Option<Bytes>>>,
}

wire_struct! {
    WorldMessage { rank, ranks, store, secret_file, timeout, probe_after, piece_bytes, algorithm, skipped }
    CommunicatorInfo { id, group, backend, natives, cost_model }
    ScopeInfo { communicator, parent }
    ShrunkMessage { communicator, new_ranks, last_common_call }
    CallMessage { descriptor, buffers, stream, counts, options, function, site }
    PartMessage { dtype, lent, room_bytes_max, bytes }
    SpanMessage { address, bytes, device }
    Executed { result, is_input_intact, output }
    ProbedMessage { id, source, tag, dtype, bytes }
    FinishedMessage { result, parts }
}
