//! The parts behind a communicator's gate for calls that run elsewhere: their schedules, their numbers, the links.

use std::sync::Arc;

use unisono_backend::{CallEngine, CallGate, Companion, Enclosing, Failing, ScheduledCall};
use unisono_communicator::{
    AfterEnd, Call, CallOptions, Counts, Descriptor, Determinism, GroupOptions, Operation, Result, Sizes,
};

use crate::calls::call::enter;
use crate::drive::Shared;
use crate::links::Links;
use crate::plan::header::{CallHeader, hash_named};

impl<L: Links + 'static> CallEngine for Shared<L> {
    fn gate(&self) -> &CallGate {
        &self.gate
    }

    fn schedule(
        &self,
        descriptor: &Descriptor,
        counts: &Counts,
        options: &CallOptions,
    ) -> Result<Option<ScheduledCall>> {
        let Operation::Collective(collective) = descriptor.operation else { return Ok(None) };
        let is_plain = options.algorithm.is_none() && options.determinism != Determinism::Fixed;
        if is_plain && !collective.is_prefix() && self.options.algorithm.is_none() {
            return Ok(None);
        }
        let selector = self.selector();
        if !selector.is_asked_for(collective, descriptor, options) {
            return Ok(None);
        }
        let scheduled = selector.scheduled((collective, descriptor), counts, options, self.gate.group());
        scheduled.map(Some)
    }

    fn subgroup(&self, ranks: &[u32], options: &GroupOptions) -> Result<Option<Companion>> {
        self.options.check_algorithm(options.algorithm)?;
        self.gate.subgroup(ranks, options)
    }

    fn finish_queue(&self) -> Result<()> {
        match self.queue.is_empty() {
            true => Ok(()),
            false => self.finish_queue(&mut self.lock_links()),
        }
    }

    fn number(&self, named: (&'static str, u32), call: &Call<'_>, enclosing: Option<&Enclosing>) -> u64 {
        let sizes = Sizes::of(call.descriptor.dtype, &call.counts, call.buffers.segment_ends()).map(Arc::new);
        let header = CallHeader::new(&call.descriptor, 0, hash_named(named), 0);
        enter(&self.gate, call, named, sizes.as_ref(), enclosing, header, drop).0
    }

    fn run_after(&self, after_end: AfterEnd) {
        let pool = self.monitor.pool();
        match pool.start() {
            Ok(()) => pool.push(after_end),
            Err(_) => after_end.run(),
        }
    }

    fn with_links(&self, act: &mut dyn FnMut(&mut dyn Failing)) {
        act(&mut self.lock_links());
    }
}
