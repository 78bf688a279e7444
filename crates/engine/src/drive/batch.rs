//! Batches of blocking sends and receives.

use std::sync::Arc;
use std::time::Duration;

use unisono_communicator::{Call, Error, Operation, Outcome, RecordedEnd, Result};

use crate::drive::Shared;
use crate::links::Links;

impl<L: Links + 'static> Shared<L> {
    /// Sends and receives as one batch. A batch of two allocates nothing.
    ///
    /// # Errors
    /// As [`unisono_communicator::Life::exchange`].
    pub(crate) fn exchange_batch(
        self: &Arc<Self>,
        calls: &mut [Call<'_>],
        results: &mut [Option<Result<Outcome>>],
    ) -> Result<()> {
        let (gate, mut timeout) = (&self.gate, Duration::ZERO);
        for call in &mut *calls {
            gate.group().options().complete(&mut call.descriptor, &mut call.options);
            self.admit(call)?;
            self.refuse_device(call.memory())?;
            if let Operation::Collective(collective) = call.descriptor.operation {
                let what = format!("{collective} in a batch of messages");
                return Err(Error::Unsupported { what, backend: gate.backend(), instead: None });
            }
            call.options = gate.order_of(call.scope)?.options(&call.options, gate.timeout());
            timeout = timeout.max(call.options.timeout.unwrap_or(gate.timeout()));
        }
        if self.exchange_at_once(calls, results) {
            return Ok(());
        }
        let (mut pair, mut many) = ([None, None], Vec::new());
        let entered = match calls.len() {
            few @ 0..=2 => &mut pair[..few],
            more => {
                many.resize_with(more, || None);
                &mut many[..]
            }
        };
        for ((entered, call), result) in entered.iter_mut().zip(&*calls).zip(&*results) {
            if result.is_none() {
                *entered = Some(gate.board().enter_message(&call.descriptor, &call.options, call.site));
            }
        }
        let ended = self.exchange(calls, timeout, results);
        for ((entered, call), result) in entered.iter_mut().zip(&*calls).zip(&*results) {
            let end = match (&ended, result) {
                (Err(_), _) | (Ok(()), None) => RecordedEnd::Failed,
                (Ok(()), Some(result)) => RecordedEnd::from(result),
            };
            if let Some(entered) = entered.take() {
                gate.board().leave_message(entered, (&call.descriptor, call.site), end);
            }
        }
        ended
    }
}
