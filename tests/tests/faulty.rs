//! The conformance suite over links that move 1 to 7 bytes at a time and often pretend not to be ready.

use unisono_engine::FaultPlan;
use unisono_tests::FaultyInProcess;

const PLAN: FaultPlan =
    FaultPlan { seed: 1, bytes_per_call_max: Some(7), would_block_percent: 30, cut_after_bytes: None };

unisono_tests::conformance!(FaultyInProcess(PLAN));
