//! The world of one rank: every operation without a network. The examples of the documentation use it.

mod late;
mod messages;
mod probe;
mod world;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use unisono_communicator::{
    Buffer, BufferMut, Buffers, Call, CallOptions, CommsLogger, Communicator, DType, Descriptor, Error,
    Executor, Finished, Group, GroupOptions, Kind, Life, MemoryKind, Operation, Outcome, OwnedCall,
    ParentCall, PreparedCall, Probed, ReduceOp, Result, Scope, Shrunk, SkippedOperations, Work,
};
use unisono_schedule::{Algorithm, Registry, Trust};

use crate::solo::messages::{ALGORITHM, OWN, info};
use crate::solo::world::World;

const BACKEND: &str = "solo";

/// A communicator with one rank. A waiting receive ends, and runs its callbacks, on the thread that sends its message,
/// or at its deadline on a thread that is there only while a receive is awaited. Any name may be forced as an
/// algorithm: all do the same here.
///
/// ```
/// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
/// use unisono::{Collectives, ReduceOp, Solo};
/// let comm = Solo::new();
/// let mut values = [1.0f32, 2.0];
/// comm.all_reduce(&mut values, ReduceOp::Avg).unwrap();
/// assert_eq!(values, [1.0, 2.0]);
/// ```
#[derive(Clone)]
pub struct Solo {
    group: Group,
    world: Arc<World>,
}

impl Default for Solo {
    fn default() -> Solo {
        Solo::new()
    }
}

impl Solo {
    /// A new world.
    pub fn new() -> Solo {
        Solo { group: Group::world(0, 1), world: Arc::default() }
    }

    /// Rank, size, members.
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// Another world, with the options of this one where `options` sets none.
    fn of_the_same_rank(&self, options: &GroupOptions) -> Solo {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        let group = self.group.clone().with_id(NEXT_ID.fetch_add(1, Ordering::Relaxed));
        Solo { group: group.with_options(options.or(self.group.options())), world: self.world.derive() }
    }
}

impl Executor for Solo {
    fn group(&self) -> &Group {
        self.group()
    }

    fn execute(&self, call: &mut Call<'_>) -> Result<Outcome> {
        self.group.options().complete(&mut call.descriptor, &mut call.options);
        call.options = self.admit(call)?;
        let turn = match call.descriptor.operation {
            Operation::Send | Operation::Recv => None,
            Operation::Collective(_) => Some(self.world.take_turn(call.scope, info(call), &call.options)?),
        };
        let recording = self.world.record(call, &self.group);
        let result = match call.descriptor.operation {
            Operation::Send => self.world.send(call),
            Operation::Recv => self.world.receive(call),
            Operation::Collective(_) => Ok(collective(call)),
        };
        if let Some(recording) = recording {
            recording.end((&result).into());
        }
        drop(turn);
        result
    }

    fn submit(&self, mut call: OwnedCall) -> Work {
        self.group.options().complete(&mut call.descriptor, &mut call.options);
        match call.descriptor.operation {
            Operation::Recv => match self.admit(&call.borrow()) {
                Ok(options) => self.world.post(OwnedCall { options, ..call }, &self.group),
                Err(error) => Work::refused(call, error),
            },
            Operation::Collective(_) | Operation::Send => {
                let result = self.execute(&mut call.borrow()).map_err(|error| error.in_call(&call));
                Work::finished(Finished { result, buffers: Some(call.buffers) })
            }
        }
    }

    fn life(&self) -> &dyn Life {
        self
    }
}

impl Life for Solo {
    fn backend(&self) -> &'static str {
        BACKEND
    }

    fn prepare(
        &self,
        group: &Group,
        descriptor: &Descriptor,
        options: &CallOptions,
        memory: MemoryKind,
    ) -> Result<PreparedCall> {
        Life::supports(self, group, descriptor, options, memory)?;
        Ok(PreparedCall::checked(*descriptor, *options))
    }

    /// The sends come first, since they end at once.
    fn exchange(&self, calls: &mut [Call<'_>], results: &mut [Option<Result<Outcome>>]) -> Result<()> {
        for now in [Operation::Send, Operation::Recv] {
            for (call, result) in calls.iter_mut().zip(&mut *results) {
                if result.is_none() && call.descriptor.operation == now {
                    *result = Some(self.execute(call));
                }
            }
        }
        Ok(())
    }

    fn probe(&self, call: &mut Call<'_>, waits: bool) -> Result<Option<Probed>> {
        self.group.options().complete(&mut call.descriptor, &mut call.options);
        call.options = self.admit(call)?;
        self.world.probe(call, waits)
    }

    fn register(&self, algorithm: Arc<Algorithm>, trust: Trust) -> Result<()> {
        self.check("register")?;
        // An algorithm for several ranks is accepted, though no schedule runs here: a program that registers one must
        // also start alone.
        Registry::built_in().add(algorithm, trust).map_err(Error::refused)
    }

    fn subgroup_with(&self, ranks: &[u32], options: &GroupOptions) -> Result<Option<Arc<dyn Communicator>>> {
        self.check("subgroup")?;
        options.check()?;
        match ranks {
            [] => Ok(None),
            [0] => Ok(Some(Arc::new(self.of_the_same_rank(options)))),
            _ => Err(Error::invalid("ranks", format!("{ranks:?}, but the group has rank 0 only"))),
        }
    }

    fn duplicate(&self) -> Result<Arc<dyn Communicator>> {
        self.check("duplicate")?;
        Ok(Arc::new(self.of_the_same_rank(&GroupOptions::new())))
    }

    fn shrink(&self) -> Result<Shrunk> {
        let last_common_call = self.survive("shrink")?;
        let survivors = self.of_the_same_rank(&GroupOptions::new());
        self.world.set_survivors(&survivors.world);
        Ok(Shrunk { communicator: Arc::new(survivors), new_ranks: vec![Some(0)], last_common_call })
    }

    fn agree(&self, flag: bool) -> Result<bool> {
        self.survive("agree").map(|_| flag)
    }

    fn monitored_barrier(&self, _: Duration) -> Result<()> {
        self.check("monitored_barrier")
    }

    fn scope(&self, parent: ParentCall, options: &CallOptions) -> Result<Scope> {
        let open = self.world.open_scope(parent.labelled(options)?, options, &self.group)?;
        Ok(Scope::new(Arc::new(self.clone()), Box::new(open)))
    }

    fn revoke(&self, cause: Error) -> Result<()> {
        self.world.fail(Error::Revoked { by: OWN, cause: Arc::new(cause) });
        Ok(())
    }

    fn abort(&self) -> Result<()> {
        self.world.fail(Error::Aborted { by: OWN });
        Ok(())
    }

    fn close(&self) -> Result<()> {
        self.world.close()
    }
}

impl Solo {
    /// The same world, in which these operations do nothing.
    #[must_use]
    pub fn with_skipped(self, skipped: SkippedOperations) -> Solo {
        Solo { group: self.group.with_skipped(skipped), ..self }
    }

    /// The same world, whose calls this log records.
    #[must_use]
    pub fn with_comms_logger(self, comms_logger: CommsLogger) -> Solo {
        Solo { group: self.group.with_comms_logger(comms_logger), ..self }
    }

    /// Whether [`Communicator::close`] was called on it.
    pub fn is_closed(&self) -> bool {
        self.world.lock().is_closed
    }

    /// Admits a call. Gives its options, completed by the options of its scope.
    fn admit(&self, call: &Call<'_>) -> Result<CallOptions> {
        let timeout = call.options.timeout.or(self.group.options().timeout);
        let options = self.world.admit(call.scope, &CallOptions { timeout, ..call.options })?;
        if call.body.is_some() {
            let what = "a call that a body runs".to_owned();
            return Err(Error::Unsupported { what, backend: BACKEND, instead: None });
        }
        match call.memory() {
            MemoryKind::Host => Ok(options),
            MemoryKind::Device => Err(Error::no_device(BACKEND)),
        }
    }

    fn check(&self, what: &str) -> Result<()> {
        self.world.lock().check().map_err(|error| error.in_call(&what))
    }

    /// Admits `shrink` or `agree`, also after a failure. Gives the number of collectives so far.
    fn survive(&self, what: &str) -> Result<u64> {
        let state = self.world.lock();
        if state.is_closed { Err(Error::closed().in_call(&what)) } else { Ok(state.calls) }
    }
}

fn collective(call: &mut Call<'_>) -> Outcome {
    let output = match &mut call.buffers {
        Buffers::InOut(BufferMut::Host(buffer)) => buffer,
        Buffers::Separate { input: Buffer::Host(input), output: BufferMut::Host(output) } => {
            output.write_front(input);
            output
        }
        _ => return Outcome::done(0, ALGORITHM),
    };
    if let Some(ReduceOp::PreMulSum(factor)) = call.descriptor.op {
        output.for_each(|slice| scale(slice, call.descriptor.dtype, factor));
    }
    Outcome::done(output.bytes() as u64, ALGORITHM)
}

fn scale(bytes: &mut [u8], dtype: DType, factor: f64) {
    // `check` has called `ReduceOp::accepts`, which admits floats and complex numbers only.
    let (Kind::Float(format) | Kind::Complex(format)) = dtype.kind() else {
        unreachable!("a factor on {dtype}")
    };
    for float in bytes.chunks_exact_mut(format.bytes) {
        let value = format.read(float);
        let is_wide = format.digits > f32::MANTISSA_DIGITS;
        let product = if is_wide { value * factor } else { f64::from(value as f32 * factor as f32) };
        format.write(product, float);
    }
}
