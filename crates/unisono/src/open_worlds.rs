//! The worlds of this process that [`init`](crate::init) has made and that are still open, and the fate of an `init`
//! beside one.

use std::process;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use unisono_communicator::{Communicator, Error, Result, Site};

use crate::config::process::Config;
use crate::world::{Shared, World};

/// The fate of an [`init`](crate::init) while a world of this process is open: neither closed, nor without handles. A
/// forked child has no world of its parent's. Threads that are ranks of a test have no world of a process; see
/// [`in_process`](crate::in_process).
///
/// ```
/// use unisono::{Config, Error, SecondInit};
///
/// let world = unisono::init()?;
/// let error = unisono::init().unwrap_err();
/// assert!(matches!(error, Error::InvalidArgument { argument: "second_init", .. }), "{error}");
///
/// let adopting = Config::from_environment()?.with_second_init(SecondInit::Adopt);
/// let same = unisono::init_with(&adopting)?;
/// drop(world);
/// assert!(unisono::is_initialized());
/// drop(same);
/// assert!(!unisono::is_initialized());
/// # Ok::<(), unisono::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SecondInit {
    /// [`Error::InvalidArgument`] with the line of the first `init`. A library that makes a world of its own beside the
    /// program's then fails on its author's machine, and does not wait in a job for ranks that never come.
    #[default]
    Refuse,
    /// A handle of the world that was made first, with the settings of that `init`. While another thread is still in
    /// it, its end is awaited.
    Adopt,
    /// A world more, which all ranks make.
    Another,
}

/// A world of this process, or a thread that joins one.
struct Entry {
    number: u64,
    site: Site,
    /// `None` while its ranks meet.
    world: Option<Weak<Shared>>,
}

impl Entry {
    fn is_open(&self) -> bool {
        let is_open = |world: &Weak<Shared>| world.upgrade().is_some_and(|world| world.is_open());
        self.world.as_ref().is_none_or(is_open)
    }
}

/// In the order of their `init`, and the number of the next one.
struct Entries {
    list: Vec<Entry>,
    next: u64,
}

/// The entries of one process. A forked child has its own: its parent's may be locked for ever, by a thread that the
/// child does not have.
struct OfProcess {
    pid: u32,
    entries: Mutex<Entries>,
    /// A thread has joined, or has failed to.
    joined: Condvar,
    of_child: OnceLock<Box<OfProcess>>,
}

static FIRST: OnceLock<Box<OfProcess>> = OnceLock::new();

impl OfProcess {
    /// The entries of the process `pid`, which is this one.
    fn get(pid: u32) -> &'static OfProcess {
        let make = || {
            let entries = Mutex::new(Entries { list: Vec::new(), next: 0 });
            Box::new(OfProcess { pid, entries, joined: Condvar::new(), of_child: OnceLock::new() })
        };
        let mut of = FIRST.get_or_init(make);
        while of.pid != pid {
            of = of.of_child.get_or_init(make);
        }
        of
    }

    fn of_this() -> &'static OfProcess {
        OfProcess::get(process::id())
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn open_ones() -> MutexGuard<'static, Entries> {
    let mut entries = OfProcess::of_this().lock();
    entries.list.retain(Entry::is_open);
    entries
}

/// Whether a world that [`init`](crate::init) has made is open in this process.
///
/// ```
/// assert!(!unisono::is_initialized());
/// let world = unisono::init()?;
/// assert!(unisono::is_initialized());
/// # drop(world);
/// # Ok::<(), unisono::Error>(())
/// ```
pub fn is_initialized() -> bool {
    open_ones().list.iter().any(|entry| entry.world.is_some())
}

/// The world of an `init` at `site`: `open` makes it, or it is open.
pub(crate) fn enter(config: &Config, site: Site, open: impl FnOnce() -> Result<World>) -> Result<World> {
    let joining = match first_or_begin(config, site)? {
        First::Open(world) => return Ok(world),
        First::Begun(joining) => joining,
    };
    let world = open()?;
    joining.ended(Some(world.downgrade()));
    Ok(world)
}

enum First {
    Open(World),
    Begun(Joining),
}

fn first_or_begin(config: &Config, site: Site) -> Result<First> {
    let mut entries = open_ones();
    loop {
        let Some(first) = entries.list.first() else { return Ok(First::Begun(begin(&mut entries, site))) };
        let open = first.world.as_ref().map(Weak::upgrade);
        match (config.second_init, open) {
            (SecondInit::Another, _) => return Ok(First::Begun(begin(&mut entries, site))),
            (SecondInit::Refuse, _) => return Err(refused(first.site, site)),
            (SecondInit::Adopt, Some(Some(shared))) => return adopt(config, World::of(shared), site),
            // Its last handle has gone a moment ago.
            (SecondInit::Adopt, Some(None)) => drop(entries),
            (SecondInit::Adopt, None) => {
                drop(OfProcess::of_this().joined.wait(entries).unwrap_or_else(PoisonError::into_inner));
            }
        }
        entries = open_ones();
    }
}

fn begin(entries: &mut Entries, site: Site) -> Joining {
    let number = entries.next;
    entries.next += 1;
    entries.list.push(Entry { number, site, world: None });
    Joining { number, of: OfProcess::of_this() }
}

fn refused(first: Site, site: Site) -> Error {
    let problem = format!(
        "a world of this process is open, from init at {first}: pass its handles on, close it first, or ask for \
         SecondInit::Adopt or SecondInit::Another by Config::with_second_init; tests have unisono::in_process"
    );
    at(site, Error::invalid("second_init", problem))
}

fn adopt(config: &Config, world: World, site: Site) -> Result<First> {
    let (asked, open) =
        ((config.placement.rank(), config.placement.world_size()), (world.rank(), world.size()));
    if asked == open {
        return Ok(First::Open(world));
    }
    let problem = format!(
        "the open world has rank {} of {}, and this init is of rank {} of {}",
        open.0, open.1, asked.0, asked.1
    );
    Err(at(site, Error::invalid("second_init", problem)))
}

fn at(site: Site, error: Error) -> Error {
    error.in_call(&format_args!("init{}", site.at()))
}

/// A thread that joins a world. When it gives up, or panics, its entry goes.
struct Joining {
    number: u64,
    of: &'static OfProcess,
}

impl Joining {
    fn ended(self, world: Option<Weak<Shared>>) {
        let mut entries = self.of.lock();
        if let Some(own) = entries.list.iter_mut().find(|entry| entry.number == self.number) {
            own.world = world;
        }
    }
}

impl Drop for Joining {
    fn drop(&mut self) {
        let mut entries = self.of.lock();
        entries.list.retain(|entry| entry.number != self.number || entry.world.is_some());
        drop(entries);
        self.of.joined.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::panic::AssertUnwindSafe;
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_child_does_not_wait_for_a_lock_of_its_parent() {
        let _held = OfProcess::get(process::id()).lock();
        // No process has these numbers.
        let child = OfProcess::get(u32::MAX);
        assert!(child.entries.try_lock().is_ok());
        assert!(std::ptr::eq(child, OfProcess::get(u32::MAX)));
        assert!(OfProcess::get(u32::MAX - 1).entries.try_lock().is_ok());
    }

    /// The entries are of the whole process.
    static ALONE: Mutex<()> = Mutex::new(());

    fn config(second: SecondInit) -> Config {
        Config::from_lookup(&|_| None).unwrap().with_second_init(second)
    }

    #[track_caller]
    fn init(second: SecondInit) -> Result<World> {
        crate::init_with(&config(second))
    }

    /// Rows: A5
    #[test]
    fn a3_a_second_init_is_refused_adopts_or_makes_another() {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let first = init(SecondInit::Refuse).unwrap();
        let line = line!() - 1;
        assert!(is_initialized());
        let text = init(SecondInit::Refuse).unwrap_err().to_string();
        assert!(text.contains(&format!("open_worlds.rs:{line}")) && text.contains("init at"), "{text}");

        let adopted = init(SecondInit::Adopt).unwrap();
        let same = |left: &World, right: &World| {
            std::ptr::eq(&raw const **left as *const u8, &raw const **right as *const u8)
        };
        assert!(same(&first, &adopted));
        let another = init(SecondInit::Another).unwrap();
        assert!(!same(&first, &another));

        // One of them is open as long as it has a handle.
        drop(first);
        assert!(init(SecondInit::Refuse).is_err());
        adopted.close().unwrap();
        assert!(init(SecondInit::Refuse).is_err());
        assert!(same(&init(SecondInit::Adopt).unwrap(), &another));
        drop(another);
        assert!(!is_initialized());
        init(SecondInit::Refuse).unwrap();
        assert!(!is_initialized());
    }

    #[test]
    fn a3_another_rank_is_not_adopted() {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let _first = init(SecondInit::Refuse).unwrap();
        for (rank, size) in [(1, 2), (0, 2)] {
            let other = config(SecondInit::Adopt).with_rank(rank, size).unwrap();
            let text = crate::init_with(&other).unwrap_err().to_string();
            let both = ["rank 0 of 1", &format!("rank {rank} of {size}")];
            assert!(both.iter().all(|one| text.contains(one)), "{text}");
        }
    }

    #[test]
    fn a3_an_init_that_fails_leaves_nothing_open() {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let mut wrong = config(SecondInit::Refuse);
        wrong.algorithm = Some("rong".to_owned());
        crate::init_with(&wrong).unwrap_err();
        let site = Site::caller();
        let panicked =
            std::panic::catch_unwind(AssertUnwindSafe(|| enter(&wrong, site, || panic!("in the meeting"))));
        assert!(panicked.is_err());
        init(SecondInit::Refuse).unwrap();
    }

    #[test]
    fn a3_a_thread_that_still_joins_is_awaited_or_counts_as_open() {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let (begun, has_begun) = mpsc::channel();
        let (go, may_go) = mpsc::channel();
        let site = Site::caller();
        std::thread::scope(|scope| {
            let first = scope.spawn(move || {
                enter(&config(SecondInit::Refuse), site, || {
                    begun.send(()).unwrap();
                    may_go.recv().unwrap();
                    World::alone(&config(SecondInit::Refuse))
                })
            });
            has_begun.recv().unwrap();
            assert!(!is_initialized());
            assert!(init(SecondInit::Refuse).is_err());
            let adopting = scope.spawn(|| init(SecondInit::Adopt).unwrap().rank());
            go.send(()).unwrap();
            // Held until the other has looked.
            let first = first.join().unwrap().unwrap();
            assert_eq!(adopting.join().unwrap(), 0);
            drop(first);
        });
    }
}
