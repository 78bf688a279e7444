//! Limits on the time until ranks have learned of a failure, and have agreed on the survivors.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::super::simulation::departure::Way;
use super::super::simulation::program::Moment;
use super::{Case, Stories, Trouble};
use crate::simulation::TWO_PATIENCES;

/// The time that the news of a failure may take, together with the time that a rank may wait for a better explanation.
const SPREAD_MAX: Duration = Duration::from_millis(300);

impl Case {
    /// No rank finds out by its own deadline about a failure that another rank has found before. A call goes on after a
    /// failure as long as its bytes move, and over narrow and slow links that takes longer than the news.
    pub(super) fn check_times(&self, stories: &Stories) {
        let mut first: BTreeMap<u32, Duration> = BTreeMap::new();
        // A rank that makes no call for long finds out when it calls.
        let late = self.program.departure.filter(|departure| departure.way == Way::Silence);
        let is_on_time = |entry: &(&u32, &Vec<Moment>)| late.is_none_or(|late| late.rank != *entry.0);
        let failures = || {
            stories.iter().filter(is_on_time).flat_map(|(_, story)| story).filter_map(|moment| match moment {
                Moment::Failed { epoch, at, still, .. } => Some((*epoch, *at, *still)),
                Moment::Done { .. }
                | Moment::Shrunk { .. }
                | Moment::Ended(_)
                | Moment::Closed(_)
                | Moment::Departed(_) => None,
            })
        };
        for (epoch, at, _) in failures() {
            let first = first.entry(epoch).or_insert(at);
            *first = at.min(*first);
        }
        let is_late =
            |(epoch, at, still): &(u32, Duration, Duration)| (*at - first[epoch]).min(*still) > SPREAD_MAX;
        if let Some((epoch, at, still)) = failures().find(is_late) {
            let since = first[&epoch];
            let text =
                format!("epoch {epoch} has failed after {since:?}, somewhere after {at:?}, {still:?} still");
            self.fails(&text, stories);
        }
    }

    /// No agreement on the survivors takes longer than two suspicions, one after the other: the first one ends the
    /// call, and the ranks that may have gone with the suspected rank are found within the second one. Three hosts that
    /// go together take one more each, and a device that resets connections may do so once more in between.
    pub(super) fn check_agreements(&self, stories: &Stories) {
        let resets = u32::from(self.trouble == Trouble::ResetHosts);
        for (rank, moment) in
            stories.iter().flat_map(|(rank, story)| story.iter().map(move |one| (rank, one)))
        {
            let Moment::Shrunk { epoch, took, members, .. } = moment else { continue };
            let is_gone = |(rank, _): &(u32, &u32)| !members.contains(rank);
            let gone: BTreeSet<&u32> =
                (0..).zip(&self.program.hosts).filter(is_gone).map(|(_, host)| host).collect();
            let patiences = (gone.len() as u32).max(2) + resets;
            if *took > TWO_PATIENCES / 2 * patiences {
                self.fails(&format!("rank {rank}: shrink to epoch {epoch} has taken {took:?}"), stories);
            }
        }
    }
}
