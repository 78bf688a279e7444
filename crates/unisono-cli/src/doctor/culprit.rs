//! The culprit in one sentence: the first thing to look at, of all that the records say.

use super::merge::{Group, Standing, in_one_line, ranks_text};

/// The clues that point at a culprit; the first kind that is found in any communicator counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Clue {
    /// Two calls of one number differ.
    Mismatch,
    /// A rank has left no record: it may be dead or stand still.
    NoRecord,
    /// A rank has not come to the call in which others are.
    Behind,
    /// Ranks wait for each other.
    Circle,
    /// A rank is waited for that waits for nobody.
    Awaited,
    /// A rank has seen an error first.
    Cause,
}

/// A longer text of an error is cut.
const CAUSE_CHARACTERS_MAX: usize = 200;

impl Group<'_> {
    /// The culprit of this communicator, by its strongest clue. `circle` names ranks that wait for each other.
    pub(super) fn culprit(&self, circle: Option<&str>) -> Option<(Clue, String)> {
        let clues = [
            (Clue::Mismatch, self.mismatched()),
            (Clue::NoRecord, self.without_record()),
            (Clue::Behind, self.behind()),
            (Clue::Circle, circle.map(|ranks| format!("no single rank: {ranks}"))),
            (Clue::Awaited, self.awaited()),
            (Clue::Cause, self.saw_first()),
        ];
        clues.into_iter().find_map(|(clue, text)| Some((clue, text?)))
    }

    /// "world", or the name of a group.
    fn title(&self) -> String {
        if self.name == "world" { "the world".to_owned() } else { format!("group {}", self.name) }
    }

    /// The fewest ranks that have called something else; of equally many, the ranks with the highest numbers.
    fn mismatched(&self) -> Option<String> {
        let number = self.mismatch()?;
        let mut forms = self.forms(number);
        forms.sort_by_key(|(_, ranks)| (std::cmp::Reverse(ranks.len()), ranks[0]));
        let ((other, most), (own, few)) = (forms.first()?, forms.last()?);
        let (verb, place) = (if few.len() == 1 { "calls" } else { "call" }, self.title());
        let (few, most) = (ranks_text(few), ranks_text(most));
        Some(format!(
            "{few} {verb} {}{} as call {number} of {place}, where {most} called {}",
            own.call,
            self.short_site(own),
            other.call
        ))
    }

    fn without_record(&self) -> Option<String> {
        let ranks = self.ranks_at(Standing::NoRecord);
        let others =
            self.furthest().map(|(_, ranks, call)| format!(", while {} came to {call}", ranks_text(&ranks)));
        let why = match ranks.len() {
            1 => "its process was killed, stands still or has written elsewhere",
            _ => "their processes were killed, stand still or have written elsewhere",
        };
        (!ranks.is_empty())
            .then(|| format!("{} left no record: {why}{}", ranks_text(&ranks), others.unwrap_or_default()))
    }

    /// The latest call of any rank, the ranks that are in it or have finished it, and its text.
    fn furthest(&self) -> Option<(u64, Vec<u32>, String)> {
        let number = self.standings.values().filter_map(|one| one.call()).map(|(number, _)| number).max()?;
        let at = |one: &Standing| one.call().is_some_and(|(other, _)| other == number);
        let ranks: Vec<u32> =
            self.standings.iter().filter(|(_, one)| at(one)).map(|(&rank, _)| rank).collect();
        let text = self.short_call(number, ranks[0]);
        Some((number, ranks, text))
    }

    fn behind(&self) -> Option<String> {
        let (number, ahead, call) = self.furthest()?;
        let is_behind = |one: &&Standing| {
            !matches!(one, Standing::NoRecord) && one.call().is_none_or(|(other, _)| other < number)
        };
        let lowest = *self.standings.values().filter(is_behind).min_by_key(|one| (one.call(), **one))?;
        let ranks = self.ranks_at(lowest);
        let (has, its) = if ranks.len() == 1 { ("has", "its") } else { ("have", "their") };
        let last = match lowest {
            Standing::Inside(number) => format!("still in {}", self.short_call(number, ranks[0])),
            Standing::Finished(number) => format!("{its} last was {}", self.short_call(number, ranks[0])),
            Standing::Absent => format!("{its} communicator is closed, or not made yet"),
            Standing::Nothing | Standing::NoRecord => format!("{its} first call is missing"),
        };
        let (who, others, place) = (ranks_text(&ranks), ranks_text(&ahead), self.title());
        let saw = self.causes().into_iter().find(|cause| ranks.contains(&cause.by));
        let saw = saw.map(|cause| format!(", and rank {} saw: {}", cause.by, shortened(&cause.text)));
        let saw = saw.unwrap_or_default();
        Some(format!("{who} {has} not come to {call} of {place}, as {others} did: {last}{saw}"))
    }

    /// The rank that is waited for, and itself waits for nobody here.
    fn awaited(&self) -> Option<String> {
        let waits = self.waits();
        let (waiting, awaited) = waits.iter().find(|(_, awaited)| !waits.contains_key(awaited))?;
        let message = self.messages.get(waiting).and_then(|open| open.first());
        let call = self.standings.get(waiting).and_then(|one| one.call()).map(|(number, _)| number);
        let doing = match (message, call) {
            (Some(message), _) => format!("{}{}", message.call, self.short_site(message)),
            (None, Some(number)) => self.short_call(number, *waiting),
            (None, None) => return None,
        };
        Some(format!("rank {awaited} is waited for by rank {waiting} in {doing} of {}", self.title()))
    }

    fn saw_first(&self) -> Option<String> {
        let cause = self.causes().into_iter().next()?;
        Some(format!("by rank {}, which saw the first error: {}", cause.by, shortened(&cause.text)))
    }
}

/// A text in one line that is not too long.
fn shortened(text: &str) -> String {
    let text = in_one_line(text);
    let mut said: String = text.chars().take(CAUSE_CHARACTERS_MAX).collect();
    if said.len() < text.len() {
        said.push_str("...");
    }
    said
}
