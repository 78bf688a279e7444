//! The communication log of a rank: which calls it has made, of which sizes, how long they took.
//!
//! Every communicator's group carries the log of its rank, as it carries the operations that are switched off. The code
//! before and after a call (`backend`'s board, `Solo`) asks the log with [`CommsLogger::enter`] whether to
//! record the call, and gives it back with [`CommsLogger::end`].
//!
//! | file | contents |
//! | --- | --- |
//! | `config` | the five keys, the selection of operations |
//! | `figures` | the size of a call, bandwidth |
//! | `histogram`, `rows` | durations and kinds of calls in bounded memory |
//! | `recorded`, `recording` | one recorded call; the same where no board remembers it |
//! | `counters` | counts by operation, for a monitoring system |
//! | `report` | the rows as data and as a table |
//! | `observations`, `clocks`, `link_time` | a backend's facts for the search for stragglers |

pub(crate) mod clocks;
pub(crate) mod config;
pub(crate) mod counters;
pub(crate) mod figures;
pub(crate) mod histogram;
pub(crate) mod link_time;
pub(crate) mod observations;
pub(crate) mod recorded;
pub(crate) mod recording;
pub(crate) mod report;
mod rows;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::call::operation::Operation;
use crate::call::options::Profile;
use crate::comms_log::config::{CommsLoggerConfig, Selection, bit, operation_named};
use crate::comms_log::counters::Counters;
use crate::comms_log::recorded::{EnteredCall, RecordedCall, RecordedEnd};
use crate::comms_log::report::CommsReport;
use crate::comms_log::rows::Rows;
use crate::log::{Severity, log};
use crate::monotonic::monotonic_ns;
use crate::short_text::ShortText;

/// The bits above the bits of operations.
const NAMES: u32 = 1 << 16;
const ENABLED: u32 = 1 << 17;
const VERBOSE: u32 = 1 << 18;
const DEBUG: u32 = 1 << 19;
const COUNTING: u32 = 1 << 20;

/// The communication log of one rank. All its communicators in one job have the same; a clone is a handle of it.
///
/// It is off until [`CommsLogger::start`], `UNISONO_COMMS_LOGGER`, or `unisono run --comms` switches it on. A call that
/// is in progress at that moment is not recorded. While it is off, a call reads no clock for it.
///
/// Blocking calls count from their turn to their end, asynchronous ones from the moment when they begin to move to the
/// moment when the library sees their end, whether or not anybody waits for them. A call that was switched off
/// ([`crate::SkippedOperations`]) or refused is no call here.
///
/// ```
/// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
/// use unisono::{Collectives, Communicator, ReduceOp, Solo};
/// let comm = Solo::new();
/// let log = comm.group().comms_logger();
/// log.start();
/// comm.all_reduce(&mut [1.0f32; 256], ReduceOp::Sum)?;
/// let report = log.report();
/// assert_eq!((report.rows[0].name.as_str(), report.rows[0].bytes_max), ("all_reduce", 1024));
/// assert!(report.to_string().contains("all_reduce"));
/// log.reset();
/// assert!(!log.has_calls());
/// # Ok::<(), unisono::Error>(())
/// ```
#[derive(Clone, Default)]
#[doc(alias = "comms_logger")]
pub struct CommsLogger {
    shared: Arc<LogShared>,
}

#[derive(Default)]
struct LogShared {
    /// The word that a call reads before anything else; 0 when nothing is recorded.
    switches: AtomicU32,
    state: Mutex<LogState>,
    counters: Counters,
}

#[derive(Default)]
struct LogState {
    config: CommsLoggerConfig,
    selection: Selection,
    /// The part of the selection that recorded calls have had. A reset of the records does not change it.
    met: Selection,
    rows: Rows,
}

impl LogState {
    /// The switches of the configuration.
    fn switches(&self) -> u32 {
        let CommsLoggerConfig { enabled, verbose, prof_all, debug, .. } = self.config;
        if !enabled {
            return 0;
        }
        let operations = if prof_all { Operation::all().map(bit).sum() } else { self.selection.operations };
        let flag = |is_set: bool, bit: u32| if is_set { bit } else { 0 };
        let names = flag(!prof_all && !self.selection.names.is_empty(), NAMES);
        operations | ENABLED | names | flag(verbose, VERBOSE) | flag(debug, DEBUG)
    }

    /// Whether a name of the call is selected. All such names count as met, not only the first one.
    fn meets(&mut self, call: &EnteredCall<'_>) -> bool {
        let is_selected = |name: &&str| self.selection.names.contains(*name);
        let call_names = call.names();
        let selected: Vec<&str> =
            call_names.iter().flatten().map(ShortText::as_str).filter(is_selected).collect();
        for name in &selected {
            if !self.met.names.contains(*name) {
                self.met.names.insert((*name).to_owned());
            }
        }
        !selected.is_empty()
    }

    /// The names of `prof_ops` that no recorded call has had, as the user wrote them.
    fn without_calls(&self) -> Vec<String> {
        let is_met = |name: &String| match operation_named(name) {
            Some(operation) => self.met.operations & bit(operation) != 0,
            None => self.met.names.contains(name),
        };
        let names = if self.config.prof_all { &[][..] } else { &self.config.prof_ops };
        names.iter().filter(|name| !is_met(name)).cloned().collect()
    }
}

/// Groups of the same ranks are equal, even with different logs.
impl PartialEq for CommsLogger {
    fn eq(&self, _: &CommsLogger) -> bool {
        true
    }
}

impl Eq for CommsLogger {}

impl fmt::Debug for CommsLogger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CommsLogger(on: {})", self.is_on())
    }
}

/// Switches and selection.
impl CommsLogger {
    /// Obeys `config` from now on. Earlier records stay. A name in `prof_ops` that is no operation's is a line in the
    /// log, because it may be the name of a call.
    ///
    /// DeepSpeed's `start_profiling_comms` and `stop_profiling_comms` set `prof_all`, and so does this:
    ///
    /// ```
    /// use unisono_communicator::{CommsLogger, CommsLoggerConfig};
    /// # let log = CommsLogger::default();
    /// log.configure(CommsLoggerConfig { prof_all: true, ..log.config() });
    /// ```
    #[doc(alias("start_profiling_comms", "stop_profiling_comms"))]
    pub fn configure(&self, config: CommsLoggerConfig) {
        let selection = Selection::of(&config.prof_ops);
        tell_names(&selection.names);
        self.change(|state| {
            (state.config, state.selection, state.met) = (config, selection, Selection::default());
        });
    }

    /// The configuration.
    pub fn config(&self) -> CommsLoggerConfig {
        self.lock().config.clone()
    }

    /// Sets `enabled`: the log records the calls that the configuration selects; without a configuration, all.
    pub fn start(&self) {
        self.change(|state| state.config.enabled = true);
    }

    /// Clears `enabled`: the log records no more calls. Earlier records and the selection stay.
    pub fn stop(&self) {
        self.change(|state| state.config.enabled = false);
    }

    /// Records calls of these operations, or of these names, too. The log is on afterwards.
    ///
    /// A log that was on records everything that it recorded before: with `prof_all` all operations. A log that was
    /// off loses `prof_all`, so it records these operations and names, and the earlier ones of `prof_ops`.
    #[doc(alias = "start_profiling_op")]
    pub fn start_operations(&self, names: &[&str]) {
        let more = Selection::of(names);
        tell_names(&more.names);
        self.change(|state| {
            state.config.prof_all &= state.config.enabled;
            state.config.enabled = true;
            state.selection.operations |= more.operations;
            state.selection.names.extend(more.names);
            state.config.prof_ops = state.selection.list();
        });
    }

    /// Takes these operations and names from the selection. A call of such a name is still recorded if its operation
    /// is selected.
    #[doc(alias = "stop_profiling_op")]
    pub fn stop_operations(&self, names: &[&str]) {
        let less = Selection::of(names);
        self.change(|state| {
            if std::mem::take(&mut state.config.prof_all) {
                state.selection.operations = Operation::all().map(bit).sum();
            }
            state.selection.operations &= !less.operations;
            state.selection.names.retain(|name| !less.names.contains(name));
            state.config.prof_ops = state.selection.list();
        });
    }

    /// Whether calls are recorded.
    pub fn is_on(&self) -> bool {
        self.shared.switches.load(Ordering::Relaxed) & ENABLED != 0
    }

    /// Counts calls by operation from now on, for a monitoring system.
    pub fn start_counting(&self) {
        self.shared.switches.fetch_or(COUNTING, Ordering::Relaxed);
    }

    /// The counts so far.
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    fn change(&self, change: impl FnOnce(&mut LogState)) {
        let mut state = self.lock();
        change(&mut state);
        let switches = state.switches();
        // Under the lock, so that the switches come from the last change.
        let keep = |old: u32| Some(old & COUNTING | switches);
        let _ = self.shared.switches.fetch_update(Ordering::Relaxed, Ordering::Relaxed, keep);
    }

    fn lock(&self) -> MutexGuard<'_, LogState> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Results.
impl CommsLogger {
    /// The records so far. No other rank is asked.
    #[doc(alias = "log_summary")]
    pub fn report(&self) -> CommsReport {
        let written_ms =
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
        let state = self.lock();
        CommsReport::of(&state.rows, state.without_calls(), written_ms)
    }

    /// Forgets the records. The configuration does not change.
    #[doc(alias = "reset_log")]
    pub fn reset(&self) {
        self.lock().rows.clear();
    }

    /// Whether anything was recorded.
    #[doc(alias = "has_comm_data")]
    pub fn has_calls(&self) -> bool {
        self.lock().rows.iter().next().is_some()
    }

    /// The number of recorded calls of this operation or name, without failed ones. 0 for a name that is unknown.
    #[doc(alias = "get_comm_operation_count")]
    pub fn count(&self, name: &str) -> u64 {
        let operation = operation_named(name);
        let is_it = |row: &report::CommsRow| row.name == name || Some(row.operation) == operation;
        // A part is no call of the program.
        self.report().rows.iter().filter(|row| row.parent.is_none() && is_it(row)).map(|row| row.count).sum()
    }

    /// The names of recorded calls.
    #[doc(alias = "get_logged_comm_ops")]
    pub fn names(&self) -> Vec<String> {
        let names: BTreeSet<String> = self.report().rows.into_iter().map(|row| row.name).collect();
        names.into_iter().collect()
    }
}

/// The side of backends.
impl CommsLogger {
    /// Whether no call need be given to [`CommsLogger::enter`].
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.shared.switches.load(Ordering::Relaxed) == 0
    }

    /// A call begins now. `None` if nothing of it is to be recorded.
    pub fn enter(&self, call: &EnteredCall<'_>) -> Option<RecordedCall> {
        let switches = self.shared.switches.load(Ordering::Relaxed);
        let is_timed = switches & ENABLED != 0 && self.is_selected(switches, call);
        if !is_timed && switches & COUNTING == 0 {
            return None;
        }
        let entered_ns = if is_timed { monotonic_ns(Instant::now()) } else { 0 };
        Some(call.recorded(entered_ns, switches & DEBUG != 0))
    }

    fn is_selected(&self, switches: u32, call: &EnteredCall<'_>) -> bool {
        let profile = call.options.profile;
        if profile == Profile::Never {
            return false;
        }
        let by_operation = switches & bit(call.descriptor.operation) != 0;
        // Also where the operation decides, because the report says which names no call has had.
        let by_name = switches & NAMES != 0 && self.lock().meets(call);
        profile == Profile::Always || by_operation || by_name
    }

    /// A recorded call ends now. Says whether a line about it is wanted; see [`CommsLogger::tell`].
    #[must_use]
    pub fn end(&self, call: &mut RecordedCall, ended: RecordedEnd) -> bool {
        let switches = self.shared.switches.load(Ordering::Relaxed);
        call.has_ended = true;
        if switches & COUNTING != 0 {
            self.shared.counters.add(call, ended);
        }
        if call.entered_ns == 0 {
            return false;
        }
        call.end(monotonic_ns(Instant::now()), ended);
        if switches & ENABLED == 0 {
            return false;
        }
        let mut state = self.lock();
        state.met.operations |= bit(call.key.operation);
        match ended {
            RecordedEnd::Done(_) => state.rows.add(&call.key, call.bytes, call.duration_ns()),
            RecordedEnd::Failed => state.rows.add_error(&call.key),
        }
        switches & VERBOSE != 0
    }

    /// Writes a line about a call that has ended on this rank of the job, which is the first rank of the communicator.
    /// `shown` is the call for the line. The caller holds no lock.
    #[cold]
    pub fn tell(call: &RecordedCall, job_rank: u32, shown: &fmt::Arguments<'_>) {
        let ended = if call.has_failed { "failed: " } else { "" };
        log(Severity::Requested, Some(job_rank), format_args!("{ended}{}", call.line(shown)));
    }
}

/// A line about names that select calls by the names of calls, since they may be misspelt operations.
fn tell_names(names: &BTreeSet<String>) {
    for name in names {
        let text = format_args!(
            "the communication log: no operation is called {name:?}, so only calls with this log name, label or parent \
             are recorded for it"
        );
        log(Severity::Warn, None, text);
    }
}
