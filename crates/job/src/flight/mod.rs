//! The flight record: a rank's memory of its last calls, as a document that survives the process.
//!
//! The names come from version 2.10 of PyTorch's flight recorder, and have the same meanings, with these differences:
//!
//! * `collective_seq_id`, `op_id` and `record_id` are the number of the call on its communicator, from 0, as in our
//!   errors. There the first starts at 1, and the last counts the calls of all communicators. Of a send or receive
//!   they, and `p2p_seq_id`, are its number among the messages of this rank.
//! * `state` is "started" or "completed". A call of an asynchronous handle is recorded when it starts, not before.
//! * Times are null unless the communication log is on ([`unisono_communicator::CommsLogger`]): otherwise a call reads
//!   no clock until it has to wait. `timeout_ms` and the `name` of a frame are null. `frames` holds the one line that
//!   called.
//! * Element types have our names. Of an uneven call only the side that this rank's count stands for has sizes.
//!
//! Ours alone are `job`, `rank`, `host`, `pid`, `written_ms`, `pg_id` beside a group's name, `awaited_rank`,
//! `awaited_since_ms`, `unread`, `revoked_by` and `first_cause` in its status, and of each call `call`, as our errors
//! print it, and `compared`, which is equal exactly when the calls of two ranks belong together.
//!
//! `unisono doctor --flight` reads the records of all ranks. PyTorch's `torchfrtrace` (tried: 2.15) does too, once each
//! is a pickle: `pickle.dump(json.load(open("rank-0.json")), open("trace_0", "wb"))`.

mod recorder;

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize};
use unisono_backend::{Board, CALLS_REMEMBERED, CallStatus, unread_text};
use unisono_communicator::{
    CallInfo, Collective, Counts, Descriptor, Error, Group, JobRank, Operation, ParentCall, Peer, Place,
    Process, RecordedCall, ReduceOp, Result, SiteText, lengths, monotonic_ns,
};
use unisono_control::wire::CommunicatorKey;

use crate::rendezvous::own_process;
use crate::size_limit::write_limited;
pub(crate) use recorder::Recorder;

/// The version of PyTorch's format that the names are taken from.
pub const VERSION: &str = "2.10";

/// The library that writes such records, without its version.
pub const LIBRARY: &str = "unisono";

/// Why there are no files of records.
#[cfg(not(feature = "serde"))]
pub(crate) const NO_WRITER: &str = "this program was built without the feature `serde`";

/// All that one rank of a job remembers.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
pub struct FlightRecord {
    /// [`VERSION`].
    pub version: String,
    /// [`LIBRARY`] and its version.
    pub comm_lib_version: String,
    /// The run and the job: records of two runs do not belong together.
    pub job: String,
    /// The rank in the job.
    pub rank: u32,
    /// The name of its host.
    pub host: String,
    /// Its process.
    pub pid: u32,
    /// When this was taken, in milliseconds of Unix time.
    pub written_ms: u64,
    /// Its communicators, by name. Of the dropped ones, only the last that were revoked are there.
    pub pg_config: BTreeMap<String, GroupConfig>,
    /// The progress of each of them, by `pg_id`.
    pub pg_status: BTreeMap<u32, GroupStatus>,
    /// The last collectives of each, at most [`CALLS_REMEMBERED`], oldest first, then as many sends and receives.
    pub entries: Vec<Entry>,
}

/// The members of a communicator.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
pub struct GroupConfig {
    /// The same on every rank, and of no other communicator of the job.
    pub name: String,
    /// For a person.
    pub desc: String,
    /// The ranks in the job, in group order.
    #[cfg_attr(feature = "serde", serde(with = "list_text"))]
    pub ranks: Vec<u32>,
    /// This rank's number for it in `pg_status` and in entries.
    pub pg_id: u32,
}

/// The progress of a rank in a communicator; -1 stands for no call.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
pub struct GroupStatus {
    /// The last call that it entered.
    pub last_enqueued_collective: i64,
    /// The same: a call that is entered has started.
    pub last_started_collective: i64,
    /// The last call that ended well.
    pub last_completed_collective: i64,
    /// The rank of the job that the running call or message waits for, if it waits.
    pub awaited_rank: Option<u32>,
    /// Since when it waits for that rank, in milliseconds of Unix time.
    pub awaited_since_ms: Option<u64>,
    /// The messages that have arrived and have no receive, if there are any.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub unread: Option<String>,
    /// The ranks of the job that have closed or left it, if any has.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Vec::is_empty"))]
    pub left_ranks: Vec<u32>,
    /// The rank of the job that saw the first cause, once the communicator is revoked.
    pub revoked_by: Option<u32>,
    /// That cause; on a rank without which the others go on, that they do.
    pub first_cause: Option<String>,
}

/// One call.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
pub struct Entry {
    /// As `collective_seq_id`: by this PyTorch's analyser lays the records of ranks side by side.
    pub record_id: u64,
    /// Its communicator.
    pub pg_id: u32,
    /// Name and description of its communicator.
    pub process_group: (String, String),
    /// The number of the collective in its communicator, counted from 0; for a message the same as `p2p_seq_id`.
    pub collective_seq_id: u64,
    /// The number of the send or receive of this rank in its communicator, counted from 0; for a collective 0.
    pub p2p_seq_id: u64,
    /// As `collective_seq_id`.
    pub op_id: u64,
    /// [`LIBRARY`], a colon and the operation; of a message also from where to where, as group ranks.
    pub profiling_name: String,
    /// When it began, in nanoseconds of Unix time; null unless the communication log was on.
    pub time_created_ns: Option<u64>,
    /// Elements of this rank's input.
    pub input_sizes: Vec<Vec<u64>>,
    /// Their type.
    pub input_dtypes: Vec<String>,
    /// Elements of this rank's output.
    pub output_sizes: Vec<Vec<u64>>,
    /// Their type.
    pub output_dtypes: Vec<String>,
    /// The state of the call.
    pub state: CallState,
    /// When the first of its bytes came from another rank, or as [`Entry::time_created_ns`] if it never waited; null
    /// until it has ended, and for sends and receives.
    pub time_discovered_started_ns: Option<u64>,
    /// When it ended, also with an error.
    pub time_discovered_completed_ns: Option<u64>,
    /// Whether it has ended well.
    pub retired: bool,
    /// Null.
    pub timeout_ms: Option<u64>,
    /// Whether it is a send or a receive.
    pub is_p2p: bool,
    /// The line that called.
    pub frames: Vec<Frame>,
    /// The call as errors print it.
    pub call: String,
    /// The parts of the call that must be equal on all ranks.
    pub compared: String,
}

/// The state of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
pub enum CallState {
    /// Waits for its turn. Nothing writes this yet.
    Scheduled,
    /// The rank is inside, or has left with an error.
    Started,
    /// Ended well.
    Completed,
}

/// A line of the program.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
pub struct Frame {
    /// Null: the function is not known.
    pub name: Option<String>,
    /// The file.
    pub filename: String,
    /// The line, from 1.
    pub line: u32,
}

impl FlightRecord {
    /// A record of no communicator yet.
    fn new(job: String, rank: u32) -> FlightRecord {
        let Process { host, pid } = own_process().process;
        FlightRecord {
            version: VERSION.to_owned(),
            comm_lib_version: format!("{LIBRARY} {}", env!("CARGO_PKG_VERSION")),
            job,
            rank,
            host: host.to_string(),
            pid,
            written_ms: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_millis() as u64),
            pg_config: BTreeMap::new(),
            pg_status: BTreeMap::new(),
            entries: Vec::new(),
        }
    }

    /// Adds the entries that the board of a communicator shows.
    fn add(&mut self, pg_id: u32, (key, group): (CommunicatorKey, &Group), board: &Board, clock: UnixClock) {
        let (name, desc) = group_names(key, group);
        let entered = board.calls().entered();
        for number in entered.saturating_sub(CALLS_REMEMBERED as u64)..entered {
            let (call, state) = match board.status(number) {
                CallStatus::Done { call, .. } => (call, CallState::Completed),
                CallStatus::Running { call, .. } => (call, CallState::Started),
                // Overwritten meanwhile by a call that came later.
                CallStatus::Forgotten | CallStatus::NotYet { .. } => continue,
            };
            let times = board.recorded(number).map(|times| (times, clock));
            self.entries.push(entry((pg_id, (name.clone(), desc.clone())), group, (&call, state), times));
        }
        for (call, is_done) in board.messages().recent() {
            let state = if is_done { CallState::Completed } else { CallState::Started };
            let times = board.recorded_message(call.number).map(|times| (times, clock));
            self.entries.push(entry((pg_id, (name.clone(), desc.clone())), group, (&call, state), times));
        }
        let position = |number: Option<u64>| number.map_or(-1, |number| number as i64);
        let (revoked_by, first_cause) =
            match (board.first_cause().eviction(), board.first_cause().revocation()) {
                (Some(eviction), _) => (Some(self.rank), Some(eviction.to_string())),
                (None, Some(revocation)) => (Some(revocation.by.get()), Some(revocation.cause.to_string())),
                (None, None) => (None, None),
            };
        let doing = board.doing();
        let awaited = board.progress().awaited().map(|peer| group.job_rank(peer)).or(doing.awaited);
        let left = group.ranks().filter(|peer| board.closings().has_closed(*peer));
        let status = GroupStatus {
            last_enqueued_collective: position(entered.checked_sub(1)),
            last_started_collective: position(entered.checked_sub(1)),
            last_completed_collective: position(board.progress().finished().checked_sub(1)),
            awaited_rank: awaited.map(JobRank::get),
            awaited_since_ms: board.progress().awaited_since_ms(),
            unread: Some(unread_text(&doing.unread, group)).filter(|unread| !unread.is_empty()),
            left_ranks: left.map(|peer| group.job_rank(peer).get()).collect(),
            revoked_by,
            first_cause,
        };
        let ranks = group.job_ranks().iter().map(|rank| rank.get()).collect();
        self.pg_config.insert(name.clone(), GroupConfig { name, desc, ranks, pg_id });
        self.pg_status.insert(pg_id, status);
    }

    /// The name of the file of a rank of the job.
    pub fn file_name(rank: u32) -> String {
        format!("rank-{rank}.json")
    }

    /// Writes the record to its file in `directory`, which is made if need be, and gives the path. A reader sees the
    /// old content or all of the new. Symbolic links are not followed.
    ///
    /// # Errors
    /// [`Error::System`] when that cannot be written, or a symbolic link is in its place; a build without the feature
    /// `serde` cannot write any.
    pub fn write(&self, directory: &Path) -> Result<PathBuf> {
        static WRITTEN: AtomicU64 = AtomicU64::new(0);
        let path = directory.join(FlightRecord::file_name(self.rank));
        let (process, count) = (std::process::id(), WRITTEN.fetch_add(1, Ordering::Relaxed));
        let partial = path.with_extension(format!("{process}-{count}.partial"));
        let done = write_limited(|| {
            fs::create_dir_all(directory)?;
            if fs::symlink_metadata(&path).is_ok_and(|there| there.is_symlink()) {
                return Err(io::Error::other("it is a symbolic link"));
            }
            // An earlier process of this number may have left one. A file that cannot be removed is not opened either.
            let _ = fs::remove_file(&partial);
            // Follows no link: the file is new.
            OpenOptions::new().write(true).create_new(true).open(&partial)?.write_all(&self.json()?)?;
            fs::rename(&partial, &path)
        });
        if done.is_err() {
            // The first problem is reported; the file may not even be there.
            let _ = fs::remove_file(&partial);
        }
        done.map_err(|error| Error::system(format!("write the flight record {}", path.display()), &error))?;
        Ok(path)
    }

    #[cfg(feature = "serde")]
    fn json(&self) -> io::Result<Vec<u8>> {
        Ok(serde_json::to_vec(self)?)
    }

    #[cfg(not(feature = "serde"))]
    fn json(&self) -> io::Result<Vec<u8>> {
        Err(io::Error::new(io::ErrorKind::Unsupported, NO_WRITER))
    }
}

/// The name and the description of a communicator.
fn group_names(key: CommunicatorKey, group: &Group) -> (String, String) {
    (key.to_string(), format!("{} ranks, epoch {}", group.size(), group.epoch()))
}

fn entry(
    (pg_id, process_group): (u32, (String, String)),
    group: &Group,
    (call, state): (&CallInfo, CallState),
    times: Option<(RecordedCall, UnixClock)>,
) -> Entry {
    let time = |of: fn(&RecordedCall) -> u64| times.and_then(|(call, clock)| clock.unix_ns(of(&call)));
    let descriptor = &call.descriptor;
    let is_p2p = descriptor.operation.collective().is_none();
    let (input, output) = sizes(descriptor, group);
    let dtypes = |sizes: &Vec<Vec<u64>>| vec![descriptor.dtype.to_string(); sizes.len()];
    Entry {
        record_id: call.number,
        pg_id,
        process_group,
        collective_seq_id: call.number,
        p2p_seq_id: if is_p2p { call.number } else { 0 },
        op_id: call.number,
        profiling_name: format!("{LIBRARY}:{}", operation_text(descriptor, group)),
        time_created_ns: time(|call| call.entered_ns),
        input_dtypes: dtypes(&input),
        input_sizes: input,
        output_dtypes: dtypes(&output),
        output_sizes: output,
        state,
        time_discovered_started_ns: time(|call| call.first_byte_ns),
        time_discovered_completed_ns: time(|call| call.ended_ns),
        retired: state == CallState::Completed,
        timeout_ms: None,
        is_p2p,
        frames: call.site.iter().map(frame).collect(),
        call: format!("{descriptor}{}", part_text(call, Descriptor::to_string)),
        compared: format!("{}{}", compared(descriptor), part_text(call, compared)),
    }
}

/// Turns times of [`monotonic_ns`] into Unix time. All times of a record are turned alike, so that their order and
/// their differences stay.
#[derive(Clone, Copy)]
struct UnixClock {
    /// Unix time minus the time of [`monotonic_ns`].
    ahead_ns: u64,
}

impl UnixClock {
    fn now() -> UnixClock {
        let monotonic = monotonic_ns(Instant::now());
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
        UnixClock { ahead_ns: unix.saturating_sub(monotonic) }
    }

    /// `None` for 0, which stands for no time.
    fn unix_ns(self, monotonic: u64) -> Option<u64> {
        (monotonic > 0).then(|| monotonic.saturating_add(self.ahead_ns))
    }
}

/// The operation in PyTorch's words: "all_gather_v", "send 0->1", "recv 1<-?".
fn operation_text(descriptor: &Descriptor, group: &Group) -> String {
    let (own, name) = (group.rank(), descriptor.operation);
    let arrow = match name {
        Operation::Send => "->",
        Operation::Recv => "<-",
        Operation::Collective(_) => {
            return format!("{name}{}", if descriptor.uneven { "_v" } else { "" });
        }
    };
    match descriptor.peer {
        Some(Peer::Rank(peer)) => format!("{name} {own}{arrow}{peer}"),
        Some(Peer::Any | Peer::None) | None => format!("{name} {own}{arrow}?"),
    }
}

fn frame(site: &SiteText) -> Frame {
    Frame { name: None, filename: site.file.clone().into_owned(), line: site.line }
}

/// The elements of this rank's buffers, as far as the descriptor tells: one list for each buffer that there is.
fn sizes(descriptor: &Descriptor, group: &Group) -> (Vec<Vec<u64>>, Vec<Vec<u64>>) {
    let at_root = descriptor.root == Some(group.rank());
    let even = !descriptor.uneven;
    let (has_input, has_output) = match descriptor.operation {
        Operation::Collective(collective) => match collective {
            Collective::AllReduce | Collective::Broadcast | Collective::Scan => (true, true),
            Collective::Exscan => (true, group.rank() > 0),
            Collective::AllGather | Collective::AllToAll => (true, even),
            Collective::ReduceScatter => (even, true),
            Collective::Reduce => (true, at_root),
            Collective::Gather => (true, at_root && even),
            Collective::Scatter => (at_root && even, true),
            Collective::Barrier => (false, false),
        },
        Operation::Send => (true, false),
        Operation::Recv => (false, true),
    };
    let (input, output) = if even {
        let lengths = lengths(descriptor, &Counts::Even, group);
        (lengths.input, lengths.output)
    } else {
        (descriptor.count, descriptor.count)
    };
    let list = |is_there: bool, length| if is_there { vec![vec![length]] } else { Vec::new() };
    (list(has_input, input), list(has_output, output))
}

/// The parent of a call in a scope, with the parent's descriptor as `text` shows it.
fn part_text(call: &CallInfo, text: fn(&Descriptor) -> String) -> String {
    let text = |parent: &ParentCall| format!(" of {} {}", parent.name, text(&parent.descriptor));
    call.parent.as_deref().map(text).unwrap_or_default()
}

/// The call without the parts that may differ between its ranks; the headers of calls leave out the same.
fn compared(descriptor: &Descriptor) -> String {
    let mut equal = *descriptor;
    if equal.operation.collective().is_some_and(Collective::place_may_differ) {
        equal.place = Place::Separate;
    }
    if equal.uneven {
        equal.count = 0;
    }
    if let Some(ReduceOp::PreMulSum(_)) = equal.op {
        equal.op = Some(ReduceOp::PreMulSum(1.0));
    }
    equal.to_string()
}

/// A list of numbers as the text `[0, 1]`.
#[cfg(feature = "serde")]
mod list_text {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(list: &[u32], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{list:?}"))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u32>, D::Error> {
        serde_json::from_str(&String::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

#[cfg(feature = "serde")]
#[cfg(test)]
mod tests;
