//! Calls made of calls: what a scope is, and the call that its calls are parts of.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::call::CallOptions;
use crate::call::descriptor::Descriptor;
use crate::check::too_long;
use crate::communicator::Communicator;
use crate::error::{Error, Result};
use crate::short_text::ShortText;

/// A call that is made of other calls: a compressed all-reduce is an all-to-all and an all-gather.
///
/// Its name and what ranks compare of its descriptor must be equal on all ranks, as for any call. Calls that are parts
/// of different ones, or of one on this rank and of none on another, are a mismatch that names both.
///
/// ```
/// use unisono_communicator::{Collective, DType, Descriptor, ParentCall, ReduceOp};
/// let all_reduce = Descriptor { op: Some(ReduceOp::Sum), ..Descriptor::new(Collective::AllReduce, DType::F32, 8) };
/// let parent = ParentCall::new("compressed_all_reduce/int8", all_reduce);
/// assert_eq!(parent.to_string(), "compressed_all_reduce/int8(8 x f32, sum)");
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ParentCall {
    /// What errors call it, with everything that must be equal on all ranks and is not in the descriptor, such as how
    /// the data is compressed.
    pub name: ShortText,
    /// Its arguments. They are compared and shown; nothing is moved by them.
    pub descriptor: Descriptor,
}

impl ParentCall {
    /// A parent of that name, of at most [`ShortText::BYTES_MAX`] bytes.
    pub const fn new(name: &str, descriptor: Descriptor) -> ParentCall {
        ParentCall { name: ShortText::new(name), descriptor }
    }

    /// The same with the label of the scope's options, which is its own.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a name or a label that is too long, and for no name.
    pub fn labelled(mut self, options: &CallOptions) -> Result<ParentCall> {
        self.descriptor.label = options.label;
        let texts = [("name", Some(self.name)), ("label", options.label)];
        for (argument, text) in texts {
            if let Some(text) = text.filter(ShortText::is_too_long) {
                return Err(too_long(argument, text));
            }
        }
        if self.name.as_str().is_empty() {
            return Err(Error::invalid("name", "a scope has one, which errors show"));
        }
        Ok(self)
    }
}

impl fmt::Display for ParentCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name)?;
        self.descriptor.fmt_arguments(f)
    }
}

/// A communicator for the calls that another call is made of, until it is dropped; see [`Communicator::scope`]. It
/// can be moved to another thread.
///
/// While it is open, the communicator serves no other collective: one of another thread, or of this one past the
/// scope, is refused with [`Error::ConcurrentUse`] if it has no label, and waits with one, at most for its timeout.
/// Sends and receives have no order and go on. Within the scope the same holds between its own calls.
///
/// All its calls end by one deadline, that of the scope: each gets what is left of it, or its own timeout if that is
/// shorter. Errors and logs name the call that they are parts of.
///
/// Dropping the scope ends it, also in a panic, and says nothing about success: who has all data and then finds that
/// it is not good returns an error of his own, and the communicator is as usable as after any call. All ranks must
/// find the same, for instance by a flag that travels with the data. After the failure of a call within the scope
/// every later call returns the first cause, as ever. An asynchronous call that is still running goes on, and the next
/// call of the communicator comes behind it.
///
/// A ticket of a call on device memory within it is one of the communicator's, and outlives it.
///
/// Scopes do not nest, and a scope is not closed: [`Communicator::scope`] and [`Communicator::close`] of a scope are
/// [`Error::Unsupported`].
pub trait Scope: Communicator {
    /// The call that this scope's calls are parts of.
    fn parent(&self) -> &Arc<ParentCall>;

    /// The numbers that its collectives have so far, as in errors and in [`crate::Shrunk::last_common_call`]. After a
    /// failure, the whole call was completed by all survivors if the last common call is not below the end of this.
    fn numbers(&self) -> Range<u64>;
}
