//! Vectors of cudarc as elements on a device (feature `cudarc`).
//!
//! cudarc orders the streams that use a vector by its own events. These events do not cover the calls of this library.
//! So make each call on the vector's stream (`DeviceStream::from_raw(slice.stream().cu_stream() as usize, ...)`), or
//! wait for the call's ticket before another stream uses the vector.

#![allow(unsafe_code)]

use cudarc::driver::{CudaSlice, CudaView, CudaViewMut, DevicePtr, DeviceSlice};

use crate::elements::dtype::Element;
use crate::memory::device_slice::DeviceElements;

macro_rules! elements {
    ($($type:ty),*) => {$(
        // SAFETY: the value is contiguous, and owns or borrows memory for its length on its stream's device.
        unsafe impl<T: Element> DeviceElements<T> for $type {
            fn address(&self) -> usize {
                // What cudarc would record when the second value is dropped is recorded before the call.
                self.device_ptr(self.stream()).0 as usize
            }

            fn elements(&self) -> usize {
                self.len()
            }

            fn device(&self) -> u32 {
                self.stream().context().ordinal() as u32
            }
        }
    )*};
}

elements!(CudaSlice<T>, CudaView<'_, T>, CudaViewMut<'_, T>);
