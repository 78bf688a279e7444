//! The calls that users make, on every communicator. Arguments are checked here, once.

use unisono_communicator::{
    CallOptions, Collective, Communicator, DType, Descriptor, Element, Error, ParentCall, Place, ReduceOp,
    Result, Scope, Site,
};

use crate::auto;
use crate::elements::{Elements, FloatType};
use crate::exchange;
use crate::kernels::HostKernels;
use crate::state::{CompressionState, LastCall};
use crate::work::CompressedWork;

/// Compressed collectives, on every communicator: one call made of an all-to-all and an all-gather for each piece, with
/// one deadline and one name in errors.
///
/// Every rank calls with a state of an equal codec for a vector of the same length.
///
/// # Errors
/// [`Error::NonFinite`] on every rank when one has a NaN or an infinity: buffers, residuals and communicator are as
/// before. [`Error::Unsupported`] for operators but Sum and Avg, and for elements but f32, f16 and bf16.
/// [`Error::InvalidArgument`] for a state of another length, element type or communicator. [`Error::Mismatch`] when
/// ranks have different codecs, or not all make a compressed call. [`Error::Corrupted`] when an encoded part came
/// damaged. After any error the buffer and the residuals are as before, but for the buffer of a call that is exact
/// because its state has declined ([`CompressionState::or_exact`]).
pub trait CompressedCollectives: Communicator {
    /// Every rank's `buffer` becomes about the sum or the mean of all, the same bits everywhere. What the codec leaves
    /// out is in `state`, and comes with the next call.
    ///
    /// Cost: 2 (p-1)/p n elements sent per rank, as by an exact all-reduce, at the codec's size for each; encoding and
    /// decoding read and write each element about as often as three copies do. docs/compression.md says when it pays.
    ///
    /// ```
    /// use unisono_communicator::{ReduceOp, Solo};
    /// use unisono_compression::{CompressedCollectives, CompressionState, Int8};
    /// let comm = Solo::new();
    /// let mut state = CompressionState::new::<f32>(&comm, Int8::default(), 3)?;
    /// let mut gradients = [0.5f32, -0.25, 1.0];
    /// comm.compressed_all_reduce(&mut gradients, ReduceOp::Sum, &mut state)?;
    /// assert!((gradients[1] + 0.25).abs() < 0.005);
    /// # Ok::<(), unisono_communicator::Error>(())
    /// ```
    #[track_caller]
    fn compressed_all_reduce<T: Element>(
        &self,
        buffer: &mut [T],
        op: ReduceOp,
        state: &mut CompressionState,
    ) -> Result<()> {
        self.compressed_all_reduce_coalesced(&mut [buffer], op, state)
    }

    /// [`CompressedCollectives::compressed_all_reduce`] of many buffers as if they followed each other in one, without
    /// copying them together. The state is for their total length.
    ///
    /// ```
    /// use unisono_communicator::{ReduceOp, Solo};
    /// use unisono_compression::{CompressedCollectives, CompressionState, SignL1};
    /// let comm = Solo::new();
    /// let (mut weights, mut biases) = ([1.0f32; 6], [-1.0f32; 2]);
    /// let mut state = CompressionState::new::<f32>(&comm, SignL1::default(), 8)?;
    /// let buffers: &mut [&mut [f32]] = &mut [&mut weights, &mut biases];
    /// comm.compressed_all_reduce_coalesced(buffers, ReduceOp::Sum, &mut state)?;
    /// assert_eq!((weights, biases), ([1.0; 6], [-1.0; 2]));
    /// # Ok::<(), unisono_communicator::Error>(())
    /// ```
    #[track_caller]
    fn compressed_all_reduce_coalesced<T: Element>(
        &self,
        buffers: &mut [&mut [T]],
        op: ReduceOp,
        state: &mut CompressionState,
    ) -> Result<()> {
        let site = Site::caller();
        let float = FloatType::of(T::DTYPE)?;
        let bytes = buffers.iter_mut().map(|buffer| bytemuck::cast_slice_mut(buffer));
        let mut vector = Elements::new(float, bytes);
        let scope = open(self, T::DTYPE, vector.count(), op, state)?;
        within(&*scope, &mut vector, op, state, site)
    }

    /// [`CompressedCollectives::compressed_all_reduce`] on a thread of its own. Buffer and state move in, and come back
    /// from the handle, also after an error.
    ///
    /// Until it ends, the communicator serves no other collective of this rank but queued ones
    /// ([`CallOptions::queued`]); see [`Scope`]. It waits for asynchronous calls that were submitted before.
    ///
    /// ```
    /// use unisono_communicator::{ReduceOp, Solo};
    /// use unisono_compression::{CompressedCollectives, CompressionState, SignL1};
    /// let comm = Solo::new();
    /// let state = CompressionState::new::<f32>(&comm, SignL1::default(), 2)?;
    /// let work = comm.compressed_all_reduce_async(vec![1.0f32, 3.0], ReduceOp::Avg, state);
    /// let (result, gradients, state) = work.wait();
    /// result?;
    /// assert_eq!((gradients, state.residual()), (vec![2.0, 2.0], &[-1.0, 1.0][..]));
    /// # Ok::<(), unisono_communicator::Error>(())
    /// ```
    #[track_caller]
    fn compressed_all_reduce_async<T: Element>(
        &self,
        buffer: Vec<T>,
        op: ReduceOp,
        state: CompressionState,
    ) -> CompressedWork<T> {
        let site = Site::caller();
        let float = FloatType::of(T::DTYPE);
        let opened = float.and_then(|float| Ok((float, open(self, T::DTYPE, buffer.len(), op, &state)?)));
        match opened {
            Err(error) => CompressedWork::finished(Err(error), buffer, state),
            Ok((float, scope)) => CompressedWork::start(buffer, state, move |buffer, state| {
                let mut vector = Elements::new(float, [bytemuck::cast_slice_mut(buffer)]);
                within(&*scope, &mut vector, op, state, site)
            }),
        }
    }
}

impl<C: Communicator + ?Sized> CompressedCollectives for C {}

/// Checks the arguments, and takes the communicator's turn.
fn open<C: Communicator + ?Sized>(
    comm: &C,
    dtype: DType,
    elements: usize,
    op: ReduceOp,
    state: &CompressionState,
) -> Result<Box<dyn Scope>> {
    weight(op, comm.group().size())?;
    state.check(comm.group(), dtype, elements)?;
    let descriptor = Descriptor {
        op: Some(op),
        place: Place::InPlace,
        ..Descriptor::new(Collective::AllReduce, dtype, elements as u64)
    };
    let name = if state.auto.is_some() { "auto_all_reduce" } else { "compressed_all_reduce" };
    let parent = ParentCall::new(&format!("{name}/{}", state.codec().tag()), descriptor);
    comm.scope(parent, &CallOptions::new())
}

/// What a sum over `ranks` is multiplied by.
fn weight(op: ReduceOp, ranks: u32) -> Result<f32> {
    match op {
        ReduceOp::Sum => Ok(1.0),
        ReduceOp::Avg => Ok(1.0 / ranks as f32),
        other => Err(Error::Unsupported {
            what: format!("the operator {other}"),
            backend: "compressed_all_reduce",
            instead: Some("sum or avg, or an exact all_reduce".to_owned()),
        }),
    }
}

/// The call, within its scope.
fn within(
    scope: &dyn Scope,
    vector: &mut Elements<'_>,
    op: ReduceOp,
    state: &mut CompressionState,
    site: Site,
) -> Result<()> {
    if auto::declines(scope, state, site)? {
        auto::exact(scope, vector, op, state.dtype, site)?;
        state.end_call(LastCall::Exact);
        return Ok(());
    }
    let kernels = HostKernels::of_call(scope.group(), vector.count());
    let weight = weight(op, scope.group().size())?;
    exchange::run(scope, &kernels, vector, weight, state, site)
}
