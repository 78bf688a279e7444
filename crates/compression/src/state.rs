//! The memory of a compressed call for the next one: the residuals of this rank, in two generations.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use unisono_communicator::{
    Collective, Communicator, CostModel, DType, Element, Error, Group, JobRank, LengthList, Result, Sizes,
};

use crate::auto::Auto;
use crate::codec::Codec;
use crate::device::KernelDevice;
use crate::elements::FloatType;
use crate::host::HostKernels;
use crate::layout::{Layout, Part};
use crate::message_memory::MessageMemory;
use crate::pool::Pool;
use crate::residuals::{Kept, Residuals};
use crate::route::{Route, Teams};

/// Elements of f32 that memory can have.
const ELEMENTS_MAX: usize = isize::MAX as usize / size_of::<f32>();

/// The ranks that a state belongs to.
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

/// The vectors that a state is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// An all-reduce of so many elements.
    Whole(usize),
    /// A reduce-scatter of vectors of these lengths.
    Vectors(Vec<usize>),
    /// An all-gather of so many elements of each rank.
    Shares(Vec<usize>),
}

impl Shape {
    pub(crate) fn collective(&self) -> Collective {
        match self {
            Shape::Whole(_) => Collective::AllReduce,
            Shape::Vectors(_) => Collective::ReduceScatter,
            Shape::Shares(_) => Collective::AllGather,
        }
    }

    /// Whether there is an encoder of vectors, and one of sums or of the own share.
    pub(crate) fn encoders(&self) -> [bool; 2] {
        match self {
            Shape::Whole(_) => [true, true],
            Shape::Vectors(_) => [true, false],
            Shape::Shares(_) => [false, true],
        }
    }

    /// Elements of all vectors, if memory can have so many.
    pub(crate) fn elements(&self) -> Option<usize> {
        let total = match self {
            Shape::Whole(elements) => Some(*elements),
            Shape::Vectors(lengths) | Shape::Shares(lengths) => {
                lengths.iter().try_fold(0usize, |sum, length| sum.checked_add(*length))
            }
        };
        total.filter(|total| *total <= ELEMENTS_MAX)
    }

    /// The lengths that ranks compare, besides the number of all elements.
    pub(crate) fn sizes(&self) -> Option<Sizes> {
        let list = |lengths: &[usize]| LengthList::new(lengths.iter().map(|length| *length as u64));
        match self {
            Shape::Whole(_) => None,
            Shape::Vectors(lengths) => Some(Sizes::Segments(list(lengths))),
            Shape::Shares(shares) => Some(Sizes::PerRank(list(shares))),
        }
    }

    pub(crate) fn layout(&self, codec: &dyn Codec, ranks: usize, teams: Teams) -> Layout {
        match self {
            Shape::Whole(elements) => Layout::even(codec, *elements, ranks, teams),
            Shape::Vectors(lengths) => {
                let share = |rank| lengths.iter().map(|length| chunk(*length, rank, ranks).len()).sum();
                Layout::of_shares(codec, &(0..ranks).map(share).collect::<Vec<usize>>(), teams)
            }
            Shape::Shares(shares) => Layout::of_shares(codec, shares, teams),
        }
    }
}

/// The elements of a vector of `length` that `rank` gets in a reduce-scatter: as many as every other, but for the last
/// ranks, which get fewer or none.
pub(crate) fn chunk(length: usize, rank: usize, ranks: usize) -> Range<usize> {
    let chunk = length.div_ceil(ranks);
    (chunk * rank).min(length)..(chunk * (rank + 1)).min(length)
}

/// The memory of one vector between compressed calls on this rank: the codec, and its compression error so far. Each
/// vector needs a state of its own on every rank, made for the same communicator.
///
/// Memory: two generations of residuals, for a codec with error feedback 8 bytes for each element of the vector and
/// `8 / ranks` bytes more for the sums of this rank; nothing for others. In two levels ([`Route`]) a rank encodes, and
/// owes, only its part of the vector. The messages of a call, a few parts of the encoded vector, keep their memory for
/// the next one.
///
/// A state is for one kind of call: an all-reduce ([`CompressionState::new`]), a reduce-scatter
/// ([`CompressionState::reduce_scatter`]) or an all-gather ([`CompressionState::all_gather`]). Residuals are in the
/// memory of a device `D`, with the kernels: the host's, unless it was made [`CompressionState::on`] another.
///
/// Residuals are f32 for every type of vector. The residuals of the vector's own rank are the errors of its encoder;
/// the owner's are the errors of the encoder of the sum, and are in units of the sum also if calls average.
///
/// ```
/// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*, unisono_compression as compression}; }
/// use unisono::{ReduceOp, Solo};
/// use unisono::compression::{CompressedCollectives, CompressionState, SignL1};
/// let comm = Solo::new();
/// let mut state = CompressionState::new::<f32>(&comm, SignL1::default(), 4)?;
/// let mut gradients = [1.0f32, -3.0, 2.0, -2.0];
/// comm.compressed_all_reduce(&mut gradients, ReduceOp::Avg, &mut state)?;
/// // The signs, and the mean magnitude; the rest is owed.
/// assert_eq!(gradients, [2.0, -2.0, 2.0, -2.0]);
/// assert_eq!(*state.residual(), [-1.0, -1.0, 0.0, 0.0]);
/// # Ok::<(), unisono_communicator::Error>(())
/// ```
#[derive(Debug)]
pub struct CompressionState<D: KernelDevice = HostKernels> {
    pub(crate) device: D,
    pub(crate) codec: Arc<dyn Codec>,
    pub(crate) dtype: DType,
    pub(crate) shape: Shape,
    pub(crate) route: Route,
    pub(crate) members: Members,
    pub(crate) layout: Layout,
    /// The residuals of this rank's encoder.
    pub(crate) worker: Residuals<D::Memory>,
    /// The residuals of the encoder of the sum.
    pub(crate) owner: Residuals<D::Memory>,
    /// The number of calls that have succeeded: one of the sources of random bits.
    pub(crate) calls: u64,
    /// The call that a step back would take back; nothing before the first call on the communicator of `members`.
    pub(crate) last_call: Option<LastCall>,
    /// The communicator of survivors to which this state could not go, because more ranks have failed.
    pub(crate) failed_rebind: Option<Members>,
    pub(crate) auto: Option<Auto>,
    pub(crate) pool: Pool,
    pub(crate) message_memory: MessageMemory,
}

/// The kind of the last call that succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LastCall {
    Compressed,
    /// By a state that has declined; residuals are as before it.
    Exact,
}

impl CompressionState {
    /// A state without residuals for all-reduces of vectors of `elements` elements of `T` on `comm`. No communication.
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
        CompressionState::on_host(comm, codec, dtype, Shape::Whole(elements))
    }

    /// A state for reduce-scatters of vectors of these lengths
    /// ([`crate::CompressedCollectives::compressed_reduce_scatter`]). No communication.
    ///
    /// # Errors
    /// As [`CompressionState::new`]; [`Error::Unsupported`] for a codec that fills vectors up.
    pub fn reduce_scatter<T: Element>(
        comm: &(impl Communicator + ?Sized),
        codec: Arc<dyn Codec>,
        lengths: &[usize],
    ) -> Result<CompressionState> {
        CompressionState::on_host(comm, codec, T::DTYPE, Shape::Vectors(lengths.to_vec()))
    }

    /// A state for all-gathers of `shares[r]` elements of each rank r
    /// ([`crate::CompressedCollectives::compressed_all_gather`]). No communication.
    ///
    /// # Errors
    /// As [`CompressionState::reduce_scatter`]; [`Error::InvalidArgument`] unless each rank has one share.
    pub fn all_gather<T: Element>(
        comm: &(impl Communicator + ?Sized),
        codec: Arc<dyn Codec>,
        shares: &[usize],
    ) -> Result<CompressionState> {
        let ranks = comm.size() as usize;
        if shares.len() != ranks {
            return Err(Error::invalid("shares", format!("has {} of {ranks} ranks", shares.len())));
        }
        CompressionState::on_host(comm, codec, T::DTYPE, Shape::Shares(shares.to_vec()))
    }

    fn on_host(
        comm: &(impl Communicator + ?Sized),
        codec: Arc<dyn Codec>,
        dtype: DType,
        shape: Shape,
    ) -> Result<CompressionState> {
        FloatType::of(dtype)?;
        let elements = shape.elements().unwrap_or(ELEMENTS_MAX);
        let device = HostKernels::of_call(comm.group(), elements);
        CompressionState::build(comm.group(), &comm.cost_model(), device, codec, dtype, shape)
    }

    /// The residual of each element that this rank encodes: in two levels its part of the vector. Empty for a codec
    /// without error feedback; longer than the vector for a codec that fills it up. Decoded for [`crate::LoCo`].
    pub fn residual(&self) -> Cow<'_, [f32]> {
        owed_on_host(&self.worker)
    }

    /// The residual of each element of [`CompressionState::owned`] in the encoder of the sum, in units of the sum.
    /// Empty for a codec without error feedback.
    pub fn owner_residual(&self) -> Cow<'_, [f32]> {
        owed_on_host(&self.owner)
    }
}

fn owed_on_host(residuals: &Residuals<Vec<u32>>) -> Cow<'_, [f32]> {
    match residuals.kept {
        Kept::Exactly => Cow::Borrowed(bytemuck::cast_slice(residuals.current())),
        #[expect(clippy::expect_used, reason = "memory of the host; without memory the process would end")]
        Kept::Averaged(_) => Cow::Owned(residuals.decoded(residuals.current().clone()).expect("memory")),
    }
}

impl<D: KernelDevice> CompressionState<D> {
    /// A state for all-reduces of `elements` f32 in the memory of a device, where its residuals are too. No
    /// communication.
    ///
    /// # Errors
    /// As [`CompressionState::new`], [`Error::Unsupported`] for a codec that fills vectors up or has no kernels on the
    /// device, and the errors of the device.
    pub fn on(
        comm: &(impl Communicator + ?Sized),
        device: D,
        codec: Arc<dyn Codec>,
        elements: usize,
    ) -> Result<CompressionState<D>> {
        if fills_up(&*codec) {
            return Err(Error::Unsupported {
                what: format!("{codec:?}, which fills vectors up, on a device"),
                backend: "compression",
                instead: Some("a codec that does not".to_owned()),
            });
        }
        device.check_codec(&*codec)?;
        let shape = Shape::Whole(elements);
        CompressionState::build(comm.group(), &comm.cost_model(), device, codec, DType::F32, shape)
    }

    fn build(
        group: &Group,
        model: &CostModel,
        device: D,
        codec: Arc<dyn Codec>,
        dtype: DType,
        shape: Shape,
    ) -> Result<CompressionState<D>> {
        let Some(elements) = shape.elements() else {
            let problem = format!("more than {ELEMENTS_MAX}, which no memory has");
            return Err(Error::invalid("elements", problem));
        };
        if fills_up(&*codec) && !matches!(shape, Shape::Whole(_)) {
            return Err(Error::Unsupported {
                what: format!("{} of {codec:?}, which fills vectors up", shape.collective()),
                backend: "compression",
                instead: Some("a codec that does not".to_owned()),
            });
        }
        let route = match shape {
            Shape::Whole(_) | Shape::Vectors(_) => {
                Route::cheaper(model, group, elements, codec.encoded_words(elements))
            }
            // Nothing is summed.
            Shape::Shares(_) => Route::Direct,
        };
        let members = Members::of(group);
        let layout = shape.layout(&*codec, members.ranks.len(), Teams::new(route, group));
        let [worker, owner] = owed(&device, &*codec, Kept::Exactly, &shape, &layout, members.own)?;
        let (calls, last_call, failed_rebind, auto, pool) = Default::default();
        Ok(CompressionState {
            device,
            codec,
            dtype,
            shape,
            route,
            members,
            layout,
            worker,
            owner,
            calls,
            last_call,
            failed_rebind,
            auto,
            pool,
            message_memory: MessageMemory::Host,
        })
    }

    /// The way of elements to the ranks that sum them: the cheaper way by the prices of the communicator's network,
    /// unless [`CompressionState::by`] has chosen.
    pub fn route(&self) -> Route {
        self.route
    }

    /// The codec.
    pub fn codec(&self) -> &dyn Codec {
        &*self.codec
    }

    /// Elements of the vector, or of all vectors together.
    pub fn elements(&self) -> usize {
        self.layout.elements
    }

    /// The number of calls that have succeeded with it.
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// The elements that this rank sums, or sends in an all-gather.
    pub fn owned(&self) -> Range<usize> {
        self.layout.share(self.members.own)
    }

    /// The elements that this rank encodes for their owners, in the order of its residual: all of them, but in two
    /// levels its part of its host's elements.
    pub fn encoded(&self) -> Vec<Range<usize>> {
        let mut ranges: Vec<Range<usize>> = Vec::new();
        for owner in self.layout.teams.owners(self.members.own) {
            let share = self.layout.share(owner);
            match ranges.last_mut().filter(|last| last.end == share.start) {
                Some(last) => last.end = share.end,
                None => ranges.push(share),
            }
        }
        ranges
    }

    /// Memory of the residuals, in bytes.
    pub fn bytes(&self) -> usize {
        self.worker.bytes() + self.owner.bytes()
    }

    /// Forgets all residuals, as at the start of a training; also the generation for a step back to before the last
    /// call.
    ///
    /// # Errors
    /// The errors of the device; on the host there are none.
    pub fn reset(&mut self) -> Result<()> {
        for residuals in [&mut self.worker, &mut self.owner] {
            residuals.forget(&self.device)?;
            residuals.turn();
            residuals.forget(&self.device)?;
        }
        Ok(())
    }

    /// A call has ended.
    ///
    /// # Errors
    /// The errors of the device.
    pub(crate) fn end_call(&mut self, how: LastCall) -> Result<()> {
        self.calls += 1;
        self.last_call = Some(how);
        if how == LastCall::Exact {
            return Ok(());
        }
        for residuals in [&mut self.worker, &mut self.owner] {
            residuals.turn();
            if residuals.kept.is_reset_after(self.calls) {
                residuals.forget(&self.device)?;
            }
        }
        Ok(())
    }

    /// # Errors
    /// [`Error::InvalidArgument`] when the state was made for something else.
    pub(crate) fn check(&self, group: &Group, dtype: DType, shape: &Shape) -> Result<()> {
        let wrong = |problem: String| Err(Error::invalid("state", problem));
        if self.shape.collective() != shape.collective() {
            let (own, call) = (self.shape.collective(), shape.collective());
            return wrong(format!("is for {own}, the call is {call}"));
        }
        if self.shape != *shape {
            return wrong(match (&self.shape, shape) {
                (Shape::Whole(own), Shape::Whole(call)) => {
                    format!("is for {own} elements, the call has {call}")
                }
                (own, call) => format!("is for {own:?}, the call has {call:?}"),
            });
        }
        if self.dtype != dtype {
            return wrong(format!("is for elements of {}, the call has {dtype}", self.dtype));
        }
        if self.members.epoch != group.epoch() {
            let epochs = format!("epoch {}, the call's has epoch {}", self.members.epoch, group.epoch());
            return wrong(format!(
                "is for a communicator of {epochs}; rebind() takes it along after a shrink"
            ));
        }
        if self.members.ranks != group.job_ranks() || self.members.own != group.rank() as usize {
            return wrong("is for a communicator of other ranks".to_owned());
        }
        Ok(())
    }
}

/// Whether a vector is longer for the codec than for the caller.
fn fills_up(codec: &dyn Codec) -> bool {
    codec.padded(1, 2) > 1
}

/// The residuals of the encoder and of the encoder of the sum, all zero.
pub(crate) fn owed<D: KernelDevice>(
    device: &D,
    codec: &dyn Codec,
    kept: Kept,
    shape: &Shape,
    layout: &Layout,
    own: usize,
) -> Result<[Residuals<D::Memory>; 2]> {
    let [encodes, sums] = shape.encoders().map(|is_used| is_used && codec.has_feedback());
    let parts = |is_used: bool, parts: &mut dyn Iterator<Item = Part>| {
        // Parts that are not used may be too many to look at.
        Residuals::zeroed(device, kept, parts.take(if is_used { usize::MAX } else { 0 }))
    };
    Ok([parts(encodes, &mut layout.collected(own))?, parts(sums, &mut layout.pieces_of(own))?])
}
