//! Records calls for the communication log: their entry, their first byte, their end. The last calls of a communicator
//! are kept with their times.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use unisono_communicator::{
    Call, CallInfo, CallOptions, ClockOffset, CommsLogger, Counts, Descriptor, EnteredCall, Group, LinkTime,
    Observations, ParentCall, RecordedCall, RecordedEnd, Recording, Site, Sizes,
};

use super::last::{LastCalls, remembered};
use super::{Board, CallRing};
use crate::lock;

/// The way of a call from its entry to its end, as its backend has seen it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Course {
    /// When the first of its bytes came from another rank, by [`unisono_communicator::monotonic_ns`]; 0 if none came,
    /// or if the backend does not know.
    pub first_byte_ns: u64,
    /// Whether it had to wait for other ranks.
    pub has_waited: bool,
}

/// A send or receive that has not ended: its number, and its record if the log wants one.
#[derive(Clone, Copy, Debug)]
pub struct EnteredMessage {
    number: u64,
    recorded: Option<RecordedCall>,
}

impl EnteredMessage {
    /// The number of the message on this rank. Ranks number their messages apart.
    pub fn number(&self) -> u64 {
        self.number
    }
}

/// The recorded calls of one communicator.
pub(super) struct CallRecords {
    group: Group,
    collectives: LastCalls<RecordedCall>,
    messages: LastCalls<RecordedCall>,
    /// The work of the network until this time, which the last observations have told.
    told: Mutex<(Instant, Vec<LinkTime>)>,
}

impl CallRecords {
    /// A line about a call, on the first rank.
    fn tell(&self, call: &RecordedCall, shown: &fmt::Arguments<'_>) {
        if self.group.rank() == 0 {
            CommsLogger::tell(call, self.group.own_job_rank().get(), shown);
        }
    }
}

/// Ends a recorded call by `end`, unless it has ended. Gives the call if `end` says that it is wanted.
fn end_once(call: &mut RecordedCall, end: impl FnOnce(&mut RecordedCall) -> bool) -> Option<RecordedCall> {
    (!call.has_ended && end(call)).then_some(*call)
}

/// A call for a line in the log, looked up only if the line is written.
struct Shown<'a> {
    calls: &'a CallRing,
    number: u64,
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.calls.info(self.number) {
            Some(CallInfo { descriptor, site: Some(site), .. }) => write!(f, "{descriptor} at {site}"),
            Some(info) => info.fmt(f),
            None => write!(f, "call {}", self.number),
        }
    }
}

impl Board {
    /// Calls of this board belong to `group`, whose log records them.
    pub(crate) fn record_for(&self, group: &Group) {
        let records = CallRecords {
            group: group.clone(),
            collectives: LastCalls::default(),
            messages: LastCalls::default(),
            told: Mutex::new((Instant::now(), Vec::new())),
        };
        // A second gate on the same board is of the same group.
        let _ = self.records.set(records);
    }

    /// The log, unless no call is to be recorded.
    #[inline]
    fn recorder(&self) -> Option<(&CallRecords, &CommsLogger)> {
        let records = self.records.get()?;
        let log = records.group.comms_logger();
        if log.is_idle() { None } else { Some((records, log)) }
    }

    /// Whether a log records the calls from now on.
    #[inline]
    pub fn is_recording(&self) -> bool {
        self.recorder().is_some()
    }

    /// Enters a collective as [`super::CallRing::enter`], and records it. Gives its number, and whether its end is to
    /// be recorded.
    #[inline]
    pub fn enter(
        &self,
        call: &Call<'_>,
        algorithm: Option<(&'static str, u32)>,
        sizes: Option<&Arc<Sizes>>,
        parent: Option<&Arc<ParentCall>>,
    ) -> (u64, bool) {
        let number = self.calls.enter(&call.descriptor, algorithm, sizes, call.site, parent);
        (number, self.recorder().is_some() && self.record_entry(number, call, parent))
    }

    /// Records the entry of a collective if the log wants it, and says whether it does.
    #[cold]
    fn record_entry(&self, number: u64, call: &Call<'_>, parent: Option<&Arc<ParentCall>>) -> bool {
        let Some((records, log)) = self.recorder() else { return false };
        let parent = parent.map(|parent| &**parent);
        let entered = EnteredCall { parent, ..EnteredCall::of(call, records.group.size()) };
        let recorded = log.enter(&entered);
        recorded.map(|recorded| records.collectives.set(number, recorded)).is_some()
    }

    /// Notes that a collective has returned and has moved its data, in this way if its end is to be recorded.
    #[inline]
    pub fn leave(&self, number: u64, recorded: Option<Course>) {
        self.progress.leave(number);
        if let Some(course) = recorded {
            self.record_end((number, None), course, RecordedEnd::Done(None));
        }
    }

    /// Records that an enqueued collective, and every earlier one, has moved its data. The caller records each
    /// collective once; `kept` is the caller's copy of its record, since the ring may have forgotten it.
    pub fn finish(&self, number: u64, kept: Option<RecordedCall>) {
        self.on_streams.finish(number);
        self.progress.finish(number);
        self.record_end((number, kept), Course::default(), RecordedEnd::Done(None));
    }

    /// Records that an enqueued collective has failed that [`Board::fail_running`] did not find any more.
    pub fn fail_forgotten(&self, number: u64, kept: Option<RecordedCall>) {
        self.record_end((number, kept), Course::default(), RecordedEnd::Failed);
    }

    /// Records that the collectives in progress have failed.
    pub fn fail_running(&self) {
        if self.recorder().is_none() {
            return;
        }
        let remembered = remembered(self.calls.entered());
        for number in self.progress.finished().max(remembered.start)..remembered.end {
            self.record_end((number, None), Course::default(), RecordedEnd::Failed);
        }
    }

    #[cold]
    fn record_end(&self, (number, kept): (u64, Option<RecordedCall>), course: Course, ended: RecordedEnd) {
        let Some((records, log)) = self.recorder() else { return };
        let end = |call: &mut RecordedCall| {
            call.has_waited = course.has_waited;
            call.first_byte_ns = if course.has_waited { course.first_byte_ns } else { call.entered_ns };
            log.end(call, ended)
        };
        let told = match records.collectives.with(number, |call| end_once(call, end)) {
            Some(told) => told,
            None => kept.and_then(|mut call| end_once(&mut call, end)),
        };
        if let Some(call) = told {
            let shown = Shown { calls: &self.calls, number };
            records.tell(&call, &format_args!("{shown}"));
        }
    }

    /// Enters a send or receive as [`super::Messages::enter`], and records it. The caller keeps the record until the
    /// end: any number of messages may be in flight, and the ring has the last ones only.
    pub fn enter_message(
        &self,
        descriptor: &Descriptor,
        options: &CallOptions,
        site: Site,
    ) -> EnteredMessage {
        let number = self.messages.enter(descriptor, site);
        let record = || {
            let (records, log) = self.recorder()?;
            let (counts, ranks) = (&Counts::Even, records.group.size());
            let entered =
                EnteredCall { descriptor, counts, options, site, ranks, parent: None, own_name: None };
            let recorded = log.enter(&entered)?;
            records.messages.set(number, recorded);
            Some(recorded)
        };
        EnteredMessage { number, recorded: record() }
    }

    /// Records the end of a send or receive, once.
    pub fn leave_message(
        &self,
        entered: EnteredMessage,
        (descriptor, site): (&Descriptor, Site),
        ended: RecordedEnd,
    ) {
        let EnteredMessage { number, recorded } = entered;
        match ended {
            RecordedEnd::Done(_) => self.messages.leave(number),
            RecordedEnd::Failed => {}
        }
        if let Some(mut call) = recorded
            && let Some((records, log)) = self.recorder()
        {
            let is_told = log.end(&mut call, ended);
            records.messages.with(number, |kept| *kept = call);
            if is_told {
                records.tell(&call, &format_args!("{descriptor}{}", site.at()));
            }
        }
    }

    /// Records a parent call from now on.
    pub(crate) fn record_parent(&self, parent: &ParentCall, options: &CallOptions) -> Option<Recording> {
        let (records, _) = self.recorder()?;
        let entered = EnteredCall::parent(parent, options, records.group.size());
        Recording::begin(&entered, &records.group)
    }

    /// The recorded collectives that ended well and that the ring still has, by number.
    fn recorded_calls(&self) -> Vec<(u64, RecordedCall)> {
        let Some(records) = self.records.get() else { return Vec::new() };
        let record = |number| Some((number, records.collectives.with(number, |call| *call)?));
        let recorded = remembered(self.calls.entered()).filter_map(record);
        recorded.filter(|(_, call)| call.ended_ns > 0 && !call.has_failed).collect()
    }

    /// The records of the last collectives. `links` is the work of the network so far, since the start of the
    /// job; the observations have only the work since the observations before.
    pub(crate) fn observations(&self, clocks: Vec<ClockOffset>, links: Vec<LinkTime>) -> Observations {
        let Some(records) = self.records.get() else { return Observations::default() };
        let now = Instant::now();
        let (since, told) = std::mem::replace(&mut *lock(&records.told), (now, links.clone()));
        let is_new = |link: &LinkTime| {
            let before = told.iter().find(|before| before.rank == link.rank);
            link.since(before)
        };
        let links_ns = now.duration_since(since).as_nanos() as u64;
        let links = links.iter().map(is_new).collect();
        Observations { calls: self.recorded_calls(), clocks, links, links_ns }
    }

    /// The times of a collective that the ring still has, if they were recorded.
    pub fn recorded(&self, number: u64) -> Option<RecordedCall> {
        self.records.get()?.collectives.with(number, |call| *call)
    }

    /// The times of a send or receive that the ring still has, if they were recorded.
    pub fn recorded_message(&self, number: u64) -> Option<RecordedCall> {
        self.records.get()?.messages.with(number, |call| *call)
    }
}
