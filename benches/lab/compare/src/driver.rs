//! The run: configurations, in each some sessions (all systems started anew), in each session rounds over the cells, in
//! each round one turn of every system, with a probe between turns.

use std::collections::BTreeSet;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use unisono_compare::Command;

use crate::arguments::Arguments;
use crate::busy_loops::BusyLoops;
use crate::instance::{Failure, Instance, Surroundings, Watch};
use crate::judge::{Reference, Rounds};
use crate::namespace::Namespace;
use crate::plan::{Cell, Configuration, Scheduling};
use crate::probe::Probe;
use crate::problem::{Problem, Result};
use crate::raw::{Note, Recorder, Row};
use crate::scheduling::{self, InCharge};
use crate::systems::{System, Waiting};

/// A system that sleeps between its turns takes less of a core than this.
const IDLE_SHARE_MAX: f64 = 0.1;
const IDLE_TRIES: u32 = 4;
/// What a system may still do after its start, and how long its idleness is measured.
const SETTLE: Duration = Duration::from_millis(500);
/// A round is not begun in a slow phase; this is how long one waits for a good one.
const PATIENCE: Duration = Duration::from_secs(5);
const BETWEEN_PROBES: Duration = Duration::from_millis(100);
/// Starts that may fail before a system is left out of a configuration.
const START_FAILURES_MAX: u32 = 2;

/// A system in a configuration.
struct Slot<'a> {
    system: &'a System,
    instance: Option<Instance>,
    failed_starts: u32,
    lost: BTreeSet<Cell>,
}

/// One configuration under way.
pub(crate) struct Measurement<'a> {
    arguments: &'a Arguments,
    configuration: Configuration,
    cells: Vec<Cell>,
    slots: Vec<Slot<'a>>,
    around: Surroundings<'a>,
    probe: Probe,
    recorder: &'a mut Recorder,
    reference: Reference,
    session: u32,
}

/// Measures all cells of a configuration.
pub(crate) fn measure(
    arguments: &Arguments,
    configuration: Configuration,
    cells: Vec<Cell>,
    systems: &[&System],
    logs: &Path,
    watch: Watch<'_>,
    recorder: &mut Recorder,
) -> Result<()> {
    let _in_charge = InCharge::take(configuration.scheduling, watch.guard)?;
    let _busy_loops = match configuration.scheduling {
        Scheduling::Busy => Some(BusyLoops::start()?),
        Scheduling::RoundRobin | Scheduling::Plain => None,
    };
    let namespace = Namespace::create(configuration.congestion)?;
    let scheduled = scheduling::entering(configuration.scheduling);
    let hosts = [[namespace.entering(), scheduled.clone()].concat()];
    let slot = |system| Slot { system, instance: None, failed_starts: 0, lost: BTreeSet::new() };
    let mut measurement = Measurement {
        arguments,
        configuration,
        cells,
        slots: systems.iter().map(|system| slot(*system)).collect(),
        around: Surroundings {
            ranks: configuration.ranks,
            hosts: &hosts,
            logs,
            watch,
            start_max: Duration::from_secs(arguments.start_timeout_s),
            turn_max: Duration::from_secs(arguments.turn_timeout_s),
        },
        probe: Probe::start(&scheduled)?,
        reference: Reference::of(&recorder.record.rows),
        recorder,
        session: 0,
    };
    (0..arguments.sessions).try_for_each(|session| measurement.session(session))
}

impl Measurement<'_> {
    fn session(&mut self, session: u32) -> Result<()> {
        self.session = session;
        let mut due = self.due();
        if due.is_empty() {
            return Ok(());
        }
        for index in 0..self.slots.len() {
            self.start(index)?;
        }
        self.measure_idleness()?;
        while !due.is_empty() {
            self.tell_progress(&due);
            for (cell, round) in due {
                self.round(cell, round)?;
            }
            self.reference = Reference::of(&self.recorder.record.rows);
            due = self.due();
        }
        self.stop_all();
        Ok(())
    }

    /// All are told before anybody is waited for.
    fn stop_all(&mut self) {
        self.slots.iter_mut().filter_map(|slot| slot.instance.as_mut()).for_each(Instance::dismiss);
        self.slots.iter_mut().for_each(|slot| slot.instance = None);
    }

    /// The cells that still need good rounds in this session, and the number of the next round of each.
    fn due(&self) -> Vec<(Cell, u32)> {
        let share = |total: u32| (total * (self.session + 1)).div_ceil(self.arguments.sessions);
        let (wanted, at_most) = (share(self.arguments.rounds), share(self.arguments.rounds_max));
        let rows = &self.recorder.record.rows;
        let rounds = self.cells.iter().map(|cell| {
            let rounds = Rounds::of(rows, self.configuration, *cell, &self.reference);
            (*cell, rounds.measured, rounds.good.len() as u32)
        });
        let is_due = |(cell, measured, good): (Cell, u32, u32)| {
            (good < wanted && measured < at_most).then_some((cell, measured))
        };
        rounds.filter_map(is_due).collect()
    }

    fn start(&mut self, index: usize) -> Result<()> {
        let slot = &mut self.slots[index];
        if slot.failed_starts >= START_FAILURES_MAX {
            return Ok(());
        }
        let (name, role) = (slot.system.name.clone(), slot.system.role);
        match Instance::start(slot.system, &self.around)? {
            Ok(instance) => {
                let version = instance.version.clone();
                slot.instance = Some(instance);
                self.recorder.note(Note::System { name, role, version })
            }
            Err(failure) => {
                slot.failed_starts += 1;
                self.recorder.note(Note::System { name, role, version: "did not start".to_owned() })?;
                self.lose(index, None, failure)
            }
        }
    }

    fn lose(&mut self, index: usize, cell: Option<Cell>, failure: Failure) -> Result<()> {
        let slot = &mut self.slots[index];
        slot.instance = None;
        slot.lost.extend(cell);
        let system = slot.system.name.clone();
        let cell_name = cell.map_or_else(|| "all".to_owned(), |cell| cell.to_string());
        eprintln!("{}: {system} lost {cell_name}: {}", self.configuration, failure.0);
        let configuration = self.configuration;
        self.recorder.note(Note::Loss { configuration, system, cell, problem: failure.0.replace('\n', " ") })
    }

    /// Systems that would take CPU time from the others while they wait must be in the table as such.
    fn measure_idleness(&mut self) -> Result<()> {
        let mut shares = self.idle_shares();
        for _ in 1..IDLE_TRIES {
            if shares.iter().all(|(slot, share)| self.may_take(*slot, *share)) {
                break;
            }
            // What a start leaves to be done may take longer than usual.
            shares = self.idle_shares();
        }
        if let Some((slot, share)) = shares.iter().find(|(slot, share)| !self.may_take(*slot, *share)) {
            let name = &self.slots[*slot].system.name;
            let text =
                format!("{name} takes {share:.2} of a core while it waits: the table says that it sleeps");
            return Err(Problem::Refused(text));
        }
        let list: Vec<String> = shares
            .iter()
            .map(|(slot, share)| format!("{} {share:.2}", self.slots[*slot].system.name))
            .collect();
        let name =
            format!("cores taken by waiting systems in {} session {}", self.configuration, self.session);
        self.recorder.note(Note::Fact(name, list.join(" ")))
    }

    fn may_take(&self, slot: usize, share: f64) -> bool {
        match self.slots[slot].system.waiting {
            Waiting::Sleeps => share <= IDLE_SHARE_MAX,
            Waiting::Spins => true,
        }
    }

    /// Of a core, by the index of the slot.
    fn idle_shares(&self) -> Vec<(usize, f64)> {
        thread::sleep(SETTLE);
        let times = || -> Vec<Option<Duration>> {
            self.slots.iter().map(|slot| slot.instance.as_ref().map(Instance::cpu_time)).collect()
        };
        let (start, before) = (Instant::now(), times());
        thread::sleep(SETTLE);
        let (elapsed, after) = (start.elapsed().as_secs_f64(), times());
        let share = |(before, after): (Option<Duration>, Option<Duration>)| {
            Some(after?.saturating_sub(before?).as_secs_f64() / elapsed)
        };
        let shares = before.into_iter().zip(after).map(share).enumerate();
        shares.filter_map(|(slot, share)| Some((slot, share?))).collect()
    }

    fn round(&mut self, cell: Cell, round: u32) -> Result<()> {
        let mut before_us = self.probe_in_good_phase()?;
        for index in order(self.slots.len(), round) {
            if self.slots[index].lost.contains(&cell) || self.slots[index].instance.is_none() {
                continue;
            }
            let outcome = self.turn(index, cell)?;
            let after_us = self.probe.take()?;
            let measured = match outcome {
                Ok(measured) => measured,
                Err(failure) => {
                    self.lose(index, Some(cell), failure)?;
                    self.start(index)?;
                    before_us = self.probe.take()?;
                    continue;
                }
            };
            let mut row = Row {
                configuration: self.configuration,
                round,
                session: self.session,
                system: self.slots[index].system.name.clone(),
                cell,
                measured,
                probe_before_us: before_us,
                probe_after_us: after_us,
                good: true,
            };
            row.good = self.reference.accepts(&row);
            let is_lost = !row.good;
            self.recorder.row(row)?;
            // One bad probe spoils the round: the time is better spent on another one.
            if is_lost {
                break;
            }
            before_us = after_us;
        }
        Ok(())
    }

    fn turn(
        &mut self,
        index: usize,
        cell: Cell,
    ) -> Result<std::result::Result<unisono_compare::Measured, Failure>> {
        self.around.watch.check()?;
        let Arguments { block_us, budget_us, .. } = *self.arguments;
        let command = Command { id: 0, operation: cell.operation, bytes: cell.bytes, block_us, budget_us };
        match &mut self.slots[index].instance {
            Some(instance) => instance.turn(command, &self.around),
            None => Ok(Err(Failure("not started".to_owned()))),
        }
    }

    /// A probe, and if it is bad another one, until one is good or patience ends.
    fn probe_in_good_phase(&mut self) -> Result<f64> {
        let start = Instant::now();
        loop {
            let probe_us = self.probe.take()?;
            let is_good = self.reference.accepts_probe(self.configuration.scheduling, probe_us);
            if is_good || start.elapsed() > PATIENCE {
                return Ok(probe_us);
            }
            self.around.watch.check()?;
            thread::sleep(BETWEEN_PROBES);
        }
    }

    fn tell_progress(&self, due: &[(Cell, u32)]) {
        let (configuration, session) = (self.configuration, self.session + 1);
        let reference = self.reference.us(configuration.scheduling).unwrap_or(f64::NAN);
        let rounds = due.iter().map(|(_, round)| round).max().copied().unwrap_or(0);
        eprintln!(
            "{configuration}: session {session} of {}, {} of {} cells due, at most {rounds} rounds so far, \
             probe reference {reference:.0} us",
            self.arguments.sessions,
            due.len(),
            self.cells.len()
        );
    }
}

impl Drop for Measurement<'_> {
    fn drop(&mut self) {
        self.stop_all();
    }
}

/// The order of turns in a round: rotated by one from round to round, and every second round backwards, so that no
/// system always follows the same other one.
pub(crate) fn order(systems: usize, round: u32) -> Vec<usize> {
    let mut order: Vec<usize> = (0..systems).collect();
    order.rotate_left(round as usize % systems.max(1));
    if round % 2 == 1 {
        order.reverse();
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_system_comes_first_and_follows_different_ones() {
        let systems = 5;
        let rounds = 10;
        let firsts: BTreeSet<usize> = (0..rounds).map(|round| order(systems, round)[0]).collect();
        assert_eq!(firsts.len(), systems);
        let mut before_two = BTreeSet::new();
        for round in 0..rounds {
            let order = order(systems, round);
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 1, 2, 3, 4]);
            let place = order.iter().position(|system| *system == 2).unwrap();
            before_two.extend(place.checked_sub(1).map(|before| order[before]));
        }
        assert_eq!(before_two, BTreeSet::from([1, 3]));
        assert_eq!(order(0, 3), [0; 0]);
    }
}
