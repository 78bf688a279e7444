//! What the communicator beneath a vendor's offers: its gate, so that there is one order, one numbering and one first
//! cause, and what the vendor's calls need of its links.

use std::sync::Arc;

use unisono_communicator::{Call, CallOptions, Communicator, Counts, Descriptor, Error, Result, Shrunk};

use crate::gate::CallGate;
use crate::order::Turn;
use crate::scheduled::ScheduledCall;

/// A communicator with a control plane that lies beneath a vendor's: it gives the vendor's calls their order, numbers
/// and deadlines, compares them between ranks, and hears of failures. Its own calls go on working.
pub trait Companion: Communicator {
    /// Its gate, which the vendor's communicator uses too.
    fn gate(&self) -> &CallGate;

    /// The schedule of a collective, if the call or the communicator asks for an algorithm of this library's, or if the
    /// order of its sums must be fixed; `None` if its body may run it in any way.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`], [`Error::Unsupported`] and [`Error::AlgorithmRefused`] when no proven algorithm fits
    /// the call.
    fn schedule(
        &self,
        descriptor: &Descriptor,
        counts: &Counts,
        options: &CallOptions,
    ) -> Result<Option<ScheduledCall>>;

    /// Gives a collective its turn and its number; the caller runs it on its own thread, by the algorithm of this name
    /// and hash of schedules. Nothing is compared before it runs. Asynchronous calls that were issued before have
    /// ended.
    ///
    /// # Errors
    /// As [`CallGate::admit`] and [`CallGate::take_turn`].
    fn enter(&self, named: (&'static str, u32), call: &mut Call<'_>) -> Result<Entered<'_>>;

    /// What the failure of an entered call means; revokes the communicator. Returns the error for the caller.
    fn settle(&self, error: Error) -> Error;

    /// As [`Communicator::shrink`].
    ///
    /// # Errors
    /// As [`Communicator::shrink`].
    fn survivors(&self) -> Result<Survivors>;
}

/// What [`Companion::survivors`] gives; as [`unisono_communicator::Shrunk`].
pub struct Survivors {
    /// That of the survivors.
    pub companion: Arc<dyn Companion>,
    /// The new rank of each old one.
    pub new_ranks: Vec<Option<u32>>,
    /// How many collectives every survivor has completed without a gap.
    pub last_common_call: u64,
}

impl Survivors {
    /// The same, for users.
    pub fn shrunk(self) -> Shrunk {
        let Survivors { companion, new_ranks, last_common_call } = self;
        Shrunk { communicator: companion, new_ranks, last_common_call }
    }
}

/// A collective that has its turn and its number, until this is dropped.
pub struct Entered<'a> {
    /// Its number.
    pub number: u64,
    /// Held until the call is over.
    pub turn: Turn<'a>,
}
