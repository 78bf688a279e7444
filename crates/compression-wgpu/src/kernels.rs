//! The kernels as codecs call them: each is a job on the words of its arguments.

use unisono_communicator::{Buffer, BufferMut, DeviceBuffer, Error, Result};
use unisono_compression::{CodecKernels, Feedback};
use unisono_kernels::format::{self, LANES, SQUARES_BLOCK};
use unisono_kernels::reference::BF16_BLOCK;
use unisono_kernels::{CodeSize, IntFormat, IntWidth, Rounding, SHIFT_MAX};

use crate::WgpuKernels;
use crate::error::unreachable;
use crate::job::{Job, JobPart, Numbers, ResultWords};
use crate::memory::Span;
use crate::regions::{Density, EncodedRegions, Region};
use crate::shaders::Kernel;

/// Signs in a word, and elements that a workgroup packs at a time.
const SIGNS: usize = 32;
const PACKED_AT_ONCE: usize = SIGNS * LANES;

impl WgpuKernels {
    fn span_of(&self, buffer: &DeviceBuffer) -> Result<Span> {
        let adapter = &self.link().adapter;
        match buffer.spans() {
            [one] if one.bytes() == 0 => Ok(Span { words: 0, ..self.unread().clone() }),
            [one] => self.find(one.address(), one.bytes()),
            _ => Err(unreachable(adapter, "a list of spans", "one contiguous span")),
        }
    }

    fn read_only(&self, buffer: &Buffer<'_>) -> Result<Span> {
        match buffer {
            Buffer::Device(buffer) => self.span_of(buffer),
            Buffer::Host(_) => Err(self.on_host()),
        }
    }

    fn writable(&self, buffer: &BufferMut<'_>) -> Result<Span> {
        match buffer {
            BufferMut::Device(buffer) => self.span_of(buffer),
            BufferMut::Host(_) => Err(self.on_host()),
        }
    }

    fn on_host(&self) -> Error {
        let adapter = &self.link().adapter;
        unreachable(
            adapter,
            "memory of the host",
            "memory of these kernels (allocate, to_read), or HostKernels",
        )
    }

    /// A vector of f32.
    fn vector(&self, argument: &'static str, buffer: &Buffer<'_>, elements: usize) -> Result<Region> {
        Region::whole(argument, self.read_only(buffer)?, Density::F32, elements)
    }

    /// The residual before and after.
    fn residual(&self, feedback: Option<Feedback<'_>>, elements: usize) -> Result<[Option<Region>; 2]> {
        let Some(Feedback { old, new }) = feedback else { return Ok([None, None]) };
        let new = Region::whole("feedback.new", self.writable(&new)?, Density::F32, elements)?;
        Ok([Some(self.vector("feedback.old", &old, elements)?), Some(new)])
    }

    /// Where an encoder writes.
    fn encoded(
        &self,
        out: &BufferMut<'_>,
        densities: [Density; 2],
        elements: usize,
    ) -> Result<EncodedRegions> {
        EncodedRegions::of("out", self.writable(out)?, densities, elements)
    }

    /// Parts that are summed.
    fn parts(&self, parts: &[Buffer<'_>], densities: [Density; 2], elements: usize) -> Result<Vec<JobPart>> {
        let part = |part| {
            let span = self.read_only(part)?;
            Ok(JobPart::Encoded(EncodedRegions::of("parts", span, densities, elements)?))
        };
        parts.iter().map(part).collect()
    }

    fn bf16_parts(&self, parts: &[Buffer<'_>], elements: usize) -> Result<Vec<JobPart>> {
        let part = |part| {
            let span = self.read_only(part)?;
            Ok(JobPart::Plain(Region::whole("parts", span, Density::codes(2), elements)?))
        };
        parts.iter().map(part).collect()
    }

    /// Writes the sum of encoded parts times `weight`.
    fn decode(
        &self,
        kernel: Kernel,
        parts: Vec<JobPart>,
        numbers: Numbers,
        block: usize,
        out: Span,
    ) -> Result<()> {
        let elements = out.words;
        let values = Region::whole("out", out, Density::F32, elements)?;
        let job =
            Job { parts, values: Some(values), at_once: LANES, ..Job::new(kernel, elements, block, numbers) };
        job.run(self).map(drop)
    }
}

impl Job {
    /// A kernel without memory.
    fn new(kernel: Kernel, elements: usize, block: usize, numbers: Numbers) -> Job {
        Job {
            kernel,
            elements,
            block,
            at_once: block,
            parts: Vec::new(),
            old: None,
            values: None,
            scales: None,
            codes: None,
            numbers,
            first: 0,
            result: ResultWords::None,
        }
    }

    /// With an encoder's memory.
    fn encoding(self, [old, values]: [Option<Region>; 2], out: EncodedRegions) -> Job {
        let numbers = Numbers { has_new: values.is_some().into(), ..self.numbers };
        let EncodedRegions { scales, codes } = out;
        let result = ResultWords::FirstBad;
        Job { old, values, scales: Some(scales), codes: Some(codes), numbers, result, ..self }
    }
}

/// What [`ResultWords::FirstBad`] says.
fn first_bad(words: &[u32]) -> Option<usize> {
    words.first().filter(|block| **block != u32::MAX).map(|block| *block as usize)
}

/// The total of [`ResultWords::PerBlock`], summed in the order of the blocks.
fn squares(words: &[u32]) -> f64 {
    let square = |block: &[u32]| format::squares(f32::from_bits(block[0]), block[1].cast_signed());
    words.chunks_exact(2).map(square).sum()
}

/// The densities of a part of signs.
fn sign_densities(block: usize) -> [Density; 2] {
    [Density::Each { words: 1, elements: block }, Density::codes(SIGNS)]
}

/// Of a part of signs with one scale.
const GLOBAL_SIGN_DENSITIES: [Density; 2] =
    [Density::Common { words: 1 }, Density::Each { words: 1, elements: SIGNS }];

/// Of a part of integers.
fn int_densities(format: IntFormat) -> [Density; 2] {
    let scales = Density::Each { words: format.scales_per_block(), elements: format.block };
    [scales, Density::codes(codes_in_a_word(format.width))]
}

fn codes_in_a_word(width: IntWidth) -> usize {
    match width {
        IntWidth::Eight => 4,
        IntWidth::Four => 8,
    }
}

/// Blocks of the kernels' other callers are as they must be.
fn check_block(block: usize) -> Result<u32> {
    match u32::try_from(block) {
        Ok(number) if number > 0 && block.is_multiple_of(LANES) => Ok(number),
        _ => {
            Err(Error::invalid("block", format!("{block} elements; it must be a multiple of {LANES} in u32")))
        }
    }
}

fn sign_numbers(elements: usize, block: usize) -> Result<Numbers> {
    let (whole, last) = (check_block(block)?, elements % block);
    Ok(Numbers {
        block: whole,
        mean_factor: format::mean_factor(block),
        last_mean_factor: format::mean_factor(if last == 0 { block } else { last }),
        ..Numbers::default()
    })
}

/// All elements have one scale.
fn global_numbers(scale: f32) -> Numbers {
    Numbers { block: u32::MAX, weight: scale, ..Numbers::default() }
}

fn int_numbers(format: IntFormat) -> Result<Numbers> {
    let scale_end = match format.width {
        IntWidth::Eight => 120,
        IntWidth::Four => 124,
    };
    Ok(Numbers {
        block: check_block(format.block)?,
        width: 32 / codes_in_a_word(format.width) as u32,
        is_symmetric: format.symmetric.into(),
        inverse_steps: 1.0 / format.steps() as f32,
        scale_end: 2f32.powi(scale_end).to_bits(),
        ..Numbers::default()
    })
}

fn rounded(job: Job, rounding: Rounding) -> Job {
    match rounding {
        Rounding::Nearest => job,
        Rounding::Stochastic(counter) => {
            Job { first: counter.first, numbers: job.numbers.with_counter(counter), ..job }
        }
    }
}

/// Devices may take a subnormal factor for zero.
fn weighted(numbers: Numbers, weight: f32) -> Numbers {
    Numbers { weight: format::flush(weight), ..numbers }
}

impl CodecKernels for WgpuKernels {
    fn sign_encode(
        &self,
        input: Buffer<'_>,
        feedback: Option<Feedback<'_>>,
        block: usize,
        out: BufferMut<'_>,
    ) -> Result<Option<usize>> {
        let elements = input.bytes() / 4;
        let numbers = sign_numbers(elements, block)?;
        let residual = self.residual(feedback, elements)?;
        let out = self.encoded(&out, sign_densities(block), elements)?;
        let parts = vec![JobPart::Plain(self.vector("input", &input, elements)?)];
        let job = Job { parts, ..Job::new(Kernel::SignEncode, elements, block, numbers) };
        Ok(first_bad(&job.encoding(residual, out).run(self)?))
    }

    fn sign_reduce_encode(
        &self,
        parts: &[Buffer<'_>],
        elements: usize,
        feedback: Option<Feedback<'_>>,
        block: usize,
        out: BufferMut<'_>,
    ) -> Result<Option<usize>> {
        let numbers = sign_numbers(elements, block)?;
        let residual = self.residual(feedback, elements)?;
        let out = self.encoded(&out, sign_densities(block), elements)?;
        let parts = self.parts(parts, sign_densities(block), elements)?;
        let job = Job { parts, ..Job::new(Kernel::SignReduceEncode, elements, block, numbers) };
        Ok(first_bad(&job.encoding(residual, out).run(self)?))
    }

    fn sign_expand(&self, part: Buffer<'_>, block: usize, weight: f32, out: BufferMut<'_>) -> Result<()> {
        let out = self.writable(&out)?;
        let numbers = weighted(sign_numbers(out.words, block)?, weight);
        let parts = self.parts(&[part], sign_densities(block), out.words)?;
        self.decode(Kernel::SignExpand, parts, numbers, block, out)
    }

    fn compensate(&self, input: Buffer<'_>, feedback: Feedback<'_>) -> Result<f64> {
        let elements = input.bytes() / 4;
        let [old, values] = self.residual(Some(feedback), elements)?;
        let parts = vec![JobPart::Plain(self.vector("input", &input, elements)?)];
        let job = Job::new(Kernel::Compensate, elements, SQUARES_BLOCK, global_numbers(0.0));
        let job = Job { parts, old, values, result: ResultWords::PerBlock, ..job };
        Ok(squares(&job.run(self)?))
    }

    fn sign_reduce_global(&self, parts: &[Buffer<'_>], feedback: Feedback<'_>) -> Result<f64> {
        let elements = feedback.old.bytes() / 4;
        let [old, values] = self.residual(Some(feedback), elements)?;
        let parts = self.parts(parts, GLOBAL_SIGN_DENSITIES, elements)?;
        let job = Job::new(Kernel::SignReduceGlobal, elements, SQUARES_BLOCK, global_numbers(0.0));
        let job = Job { parts, old, values, result: ResultWords::PerBlock, ..job };
        Ok(squares(&job.run(self)?))
    }

    fn sign_pack(&self, values: BufferMut<'_>, scale: f32, out: BufferMut<'_>) -> Result<()> {
        let values = self.writable(&values)?;
        let elements = values.words;
        let values = Region::whole("values", values, Density::F32, elements)?;
        let out = self.encoded(&out, GLOBAL_SIGN_DENSITIES, elements)?;
        self.upload(&out.scales.span.buffer, out.scales.span.at, &[scale.to_bits()])?;
        let numbers = Numbers { has_new: 1, ..global_numbers(scale) };
        let job = Job::new(Kernel::SignPack, elements, PACKED_AT_ONCE, numbers);
        Job { values: Some(values), codes: Some(out.codes), ..job }.run(self).map(drop)
    }

    fn int_encode(
        &self,
        input: Buffer<'_>,
        feedback: Option<Feedback<'_>>,
        format: IntFormat,
        rounding: Rounding,
        out: BufferMut<'_>,
    ) -> Result<Option<usize>> {
        let (elements, numbers) = (input.bytes() / 4, int_numbers(format)?);
        let residual = self.residual(feedback, elements)?;
        let out = self.encoded(&out, int_densities(format), elements)?;
        let parts = vec![JobPart::Plain(self.vector("input", &input, elements)?)];
        let job = Job { parts, ..Job::new(Kernel::IntEncode, elements, format.block, numbers) };
        Ok(first_bad(&rounded(job, rounding).encoding(residual, out).run(self)?))
    }

    fn int_reduce_encode(
        &self,
        parts: &[Buffer<'_>],
        elements: usize,
        feedback: Option<Feedback<'_>>,
        format: IntFormat,
        rounding: Rounding,
        out: BufferMut<'_>,
    ) -> Result<Option<usize>> {
        let numbers = int_numbers(format)?;
        let residual = self.residual(feedback, elements)?;
        let out = self.encoded(&out, int_densities(format), elements)?;
        let parts = self.parts(parts, int_densities(format), elements)?;
        let job = Job { parts, ..Job::new(Kernel::IntReduceEncode, elements, format.block, numbers) };
        Ok(first_bad(&rounded(job, rounding).encoding(residual, out).run(self)?))
    }

    fn int_expand(&self, part: Buffer<'_>, format: IntFormat, weight: f32, out: BufferMut<'_>) -> Result<()> {
        let (out, numbers) = (self.writable(&out)?, weighted(int_numbers(format)?, weight));
        let parts = self.parts(&[part], int_densities(format), out.words)?;
        self.decode(Kernel::IntExpand, parts, numbers, format.block, out)
    }

    fn bf16_encode(&self, input: Buffer<'_>, out: BufferMut<'_>) -> Result<Option<usize>> {
        let elements = input.bytes() / 4;
        let parts = vec![JobPart::Plain(self.vector("input", &input, elements)?)];
        self.encode_bf16(Kernel::Bf16Encode, parts, elements, &out)
    }

    fn bf16_reduce_encode(
        &self,
        parts: &[Buffer<'_>],
        elements: usize,
        out: BufferMut<'_>,
    ) -> Result<Option<usize>> {
        let parts = self.bf16_parts(parts, elements)?;
        self.encode_bf16(Kernel::Bf16ReduceEncode, parts, elements, &out)
    }

    fn bf16_expand(&self, part: Buffer<'_>, weight: f32, out: BufferMut<'_>) -> Result<()> {
        let out = self.writable(&out)?;
        let parts = self.bf16_parts(&[part], out.words)?;
        self.decode(Kernel::Bf16Expand, parts, weighted(global_numbers(0.0), weight), BF16_BLOCK, out)
    }
}

#[allow(missing_docs, clippy::too_many_arguments)]
impl WgpuKernels {
    fn encode_bf16(
        &self,
        kernel: Kernel,
        parts: Vec<JobPart>,
        elements: usize,
        out: &BufferMut<'_>,
    ) -> Result<Option<usize>> {
        let codes = Region::whole("out", self.writable(out)?, Density::codes(2), elements)?;
        let numbers = Numbers { block: BF16_BLOCK as u32, ..Numbers::default() };
        let job = Job {
            parts,
            codes: Some(codes),
            at_once: 2 * LANES,
            ..Job::new(kernel, elements, BF16_BLOCK, numbers)
        };
        let job = Job { result: ResultWords::FirstBad, ..job };
        Ok(first_bad(&job.run(self)?))
    }

    pub fn sum(&self, parts: &[Buffer<'_>], out: BufferMut<'_>) -> Result<()> {
        let out = self.writable(&out)?;
        let part = |part| Ok(JobPart::Plain(self.vector("parts", part, out.words)?));
        let parts = parts.iter().map(part).collect::<Result<_>>()?;
        self.decode(Kernel::Sum, parts, global_numbers(1.0), LANES, out)
    }

    pub fn sign_decode_sum(
        &self,
        parts: &[Buffer<'_>],
        block: usize,
        weight: f32,
        out: BufferMut<'_>,
    ) -> Result<()> {
        let out = self.writable(&out)?;
        let numbers = weighted(sign_numbers(out.words, block)?, weight);
        let parts = self.parts(parts, sign_densities(block), out.words)?;
        self.decode(Kernel::SignDecodeSum, parts, numbers, block, out)
    }

    pub fn int_decode_sum(
        &self,
        parts: &[Buffer<'_>],
        format: IntFormat,
        weight: f32,
        out: BufferMut<'_>,
    ) -> Result<()> {
        let (out, numbers) = (self.writable(&out)?, weighted(int_numbers(format)?, weight));
        let parts = self.parts(parts, int_densities(format), out.words)?;
        self.decode(Kernel::IntDecodeSum, parts, numbers, format.block, out)
    }

    pub fn bf16_decode_sum(&self, parts: &[Buffer<'_>], weight: f32, out: BufferMut<'_>) -> Result<()> {
        let out = self.writable(&out)?;
        let parts = self.bf16_parts(parts, out.words)?;
        self.decode(Kernel::Bf16DecodeSum, parts, weighted(global_numbers(0.0), weight), BF16_BLOCK, out)
    }

    pub fn average(&self, old: Buffer<'_>, shift: u32, new: BufferMut<'_>) -> Result<()> {
        if shift > SHIFT_MAX {
            return Err(Error::invalid("shift", format!("{shift}; it must be at most {SHIFT_MAX}")));
        }
        let new = self.writable(&new)?;
        let elements = new.words;
        let old = self.vector("old", &old, elements)?;
        let values = Region::whole("new", new, Density::F32, elements)?;
        // A power of two is exact.
        let numbers = global_numbers(1.0 / (1u32 << shift) as f32);
        let job = Job { at_once: LANES, ..Job::new(Kernel::Average, elements, LANES, numbers) };
        Job { old: Some(old), values: Some(values), ..job }.run(self).map(drop)
    }

    pub fn int_magnitudes(
        &self,
        input: Buffer<'_>,
        old: Option<Buffer<'_>>,
        block: usize,
        out: BufferMut<'_>,
    ) -> Result<()> {
        let elements = input.bytes() / 4;
        let numbers = Numbers { block: check_block(block)?, ..Numbers::default() };
        let old = old.map(|old| self.vector("old", &old, elements)).transpose()?;
        let density = Density::Each { words: 1, elements: block };
        let scales = Region::whole("out", self.writable(&out)?, density, elements)?;
        let parts = vec![JobPart::Plain(self.vector("input", &input, elements)?)];
        let job = Job::new(Kernel::IntMagnitudes, elements, block, numbers);
        Job { parts, old, scales: Some(scales), ..job }.run(self).map(drop)
    }

    pub fn int_encode_shared(
        &self,
        input: Buffer<'_>,
        feedback: Option<Feedback<'_>>,
        format: IntFormat,
        rounding: Rounding,
        magnitudes: Buffer<'_>,
        size: CodeSize,
        out: BufferMut<'_>,
    ) -> Result<()> {
        let elements = input.bytes() / 4;
        let [old, values] = self.residual(feedback, elements)?;
        let numbers = Numbers { has_new: values.is_some().into(), ..shared_numbers(format, size)? };
        let scales = self.magnitudes(&magnitudes, format, elements)?;
        let codes = Region::whole("out", self.writable(&out)?, Density::codes(4 / size.bytes()), elements)?;
        let parts = vec![JobPart::Plain(self.vector("input", &input, elements)?)];
        let job = Job::new(Kernel::IntEncodeShared, elements, format.block, numbers);
        let at_once = LANES * 4 / size.bytes();
        let job = Job { parts, old, values, scales: Some(scales), codes: Some(codes), at_once, ..job };
        rounded(job, rounding).run(self).map(drop)
    }

    pub fn int_expand_shared(
        &self,
        codes: Buffer<'_>,
        size: CodeSize,
        format: IntFormat,
        magnitudes: Buffer<'_>,
        weight: f32,
        out: BufferMut<'_>,
    ) -> Result<()> {
        let out = self.writable(&out)?;
        let elements = out.words;
        let numbers = weighted(shared_numbers(format, size)?, weight);
        let codes =
            Region::whole("codes", self.read_only(&codes)?, Density::codes(4 / size.bytes()), elements)?;
        let scales = self.magnitudes(&magnitudes, format, elements)?;
        let values = Region::whole("out", out, Density::F32, elements)?;
        let job =
            Job { at_once: LANES, ..Job::new(Kernel::IntExpandShared, elements, format.block, numbers) };
        let parts = vec![JobPart::Plain(codes)];
        Job { parts, scales: Some(scales), values: Some(values), ..job }.run(self).map(drop)
    }

    /// A magnitude for each block.
    fn magnitudes(&self, magnitudes: &Buffer<'_>, format: IntFormat, elements: usize) -> Result<Region> {
        let density = Density::Each { words: 1, elements: format.block };
        Region::whole("magnitudes", self.read_only(magnitudes)?, density, elements)
    }
}

/// Of codes by scales that ranks share.
fn shared_numbers(format: IntFormat, size: CodeSize) -> Result<Numbers> {
    Ok(Numbers { width: 8 * size.bytes() as u32, ..int_numbers(format)? })
}
