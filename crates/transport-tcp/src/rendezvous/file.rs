//! Ranks of one host meet through a private file: the rank that locks it hosts the store, the others read from it where
//! the store is.
//!
//! The kernel releases a lock when its process ends. So a file that nobody has locked belongs to a job that is over, or
//! to none yet: it is emptied and used again. The host removes the file before it releases the lock. A rank whose lock
//! is on a file that has been removed is not the host, and reads the path again.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use unisono_communicator::{Error, Result};
use zeroize::Zeroizing;

use super::Membership;
use super::host::{StoreConfig, StoreHost};
use super::join::{JoinConfig, Retry, Setback, attempt, given_up, no_store};
use super::waiting::Waiting;
use crate::codec::{ADDRESS_BYTES, Reader, Writer};
use crate::private_files::{no_runtime_file, open_private};
use crate::secret::{SECRET_BYTES, Secret, TAG_BYTES};
use crate::size_limit::write_limited;

const NOTICE_BYTES: usize = SECRET_BYTES + ADDRESS_BYTES + TAG_BYTES;
/// The descriptors that a host needs beside one for each rank: a listening socket, two runtimes and its own connection.
const HOSTING_DESCRIPTORS: usize = 8;

const NOTICE_LABEL: &[u8] = b"unisono notice 1";

/// The content of the file: where the store is, and the secret of the job.
#[derive(Clone, Debug)]
struct Notice {
    secret: Secret,
    address: SocketAddr,
}

impl Notice {
    fn encode(&self) -> Zeroizing<Vec<u8>> {
        let address = Writer::new().address(self.address).finish();
        let tag = self.secret.tag(&[NOTICE_LABEL, &address]);
        Zeroizing::new([&self.secret.expose()[..], &address, &tag].concat())
    }

    /// `None` when the file is still being written.
    fn decode(bytes: &[u8]) -> Option<Notice> {
        let (secret, rest) = bytes.split_first_chunk::<SECRET_BYTES>()?;
        let (address, tag) = rest.split_first_chunk::<ADDRESS_BYTES>()?;
        let secret = Secret::take(&mut secret.clone());
        let genuine = secret.verifies(&[NOTICE_LABEL, address], tag);
        Some(Notice { secret, address: Reader::new(address).address().ok()? }).filter(|_| genuine)
    }
}

/// A store of ours, announced in the file.
#[derive(Debug)]
struct Hosting {
    path: PathBuf,
    file: File,
    notice: Notice,
    _store: StoreHost,
}

impl Hosting {
    fn start(path: &Path, mut file: File, rank: &JoinConfig) -> Result<Hosting> {
        spare_descriptors(&file, rank.world_size as usize + HOSTING_DESCRIPTORS)?;
        let secret = Secret::random()?;
        let store = StoreHost::start(StoreConfig {
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
            world_size: rank.world_size,
            secret: secret.clone(),
            job: rank.job,
            handshake_timeout: rank.handshake_timeout,
        })?;
        let notice = Notice { secret, address: store.address() };
        let written = write_limited(|| file.set_len(0).and_then(|()| file.write_all(&notice.encode())));
        let hosting = Hosting { path: path.to_owned(), file, notice, _store: store };
        // On failure it goes, and takes the file away.
        written.map_err(|error| no_runtime_file("write", path, &error)).map(|()| hosting)
    }
}

/// Checks that this process can open so many descriptors. A host without them would make all ranks wait, where another
/// rank may have them.
fn spare_descriptors(file: &File, count: usize) -> Result<()> {
    let spare: io::Result<Vec<File>> = (0..count).map(|_| file.try_clone()).collect();
    let what = || format!("no room for the {count} descriptors that it takes to host the ranks' meeting");
    spare.map(drop).map_err(|error| Error::system(what(), &error))
}

impl Drop for Hosting {
    fn drop(&mut self) {
        // Removed while the lock is held, so it cannot be the file of another job. A file that cannot be removed is
        // used again. The lock is released explicitly, because a forked child may hold the file open.
        let _ = fs::remove_file(&self.path);
        let _ = self.file.unlock();
    }
}

enum Role {
    Host(File),
    Guest(Option<Notice>),
}

/// Finds out whether this rank hosts the store.
fn role(path: &Path) -> Result<Role> {
    let mut options = OpenOptions::new();
    let unopened = |error| no_runtime_file("open", path, &error);
    let mut file = open_private(path, options.read(true).write(true).create(true).truncate(false), unopened)?;
    let system = |error| Error::system(format!("use {}", path.display()), &error);
    match file.try_lock() {
        Ok(()) => {
            let ours = file.metadata().map_err(system)?;
            let in_place =
                path.symlink_metadata().is_ok_and(|m| (m.dev(), m.ino()) == (ours.dev(), ours.ino()));
            Ok(if in_place { Role::Host(file) } else { Role::Guest(None) })
        }
        Err(TryLockError::WouldBlock) => {
            let mut bytes = Zeroizing::new(Vec::with_capacity(NOTICE_BYTES + 1));
            let mut capped = (&mut file).take(NOTICE_BYTES as u64 + 1);
            capped.read_to_end(&mut bytes).map_err(system)?;
            Ok(Role::Guest(Notice::decode(&bytes)))
        }
        Err(TryLockError::Error(error)) => Err(system(error)),
    }
}

/// Meets the other ranks through the file at `path`. `rank.store` and `rank.secret` are replaced by what it says.
pub(super) fn meet(path: &Path, rank: &JoinConfig) -> Result<Membership> {
    let deadline = Instant::now() + rank.timeout;
    let mut retry = Retry::new(deadline);
    let mut waiting = Waiting::new(&rank.wait, rank.rank, rank.world_size);
    let mut last = Setback::Absent("the rank that has locked the file has written nothing".into());
    loop {
        // The store lives as long as this attempt.
        let (notice, _hosting) = match role(path)? {
            Role::Host(file) => {
                let hosting = Hosting::start(path, file, rank)?;
                (Some(hosting.notice.clone()), Some(hosting))
            }
            Role::Guest(notice) => (notice, None),
        };
        if let Some(Notice { secret, address }) = notice {
            let found = JoinConfig { store: address.to_string(), secret, ..rank.clone() };
            match attempt(&found, &mut waiting, deadline) {
                Ok(membership) => return Ok(membership),
                Err(Setback::Final(error)) => return Err(error),
                // The file may belong to a store that has ended: it is read again.
                Err(setback) => last = setback,
            }
        }
        waiting.on_time(&no_store(&last.to_string()));
        if !retry.pause() {
            return Err(match last {
                Setback::Unauthenticated(error) | Setback::Final(error) => error,
                Setback::Absent(text) => given_up(rank, None, &text),
                Setback::Broken(text) => given_up(rank, Some(&text), &text),
            });
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The content of a file that announces a store at `address`.
    pub(in crate::rendezvous) fn notice(secret: Secret, address: SocketAddr) -> Vec<u8> {
        Notice { secret, address }.encode().to_vec()
    }

    #[test]
    fn a_notice_is_read_whole_or_not_at_all() {
        let address = "127.0.0.1:4711".parse().unwrap();
        let bytes = notice(Secret::random().unwrap(), address);
        assert_eq!(bytes.len(), NOTICE_BYTES);
        assert_eq!(Notice::decode(&bytes).unwrap().address, address);
        for end in 0..bytes.len() {
            assert!(Notice::decode(&bytes[..end]).is_none());
            let mut changed = bytes.clone();
            changed[end] ^= 1;
            assert!(Notice::decode(&changed).is_none(), "byte {end}");
        }
    }
}
