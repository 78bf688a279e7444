//! The close of a world.

use std::sync::Arc;

use unisono_collectives::Collectives;
use unisono_communicator::Communicator;

use crate::support::{config, on_each, worlds};

/// Groups that all ranks drop right before they close the world. The board of each takes a quarter of a MiB.
const GROUPS: usize = 1500;

#[test]
fn a_world_closes_well_after_a_thousand_communicators_were_dropped_at_once() {
    on_each(worlds(2, &config(&[])), |world, whole| {
        let make = |_| world.make_group("one of many", &[0, 1]).expect("a good list");
        let groups: Vec<Arc<dyn Communicator>> = (0..GROUPS).map(make).collect();
        whole.barrier().expect("both come");
        drop(groups);
        whole.close().expect("all ranks have made the same calls");
    });
}
