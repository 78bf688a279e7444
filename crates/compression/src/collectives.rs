//! The calls that users make, on every communicator. Arguments are checked here, once.

use std::sync::Arc;

use unisono_collectives::skips;
use unisono_communicator::{
    CallOptions, Communicator, DType, Descriptor, Element, Error, ParentCall, Place, ReduceOp, Result, Scope,
    Site,
};

use crate::auto;
use crate::data::{Apart, OnDevice};
use crate::device::{DeviceMemory, KernelDevice};
use crate::elements::{Elements, FloatType};
use crate::exchange;
use crate::route::Route;
use crate::state::{CompressionState, Shape, chunk};
use crate::work::CompressedWork;

/// Compressed collectives, on every communicator: one call made of an all-to-all and an all-gather for each piece, with
/// one deadline and one name in errors.
///
/// Every rank calls with a state of an equal codec for a vector, or vectors, of the same lengths.
///
/// # Errors
/// [`Error::NonFinite`] on every rank when one has a NaN, an infinity or a number that is too large for the codec, or
/// when the sum is: buffers, residuals and communicator are as before. [`Error::Unsupported`] for operators but Sum and
/// Avg, and for elements but f32, f16 and bf16. [`Error::InvalidArgument`] for a state of another length, element type
/// or communicator. [`Error::Mismatch`] when ranks have different codecs or lengths, or not all make a compressed call.
/// [`Error::Corrupted`] when an encoded part came damaged. After any error the buffer and the residuals are as before,
/// but for the buffer of a call that is exact because its state has declined ([`CompressionState::or_exact`]): after
/// [`Error::NonFinite`] it holds the sum, after other errors it is undefined.
pub trait CompressedCollectives: Communicator {
    /// Every rank's `buffer` becomes about the sum or the mean of all, the same bits everywhere. The compression error
    /// stays in `state`, and comes with the next call.
    ///
    /// Cost: 2 (p-1)/p n elements sent per rank, as by an exact all-reduce, at the codec's size for each; encoding and
    /// decoding read and write each element about as often as three copies do. docs/compression.md says when it pays.
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*, unisono_compression as compression}; }
    /// use unisono::{ReduceOp, Solo};
    /// use unisono::compression::{CompressedCollectives, CompressionState, Int8};
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
        let site = Site::caller();
        let vector = Elements::new(FloatType::of(T::DTYPE)?, [bytemuck::cast_slice_mut(buffer)]);
        all_reduce(self, T::DTYPE, vector, op, state, site)
    }

    /// [`CompressedCollectives::compressed_all_reduce`] of many buffers as if they followed each other in one, without
    /// copying them together. The state is for their total length.
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*, unisono_compression as compression}; }
    /// use unisono::{ReduceOp, Solo};
    /// use unisono::compression::{CompressedCollectives, CompressionState, SignL1};
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
        all_reduce(self, T::DTYPE, Elements::new(float, bytes), op, state, site)
    }

    /// [`CompressedCollectives::compressed_all_reduce`] of a vector of f32 in the memory of a device, where it stays;
    /// the state was made on that device ([`CompressionState::on`]).
    #[track_caller]
    fn compressed_all_reduce_on<D: KernelDevice>(
        &self,
        vector: &mut D::Memory,
        op: ReduceOp,
        state: &mut CompressionState<D>,
    ) -> Result<()> {
        let site = Site::caller();
        let Some(scope) = open(self, DType::F32, &Shape::Whole(vector.words()), Some(op), state, site)?
        else {
            return Ok(());
        };
        let device = state.device.clone();
        let weight = weight(op, self.group().size())?;
        exchange::run(&scope, &mut OnDevice { device: &device, vector }, weight, state, site)
    }

    /// Sums vectors, and gives each rank its share of each: of n elements rank r gets `ceil(n / p)`, from element
    /// `r x ceil(n / p)` on, but for the last ranks, which get fewer or none. Inputs stay as they are; the outputs are
    /// undefined after an error.
    ///
    /// It is the first half of an all-reduce: (p-1)/p n elements sent per rank, and one encoder's loss. In two levels
    /// ([`crate::Route`]) hosts sum first, and the mean is still the mean of all ranks.
    ///
    /// ```
    /// use std::sync::Arc;
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*, unisono_compression as compression}; }
    /// use unisono::{ReduceOp, Solo};
    /// use unisono::compression::{CompressedCollectives, CompressionState, Int8};
    /// let comm = Solo::new();
    /// let mut state = CompressionState::reduce_scatter::<f32>(&comm, Arc::new(Int8::default()), &[3, 1])?;
    /// let (mut weights, mut bias) = ([0.0f32; 3], [0.0f32]);
    /// let outputs: &mut [&mut [f32]] = &mut [&mut weights, &mut bias];
    /// comm.compressed_reduce_scatter(&[&[1.0, 2.0, 3.0], &[-1.0]], outputs, ReduceOp::Avg, &mut state)?;
    /// assert!((weights[1] - 2.0).abs() < 0.02 && (bias[0] + 1.0).abs() < 0.01);
    /// # Ok::<(), unisono_communicator::Error>(())
    /// ```
    #[track_caller]
    fn compressed_reduce_scatter<T: Element>(
        &self,
        inputs: &[&[T]],
        outputs: &mut [&mut [T]],
        op: ReduceOp,
        state: &mut CompressionState,
    ) -> Result<()> {
        let site = Site::caller();
        let float = FloatType::of(T::DTYPE)?;
        let lengths: Vec<usize> = inputs.iter().map(|input| input.len()).collect();
        let (own, ranks) = (self.group().rank() as usize, self.group().size() as usize);
        check_outputs(outputs, lengths.iter().map(|length| chunk(*length, own, ranks).len()))
            .map_err(|error| error.in_call(&format_args!("compressed_reduce_scatter{}", site.at())))?;
        let Some(scope) = open(self, T::DTYPE, &Shape::Vectors(lengths), Some(op), state, site)? else {
            return Ok(());
        };
        let chunks = |rank: usize| inputs.iter().map(move |input| &input[chunk(input.len(), rank, ranks)]);
        let input =
            Elements::new(float, (0..ranks).flat_map(chunks).map(|chunk| bytemuck::cast_slice(chunk)));
        let output = Elements::new(float, outputs.iter_mut().map(|output| bytemuck::cast_slice_mut(output)));
        let mut data = Apart { input, input_at: 0, output, output_at: state.owned().start };
        exchange::run(&scope, &mut data, weight(op, self.group().size())?, state, site)
    }

    /// Every rank's `output` becomes all ranks' inputs in rank order, each about as it was: `input` has as many
    /// elements as the state says of this rank, `output` the elements of all. All ranks decode the same bytes, also
    /// their sender, so that outputs are equal. It is the quantised all-gather of weights (ZeRO++'s qwZ; Wang et al.
    /// 2023, section 4.1).
    ///
    /// ```
    /// use std::sync::Arc;
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*, unisono_compression as compression}; }
    /// use unisono::Solo;
    /// use unisono::compression::{CompressedCollectives, CompressionState, Int8};
    /// let comm = Solo::new();
    /// let mut state = CompressionState::all_gather::<f32>(&comm, Arc::new(Int8::default()), &[2])?;
    /// let mut weights = [0.0f32; 2];
    /// comm.compressed_all_gather(&[1.0, -0.5], &mut weights, &mut state)?;
    /// assert!((weights[1] + 0.5).abs() < 0.005);
    /// # Ok::<(), unisono_communicator::Error>(())
    /// ```
    #[track_caller]
    fn compressed_all_gather<T: Element>(
        &self,
        input: &[T],
        output: &mut [T],
        state: &mut CompressionState,
    ) -> Result<()> {
        let site = Site::caller();
        let refused = |error: Error| error.in_call(&format_args!("compressed_all_gather{}", site.at()));
        let float = FloatType::of(T::DTYPE)?;
        let Shape::Shares(shares) = &state.shape else {
            let problem = format!("is for {}, the call is all_gather", state.shape.collective());
            return Err(refused(Error::invalid("state", problem)));
        };
        let own = shares.get(self.group().rank() as usize).copied().unwrap_or_default();
        for (argument, has, needs) in
            [("input", input.len(), own), ("output", output.len(), state.elements())]
        {
            if has != needs {
                let problem = format!("has {has} elements, by its state the call needs {needs}");
                return Err(refused(Error::invalid(argument, problem)));
            }
        }
        let Some(scope) = open(self, T::DTYPE, &state.shape.clone(), None, state, site)? else {
            return Ok(());
        };
        let input = Elements::new(float, [bytemuck::cast_slice::<T, u8>(input)]);
        let output = Elements::new(float, [bytemuck::cast_slice_mut::<T, u8>(output)]);
        let mut data = Apart { input, input_at: state.owned().start, output, output_at: 0 };
        exchange::run(&scope, &mut data, 1.0, state, site)
    }

    /// [`CompressedCollectives::compressed_all_reduce`] on a thread of its own. Buffer and state move in, and come back
    /// from the handle, also after an error.
    ///
    /// Until it ends, the communicator serves no other collective of this rank but queued ones
    /// ([`CallOptions::queued`]); see [`Scope`]. It waits for asynchronous calls that were submitted before.
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*, unisono_compression as compression}; }
    /// use unisono::{ReduceOp, Solo};
    /// use unisono::compression::{CompressedCollectives, CompressionState, SignL1};
    /// let comm = Solo::new();
    /// let state = CompressionState::new::<f32>(&comm, SignL1::default(), 2)?;
    /// let work = comm.compressed_all_reduce_async(vec![1.0f32, 3.0], ReduceOp::Avg, state);
    /// let (result, gradients, state) = work.wait();
    /// result?;
    /// assert_eq!((gradients, &*state.residual()), (vec![2.0, 2.0], &[-1.0, 1.0][..]));
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
        let shape = Shape::Whole(buffer.len());
        let opened =
            float.and_then(|float| Ok((float, open(self, T::DTYPE, &shape, Some(op), &state, site)?)));
        match opened {
            Err(error) => CompressedWork::finished(Err(error), buffer, state),
            Ok((_, None)) => CompressedWork::finished(Ok(()), buffer, state),
            Ok((float, Some(scope))) => {
                scope.hand_over();
                CompressedWork::start(buffer, state, move |buffer, state| {
                    let mut vector = Elements::new(float, [bytemuck::cast_slice_mut::<T, u8>(buffer)]);
                    if auto::is_exact(&scope, &mut vector, op, state, site)? {
                        return Ok(());
                    }
                    exchange::run(&scope, &mut vector, weight(op, scope.group().size())?, state, site)
                })
            }
        }
    }
}

impl<C: Communicator + ?Sized> CompressedCollectives for C {}

/// # Errors
/// [`Error::InvalidArgument`] unless each output is as long as this rank's share.
fn check_outputs<T>(outputs: &[&mut [T]], shares: impl ExactSizeIterator<Item = usize>) -> Result<()> {
    let (count, vectors) = (outputs.len(), shares.len());
    if count != vectors {
        return Err(Error::invalid("outputs", format!("are {count}, there are {vectors} inputs")));
    }
    for (index, (output, share)) in outputs.iter().zip(shares).enumerate() {
        if output.len() != share {
            let length = output.len();
            let problem =
                format!("{index} has {length} elements, this rank's share of input {index} has {share}");
            return Err(Error::invalid("outputs", problem));
        }
    }
    Ok(())
}

/// An all-reduce in memory of the host.
fn all_reduce<C: Communicator + ?Sized>(
    comm: &C,
    dtype: DType,
    mut vector: Elements<&mut [u8]>,
    op: ReduceOp,
    state: &mut CompressionState,
    site: Site,
) -> Result<()> {
    let Some(scope) = open(comm, dtype, &Shape::Whole(vector.count()), Some(op), state, site)? else {
        return Ok(());
    };
    if auto::is_exact(&scope, &mut vector, op, state, site)? {
        return Ok(());
    }
    exchange::run(&scope, &mut vector, weight(op, comm.group().size())?, state, site)
}

/// Checks the arguments, and takes the communicator's turn. `None` where the operation that this one stands in for is
/// switched off.
fn open<C: Communicator + ?Sized, D: KernelDevice>(
    comm: &C,
    dtype: DType,
    shape: &Shape,
    op: Option<ReduceOp>,
    state: &CompressionState<D>,
    site: Site,
) -> Result<Option<Scope>> {
    let elements = shape.elements().unwrap_or(usize::MAX) as u64;
    let place =
        if op.is_some() && matches!(shape, Shape::Whole(_)) { Place::InPlace } else { Place::Separate };
    let descriptor = Descriptor { op, place, ..Descriptor::new(shape.collective(), dtype, elements) };
    // Short enough for the longest tag.
    let kind = match (shape, state.auto, state.route) {
        (Shape::Whole(_), Some(_), Route::Direct) => "auto_all_reduce",
        (Shape::Whole(_), Some(_), Route::TwoLevels) => "auto_two_level_reduce",
        (Shape::Whole(_), None, Route::Direct) => "compressed_all_reduce",
        (Shape::Whole(_), None, Route::TwoLevels) => "two_level_all_reduce",
        (Shape::Whole(_), Some(_), Route::SummedCodes) => "auto_summed_reduce",
        (Shape::Whole(_), None, Route::SummedCodes) => "summed_all_reduce",
        (Shape::Vectors(_), _, Route::Direct | Route::SummedCodes) => "reduce_scatter",
        (Shape::Vectors(_), _, Route::TwoLevels) => "two_level_scatter",
        (Shape::Shares(_), _, _) => "all_gather",
    };
    let name = format!("{kind}/{}", state.codec().tag());
    let sizes = shape.sizes().map(Arc::new);
    let parent = ParentCall { site: Some(site), sizes, ..ParentCall::new(&name, descriptor) };
    let opened = op.map_or(Ok(1.0), |op| weight(op, comm.size()));
    let opened = opened.and_then(|_| state.check(comm.group(), dtype, shape));
    let opened = opened.and_then(|()| {
        let skips = skips(comm, descriptor.operation)?;
        // Where a vendor's library refuses memory of the host, the companion makes the scope's calls on it, also for
        // vectors on a device.
        let options = CallOptions::new().host_by_companion();
        (!skips).then(|| comm.scope(parent.clone(), &options)).transpose()
    });
    opened.map_err(|error| error.in_call(&parent.with_site()))
}

/// The factor of a sum over `ranks`.
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
