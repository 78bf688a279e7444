//! What a backend is to the suite: worlds of any number of ranks, whose ranks are threads of the test.

use std::any::Any;
use std::sync::Arc;

use unisono_communicator::Communicator;
use unisono_engine::{EngineOptions, in_process};

/// Makes worlds.
pub trait Backend: Sync {
    /// For messages.
    fn name(&self) -> &'static str;

    /// A new world, which `ranks` threads then join.
    fn open(&self, ranks: u32, options: &EngineOptions) -> Box<dyn Job>;

    /// The numbers of ranks that every test runs with.
    fn rank_counts(&self) -> &'static [u32];

    /// Larger worlds, for a few tests.
    fn large_rank_counts(&self) -> &'static [u32];
}

/// One world in the making.
pub trait Job: Sync {
    /// Joins as `rank`, on that rank's thread.
    fn join(&self, rank: u32) -> Member;
}

/// A rank's communicator, and whatever else must live as long.
pub struct Member {
    /// The world's communicator.
    pub communicator: Arc<dyn Communicator>,
    /// Dropped after the communicator.
    pub keep: Box<dyn Any>,
}

/// Ranks as threads that talk through memory.
pub struct InProcess;

impl Backend for InProcess {
    fn name(&self) -> &'static str {
        "in_process"
    }

    fn open(&self, ranks: u32, options: &EngineOptions) -> Box<dyn Job> {
        Box::new(InProcessJob(in_process::world_of(ranks, options, |_, links| links)))
    }

    fn rank_counts(&self) -> &'static [u32] {
        &[1, 2, 3, 4, 5, 6, 7, 8]
    }

    fn large_rank_counts(&self) -> &'static [u32] {
        &[16, 33, 64]
    }
}

struct InProcessJob(Vec<Arc<in_process::InProcessCommunicator>>);

impl Job for InProcessJob {
    fn join(&self, rank: u32) -> Member {
        Member { communicator: self.0[rank as usize].clone(), keep: Box::new(()) }
    }
}
