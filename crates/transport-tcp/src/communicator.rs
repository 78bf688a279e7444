//! The TCP communicator: the engine over this crate's links and control plane.

use std::sync::Arc;

use unisono_backend::Board;
use unisono_communicator::{Group, Result};
use unisono_engine::{EngineCommunicator, EngineOptions, Links, Parts, SharedRegistry};

use crate::control::{Command, LocalCommunicator, TcpControl};
use crate::job::TcpJob;
use crate::links::TcpLinks;
use crate::wire::CommunicatorKey;

/// A communicator over TCP.
pub type TcpCommunicator = EngineCommunicator<TcpLinks>;

/// The backend's name.
pub const BACKEND: &str = "tcp";

/// Makes one communicator of a world, with these algorithms. Needs no message: every member does the same.
pub(crate) fn create(
    world: &TcpJob,
    key: CommunicatorKey,
    group: Group,
    registry: SharedRegistry,
) -> Result<Arc<TcpCommunicator>> {
    let (rank, ranks) = (group.own_rank(), group.size());
    let board = Arc::new(Board::new(rank, ranks));
    let (outbox, inbox) = crossbeam_channel::unbounded();
    let links = TcpLinks::new(key, (rank, ranks), world.checked(&group), world.commands().clone(), inbox)?;
    world.recorder().register(key, group.clone(), &board);
    if let Some(reporter) = world.reporter() {
        reporter.watch(group.own_job_rank(), key.to_string(), &board);
    }
    let member = LocalCommunicator::new(key, group.clone(), board.clone(), (outbox, links.waker()));
    world.commands().send(Command::Register(Box::new(member)));
    let control =
        Arc::new(TcpControl::new(world.clone(), key, group.clone(), board.clone(), registry.clone()));
    let options = EngineOptions { registry, ..world.options(&group) };
    Ok(EngineCommunicator::new(Parts { group, links, control, board, options, backend: BACKEND }))
}
