//! The kernels on the memory of the host.

use std::ops::Range;
use std::sync::LazyLock;

use unisono_communicator::{Buffer, BufferMut, Error, Group, Result, Segments, SegmentsMut, zeroed};
use unisono_kernels::{
    GlobalSignPart, IntFormat, IntPart, IntPartMut, Kernels, Residual, Rounding, SignPart, SignPartMut,
    Stores, Threads, sign_words,
};

use crate::device::KernelDevice;
use crate::kernels::{CodecKernels, Feedback, Shared, worst_element};

/// The kernels of the processor, on host memory.
#[derive(Clone, Copy, Debug)]
pub struct HostKernels(pub Kernels);

impl HostKernels {
    /// The kernels of a call of `group` over so many elements. More threads than one only where each rank of this host
    /// has more cores than one.
    pub fn of_call(group: &Group, elements: usize) -> HostKernels {
        let own_host = group.hosts()[group.rank() as usize];
        let neighbours = group.hosts().iter().filter(|host| **host == own_host).count();
        // Asked once: the answer is in several files.
        static CORES: LazyLock<usize> =
            LazyLock::new(|| std::thread::available_parallelism().map_or(1, usize::from));
        let threads = if *CORES >= 2 * neighbours { Threads::Pool } else { Threads::One };
        HostKernels(Kernels::best().with_stores(Stores::of_call(elements)).with_threads(threads))
    }
}

/// Elements that [`CodecKernels::bf16_reduce_encode`] sums at a time: they stay in the first cache.
const SUMMED_ELEMENTS: usize = 4 * unisono_kernels::reference::BF16_BLOCK;

/// A contiguous part of host memory.
fn host<'a, T: bytemuck::Pod>(buffer: &Buffer<'a>) -> Result<&'a [T]> {
    match buffer {
        Buffer::Host(Segments::One(bytes)) => Ok(bytemuck::cast_slice(bytes)),
        Buffer::Host(_) | Buffer::Device(_) => Err(Error::no_device("compression on the host")),
    }
}

fn host_mut<T: bytemuck::Pod>(buffer: BufferMut<'_>) -> Result<&mut [T]> {
    match buffer {
        BufferMut::Host(SegmentsMut::One(bytes)) => Ok(bytemuck::cast_slice_mut(bytes)),
        BufferMut::Host(_) | BufferMut::Device(_) => Err(Error::no_device("compression on the host")),
    }
}

fn residual(feedback: Option<Feedback<'_>>) -> Result<Option<Residual<'_>>> {
    let Some(Feedback { old, new }) = feedback else { return Ok(None) };
    Ok(Some(Residual { old: host(&old)?, new: host_mut(new)? }))
}

fn global_sign_part<'a>(part: &Buffer<'a>) -> Result<GlobalSignPart<'a>> {
    let (scale, bits) = host::<u32>(part)?.split_at(1);
    Ok(GlobalSignPart { scale: f32::from_bits(scale[0]), bits })
}

fn sign_part<'a>(part: &Buffer<'a>, elements: usize, block: usize) -> Result<SignPart<'a>> {
    let (scales, bits) = host::<u32>(part)?.split_at(elements.div_ceil(block));
    Ok(SignPart { scales: bytemuck::cast_slice(scales), bits })
}

fn sign_part_mut(out: BufferMut<'_>, elements: usize, block: usize) -> Result<SignPartMut<'_>> {
    let (scales, bits) = host_mut::<u32>(out)?.split_at_mut(elements.div_ceil(block));
    Ok(SignPartMut { scales: bytemuck::cast_slice_mut(scales), bits })
}

fn int_part<'a>(part: &Buffer<'a>, elements: usize, format: IntFormat) -> Result<IntPart<'a>> {
    let (scales, codes) = host::<u32>(part)?.split_at(format.scales(elements));
    let codes = &bytemuck::cast_slice(codes)[..format.width.code_bytes(elements)];
    Ok(IntPart { scales: bytemuck::cast_slice(scales), codes })
}

fn int_part_mut(out: BufferMut<'_>, elements: usize, format: IntFormat) -> Result<IntPartMut<'_>> {
    let (scales, codes) = host_mut::<u32>(out)?.split_at_mut(format.scales(elements));
    let codes: &mut [u8] = bytemuck::cast_slice_mut(codes);
    let (codes, padding) = codes.split_at_mut(format.width.code_bytes(elements));
    padding.fill(0);
    Ok(IntPartMut { scales: bytemuck::cast_slice_mut(scales), codes })
}

impl CodecKernels for HostKernels {
    fn sign_encode(
        &self,
        input: Buffer<'_>,
        feedback: Option<Feedback<'_>>,
        block: usize,
        out: BufferMut<'_>,
    ) -> Result<Option<usize>> {
        let input: &[f32] = host(&input)?;
        let out = sign_part_mut(out, input.len(), block)?;
        Ok(self.0.sign_encode(input, residual(feedback)?, block, out))
    }

    fn sign_reduce_encode(
        &self,
        parts: &[Buffer<'_>],
        elements: usize,
        feedback: Option<Feedback<'_>>,
        block: usize,
        out: BufferMut<'_>,
    ) -> Result<Option<usize>> {
        let parts: Vec<_> =
            parts.iter().map(|part| sign_part(part, elements, block)).collect::<Result<_>>()?;
        let out = sign_part_mut(out, elements, block)?;
        Ok(self.0.sign_reduce_encode(&parts, elements, residual(feedback)?, block, out))
    }

    fn sign_decode_sum(
        &self,
        parts: &[Buffer<'_>],
        block: usize,
        weight: f32,
        out: BufferMut<'_>,
    ) -> Result<()> {
        let out: &mut [f32] = host_mut(out)?;
        let part = |part| sign_part(part, out.len(), block);
        let parts: Vec<_> = parts.iter().map(part).collect::<Result<_>>()?;
        self.0.sign_decode_sum(&parts, block, weight, out);
        Ok(())
    }

    fn sign_expand(&self, part: Buffer<'_>, block: usize, weight: f32, out: BufferMut<'_>) -> Result<()> {
        let out: &mut [f32] = host_mut(out)?;
        let part = sign_part(&part, out.len(), block)?;
        self.0.sign_expand(part, block, weight, out);
        Ok(())
    }

    fn compensate(&self, input: Buffer<'_>, feedback: Feedback<'_>) -> Result<f64> {
        Ok(self.0.compensate(host(&input)?, host(&feedback.old)?, host_mut(feedback.new)?))
    }

    fn sign_reduce_global(&self, parts: &[Buffer<'_>], feedback: Feedback<'_>) -> Result<f64> {
        let parts: Vec<_> = parts.iter().map(global_sign_part).collect::<Result<_>>()?;
        Ok(self.0.sign_reduce_global(&parts, host(&feedback.old)?, host_mut(feedback.new)?))
    }

    fn sign_pack(&self, values: BufferMut<'_>, scale: f32, out: BufferMut<'_>) -> Result<()> {
        let values: &mut [f32] = host_mut(values)?;
        let (first, bits) = host_mut::<u32>(out)?.split_at_mut(1);
        first[0] = scale.to_bits();
        self.0.sign_pack(values, scale, &mut bits[..sign_words(values.len())]);
        Ok(())
    }

    fn int_encode(
        &self,
        input: Buffer<'_>,
        feedback: Option<Feedback<'_>>,
        format: IntFormat,
        rounding: Rounding,
        out: BufferMut<'_>,
    ) -> Result<Option<usize>> {
        let input: &[f32] = host(&input)?;
        let out = int_part_mut(out, input.len(), format)?;
        Ok(self.0.int_encode(input, residual(feedback)?, format, rounding, out))
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
        let parts: Vec<_> =
            parts.iter().map(|part| int_part(part, elements, format)).collect::<Result<_>>()?;
        let out = int_part_mut(out, elements, format)?;
        Ok(self.0.int_reduce_encode(&parts, elements, residual(feedback)?, format, rounding, out))
    }

    fn int_decode_sum(
        &self,
        parts: &[Buffer<'_>],
        format: IntFormat,
        weight: f32,
        out: BufferMut<'_>,
    ) -> Result<()> {
        let out: &mut [f32] = host_mut(out)?;
        let part = |part| int_part(part, out.len(), format);
        let parts: Vec<_> = parts.iter().map(part).collect::<Result<_>>()?;
        self.0.int_decode_sum(&parts, format, weight, out);
        Ok(())
    }

    fn int_expand(&self, part: Buffer<'_>, format: IntFormat, weight: f32, out: BufferMut<'_>) -> Result<()> {
        let out: &mut [f32] = host_mut(out)?;
        let part = int_part(&part, out.len(), format)?;
        self.0.int_expand(part, format, weight, out);
        Ok(())
    }

    fn bf16_encode(&self, input: Buffer<'_>, out: BufferMut<'_>) -> Result<Option<usize>> {
        let input: &[f32] = host(&input)?;
        let (codes, padding) = host_mut::<u16>(out)?.split_at_mut(input.len());
        padding.fill(0);
        Ok(self.0.bf16_encode(input, codes))
    }

    fn bf16_reduce_encode(
        &self,
        parts: &[Buffer<'_>],
        elements: usize,
        out: BufferMut<'_>,
    ) -> Result<Option<usize>> {
        let parts: Vec<&[u16]> = parts.iter().map(host).collect::<Result<_>>()?;
        let (codes, padding) = host_mut::<u16>(out)?.split_at_mut(elements);
        padding.fill(0);
        let mut sum = [0.0f32; SUMMED_ELEMENTS];
        let mut bad = None;
        for (number, codes) in codes.chunks_mut(SUMMED_ELEMENTS).enumerate() {
            let at = number * SUMMED_ELEMENTS..number * SUMMED_ELEMENTS + codes.len();
            let parts: Vec<&[u16]> = parts.iter().map(|part| &part[at.clone()]).collect();
            let sum = &mut sum[..codes.len()];
            self.0.bf16_decode_sum(&parts, 1.0, sum);
            let first = at.start / unisono_kernels::reference::BF16_BLOCK;
            bad = bad.or(self.0.bf16_encode(sum, codes).map(|block| first + block));
        }
        Ok(bad)
    }

    fn bf16_decode_sum(&self, parts: &[Buffer<'_>], weight: f32, out: BufferMut<'_>) -> Result<()> {
        let out: &mut [f32] = host_mut(out)?;
        let part = |part| Ok(&host::<u16>(part)?[..out.len()]);
        let parts: Vec<&[u16]> = parts.iter().map(part).collect::<Result<_>>()?;
        self.0.bf16_decode_sum(&parts, weight, out);
        Ok(())
    }

    fn bf16_expand(&self, part: Buffer<'_>, weight: f32, out: BufferMut<'_>) -> Result<()> {
        let out: &mut [f32] = host_mut(out)?;
        self.0.bf16_expand(&host::<u16>(&part)?[..out.len()], weight, out);
        Ok(())
    }

    fn worst_element(&self, values: BufferMut<'_>) -> Result<usize> {
        Ok(worst_element(host_mut(values)?))
    }

    fn sum(&self, parts: &[Buffer<'_>], out: BufferMut<'_>) -> Result<()> {
        let parts: Vec<&[f32]> = parts.iter().map(host).collect::<Result<_>>()?;
        self.0.sum(&parts, host_mut(out)?);
        Ok(())
    }

    fn average(&self, old: Buffer<'_>, shift: u32, new: BufferMut<'_>) -> Result<()> {
        self.0.average(host(&old)?, shift, host_mut(new)?);
        Ok(())
    }

    fn int_magnitudes(
        &self,
        input: Buffer<'_>,
        old: Option<Buffer<'_>>,
        block: usize,
        out: BufferMut<'_>,
    ) -> Result<()> {
        let old = old.as_ref().map(host).transpose()?;
        self.0.int_magnitudes(host(&input)?, old, block, host_mut(out)?);
        Ok(())
    }

    fn int_encode_shared(
        &self,
        input: Buffer<'_>,
        feedback: Option<Feedback<'_>>,
        rounding: Rounding,
        shared: Shared<'_>,
        out: BufferMut<'_>,
    ) -> Result<()> {
        let (input, Shared { format, size, magnitudes }) = (host::<f32>(&input)?, shared);
        let (codes, padding) = host_mut::<u8>(out)?.split_at_mut(input.len() * size.bytes());
        padding.fill(0);
        let (residual, magnitudes) = (residual(feedback)?, host(&magnitudes)?);
        self.0.int_encode_shared(input, residual, format, rounding, magnitudes, size, codes);
        Ok(())
    }

    fn int_expand_shared(
        &self,
        codes: Buffer<'_>,
        shared: Shared<'_>,
        weight: f32,
        out: BufferMut<'_>,
    ) -> Result<()> {
        let (out, Shared { format, size, magnitudes }) = (host_mut::<f32>(out)?, shared);
        let codes = &host::<u8>(&codes)?[..out.len() * size.bytes()];
        self.0.int_expand_shared(codes, size, format, host(&magnitudes)?, weight, out);
        Ok(())
    }
}

impl KernelDevice for HostKernels {
    type Memory = Vec<u32>;

    fn allocate(&self, words: usize) -> Result<Vec<u32>> {
        let mut memory = zeroed(words)?;
        // Written now, a page is there; read first, it would be the system's page of zeros and be copied later.
        memory.fill(0);
        Ok(memory)
    }

    fn read(&self, from: &Vec<u32>, at: usize, to: &mut [u32]) -> Result<()> {
        to.copy_from_slice(&from[at..at + to.len()]);
        Ok(())
    }

    fn write(&self, from: &[u32], to: &mut Vec<u32>, at: usize) -> Result<()> {
        to[at..at + from.len()].copy_from_slice(from);
        Ok(())
    }

    fn copy(&self, from: &Vec<u32>, at: usize, to: &mut Vec<u32>, range: Range<usize>) -> Result<()> {
        let words = range.len();
        to[range].copy_from_slice(&from[at..at + words]);
        Ok(())
    }

    fn to_write(&self, message: Vec<u32>) -> Result<Vec<u32>> {
        Ok(message)
    }

    fn written(&self, memory: Vec<u32>) -> Result<Vec<u32>> {
        Ok(memory)
    }

    fn to_read(&self, message: Vec<u32>) -> Result<Vec<u32>> {
        Ok(message)
    }

    fn was_read(&self, memory: Vec<u32>) -> Vec<u32> {
        memory
    }
}
