//! Ranks that are threads, over links in memory: calls, waits, failures.

#![expect(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod after_calls;
mod body;
mod callbacks;
mod clocked;
mod deadlines;
mod goodbyes;
mod handles;
mod in_process;
mod lost_wakes;
mod many;
mod messages;
mod panics;
mod prepared;
mod revoked;
mod shapes;
mod shortage;
mod support;
mod threads;
mod waits;
