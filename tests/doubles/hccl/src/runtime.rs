//! The ACL run time: devices and contexts. A device has one context, whether it was made or came with the device.

use std::cell::Cell;
use std::ffi::c_char;
use std::sync::atomic::{AtomicBool, Ordering};

use unisono_double_common::{Handles, Out, Text, export, memory, settings, text};

use crate::codes::{AclError, put_acl};
use crate::product::Product;
use crate::runtime_stream::synchronize_device;

static IS_INITIALIZED: AtomicBool = AtomicBool::new(false);
static CONTEXTS: Handles<u32> = Handles::new("context");

thread_local! {
    static CURRENT: Cell<Option<u32>> = const { Cell::new(None) };
}

/// The default context of the first device; those of others follow. `aclrtSetDevice` makes one current.
const DEFAULT_CONTEXTS: usize = 0x0def_0000;

fn check_device(device: i32) -> Result<u32, AclError> {
    if !IS_INITIALIZED.load(Ordering::SeqCst) {
        return Err(AclError::UNINITIALIZED);
    }
    if settings::devices() == 0 {
        return Err(AclError::NO_DEVICE);
    }
    let number = u32::try_from(device).ok().filter(|device| *device < settings::devices());
    number.ok_or(AclError::INVALID_DEVICE)
}

/// The device of this thread.
pub(crate) fn current() -> Result<u32, AclError> {
    if !IS_INITIALIZED.load(Ordering::SeqCst) {
        return Err(AclError::UNINITIALIZED);
    }
    CURRENT.get().ok_or(AclError::CONTEXT_NULL)
}

export! {
    fn aclInit(_config: Text) -> AclError {
        if IS_INITIALIZED.swap(true, Ordering::SeqCst) { Err(AclError::REPEATED_INITIALIZE) } else { Ok(()) }
    }

    fn aclFinalize() -> AclError {
        if IS_INITIALIZED.swap(false, Ordering::SeqCst) { Ok(()) } else { Err(AclError::UNINITIALIZED) }
    }

    fn aclrtGetDeviceCount(count: Out<u32>) -> AclError {
        put_acl(count, settings::devices())
    }

    fn aclrtSetDevice(device: i32) -> AclError {
        CURRENT.set(Some(check_device(device)?));
        Ok(())
    }

    fn aclrtResetDevice(device: i32) -> AclError {
        let device = check_device(device)?;
        let done = synchronize_device(device);
        if CURRENT.get() == Some(device) {
            CURRENT.set(None);
        }
        done
    }

    fn aclrtGetDevice(device: Out<i32>) -> AclError {
        put_acl(device, current()? as i32)
    }

    fn aclrtCreateContext(context: Out<usize>, device: i32) -> AclError {
        let device = check_device(device)?;
        CURRENT.set(Some(device));
        put_acl(context, CONTEXTS.insert(device))
    }

    fn aclrtDestroyContext(context: usize) -> AclError {
        CONTEXTS.remove(context).map(drop).ok_or(AclError::INVALID_PARAM)
    }

    fn aclrtSetCurrentContext(context: usize) -> AclError {
        let default = context.checked_sub(DEFAULT_CONTEXTS).filter(|device| *device < settings::devices() as usize);
        let device = match default {
            Some(device) => device as u32,
            None => *CONTEXTS.get(context).ok_or(AclError::INVALID_PARAM)?,
        };
        CURRENT.set(Some(device));
        Ok(())
    }

    fn aclrtGetCurrentContext(context: Out<usize>) -> AclError {
        put_acl(context, DEFAULT_CONTEXTS + current()? as usize)
    }

    fn aclrtSynchronizeDevice() -> AclError {
        synchronize_device(current()?)
    }

    fn aclrtGetVersion(major: Out<i32>, minor: Out<i32>, patch: Out<i32>) -> AclError {
        put_acl(major, settings::number("version", 1) as i32)?;
        put_acl(minor, 0)?;
        put_acl(patch, 0)
    }

    fn aclrtGetMemInfo(_attribute: i32, available: Out<usize>, total: Out<usize>) -> AclError {
        put_acl(available, memory::available(current()?))?;
        put_acl(total, settings::memory_bytes())
    }

    plain fn aclrtGetSocName() -> *const c_char {
        text::for_ever(Product::chosen().name())
    }
}
