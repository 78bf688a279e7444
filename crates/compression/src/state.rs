//! What a compressed call keeps for the next one: the residuals of this rank, in two generations.

use std::ops::Range;
use std::sync::Arc;

use unisono_communicator::{Communicator, DType, Element, Error, Group, JobRank, Result, zeroed};

use crate::auto::Auto;
use crate::codec::Codec;
use crate::elements::FloatType;
use crate::layout::Layout;
use crate::pool::Pool;

/// Elements of f32 that memory can have.
const ELEMENTS_MAX: usize = isize::MAX as usize / size_of::<f32>();

/// The residuals of one stage. The last call has read one generation and written the other.
#[derive(Debug, Default)]
pub(crate) struct Generations {
    memory: [Vec<f32>; 2],
    current: usize,
}

impl Generations {
    pub(crate) fn zeroed(elements: usize) -> Result<Generations> {
        let mut memory = [zeroed(elements)?, zeroed(elements)?];
        // Written now, a page is there; read first, it would be the system's page of zeros and be copied later.
        memory.iter_mut().for_each(|memory: &mut Vec<f32>| memory.fill(0.0));
        Ok(Generations { memory, current: 0 })
    }

    pub(crate) fn current(&self) -> &[f32] {
        &self.memory[self.current]
    }

    /// What the last call has read, until the next one writes.
    pub(crate) fn previous(&self) -> &[f32] {
        &self.memory[1 - self.current]
    }

    pub(crate) fn current_mut(&mut self) -> &mut [f32] {
        &mut self.memory[self.current]
    }

    /// The current generation, and memory for the next.
    pub(crate) fn both(&mut self) -> (&[f32], &mut [f32]) {
        let [first, second] = &mut self.memory;
        if self.current == 0 { (first, second) } else { (second, first) }
    }

    /// The next generation becomes the current one.
    pub(crate) fn turn(&mut self) {
        self.current = 1 - self.current;
    }

    pub(crate) fn bytes(&self) -> usize {
        self.memory.iter().map(|memory| memory.len() * size_of::<f32>()).sum()
    }
}

/// Which ranks a state belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Members {
    pub(crate) ranks: Vec<JobRank>,
    pub(crate) own: usize,
    pub(crate) epoch: u32,
}

impl Members {
    pub(crate) fn of(group: &Group) -> Members {
        Members { ranks: group.job_ranks().to_vec(), own: group.rank() as usize, epoch: group.epoch() }
    }
}

/// What compressed all-reduces of one vector keep between calls on this rank: the codec, and what it has left out so
/// far. Each vector needs a state of its own on every rank, made for the same communicator.
///
/// Memory: two generations of residuals, for a codec with error feedback 8 bytes for each element of the vector and
/// 8 / ranks bytes for those that this rank sums; nothing for others. The messages of a call, a few parts of the
/// encoded vector, keep their memory for the next one.
///
/// Residuals are f32 whatever the vector is. Those of the vector's own rank are what its encoder left out; those of the
/// owner are what the encoder of the sum left out, and are in units of the sum also if calls average.
///
/// ```
/// use unisono_communicator::{ReduceOp, Solo};
/// use unisono_compression::{CompressedCollectives, CompressionState, SignL1};
/// let comm = Solo::new();
/// let mut state = CompressionState::new::<f32>(&comm, SignL1::default(), 4)?;
/// let mut gradients = [1.0f32, -3.0, 2.0, -2.0];
/// comm.compressed_all_reduce(&mut gradients, ReduceOp::Avg, &mut state)?;
/// // The signs, and the mean magnitude; the rest is owed.
/// assert_eq!(gradients, [2.0, -2.0, 2.0, -2.0]);
/// assert_eq!(state.residual(), [-1.0, -1.0, 0.0, 0.0]);
/// # Ok::<(), unisono_communicator::Error>(())
/// ```
#[derive(Debug)]
pub struct CompressionState {
    pub(crate) codec: Arc<dyn Codec>,
    pub(crate) dtype: DType,
    pub(crate) members: Members,
    pub(crate) layout: Layout,
    pub(crate) worker: Generations,
    pub(crate) owner: Generations,
    /// How many calls have succeeded: one of the sources of random bits.
    pub(crate) calls: u64,
    /// What a step back would take back; nothing before the first call on the communicator of `members`.
    pub(crate) last_call: Option<LastCall>,
    /// The communicator of survivors to which this state could not go, because more ranks have failed.
    pub(crate) failed_rebind: Option<Members>,
    pub(crate) auto: Option<Auto>,
    pub(crate) pool: Pool,
}

/// How the last call that succeeded was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LastCall {
    Compressed,
    /// By a state that has declined; residuals are as before it.
    Exact,
}

impl CompressionState {
    /// A state without residuals for vectors of `elements` elements of `T` on `comm`. No communication.
    ///
    /// # Errors
    /// [`Error::Unsupported`] unless `T` is f32, f16 or bf16. [`Error::InvalidArgument`] for more elements than memory
    /// can have. [`Error::System`] when there is no memory.
    pub fn new<T: Element>(
        comm: &(impl Communicator + ?Sized),
        codec: impl Codec + 'static,
        elements: usize,
    ) -> Result<CompressionState> {
        CompressionState::with_codec(comm, Arc::new(codec), T::DTYPE, elements)
    }

    /// The same with a codec that is chosen at run time.
    ///
    /// # Errors
    /// As [`CompressionState::new`].
    pub fn with_codec(
        comm: &(impl Communicator + ?Sized),
        codec: Arc<dyn Codec>,
        dtype: DType,
        elements: usize,
    ) -> Result<CompressionState> {
        FloatType::of(dtype)?;
        if elements > ELEMENTS_MAX {
            return Err(Error::invalid(
                "elements",
                format!("{elements}, no memory has more than {ELEMENTS_MAX}"),
            ));
        }
        let members = Members::of(comm.group());
        let layout = Layout::new(&*codec, elements, members.ranks.len());
        let (mut worker, mut owner) = Default::default();
        if codec.has_feedback() {
            worker = Generations::zeroed(layout.padded)?;
            owner = Generations::zeroed(layout.share(members.own).len())?;
        }
        let (calls, last_call, failed_rebind, auto) = (0, None, None, None);
        Ok(CompressionState {
            codec,
            dtype,
            members,
            layout,
            worker,
            owner,
            calls,
            last_call,
            failed_rebind,
            auto,
            pool: Pool::default(),
        })
    }

    /// The codec.
    pub fn codec(&self) -> &dyn Codec {
        &*self.codec
    }

    /// Elements of the vector.
    pub fn elements(&self) -> usize {
        self.layout.elements
    }

    /// How many calls have succeeded with it.
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// What this rank's encoder owes to each element. Empty for a codec without error feedback; longer than the vector
    /// for one that fills it up.
    pub fn residual(&self) -> &[f32] {
        self.worker.current()
    }

    /// The elements that this rank sums.
    pub fn owned(&self) -> Range<usize> {
        self.layout.share(self.members.own)
    }

    /// What the encoder of the sum owes to each of [`CompressionState::owned`], in units of the sum. Empty for a codec
    /// without error feedback.
    pub fn owner_residual(&self) -> &[f32] {
        self.owner.current()
    }

    /// Memory of the residuals, in bytes.
    pub fn bytes(&self) -> usize {
        self.worker.bytes() + self.owner.bytes()
    }

    /// Forgets what is owed, as at the start of a training; also what a step back to before the last call would owe.
    pub fn reset(&mut self) {
        for residuals in [&mut self.worker, &mut self.owner] {
            residuals.memory.iter_mut().for_each(|memory| memory.fill(0.0));
        }
    }

    /// A call has ended.
    pub(crate) fn end_call(&mut self, how: LastCall) {
        if how == LastCall::Compressed {
            self.worker.turn();
            self.owner.turn();
        }
        self.calls += 1;
        self.last_call = Some(how);
    }

    /// # Errors
    /// [`Error::InvalidArgument`] when the state was made for something else.
    pub(crate) fn check(&self, group: &Group, dtype: DType, elements: usize) -> Result<()> {
        let wrong = |problem: String| Err(Error::invalid("state", problem));
        let own = self.layout.elements;
        if own != elements {
            return wrong(format!("is for {own} elements, the call has {elements}"));
        }
        if self.dtype != dtype {
            return wrong(format!("is for elements of {}, the call has {dtype}", self.dtype));
        }
        let members = Members::of(group);
        if self.members.epoch != members.epoch {
            let epochs = format!("epoch {}, the call's has epoch {}", self.members.epoch, members.epoch);
            return wrong(format!(
                "is for a communicator of {epochs}; rebind() takes it along after a shrink"
            ));
        }
        if self.members != members {
            return wrong("is for a communicator of other ranks".to_owned());
        }
        Ok(())
    }
}
