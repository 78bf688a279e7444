//! The kernels that this program holds, and how they are made.

use std::path::Path;

use unisono_compression_cuda::compile;
use unisono_cuda::{Capability, Code, Compiled, KernelCode, Nvrtc};
use unisono_offload_nccl::arithmetic_source;
use unisono_tests::cuda::double_kernels;

use crate::options::Options;

/// A program of kernels, compiled: the number of a capability, and code for it.
type Cubins = &'static [(u32, &'static [u8])];

/// The kernels of compression.
pub(crate) static COMPRESSION: Cubins = include!(concat!(env!("OUT_DIR"), "/compression.rs"));

/// The kernels that add messages.
pub(crate) static COMBINE: Cubins = include!(concat!(env!("OUT_DIR"), "/combine.rs"));

/// The cards that `--compile-to` compiles for.
const CARDS: [u32; 3] = [80, 90, 100];

/// Where a program's code comes from.
pub(crate) fn code(options: &Options, cubins: Cubins) -> KernelCode {
    if options.double {
        return double_kernels(&[90]);
    }
    let compiled = |(number, code): &(u32, &'static [u8])| Compiled {
        capability: Capability::from_number(*number),
        code: Code::new(*code),
    };
    match (&options.nvrtc, cubins) {
        (None, [_, ..]) => KernelCode::Compiled(cubins.iter().map(compiled).collect()),
        (nvrtc, _) => KernelCode::Nvrtc(nvrtc.clone()),
    }
}

/// Compiles both programs for all cards, by the NVRTC at a path, into a folder.
pub(crate) fn compile_all(folder: &Path, nvrtc: &Path) -> Result<(), String> {
    let nvrtc = Nvrtc::open(Some(nvrtc), 12).map_err(|error| error.to_string())?;
    std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    for number in CARDS {
        let card = Capability::from_number(number);
        let programs =
            [("compression", compile(&nvrtc, card)), ("combine", nvrtc.compile(&arithmetic_source(), card))];
        for (program, code) in programs {
            let path = folder.join(format!("{program}_sm_{number}.cubin"));
            let code = code.map_err(|error| error.to_string())?;
            std::fs::write(&path, code.bytes()).map_err(|error| format!("{}: {error}", path.display()))?;
        }
    }
    Ok(())
}
