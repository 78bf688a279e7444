//! The end of a call that no backend sees: its operation is switched off, or its peer is nobody.

use std::sync::atomic::{AtomicU16, Ordering};

use unisono_communicator::{
    CallOptions, Communicator, DType, Descriptor, MemoryKind, Operation, Outcome, Peer, Result, Severity, log,
};
use unisono_schedule::Collective;

/// The algorithm in outcomes of messages of nobody.
pub(crate) const NOBODY: &str = "nobody";

/// The operations that have warned, a bit each.
static WARNED: AtomicU16 = AtomicU16::new(0);

/// Whether a call of `operation` does nothing on this communicator: the first one of a process is logged. For a call
/// that consists of others, with the operation that it stands in for.
///
/// # Errors
/// `Error::Forked`. No other: a call that does nothing notices neither a failure nor `close`.
pub fn skips<C: Communicator + ?Sized>(comm: &C, operation: Operation) -> Result<bool> {
    if !comm.group().skips(operation) {
        return Ok(false);
    }
    // Every communicator has a barrier.
    let barrier = Descriptor::new(Collective::Barrier, DType::U8, 0);
    comm.supports(&barrier, &CallOptions::new(), MemoryKind::Host)?;
    let bit = 1 << operation.code();
    if WARNED.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
        let words = format_args!("{operation} does nothing: rank 0 has it in UNISONO_SKIP");
        log(Severity::Warn, Some(comm.group().own_job_rank().get()), words);
    }
    Ok(true)
}

/// The outcome of a call that the communicator skips or whose peer is nobody, or its error; `None` for any other call.
#[inline]
pub(crate) fn skip<C: Communicator + ?Sized>(
    comm: &C,
    descriptor: &Descriptor,
    options: &CallOptions,
) -> Option<Result<Outcome>> {
    if comm.group().skips(descriptor.operation) && !options.is_needed {
        return Some(skipped(comm, descriptor));
    }
    (descriptor.peer == Some(Peer::None)).then_some(Ok(Outcome::done(0, NOBODY)))
}

#[cold]
fn skipped<C: Communicator + ?Sized>(comm: &C, descriptor: &Descriptor) -> Result<Outcome> {
    let source = descriptor.peer.and_then(|peer| match peer {
        Peer::Rank(rank) => Some(rank),
        Peer::Any => Some(comm.rank()),
        Peer::None => None,
    });
    skips(comm, descriptor.operation)
        .map(|_| Outcome::skipped(source, descriptor.tag.one().unwrap_or_default()))
}
