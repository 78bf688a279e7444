//! The communicator over any links: admits calls, gives them their order, drives them.

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, TryLockError};
use std::time::Duration;

use unisono_communicator::{
    Buffers, CALL_TIMEOUT_DEFAULT, Call, Communicator, Descriptor, Error, Finished, Group, Outcome,
    OwnedCall, Result, Shrunk, Work, deadline_after,
};
use unisono_schedule::{Choice, Parameters, algorithms};

use crate::active::{ActiveCall, Engine};
use crate::baton::Shared;
use crate::board::Board;
use crate::control::Control;
use crate::job::{Job, JobHandle, lock};
use crate::links::Links;
use crate::peers::Peers;
use crate::planner::Planner;
use crate::point_to_point::Mail;
use crate::progress::Progress;
use crate::tasks::OneCollective;

/// Settings of one communicator; equal on all its ranks.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Default deadline of a call.
    pub timeout: Duration,
    /// Algorithm for the collectives that have one of this name; the chooser's pick when `None`.
    pub algorithm: Option<Arc<str>>,
    /// Piece size; [`crate::PIECE_BYTES`] shared among the scratch chunks when `None`. For tests.
    pub piece_bytes: Option<u64>,
    /// How long an idle call spins, yielding, before it sleeps.
    pub spin: Duration,
    /// After how long without progress the awaited rank is asked.
    pub probe_after: Duration,
    /// After how long without progress a line in the log says who is awaited.
    pub warn_after: Duration,
    /// What the chooser believes of the network and the machine.
    pub parameters: Parameters,
}

impl EngineOptions {
    /// Refuses what could only be ignored.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for an algorithm that no collective has.
    pub fn check(&self) -> Result<()> {
        match &self.algorithm {
            Some(name) if !Choice::is_known(name) => {
                let mut names: Vec<_> = algorithms().iter().map(|algorithm| algorithm.name).collect();
                names.sort_unstable();
                names.dedup();
                let names = names.join(", ");
                Err(Error::invalid("algorithm", format!("{name:?}, but there are: {names}, leaders:L")))
            }
            _ => Ok(()),
        }
    }
}

impl Default for EngineOptions {
    fn default() -> EngineOptions {
        EngineOptions {
            timeout: CALL_TIMEOUT_DEFAULT,
            algorithm: None,
            piece_bytes: None,
            spin: Duration::from_micros(50),
            probe_after: Duration::from_millis(50),
            warn_after: Duration::from_secs(30),
            parameters: Parameters::LOOPBACK,
        }
    }
}

/// What a transport hands over for one communicator.
pub struct Parts<L> {
    /// The members.
    pub group: Group,
    /// The streams to them.
    pub links: L,
    /// The control plane.
    pub control: Arc<dyn Control>,
    /// The notice board, which the control plane reads too.
    pub board: Arc<Board>,
    /// Settings.
    pub options: EngineOptions,
    /// The transport's name.
    pub backend: &'static str,
}

/// A communicator that runs schedules over a transport's links.
pub struct EngineCommunicator<L: Links + 'static> {
    shared: Arc<Shared<L>>,
}

impl<L: Links + 'static> EngineCommunicator<L> {
    /// A communicator over a transport.
    pub fn new(parts: Parts<L>) -> Arc<EngineCommunicator<L>> {
        let Parts { group, links, control, board, options, backend } = parts;
        let planner =
            Planner::new(&group, &options.parameters, options.algorithm.clone(), options.piece_bytes);
        let peers = Peers::new(group.clone(), board.clone());
        let mail = Mail::new(peers);
        let engine = Engine::new(links, planner, board.heard().clone());
        let shared = Shared::new(group, board, control, options, backend, mail, engine);
        Arc::new(EngineCommunicator { shared: Arc::new(shared) })
    }

    fn run_collective(&self, call: &mut Call<'_>) -> Result<Outcome> {
        let shared = &*self.shared;
        let _turn = shared.issue(&call.descriptor)?;
        let mut baton = shared.take_baton();
        shared.finish_queue(&mut baton)?;
        let timeout = shared.options.timeout;
        let active = ActiveCall::start(call, &mut baton, &shared.board, shared.group.size(), timeout)?;
        let mut task = OneCollective { shared, active, buffers: &mut call.buffers };
        if let Err(error) = baton.drive(&mut task) {
            return Err(shared.settle(&mut baton, error));
        }
        let active = task.active;
        shared.board.leave(active.number);
        let bytes = buffers_bytes(&call.buffers);
        Ok(active.finish(&mut baton, bytes))
    }
}

pub(crate) fn buffers_bytes(buffers: &Buffers<'_>) -> u64 {
    match buffers {
        Buffers::InOut(buffer) => buffer.bytes() as u64,
        Buffers::Separate { input, output } => input.bytes().max(output.bytes()) as u64,
    }
}

fn device_unsupported(backend: &'static str) -> Error {
    let instead = Some("a vendor's backend, or copy to the host".to_owned());
    Error::Unsupported { what: "device memory".to_owned(), backend, instead }
}

impl<L: Links + 'static> Communicator for EngineCommunicator<L> {
    fn group(&self) -> &Group {
        &self.shared.group
    }

    fn execute(&self, mut call: Call<'_>) -> Result<Outcome> {
        self.shared.admit()?;
        if call.buffers.on_device() {
            return Err(device_unsupported(self.shared.backend));
        }
        if call.descriptor.collective.is_point_to_point() {
            self.shared.run_point_to_point(call)
        } else {
            self.run_collective(&mut call)
        }
    }

    fn submit(&self, call: OwnedCall) -> Work {
        let refuse = |call: OwnedCall, error| {
            Work::finished(Finished { result: Err(error), buffers: Some(call.buffers) })
        };
        if let Err(error) = self.shared.admit() {
            return refuse(call, error);
        }
        if call.descriptor.collective.is_point_to_point() {
            let timeout = call.options.timeout.unwrap_or(self.shared.options.timeout);
            let job = Job::message(call, self.shared.bell.clone(), &self.shared.board);
            self.shared.post_mail(job.clone(), timeout);
            return Work::new(JobHandle { job, shared: self.shared.clone() });
        }
        let job = match self.shared.issue(&call.descriptor) {
            Ok(_turn) => {
                let job = Job::new(call, self.shared.bell.clone());
                self.shared.queue.push(job.clone());
                job
            }
            Err(error) => return refuse(call, error),
        };
        self.shared.nudge_holder();
        if let Err(error) = Progress::notify(&self.shared) {
            self.shared.fail(error);
        }
        Work::new(JobHandle { job, shared: self.shared.clone() })
    }

    fn backend(&self) -> &'static str {
        self.shared.backend
    }

    fn supports(&self, descriptor: &Descriptor) -> Result<()> {
        if descriptor.collective.is_point_to_point() {
            return Ok(());
        }
        self.shared.take_baton().planner.choice_of(descriptor).map(|_| ())
    }

    fn subgroup(&self, ranks: &[u32]) -> Result<Option<Arc<dyn Communicator>>> {
        self.shared.admit()?;
        let size = self.shared.group.size();
        for (position, &rank) in ranks.iter().enumerate() {
            if rank >= size {
                let problem = format!("{rank}, but the group has ranks 0 to {}", size - 1);
                return Err(Error::invalid("ranks", problem));
            }
            if ranks[..position].contains(&rank) {
                return Err(Error::invalid("ranks", format!("{rank} twice")));
            }
        }
        let counter = self.shared.derived.fetch_add(1, Ordering::SeqCst);
        self.shared.control.derive(ranks, counter)
    }

    fn duplicate(&self) -> Result<Arc<dyn Communicator>> {
        let ranks: Vec<u32> = (0..self.group().size()).collect();
        // INVARIANT: a group contains its own rank, so the list of all ranks does.
        self.subgroup(&ranks).map(|copy| copy.expect("every rank is a member"))
    }

    fn agree(&self, flag: bool) -> Result<bool> {
        self.shared.agree_on_flag(flag)
    }

    fn shrink(&self) -> Result<Shrunk> {
        self.shared.shrink()
    }

    fn revoke(&self, cause: Error) -> Result<()> {
        self.shared.fail(cause);
        Ok(())
    }

    fn close(&self) -> Result<()> {
        let shared = &*self.shared;
        if shared.is_closed.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        let _turn = lock(&shared.order);
        let mut baton = shared.take_baton();
        shared.finish_queue(&mut baton)?;
        shared.finish_sends(&mut baton)?;
        shared.check_revoked()?;
        let deadline = deadline_after(baton.links.now(), shared.options.timeout);
        drop(baton);
        shared.control.close(shared.board.farewell(), deadline)
    }
}

impl<L: Links + 'static> Shared<L> {
    /// Refuses what can be refused before anything happens.
    fn admit(&self) -> Result<()> {
        self.owner.check()?;
        self.check_revoked()?;
        if self.is_closed.load(Ordering::Relaxed) { Err(Error::Closed) } else { Ok(()) }
    }

    /// One thread at a time issues collectives. A labelled call waits for its turn, since its label shows a wrong
    /// order; an unlabelled one is refused.
    fn issue(&self, descriptor: &Descriptor) -> Result<MutexGuard<'_, ()>> {
        if descriptor.label.is_some() {
            return Ok(lock(&self.order));
        }
        match self.order.try_lock() {
            Ok(turn) => Ok(turn),
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => Err(Error::ConcurrentUse { call: descriptor.to_string() }),
        }
    }
}
