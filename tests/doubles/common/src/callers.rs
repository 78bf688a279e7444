//! Which threads are in which communicator and on which device: what vendors' libraries forbid, and do not notice.
//!
//! * One thread at a time is in a communicator, but for its abort ([`enter`]). NCCL's user guide, "Thread Safety": "It
//!   is safe to operate a communicator from multiple threads as long as users can guarantee only one thread operates
//!   the communicator at a time." Since 2.26 that holds for `ncclCommGetAsyncError` too, which completes and frees the
//!   group job of the communicator (`src/init.cc`: `ncclGroupJobComplete(comm->groupJob)`).
//! * Two threads do not work on two communicators of one device at once ([`work_on`]): "it is not safe to issue NCCL
//!   operations in parallel to independent communicators located on the same device with multiple threads" (the same
//!   page). HCCL: one card must not be in several communication calls at once (CANN 8.0, `HcclCommInitAll`,
//!   constraints), and several threads of one card must not make communicators at once (`HcclCommInitRootInfoConfig`).
//!
//! A breach is counted (`unisono_double_races`) and told on standard error. With the settings `meet` (in communicators)
//! and `meet_on_device`, whoever comes first stays for so many milliseconds unless one who must not come has come: two
//! who may meet do so every time. A test changes both while it runs by `unisono_double_meet(communicator, device)`.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use crate::{export, lock, settings};

/// Where only one may be at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Room {
    /// A communicator, by its handle.
    Communicator(usize),
    /// A device, by its number.
    Device(u32),
}

/// Who is there: a thread, and the communicator for which it has come.
#[derive(Clone, Copy, Debug)]
struct Caller {
    number: u64,
    thread: ThreadId,
    communicator: usize,
    what: &'static str,
    /// One who must not come has come.
    is_met: bool,
}

#[derive(Default)]
struct Crowd {
    there: HashMap<Room, Vec<Caller>>,
    /// How many have come, ever.
    arrived: u64,
}

static CROWD: LazyLock<Mutex<Crowd>> = LazyLock::new(Mutex::default);
static CHANGED: Condvar = Condvar::new();
static RACES: AtomicU64 = AtomicU64::new(0);
/// In communicators, and on devices.
static MEET_MS: LazyLock<[AtomicU64; 2]> =
    LazyLock::new(|| ["meet", "meet_on_device"].map(|name| AtomicU64::new(settings::number(name, 0))));

/// A caller is there until this is dropped.
#[derive(Debug)]
#[must_use]
pub struct Presence {
    place: Room,
    number: u64,
}

impl Drop for Presence {
    fn drop(&mut self) {
        let mut crowd = lock(&CROWD);
        if let Some(list) = crowd.there.get_mut(&self.place) {
            list.retain(|caller| caller.number != self.number);
            if list.is_empty() {
                crowd.there.remove(&self.place);
            }
        }
    }
}

/// This thread is in the function `what` of a communicator.
pub fn enter(communicator: usize, what: &'static str) -> Presence {
    come(Room::Communicator(communicator), communicator, what)
}

/// This thread works on a device for a communicator: until what it begins is done, also where another thread does it.
pub fn work_on(device: u32, communicator: usize, what: &'static str) -> Presence {
    come(Room::Device(device), communicator, what)
}

fn come(place: Room, communicator: usize, what: &'static str) -> Presence {
    let thread = thread::current().id();
    let mut crowd = lock(&CROWD);
    crowd.arrived += 1;
    let number = crowd.arrived;
    let own = Caller { number, thread, communicator, what, is_met: false };
    let list = crowd.there.entry(place).or_default();
    let mut other = None;
    for one in list.iter_mut().filter(|one| is_race(place, one, &own)) {
        one.is_met = true;
        other = Some(*one);
    }
    list.push(own);
    if let Some(other) = other {
        RACES.fetch_add(1, Ordering::SeqCst);
        let [own, other] = [own, other].map(|one| format!("{:?} in {}", one.thread, one.what));
        eprintln!("test double: {place:?}: {own} has come while {other} is there");
        CHANGED.notify_all();
    } else {
        await_another(crowd, place, number);
    }
    Presence { place, number }
}

fn is_race(place: Room, one: &Caller, other: &Caller) -> bool {
    let is_other_thread = one.thread != other.thread;
    match place {
        Room::Communicator(_) => is_other_thread,
        // One that is being made may have no handle yet.
        Room::Device(_) => {
            is_other_thread && (one.communicator != other.communicator || one.communicator == 0)
        }
    }
}

/// Waits for one who must not come, as long as the setting says.
fn await_another(mut crowd: MutexGuard<'_, Crowd>, place: Room, number: u64) {
    let limit_ms = match place {
        Room::Communicator(_) => &MEET_MS[0],
        Room::Device(_) => &MEET_MS[1],
    };
    let until = Instant::now() + Duration::from_millis(limit_ms.load(Ordering::SeqCst));
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let own = crowd.there.get(&place).and_then(|list| list.iter().find(|one| one.number == number));
        if left.is_zero() || own.is_none_or(|own| own.is_met) {
            return;
        }
        crowd = CHANGED.wait_timeout(crowd, left).unwrap_or_else(PoisonError::into_inner).0;
    }
}

export! {
    plain fn unisono_double_races() -> u64 {
        RACES.load(Ordering::SeqCst)
    }

    plain fn unisono_double_meet(communicator_ms: u64, device_ms: u64) {
        MEET_MS[0].store(communicator_ms, Ordering::SeqCst);
        MEET_MS[1].store(device_ms, Ordering::SeqCst);
    }
}
