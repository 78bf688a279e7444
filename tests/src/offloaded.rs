//! Vendors' communicators over a double of a library, whose ranks are threads that talk through memory.

use std::sync::{Arc, Mutex};

use unisono_backend::Companion;
use unisono_communicator::{Communicator, GroupOptions, Result};
use unisono_engine::EngineOptions;
use unisono_engine::in_process::{self, Groups};
use unisono_offload::{OffloadOptions, Offloaded};

use crate::backend::{Backend, Job, MakeGroup, Member};
use crate::capabilities::{Algorithms, Arithmetic};
use crate::double::{LibraryDouble, LibraryRoom};

/// A vendor's backend.
pub struct OffloadedDouble {
    /// For messages.
    pub name: &'static str,
    /// The library of a rank.
    pub library: fn(&LibraryRoom) -> LibraryDouble,
    /// See [`OffloadOptions::deadlines`].
    pub deadlines: bool,
    /// See [`Backend::rank_counts`].
    pub rank_counts: &'static [u32],
    /// See [`Backend::large_rank_counts`].
    pub large_rank_counts: &'static [u32],
    /// What the library says of its reductions of floats.
    pub arithmetic: Arithmetic,
}

impl Backend for OffloadedDouble {
    fn name(&self) -> &'static str {
        self.name
    }

    fn open(&self, ranks: u32, options: &EngineOptions) -> Box<dyn Job> {
        let room = Arc::new(LibraryRoom::new());
        let world = in_process::world_of_groups(ranks, options, |_, links| links);
        let seat = |(companion, groups): (Arc<in_process::InProcessCommunicator>, Groups)| {
            let library = Arc::new((self.library)(&room));
            Mutex::new(Some(SeatedWithLibrary { companion: companion.as_companion(), groups, library }))
        };
        let seats = world.into_iter().map(seat).collect();
        let options = OffloadOptions::new(options.timeout, self.deadlines);
        Box::new(OffloadedJob { seats, room, options })
    }

    fn rank_counts(&self) -> &'static [u32] {
        self.rank_counts
    }

    fn large_rank_counts(&self) -> &'static [u32] {
        self.large_rank_counts
    }

    fn algorithms(&self) -> Algorithms {
        Algorithms::None
    }

    fn arithmetic(&self) -> Arithmetic {
        self.arithmetic
    }
}

struct SeatedWithLibrary {
    companion: Companion,
    groups: Groups,
    library: Arc<LibraryDouble>,
}

struct OffloadedJob {
    seats: Vec<Mutex<Option<SeatedWithLibrary>>>,
    room: Arc<LibraryRoom>,
    options: OffloadOptions,
}

impl Drop for OffloadedJob {
    fn drop(&mut self) {
        let misuse = self.room.misuse();
        assert!(misuse.is_empty() || std::thread::panicking(), "{misuse:?}");
    }
}

impl Job for OffloadedJob {
    fn join(&self, rank: u32) -> Result<Member> {
        let seated = self.seats[rank as usize].lock().unwrap().take().unwrap();
        let SeatedWithLibrary { companion, groups, library } = seated;
        let communicator = Offloaded::open(companion, Ok(library.clone()), &self.options)?;
        let groups = OffloadedGroups { groups, library, options: self.options };
        Ok(Member { communicator, groups: Box::new(groups), keep: Box::new(self.room.clone()) })
    }
}

struct OffloadedGroups {
    groups: Groups,
    library: Arc<LibraryDouble>,
    options: OffloadOptions,
}

impl MakeGroup for OffloadedGroups {
    fn make_group(&self, key: &str, ranks: &[u32]) -> Result<Arc<dyn Communicator>> {
        let companion = self.groups.make_group_companion(key, ranks, &GroupOptions::new())?;
        Ok(Offloaded::open(companion, Ok(self.library.clone()), &self.options)?)
    }
}
