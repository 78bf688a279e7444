//! One rank of a job under faults: runs the program, and after every failure goes on with the survivors from the step
//! that all of them have finished.

use std::collections::VecDeque;
use std::io::{BufRead, Read, StdinLock};
use std::net::SocketAddr;
use std::sync::Arc;

use unisono::{Collectives, Communicator, Config, Error, Result, TypedWork};
use unisono_control::handshake::JobId;
use unisono_control::secret::{SECRET_BYTES, Secret};
use unisono_job::Job;
use unisono_job::rendezvous::Membership;
use unisono_transport_tcp::Tcp;

use super::program::{Start, Step, messages, step};
use crate::Problem;

/// How long a call, an agreement or a shrink may take: longer than any fault, shorter than the patience of the parent.
const CALL_TIMEOUT_S: &str = "20";

/// Steps between two lines that say how far it is.
const STEPS_PER_LINE: u64 = 2;

/// A started call.
struct Started {
    number: u64,
    start: Start,
    work: TypedWork<Vec<u64>>,
}

struct Life {
    communicator: Arc<dyn Communicator>,
    seed: u64,
    steps: u64,
    /// The step of the first call of this communicator.
    base: u64,
    /// All steps before this one were done or started here.
    next: u64,
    started: VecDeque<Started>,
}

/// The whole life of a rank.
pub(crate) fn run(seed: u64, steps: u64, checksums: bool) -> std::result::Result<(), Problem> {
    report_panics();
    let mut input = std::io::stdin().lock();
    let world = join(&mut input, checksums)?;
    let communicator = world.communicator()?;
    println!("ready");
    let life = Life { communicator, seed, steps, base: 0, next: 0, started: VecDeque::new() };
    match life.live() {
        Ok(()) => println!("done"),
        Err(error) => match error.root_cause() {
            Error::Evicted { .. } => println!("evicted"),
            other => println!("broken: {other}"),
        },
    }
    // Nobody leaves before all have spoken: leaving would look like another failure.
    let _ = input.read(&mut [0]);
    Ok(())
}

/// A wrong result is a panic, and the parent must learn it.
fn report_panics() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        println!("broken: {}", panic.to_string().replace('\n', " "));
        usual(panic);
        std::process::exit(101);
    }));
}

/// Meets the others through the parent: says where it listens, and learns who it is and whom to dial.
pub(crate) fn join(input: &mut StdinLock<'_>, checksums: bool) -> std::result::Result<Job, Problem> {
    let lookup = |name: &str| {
        let value = match name {
            "UNISONO_CALL_TIMEOUT_S" => Some(CALL_TIMEOUT_S),
            "UNISONO_CHECKSUM" if checksums => Some("on"),
            _ => None,
        };
        value.map(str::to_owned)
    };
    let config = Config::from_lookup(&lookup)?;
    let secret = Secret::take(&mut [5; SECRET_BYTES]);
    let listener = Job::listen(SocketAddr::from(([127, 0, 0, 1], 0)), (&secret, None), &config)?;
    println!("listens {}", listener.local_addr()?);
    let mut words = String::new();
    input.read_line(&mut words)?;
    let mut words = words.split_whitespace();
    let broken = |what: &str| Problem::Broken(format!("a rank was told no {what}"));
    let rank = words.next().and_then(|word| word.parse().ok()).ok_or_else(|| broken("rank"))?;
    let job = words.next().map(JobId::from_key).ok_or_else(|| broken("job"))?;
    let addresses: Vec<SocketAddr> = words.map_while(|word| word.parse().ok()).collect();
    let world_size = addresses.len() as u32;
    let members = Membership {
        rank,
        job,
        secret,
        hosts: vec![0; addresses.len()],
        addresses,
        world_size,
        processes: Vec::new(),
        job_settings: config.job_settings()?.encode(),
        cores: Vec::new(),
    };
    Ok(Job::start(members, listener, &config, &Tcp { memory: false })?)
}

impl Life {
    /// Until all steps are done by all survivors. The error is an eviction, or something that must not be.
    fn live(mut self) -> Result<()> {
        loop {
            let failure = self.play().err();
            if let Some(error) = &failure {
                self.settle(error)?;
            }
            // Nobody is done before everybody is: who has failed needs the others to shrink.
            if self.communicator.agree(failure.is_none())? {
                return Ok(());
            }
            self.shrink()?;
        }
    }

    /// The steps that are left.
    fn play(&mut self) -> Result<()> {
        let (rank, ranks) = (self.communicator.rank(), self.communicator.size());
        while self.next < self.steps {
            let number = self.next;
            if number.is_multiple_of(STEPS_PER_LINE) {
                println!("step {number}");
            }
            match step(self.seed, number, ranks) {
                Step::Call(case) => case.check(&*self.communicator)?,
                Step::Start(start) => {
                    let work = start.start(&*self.communicator);
                    self.started.push_back(Started { number, start, work });
                }
                Step::Subgroup(list, case) => {
                    if let Some(subgroup) = self.communicator.subgroup(&list)? {
                        case.check(&*subgroup)?;
                    }
                    self.communicator.barrier()?;
                }
                Step::Messages(count) => messages(&*self.communicator, count, self.seed ^ number)?,
            }
            self.next += 1;
            if (u64::from(rank) + number).is_multiple_of(3) {
                self.finish_started()?;
            }
        }
        self.finish_started()
    }

    /// Waits for what was started. After a failure, the steps from the failed one on count as not done.
    fn finish_started(&mut self) -> Result<()> {
        let (rank, ranks) = (self.communicator.rank(), self.communicator.size());
        let mut failure: Option<Error> = None;
        for started in std::mem::take(&mut self.started) {
            match started.work.wait() {
                Ok(values) => {
                    let (number, start) = (started.number, started.start);
                    assert!(failure.is_none(), "step {number} was done after a failure");
                    let is_right = values == start.expected(rank, ranks);
                    assert!(is_right, "wrong result in step {number} on rank {rank} of {ranks}: {start:?}");
                }
                Err(error) if failure.is_none() => {
                    self.next = self.next.min(started.number);
                    failure = Some(error);
                }
                Err(_) => {}
            }
        }
        failure.map_or(Ok(()), Err)
    }

    /// Makes a failure everybody's, and says its first cause.
    fn settle(&mut self, error: &Error) -> Result<()> {
        let _ = self.finish_started();
        if !matches!(error.root_cause(), Error::Evicted { .. }) {
            self.communicator.revoke(error.clone())?;
        }
        let cause = match self.communicator.barrier() {
            Err(cause) => cause,
            Ok(()) => {
                return Err(Error::System {
                    what: "a call after a failure".to_owned(),
                    text: "ok".to_owned(),
                });
            }
        };
        let lost = cause.lost_ranks();
        match cause.root_cause() {
            Error::Evicted { .. } => return Err(cause),
            Error::PeerLost { certainty, reported_by, .. } => {
                println!("failed lost {lost:?} {certainty:?}, by {reported_by}");
            }
            Error::Corrupted { from, to, .. } => println!("failed corrupted {from} to {to}, by {to}"),
            other => println!("failed otherwise, by nobody: {other}"),
        }
        Ok(())
    }

    /// Goes on with the survivors.
    fn shrink(&mut self) -> Result<()> {
        let shrunk = self.communicator.shrink()?;
        let group = shrunk.communicator.group();
        let common = self.base + shrunk.last_common_call;
        println!("shrunk {} {:?} {common} of {}", group.epoch(), group.job_ranks(), self.next);
        self.communicator = shrunk.communicator;
        (self.base, self.next) = (common, common);
        Ok(())
    }
}
