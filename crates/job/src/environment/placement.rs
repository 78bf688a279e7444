//! Our rank and the number of ranks, on this host and altogether; the refusal of rows that contradict each other.

use unisono_communicator::{Error, Result};
use unisono_control::RANKS_MAX;

use super::rows::{LAUNCHERS, Launcher, LauncherRow, Sourced, first, foreign};
use super::slurm;
use crate::settings::{Source, configuration, knobs, parse};

/// The place of this process in the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Nothing says that there are others.
    Solo,
    /// One of several.
    Ranked {
        /// Our rank, from 0.
        rank: u32,
        /// The number of ranks.
        world_size: u32,
        /// Our place on this host, if it is known.
        local_rank: Option<u32>,
        /// The number of ranks on this host, if it is known.
        local_world_size: Option<u32>,
        /// The launcher that said so.
        launcher: Launcher,
    },
}

impl Placement {
    /// Our rank.
    pub fn rank(&self) -> u32 {
        match self {
            Placement::Solo => 0,
            Placement::Ranked { rank, .. } => *rank,
        }
    }

    /// The number of ranks.
    pub fn world_size(&self) -> u32 {
        match self {
            Placement::Solo => 1,
            Placement::Ranked { world_size, .. } => *world_size,
        }
    }

    /// Our place on this host, from 0, if it is known.
    pub fn local_rank(&self) -> Option<u32> {
        match self {
            Placement::Solo => Some(0),
            Placement::Ranked { local_rank, .. } => *local_rank,
        }
    }
}

/// Our rank and the sizes, each with its source.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Numbers {
    /// Our rank.
    pub rank: Sourced<u32>,
    /// The number of ranks.
    pub world_size: Sourced<u32>,
    /// Our place on this host, if it is known.
    pub local_rank: Option<Sourced<u32>>,
    /// The number of ranks on this host, if it is known.
    pub local_world_size: Option<Sourced<u32>>,
    /// The place of this host among the hosts, if DeepSpeed's launcher or a setting says it.
    pub cross_rank: Option<Sourced<u32>>,
    /// The number of hosts, the same.
    pub cross_size: Option<Sourced<u32>>,
}

impl Numbers {
    /// Of a process that is alone.
    pub(super) fn alone() -> Numbers {
        let number = |value| Sourced { value, source: "no variable says that there are others".to_owned() };
        Numbers {
            rank: number(0),
            world_size: number(1),
            local_rank: Some(number(0)),
            local_world_size: Some(number(1)),
            cross_rank: None,
            cross_size: None,
        }
    }

    /// Whether it is known that all ranks are on this host.
    pub(super) fn are_of_one_host(&self) -> bool {
        self.local_world_size.as_ref().is_some_and(|local| local.value == self.world_size.value)
    }
}

/// A number that may not be said.
type MaybeNumber = Option<Sourced<u32>>;

/// The numbers of a launcher's row.
#[derive(Clone, Debug)]
pub(super) struct Ranked {
    pub(super) launcher: Launcher,
    pub(super) numbers: Numbers,
}

impl Ranked {
    pub(super) fn placement(&self) -> Placement {
        let value = |number: &Option<Sourced<u32>>| number.as_ref().map(|number| number.value);
        Placement::Ranked {
            rank: self.numbers.rank.value,
            world_size: self.numbers.world_size.value,
            local_rank: value(&self.numbers.local_rank),
            local_world_size: value(&self.numbers.local_world_size),
            launcher: self.launcher,
        }
    }
}

/// A whole number in this range; `because` says where its limits are from.
fn number(
    source: &Source<'_>,
    names: &[&str],
    (least, most): (u32, u32),
    because: &str,
) -> Result<Option<Sourced<u32>>> {
    let problem = format!("a whole number from {least} to {most} is needed{because}");
    let checked = |(name, value): (String, String)| -> Result<Sourced<u32>> {
        let fits = |number: &u32| (least..=most).contains(number);
        Ok(Sourced { value: parse(&name, &value, &problem, fits)?, source: name })
    };
    first(source, names).map(checked).transpose()
}

/// Whether a row is set, and means us.
pub(super) fn counts(source: &Source<'_>, row: &LauncherRow) -> bool {
    let is_ours = match row.launcher {
        Launcher::Slurm => slurm::step(source).is_some(),
        Launcher::Pmi => !slurm::is_of_srun(source, row),
        Launcher::Named | Launcher::OpenMpi | Launcher::Mvapich | Launcher::Pmix => true,
    };
    is_ours && first(source, row.rank).is_some()
}

/// The row of the process manager that has started this process, even if other names are set besides.
pub(super) fn manager(source: &Source<'_>) -> Option<&'static LauncherRow> {
    LAUNCHERS.iter().find(|row| row.launcher != Launcher::Named && counts(source, row))
}

/// The placement of this process; `None` for a process that is alone.
pub(super) fn ranked(source: &Source<'_>) -> Result<Option<Ranked>> {
    let Some(row) = LAUNCHERS.iter().find(|row| counts(source, row)) else {
        return check_without_rank(source).map(|()| None);
    };
    let Some((name, value)) = first(source, row.rank) else { return Ok(None) };
    let Some(world_size) = number(source, row.world_size, (1, RANKS_MAX), "")? else {
        let also = knobs().find(|knob| knob.name == row.world_size[0]).map_or(&[][..], |knob| knob.also);
        let names = [&row.world_size[..1], also].concat().join(" or ");
        return Err(configuration(&name, &value, format!("the world size is missing: set {names}")));
    };
    let (size, by) = (world_size.value, &world_size.source);
    let because = format!(": {by} is {size}");
    let Some(rank) = number(source, row.rank, (0, size - 1), &because)? else { return Ok(None) };
    check_others(source, row, (rank.value, size))?;
    let (cross_rank, cross_size) = match row.launcher {
        Launcher::Named => hosts(source, &world_size)?,
        Launcher::OpenMpi | Launcher::Mvapich | Launcher::Pmi | Launcher::Pmix | Launcher::Slurm => {
            (None, None)
        }
    };
    let told = number(source, row.local_world_size, (1, size), &because)?;
    check_hosts(told.as_ref(), cross_size.as_ref(), &world_size)?;
    let all = || Some(Sourced { value: size, source: one_host(source, row, cross_size.as_ref())? });
    let local_world_size = told.or_else(all);
    let (most, because) = match &local_world_size {
        Some(local) => (local.value, format!(": by {} {} ranks are on this host", local.source, local.value)),
        None => (size, because),
    };
    let local_rank = number(source, row.local_rank, (0, most - 1), &because)?;
    let numbers = Numbers { rank, world_size, local_rank, local_world_size, cross_rank, cross_size };
    Ok(Some(Ranked { launcher: row.launcher, numbers }))
}

/// A process without a rank is alone, if nothing says that it is one of several. Its other numbers mean nothing, and a
/// value that is no number is wrong all the same.
fn check_without_rank(source: &Source<'_>) -> Result<()> {
    for (name, least) in [
        ("UNISONO_LOCAL_RANK", 0),
        ("UNISONO_LOCAL_WORLD_SIZE", 1),
        ("UNISONO_CROSS_RANK", 0),
        ("UNISONO_CROSS_SIZE", 1),
    ] {
        number(source, &[name], (least, RANKS_MAX - 1 + least), "")?;
    }
    match source.find("UNISONO_WORLD_SIZE") {
        Some((name, value)) if value.trim() != "1" => {
            Err(configuration(&name, &value, "the rank is missing: set UNISONO_RANK or RANK, from 0"))
        }
        _ => Ok(()),
    }
}

/// The place of this host among the hosts, and their number, as DeepSpeed's launcher says them. torchrun sets neither,
/// so in its ranks they are left over from a DeepSpeed around it.
fn hosts(source: &Source<'_>, world_size: &Sourced<u32>) -> Result<(MaybeNumber, MaybeNumber)> {
    let is_of_torchrun = foreign(source, "TORCHELASTIC_RUN_ID").is_some();
    let is_ours = |name: &str| source.find(name).is_some_and(|(variable, _)| variable == name);
    if is_of_torchrun && !is_ours("UNISONO_CROSS_SIZE") && !is_ours("UNISONO_CROSS_RANK") {
        return Ok((None, None));
    }
    let because = |limit: &Sourced<u32>| format!(": {} is {}", limit.source, limit.value);
    let count = number(source, &["UNISONO_CROSS_SIZE"], (1, world_size.value), &because(world_size))?;
    let limit = count.as_ref().unwrap_or(world_size);
    let place = number(source, &["UNISONO_CROSS_RANK"], (0, limit.value - 1), &because(limit))?;
    Ok((place, count))
}

/// Each host has a rank; so the hosts besides this one leave it at most the ranks beyond one each.
fn check_hosts(
    local: Option<&Sourced<u32>>,
    hosts: Option<&Sourced<u32>>,
    world_size: &Sourced<u32>,
) -> Result<()> {
    let (Some(local), Some(hosts)) = (local, hosts) else { return Ok(()) };
    let fits = match hosts.value {
        1 => local.value == world_size.value,
        several => local.value <= world_size.value - (several - 1),
    };
    if fits {
        return Ok(());
    }
    let problem = format!(
        "it contradicts {}={} with {}={}: unset whichever is left over",
        local.source, local.value, world_size.source, world_size.value
    );
    Err(configuration(&hosts.source, &hosts.value.to_string(), problem))
}

/// The variable that says that all ranks are on this host, where no variable says how many are.
fn one_host(source: &Source<'_>, row: &LauncherRow, cross_size: Option<&Sourced<u32>>) -> Option<String> {
    match row.launcher {
        Launcher::Named => cross_size.filter(|hosts| hosts.value == 1).map(|hosts| hosts.source.clone()),
        Launcher::Slurm | Launcher::Pmix => slurm::one_host(source),
        Launcher::OpenMpi | Launcher::Mvapich | Launcher::Pmi => None,
    }
}

/// The variables of launchers that are themselves started by others, in the environment of a rank: torchrun, DeepSpeed,
/// ours.
pub(super) const NESTING: [&str; 3] = ["TORCHELASTIC_RUN_ID", "CROSS_SIZE", "UNISONO_STORE"];

/// Refuses a row that contradicts the counting row, which says `(rank, size)`.
fn check_others(source: &Source<'_>, row: &LauncherRow, (rank, size): (u32, u32)) -> Result<()> {
    let is_named = row.launcher == Launcher::Named;
    let is_other = |other: &&LauncherRow| match other.launcher {
        Launcher::Named => false,
        // In a step of srun, Slurm says the same with a size.
        Launcher::Pmix => is_named && slurm::step(source).is_none() && counts(source, other),
        Launcher::Slurm => is_named && counts(source, other),
        Launcher::OpenMpi | Launcher::Mvapich | Launcher::Pmi => {
            other.launcher != row.launcher && counts(source, other)
        }
    };
    let Some(other) = LAUNCHERS.iter().find(is_other) else { return Ok(()) };
    // Another PMIx server says no size outside of Slurm.
    let size_of =
        |row: &LauncherRow| first(source, row.world_size).filter(|_| row.launcher != Launcher::Pmix);
    let told = |row: &LauncherRow| Some((first(source, row.rank)?, size_of(row)));
    let (Some((own_rank, Some(own_size))), Some((other_rank, other_size))) = (told(row), told(other)) else {
        return Ok(());
    };
    let is_marked = is_named && NESTING.iter().any(|name| foreign(source, name).is_some());
    let other_number = other_rank.1.trim().parse::<u32>();
    let is_nested = match other_size.as_ref().map(|(_, size)| size.trim().parse::<u32>()) {
        // Two ranks of several with one number notice each other. A world of one notices nobody.
        None => size > 1 || is_marked && other_number == Ok(rank),
        Some(Ok(other_size)) if other_number == Ok(rank) && other_size == size => true,
        Some(Ok(other_size)) if size > other_size => true,
        Some(_) => is_marked && (size > 1 || other.launcher == Launcher::Slurm),
    };
    if is_nested { Ok(()) } else { Err(contradiction([own_rank, own_size], (other_rank, other_size))) }
}

/// The error of two rows, each given by its rank and its size, if it says one.
fn contradiction(own: [(String, String); 2], other: ((String, String), Option<(String, String)>)) -> Error {
    let ([(rank, value), (size, size_value)], ((other_rank, other_value), other_size)) = (own, other);
    let (with_size, and_size) = other_size.map_or_else(Default::default, |(other_size, value)| {
        (format!(" with {other_size}={value}"), format!(" and {other_size}"))
    });
    let problem = format!(
        "with {size}={size_value} it contradicts {other_rank}={other_value}{with_size}, and nothing says which of the \
         two launchers has started this process: unset {rank} and {size}, or {other_rank}{and_size}, whichever is \
         left over"
    );
    configuration(&rank, &value, problem)
}
