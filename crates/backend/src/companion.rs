//! The communicator beneath a vendor's: both have one order, one numbering of calls and one first cause.

use std::ops::Deref;
use std::sync::{Arc, Weak};

use unisono_communicator::{
    AfterEnd, Call, CallOptions, Communicator, Counts, Descriptor, Error, GroupOptions, Result, Shrunk,
};

use crate::gate::{CallGate, Failing};
use crate::order::Turn;
use crate::scheduled::ScheduledCall;
use crate::scope::Enclosing;

/// A communicator with a control plane, beneath a vendor's communicator. It gives the vendor's calls their order,
/// numbers and deadlines, compares them between ranks, and hears of failures. Its own calls go on working.
#[derive(Clone)]
pub struct Companion {
    communicator: Arc<dyn Communicator>,
    engine: Arc<dyn CallEngine>,
}

/// The engine that runs the calls of a communicator behind its gate, as far as a [`Companion`] needs it.
pub trait CallEngine: Send + Sync {
    /// The gate of the communicator.
    fn gate(&self) -> &CallGate;

    /// As [`Companion::schedule`].
    ///
    /// # Errors
    /// As [`Companion::schedule`].
    fn schedule(
        &self,
        descriptor: &Descriptor,
        counts: &Counts,
        options: &CallOptions,
    ) -> Result<Option<ScheduledCall>>;

    /// As [`CallGate::subgroup`].
    ///
    /// # Errors
    /// As [`CallGate::subgroup`]; [`Error::InvalidArgument`] for an algorithm that no collective has.
    fn subgroup(&self, ranks: &[u32], options: &GroupOptions) -> Result<Option<Companion>>;

    /// Waits until all asynchronous collectives that were issued before have ended.
    ///
    /// # Errors
    /// The first cause of a failure of the communicator.
    fn finish_queue(&self) -> Result<()>;

    /// Gives a collective that has its turn its number. `named` is the name of the algorithm that runs the collective,
    /// and the hash of the algorithm's schedules.
    fn number(&self, named: (&'static str, u32), call: &Call<'_>, enclosing: Option<&Enclosing>) -> u64;

    /// As [`Companion::run_after`].
    fn run_after(&self, after_end: AfterEnd);

    /// Calls `act` once, while this thread holds the links.
    fn with_links(&self, act: &mut dyn FnMut(&mut dyn Failing));
}

impl Companion {
    /// A communicator, and the engine that runs it.
    pub fn new(communicator: Arc<dyn Communicator>, engine: Arc<dyn CallEngine>) -> Companion {
        Companion { communicator, engine }
    }

    /// The same, without keeping it.
    pub fn downgrade(&self) -> WeakCompanion {
        WeakCompanion {
            communicator: Arc::downgrade(&self.communicator),
            engine: Arc::downgrade(&self.engine),
        }
    }

    /// The communicator alone, for users.
    pub fn communicator(&self) -> Arc<dyn Communicator> {
        self.communicator.clone()
    }

    /// The gate of the communicator. The vendor's communicator uses it too.
    pub fn gate(&self) -> &CallGate {
        self.engine.gate()
    }

    /// Runs the work after the end of a call, which is code of the program, on the threads of the world's callbacks; on
    /// this thread if the system has no room for one.
    pub fn run_after(&self, after_end: AfterEnd) {
        self.engine.run_after(after_end);
    }

    /// The schedule of a collective, if the call or the communicator asks for an algorithm of this library, or if the
    /// order of its sums must be fixed. `None` if the vendor's library may run the call in any way.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`], [`Error::Unsupported`] and [`Error::AlgorithmRefused`] when no proven algorithm fits
    /// the call.
    pub fn schedule(
        &self,
        descriptor: &Descriptor,
        counts: &Counts,
        options: &CallOptions,
    ) -> Result<Option<ScheduledCall>> {
        self.engine.schedule(descriptor, counts, options)
    }

    /// A companion of some of the ranks. `None` on the others.
    ///
    /// # Errors
    /// As [`Communicator::subgroup_with`].
    pub fn part(&self, ranks: &[u32], options: &GroupOptions) -> Result<Option<Companion>> {
        self.engine.subgroup(ranks, options)
    }

    /// Gives a collective its turn and its number. The caller runs the collective on its own thread, by the algorithm
    /// of this name and hash of schedules. The ranks compare nothing before the collective runs. Asynchronous calls
    /// that were issued before have ended.
    ///
    /// # Errors
    /// As [`CallGate::admit`] and [`CallGate::take_turn`].
    pub fn enter(&self, named: (&'static str, u32), call: &mut Call<'_>) -> Result<Entered<'_>> {
        let gate = self.gate();
        gate.admit(call)?;
        let turn = gate.take_turn(call.scope, &call.descriptor, call.site, &mut call.options)?;
        self.engine.finish_queue()?;
        let number = self.engine.number(named, call, turn.enclosing());
        Ok(Entered { number, turn })
    }

    /// Gives a message that a vendor's library moves its turn among the collectives, since the library makes its calls
    /// in one order. The message gets no number: the other ranks do not make it.
    ///
    /// # Errors
    /// As [`Companion::enter`].
    pub fn enter_message(&self, call: &mut Call<'_>) -> Result<Turn<'_>> {
        let gate = self.gate();
        gate.admit(call)?;
        let turn = gate.take_turn(call.scope, &call.descriptor, call.site, &mut call.options)?;
        self.engine.finish_queue()?;
        Ok(turn)
    }

    /// Revokes the communicator because an entered call has failed; see [`CallGate::settle`]. Returns the error for the
    /// caller.
    pub fn settle(&self, error: Error) -> Error {
        self.on_links(|links| self.gate().settle(links, error))
    }

    /// A group that its members alone have made counts as made from this communicator of all ranks: if this rank goes
    /// on after a failure of the group, it has survived the same failure of this one.
    pub fn note_group(&self, group: &Companion) {
        group.gate().board().set_parent(self.gate().board());
    }

    /// As [`Communicator::shrink`].
    ///
    /// # Errors
    /// As [`Communicator::shrink`].
    pub fn survivors(&self) -> Result<Survivors> {
        let gate = self.gate();
        // A function within a call would wait for the links that its own call holds.
        gate.check_caller(&"shrink")?;
        let survivors = gate.shrink(self.on_links(|links| links.now()))?;
        if gate.board().first_cause().is_revoked() {
            self.on_links(|links| links.end_epoch());
            gate.board().set_survivors(survivors.companion.gate().board());
        }
        Ok(survivors)
    }

    /// The result of `act` while this thread holds the links.
    fn on_links<R>(&self, act: impl FnOnce(&mut dyn Failing) -> R) -> R {
        let (mut act, mut result) = (Some(act), None);
        self.engine.with_links(&mut |links| result = act.take().map(|act| act(links)));
        #[expect(clippy::expect_used, reason = "`with_links` calls its function once")]
        result.expect("a function that was called")
    }
}

impl Deref for Companion {
    type Target = dyn Communicator;

    fn deref(&self) -> &(dyn Communicator + 'static) {
        &*self.communicator
    }
}

/// A [`Companion`] that somebody else keeps.
pub struct WeakCompanion {
    communicator: Weak<dyn Communicator>,
    engine: Weak<dyn CallEngine>,
}

impl WeakCompanion {
    /// It, if its communicator is still there.
    pub fn upgrade(&self) -> Option<Companion> {
        Some(Companion { communicator: self.communicator.upgrade()?, engine: self.engine.upgrade()? })
    }
}

/// The result of [`Companion::survivors`]; as [`Shrunk`].
pub struct Survivors {
    /// The communicator of the survivors.
    pub companion: Companion,
    /// The new rank of each old one.
    pub new_ranks: Vec<Option<u32>>,
    /// The number of collectives that every survivor has completed without a gap.
    pub last_common_call: u64,
}

impl Survivors {
    /// The same, for users.
    pub fn shrunk(self) -> Shrunk {
        let Survivors { companion, new_ranks, last_common_call } = self;
        Shrunk { communicator: companion.communicator, new_ranks, last_common_call }
    }
}

/// A collective that has its turn and its number.
pub struct Entered<'a> {
    /// Its number.
    pub number: u64,
    /// Held until the call is over.
    pub turn: Turn<'a>,
}
