//! What a rank owes to the elements that it encodes, in two generations, in the memory of the device.

use std::ops::Range;

use unisono_communicator::{Result, zeroed};

use crate::device::{DeviceMemory, KernelDevice};
use crate::layout::Part;

/// The residuals of one stage. The last call has read one generation and written the other.
#[derive(Debug)]
pub(crate) struct Residuals<M> {
    memory: [M; 2],
    current: usize,
    /// Where each part begins in each of them, in words, and the end of the last.
    bounds: Vec<usize>,
}

impl<M: DeviceMemory> Residuals<M> {
    /// Nothing owed to these parts.
    pub(crate) fn zeroed<D: KernelDevice<Memory = M>>(
        device: &D,
        parts: impl Iterator<Item = Part>,
    ) -> Result<Residuals<M>> {
        let mut bounds = vec![0];
        bounds.extend(parts.scan(0, |end, part| {
            *end += part.elements.len();
            Some(*end)
        }));
        let words = bounds.last().copied().unwrap_or_default();
        let memory = [device.allocate(words)?, device.allocate(words)?];
        Ok(Residuals { memory, current: 0, bounds })
    }

    /// Of a stage that owes nothing.
    pub(crate) fn none<D: KernelDevice<Memory = M>>(device: &D) -> Result<Residuals<M>> {
        Residuals::zeroed(device, std::iter::empty())
    }

    /// How many words a generation has.
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

    /// What the last call has read, until the next one writes.
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

    /// Nothing is owed any more, nor was before the last call.
    pub(crate) fn clear<D: KernelDevice<Memory = M>>(&mut self, device: &D) -> Result<()> {
        let zeros = zeroed::<u32>(self.words())?;
        self.memory.iter_mut().try_for_each(|memory| device.write(&zeros, memory, 0))
    }

    pub(crate) fn bytes(&self) -> usize {
        self.memory.iter().map(|memory| memory.words() * size_of::<u32>()).sum()
    }
}
