//! The places of ranks, as a table that stays a screen: of many ranks, the ranks that are alike share a row.

use super::merge::{Placed, RankState, Verdict, ranks_text};
use crate::print::Table;

/// The most rows of one communicator. If there would be more, ranks share them.
const ROWS_MAX: usize = 16;

const HEADER: [&str; 8] = ["communicator", "rank", "host", "pid", "at", "state", "since (UTC)", "waits for"];

/// The table of all communicators.
pub(super) fn table(verdicts: &[Verdict]) -> String {
    let mut table = Table::new(&HEADER);
    for verdict in verdicts {
        let grains: &[Grain] = if verdict.is_well { &[Grain::State] } else { &Grain::FROM_FINE };
        for row in rows(&verdict.ranks, grains) {
            table.row([vec![verdict.group.clone()], cells(&row)].concat());
        }
    }
    table.to_string()
}

/// The common fields of ranks that share a row.
#[derive(Clone, Copy, Debug)]
enum Grain {
    /// Every rank has its row.
    Rank,
    /// Host, call and the rank that is waited for.
    Awaited,
    /// Host and call.
    Host,
    Call,
    State,
}

impl Grain {
    const FROM_FINE: [Grain; 5] = [Grain::Rank, Grain::Awaited, Grain::Host, Grain::Call, Grain::State];

    fn is_alike(self, one: &Placed, other: &Placed) -> bool {
        let state = one.state == other.state;
        let call = || state && one.doing == other.doing;
        let host = || call() && one.host == other.host;
        match self {
            Grain::Rank => one.rank == other.rank,
            Grain::Awaited => host() && one.awaited_rank == other.awaited_rank,
            Grain::Host => host(),
            Grain::Call => call(),
            Grain::State => state,
        }
    }
}

/// The finest rows that are not too many.
fn rows<'a>(ranks: &'a [Placed], grains: &[Grain]) -> Vec<Vec<&'a Placed>> {
    let mut rows = Vec::new();
    for grain in grains {
        rows.clear();
        for one in ranks {
            let alike = rows.iter_mut().find(|row: &&mut Vec<&Placed>| grain.is_alike(row[0], one));
            match alike {
                Some(row) => row.push(one),
                None => rows.push(vec![one]),
            }
        }
        if rows.len() <= ROWS_MAX {
            break;
        }
    }
    rows
}

fn cells(row: &[&Placed]) -> Vec<String> {
    let numbers =
        |ranks: &[u32]| ranks_text(ranks).split_once(' ').map_or(String::new(), |(_, list)| list.to_owned());
    let ranks: Vec<u32> = row.iter().map(|one| one.rank).collect();
    let mut awaited: Vec<u32> = row.iter().filter_map(|one| one.awaited_rank).collect();
    awaited.sort_unstable();
    awaited.dedup();
    let waits = if awaited.is_empty() { "-".to_owned() } else { ranks_text(&awaited) };
    let pids: Vec<String> = row.iter().filter_map(|one| Some(one.pid?.to_string())).collect();
    let state = match row[0].state {
        RankState::Inside => "inside",
        RankState::Failed => "failed in it",
        RankState::Finished => "finished it",
        RankState::Nothing => "no call yet",
        RankState::Absent => "not open here",
        RankState::NoRecord => "no record",
    };
    vec![
        numbers(&ranks),
        listed(row.iter().filter_map(|one| one.host.clone()), "hosts"),
        listed(pids.into_iter(), "processes"),
        place(row),
        state.to_owned(),
        since(row),
        waits,
    ]
}

/// At most two different words, else their number.
fn listed(words: impl Iterator<Item = String>, what: &str) -> String {
    let mut words: Vec<String> = words.collect();
    words.sort_unstable();
    words.dedup();
    match words.len() {
        0 => "-".to_owned(),
        1 | 2 => words.join(","),
        many => format!("{many} {what}"),
    }
}

/// The call and the line that made it, without the folders of its file.
fn place(row: &[&Placed]) -> String {
    let mut calls: Vec<&str> = row.iter().filter_map(|one| one.doing.as_deref()).collect();
    calls.dedup();
    let call = match calls[..] {
        [] => return "-".to_owned(),
        [one] => one.to_owned(),
        _ => return "several calls".to_owned(),
    };
    let mut sites: Vec<&str> = row.iter().filter_map(|one| one.site.as_deref()).collect();
    sites.dedup();
    match sites[..] {
        [one] => format!("{call}, {}", one.rsplit('/').next().unwrap_or(one)),
        _ => call,
    }
}

/// The time of day since when the first of these ranks waits, and for how long it had waited.
fn since(row: &[&Placed]) -> String {
    let waits = row.iter().filter_map(|one| Some((one.awaited_since_ms?, one.waited_s?)));
    let Some((since, waited)) = waits.min_by_key(|&(since, _)| since) else { return "-".to_owned() };
    format!("{}, {waited:.1} s", time_of_day(since))
}

/// The time of day in Greenwich, of milliseconds of Unix time.
pub(super) fn time_of_day(unix_ms: u64) -> String {
    let seconds = unix_ms / 1_000 % 86_400;
    format!("{:02}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::super::merge::Standing;
    use super::*;

    fn placed(rank: u32, call: u64, awaited_rank: Option<u32>) -> Placed {
        Placed {
            rank,
            standing: Standing::Inside(call),
            awaited_rank,
            awaited_since_ms: awaited_rank.map(|_| 3_661_000),
            waited_s: awaited_rank.map(|_| 2.5),
            host: Some(format!("node{}", rank / 32)),
            pid: Some(1000 + rank),
            doing: Some(format!("call {call} barrier(0 x u8)")),
            site: Some("src/deep/train.rs:7".to_owned()),
            state: RankState::Inside,
        }
    }

    fn verdict(ranks: Vec<Placed>) -> Verdict {
        let (causes, text) = (Vec::new(), String::new());
        Verdict {
            group: "world".to_owned(),
            is_well: false,
            mismatch: None,
            ranks,
            causes,
            text,
            culprit: None,
            clue: None,
        }
    }

    #[test]
    fn few_ranks_have_a_row_each() {
        let text = table(&[verdict(vec![placed(0, 4, Some(1)), placed(1, 3, None)])]);
        let rows: Vec<&str> = text.lines().collect();
        assert_eq!(rows.len(), 3, "{text}");
        let words: Vec<&str> = rows[1].split_whitespace().collect();
        #[rustfmt::skip]
        assert_eq!(words, [
            "world", "0", "node0", "1000", "call", "4", "barrier(0", "x", "u8),", "train.rs:7", "inside",
            "01:01:01,", "2.5", "s", "rank", "1",
        ]);
        assert!(rows[2].ends_with('-') && rows[2].contains("call 3 barrier"), "{text}");
    }

    /// A ring waits around; one rank is behind.
    #[test]
    fn many_ranks_share_rows() {
        let mut ranks: Vec<Placed> = (0..256).map(|rank| placed(rank, 9, Some((rank + 255) % 256))).collect();
        ranks[77] = placed(77, 8, None);
        let text = table(&[verdict(ranks.clone())]);
        assert_eq!(text.lines().count(), 1 + 9, "by host: {text}");
        assert!(
            text.lines().any(|row| row.contains(" 32 processes ") && row.ends_with("ranks 31-62")),
            "{text}"
        );
        assert!(
            text.lines().any(|row| row.contains(" 77 ") && row.contains("node2") && row.contains("1077")),
            "{text}"
        );
        ranks.iter_mut().for_each(|one| one.host = Some(format!("node{}", one.rank)));
        let text = table(&[verdict(ranks.clone())]);
        assert_eq!(text.lines().count(), 1 + 2, "by call: {text}");
        assert!(text.contains("0-76,78-255") && text.contains("255 hosts"), "{text}");
        ranks.iter_mut().for_each(|one| one.doing = Some(format!("call {}", one.rank)));
        let text = table(&[verdict(ranks)]);
        assert!(text.lines().count() == 2 && text.contains("several calls"), "by state: {text}");
    }
}
