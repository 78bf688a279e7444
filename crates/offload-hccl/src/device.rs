//! An Ascend device, as collectives on its memory need it: bring-up, memory, streams, events, tear-down.
//!
//! The order is CANN's: `aclInit`, `aclrtSetDevice`, streams, communicators; then communicators, streams,
//! `aclrtResetDevice`, `aclFinalize`. Libraries and devices that somebody else in the process has initialised are left
//! to them at the end.

#![expect(unsafe_code, reason = "calls ACL")]

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::fmt;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use unisono_communicator::{DType, Error, Result};
use unisono_offload::{Combination, Device, DeviceTurn, RawEvent, RawStream, Scale};
use unisono_vendor_library::text_at;

use crate::combining;
use crate::discovery::HcclLibrary;
use crate::error::{CONTEXT_NULL, HIDDEN, REPEAT_INITIALIZE, STREAM_CONTEXT};
use crate::scaling;
use crate::sys::{CopyKind, Handle, LOCATION_DEVICE, MALLOC_HUGE_FIRST, PointerAttributes};
use crate::vendor::BACKEND;
use crate::workspace::Workspace;

/// A device with its default context. The last value of a device gives it back.
pub(crate) struct AclDevice {
    pub(crate) library: &'static HcclLibrary,
    ordinal: i32,
    context: Context,
    /// Whether work is left on it that may never end, for which ACL would wait before it frees anything.
    has_left_work: Arc<AtomicBool>,
    turn: Arc<DeviceTurn>,
    pub(crate) workspaces: Mutex<Vec<Workspace>>,
}

/// An `aclrtContext`.
#[derive(Clone, Copy)]
struct Context(Handle);

// SAFETY: a context may be made current on any thread, and on several.
unsafe impl Send for Context {}

// SAFETY: as above.
unsafe impl Sync for Context {}

/// The devices of a library that are in use here.
#[derive(Default)]
pub(crate) struct Users {
    /// Whether ACL is initialised, as far as this library knows.
    is_initialised: bool,
    /// Whether it was initialised here, and so is finalised here.
    is_own: bool,
    devices: BTreeMap<i32, Used>,
}

/// A device in use.
#[derive(Clone)]
struct Used {
    /// By how many.
    count: usize,
    context: Context,
    has_left_work: Arc<AtomicBool>,
    turn: Arc<DeviceTurn>,
}

impl fmt::Debug for AclDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AclDevice({})", self.ordinal)
    }
}

/// The context that was current on this thread, and is again when this is dropped.
pub(crate) struct Current {
    library: &'static HcclLibrary,
    before: Handle,
}

impl Current {
    /// Remembers the current context: null for nothing.
    fn remember(library: &'static HcclLibrary) -> Result<Current> {
        let mut before = ptr::null_mut();
        // SAFETY: it writes one handle.
        match unsafe { (library.acl.get_current_context)(&mut before) } {
            CONTEXT_NULL => before = ptr::null_mut(),
            code => library.check_acl("aclrtGetCurrentContext", code)?,
        }
        Ok(Current { library, before })
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        // ACL has no way to make none current again.
        if !self.before.is_null() {
            // SAFETY: it was current when this value was made, and its owner knows that.
            unsafe { (self.library.acl.set_current_context)(self.before) };
        }
    }
}

impl AclDevice {
    /// The device of this number, with ACL initialised.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a device that there is not; [`Error::Vendor`].
    pub(crate) fn open(library: &'static HcclLibrary, ordinal: u32) -> Result<AclDevice> {
        let number = i32::try_from(ordinal).map_err(|_| Error::invalid("device", ordinal.to_string()))?;
        let mut users = library.users.lock().unwrap_or_else(PoisonError::into_inner);
        users.begin(library)?;
        let found = users.devices.get(&number).cloned();
        let taken = found.map_or_else(|| take(library, number), Ok);
        let used = match taken {
            Ok(used) => Used { count: used.count + 1, ..used },
            Err(error) => {
                users.end(library);
                return Err(error);
            }
        };
        users.devices.insert(number, used.clone());
        let Used { context, has_left_work, turn, .. } = used;
        let workspaces = Mutex::default();
        Ok(AclDevice { library, ordinal: number, context, has_left_work, turn, workspaces })
    }

    /// Makes its context current on this thread.
    pub(crate) fn enter(&self) -> Result<Current> {
        let current = Current::remember(self.library)?;
        if current.before != self.context.0 {
            // SAFETY: the context lives as long as this value.
            let code = unsafe { (self.library.acl.set_current_context)(self.context.0) };
            self.library.check_acl("aclrtSetCurrentContext", code)?;
        }
        Ok(current)
    }

    /// The name of its chip.
    pub(crate) fn soc_name(&self) -> String {
        // SAFETY: it gives a string that lives as long as the library, or null.
        unsafe { text_at((self.library.acl.get_soc_name)()) }
    }
}

/// Sets the device up, for nobody yet.
fn take(library: &'static HcclLibrary, ordinal: i32) -> Result<Used> {
    let devices = library.count_devices()?;
    if ordinal.unsigned_abs() >= devices {
        let problem = format!("{ordinal}, and ACL has {devices}: {HIDDEN}");
        return Err(Error::invalid("device", problem));
    }
    let _current = Current::remember(library)?;
    // SAFETY: it takes a number.
    library.check_acl("aclrtSetDevice", unsafe { (library.acl.set_device)(ordinal) })?;
    let mut context = ptr::null_mut();
    // SAFETY: it writes one handle.
    let code = unsafe { (library.acl.get_current_context)(&mut context) };
    library.check_acl("aclrtGetCurrentContext", code)?;
    let (has_left_work, turn) = (Arc::default(), Arc::default());
    Ok(Used { count: 0, context: Context(context), has_left_work, turn })
}

impl HcclLibrary {
    /// The number of devices that this process sees.
    ///
    /// # Errors
    /// [`Error::Vendor`], with `ACL_ERROR_RT_NO_DEVICE` or a count of none where there is none.
    pub fn devices(&self) -> Result<u32> {
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        users.begin(self)?;
        self.count_devices()
    }

    fn count_devices(&self) -> Result<u32> {
        let mut devices = 0;
        // SAFETY: it writes one number.
        self.check_acl("aclrtGetDeviceCount", unsafe { (self.acl.get_device_count)(&mut devices) })?;
        Ok(devices)
    }
}

impl Users {
    /// Initialises ACL, once before the first use of it.
    fn begin(&mut self, library: &HcclLibrary) -> Result<()> {
        if self.is_initialised {
            return Ok(());
        }
        // SAFETY: null stands for no configuration.
        let code = unsafe { (library.acl.init)(ptr::null()) };
        if code != REPEAT_INITIALIZE {
            library.check_acl("aclInit", code)?;
        }
        (self.is_initialised, self.is_own) = (true, code != REPEAT_INITIALIZE);
        Ok(())
    }

    /// Finalises ACL when nobody uses it.
    fn end(&mut self, library: &HcclLibrary) {
        if !self.devices.is_empty() {
            return;
        }
        self.is_initialised = false;
        if std::mem::take(&mut self.is_own) {
            // SAFETY: ACL was initialised here, and nothing of it is in use here. An error helps nobody.
            unsafe { (library.acl.finalize)() };
        }
    }
}

impl Drop for AclDevice {
    fn drop(&mut self) {
        self.drop_workspaces();
        let mut users = self.library.users.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(used) = users.devices.get_mut(&self.ordinal) else { return };
        used.count -= 1;
        // A device with work that may never end stays as it is: ACL would wait for that work.
        if used.count > 0 || self.leaves_work() {
            return;
        }
        users.devices.remove(&self.ordinal);
        if users.is_own {
            // SAFETY: nothing of the device is in use here: streams and communicators are gone before this value.
            unsafe { (self.library.acl.reset_device)(self.ordinal) };
        }
        users.end(self.library);
    }
}

/// An event as C has it.
fn event(event: RawEvent) -> Handle {
    ptr::with_exposed_provenance_mut(event.0)
}

impl AclDevice {
    /// Whether work is left that may never end.
    pub(crate) fn leaves_work(&self) -> bool {
        self.has_left_work.load(Ordering::SeqCst)
    }

    /// Enqueues a copy.
    ///
    /// # Safety
    /// As [`Device::copy`].
    unsafe fn copy_as(
        &self,
        kind: CopyKind,
        to: *mut c_void,
        from: *const c_void,
        bytes: usize,
        stream: RawStream,
    ) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        let _current = self.enter()?;
        // SAFETY: the caller's.
        let code =
            unsafe { (self.library.acl.memcpy_async)(to, bytes, from, bytes, kind, stream.as_pointer()) };
        self.library.check_acl("aclrtMemcpyAsync", code)
    }
}

// SAFETY of all that is unsafe here: the terms are the trait's.
impl Device for AclDevice {
    fn ordinal(&self) -> u32 {
        self.ordinal.unsigned_abs()
    }

    fn turn(&self) -> Option<&DeviceTurn> {
        Some(&self.turn)
    }

    fn allocate(&self, bytes: usize) -> Result<*mut c_void> {
        let (_current, mut address) = (self.enter()?, ptr::null_mut());
        // SAFETY: it writes one address.
        let code = unsafe { (self.library.acl.malloc)(&mut address, bytes, MALLOC_HUGE_FIRST) };
        self.library.check_acl("aclrtMalloc", code)?;
        Ok(address)
    }

    // SAFETY: see above.
    unsafe fn free(&self, address: *mut c_void) {
        if self.leaves_work() {
            return;
        }
        let Ok(_current) = self.enter() else { return };
        // SAFETY: see above.
        unsafe { (self.library.acl.free)(address) };
    }

    // SAFETY: see above.
    unsafe fn upload(&self, to: *mut c_void, from: &[u8], stream: RawStream) -> Result<()> {
        // SAFETY: see above.
        let copied =
            unsafe { self.copy_as(CopyKind::HostToDevice, to, from.as_ptr().cast(), from.len(), stream) };
        // Until then, also after an error, the host's memory may be read.
        // SAFETY: see above.
        unsafe { self.synchronize(stream) }.and(copied)
    }

    // SAFETY: see above.
    unsafe fn download(&self, to: &mut [u8], from: *const c_void, stream: RawStream) -> Result<()> {
        let (bytes, to) = (to.len(), to.as_mut_ptr().cast());
        // SAFETY: see above.
        let copied = unsafe { self.copy_as(CopyKind::DeviceToHost, to, from, bytes, stream) };
        // Also after an error: nothing may be under way to `to`.
        // SAFETY: see above.
        unsafe { self.synchronize(stream) }.and(copied)
    }

    // SAFETY: see above.
    unsafe fn copy(
        &self,
        to: *mut c_void,
        from: *const c_void,
        bytes: usize,
        stream: RawStream,
    ) -> Result<()> {
        // SAFETY: see above.
        unsafe { self.copy_as(CopyKind::DeviceToDevice, to, from, bytes, stream) }
    }

    // SAFETY: see above.
    unsafe fn scale(
        &self,
        address: *mut c_void,
        count: usize,
        dtype: DType,
        by: Scale,
        stream: RawStream,
    ) -> Result<()> {
        // SAFETY: see above.
        unsafe { scaling::scale(self, address, count, dtype, by, stream) }
    }

    // SAFETY: see above.
    unsafe fn combine(
        &self,
        to: *mut c_void,
        operands: [*const c_void; 2],
        count: usize,
        dtype: DType,
        by: Combination,
        stream: RawStream,
    ) -> Result<()> {
        // SAFETY: see above.
        unsafe { combining::combine(self, to, operands, (count, dtype), by, stream) }
    }

    fn create_stream(&self) -> Result<RawStream> {
        let (_current, mut handle) = (self.enter()?, ptr::null_mut());
        // SAFETY: it writes one handle.
        let code = unsafe { (self.library.acl.create_stream)(&mut handle) };
        self.library.check_acl("aclrtCreateStream", code)?;
        Ok(RawStream(handle.expose_provenance()))
    }

    // SAFETY: see above.
    unsafe fn destroy_stream(&self, stream: RawStream) {
        if self.leaves_work() {
            return;
        }
        let Ok(_current) = self.enter() else { return };
        // SAFETY: see above.
        unsafe { (self.library.acl.destroy_stream)(stream.as_pointer()) };
    }

    // SAFETY: see above.
    unsafe fn synchronize(&self, stream: RawStream) -> Result<()> {
        let _current = self.enter()?;
        // SAFETY: see above.
        let code = unsafe { (self.library.acl.synchronize_stream)(stream.as_pointer()) };
        self.library.check_acl("aclrtSynchronizeStream", code)
    }

    fn create_event(&self) -> Result<RawEvent> {
        let (_current, mut handle) = (self.enter()?, ptr::null_mut());
        // SAFETY: it writes one handle.
        let code = unsafe { (self.library.acl.create_event)(&mut handle) };
        self.library.check_acl("aclrtCreateEvent", code)?;
        Ok(RawEvent(handle.expose_provenance()))
    }

    // SAFETY: see above.
    unsafe fn destroy_event(&self, of: RawEvent) {
        let Ok(_current) = self.enter() else { return };
        // SAFETY: see above.
        unsafe { (self.library.acl.destroy_event)(event(of)) };
    }

    // SAFETY: see above.
    unsafe fn record(&self, of: RawEvent, stream: RawStream) -> Result<()> {
        let _current = self.enter()?;
        // SAFETY: see above.
        let code = unsafe { (self.library.acl.record_event)(event(of), stream.as_pointer()) };
        self.library.check_acl("aclrtRecordEvent", code)
    }

    /// An event that was never recorded is not done.
    // SAFETY: see above.
    unsafe fn is_done(&self, of: RawEvent) -> Result<bool> {
        let (_current, mut status) = (self.enter()?, 0);
        // SAFETY: see above; it writes one number.
        let code = unsafe { (self.library.acl.query_event_status)(event(of), &mut status) };
        self.library.check_acl("aclrtQueryEventStatus", code)?;
        // ACL_EVENT_RECORDED_STATUS_COMPLETE.
        if status != 1 {
            return Ok(false);
        }
        // The status does not tell whether the work has failed. This does, and has nothing left to wait for.
        // SAFETY: see above.
        let code = unsafe { (self.library.acl.synchronize_event)(event(of)) };
        self.library.check_acl("aclrtSynchronizeEvent", code).map(|()| true)
    }

    /// ACL does not tell of which device a stream is, but which question about it fails where it is of another.
    // SAFETY: see above.
    unsafe fn check_stream(&self, stream: RawStream) -> Result<()> {
        if let Some(query) = self.library.acl.stream_query.function {
            let (_current, mut status) = (self.enter()?, 0);
            // SAFETY: see above; it writes a number.
            match unsafe { query(stream.as_pointer(), &mut status) } {
                STREAM_CONTEXT => {
                    let problem = format!("of another context than that of device {}", self.ordinal);
                    return Err(Error::invalid("stream", problem));
                }
                code => self.library.check_acl("aclrtStreamQuery", code)?,
            }
        }
        // Versions without it cannot capture.
        let Some(get_info) = self.library.acl.capture_get_info.function else { return Ok(()) };
        let (_current, mut status, mut model) = (self.enter()?, 0, ptr::null_mut());
        // SAFETY: see above; it writes a number and a handle.
        let code = unsafe { get_info(stream.as_pointer(), &mut status, &mut model) };
        self.library.check_acl("aclmdlRICaptureGetInfo", code)?;
        // ACL_MODEL_RI_CAPTURE_STATUS_NONE.
        if status != 0 {
            let what = "a stream whose work is being captured".to_owned();
            let instead = Some("the call before the capture begins or after it ends".to_owned());
            return Err(Error::Unsupported { what, backend: BACKEND, instead });
        }
        Ok(())
    }

    /// Old versions of ACL do not tell whose an address is, and this does not refuse it then.
    fn check_address(&self, argument: &'static str, address: usize) -> Result<()> {
        let Some(get_attributes) = self.library.acl.pointer_get_attributes.function else { return Ok(()) };
        let (_current, mut found) = (self.enter()?, PointerAttributes::default());
        let pointer = ptr::with_exposed_provenance(address);
        // SAFETY: it only looks the address up, and writes one struct.
        let code = unsafe { get_attributes(pointer, &mut found) };
        let own = self.ordinal();
        let problem = match (code, found.location_type) {
            (0, LOCATION_DEVICE) if found.location_id == own => return Ok(()),
            (0, LOCATION_DEVICE) => {
                let owner = found.location_id;
                format!("{address:#x}, in memory of device {owner}: the communicator is on {own}")
            }
            _ => format!("{address:#x}, which is no memory of a device: the communicator is on device {own}"),
        };
        Err(Error::invalid(argument, problem))
    }

    fn leave_work(&self) {
        self.has_left_work.store(true, Ordering::SeqCst);
    }
}
