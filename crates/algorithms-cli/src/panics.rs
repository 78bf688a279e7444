//! A panic of an algorithm is told once, though the verifier asks for the steps of every rank of every shape and goes
//! on after a panic: it is the same mistake each time.

use std::collections::BTreeSet;
use std::panic::{set_hook, take_hook};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

/// The places of panics that have been told since the first of the commands that run now.
struct Told {
    commands: u32,
    places: BTreeSet<String>,
}

static TOLD: Mutex<Told> = Mutex::new(Told { commands: 0, places: BTreeSet::new() });

fn told() -> MutexGuard<'static, Told> {
    TOLD.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Told {
    fn must_tell(&mut self, place: String) -> bool {
        self.commands == 0 || self.places.insert(place)
    }
}

/// While one of these lives, only the first panic at each place of the program is told.
pub(crate) struct TellOnce(());

impl TellOnce {
    /// The panic hook of the program goes on telling. Builders run on threads of a pool, so there is one hook for all.
    pub(crate) fn start() -> TellOnce {
        static INSTALLED: Once = Once::new();
        INSTALLED.call_once(|| {
            let tell = take_hook();
            set_hook(Box::new(move |panic| {
                let place = panic.location().map_or_else(String::new, ToString::to_string);
                if told().must_tell(place) {
                    tell(panic);
                }
            }));
        });
        told().commands += 1;
        TellOnce(())
    }
}

impl Drop for TellOnce {
    fn drop(&mut self) {
        let mut told = told();
        told.commands -= 1;
        if told.commands == 0 {
            told.places.clear();
        }
    }
}
