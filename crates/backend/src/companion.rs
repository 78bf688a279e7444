//! What the communicator beneath a vendor's offers: its gate, so that there is one order, one numbering and one first
//! cause, and calls whose bytes somebody else moves.

use std::sync::Arc;
use std::time::Duration;

use unisono_communicator::{
    Buffers, Call, CallOptions, Communicator, Counts, Descriptor, Error, Outcome, OwnedBuffers, OwnedCall,
    ParentCall, Result, Shrunk, Work,
};

use crate::Waker;
use crate::gate::CallGate;
use crate::order::Turn;
use crate::scheduled::ScheduledCall;
use crate::scope::ScopeTurn;

/// A communicator with a control plane that lies beneath a vendor's: it gives the vendor's calls their order, numbers
/// and deadlines, compares them between ranks, and hears of failures. Its own calls go on working.
pub trait Companion: Communicator {
    /// Its gate, which the vendor's communicator uses too.
    fn gate(&self) -> &CallGate;

    /// Runs a collective by `body`, in place of a schedule. First the ranks meet: in a barrier whose headers describe
    /// this call. Then the body runs, on its own copy of the memory. So a mismatch, and a rank that is dead or late,
    /// are noticed before the body starts, and a call that is given up leaves the caller's memory alone.
    ///
    /// # Errors
    /// As [`Communicator::execute`], and those of the body.
    fn execute_by(&self, body: Box<dyn CallBody>, call: &mut Call<'_>) -> Result<Outcome>;

    /// [`Companion::execute_by`] for a call whose memory moves in; when it is given up while the body runs, the memory
    /// does not come back.
    fn submit_by(&self, body: Box<dyn CallBody>, call: OwnedCall) -> Work;

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

    /// The turn of a scope; see [`ScopeTurn::on`].
    ///
    /// # Errors
    /// As [`Communicator::scope`].
    fn open_scope(&self, parent: ParentCall, options: &CallOptions) -> Result<ScopeTurn>;

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

/// What runs a collective in place of a schedule once its ranks have met, such as a vendor's library. It has memory of
/// its own. Dropped while it runs, it is given up: nobody waits for it any more.
pub trait CallBody: Send {
    /// Its name in outcomes and errors, and the hash of schedules that do not come with the library; else 0.
    fn named(&self) -> (&'static str, u32);

    /// Copies the memory of a blocking call.
    ///
    /// # Errors
    /// [`Error::System`] when there is no memory for it. The call fails where the ranks meet.
    fn copy_in(&mut self, buffers: &Buffers<'_>) -> Result<()>;

    /// Takes the memory of an asynchronous call.
    fn move_in(&mut self, buffers: OwnedBuffers);

    /// Starts it, or looks whether it has ended; does not block. It has `timeout` from its start, and calls `wake` at
    /// its end. True when something has changed.
    ///
    /// # Errors
    /// What ends the call.
    fn advance(&mut self, timeout: Duration, wake: &dyn Fn() -> Waker) -> Result<bool>;

    /// How far it is.
    fn stage(&self) -> BodyStage;

    /// Copies what the call has written.
    fn copy_out(&mut self, buffers: &mut Buffers<'_>);

    /// Gives the memory back; `None` while it runs, and when it is lost.
    fn move_out(&mut self) -> Option<OwnedBuffers>;
}

/// How far a [`CallBody`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyStage {
    /// The ranks meet.
    Waiting,
    /// It runs.
    Running,
    /// It is over.
    Ended,
}
