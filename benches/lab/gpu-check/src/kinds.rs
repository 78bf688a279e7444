//! The kernels that are measured: what they move, and how they are called.

use unisono_communicator::{Buffer, Result};
use unisono_compression::{CodecKernels, DeviceMemory, Feedback, KernelDevice, View};
use unisono_compression_cuda::{CudaKernels, CudaMemory};
use unisono_kernels::{IntFormat, IntWidth, Rounding, sign_words};

/// Ranks whose parts are summed.
const RANKS: usize = 8;
const SIGN_BLOCK: usize = 1024;
const INT8: IntFormat = IntFormat { width: IntWidth::Eight, block: 256, symmetric: true };
const INT4: IntFormat = IntFormat { width: IntWidth::Four, ..INT8 };

/// How elements are encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Sign,
    Int(IntFormat),
    Bf16,
}

/// A kernel, or the copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Copy,
    Encode(Format),
    /// Of [`RANKS`] parts.
    ReduceEncode(Format),
    Expand(Format),
    Average,
}

const FORMATS: [(Format, &str); 4] = [
    (Format::Sign, "sign"),
    (Format::Int(INT8), "int8"),
    (Format::Int(INT4), "int4"),
    (Format::Bf16, "bf16"),
];

impl Kind {
    /// All, with names. What an expansion reads is what the encoder before it has left.
    pub(crate) fn all() -> Vec<(Kind, String)> {
        let mut all = vec![(Kind::Copy, "copy of the card".to_owned())];
        for (format, name) in FORMATS {
            let residual = if format == Format::Sign { ", residual" } else { "" };
            let reduce = format!("{name}_reduce_encode, {RANKS} ranks{residual}");
            all.push((Kind::ReduceEncode(format), reduce));
            all.push((Kind::Encode(format), format!("{name}_encode{residual}")));
            all.push((Kind::Expand(format), format!("{name}_expand")));
        }
        all.push((Kind::Average, "average".to_owned()));
        all
    }

    /// Bytes of memory that it must read and write.
    pub(crate) fn bytes(self, elements: usize) -> usize {
        let vector = elements * size_of::<f32>();
        let part = |format: Format| 4 * format.words(elements);
        // Signs are encoded with a residual, which is read and written.
        let residual = |format: Format| if format == Format::Sign { 2 * vector } else { 0 };
        match self {
            Kind::Copy => 2 * vector,
            Kind::Encode(format) => vector + residual(format) + part(format),
            Kind::ReduceEncode(format) => (RANKS + 1) * part(format) + residual(format),
            Kind::Expand(format) => part(format) + vector,
            Kind::Average => 3 * vector,
        }
    }
}

impl Format {
    /// Words of a part.
    fn words(self, elements: usize) -> usize {
        match self {
            Format::Sign => elements.div_ceil(SIGN_BLOCK) + sign_words(elements),
            Format::Int(format) => {
                format.scales(elements) + format.width.code_bytes(elements).div_ceil(size_of::<u32>())
            }
            Format::Bf16 => elements.div_ceil(2),
        }
    }
}

/// The memory that the kernels work on.
pub(crate) struct Bench<'a> {
    kernels: &'a CudaKernels,
    elements: usize,
    input: CudaMemory,
    old: CudaMemory,
    new: CudaMemory,
    out: CudaMemory,
    part: CudaMemory,
    /// Of all ranks, one behind the other, for each format.
    parts: Vec<(Format, CudaMemory)>,
}

impl<'a> Bench<'a> {
    pub(crate) fn new(kernels: &'a CudaKernels, elements: usize) -> Result<Bench<'a>> {
        let vector = || kernels.allocate(elements);
        let (mut input, old, new, out) = (vector()?, vector()?, vector()?, vector()?);
        kernels.write(&numbers(elements), &mut input, 0)?;
        let part = kernels.allocate(elements)?;
        let mut bench = Bench { kernels, elements, input, old, new, out, part, parts: Vec::new() };
        for (format, _) in FORMATS {
            let words = format.words(elements);
            let mut parts = kernels.allocate(RANKS * words)?;
            bench.run(Kind::Encode(format))?;
            for rank in 0..RANKS {
                kernels.copy(&bench.part, 0, &mut parts, rank * words..(rank + 1) * words)?;
            }
            bench.parts.push((format, parts));
        }
        Ok(bench)
    }

    /// Calls it once.
    pub(crate) fn run(&mut self, kind: Kind) -> Result<()> {
        match kind {
            Kind::Copy => self.kernels.copy(&self.input, 0, &mut self.out, 0..self.elements),
            Kind::Encode(format) => self.encode(format),
            Kind::ReduceEncode(format) => self.reduce_encode(format),
            Kind::Expand(format) => self.expand(format),
            Kind::Average => {
                let (old, mut new) = (self.old.view(0..self.elements), self.new.view_mut(0..self.elements));
                self.kernels.average(old.buffer(), 3, new.buffer())
            }
        }
    }

    fn encode(&mut self, format: Format) -> Result<()> {
        let input = self.input.view(0..self.elements);
        let (old, mut new) = (self.old.view(0..self.elements), self.new.view_mut(0..self.elements));
        let mut part = self.part.view_mut(0..format.words(self.elements));
        let (kernels, input, out) = (self.kernels, input.buffer(), part.buffer());
        match format {
            Format::Sign => {
                let feedback = Some(Feedback { old: old.buffer(), new: new.buffer() });
                kernels.sign_encode(input, feedback, SIGN_BLOCK, out)
            }
            Format::Int(format) => kernels.int_encode(input, None, format, Rounding::Nearest, out),
            Format::Bf16 => kernels.bf16_encode(input, out),
        }
        .map(drop)
    }

    fn reduce_encode(&mut self, format: Format) -> Result<()> {
        let (elements, words) = (self.elements, format.words(self.elements));
        let parts = self.parts.iter().filter(|(own, _)| *own == format);
        let views: Vec<View<'_>> = parts
            .flat_map(|(_, parts)| (0..RANKS).map(|rank| parts.view(rank * words..(rank + 1) * words)))
            .collect();
        let parts: Vec<Buffer<'_>> = views.iter().map(View::buffer).collect();
        let (old, mut new) = (self.old.view(0..elements), self.new.view_mut(0..elements));
        let mut part = self.part.view_mut(0..words);
        let (kernels, out) = (self.kernels, part.buffer());
        match format {
            Format::Sign => {
                let feedback = Some(Feedback { old: old.buffer(), new: new.buffer() });
                kernels.sign_reduce_encode(&parts, elements, feedback, SIGN_BLOCK, out)
            }
            Format::Int(format) => {
                kernels.int_reduce_encode(&parts, elements, None, format, Rounding::Nearest, out)
            }
            Format::Bf16 => kernels.bf16_reduce_encode(&parts, elements, out),
        }
        .map(drop)
    }

    fn expand(&mut self, format: Format) -> Result<()> {
        let part = self.part.view(0..format.words(self.elements));
        let mut out = self.out.view_mut(0..self.elements);
        let (kernels, part, out) = (self.kernels, part.buffer(), out.buffer());
        match format {
            Format::Sign => kernels.sign_expand(part, SIGN_BLOCK, 0.5, out),
            Format::Int(format) => kernels.int_expand(part, format, 0.5, out),
            Format::Bf16 => kernels.bf16_expand(part, 0.5, out),
        }
    }
}

/// The bits of numbers from -1 to 1.
fn numbers(elements: usize) -> Vec<u32> {
    let mut state = 1u32;
    let mut number = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ((state >> 8) as f32 / (1u32 << 23) as f32 - 1.0).to_bits()
    };
    (0..elements).map(|_| number()).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use unisono_compression_cuda::cuda::{Capability, Code};
    use unisono_compression_cuda::{Compiled, CudaOptions, KernelCode};
    use unisono_tests::cuda::{DOUBLE_CODE, driver_double};

    use super::*;

    /// On a test double, whose times are no figures: that every kernel is called as it should be.
    #[test]
    fn every_kernel_is_called() -> Result<()> {
        let Some(driver) = driver_double() else { return Ok(()) };
        let compiled = Compiled { capability: Capability::from_number(90), code: Code::new(DOUBLE_CODE) };
        let driver = Some(Path::to_owned(driver));
        let options = CudaOptions { driver, device: 0, code: KernelCode::Compiled(vec![compiled]) };
        let kernels = CudaKernels::open(&options)?;
        const ELEMENTS: usize = 10_000;
        let mut bench = Bench::new(&kernels, ELEMENTS)?;
        for (kind, name) in Kind::all() {
            bench.run(kind)?;
            let Kind::Expand(format) = kind else { continue };
            // What was encoded just before, halved: near the input for all but signs.
            let [mut input, mut output] = [vec![0; ELEMENTS], vec![0; ELEMENTS]];
            kernels.read(&bench.input, 0, &mut input)?;
            kernels.read(&bench.out, 0, &mut output)?;
            let differs = |(input, output): (&u32, &u32)| {
                let [input, output] = [input, output].map(|bits| f32::from_bits(*bits));
                let error = (input / 2.0 - output).abs();
                if format == Format::Sign { input * output < 0.0 } else { error > 0.08 }
            };
            assert!(!input.iter().zip(&output).any(differs), "{name}");
        }
        Ok(())
    }

    #[test]
    fn bytes_are_those_of_the_kernels_documentation() {
        let per_element = |kind: Kind| kind.bytes(1 << 20) as f64 / f64::from(1 << 20);
        let rounded = |kind| (per_element(kind) * 10.0).round() / 10.0;
        assert_eq!(rounded(Kind::Copy), 8.0);
        assert_eq!(rounded(Kind::Encode(Format::Sign)), 12.1);
        assert_eq!(rounded(Kind::ReduceEncode(Format::Sign)), 9.2);
        assert_eq!(rounded(Kind::Expand(Format::Sign)), 4.1);
        assert_eq!(rounded(Kind::Encode(Format::Int(INT8))), 5.0);
        assert_eq!(rounded(Kind::Expand(Format::Int(INT4))), 4.5);
        assert_eq!(rounded(Kind::Encode(Format::Bf16)), 6.0);
        assert_eq!(rounded(Kind::Average), 12.0);
    }
}
