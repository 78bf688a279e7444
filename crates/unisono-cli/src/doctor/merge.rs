//! Merges the records of several ranks: one line for each communicator says which rank is at which call.

use std::collections::BTreeMap;

use serde::Serialize;
use unisono::flight::{CallState, Entry, FlightRecord, GroupConfig, GroupStatus};

use super::circle::{Waits, circle_phrase};
use super::culprit::Clue;

/// The progress of a rank in a communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case", tag = "at", content = "call")]
pub(super) enum Standing {
    /// It left no record.
    NoRecord,
    /// It left a record in which this communicator is missing.
    Absent,
    /// It has called nothing.
    Nothing,
    /// It has finished the last call that it entered.
    Finished(u64),
    /// It is in this call, or this call has failed.
    Inside(u64),
}

impl Standing {
    /// The number of the call, and whether the rank is in it.
    pub(super) fn call(self) -> Option<(u64, bool)> {
        match self {
            Standing::Inside(number) => Some((number, true)),
            Standing::Finished(number) => Some((number, false)),
            Standing::NoRecord | Standing::Absent | Standing::Nothing => None,
        }
    }
}

/// One rank of the job.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Placed {
    pub(super) rank: u32,
    #[serde(flatten)]
    pub(super) standing: Standing,
    /// The rank that its call waits for.
    pub(super) awaited_rank: Option<u32>,
    /// Since when, in milliseconds of Unix time.
    pub(super) awaited_since_ms: Option<u64>,
    /// The time that it had waited when it wrote its record.
    pub(super) waited_s: Option<f64>,
    /// Its host and its process; `None` without a record.
    pub(super) host: Option<String>,
    pub(super) pid: Option<u32>,
    /// Its last call, or the message that it has not ended.
    pub(super) doing: Option<String>,
    /// The line that called.
    pub(super) site: Option<String>,
    pub(super) state: RankState,
}

/// A standing in one word, with its details.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum RankState {
    /// In a call, or in a send or receive.
    Inside,
    /// As [`RankState::Inside`], and the communicator is revoked.
    Failed,
    /// It has finished all that it called.
    Finished,
    /// It has called nothing.
    Nothing,
    /// The communicator is closed there, or not created yet.
    Absent,
    NoRecord,
}

/// A first cause that a rank of the job has seen.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Cause {
    pub(super) by: u32,
    pub(super) text: String,
}

/// The result for one communicator.
#[derive(Debug, Serialize)]
pub(super) struct Verdict {
    pub(super) group: String,
    /// All members have left records, are at the same call, have no message open, and nothing has failed.
    pub(super) is_well: bool,
    /// The first remembered call that is not the same on all ranks.
    pub(super) mismatch: Option<u64>,
    pub(super) ranks: Vec<Placed>,
    pub(super) causes: Vec<Cause>,
    /// The whole result in one line.
    pub(super) text: String,
    /// The rank to look at first, in one sentence; `None` where nothing is wrong.
    pub(super) culprit: Option<String>,
    #[serde(skip)]
    pub(super) clue: Option<Clue>,
}

/// The rank to look at first in the whole job, in one sentence.
pub(super) fn culprit(verdicts: &[Verdict]) -> Option<&str> {
    let known = verdicts.iter().filter_map(|verdict| Some((verdict.clue?, verdict.culprit.as_deref()?)));
    known.min_by_key(|(clue, _)| *clue).map(|(_, text)| text)
}

/// Judges every communicator that the records of one run of a job name.
///
/// # Errors
/// When the records contradict each other.
pub(super) fn merge(records: &[FlightRecord]) -> Result<Vec<Verdict>, String> {
    let mut groups: BTreeMap<&str, Group<'_>> = BTreeMap::new();
    for record in records {
        for config in record.pg_config.values() {
            let group = groups.entry(&config.name).or_insert_with(|| Group::new(config, records));
            group.add(record, config)?;
        }
    }
    // The world comes first: every rank has it.
    let (world, others): (Vec<_>, Vec<_>) = groups.into_values().partition(|group| group.name == "world");
    let groups: Vec<Group<'_>> = world.into_iter().chain(others).collect();
    let waits: Waits<'_> = groups.iter().map(|group| (group.name, group.waits())).collect();
    Ok(groups.iter().map(|group| group.verdict(circle_phrase(&waits, group.name))).collect())
}

/// The records of one communicator.
pub(super) struct Group<'a> {
    pub(super) name: &'a str,
    desc: &'a str,
    /// Ranks of the job.
    ranks: &'a [u32],
    pub(super) standings: BTreeMap<u32, Standing>,
    statuses: BTreeMap<u32, &'a GroupStatus>,
    records: BTreeMap<u32, &'a FlightRecord>,
    /// By number, then by rank.
    calls: BTreeMap<u64, BTreeMap<u32, &'a Entry>>,
    /// For each rank, the sends and receives that have not succeeded.
    pub(super) messages: BTreeMap<u32, Vec<&'a Entry>>,
}

impl<'a> Group<'a> {
    fn new(config: &'a GroupConfig, records: &'a [FlightRecord]) -> Group<'a> {
        let records: BTreeMap<u32, &FlightRecord> =
            records.iter().map(|record| (record.rank, record)).collect();
        let standing = |rank| if records.contains_key(&rank) { Standing::Absent } else { Standing::NoRecord };
        Group {
            name: &config.name,
            desc: &config.desc,
            ranks: &config.ranks,
            standings: config.ranks.iter().map(|&rank| (rank, standing(rank))).collect(),
            statuses: BTreeMap::new(),
            records,
            calls: BTreeMap::new(),
            messages: BTreeMap::new(),
        }
    }

    fn add(&mut self, record: &'a FlightRecord, config: &'a GroupConfig) -> Result<(), String> {
        let rank = record.rank;
        let problem = |text: &str| format!("the record of rank {rank}: {text} {}", config.name);
        if self.ranks != config.ranks || !self.ranks.contains(&rank) {
            return Err(problem("it differs from the others in the members of"));
        }
        let status = record.pg_status.get(&config.pg_id).ok_or_else(|| problem("there is no status of"))?;
        for entry in record.entries.iter().filter(|entry| entry.pg_id == config.pg_id) {
            if entry.is_p2p {
                self.messages
                    .entry(rank)
                    .or_default()
                    .extend((entry.state != CallState::Completed).then_some(entry));
            } else {
                self.calls.entry(entry.collective_seq_id).or_default().insert(rank, entry);
            }
        }
        let is_finished = status.last_completed_collective >= status.last_enqueued_collective;
        let standing = match u64::try_from(status.last_enqueued_collective) {
            Ok(number) if is_finished => Standing::Finished(number),
            Ok(number) => Standing::Inside(number),
            Err(_) => Standing::Nothing,
        };
        self.standings.insert(rank, standing);
        self.statuses.insert(rank, status);
        Ok(())
    }

    /// For each rank, the rank that it waits for here.
    pub(super) fn waits(&self) -> BTreeMap<u32, u32> {
        let waits = self.statuses.iter().filter_map(|(&rank, status)| Some((rank, status.awaited_rank?)));
        waits.collect()
    }

    fn verdict(&self, circle: Option<String>) -> Verdict {
        let (mismatch, causes) = (self.mismatch(), self.causes());
        let mut standings: Vec<Standing> = self.standings.values().copied().collect();
        standings.sort_unstable();
        standings.dedup();
        let is_recorded = |one: &Standing| !matches!(one, Standing::NoRecord | Standing::Absent);
        let is_even = standings.len() == 1 && standings.iter().all(is_recorded);
        let messages = self.message_phrases();
        let is_well = is_even && mismatch.is_none() && causes.is_empty() && messages.is_empty();
        let mut phrases: Vec<String> = Vec::new();
        if is_well {
            phrases.push("nothing is wrong".to_owned());
        }
        phrases.extend(self.standing_phrases(&standings, mismatch));
        phrases.extend(messages);
        let (clue, culprit) = match is_well {
            true => (None, None),
            false => self.culprit(circle.as_deref()).unzip(),
        };
        phrases.extend(circle);
        let unread = self.statuses.iter().filter_map(|(rank, status)| Some((rank, status.unread.as_ref()?)));
        phrases.extend(unread.map(|(rank, unread)| format!("on rank {rank} lie {unread}")));
        phrases.extend(self.left_phrase());
        phrases.extend(mismatch.map(|number| self.mismatch_phrase(number)));
        phrases.extend(
            causes.iter().map(|cause| format!("rank {} saw: {}", cause.by, in_one_line(&cause.text))),
        );
        let title = match self.name {
            "world" => "world".to_owned(),
            name => format!("group {name} ({}: {})", self.desc, ranks_text(self.ranks)),
        };
        Verdict {
            group: self.name.to_owned(),
            is_well,
            mismatch,
            ranks: self.standings.iter().map(|(&rank, &standing)| self.place(rank, standing)).collect(),
            causes,
            text: format!("{title}: {}", phrases.join("; ")),
            culprit,
            clue,
        }
    }

    fn place(&self, rank: u32, standing: Standing) -> Placed {
        let (record, status) = (self.records.get(&rank), self.statuses.get(&rank));
        let message = self.messages.get(&rank).and_then(|open| open.first()).copied();
        let collective = standing.call().map(|(number, is_inside)| {
            let entry = self.calls.get(&number).and_then(|entries| entries.get(&rank)).copied();
            (number, is_inside, entry)
        });
        let (doing, entry, is_inside) = match (collective, message) {
            (Some((number, true, entry)), _) => (Some(numbered(number, entry)), entry, true),
            (_, Some(message)) => (Some(message.call.clone()), Some(message), true),
            (Some((number, false, entry)), None) => (Some(numbered(number, entry)), entry, false),
            (None, None) => (None, None, false),
        };
        let state = match standing {
            Standing::NoRecord => RankState::NoRecord,
            Standing::Absent => RankState::Absent,
            _ if is_inside && status.is_some_and(|status| status.first_cause.is_some()) => RankState::Failed,
            _ if is_inside => RankState::Inside,
            Standing::Nothing => RankState::Nothing,
            Standing::Finished(_) | Standing::Inside(_) => RankState::Finished,
        };
        let since = status.and_then(|status| status.awaited_since_ms).filter(|_| is_inside);
        let waited =
            |(record, since): (&&FlightRecord, u64)| record.written_ms.saturating_sub(since) as f64 / 1e3;
        Placed {
            rank,
            standing,
            awaited_rank: status.and_then(|status| status.awaited_rank),
            awaited_since_ms: since,
            waited_s: record.zip(since).map(waited),
            host: record.map(|record| record.host.clone()),
            pid: record.map(|record| record.pid),
            doing,
            site: entry
                .and_then(|entry| entry.frames.first())
                .map(|frame| format!("{}:{}", frame.filename, frame.line)),
            state,
        }
    }

    /// The first causes. If the rank that saw one left a record, the text is that rank's own.
    pub(super) fn causes(&self) -> Vec<Cause> {
        let mut causes: BTreeMap<u32, &str> = BTreeMap::new();
        for (&rank, status) in &self.statuses {
            if let Some(text) = &status.first_cause {
                let by = status.revoked_by.unwrap_or(rank);
                let told = causes.entry(by).or_insert(text);
                if by == rank {
                    *told = text;
                }
            }
        }
        causes.into_iter().map(|(by, text)| Cause { by, text: text.to_owned() }).collect()
    }

    pub(super) fn mismatch(&self) -> Option<u64> {
        let differ = |entries: &BTreeMap<u32, &Entry>| {
            let mut compared = entries.values().map(|entry| &entry.compared);
            compared.next().is_some_and(|first| compared.any(|other| other != first))
        };
        self.calls.iter().find(|(_, entries)| differ(entries)).map(|(&number, _)| number)
    }

    pub(super) fn ranks_at(&self, standing: Standing) -> Vec<u32> {
        self.standings.iter().filter(|(_, one)| **one == standing).map(|(&rank, _)| rank).collect()
    }

    /// One phrase for each standing; the ranks that are furthest come first.
    fn standing_phrases(&self, standings: &[Standing], mismatch: Option<u64>) -> Vec<String> {
        let mut order: Vec<Standing> = standings.to_vec();
        order.sort_by_key(|one| std::cmp::Reverse((one.call(), *one)));
        let furthest = order.first().and_then(|one| one.call()).map(|(number, _)| number);
        let mut told = None;
        let mut phrases = Vec::new();
        for standing in order {
            let ranks = self.ranks_at(standing);
            let (who, is, has) = self.subject(&ranks);
            let call = |number| match Some(number) == told {
                true => "it".to_owned(),
                false if Some(number) == mismatch => format!("call {number}"),
                false => self.call_text(number, &ranks),
            };
            phrases.push(match standing {
                Standing::Inside(number) => format!("{who} {is} in {}", call(number)),
                Standing::Finished(number) if Some(number) == furthest => {
                    format!("{who} {has} finished {}", call(number))
                }
                Standing::Finished(number) => {
                    let last = if ranks.len() == 1 { "its last is" } else { "their last is" };
                    format!("{who} {has} not called it, {last} {}", call(number))
                }
                Standing::Nothing => format!("{who} {has} called no collective"),
                Standing::Absent => format!("{who} {has} closed it, or not created it yet"),
                Standing::NoRecord => format!("{who} left no record"),
            });
            told = told.or(furthest);
        }
        phrases
    }

    /// Ranks as the subject of a sentence, with the forms of "is" and "has" for one rank or for several.
    fn subject(&self, ranks: &[u32]) -> (String, &'static str, &'static str) {
        match ranks.len() {
            1 => (ranks_text(ranks), "is", "has"),
            all if all == self.ranks.len() => (format!("all {all} ranks"), "are", "have"),
            _ => (ranks_text(ranks), "are", "have"),
        }
    }

    /// The call that these ranks have made, with the lines that called.
    fn call_text(&self, number: u64, ranks: &[u32]) -> String {
        let entries = self.calls.get(&number);
        let of = |rank: &u32| entries.and_then(|entries| entries.get(rank)).copied();
        let Some(first) = ranks.iter().find_map(of) else { return format!("call {number}") };
        let mut sites: Vec<(String, Vec<u32>)> = Vec::new();
        for &rank in ranks {
            let site = of(&rank).map(site_text).unwrap_or_default();
            match sites.iter_mut().find(|(known, _)| *known == site) {
                Some((_, ranks)) => ranks.push(rank),
                None => sites.push((site, vec![rank])),
            }
        }
        let at = match &sites[..] {
            [(site, _)] => site.clone(),
            _ => {
                let each = sites.iter().map(|(site, ranks)| format!("{site} ({})", ranks_text(ranks)));
                each.collect::<Vec<_>>().join(" and")
            }
        };
        format!("call {number} {}{at}", first.call)
    }

    /// For each rank its first message that has not ended, and how many more there are. A message that has failed and a
    /// message that was still under way look alike in a record.
    fn message_phrases(&self) -> Vec<String> {
        let phrase = |(rank, open): (&u32, &Vec<&Entry>)| {
            let (first, more) = open.split_first()?;
            let more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
            Some(format!("rank {rank} has not ended {}{}{more}", first.call, site_text(first)))
        };
        self.messages.iter().filter_map(phrase).collect()
    }

    /// The ranks of which others say that they have left, unless all have.
    fn left_phrase(&self) -> Option<String> {
        let mut ranks: Vec<u32> =
            self.statuses.values().flat_map(|status| &status.left_ranks).copied().collect();
        ranks.sort_unstable();
        ranks.dedup();
        let (who, _, has) = self.subject(&ranks);
        (1..self.ranks.len()).contains(&ranks.len()).then(|| format!("{who} {has} left it in good order"))
    }

    /// The different calls of this number, each with its ranks.
    pub(super) fn forms(&self, number: u64) -> Vec<(&Entry, Vec<u32>)> {
        let mut forms: Vec<(&Entry, Vec<u32>)> = Vec::new();
        for (&rank, &entry) in self.calls.get(&number).into_iter().flatten() {
            match forms.iter_mut().find(|(form, _)| form.compared == entry.compared) {
                Some((_, ranks)) => ranks.push(rank),
                None => forms.push((entry, vec![rank])),
            }
        }
        forms
    }

    fn mismatch_phrase(&self, number: u64) -> String {
        let forms = self.forms(number);
        let each = forms.iter().map(|(entry, ranks)| {
            let verb = if ranks.len() == 1 { "calls" } else { "call" };
            format!("{} {verb} {}{}", ranks_text(ranks), entry.call, site_text(entry))
        });
        format!("call {number} is not the same everywhere: {}", each.collect::<Vec<_>>().join(", "))
    }
}

impl Group<'_> {
    /// The call of this number as `rank` has made it, with its line.
    pub(super) fn short_call(&self, number: u64, rank: u32) -> String {
        let entry = self.calls.get(&number).and_then(|entries| entries.get(&rank)).copied();
        numbered(number, entry) + &entry.map_or_else(String::new, |entry| self.short_site(entry))
    }

    /// " at file:line" without the folders of the file, when that is known.
    pub(super) fn short_site(&self, entry: &Entry) -> String {
        let frame = entry.frames.first();
        let name = |file: &str| file.rsplit('/').next().unwrap_or(file).to_owned();
        frame.map(|frame| format!(" at {}:{}", name(&frame.filename), frame.line)).unwrap_or_default()
    }
}

/// "call 2 barrier", as far as the record remembers it.
fn numbered(number: u64, entry: Option<&Entry>) -> String {
    entry.map_or_else(|| format!("call {number}"), |entry| format!("call {number} {}", entry.call))
}

/// A text from the user's program, such as the message of a panic, may have several lines.
pub(super) fn in_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// " at file:line", when that is known.
fn site_text(entry: &Entry) -> String {
    let frame = entry.frames.first();
    frame.map(|frame| format!(" at {}:{}", frame.filename, frame.line)).unwrap_or_default()
}

/// "rank 2", "ranks 0,1,3", "ranks 0-5,9"; the order of the list is kept.
pub(super) fn ranks_text(ranks: &[u32]) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for &rank in ranks {
        match runs.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(rank) => *last = rank,
            _ => runs.push((rank, rank)),
        }
    }
    let text = |&(first, last): &(u32, u32)| match last - first {
        0 => first.to_string(),
        1 => format!("{first},{last}"),
        _ => format!("{first}-{last}"),
    };
    let list: Vec<String> = runs.iter().map(text).collect();
    format!("{} {}", if ranks.len() == 1 { "rank" } else { "ranks" }, list.join(","))
}

#[cfg(test)]
#[path = "merge_tests.rs"]
mod tests;
