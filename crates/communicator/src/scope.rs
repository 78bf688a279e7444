//! Scopes: the calls that make up one parent call.

use std::ops::Range;
use std::sync::Arc;

use unisono_schedule::{Algorithm, Trust};

use crate::call::options::CallOptions;
use crate::call::outcome::Outcome;
use crate::call::parent::{ParentCall, ScopeId};
use crate::call::{Call, OwnedCall};
use crate::communicator::Communicator;
use crate::error::{Error, Result};
use crate::executor::Executor;
use crate::group::Group;
use crate::life::Life;
use crate::message::Probed;
use crate::work::Work;

/// A communicator for the calls that make up a parent call, until it is dropped; see [`Communicator::scope`]. It may
/// move to another thread.
///
/// While a scope is open, the communicator runs no collective outside it. A collective with a label waits, at most for
/// its timeout; any other collective gets [`Error::ConcurrentUse`]. Sends and receives go on. The same rule holds
/// between two calls within the scope.
///
/// The thread that has opened the scope would wait for itself. Its collectives outside the scope, with or without a
/// label, get [`Error::InvalidArgument`], which names the scope and its line, and so does [`Communicator::close`].
/// [`Scope::hand_over`] is for a scope that ends on another thread.
///
/// The deadline of the scope bounds all its calls: each call gets the time that is left, or its own shorter timeout.
/// Errors and logs name the parent.
///
/// Dropping the scope ends it, also in a panic, and reports neither success nor failure. A caller that has all data and
/// rejects it returns its own error, and the communicator stays usable; all ranks must decide alike, for instance by a
/// flag that travels with the data. After a failed call, every later call returns the first cause. An asynchronous call
/// that still runs goes on, and the communicator's next call comes after it.
///
/// A ticket of a call within the scope belongs to the communicator, and outlives the scope.
///
/// [`Communicator::scope`] and [`Communicator::close`] of a scope are [`Error::Unsupported`].
pub struct Scope {
    // The first field is dropped first: it may hold the communicator's turn, its right to issue calls.
    open: Box<dyn OpenScope>,
    communicator: Arc<dyn Communicator>,
    /// In place of the communicator's where operations are switched off: parts of a call are not skipped.
    group: Option<Group>,
}

/// A backend's part of an open scope.
pub trait OpenScope: Send + Sync {
    /// The id that the scope's calls carry ([`Call::scope`]).
    fn id(&self) -> ScopeId;

    /// See [`Scope::parent`].
    fn parent(&self) -> &Arc<ParentCall>;

    /// See [`Scope::numbers`].
    fn numbers(&self) -> Range<u64>;

    /// See [`Scope::hand_over`].
    fn hand_over(&self);

    /// See [`Scope::note_size`].
    fn note_size(&self, bytes: u64);
}

impl Scope {
    /// A scope on `communicator`, which honours [`Call::scope`]. Dropping `open` ends the scope.
    pub fn new(communicator: Arc<dyn Communicator>, open: Box<dyn OpenScope>) -> Scope {
        let group = communicator.group().without_skipped();
        Scope { open, communicator, group }
    }

    /// The same scope seen through `communicator`, which lies on top of the scope's communicator and passes calls on.
    pub fn on(self, communicator: Arc<dyn Communicator>) -> Scope {
        Scope { communicator, ..self }
    }

    /// Rank, size, members.
    pub fn group(&self) -> &Group {
        self.group.as_ref().unwrap_or_else(|| self.communicator.group())
    }

    /// The parent call.
    pub fn parent(&self) -> &Arc<ParentCall> {
        self.open.parent()
    }

    /// The numbers of its collectives so far, as in errors and in [`crate::Shrunk::last_common_call`]. All survivors
    /// have completed the whole parent if the last common call is not below the end of this range.
    pub fn numbers(&self) -> Range<u64> {
        self.open.numbers()
    }

    /// Says that another thread ends the scope. From then on, the thread that has opened the scope may wait for it, as
    /// any other thread may.
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
    /// # mod call { pub use unisono_communicator::*; }
    /// use call::{Collective, DType, Descriptor, ParentCall};
    /// use unisono::{CallOptions, Collectives, Communicator, Solo};
    /// let comm = Solo::new();
    /// let descriptor = Descriptor::new(Collective::Barrier, DType::U8, 0);
    /// let scope = comm.scope(ParentCall::new("elsewhere", descriptor), &CallOptions::new())?;
    /// scope.hand_over();
    /// let elsewhere = std::thread::spawn(move || scope.barrier());
    /// comm.with(CallOptions::new().label("afterwards")).barrier()?;
    /// elsewhere.join().unwrap()?;
    /// # Ok::<(), unisono::Error>(())
    /// ```
    pub fn hand_over(&self) {
        self.open.hand_over();
    }

    /// Gives the communication log the size of the parent, in place of its descriptor's: for a parent whose size is
    /// known only after its first call.
    pub fn note_size(&self, bytes: u64) {
        self.open.note_size(bytes);
    }

    fn unsupported<T>(&self, what: &str) -> Result<T> {
        let (what, instead) = (format!("{what} within a scope"), Some("end the scope first".to_owned()));
        Err(Error::Unsupported { what, backend: self.communicator.backend(), instead })
    }
}

impl Executor for Scope {
    fn group(&self) -> &Group {
        self.group()
    }

    fn execute(&self, call: &mut Call<'_>) -> Result<Outcome> {
        call.scope = Some(self.open.id());
        // Past the `Arc`, whose forwarding is a function more.
        (*self.communicator).execute(call)
    }

    fn submit(&self, mut call: OwnedCall) -> Work {
        call.scope = Some(self.open.id());
        self.communicator.submit(call)
    }

    fn life(&self) -> &dyn Life {
        self
    }
}

impl Life for Scope {
    fn under(&self) -> Option<&dyn Life> {
        Some(self.communicator.life())
    }

    fn exchange(&self, calls: &mut [Call<'_>], results: &mut [Option<Result<Outcome>>]) -> Result<()> {
        calls.iter_mut().for_each(|call| call.scope = Some(self.open.id()));
        self.communicator.life().exchange(calls, results)
    }

    fn probe(&self, call: &mut Call<'_>, waits: bool) -> Result<Option<Probed>> {
        call.scope = Some(self.open.id());
        self.communicator.life().probe(call, waits)
    }

    fn register(&self, _: Arc<Algorithm>, _: Trust) -> Result<()> {
        self.unsupported("register")
    }

    fn scope(&self, _: ParentCall, _: &CallOptions) -> Result<Scope> {
        self.unsupported("scope")
    }

    fn close(&self) -> Result<()> {
        self.unsupported("close")
    }
}
