//! Ranks that go in the middle of a call: the survivors' states then, and that training goes on.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::common::links::{Counter, Stopper};
use crate::common::{Owed, bits, clean_by, input, input_at, owed, state, total_owed};
use unisono_communicator::{Communicator, Error, JobRank, ReduceOp};
use unisono_compression::{
    Bf16, Codec, CompressedCollectives, CompressionState, Int4, IntOptions, Rebound, Route, SignL1, SignRms,
};
use unisono_engine::Tapped;
use unisono_engine::in_process::{self, EngineOptions};

/// Calls before all ranks are sure to have failed.
const CALLS: u64 = 4;

/// The elements of the vector itself, without zeros behind it.
fn within(owned: &Range<usize>, elements: usize) -> Range<usize> {
    owned.start.min(elements)..owned.end.min(elements)
}

/// The observations of a survivor.
struct Survivor {
    rank: u32,
    rebound: Rebound,
    /// The number of calls that its state has ended, after going back.
    calls: u64,
    outputs: Vec<Vec<f32>>,
    /// After the rebind, and at the end.
    owed: [Owed; 2],
    /// The sum of the outputs after the rebind.
    later: Vec<f64>,
}

/// One failure.
struct Trial<'a> {
    codec: &'a Arc<dyn Codec>,
    route: Route,
    hosts: &'a [u32],
    elements: usize,
    victim: u32,
    /// Gets only so many bytes of the victim.
    deprived: u32,
    bytes: u64,
}

/// Calls with `state` until one fails; the outputs of the others.
fn train(comm: &dyn Communicator, state: &mut CompressionState, is_ahead: &AtomicBool) -> Vec<Vec<f32>> {
    let mut outputs = Vec::new();
    loop {
        let call = outputs.len() as u64;
        let given = input(comm.group().own_job_rank().get(), call, state.elements());
        let (mut vector, before) = (given.clone(), owed(state));
        match comm.compressed_all_reduce(&mut vector, ReduceOp::Sum, state) {
            Ok(()) => outputs.push(vector),
            Err(error) => {
                assert!(!matches!(error, Error::NonFinite { .. }), "{error}");
                assert_eq!(bits(&vector), bits(&given), "a failed call leaves the vector");
                assert_eq!(owed(state), before, "a failed call leaves the residuals");
                return outputs;
            }
        }
        assert!(call <= CALLS, "the victim has not stopped");
        if call + 1 >= CALLS {
            is_ahead.store(true, Ordering::SeqCst);
        }
    }
}

impl Trial<'_> {
    /// All ranks; `None` for the victim.
    fn run(&self) -> Vec<Survivor> {
        let is_ahead = Arc::new(AtomicBool::new(false));
        let wrap = |rank, links| {
            let is_ahead = is_ahead.clone();
            let (deprived, bytes) = (self.deprived, self.bytes);
            Tapped::with_tap(
                links,
                Stopper { is_victim: rank == self.victim, deprived, bytes, is_ahead, since: None },
            )
        };
        // A rank that returns leaves: its communicator is dropped.
        let all = in_process::run_on_hosts(self.hosts, &EngineOptions::default(), wrap, |comm| {
            self.rank(&*comm, &is_ahead)
        });
        all.into_iter().flatten().collect()
    }

    /// The number of a rank's debtor. Ranks of one debtor owe together: the debt that one of them has lost is gone, the
    /// others' debts stay among them.
    fn debtor(&self, rank: u32) -> u32 {
        match self.route {
            Route::TwoLevels => self.hosts[rank as usize],
            Route::Direct | Route::SummedCodes => rank,
        }
    }

    /// The debts of all ranks of one debtor for each element.
    fn debts<'o>(&self, debtor: u32, owed: impl Iterator<Item = (u32, &'o Owed)>) -> Vec<f32> {
        let mut debts = vec![0.0; self.elements];
        for (_, owed) in owed.filter(|(rank, _)| self.debtor(*rank) == debtor && *rank != self.victim) {
            // Each element is owed by one of them.
            debts.iter_mut().zip(&owed.worker).for_each(|(debt, own)| *debt += own);
        }
        debts
    }

    fn rank(&self, comm: &dyn Communicator, is_ahead: &AtomicBool) -> Option<Survivor> {
        let rank = comm.group().rank();
        let mut state = state(comm, self.codec, self.elements).by(self.route, comm).unwrap();
        let mut outputs = train(comm, &mut state, is_ahead);
        if rank == self.victim {
            return None;
        }
        let shrunk = comm.shrink().unwrap();
        let rebound = state.rebind(&shrunk).unwrap();
        if rebound.went_back {
            outputs.pop();
        }
        let (calls, after) = (state.calls(), owed(&state));
        let mut later = vec![0.0; self.elements];
        for call in 0..3 {
            let mut vector = input(rank, 100 + call, self.elements);
            shrunk.communicator.compressed_all_reduce(&mut vector, ReduceOp::Sum, &mut state).unwrap();
            later.iter_mut().zip(vector).for_each(|(sum, value)| *sum += f64::from(value));
        }
        Some(Survivor { rank, rebound, calls, outputs, owed: [after, owed(&state)], later })
    }

    /// Survivors have the residuals of ranks without a fault after as many calls, less the lost residuals; and from
    /// there on outputs and residuals add up to the inputs.
    fn judge(&self, survivors: &[Survivor], clean: &[Vec<(Owed, Vec<f32>)>]) {
        let what = format!(
            "{:?} by {}, {} elements, {} bytes to {}",
            self.codec, self.route, self.elements, self.bytes, self.deprived
        );
        let calls = survivors[0].calls;
        let at = &clean[calls as usize];
        let lost = at[self.victim as usize].0.owned.clone();
        let mut expected = vec![0.0f32; self.elements];
        for (owed, _) in at {
            let owned = within(&owed.owned, self.elements);
            if owed.owned != lost && !owed.owner.is_empty() {
                expected[owned.clone()].copy_from_slice(&owed.owner[..owned.len()]);
            }
        }
        for survivor in survivors {
            assert_eq!(survivor.calls, calls, "{what}");
            assert_eq!(survivor.outputs.len() as u64, calls, "{what}");
            for (number, output) in survivor.outputs.iter().enumerate() {
                assert_eq!(*output, clean[number + 1][survivor.rank as usize].1, "{what}: call {number}");
            }
            assert_eq!(survivor.rebound.lost, [JobRank::new(self.victim)], "{what}");
            let is_lost = if lost.is_empty() { vec![] } else { vec![lost.clone()] };
            assert_eq!(survivor.rebound.lost_elements, is_lost, "{what}");
            let [after, _] = &survivor.owed;
            let debtor = self.debtor(survivor.rank);
            let now = self.debts(debtor, survivors.iter().map(|one| (one.rank, &one.owed[0])));
            let before = self.debts(debtor, (0..).zip(at.iter().map(|rank| &rank.0)));
            assert_eq!(now, before, "{what}: rank {}", survivor.rank);
            let owned = within(&after.owned, self.elements);
            if !after.owner.is_empty() {
                assert_eq!(after.owner[..owned.len()], expected[owned], "{what}: rank {}", survivor.rank);
            }
        }
        let total = |moment: usize| {
            let all: Vec<Owed> = survivors.iter().map(|survivor| survivor.owed[moment].clone()).collect();
            total_owed(&all, self.elements)
        };
        let (before, after) = (total(0), total(1));
        for index in (0..self.elements).filter(|_| self.codec.has_feedback()) {
            let given = |survivor: &Survivor| -> f64 {
                (100..103).map(|call| f64::from(input_at(survivor.rank, call, index))).sum()
            };
            let inputs: f64 = survivors.iter().map(given).sum();
            let left = survivors[0].later[index] + after[index] - before[index] - inputs;
            assert!(left.abs() < 1e-4, "{what}: element {index} misses {left}");
        }
        assert!(survivors.iter().all(|one| one.later == survivors[0].later), "{what}: replicas differ");
    }
}

fn tried_codecs() -> [Arc<dyn Codec>; 5] {
    let options = IntOptions { stochastic: Some(1), block: 64, feedback: true, ..IntOptions::default() };
    [
        Arc::new(SignL1::default()),
        Arc::new(SignL1::with_block(64).unwrap()),
        Arc::new(SignRms::deepspeed()),
        Arc::new(Int4::new(options).unwrap()),
        Arc::new(Bf16),
    ]
}

/// The rank that gets only a part of the bytes that the victim sends.
const DEPRIVED: u32 = 1;

/// The number of bytes that a rank sends to that rank in a call: the victim stops at any of them.
fn bytes_of_call(codec: &Arc<dyn Codec>, route: Route, hosts: &[u32], elements: usize, victim: u32) -> u64 {
    let sent = Arc::new(AtomicU64::new(0));
    let wrap = |rank, links| {
        let counter = if rank == victim { sent.clone() } else { Arc::default() };
        Tapped::with_tap(links, Counter { sent: counter, to: Some(DEPRIVED) })
    };
    in_process::run_on_hosts(hosts, &EngineOptions::default(), wrap, |comm| {
        let mut state = state(&*comm, codec, elements).by(route, &*comm).unwrap();
        let mut vector = input(comm.group().rank(), 0, elements);
        comm.compressed_all_reduce(&mut vector, ReduceOp::Sum, &mut state).unwrap();
    });
    sent.load(Ordering::SeqCst)
}

/// The number of trials of a rank that stops at so many points of a call that ended with a rank that went back.
fn trials(codec: &Arc<dyn Codec>, route: Route, hosts: &[u32], elements: usize, points: u64) -> u64 {
    let clean = clean_by(route, hosts, codec, elements, CALLS + 1);
    let victim = hosts.len() as u32 - 1;
    let call = bytes_of_call(codec, route, hosts, elements, victim);
    // Most of a trial is waiting for a goodbye that does not come.
    std::thread::scope(|threads| {
        let trials = (0..points).map(|point| {
            let bytes = 2 * call + (call * point + point) / points;
            let trial = Trial { codec, route, hosts, elements, victim, deprived: DEPRIVED, bytes };
            let clean = &clean;
            threads.spawn(move || {
                let survivors = trial.run();
                trial.judge(&survivors, clean);
                survivors.iter().any(|one| one.rebound.went_back)
            })
        });
        let trials: Vec<_> = trials.collect();
        trials.into_iter().map(|trial| u64::from(trial.join().unwrap())).sum()
    })
}

/// A rank stops at many places of a call, and one of the others misses the bytes that it has not sent: the others may
/// end the call, and go into the next one. Some elements lie in several pieces, some ranks sum nothing.
#[test]
fn survivors_agree_wherever_a_rank_stops() {
    let (mut went_back, mut stayed) = (0, 0);
    for codec in tried_codecs() {
        // Several pieces take time.
        let long_points = if matches!(codec.name(), "sign" | "int4") { 6 } else { 2 };
        for (ranks, elements, points) in [(3, 700, 12), (3, 50_000, long_points), (4, 2, 5)] {
            let backs = trials(&codec, Route::Direct, &vec![0; ranks], elements, points);
            went_back += backs;
            stayed += points - backs;
        }
    }
    assert!(went_back > 10 && stayed > 10, "{went_back} trials in which a rank went back, {stayed} without");
}

/// The same in two levels, where a rank hears of others through one of each host, and by summed codes.
#[test]
fn survivors_agree_by_every_route() {
    let (mut went_back, mut stayed) = (0, 0);
    let int4 = Int4::new(IntOptions { block: 64, feedback: true, ..IntOptions::default() }).unwrap();
    let codecs: [Arc<dyn Codec>; 2] = [Arc::new(int4), Arc::new(SignL1::with_block(64).unwrap())];
    for codec in codecs {
        let mut all = vec![
            (Route::TwoLevels, &[0, 0, 1][..], 700, 8),
            (Route::TwoLevels, &[0, 1, 1], 700, 8),
            (Route::TwoLevels, &[0, 0, 1, 1], 300_000, 3),
        ];
        if codec.summable().is_some() {
            all.extend([
                (Route::SummedCodes, &[0, 0, 0][..], 700, 8),
                (Route::SummedCodes, &[0, 0, 0], 200_000, 3),
            ]);
        }
        for (route, hosts, elements, points) in all {
            let backs = trials(&codec, route, hosts, elements, points);
            went_back += backs;
            stayed += points - backs;
        }
    }
    assert!(went_back > 3 && stayed > 3, "{went_back} trials in which a rank went back, {stayed} without");
}
