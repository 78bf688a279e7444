//! Counts the cost of schedules, and checks that every rank of a barrier has heard of all others.

use super::case::{Case, Checked, StepNumber};
use super::counterexample::{Fault, WrongFigure};
use super::graph::Order;
use super::matching::Matching;
use crate::{Action, Cost, Fraction, Totals};

/// Counts the steps of every rank, and takes the maximum of each figure.
pub(super) fn cost(case: &Case<'_>, matching: &Matching, order: &Order) -> Cost {
    let width = u64::from(case.layouts[0].width());
    let (mut messages, mut peers, mut most, mut all) = (0, 0, [0_u64; 3], [0_u64; 3]);
    let mut all_messages = 0;
    let mut met_by = vec![u32::MAX; case.shape.ranks as usize];
    for schedule in case.schedules {
        let (mut chunks, mut met) = ([0_u64; 3], 0);
        // Runs of consecutive sends, and of consecutive receives, with one peer.
        let (mut runs, mut last) = ([0_u64; 2], None);
        for step in &schedule.steps {
            let link = step.action.link();
            if let Some((peer, sends)) = link {
                let new = std::mem::replace(&mut met_by[usize::from(peer)], schedule.rank) != schedule.rank;
                met += u64::from(new);
                chunks[usize::from(!sends)] += 1;
                runs[usize::from(!sends)] += u64::from(last != link);
            }
            chunks[2] += u64::from(matches!(step.action, Action::RecvReduce { .. }));
            last = link;
        }
        messages = messages.max(runs[0] + runs[1]);
        peers = peers.max(met);
        all_messages += runs[0];
        all = std::array::from_fn(|kind| all[kind] + chunks[kind]);
        most = std::array::from_fn(|kind| most[kind].max(chunks[kind]));
    }
    let [all_sent, _, all_reduced] = all.map(|count| Fraction::new(count, width.max(1)));
    let all = Totals { messages: all_messages, sent: all_sent, reduced: all_reduced };
    let [sent, received, reduced] = most.map(|count| Fraction::new(count, width.max(1)));
    Cost { rounds: rounds(case, matching, order), messages, peers, sent, received, reduced, all }
}

/// A fault that lists the figures in which claim and count differ.
pub(super) fn difference(claimed: &Cost, counted: &Cost) -> Option<Fault> {
    let figures = |cost: &Cost| {
        let Cost { rounds, messages, peers, sent, received, reduced, all } = cost;
        [
            ("rounds", rounds.to_string()),
            ("messages", messages.to_string()),
            ("peers", peers.to_string()),
            ("sent", sent.to_string()),
            ("received", received.to_string()),
            ("reduced", reduced.to_string()),
            ("messages of all ranks", all.messages.to_string()),
            ("sent by all ranks", all.sent.to_string()),
            ("reduced by all ranks", all.reduced.to_string()),
        ]
    };
    let pairs = figures(claimed).into_iter().zip(figures(counted));
    let wrong: Vec<WrongFigure> = pairs
        .filter(|(claimed, counted)| claimed != counted)
        .map(|((figure, claimed), (_, counted))| WrongFigure { figure, claimed, counted })
        .collect();
    (!wrong.is_empty()).then_some(Fault::Claim { figures: wrong })
}

/// Visits steps and their partners in an order in which they can run. Within a group, sends come before receives.
fn steps_in_order(matching: &Matching, order: &Order, mut step: impl FnMut(StepNumber)) {
    for steps in order.groups() {
        steps.iter().for_each(|number| step(*number));
        steps.iter().filter_map(|number| matching.partner(*number)).for_each(&mut step);
    }
}

/// The longest chain of messages in which each is sent after the previous one was received.
fn rounds(case: &Case<'_>, matching: &Matching, order: &Order) -> u64 {
    let mut depth = vec![0_u64; case.steps_len()];
    steps_in_order(matching, order, |step| {
        let earlier = case.dependencies(step).map(|earlier| depth[earlier.as_usize()]);
        let mut most = earlier.max().unwrap_or(0);
        if let Some(send) = matching.partner(step).filter(|_| !matching.begins(case, step)) {
            most = most.max(depth[send.as_usize()] + 1);
        }
        depth[step.as_usize()] = most;
    });
    depth.into_iter().max().unwrap_or(0)
}

/// Checks that every rank of a barrier has heard of all others, directly or through other ranks, before it leaves.
pub(super) fn barrier(case: &Case<'_>, matching: &Matching, order: &Order) -> Checked<()> {
    let ranks = case.shape.ranks as usize;
    let words = ranks.div_ceil(64);
    let mut heard = vec![0_u64; words * case.steps_len()];
    let merge = |sets: &mut Vec<u64>, into: StepNumber, from: StepNumber| {
        for word in 0..words {
            sets[into.as_usize() * words + word] |= sets[from.as_usize() * words + word];
        }
    };
    steps_in_order(matching, order, |step| {
        let rank = case.rank_of(step);
        heard[step.as_usize() * words + rank as usize / 64] |= 1 << (rank % 64);
        for earlier in case.dependencies(step) {
            merge(&mut heard, step, earlier);
        }
        // A send proves nothing about its receiver: the token may still be on the link.
        if let Some(send) = matching.partner(step).filter(|_| !matching.begins(case, step)) {
            merge(&mut heard, step, send);
        }
    });
    for rank in 0..case.shape.ranks {
        let mut all = vec![0_u64; words];
        for step in case.steps().filter(|step| case.rank_of(*step) == rank) {
            for word in 0..words {
                all[word] |= heard[step.as_usize() * words + word];
            }
        }
        let hears = |other: u32| other == rank || all[other as usize / 64] >> (other % 64) & 1 == 1;
        let unheard: Vec<u32> = (0..case.shape.ranks).filter(|other| !hears(*other)).collect();
        if !unheard.is_empty() {
            return Err(Fault::Leaves { rank, unheard });
        }
    }
    Ok(())
}
