//! Matches sends with receives: for each link and direction, the n-th send belongs to the n-th receive.

use super::case::{Case, Checked, StepNumber};
use super::counterexample::Fault;

/// The matched transfers.
pub(crate) struct Matching {
    /// The step at the other end of each step; a copy has none.
    partner: Vec<Option<StepNumber>>,
    /// The sending steps, sorted by link and direction, then in list order.
    sends: Vec<StepNumber>,
    /// The start of each link direction in `sends`, and the end of the last.
    starts: Vec<u32>,
}

impl Matching {
    /// Matches all sends and receives, which must agree in number and in extent.
    pub(crate) fn of(case: &Case<'_>) -> Checked<Matching> {
        let (sends, receives) = (linked(case, true), linked(case, false));
        let mut partner = vec![None; case.steps_len()];
        let mut starts = vec![0];
        let (mut sends_left, mut receives_left) = (&sends[..], &receives[..]);
        while let Some(link) = first_link(sends_left, receives_left) {
            let sent = take_link(&mut sends_left, link);
            let received = take_link(&mut receives_left, link);
            for nth in 0..sent.len().max(received.len()) {
                let step = |steps: &[(Link, StepNumber)]| steps.get(nth).map(|(_, step)| *step);
                match (step(sent), step(received)) {
                    (Some(one), Some(other)) if case.step(one).extent == case.step(other).extent => {
                        partner[one.as_usize()] = Some(other);
                        partner[other.as_usize()] = Some(one);
                    }
                    (one, other) => {
                        let (sent, received) = (one.map(|s| case.place(s)), other.map(|s| case.place(s)));
                        let ((sender, receiver), nth) = (link, nth as u32);
                        return Err(Fault::Unmatched { sender, receiver, nth, sent, received });
                    }
                }
            }
            starts.push((sends.len() - sends_left.len()) as u32);
        }
        Ok(Matching { partner, sends: sends.into_iter().map(|(_, step)| step).collect(), starts })
    }

    /// Whether a step is a send, which stands for its transfer, or a copy.
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

/// A direction of a link: the sending and the receiving rank.
type Link = (u32, u32);

/// All sends, or all receives, sorted by link direction, then in list order.
fn linked(case: &Case<'_>, sends: bool) -> Vec<(Link, StepNumber)> {
    let link_of = |step: StepNumber| {
        let (peer, sent) = case.step(step).action.link()?;
        let (own, peer) = (case.rank_of(step), u32::from(peer));
        (sent == sends).then_some((if sends { (own, peer) } else { (peer, own) }, step))
    };
    let mut linked: Vec<(Link, StepNumber)> = case.steps().filter_map(link_of).collect();
    linked.sort_unstable();
    linked
}

/// The lowest link of two sorted lists.
fn first_link(sends: &[(Link, StepNumber)], receives: &[(Link, StepNumber)]) -> Option<Link> {
    sends.first().into_iter().chain(receives.first()).map(|(link, _)| *link).min()
}

/// Takes the steps of `link` from the front of a sorted list.
fn take_link<'a>(steps: &mut &'a [(Link, StepNumber)], link: Link) -> &'a [(Link, StepNumber)] {
    let (of_link, rest) = steps.split_at(steps.partition_point(|(other, _)| *other <= link));
    *steps = rest;
    of_link
}
