//! The world of one: every operation without a network. The examples in the documentation use it. It has nobody to keep
//! an order with, so a scope in it only counts its calls.

mod messages;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use unisono_schedule::{Algorithm, Registry, Trust};

use crate::call::descriptor::Descriptor;
use crate::call::operation::Operation;
use crate::call::options::{CALL_TIMEOUT_DEFAULT, CallOptions, deadline_after};
use crate::call::outcome::Outcome;
use crate::call::parent::{ParentCall, ScopeId};
use crate::call::{Call, OwnedCall};
use crate::communicator::{Communicator, OpenScope, Scope, Shrunk};
use crate::elements::dtype::{DType, Kind};
use crate::elements::reduce_op::ReduceOp;
use crate::error::{Error, Result};
use crate::group::Group;
use crate::memory::host::{Segments, SegmentsMut};
use crate::memory::{Buffer, BufferMut, Buffers, MemoryKind};
use crate::solo::messages::{ALGORITHM, MessageQueue};
use crate::work::{Finished, Work};

const BACKEND: &str = "solo";

/// A communicator with one rank, without a thread of its own: a receive that waits for its message ends, and calls its
/// callbacks, on the thread that sends it. All algorithms do the same here, so every name is accepted as a forced one.
///
/// ```
/// use unisono_communicator::{Collectives, ReduceOp, Solo};
/// let comm = Solo::new();
/// let mut values = [1.0f32, 2.0];
/// comm.all_reduce(&mut values, ReduceOp::Avg).unwrap();
/// assert_eq!(values, [1.0, 2.0]);
/// ```
#[derive(Clone)]
pub struct Solo {
    group: Group,
    queue: Arc<MessageQueue>,
}

impl Default for Solo {
    fn default() -> Solo {
        Solo::new()
    }
}

impl Solo {
    /// A world of one.
    pub fn new() -> Solo {
        Solo { group: Group::world(0, 1), queue: Arc::default() }
    }
}

impl Communicator for Solo {
    fn group(&self) -> &Group {
        &self.group
    }

    fn execute(&self, call: &mut Call<'_>) -> Result<Outcome> {
        refuse_device(call.memory())?;
        self.queue.check()?;
        match call.descriptor.operation {
            Operation::Send => self.queue.send(call),
            Operation::Recv => self.queue.receive(call),
            Operation::Collective(_) => collective(call),
        }
    }

    fn submit(&self, call: OwnedCall) -> Work {
        if let Err(error) = refuse_device(call.memory()) {
            return Work::refused(call, error);
        }
        match call.descriptor.operation {
            Operation::Recv => self.queue.post(call),
            Operation::Collective(_) | Operation::Send => {
                let mut call = call;
                let result = self.execute(&mut call.borrow());
                Work::finished(Finished { result, buffers: Some(call.buffers) })
            }
        }
    }

    fn backend(&self) -> &'static str {
        BACKEND
    }

    fn register(&self, algorithm: Arc<Algorithm>, trust: Trust) -> Result<()> {
        // No schedule runs here, so an algorithm for several ranks is right too: a program that has one must also
        // start alone.
        Registry::built_in().add(algorithm, trust).map_err(Error::refused)
    }

    fn subgroup(&self, ranks: &[u32]) -> Result<Option<Arc<dyn Communicator>>> {
        match ranks {
            [] => Ok(None),
            [0] => Ok(Some(Arc::new(Solo::new()))),
            _ => Err(Error::invalid("ranks", format!("{ranks:?}, but the group has rank 0 only"))),
        }
    }

    fn duplicate(&self) -> Result<Arc<dyn Communicator>> {
        Ok(Arc::new(Solo::new()))
    }

    fn shrink(&self) -> Result<Shrunk> {
        let communicator = self.duplicate()?;
        Ok(Shrunk { communicator, new_ranks: vec![Some(0)], last_common_call: 0 })
    }

    fn agree(&self, flag: bool) -> Result<bool> {
        Ok(flag)
    }

    fn scope(&self, parent: ParentCall, options: &CallOptions) -> Result<Scope> {
        let (scope, open) = SoloScope::open(self.clone(), parent, options)?;
        Ok(Scope::new(Arc::new(scope), Box::new(open)))
    }

    fn abort(&self) -> Result<()> {
        self.queue.abort();
        Ok(())
    }

    fn close(&self) -> Result<()> {
        Ok(())
    }
}

/// [`Solo`] as the calls of a scope see it.
struct SoloScope {
    solo: Solo,
    deadline: Instant,
    options: CallOptions,
    calls: Arc<AtomicU64>,
}

/// An open scope of [`Solo`].
struct SoloTurn {
    id: ScopeId,
    parent: Arc<ParentCall>,
    calls: Arc<AtomicU64>,
}

impl SoloScope {
    fn open(solo: Solo, parent: ParentCall, options: &CallOptions) -> Result<(SoloScope, SoloTurn)> {
        let (parent, calls) = (Arc::new(parent.labelled(options)?), Arc::<AtomicU64>::default());
        let deadline = deadline_after(Instant::now(), options.timeout.unwrap_or(CALL_TIMEOUT_DEFAULT));
        let options = CallOptions { timeout: None, label: None, ..*options };
        let turn = SoloTurn { id: ScopeId::new_unique(), parent, calls: calls.clone() };
        Ok((SoloScope { solo, deadline, options, calls }, turn))
    }

    /// Notes a call, and gives the options that it has within the scope.
    fn enter(&self, operation: Operation, own: &CallOptions) -> CallOptions {
        if operation.collective().is_some() {
            self.calls.fetch_add(1, Ordering::Relaxed);
        }
        let left = self.deadline.saturating_duration_since(Instant::now());
        let timeout = own.timeout.unwrap_or(left).min(left);
        CallOptions { timeout: Some(timeout), ..own.or(&self.options) }
    }
}

impl OpenScope for SoloTurn {
    fn id(&self) -> ScopeId {
        self.id
    }

    fn parent(&self) -> &Arc<ParentCall> {
        &self.parent
    }

    fn numbers(&self) -> Range<u64> {
        0..self.calls.load(Ordering::Relaxed)
    }
}

impl Communicator for SoloScope {
    fn group(&self) -> &Group {
        self.solo.group()
    }

    fn execute(&self, call: &mut Call<'_>) -> Result<Outcome> {
        refuse_device(call.memory())?;
        call.options = self.enter(call.descriptor.operation, &call.options);
        self.solo.execute(call)
    }

    fn submit(&self, mut call: OwnedCall) -> Work {
        if call.memory() == MemoryKind::Host {
            call.options = self.enter(call.descriptor.operation, &call.options);
        }
        self.solo.submit(call)
    }

    fn backend(&self) -> &'static str {
        self.solo.backend()
    }

    fn supports(&self, descriptor: &Descriptor, options: &CallOptions, memory: MemoryKind) -> Result<()> {
        self.solo.supports(descriptor, options, memory)
    }

    fn subgroup(&self, ranks: &[u32]) -> Result<Option<Arc<dyn Communicator>>> {
        self.solo.subgroup(ranks)
    }

    fn duplicate(&self) -> Result<Arc<dyn Communicator>> {
        self.solo.duplicate()
    }

    fn shrink(&self) -> Result<Shrunk> {
        self.solo.shrink()
    }

    fn agree(&self, flag: bool) -> Result<bool> {
        self.solo.agree(flag)
    }

    fn revoke(&self, cause: Error) -> Result<()> {
        self.solo.revoke(cause)
    }

    fn abort(&self) -> Result<()> {
        self.solo.abort()
    }
}

/// Refuses device memory, before a call counts.
fn refuse_device(memory: MemoryKind) -> Result<()> {
    match memory {
        MemoryKind::Host => Ok(()),
        MemoryKind::Device => Err(Error::no_device(BACKEND)),
    }
}

fn collective(call: &mut Call<'_>) -> Result<Outcome> {
    let factor = match call.descriptor.op {
        Some(ReduceOp::PreMulSum(factor)) => Some(factor),
        _ => None,
    };
    let bytes = match &mut call.buffers {
        Buffers::InOut(BufferMut::Host(buffer)) => {
            scale(buffer, call.descriptor.dtype, factor);
            buffer.bytes()
        }
        Buffers::Separate { input: Buffer::Host(input), output: BufferMut::Host(output) } => {
            copy(input, output);
            scale(output, call.descriptor.dtype, factor);
            output.bytes()
        }
        _ => 0,
    };
    Ok(Outcome::done(bytes as u64, ALGORITHM))
}

fn copy(input: &Segments<'_>, output: &mut SegmentsMut<'_>) {
    match (input, output) {
        (Segments::One(from), SegmentsMut::One(to)) => to.copy_from_slice(from),
        (input, output) => output.write_front(input),
    }
}

fn scale(buffer: &mut SegmentsMut<'_>, dtype: DType, factor: Option<f64>) {
    if let Some(factor) = factor {
        buffer.for_each(|slice| scale_slice(slice, dtype, factor));
    }
}

fn scale_slice(bytes: &mut [u8], dtype: DType, factor: f64) {
    // INVARIANT: `check` has called `ReduceOp::accepts`, which admits floats and complex numbers only.
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
