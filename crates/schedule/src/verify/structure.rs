//! Checks that need no run: slots, extents and peers exist, and the claimed sizes are right.

use super::case::{Case, Checked};
use super::counterexample::Fault;
use crate::{Action, Layout, Schedule, Slot, Step};

/// Checks that every step of every rank can be carried out.
pub(super) fn check(case: &Case<'_>) -> Checked<()> {
    sizes(case)?;
    for number in case.steps() {
        let (rank, step) = (case.rank_of(number), case.step(number));
        let schedule = &case.schedules[rank as usize];
        let problem = problem(case, schedule, step).or_else(|| {
            let index = case.index_of(number);
            let bad = schedule.dependencies(index).iter().find(|earlier| **earlier >= index)?;
            Some(format!("waits for step {bad}, which is not before it"))
        });
        if let Some(problem) = problem {
            return Err(Fault::Malformed { place: case.place(number), problem });
        }
    }
    Ok(())
}

fn claim(claim: &'static str, claimed: impl ToString, found: impl ToString) -> Fault {
    Fault::Claim { claim, claimed: claimed.to_string(), found: found.to_string() }
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
    let unit = Layout::unit(case.algorithm.collective, &case.shape);
    if case.chunks == 0 || !case.chunks.is_multiple_of(unit) {
        return Err(Fault::ExtentCount { claimed: case.chunks, unit });
    }
    let most = case.schedules.iter().map(|schedule| schedule.scratch_chunks).max().unwrap_or(0);
    match case.algorithm.scratch_chunks_of(&case.shape) {
        Some(claimed) if claimed != most => Err(claim("scratch chunks", claimed, most)),
        _ => Ok(()),
    }
}

fn problem(case: &Case<'_>, schedule: &Schedule, step: &Step) -> Option<String> {
    if step.extent >= case.chunks {
        return Some(format!("names an extent beyond the last, {}", case.chunks - 1));
    }
    if let Some((peer, _)) = step.action.link() {
        if u32::from(peer) >= case.shape.ranks {
            return Some(format!("names a rank beyond the last, {}", case.shape.ranks - 1));
        }
        if u32::from(peer) == schedule.rank {
            return Some("sends to or receives from its own rank".to_owned());
        }
    }
    if matches!(step.action, Action::RecvReduce { .. }) && !case.algorithm.collective.reduces() {
        return Some(format!("reduces, which {} does not", case.algorithm.collective));
    }
    if matches!(step.action, Action::Copy { source, destination } if source == destination) {
        return Some("copies a chunk onto itself".to_owned());
    }
    if step.action.writes() == Some(Slot::Input) {
        return Some("writes the input".to_owned());
    }
    let layout = &case.layouts[schedule.rank as usize];
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
