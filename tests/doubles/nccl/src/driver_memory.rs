//! The CUDA driver: memory.

use unisono_double_common::memory::{self, FreeError, Part, Place};
use unisono_double_common::stream::{STREAMS, default_of};
use unisono_double_common::{In, Out, export, settings};

use crate::capture::check_unseen;
use crate::context::{CuError, current, end_of_work, put};
use crate::driver_stream::{enqueue, stream};

/// Waits for all work on a device.
pub(crate) fn synchronize(device: u32) -> Result<(), CuError> {
    let streams = STREAMS.all().into_iter().filter(|stream| stream.device() == device);
    let codes = streams.chain([default_of(device)]).filter_map(|stream| stream.synchronize(None));
    // All are waited for, and the first error is told.
    let code = codes.fold(0, |first, code| if first == 0 { code } else { first });
    end_of_work(device, code)
}

fn allocate(place: Place, bytes: usize, address: Out<usize>) -> Result<(), CuError> {
    current()?;
    check_unseen()?;
    if bytes == 0 || address.is_null() {
        return Err(CuError::INVALID_VALUE);
    }
    put(address, memory::allocate(place, bytes).ok_or(CuError::OUT_OF_MEMORY)?)
}

fn free(address: usize, is_host: bool) -> Result<(), CuError> {
    let device = current()?;
    check_unseen()?;
    let owner = match memory::find(Part::new(address, 0)) {
        Some((_, Place::Device(owner))) => owner,
        _ => device,
    };
    let done = synchronize(owner);
    match memory::free(address, is_host) {
        Ok(()) => done,
        Err(FreeError::Unknown) => Err(CuError::INVALID_VALUE),
        Err(FreeError::Overrun) => end_of_work(owner, CuError::ILLEGAL_ADDRESS.0),
    }
}

/// Whether the bytes are memory of a device.
fn check_device_memory(part: Part) -> Result<(), CuError> {
    match memory::find(part) {
        Some((_, Place::Device(_))) => Ok(()),
        _ => Err(CuError::INVALID_VALUE),
    }
}

/// The work of a copy.
fn copy(to: usize, from: Part) -> i32 {
    let is_done = memory::read_any(from).is_some_and(|bytes| memory::write_any(to, &bytes));
    if is_done { 0 } else { CuError::ILLEGAL_ADDRESS.0 }
}

fn enqueue_fill(to: usize, pattern: &[u8], count: usize, handle: usize) -> Result<(), CuError> {
    let bytes = pattern.repeat(count);
    check_device_memory(Part::new(to, bytes.len()))?;
    enqueue(handle, move || if memory::write(to, &bytes) { 0 } else { CuError::ILLEGAL_ADDRESS.0 })
}

export! {
    fn cuMemGetInfo_v2(available: Out<usize>, total: Out<usize>) -> CuError {
        put(available, memory::available(current()?))?;
        put(total, settings::memory_bytes())
    }

    fn cuMemAlloc_v2(address: Out<usize>, bytes: usize) -> CuError {
        allocate(Place::Device(current()?), bytes, address)
    }

    fn cuMemFree_v2(address: usize) -> CuError {
        free(address, false)
    }

    fn cuMemAllocHost_v2(address: Out<usize>, bytes: usize) -> CuError {
        allocate(Place::Host, bytes, address)
    }

    fn cuMemFreeHost(address: usize) -> CuError {
        free(address, true)
    }

    fn cuPointerGetAttributes(count: u32, attributes: In<i32>, values: In<Out<i32>>, address: usize) -> CuError {
        let count = count as usize;
        let (attributes, values) = attributes.list(count).zip(values.list(count)).ok_or(CuError::INVALID_VALUE)?;
        let place = memory::find(Part::new(address, 0)).map(|(_, place)| place);
        // CU_POINTER_ATTRIBUTE_MEMORY_TYPE and _DEVICE_ORDINAL; none of an address that is not known is no error.
        let (kind, ordinal) = match place {
            Some(Place::Device(device)) => (2, device as i32),
            Some(Place::Host) => (1, current()? as i32),
            None => (0, -2),
        };
        attributes.into_iter().zip(values).try_for_each(|(attribute, value)| match attribute {
            2 => put(value, kind),
            9 => put(value, ordinal),
            _ => Err(CuError::INVALID_VALUE),
        })
    }

    fn cuMemcpyHtoDAsync_v2(to: usize, from: usize, bytes: usize, handle: usize) -> CuError {
        check_device_memory(Part::new(to, bytes))?;
        let from = Part::new(from, bytes);
        if memory::find(from).is_some() {
            return enqueue(handle, move || copy(to, from));
        }
        // Memory that is not pinned is read before the call returns.
        let bytes = memory::read_any(from).ok_or(CuError::INVALID_VALUE)?;
        enqueue(handle, move || if memory::write(to, &bytes) { 0 } else { CuError::ILLEGAL_ADDRESS.0 })
    }

    fn cuMemcpyDtoHAsync_v2(to: usize, from: usize, bytes: usize, handle: usize) -> CuError {
        let from = Part::new(from, bytes);
        check_device_memory(from)?;
        enqueue(handle, move || copy(to, from))
    }

    fn cuMemcpyDtoDAsync_v2(to: usize, from: usize, bytes: usize, handle: usize) -> CuError {
        let from = Part::new(from, bytes);
        check_device_memory(from)?;
        check_device_memory(Part::new(to, bytes))?;
        enqueue(handle, move || copy(to, from))
    }

    fn cuMemcpyHtoD_v2(to: usize, from: usize, bytes: usize) -> CuError {
        check_unseen()?;
        check_device_memory(Part::new(to, bytes))?;
        enqueue(0, move || copy(to, Part::new(from, bytes)))?;
        let device = current()?;
        end_of_work(device, stream(0)?.synchronize(None).unwrap_or(0))
    }

    fn cuMemcpyDtoH_v2(to: usize, from: usize, bytes: usize) -> CuError {
        check_unseen()?;
        check_device_memory(Part::new(from, bytes))?;
        enqueue(0, move || copy(to, Part::new(from, bytes)))?;
        let device = current()?;
        end_of_work(device, stream(0)?.synchronize(None).unwrap_or(0))
    }

    fn cuMemsetD32Async(to: usize, word: u32, words: usize, handle: usize) -> CuError {
        enqueue_fill(to, &word.to_le_bytes(), words, handle)
    }

    fn cuMemsetD8Async(to: usize, byte: u8, bytes: usize, handle: usize) -> CuError {
        enqueue_fill(to, &[byte], bytes, handle)
    }

    fn cuCtxSynchronize() -> CuError {
        check_unseen()?;
        synchronize(current()?)
    }
}
