//! The lines of a rank that waits, and their times: a line after 3 s, then one each 30 s.
//!
//! Ranks that people start by hand have a terminal each, and all of them speak. Under a launcher their lines meet in
//! one place, so the store chooses who speaks: the lowest rank that waits. While no store answers, the first rank of
//! each host speaks.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use unisono_communicator::{Severity, log};
use unisono_control::roster::message::{Progress, ranges_text};

use super::address::join_host;
use super::key::{PARENT, job_key, key_words};
use super::plan::Meeting;
use super::program_store;
use crate::config::Config;
use crate::environment::Placement;

/// When a rank speaks first.
const FIRST: Duration = Duration::from_secs(3);

/// A wait that takes longer than this deserves a line.
const LONG: Duration = Duration::from_millis(200);

/// The share of this rank in the lines of all ranks that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Voice {
    /// All: its terminal shows the lines of no other rank.
    Own,
    /// When the store says so, and while no store answers.
    FirstOfHost,
    /// When the store says so.
    OneOfMany,
}

/// The lines that a rank writes while it waits.
#[derive(Clone, Debug)]
pub struct WaitConfig {
    /// After how long the first line is written.
    pub first: Duration,
    /// The time after each line until the next one.
    pub every: Duration,
    /// The time for which the name of the store's host is tried again: it may appear when its host starts, as a pod's
    /// name does.
    pub resolve: Duration,
    /// The lines that it writes.
    pub voice: Voice,
    /// The meeting place of the ranks: "meeting at ...".
    pub place: String,
    /// The remedy if the others do not come.
    pub remedy: String,
    /// The variable that says where the store is.
    pub variable: String,
    /// Its value.
    pub value: String,
}

impl WaitConfig {
    /// The lines that the settings ask for.
    pub(super) fn new(config: &Config, meeting: &Meeting) -> WaitConfig {
        let key = job_key(config);
        let job = key_words(&key);
        WaitConfig {
            first: FIRST.min(config.warn_after),
            every: config.warn_after,
            resolve: config.join_timeout,
            voice: voice(config),
            place: place(meeting, job),
            remedy: remedy(meeting, job, voice(config)),
            variable: config.variable(setting(meeting)).to_owned(),
            value: value(meeting),
        }
    }

    /// The end of every line and error of a wait: the meeting place, and the remedy.
    pub(super) fn end_of(&self) -> String {
        format!("{}; {}", self.place, self.remedy)
    }
}

fn voice(config: &Config) -> Voice {
    if config.is_started_by_hand() {
        return Voice::Own;
    }
    match config.placement {
        Placement::Ranked { local_rank: Some(1..), .. } => Voice::OneOfMany,
        Placement::Ranked { .. } | Placement::Solo => Voice::FirstOfHost,
    }
}

/// The setting that says where the ranks meet. A variable of another tool may have given it.
fn setting(meeting: &Meeting) -> &'static str {
    match meeting {
        Meeting::Launched { .. } => "UNISONO_STORE",
        Meeting::AtRankZero { .. } => "UNISONO_MASTER_ADDRESS",
        Meeting::File(_) => "init_method",
        Meeting::Program { .. } => "with_meeting",
        Meeting::Pmi { .. } => "PMI_FD",
        Meeting::SameHost | Meeting::Solo => "UNISONO_JOB",
    }
}

/// The value of that setting, where it is an address.
fn value(meeting: &Meeting) -> String {
    match meeting {
        Meeting::Launched { store, .. } => store.clone(),
        Meeting::AtRankZero { host, .. } => host.clone(),
        Meeting::File(_)
        | Meeting::Program { .. }
        | Meeting::Pmi { .. }
        | Meeting::SameHost
        | Meeting::Solo => String::new(),
    }
}

fn place(meeting: &Meeting, job: &str) -> String {
    match meeting {
        Meeting::Launched { store, .. } => {
            format!("meeting at UNISONO_STORE={store}, which the launcher hosts")
        }
        Meeting::AtRankZero { host, port, .. } => {
            format!("meeting at {}, one port above MASTER_PORT, which rank 0 hosts", join_host(host, *port))
        }
        Meeting::Program { .. } => "meeting through the store that the program brings".to_owned(),
        Meeting::Pmi { .. } => format!("meeting through {}", program_store::PMI),
        Meeting::File(_) => "meeting in the file that init_method names,".to_owned(),
        Meeting::SameHost | Meeting::Solo => format!("meeting by {job}, in the file"),
    }
}

fn remedy(meeting: &Meeting, job: &str, voice: Voice) -> String {
    const BEGUN: &str = "a job that has begun takes no new ranks";
    let same = || format!("the others need the same {job}, and must see the same file; {BEGUN}");
    match (meeting, voice) {
        (Meeting::Launched { .. }, _) => {
            "the launcher must be running, and every rank must call init".to_owned()
        }
        (Meeting::AtRankZero { .. }, _) => {
            format!("all ranks need the same MASTER_ADDR, MASTER_PORT, UNISONO_JOB and secret; {BEGUN}")
        }
        (Meeting::SameHost | Meeting::Solo, Voice::Own) if job.starts_with(PARENT) => format!(
            "ranks started in several terminals need UNISONO_JOB=name, the same in each (or MASTER_ADDR and \
             MASTER_PORT); {BEGUN}"
        ),
        (Meeting::Pmi { .. }, _) => format!("every rank must call init; {BEGUN}"),
        (Meeting::Program { .. }, _) => {
            format!("all ranks must see the same keys, and rank 0 must call init; {BEGUN}")
        }
        (Meeting::File(_), _) => format!("all ranks must see the same file; {BEGUN}"),
        (Meeting::SameHost | Meeting::Solo, Voice::Own | Voice::FirstOfHost | Voice::OneOfMany) => same(),
    }
}

/// The wait of one rank: since when, and when it speaks next.
#[derive(Debug)]
pub(super) struct Waiting<'a> {
    pub(super) config: &'a WaitConfig,
    /// Its number in this process.
    pub(super) number: u64,
    rank: u32,
    world_size: u32,
    since: Instant,
    due: Instant,
}

impl<'a> Waiting<'a> {
    pub(super) fn new(config: &'a WaitConfig, rank: u32, world_size: u32) -> Waiting<'a> {
        static WAITS: AtomicU64 = AtomicU64::new(0);
        let (since, number) = (Instant::now(), WAITS.fetch_add(1, Ordering::Relaxed));
        Waiting { config, number, rank, world_size, since, due: since + config.first }
    }

    /// When the next line is due.
    pub(super) fn due(&self) -> Instant {
        self.due
    }

    /// The line that was due has been written, or asked for, or is left to another rank.
    pub(super) fn put_off(&mut self) {
        self.due = Instant::now() + self.config.every;
    }

    /// Writes that no store answers, for `reason`, if this is due.
    pub(super) fn on_time(&mut self, reason: &str) {
        if Instant::now() < self.due {
            return;
        }
        self.put_off();
        match self.config.voice {
            Voice::Own | Voice::FirstOfHost => self.say(reason),
            Voice::OneOfMany => {}
        }
    }

    /// Does `work`, and if it takes long, writes `reason` meanwhile whenever a line is due.
    pub(super) async fn beside<T>(&mut self, reason: &str, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        let long = Instant::now() + LONG;
        loop {
            tokio::select! {
                done = &mut work => return done,
                () = tokio::time::sleep_until(self.due.max(long).into()) => self.on_time(reason),
            }
        }
    }

    /// Writes the answer of the store, if it is for this rank to do so.
    pub(super) fn on_progress(&self, progress: &Progress) {
        if self.config.voice == Voice::Own || progress.speaker == self.rank {
            self.say(&progress_text(progress, self.world_size));
        }
    }

    fn say(&self, reason: &str) {
        let seconds = self.since.elapsed().as_secs();
        let end = self.config.end_of();
        log(
            Severity::Warn,
            Some(self.rank),
            format_args!("waiting to join for {seconds} s: {reason}; {end}"),
        );
    }
}

/// The number of ranks that have come, and the ranks that have not.
fn progress_text(progress: &Progress, world_size: u32) -> String {
    let Progress { present, missing, left, meetings, .. } = progress;
    let have = if *present == 1 { "has" } else { "have" };
    let missing = ranges_text(missing, world_size.saturating_sub(*present));
    let mut text = format!("{present} of {world_size} ranks {have} come, missing: {missing}");
    if !left.is_empty() {
        text.push_str(&format!(" ({} came and left)", ranges_text(left, 0)));
    }
    if *meetings > 0 {
        text.push_str(
            "; all have met here before, and a rank that is started again cannot enter the running job",
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress() -> Progress {
        Progress { present: 1, missing: vec![(1, 1)], left: Vec::new(), speaker: 0, meetings: 0 }
    }

    #[test]
    fn lines_count_the_ranks_and_name_those_that_miss() {
        assert_eq!(progress_text(&progress(), 2), "1 of 2 ranks has come, missing: rank 1");
        let missing = vec![(1, 1), (3, 5), (900, 901)];
        let many = Progress { present: 2, missing, left: vec![(4, 4)], ..progress() };
        assert_eq!(
            progress_text(&many, 1000),
            "2 of 1000 ranks have come, missing: ranks 1, 3-5, 900-901, ... (rank 4 came and left)"
        );
        let again = progress_text(&Progress { meetings: 1, ..progress() }, 2);
        assert!(again.contains("missing: rank 1; all have met here before"), "{again}");
    }

    #[test]
    fn ranks_started_by_hand_speak_and_of_the_others_one() {
        let voice = |more: &[(&str, &str)]| {
            let variables = [&[("WORLD_SIZE", "4")], more].concat();
            let lookup =
                |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| value.to_string());
            voice(&Config::from_lookup(&lookup).unwrap())
        };
        assert_eq!(voice(&[("RANK", "1")]), Voice::Own);
        assert_eq!(voice(&[("RANK", "1"), ("MASTER_ADDR", "h"), ("MASTER_PORT", "1")]), Voice::Own);
        assert_eq!(voice(&[("RANK", "1"), ("UNISONO_STORE", "h:1")]), Voice::FirstOfHost);
        assert_eq!(voice(&[("RANK", "2"), ("LOCAL_RANK", "0")]), Voice::FirstOfHost);
        assert_eq!(voice(&[("RANK", "2"), ("LOCAL_RANK", "1")]), Voice::OneOfMany);
        let mpi = [("OMPI_COMM_WORLD_SIZE", "4"), ("OMPI_COMM_WORLD_RANK", "1")];
        assert_eq!(voice(&mpi), Voice::FirstOfHost);
    }
}
