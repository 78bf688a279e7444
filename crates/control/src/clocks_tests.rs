//! Clocks of known offset and drift, and how well they are measured.

use proptest::prelude::*;
use unisono_communicator::host_clocks;
use unisono_communicator::monotonic_ns;

use super::*;
use crate::simulation::{MS, Simulation};

const PEER: JobRank = JobRank::new(3);
const HOST: u32 = 7;
const SECOND_NS: u64 = 1_000_000_000;
const TICK_NS: u64 = SECOND_NS / 10;

/// Another rank, whose clock is ahead of ours and drifts.
#[derive(Clone, Copy)]
struct SkewedClock {
    ahead_ns: i64,
    drift_ppb: i64,
}

impl SkewedClock {
    fn ahead_at(self, own_ns: u64) -> i64 {
        self.ahead_ns + (i128::from(own_ns) * i128::from(self.drift_ppb) / 1_000_000_000) as i64
    }

    fn shows(self, own_ns: u64) -> u64 {
        own_ns.wrapping_add_signed(self.ahead_at(own_ns))
    }
}

/// Lets the time from `from_ns` pass until a measurement ends, and gives it. Each question has its two delays; a
/// question without delays is lost.
fn measure(
    clocks: &mut Clocks,
    other: SkewedClock,
    from_ns: u64,
    mut delays: impl FnMut() -> Option<(u64, u64)>,
) -> ClockOffset {
    for tick in 0..1000 {
        let mut now_ns = from_ns + tick * TICK_NS;
        let mut step = clocks.on_time(PEER, now_ns);
        while let Some(next) = step {
            let asked_ns = match next {
                ClockStep::Ask(asked_ns) => asked_ns,
                ClockStep::Measured(offset) => return offset,
            };
            let Some((there_ns, back_ns)) = delays() else { break };
            let clock_ns = other.shows(now_ns + there_ns);
            now_ns += there_ns + back_ns;
            let (answer, late) = ((asked_ns, clock_ns), (asked_ns + 1, 0));
            assert_eq!(clocks.answered((PEER, HOST), late, now_ns), None, "no such question");
            step = clocks.answered((PEER, HOST), answer, now_ns);
            assert_eq!(
                clocks.answered((PEER, HOST), answer, now_ns).filter(|_| there_ns + back_ns > 0),
                None
            );
        }
    }
    panic!("no measurement")
}

/// The other clock as others compute it from a measurement.
fn ahead_at(offset: ClockOffset, own_ns: u64) -> (i64, u64) {
    let clock = host_clocks(&[(0, offset)], 0, own_ns)[&HOST];
    (clock.offset_ns, clock.error_ns)
}

#[test]
fn the_quickest_of_eight_answers_counts_and_the_next_measurement_comes_after_ten_seconds() {
    let other = SkewedClock { ahead_ns: -5_000_000, drift_ppb: 0 };
    let (mut clocks, mut asked) = (Clocks::default(), 0);
    let start_ns = 500 * SECOND_NS;
    let found = measure(&mut clocks, other, start_ns, || {
        asked += 1;
        Some(if asked == 5 { (1_000, 3_000) } else { (90_000, 10_000) })
    });
    assert_eq!((asked, found.offset_ns, found.error_ns), (QUESTIONS, -5_001_000, 2_003));
    assert_eq!((found.rank, found.host, found.drift_ppb), (PEER, HOST, 0));
    assert_eq!(clocks.on_time(PEER, start_ns + INTERVAL_NS - 1), None);
    assert_eq!(clocks.on_time(PEER, start_ns + INTERVAL_NS), Some(ClockStep::Ask(start_ns + INTERVAL_NS)));
}

#[test]
fn a_lost_question_is_forgotten_and_all_lost_ones_are_no_measurement() {
    let other = SkewedClock { ahead_ns: 77_000_000, drift_ppb: 0 };
    let (mut clocks, mut asked) = (Clocks::default(), 0);
    let found = measure(&mut clocks, other, SECOND_NS, || {
        asked += 1;
        (asked > QUESTIONS + 6).then_some((500, 500))
    });
    // The first eight are lost, and six of the next: two answers are left.
    assert_eq!((asked, found.offset_ns), (2 * QUESTIONS, 77_000_000));
    assert!(found.measured_ns > SECOND_NS + INTERVAL_NS, "the second measurement");
}

#[test]
fn a_jump_is_no_drift_and_the_drift_is_found_again() {
    let (mut clocks, delays) = (Clocks::default(), || Some((1_000, 1_000)));
    let mut other = SkewedClock { ahead_ns: 3_000, drift_ppb: 40_000 };
    let mut next = |other, number: u64| measure(&mut clocks, other, number * 12 * SECOND_NS, delays);
    assert_eq!(next(other, 1).drift_ppb, 0, "one measurement shows no drift");
    assert!((39_000..=40_000).contains(&next(other, 2).drift_ppb));
    other.ahead_ns += 5_000_000_000;
    let jumped = next(other, 3);
    assert_eq!(jumped.drift_ppb, 0);
    assert!(jumped.offset_ns.abs_diff(other.ahead_at(jumped.measured_ns)) <= jumped.error_ns);
    assert!((39_000..=40_000).contains(&next(other, 4).drift_ppb));
}

#[test]
fn no_answer_of_a_broken_rank_is_a_panic() {
    let mut clocks = Clocks::default();
    for (number, clock_ns) in [0, u64::MAX, 1 << 63, 1].into_iter().cycle().take(40).enumerate() {
        let now_ns = (1 + number as u64) * 11 * SECOND_NS;
        let mut step = clocks.on_time(PEER, now_ns);
        while let Some(ClockStep::Ask(asked_ns)) = step {
            step = clocks.answered((PEER, HOST), (asked_ns, clock_ns), now_ns + 9);
        }
        assert!(matches!(step, Some(ClockStep::Measured(_))));
    }
}

proptest! {
    /// For any delays, which may differ between the ways.
    #[test]
    fn an_offset_is_found_within_its_error_until_the_next_measurement(
        ahead_ns in -100_000_000_000i64..100_000_000_000, drift_ppb in -50_000i64..=50_000,
        delays in proptest::collection::vec(proptest::option::weighted(0.9, (0u64..3_000_000, 0u64..900_000)), 40..80),
    ) {
        prop_assume!(delays.iter().any(Option::is_some));
        let (mut clocks, other) = (Clocks::default(), SkewedClock { ahead_ns, drift_ppb });
        let mut delays = delays.into_iter().cycle();
        let mut from_ns = 1_000 * SECOND_NS;
        for _ in 0..5 {
            let found = measure(&mut clocks, other, from_ns, || delays.next().flatten());
            for later_s in 0..=10 {
                let at_ns = found.measured_ns + later_s * SECOND_NS;
                let (ahead_ns, error_ns) = ahead_at(found, at_ns);
                let wrong_ns = ahead_ns.abs_diff(other.ahead_at(at_ns));
                prop_assert!(wrong_ns <= error_ns + 2, "{wrong_ns} after {later_s} s: {found:?}");
            }
            from_ns = found.measured_ns + TICK_NS;
        }
    }
}

/// Every rank is a host. Nobody is lost, and every clock is found from the measurements of the ranks.
#[test]
fn the_ranks_of_a_simulated_job_find_all_clocks() {
    for seed in 0..20 {
        let hosts: Vec<u32> = (0..2 + seed as u32).collect();
        let mut simulation = Simulation::skewed(&hosts, 20, seed);
        simulation.run(MS * 35_000);
        simulation.assert_lost(&[], &[], &format!("seed {seed}"));
        let measured: Vec<_> =
            simulation.offsets.iter().map(|((own, _), offset)| (hosts[*own as usize], *offset)).collect();
        let shows = |rank| monotonic_ns(simulation.clock(rank).shows(simulation.now));
        let clocks = host_clocks(&measured, 0, shows(0));
        for rank in hosts.iter().copied() {
            let (clock, expected) = (clocks[&rank], shows(rank) as i64 - shows(0) as i64);
            let wrong_ns = clock.offset_ns.abs_diff(expected);
            assert!(
                wrong_ns <= clock.error_ns + 100,
                "seed {seed}: {clock:?} of rank {rank}, not {expected}"
            );
            assert!(clock.error_ns < 20_000_000, "seed {seed}: {clock:?}");
        }
    }
}
