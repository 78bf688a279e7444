//! The residuals of the elements that a rank encodes, in two generations, in the memory of the device.

use std::ops::Range;

#[cfg(doc)]
use unisono_communicator::Error;
use unisono_communicator::{Buffer, BufferMut, Result, zeroed};
use unisono_kernels::{IntFormat, IntWidth, Kernels, Rounding};

use crate::device::{DeviceMemory, KernelDevice, View, ViewMut};
use crate::host::HostKernels;
use crate::kernels::{CodecKernels, Feedback};
use crate::layout::Part;
use crate::pool::Pool;

/// Error feedback in one byte for each element instead of four: LoCo (Xie et al., "Low-Bit Communication Adaptor for
/// Large-scale Model Training", 2024).
///
/// A residual is a moving average of the errors of calls, kept in int8, and forgotten from time to time. It needs a
/// quarter of the memory, and loses a little: the error of a call comes later for the most part, not to the last bit. A
/// call costs an expansion and another encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LoCo {
    /// The weight of a call's error is 2^-shift, the weight of all errors before it beta = 1 - 2^-shift; at most 8.
    /// With 0 there is no average. Such weights are exact on every device; DeepSpeed's beta of 0.8 lies between the
    /// betas of 2 and 3.
    pub average_shift: u32,
    /// After so many calls all is forgotten, on all ranks alike; 0 for never.
    pub reset_calls: u64,
}

impl Default for LoCo {
    /// A shift of 2, and a reset after each 1024 calls as in DeepSpeed.
    fn default() -> LoCo {
        LoCo { average_shift: 2, reset_calls: 1024 }
    }
}

/// Elements with a common scale in the residuals of [`LoCo`].
const BLOCK: usize = 256;

/// As which residuals of [`LoCo`] are kept.
const FORMAT: IntFormat = IntFormat { width: IntWidth::Eight, block: BLOCK, symmetric: true };

/// The form of the residuals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// As f32.
    Exactly,
    Averaged(LoCo),
}

impl Kept {
    /// Whether all is forgotten after call number `calls`.
    pub(crate) fn is_reset_after(self, calls: u64) -> bool {
        match self {
            Kept::Exactly | Kept::Averaged(LoCo { reset_calls: 0, .. }) => false,
            Kept::Averaged(loco) => calls.is_multiple_of(loco.reset_calls),
        }
    }

    /// The words of so many elements.
    fn words(self, elements: usize) -> usize {
        match self {
            Kept::Exactly => elements,
            Kept::Averaged(_) => FORMAT.scales(elements) + elements.div_ceil(size_of::<u32>()),
        }
    }
}

/// The residuals of one stage. The last call has read one generation and written the other.
#[derive(Debug)]
pub(crate) struct Residuals<M> {
    pub(crate) kept: Kept,
    memory: [M; 2],
    current: usize,
    /// The elements of each part, and where each begins in each of the memories, in words, and the end of the last.
    elements: Vec<usize>,
    bounds: Vec<usize>,
}

impl<M: DeviceMemory> Residuals<M> {
    /// Nothing owed to these parts.
    pub(crate) fn zeroed<D: KernelDevice<Memory = M>>(
        device: &D,
        kept: Kept,
        parts: impl Iterator<Item = Part>,
    ) -> Result<Residuals<M>> {
        let elements: Vec<usize> = parts.map(|part| part.elements.len()).collect();
        let mut bounds = vec![0];
        bounds.extend(elements.iter().scan(0, |end, elements| {
            *end += kept.words(*elements);
            Some(*end)
        }));
        let words = bounds.last().copied().unwrap_or_default();
        let memory = [device.allocate(words)?, device.allocate(words)?];
        Ok(Residuals { kept, memory, current: 0, elements, bounds })
    }

    /// The number of words of a generation.
    pub(crate) fn words(&self) -> usize {
        self.memory[0].words()
    }

    /// The words of a part.
    pub(crate) fn part(&self, index: usize) -> Range<usize> {
        self.bounds[index]..self.bounds[index + 1]
    }

    pub(crate) fn current(&self) -> &M {
        &self.memory[self.current]
    }

    /// The generation that the last call has read, until the next one writes.
    pub(crate) fn previous(&self) -> &M {
        &self.memory[1 - self.current]
    }

    pub(crate) fn current_mut(&mut self) -> &mut M {
        &mut self.memory[self.current]
    }

    /// The current generation, and memory for the next.
    pub(crate) fn both(&mut self) -> (&M, &mut M) {
        let [first, second] = &mut self.memory;
        if self.current == 0 { (first, second) } else { (second, first) }
    }

    /// The next generation becomes the current one.
    pub(crate) fn turn(&mut self) {
        self.current = 1 - self.current;
    }

    /// Nothing is owed any more.
    pub(crate) fn forget<D: KernelDevice<Memory = M>>(&mut self, device: &D) -> Result<()> {
        device.write(&zeroed::<u32>(self.words())?, self.current_mut(), 0)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.memory.iter().map(|memory| memory.words() * size_of::<u32>()).sum()
    }

    /// The residual of each element, from the words of a generation.
    ///
    /// # Errors
    /// [`Error::System`] when there is no memory.
    pub(crate) fn decoded(&self, words: Vec<u32>) -> Result<Vec<f32>> {
        if self.kept == Kept::Exactly {
            return Ok(bytemuck::cast_vec(words));
        }
        let mut owed = zeroed::<f32>(self.elements.iter().sum())?;
        let mut rest = &mut owed[..];
        for (index, elements) in self.elements.iter().enumerate() {
            let out = BufferMut::of(rest.split_off_mut(..*elements).unwrap_or_default());
            let part = Buffer::of(&words[self.part(index)]);
            HostKernels(Kernels::best()).int_expand(part, FORMAT, 1.0, out)?;
        }
        Ok(owed)
    }

    /// The words of a generation that owes this to each element.
    ///
    /// # Errors
    /// [`Error::System`] when there is no memory.
    pub(crate) fn encoded(&self, owed: Vec<f32>) -> Result<Vec<u32>> {
        if self.kept == Kept::Exactly {
            return Ok(bytemuck::cast_vec(owed));
        }
        let mut words = zeroed::<u32>(self.words())?;
        let mut rest = &owed[..];
        for (index, elements) in self.elements.iter().enumerate() {
            let input = Buffer::of(rest.split_off(..*elements).unwrap_or_default());
            let out = BufferMut::of(&mut words[self.part(index)]);
            HostKernels(Kernels::best()).int_encode(input, None, FORMAT, Rounding::Nearest, out)?;
        }
        Ok(words)
    }

    /// Whether the words of a generation are as kernels leave them; zeros of other kinds become zero.
    ///
    /// # Errors
    /// The fault of the words.
    pub(crate) fn check(&self, words: &mut [u32]) -> std::result::Result<(), &'static str> {
        match self.kept {
            Kept::Exactly => words.iter_mut().try_for_each(|word| {
                let value = unisono_kernels::format::flush(f32::from_bits(*word));
                *word = value.to_bits();
                if value.is_finite() { Ok(()) } else { Err("has a residual that is not finite") }
            }),
            Kept::Averaged(_) => {
                let mut parts = self.elements.iter().enumerate();
                let is_good = parts.all(|(index, elements)| {
                    let scales = &words[self.part(index)][..FORMAT.scales(*elements)];
                    scales.iter().all(|scale| FORMAT.is_scale(f32::from_bits(*scale)))
                });
                if is_good { Ok(()) } else { Err("has a residual with an impossible scale") }
            }
        }
    }
}

/// Encodes with error feedback, if there is any.
pub(crate) type Encode<'a> = dyn FnMut(Option<Feedback<'_>>) -> Result<Option<usize>> + 'a;

/// Lets `encode` use the residuals of a part of so many elements, which are in the first of `owed`, and keeps the new
/// residuals in the second. The first block that cannot be encoded.
pub(crate) fn feed<D: KernelDevice>(
    device: &D,
    pool: &mut Pool,
    kept: Kept,
    elements: usize,
    owed: Option<(View<'_>, ViewMut<'_>)>,
    encode: &mut Encode<'_>,
) -> Result<Option<usize>> {
    let (old, mut new, average_shift) = match (owed, kept) {
        (None, _) => return encode(None),
        (Some((old, mut new)), Kept::Exactly) => {
            return encode(Some(Feedback { old: old.buffer(), new: new.buffer() }));
        }
        (Some((old, new)), Kept::Averaged(loco)) => (old, new, loco.average_shift),
    };
    let mut owed = device.to_write(pool.take(elements)?)?;
    let mut left = device.to_write(pool.take(elements)?)?;
    device.int_expand(old.buffer(), FORMAT, 1.0, owed.view_mut(0..elements).buffer())?;
    let whole = owed.view(0..elements);
    let bad = encode(Some(Feedback { old: whole.buffer(), new: left.view_mut(0..elements).buffer() }))?;
    device.average(whole.buffer(), average_shift, left.view_mut(0..elements).buffer())?;
    let average = left.view(0..elements);
    let bad_average = device.int_encode(average.buffer(), None, FORMAT, Rounding::Nearest, new.buffer())?;
    drop((whole, average));
    for memory in [owed, left] {
        pool.put(device.was_read(memory));
    }
    Ok(bad.or(bad_average))
}
