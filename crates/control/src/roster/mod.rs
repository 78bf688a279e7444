//! The ranks that have come: the store's whole logic, without sockets and clock. [`message`] has the words of ranks and
//! store, [`cpus`] the cores that ranks may use, `host_numbers` which ranks share a host.

pub mod cpus;
mod host_numbers;
mod last_round;
pub mod message;
mod runs;
mod table;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::handshake::JobId;
use cpus::Cpus;
use host_numbers::number_hosts;
use last_round::LastRound;
use message::{Answer, Arrival, Progress, ranges, ranges_text};
use runs::runs_differ;

/// The time for which ranks that come after a conflict are told of it. The ranks of a job come within seconds of each
/// other.
pub const CONFLICT_MEMORY: Duration = Duration::from_secs(10);

/// One connection to the store, as the roster sees it.
pub type ConnectionId = u64;

/// A process that has come to the store.
#[derive(Clone, Debug)]
pub struct Newcomer {
    /// The rank that it says it is.
    pub rank: u32,
    /// The number of ranks, as it says.
    pub world_size: u32,
    /// Over which connection it has come.
    pub connection: ConnectionId,
    /// From where.
    pub from: SocketAddr,
    /// The rest of its message.
    pub arrival: Arrival,
}

impl Newcomer {
    /// Whether both are one process that has come twice: nobody else can listen where it does.
    fn is_same_process(&self, other: &Newcomer) -> bool {
        let identity = |one: &Newcomer| (one.arrival.address, one.arrival.host, one.arrival.process.clone());
        identity(self) == identity(other)
    }

    /// Whether both are one wait of one process, so that the answer to one is the answer to the other.
    pub(super) fn is_same_wait(&self, other: &Newcomer) -> bool {
        (self.rank, self.arrival.wait) == (other.rank, other.arrival.wait) && self.is_same_process(other)
    }
}

impl fmt::Display for Newcomer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.arrival.process.process, self.from)
    }
}

#[derive(Debug)]
struct Member {
    newcomer: Newcomer,
    until: Instant,
}

/// The ranks that have come in this round. A round ends with one answer for all of them, and the next begins: a job
/// may meet more than once.
#[derive(Debug)]
pub struct Roster {
    /// The name of the run to which the host of the store belongs, if the launcher gives one.
    run: Option<String>,
    members: Vec<Option<Member>>,
    present: usize,
    /// The ranks whose process has ended, and how, in the order of these ends. A rank that is there all the same
    /// has another process, which it started before.
    ended: Vec<(u32, String)>,
    /// The ranks that came to this round, and left.
    left: BTreeSet<u32>,
    /// The number of meetings of all ranks.
    meetings: u32,
    /// The end of the last round in which two processes contradicted each other, and until when late processes are
    /// told; `None` for ever.
    conflict: Option<(Answer, Option<Instant>)>,
    /// The answer of the last round, as long as one of its ranks may not have it.
    last: Option<LastRound>,
}

/// The consequence of an arrival.
#[derive(Debug, PartialEq)]
pub enum Arrived {
    /// The rank has been added and waits for the others, at most until this time.
    Waits(Instant),
    /// The round is over: the answer to all its ranks.
    Ends(Answer),
    /// The process has come after the end of its round, also once more because the answer was lost, or it cannot be
    /// understood: the answer to this connection only.
    Late(Answer),
}

impl Roster {
    /// Nobody has come.
    pub fn new(world_size: u32) -> Roster {
        Roster {
            run: None,
            members: (0..world_size).map(|_| None).collect(),
            present: 0,
            ended: Vec::new(),
            left: BTreeSet::new(),
            meetings: 0,
            conflict: None,
            last: None,
        }
    }

    /// For the ranks of this run, if it has a name.
    pub fn of_run(self, run: Option<String>) -> Roster {
        Roster { run, ..self }
    }

    /// Notes that a process has come. `job` becomes the id of the job if it is the last one.
    pub fn arrive(&mut self, newcomer: Newcomer, now: Instant, job: JobId) -> Arrived {
        // Nobody else will come to the round that it would begin now.
        if let Some(answer) = self.last.as_ref().and_then(|last| last.lost_answer(&newcomer)) {
            return Arrived::Late(answer.clone());
        }
        if let Some((answer, _)) =
            self.conflict.as_ref().filter(|(_, until)| until.is_none_or(|until| now < until))
        {
            return Arrived::Late(answer.clone());
        }
        if let Some(reason) = runs_differ(self.run.as_deref(), &newcomer) {
            return Arrived::Late(Answer::Refused { reason });
        }
        if let Some(problem) = self.contradiction(&newcomer) {
            let answer = Answer::Failed { missing: Vec::new(), problem };
            self.conflict = Some((answer.clone(), Some(now + CONFLICT_MEMORY)));
            return Arrived::Ends(self.end_round(answer));
        }
        let until = now + Duration::from_millis(newcomer.arrival.wait_ms.min(WAIT_MS_MAX));
        let rank = newcomer.rank;
        if self.members[rank as usize].replace(Member { newcomer, until }).is_none() {
            self.present += 1;
        }
        self.left.remove(&rank);
        if let Some(answer) = self.end_without_the_ended() {
            return Arrived::Ends(answer);
        }
        if self.present < self.members.len() {
            return Arrived::Waits(until);
        }
        self.meetings = self.meetings.saturating_add(1);
        let present = || self.members.iter().flatten().map(|member| &member.newcomer);
        let arrivals: Vec<Arrival> = present().map(|newcomer| newcomer.arrival.clone()).collect();
        let problem = backends_differ(&arrivals).or_else(|| address_repeats(&arrivals));
        let problem = problem.or_else(|| hosts_share_address(present()));
        let failed = problem.map(|problem| Answer::Failed { missing: Vec::new(), problem });
        let answer = failed.unwrap_or_else(|| welcome(job, &arrivals));
        Arrived::Ends(self.end_round(answer))
    }

    /// Ends the round because the host cannot let the ranks meet, and gives its answer if ranks are there. The ranks
    /// that come before `until` get it too; for ever where that is `None`.
    pub fn fail(&mut self, problem: String, until: Option<Instant>) -> Option<Answer> {
        let answer = Answer::Failed { missing: Vec::new(), problem };
        self.conflict = Some((answer.clone(), until));
        (self.present > 0).then(|| self.end_round(answer))
    }

    /// The number of ranks that meet.
    pub fn world_size(&self) -> usize {
        self.members.len()
    }

    /// Notes that a rank has confirmed the answer to this wait.
    pub fn has_taken(&mut self, rank: u32, wait: u64) {
        self.last.as_mut().into_iter().for_each(|last| last.has_taken(rank, wait));
        self.last.take_if(|last| last.is_told());
    }

    /// Whether all ranks of the last round have confirmed its answer.
    pub fn all_have_taken(&self) -> bool {
        self.last.is_none()
    }

    /// Why a process cannot be of one job with the present ones. All must be told: nobody knows which of the two is
    /// right, and the job cannot start with either.
    fn contradiction(&self, newcomer: &Newcomer) -> Option<String> {
        let (rank, size) = (newcomer.rank, self.members.len());
        if newcomer.world_size as usize != size {
            let first = self.members.iter().flatten().next();
            let other = first.map_or("whoever hosts the store".to_owned(), |member| {
                format!("rank {}, {},", member.newcomer.rank, member.newcomer)
            });
            let asked = newcomer.world_size;
            return Some(format!(
                "the world sizes differ: rank {rank}, {newcomer}, has {asked}; {other} has {size}; set the same \
                 WORLD_SIZE on all ranks"
            ));
        }
        match self.members.get(rank as usize) {
            None => Some(format!("{newcomer} says that it is rank {rank} of {size}; ranks count from 0")),
            Some(Some(first)) if !first.newcomer.is_same_process(newcomer) => Some(format!(
                "two processes say that they are rank {rank}: {} and {newcomer}; set another RANK in one of them, or \
                 if they belong to two jobs, another UNISONO_JOB or MASTER_PORT in one of the jobs",
                first.newcomer
            )),
            Some(_) => None,
        }
    }

    /// The progress of the round.
    pub fn progress(&self) -> Progress {
        let absent = (0u32..).zip(&self.members).filter(|(_, member)| member.is_none()).map(|(rank, _)| rank);
        let speaker = self.members.iter().position(Option::is_some).unwrap_or_default() as u32;
        let (missing, left) = (ranges(absent), ranges(self.left.iter().copied()));
        Progress { present: self.present as u32, missing, left, speaker, meetings: self.meetings }
    }

    /// Notes that a connection ended: its rank may come again over another, unless its process has ended. Then the
    /// answer to all other ranks follows.
    pub fn leave(&mut self, rank: u32, connection: ConnectionId) -> Option<Answer> {
        self.members.get_mut(rank as usize)?.take_if(|member| member.newcomer.connection == connection)?;
        self.present -= 1;
        self.left.insert(rank);
        self.end_without_the_ended()
    }

    /// Notes that the process of a rank has ended, and how: a verb and its complement. If others wait and the rank is
    /// not there, the answer to them follows.
    pub fn rank_ended(&mut self, rank: u32, how: &str) -> Option<Answer> {
        let is_new = self.ended.iter().all(|(ended, _)| *ended != rank);
        if is_new && (rank as usize) < self.members.len() {
            self.ended.push((rank, how.to_owned()));
        }
        self.end_without_the_ended()
    }

    /// Ends the round if a rank that it waits for can no longer come.
    fn end_without_the_ended(&mut self) -> Option<Answer> {
        let is_absent = |(rank, _): &&(u32, String)| self.members[*rank as usize].is_none();
        let (rank, how) = self.ended.iter().find(is_absent).filter(|_| self.present > 0)?;
        let problem = format!("rank {rank} ended before it had joined: it {how}");
        let answer = Answer::Failed { missing: vec![*rank], problem };
        Some(self.end_round(answer))
    }

    /// Ends the round with this answer to all its ranks, and begins the next.
    fn end_round(&mut self, answer: Answer) -> Answer {
        self.present = 0;
        self.left.clear();
        let untold = self.members.iter_mut().filter_map(Option::take).map(|member| member.newcomer).collect();
        self.last = Some(LastRound::new(answer.clone(), untold));
        answer
    }

    /// Ends the round if a rank has waited as long as it may: the job cannot start without that rank, so all others get
    /// the same answer at once.
    pub fn on_time(&mut self, now: Instant) -> Option<Answer> {
        let expired = |member: &Option<Member>| member.as_ref().is_some_and(|member| now >= member.until);
        let impatient = self.members.iter().position(expired)? as u32;
        let missing = (0u32..).zip(&self.members).filter(|(_, member)| member.is_none());
        let ranks = missing.map(|(rank, _)| rank).collect();
        Some(self.end_round(Answer::Missing { impatient, ranks }))
    }
}

/// The longest that a rank may want to wait: about 30 years, far from every overflow.
const WAIT_MS_MAX: u64 = 1_000_000_000_000;

/// The ranks by their backends, if not all have the same: they would make calls of which the others never hear. They
/// are told when all are there, so that none comes later and waits.
fn backends_differ(arrivals: &[Arrival]) -> Option<String> {
    let mut ranks_of = BTreeMap::<&str, Vec<u32>>::new();
    (0u32..).zip(arrivals).for_each(|(rank, one)| ranks_of.entry(&one.backend).or_default().push(rank));
    let shown = |(backend, ranks): (&str, Vec<u32>)| {
        let count = ranks.len() as u32;
        let ranks = ranges_text(&ranges(ranks), count);
        format!("{ranks} with UNISONO_BACKEND={backend}")
    };
    let differ = ranks_of.len() > 1;
    let all: Vec<String> = ranks_of.into_iter().map(shown).collect();
    differ.then(|| format!("the backends differ: {}; set the same on all ranks", all.join(", ")))
}

/// Two ranks that listen at one address: a rank that dials one would reach the other, or itself.
fn address_repeats(arrivals: &[Arrival]) -> Option<String> {
    let mut ranks = BTreeMap::new();
    let mut found =
        (0u32..).zip(arrivals).filter_map(|(rank, one)| Some((ranks.insert(one.address, rank)?, rank, one)));
    let (first, second, Arrival { address, .. }) = found.next()?;
    Some(format!(
        "ranks {first} and {second} both say that they listen at {address}, so they are in networks apart: set \
         UNISONO_INTERFACE or UNISONO_ADDRESS to a network that all ranks reach"
    ))
}

/// Two hosts with one address at which ranks say that they listen, as the bridges of container engines have.
///
/// Containers with names of their own count as hosts and may share one network. The connections of such containers come
/// from one address, and the connections of two hosts from two.
fn hosts_share_address<'a>(present: impl Iterator<Item = &'a Newcomer>) -> Option<String> {
    let mut first_at = BTreeMap::new();
    for newcomer in present {
        let ip = newcomer.arrival.address.ip();
        let first: &Newcomer = first_at.entry(ip).or_insert(newcomer);
        let is_other_host = first.arrival.host.id != newcomer.arrival.host.id;
        if is_other_host && first.from.ip() != newcomer.from.ip() {
            return Some(format!(
                "ranks {} and {} are on two hosts, {first} and {newcomer}, and both hosts have the address {ip}, at \
                 which these ranks listen: set UNISONO_INTERFACE or UNISONO_ADDRESS to a network that all ranks reach",
                first.rank, newcomer.rank
            ));
        }
    }
    None
}

fn welcome(job: JobId, arrivals: &[Arrival]) -> Answer {
    let (hosts, doubt) = number_hosts(arrivals);
    let count = hosts.iter().max().map_or(0, |last| *last as usize + 1);
    let mut cpus: Vec<Vec<&Cpus>> = vec![Vec::new(); count];
    hosts.iter().zip(arrivals).for_each(|(host, arrival)| cpus[*host as usize].push(&arrival.cpus));
    Answer::Welcome {
        job,
        addresses: arrivals.iter().map(|arrival| arrival.address).collect(),
        hosts,
        processes: arrivals.iter().map(|arrival| arrival.process.clone()).collect(),
        job_settings: arrivals.first().map(|zero| zero.job_settings.clone()).unwrap_or_default(),
        cores: cpus.into_iter().map(Cpus::cores_of).collect(),
        doubt,
    }
}
