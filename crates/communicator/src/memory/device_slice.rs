//! Elements on a device, as slices are elements on the host.

#![expect(unsafe_code, reason = "memory of a device, by its address")]

use std::marker::PhantomData;

use crate::elements::dtype::Element;
use crate::error::{Error, Result};
use crate::memory::device::{DeviceBuffer, DeviceBufferMut};
use crate::memory::owned::OwnedMemory;
use crate::memory::raw::Keeper;

/// A framework's contiguous vector or tensor on a device. Typed calls take any type that implements this trait:
///
/// ```
/// use unisono_communicator::DeviceElements;
///
/// /// A framework's tensor: an address and a length.
/// struct Tensor { address: u64, elements: usize, device: u32 }
///
/// // SAFETY: the tensor is contiguous, and owns its memory.
/// unsafe impl DeviceElements<f32> for Tensor {
///     fn address(&self) -> usize { self.address as usize }
///     fn elements(&self) -> usize { self.elements }
///     fn device(&self) -> u32 { self.device }
/// }
/// ```
///
/// With candle, implement it for a new type around a `CudaStorageSlice`'s `CudaSlice<f32>` and its contiguous layout.
/// The feature `cudarc` implements it for cudarc's `CudaSlice`, `CudaView` and `CudaViewMut`.
///
/// # Safety
/// The memory at the address must hold that many elements on that device, as long as the value lives and until all work
/// that was enqueued with it is done.
pub unsafe trait DeviceElements<T: Element> {
    /// The address of the first element, for the vendor's library.
    fn address(&self) -> usize;

    /// The number of elements.
    fn elements(&self) -> usize;

    /// The device's number.
    fn device(&self) -> u32;
}

/// Elements on a device, to read. [`DeviceSliceMut`] is its counterpart to write, as `&mut [T]` is of `&[T]`.
#[derive(Debug)]
pub struct DeviceSlice<'a, T> {
    buffer: DeviceBuffer,
    elements: usize,
    lent: PhantomData<&'a [T]>,
}

/// Elements on a device, to read and write. Nobody else uses them.
#[derive(Debug)]
pub struct DeviceSliceMut<'a, T> {
    buffer: DeviceBufferMut,
    elements: usize,
    lent: PhantomData<&'a mut [T]>,
}

fn bytes_of<T: Element>(elements: usize) -> Result<usize> {
    elements
        .checked_mul(T::DTYPE.bytes())
        .ok_or_else(|| Error::invalid("elements", format!("{elements} of {}", T::DTYPE)))
}

impl<'a, T: Element> DeviceSlice<'a, T> {
    /// `elements` elements at `address` of `device`. Allocates nothing.
    ///
    /// # Safety
    /// As [`DeviceBuffer::from_raw`].
    ///
    /// # Errors
    /// As [`DeviceBuffer::from_raw`].
    pub unsafe fn from_raw(address: usize, elements: usize, device: u32) -> Result<DeviceSlice<'a, T>> {
        // SAFETY: the caller has promised the same.
        let buffer = unsafe { DeviceBuffer::from_raw(address, bytes_of::<T>(elements)?, device) }?;
        Ok(DeviceSlice { buffer, elements, lent: PhantomData })
    }

    /// The elements of a framework's value.
    ///
    /// # Safety
    /// As [`DeviceBuffer::from_raw`]. The value must not be dropped before the calls on it are done.
    ///
    /// # Errors
    /// As [`DeviceBuffer::from_raw`].
    pub unsafe fn of(value: &'a impl DeviceElements<T>) -> Result<DeviceSlice<'a, T>> {
        // SAFETY: the caller has promised the same.
        unsafe { DeviceSlice::from_raw(value.address(), value.elements(), value.device()) }
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.elements
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.elements == 0
    }

    /// The same memory without the element type.
    pub fn buffer(&self) -> &DeviceBuffer {
        &self.buffer
    }

    /// The same memory without the element type, for a list.
    pub fn into_buffer(self) -> DeviceBuffer {
        self.buffer
    }
}

impl<'a, T: Element> DeviceSliceMut<'a, T> {
    /// `elements` elements at `address` of `device`. Allocates nothing.
    ///
    /// # Safety
    /// As [`DeviceBufferMut::from_raw`].
    ///
    /// # Errors
    /// As [`DeviceBuffer::from_raw`].
    pub unsafe fn from_raw(address: usize, elements: usize, device: u32) -> Result<DeviceSliceMut<'a, T>> {
        // SAFETY: the caller has promised the same.
        let buffer = unsafe { DeviceBufferMut::from_raw(address, bytes_of::<T>(elements)?, device) }?;
        Ok(DeviceSliceMut { buffer, elements, lent: PhantomData })
    }

    /// The elements of a framework's value.
    ///
    /// # Safety
    /// As [`DeviceSlice::of`], and as [`DeviceBufferMut::from_raw`].
    ///
    /// # Errors
    /// As [`DeviceBuffer::from_raw`].
    pub unsafe fn of(value: &'a mut impl DeviceElements<T>) -> Result<DeviceSliceMut<'a, T>> {
        // SAFETY: the caller has promised the same.
        unsafe { DeviceSliceMut::from_raw(value.address(), value.elements(), value.device()) }
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.elements
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.elements == 0
    }

    /// The same memory without the element type.
    pub fn buffer(&mut self) -> &mut DeviceBufferMut {
        &mut self.buffer
    }

    /// The same memory without the element type, for a list.
    pub fn into_buffer(self) -> DeviceBufferMut {
        self.buffer
    }

    /// The memory of an asynchronous call, which drops `keeper` at its end.
    pub fn into_memory(self, keeper: Option<Keeper>) -> OwnedMemory {
        OwnedMemory::Device { buffer: self.buffer, keeper }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_that_cannot_be_are_refused() {
        // SAFETY: the addresses are never used.
        let slice = |address, elements| unsafe { DeviceSlice::<f32>::from_raw(address, elements, 0) };
        for (address, elements) in [(0, 1), (64, usize::MAX), (64, usize::MAX / 4)] {
            assert!(matches!(slice(address, elements), Err(Error::InvalidArgument { .. })), "{elements}");
        }
        assert!(slice(0, 0).is_ok_and(|slice| slice.is_empty()));
        assert!(slice(64, 3).is_ok_and(|slice| (slice.len(), slice.buffer().bytes()) == (3, 12)));
    }
}
