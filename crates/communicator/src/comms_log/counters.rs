//! Counts of calls by operation, for a monitoring system.

use std::sync::atomic::{AtomicU64, Ordering};

use unisono_schedule::Collective;

use crate::call::operation::Operation;
use crate::comms_log::recorded::{RecordedCall, RecordedEnd};

/// One more than the greatest code of an operation: codes are 1 to the number of operations, which a test of
/// [`Operation`] holds.
const CODES: usize = Collective::ALL.len() + 2 + 1;

/// Counts of one operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Calls that ended well.
    pub calls: u64,
    /// Their bytes: the sum of their sizes S.
    pub bytes: u64,
    /// Calls that ended with an error.
    pub errors: u64,
    /// Calls that had to wait for other ranks.
    pub waits: u64,
}

#[derive(Default)]
struct Counter {
    calls: AtomicU64,
    bytes: AtomicU64,
    errors: AtomicU64,
    waits: AtomicU64,
}

/// The counts of one rank in all communicators of its job. Each costs one relaxed addition.
#[derive(Default)]
pub struct Counters {
    of: [Counter; CODES],
}

impl Counters {
    pub(super) fn add(&self, call: &RecordedCall, ended: RecordedEnd) {
        let counter = &self.of[usize::from(call.key.operation.code())];
        let more = |counter: &AtomicU64, by: u64| {
            counter.fetch_add(by, Ordering::Relaxed);
        };
        match ended {
            RecordedEnd::Done(received) => {
                more(&counter.calls, 1);
                more(&counter.bytes, received.unwrap_or(call.bytes));
            }
            RecordedEnd::Failed => more(&counter.errors, 1),
        }
        if call.has_waited {
            more(&counter.waits, 1);
        }
    }

    /// The counts of one operation.
    pub fn of(&self, operation: Operation) -> Counted {
        let Counter { calls, bytes, errors, waits } = &self.of[usize::from(operation.code())];
        let [calls, bytes, errors, waits] =
            [calls, bytes, errors, waits].map(|one| one.load(Ordering::Relaxed));
        Counted { calls, bytes, errors, waits }
    }

    /// All counts in the text format of Prometheus, version 0.0.4. `labels` are further labels of every line, such as
    /// `rank="3"`, with commas between.
    pub fn prometheus(&self, labels: &str) -> String {
        type Field = fn(&Counted) -> u64;
        let metrics: [(&str, &str, Field); 4] = [
            ("unisono_calls_total", "Calls that ended well.", |counted| counted.calls),
            ("unisono_bytes_total", "Bytes of these calls: the sum of their sizes.", |counted| counted.bytes),
            ("unisono_errors_total", "Calls that ended with an error.", |counted| counted.errors),
            ("unisono_waits_total", "Calls that had to wait for other ranks.", |counted| counted.waits),
        ];
        let metric = |(name, help, field): (&str, &str, Field)| {
            let line = |operation: Operation| {
                let value = field(&self.of(operation));
                format!("{name}{{{labels},operation=\"{operation}\"}} {value}\n")
            };
            let lines: String = Operation::all().map(line).collect();
            format!("# HELP {name} {help}\n# TYPE {name} counter\n{lines}")
        };
        metrics.map(metric).concat()
    }
}
