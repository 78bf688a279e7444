//! For tests: a double that was opened, and what it can be told. Another handle of the same file is the same
//! library, so a test opens beside the program under test, and controls what that one uses.

#![expect(unsafe_code, reason = "calls a double's functions")]

use std::ffi::{CString, c_char};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use libloading::Library;

use crate::fault::HANG;
use crate::file;

/// An open double.
#[derive(Debug)]
pub struct Control {
    library: Library,
    alive: Arc<()>,
}

/// Declares methods of a struct with a field `control` that call functions of the library: `name:
/// "symbol"(arguments) -> output;`. The arguments must be those of the vendor's header; references are valid for the
/// call.
#[macro_export]
macro_rules! functions {
    ($struct:ident; $($name:ident: $symbol:literal ($($argument:ident: $type:ty),* $(,)?) -> $output:ty;)*) => {
        #[allow(unsafe_code, clippy::too_many_arguments, clippy::unwrap_used)]
        impl $struct {
            $(
                pub(crate) fn $name(&self, $($argument: $type),*) -> $output {
                    // SAFETY: the signature is that of the header.
                    unsafe {
                        let library = self.control.library();
                        let function = library.get::<unsafe extern "C" fn($($type),*) -> $output>($symbol);
                        function.unwrap()($($argument),*)
                    }
                }
            )*
        }
    };
}

fn error(error: libloading::Error) -> io::Error {
    io::Error::other(error.to_string())
}

type Read = unsafe extern "C" fn() -> u64;

/// The clock of a thread: how long it takes to come to a collective.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Read,
    entered_ns: Read,
    inside_ns: Read,
}

impl Clock {
    /// Starts it.
    pub fn start(&self) {
        // SAFETY: it has no arguments.
        unsafe { (self.start)() };
    }

    /// How long after the start a collective was entered, and how much of that time was spent in the double: in
    /// nanoseconds. The first is 0 when none was.
    pub fn entered_ns(&self) -> (u64, u64) {
        // SAFETY: they have no arguments.
        unsafe { ((self.entered_ns)(), (self.inside_ns)()) }
    }
}

impl Control {
    /// Opens the library, or finds it open.
    ///
    /// # Errors
    /// When it is none.
    pub fn open(file: &Path) -> io::Result<Control> {
        // SAFETY: a double runs nothing when it is opened.
        let library = unsafe { Library::new(file) }.map_err(error)?;
        Ok(Control { library, alive: Arc::new(()) })
    }

    /// Opens a copy, which shares nothing with others ([`file::copy`]).
    ///
    /// # Errors
    /// When it cannot be written or opened.
    pub fn open_copy(library: &Path, settings: &str, without: &[&str]) -> io::Result<Control> {
        static COPIES: AtomicU32 = AtomicU32::new(0);
        let number = COPIES.fetch_add(1, Ordering::SeqCst);
        let folder = std::env::temp_dir().join(format!("unisono-double-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let control = file::copy(library, &folder, settings, without).and_then(|copy| Control::open(&copy));
        // What is open stays there.
        std::fs::remove_dir_all(&folder)?;
        control
    }

    /// Ends the process if this is not dropped in time: a test that hangs then says its name.
    pub fn watch(&self, name: &str, limit: Duration) {
        let (name, watched): (String, Weak<()>) = (name.to_owned(), Arc::downgrade(&self.alive));
        thread::spawn(move || {
            thread::sleep(limit);
            if watched.upgrade().is_some() {
                eprintln!("{name} hangs");
                std::process::abort();
            }
        });
    }

    /// The library, to call its functions.
    pub fn library(&self) -> &Library {
        &self.library
    }

    /// Whether it has a function.
    pub fn has(&self, symbol: &str) -> bool {
        // SAFETY: it is only looked for.
        unsafe { self.library.get::<*const u8>(symbol) }.is_ok()
    }

    fn read(&self, symbol: &str) -> u64 {
        // SAFETY: the signature is that of `export!` where the function is.
        let function = unsafe { self.library.get::<unsafe extern "C" fn() -> u64>(symbol) };
        // SAFETY: it has no arguments.
        function.map_or(0, |function| unsafe { function() })
    }

    fn inject_by(&self, symbol: &str, call: &str, nth: u32, code: i32) {
        let call = CString::new(call).unwrap_or_default();
        // SAFETY: the signature is that of `export!` where the function is.
        let function = unsafe { self.library.get::<unsafe extern "C" fn(*const c_char, u32, i32)>(symbol) };
        if let Ok(function) = function {
            // SAFETY: it reads a string.
            unsafe { function(call.as_ptr(), nth, code) };
        }
    }

    /// Lets the `nth` call from now on return `code`.
    pub fn inject(&self, call: &str, nth: u32, code: i32) {
        self.inject_by("unisono_double_inject", call, nth, code);
    }

    /// Lets the `nth` call from now on hang.
    pub fn hang(&self, call: &str, nth: u32) {
        self.inject(call, nth, HANG);
    }

    /// Lets the work of the `nth` call from now on fail with `code`.
    pub fn inject_in_stream(&self, call: &str, nth: u32, code: i32) {
        self.inject_by("unisono_double_inject_in_stream", call, nth, code);
    }

    /// Lets the work of the `nth` call from now on hang.
    pub fn hang_in_stream(&self, call: &str, nth: u32) {
        self.inject_in_stream(call, nth, HANG);
    }

    /// Gives the double of the CUDA driver the kernels of a library for the host; whether it took them.
    pub fn load_kernels(&self, library: &Path) -> bool {
        let path = CString::new(library.as_os_str().as_encoded_bytes()).unwrap_or_default();
        // SAFETY: the signature is that of `export!` where the function is.
        let function = unsafe {
            self.library.get::<unsafe extern "C" fn(*const c_char) -> i32>("unisono_double_kernels")
        };
        // SAFETY: it reads a string.
        function.is_ok_and(|function| unsafe { function(path.as_ptr()) } == 0)
    }

    /// How many handles, allocations and contexts were not given back.
    pub fn live_handles(&self) -> u64 {
        self.read("unisono_double_live_handles")
    }

    /// How often something was done wrong that a vendor's library would not notice.
    pub fn misuses(&self) -> u64 {
        self.read("unisono_double_misuses")
    }

    /// Begins the capture of a stream in the double of the CUDA driver, in this `CUstreamCaptureMode`; its code. A
    /// context is current on this thread.
    pub fn begin_capture(&self, stream: usize, mode: i32) -> i32 {
        // SAFETY: the signature is that of `cuda.h`.
        let function =
            unsafe { self.library.get::<unsafe extern "C" fn(usize, i32) -> i32>("cuStreamBeginCapture_v2") };
        // SAFETY: it takes a handle and a number.
        function.map_or(-1, |function| unsafe { function(stream, mode) })
    }

    /// Ends it; its code. The graph, which does nothing, is kept.
    pub fn end_capture(&self, stream: usize) -> i32 {
        // SAFETY: the signature is that of `cuda.h`.
        let function = unsafe {
            self.library.get::<unsafe extern "C" fn(usize, *mut usize) -> i32>("cuStreamEndCapture")
        };
        let mut graph = 0;
        // SAFETY: it takes a handle, and writes another.
        function.map_or(-1, |function| unsafe { function(stream, &mut graph) })
    }

    /// How often two threads have met where the vendor forbids it, since the library was loaded.
    pub fn races(&self) -> u64 {
        self.read("unisono_double_races")
    }

    /// Lets a thread stay so long in a communicator, and on a device, unless another one comes that must not.
    pub fn meet(&self, in_communicator: Duration, on_device: Duration) {
        // SAFETY: the signature is that of `export!` where the function is.
        let function = unsafe { self.library.get::<unsafe extern "C" fn(u64, u64)>("unisono_double_meet") };
        if let Ok(function) = function {
            // SAFETY: it takes two numbers.
            unsafe { function(in_communicator.as_millis() as u64, on_device.as_millis() as u64) };
        }
    }

    /// How many threads hang now, on request or after such a misuse.
    pub fn hangs(&self) -> u64 {
        self.read("unisono_double_hangs")
    }

    /// The clock of a thread; see the module `clock`.
    ///
    /// # Errors
    /// When the library has none.
    pub fn clock(&self) -> io::Result<Clock> {
        // SAFETY: they have no arguments and give a number; a double stays open until the process ends.
        let function =
            |name: &str| unsafe { self.library.get::<Read>(name) }.map(|found| *found).map_err(error);
        Ok(Clock {
            start: function("unisono_double_start_clock")?,
            entered_ns: function("unisono_double_entered_ns")?,
            inside_ns: function("unisono_double_inside_ns")?,
        })
    }

    /// Lets no stream begin work, and no call that does not block its operation, or all go on.
    pub fn hold_streams(&self, is_held: bool) {
        // SAFETY: the signature is that of `export!` where the function is.
        let function =
            unsafe { self.library.get::<unsafe extern "C" fn(i32)>("unisono_double_hold_streams") };
        if let Ok(function) = function {
            // SAFETY: it takes a number.
            unsafe { function(i32::from(is_held)) };
        }
    }

    /// Ends all hangs, forgets requests that did not come true, and counts misuses from nothing.
    pub fn reset(&self) {
        // SAFETY: the signature is that of `export!` where the function is.
        let function = unsafe { self.library.get::<unsafe extern "C" fn()>("unisono_double_reset") };
        if let Ok(function) = function {
            // SAFETY: it has no arguments.
            unsafe { function() };
        }
    }
}
