//! Links that record each move of bytes: time, edge, direction, number. For tests of the engine; the communication log
//! records calls.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use crate::links::tapped::{Flow, Tap, Tapped};
use crate::links::{Edge, Links};
use crate::lock;

/// The most events that a trace keeps. It counts later events, and drops them.
pub const TRACE_EVENTS_MAX: usize = 1 << 20;

/// One call of a link that moved bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceEvent {
    /// The time when the call returned.
    pub at: Instant,
    /// The edge.
    pub edge: Edge,
    /// The direction.
    pub flow: Flow,
    /// The number of bytes.
    pub bytes: usize,
}

/// A trace that can be read while the links are in use.
#[derive(Clone, Default)]
pub struct Trace {
    log: Arc<Mutex<Log>>,
}

#[derive(Default)]
struct Log {
    events: Vec<TraceEvent>,
    dropped: u64,
}

/// Links that write into a [`Trace`].
///
/// ```
/// use unisono_collectives::Collectives;
/// use unisono_communicator::ReduceOp;
/// use unisono_engine::{EngineOptions, Trace, Traced, in_process};
/// let trace = Trace::default();
/// let world = in_process::world_of(2, &EngineOptions::default(), |_, links| Traced::new(links, trace.clone()));
/// std::thread::scope(|scope| {
///     for comm in &world {
///         scope.spawn(|| comm.all_reduce(&mut [1u8; 16], ReduceOp::Sum).unwrap());
///     }
/// });
/// // A header of 64 bytes and the 16 bytes, sent and received by both.
/// assert_eq!(trace.events().iter().map(|event| event.bytes).sum::<usize>(), 4 * 80);
/// ```
pub type Traced<K> = Tapped<K, Trace>;

impl<K: Links> Traced<K> {
    /// Records the moves on `links` in `trace`.
    pub fn new(links: K, trace: Trace) -> Traced<K> {
        Tapped::with_tap(links, trace)
    }
}

impl Trace {
    /// The events so far.
    pub fn events(&self) -> Vec<TraceEvent> {
        lock(&self.log).events.clone()
    }

    /// The number of events that were dropped because the trace was full.
    pub fn dropped(&self) -> u64 {
        lock(&self.log).dropped
    }
}

impl Tap for Trace {
    fn before(&mut self, _edge: Edge, _flow: Flow, bytes: usize) -> io::Result<usize> {
        Ok(bytes)
    }

    fn after(&mut self, edge: Edge, flow: Flow, bytes: usize) {
        let mut log = lock(&self.log);
        if log.events.len() < TRACE_EVENTS_MAX {
            log.events.push(TraceEvent { at: Instant::now(), edge, flow, bytes });
        } else {
            log.dropped += 1;
        }
    }

    fn forbids_sleep(&mut self) -> bool {
        false
    }
}
