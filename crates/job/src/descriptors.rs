//! How many of this process's descriptors go to what a job can do without: connections of strangers, and watches of
//! processes.

use rustix::process::{Resource, getrlimit};

/// One such purpose gets this part of the limit on descriptors.
const SHARE: u64 = 8;

/// What it gets where the limit is very low.
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
