//! Ranks meet through a private file that all of them see: the ranks of one host in a file that we name, or all in a
//! file that the program names, which may be on a file system of several hosts. The rank that locks it hosts the store,
//! the others read from it where the store is.
//!
//! The kernel releases a lock when its process ends. So a file that nobody has locked belongs to a job that is over, or
//! to none yet: it is emptied and used again. The host removes the file before it releases the lock. A rank whose lock
//! is on a file that has been removed is not the host, and reads the path again.
//!
//! A host that is killed leaves its file. The next host removes such files of other jobs: nobody has them locked.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use unisono_communicator::{Error, Result};
use unisono_control::secret::Secret;
use zeroize::Zeroizing;

use super::host::{Hosted, StoreConfig};
use super::join::{JoinConfig, Setback};
use super::loopback::check_loopback;
use super::membership::Joined;
use super::notice::{Found, NOTICE_BYTES, Notice, meet_by_notice};
use crate::private_files::{bad_file, no_runtime_file, open_private};
use crate::size_limit::write_limited;
use crate::task_thread::TaskThread;

/// The number of files that a host looks at for jobs that are over.
const LEFT_OVER_MAX: usize = 256;

/// The origin of the file's name.
#[derive(Clone, Copy, Debug)]
pub(super) enum Naming {
    /// We have: it is in our own folder, and all ranks are on this host.
    Ours,
    /// The program has: it may be a file with other content by mistake, in a folder of other files. The store listens
    /// at this address, at any port.
    OfProgram { listen: SocketAddr },
}

impl Naming {
    /// The error of the system, with the remedy.
    fn failed(self, what: &str, path: &Path, error: &io::Error) -> Error {
        match self {
            Naming::Ours => no_runtime_file(what, path, error),
            Naming::OfProgram { .. } => Error::System {
                what: format!("{what} {}, which init_method names", path.display()),
                text: format!("{error}; all ranks must be able to write there"),
            },
        }
    }
}

/// The locked file that announces a store. Dropping it takes the file away.
#[derive(Debug)]
struct LockedFile {
    path: PathBuf,
    file: File,
}

/// Hosts a store and announces it in the file.
fn host_in(
    (path, mut file): (&Path, File),
    naming: Naming,
    rank: &JoinConfig,
    thread: &TaskThread,
) -> Result<Found> {
    let listen = match naming {
        Naming::Ours => {
            remove_left_over(path);
            (Ipv4Addr::LOCALHOST, 0).into()
        }
        Naming::OfProgram { mut listen } => {
            check_content(path, &mut file)?;
            listen.set_port(0);
            listen
        }
    };
    let secret = Secret::random()?;
    let config = StoreConfig { secret: secret.clone(), ..rank.store_at(listen) };
    let hosted = Hosted::start(thread, config, rank.run.clone())?;
    let (rank, pid) = (rank.rank, std::process::id());
    let notice = Notice { secret, address: hosted.address(), rank, pid };
    let write = |file: &mut File| {
        file.set_len(0)?;
        file.rewind()?;
        file.write_all(&notice.encode())?;
        // Other hosts see it from here on.
        file.sync_data()
    };
    let written = write_limited(|| write(&mut file));
    // On failure it goes, and takes the file away.
    let hosted = hosted.announced_by(LockedFile { path: path.to_owned(), file });
    written.map_err(|error| naming.failed("write", path, &error)).map(|()| (notice, Some(hosted)))
}

/// Refuses a file that holds anything but the notice of a job that is over.
fn check_content(path: &Path, file: &mut File) -> Result<()> {
    match read_notice(path, file)? {
        (_, 0) | (Some(_), _) => Ok(()),
        (None, _) => Err(bad_file(
            path,
            "it holds something else than a meeting of ranks, and is left alone; if it is left over, remove it"
                .to_owned(),
        )),
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        // Removed while the lock is held, so it cannot be the file of another job. A file that cannot be removed is
        // used again. The lock is released explicitly, because a forked child may hold the file open.
        let _ = fs::remove_file(&self.path);
        let _ = self.file.unlock();
    }
}

/// Removes the files of jobs that are over, beside the file at `path`. A file that cannot be removed is left.
fn remove_left_over(path: &Path) {
    let entries = path.parent().and_then(|directory| fs::read_dir(directory).ok());
    for other in entries.into_iter().flatten().take(LEFT_OVER_MAX).flatten().map(|entry| entry.path()) {
        let is_store = other.extension() == path.extension() && other != path;
        let failed = |error| no_runtime_file("open", &other, &error);
        let file =
            is_store.then(|| open_private(&other, OpenOptions::new().write(true), failed).ok()).flatten();
        // The lock is held until the file is removed: a host that came in between would lose its file.
        if let Some(file) = file
            && file.try_lock().is_ok()
            && is_at(&file, &other)
        {
            let _ = fs::remove_file(&other);
        }
    }
}

/// Whether `path` still leads to this file.
fn is_at(file: &File, path: &Path) -> bool {
    let found = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    file.metadata().is_ok_and(|own| path.symlink_metadata().is_ok_and(|other| found(own) == found(other)))
}

enum Role {
    Host(File),
    Guest(Option<Notice>),
}

/// Finds out whether this rank hosts the store.
fn role(path: &Path, naming: Naming) -> Result<Role> {
    let mut options = OpenOptions::new();
    let unopened = |error| naming.failed("open", path, &error);
    let mut file = open_private(path, options.read(true).write(true).create(true).truncate(false), unopened)?;
    match file.try_lock() {
        Ok(()) => Ok(if is_at(&file, path) { Role::Host(file) } else { Role::Guest(None) }),
        Err(TryLockError::WouldBlock) => Ok(Role::Guest(read_notice(path, &mut file)?.0)),
        Err(TryLockError::Error(error)) => Err(unused(path, &error)),
    }
}

fn unused(path: &Path, error: &io::Error) -> Error {
    Error::system(format!("use {}", path.display()), error)
}

/// The notice in the file, if it is whole, and the number of bytes there.
fn read_notice(path: &Path, file: &mut File) -> Result<(Option<Notice>, usize)> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(NOTICE_BYTES + 1));
    let mut capped = file.take(NOTICE_BYTES as u64 + 1);
    capped.read_to_end(&mut bytes).map_err(|error| unused(path, &error))?;
    Ok((Notice::decode(&bytes), bytes.len()))
}

/// Meets the other ranks through the file at `path`. `rank.store` and `rank.secret` are replaced by its content.
pub(super) async fn meet(
    path: &Path,
    naming: Naming,
    rank: &JoinConfig,
    thread: &TaskThread,
) -> Result<Joined> {
    if matches!(naming, Naming::Ours) {
        // The ranks may listen at an address that a setting gives, but the store is at loopback.
        check_loopback(Ipv4Addr::LOCALHOST.into())?;
    }
    meet_by_notice(rank, |_| match role(path, naming)? {
        Role::Host(file) => host_in((path, file), naming, rank, thread).map(Ok),
        Role::Guest(Some(notice)) => Ok(Ok((notice, None))),
        Role::Guest(None) => {
            Ok(Err(Setback::Absent("the rank that has locked the file has written nothing".into())))
        }
    })
    .await
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The content of a file that announces a store at `address`.
    pub(in crate::rendezvous) fn notice(secret: Secret, address: SocketAddr) -> Vec<u8> {
        Notice { secret, address, rank: 0, pid: 1 }.encode().to_vec()
    }
}
