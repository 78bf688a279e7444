//! The meeting of the ranks of a job: once, through a store that is needed for nothing else.
//!
//! | when | place of the store | the secret |
//! | --- | --- | --- |
//! | the program brings a store (`with_meeting`) | in rank 0, which says so in that store | the same, or fresh, there |
//! | several hosts, a launcher that speaks PMI | in rank 0, which says so in the launcher's store | a file or a pipe |
//! | the program names a file (`file://`) | in the first rank to lock it, which says where | fresh, in the file |
//! | `UNISONO_STORE` is set | there, hosted by the launcher | a file or a pipe |
//! | all ranks are on this host | in the first rank to lock a private file that says where | fresh, in that file |
//! | several hosts, `MASTER_ADDR`, Slurm, Azure ML or SageMaker | there, one port above, hosted by rank 0 | the same |
//! | several hosts, none of these | refused, with these remedies | |
//!
//! All ranks count as being on this host if the launcher's local size says so. If the launcher gives no local size,
//! they do when the master's address is literally a loopback address, or when there is none. Nothing else is the same
//! on all ranks: a host name may resolve to a loopback address on its own host and to another address elsewhere.
//!
//! The private file belongs to this user, in the runtime directory, and is named after the mark that the ranks of the
//! job have in common, see [`crate::environment`]. A file with a secret is the file of `UNISONO_SECRET_FILE`, else the
//! user's own; a pipe is the inherited descriptor of `UNISONO_SECRET_FD`.
//!
//! Two events end a wait before its deadline, for every rank with the same error: two processes that contradict each
//! other (one rank twice, two world sizes), and a rank whose launcher says that it has ended. A rank that leaves while
//! it waits may come again: a launcher may have restarted it. A process without the secret is told so and disturbs
//! nobody. Ranks name the ranks that they wait for, see [`WaitConfig`].

mod address;
#[cfg(test)]
mod again_tests;
mod file;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod host;
mod join;
mod key;
pub(crate) mod loopback;
mod membership;
mod notice;
mod own_cpus;
mod plan;
#[cfg(test)]
pub(crate) mod process_tests;
mod program_store;
mod room;
#[cfg(test)]
pub(crate) mod room_tests;
#[cfg(test)]
mod scale_tests;
mod scope;
mod stream;
#[cfg(test)]
pub(crate) mod tests;
mod waiting;

use std::net::SocketAddr;

use unisono_communicator::Result;
use unisono_control::handshake::JobId;
use unisono_control::roster::cpus::Cpus;
use unisono_control::secret::Secret;

pub use address::listen_address;
pub(crate) use address::{address_of_interface, interfaces_text, listen_at, split_store, wanted_interfaces};
use file::Naming;
pub use host::{StoreConfig, StoreHost};
pub(crate) use join::join;
pub use join::{JoinConfig, StoreProcess};
pub use key::own_process;
pub(crate) use key::process_start_ticks;
pub use loopback::check_loopback;
pub(crate) use membership::Joined;
pub use membership::Membership;
pub use plan::store_job;
pub(crate) use scope::at_own;
pub use unisono_control::roster::message::{
    HOST_ID_BYTES, HOST_NAME_BYTES_MAX, HostClaim, JOB_SETTINGS_BYTES_MAX, ProcessBirth, RankProcess,
};
pub use waiting::{Voice, WaitConfig};

use crate::config::Config;
use crate::pmi::PmiStore;
use crate::private_files::runtime_directory;
use crate::task_thread::TaskThread;
use address::join_host;
use own_cpus::own_cpus;
use plan::{Meeting, meeting};
use program_store::MeetingPoint;

/// Meets the other ranks in the way that the settings say. `listen` is where this process already accepts
/// connections, on the address that [`listen_address`] gave; `job_settings` reach every rank if we are rank 0. A store
/// that this rank hosts is a task of `thread`, and may stay behind until slow ranks have their answers.
///
/// # Errors
/// [`unisono_communicator::Error::Rendezvous`] when not all ranks come in time, with the missing ones;
/// [`unisono_communicator::Error::Refused`] when this process does not belong to the job it found;
/// [`unisono_communicator::Error::Configuration`] when the settings do not say how to meet.
pub(crate) async fn rendezvous(
    config: &Config,
    listen: SocketAddr,
    job_settings: Vec<u8>,
    thread: &TaskThread,
) -> Result<Joined> {
    let meeting = meeting(config)?;
    let wait = WaitConfig::new(config, &meeting);
    let rank = |store: String, secret: Secret, job: JobId| JoinConfig {
        store,
        hosted_by: StoreProcess::default(),
        secret,
        job,
        rank: config.placement.rank(),
        world_size: config.placement.world_size(),
        listen,
        host: key::host_claim(config),
        run: config.launcher_run.clone(),
        job_settings: job_settings.clone(),
        backend: config.backend.to_string(),
        timeout: config.join_timeout,
        handshake_timeout: config.handshake_timeout,
        wait: wait.clone(),
    };
    match meeting {
        Meeting::Solo => alone(listen, job_settings),
        Meeting::SameHost => {
            let directory =
                runtime_directory(config.runtime_directory.as_deref(), &config.temporary_directory)?;
            let job = JobId::from_key(&key::job_key(config));
            let path = directory.join(format!("{job}.store"));
            // The file holds the secret and the address.
            let mut rank = rank(String::new(), Secret::random()?, job);
            rank.wait.place = format!("{} {}", rank.wait.place, path.display());
            file::meet(&path, Naming::Ours, &rank, thread).await
        }
        Meeting::File(path) => {
            let job = JobId::from_key(&key::job_key(config));
            let mut rank = rank(String::new(), Secret::random()?, job);
            rank.wait.place = format!("{} {}", rank.wait.place, path.display());
            file::meet(&path, Naming::OfProgram { listen }, &rank, thread).await
        }
        Meeting::Program { store, secret } => {
            let mut rank = rank(String::new(), Secret::random()?, JobId::from_key(&key::job_key(config)));
            rank.hosted_by.rank = Some(0);
            let own = secret.map(|secret| secret.read()).transpose()?;
            let store =
                MeetingPoint { store: store.as_ref(), name: program_store::OF_PROGRAM, outlives_jobs: true };
            program_store::meet(store, own, (&rank, listen), thread).await
        }
        Meeting::Pmi { descriptor, secret } => {
            let mut rank = rank(String::new(), Secret::random()?, JobId::from_key(program_store::PMI));
            rank.hosted_by.rank = Some(0);
            let store = PmiStore::new(descriptor);
            let store = MeetingPoint { store: &store, name: program_store::PMI, outlives_jobs: false };
            program_store::meet(store, Some(secret.read()?), (&rank, listen), thread).await
        }
        Meeting::Launched { store, secret } => {
            join(&rank(store.clone(), secret.read()?, store_job(&store))).await
        }
        Meeting::AtRankZero { host, port, secret } => {
            let store = join_host(&host, port);
            let mut rank = rank(store, secret.read()?, plan::job_at(config, port));
            rank.hosted_by.rank = Some(0);
            match rank.rank {
                0 => host_and_join((&host, port), listen, rank, thread).await,
                _ => join(&rank).await,
            }
        }
    }
}

/// The only rank of its job.
fn alone(listen: SocketAddr, job_settings: Vec<u8>) -> Result<Joined> {
    let membership = Membership {
        rank: 0,
        world_size: 1,
        job: JobId::random()?,
        secret: Secret::random()?,
        addresses: vec![listen],
        hosts: vec![0],
        processes: vec![own_process()],
        job_settings,
        cores: vec![Cpus::cores_of([&own_cpus()])],
    };
    Ok(Joined { membership, within_host: None })
}

/// Meets the other ranks as rank 0, at a store of our own.
async fn host_and_join(
    place: (&str, u16),
    listen: SocketAddr,
    rank: JoinConfig,
    thread: &TaskThread,
) -> Result<Joined> {
    let hosted = plan::host_at(place, listen, &rank, thread).await?;
    join(&JoinConfig { store: hosted.address().to_string(), ..rank }).await
}
