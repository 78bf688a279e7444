//! The ACL run time: memory.

use unisono_double_common::memory::{self, FreeError, Part, Place};
use unisono_double_common::{Out, export};

use crate::codes::{AclError, put_acl};
use crate::runtime::current;
use crate::runtime_stream::{enqueue, synchronize_device};

fn allocate(place: Place, bytes: usize, address: Out<usize>) -> Result<(), AclError> {
    if bytes == 0 || address.is_null() {
        return Err(AclError::INVALID_PARAM);
    }
    put_acl(address, memory::allocate(place, bytes).ok_or(AclError::OUT_OF_MEMORY)?)
}

fn free(address: usize, is_host: bool) -> Result<(), AclError> {
    let device = match memory::find(Part::new(address, 0)) {
        Some((_, Place::Device(device))) => device,
        _ => current()?,
    };
    let done = synchronize_device(device);
    match memory::free(address, is_host) {
        Ok(()) => done,
        Err(FreeError::Unknown) => Err(AclError::INVALID_PARAM),
        Err(FreeError::Overrun) => Err(AclError::RUNTIME_INTERNAL),
    }
}

/// `aclrtPtrAttributes`.
#[derive(Clone, Copy)]
#[repr(C)]
struct PointerAttributes {
    location_id: u32,
    location_type: u32,
    page_size: u32,
    reserved: [u32; 4],
}

/// Where an address is: ACL_MEM_LOCATION_TYPE_HOST is 0, _DEVICE 1, _UNREGISTERED 2.
fn location(address: usize) -> (u32, u32) {
    match memory::find(Part::new(address, 1)) {
        Some((_, Place::Device(device))) => (device, 1),
        Some((_, Place::Host)) => (0, 0),
        None => (0, 2),
    }
}

/// Checks a copy: `kind` says where both sides are.
fn check_copy(to: usize, room: usize, from: usize, bytes: usize, kind: i32) -> Result<(), AclError> {
    // ACL_MEMCPY_HOST_TO_HOST, _HOST_TO_DEVICE, _DEVICE_TO_HOST and _DEVICE_TO_DEVICE.
    let [from_device, to_device] = match kind {
        0 => [false, false],
        1 => [false, true],
        2 => [true, false],
        3 => [true, true],
        _ => return Err(AclError::INVALID_PARAM),
    };
    let fits = |address: usize, is_device: bool| {
        let part = Part::new(address, bytes);
        address != 0 && matches!(memory::find(part), Some((_, Place::Device(_)))) == is_device
    };
    let is_right = bytes <= room && fits(from, from_device) && fits(to, to_device);
    if is_right { Ok(()) } else { Err(AclError::INVALID_PARAM) }
}

fn copy(to: usize, from: Part) -> i32 {
    let is_done = memory::read_any(from).is_some_and(|bytes| memory::write_any(to, &bytes));
    if is_done { 0 } else { AclError::RUNTIME_INTERNAL.0 }
}

fn fill(to: usize, room: usize, byte: i32, count: usize) -> Result<Vec<u8>, AclError> {
    let is_right = count <= room && memory::find(Part::new(to, count)).is_some();
    if is_right { Ok(vec![byte as u8; count]) } else { Err(AclError::INVALID_PARAM) }
}

export! {
    fn aclrtMalloc(address: Out<usize>, bytes: usize, _policy: i32) -> AclError {
        allocate(Place::Device(current()?), bytes, address)
    }

    fn aclrtFree(address: usize) -> AclError {
        free(address, false)
    }

    fn aclrtPointerGetAttributes(address: usize, attributes: Out<PointerAttributes>) -> AclError {
        current()?;
        let (location_id, location_type) = location(address);
        let (page_size, reserved) = (4096, [0; 4]);
        put_acl(attributes, PointerAttributes { location_id, location_type, page_size, reserved })
    }

    fn aclrtMallocHost(address: Out<usize>, bytes: usize) -> AclError {
        current()?;
        allocate(Place::Host, bytes, address)
    }

    fn aclrtFreeHost(address: usize) -> AclError {
        free(address, true)
    }

    // It waits for no stream.
    fn aclrtMemcpy(to: usize, room: usize, from: usize, bytes: usize, kind: i32) -> AclError {
        current()?;
        if bytes == 0 {
            return Ok(());
        }
        check_copy(to, room, from, bytes, kind)?;
        match copy(to, Part::new(from, bytes)) {
            0 => Ok(()),
            code => Err(AclError(code)),
        }
    }

    fn aclrtMemcpyAsync(to: usize, room: usize, from: usize, bytes: usize, kind: i32, stream: usize) -> AclError {
        if bytes == 0 {
            return Ok(());
        }
        check_copy(to, room, from, bytes, kind)?;
        enqueue(stream, move || copy(to, Part::new(from, bytes)))
    }

    fn aclrtMemset(to: usize, room: usize, byte: i32, count: usize) -> AclError {
        current()?;
        let bytes = fill(to, room, byte, count)?;
        if memory::write(to, &bytes) { Ok(()) } else { Err(AclError::RUNTIME_INTERNAL) }
    }

    fn aclrtMemsetAsync(to: usize, room: usize, byte: i32, count: usize, stream: usize) -> AclError {
        let bytes = fill(to, room, byte, count)?;
        enqueue(stream, move || if memory::write(to, &bytes) { 0 } else { AclError::RUNTIME_INTERNAL.0 })
    }
}
