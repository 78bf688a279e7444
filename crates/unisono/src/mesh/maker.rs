//! The maker of the groups of a mesh.

use std::sync::Arc;

use unisono_communicator::{Communicator, GroupOptions, Result};

use crate::World;
use crate::in_process::Groups;

/// Makes groups by their members alone, on one rank of a world.
pub trait Maker: Send + Sync {
    /// This rank, and the number of ranks.
    fn rank_and_size(&self) -> (u32, u32);

    /// The number of meshes that this rank has made before in its world.
    fn next_mesh(&self) -> u64;

    /// Refuses options with which [`Maker::make_group`] makes no group.
    ///
    /// # Errors
    /// As [`World::make_group_with`].
    fn check_options(&self, options: &GroupOptions) -> Result<()>;

    /// As [`World::make_group_with`].
    ///
    /// # Errors
    /// As [`World::make_group_with`].
    fn make_group(&self, key: &str, ranks: &[u32], options: &GroupOptions) -> Result<Arc<dyn Communicator>>;
}

impl Maker for World {
    fn rank_and_size(&self) -> (u32, u32) {
        (self.rank(), self.size())
    }

    fn next_mesh(&self) -> u64 {
        World::next_mesh(self)
    }

    fn check_options(&self, options: &GroupOptions) -> Result<()> {
        self.check_group_options(options)
    }

    fn make_group(&self, key: &str, ranks: &[u32], options: &GroupOptions) -> Result<Arc<dyn Communicator>> {
        self.make_group_with(key, ranks, options)
    }
}

impl Maker for Arc<Groups> {
    fn rank_and_size(&self) -> (u32, u32) {
        (self.group().rank(), self.group().size())
    }

    fn next_mesh(&self) -> u64 {
        Groups::next_number(self)
    }

    fn check_options(&self, options: &GroupOptions) -> Result<()> {
        self.check_group_options(options)
    }

    fn make_group(&self, key: &str, ranks: &[u32], options: &GroupOptions) -> Result<Arc<dyn Communicator>> {
        Ok(self.make_group_companion(key, ranks, options)?.communicator())
    }
}
