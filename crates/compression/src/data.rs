//! The data that a call reads and writes, in any memory: the same numbers of elements in a vector, in vectors and in
//! shares.

use std::ops::{Deref, DerefMut, Range};

use unisono_communicator::{BufferMut, Result};

use crate::device::{DeviceMemory, KernelDevice, View};
use crate::elements::Elements;

/// The f32 of a call. Ranges are of the whole vector that all ranks speak of.
pub(crate) trait Data<D: KernelDevice> {
    /// Elements for kernels.
    fn read(&mut self, range: Range<usize>) -> Result<View<'_>>;

    /// Elements for other ranks.
    fn copy(&mut self, range: Range<usize>, to: &mut [f32]) -> Result<()>;

    /// Lets kernels write elements.
    fn write(&mut self, range: Range<usize>, fill: &mut dyn FnMut(BufferMut<'_>) -> Result<()>)
    -> Result<()>;
}

/// Vectors of the host that are input and output, or of which one half of a call needs one.
impl<D: KernelDevice, B: DerefMut<Target = [u8]>> Data<D> for Elements<B> {
    fn read(&mut self, range: Range<usize>) -> Result<View<'_>> {
        Ok(View::Host(bytemuck::cast_slice(Elements::read(self, range))))
    }

    fn copy(&mut self, range: Range<usize>, to: &mut [f32]) -> Result<()> {
        Elements::copy(self, range, to);
        Ok(())
    }

    fn write(
        &mut self,
        range: Range<usize>,
        fill: &mut dyn FnMut(BufferMut<'_>) -> Result<()>,
    ) -> Result<()> {
        Elements::write(self, range, fill)
    }
}

/// Input and output of the host that differ, each beginning at its own element of the whole vector.
pub(crate) struct Apart<I, O> {
    pub(crate) input: Elements<I>,
    pub(crate) input_at: usize,
    pub(crate) output: Elements<O>,
    pub(crate) output_at: usize,
}

impl<D, I, O> Data<D> for Apart<I, O>
where
    D: KernelDevice,
    I: Deref<Target = [u8]>,
    O: DerefMut<Target = [u8]>,
{
    fn read(&mut self, range: Range<usize>) -> Result<View<'_>> {
        let range = range.start - self.input_at..range.end - self.input_at;
        Ok(View::Host(bytemuck::cast_slice(self.input.read(range))))
    }

    fn copy(&mut self, range: Range<usize>, to: &mut [f32]) -> Result<()> {
        self.input.copy(range.start - self.input_at..range.end - self.input_at, to);
        Ok(())
    }

    fn write(
        &mut self,
        range: Range<usize>,
        fill: &mut dyn FnMut(BufferMut<'_>) -> Result<()>,
    ) -> Result<()> {
        self.output.write(range.start - self.output_at..range.end - self.output_at, fill)
    }
}

/// A vector in the memory of a device.
pub(crate) struct OnDevice<'a, D: KernelDevice> {
    pub(crate) device: &'a D,
    pub(crate) vector: &'a mut D::Memory,
}

impl<D: KernelDevice> Data<D> for OnDevice<'_, D> {
    fn read(&mut self, range: Range<usize>) -> Result<View<'_>> {
        Ok(self.vector.view(range))
    }

    fn copy(&mut self, range: Range<usize>, to: &mut [f32]) -> Result<()> {
        self.device.read(self.vector, range.start, bytemuck::cast_slice_mut(to))
    }

    fn write(
        &mut self,
        range: Range<usize>,
        fill: &mut dyn FnMut(BufferMut<'_>) -> Result<()>,
    ) -> Result<()> {
        fill(self.vector.view_mut(range).buffer())
    }
}
