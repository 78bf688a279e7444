//! The analysis on made-up times: the culprit is known.

use proptest::collection::vec;
use proptest::prelude::*;
use unisono_communicator::{ClockOffset, JobRank};
use unisono_schedule::SplitMix;

use super::*;
use crate::stragglers::observed::CallTimes;
use crate::stragglers::report::Verdict;

const RANKS: usize = 8;
const CALLS: u64 = 100;
const MS: f64 = 1e6;

/// Numbers by chance, from a seed that a failing test prints.
struct Chance(SplitMix);

impl Chance {
    /// From 0 to 1.
    fn next(&mut self) -> f64 {
        self.0.next_u64() as f64 / u64::MAX as f64
    }
}

/// A duration of a rank in a call.
type Milliseconds = dyn Fn(usize, u64, &mut Chance) -> f64;

/// A job whose ranks compute and then make a call, over and over.
struct Made {
    /// The milliseconds for which a rank computes before a call.
    computes_ms: Box<Milliseconds>,
    /// The milliseconds from the last entry to the end on a rank.
    moves_ms: Box<Milliseconds>,
}

impl Made {
    fn times(&self, seed: u64) -> Vec<RankTimes> {
        let mut chance = Chance(SplitMix(seed));
        let mut all = vec![RankTimes::default(); RANKS];
        let mut ends = [1e9; RANKS];
        for number in 0..CALLS {
            let entries: Vec<f64> = (0..RANKS)
                .map(|rank| ends[rank] + (self.computes_ms)(rank, number, &mut chance) * MS)
                .collect();
            let last = entries.iter().copied().fold(0.0, f64::max);
            for rank in 0..RANKS {
                ends[rank] = last + (self.moves_ms)(rank, number, &mut chance) * MS;
                let (entered_ns, ended_ns) = (entries[rank] as u64, ends[rank] as u64);
                all[rank].calls.push(CallTimes { number, operation: 1, entered_ns, ended_ns });
            }
        }
        all
    }
}

/// Every rank computes 5 ms and moves for 1 ms, both by chance up to twice as long.
fn even() -> Made {
    Made {
        computes_ms: Box::new(|_, _, chance| 5.0 + 0.5 * chance.next()),
        moves_ms: Box::new(|_, _, chance| 1.0 + 0.5 * chance.next()),
    }
}

fn verdicts(made: &Made, change: impl Fn(&mut Vec<RankTimes>)) -> Vec<Verdict> {
    let of = |seed| {
        let mut times = made.times(seed);
        change(&mut times);
        let report = analyse(&times);
        assert_eq!(report.calls, CALLS, "seed {seed}");
        report.verdict
    };
    (0..20).map(of).collect()
}

#[test]
fn i13_a_rank_that_computes_longer_came_late() {
    let slow = |rank: usize, _, chance: &mut Chance| 5.0 + chance.next() + if rank == 3 { 20.0 } else { 0.0 };
    let made = Made { computes_ms: Box::new(slow), ..even() };
    assert_eq!(verdicts(&made, |_| {}), [Verdict::Late { rank: 3 }; 20]);
    let report = analyse(&made.times(1));
    let culprit = &report.ranks[3];
    assert_eq!((culprit.came_last, culprit.waited_ns), (CALLS, 0));
    let late_ms = culprit.late_ns as f64 / MS / CALLS as f64;
    assert!((19.0..21.0).contains(&late_ms), "{late_ms}");
    assert!(report.ranks[0].waited_ns as f64 / MS > 19.0 * CALLS as f64);
    assert!(report.moving_ns as f64 / MS < 2.0 * CALLS as f64);
    assert!(report.to_string().contains("rank 3 came late: it was the last in 100 of 100 calls"), "{report}");
}

#[test]
fn i13_a_rank_that_is_stopped_now_and_then_came_late() {
    let stopped = |rank: usize, number: u64, chance: &mut Chance| {
        5.0 + chance.next() + if rank == 6 && number.is_multiple_of(5) { 25.0 } else { 0.0 }
    };
    let made = Made { computes_ms: Box::new(stopped), ..even() };
    assert_eq!(verdicts(&made, |_| {}), [Verdict::Late { rank: 6 }; 20]);
}

#[test]
fn i13_a_rank_whose_bytes_come_late_did_not_come_late_itself() {
    // Its calls end 20 ms after the calls of the others, so it enters the next call late without having computed
    // longer.
    let moves =
        |rank: usize, _, chance: &mut Chance| 1.0 + chance.next() + if rank == 2 { 20.0 } else { 0.0 };
    let made = Made { moves_ms: Box::new(moves), ..even() };
    assert_eq!(verdicts(&made, |_| {}), [Verdict::Slow { rank: 2 }; 20]);
    // The same with a network that held its bytes.
    let over_network = |times: &mut Vec<RankTimes>| {
        times[1].network_ppm = vec![(2, 700_000)];
        times[2].network_ppm = vec![(3, 690_000)];
        times[5].network_ppm = vec![(6, 1_000)];
    };
    for verdict in verdicts(&made, over_network) {
        assert!(matches!(verdict, Verdict::SlowNetwork { rank: Some(2), .. }), "{verdict:?}");
    }
}

#[test]
fn i13_one_slow_link_has_two_ends() {
    let made = Made { moves_ms: Box::new(|_, _, chance| 20.0 + chance.next()), ..even() };
    let one_link = |times: &mut Vec<RankTimes>| times[4].network_ppm = vec![(5, 800_000), (6, 10_000)];
    for verdict in verdicts(&made, one_link) {
        let Verdict::SlowNetwork { rank: None, link } = verdict else { panic!("{verdict:?}") };
        assert_eq!((link.from, link.to), (4, 5));
    }
    assert_eq!(verdicts(&made, |_| {}), [Verdict::Nobody; 20], "no network explains it");
}

#[test]
fn i13_a_machine_that_is_full_is_nobodys_fault_and_no_slow_network() {
    // Any rank may lose its core for up to 30 ms, in calls and outside.
    let loses = |base: f64| {
        move |_: usize, _: u64, chance: &mut Chance| {
            base + if chance.next() < 0.5 { 30.0 * chance.next() } else { 0.0 }
        }
    };
    let made = Made { computes_ms: Box::new(loses(5.0)), moves_ms: Box::new(loses(1.0)) };
    let little =
        |times: &mut Vec<RankTimes>| times.iter_mut().for_each(|one| one.network_ppm = vec![(0, 20_000)]);
    assert_eq!(verdicts(&made, little), [Verdict::Nobody; 20]);
}

#[test]
fn i13_clocks_of_hosts_are_aligned_before_entries_are_compared() {
    let slow = |rank: usize, _, chance: &mut Chance| 5.0 + chance.next() + if rank == 1 { 20.0 } else { 0.0 };
    let made = Made { computes_ms: Box::new(slow), ..even() };
    // Ranks 4 to 7 are on a host whose clock is a day ahead; rank 5 has measured it against rank 0.
    let (ahead_ns, error_ns) = (86_400_000_000_000i64, 50_000);
    let shift = |times: &mut Vec<RankTimes>| {
        for rank in &mut times[4..] {
            rank.host = 1;
            for call in &mut rank.calls {
                call.entered_ns += ahead_ns as u64;
                call.ended_ns += ahead_ns as u64;
            }
        }
    };
    assert_eq!(
        analyse(&{
            let mut times = made.times(0);
            shift(&mut times);
            times
        })
        .verdict,
        Verdict::NoCalls
    );
    let measured = |times: &mut Vec<RankTimes>| {
        shift(times);
        let measured_ns = times[5].calls[0].entered_ns;
        let (rank, host, offset_ns) = (JobRank::new(0), 0, -ahead_ns);
        times[5].clocks = vec![ClockOffset { rank, host, offset_ns, error_ns, drift_ppb: 0, measured_ns }];
    };
    assert_eq!(verdicts(&made, measured), [Verdict::Late { rank: 1 }; 20]);
    let mut times = made.times(0);
    measured(&mut times);
    let report = analyse(&times);
    assert_eq!(report.ranks[0].clock_error_ns, Some(0));
    assert!((50_000..10_000_000).contains(&report.ranks[7].clock_error_ns.unwrap()));
}

#[test]
fn i6_ranks_that_recorded_different_things_are_compared_by_the_union() {
    let row = |name: &str, mean_ms: f64| RowTimes {
        name: name.to_owned(),
        parent: None,
        ranks: 3,
        size_class: 11,
        bytes_max: 1024,
        count: 4,
        sum_ns: (4.0 * mean_ms * MS) as u64,
    };
    let mut times = vec![RankTimes::default(); 3];
    times[0].rows = vec![row("all_reduce", 3.0), row("only here", 1.0)];
    times[1].rows = vec![row("all_reduce", 1.0)];
    times[2].rows = vec![row("all_reduce", 9.0), row("send", 2.0)];
    times[1].calls = even().times(0)[0].calls.clone();
    let report = analyse(&times);
    assert_eq!((report.calls, report.verdict), (0, Verdict::NoCalls));
    let found: Vec<_> = report.rows.iter().map(|row| (row.name.as_str(), row.recorded_by)).collect();
    assert_eq!(found, [("all_reduce", 3), ("only here", 1), ("send", 1)]);
    let all_reduce = &report.rows[0];
    let spread = [all_reduce.mean_min_ns, all_reduce.mean_median_ns, all_reduce.mean_max_ns];
    assert_eq!((spread, all_reduce.quickest_rank), ([1.0 * MS, 3.0 * MS, 9.0 * MS], 1));
    // Nothing at all, and a world of one.
    assert_eq!(analyse(&vec![RankTimes::default(); 2]).rows, []);
    let alone = RankTimes { calls: even().times(0)[0].calls.clone(), ..RankTimes::default() };
    assert_eq!(analyse(&[alone]).verdict, Verdict::Nobody);
}

#[test]
fn calls_that_only_some_ranks_recorded_or_that_differ_are_left_out() {
    let mut times = even().times(3);
    times[0].calls.drain(..10);
    times[7].calls.truncate(90);
    times[4].calls[50].operation = 9;
    assert_eq!(analyse(&times).calls, 79);
}

proptest! {
    /// A peer may send any numbers.
    #[test]
    fn no_times_are_a_panic(
        times in vec(vec(any::<(u64, u64)>(), 3), 2..5),
        clocks in vec(any::<(i64, u64, i64, u64)>(), 0..3),
        network_ppm in vec(any::<(u32, u64)>(), 0..3),
        row: (u64, u64),
    ) {
        let of_rank = |(host, times): (u32, Vec<(u64, u64)>)| RankTimes {
            calls: (0..).zip(times).map(|(number, (entered_ns, ended_ns))| CallTimes {
                number, operation: 0, entered_ns, ended_ns,
            }).collect(),
            rows: vec![RowTimes {
                name: "barrier".to_owned(), parent: None, ranks: 3, size_class: 0, bytes_max: u64::MAX,
                count: row.0, sum_ns: row.1,
            }],
            host: host % 2,
            clocks: clocks.iter().map(|&(offset_ns, error_ns, drift_ppb, measured_ns)| ClockOffset {
                rank: JobRank::new(0), host: 1, offset_ns, error_ns, drift_ppb, measured_ns,
            }).collect(),
            network_ppm: network_ppm.clone(),
        };
        let ranks: Vec<RankTimes> = (0..).zip(times).map(of_rank).collect();
        prop_assert!(!analyse(&ranks).to_string().is_empty());
    }
}
