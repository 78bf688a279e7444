//! The kernels of the codecs on a card.

use unisono_communicator::{Buffer, BufferMut, Error, Result};
use unisono_compression::{CodecKernels, Feedback, Shared, worst_element};
use unisono_cuda::Memory;
use unisono_kernels::format::{LANES, SQUARES_BLOCK, mean_factor, squares};
use unisono_kernels::{IntFormat, Rounding, sign_words};

use crate::card::{CudaKernels, Scratch};
use crate::launch::Launch;
use crate::spans::Span;

/// Elements that a warp takes where blocks do not say so: `TILE`, `RUN` and `BF16_RUN` in `kernels/cuda`.
const TILE: usize = SQUARES_BLOCK;
const RUN: usize = 512;
/// Elements that a thread holds where a team of threads takes a block.
const HELD: usize = 16;
const BF16_RUN: usize = 256;

/// Words of an encoded part.
fn sign_part_words(elements: usize, block: usize) -> usize {
    elements.div_ceil(block) + sign_words(elements)
}

fn int_part_words(elements: usize, format: IntFormat) -> usize {
    format.scales(elements) + format.width.code_bytes(elements).div_ceil(4)
}

/// Refuses a block that no encoder has.
fn check_block(block: usize) -> Result<usize> {
    if block == 0 || !block.is_multiple_of(LANES) {
        return Err(Error::invalid("block", format!("{block} elements, which is no multiple of {LANES}")));
    }
    Ok(block)
}

/// The block of a format whose codes can be added.
fn check_shared(format: IntFormat) -> Result<usize> {
    if !format.symmetric {
        return Err(Error::invalid("format", "is asymmetric, whose codes cannot be added"));
    }
    check_block(format.block)
}

/// Warps that take this many elements in blocks, by teams: `Team` in `kernels/cuda/quad.cuh`.
fn team_warps(elements: usize, block: usize) -> usize {
    let threads = block.div_ceil(HELD).next_power_of_two().min(RUN / HELD);
    (elements.div_ceil(block) * threads).div_ceil(RUN / HELD)
}

/// The factors of means: of a whole block, and of the last one.
fn mean_factors(elements: usize, block: usize) -> [f32; 2] {
    let last = elements % block;
    [mean_factor(block), mean_factor(if last == 0 { block } else { last })]
}

impl CudaKernels {
    /// Starts a kernel that ends with `sum`, `elements`, `squares` and `shifts`, and adds up the sums of the tiles.
    fn sum_of_squares(
        &self,
        launch: Launch,
        scratch: &mut Memory,
        sum: Span,
        elements: usize,
    ) -> Result<f64> {
        let (card, tiles) = (&self.0, elements.div_ceil(TILE));
        let memory = Scratch::grown(&card.context, scratch, 8 * tiles)?;
        let [sums, shifts] =
            [0, 4 * tiles].map(|at| Span { address: memory.address() + at as u64, words: tiles });
        launch.span(sum).long(elements).span(sums).span(shifts).run(card, tiles)?;
        let mut words = vec![0u32; 2 * tiles];
        memory.read(0, bytemuck::cast_slice_mut(&mut words), &card.stream)?;
        let (sums, shifts) = words.split_at(tiles);
        let tiles = sums.iter().zip(shifts);
        Ok(tiles.map(|(sum, shift)| squares(f32::from_bits(*sum), shift.cast_signed())).sum())
    }
}

impl CodecKernels for CudaKernels {
    fn sign_encode(
        &self,
        input: Buffer<'_>,
        feedback: Option<Feedback<'_>>,
        block: usize,
        out: BufferMut<'_>,
    ) -> Result<Option<usize>> {
        let (input, block) = (self.span("input", &input)?, check_block(block)?);
        let elements = input.words;
        let residual = self.residual(feedback, elements)?;
        let out = self.span_mut("out", &out)?.check("out", sign_part_words(elements, block))?;
        let [factor, last] = mean_factors(elements, block);
        let launch = Launch::new("sign_encode").span(input).span(residual.old).span(residual.new).span(out);
        let launch = launch.long(elements).blocks(block, elements.div_ceil(block))?.float(factor).float(last);
        launch.encode(&self.0, &mut self.0.scratch(), elements.div_ceil(block))
    }

    fn sign_reduce_encode(
        &self,
        parts: &[Buffer<'_>],
        elements: usize,
        feedback: Option<Feedback<'_>>,
        block: usize,
        out: BufferMut<'_>,
    ) -> Result<Option<usize>> {
        let words = sign_part_words(elements, check_block(block)?);
        let (parts, residual) = (self.spans(parts, words)?, self.residual(feedback, elements)?);
        let out = self.span_mut("out", &out)?.check("out", words)?;
        let [factor, last] = mean_factors(elements, block);
        let mut scratch = self.0.scratch();
        let launch = Launch::new("sign_reduce_encode").parts(&self.0, &mut scratch, &parts)?;
        let launch = launch.span(residual.old).span(residual.new).span(out).long(elements);
        let launch = launch.blocks(block, elements.div_ceil(block))?.float(factor).float(last);
        launch.encode(&self.0, &mut scratch, elements.div_ceil(block))
    }

    fn sign_decode_sum(
        &self,
        parts: &[Buffer<'_>],
        block: usize,
        weight: f32,
        out: BufferMut<'_>,
    ) -> Result<()> {
        let (out, block) = (self.span_mut("out", &out)?, check_block(block)?);
        let (elements, scales) = (out.words, out.words.div_ceil(block));
        let parts = self.spans(parts, sign_part_words(elements, block))?;
        let mut scratch = self.0.scratch();
        let launch = Launch::new("sign_decode_sum").parts(&self.0, &mut scratch, &parts)?;
        let launch = launch.span(out).long(elements).count("block", scales)?;
        launch.count("block", block / LANES)?.float(weight).finish(&self.0, elements.div_ceil(TILE))
    }

    fn sign_expand(&self, part: Buffer<'_>, block: usize, weight: f32, out: BufferMut<'_>) -> Result<()> {
        let (out, block) = (self.span_mut("out", &out)?, check_block(block)?);
        let (elements, scales) = (out.words, out.words.div_ceil(block));
        let part = self.span("part", &part)?.check("part", sign_part_words(elements, block))?;
        let launch = Launch::new("sign_expand").span(part).span(out).long(elements).count("block", scales)?;
        launch.count("block", block / LANES)?.float(weight).finish(&self.0, elements.div_ceil(TILE))
    }

    fn compensate(&self, input: Buffer<'_>, feedback: Feedback<'_>) -> Result<f64> {
        let input = self.span("input", &input)?;
        let residual = self.residual(Some(feedback), input.words)?;
        let launch = Launch::new("compensate").span(input).span(residual.old);
        self.sum_of_squares(launch, &mut self.0.scratch().squares, residual.new, input.words)
    }

    fn sign_reduce_global(&self, parts: &[Buffer<'_>], feedback: Feedback<'_>) -> Result<f64> {
        let new = self.span_mut("feedback.new", &feedback.new)?;
        let (parts, residual) =
            (self.spans(parts, 1 + sign_words(new.words))?, self.residual(Some(feedback), new.words)?);
        let mut scratch = self.0.scratch();
        let launch = Launch::new("sign_reduce_global").parts(&self.0, &mut scratch, &parts)?;
        self.sum_of_squares(launch.span(residual.old), &mut scratch.squares, new, new.words)
    }

    fn sign_pack(&self, values: BufferMut<'_>, scale: f32, out: BufferMut<'_>) -> Result<()> {
        let values = self.span_mut("values", &values)?;
        let out = self.span_mut("out", &out)?.check("out", 1 + sign_words(values.words))?;
        let launch = Launch::new("sign_pack").span(values).span(out).long(values.words).float(scale);
        // Also without elements there is a scale.
        launch.run(&self.0, values.words.div_ceil(TILE).max(1))
    }

    fn int_encode(
        &self,
        input: Buffer<'_>,
        feedback: Option<Feedback<'_>>,
        format: IntFormat,
        rounding: Rounding,
        out: BufferMut<'_>,
    ) -> Result<Option<usize>> {
        let (input, block) = (self.span("input", &input)?, check_block(format.block)?);
        let elements = input.words;
        let residual = self.residual(feedback, elements)?;
        let out = self.span_mut("out", &out)?.check("out", int_part_words(elements, format))?;
        let launch = Launch::new("int_encode").span(input).span(residual.old).span(residual.new).span(out);
        let launch =
            launch.long(elements).blocks(block, format.scales(elements))?.format(format).rounding(rounding);
        launch.encode(&self.0, &mut self.0.scratch(), team_warps(elements, block))
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
        let block = check_block(format.block)?;
        let words = int_part_words(elements, format);
        let (parts, residual) = (self.spans(parts, words)?, self.residual(feedback, elements)?);
        let out = self.span_mut("out", &out)?.check("out", words)?;
        let mut scratch = self.0.scratch();
        let launch = Launch::new("int_reduce_encode").parts(&self.0, &mut scratch, &parts)?;
        let launch = launch.span(residual.old).span(residual.new).span(out).long(elements);
        let launch = launch.blocks(block, format.scales(elements))?.format(format).rounding(rounding);
        launch.encode(&self.0, &mut scratch, team_warps(elements, block))
    }

    fn int_decode_sum(
        &self,
        parts: &[Buffer<'_>],
        format: IntFormat,
        weight: f32,
        out: BufferMut<'_>,
    ) -> Result<()> {
        let (out, block) = (self.span_mut("out", &out)?, check_block(format.block)?);
        let parts = self.spans(parts, int_part_words(out.words, format))?;
        let mut scratch = self.0.scratch();
        let launch = Launch::new("int_decode_sum").parts(&self.0, &mut scratch, &parts)?;
        let launch = launch
            .span(out)
            .long(out.words)
            .blocks(block, format.scales(out.words))?
            .format(format)
            .float(weight);
        launch.finish(&self.0, team_warps(out.words, block))
    }

    fn int_expand(&self, part: Buffer<'_>, format: IntFormat, weight: f32, out: BufferMut<'_>) -> Result<()> {
        let (out, block) = (self.span_mut("out", &out)?, check_block(format.block)?);
        let part = self.span("part", &part)?.check("part", int_part_words(out.words, format))?;
        let launch = Launch::new("int_expand").span(part).span(out).long(out.words);
        let launch = launch.blocks(block, format.scales(out.words))?;
        launch.format(format).float(weight).finish(&self.0, team_warps(out.words, block))
    }

    fn bf16_encode(&self, input: Buffer<'_>, out: BufferMut<'_>) -> Result<Option<usize>> {
        let input = self.span("input", &input)?;
        let elements = input.words;
        let out = self.span_mut("out", &out)?.check("out", elements.div_ceil(2))?;
        let launch = Launch::new("bf16_encode").span(input).span(out).long(elements);
        launch.encode(&self.0, &mut self.0.scratch(), elements.div_ceil(BF16_RUN))
    }

    fn bf16_reduce_encode(
        &self,
        parts: &[Buffer<'_>],
        elements: usize,
        out: BufferMut<'_>,
    ) -> Result<Option<usize>> {
        let words = elements.div_ceil(2);
        let (parts, out) = (self.spans(parts, words)?, self.span_mut("out", &out)?.check("out", words)?);
        let mut scratch = self.0.scratch();
        let launch = Launch::new("bf16_reduce_encode").parts(&self.0, &mut scratch, &parts)?;
        launch.span(out).long(elements).encode(&self.0, &mut scratch, elements.div_ceil(BF16_RUN))
    }

    fn bf16_decode_sum(&self, parts: &[Buffer<'_>], weight: f32, out: BufferMut<'_>) -> Result<()> {
        let out = self.span_mut("out", &out)?;
        let parts = self.spans(parts, out.words.div_ceil(2))?;
        let mut scratch = self.0.scratch();
        let launch = Launch::new("bf16_decode_sum").parts(&self.0, &mut scratch, &parts)?;
        let launch = launch.span(out).long(out.words).float(weight);
        launch.finish(&self.0, out.words.div_ceil(BF16_RUN))
    }

    fn bf16_expand(&self, part: Buffer<'_>, weight: f32, out: BufferMut<'_>) -> Result<()> {
        let out = self.span_mut("out", &out)?;
        let part = self.span("part", &part)?.check("part", out.words.div_ceil(2))?;
        let launch = Launch::new("bf16_expand").span(part).span(out).long(out.words).float(weight);
        launch.finish(&self.0, out.words.div_ceil(BF16_RUN))
    }

    fn worst_element(&self, values: BufferMut<'_>) -> Result<usize> {
        let values = self.span_mut("values", &values)?;
        let mut host = vec![0.0f32; values.words];
        self.download(values, &mut host)?;
        Ok(worst_element(&host))
    }

    fn sum(&self, parts: &[Buffer<'_>], out: BufferMut<'_>) -> Result<()> {
        let out = self.span_mut("out", &out)?;
        let parts = self.spans(parts, out.words)?;
        let mut scratch = self.0.scratch();
        let launch = Launch::new("sum").parts(&self.0, &mut scratch, &parts)?;
        launch.span(out).long(out.words).run(&self.0, out.words.div_ceil(RUN))
    }

    fn average(&self, old: Buffer<'_>, shift: u32, new: BufferMut<'_>) -> Result<()> {
        if shift > 8 {
            return Err(Error::invalid("shift", format!("{shift}, above 8")));
        }
        let new = self.span_mut("new", &new)?;
        let old = self.span("old", &old)?.check("old", new.words)?;
        let launch = Launch::new("average").span(old).span(new).long(new.words).word(shift);
        launch.run(&self.0, new.words.div_ceil(RUN))
    }

    fn int_magnitudes(
        &self,
        input: Buffer<'_>,
        old: Option<Buffer<'_>>,
        block: usize,
        out: BufferMut<'_>,
    ) -> Result<()> {
        let (input, block) = (self.span("input", &input)?, check_block(block)?);
        let old = match old {
            Some(old) => self.span("old", &old)?.check("old", input.words)?,
            None => Span::NONE,
        };
        let blocks = input.words.div_ceil(block);
        let out = self.span_mut("out", &out)?.check("out", blocks)?;
        let launch = Launch::new("int_magnitudes").span(input).span(old).span(out).long(input.words);
        launch.count("block", block)?.run(&self.0, team_warps(input.words, block))
    }

    fn int_encode_shared(
        &self,
        input: Buffer<'_>,
        feedback: Option<Feedback<'_>>,
        rounding: Rounding,
        shared: Shared<'_>,
        out: BufferMut<'_>,
    ) -> Result<()> {
        let Shared { format, size, magnitudes } = shared;
        let (input, block) = (self.span("input", &input)?, check_shared(format)?);
        let (elements, blocks) = (input.words, input.words.div_ceil(block));
        let residual = self.residual(feedback, elements)?;
        let magnitudes = self.span("magnitudes", &magnitudes)?.check("magnitudes", blocks)?;
        let out = self.span_mut("out", &out)?.check("out", (elements * size.bytes()).div_ceil(4))?;
        let launch = Launch::new("int_encode_shared").span(input).span(residual.old).span(residual.new);
        let launch = launch.span(magnitudes).span(out).long(elements).count("block", block)?;
        let launch = launch.width(format.width).rounding(rounding).word(size.bytes() as u32);
        launch.run(&self.0, team_warps(elements, block))
    }

    fn int_expand_shared(
        &self,
        codes: Buffer<'_>,
        shared: Shared<'_>,
        weight: f32,
        out: BufferMut<'_>,
    ) -> Result<()> {
        let Shared { format, size, magnitudes } = shared;
        let (out, block) = (self.span_mut("out", &out)?, check_shared(format)?);
        let (elements, blocks) = (out.words, out.words.div_ceil(block));
        let magnitudes = self.span("magnitudes", &magnitudes)?.check("magnitudes", blocks)?;
        let codes = self.span("codes", &codes)?.check("codes", (elements * size.bytes()).div_ceil(4))?;
        let launch = Launch::new("int_expand_shared").span(codes).span(magnitudes).span(out).long(elements);
        let launch = launch.count("block", block)?.width(format.width).word(size.bytes() as u32);
        launch.float(weight).finish(&self.0, team_warps(elements, block))
    }
}
