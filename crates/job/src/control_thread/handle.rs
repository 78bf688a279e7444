//! The handle of the control plane that the engine of one communicator holds.

use std::sync::Arc;
use std::time::Instant;

use crossbeam_channel::Receiver;
use unisono_backend::{Agreed, Ask, Board, CallHistory, Companion, Control, HANDOVER_MAX, on_rank};
use unisono_communicator::{ClockOffset, Error, Group, GroupOptions, GroupRank, JobRank, LinkTime, Result};
use unisono_control::Request;
use unisono_control::derived_key::{Origin, derived_key};
use unisono_control::hash::hash;
use unisono_control::wire::CommunicatorKey;
use unisono_engine::SharedRegistry;

use super::command::Command;
use crate::answers::await_control;
use crate::job::{Job, WORLD_KEY};

/// The control plane of one communicator. Dropping it removes the communicator from the control thread. The world lives
/// as long as one of its communicators.
pub(crate) struct ControlHandle {
    job: Job,
    key: CommunicatorKey,
    group: Group,
    board: Arc<Board>,
    /// The algorithms of this communicator, for communicators that are derived from it.
    registry: SharedRegistry,
}

impl ControlHandle {
    pub(crate) fn new(
        job: Job,
        key: CommunicatorKey,
        group: Group,
        board: Arc<Board>,
        registry: SharedRegistry,
    ) -> ControlHandle {
        ControlHandle { job, key, group, board, registry }
    }

    fn send(&self, request: Request) {
        self.job.commands().send(Command::Request(request));
    }

    fn make(&self, ranks: &[GroupRank], options: &GroupOptions, origin: Origin) -> Result<Option<Companion>> {
        make(&self.job, (self.key, &self.group), (ranks, options), origin, self.registry.inherit())
    }
}

/// Spreads the first cause of the communicator `key` of `group`.
fn flood_about(job: &Job, (key, group): (CommunicatorKey, &Group), cause: Arc<Error>) {
    let (handed_over, waiting) = crossbeam_channel::bounded(0);
    let members = group.job_ranks().iter().copied().collect();
    job.commands().send(Command::Revoke { key, members, cause, handed_over });
    // Nothing is ever sent: the channel is disconnected when the cause has been handed over.
    let _ = waiting.recv_timeout(HANDOVER_MAX);
}

/// A communicator of some ranks of the group of the communicator `parent`, with these options and algorithms. `None`
/// when this rank is not one of them.
fn make(
    job: &Job,
    (parent, group): (CommunicatorKey, &Group),
    (ranks, options): (&[GroupRank], &GroupOptions),
    origin: Origin,
    registry: SharedRegistry,
) -> Result<Option<Companion>> {
    let job_ranks: Vec<JobRank> = ranks.iter().map(|&rank| group.job_rank(rank)).collect();
    let key = derived_key(parent, origin, (&job_ranks, options));
    let Some(group) = group.subgroup(ranks, key.epoch) else { return Ok(None) };
    let group = group.with_options(*options).with_id(key.id);
    match job.create(key, group.clone(), registry) {
        Ok(derived) => Ok(Some(derived)),
        // The other ranks have made the communicator, or will make it, and would wait for this rank.
        Err(error) => Err(fail_for_all(job, key, &group, error)),
    }
}

/// This rank cannot make a communicator: tells its other ranks, and returns the error as they see it.
pub(crate) fn fail_for_all(job: &Job, key: CommunicatorKey, group: &Group, error: Error) -> Error {
    let error = on_rank(error, group.own_job_rank());
    flood_about(job, (key, group), Arc::new(error.clone()));
    error
}

/// The group that its members make under `name`, for the time numbered `uses`, of `ranks` of the whole job.
pub(crate) fn make_named(
    job: &Job,
    (ranks, options): (&[GroupRank], &GroupOptions),
    (name, uses): (&str, u64),
) -> Result<Companion> {
    // Nothing is asked of a thread here, so a forked child would get a group that writes to its parent's sockets.
    job.commands().check_process()?;
    let origin = Origin::Named { name: hash(name.bytes().map(u64::from)), uses };
    let made = make(job, (WORLD_KEY, job.group()), (ranks, options), origin, job.configured()?)?;
    made.ok_or_else(|| Error::invalid("ranks", "this rank is not among them"))
}

impl ControlHandle {
    /// The answer of the control thread, which comes by the deadline, or a little later.
    fn answer_by<T>(&self, answered: &Receiver<Result<T>>, deadline: Instant) -> Result<T> {
        await_control(answered, deadline)
            .unwrap_or_else(|missing| Err(missing.error(self.group.own_job_rank())))
    }
}

impl Control for ControlHandle {
    fn flood(&self, cause: Arc<Error>) {
        flood_about(&self.job, (self.key, &self.group), cause);
    }

    fn stream_ended(&self, peer: GroupRank) {
        self.send(Request::StreamEnded { key: self.key, peer });
    }

    fn ask(&self, awaited: GroupRank, number: u64) {
        self.send(Request::Ask { key: self.key, awaited, number });
    }

    fn close(&self, ours: CallHistory, deadline: Instant) -> Result<()> {
        let (answer, answered) = crossbeam_channel::bounded(1);
        self.job.commands().send(Command::Close { key: self.key, ours, deadline, answer });
        self.answer_by(&answered, deadline)
    }

    fn agree(&self, ask: &Ask) -> Result<Agreed> {
        let (answer, answered) = crossbeam_channel::bounded(1);
        self.job.commands().send(Command::Agree { key: self.key, ask: *ask, answer });
        self.answer_by(&answered, ask.deadline)
    }

    fn succeed(&self, survivors: &[GroupRank], number: u64) -> Result<Companion> {
        let made = self.make(survivors, self.group.options(), Origin::Shrink(number))?;
        made.ok_or_else(|| Error::invalid("survivors", "this rank is not among them"))
    }

    fn derive(&self, ranks: &[GroupRank], options: &GroupOptions, counter: u64) -> Result<Option<Companion>> {
        self.make(ranks, &options.or(self.group.options()), Origin::Derive(counter))
    }

    fn abandon(&self) {
        self.send(Request::Abandon { key: self.key });
    }

    fn clock_offsets(&self) -> Vec<ClockOffset> {
        self.job.measurements().clock_offsets()
    }

    fn link_times(&self) -> Vec<LinkTime> {
        self.job.measurements().link_times()
    }
}

impl Drop for ControlHandle {
    fn drop(&mut self) {
        self.send(Request::Unregister { key: self.key, ours: self.board.calls().history() });
    }
}
