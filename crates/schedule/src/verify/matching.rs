//! Which receive takes what a send sends: per link and direction the n-th takes the n-th.

use super::case::{Case, Checked};
use super::counterexample::Fault;

/// A step without a partner: a copy.
pub(super) const ALONE: u32 = u32::MAX;

/// The matched transfers.
pub(super) struct Matching {
    /// The step at the other end of each step, or [`ALONE`].
    pub(super) partner: Vec<u32>,
    /// The sending steps, those of one link and direction next to each other and in list order.
    pub(super) sends: Vec<u32>,
    /// Where in `sends` each link and direction begins, and the end.
    pub(super) starts: Vec<u32>,
}

impl Matching {
    /// Whether a step is a send or a copy: those stand for themselves and the step at the other end.
    pub(super) fn begins(&self, case: &Case<'_>, step: u32) -> bool {
        case.step(step).action.link().is_none_or(|(_, sends)| sends)
    }
}

/// The steps of one kind, by rank and peer, each group in list order.
struct Grouped {
    ranks: usize,
    starts: Vec<u32>,
    steps: Vec<u32>,
}

impl Grouped {
    fn new(case: &Case<'_>, sends: bool) -> Self {
        let ranks = case.shape.ranks as usize;
        let key = |step: u32| {
            let (peer, sent) = case.step(step).action.link()?;
            (sent == sends).then(|| case.rank_of(step) as usize * ranks + usize::from(peer))
        };
        let mut starts = vec![0_u32; ranks * ranks + 1];
        for group in (0..case.steps()).filter_map(key) {
            starts[group + 1] += 1;
        }
        for group in 0..ranks * ranks {
            starts[group + 1] += starts[group];
        }
        let mut next = starts.clone();
        let mut steps = vec![0; starts[ranks * ranks] as usize];
        for step in 0..case.steps() {
            if let Some(group) = key(step) {
                steps[next[group] as usize] = step;
                next[group] += 1;
            }
        }
        Self { ranks, starts, steps }
    }

    fn of(&self, rank: usize, peer: usize) -> &[u32] {
        let group = rank * self.ranks + peer;
        &self.steps[self.starts[group] as usize..self.starts[group + 1] as usize]
    }
}

/// Matches all sends and receives, which must agree in number and in extent.
pub(super) fn check(case: &Case<'_>) -> Checked<Matching> {
    let (sends, receives) = (Grouped::new(case, true), Grouped::new(case, false));
    let mut partner = vec![ALONE; case.steps() as usize];
    for sender in 0..sends.ranks {
        for receiver in 0..sends.ranks {
            let (sent, received) = (sends.of(sender, receiver), receives.of(receiver, sender));
            for nth in 0..sent.len().max(received.len()) {
                let pair = (sent.get(nth).copied(), received.get(nth).copied());
                match pair {
                    (Some(one), Some(other)) if case.step(one).extent == case.step(other).extent => {
                        partner[one as usize] = other;
                        partner[other as usize] = one;
                    }
                    (one, other) => {
                        let (sent, received) = (one.map(|s| case.place(s)), other.map(|s| case.place(s)));
                        let (sender, receiver, nth) = (sender as u32, receiver as u32, nth as u32);
                        return Err(Fault::Unmatched { sender, receiver, nth, sent, received });
                    }
                }
            }
        }
    }
    let mut starts = sends.starts;
    starts.dedup();
    Ok(Matching { partner, sends: sends.steps, starts })
}
