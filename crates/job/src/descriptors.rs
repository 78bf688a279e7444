//! The descriptors of this process: the share of things that a job can do without, connections of strangers and watches
//! of processes; and a limit that is raised for a while, where a meeting of many ranks needs it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// One such purpose gets this part of the limit on descriptors.
const SHARE: u64 = 8;

/// Its share where the limit is very low.
const SHARE_MIN: u64 = 4;

/// The number of descriptors that one such purpose may use, if it could use `wanted`.
pub(crate) fn share(wanted: usize) -> usize {
    share_of(getrlimit(Resource::Nofile).current, wanted)
}

/// `limit` is `None` where there is none.
fn share_of(limit: Option<u64>, wanted: usize) -> usize {
    let share = limit.map_or(u64::MAX, |limit| (limit / SHARE).max(SHARE_MIN));
    usize::try_from(share).map_or(wanted, |share| wanted.min(share))
}

/// The number of descriptors that this process has open. Where the system does not tell, or has none left to ask with,
/// as many as the limit allows count as open.
pub(crate) fn open_descriptors() -> u64 {
    let own = if cfg!(target_os = "linux") { "/proc/self/fd" } else { "/dev/fd" };
    match std::fs::read_dir(own) {
        Ok(open) => open.count() as u64,
        Err(_) => limit().unwrap_or(0),
    }
}

/// The soft limit on descriptors; `None` where there is none.
pub(crate) fn limit() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// The hard limit, up to which this process may raise the soft one; `None` where there is none.
pub(crate) fn limit_max() -> Option<u64> {
    getrlimit(Resource::Nofile).maximum
}

/// The needs for a higher soft limit, and how to restore the limit.
#[derive(Debug)]
struct Raises {
    /// The limits that are wanted, each by the number of its [`RaisedLimit`].
    wanted: BTreeMap<u64, u64>,
    next: u64,
    /// The limit before the first raise, and the limit after the last one.
    changed: Option<(Option<u64>, u64)>,
}

static RAISES: Mutex<Raises> = Mutex::new(Raises { wanted: BTreeMap::new(), next: 0, changed: None });

fn raises() -> MutexGuard<'static, Raises> {
    RAISES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A soft limit on descriptors that is as high as somebody needs it, and that falls back when the last such need is
/// dropped. A limit that somebody else sets meanwhile stays.
#[derive(Debug)]
pub(crate) struct RaisedLimit {
    number: u64,
}

impl RaisedLimit {
    /// Nothing is raised yet.
    pub(crate) fn new() -> RaisedLimit {
        let mut raises = raises();
        raises.next += 1;
        RaisedLimit { number: raises.next }
    }

    /// Raises the limit to `wanted` if it is below `needed`, but never over the hard limit. True if the limit is at
    /// least `needed` then.
    pub(crate) fn raise(&mut self, needed: u64, wanted: u64) -> bool {
        let mut raises = raises();
        let Rlimit { current: Some(current), maximum } = getrlimit(Resource::Nofile) else { return true };
        raises.wanted.insert(self.number, needed);
        if current >= needed {
            return true;
        }
        let target = maximum.map_or(wanted, |maximum| wanted.min(maximum));
        if target > current && setrlimit(Resource::Nofile, Rlimit { current: Some(target), maximum }).is_ok()
        {
            let before = raises.changed.map_or(Some(current), |(before, _)| before);
            raises.changed = Some((before, target));
        }
        limit().is_none_or(|limit| limit >= needed)
    }
}

impl Drop for RaisedLimit {
    fn drop(&mut self) {
        let mut raises = raises();
        raises.wanted.remove(&self.number);
        if !raises.wanted.is_empty() {
            return;
        }
        let Some((before, raised)) = raises.changed.take() else { return };
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        if current == Some(raised) {
            // A failure leaves a limit that is higher than it was, which harms nobody.
            let _ = setrlimit(Resource::Nofile, Rlimit { current: before, maximum });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::share_of;

    #[test]
    fn a_purpose_gets_what_it_wants_up_to_its_share() {
        let wanted = [None, Some(4096), Some(256), Some(64), Some(8)].map(|limit| share_of(limit, 256));
        assert_eq!(wanted, [256, 256, 32, 8, 4]);
        assert_eq!(share_of(Some(1024), 3), 3);
    }
}
