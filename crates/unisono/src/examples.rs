//! Whole programs, as they are in the folder `examples` of this crate. Each runs alone, and as ranks of a job:
//! `unisono run -n 4 -- cargo run -p unisono --example hello`.

#[doc = concat!("```no_run\n", include_str!("../examples/hello.rs"), "```")]
pub mod hello {}

#[doc = concat!("```no_run\n", include_str!("../examples/test_with_threads.rs"), "```")]
pub mod test_with_threads {}

#[doc = concat!("```no_run\n", include_str!("../examples/survive.rs"), "```")]
pub mod survive {}

#[doc = concat!("```no_run\n", include_str!("../examples/own_algorithm.rs"), "```")]
pub mod own_algorithm {}

#[doc = concat!("```no_run\n", include_str!("../examples/overlap.rs"), "```")]
pub mod overlap {}

#[doc = concat!("```no_run\n", include_str!("../examples/two_groups.rs"), "```")]
pub mod two_groups {}

#[doc = concat!("```no_run\n", include_str!("../examples/one_bit_adam.rs"), "```")]
pub mod one_bit_adam {}

#[doc = concat!("```no_run\n", include_str!("../examples/halo_exchange.rs"), "```")]
pub mod halo_exchange {}

#[doc = concat!("```no_run\n", include_str!("../examples/heat_rod.rs"), "```")]
pub mod heat_rod {}

#[doc = concat!("```no_run\n", include_str!("../examples/task_farm.rs"), "```")]
pub mod task_farm {}
