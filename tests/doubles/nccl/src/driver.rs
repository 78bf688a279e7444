//! The CUDA driver: code. The double has no kernels of its own: it forwards to a library that holds them, compiled for
//! the host (`kernels/cuda/host/kernels.cpp`), which `unisono_double_kernels(path)` names, or the setting `kernels` in
//! the environment. A module is any cubin, any PTX or the words "test double", and has all kernels of that library.

#![expect(unsafe_code, reason = "calls a library of kernels")]

use std::ffi::{CString, c_char, c_void};
use std::path::Path;
use std::sync::OnceLock;

use libloading::Library;
use unisono_double_common::memory::{self, Part, Place};
use unisono_double_common::{Handles, In, Out, Text, export, settings};

use crate::context::{CuError, current, put};
use crate::driver_stream::enqueue;

/// The functions of `kernels.cpp`.
struct Kernels {
    find: unsafe extern "C" fn(*const c_char) -> usize,
    threads: unsafe extern "C" fn() -> u32,
    bind: unsafe extern "C" fn(usize, usize, *mut usize, u32, *mut u32) -> *mut c_void,
    run: unsafe extern "C" fn(*mut c_void, u32),
    _library: Library,
}

static KERNELS: OnceLock<Kernels> = OnceLock::new();
static MODULES: Handles<()> = Handles::new("module");

/// More than any kernel has.
const POINTERS_MAX: usize = 64;

fn load(path: &Path) -> Option<Kernels> {
    // SAFETY: the library is one of our own kernels, and runs nothing when it is opened.
    let library = unsafe { Library::new(path) }.ok()?;
    // SAFETY: the signatures are those of `kernels.cpp`, and the library stays beside the pointers.
    unsafe {
        Some(Kernels {
            find: *library.get("unisono_kernel_find").ok()?,
            threads: *library.get("unisono_kernel_threads").ok()?,
            bind: *library.get("unisono_kernel_bind").ok()?,
            run: *library.get("unisono_kernel_run").ok()?,
            _library: library,
        })
    }
}

fn kernels() -> Result<&'static Kernels, CuError> {
    if let Some(path) = settings::text("kernels").filter(|_| KERNELS.get().is_none()) {
        let _ = KERNELS.set(load(Path::new(&path)).ok_or(CuError::NOT_SUPPORTED)?);
    }
    KERNELS.get().ok_or(CuError::NOT_SUPPORTED)
}

/// A launch with its arguments, which ends when it is run or dropped.
struct Bound {
    kernels: &'static Kernels,
    launch: *mut c_void,
}

// SAFETY: a launch holds values, and is run under a lock.
unsafe impl Send for Bound {}

impl Bound {
    fn run(&self, blocks: u32) {
        // SAFETY: the launch is there until it is run, which happens once: this is called by `Drop` and by `go` only.
        unsafe { (self.kernels.run)(self.launch, blocks) };
    }

    fn go(self, blocks: u32) {
        self.run(blocks);
        std::mem::forget(self);
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        self.run(0);
    }
}

/// Whether the driver takes it for code.
fn is_code(image: In<u8>) -> bool {
    let is_cubin = image.cast::<[u8; 4]>().get() == Some(*b"\x7fELF");
    is_cubin || image.text().is_some_and(|text| text.contains(".version") || text.starts_with("test double"))
}

export! {
    plain fn unisono_double_kernels(path: Text) -> i32 {
        match path.get().and_then(|path| load(Path::new(&path))) {
            Some(kernels) => {
                // The first ones stay: launches hold them.
                let _ = KERNELS.set(kernels);
                0
            }
            None => CuError::NOT_SUPPORTED.0,
        }
    }

    fn cuModuleLoadData(module: Out<usize>, image: In<u8>) -> CuError {
        current()?;
        kernels()?;
        if !is_code(image) {
            return Err(CuError::INVALID_IMAGE);
        }
        put(module, MODULES.insert(()))
    }

    fn cuModuleUnload(module: usize) -> CuError {
        MODULES.remove(module).map(drop).ok_or(CuError::INVALID_HANDLE)
    }

    fn cuModuleGetFunction(function: Out<usize>, module: usize, name: Text) -> CuError {
        MODULES.get(module).ok_or(CuError::INVALID_HANDLE)?;
        let name = CString::new(name.get().unwrap_or_default()).map_err(|_| CuError::INVALID_VALUE)?;
        // SAFETY: it reads a string.
        let found = unsafe { (kernels()?.find)(name.as_ptr()) };
        if found == 0 { Err(CuError::NOT_FOUND) } else { put(function, found) }
    }

    fn cuLaunchKernel(
        function: usize, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
        _shared_bytes: u32, handle: usize, arguments: usize, extra: usize,
    ) -> CuError {
        let (device, kernels) = (current()?, kernels()?);
        // SAFETY: it takes nothing.
        let threads = unsafe { (kernels.threads)() };
        let is_flat = [grid_y, grid_z, block_y, block_z] == [1; 4];
        let is_right = is_flat && (1..=i32::MAX as u32).contains(&grid_x) && block_x == threads && extra == 0;
        if !is_right || function == 0 || arguments == 0 {
            return Err(CuError::INVALID_VALUE);
        }
        let (mut pointers, mut count) = ([0; POINTERS_MAX], 0);
        // SAFETY: whoever launches gives a function of this library and addresses of its arguments; no more pointers
        // are written than there is room for.
        let launch = unsafe {
            (kernels.bind)(function, arguments, pointers.as_mut_ptr(), POINTERS_MAX as u32, &mut count)
        };
        let bound = Bound { kernels, launch };
        // Whatever is not there has a null pointer.
        let mut own = pointers.iter().take(count as usize).filter(|address| **address != 0);
        let is_own = own.all(|address| {
            matches!(memory::find(Part::new(*address, 0)), Some((_, Place::Device(owner))) if owner == device)
        });
        enqueue(handle, move || {
            if !is_own {
                return CuError::ILLEGAL_ADDRESS.0;
            }
            bound.go(grid_x);
            0
        })
    }
}
