//! Which ranks have come: the store's whole logic, without sockets and clock.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::cpus::Cpus;
use super::message::{Answer, Arrival};
use crate::handshake::JobId;

/// One connection to the store, as the roster sees it.
pub(super) type ConnectionId = u64;

#[derive(Debug)]
struct Member {
    connection: ConnectionId,
    from: SocketAddr,
    until: Instant,
    arrival: Arrival,
}

/// The ranks that have come in this round. A round ends with one answer for all of them, and the next begins: a job
/// may meet more than once.
#[derive(Debug)]
pub(super) struct Roster {
    members: Vec<Option<Member>>,
    present: usize,
    /// The ranks whose process has ended, and how, in the order of these ends. One that is there all the same has
    /// another process, which it started before.
    ended: Vec<(u32, String)>,
}

/// What follows from an arrival.
#[derive(Debug, PartialEq)]
pub(super) enum Arrived {
    /// The rank has been added and waits for the others, at most until this time.
    Waits(Instant),
    /// The round is over: the answer to all its ranks.
    Ends(Answer),
    /// The rank is refused: the answer to this connection only.
    Refused(Answer),
}

impl Roster {
    pub(super) fn new(world_size: u32) -> Roster {
        Roster { members: (0..world_size).map(|_| None).collect(), present: 0, ended: Vec::new() }
    }

    /// Notes that `rank` has come over `connection`. `job` becomes the id of the job if the rank is the last one.
    pub(super) fn arrive(
        &mut self,
        rank: u32,
        arrival: Arrival,
        (connection, from): (ConnectionId, SocketAddr),
        now: Instant,
        job: JobId,
    ) -> Arrived {
        let Some(slot) = self.members.get_mut(rank as usize) else {
            return Arrived::Refused(Answer::Refused {
                reason: format!("there is no rank {rank} in this job"),
            });
        };
        if let Some(first) = slot {
            let reason =
                format!("rank {rank} has come already, from {}; this is another process", first.from);
            return Arrived::Refused(Answer::Refused { reason });
        }
        let until = now + Duration::from_millis(arrival.wait_ms.min(WAIT_MS_MAX));
        *slot = Some(Member { connection, from, until, arrival });
        self.present += 1;
        if let Some(answer) = self.end_without_the_ended() {
            return Arrived::Ends(answer);
        }
        if self.present < self.members.len() {
            return Arrived::Waits(until);
        }
        let arrivals: Vec<Arrival> = self.next_round().into_iter().map(|member| member.arrival).collect();
        Arrived::Ends(welcome(job, &arrivals))
    }

    /// Notes that a connection ended: its rank may come again over another, unless its process has ended. Then the
    /// answer to all other ranks follows.
    pub(super) fn leave(&mut self, rank: u32, connection: ConnectionId) -> Option<Answer> {
        self.members.get_mut(rank as usize)?.take_if(|member| member.connection == connection)?;
        self.present -= 1;
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
        self.next_round();
        Some(answer)
    }

    /// Begins the next round and returns the members of the one before, by their ranks.
    fn next_round(&mut self) -> Vec<Member> {
        self.present = 0;
        self.members.iter_mut().filter_map(Option::take).collect()
    }

    /// Ends the round if a rank has waited as long as it may: the job cannot start without that rank, so all others get
    /// the same answer at once.
    pub(super) fn on_time(&mut self, now: Instant) -> Option<Answer> {
        let expired = |member: &Option<Member>| member.as_ref().is_some_and(|member| now >= member.until);
        let impatient = self.members.iter().position(expired)? as u32;
        let missing = (0u32..).zip(&self.members).filter(|(_, member)| member.is_none());
        let missing = missing.map(|(rank, _)| rank).collect();
        self.next_round();
        let problem = format!("rank {impatient} has waited for the others as long as it may");
        Some(Answer::Failed { missing, problem })
    }
}

/// The longest that a rank may want to wait: about 30 years, far from every overflow.
const WAIT_MS_MAX: u64 = 1_000_000_000_000;

fn welcome(job: JobId, arrivals: &[Arrival]) -> Answer {
    let mut numbers = HashMap::new();
    let number = |arrival: &Arrival| {
        let next = numbers.len() as u32;
        *numbers.entry(arrival.host).or_insert(next)
    };
    let hosts: Vec<u32> = arrivals.iter().map(number).collect();
    let mut cpus: Vec<Vec<&Cpus>> = vec![Vec::new(); numbers.len()];
    hosts.iter().zip(arrivals).for_each(|(host, arrival)| cpus[*host as usize].push(&arrival.cpus));
    Answer::Welcome {
        job,
        addresses: arrivals.iter().map(|arrival| arrival.address).collect(),
        hosts,
        processes: arrivals.iter().map(|arrival| arrival.process.clone()).collect(),
        job_settings: arrivals.first().map(|zero| zero.job_settings.clone()).unwrap_or_default(),
        cores: cpus.into_iter().map(Cpus::cores_of).collect(),
    }
}

#[cfg(test)]
mod tests {
    use unisono_communicator::Process;

    use super::super::cpus::tests::bound_to;
    use super::super::message::RankProcess;
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const JOB: JobId = JobId([5; 16]);

    fn process() -> RankProcess {
        RankProcess { process: Process { host: "here".into(), pid: 9 }, birth: None }
    }

    fn arrival(port: u16, host: u8, wait_ms: u64) -> Arrival {
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let (job_settings, cpus) = (vec![port as u8], bound_to(usize::from(port)));
        Arrival { address, host: [host; 16], process: process(), wait_ms, job_settings, cpus }
    }

    fn from(connection: ConnectionId) -> (ConnectionId, SocketAddr) {
        (connection, SocketAddr::from(([127, 0, 0, 1], 1000 + connection as u16)))
    }

    #[test]
    fn the_last_arrival_completes_the_round_in_any_order() {
        let now = Instant::now();
        let mut roster = Roster::new(4);
        for round in 0..2 {
            for (rank, host) in [(3, 9), (0, 9), (2, 9)] {
                let arrived = roster.arrive(rank, arrival(rank as u16, host, 1000), from(round), now, JOB);
                assert_eq!(arrived, Arrived::Waits(now + SECOND));
            }
            let Arrived::Ends(answer) = roster.arrive(1, arrival(1, 1, 1000), from(9), now, JOB) else {
                panic!("complete")
            };
            let addresses = (0..4).map(|port| SocketAddr::from(([127, 0, 0, 1], port))).collect();
            let (hosts, cores) = (vec![0, 1, 0, 0], vec![3, 1]);
            let (processes, job_settings) = (vec![process(); 4], vec![0]);
            assert_eq!(
                answer,
                Answer::Welcome { job: JOB, addresses, hosts, processes, job_settings, cores }
            );
            assert_eq!(roster.on_time(now + Duration::from_secs(9)), None, "nobody waits any longer");
        }
    }

    #[test]
    fn the_first_of_two_equal_ranks_stays() {
        let now = Instant::now();
        let mut roster = Roster::new(2);
        assert_eq!(roster.arrive(1, arrival(7, 0, 1000), from(1), now, JOB), Arrived::Waits(now + SECOND));
        let Arrived::Refused(Answer::Refused { reason }) =
            roster.arrive(1, arrival(8, 0, 1000), from(2), now, JOB)
        else {
            panic!("refused")
        };
        assert!(reason.contains("rank 1 has come already, from 127.0.0.1:1001"), "{reason}");
        roster.leave(1, 2);
        let Arrived::Ends(Answer::Welcome { addresses, .. }) =
            roster.arrive(0, arrival(6, 0, 1000), from(3), now, JOB)
        else {
            panic!("complete")
        };
        assert_eq!(addresses[1].port(), 7);
        assert!(matches!(roster.arrive(2, arrival(9, 0, 1), from(4), now, JOB), Arrived::Refused(_)));
    }

    #[test]
    fn who_leaves_may_come_again() {
        let now = Instant::now();
        let mut roster = Roster::new(2);
        roster.arrive(1, arrival(7, 0, 1000), from(1), now, JOB);
        roster.leave(1, 1);
        roster.leave(1, 1);
        assert_eq!(roster.arrive(1, arrival(8, 0, 1000), from(2), now, JOB), Arrived::Waits(now + SECOND));
        assert!(matches!(roster.arrive(0, arrival(6, 0, 1000), from(3), now, JOB), Arrived::Ends(_)));
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
            rank,
            arrival(7, 0, 1000),
            from(connection),
            now,
            JOB,
        ) {
            Arrived::Ends(answer) => Some(answer),
            Arrived::Waits(_) => None,
            Arrived::Refused(answer) => panic!("{answer:?}"),
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
        roster.arrive(1, arrival(1, 0, 5000), from(1), now, JOB);
        roster.arrive(3, arrival(3, 0, 2000), from(3), now, JOB);
        roster.arrive(4, arrival(4, 0, u64::MAX), from(4), now, JOB);
        assert_eq!(roster.on_time(now + Duration::from_millis(1999)), None);
        let Some(Answer::Failed { missing, problem }) = roster.on_time(now + Duration::from_millis(2000))
        else {
            panic!("failed")
        };
        assert_eq!(missing, [0, 2]);
        assert!(problem.contains("rank 3 has waited"), "{problem}");
        assert_eq!(roster.on_time(now + Duration::from_secs(9)), None);
    }
}
