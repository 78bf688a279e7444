//! A caller's options for every call of a communicator.

use unisono_communicator::{
    Call, CallOptions, Communicator, Descriptor, Executor, Group, Life, MemoryKind, Outcome, OwnedCall,
    ParentCall, PreparedCall, Probed, Result, Scope, Work, check_label, check_options,
};

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

    /// Rank, size, members.
    pub fn group(&self) -> &Group {
        self.group.as_ref().unwrap_or_else(|| self.inner.group())
    }

    fn merge(&self, own: &CallOptions, descriptor: &mut Descriptor) -> Result<CallOptions> {
        let options = own.or(&self.options);
        descriptor.label = descriptor.label.or(options.label);
        check_label(descriptor)?;
        check_options(&options)?;
        Ok(options)
    }
}

impl<C: Communicator + ?Sized> Executor for With<'_, C> {
    fn group(&self) -> &Group {
        self.group()
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

    fn life(&self) -> &dyn Life {
        self
    }
}

impl<C: Communicator + ?Sized> Life for With<'_, C> {
    fn under(&self) -> Option<&dyn Life> {
        Some(self.inner.life())
    }

    fn supports(
        &self,
        group: &Group,
        descriptor: &Descriptor,
        options: &CallOptions,
        memory: MemoryKind,
    ) -> Result<()> {
        let options = options.or(&self.options);
        let descriptor = Descriptor { label: descriptor.label.or(options.label), ..*descriptor };
        self.inner.life().supports(group, &descriptor, &options, memory)
    }

    fn prepare(
        &self,
        group: &Group,
        descriptor: &Descriptor,
        options: &CallOptions,
        memory: MemoryKind,
    ) -> Result<PreparedCall> {
        let mut descriptor = *descriptor;
        let options = self.merge(options, &mut descriptor)?;
        self.inner.life().prepare(group, &descriptor, &options, memory)
    }

    fn exchange(&self, calls: &mut [Call<'_>], results: &mut [Option<Result<Outcome>>]) -> Result<()> {
        for call in &mut *calls {
            call.options = self.merge(&call.options, &mut call.descriptor)?;
        }
        self.inner.life().exchange(calls, results)
    }

    fn probe(&self, call: &mut Call<'_>, waits: bool) -> Result<Option<Probed>> {
        call.options = self.merge(&call.options, &mut call.descriptor)?;
        self.inner.life().probe(call, waits)
    }

    fn scope(&self, parent: ParentCall, options: &CallOptions) -> Result<Scope> {
        self.inner.life().scope(parent, &options.or(&self.options))
    }
}
