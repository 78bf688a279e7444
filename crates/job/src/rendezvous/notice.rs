//! The notice by which ranks find the store of their meeting, in a file or in a store of the program: where it is, who
//! hosts it and, where the ranks have no secret yet, the secret of the job.

use std::net::SocketAddr;
use std::time::Instant;

use unisono_communicator::Result;
use unisono_control::codec::{ADDRESS_BYTES, Reader, Writer};
use unisono_control::secret::{SECRET_BYTES, Secret, TAG_BYTES};
use zeroize::Zeroizing;

use super::host::Hosted;
use super::join::{JoinConfig, Retry, Setback, StoreProcess, attempt, given_up, no_store};
use super::membership::Joined;
use super::waiting::Waiting;

/// The place of the store, and the rank and the pid of its host.
const PLACE_BYTES: usize = ADDRESS_BYTES + 2 * size_of::<u32>();
/// The size of a notice for ranks that have the secret.
pub(super) const SEALED_BYTES: usize = PLACE_BYTES + TAG_BYTES;
/// The size of a notice with the secret.
pub(super) const NOTICE_BYTES: usize = SECRET_BYTES + SEALED_BYTES;

const NOTICE_LABEL: &[u8] = b"unisono notice 2";

/// The place of the store, its host, and the secret of the job.
#[derive(Clone, Debug)]
pub(super) struct Notice {
    pub(super) secret: Secret,
    pub(super) address: SocketAddr,
    pub(super) rank: u32,
    pub(super) pid: u32,
}

impl Notice {
    /// The bytes for readers that have no secret yet: every reader can join the job.
    pub(super) fn encode(&self) -> Zeroizing<Vec<u8>> {
        Zeroizing::new([&self.secret.expose()[..], &self.seal()].concat())
    }

    /// The bytes for readers that have the secret, which is not among them.
    pub(super) fn seal(&self) -> Vec<u8> {
        let place = Writer::new().address(self.address).u32(self.rank).u32(self.pid).finish();
        let tag = self.secret.tag(&[NOTICE_LABEL, &place]);
        [&place[..], &tag].concat()
    }

    /// `None` when the bytes are no notice, or only the first part of one.
    pub(super) fn decode(bytes: &[u8]) -> Option<Notice> {
        let (secret, sealed) = bytes.split_first_chunk::<SECRET_BYTES>()?;
        Notice::open(Secret::take(&mut secret.clone()), sealed)
    }

    /// `None` when the bytes are no notice with this secret.
    pub(super) fn open(secret: Secret, sealed: &[u8]) -> Option<Notice> {
        let (place, tag) = sealed.split_first_chunk::<PLACE_BYTES>()?;
        if !secret.verifies(&[NOTICE_LABEL, place], tag) {
            return None;
        }
        let mut place = Reader::new(place);
        let (address, rank, pid) = (place.address().ok()?, place.u32().ok()?, place.u32().ok()?);
        Some(Notice { secret, address, rank, pid })
    }
}

/// The notice that a rank has found or written, with the store if this rank hosts it.
pub(super) type Found = (Notice, Option<Hosted>);

/// Meets the other ranks at the store of the notice that `look` finds, which it does again after each failed attempt.
/// `rank.store`, `rank.hosted_by` and `rank.secret` are replaced by the notice. `look` gives a setback while there is
/// no notice.
///
/// # Errors
/// As [`super::rendezvous`], and the errors of `look`.
pub(super) async fn meet_by_notice(
    rank: &JoinConfig,
    mut look: impl FnMut(Instant) -> Result<Result<Found, Setback>>,
) -> Result<Joined> {
    let deadline = Instant::now() + rank.timeout;
    let mut retry = Retry::new(deadline);
    let mut waiting = Waiting::new(&rank.wait, rank.rank, rank.world_size);
    let mut hosted_by = rank.hosted_by;
    // The end of the last attempt, which says more than a notice that is missing later.
    let mut failed: Option<Setback> = None;
    loop {
        let missing;
        let setback = match look(deadline.min(waiting.due()))? {
            // The store lives as long as this attempt.
            Ok((Notice { secret, address, rank: host, pid }, _hosted)) => {
                hosted_by = StoreProcess { rank: Some(host), pid: Some(pid) };
                let found = JoinConfig { store: address.to_string(), hosted_by, secret, ..rank.clone() };
                match attempt(&found, &mut waiting, deadline).await {
                    Ok(joined) => return Ok(joined),
                    Err(Setback::Final(error)) => return Err(error),
                    // The notice may be of a store that has ended: it is read again.
                    Err(setback) => &*failed.insert(setback),
                }
            }
            Err(setback) => {
                missing = setback;
                failed.as_ref().unwrap_or(&missing)
            }
        };
        waiting.on_time(&no_store(&setback.to_string()));
        if !retry.pause().await {
            return Err(match setback {
                Setback::Unauthenticated(error) | Setback::Final(error) => error.clone(),
                Setback::Absent(text) => given_up(rank, None, text),
                Setback::Broken(text) => {
                    given_up(&JoinConfig { hosted_by, ..rank.clone() }, Some(text), text)
                }
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_is_read_whole_or_not_at_all() {
        let address = "127.0.0.1:4711".parse().unwrap();
        let secret = Secret::random().unwrap();
        let notice = Notice { secret: secret.clone(), address, rank: 0, pid: 1 };
        let bytes = notice.encode().to_vec();
        assert_eq!(bytes.len(), NOTICE_BYTES);
        let sealed = notice.seal();
        assert_eq!(sealed.len(), SEALED_BYTES);
        for read in [Notice::decode(&bytes).unwrap(), Notice::open(secret.clone(), &sealed).unwrap()] {
            assert_eq!((read.address, read.rank, read.pid), (address, 0, 1));
        }
        assert!(Notice::open(Secret::random().unwrap(), &sealed).is_none());
        for end in 0..bytes.len() {
            assert!(Notice::decode(&bytes[..end]).is_none());
            let mut changed = bytes.clone();
            changed[end] ^= 1;
            assert!(Notice::decode(&changed).is_none(), "byte {end}");
        }
    }
}
