//! Ranks as threads that have what a vendor's communicator lies on.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use unisono_backend::Companion;
use unisono_communicator::Error;
use unisono_engine::{EngineOptions, in_process};

/// Runs `body` once per rank of a new in-process world, each on its own thread, and gives the results in rank order.
///
/// # Panics
/// When `body` does on some rank; the communicator is revoked, so that the others do not wait for it.
pub fn companions<R: Send>(ranks: u32, body: impl Fn(Companion) -> R + Sync) -> Vec<R> {
    companions_with(ranks, &EngineOptions::default(), body)
}

/// [`companions`] with settings.
///
/// # Panics
/// As [`companions`].
pub fn companions_with<R: Send>(
    ranks: u32,
    options: &EngineOptions,
    body: impl Fn(Companion) -> R + Sync,
) -> Vec<R> {
    let body = &body;
    let results: Vec<_> = std::thread::scope(|scope| {
        let start = |communicator: Arc<in_process::InProcessCommunicator>| {
            let companion = communicator.as_companion();
            let name = format!("rank {}", companion.gate().group().rank());
            let main = move || {
                let kept = companion.clone();
                let result = catch_unwind(AssertUnwindSafe(|| body(companion)));
                if result.is_err() {
                    kept.gate().revoke(Error::invalid("test", "a rank has failed its test"));
                }
                result
            };
            std::thread::Builder::new().name(name).spawn_scoped(scope, main).unwrap()
        };
        let world = in_process::world_of(ranks, options, |_, links| links);
        let threads: Vec<_> = world.into_iter().map(start).collect();
        threads.into_iter().map(|thread| thread.join().and_then(|result| result)).collect()
    });
    results.into_iter().map(|result| result.unwrap_or_else(|panic| resume_unwind(panic))).collect()
}
