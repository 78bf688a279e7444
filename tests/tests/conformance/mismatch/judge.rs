//! What must be true of the reports of all ranks about one deviation, and the counts of what is not.

use std::fmt;

use unisono_communicator::{CallInfo, Collective, Descriptor, Error, Place, ReduceOp, Result};

use super::cases::Deviation;

/// The number of the deviating call: one good call precedes it.
pub(crate) const DEVIATING: u64 = 1;

/// What one rank got.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// From the good call before.
    pub(crate) first: Result<()>,
    /// From the deviating call.
    pub(crate) call: Result<()>,
    /// From the good call after it.
    pub(crate) next: Result<()>,
    /// From closing.
    pub(crate) close: Result<()>,
}

/// What was counted over all cases.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) cases: usize,
    /// Ranks that learnt of it in the deviating call, in the next, and when they closed.
    pub(crate) in_call: usize,
    pub(crate) in_next: usize,
    pub(crate) at_close: usize,
    /// Reports by a header alone, because the rank that sent it was too busy to say more in time: without the place of
    /// its call in the program, or with the good call that followed in place of the deviating one.
    pub(crate) poor: Vec<String>,
    /// Everything that is wrong, with its case.
    pub(crate) faults: Vec<String>,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} cases; ranks that learnt of it in the call {}, in the next {}, at close {}; reports by a header alone \
             {}; faults {}",
            self.cases,
            self.in_call,
            self.in_next,
            self.at_close,
            self.poor.len(),
            self.faults.len()
        )
    }
}

impl Tally {
    /// Judges the outcomes of all ranks.
    pub(crate) fn take(&mut self, deviation: &Deviation, outcomes: &[&Outcome], lines: [u32; 2]) {
        self.cases += 1;
        for (rank, outcome) in outcomes.iter().enumerate() {
            let rank = rank as u32;
            if let Err(error) = &outcome.first {
                self.fault(deviation, rank, format!("the call before failed: {error}"));
            }
            let error = match (&outcome.call, &outcome.next, &outcome.close) {
                (Err(error), ..) => {
                    self.in_call += 1;
                    if outcome.next.is_ok() || outcome.close.is_ok() {
                        self.fault(deviation, rank, "a call succeeded after the mismatch".to_owned());
                    }
                    error
                }
                (_, Err(error), _) => {
                    self.in_next += 1;
                    error
                }
                (.., Err(error)) => {
                    self.at_close += 1;
                    error
                }
                (Ok(()), Ok(()), Ok(())) => {
                    self.fault(deviation, rank, "never learnt of it".to_owned());
                    continue;
                }
            };
            self.report(deviation, rank, error, lines);
        }
    }

    fn fault(&mut self, deviation: &Deviation, rank: u32, text: String) {
        self.faults.push(format!("{}: rank {rank}: {text}", deviation.title()));
    }

    fn report(&mut self, deviation: &Deviation, rank: u32, error: &Error, lines: [u32; 2]) {
        let Error::Mismatch { calls, difference } = error else {
            return self.fault(deviation, rank, format!("is told of something else: {error}"));
        };
        let [(finder, ours), (peer, theirs)] = &**calls;
        let (finder, peer) = (finder.get(), peer.get());
        if finder == peer || ![finder, peer].contains(&deviation.odd_rank) {
            return self.fault(deviation, rank, format!("the wrong pair is named: {error}"));
        }
        for (call, of) in [(ours, finder), (theirs, peer)] {
            if let Err(problem) = check_call(deviation, call, of, lines) {
                self.fault(deviation, rank, format!("{problem}: {error}"));
            }
        }
        let is_by_next = [ours, theirs].iter().any(|call| call.number != DEVIATING);
        if is_by_next || ours.site.is_none() || theirs.site.is_none() {
            self.poor.push(format!("{}: rank {rank}: {error}", deviation.title()));
        }
        if !is_by_next && let Some(name) = deviation.names().find(|name| !difference.contains(name)) {
            self.fault(deviation, rank, format!("{name} is not named: {error}"));
        }
    }
}

/// Whether `call` is the one that rank `of` made, as far as it is the deviating one.
fn check_call(deviation: &Deviation, call: &CallInfo, of: u32, lines: [u32; 2]) -> Result<(), String> {
    if call.number != DEVIATING {
        return match call.number {
            number if number == DEVIATING + 1 => Ok(()),
            number => Err(format!("there is no call {number}")),
        };
    }
    let is_odd = of == deviation.odd_rank;
    let case = if is_odd { &deviation.odd } else { &deviation.usual };
    let made = case.descriptor(of, deviation.ranks);
    if compared(&call.descriptor) != compared(&made) {
        return Err(format!("rank {of} called {made}"));
    }
    match &call.site {
        Some(site) if site.line != lines[usize::from(is_odd)] => {
            Err(format!("rank {of} did not call at {site}"))
        }
        Some(_) | None => Ok(()),
    }
}

/// The fields that two ranks compare, as far as a header tells them.
fn compared(descriptor: &Descriptor) -> impl PartialEq + use<> {
    let has_place = !descriptor.operation.collective().is_some_and(Collective::is_rooted);
    (
        (descriptor.operation, descriptor.dtype, descriptor.root, descriptor.uneven),
        if descriptor.uneven { 0 } else { descriptor.count },
        descriptor.op.map(ReduceOp::code),
        has_place && descriptor.place == Place::InPlace,
        descriptor.label.is_some(),
    )
}
