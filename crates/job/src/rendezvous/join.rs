//! A rank's way into the job: find the store, prove membership, wait for the others.

use std::fmt;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::{Duration, Instant};

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use unisono_communicator::{Error, JobRank, Result, Severity, log};
use unisono_control::handshake::{Hello, JobId, Purpose, RANK_STORE, Refusal};
use unisono_control::roster::message::{
    ANSWER_BYTES_MAX, Answer, Arrival, HostClaim, JOB_SETTINGS_BYTES_MAX, Progress, QUESTION, TAKEN,
};
use unisono_control::secret::Secret;

use super::address::{beyond_loopback, look_up, resolve};
use super::host::{StoreConfig, grace};
use super::key::own_process;
use super::membership::{Joined, Membership};
use super::own_cpus::own_cpus;
use super::scope::seen_from;
use super::stream::{read_message, watch_peer, write_message};
use super::waiting::{WaitConfig, Waiting};
use crate::connecting::local::LocalRank;
use crate::connecting::{initiate, local};
use crate::sockets::{is_connected_to_itself, is_shortage};

/// Pause before the first repeated attempt; it doubles up to [`RETRY_MAX`].
const RETRY_MIN: Duration = Duration::from_millis(5);
/// The longest pause between attempts.
pub(super) const RETRY_MAX: Duration = Duration::from_millis(200);
/// The longest that one attempt to connect takes: a host that drops packets may be up a moment later.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The process that hosts a store, as far as a rank knows it.
#[derive(Clone, Copy, Debug, Default)]
pub struct StoreProcess {
    /// Its rank; `None` for a launcher.
    pub rank: Option<u32>,
    /// Its pid.
    pub pid: Option<u32>,
}

impl fmt::Display for StoreProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rank {
            Some(rank) => write!(f, "rank {rank}")?,
            None => f.write_str("the launcher")?,
        }
        self.pid.map_or(Ok(()), |pid| write!(f, ", pid {pid}"))
    }
}

/// The data that a rank brings to the store.
#[derive(Clone, Debug)]
pub struct JoinConfig {
    /// The store, as `host:port`.
    pub store: String,
    /// The process that hosts the store.
    pub hosted_by: StoreProcess,
    /// The job's secret.
    pub secret: Secret,
    /// The id of the job that the ranks use before they have met.
    pub job: JobId,
    /// Our rank.
    pub rank: u32,
    /// The number of ranks.
    pub world_size: u32,
    /// The address at which we listen for the other ranks.
    pub listen: SocketAddr,
    /// The host we are on.
    pub host: HostClaim,
    /// The launcher's name of this run, if it has started all ranks and says so.
    pub run: Option<String>,
    /// The encoded settings that all ranks get if we are rank 0, at most [`JOB_SETTINGS_BYTES_MAX`] bytes.
    pub job_settings: Vec<u8>,
    /// The backend of our collectives, by `UNISONO_BACKEND`; it must be the same on all ranks.
    pub backend: String,
    /// The time to wait for the store and the other ranks.
    pub timeout: Duration,
    /// Deadline of one handshake.
    pub handshake_timeout: Duration,
    /// The lines to write meanwhile.
    pub wait: WaitConfig,
}

impl JoinConfig {
    /// The settings of a store that this rank hosts at `listen` for the others.
    pub(super) fn store_at(&self, listen: SocketAddr) -> StoreConfig {
        StoreConfig {
            listen,
            world_size: self.world_size,
            secret: self.secret.clone(),
            job: self.job,
            handshake_timeout: self.handshake_timeout,
        }
    }
}

/// A message of the store.
#[derive(Debug)]
pub(super) enum Understood {
    /// All ranks have met.
    Met(Membership),
    /// The progress of the round.
    Waiting(Progress),
}

/// Why an attempt to join has failed.
#[derive(Debug)]
pub(super) enum Setback {
    /// Nothing listens there.
    Absent(String),
    /// A process listens there, but the connection broke.
    Broken(String),
    /// The process that listens there is not our store.
    Unauthenticated(Error),
    /// Another attempt would fail too: the store has refused this rank, or the rank itself cannot go on.
    Final(Error),
}

impl fmt::Display for Setback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Setback::Absent(text) | Setback::Broken(text) => f.write_str(text),
            Setback::Unauthenticated(error) | Setback::Final(error) => error.fmt(f),
        }
    }
}

/// Joins the job at a store that the launcher or another rank hosts.
///
/// # Errors
/// [`Error::Rendezvous`] with the missing ranks when not all come in time, or saying that the store's host never
/// came; [`Error::Refused`] when secret, job, world size or rank do not fit.
pub(crate) async fn join(config: &JoinConfig) -> Result<Joined> {
    let deadline = Instant::now() + config.timeout;
    let mut retry = Retry::new(deadline);
    let mut met: Option<String> = None;
    let mut waiting = Waiting::new(&config.wait, config.rank, config.world_size);
    resolve(&config.store, &mut waiting).await?;
    loop {
        let text = match attempt(config, &mut waiting, deadline).await {
            Ok(joined) => return Ok(joined),
            Err(Setback::Unauthenticated(error)) => {
                return Err(stranger(&config.store, &config.wait, &error));
            }
            Err(Setback::Final(error)) => return Err(error),
            Err(Setback::Absent(text)) => text,
            Err(Setback::Broken(text)) => {
                met = Some(text.clone());
                text
            }
        };
        waiting.on_time(&no_store(&text));
        if !retry.pause().await {
            return Err(given_up(config, met.as_deref(), &text));
        }
    }
}

/// The words of a line while no store answers.
pub(super) fn no_store(reason: &str) -> String {
    format!("no store answers: {reason}")
}

/// The error of a wait for a store that did not come, or that was there and does not answer, as `met` says.
pub(super) fn given_up(config: &JoinConfig, met: Option<&str>, last: &str) -> Error {
    let (timeout, end) = (config.timeout, config.wait.end_of());
    let Some(met) = met else {
        let problem = format!("the store's host never came: nothing listened for {timeout:?}: {last}; {end}");
        return Error::Rendezvous { missing: Vec::new(), problem };
    };
    let host = config.hosted_by;
    let problem = format!("the store, which {host} hosts, did not answer within {timeout:?}: {met}; {end}");
    Error::Rendezvous { missing: host.rank.map(JobRank::new).into_iter().collect(), problem }
}

/// The error of a rank that found another process where the store should be.
fn stranger(store: &str, wait: &WaitConfig, error: &Error) -> Error {
    let problem = match error {
        Error::Refused { problem } => problem.clone(),
        other => other.to_string(),
    };
    let remedy = "another job or program may have this port: set another, or give all ranks the same secret";
    Error::Refused { problem: format!("{problem}, at {store} ({}); {remedy}", wait.variable) }
}

/// Growing pauses up to a deadline.
#[derive(Debug)]
pub(super) struct Retry {
    pause: Duration,
    longest: Duration,
    deadline: Instant,
}

impl Retry {
    pub(super) fn new(deadline: Instant) -> Retry {
        Retry { pause: RETRY_MIN, longest: RETRY_MAX, deadline }
    }

    /// The same, with pauses up to this one.
    pub(super) fn up_to(self, longest: Duration) -> Retry {
        Retry { longest, ..self }
    }

    /// Pauses; `false` when the deadline has passed.
    pub(super) async fn pause(&mut self) -> bool {
        let left = self.deadline.saturating_duration_since(Instant::now());
        tokio::time::sleep(self.pause.min(left)).await;
        self.pause = (self.pause * 2).min(self.longest);
        Instant::now() < self.deadline
    }
}

/// One attempt, which waits for the other ranks once it has reached the store.
pub(super) async fn attempt(
    config: &JoinConfig,
    waiting: &mut Waiting<'_>,
    deadline: Instant,
) -> Result<Joined, Setback> {
    if config.job_settings.len() > JOB_SETTINGS_BYTES_MAX {
        let problem = format!("{} bytes are more than {JOB_SETTINGS_BYTES_MAX}", config.job_settings.len());
        return Err(Setback::Final(Error::invalid("job_settings", problem)));
    }
    let mut addresses = look_up(&config.store, waiting, deadline).await.map_err(Setback::Absent)?;
    // Rank 0 listens where other hosts reach it, also if its name means loopback here.
    addresses.extend(beyond_loopback(&config.store, &addresses, config.listen));
    let mut absent = format!("{} has no address", config.store);
    for address in addresses {
        match connect(address, waiting, deadline).await {
            Ok(stream) => return enter(config, waiting, stream, deadline).await,
            Err(Setback::Absent(text)) => absent = text,
            Err(other) => return Err(other),
        }
    }
    Err(Setback::Absent(absent))
}

async fn connect(
    address: SocketAddr,
    waiting: &mut Waiting<'_>,
    deadline: Instant,
) -> Result<TcpStream, Setback> {
    let until = deadline.min(Instant::now() + CONNECT_TIMEOUT);
    let connected = tokio::time::timeout_at(until.into(), TcpStream::connect(address));
    let stream = match waiting.beside(&no_store(&silent(address)), connected).await {
        Ok(Ok(stream)) => stream,
        // This process has no descriptor left, and waiting for the store would free none.
        Ok(Err(error)) if is_shortage(&error) => {
            return Err(Setback::Final(Error::system(format!("cannot connect to {address}"), &error)));
        }
        Ok(Err(error)) => return Err(Setback::Absent(error.to_string())),
        Err(_elapsed) => return Err(Setback::Absent(silent(address))),
    };
    if is_connected_to_itself(&stream) {
        return Err(Setback::Absent("nobody but ourselves was there".into()));
    }
    // As an acceptor does; where it fails, the connection is only slower.
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

/// Nothing has been refused, and nothing has come.
fn silent(address: SocketAddr) -> String {
    format!(
        "{address} is silent: its host is down, or a firewall drops the packets (hosts of a job need TCP to port {}, \
         and to each other's ports of net.ipv4.ip_local_port_range)",
        address.port()
    )
}

async fn enter(
    config: &JoinConfig,
    waiting: &mut Waiting<'_>,
    mut stream: TcpStream,
    deadline: Instant,
) -> Result<Joined, Setback> {
    let hello = Hello {
        purpose: Purpose::Store,
        job: config.job,
        communicator: 0,
        epoch: 0,
        lane: 0,
        world_size: config.world_size,
        from: config.rank,
        to: RANK_STORE,
    };
    watch_peer(&stream);
    // The kernel of a stopped process takes connections as before.
    let left = deadline.saturating_duration_since(Instant::now());
    let handshake = initiate(&mut stream, &config.secret, &hello, config.handshake_timeout.min(left));
    match waiting.beside(&no_store("the process that listens says nothing"), handshake).await {
        Ok(_store) => {}
        Err(refusal) if refusal.is_transient() => return Err(Setback::Broken(refusal.to_string())),
        Err(refusal @ (Refusal::Secret | Refusal::Protocol)) => {
            return Err(Setback::Unauthenticated(refusal.into()));
        }
        Err(refusal) => {
            let problem = format!("{refusal}; {}", config.wait.end_of());
            return Err(Setback::Final(Error::Refused { problem }));
        }
    }
    let left = deadline.saturating_duration_since(Instant::now());
    let process = own_process();
    // Others may dial this rank as soon as it has arrived.
    let own =
        LocalRank { secret: config.secret.clone(), address: config.listen, process: Some(process.clone()) };
    let within_host = local::listen(&own).ok();
    let arrival = Arrival {
        address: config.listen,
        host: config.host,
        process,
        run: config.run.clone().unwrap_or_default(),
        wait: waiting.number,
        wait_ms: left.as_millis() as u64,
        job_settings: config.job_settings.clone(),
        backend: config.backend.clone(),
        cpus: own_cpus(),
    };
    let stays = async {
        write_message(&mut stream, &arrival.encode()).await.map_err(broken)?;
        stay(config, waiting, stream).await.map(|membership| Joined { membership, within_host })
    };
    match tokio::time::timeout_at((deadline + grace(config.timeout)).into(), stays).await {
        Ok(end) => end,
        Err(_elapsed) => Err(Setback::Broken("its process may be stopped".into())),
    }
}

fn broken(error: std::io::Error) -> Setback {
    Setback::Broken(error.to_string())
}

/// Waits at the store for the others, and asks it how far they are whenever a line is due.
async fn stay(
    config: &JoinConfig,
    waiting: &mut Waiting<'_>,
    mut stream: TcpStream,
) -> Result<Membership, Setback> {
    let (mut reader, mut writer) = stream.split();
    let mut unanswered = false;
    loop {
        // A message that has begun to come is read to its end, in any case.
        let mut reading = pin!(read_message(&mut reader, ANSWER_BYTES_MAX));
        let message = loop {
            tokio::select! {
                message = &mut reading => break message.map_err(broken)?,
                () = tokio::time::sleep_until(waiting.due().into()) => {
                    if unanswered {
                        waiting.on_time("the store was reached, and answers no more");
                    }
                    waiting.put_off();
                    writer.write_u8(QUESTION).await.map_err(broken)?;
                    unanswered = true;
                }
            }
        };
        let understood = understand(config, &message);
        if let Ok(Understood::Waiting(progress)) = &understood {
            unanswered = false;
            waiting.on_progress(progress);
            continue;
        }
        // A store that has gone meanwhile needs no confirmation.
        let _ = writer.write_u8(TAKEN).await;
        match understood? {
            Understood::Met(membership) => return Ok(membership),
            Understood::Waiting(_) => {}
        }
    }
}

pub(super) fn understand(config: &JoinConfig, message: &[u8]) -> Result<Understood, Setback> {
    let answer = Answer::decode(message).map_err(|malformed| Setback::Final(malformed.into()))?;
    let ranks = config.world_size as usize;
    match answer {
        Answer::Welcome { job, mut addresses, hosts, processes, job_settings, cores, doubt }
            if [addresses.len(), hosts.len(), processes.len()] == [ranks; 3]
                && hosts.iter().all(|host| (*host as usize) < cores.len()) =>
        {
            if config.rank == 0 && !doubt.is_empty() {
                log(Severity::Warn, Some(config.rank), format_args!("{doubt}"));
            }
            addresses.iter_mut().for_each(|address| *address = seen_from(config.listen, *address));
            Ok(Understood::Met(Membership {
                rank: config.rank,
                world_size: config.world_size,
                job,
                secret: config.secret.clone(),
                addresses,
                hosts,
                processes,
                job_settings,
                cores,
            }))
        }
        Answer::Welcome { .. } => {
            let problem =
                format!("the store's lists do not have {ranks} ranks, or the cores of a host are missing");
            Err(Setback::Final(Error::Refused { problem }))
        }
        Answer::Missing { impatient, ranks } => {
            let end = config.wait.end_of();
            let problem = format!(
                "rank {impatient} has waited for the others as long as it may (UNISONO_JOIN_TIMEOUT_S); {end}"
            );
            let missing = ranks.into_iter().map(JobRank::new).collect();
            Err(Setback::Final(Error::Rendezvous { missing, problem }))
        }
        Answer::Failed { missing, problem } => {
            let missing = missing.into_iter().map(JobRank::new).collect();
            Err(Setback::Final(Error::Rendezvous { missing, problem }))
        }
        Answer::Waiting(progress) => Ok(Understood::Waiting(progress)),
        Answer::Refused { reason } => Err(Setback::Final(Error::Refused { problem: reason })),
    }
}
