//! The kernels as codecs call them: each is a job on the words of its arguments.

use unisono_communicator::{Buffer, BufferMut, Error, Result};
use unisono_compression::{CodecKernels, Feedback, Shared, worst_element};
use unisono_kernels::format::{self, LANES, SQUARES_BLOCK};
use unisono_kernels::reference::BF16_BLOCK;
use unisono_kernels::{IntFormat, Rounding, SHIFT_MAX};

use crate::WgpuKernels;
use crate::arguments::{
    GLOBAL_SIGN_DENSITIES, SIGNS, block_density, block_number, global_numbers, int_densities, int_numbers,
    shared_density, shared_numbers, sign_densities, sign_numbers, weighted,
};
use crate::gather::Part;
use crate::job::{Job, Numbers, ResultWords};
use crate::memory::Span;
use crate::regions::{Density, EncodedRegions, Region};
use crate::shaders::Kernel;

/// bf16 in a word.
const NARROW: Density = Density::Each { words: 1, elements: 2 };

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
            magnitudes: None,
            values: None,
            scales: None,
            codes: None,
            numbers,
            first: 0,
            result: ResultWords::None,
        }
    }

    /// With the memory of an encoder that looks for elements that are not finite.
    fn encoding(self, [old, values]: [Option<Region>; 2], out: EncodedRegions) -> Job {
        let numbers = Numbers { has_new: values.is_some().into(), ..self.numbers };
        let EncodedRegions { scales, codes } = out;
        let result = ResultWords::FirstBad;
        Job { old, values, scales: Some(scales), codes: Some(codes), numbers, result, ..self }
    }

    fn rounded(self, rounding: Rounding) -> Job {
        match rounding {
            Rounding::Nearest => self,
            Rounding::Stochastic(counter) => {
                Job { first: counter.first, numbers: self.numbers.with_counter(counter), ..self }
            }
        }
    }

    /// The first block that is not finite.
    fn first_bad(self, on: &WgpuKernels) -> Result<Option<usize>> {
        let words = Job { result: ResultWords::FirstBad, ..self }.run(on)?;
        Ok(words.first().filter(|block| **block != u32::MAX).map(|block| *block as usize))
    }

    /// The sum of squares: the sums of the blocks, added in their order.
    fn squares(self, on: &WgpuKernels) -> Result<f64> {
        let words = Job { result: ResultWords::PerBlock, ..self }.run(on)?;
        let square = |block: &[u32]| format::squares(f32::from_bits(block[0]), block[1].cast_signed());
        Ok(words.chunks_exact(2).map(square).sum())
    }
}

impl WgpuKernels {
    /// Writes the sum of parts times the weight.
    fn decode(
        &self,
        kernel: Kernel,
        parts: Vec<Part>,
        numbers: Numbers,
        block: usize,
        out: Span,
    ) -> Result<()> {
        let elements = out.words;
        let values = Some(Region::whole("out", out, Density::F32, elements)?);
        let job = Job { parts, values, at_once: LANES, ..Job::new(kernel, elements, block, numbers) };
        job.run(self).map(drop)
    }

    fn encode_bf16(
        &self,
        kernel: Kernel,
        parts: Vec<Part>,
        elements: usize,
        out: &BufferMut<'_>,
    ) -> Result<Option<usize>> {
        let codes = Some(Region::whole("out", self.writable(out)?, NARROW, elements)?);
        let numbers = Numbers { block: BF16_BLOCK as u32, ..Numbers::default() };
        let job = Job::new(kernel, elements, BF16_BLOCK, numbers);
        Job { parts, codes, at_once: 2 * LANES, ..job }.first_bad(self)
    }
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
        let parts = self.plain_parts("input", &[input], Density::F32, elements)?;
        let job = Job { parts, ..Job::new(Kernel::SignEncode, elements, block, numbers) };
        job.encoding(residual, out).first_bad(self)
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
        job.encoding(residual, out).first_bad(self)
    }

    fn sign_decode_sum(
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

    fn sign_expand(&self, part: Buffer<'_>, block: usize, weight: f32, out: BufferMut<'_>) -> Result<()> {
        let out = self.writable(&out)?;
        let numbers = weighted(sign_numbers(out.words, block)?, weight);
        let parts = self.parts(&[part], sign_densities(block), out.words)?;
        self.decode(Kernel::SignExpand, parts, numbers, block, out)
    }

    fn compensate(&self, input: Buffer<'_>, feedback: Feedback<'_>) -> Result<f64> {
        let elements = input.bytes() / 4;
        let [old, values] = self.residual(Some(feedback), elements)?;
        let parts = self.plain_parts("input", &[input], Density::F32, elements)?;
        let job = Job::new(Kernel::Compensate, elements, SQUARES_BLOCK, global_numbers(0.0));
        Job { parts, old, values, ..job }.squares(self)
    }

    fn sign_reduce_global(&self, parts: &[Buffer<'_>], feedback: Feedback<'_>) -> Result<f64> {
        let elements = feedback.old.bytes() / 4;
        let [old, values] = self.residual(Some(feedback), elements)?;
        let parts = self.parts(parts, GLOBAL_SIGN_DENSITIES, elements)?;
        let job = Job::new(Kernel::SignReduceGlobal, elements, SQUARES_BLOCK, global_numbers(0.0));
        Job { parts, old, values, ..job }.squares(self)
    }

    fn sign_pack(&self, values: BufferMut<'_>, scale: f32, out: BufferMut<'_>) -> Result<()> {
        let values = self.writable(&values)?;
        let elements = values.words;
        let values = Some(Region::whole("values", values, Density::F32, elements)?);
        let EncodedRegions { scales, codes } = self.encoded(&out, GLOBAL_SIGN_DENSITIES, elements)?;
        self.upload(&scales.span, &[scale.to_bits()])?;
        let numbers = Numbers { has_new: 1, ..global_numbers(scale) };
        let job = Job::new(Kernel::SignPack, elements, SIGNS * LANES, numbers);
        Job { values, codes: Some(codes), ..job }.run(self).map(drop)
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
        let parts = self.plain_parts("input", &[input], Density::F32, elements)?;
        let job = Job { parts, ..Job::new(Kernel::IntEncode, elements, format.block, numbers) };
        job.rounded(rounding).encoding(residual, out).first_bad(self)
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
        job.rounded(rounding).encoding(residual, out).first_bad(self)
    }

    fn int_decode_sum(
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

    fn int_expand(&self, part: Buffer<'_>, format: IntFormat, weight: f32, out: BufferMut<'_>) -> Result<()> {
        let (out, numbers) = (self.writable(&out)?, weighted(int_numbers(format)?, weight));
        let parts = self.parts(&[part], int_densities(format), out.words)?;
        self.decode(Kernel::IntExpand, parts, numbers, format.block, out)
    }

    fn bf16_encode(&self, input: Buffer<'_>, out: BufferMut<'_>) -> Result<Option<usize>> {
        let elements = input.bytes() / 4;
        let parts = self.plain_parts("input", &[input], Density::F32, elements)?;
        self.encode_bf16(Kernel::Bf16Encode, parts, elements, &out)
    }

    fn bf16_reduce_encode(
        &self,
        parts: &[Buffer<'_>],
        elements: usize,
        out: BufferMut<'_>,
    ) -> Result<Option<usize>> {
        let parts = self.plain_parts("parts", parts, NARROW, elements)?;
        self.encode_bf16(Kernel::Bf16ReduceEncode, parts, elements, &out)
    }

    fn bf16_decode_sum(&self, parts: &[Buffer<'_>], weight: f32, out: BufferMut<'_>) -> Result<()> {
        let out = self.writable(&out)?;
        let parts = self.plain_parts("parts", parts, NARROW, out.words)?;
        self.decode(Kernel::Bf16DecodeSum, parts, global_numbers(weight), BF16_BLOCK, out)
    }

    fn bf16_expand(&self, part: Buffer<'_>, weight: f32, out: BufferMut<'_>) -> Result<()> {
        let out = self.writable(&out)?;
        let parts = self.plain_parts("part", &[part], NARROW, out.words)?;
        self.decode(Kernel::Bf16Expand, parts, global_numbers(weight), BF16_BLOCK, out)
    }

    /// Looked for by the host, in a copy: only a call that fails asks for it.
    fn worst_element(&self, values: BufferMut<'_>) -> Result<usize> {
        let span = self.writable(&values)?;
        let mut bits = vec![0u32; span.words];
        self.download(&span, &mut bits)?;
        Ok(worst_element(bytemuck::cast_slice(&bits)))
    }

    fn sum(&self, parts: &[Buffer<'_>], out: BufferMut<'_>) -> Result<()> {
        let out = self.writable(&out)?;
        let parts = self.plain_parts("parts", parts, Density::F32, out.words)?;
        self.decode(Kernel::Sum, parts, global_numbers(1.0), LANES, out)
    }

    fn average(&self, old: Buffer<'_>, shift: u32, new: BufferMut<'_>) -> Result<()> {
        if shift > SHIFT_MAX {
            return Err(Error::invalid("shift", format!("{shift}; it must be at most {SHIFT_MAX}")));
        }
        let new = self.writable(&new)?;
        let elements = new.words;
        let old = Some(self.vector("old", &old, elements)?);
        let values = Some(Region::whole("new", new, Density::F32, elements)?);
        // A power of two is exact.
        let numbers = global_numbers(1.0 / (1u32 << shift) as f32);
        let job = Job { at_once: LANES, ..Job::new(Kernel::Average, elements, LANES, numbers) };
        Job { old, values, ..job }.run(self).map(drop)
    }

    fn int_magnitudes(
        &self,
        input: Buffer<'_>,
        old: Option<Buffer<'_>>,
        block: usize,
        out: BufferMut<'_>,
    ) -> Result<()> {
        let elements = input.bytes() / 4;
        let numbers = Numbers { block: block_number(block)?, ..Numbers::default() };
        let old = old.map(|old| self.vector("old", &old, elements)).transpose()?;
        let scales = Some(Region::whole("out", self.writable(&out)?, block_density(block), elements)?);
        let parts = self.plain_parts("input", &[input], Density::F32, elements)?;
        let job = Job::new(Kernel::IntMagnitudes, elements, block, numbers);
        Job { parts, old, scales, ..job }.run(self).map(drop)
    }

    fn int_encode_shared(
        &self,
        input: Buffer<'_>,
        feedback: Option<Feedback<'_>>,
        rounding: Rounding,
        shared: Shared<'_>,
        out: BufferMut<'_>,
    ) -> Result<()> {
        let elements = input.bytes() / 4;
        let [old, values] = self.residual(feedback, elements)?;
        let numbers = Numbers { has_new: values.is_some().into(), ..shared_numbers(&shared)? };
        let magnitudes = Some(self.magnitudes(&shared, elements)?);
        let codes = Some(Region::whole("out", self.writable(&out)?, shared_density(shared.size), elements)?);
        let parts = self.plain_parts("input", &[input], Density::F32, elements)?;
        let at_once = LANES * 4 / shared.size.bytes();
        let job = Job::new(Kernel::IntEncodeShared, elements, shared.format.block, numbers).rounded(rounding);
        Job { parts, old, magnitudes, values, codes, at_once, ..job }.run(self).map(drop)
    }

    fn int_expand_shared(
        &self,
        codes: Buffer<'_>,
        shared: Shared<'_>,
        weight: f32,
        out: BufferMut<'_>,
    ) -> Result<()> {
        let out = self.writable(&out)?;
        let elements = out.words;
        let numbers = weighted(shared_numbers(&shared)?, weight);
        let parts = self.plain_parts("codes", &[codes], shared_density(shared.size), elements)?;
        let magnitudes = Some(self.magnitudes(&shared, elements)?);
        let values = Some(Region::whole("out", out, Density::F32, elements)?);
        let job = Job::new(Kernel::IntExpandShared, elements, shared.format.block, numbers);
        Job { parts, magnitudes, values, at_once: LANES, ..job }.run(self).map(drop)
    }
}
