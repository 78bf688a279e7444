//! The kernels of the codecs on an Ascend device.

use unisono_communicator::{Buffer, BufferMut, Error, Result};
use unisono_compression::{CodecKernels, Feedback, Shared, worst_element};
use unisono_kernels::format::flush;
use unisono_kernels::{IntFormat, Rounding, sign_words};

use crate::npu::{NpuKernels, unsupported};
use crate::spans::part_words;
use crate::steps::tiles;

/// The error of kernels that only the codec of blocks of signs needs.
fn no_blocks() -> Error {
    unsupported("signs with a scale for each block (the codec sign)")
}

/// The error of kernels that only the codecs of integers need.
fn no_integers() -> Error {
    unsupported("integer codes (the codecs int8 and int4)")
}

fn no_bf16() -> Error {
    unsupported("the codec bf16")
}

impl CodecKernels for NpuKernels {
    fn sign_encode(
        &self,
        _input: Buffer<'_>,
        _feedback: Option<Feedback<'_>>,
        _block: usize,
        _out: BufferMut<'_>,
    ) -> Result<Option<usize>> {
        Err(no_blocks())
    }

    fn sign_reduce_encode(
        &self,
        _parts: &[Buffer<'_>],
        _elements: usize,
        _feedback: Option<Feedback<'_>>,
        _block: usize,
        _out: BufferMut<'_>,
    ) -> Result<Option<usize>> {
        Err(no_blocks())
    }

    fn sign_decode_sum(
        &self,
        parts: &[Buffer<'_>],
        block: usize,
        weight: f32,
        out: BufferMut<'_>,
    ) -> Result<()> {
        let out = self.span_mut("out", &out)?;
        let parts = self.spans(parts, part_words(out.words, block)?)?;
        self.sum_signs(&parts, out)?;
        if weight == 1.0 { Ok(()) } else { self.0.multiply(out, out, weight) }
    }

    fn sign_expand(&self, part: Buffer<'_>, block: usize, weight: f32, out: BufferMut<'_>) -> Result<()> {
        let out = self.span_mut("out", &out)?;
        let part = self.span("part", &part)?.check("part", part_words(out.words, block)?)?;
        if out.words == 0 {
            return Ok(());
        }
        let (bits, signs) = (part.part(1, part.words - 1), self.signs(out.words)?);
        let magnitude = flush(self.scales(&[part])?[0] * weight);
        for tile in tiles(out.words) {
            let signs = signs.of(&self.0, bits, &tile)?;
            self.0.multiply(out.part(tile.start, tile.len()), signs, magnitude)?;
        }
        Ok(())
    }

    fn compensate(&self, input: Buffer<'_>, feedback: Feedback<'_>) -> Result<f64> {
        let input = self.span("input", &input)?;
        let residual = self.residual(&feedback, input.words)?;
        self.0.add(residual.new, [input, residual.old], 1.0)?;
        self.squares(residual.new)
    }

    fn sign_reduce_global(&self, parts: &[Buffer<'_>], feedback: Feedback<'_>) -> Result<f64> {
        let elements = self.span_mut("feedback.new", &feedback.new)?.words;
        let residual = self.residual(&feedback, elements)?;
        let parts = self.spans(parts, part_words(elements, elements)?)?;
        self.sum_signs(&parts, residual.new)?;
        self.0.add(residual.new, [residual.new, residual.old], 1.0)?;
        self.squares(residual.new)
    }

    fn sign_pack(&self, values: BufferMut<'_>, scale: f32, out: BufferMut<'_>) -> Result<()> {
        let values = self.span_mut("values", &values)?;
        let out = self.span_mut("out", &out)?.check("out", 1 + sign_words(values.words))?;
        let bits = out.part(1, out.words - 1);
        self.pack(bits, values)?;
        let signs = self.signs(values.words)?;
        for tile in tiles(values.words) {
            let signs = signs.of(&self.0, bits, &tile)?;
            let values = values.part(tile.start, tile.len());
            self.0.add(values, [values, signs], -scale)?;
        }
        self.0.upload(out.address, &[scale.to_bits()])
    }

    fn int_encode(
        &self,
        _input: Buffer<'_>,
        _feedback: Option<Feedback<'_>>,
        _format: IntFormat,
        _rounding: Rounding,
        _out: BufferMut<'_>,
    ) -> Result<Option<usize>> {
        Err(no_integers())
    }

    fn int_reduce_encode(
        &self,
        _parts: &[Buffer<'_>],
        _elements: usize,
        _feedback: Option<Feedback<'_>>,
        _format: IntFormat,
        _rounding: Rounding,
        _out: BufferMut<'_>,
    ) -> Result<Option<usize>> {
        Err(no_integers())
    }

    fn int_decode_sum(
        &self,
        _parts: &[Buffer<'_>],
        _format: IntFormat,
        _weight: f32,
        _out: BufferMut<'_>,
    ) -> Result<()> {
        Err(no_integers())
    }

    fn int_expand(
        &self,
        _part: Buffer<'_>,
        _format: IntFormat,
        _weight: f32,
        _out: BufferMut<'_>,
    ) -> Result<()> {
        Err(no_integers())
    }

    fn bf16_encode(&self, _input: Buffer<'_>, _out: BufferMut<'_>) -> Result<Option<usize>> {
        Err(no_bf16())
    }

    fn bf16_reduce_encode(
        &self,
        _parts: &[Buffer<'_>],
        _elements: usize,
        _out: BufferMut<'_>,
    ) -> Result<Option<usize>> {
        Err(no_bf16())
    }

    fn bf16_decode_sum(&self, _parts: &[Buffer<'_>], _weight: f32, _out: BufferMut<'_>) -> Result<()> {
        Err(no_bf16())
    }

    fn bf16_expand(&self, _part: Buffer<'_>, _weight: f32, _out: BufferMut<'_>) -> Result<()> {
        Err(no_bf16())
    }

    fn worst_element(&self, values: BufferMut<'_>) -> Result<usize> {
        let values = self.span_mut("values", &values)?;
        let mut host = vec![0.0f32; values.words];
        self.0.download(bytemuck::cast_slice_mut(&mut host), values.address)?;
        Ok(worst_element(&host))
    }

    fn sum(&self, parts: &[Buffer<'_>], out: BufferMut<'_>) -> Result<()> {
        let out = self.span_mut("out", &out)?;
        let parts = self.spans(parts, out.words)?;
        let Some((first, others)) = parts.split_first() else {
            return Err(Error::invalid("parts", "none, whose sum is nothing"));
        };
        self.0.copy(out.address, first.address, out.words)?;
        others.iter().try_for_each(|part| self.0.add(out, [out, *part], 1.0))
    }

    fn average(&self, _old: Buffer<'_>, _shift: u32, _new: BufferMut<'_>) -> Result<()> {
        Err(unsupported("averaged residuals (with_loco)"))
    }

    fn int_magnitudes(
        &self,
        _input: Buffer<'_>,
        _old: Option<Buffer<'_>>,
        _block: usize,
        _out: BufferMut<'_>,
    ) -> Result<()> {
        Err(no_integers())
    }

    fn int_encode_shared(
        &self,
        _input: Buffer<'_>,
        _feedback: Option<Feedback<'_>>,
        _rounding: Rounding,
        _shared: Shared<'_>,
        _out: BufferMut<'_>,
    ) -> Result<()> {
        Err(no_integers())
    }

    fn int_expand_shared(
        &self,
        _codes: Buffer<'_>,
        _shared: Shared<'_>,
        _weight: f32,
        _out: BufferMut<'_>,
    ) -> Result<()> {
        Err(no_integers())
    }
}
