//! One call that is being recorded, from its entry to its end.

use std::fmt;

use crate::call::Call;
use crate::call::counts::Counts;
use crate::call::descriptor::Descriptor;
use crate::call::log_name::LogName;
use crate::call::operation::Operation;
use crate::call::options::CallOptions;
use crate::call::outcome::Outcome;
use crate::call::parent::ParentCall;
use crate::call::site::Site;
use crate::comms_log::figures::{Bandwidth, size_bytes};
use crate::comms_log::report::size_text;
use crate::comms_log::rows::{Key, size_class};
use crate::error::Result;
use crate::short_text::ShortText;

/// A call at its entry, as the log looks at it.
pub struct EnteredCall<'a> {
    /// The call.
    pub descriptor: &'a Descriptor,
    /// Its uneven counts.
    pub counts: &'a Counts,
    /// Its options.
    pub options: &'a CallOptions,
    /// The line that calls.
    pub site: Site,
    /// The number of ranks of its communicator.
    pub ranks: u32,
    /// The parent call, for a part of one.
    pub parent: Option<&'a ParentCall>,
    /// The name, if the call is a parent itself.
    pub own_name: Option<ShortText>,
}

impl<'a> EnteredCall<'a> {
    /// A call that is no part of another one.
    pub fn of(call: &'a Call<'_>, ranks: u32) -> EnteredCall<'a> {
        let Call { descriptor, counts, options, site, .. } = call;
        EnteredCall { descriptor, counts, options, site: *site, ranks, parent: None, own_name: None }
    }

    /// A parent call.
    pub fn parent(parent: &'a ParentCall, options: &'a CallOptions, ranks: u32) -> EnteredCall<'a> {
        EnteredCall {
            descriptor: &parent.descriptor,
            counts: &Counts::Even,
            options,
            site: parent.site.unwrap_or(Site::caller()),
            ranks,
            parent: None,
            own_name: Some(parent.name),
        }
    }

    /// Every name by which it may be selected.
    pub(super) fn names(&self) -> [Option<ShortText>; 4] {
        [self.own_name, self.log_name(), self.descriptor.label, self.parent.map(|parent| parent.name)]
    }

    fn log_name(&self) -> Option<ShortText> {
        self.options.log_name.map(LogName::text)
    }

    pub(super) fn recorded(&self, entered_ns: u64, tells_lines_apart: bool) -> RecordedCall {
        let Descriptor { operation, uneven, label, .. } = *self.descriptor;
        let bytes = size_bytes(self.descriptor, self.counts, self.ranks);
        let key = Key {
            size_class: size_class(bytes),
            operation,
            uneven,
            ranks: self.ranks,
            parent: self.parent.map(|parent| parent.name),
            name: self.log_name().or(self.own_name).or(label),
            site: Some(self.site).filter(|site| tells_lines_apart && *site != Site::UNKNOWN),
            is_rest: false,
        };
        RecordedCall {
            key,
            bytes,
            entered_ns,
            first_byte_ns: 0,
            ended_ns: 0,
            has_ended: false,
            has_waited: false,
            has_failed: false,
        }
    }
}

/// A recorded call. Times come from [`crate::monotonic_ns`], and are 0 while they are not known.
#[derive(Clone, Copy, Debug)]
pub struct RecordedCall {
    pub(super) key: Key,
    /// Its size S.
    pub bytes: u64,
    /// When its turn began. 0 if it is counted only.
    pub entered_ns: u64,
    /// When the first of its bytes came from another rank; its entry if it never had to wait.
    pub first_byte_ns: u64,
    /// When it ended.
    pub ended_ns: u64,
    /// Whether it has ended.
    pub has_ended: bool,
    /// Whether it had to wait for other ranks.
    pub has_waited: bool,
    /// Whether it ended with an error.
    pub has_failed: bool,
}

/// The end of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordedEnd {
    /// It has moved its bytes: so many, where the arguments do not tell, as for a receive.
    Done(Option<u64>),
    /// With an error.
    Failed,
}

impl RecordedCall {
    /// The operation. Of a parent call the operation that it stands for.
    pub fn operation(&self) -> Operation {
        self.key.operation
    }

    /// The duration of the call; 1 ns at least.
    pub fn duration_ns(&self) -> u64 {
        self.ended_ns.saturating_sub(self.entered_ns).max(1)
    }

    /// A line about it for the log: `shown`, its time, its size, its bandwidth.
    pub(super) fn line(&self, shown: &fmt::Arguments<'_>) -> String {
        let seconds = self.duration_ns() as f64 / 1e9;
        let bandwidth = Bandwidth::of(self.key.operation, self.key.ranks, self.bytes as f64, seconds);
        let Bandwidth { algbw_gb_per_s, busbw_gb_per_s } = bandwidth;
        let named = self.key.name.map(|name| format!("{name}: ")).unwrap_or_default();
        let part = self.key.parent.map(|parent| format!(" of {parent}")).unwrap_or_default();
        let (time_ms, size) = (seconds * 1e3, size_text(self.bytes));
        format!(
            "{named}{shown}{part}: {time_ms:.3} ms, {size}, algbw {algbw_gb_per_s:.3} GB/s, busbw {busbw_gb_per_s:.3} \
             GB/s"
        )
    }

    pub(super) fn end(&mut self, now_ns: u64, ended: RecordedEnd) {
        // Two threads may read the clock in another order than they enter and end a call.
        self.ended_ns = now_ns.max(self.entered_ns);
        match ended {
            RecordedEnd::Done(None) => {}
            RecordedEnd::Done(Some(received)) => {
                self.bytes = received;
                self.key.size_class = size_class(received);
            }
            RecordedEnd::Failed => self.has_failed = true,
        }
    }
}

impl From<&Result<Outcome>> for RecordedEnd {
    fn from(result: &Result<Outcome>) -> RecordedEnd {
        match result {
            Ok(outcome) => RecordedEnd::Done(outcome.source.map(|_| outcome.bytes)),
            Err(_) => RecordedEnd::Failed,
        }
    }
}
