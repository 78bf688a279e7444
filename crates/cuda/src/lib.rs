//! NVIDIA's driver and run-time compiler, opened when a program asks for them.
//!
//! Nothing here is needed to build or to link: the libraries are found at run time, and a missing one is an error that
//! names the files that were tried, the function, its code, and a remedy. Only the functions that this workspace needs
//! are here: devices, memory, streams, kernels ([`Driver`]), and a compiler from CUDA C++ to the code of a card
//! ([`Nvrtc`]).
//!
//! ```no_run
//! use unisono_cuda::{Argument, Code, Driver, Grid, Nvrtc, Source};
//!
//! const TEXT: &str = "extern \"C\" __global__ void twice(float* x) { x[threadIdx.x] *= 2; }";
//! let driver = Driver::open(None)?;
//! let context = driver.context(0)?;
//! let nvrtc = Nvrtc::open(None, driver.version().major)?;
//! let source = Source { name: "twice.cu", text: TEXT, headers: &[], options: &[] };
//! let (module, stream) = (context.load(&nvrtc.compile(&source, context.capability())?)?, context.stream()?);
//! let mut memory = context.allocate(4 * 64)?;
//! memory.write(0, &[0; 4 * 64], &stream)?;
//! let twice = module.function("twice")?;
//! // SAFETY: the kernel takes one address, and 64 threads write the 64 floats behind it.
//! unsafe { stream.launch(&twice, Grid { blocks: 1, threads: 64 }, &[Argument::Address(memory.address())])? };
//! let mut bytes = [1; 4 * 64];
//! memory.read(0, &mut bytes, &stream)?;
//! # Ok::<(), unisono_communicator::Error>(())
//! ```

mod context;
mod driver;
mod kernel_code;
mod memory;
mod module;
mod nvrtc;
mod raw;
mod stream;

pub use context::{Capability, Context};
pub use driver::{Driver, Version};
pub use kernel_code::{Compiled, KernelCode};
pub use memory::Memory;
pub use module::{Code, Function, Module};
pub use nvrtc::{Nvrtc, Source};
pub use raw::{EventHandle, EventKind, StreamHandle, StreamKind};
pub use stream::{Argument, Event, Grid, Stream};
