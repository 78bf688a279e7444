//! What tests of compressed calls have in common: inputs that are known to all, and a codec that can be watched.

use std::fmt;
use std::sync::Arc;

use unisono_communicator::{Buffer, BufferMut, Communicator, DType, ReduceOp, Result};
use unisono_compression::{
    Bf16, Codec, CodecKernels, CompressedCollectives, CompressionState, EncodeContext, Feedback, HostKernels,
    Int4, Int8, KernelDevice, SignL1, SignRms,
};
use unisono_engine::in_process;
use unisono_kernels::Kernels;

use crate::sample::mix;

/// What rank `rank` puts into call `call`: numbers that look random, in (-1, 1).
pub fn gradients(rank: u32, call: u64, elements: usize) -> Vec<f32> {
    let seed = mix(u64::from(rank) << 32 ^ call);
    let number = |index: u64| (mix(seed ^ index) >> 40) as f32 / (1u64 << 23) as f32 - 1.0;
    (0..elements as u64).map(number).collect()
}

/// The bits, which tell -0.0 from 0.0 and NaN from NaN.
pub fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// A state for f32.
pub fn state(comm: &dyn Communicator, codec: &Arc<dyn Codec>, elements: usize) -> CompressionState {
    CompressionState::with_codec(comm, codec.clone(), DType::F32, elements).unwrap()
}

/// Calls of [`averages`].
const CALLS: u64 = 3;

/// One of each kind.
pub fn codecs() -> [Arc<dyn Codec>; 5] {
    [
        Arc::new(SignL1::default()),
        Arc::new(SignRms::default()),
        Arc::new(Int8::default()),
        Arc::new(Int4::default()),
        Arc::new(Bf16),
    ]
}

/// The bits of the averages of [`gradients`] on a device, one call after the other, with the residuals carried along.
///
/// # Errors
/// Those of the device, and of the calls.
pub fn averages<D: KernelDevice>(
    comm: &dyn Communicator,
    mut state: CompressionState<D>,
    device: &D,
) -> Result<Vec<u32>> {
    let elements = state.elements();
    let mut vector = device.allocate(elements)?;
    let mut bits = Vec::new();
    for call in 0..CALLS {
        let own = gradients(comm.group().rank(), call, elements);
        device.write(bytemuck::cast_slice(&own), &mut vector, 0)?;
        comm.compressed_all_reduce_on(&mut vector, ReduceOp::Avg, &mut state)?;
        let mut result = vec![0; elements];
        device.read(&vector, 0, &mut result)?;
        bits.extend(result);
    }
    Ok(bits)
}

/// The same of all ranks by the processor.
///
/// # Panics
/// When a call fails.
pub fn averages_of_processor(ranks: u32, codec: &Arc<dyn Codec>, elements: usize) -> Vec<Vec<u32>> {
    in_process::run(ranks, |comm| {
        let device = HostKernels(Kernels::best());
        let state = CompressionState::on(&*comm, device, codec.clone(), elements).unwrap();
        averages(&*comm, state, &device).unwrap()
    })
}

/// What a codec is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodecStep {
    /// [`Codec::encode`].
    Encode,
    /// [`Codec::reduce_encode`].
    Reduce,
    /// [`Codec::decode`].
    Decode,
    /// [`Codec::accept`].
    Accept,
}

/// A codec like another one that says what it is asked for, before it does it.
pub struct WatchedCodec {
    inner: Arc<dyn Codec>,
    watch: Box<dyn Fn(CodecStep) + Send + Sync>,
}

impl WatchedCodec {
    /// `inner`, watched.
    pub fn shared(
        inner: Arc<dyn Codec>,
        watch: impl Fn(CodecStep) + Send + Sync + 'static,
    ) -> Arc<dyn Codec> {
        Arc::new(WatchedCodec { inner, watch: Box::new(watch) })
    }
}

impl fmt::Debug for WatchedCodec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "watched {:?}", self.inner)
    }
}

impl Codec for WatchedCodec {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn tag(&self) -> String {
        self.inner.tag()
    }

    fn block(&self) -> usize {
        self.inner.block()
    }

    fn encoded_words(&self, elements: usize) -> usize {
        self.inner.encoded_words(elements)
    }

    fn has_feedback(&self) -> bool {
        self.inner.has_feedback()
    }

    fn padded(&self, elements: usize, ranks: usize) -> usize {
        self.inner.padded(elements, ranks)
    }

    fn measures(&self) -> bool {
        self.inner.measures()
    }

    fn measure(&self, kernels: &dyn CodecKernels, input: Buffer<'_>, feedback: Feedback<'_>) -> Result<f64> {
        self.inner.measure(kernels, input, feedback)
    }

    fn scale(&self, squares: f64, elements: usize) -> f32 {
        self.inner.scale(squares, elements)
    }

    fn encode(
        &self,
        kernels: &dyn CodecKernels,
        input: Buffer<'_>,
        feedback: Option<Feedback<'_>>,
        context: EncodeContext,
        out: BufferMut<'_>,
    ) -> Result<Option<usize>> {
        (self.watch)(CodecStep::Encode);
        self.inner.encode(kernels, input, feedback, context, out)
    }

    fn reduce_encode(
        &self,
        kernels: &dyn CodecKernels,
        parts: &[Buffer<'_>],
        elements: usize,
        feedback: Option<Feedback<'_>>,
        context: EncodeContext,
        out: BufferMut<'_>,
    ) -> Result<Option<usize>> {
        (self.watch)(CodecStep::Reduce);
        self.inner.reduce_encode(kernels, parts, elements, feedback, context, out)
    }

    fn decode_sum(
        &self,
        kernels: &dyn CodecKernels,
        parts: &[Buffer<'_>],
        weight: f32,
        out: BufferMut<'_>,
    ) -> Result<()> {
        (self.watch)(CodecStep::Decode);
        self.inner.decode_sum(kernels, parts, weight, out)
    }

    fn decode(
        &self,
        kernels: &dyn CodecKernels,
        part: Buffer<'_>,
        weight: f32,
        out: BufferMut<'_>,
    ) -> Result<()> {
        (self.watch)(CodecStep::Decode);
        self.inner.decode(kernels, part, weight, out)
    }

    fn seal(&self, part: &mut [u32]) {
        self.inner.seal(part);
    }

    fn is_reordered(&self) -> bool {
        self.inner.is_reordered()
    }

    fn head_words(&self, elements: usize) -> usize {
        self.inner.head_words(elements)
    }

    fn accept(&self, part: &mut [u32], elements: usize) -> std::result::Result<(), &'static str> {
        (self.watch)(CodecStep::Accept);
        self.inner.accept(part, elements)
    }
}
