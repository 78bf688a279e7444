//! The reaction of a communicator to its revocation, on the thread that reports the revocation.

use std::mem::ManuallyDrop;
use std::sync::Arc;

use unisono_communicator::{Severity, log};

use crate::messages::message_info;
use crate::thread::VendorShared;
use crate::vendor::Vendor;
use crate::watch::Inline;

impl<V: Vendor> VendorShared<V> {
    /// When the communicator is revoked, calls on streams are ended. A call that runs on its caller's thread is ended
    /// too, or a line in the log says that it hangs, and why.
    pub(crate) fn watch_revocation(self: &Arc<Self>) {
        let shared = Arc::downgrade(self);
        self.companion.gate().board().first_cause().on_revoke(Arc::new(move || {
            if let Some(shared) = shared.upgrade() {
                shared.at_revocation();
                release(shared);
            }
        }));
    }

    fn at_revocation(&self) {
        if let Some(turn) = self.vendor.turn() {
            turn.recheck();
        }
        match self.vendor.device() {
            Some(_) => {
                if let Some(turn) = self.device_turn() {
                    turn.recheck();
                }
                // This may be the control thread, which must not wait for an abort.
                self.ask_to_tend();
            }
            None => self.end_inline(),
        }
    }

    /// Ends the call that runs on its caller's thread, or logs that the call hangs, and why.
    pub(crate) fn end_inline(&self) {
        let Some(Inline { number, .. }) = self.inline.now() else { return };
        if self.abort() || !self.inline.visit.give_up(self.vendor.turn()) {
            return;
        }
        let (board, group) = (self.companion.gate().board(), self.companion.group());
        let message = self.inline.messages().and_then(|messages| message_info(&messages));
        let call = message.or_else(|| board.calls().info(number));
        let call = call.map(|call| call.to_string()).unwrap_or_default();
        let cause = board.first_cause().error().map(|cause| cause.to_string()).unwrap_or_default();
        let rank = Some(group.own_job_rank().get());
        let text = format_args!("{call} may never return, since it has no deadline: {cause}");
        log(Severity::Warn, rank, text);
    }
}

/// Lets go of the communicator. Its program may have dropped it meanwhile, and then this is the last handle. The end of
/// a world waits for its control thread, which may be this thread: another thread ends the world.
fn release<V: Vendor>(shared: Arc<VendorShared<V>>) {
    let Some(last) = Arc::into_inner(shared) else { return };
    // If no thread can be started, the world lives until the process ends.
    let last = ManuallyDrop::new(last);
    let body = move || drop(ManuallyDrop::into_inner(last));
    let _ = std::thread::Builder::new().name(format!("unisono-{}-end", V::BACKEND)).spawn(body);
}
