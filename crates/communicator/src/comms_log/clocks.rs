//! The offsets between the clocks of hosts, from measurements between pairs of ranks.

use std::collections::BTreeMap;

use crate::group::rank::JobRank;

/// The speed at which two clocks may drift apart beyond a measured drift, in billionths. Crystals differ less, but the
/// kernel may slew either clock by up to 500 ppm at any time (adjtimex(2)).
const UNKNOWN_DRIFT_PPB: i128 = 1_000_000;

/// A measurement of `CLOCK_MONOTONIC` on another host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ClockOffset {
    /// The rank that was asked.
    pub rank: JobRank,
    /// The number of its host in the job.
    pub host: u32,
    /// The other clock minus the clock of this rank.
    pub offset_ns: i64,
    /// The offset is wrong by at most this much.
    pub error_ns: u64,
    /// The growth of the offset, in billionths of the time.
    pub drift_ppb: i64,
    /// The time of the measurement, by the clock of this rank.
    pub measured_ns: u64,
}

/// The clock of a host at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostClock {
    /// This clock minus the clock of the host that all others are compared with.
    pub offset_ns: i64,
    /// The offset is wrong by at most this much.
    pub error_ns: u64,
}

impl ClockOffset {
    /// The offset when the clock of the measuring rank shows `own_ns`. Its error grows with the age of the measurement.
    fn at(&self, own_ns: i128) -> (i128, i128) {
        let age_ns = own_ns - i128::from(self.measured_ns);
        let in_age = |ppb: i128| ppb.saturating_mul(age_ns) / 1_000_000_000;
        let offset_ns = i128::from(self.offset_ns) + in_age(self.drift_ppb.into());
        (offset_ns, i128::from(self.error_ns) + in_age(UNKNOWN_DRIFT_PPB).abs())
    }

    /// The clock at the other end of this measurement, given the clock `near` at one end. This is the end that has
    /// measured if `is_own`.
    fn beyond(&self, near: HostClock, is_own: bool, at_ns: u64) -> HostClock {
        let near_ns = i128::from(near.offset_ns);
        let shown_ns = i128::from(at_ns) + near_ns;
        let (far_ns, error_ns) = if is_own {
            let (offset_ns, error_ns) = self.at(shown_ns);
            (near_ns + offset_ns, error_ns)
        } else {
            let (offset_ns, error_ns) = self.at(shown_ns - i128::from(self.offset_ns));
            (near_ns - offset_ns, error_ns)
        };
        let offset_ns = far_ns.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
        let error_ns = (i128::from(near.error_ns) + error_ns).min(u64::MAX.into()) as u64;
        HostClock { offset_ns, error_ns }
    }
}

/// The clocks of hosts, by number of the host, when the clock of host `reference` shows `at_ns`; offsets are from that
/// clock. `measured` has measurements of any ranks, each with the number of the measuring rank's host. Of several ways
/// between two hosts, the way with the smallest sum of errors counts. Hosts that no way reaches are absent.
///
/// Cost: hosts times measurements at worst, and the longest way times measurements as a rule. Sends nothing.
///
/// ```
/// use unisono_communicator::{ClockOffset, JobRank, host_clocks};
/// let (rank, measured_ns) = (JobRank::new(4), 1_000);
/// let offset = ClockOffset { rank, host: 2, offset_ns: 70, error_ns: 5, drift_ppb: 0, measured_ns };
/// let clocks = host_clocks(&[(0, offset)], 0, 1_000);
/// assert_eq!((clocks[&2].offset_ns, clocks[&2].error_ns), (70, 5));
/// assert_eq!(clocks.get(&1), None);
/// ```
pub fn host_clocks(measured: &[(u32, ClockOffset)], reference: u32, at_ns: u64) -> BTreeMap<u32, HostClock> {
    let mut clocks = BTreeMap::from([(reference, HostClock { offset_ns: 0, error_ns: 0 })]);
    loop {
        let mut has_changed = false;
        for (own, offset) in measured {
            for (near, far, is_own) in [(*own, offset.host, true), (offset.host, *own, false)] {
                let Some(known) = clocks.get(&near) else { continue };
                let found = offset.beyond(*known, is_own, at_ns);
                if clocks.get(&far).is_none_or(|best| found.error_ns < best.error_ns) {
                    clocks.insert(far, found);
                    has_changed = true;
                }
            }
        }
        if !has_changed {
            return clocks;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn offset(host: u32, offset_ns: i64, error_ns: u64) -> ClockOffset {
        let (rank, measured_ns) = (JobRank::new(host), 1_000_000_000);
        ClockOffset { rank, host, offset_ns, error_ns, drift_ppb: 0, measured_ns }
    }

    #[test]
    fn the_way_with_the_smallest_sum_of_errors_counts_in_both_directions() {
        // 0 has measured 2 badly. 1 has measured 0 and 2 well. 3 and 4 know only each other.
        let measured =
            [(0, offset(2, 999, 90)), (1, offset(0, -10, 5)), (1, offset(2, 7, 6)), (3, offset(4, 1, 1))];
        let clocks = host_clocks(&measured, 0, 1_000_000_000);
        let found = |host: u32| clocks.get(&host).map(|clock| (clock.offset_ns, clock.error_ns));
        assert_eq!([0, 1, 2, 3].map(found), [Some((0, 0)), Some((10, 5)), Some((17, 11)), None]);
        assert!(host_clocks(&[], 7, 0).contains_key(&7));
    }

    #[test]
    fn an_offset_drifts_and_its_error_grows_with_its_age() {
        let drifting = ClockOffset { drift_ppb: 2_000, ..offset(1, 100, 10) };
        for (own, sign) in [(0, 1), (1, -1)] {
            let drifting = ClockOffset { host: 1 - own, ..drifting };
            let is_far = |seconds: i64, offset_ns: i64, error_ns: u64| {
                let at_ns = drifting.measured_ns.wrapping_add_signed(seconds * 1_000_000_000);
                let clock = host_clocks(&[(own, drifting)], 0, at_ns)[&1];
                // The measuring clock shows a little more or less than the reference.
                (clock.offset_ns * sign - offset_ns).abs() < 2 && clock.error_ns.abs_diff(error_ns) < 2
            };
            assert!(is_far(0, 100, 10));
            assert!(is_far(3, 6_100, 3_000_010));
            assert!(is_far(-1, -1_900, 1_000_010), "before the measurement too");
        }
    }

    proptest! {
        /// For any measurements between any hosts: a clock is found exactly where there is a way, and within its error.
        #[test]
        fn clocks_are_found_within_their_errors(
            clocks in vec((-1_000_000_000_000i64..1_000_000_000_000, -490_000i64..490_000), 1..9),
            edges in vec((0usize..8, 0usize..8, 0u64..1_000_000, -100i64..=100), 0..24),
            at_s in 3_600u64..3_700,
        ) {
            // Clock h shows t + ahead + t * drift at the time t of the reference, which is clock 0 itself.
            let shows = |host: usize, t: i64| {
                let (ahead, ppb) = if host == 0 { (0, 0) } else { clocks[host] };
                t + ahead + (i128::from(t) * i128::from(ppb) / 1_000_000_000) as i64
            };
            let edges: Vec<_> = edges.into_iter().filter(|edge| edge.0.max(edge.1) < clocks.len()).collect();
            let measure = |(index, &(own, other, error_ns, percent)): (usize, &(usize, usize, u64, i64))| {
                let t = 3_600_000_000_000 + index as i64 * 1_000_000_000;
                let wrong = error_ns as i64 * percent / 100;
                let one = offset(other as u32, shows(other, t) - shows(own, t) + wrong, error_ns + 9);
                (own as u32, ClockOffset { measured_ns: (shows(own, t) + 2_000_000_000_000) as u64, ..one })
            };
            let measured: Vec<(u32, ClockOffset)> = edges.iter().enumerate().map(measure).collect();
            // All clocks are 2,000 s later than `shows`, so that none is negative.
            let at = at_s as i64 * 1_000_000_000;
            let found = host_clocks(&measured, 0, (at + 2_000_000_000_000) as u64);
            for (host, clock) in &found {
                let expected = shows(*host as usize, at) - at;
                let wrong_ns = clock.offset_ns.abs_diff(expected);
                prop_assert!(wrong_ns <= clock.error_ns + 100, "{host}: {clock:?}, not {expected}");
            }
            let mut reached = vec![false; clocks.len()];
            reached[0] = true;
            for _ in 0..clocks.len() {
                for edge in &edges {
                    let either = reached[edge.0] || reached[edge.1];
                    (reached[edge.0], reached[edge.1]) = (either, either);
                }
            }
            for (host, is_reached) in reached.iter().enumerate() {
                prop_assert_eq!(found.contains_key(&(host as u32)), *is_reached);
            }
        }

        /// A peer may send any numbers.
        #[test]
        fn no_numbers_are_a_panic(
            edges in vec((0u32..3, 0u32..3, any::<(i64, u64, i64, u64)>()), 0..9), at_ns: u64,
        ) {
            let edge = |(own, host, (offset_ns, error_ns, drift_ppb, measured_ns))| {
                (own, ClockOffset { drift_ppb, measured_ns, ..offset(host, offset_ns, error_ns) })
            };
            let measured: Vec<_> = edges.into_iter().map(edge).collect();
            prop_assert!(host_clocks(&measured, 0, at_ns).contains_key(&0));
        }
    }
}
