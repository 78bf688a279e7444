//! The four doors of a communicator, which every backend, decorator and test double implements.

use std::sync::Arc;

use crate::call::outcome::Outcome;
use crate::call::{Call, OwnedCall};
use crate::error::Result;
use crate::group::Group;
use crate::life::Life;
use crate::work::Work;

/// A backend's part of a communicator: everything that users call is made of it, see
/// [`Communicator`](crate::Communicator). [`Executor::execute`] and [`Executor::submit`] get checked arguments.
///
/// A decorator hands calls on, and gives the [`Life`] of the communicator beneath:
///
/// ```
/// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use unisono::{
///     Call, Collectives, Communicator, Executor, Group, Life, Outcome, OwnedCall, ReduceOp, Result, Solo, Work,
/// };
///
/// /// Counts the calls of a communicator.
/// struct Counted<C>(C, AtomicU64);
///
/// impl<C: Communicator> Executor for Counted<C> {
///     fn group(&self) -> &Group {
///         self.0.group()
///     }
///
///     fn execute(&self, call: &mut Call<'_>) -> Result<Outcome> {
///         self.1.fetch_add(1, Ordering::Relaxed);
///         self.0.execute(call)
///     }
///
///     fn submit(&self, call: OwnedCall) -> Work {
///         self.1.fetch_add(1, Ordering::Relaxed);
///         self.0.submit(call)
///     }
///
///     // A decorator that changes more implements `Life` too, with `Life::under`.
///     fn life(&self) -> &dyn Life {
///         self.0.life()
///     }
/// }
///
/// let counted = Counted(Solo::new(), AtomicU64::new(0));
/// counted.all_reduce(&mut [1.0f32], ReduceOp::Sum)?;
/// assert_eq!(counted.1.into_inner(), 1);
/// # Ok::<(), unisono::Error>(())
/// ```
pub trait Executor: Send + Sync {
    /// Rank, size, members.
    fn group(&self) -> &Group;

    /// Runs a call to its end on the calling thread. A call on device memory is only enqueued on its stream; the
    /// outcome has a ticket ([`Outcome::ticket`]) for [`Communicator::resolve`]. A backend may take parts out of the
    /// [`Call`], so make a new one for each call.
    ///
    /// # Errors
    /// Any [`Error`]; [`Error::is_before_start`] tells whether the communicator is still usable. The ticket, and every
    /// later call, reports an error that comes after the call was enqueued.
    ///
    /// [`Communicator::resolve`]: crate::Communicator::resolve
    /// [`Error`]: crate::Error
    /// [`Error::is_before_start`]: crate::Error::is_before_start
    fn execute(&self, call: &mut Call<'_>) -> Result<Outcome>;

    /// Starts a call. Its buffers move in, and come back through the handle. A call on device memory ends when its
    /// stream has completed it; the handle then knows a late error.
    fn submit(&self, call: OwnedCall) -> Work;

    /// Everything but calls: groups, failures, the end.
    fn life(&self) -> &dyn Life;
}

/// The doors of an executor behind a pointer.
macro_rules! impl_behind {
    ($($pointer:ty),+) => {
        $(impl<E: Executor + ?Sized> Executor for $pointer {
            #[inline]
            fn group(&self) -> &Group {
                (**self).group()
            }

            #[inline]
            fn execute(&self, call: &mut Call<'_>) -> Result<Outcome> {
                (**self).execute(call)
            }

            #[inline]
            fn submit(&self, call: OwnedCall) -> Work {
                (**self).submit(call)
            }

            fn life(&self) -> &dyn Life {
                (**self).life()
            }
        })+
    };
}

impl_behind!(&E, Box<E>, Arc<E>);
