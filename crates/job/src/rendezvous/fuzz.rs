//! Arbitrary bytes on both sides of the store: a target for cargo-fuzz.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use unisono_communicator::{Error, JobRank, Process};
use unisono_control::RANKS_MAX;
use unisono_control::handshake::JobId;
use unisono_control::roster::message::{
    ANSWER_BYTES_MAX, ARRIVAL_BYTES_MAX, Answer, Arrival, HOST_ID_BYTES, HostClaim, ProcessBirth, RankProcess,
};
use unisono_control::roster::{Arrived, CONFLICT_MEMORY, ConnectionId, Newcomer, Roster};
use unisono_control::secret::{SECRET_BYTES, Secret};

use super::join::{JoinConfig, Setback, StoreProcess, Understood, understand};
use super::plan::{Meeting, meeting};
use super::stream::read_message;
use super::waiting::{Voice, WaitConfig};

use crate::config::Config;
use crate::fuzz::input::Input;
use crate::fuzz::{BufferedSocket, now};
use crate::settings::knobs;

const LENGTH_BYTES: usize = 4;
const JOB: JobId = JobId([5; 16]);

/// Variables of launchers that say who a process is.
const LAUNCHERS: [&str; 8] = [
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "SLURM_PROCID",
    "SLURM_NTASKS",
    "SLURM_STEP_NUM_NODES",
    "SLURM_STEP_NODELIST",
    "PMI_RANK",
    "PMI_SIZE",
];

/// Target `store`: the words of ranks to it, its words to ranks, rounds in which they come and go, and settings.
pub fn store(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    match input.below(16) {
        0..=4 => drop(arrivals(&mut input)),
        5..=9 => answer(&mut input),
        10..=14 => rounds(&mut input),
        _ => settings(&mut input),
    }
}

/// One message as it comes out of a socket, piece by piece: refused by its length before anything is kept.
fn message(input: &mut Input<'_>, bytes_max: usize) -> Option<Vec<u8>> {
    let piece = 1 + usize::from(input.u8());
    let bytes = input.rest();
    let mut socket = BufferedSocket { rest: bytes, piece };
    let read = now(read_message(&mut socket, bytes_max));
    let length = bytes.first_chunk().map(|length| u32::from_le_bytes(*length) as usize);
    if length.is_some_and(|length| length > bytes_max) {
        assert!(read.is_err() && socket.rest.len() == bytes.len() - LENGTH_BYTES, "too long, and read on");
    }
    assert_eq!(
        read.is_ok(),
        length.is_some_and(|length| length <= bytes_max.min(bytes.len() - LENGTH_BYTES))
    );
    read.ok()
}

/// The message of a rank: if it is an arrival, it is the same one when it is written again.
fn arrivals(input: &mut Input<'_>) -> Option<Arrival> {
    let arrival = Arrival::decode(&message(input, ARRIVAL_BYTES_MAX)?).ok()?;
    let again = arrival.encode();
    assert!(again.len() <= ARRIVAL_BYTES_MAX, "{} bytes", again.len());
    assert_eq!(Arrival::decode(&again).as_ref(), Ok(&arrival));
    let mut roster = Roster::new(1);
    let address = arrival.address;
    let Arrived::Ends(Answer::Welcome { addresses, .. }) =
        roster.arrive(newcomer((0, 1, 1), arrival.clone()), Instant::now(), JOB)
    else {
        panic!("a rank that is alone is welcome")
    };
    assert_eq!(addresses, [address]);
    Some(arrival)
}

/// The message of the store: the same when it is written again, and a rank takes it only if it fits its world.
fn answer(input: &mut Input<'_>) {
    let world_size = u32::from(input.below(4));
    let Some(message) = message(input, ANSWER_BYTES_MAX) else { return };
    let understood = understand(&config(world_size), &message);
    let Ok(answer) = Answer::decode(&message) else {
        assert!(matches!(understood, Err(Setback::Final(Error::Refused { .. }))));
        return;
    };
    check_answer(&answer);
    match (answer, understood) {
        (Answer::Welcome { addresses, hosts, .. }, Ok(Understood::Met(membership))) => {
            assert_eq!([addresses.len(), hosts.len()], [world_size as usize; 2]);
            assert!(hosts.iter().all(|host| (*host as usize) < membership.cores.len()));
            assert_eq!((membership.addresses, membership.hosts), (addresses, hosts));
        }
        (Answer::Welcome { .. } | Answer::Refused { .. }, Err(Setback::Final(Error::Refused { .. }))) => {}
        (Answer::Waiting(progress), Ok(Understood::Waiting(understood))) => assert_eq!(progress, understood),
        (
            Answer::Failed { missing: ranks, .. } | Answer::Missing { ranks, .. },
            Err(Setback::Final(Error::Rendezvous { missing, .. })),
        ) => {
            assert_eq!(missing.into_iter().map(JobRank::get).collect::<Vec<_>>(), ranks);
        }
        (answer, understood) => panic!("{answer:?} is understood as {understood:?}"),
    }
}

fn check_answer(answer: &Answer) {
    let bytes = answer.encode();
    assert!(bytes.len() <= ANSWER_BYTES_MAX, "{} bytes", bytes.len());
    assert_eq!(Answer::decode(&bytes).as_ref(), Ok(answer));
}

fn config(world_size: u32) -> JoinConfig {
    JoinConfig {
        store: String::new(),
        hosted_by: StoreProcess::default(),
        secret: Secret::take(&mut [1; SECRET_BYTES]),
        job: JOB,
        rank: 0,
        world_size,
        listen: SocketAddr::from(([127, 0, 0, 1], 1)),
        host: HostClaim { id: [0; 16], is_named: false, local_ranks: None },
        run: None,
        job_settings: Vec::new(),
        backend: String::new(),
        timeout: Duration::ZERO,
        handshake_timeout: Duration::ZERO,
        wait: WaitConfig {
            first: Duration::ZERO,
            every: Duration::ZERO,
            resolve: Duration::ZERO,
            voice: Voice::OneOfMany,
            place: String::new(),
            remedy: String::new(),
            variable: "UNISONO_STORE".to_owned(),
            value: String::new(),
        },
    }
}

/// A process that comes as `(rank, world size, connection)`.
fn newcomer((rank, world_size, connection): (u32, u32, ConnectionId), arrival: Arrival) -> Newcomer {
    Newcomer { rank, world_size, connection, from: arrival.address, arrival }
}

/// The expected knowledge of a store's round.
#[derive(Debug)]
struct Round {
    /// The ranks that have come: over which connection each, until when it waits, and where it listens.
    present: Vec<Option<(ConnectionId, Instant, SocketAddr)>>,
    /// The ranks whose process has ended, in the order of these ends.
    ended: Vec<u32>,
    /// Until when a conflict is told to all that come.
    conflict: Option<Instant>,
}

impl Round {
    /// The rank that will not come although others wait for it.
    fn hopeless(&self) -> Option<u32> {
        let absent = |rank: &&u32| self.present[**rank as usize].is_none();
        self.ended.iter().find(absent).copied().filter(|_| self.present.iter().any(Option::is_some))
    }

    /// Checks whether the round has ended for lack of such a rank.
    fn check_end(&mut self, answer: Option<&Answer>) {
        match (self.hopeless(), answer) {
            (None, None) => {}
            (Some(rank), Some(failed @ Answer::Failed { missing, .. })) if *missing == [rank] => {
                check_answer(failed);
                self.present.fill(None);
            }
            (rank, answer) => panic!("{rank:?} cannot come, and the answer is {answer:?}"),
        }
    }
}

/// Ranks come, leave and time out in any order: the roster agrees with a plain list of the ranks that are there.
fn rounds(input: &mut Input<'_>) {
    let world_size = 1 + u32::from(input.below(6));
    let (mut roster, mut now) = (Roster::new(world_size), Instant::now());
    let mut round = Round { present: vec![None; world_size as usize], ended: Vec::new(), conflict: None };
    let mut connection = 0;
    while !input.is_empty() {
        let rank = u32::from(input.below(8));
        check_answer(&Answer::Waiting(roster.progress()));
        match input.below(5) {
            0 | 1 => {
                connection += 1;
                arrive(&mut roster, &mut round, (rank, connection), input, now);
            }
            2 => {
                let left = ConnectionId::from(input.u8());
                let answer = roster.leave(rank, left);
                if let Some(slot) = round.present.get_mut(rank as usize) {
                    slot.take_if(|member| member.0 == left);
                }
                round.check_end(answer.as_ref());
            }
            3 => {
                let answer = roster.rank_ended(rank, "exited with status 0");
                if rank < world_size && !round.ended.contains(&rank) {
                    round.ended.push(rank);
                }
                round.check_end(answer.as_ref());
            }
            _ => {
                now += Duration::from_millis(u64::from(input.u16()));
                expire(&mut roster, &mut round.present, now);
            }
        }
    }
}

fn arrive(
    roster: &mut Roster,
    round: &mut Round,
    (rank, connection): (u32, ConnectionId),
    input: &mut Input<'_>,
    now: Instant,
) {
    let wait_ms = if input.below(8) == 0 { input.u64() } else { u64::from(input.u8()) * 100 };
    let address = SocketAddr::from((input.array::<4>(), input.u16()));
    let job_settings = input.array::<2>().to_vec();
    let birth = ProcessBirth { pid_namespace: 4, start_ticks: connection };
    let process = Process { host: "h".into(), pid: connection as u32 };
    let process = RankProcess { process, birth: (connection % 2 > 0).then_some(birth) };
    let id = [input.below(3); HOST_ID_BYTES];
    let local_ranks = Some(u32::from(input.below(3))).filter(|&ranks| ranks > 0);
    let host = HostClaim { id, is_named: input.below(2) == 1, local_ranks };
    let (backend, cpus, run) = ("tcp".to_owned(), super::own_cpus(), String::new());
    let wait = u64::from(input.below(2));
    let arrival = Arrival { address, host, process, run, wait, wait_ms, job_settings, backend, cpus };
    let bytes = arrival.encode();
    let Ok(arrival) = Arrival::decode(&bytes) else { panic!("an arrival does not survive the wire") };
    let size = round.present.len() as u32 + u32::from(input.below(8) == 0);
    let arrived = roster.arrive(newcomer((rank, size, connection), arrival), now, JOB);
    if round.conflict.is_some_and(|until| now < until) {
        assert!(matches!(arrived, Arrived::Late(Answer::Failed { .. })), "{arrived:?}");
        return;
    }
    // No two of these processes are the same.
    let is_free = round.present.get(rank as usize).is_some_and(Option::is_none);
    if size as usize != round.present.len() || !is_free {
        let Arrived::Ends(answer @ Answer::Failed { .. }) = &arrived else {
            panic!("no conflict: {arrived:?}")
        };
        check_answer(answer);
        round.present.fill(None);
        round.conflict = Some(now + CONFLICT_MEMORY);
        return;
    }
    let until = match &arrived {
        Arrived::Waits(until) => *until,
        Arrived::Ends(_) => now,
        Arrived::Late(answer) => panic!("{answer:?} to the first of its rank"),
    };
    assert!(until >= now && until - now <= Duration::from_millis(wait_ms));
    round.present[rank as usize] = Some((connection, until, address));
    let answer = match arrived {
        Arrived::Ends(answer) => Some(answer),
        _ => None,
    };
    if round.present.iter().any(Option::is_none) {
        return round.check_end(answer.as_ref());
    }
    let came: Vec<SocketAddr> = round.present.iter_mut().filter_map(Option::take).map(|one| one.2).collect();
    let different: BTreeSet<&SocketAddr> = came.iter().collect();
    match &answer {
        Some(Answer::Welcome { addresses, hosts, .. }) => {
            assert_eq!((addresses, hosts.len(), different.len()), (&came, came.len(), came.len()));
        }
        Some(Answer::Failed { missing, .. }) if missing.is_empty() && different.len() < came.len() => {}
        _ => panic!("all have come: {answer:?}"),
    }
    answer.iter().for_each(check_answer);
}

fn expire(roster: &mut Roster, present: &mut [Option<(ConnectionId, Instant, SocketAddr)>], now: Instant) {
    let first = present.iter().position(|member| member.is_some_and(|member| now >= member.1));
    let absent: Vec<u32> =
        (0..present.len() as u32).filter(|rank| present[*rank as usize].is_none()).collect();
    match roster.on_time(now) {
        None => assert_eq!(first, None, "somebody's patience has ended"),
        Some(answer) => {
            check_answer(&answer);
            let Answer::Missing { impatient, ranks } = answer else { panic!("{answer:?}") };
            assert_eq!((Some(impatient as usize), ranks), (first, absent));
            present.fill(None);
        }
    }
}

/// Settings as text: they are understood, or refused by name, and understood settings lead to a way of meeting.
fn settings(input: &mut Input<'_>) {
    let text = String::from_utf8_lossy(input.rest()).into_owned();
    let names: Vec<&str> =
        knobs().flat_map(|knob| knob.also.iter().chain([&knob.name])).copied().chain(LAUNCHERS).collect();
    // Of each line, the first character says which variable it is.
    let name = |first: &str| names[first.bytes().next().map_or(0, usize::from) % names.len()];
    let lines = text.lines().filter_map(|line| line.split_at_checked(1));
    let variables: Vec<(&str, &str)> = lines.map(|(first, value)| (name(first), value)).collect();
    let value = |wanted: &str| {
        variables.iter().find(|(name, _)| *name == wanted).map(|(_, value)| (*value).to_owned())
    };
    let Ok(config) = Config::from_lookup(&value) else { return };
    let world_size = config.placement.world_size();
    assert!((1..=RANKS_MAX).contains(&world_size) && config.placement.rank() < world_size);
    match meeting(&config) {
        Ok(Meeting::Solo) => assert_eq!(world_size, 1),
        Ok(Meeting::Launched { .. } | Meeting::AtRankZero { .. }) => assert!(config.secret.is_some()),
        Ok(meeting @ (Meeting::File(_) | Meeting::Program { .. } | Meeting::Pmi { .. })) => {
            panic!("{meeting:?} from no program")
        }
        Ok(Meeting::SameHost) | Err(Error::Configuration { .. }) => {}
        Err(error) => panic!("{error}"),
    }
}
