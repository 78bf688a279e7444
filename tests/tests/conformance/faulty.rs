//! The conformance suite over links that move few bytes at a time and often pretend not to be ready.
//!
//! Some of the suite's calls are long, so it is not as few as in `property.rs`.

use unisono_engine::FaultPlan;
use unisono_tests::FaultyInProcess;

const PLAN: FaultPlan =
    FaultPlan { seed: 1, bytes_per_call_max: Some(61), would_block_percent: 20, cut_after_bytes: None };

unisono_tests::conformance!(FaultyInProcess(PLAN));
