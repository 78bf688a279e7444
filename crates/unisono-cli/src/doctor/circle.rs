//! Ranks that wait for each other, in one communicator or in several.

use std::collections::BTreeMap;

/// For each communicator, by name: which of its ranks waits for which.
pub(super) type Waits<'a> = BTreeMap<&'a str, BTreeMap<u32, u32>>;

/// A rank, and the communicator in which it is awaited.
type WaitingRank<'a> = (u32, &'a str);

/// The circle of ranks that begins with a wait in this communicator, if there is one.
pub(super) fn circle_phrase(waits: &Waits<'_>, group: &str) -> Option<String> {
    let (group, here) = waits.get_key_value(group)?;
    here.keys().find_map(|&first| circle_from(waits, (first, group)))
}

/// The place in which a rank waits that is awaited in a communicator: there, or else in another one.
fn next<'a>(waits: &Waits<'a>, (rank, group): WaitingRank<'a>) -> Option<WaitingRank<'a>> {
    let here = waits.get(group).and_then(|here| here.get(&rank)).map(|awaited| (*awaited, group));
    let elsewhere = || waits.iter().find_map(|(other, waits)| Some((*waits.get(&rank)?, *other)));
    here.or_else(elsewhere)
}

fn circle_from<'a>(waits: &Waits<'a>, first: WaitingRank<'a>) -> Option<String> {
    // The path has each rank with the communicator in which it waits.
    let mut path = Vec::new();
    let mut at = first;
    loop {
        let (awaited, group) = next(waits, at)?;
        path.push((at.0, group));
        at = (awaited, group);
        if next(waits, at)? == next(waits, first)? && awaited == first.0 {
            break;
        }
        if path.iter().any(|(rank, _)| *rank == awaited) {
            return None;
        }
    }
    let ranks: Vec<String> =
        path.iter().map(|(rank, _)| *rank).chain([first.0]).map(|rank| rank.to_string()).collect();
    let mut groups: Vec<&str> = path.iter().map(|(_, group)| *group).collect();
    groups.sort_unstable();
    groups.dedup();
    let within = match &groups[..] {
        [_] => String::new(),
        several => format!(", in {}", several.join(" and ")),
    };
    Some(format!("ranks {} wait for each other{within}", ranks.join(" -> ")))
}
