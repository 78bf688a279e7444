//! The steps by which the ranks of a group get a communicator of the library. They learn whether all of them have the
//! library, in one version, and agree on its capabilities. One rank makes the id.

use std::hash::{BuildHasher, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use unisono_backend::Companion;
use unisono_collectives::Collectives;
use unisono_communicator::{CallOptions, Communicator, Error, ReduceOp, Result, deadline_after};

use crate::capabilities::{CAPABILITY_WORDS, Capabilities};
use crate::signal::Slot;
use crate::thread::{VendorThread, panicked, stuck};
use crate::turn::LibraryPass;
use crate::vendor::Vendor;

/// The number of bytes of a version's text that ranks compare.
const VERSION_BYTES: usize = 96;

/// Makes the library's communicator for the group of `companion`, within `timeout`. Collective.
///
/// # Errors
/// The same on every rank: the error of `library` on the first rank without a library; [`Error::Unsupported`] for
/// versions that differ, and while a call hangs in the library of a rank; errors of the library and of the communicator
/// beneath; [`Error::Timeout`].
pub(crate) fn open<V: Vendor>(
    companion: Companion,
    library: Result<Arc<V>>,
    timeout: Duration,
) -> Result<Arc<VendorThread<V>>> {
    let until = deadline_after(Instant::now(), timeout);
    let inner = companion.gate().duplicate()?;
    end_with(&companion, &inner);
    if let (1, Err(error)) = (companion.group().size(), &library) {
        return Err(error.clone());
    }
    let opened = all_have(&companion, &inner, library, until);
    let opened = opened.and_then(|vendor| meet(&companion, &inner, vendor, until));
    opened.map_err(|error| cause(&companion, &inner, error))
}

/// Ends the calls of `inner`, by which the ranks agree on the library, when `companion` is revoked. Every rank learns
/// of the revocation by itself, so nothing is spread here: this may run on the thread that would spread it.
fn end_with(companion: &Companion, inner: &Companion) {
    let (board, ended) = (companion.gate().board(), Arc::downgrade(inner.gate().board()));
    let revoked = Arc::downgrade(board);
    board.first_cause().on_revoke(Arc::new(move || {
        let first = revoked.upgrade().and_then(|board| board.first_cause().revocation());
        if let (Some(first), Some(ended)) = (first, ended.upgrade()) {
            ended.first_cause().revoke(first.by, first.cause);
        }
    }));
}

/// The options of calls in which ranks agree until then, although the job may skip operations.
fn asking(until: Instant) -> CallOptions {
    CallOptions::new().timeout(until.saturating_duration_since(Instant::now())).needed().profiled(false)
}

/// The library of this rank, if all ranks have a library. Else the first rank without a library spreads its error.
fn all_have<V: Vendor>(
    companion: &Companion,
    inner: &Companion,
    library: Result<Arc<V>>,
    until: Instant,
) -> Result<Arc<V>> {
    let asked = inner.with(asking(until));
    let rank = companion.group().rank();
    let mut first = [if library.is_err() { rank } else { u32::MAX }];
    asked.all_reduce(&mut first, ReduceOp::Min)?;
    match library {
        library if first[0] == u32::MAX => library,
        Err(error) if first[0] == rank => {
            let seen = inner.gate().revoke(error.clone());
            companion.gate().revoke(error);
            Err(seen)
        }
        // The first rank without a library does not come to the barrier, so the barrier ends with that rank's error.
        Ok(_) | Err(_) => Err(asked.barrier().err().unwrap_or(Error::closed())),
    }
}

/// The first cause in place of `error`, which may only say that other ranks gave up.
fn cause(companion: &Companion, inner: &Companion, error: Error) -> Error {
    if error.is_before_start() {
        return error;
    }
    let known = [inner, companion].into_iter().find_map(|one| one.gate().check_revoked().err());
    match known {
        Some(known) => known,
        None => companion.gate().fail(error),
    }
}

fn meet<V: Vendor>(
    companion: &Companion,
    inner: &Companion,
    vendor: Arc<V>,
    until: Instant,
) -> Result<Arc<VendorThread<V>>> {
    let asked = inner.with(asking(until));
    compare_versions::<V>(&asked, &vendor.version())?;
    if !vendor.shares_processes() {
        refuse_shared_processes::<V>(&asked)?;
    }
    let is_free = vendor.turn().is_none_or(|turn| !turn.is_stuck());
    let capabilities = agree(&asked, vendor.capabilities(), is_free)?.ok_or_else(stuck::<V>)?;
    let mut id = vec![0u8; V::ID_BYTES];
    // The rank that makes the id fails alone. The communicator beneath tells the others.
    let gives_up = || inner.gate().board().first_cause().is_revoked();
    let is_first = companion.group().rank() == 0;
    let made = if is_first { make_id(&vendor, &mut id, until, gives_up) } else { Ok(()) };
    made.map_err(|error| inner.gate().fail(error))?;
    asked.broadcast(&mut id, 0)?;
    let thread = VendorThread::start(vendor, [companion.clone(), inner.clone()], capabilities, id, until)?;
    // No rank goes on before all have the communicator: a rank that revokes it at once would end the init of others.
    asked.barrier()?;
    Ok(thread)
}

fn make_id<V: Vendor>(
    vendor: &Arc<V>,
    id: &mut [u8],
    until: Instant,
    gives_up: impl Fn() -> bool,
) -> Result<()> {
    let pass = match vendor.turn().map(|turn| (turn, turn.take(Some(until), &gives_up))) {
        Some((turn, None)) if turn.is_stuck() => return Err(stuck::<V>()),
        Some((_, None)) => {
            let text = "another thread's call has been in it all the time".to_owned();
            return Err(Error::System { what: format!("a turn in {}", vendor.version()), text });
        }
        Some((_, Some(pass))) => Some(pass),
        None => None,
    };
    let made = unique_id(vendor, pass, until, gives_up)?;
    if made.len() != id.len() {
        let text = format!("{} bytes, not {}", made.len(), id.len());
        return Err(Error::System { what: format!("the id of {}", vendor.version()), text });
    }
    id.copy_from_slice(&made);
    Ok(())
}

/// Makes an id on another thread, so that this thread does not hang if the library does.
fn unique_id<V: Vendor>(
    vendor: &Arc<V>,
    pass: Option<LibraryPass>,
    until: Instant,
    gives_up: impl Fn() -> bool,
) -> Result<Vec<u8>> {
    let started = Instant::now();
    let (made, own) = (Arc::new(Slot::default()), vendor.clone());
    let there = made.clone();
    let body = move || {
        let id = catch_unwind(AssertUnwindSafe(|| own.unique_id()));
        drop(pass);
        there.set(id.unwrap_or_else(|_| Err(panicked())));
    };
    let spawned = std::thread::Builder::new().name(format!("unisono-{}", V::BACKEND)).spawn(body);
    let thread = spawned.map_err(|error| Error::system("cannot start the thread of a library", &error))?;
    match made.take(until, gives_up) {
        Some(id) => {
            // A thread that the library knows must end before the process unloads the library.
            let _ = thread.join();
            id
        }
        None => {
            let what = format!("an id of {}", vendor.version());
            let text = format!("its library has not returned after {:.1?}", started.elapsed());
            Err(Error::System { what, text })
        }
    }
}

/// Refuses versions that differ, on every rank alike.
fn compare_versions<V: Vendor>(inner: &(impl Communicator + ?Sized), own: &str) -> Result<()> {
    let mut text = [0u8; VERSION_BYTES];
    text.iter_mut().zip(own.bytes()).for_each(|(place, byte)| *place = byte);
    let mut all = vec![0u8; VERSION_BYTES * inner.group().size() as usize];
    inner.all_gather(&text, &mut all)?;
    let shown = |text: &[u8]| String::from_utf8_lossy(text).trim_end_matches('\0').to_owned();
    let (first, rest) = all.split_at(VERSION_BYTES);
    let other = rest.chunks(VERSION_BYTES).position(|other| other != first);
    let Some(other) = other else { return Ok(()) };
    let ranks = [0, other + 1].map(|rank| inner.group().job_ranks()[rank]);
    let theirs = shown(&rest[other * VERSION_BYTES..][..VERSION_BYTES]);
    let what = format!("{} on rank {} and {theirs} on rank {}", shown(first), ranks[0], ranks[1]);
    let instead = Some("the same version on every rank".to_owned());
    Err(Error::Unsupported { what, backend: V::BACKEND, instead })
}

/// Refuses two ranks in one process, on every rank alike.
fn refuse_shared_processes<V: Vendor>(inner: &(impl Communicator + ?Sized)) -> Result<()> {
    // A random number for this process, because process ids can be equal in two containers.
    static PROCESS: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(std::process::id()));
    let mut all = vec![0u64; inner.group().size() as usize];
    inner.all_gather(&[*PROCESS], &mut all)?;
    let earlier = |rank: usize| all[..rank].iter().position(|process| *process == all[rank]);
    let shared = (0..all.len()).find_map(|rank| Some([earlier(rank)?, rank]));
    let Some(shared) = shared else { return Ok(()) };
    let ranks = shared.map(|rank| inner.group().job_ranks()[rank]);
    let what = format!("ranks {} and {} in one process", ranks[0], ranks[1]);
    let instead = Some("a process for each rank, or UNISONO_BACKEND=tcp".to_owned());
    Err(Error::Unsupported { what, backend: V::BACKEND, instead })
}

/// The capabilities that all ranks have; `None` if the library of a rank is blocked.
fn agree(
    inner: &(impl Communicator + ?Sized),
    own: Capabilities,
    is_free: bool,
) -> Result<Option<Capabilities>> {
    let mut words = [0u64; CAPABILITY_WORDS + 1];
    words[..CAPABILITY_WORDS].copy_from_slice(&own.words());
    words[CAPABILITY_WORDS] = u64::from(is_free);
    inner.all_reduce(&mut words, ReduceOp::BitAnd)?;
    let mut agreed = [0; CAPABILITY_WORDS];
    agreed.copy_from_slice(&words[..CAPABILITY_WORDS]);
    Ok((words[CAPABILITY_WORDS] == 1).then(|| own.agreed(agreed)))
}
