//! The waits of sends and receives: when a thread looks after all of them, and the questions, the warning and the
//! deadline that follow.

use std::time::{Duration, Instant};

use unisono_backend::CallGate;
use unisono_communicator::Result;

use crate::calls::wait::{ASKED_AT_ONCE_MAX, Attention, Due, Wait};
use crate::options::EngineOptions;

use super::PointToPoint;
use super::transfer::WaitingTransfer;

/// The pause between two looks, for each transfer. One look takes a tenth of this for each, so the looks take at most a
/// tenth of the time however many transfers there are.
const PAUSE_PER_TRANSFER: Duration = Duration::from_nanos(500);

/// When to look after the transfers that own their memory.
#[derive(Default)]
pub(super) struct Looks {
    /// When the first of them is due; `None` if there is none.
    due: Option<Instant>,
    /// No look is earlier than this.
    not_before: Option<Instant>,
}

impl Looks {
    /// The time of the next look.
    pub(super) fn next(&self) -> Option<Instant> {
        self.due.max(self.not_before.filter(|_| self.due.is_some()))
    }

    /// A transfer is new at `now`, so it must be looked at.
    pub(super) fn hasten(&mut self, now: Instant) {
        self.due = Some(self.due.map_or(now, |due| due.min(now)));
    }

    /// So many transfers have been looked at; the first of them is due again at `due`.
    fn note(&mut self, now: Instant, transfers: usize, due: Option<Instant>) {
        let pause = PAUSE_PER_TRANSFER * u32::try_from(transfers).unwrap_or(u32::MAX);
        (self.due, self.not_before) = (due, now.checked_add(pause));
    }
}

impl PointToPoint {
    /// Looks after the transfers that own their memory, at `now`, if a look is due: asks the awaited ranks, warns, and
    /// reports a late transfer. For all transfers together it asks few questions and logs one line, until none of the
    /// transfers waits any more that were late then.
    pub(crate) fn look_after_waits(
        &mut self,
        now: Instant,
        gate: &CallGate,
        options: &EngineOptions,
    ) -> Result<()> {
        if self.looks.next().is_none_or(|next| now < next) {
            return Ok(());
        }
        let (mut transfers, mut has_warned) = (0, false);
        self.owned_mut().for_each(|owned| {
            transfers += 1;
            has_warned |= owned.wait.has_warned();
        });
        let (number, mut due_again, mut asked) = (call_asked_about(gate), None, Vec::new());
        for owned in self.owned_mut() {
            let due = owned.wait.look(now, options);
            due_again = [due_again, owned.wait.next()].into_iter().flatten().min();
            match due {
                Due::Nothing => {}
                Due::End => return Err(owned.waiting().late(&owned.wait, gate.peers(), now)),
                Due::Attention(mut due) => {
                    owned.wait.ask_about(number);
                    let waiting = owned.waiting().beside(transfers - 1);
                    let awaited = waiting.awaited();
                    due.asks &= awaited.is_some_and(|peer| !asked.contains(&peer));
                    due.asks &= asked.len() < ASKED_AT_ONCE_MAX;
                    due.warns &= !has_warned;
                    has_warned |= due.warns;
                    asked.extend(awaited.filter(|_| due.asks));
                    pay(due, &mut owned.wait, gate, &waiting, number);
                }
            }
        }
        self.looks.note(now, transfers, due_again);
        Ok(())
    }
}

/// The collective about which an awaited rank is asked: the collective in progress here, or the next. The answer names
/// the call in which that rank is.
pub(crate) fn call_asked_about(gate: &CallGate) -> u64 {
    gate.board().progress().finished()
}

/// Logs a warning and asks the awaited rank, as far as due. A closed rank is not asked: its stream shows all that it
/// has sent.
pub(crate) fn pay(due: Attention, wait: &mut Wait, gate: &CallGate, waiting: &WaitingTransfer, number: u64) {
    let awaited = waiting.awaited();
    let asks = due.asks && awaited.is_some_and(|peer| !gate.board().closings().has_closed(peer));
    wait.pay(Attention { asks, ..due }, gate, waiting, awaited.as_slice(), number);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_transfers_are_looked_at_less_often_and_none_is_forgotten() {
        let (start, mut looks) = (Instant::now(), Looks::default());
        let at = |ns| start + Duration::from_nanos(ns);
        assert_eq!(looks.next(), None);
        looks.hasten(start);
        assert_eq!(looks.next(), Some(start));
        looks.note(start, 100_000, Some(at(1000)));
        assert_eq!(looks.next(), Some(at(50_000_000)));
        looks.hasten(at(10));
        assert_eq!(looks.next(), Some(at(50_000_000)), "a new one waits for the next look");
        looks.note(at(50_000_000), 1, Some(at(90_000_000)));
        assert_eq!(looks.next(), Some(at(90_000_000)));
        looks.hasten(at(60_000_000));
        assert_eq!(looks.next(), Some(at(60_000_000)));
        looks.note(at(60_000_000), 0, None);
        assert_eq!(looks.next(), None);
    }
}
