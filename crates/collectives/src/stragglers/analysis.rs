//! The analysis of gathered times: pure, and the same on every rank.
//!
//! A rank came late if it entered a call after all others, and had spent more time between its calls than they. Times
//! of messages say nothing about that: in a chain, each rank waits for the rank before it, and the culprit's neighbour
//! would be blamed. Entry times of several hosts are compared by their measured clocks.

use std::collections::BTreeMap;

use unisono_communicator::{HostClock, host_clocks};

use crate::stragglers::observed::{CallTimes, RankTimes};
use crate::stragglers::report::{RankWaits, RowSpread, SlowLink, StragglerReport, Verdict};

/// A cost below this part of all time within calls is not worth a verdict.
const NOTABLE_PART: f64 = 0.1;

/// One rank is the culprit if it has at least this part of the sum over all ranks.
const CULPRITS_PART: f64 = 0.5;

/// The clock of a rank, compared with the clock of rank 0.
type Clock = Option<HostClock>;

/// The report of all ranks' times, in rank order.
pub(super) fn analyse(ranks: &[RankTimes]) -> StragglerReport {
    let clocks = clocks(ranks);
    let mut sums = Sums::new(ranks.len());
    let mut previous: Option<Vec<CallTimes>> = None;
    for calls in common_calls(ranks) {
        let entries: Option<Vec<Aligned>> = calls.iter().zip(&clocks).map(aligned).collect();
        if let Some(entries) = entries {
            sums.add(&entries, &calls, previous.as_deref());
        }
        previous = Some(calls);
    }
    let links = slow_links(ranks);
    let waits = |(rank, (network, clock)): (usize, (f64, &Clock))| RankWaits {
        rank: rank as u32,
        came_last: sums.came_last[rank],
        late_ns: sums.late_ns[rank],
        carried_ns: sums.carried_ns[rank],
        waited_ns: sums.waited_ns[rank],
        network_part: network,
        clock_error_ns: clock.map(|clock| clock.error_ns),
    };
    let networks = (0..ranks.len()).map(|rank| network_of(rank as u32, &links));
    let ranks_waits = networks.zip(&clocks).enumerate().map(waits).collect();
    StragglerReport {
        calls: sums.calls,
        span_ns: sums.span_ns(),
        moving_ns: sums.moving_ns,
        verdict: verdict(&sums, &links),
        ranks: ranks_waits,
        rows: spreads(ranks),
    }
}

/// The entry and the end of a call by the clock of rank 0.
#[derive(Clone, Copy)]
struct Aligned {
    entered_ns: i64,
    ended_ns: i64,
    error_ns: i64,
}

fn aligned((call, clock): (&CallTimes, &Clock)) -> Option<Aligned> {
    let HostClock { offset_ns, error_ns } = (*clock)?;
    let shift = |ns: u64| (ns as i64).saturating_sub(offset_ns);
    Some(Aligned {
        entered_ns: shift(call.entered_ns),
        ended_ns: shift(call.ended_ns),
        error_ns: error_ns.min(i64::MAX as u64) as i64,
    })
}

fn clocks(ranks: &[RankTimes]) -> Vec<Clock> {
    let Some(first) = ranks.first() else { return Vec::new() };
    let measured: Vec<_> =
        ranks.iter().flat_map(|rank| rank.clocks.iter().map(|offset| (rank.host, *offset))).collect();
    let at_ns = first.calls.last().map_or(0, |call| call.ended_ns);
    let found = host_clocks(&measured, first.host, at_ns);
    ranks.iter().map(|rank| found.get(&rank.host).copied()).collect()
}

/// The calls that every rank has recorded, in order: of each the times of all ranks.
fn common_calls(ranks: &[RankTimes]) -> impl Iterator<Item = Vec<CallTimes>> {
    let mut calls: BTreeMap<u64, Vec<CallTimes>> = BTreeMap::new();
    for call in ranks.iter().flat_map(|rank| &rank.calls) {
        calls.entry(call.number).or_default().push(*call);
    }
    let everywhere = ranks.len();
    calls
        .into_values()
        .filter(move |of| of.len() == everywhere && of.iter().all(|call| call.operation == of[0].operation))
}

/// Sums over calls.
struct Sums {
    calls: u64,
    first_ns: i64,
    end_ns: i64,
    moving_ns: u64,
    came_last: Vec<u64>,
    late_ns: Vec<u64>,
    carried_ns: Vec<u64>,
    waited_ns: Vec<u64>,
}

impl Sums {
    fn new(ranks: usize) -> Sums {
        let zeros = || vec![0; ranks];
        Sums {
            calls: 0,
            first_ns: i64::MAX,
            end_ns: i64::MIN,
            moving_ns: 0,
            came_last: zeros(),
            late_ns: zeros(),
            carried_ns: zeros(),
            waited_ns: zeros(),
        }
    }

    /// The time from the first entry to the last end.
    fn span_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.first_ns).max(0) as u64
    }

    fn add(&mut self, times: &[Aligned], calls: &[CallTimes], previous: Option<&[CallTimes]>) {
        // A communicator has at least one rank.
        let Some((last, _)) = times.iter().enumerate().max_by_key(|(_, time)| time.entered_ns) else {
            return;
        };
        let others = times.iter().enumerate().filter(|(rank, _)| *rank != last);
        let last_ns = times[last].entered_ns;
        self.calls += 1;
        self.first_ns = times.iter().map(|time| time.entered_ns).fold(self.first_ns, i64::min);
        let end_ns = times.iter().map(|time| time.ended_ns).fold(i64::MIN, i64::max);
        self.end_ns = self.end_ns.max(end_ns);
        add(&mut self.moving_ns, end_ns.saturating_sub(last_ns));
        for (waited, time) in self.waited_ns.iter_mut().zip(times) {
            add(waited, last_ns.saturating_sub(time.entered_ns));
        }
        // How long every other rank waited for the last one alone.
        let Some((second, second_time)) = others.max_by_key(|(_, time)| time.entered_ns) else { return };
        let alone_ns = last_ns.saturating_sub(second_time.entered_ns);
        if alone_ns <= times[last].error_ns.saturating_add(times[second].error_ns) {
            return;
        }
        self.came_last[last] += 1;
        let late_ns = match previous {
            Some(previous) => alone_ns.min(excess_between(last, calls, previous)).max(0),
            None => alone_ns,
        };
        add(&mut self.late_ns[last], late_ns);
        add(&mut self.carried_ns[last], alone_ns - late_ns);
    }
}

/// Adds a duration. It comes from times that peers have sent, which may be any numbers.
fn add(sum: &mut u64, ns: i64) {
    *sum = sum.saturating_add(ns.max(0) as u64);
}

/// The time by which a rank was outside of calls before this one for longer than the median of the others.
fn excess_between(rank: usize, calls: &[CallTimes], previous: &[CallTimes]) -> i64 {
    let between =
        |rank: usize| (calls[rank].entered_ns as i64).saturating_sub(previous[rank].ended_ns as i64);
    let others = (0..calls.len()).filter(|other| *other != rank).map(between).collect();
    between(rank).saturating_sub(median(others))
}

fn median(mut values: Vec<i64>) -> i64 {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}

/// Every link over a network that holds bytes, the slowest first.
fn slow_links(ranks: &[RankTimes]) -> Vec<SlowLink> {
    let mut links: Vec<SlowLink> = Vec::new();
    for (from, rank) in (0..).zip(ranks) {
        links.extend(rank.network_ppm.iter().map(|&(to, ppm)| SlowLink { from, to, part: ppm as f64 / 1e6 }));
    }
    links.retain(|link| link.part > 0.0);
    links.sort_by(|one, other| other.part.total_cmp(&one.part));
    links
}

/// The part of the time in which the network held bytes on the slowest link from or to a rank.
fn network_of(rank: u32, links: &[SlowLink]) -> f64 {
    links.iter().find(|link| link.from == rank || link.to == rank).map_or(0.0, |link| link.part)
}

/// The rank that all links have in common that are at least half as slow as the slowest. `None` for a single link,
/// which has two ends.
fn common_end(links: &[SlowLink]) -> Option<u32> {
    let slowest = links.first()?;
    let slow = || links.iter().filter(|link| link.part >= slowest.part / 2.0);
    let touches = |rank: u32| slow().all(|link| link.from == rank || link.to == rank);
    match (touches(slowest.from), touches(slowest.to)) {
        (true, false) => Some(slowest.from),
        (false, true) => Some(slowest.to),
        (true, true) | (false, false) => None,
    }
}

fn verdict(sums: &Sums, links: &[SlowLink]) -> Verdict {
    if sums.calls == 0 {
        return Verdict::NoCalls;
    }
    let all = |of: &[u64]| of.iter().map(|&ns| ns as f64).sum::<f64>();
    let (moving_ns, all_late, all_carried) =
        (sums.moving_ns as f64, all(&sums.late_ns), all(&sums.carried_ns));
    let within_ns = (moving_ns + all_late + all_carried).max(1.0);
    let most = |of: &[u64]| {
        let (rank, ns) = of.iter().enumerate().max_by_key(|(_, ns)| **ns).unwrap_or((0, &0));
        (rank as u32, *ns as f64)
    };
    let ((late, late_ns), (slow, carried_ns)) = (most(&sums.late_ns), most(&sums.carried_ns));
    // The network's part of the time cannot be more than the calls took.
    let network_ns =
        links.first().map_or(0.0, |link| (link.part * sums.span_ns() as f64).min(moving_ns + all_carried));
    let is_notable = |ns: f64| ns >= NOTABLE_PART * within_ns;
    let is_late = is_notable(late_ns) && late_ns >= CULPRITS_PART * all_late;
    let is_network = is_notable(network_ns) && network_ns >= CULPRITS_PART * moving_ns;
    let is_slow = is_notable(carried_ns) && carried_ns >= CULPRITS_PART * all_carried;
    match links.first() {
        Some(link) if is_network && (!is_late || network_ns > late_ns) => {
            Verdict::SlowNetwork { rank: common_end(links), link: *link }
        }
        _ if is_late && (!is_slow || late_ns >= carried_ns) => Verdict::Late { rank: late },
        _ if is_slow => Verdict::Slow { rank: slow },
        _ => Verdict::Nobody,
    }
}

/// The rows of all ranks' logs by their common key: ranks need not have recorded the same.
fn spreads(ranks: &[RankTimes]) -> Vec<RowSpread> {
    let mut union: BTreeMap<_, Vec<(u32, u64, f64, u64)>> = BTreeMap::new();
    for (rank, times) in (0..).zip(ranks) {
        for row in times.rows.iter().filter(|row| row.count > 0) {
            let family = row.parent.clone().unwrap_or_else(|| row.name.clone());
            let key = (family, row.parent.is_some(), row.name.clone(), row.ranks, row.size_class);
            let mean_ns = row.sum_ns as f64 / row.count as f64;
            union.entry(key).or_default().push((rank, row.count, mean_ns, row.bytes_max));
        }
    }
    let spread = |((family, is_part, name, ranks, _), mut of): ((String, bool, String, u32, u8), Vec<_>)| {
        of.sort_by(|one: &(u32, u64, f64, u64), other| one.2.total_cmp(&other.2));
        let (least, most) = (of[0], of[of.len() - 1]);
        RowSpread {
            name,
            parent: is_part.then_some(family),
            ranks,
            bytes_max: of.iter().map(|one| one.3).max().unwrap_or(0),
            recorded_by: of.len() as u32,
            count: of.iter().map(|one| one.1).max().unwrap_or(0),
            mean_min_ns: least.2,
            mean_median_ns: of[of.len() / 2].2,
            mean_max_ns: most.2,
            quickest_rank: least.0,
        }
    };
    union.into_iter().map(spread).collect()
}
