//! Matches sends with receives: for each link and direction, the n-th receive takes what the n-th send sends.

use super::case::{Case, Checked, StepNumber};
use super::counterexample::Fault;

/// The matched transfers.
pub(crate) struct Matching {
    /// The step at the other end of each step; a copy has none.
    partner: Vec<Option<StepNumber>>,
    /// The sending steps, sorted by link and direction, then in list order.
    sends: Vec<StepNumber>,
    /// The start of each link and direction in `sends`, and the end of the last.
    starts: Vec<u32>,
}

impl Matching {
    /// Matches all sends and receives, which must agree in number and in extent.
    pub(crate) fn of(case: &Case<'_>) -> Checked<Matching> {
        let (sends, receives) = (Grouped::new(case, true), Grouped::new(case, false));
        let mut partner = vec![None; case.steps_len()];
        for sender in 0..sends.ranks {
            for receiver in 0..sends.ranks {
                let (sent, received) = (sends.of(sender, receiver), receives.of(receiver, sender));
                for nth in 0..sent.len().max(received.len()) {
                    let pair = (sent.get(nth).copied(), received.get(nth).copied());
                    match pair {
                        (Some(one), Some(other)) if case.step(one).extent == case.step(other).extent => {
                            partner[one.as_usize()] = Some(other);
                            partner[other.as_usize()] = Some(one);
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

    /// Whether a step is a send or a copy. A send represents its whole transfer.
    pub(super) fn begins(&self, case: &Case<'_>, step: StepNumber) -> bool {
        case.step(step).action.link().is_none_or(|(_, sends)| sends)
    }

    /// The step at the other end; a copy has none.
    pub(crate) fn partner(&self, step: StepNumber) -> Option<StepNumber> {
        self.partner[step.as_usize()]
    }

    /// The sending steps of each link and direction, in list order.
    pub(super) fn links(&self) -> impl Iterator<Item = &[StepNumber]> {
        self.starts.windows(2).map(|link| &self.sends[link[0] as usize..link[1] as usize])
    }
}

/// The steps of one kind, by rank and peer, each group in list order.
struct Grouped {
    ranks: usize,
    starts: Vec<u32>,
    steps: Vec<StepNumber>,
}

impl Grouped {
    fn new(case: &Case<'_>, sends: bool) -> Self {
        let ranks = case.shape.ranks as usize;
        let key = |step: StepNumber| {
            let (peer, sent) = case.step(step).action.link()?;
            (sent == sends).then(|| case.rank_of(step) as usize * ranks + usize::from(peer))
        };
        let mut starts = vec![0_u32; ranks * ranks + 1];
        for group in case.steps().filter_map(key) {
            starts[group + 1] += 1;
        }
        for group in 0..ranks * ranks {
            starts[group + 1] += starts[group];
        }
        let mut next = starts.clone();
        let mut steps = vec![StepNumber::FIRST; starts[ranks * ranks] as usize];
        for step in case.steps() {
            if let Some(group) = key(step) {
                steps[next[group] as usize] = step;
                next[group] += 1;
            }
        }
        Self { ranks, starts, steps }
    }

    fn of(&self, rank: usize, peer: usize) -> &[StepNumber] {
        let group = rank * self.ranks + peer;
        &self.steps[self.starts[group] as usize..self.starts[group + 1] as usize]
    }
}
