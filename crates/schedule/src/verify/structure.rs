//! Checks that need no run: slots, extents and peers exist, and the claimed sizes are right.

use super::case::{Case, Checked};
use super::counterexample::{Fault, StepPlace, WrongFigure};
use crate::{Action, Algorithm, Collective, Layout, Schedule, Shape, Slot, Step};

/// Checks that every step of every rank can be carried out.
pub(super) fn check(case: &Case<'_>) -> Checked<()> {
    sizes(case)?;
    let of_rank = case.schedules.iter().zip(&case.layouts);
    let rules = Rules::of(case.algorithm, &case.shape, case.chunks);
    of_rank.into_iter().try_for_each(|(schedule, layout)| rules.check(schedule, layout))
}

/// As [`check`] for one rank, without the schedules of the others.
pub(crate) fn check_structure(algorithm: &Algorithm, shape: &Shape, schedule: &Schedule) -> Checked<()> {
    let (collective, chunks) = (algorithm.collective, algorithm.chunks_of(shape));
    extents(collective, shape, chunks)?;
    let layout = Layout::new(collective, shape, schedule.rank, chunks);
    Rules::of(algorithm, shape, chunks).check(schedule, &layout)
}

/// The limits that hold for the steps of any rank.
struct Rules {
    collective: Collective,
    ranks: u32,
    chunks: u32,
    /// Whether a rank knows the length of every extent, not only of extents that it sends or receives for itself.
    knows_all_lengths: bool,
}

fn claim(figure: &'static str, claimed: impl ToString, counted: impl ToString) -> Fault {
    let (claimed, counted) = (claimed.to_string(), counted.to_string());
    Fault::Claim { figures: vec![WrongFigure { figure, claimed, counted }] }
}

fn sizes(case: &Case<'_>) -> Checked<()> {
    if case.schedules.len() != case.shape.ranks as usize {
        return Err(Fault::ScheduleCount { ranks: case.shape.ranks, schedules: case.schedules.len() });
    }
    for (rank, schedule) in (0..).zip(case.schedules) {
        if schedule.rank != rank {
            return Err(Fault::WrongRank { rank, found: schedule.rank });
        }
        if schedule.chunks != case.chunks {
            return Err(claim("extents", case.chunks, schedule.chunks));
        }
    }
    extents(case.algorithm.collective, &case.shape, case.chunks)?;
    let most = case.schedules.iter().map(|schedule| schedule.scratch_chunks).max().unwrap_or(0);
    match case.algorithm.scratch_chunks_of(&case.shape) {
        Some(claimed) if claimed != most => Err(claim("scratch chunks", claimed, most)),
        _ => Ok(()),
    }
}

fn extents(collective: Collective, shape: &Shape, claimed: u32) -> Checked<()> {
    let unit = Layout::unit(collective, shape);
    if claimed == 0 || !claimed.is_multiple_of(unit) {
        Err(Fault::ExtentCount { claimed, unit })
    } else {
        Ok(())
    }
}

impl Rules {
    fn of(algorithm: &Algorithm, shape: &Shape, chunks: u32) -> Rules {
        let collective = algorithm.collective;
        // In other collectives every rank has the counts of all.
        let knows_all_lengths = algorithm.requires.even_counts || collective != Collective::AllToAll;
        Rules { collective, ranks: shape.ranks, chunks, knows_all_lengths }
    }

    fn check(&self, schedule: &Schedule, layout: &Layout) -> Checked<()> {
        for (index, step) in schedule.indexed() {
            let early = || {
                let bad = schedule.dependencies(index).iter().find(|earlier| **earlier >= index)?;
                Some(format!("waits for step {bad}, which is not before it"))
            };
            if let Some(problem) = self.problem(schedule, layout, step).or_else(early) {
                let place = StepPlace { rank: schedule.rank, index, step: *step };
                return Err(Fault::Malformed { place, problem });
            }
        }
        Ok(())
    }

    fn problem(&self, schedule: &Schedule, layout: &Layout, step: &Step) -> Option<String> {
        if step.extent >= self.chunks {
            return Some(format!("names an extent beyond the last, {}", self.chunks - 1));
        }
        if let Some((peer, _)) = step.action.link() {
            if u32::from(peer) >= self.ranks {
                return Some(format!("names a rank beyond the last, {}", self.ranks - 1));
            }
            if u32::from(peer) == schedule.rank {
                return Some("sends to or receives from its own rank".to_owned());
            }
        }
        if matches!(step.action, Action::RecvReduce { .. }) && !self.collective.reduces() {
            return Some(format!("reduces, which {} does not", self.collective));
        }
        if matches!(step.action, Action::Copy { source, destination } if source == destination) {
            return Some("copies a chunk onto itself".to_owned());
        }
        if step.action.writes() == Some(Slot::Input) {
            return Some("writes the input".to_owned());
        }
        let is_own = layout.input(step.extent).is_some() || layout.output(step.extent).is_some();
        if !self.knows_all_lengths && !is_own {
            let part = step.extent / (self.chunks / (self.ranks * self.ranks));
            return Some(format!(
                "passes on what rank {} sends to rank {}; only with even counts, which the algorithm does not require, \
                 this rank knows its length",
                part / self.ranks,
                part % self.ranks
            ));
        }
        let slots = [step.action.reads(), step.action.writes()];
        slots.into_iter().flatten().find_map(|slot| match slot {
            Slot::Input if layout.input(step.extent).is_none() => {
                Some("reads an input that it does not hold".into())
            }
            Slot::Output if layout.output(step.extent).is_none() => {
                Some("uses an output that it does not hold".into())
            }
            Slot::Scratch(scratch) if scratch >= schedule.scratch_chunks => {
                Some(format!("uses scratch chunk {scratch} of {}", schedule.scratch_chunks))
            }
            _ => None,
        })
    }
}
