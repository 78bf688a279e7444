//! Operators on spans, and compositions of several: sums of signs, and of squares.

#![expect(unsafe_code, reason = "operators on memory of a device, by its address")]

use std::ffi::c_void;
use std::ops::Range;
use std::sync::Arc;

use unisono_communicator::Result;

use crate::memory::NpuMemory;
use crate::npu::{Npu, NpuKernels};
use crate::spans::Span;

/// Elements that take one operator each: signs are f32 for a moment, and squares are added in f32.
pub(crate) const TILE: usize = 1 << 20;

/// Elements of a word of signs.
const SIGNS_PER_WORD: usize = 32;

/// Norms of which the squares of elements neither vanish in f32 nor come near its end, and the factor of elements for
/// other norms: this or its reciprocal.
const NORMS: Range<f32> = power_of_two(-40)..power_of_two(60);
const FACTOR: f32 = power_of_two(100);

const fn power_of_two(exponent: i32) -> f32 {
    f32::from_bits(((127 + exponent) as u32) << 23)
}

/// As C has it, to be written.
fn to_write(span: Span) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(span.address)
}

fn to_read(span: Span) -> *const c_void {
    std::ptr::with_exposed_provenance(span.address)
}

/// The tiles of so many elements. Each begins at a word of signs.
pub(crate) fn tiles(elements: usize) -> impl Iterator<Item = Range<usize>> {
    (0..elements).step_by(TILE).map(move |from| from..elements.min(from + TILE))
}

impl Npu {
    /// `to = left + factor * right`, for which the product is exact. All are as long as `to`.
    pub(crate) fn add(&self, to: Span, operands: [Span; 2], factor: f32) -> Result<()> {
        // SAFETY: callers have checked that the spans are of this device and as long, and lend them for the call; all
        // work is on this stream.
        unsafe { self.vectors.add(to_write(to), operands.map(to_read), factor, to.words, self.stream) }
    }

    /// `to = factor * from`.
    pub(crate) fn multiply(&self, to: Span, from: Span, factor: f32) -> Result<()> {
        // SAFETY: as above.
        unsafe { self.vectors.multiply(to_write(to), to_read(from), factor, to.words, self.stream) }
    }

    fn norm(&self, to: Span, from: Span) -> Result<()> {
        // SAFETY: as above.
        unsafe { self.vectors.norm(to_write(to), to_read(from), from.words, self.stream) }
    }

    /// The signs of whole words.
    fn pack(&self, to: Span, from: Span) -> Result<()> {
        // SAFETY: as above; there are 32 elements for each word.
        unsafe { self.vectors.pack_signs(to_write(to), to_read(from), from.words, self.stream) }
    }

    /// 1.0 and -1.0 of whole words of bits.
    fn unpack(&self, to: Span, bits: Span) -> Result<()> {
        // SAFETY: as above; there are 32 elements for each word.
        unsafe {
            self.vectors.unpack_signs(to_write(to), to_read(bits), size_of::<u32>() * bits.words, self.stream)
        }
    }
}

/// Signs as f32, for a tile.
pub(crate) struct Signs(NpuMemory);

impl Signs {
    /// The signs of `tile` in the bits of a part.
    pub(crate) fn of(&self, npu: &Npu, bits: Span, tile: &Range<usize>) -> Result<Span> {
        let words = tile.len().div_ceil(SIGNS_PER_WORD);
        let all = span_of(&self.0, words * SIGNS_PER_WORD);
        npu.unpack(all, bits.part(tile.start / SIGNS_PER_WORD, words))?;
        Ok(all.part(0, tile.len()))
    }
}

fn span_of(memory: &NpuMemory, words: usize) -> Span {
    Span { address: memory.at(0), words }
}

impl NpuKernels {
    /// For the next steps on the stream.
    fn scratch(&self, words: usize) -> Result<NpuMemory> {
        NpuMemory::pooled(Arc::clone(&self.0), words)
    }

    /// Room for the signs of a tile of this many elements.
    pub(crate) fn signs(&self, elements: usize) -> Result<Signs> {
        self.scratch(elements.min(TILE).next_multiple_of(SIGNS_PER_WORD)).map(Signs)
    }

    /// The first word of each part. Waits for the stream.
    pub(crate) fn scales(&self, parts: &[Span]) -> Result<Vec<f32>> {
        let gathered = self.scratch(parts.len())?;
        for (index, part) in parts.iter().enumerate() {
            self.0.copy(gathered.at(index), part.address, 1)?;
        }
        self.read_floats(&gathered, parts.len())
    }

    fn read_floats(&self, memory: &NpuMemory, count: usize) -> Result<Vec<f32>> {
        let mut floats = vec![0.0f32; count];
        self.0.download(bytemuck::cast_slice_mut(&mut floats), memory.at(0))?;
        Ok(floats)
    }

    /// The sum of the decoded values of parts with one scale each: by fours, and the fours in their order, as
    /// [`unisono_kernels::reference::sign_decode_sum`] adds.
    pub(crate) fn sum_signs(&self, parts: &[Span], to: Span) -> Result<()> {
        if to.words == 0 {
            return Ok(());
        }
        let (npu, scales) = (&*self.0, self.scales(parts)?);
        let signs = self.signs(to.words)?;
        let fours = self.scratch(if parts.len() > 4 { to.words.min(TILE) } else { 0 })?;
        for tile in tiles(to.words) {
            let sum = to.part(tile.start, tile.len());
            // A part whose scale is zero adds nothing, and would leave a zero's sign.
            let mut is_begun = false;
            for (parts, scales) in parts.chunks(4).zip(scales.chunks(4)) {
                let into = if is_begun { span_of(&fours, tile.len()) } else { sum };
                let mut is_empty = true;
                for (part, scale) in parts.iter().zip(scales).filter(|(_, scale)| **scale != 0.0) {
                    let signs = signs.of(npu, part.part(1, part.words - 1), &tile)?;
                    if is_empty {
                        npu.multiply(into, signs, *scale)?;
                    } else {
                        npu.add(into, [into, signs], *scale)?;
                    }
                    is_empty = false;
                }
                if is_begun && !is_empty {
                    npu.add(sum, [sum, into], 1.0)?;
                }
                is_begun |= !is_empty;
            }
            if !is_begun {
                npu.upload(sum.address, &vec![0; tile.len()])?;
            }
        }
        Ok(())
    }

    /// The bits of all elements; those behind the last one are clear.
    pub(crate) fn pack(&self, bits: Span, values: Span) -> Result<()> {
        let npu = &*self.0;
        let whole = values.words / SIGNS_PER_WORD * SIGNS_PER_WORD;
        for tile in tiles(whole) {
            let words = tile.len() / SIGNS_PER_WORD;
            npu.pack(bits.part(tile.start / SIGNS_PER_WORD, words), values.part(tile.start, tile.len()))?;
        }
        let rest = values.words - whole;
        if rest > 0 {
            // The elements behind the last one are negative.
            let last = self.scratch(SIGNS_PER_WORD)?;
            npu.upload(last.at(0), &[(-1.0f32).to_bits(); SIGNS_PER_WORD])?;
            npu.copy(last.at(0), values.part(whole, rest).address, rest)?;
            npu.pack(bits.part(whole / SIGNS_PER_WORD, 1), span_of(&last, SIGNS_PER_WORD))?;
        }
        Ok(())
    }

    /// The sum of squares; not finite exactly when an element is not. Waits for the stream.
    pub(crate) fn squares(&self, values: Span) -> Result<f64> {
        let count = values.words.div_ceil(TILE);
        let norms = self.scratch(count)?;
        for (index, tile) in tiles(values.words).enumerate() {
            let to = span_of(&norms, count).part(index, 1);
            self.0.norm(to, values.part(tile.start, tile.len()))?;
        }
        let norms = self.read_floats(&norms, count)?;
        let tiles = tiles(values.words).zip(norms);
        tiles.map(|(tile, norm)| self.square(values.part(tile.start, tile.len()), norm)).sum()
    }

    /// The square of the norm of a tile, which is taken again where squares may have left the range of f32.
    fn square(&self, values: Span, norm: f32) -> Result<f64> {
        if NORMS.contains(&norm) {
            return Ok(f64::from(norm) * f64::from(norm));
        }
        let factor = if norm < 1.0 { FACTOR } else { FACTOR.recip() };
        let scaled = self.scratch(values.words + 1)?;
        let (values_scaled, norm) = (span_of(&scaled, values.words), span_of(&scaled, values.words + 1));
        let norm = norm.part(values.words, 1);
        self.0.multiply(values_scaled, values, factor)?;
        self.0.norm(norm, values_scaled)?;
        let mut word = [0];
        self.0.download(&mut word, norm.address)?;
        let norm = f64::from(f32::from_bits(word[0])) / f64::from(factor);
        Ok(norm * norm)
    }
}
