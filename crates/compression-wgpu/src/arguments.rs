//! From the arguments of a kernel to the inputs of a job: words of buffers, and numbers of formats.

use unisono_communicator::{Buffer, BufferMut, DeviceBuffer, Error, Result};
use unisono_compression::{Feedback, Shared};
use unisono_kernels::format::{self, LANES};
use unisono_kernels::{CodeSize, IntFormat, IntWidth};

use crate::WgpuKernels;
use crate::error::unreachable;
use crate::gather::Part;
use crate::job::Numbers;
use crate::memory::Span;
use crate::regions::{Density, EncodedRegions, Region};

/// Signs in a word.
pub(crate) const SIGNS: usize = 32;

impl WgpuKernels {
    fn span_of(&self, buffer: &DeviceBuffer) -> Result<Span> {
        match buffer.spans() {
            [one] if one.bytes() == 0 => Ok(Span { words: 0, ..self.unread().clone() }),
            [one] => self.find(one.address(), one.bytes()),
            _ => Err(unreachable(&self.link().adapter, "a list of spans", "one contiguous span")),
        }
    }

    fn on_host(&self) -> Error {
        let instead = "memory of these kernels (allocate, to_read), or HostKernels";
        unreachable(&self.link().adapter, "memory of the host", instead)
    }

    pub(crate) fn read_only(&self, buffer: &Buffer<'_>) -> Result<Span> {
        match buffer {
            Buffer::Device(buffer) => self.span_of(buffer),
            Buffer::Host(_) => Err(self.on_host()),
        }
    }

    pub(crate) fn writable(&self, buffer: &BufferMut<'_>) -> Result<Span> {
        match buffer {
            BufferMut::Device(buffer) => self.span_of(buffer),
            BufferMut::Host(_) => Err(self.on_host()),
        }
    }

    /// A vector of f32.
    pub(crate) fn vector(
        &self,
        argument: &'static str,
        buffer: &Buffer<'_>,
        elements: usize,
    ) -> Result<Region> {
        Region::whole(argument, self.read_only(buffer)?, Density::F32, elements)
    }

    /// The residual before and after.
    pub(crate) fn residual(
        &self,
        feedback: Option<Feedback<'_>>,
        elements: usize,
    ) -> Result<[Option<Region>; 2]> {
        let Some(Feedback { old, new }) = feedback else { return Ok([None, None]) };
        let new = Region::whole("feedback.new", self.writable(&new)?, Density::F32, elements)?;
        Ok([Some(self.vector("feedback.old", &old, elements)?), Some(new)])
    }

    /// The regions that an encoder writes.
    pub(crate) fn encoded(
        &self,
        out: &BufferMut<'_>,
        densities: [Density; 2],
        elements: usize,
    ) -> Result<EncodedRegions> {
        EncodedRegions::of("out", self.writable(out)?, densities, elements)
    }

    /// Parts with numbers of blocks.
    pub(crate) fn parts(
        &self,
        parts: &[Buffer<'_>],
        densities: [Density; 2],
        elements: usize,
    ) -> Result<Vec<Part>> {
        let part = |part| {
            let span = self.read_only(part)?;
            Ok(Part::Encoded(EncodedRegions::of("parts", span, densities, elements)?))
        };
        parts.iter().map(part).collect()
    }

    /// Parts without.
    pub(crate) fn plain_parts(
        &self,
        argument: &'static str,
        parts: &[Buffer<'_>],
        density: Density,
        elements: usize,
    ) -> Result<Vec<Part>> {
        let part = |part| Ok(Part::Plain(Region::whole(argument, self.read_only(part)?, density, elements)?));
        parts.iter().map(part).collect()
    }

    /// A magnitude for each block.
    pub(crate) fn magnitudes(&self, shared: &Shared<'_>, elements: usize) -> Result<Region> {
        let density = block_density(shared.format.block);
        Region::whole("magnitudes", self.read_only(&shared.magnitudes)?, density, elements)
    }
}

/// One word for each block.
pub(crate) fn block_density(block: usize) -> Density {
    Density::Each { words: 1, elements: block }
}

/// Of a part of signs.
pub(crate) fn sign_densities(block: usize) -> [Density; 2] {
    [block_density(block), Density::codes(SIGNS)]
}

/// Of a part of signs with one scale.
pub(crate) const GLOBAL_SIGN_DENSITIES: [Density; 2] =
    [Density::Common { words: 1 }, Density::Each { words: 1, elements: SIGNS }];

/// Of a part of integers.
pub(crate) fn int_densities(format: IntFormat) -> [Density; 2] {
    let scales = Density::Each { words: format.scales_per_block(), elements: format.block };
    [scales, Density::codes(codes_in_a_word(format.width))]
}

fn codes_in_a_word(width: IntWidth) -> usize {
    match width {
        IntWidth::Eight => 4,
        IntWidth::Four => 8,
    }
}

/// Of codes by scales that ranks share.
pub(crate) fn shared_density(size: CodeSize) -> Density {
    Density::codes(4 / size.bytes())
}

/// The number of elements of a block.
pub(crate) fn block_number(block: usize) -> Result<u32> {
    match u32::try_from(block) {
        Ok(number) if number > 0 && block.is_multiple_of(LANES) => Ok(number),
        _ => {
            Err(Error::invalid("block", format!("{block} elements; it must be a multiple of {LANES} in u32")))
        }
    }
}

/// Of signs with a scale for each block.
pub(crate) fn sign_numbers(elements: usize, block: usize) -> Result<Numbers> {
    let (number, last) = (block_number(block)?, elements % block);
    Ok(Numbers {
        block: number,
        mean_factor: format::mean_factor(block),
        last_mean_factor: format::mean_factor(if last == 0 { block } else { last }),
        ..Numbers::default()
    })
}

/// The numbers of a format that has one scale for all elements, or none.
pub(crate) fn global_numbers(weight: f32) -> Numbers {
    weighted(Numbers { block: u32::MAX, ..Numbers::default() }, weight)
}

/// Of integers.
pub(crate) fn int_numbers(format: IntFormat) -> Result<Numbers> {
    let scale_end = match format.width {
        IntWidth::Eight => 2f32.powi(120),
        IntWidth::Four => 2f32.powi(124),
    };
    Ok(Numbers {
        block: block_number(format.block)?,
        width: 32 / codes_in_a_word(format.width) as u32,
        codes_shift: codes_in_a_word(format.width).ilog2(),
        is_symmetric: format.symmetric.into(),
        inverse_steps: 1.0 / format.steps() as f32,
        scale_end: scale_end.to_bits(),
        ..Numbers::default()
    })
}

/// Of integers by scales that ranks share.
pub(crate) fn shared_numbers(shared: &Shared<'_>) -> Result<Numbers> {
    if !shared.format.symmetric {
        return Err(Error::invalid("format", "asymmetric; codes that are added are symmetric"));
    }
    let width = 8 * shared.size.bytes() as u32;
    Ok(Numbers { width, codes_shift: (32 / width).ilog2(), ..int_numbers(shared.format)? })
}

/// Times this. Devices may take a subnormal factor for zero.
pub(crate) fn weighted(numbers: Numbers, weight: f32) -> Numbers {
    Numbers { weight: format::flush(weight), ..numbers }
}
