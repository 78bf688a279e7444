//! Rounds in which ranks come, leave, contradict each other and come again.

use unisono_communicator::Process;

use super::cpus::tests::bound_to;
use super::message::{HostClaim, RankProcess};
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
    for part in ["rank 1: pid 9 on here (127.0.0.1:1001) and pid 9 on here (127.0.0.1:1003)", "UNISONO_JOB"] {
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
    assert!(problem.contains("rank 3, pid 9 on here (127.0.0.1:1002), has 4; whoever hosts"), "{problem}");
    let mut roster = Roster::new(2);
    roster.arrive(newcomer(1, 1, arrival(7, 0, 1000)), now, JOB);
    let problem = conflict(roster.arrive(four(), now, JOB));
    let both = "has 4; rank 1, pid 9 on here (127.0.0.1:1001), has 2; set the same WORLD_SIZE on all ranks";
    assert!(problem.ends_with(both), "{problem}");
    assert!(problem.len() < 512, "it fits its message");
}

#[test]
fn two_ranks_with_one_address_end_the_round_when_all_are_there() {
    let (now, mut roster) = (Instant::now(), Roster::new(4));
    for (rank, port) in [(3, 7), (0, 8), (1, 7)] {
        let arrived = roster.arrive(of(4, newcomer(rank, u64::from(rank), arrival(port, 1, 1000))), now, JOB);
        assert_eq!(arrived, Arrived::Waits(now + SECOND));
    }
    let problem = conflict(roster.arrive(of(4, newcomer(2, 2, arrival(9, 1, 1000))), now, JOB));
    assert!(problem.starts_with("ranks 1 and 3 both say that they listen at 127.0.0.1:7, "), "{problem}");
}

#[test]
fn two_hosts_with_one_address_end_the_round_when_all_are_there() {
    let now = Instant::now();
    // Each rank with its host and the last part of the address from which its connection comes.
    let meet = |ranks: [(u8, u8); 3]| {
        let mut roster = Roster::new(3);
        let arrived = (0u32..).zip(ranks).map(|(rank, (host, from))| {
            let mut one = of(3, newcomer(rank, u64::from(rank), arrival(7 + rank as u16, host, 1000)));
            one.arrival.address.set_ip([172, 17, 0, 1].into());
            one.from.set_ip([10, 0, 0, from].into());
            roster.arrive(one, now, JOB)
        });
        arrived.last().unwrap()
    };
    let problem = conflict(meet([(1, 1), (1, 1), (2, 2)]));
    let words = "ranks 0 and 2 are on two hosts, pid 9 on here (10.0.0.1:1000) and pid 9 on here (10.0.0.2:1002), \
                 and both hosts have the address 172.17.0.1, at which these ranks listen: set UNISONO_INTERFACE";
    assert!(problem.starts_with(words), "{problem}");
    assert!(problem.len() < 512, "it fits its message");
    // Containers of one network, and one host that has two ways to the store.
    for shared in [[(1, 1), (2, 1), (3, 1)], [(1, 1), (1, 2), (1, 3)]] {
        assert!(matches!(meet(shared), Arrived::Ends(Answer::Welcome { .. })));
    }
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
    let words = "the backends differ: rank 2 with UNISONO_BACKEND=auto, ranks 0-1 with UNISONO_BACKEND=tcp; ";
    assert!(problem.starts_with(words), "{problem}");
    assert!(
        (0..3).filter(|rank| matches!(arrive(*rank, "tcp"), Arrived::Ends(Answer::Welcome { .. }))).count()
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
    assert_eq!(roster.arrive(newcomer(1, 2, arrival(8, 0, 1000)), now, JOB), Arrived::Waits(now + SECOND));
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
    assert_eq!(roster.rank_ended(0, "was ended by signal 9 (SIGKILL)"), None, "its connection still lives");
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
