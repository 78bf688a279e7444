//! The variables about this process that changed nothing, and why.

use super::placement::{Ranked, counts};
use super::rows::{
    AZURE_ML, AZURE_ML_MASTERS, DLTS, LAUNCHERS, Launcher, LauncherRow, SAGE_MAKER_HOSTS, SLURM_HOST_LISTS,
    discovers,
};
use crate::settings::{Source, knobs};

/// Variables of one source that changed nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The launcher, the platform or the settings.
    pub from: &'static str,
    /// Names and values.
    pub variables: Vec<(String, String)>,
    /// Why they changed nothing.
    pub reason: String,
}

/// The settings that place a process, in the order of the table.
pub const PLACES: [&str; 8] = [
    "UNISONO_RANK",
    "UNISONO_WORLD_SIZE",
    "UNISONO_LOCAL_RANK",
    "UNISONO_LOCAL_WORLD_SIZE",
    "UNISONO_CROSS_RANK",
    "UNISONO_CROSS_SIZE",
    "UNISONO_MASTER_ADDRESS",
    "UNISONO_MASTER_PORT",
];

/// Among these, the numbers of hosts. The address after them counts beside the rank of any launcher.
const ABOUT_HOSTS: std::ops::Range<usize> = 4..6;

pub(super) fn lost(source: &Source<'_>, ranked: Option<&Ranked>, address_by: Option<&str>) -> Vec<Lost> {
    let mut lost: Vec<Lost> = PLACES.iter().filter_map(|name| other_names(source, name)).collect();
    let (unread, reason) = match ranked {
        Some(Ranked { launcher: Launcher::Named, numbers }) => {
            let is_read = numbers.cross_size.is_some() || numbers.cross_rank.is_some();
            let unread = if is_read { &[][..] } else { &PLACES[ABOUT_HOSTS] };
            (unread, "torchrun sets none of these: another launcher around it has".to_owned())
        }
        other => (&PLACES[..ABOUT_HOSTS.end], unplaced(other)),
    };
    let variables = unread.iter().filter_map(|name| source.find(name)).collect();
    lost.push(Lost { from: Launcher::Named.name(), variables, reason });
    let launchers = LAUNCHERS.iter().filter(|row| row.launcher != Launcher::Named);
    lost.extend(launchers.filter_map(|row| launcher(source, row, ranked)));
    lost.extend(masters(source, ranked, address_by));
    lost.retain(|one| !one.variables.is_empty());
    lost
}

fn unplaced(ranked: Option<&Ranked>) -> String {
    match ranked {
        Some(ranked) => format!("the rank is that of {}", ranked.launcher.name()),
        None => "no rank counts, so this process is alone".to_owned(),
    }
}

/// The names that are set.
fn set(source: &Source<'_>, names: impl Iterator<Item = &'static str>) -> Vec<(String, String)> {
    names.filter_map(|name| Some((name.to_owned(), source.foreign(name)?))).collect()
}

/// The other names of a setting after the name that counts.
fn other_names(source: &Source<'_>, setting: &str) -> Option<Lost> {
    let knob = knobs().find(|knob| knob.name == setting)?;
    let mut variables = set(source, std::iter::once(knob.name).chain(knob.also.iter().copied()));
    if variables.len() < 2 {
        return None;
    }
    let (first, _) = variables.remove(0);
    Some(Lost { from: Launcher::Named.name(), variables, reason: format!("{first} is set, and comes first") })
}

fn launcher(source: &Source<'_>, row: &LauncherRow, ranked: Option<&Ranked>) -> Option<Lost> {
    if ranked.is_some_and(|ranked| ranked.launcher == row.launcher) || !is_set(source, row.rank) {
        return None;
    }
    let reason = if !discovers(source) {
        off()
    } else if counts(source, row) {
        unplaced(ranked)
    } else {
        match row.launcher {
            Launcher::Slurm => "outside a step of srun these numbers are those of a batch script".to_owned(),
            Launcher::Pmi => "srun itself says this, and the row of Slurm has it too".to_owned(),
            Launcher::Named | Launcher::OpenMpi | Launcher::Mvapich | Launcher::Pmix => unplaced(ranked),
        }
    };
    Some(Lost { from: row.launcher.name(), variables: set(source, row.names()), reason })
}

fn is_set(source: &Source<'_>, names: &[&str]) -> bool {
    names.iter().any(|name| source.foreign(name).is_some())
}

fn off() -> String {
    "UNISONO_DISCOVERY=off".to_owned()
}

/// The hosts that Slurm and platforms name, where `address_by` is another source.
fn masters(source: &Source<'_>, ranked: Option<&Ranked>, address_by: Option<&str>) -> Vec<Lost> {
    let groups: [(&'static str, &[&[&'static str]]); 3] = [
        ("Slurm", &[SLURM_HOST_LISTS]),
        ("Azure ML", &[AZURE_ML, AZURE_ML_MASTERS]),
        ("SageMaker", &[SAGE_MAKER_HOSTS]),
    ];
    let lost = |(from, names): (&'static str, &[&[&'static str]])| {
        let names = || names.iter().copied().flatten().copied();
        if names().any(|name| Some(name) == address_by) {
            return None;
        }
        let reason = match (address_by, ranked) {
            _ if names().any(|name| AZURE_ML.contains(&name)) && is_set(source, DLTS) => {
                "DLTS_JOB_ID is set".to_owned()
            }
            (Some(address_by), _) => format!("the address of rank 0 is that of {address_by}"),
            (None, _) if !discovers(source) => off(),
            (None, Some(_)) => "it does not say for certain where rank 0 is".to_owned(),
            (None, None) => unplaced(None),
        };
        Some(Lost { from, variables: set(source, names()), reason })
    };
    groups.into_iter().filter_map(lost).collect()
}
