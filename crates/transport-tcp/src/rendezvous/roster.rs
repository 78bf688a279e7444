//! Which ranks have come: the store's whole logic, without sockets and clock.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::cpus::Cpus;
use super::host_numbers::number_hosts;
use super::last_round::LastRound;
use super::message::{Answer, Arrival, Progress, ranges};
use super::runs::runs_differ;
use super::waiting::ranges_text;
use crate::handshake::JobId;

/// How long the ranks that come after a conflict are told of it. Those of a job come within seconds of each other.
pub(super) const CONFLICT_MEMORY: Duration = Duration::from_secs(10);

/// One connection to the store, as the roster sees it.
pub(super) type ConnectionId = u64;

/// A process that has come to the store.
#[derive(Clone, Debug)]
pub(super) struct Newcomer {
    /// The rank that it says it is.
    pub(super) rank: u32,
    /// How many ranks it says there are.
    pub(super) world_size: u32,
    /// Over which connection it has come.
    pub(super) connection: ConnectionId,
    /// From where.
    pub(super) from: SocketAddr,
    /// What else it says.
    pub(super) arrival: Arrival,
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
pub(super) struct Roster {
    /// The name of the run to which the host of the store belongs, if the launcher gives one.
    run: Option<String>,
    members: Vec<Option<Member>>,
    present: usize,
    /// The ranks whose process has ended, and how, in the order of these ends. One that is there all the same has
    /// another process, which it started before.
    ended: Vec<(u32, String)>,
    /// The ranks that came to this round, and left.
    left: BTreeSet<u32>,
    /// How often all ranks have met.
    meetings: u32,
    /// The end of the last round in which two processes contradicted each other, and until when those that come late
    /// are told.
    conflict: Option<(Answer, Instant)>,
    /// The answer of the last round, as long as one of its ranks may not have it.
    last: Option<LastRound>,
}

/// What follows from an arrival.
#[derive(Debug, PartialEq)]
pub(super) enum Arrived {
    /// The rank has been added and waits for the others, at most until this time.
    Waits(Instant),
    /// The round is over: the answer to all its ranks.
    Ends(Answer),
    /// The process has come after the end of its round, also once more because the answer was lost, or it cannot be
    /// understood: the answer to this connection only.
    Late(Answer),
}

impl Roster {
    pub(super) fn new(world_size: u32) -> Roster {
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
    pub(super) fn of_run(self, run: Option<String>) -> Roster {
        Roster { run, ..self }
    }

    /// Notes that a process has come. `job` becomes the id of the job if it is the last one.
    pub(super) fn arrive(&mut self, newcomer: Newcomer, now: Instant, job: JobId) -> Arrived {
        // Nobody else will come to the round that it would begin now.
        if let Some(answer) = self.last.as_ref().and_then(|last| last.lost_answer(&newcomer)) {
            return Arrived::Late(answer.clone());
        }
        if let Some((answer, _)) = self.conflict.as_ref().filter(|(_, until)| now < *until) {
            return Arrived::Late(answer.clone());
        }
        if let Some(reason) = runs_differ(self.run.as_deref(), &newcomer) {
            return Arrived::Late(Answer::Refused { reason });
        }
        if let Some(problem) = self.contradiction(&newcomer) {
            let answer = Answer::Failed { missing: Vec::new(), problem };
            self.conflict = Some((answer.clone(), now + CONFLICT_MEMORY));
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
        let arrivals: Vec<Arrival> =
            self.members.iter().flatten().map(|member| member.newcomer.arrival.clone()).collect();
        let problem = backends_differ(&arrivals);
        let failed = problem.map(|problem| Answer::Failed { missing: Vec::new(), problem });
        let answer = failed.unwrap_or_else(|| welcome(job, &arrivals));
        Arrived::Ends(self.end_round(answer))
    }

    /// Notes that a rank has confirmed the answer to this wait.
    pub(super) fn has_taken(&mut self, rank: u32, wait: u64) {
        self.last.as_mut().into_iter().for_each(|last| last.has_taken(rank, wait));
        self.last.take_if(|last| last.is_told());
    }

    /// Whether all ranks of the last round have confirmed its answer.
    pub(super) fn all_have_taken(&self) -> bool {
        self.last.is_none()
    }

    /// Why a process cannot be of one job with those that are there. All must be told: nobody knows which of the two is
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

    /// How far the round is.
    pub(super) fn progress(&self) -> Progress {
        let absent = (0u32..).zip(&self.members).filter(|(_, member)| member.is_none()).map(|(rank, _)| rank);
        let speaker = self.members.iter().position(Option::is_some).unwrap_or_default() as u32;
        let (missing, left) = (ranges(absent), ranges(self.left.iter().copied()));
        Progress { present: self.present as u32, missing, left, speaker, meetings: self.meetings }
    }

    /// Notes that a connection ended: its rank may come again over another, unless its process has ended. Then the
    /// answer to all other ranks follows.
    pub(super) fn leave(&mut self, rank: u32, connection: ConnectionId) -> Option<Answer> {
        self.members.get_mut(rank as usize)?.take_if(|member| member.newcomer.connection == connection)?;
        self.present -= 1;
        self.left.insert(rank);
        self.end_without_the_ended()
    }

    /// Notes that the process of a rank has ended, and how: a verb and what belongs to it. If others wait and the rank
    /// is not there, the answer to them follows.
    pub(super) fn rank_ended(&mut self, rank: u32, how: &str) -> Option<Answer> {
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
    pub(super) fn on_time(&mut self, now: Instant) -> Option<Answer> {
        let expired = |member: &Option<Member>| member.as_ref().is_some_and(|member| now >= member.until);
        let impatient = self.members.iter().position(expired)? as u32;
        let missing = (0u32..).zip(&self.members).filter(|(_, member)| member.is_none());
        let ranks = missing.map(|(rank, _)| rank).collect();
        Some(self.end_round(Answer::Missing { impatient, ranks }))
    }
}

/// The longest that a rank may want to wait: about 30 years, far from every overflow.
const WAIT_MS_MAX: u64 = 1_000_000_000_000;

/// Which ranks have which backend, if not all have the same: they would make calls of which the others never hear. They
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

#[cfg(test)]
mod tests {
    use unisono_communicator::Process;

    use super::super::cpus::tests::bound_to;
    use super::super::message::{HostClaim, RankProcess};
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const JOB: JobId = JobId([5; 16]);

    fn process() -> RankProcess {
        RankProcess { process: Process { host: "here".into(), pid: 9 }, birth: None }
    }

    fn arrival(port: u16, host: u8, wait_ms: u64) -> Arrival {
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let (job_settings, cpus) = (vec![port as u8], bound_to(usize::from(port)));
        let host = HostClaim { id: [host; 16], is_named: false, local_ranks: None };
        let (process, run, backend) = (process(), String::new(), "tcp".to_owned());
        Arrival { address, host, process, run, wait: 0, wait_ms, job_settings, backend, cpus }
    }

    /// Of a job of 2; from another place and with another wait for each connection.
    fn newcomer(rank: u32, connection: ConnectionId, arrival: Arrival) -> Newcomer {
        let from = SocketAddr::from(([127, 0, 0, 1], 1000 + connection as u16));
        Newcomer { rank, world_size: 2, connection, from, arrival: Arrival { wait: connection, ..arrival } }
    }

    fn of(world_size: u32, newcomer: Newcomer) -> Newcomer {
        Newcomer { world_size, ..newcomer }
    }

    #[test]
    fn the_last_arrival_completes_the_round_in_any_order() {
        let now = Instant::now();
        let mut roster = Roster::new(4);
        for round in 0..2 {
            for (rank, host) in [(3, 9), (0, 9), (2, 9)] {
                let arrived =
                    roster.arrive(of(4, newcomer(rank, round, arrival(rank as u16, host, 1000))), now, JOB);
                assert_eq!(arrived, Arrived::Waits(now + SECOND));
            }
            let Arrived::Ends(answer) =
                roster.arrive(of(4, newcomer(1, 9 + round, arrival(1, 1, 1000))), now, JOB)
            else {
                panic!("complete")
            };
            let addresses = (0..4).map(|port| SocketAddr::from(([127, 0, 0, 1], port))).collect();
            let (hosts, cores) = (vec![0, 1, 0, 0], vec![3, 1]);
            let (processes, job_settings) = (vec![process(); 4], vec![0]);
            assert_eq!(
                answer,
                Answer::Welcome {
                    job: JOB,
                    addresses,
                    hosts,
                    processes,
                    job_settings,
                    cores,
                    doubt: String::new()
                }
            );
            assert_eq!(roster.on_time(now + Duration::from_secs(9)), None, "nobody waits any longer");
        }
    }

    /// The problem that an answer to all ranks names.
    fn conflict(arrived: Arrived) -> String {
        let Arrived::Ends(Answer::Failed { missing, problem }) = arrived else { panic!("{arrived:?}") };
        assert!(missing.is_empty(), "{missing:?}");
        problem
    }

    #[test]
    fn two_processes_of_one_rank_end_the_round_for_all_and_those_who_come_late() {
        let now = Instant::now();
        let mut roster = Roster::new(2);
        let mut first = newcomer(1, 1, arrival(7, 0, 1000));
        assert_eq!(roster.arrive(first.clone(), now, JOB), Arrived::Waits(now + SECOND));
        // The same process may come again, over a new connection; the end of the old one means nothing then.
        first.connection = 2;
        assert_eq!(roster.arrive(first, now, JOB), Arrived::Waits(now + SECOND));
        assert_eq!((roster.leave(1, 1), roster.progress().present), (None, 1));
        let problem = conflict(roster.arrive(newcomer(1, 3, arrival(8, 0, 1000)), now, JOB));
        for part in
            ["rank 1: pid 9 on here (127.0.0.1:1001) and pid 9 on here (127.0.0.1:1003)", "UNISONO_JOB"]
        {
            assert!(problem.contains(part), "{problem}");
        }
        assert_eq!(roster.progress().present, 0);
        let told = Answer::Failed { missing: Vec::new(), problem };
        let zero = || newcomer(0, 4, arrival(6, 0, 1000));
        assert_eq!(roster.arrive(zero(), now + CONFLICT_MEMORY / 2, JOB), Arrived::Late(told));
        assert!(matches!(roster.arrive(zero(), now + CONFLICT_MEMORY, JOB), Arrived::Waits(_)));
    }

    #[test]
    fn another_world_size_ends_the_round_for_all() {
        let now = Instant::now();
        let four = || of(4, newcomer(3, 2, arrival(8, 0, 1000)));
        let mut roster = Roster::new(2);
        let problem = conflict(roster.arrive(four(), now, JOB));
        assert!(
            problem.contains("rank 3, pid 9 on here (127.0.0.1:1002), has 4; whoever hosts"),
            "{problem}"
        );
        let mut roster = Roster::new(2);
        roster.arrive(newcomer(1, 1, arrival(7, 0, 1000)), now, JOB);
        let problem = conflict(roster.arrive(four(), now, JOB));
        let both =
            "has 4; rank 1, pid 9 on here (127.0.0.1:1001), has 2; set the same WORLD_SIZE on all ranks";
        assert!(problem.ends_with(both), "{problem}");
        assert!(problem.len() < 512, "it fits its message");
    }

    #[test]
    fn two_backends_end_the_round_when_all_are_there() {
        let now = Instant::now();
        let (mut roster, mut connection) = (Roster::new(3), 0);
        let mut arrive = |rank: u32, backend: &str| {
            connection += 1;
            let mut one = of(3, newcomer(rank, connection, arrival(7 + rank as u16, 0, 1000)));
            one.arrival.backend = backend.to_owned();
            roster.arrive(one, now, JOB)
        };
        assert!(matches!(arrive(1, "tcp"), Arrived::Waits(_)));
        assert!(matches!(arrive(2, "auto"), Arrived::Waits(_)));
        let problem = conflict(arrive(0, "tcp"));
        let words =
            "the backends differ: rank 2 with UNISONO_BACKEND=auto, ranks 0-1 with UNISONO_BACKEND=tcp; ";
        assert!(problem.starts_with(words), "{problem}");
        assert!(
            (0..3)
                .filter(|rank| matches!(arrive(*rank, "tcp"), Arrived::Ends(Answer::Welcome { .. })))
                .count()
                == 1
        );
    }

    #[test]
    fn progress_tells_who_is_there_and_who_has_left() {
        let now = Instant::now();
        let mut roster = Roster::new(5);
        for rank in [1, 3, 4] {
            roster.arrive(of(5, newcomer(rank, 1, arrival(rank as u16, 0, 1000))), now, JOB);
        }
        roster.leave(4, 1);
        roster.leave(1, 1);
        roster.arrive(of(5, newcomer(1, 2, arrival(1, 0, 1000))), now, JOB);
        let (missing, left) = (vec![(0, 0), (2, 2), (4, 4)], vec![(4, 4)]);
        assert_eq!(roster.progress(), Progress { present: 2, missing, left, speaker: 1, meetings: 0 });
    }

    #[test]
    fn who_leaves_may_come_again() {
        let now = Instant::now();
        let mut roster = Roster::new(2);
        roster.arrive(newcomer(1, 1, arrival(7, 0, 1000)), now, JOB);
        roster.leave(1, 1);
        roster.leave(1, 1);
        assert_eq!(
            roster.arrive(newcomer(1, 2, arrival(8, 0, 1000)), now, JOB),
            Arrived::Waits(now + SECOND)
        );
        assert!(matches!(roster.arrive(newcomer(0, 3, arrival(6, 0, 1000)), now, JOB), Arrived::Ends(_)));
    }

    /// The problem of a round that failed for lack of `rank`.
    fn failed_without(rank: u32, answer: Option<Answer>) -> String {
        let Some(Answer::Failed { missing, problem }) = answer else { panic!("{answer:?}") };
        assert_eq!(missing, [rank]);
        problem
    }

    #[test]
    fn a_rank_whose_process_has_ended_is_waited_for_only_while_it_is_there() {
        let now = Instant::now();
        let mut roster = Roster::new(3);
        let arrive = |roster: &mut Roster, rank, connection| match roster.arrive(
            of(3, newcomer(rank, connection, arrival(7, 0, 1000))),
            now,
            JOB,
        ) {
            Arrived::Ends(answer) => Some(answer),
            Arrived::Waits(_) => None,
            Arrived::Late(answer) => panic!("{answer:?}"),
        };
        // All have met: a rank that ends then harms nobody.
        assert!((0..3).filter_map(|rank| arrive(&mut roster, rank, 1)).count() == 1);
        assert_eq!(roster.rank_ended(9, "never was"), None);
        assert_eq!(roster.rank_ended(1, "exited with status 0"), None, "nobody waits");
        let text = "rank 1 ended before it had joined: it exited with status 0";
        assert_eq!(failed_without(1, arrive(&mut roster, 0, 2)), text, "nor can they meet again");
        assert_eq!(failed_without(1, roster.rank_ended(1, "x").or(arrive(&mut roster, 2, 3))), text);
        // Another process speaks for it, as long as its connection lives.
        assert_eq!((arrive(&mut roster, 1, 4), arrive(&mut roster, 0, 5)), (None, None));
        assert_eq!(
            roster.rank_ended(0, "was ended by signal 9 (SIGKILL)"),
            None,
            "its connection still lives"
        );
        let killed = failed_without(0, roster.leave(0, 5));
        assert_eq!(killed, "rank 0 ended before it had joined: it was ended by signal 9 (SIGKILL)");
        assert_eq!(roster.on_time(now + Duration::from_secs(9)), None, "nobody waits any longer");
    }

    #[test]
    fn the_first_to_lose_patience_ends_the_round_for_all_with_the_exact_list() {
        let now = Instant::now();
        let mut roster = Roster::new(5);
        assert_eq!(roster.on_time(now), None, "an empty store waits for ever");
        roster.arrive(of(5, newcomer(1, 1, arrival(1, 0, 5000))), now, JOB);
        roster.arrive(of(5, newcomer(3, 3, arrival(3, 0, 2000))), now, JOB);
        roster.arrive(of(5, newcomer(4, 4, arrival(4, 0, u64::MAX))), now, JOB);
        assert_eq!(roster.on_time(now + Duration::from_millis(1999)), None);
        let answer = roster.on_time(now + Duration::from_millis(2000));
        assert_eq!(answer, Some(Answer::Missing { impatient: 3, ranks: vec![0, 2] }));
        assert_eq!(roster.on_time(now + Duration::from_secs(9)), None);
    }
}
