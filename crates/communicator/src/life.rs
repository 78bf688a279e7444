//! The life of a communicator beside its calls: its abilities, its groups, failures, and its end.

use std::any::type_name;
use std::sync::Arc;
use std::time::Duration;

use unisono_schedule::{Algorithm, Collective, CostModel, Trust};

use crate::call::Call;
use crate::call::descriptor::Descriptor;
use crate::call::options::CallOptions;
use crate::call::outcome::{Outcome, Ticket};
use crate::call::parent::ParentCall;
use crate::call::prepared::PreparedCall;
use crate::check::check_request;
use crate::comms_log::observations::Observations;
use crate::communicator::{Communicator, Shrunk};
use crate::error::{Error, Result};
use crate::group::Group;
use crate::group::options::GroupOptions;
use crate::memory::MemoryKind;
use crate::message::Probed;
use crate::scope::Scope;

/// A backend's part of a communicator beside its calls. Each method keeps the promise of [`Communicator`]'s method of
/// the same name. It defaults to the method of the communicator beneath ([`Life::under`]), and without one to a plain
/// answer or to [`Error::Unsupported`], which names the call and the backend.
///
/// Do not import it beside [`Communicator`]: the methods have the same names.
pub trait Life: Send + Sync {
    /// The life of the communicator beneath, for a decorator.
    fn under(&self) -> Option<&dyn Life> {
        None
    }

    /// As [`Communicator::backend`].
    fn backend(&self) -> &'static str {
        self.under().map_or(type_name::<Self>(), |under| under.backend())
    }

    /// As [`Communicator::native_collectives`].
    fn native_collectives(&self) -> Vec<Collective> {
        self.under().map_or_else(|| Collective::ALL.to_vec(), |under| under.native_collectives())
    }

    /// As [`Communicator::cost_model`].
    fn cost_model(&self) -> CostModel {
        self.under().map_or(CostModel::LOOPBACK, |under| under.cost_model())
    }

    /// As [`Communicator::companion`].
    fn companion(&self) -> Option<Arc<dyn Communicator>> {
        self.under().and_then(|under| under.companion())
    }

    /// As [`Communicator::observations`].
    fn observations(&self) -> Observations {
        self.under().map_or_else(Observations::default, |under| under.observations())
    }

    /// As [`Communicator::supports`], for calls of this group.
    fn supports(
        &self,
        group: &Group,
        descriptor: &Descriptor,
        options: &CallOptions,
        memory: MemoryKind,
    ) -> Result<()> {
        if let Some(under) = self.under() {
            return under.supports(group, descriptor, options, memory);
        }
        check_request(descriptor, options, group)?;
        match memory {
            MemoryKind::Host => Ok(()),
            MemoryKind::Device => Err(Error::no_device(self.backend())),
        }
    }

    /// As [`Communicator::resolve_within`].
    fn resolve_within(&self, ticket: Ticket, timeout: Duration) -> Result<Option<Outcome>> {
        if let Some(under) = self.under() {
            return under.resolve_within(ticket, timeout);
        }
        let instead = Some("ask the communicator that has issued it".to_owned());
        Err(Error::Unsupported { what: format!("{ticket}"), backend: self.backend(), instead })
    }

    /// Checks a call of this group, makes its plan and keeps it. Calls with the [`PreparedCall::number`] run it.
    ///
    /// # Errors
    /// As [`Communicator::supports`].
    fn prepare(
        &self,
        group: &Group,
        descriptor: &Descriptor,
        options: &CallOptions,
        memory: MemoryKind,
    ) -> Result<PreparedCall> {
        beneath(self, "prepared calls")?.prepare(group, descriptor, options, memory)
    }

    /// Blocking sends and receives, which all begin before the first of them is awaited, so that two ranks may send to
    /// each other. It gives the result of each in place of `None`; a call that has a result is over. The arguments are
    /// checked.
    ///
    /// # Errors
    /// An error that ends all of them.
    fn exchange(&self, calls: &mut [Call<'_>], results: &mut [Option<Result<Outcome>>]) -> Result<()> {
        beneath(self, "batches of messages")?.exchange(calls, results)
    }

    /// The oldest message that the receive of `call` would get, or `None`; if it `waits`, until there is one. The
    /// receive has no memory.
    ///
    /// # Errors
    /// As a receive's.
    fn probe(&self, call: &mut Call<'_>, waits: bool) -> Result<Option<Probed>> {
        beneath(self, "probes")?.probe(call, waits)
    }

    /// As [`Communicator::register`].
    fn register(&self, algorithm: Arc<Algorithm>, trust: Trust) -> Result<()> {
        beneath(self, "algorithms from outside")?.register(algorithm, trust)
    }

    /// As [`Communicator::subgroup_with`].
    fn subgroup_with(&self, ranks: &[u32], options: &GroupOptions) -> Result<Option<Arc<dyn Communicator>>> {
        beneath(self, "subgroups")?.subgroup_with(ranks, options)
    }

    /// As [`Communicator::duplicate`].
    fn duplicate(&self) -> Result<Arc<dyn Communicator>> {
        beneath(self, "duplicate")?.duplicate()
    }

    /// As [`Communicator::shrink`].
    fn shrink(&self) -> Result<Shrunk> {
        beneath(self, "shrink")?.shrink()
    }

    /// As [`Communicator::agree`].
    fn agree(&self, flag: bool) -> Result<bool> {
        beneath(self, "agree")?.agree(flag)
    }

    /// As [`Communicator::monitored_barrier`].
    fn monitored_barrier(&self, timeout: Duration) -> Result<()> {
        beneath(self, "monitored_barrier")?.monitored_barrier(timeout)
    }

    /// As [`Communicator::scope`].
    fn scope(&self, parent: ParentCall, options: &CallOptions) -> Result<Scope> {
        beneath(self, "scopes")?.scope(parent, options)
    }

    /// As [`Communicator::revoke`].
    fn revoke(&self, cause: Error) -> Result<()> {
        beneath(self, "revoke")?.revoke(cause)
    }

    /// As [`Communicator::abort`].
    fn abort(&self) -> Result<()> {
        beneath(self, "abort")?.abort()
    }

    /// As [`Communicator::close`].
    fn close(&self) -> Result<()> {
        beneath(self, "close")?.close()
    }
}

/// The communicator beneath, which does the call for a communicator that does not do it itself.
fn beneath<'a, L: Life + ?Sized>(life: &'a L, what: &str) -> Result<&'a dyn Life> {
    let unsupported = || Error::Unsupported { what: what.to_owned(), backend: life.backend(), instead: None };
    life.under().ok_or_else(unsupported)
}
