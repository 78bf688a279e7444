//! The parts of the ranks' rendezvous: the store that the launcher hosts, the secret, and the variables that name both.

use std::fs::{self, File, Permissions};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;
use unisono_control::secret::Secret;
use unisono_job::private_files::{no_runtime_file, runtime_directory};
use unisono_job::rendezvous::{StoreConfig, StoreHost, check_loopback, store_job};
use unisono_job::secret::create_secret_file;
use unisono_job::settings::{GROUPS, Source, knobs};

use super::failure::End;
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

/// The rendezvous of one job; dropping it ends the store.
pub(crate) struct Meeting {
    ranks: u32,
    store: StoreHost,
    folder: TempDir,
    /// As long as it is held, no other launcher removes the folder.
    _lock: File,
    free_port: SocketAddr,
}

impl Meeting {
    /// Hosts a store and writes a fresh secret.
    pub(crate) fn arrange(ranks: u32) -> Result<Meeting> {
        // A launcher is no rank, and replaces in its ranks the variables of an outer job: it reads no more.
        let settings = Source::of_environment(&GROUPS);
        let temporary = settings.foreign_path("TMPDIR").unwrap_or_else(|| "/tmp".into());
        check_loopback(Ipv4Addr::LOCALHOST.into())?;
        let parent = runtime_directory(settings.foreign_path("XDG_RUNTIME_DIR").as_deref(), &temporary)?;
        remove_left_over(&parent);
        let failed = |error| no_runtime_file("make a folder for the secret in", &parent, &error);
        let (folder, lock) = make_folder(&parent).map_err(failed)?;
        let secret = Secret::random()?;
        create_secret_file(&secret, &folder.path().join(SECRET_FILE))?;
        let store = host(ranks, &secret, settings.duration("UNISONO_HANDSHAKE_TIMEOUT_MS")?)?;
        // We do not listen there: the port is for programs whose own library needs one.
        let free_port = free_port()?;
        Ok(Meeting { ranks, store, folder, _lock: lock, free_port })
    }

    /// The folder that holds the secret; it is removed at the end.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Ends the wait of ranks that have not met this one, since it will not come.
    pub(crate) fn leave(&self, end: &End) {
        self.store.rank_ended(end.rank, &end.how);
    }

    /// Sets the environment of rank `rank`.
    pub(crate) fn tell(&self, command: &mut Command, rank: u32) {
        let (rank, ranks) = (rank.to_string(), self.ranks.to_string());
        let variables = [
            ("RANK", rank.clone()),
            ("WORLD_SIZE", ranks.clone()),
            ("LOCAL_RANK", rank),
            ("LOCAL_WORLD_SIZE", ranks),
            ("CROSS_RANK", "0".to_owned()),
            ("CROSS_SIZE", "1".to_owned()),
            ("MASTER_ADDR", self.free_port.ip().to_string()),
            ("MASTER_PORT", self.free_port.port().to_string()),
            ("UNISONO_STORE", self.store.address().to_string()),
        ];
        for (name, value) in variables {
            // Our own settings (UNISONO_*) have priority over these names. Left over from an outer job, they would
            // override the values that are set here.
            for knob in knobs().filter(|knob| knob.also.contains(&name)) {
                command.env_remove(knob.name);
            }
            command.env(name, value);
        }
        command.env(SECRET_VARIABLE, self.folder.path().join(SECRET_FILE));
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

fn host(ranks: u32, secret: &Secret, handshake_timeout: Duration) -> Result<StoreHost> {
    let mut tries = 0;
    loop {
        tries += 1;
        let listen = free_port()?;
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

fn free_port() -> Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .map_err(|error| Problem::failed("looking for a free port", error))
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
