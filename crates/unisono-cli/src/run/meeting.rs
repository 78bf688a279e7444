//! The parts of the ranks' rendezvous: the store that the launcher hosts, the secret, and the variables that name both.

use std::fs::{self, File, Permissions};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use unisono_control::secret::Secret;
use unisono_job::private_files::{no_runtime_file, runtime_directory};
use unisono_job::rendezvous::{StoreConfig, StoreHost, check_loopback, store_job};
use unisono_job::secret::create_secret_file;
use unisono_job::settings::{GROUPS, Source, knobs};

use super::plan::HostPlan;
use crate::problem::{Problem, Result};

/// The store's address is part of the job's name, so its port is chosen before it listens: another process may take it
/// in between.
const PORT_TRIES_MAX: u32 = 8;
const FOLDER_MODE: u32 = 0o700;
const FOLDER_PREFIX: &str = "job-";
const SECRET_FILE: &str = "secret";

/// The number of entries of the folder above that are looked at.
const LEFT_OVER_MAX: usize = 256;
/// By its value all processes of a job are found.
pub(crate) const SECRET_VARIABLE: &str = "UNISONO_SECRET_FILE";

/// The addresses at which the ranks of a job meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MeetingPlace {
    /// Of our store.
    pub(crate) store: SocketAddr,
    /// For programs whose own library needs an address; nothing of ours listens there.
    pub(crate) master: SocketAddr,
}

/// A folder of this host that holds the job's secret. It is removed at the end.
pub(crate) struct JobFolder {
    folder: TempDir,
    /// As long as it is held, no other launcher removes the folder.
    _lock: File,
}

impl JobFolder {
    /// Makes a folder, and writes the secret.
    pub(crate) fn make(secret: &Secret) -> Result<JobFolder> {
        // A launcher is no rank, and replaces in its ranks the variables of an outer job: it reads no more.
        let settings = Source::of_environment(&GROUPS);
        let temporary = settings.foreign_path("TMPDIR").unwrap_or_else(|| "/tmp".into());
        let parent = runtime_directory(settings.foreign_path("XDG_RUNTIME_DIR").as_deref(), &temporary)?;
        remove_left_over(&parent);
        let failed = |error| no_runtime_file("make a folder for the secret in", &parent, &error);
        let (folder, lock) = make_folder(&parent).map_err(failed)?;
        create_secret_file(secret, &folder.path().join(SECRET_FILE))?;
        Ok(JobFolder { folder, _lock: lock })
    }
}

/// A store that this process hosts; dropping it ends the store.
pub(crate) struct HostedStore {
    store: StoreHost,
    pub(crate) place: MeetingPlace,
}

impl HostedStore {
    /// Hosts the store of so many ranks at an address of this host.
    pub(crate) fn start(
        ranks: u32,
        secret: &Secret,
        address: IpAddr,
        settings: &Source<'_>,
    ) -> Result<HostedStore> {
        let handshake_timeout = settings.duration("UNISONO_HANDSHAKE_TIMEOUT_MS")?;
        let store = host(ranks, secret, address, handshake_timeout)?;
        let place = MeetingPlace { store: store.address(), master: free_port(address)? };
        Ok(HostedStore { store, place })
    }
}

/// The rendezvous of one job, as one host has it.
pub(crate) struct Meeting {
    place: MeetingPlace,
    hosted: Option<HostedStore>,
    folder: JobFolder,
}

impl Meeting {
    /// Hosts a store for ranks that are all on this host, and writes a fresh secret.
    pub(crate) fn arrange(ranks: u32) -> Result<Meeting> {
        check_loopback(Ipv4Addr::LOCALHOST.into())?;
        let secret = Secret::random()?;
        let folder = JobFolder::make(&secret)?;
        let settings = Source::of_environment(&GROUPS);
        let hosted = HostedStore::start(ranks, &secret, Ipv4Addr::LOCALHOST.into(), &settings)?;
        Ok(Meeting { place: hosted.place, hosted: Some(hosted), folder })
    }

    /// The meeting at a place that this host or another one hosts.
    pub(crate) fn at(place: MeetingPlace, hosted: Option<HostedStore>, folder: JobFolder) -> Meeting {
        Meeting { place, hosted, folder }
    }

    /// The folder that holds the secret.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.folder.path()
    }

    /// Ends the wait of ranks that have not met `rank`, since it will not come, if the store is on this host.
    pub(crate) fn leave(&self, rank: u32, how: &str) {
        if let Some(hosted) = &self.hosted {
            hosted.store.rank_ended(rank, how);
        }
    }

    /// Sets the environment of rank `rank` of a plan.
    pub(crate) fn tell(&self, command: &mut Command, plan: &HostPlan, rank: u32) {
        let variables = [
            ("RANK", rank.to_string()),
            ("WORLD_SIZE", plan.ranks.to_string()),
            ("LOCAL_RANK", (rank - plan.first_rank).to_string()),
            ("LOCAL_WORLD_SIZE", plan.local_ranks.to_string()),
            ("CROSS_RANK", plan.host.to_string()),
            ("CROSS_SIZE", plan.hosts.to_string()),
            ("MASTER_ADDR", self.place.master.ip().to_string()),
            ("MASTER_PORT", self.place.master.port().to_string()),
            ("UNISONO_STORE", self.place.store.to_string()),
        ];
        for (name, value) in variables {
            // Our own settings (UNISONO_*) have priority over these names. Left over from an outer job, they would
            // override the values that are set here.
            for knob in knobs().filter(|knob| knob.also.contains(&name)) {
                command.env_remove(knob.name);
            }
            command.env(name, value);
        }
        command.env(SECRET_VARIABLE, self.folder().join(SECRET_FILE));
        command.env_remove("UNISONO_SECRET_FD");
    }
}

/// A new folder for a job in `parent`, locked.
fn make_folder(parent: &Path) -> io::Result<(TempDir, File)> {
    loop {
        let mut builder = tempfile::Builder::new();
        let permissions = Permissions::from_mode(FOLDER_MODE);
        let folder = builder.prefix(FOLDER_PREFIX).permissions(permissions).tempdir_in(parent)?;
        // Another launcher may have come in between, and removed it as left over.
        match File::open(folder.path()) {
            Ok(lock) if lock.try_lock().is_ok() && folder.path().exists() => return Ok((folder, lock)),
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(_) | Err(_) => {}
        }
    }
}

/// Removes the folders of jobs whose launcher has died, and whose guard has died before it could do so: a secret is in
/// them. A folder that cannot be removed is left.
fn remove_left_over(parent: &Path) {
    let entries = fs::read_dir(parent).into_iter().flatten().take(LEFT_OVER_MAX).flatten();
    let of_jobs =
        entries.filter(|entry| entry.file_name().as_encoded_bytes().starts_with(FOLDER_PREFIX.as_bytes()));
    for entry in of_jobs.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        // The lock is held until the folder is removed.
        if let Ok(folder) = File::open(entry.path())
            && folder.try_lock().is_ok()
        {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn host(ranks: u32, secret: &Secret, address: IpAddr, handshake_timeout: Duration) -> Result<StoreHost> {
    let mut tries = 0;
    loop {
        tries += 1;
        let listen = free_port(address)?;
        let started = StoreHost::start(StoreConfig {
            listen,
            world_size: ranks,
            secret: secret.clone(),
            job: store_job(&listen.to_string()),
            handshake_timeout,
        });
        match started {
            Ok(store) => return Ok(store),
            Err(_) if tries < PORT_TRIES_MAX => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn free_port(address: IpAddr) -> Result<SocketAddr> {
    TcpListener::bind((address, 0))
        .and_then(|listener| listener.local_addr())
        .map_err(|error| Problem::failed(format!("looking for a free port of {address}"), error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_of_a_job_stays_as_long_as_its_launcher_and_no_longer() {
        let parent = tempfile::tempdir().unwrap();
        let (running, lock) = make_folder(parent.path()).unwrap();
        let (died, lock_of_died) = make_folder(parent.path()).unwrap();
        fs::write(died.path().join(SECRET_FILE), "secret").unwrap();
        // Of something else.
        fs::create_dir(parent.path().join("other")).unwrap();
        fs::write(parent.path().join("job-file"), "").unwrap();
        drop(lock_of_died);
        remove_left_over(parent.path());
        let is_there = |path: &Path| path.exists();
        assert!(is_there(running.path()) && !is_there(died.path()));
        assert!(is_there(&parent.path().join("other")) && is_there(&parent.path().join("job-file")));
        drop(lock);
        remove_left_over(parent.path());
        assert!(!is_there(running.path()));
    }
}
