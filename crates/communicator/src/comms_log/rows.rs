//! The rows of the communication log: one for each kind of call, of bounded number and size.

use std::collections::BTreeMap;

use crate::call::operation::Operation;
use crate::call::site::Site;
use crate::comms_log::histogram::Histogram;
use crate::short_text::ShortText;

/// The most rows. Calls of further kinds share one row for each operation, so the log of a job that runs for weeks
/// has at most [`ROWS_MAX`] and 11 rows of 700 bytes.
const ROWS_MAX: usize = 1024;

/// Sizes from a power of two up to the next one share a row.
pub(super) fn size_class(bytes: u64) -> u8 {
    (u64::BITS - bytes.leading_zeros()) as u8
}

/// The common properties of the calls of a row. Quickly compared fields come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) size_class: u8,
    pub(super) operation: Operation,
    pub(super) uneven: bool,
    pub(super) ranks: u32,
    /// The parent call, for a part of one.
    pub(super) parent: Option<ShortText>,
    /// The name that the caller or the group gives; of a parent call its own.
    pub(super) name: Option<ShortText>,
    /// The line that calls, where the log tells lines apart.
    pub(super) site: Option<Site>,
    /// Whether it is the row of calls for which there was no row left.
    pub(super) is_rest: bool,
}

impl Key {
    /// The name in reports: the caller's, else the operation; with the line, where the log tells lines apart.
    pub(super) fn shown(&self) -> String {
        let Key { operation, uneven, name, site, is_rest, .. } = *self;
        let form = if uneven { "_v" } else { "" };
        let name = name.map_or_else(|| format!("{operation}{form}"), |name| name.to_string());
        let site = site.map(|site| format!(" | [{site}]")).unwrap_or_default();
        let rest = if is_rest { " (further kinds)" } else { "" };
        format!("{name}{site}{rest}")
    }

    fn rest(operation: Operation) -> Key {
        let (parent, name, site) = (None, None, None);
        Key { size_class: 0, operation, uneven: false, ranks: 0, parent, name, site, is_rest: true }
    }
}

/// The calls of one kind.
#[derive(Clone, Debug, Default)]
pub(super) struct Row {
    pub(super) times: Histogram,
    pub(super) errors: u64,
    pub(super) bytes_min: u64,
    pub(super) bytes_max: u64,
    pub(super) bytes_sum: u64,
}

impl Row {
    fn add(&mut self, bytes: u64, ns: u64) {
        self.bytes_min = if self.times.count() == 0 { bytes } else { self.bytes_min.min(bytes) };
        self.bytes_max = self.bytes_max.max(bytes);
        self.bytes_sum = self.bytes_sum.saturating_add(bytes);
        self.times.add(ns);
    }
}

/// All rows.
#[derive(Debug, Default)]
pub(super) struct Rows {
    rows: BTreeMap<Key, Row>,
}

impl Rows {
    /// Adds a call of `bytes` that took `ns`.
    pub(super) fn add(&mut self, key: &Key, bytes: u64, ns: u64) {
        self.row(key).add(bytes, ns);
    }

    /// Adds a call that failed: its time says nothing about the operation.
    pub(super) fn add_error(&mut self, key: &Key) {
        self.row(key).errors += 1;
    }

    fn row(&mut self, key: &Key) -> &mut Row {
        let is_new = self.rows.len() >= ROWS_MAX && !self.rows.contains_key(key);
        let key = if is_new { Key::rest(key.operation) } else { *key };
        self.rows.entry(key).or_default()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Key, &Row)> {
        self.rows.iter()
    }

    pub(super) fn clear(&mut self) {
        self.rows.clear();
    }
}

#[cfg(test)]
mod tests {
    use unisono_schedule::Collective;

    use super::*;

    #[test]
    fn i12_the_number_of_rows_is_bounded_and_no_call_is_lost() {
        let mut rows = Rows::default();
        for call in 0..3 * ROWS_MAX as u32 {
            let key = Key { ranks: call, is_rest: false, ..Key::rest(Collective::AllReduce.into()) };
            rows.add(&key, 4, 100);
            rows.add_error(&Key { operation: Collective::Barrier.into(), ..key });
        }
        assert!(rows.iter().count() <= ROWS_MAX + 11);
        let (mut calls, mut errors) = (0, 0);
        rows.iter().for_each(|(_, row)| (calls, errors) = (calls + row.times.count(), errors + row.errors));
        assert_eq!((calls, errors), (3 * ROWS_MAX as u64, 3 * ROWS_MAX as u64));
    }

    #[test]
    fn sizes_of_one_doubling_share_a_row() {
        assert_eq!([0, 1, 2, 3, 4, 7, 8].map(size_class), [0, 1, 2, 2, 3, 3, 4]);
        assert_eq!(size_class(u64::MAX), 64);
    }
}
