//! Code on a device, and the kernels in it.

#![expect(unsafe_code, reason = "calls NVIDIA's driver")]

use std::ffi::CString;
use std::fmt;
use std::ptr;
use std::sync::Arc;

use unisono_communicator::{Error, Result};

use crate::context::Context;
use crate::driver::Handle;

/// Code for a device, from NVRTC or compiled before. Clones share it.
#[derive(Clone, PartialEq, Eq)]
pub struct Code(Arc<[u8]>);

impl Code {
    /// A cubin, a fatbin or PTX. PTX is text, and ends with a zero.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Code {
        let mut bytes = bytes.into();
        // The driver reads text up to a zero, and finds the end of a cubin by itself.
        bytes.push(0);
        Code(bytes.into())
    }

    /// The bytes, and a zero behind them.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Code({} bytes)", self.0.len())
    }
}

/// Loaded code, unloaded when it and all of its functions are dropped.
#[derive(Clone, Debug)]
pub struct Module(Arc<Loaded>);

#[derive(Debug)]
struct Loaded {
    context: Context,
    handle: Handle,
}

// SAFETY: a module is not bound to a thread, and nothing here changes.
unsafe impl Send for Loaded {}
// SAFETY: as above.
unsafe impl Sync for Loaded {}

impl Drop for Loaded {
    fn drop(&mut self) {
        let Ok(_current) = self.context.enter() else { return };
        // SAFETY: it was loaded, and none of its functions is left.
        unsafe { (self.context.driver().table.module_unload)(self.handle) };
    }
}

impl Module {
    pub(crate) fn new(context: Context, code: &Code) -> Result<Module> {
        let mut handle = ptr::null_mut();
        {
            let _current = context.enter()?;
            let driver = context.driver();
            // SAFETY: it writes one handle, and reads the code up to its end, which is there (`Code::new`).
            let result =
                unsafe { (driver.table.module_load_data)(&mut handle, code.bytes().as_ptr().cast()) };
            driver.check("cuModuleLoadData", result)?;
        }
        Ok(Module(Arc::new(Loaded { context, handle })))
    }

    /// A kernel by its name, as `extern "C"` gives it.
    ///
    /// # Errors
    /// [`Error::Vendor`] when the code has none of this name; it says the name.
    pub fn function(&self, name: &str) -> Result<Function> {
        let (context, driver) = (&self.0.context, self.0.context.driver());
        let text = CString::new(name).map_err(|_| Error::invalid("name", format!("{name:?} has a zero")))?;
        let _current = context.enter()?;
        let mut handle = ptr::null_mut();
        // SAFETY: it writes one handle, and reads a string with a zero at its end.
        let code = unsafe { (driver.table.module_get_function)(&mut handle, self.0.handle, text.as_ptr()) };
        driver.check(&format!("cuModuleGetFunction({name})"), code)?;
        Ok(Function { module: self.clone(), handle })
    }
}

/// A kernel.
#[derive(Clone, Debug)]
pub struct Function {
    module: Module,
    handle: Handle,
}

// SAFETY: a function is not bound to a thread, and nothing here changes.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

impl Function {
    pub(crate) fn handle(&self) -> Handle {
        self.handle
    }

    /// Whether it is on this stream's device.
    pub(crate) fn context(&self) -> &Context {
        &self.module.0.context
    }
}
