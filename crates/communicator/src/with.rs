//! A caller's options for every call of a communicator.

use crate::call::descriptor::Descriptor;
use crate::call::options::CallOptions;
use crate::call::outcome::Outcome;
use crate::call::parent::ParentCall;
use crate::call::{Call, OwnedCall};
use crate::check::{check_label, check_options};
use crate::communicator::{Communicator, Scope};
use crate::error::Result;
use crate::forward_communicator;
use crate::group::Group;
use crate::memory::MemoryKind;
use crate::work::Work;

/// A communicator that adds the caller's options to every call; made by [`crate::Collectives::with`].
pub struct With<'a, C: ?Sized> {
    inner: &'a C,
    options: CallOptions,
    /// In place of the inner one's, for calls that are needed where operations are switched off.
    group: Option<Group>,
}

impl<'a, C: Communicator + ?Sized> With<'a, C> {
    pub(crate) fn new(inner: &'a C, options: CallOptions) -> With<'a, C> {
        let group = if options.is_needed { inner.group().without_skipped() } else { None };
        With { inner, options, group }
    }

    fn merge(&self, own: &CallOptions, descriptor: &mut Descriptor) -> Result<CallOptions> {
        let options = own.or(&self.options);
        descriptor.label = descriptor.label.or(options.label);
        check_label(descriptor)?;
        check_options(&options)?;
        Ok(options)
    }
}

impl<C: Communicator + ?Sized> Communicator for With<'_, C> {
    forward_communicator!(self => self.inner; backend, native_collectives, cost_model, companion, observations,
        resolve_within, resolve, register, subgroup_with, duplicate, shrink, agree, monitored_barrier, revoke, abort,
        close);

    fn group(&self) -> &Group {
        self.group.as_ref().unwrap_or_else(|| self.inner.group())
    }

    fn execute(&self, call: &mut Call<'_>) -> Result<Outcome> {
        call.options = self.merge(&call.options, &mut call.descriptor)?;
        self.inner.execute(call)
    }

    fn submit(&self, mut call: OwnedCall) -> Work {
        match self.merge(&call.options, &mut call.descriptor) {
            Ok(options) => {
                call.options = options;
                self.inner.submit(call)
            }
            Err(error) => Work::refused(call, error),
        }
    }

    fn supports(&self, descriptor: &Descriptor, options: &CallOptions, memory: MemoryKind) -> Result<()> {
        let options = options.or(&self.options);
        let descriptor = Descriptor { label: descriptor.label.or(options.label), ..*descriptor };
        self.inner.supports(&descriptor, &options, memory)
    }

    fn scope(&self, parent: ParentCall, options: &CallOptions) -> Result<Scope> {
        self.inner.scope(parent, &options.or(&self.options))
    }
}
