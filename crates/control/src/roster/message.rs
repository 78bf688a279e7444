//! The messages of the store: the arrival of a rank, the progress of the round, and the answer to all ranks.
//!
//! Each follows its length of 4 bytes. A rank that waits may send [`QUESTION`], a bare byte, at any time; the progress
//! of the round answers it. With [`TAKEN`], another one, it confirms the last answer. Before that, the handshake has
//! told both sides rank and world size.

use std::net::SocketAddr;

use unisono_communicator::Process;

use super::cpus::{CPUS_BYTES_MAX, Cpus};
use super::table::{ROW_BYTES_MAX, Rows, read_rows, write_rows};
use crate::RANKS_MAX;
use crate::codec::{Malformed, Reader, Writer};
use crate::handshake::JobId;

/// The length of a host's identity.
pub const HOST_ID_BYTES: usize = 16;

/// The most bytes of the settings that rank 0 distributes with the addresses.
pub const JOB_SETTINGS_BYTES_MAX: usize = 4096;

/// The most bytes of a launcher's name for a run.
pub const RUN_BYTES_MAX: usize = 128;

/// The most bytes of a host's name in a message; Linux allows no longer name.
pub const HOST_NAME_BYTES_MAX: usize = 64;

/// The most bytes of a process.
const PROCESS_BYTES_MAX: usize = 4 + 4 + HOST_NAME_BYTES_MAX + 1 + 8 + 8;

/// The most bytes of the name of a backend in a message.
const BACKEND_BYTES_MAX: usize = 32;

/// The most bytes of an arrival.
pub const ARRIVAL_BYTES_MAX: usize =
    72 + PROCESS_BYTES_MAX + RUN_BYTES_MAX + JOB_SETTINGS_BYTES_MAX + BACKEND_BYTES_MAX + CPUS_BYTES_MAX;

/// The most bytes of an answer.
pub const ANSWER_BYTES_MAX: usize =
    64 + REASON_BYTES_MAX + JOB_SETTINGS_BYTES_MAX + RANKS_MAX as usize * (ROW_BYTES_MAX + 5);

/// The most bytes of a text that says why.
const REASON_BYTES_MAX: usize = 512;
const WELCOME: u8 = 1;
const MISSING: u8 = 2;
const REFUSED: u8 = 3;
const FAILED: u8 = 4;
const WAITING: u8 = 5;

/// The question of a rank about the progress of the round.
pub const QUESTION: u8 = 1;

/// The byte with which a rank confirms the answer of its round. Without it the store keeps the answer: the end of a
/// connection does not tell whether the answer was read.
pub const TAKEN: u8 = 2;

/// The most ranges of ranks in a message about a round.
pub const RANGES_MAX: usize = 8;

/// The identity of a host: equal for all processes of one, different for two.
pub type HostId = [u8; HOST_ID_BYTES];

/// The host that a rank says it is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostClaim {
    /// Its identity.
    pub id: HostId,
    /// A person has named it, and so vouches for it.
    pub is_named: bool,
    /// The number of ranks that the launcher has started on it, if that is known.
    pub local_ranks: Option<u32>,
}

/// The process that a rank is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankProcess {
    /// The process, as a person finds it.
    pub process: Process,
    /// The mark that distinguishes it from every other process; `None` if it does not know that itself.
    pub birth: Option<ProcessBirth>,
}

/// The pid namespace and the start time of a process. Together with the pid they identify a process of its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessBirth {
    /// The kernel's number of the namespace to which its pid belongs.
    pub pid_namespace: u64,
    /// When it started, in ticks of the kernel's clock since the boot.
    pub start_ticks: u64,
}

/// The message of a rank about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The address at which it listens.
    pub address: SocketAddr,
    /// The host it is on.
    pub host: HostClaim,
    /// Its process.
    pub process: RankProcess,
    /// The name of the run by its launcher; empty when it is not known.
    pub run: String,
    /// The number of this wait of its process. A rank whose answer is lost comes again with the same number.
    pub wait: u64,
    /// The time that it will wait, from now.
    pub wait_ms: u64,
    /// The settings that it would distribute if it were rank 0.
    pub job_settings: Vec<u8>,
    /// The backend of its collectives, by `UNISONO_BACKEND`; the same on all ranks.
    pub backend: String,
    /// The CPUs that it may run on.
    pub cpus: Cpus,
}

impl Arrival {
    /// Its bytes, without the length before them.
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        writer.address(self.address).array(&self.host.id).u8(self.host.is_named.into());
        writer.u32(self.host.local_ranks.unwrap_or(0));
        write_process(&mut writer, &self.process);
        writer
            .text(&self.run, RUN_BYTES_MAX)
            .u64(self.wait)
            .u64(self.wait_ms)
            .bytes(&self.job_settings)
            .text(&self.backend, BACKEND_BYTES_MAX);
        self.cpus.write(&mut writer);
        writer.finish()
    }

    /// Reads one, to the last byte.
    pub fn decode(message: &[u8]) -> Result<Arrival, Malformed> {
        let mut reader = Reader::new(message);
        let arrival = Arrival {
            address: reader.address()?,
            host: read_host(&mut reader)?,
            process: read_process(&mut reader)?,
            run: reader.text(RUN_BYTES_MAX)?.to_owned(),
            wait: reader.u64()?,
            wait_ms: reader.u64()?,
            job_settings: reader.bytes(JOB_SETTINGS_BYTES_MAX)?.to_vec(),
            backend: reader.text(BACKEND_BYTES_MAX)?.to_owned(),
            cpus: Cpus::read(&mut reader)?,
        };
        reader.finish()?;
        Ok(arrival)
    }
}

fn read_host(reader: &mut Reader<'_>) -> Result<HostClaim, Malformed> {
    let id = reader.array()?;
    let is_named = match reader.u8()? {
        0 => false,
        1 => true,
        _ => return Err(Malformed { what: "a host that is neither named nor found" }),
    };
    Ok(HostClaim { id, is_named, local_ranks: Some(reader.u32()?).filter(|&ranks| ranks > 0) })
}

fn write_process(writer: &mut Writer, RankProcess { process, birth }: &RankProcess) {
    writer.u32(process.pid).text(&process.host, HOST_NAME_BYTES_MAX).u8(birth.is_some().into());
    if let Some(birth) = birth {
        writer.u64(birth.pid_namespace).u64(birth.start_ticks);
    }
}

fn read_process(reader: &mut Reader<'_>) -> Result<RankProcess, Malformed> {
    let process = Process { pid: reader.u32()?, host: reader.text(HOST_NAME_BYTES_MAX)?.into() };
    let birth = match reader.u8()? {
        0 => None,
        1 => Some(ProcessBirth { pid_namespace: reader.u64()?, start_ticks: reader.u64()? }),
        _ => return Err(Malformed { what: "a process that is neither known nor unknown" }),
    };
    Ok(RankProcess { process, birth })
}

/// The store's answer to a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// All ranks came.
    Welcome {
        /// A fresh id, the same for all ranks that have met.
        job: JobId,
        /// The address at which each rank listens.
        addresses: Vec<SocketAddr>,
        /// The number of the host of each rank; hosts are numbered by their first rank.
        hosts: Vec<u32>,
        /// The process of each rank.
        processes: Vec<RankProcess>,
        /// The settings of rank 0.
        job_settings: Vec<u8>,
        /// The number of cores that the ranks of each host have together, by the number of the host.
        cores: Vec<u32>,
        /// Why ranks count as on several hosts that may share one; empty when none do.
        doubt: String,
    },
    /// A rank has waited as long as it may.
    Missing {
        /// The rank whose time is up.
        impatient: u32,
        /// The ranks that have not come, ascending.
        ranks: Vec<u32>,
    },
    /// The ranks cannot meet: the same for all that have come.
    Failed {
        /// The ranks without which the others cannot go on, ascending.
        missing: Vec<u32>,
        /// Why.
        problem: String,
    },
    /// This rank is refused.
    Refused {
        /// Why.
        reason: String,
    },
    /// The round goes on: the answer to a question of a rank.
    Waiting(Progress),
}

/// First and last rank of each of at most [`RANGES_MAX`] ranges, ascending. If there are more, the others are left out.
pub type RankRanges = Vec<(u32, u32)>;

/// The progress of a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The number of ranks that are there.
    pub present: u32,
    /// The ranks that are not.
    pub missing: RankRanges,
    /// The ranks among them that came, and left.
    pub left: RankRanges,
    /// The lowest rank that is there: it speaks for all where one does.
    pub speaker: u32,
    /// The number of earlier meetings of all ranks here.
    pub meetings: u32,
}

/// `ranks`, ascending, as ranges.
pub fn ranges(ranks: impl IntoIterator<Item = u32>) -> RankRanges {
    let mut ranges = RankRanges::new();
    for rank in ranks {
        let is_full = ranges.len() == RANGES_MAX;
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(rank) => *last = rank,
            _ if is_full => return ranges,
            _ => ranges.push((rank, rank)),
        }
    }
    ranges
}

/// `rank 3`, or `ranks 1, 4-6, ...` if these are not all of `count`.
pub fn ranges_text(ranges: &RankRanges, count: u32) -> String {
    let list = ranges.iter().map(|(first, last)| match last - first {
        0 => first.to_string(),
        _ => format!("{first}-{last}"),
    });
    let mut list: Vec<String> = list.collect();
    let shown: u64 = ranges.iter().map(|(first, last)| u64::from(last - first) + 1).sum();
    if shown < u64::from(count) {
        list.push("...".into());
    }
    format!("rank{} {}", if shown == 1 && list.len() == 1 { "" } else { "s" }, list.join(", "))
}

fn write_ranges(writer: &mut Writer, ranges: &RankRanges) {
    writer.u32(ranges.len() as u32);
    for (first, last) in ranges {
        writer.u32(*first).u32(*last);
    }
}

fn read_ranges(reader: &mut Reader<'_>) -> Result<RankRanges, Malformed> {
    let count = reader.length(RANGES_MAX, 8)?;
    let ranges: RankRanges =
        (0..count).map(|_| Ok((reader.u32()?, reader.u32()?))).collect::<Result<_, _>>()?;
    let is_ascending = ranges.is_sorted_by(|one, next| one.1 < next.0);
    match is_ascending && ranges.iter().all(|(first, last)| first <= last) {
        true => Ok(ranges),
        false => Err(Malformed { what: "ranges of ranks that do not ascend" }),
    }
}

impl Answer {
    /// Its bytes, without the length before them.
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        match self {
            Answer::Welcome { job, addresses, hosts, processes, job_settings, cores, doubt } => {
                write_rows(writer.u8(WELCOME).array(&job.0), (addresses, hosts, processes));
                writer.bytes(job_settings).u32(cores.len() as u32);
                for cores in cores {
                    writer.beside(0, (*cores).into());
                }
                writer.text(doubt, REASON_BYTES_MAX)
            }
            Answer::Failed { missing, problem } => {
                writer.u8(FAILED).u32_list(missing).text(problem, REASON_BYTES_MAX)
            }
            Answer::Missing { impatient, ranks } => writer.u8(MISSING).u32(*impatient).u32_list(ranks),
            Answer::Refused { reason } => writer.u8(REFUSED).text(reason, REASON_BYTES_MAX),
            Answer::Waiting(Progress { present, missing, left, speaker, meetings }) => {
                writer.u8(WAITING).u32(*present).u32(*speaker).u32(*meetings);
                write_ranges(&mut writer, missing);
                write_ranges(&mut writer, left);
                &mut writer
            }
        };
        writer.finish()
    }

    /// Reads one, to the last byte.
    pub fn decode(message: &[u8]) -> Result<Answer, Malformed> {
        let ranks_max = RANKS_MAX as usize;
        let mut reader = Reader::new(message);
        let answer = match reader.u8()? {
            WELCOME => {
                let job = JobId(reader.array()?);
                let Rows { addresses, hosts, processes } = read_rows(&mut reader, ranks_max)?;
                let job_settings = reader.bytes(JOB_SETTINGS_BYTES_MAX)?.to_vec();
                let count = reader.length(ranks_max, 1)?;
                let cores = (0..count).map(|_| reader.beside_u32(0));
                let cores = cores.collect::<Result<_, _>>()?;
                let doubt = reader.text(REASON_BYTES_MAX)?.to_owned();
                Answer::Welcome { job, addresses, hosts, processes, job_settings, cores, doubt }
            }
            FAILED => Answer::Failed {
                missing: reader.u32_list(ranks_max)?,
                problem: reader.text(REASON_BYTES_MAX)?.to_owned(),
            },
            REFUSED => Answer::Refused { reason: reader.text(REASON_BYTES_MAX)?.to_owned() },
            MISSING => Answer::Missing { impatient: reader.u32()?, ranks: reader.u32_list(ranks_max)? },
            WAITING => {
                let (present, speaker, meetings) = (reader.u32()?, reader.u32()?, reader.u32()?);
                let (missing, left) = (read_ranges(&mut reader)?, read_ranges(&mut reader)?);
                Answer::Waiting(Progress { present, missing, left, speaker, meetings })
            }
            _ => return Err(Malformed { what: "an unknown answer of the store" }),
        };
        reader.finish()?;
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::cpus::tests::{bound_to, largest};
    use super::*;

    fn process() -> RankProcess {
        RankProcess {
            process: Process { host: "n".repeat(HOST_NAME_BYTES_MAX).into(), pid: 4711 },
            birth: Some(ProcessBirth { pid_namespace: u64::MAX, start_ticks: 1 }),
        }
    }

    fn arrival() -> Arrival {
        let address = "10.1.2.3:4567".parse().unwrap();
        Arrival {
            address,
            host: HostClaim { id: [3; HOST_ID_BYTES], is_named: true, local_ranks: Some(2) },
            process: process(),
            run: "x".repeat(RUN_BYTES_MAX),
            wait: 7,
            wait_ms: 300_000,
            job_settings: vec![1, 2, 3],
            backend: "tcp".to_owned(),
            cpus: bound_to(9),
        }
    }

    fn answers() -> [Answer; 5] {
        let addresses = vec!["127.0.0.1:1".parse().unwrap(), "[::1]:65535".parse().unwrap()];
        [
            Answer::Welcome {
                job: JobId([7; 16]),
                addresses,
                hosts: vec![0, 1],
                processes: vec![process(); 2],
                job_settings: vec![9; 5],
                cores: vec![8, 3],
                doubt: "d".to_owned(),
            },
            Answer::Failed { missing: vec![1, 3], problem: "rank 0 has waited".into() },
            Answer::Missing { impatient: 0, ranks: vec![1, 3] },
            Answer::Refused { reason: "rank 2 has come already".into() },
            Answer::Waiting(Progress {
                present: 3,
                missing: vec![(0, 0), (2, 7)],
                left: vec![(5, u32::MAX)],
                speaker: 1,
                meetings: 9,
            }),
        ]
    }

    #[test]
    fn messages_survive_the_wire_whole_and_only_whole() {
        let bytes = arrival().encode();
        assert_eq!(Arrival::decode(&bytes), Ok(arrival()));
        assert!((0..bytes.len()).all(|end| Arrival::decode(&bytes[..end]).is_err()));
        for answer in answers() {
            let mut bytes = answer.encode();
            assert_eq!(Answer::decode(&bytes), Ok(answer));
            assert!((0..bytes.len()).all(|end| Answer::decode(&bytes[..end]).is_err()));
            bytes.push(0);
            assert!(Answer::decode(&bytes).is_err());
        }
    }

    #[test]
    fn ranges_ascend_and_are_few() {
        assert_eq!(ranges([]), []);
        assert_eq!(ranges([0, 1, 2, 5, 7, 8]), [(0, 2), (5, 5), (7, 8)]);
        let many = ranges((0..100).map(|rank| 2 * rank));
        assert_eq!((many.len(), many[7]), (RANGES_MAX, (14, 14)));
        for ranges in [vec![(3, 2)], vec![(1, 4), (4, 5)]] {
            let progress =
                Progress { present: 0, missing: ranges, left: Vec::new(), speaker: 0, meetings: 0 };
            assert!(Answer::decode(&Answer::Waiting(progress).encode()).is_err());
        }
    }

    #[test]
    fn the_largest_messages_fit_their_caps() {
        let job_settings = vec![0; JOB_SETTINGS_BYTES_MAX];
        let (job_settings_of_all, backend) = (job_settings.clone(), "x".repeat(BACKEND_BYTES_MAX));
        let widest = Arrival { job_settings: job_settings_of_all, backend, cpus: largest(), ..arrival() };
        assert!(widest.encode().len() <= ARRIVAL_BYTES_MAX);
        let addresses = vec![arrival().address; RANKS_MAX as usize];
        let hosts = (0..RANKS_MAX).collect::<Vec<_>>();
        let problem = "x".repeat(REASON_BYTES_MAX);
        let missing = Answer::Failed { missing: hosts.clone(), problem: problem.clone() };
        let processes = vec![process(); RANKS_MAX as usize];
        let cores = hosts.clone();
        let doubt = problem;
        let welcome =
            Answer::Welcome { job: JobId([0; 16]), addresses, hosts, processes, job_settings, cores, doubt };
        assert!(welcome.encode().len() <= ANSWER_BYTES_MAX && missing.encode().len() <= ANSWER_BYTES_MAX);
        let reason = "x".repeat(10 * REASON_BYTES_MAX);
        let cut = Answer::decode(&Answer::Refused { reason }.encode());
        assert_eq!(cut, Ok(Answer::Refused { reason: "x".repeat(REASON_BYTES_MAX) }));
    }

    proptest! {
        #[test]
        fn junk_is_refused_without_a_panic(kind in 0u8..7, mut junk: Vec<u8>) {
            junk.insert(0, kind);
            // Junk that decodes at all is a message: it encodes to the same bytes.
            if let Ok(answer) = Answer::decode(&junk) {
                prop_assert_eq!(Answer::decode(&answer.encode()), Ok(answer));
            }
            if let Ok(arrival) = Arrival::decode(&junk) {
                prop_assert_eq!(Arrival::decode(&arrival.encode()), Ok(arrival));
            }
        }
    }
}
