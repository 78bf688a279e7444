//! Ranks meet through a key-value store that the program brings: torch's, Ray's, a dictionary of a Kubernetes operator.
//! It carries one value, by which the other ranks find the store of rank 0; they meet there as always. So the ranks
//! need nothing else from it, and an error names ranks as it does everywhere.
//!
//! A value that an earlier job has left does no harm: its store is gone, or has another secret, and the key is read
//! again.

use std::net::SocketAddr;
use std::time::Instant;

use unisono_communicator::{Error, Result};
use unisono_control::secret::Secret;

use super::host::{Hosted, StoreConfig};
use super::join::{JoinConfig, Setback};
use super::membership::Joined;
use super::notice::{Found, Notice, SEALED_BYTES, meet_by_notice};
use super::plan::SECRET_REMEDY;
use crate::meeting_store::MeetingStore;
use crate::task_thread::TaskThread;

/// The key under which rank 0 says where it is.
const KEY: &str = "unisono/meeting";

/// The names of stores, for messages.
pub(super) const OF_PROGRAM: &str = "the program's store";
pub(super) const PMI: &str = "the launcher's store (PMI)";

/// A store, and its name.
#[derive(Clone, Copy)]
pub(super) struct MeetingPoint<'s> {
    pub(super) store: &'s dyn MeetingStore,
    pub(super) name: &'static str,
    /// Whether an earlier job may have left its value there.
    pub(super) outlives_jobs: bool,
}

/// Meets the other ranks through `store`; `own` is the secret of the settings. `rank.store` and `rank.secret` are
/// replaced by the value there.
pub(super) async fn meet(
    point: MeetingPoint<'_>,
    own: Option<Secret>,
    (rank, mut listen): (&JoinConfig, SocketAddr),
    thread: &TaskThread,
) -> Result<Joined> {
    listen.set_port(0);
    meet_by_notice(rank, |deadline| match rank.rank {
        0 => announce(point, own.as_ref(), (rank, listen), thread).map(Ok),
        _ => find(point, own.as_ref(), deadline),
    })
    .await
}

/// Hosts the store as rank 0, and says in `store` where it is.
fn announce(
    MeetingPoint { store, name, .. }: MeetingPoint<'_>,
    own: Option<&Secret>,
    (rank, listen): (&JoinConfig, SocketAddr),
    thread: &TaskThread,
) -> Result<Found> {
    let secret = own.map_or_else(Secret::random, |own| Ok(own.clone()))?;
    let config = StoreConfig { secret: secret.clone(), ..rank.store_at(listen) };
    let hosted = Hosted::start(thread, config, rank.run.clone())?;
    let notice = Notice { secret, address: hosted.address(), rank: rank.rank, pid: std::process::id() };
    let set = match own {
        Some(_) => store.set(KEY, &notice.seal()),
        None => store.set(KEY, &notice.encode()),
    };
    set.map_err(|error| failed("set", name, error.as_ref()))?;
    Ok((notice, Some(hosted)))
}

/// Finds the store of rank 0.
fn find(
    MeetingPoint { store, name, outlives_jobs }: MeetingPoint<'_>,
    own: Option<&Secret>,
    deadline: Instant,
) -> Result<Result<Found, Setback>> {
    let value = store.get(KEY, deadline).map_err(|error| failed("get", name, error.as_ref()))?;
    let Some(value) = value else {
        return Ok(Err(Setback::Broken(format!("rank 0 has set no {KEY:?} in {name}"))));
    };
    let notice = match own {
        Some(own) => Notice::open(own.clone(), &value),
        None => Notice::decode(&value),
    };
    let problem = match (notice, own) {
        (Some(notice), _) => return Ok(Ok((notice, None))),
        (None, Some(_)) if Notice::decode(&value).is_some() => {
            "rank 0 has no secret of its own, but this rank has one".to_owned()
        }
        (None, Some(_)) if value.len() == SEALED_BYTES => "rank 0 has another secret".to_owned(),
        (None, None) if value.len() == SEALED_BYTES => {
            format!("rank 0 has a secret of its own, but this rank has none: {SECRET_REMEDY}")
        }
        (None, _) => format!("the value of {KEY:?} in {name} is not from rank 0 of a job"),
    };
    let error = Error::Refused { problem };
    if outlives_jobs { Ok(Err(Setback::Unauthenticated(error))) } else { Err(error) }
}

fn failed(function: &str, name: &str, error: &dyn std::error::Error) -> Error {
    let problem = format!("{function}({KEY:?}) of {name}: {error}");
    Error::Rendezvous { missing: Vec::new(), problem }
}
