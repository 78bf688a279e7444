//! What the communicator beneath a vendor's offers: its gate, so that there is one order, one numbering and one first
//! cause, and calls whose bytes somebody else moves.

use std::sync::Arc;
use std::time::{Duration, Instant};

use unisono_communicator::{
    Call, CallOptions, Communicator, Counts, Descriptor, Error, Outcome, OwnedBuffers, OwnedCall, ParentCall,
    Result, Shrunk, Work,
};

use crate::gate::{CallGate, Turn};
use crate::scheduled::ScheduledCall;
use crate::scope::ScopeTurn;
use crate::turnstile::Turnstile;

/// A communicator with a control plane that lies beneath a vendor's: it gives the vendor's calls their order, numbers
/// and deadlines, compares them between ranks, and hears of failures. Its own calls go on working.
pub trait Companion: Communicator {
    /// Its gate, which the vendor's communicator uses too.
    fn gate(&self) -> &CallGate;

    /// When it looks after calls that do not move.
    fn patience(&self) -> Patience;

    /// Runs a call by `executor`, or without one as the communicator's own. With one the ranks of a collective meet, as
    /// in a barrier whose headers describe this call; then the executor gets a copy of its memory. So a mismatch, and a
    /// rank that is dead or late, are noticed before the executor starts, and a call that is given up leaves the
    /// caller's memory alone.
    ///
    /// # Errors
    /// As [`Communicator::execute`], and those of the executor.
    fn execute_by(
        &self,
        executor: Option<&Arc<dyn Executor>>,
        call: &mut Call<'_>,
        scope: Option<&ScopeTurn>,
    ) -> Result<Outcome>;

    /// [`Companion::execute_by`] for a call whose memory moves in; when it is given up while the executor runs it, the
    /// memory does not come back.
    fn submit_by(
        &self,
        executor: Option<&Arc<dyn Executor>>,
        call: OwnedCall,
        scope: Option<&ScopeTurn>,
    ) -> Work;

    /// The schedule of a collective, if the call or the communicator asks for an algorithm of this library's, or if the
    /// order of its sums must be fixed; `None` if whoever runs it may do so in any way.
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
    fn enter<'a>(
        &'a self,
        named: (&'static str, u32),
        call: &Call<'_>,
        scope: Option<&'a ScopeTurn>,
    ) -> Result<Entered<'a>>;

    /// What the failure of an entered call means; revokes the communicator. Returns the error for the caller.
    fn settle(&self, error: Error) -> Error;

    /// The turn of a scope.
    ///
    /// # Errors
    /// As [`Communicator::scope`].
    fn open_scope(&self, parent: ParentCall, options: &CallOptions) -> Result<ScopeTurn>;

    /// As [`Communicator::subgroup`].
    ///
    /// # Errors
    /// As [`Communicator::subgroup`].
    fn companion_of(&self, ranks: &[u32]) -> Result<Option<Arc<dyn Companion>>>;

    /// As [`Communicator::duplicate`].
    ///
    /// # Errors
    /// As [`Communicator::duplicate`].
    fn duplicate_companion(&self) -> Result<Arc<dyn Companion>>;

    /// As [`Communicator::shrink`].
    ///
    /// # Errors
    /// As [`Communicator::shrink`].
    fn survivors(&self) -> Result<Survivors>;
}

/// When a communicator looks after calls that do not move.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// After how long without progress the other ranks are asked.
    pub probe_after: Duration,
    /// After how long without progress a line in the log names the ranks.
    pub warn_after: Duration,
    /// How long the drop of a communicator may take.
    pub drop_timeout: Duration,
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
    pub turn: Turn<&'a Turnstile>,
}

/// Runs collectives in place of schedules, such as by a vendor's library.
pub trait Executor: Send + Sync {
    /// Its name in outcomes and errors.
    fn name(&self) -> &'static str;

    /// A hash of the schedules by which it runs, if they do not come with the library; else 0.
    fn schedules(&self) -> u32 {
        0
    }

    /// Starts a call; does not block. Calls of a communicator come one after the other.
    fn start(&self, job: Job);

    /// The call that was started is given up: nobody waits for it any more. What can be aborted is.
    fn abandon(&self);
}

/// A collective that an executor runs. All its ranks have met.
pub struct Job {
    /// What it is.
    pub descriptor: Descriptor,
    /// Its counts.
    pub counts: Counts,
    /// Its memory, which nobody else uses.
    pub buffers: OwnedBuffers,
    /// When it is given up.
    pub deadline: Instant,
    /// Takes its end.
    pub done: Done,
}

type TakeEnd = dyn FnOnce(Result<()>, Option<OwnedBuffers>) + Send;

/// Takes the end of a [`Job`]. Dropped without one, it says that the executor's thread has ended.
pub struct Done(Option<Box<TakeEnd>>);

impl Done {
    /// Calls `take` with the end.
    pub fn new(take: impl FnOnce(Result<()>, Option<OwnedBuffers>) + Send + 'static) -> Done {
        Done(Some(Box::new(take)))
    }

    /// The job is over, and this is its memory.
    pub fn end(mut self, result: Result<()>, buffers: OwnedBuffers) {
        if let Some(take) = self.0.take() {
            take(result, Some(buffers));
        }
    }
}

impl Drop for Done {
    fn drop(&mut self) {
        if let Some(take) = self.0.take() {
            let (what, text) = ("the executor of a call".to_owned(), "its thread has panicked".to_owned());
            take(Err(Error::System { what, text }), None);
        }
    }
}
