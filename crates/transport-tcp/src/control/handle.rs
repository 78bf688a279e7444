//! The handle of the control plane that the engine of one communicator holds.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};
use unisono_backend::{Agreed, Ask, Board, CallHistory, Companion, Control, HANDOVER_MAX, on_rank};
use unisono_communicator::{Error, Group, GroupRank, JobRank, Result};
use unisono_engine::SharedRegistry;

use super::Command;
use super::local_communicators::ID_LIST_BITS;
use crate::communicator;
use crate::job::{TcpJob, WORLD_KEY};
use crate::wire::CommunicatorKey;

/// How long a goodbye waits for the goodbyes of the other ranks.
const GOODBYE_WAIT: Duration = Duration::from_millis(100);

/// How much longer than its deadline an answer of the control thread may take.
const ANSWER_WAIT: Duration = Duration::from_secs(1);

/// The control plane of one communicator. Dropping it removes the communicator from the control thread. The world lives
/// as long as one of its communicators.
pub(crate) struct TcpControl {
    world: TcpJob,
    key: CommunicatorKey,
    group: Group,
    board: Arc<Board>,
    /// The algorithms of this communicator, for those that are derived from it.
    registry: SharedRegistry,
}

impl TcpControl {
    pub(crate) fn new(
        world: TcpJob,
        key: CommunicatorKey,
        group: Group,
        board: Arc<Board>,
        registry: SharedRegistry,
    ) -> TcpControl {
        TcpControl { world, key, group, board, registry }
    }

    fn send(&self, command: Command) {
        self.world.commands().send(command);
    }

    fn make(&self, ranks: &[GroupRank], origin: Origin) -> Result<Option<Companion>> {
        make(&self.world, (self.key, &self.group), ranks, origin, self.registry.inherit())
    }
}

/// Spreads the first cause of the communicator `key` of `group`.
fn flood_about(world: &TcpJob, (key, group): (CommunicatorKey, &Group), cause: Arc<Error>) {
    let (handed_over, waiting) = crossbeam_channel::bounded(0);
    let members = group.job_ranks().iter().copied().collect();
    world.commands().send(Command::Flood { key, members, cause, handed_over });
    // Nothing is ever sent: the channel is disconnected when the cause has been handed over.
    let _ = waiting.recv_timeout(HANDOVER_MAX);
}

/// A communicator of some ranks of a group, that of the communicator `parent`, with these algorithms. `None` when this
/// rank is not one of them.
fn make(
    world: &TcpJob,
    (parent, group): (CommunicatorKey, &Group),
    ranks: &[GroupRank],
    origin: Origin,
    registry: SharedRegistry,
) -> Result<Option<Companion>> {
    let job_ranks: Vec<JobRank> = ranks.iter().map(|&rank| group.job_rank(rank)).collect();
    let key = derived_key(parent, origin, &job_ranks);
    let Some(group) = group.subgroup(ranks, key.epoch) else { return Ok(None) };
    match communicator::create(world, key, group.clone(), registry) {
        Ok(derived) => Ok(Some(derived.as_companion())),
        // The other ranks have made the communicator, or will make it, and would wait for this rank.
        Err(error) => Err(fail_for_all(world, key, &group, error)),
    }
}

/// This rank cannot make a communicator: tells its other ranks, and returns the error as they see it.
pub(crate) fn fail_for_all(world: &TcpJob, key: CommunicatorKey, group: &Group, error: Error) -> Error {
    let error = on_rank(error, group.own_job_rank());
    flood_about(world, (key, group), Arc::new(error.clone()));
    error
}

/// The group that its members make under `name`, for the time numbered `uses`, of `ranks` of the whole job.
pub(crate) fn make_named(
    world: &TcpJob,
    ranks: &[GroupRank],
    (name, uses): (&str, u64),
) -> Result<Companion> {
    let origin = Origin::Named { name: hash(name.bytes().map(u64::from)), uses };
    let made = make(world, (WORLD_KEY, world.group()), ranks, origin, world.configured()?)?;
    made.ok_or_else(|| Error::invalid("ranks", "this rank is not among them"))
}

/// The answer of the control thread, which comes by the deadline, or a little later. The extra time counts from this
/// call on: when a process was stopped and goes on, its control thread must get a turn before both times are over.
fn await_answer<T>(answered: &Receiver<Result<T>>, deadline: Instant) -> Result<T> {
    let late = |_| answered.recv_timeout(ANSWER_WAIT);
    answered.recv_deadline(deadline).or_else(late).unwrap_or_else(|error| Err(no_answer(error)))
}

fn no_answer(error: RecvTimeoutError) -> Error {
    Error::System { what: "no answer from the control thread".to_owned(), text: error.to_string() }
}

impl Control for TcpControl {
    fn flood(&self, cause: Arc<Error>) {
        flood_about(&self.world, (self.key, &self.group), cause);
    }

    fn stream_ended(&self, peer: GroupRank) {
        self.send(Command::StreamEnded { key: self.key, peer });
    }

    fn ask(&self, awaited: GroupRank, number: u64) {
        self.send(Command::Ask { key: self.key, awaited, number });
    }

    fn close(&self, ours: CallHistory, deadline: Instant) -> Result<()> {
        let deadline = deadline.min(Instant::now() + GOODBYE_WAIT);
        let (answer, answered) = crossbeam_channel::bounded(1);
        self.send(Command::Close { key: self.key, ours, deadline, answer });
        await_answer(&answered, deadline)
    }

    fn agree(&self, ask: &Ask) -> Result<Agreed> {
        let (answer, answered) = crossbeam_channel::bounded(1);
        self.send(Command::Agree { key: self.key, ask: *ask, answer });
        await_answer(&answered, ask.deadline)
    }

    fn succeed(&self, survivors: &[GroupRank], number: u64) -> Result<Companion> {
        let made = self.make(survivors, Origin::Shrink(number))?;
        made.ok_or_else(|| Error::invalid("survivors", "this rank is not among them"))
    }

    fn derive(&self, ranks: &[GroupRank], counter: u64) -> Result<Option<Companion>> {
        self.make(ranks, Origin::Derive(counter))
    }

    fn abandon(&self) {
        self.send(Command::Abandon { key: self.key });
    }
}

impl Drop for TcpControl {
    fn drop(&mut self) {
        self.send(Command::Unregister { key: self.key, ours: self.board.calls().history() });
    }
}

/// How a communicator was made from another one, and which of that kind it is, counted from 0.
#[derive(Clone, Copy)]
pub(super) enum Origin {
    /// A subgroup or a duplicate.
    Derive(u64),
    /// The survivors, in the next epoch.
    Shrink(u64),
    /// A group that only its members have made: the hash of its name, and how often that was used before.
    Named { name: u64, uses: u64 },
}

/// The key of a communicator that every rank computes for itself. The low bits depend on the ranks, the others on
/// how it came about, so that two sides that called with different lists meet and notice.
pub(super) fn derived_key(parent: CommunicatorKey, origin: Origin, ranks: &[JobRank]) -> CommunicatorKey {
    let (kind, name, counter, epoch) = match origin {
        Origin::Derive(counter) => (0, 0, counter, parent.epoch),
        Origin::Shrink(number) => (1, 0, number, parent.epoch + 1),
        Origin::Named { name, uses } => (2, name, uses, parent.epoch),
    };
    let origin = hash([parent.id, parent.epoch.into(), kind, name, counter].into_iter());
    let list = hash(ranks.iter().map(|rank| rank.get().into()));
    let low = (1 << ID_LIST_BITS) - 1;
    CommunicatorKey { id: origin & !low | list & low, epoch }
}

/// FNV-1a over words, and a last mixing so that the low bits depend on everything.
fn hash(words: impl Iterator<Item = u64>) -> u64 {
    let bytes = words.flat_map(u64::to_le_bytes);
    let hash = bytes
        .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    (hash ^ hash >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ hash >> 29
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_tell_origin_and_list_apart() {
        let world = CommunicatorKey { id: 0, epoch: 0 };
        let list = |ranks: [u32; 2]| ranks.map(JobRank::new);
        let key = |counter, ranks| derived_key(world, Origin::Derive(counter), &list(ranks));
        let origin = |key: CommunicatorKey| key.id >> ID_LIST_BITS;
        assert_eq!(key(0, [0, 1]), key(0, [0, 1]));
        assert_eq!(origin(key(0, [0, 1])), origin(key(0, [1, 0])));
        assert_ne!(key(0, [0, 1]), key(0, [1, 0]));
        let shrunk = derived_key(world, Origin::Shrink(0), &list([0, 1]));
        assert!(shrunk.epoch == 1 && origin(shrunk) != origin(key(0, [0, 1])));
        let named = |name, uses| derived_key(world, Origin::Named { name, uses }, &list([0, 1]));
        assert_eq!(named(5, 0), named(5, 0));
        assert!(origin(named(5, 0)) != origin(named(5, 1)) && origin(named(5, 0)) != origin(named(6, 0)));
        let mut origins: Vec<_> = (0..10_000).map(|counter| origin(key(counter, [0, 1]))).collect();
        origins.sort_unstable();
        origins.dedup();
        assert_eq!(origins.len(), 10_000);
    }
}
