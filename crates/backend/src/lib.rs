//! The part of every backend that handles a call before and after its bytes move: admission, order, numbers, the last
//! calls, deadlines, the first cause of a failure. It knows no links, so a vendor's library can use it as the engine
//! does.
//!
//! | file | contents |
//! | --- | --- |
//! | `gate` | [`CallGate`]: the checks of callers, and the handling of failures |
//! | `order` | [`CallOrder`], [`Turn`]: the call that may be issued next |
//! | `board` | [`Board`]: the state that a communicator shows to the control plane, one part a file |
//! | `peers` | [`Peers`]: the other ranks, as errors name them |
//! | `companion` | [`Companion`]: the communicator beneath a vendor's |
//! | `control` | [`Control`]: the control plane as a backend sees it, and the meaning of answers |
//! | `agreement` | shrink and agree |
//! | `difference`, `digest` | finding calls that differ and should be equal |
//! | `fork` | refusing a forked child |
//! | `status` | [`CallStatus`], [`CallHistory`]: a rank's answers and reports about its calls |
//! | `stream_order` | [`order_mismatch`]: calls of several communicators on one stream, and their order on two ranks |
//! | `scope` | [`ScopeTurn`]: a turn for several calls, with one deadline |
//! | `group_keys` | [`GroupKeys`]: groups that only their members make |
//! | `tickets` | [`Tickets`]: the results of calls that were enqueued on a device's stream |
//! | `turnstile` | [`Turnstile`]: the right to issue, for one holder at a time |

mod agreement;
mod board;
mod companion;
mod control;
mod difference;
mod digest;
mod first_difference;
mod fork;
mod gate;
mod group_keys;
mod order;
mod peers;
mod scheduled;
mod scope;
mod status;
mod stream_order;
mod tickets;
mod turnstile;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use board::{
    Answers, Board, CALLS_REMEMBERED, CallRing, Closings, CollectiveWait, Course, EnteredMessage, FirstCause,
    Heard, MessageWait, Messages, OnStreams, Progress, Revocation, Unfinished, begin_thread_without_callers,
    run_code_of_the_program,
};
pub use companion::{CallEngine, Companion, Entered, Survivors, WeakCompanion};
pub use control::{
    Agreed, Ask, Control, HANDOVER_MAX, Question, RankHistory, answered_elsewhere, asked_next, closing_error,
    history_difference, judge_answer, mismatch, not_agreed, unread_text,
};
pub use difference::{EARLIER_CALLS, descriptor_difference};
pub use digest::mix_digest;
pub use first_difference::{FirstDifference, SEARCH_MAX, SearchStep, closed_differently};
pub use gate::{CallGate, CallbackScope, Failing, IDLE_AFTER_CAUSE_MAX, StallOptions, is_in_call, on_rank};
pub use group_keys::{GroupKeys, GroupText, different_groups, list_text};
pub use order::{CallOrder, Turn};
pub use peers::Peers;
pub use scheduled::{BoundExtent, ScheduledCall};
pub use scope::{Enclosing, ScopeOrder, ScopeTurn};
pub use status::{
    Asked, CallAhead, CallElsewhere, CallHistory, CallStatus, CommunicatorKey, Doing, UnreadMessages,
};
pub use stream_order::{Membership, order_mismatch, with_call_ahead, with_call_elsewhere};
pub use tickets::{OpenTicket, Tickets};
pub use turnstile::{Pass, Turnstile};

/// Wakes a thread that waits for news of a communicator, or makes its next wait return at once. Any thread may call it.
pub type Waker = Arc<dyn Fn() + Send + Sync>;

/// Locks a mutex even if a holder has panicked: the guarded data is valid at every step.
#[inline]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
