//! Vectors of cudarc as elements on a device (feature `cudarc`).
//!
//! cudarc orders the streams that use a vector by its own events, but these do not cover this library's calls. So make
//! each call on the vector's stream (`DeviceStream::from_raw(slice.stream().cu_stream() as usize, ...)`), or wait for
//! the call's ticket before another stream uses the vector.

#![expect(unsafe_code, reason = "a promise about cudarc's memory on a device")]

use cudarc::driver::{CudaSlice, CudaView, CudaViewMut, DevicePtr, DeviceSlice};

use crate::elements::dtype::Element;
use crate::memory::device_slice::DeviceElements;

macro_rules! elements {
    ($($type:ty),*) => {$(
        // SAFETY: the value is contiguous, and owns or borrows memory for its length on its stream's device.
        unsafe impl<T: Element> DeviceElements<T> for $type {
            fn address(&self) -> usize {
                // Dropping the guard records cudarc's event now, before the call.
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
