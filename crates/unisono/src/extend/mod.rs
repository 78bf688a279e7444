//! Names for authors of transports, vendors' backends, codecs and kernel devices, beside the names for users. Programs
//! that only call collectives need none of them, and they change more often than the rest.
//!
//! * A transport implements [`links::Links`], and gets a whole communicator, [`links::EngineCommunicator`]. Over the
//!   connections of a job it implements [`tcp::Transport`] too, elsewhere [`control::Control`].
//! * A vendor's library implements `library::Vendor`, on memory of a device also `library::Device`, and gets
//!   `library::Offloaded` (feature `offload`).
//! * A library with calls of its own implements [`Executor`](calls::Executor) and [`Life`](calls::Life) with a
//!   [`gate::CallGate`]. A decorator of a communicator implements `Executor`, and has the `Life` of the communicator
//!   beneath.
//! * A codec implements `compression::Codec`, a device for codecs `compression::KernelDevice`, both with the names of
//!   `codecs` (feature `compression`).
//!
//! ```
//! use std::sync::atomic::{AtomicU64, Ordering};
//! use unisono::call::{Call, OwnedCall};
//! use unisono::extend::calls::{Executor, Life};
//! use unisono::{Collectives, Communicator, Group, Outcome, Result, Work};
//!
//! /// Counts the calls of a communicator.
//! struct Counted<C>(C, AtomicU64);
//!
//! impl<C: Communicator> Executor for Counted<C> {
//!     fn group(&self) -> &Group {
//!         self.0.group()
//!     }
//!
//!     fn execute(&self, call: &mut Call<'_>) -> Result<Outcome> {
//!         self.1.fetch_add(1, Ordering::Relaxed);
//!         self.0.execute(call)
//!     }
//!
//!     fn submit(&self, call: OwnedCall) -> Work {
//!         self.1.fetch_add(1, Ordering::Relaxed);
//!         self.0.submit(call)
//!     }
//!
//!     fn life(&self) -> &dyn Life {
//!         self.0.life()
//!     }
//! }
//!
//! let counted = Counted(unisono::init()?, AtomicU64::new(0));
//! counted.barrier()?;
//! assert_eq!(counted.1.into_inner(), 1);
//! # Ok::<(), unisono::Error>(())
//! ```

/// Calls below the typed ones: their parts, their handles, their arguments' checks, and lines for people.
pub mod calls {
    pub use unisono_collectives::With;
    pub use unisono_communicator::{
        AfterEnd, AlgorithmName, CALL_TIMEOUT_DEFAULT, CallAlgorithm, Certainty, Completion, DeviceElements,
        DeviceSpan, DoneCallback, Ending, Executor, FloatFormat, FoundMessage, GroupRank, Holding,
        InterruptCheck, Kind, LENGTHS_KNOWN_MAX, LengthList, Lengths, Life, LogName, OpenScope, Operation,
        ParentCall, PreparedCall, PreparedNumber, Process, Profile, ScopeId, Segment, SegmentList, Segments,
        SegmentsMut, Severity, ShortText, Site, SiteText, Sizes, SkippedOperations, UnknownCollective,
        WorkSource, call_back, check_request, deadline_after, flush_log, interrupt_check, lengths, log,
        set_log_level, zeroed,
    };
}

/// The gate that every call of a backend passes: admission, order, numbers, the first cause; tickets of enqueued calls;
/// the communicator beneath a vendor's.
pub mod gate {
    pub use unisono_backend::{
        BoundExtent, CallEngine, CallGate, CallOrder, CallbackScope, Companion, Enclosing, Entered, Failing,
        GroupKeys, OpenTicket, Pass, Peers, ScheduledCall, ScopeOrder, ScopeTurn, StallOptions, Survivors,
        Tickets, Turn, Turnstile, Waker, is_in_call, on_rank,
    };
    pub use unisono_communicator::{BodyStage, CallBody};
}

/// The control plane of a transport: the questions and answers of ranks about calls and failures, the state that a
/// communicator shows for it, and the search for calls that differ.
pub mod control {
    pub use unisono_backend::{
        Agreed, Answers, Ask, Asked, Board, CALLS_REMEMBERED, CallAhead, CallElsewhere, CallHistory,
        CallRing, CallStatus, Closings, CollectiveWait, CommunicatorKey, Control, Doing, FirstCause,
        FirstDifference, GroupText, HANDOVER_MAX, Heard, IDLE_AFTER_CAUSE_MAX, Membership, MessageWait,
        Messages, OnStreams, Progress, Question, RankHistory, Revocation, SEARCH_MAX, SearchStep, Unfinished,
        UnreadMessages, answered_elsewhere, asked_next, closed_differently, closing_error, different_groups,
        history_difference, judge_answer, list_text, not_agreed, order_mismatch, unread_text,
        with_call_ahead, with_call_elsewhere,
    };
}

/// The records of calls that a backend makes for the communication log and the analysis of stragglers.
pub mod records {
    pub use unisono_backend::Course;
    pub use unisono_communicator::{
        ClockOffset, EnteredCall, HostClock, LinkTime, Observations, RecordedCall, RecordedEnd, Recording,
        host_clocks, monotonic_ns,
    };
}

/// The links of a transport, and the engine that runs schedules over them.
pub mod links {
    pub use unisono_engine::in_process::{InProcessLinks, PipeLink, world_of, world_of_groups};
    pub use unisono_engine::{
        COPY_ALL, Edge, EngineCommunicator, Flow, Interest, Lane, Link, Links, PIECE_BYTES, PIECE_BYTES_MAX,
        Parts, ProgressThreads, SharedRegistry, Tap, Tapped, TappedLink, Wake,
    };
}

/// Algorithms as a backend sees them: the registry, proofs with a limit, the order of a reduction, and the rounds of
/// messages that a vendor's library runs.
pub mod schedule {
    pub use unisono_schedule::{
        Admit, Digest, Facts, Fold, Layout, Move, PROOF_STEPS_MAX, ReductionTree, Refusal, Refused, Registry,
        Rounds, StepPlace, WrongFigure, canonical_prefix_tree, canonical_tree, prove, rounds,
        verify_schedules,
    };
}

/// The job, and its transport: for backends that lie on top of it, for programs that place ranks themselves,
/// and for other transports over the connections of the job.
pub mod tcp {
    pub use crate::config::backend::UnknownBackend;
    pub use unisono_control::handshake::JobId;
    pub use unisono_control::secret::Secret;
    pub use unisono_control::wire::ConnectionRole;
    pub use unisono_job::environment::Launcher;
    pub use unisono_job::rendezvous::{Membership, ProcessBirth, RankProcess};
    pub use unisono_job::report::InheritedPipe;
    pub use unisono_job::sockets::{DataSocket, Way};
    pub use unisono_job::transport::{Connections, Delivery, NewCommunicator, Transport};
    pub use unisono_job::{Job, MeetingStore};
    pub use unisono_transport_tcp::{BACKEND, DataLink, DataLinks, Tcp, TcpCommunicator};
}

/// The parts of codecs and of devices that run their kernels.
#[cfg(feature = "compression")]
pub mod codecs {
    pub use unisono_compression::{
        CODECS, CodecKernels, DevicePool, EncodeContext, Feedback, HostKernels, Shared, Summable,
        TAG_BYTES_MAX, View, ViewMut, code_size, worst_element,
    };
    pub use unisono_kernels::{CodeSize, IntFormat, IntWidth, Rounding};
}

/// The arithmetic of codecs on the processor, whose bytes every device must give.
#[cfg(feature = "compression")]
pub mod kernels {
    pub use unisono_kernels::{
        Counter, GlobalSignPart, IntPart, IntPartMut, Kernels, Residual, SignPart, SignPartMut, Stores,
        Target, Threads,
    };
}

/// Collectives of a vendor's library: the traits that it implements, and the communicator that is made of them.
#[cfg(feature = "offload")]
pub mod library {
    pub use unisono_offload::{
        Arithmetic, Capabilities, Combination, Device, DeviceTurn, Elements, HostMemory, LibraryTurn,
        NanInMinMax, Native, NativeCall, NativeOp, OffloadOptions, Offloaded, RawEvent, RawStream, Scale,
        Vendor, lacks,
    };
}

#[cfg(any(feature = "ccl", feature = "nccl", feature = "hccl"))]
pub mod vendors;

/// NVIDIA's driver, and its compiler at run time: for kernels compiled ahead, and for codecs with kernels of their own.
#[cfg(any(feature = "cuda", feature = "nccl"))]
pub mod cuda {
    #[cfg(feature = "cuda")]
    pub use unisono_compression_cuda::{KERNELS, compile, source};
    pub use unisono_cuda::{
        Argument, Capability, Code, Compiled, Context, Driver, Event, EventHandle, EventKind, Function, Grid,
        KernelCode, Memory, Module, Nvrtc, Source, Stream, StreamHandle, StreamKind, Version,
    };
}
