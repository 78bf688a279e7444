//! The text of the kernels, and code that was made of it.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{LazyLock, Mutex, PoisonError};

use unisono_communicator::{Error, Result};
use unisono_cuda::{Capability, Code, Driver, Nvrtc, Source};

/// Every kernel's name.
pub const KERNELS: [&str; 20] = [
    "average",
    "bf16_decode_sum",
    "bf16_encode",
    "bf16_expand",
    "bf16_reduce_encode",
    "compensate",
    "int_decode_sum",
    "int_encode",
    "int_encode_shared",
    "int_expand",
    "int_expand_shared",
    "int_magnitudes",
    "int_reduce_encode",
    "sign_decode_sum",
    "sign_encode",
    "sign_expand",
    "sign_pack",
    "sign_reduce_encode",
    "sign_reduce_global",
    "sum",
];

macro_rules! texts {
    ($($name:literal),*) => {
        &[$(($name, include_str!(concat!("../../../kernels/cuda/", $name)))),*]
    };
}

const HEADERS: &[(&str, &str)] = texts!(
    "bf16.cu",
    "exact.cu",
    "format.cuh",
    "global.cu",
    "int.cu",
    "int_shared.cu",
    "quad.cuh",
    "sign.cu",
    "tile.cuh",
    "warp.cuh"
);

/// Where the code of the kernels comes from.
#[derive(Clone, Debug)]
pub enum KernelCode {
    /// Compiled now, by NVRTC at this path, or else by the system's.
    Nvrtc(Option<PathBuf>),
    /// Compiled before, for several kinds of cards; of those that the card runs, the newest.
    Compiled(Vec<Compiled>),
}

impl Default for KernelCode {
    fn default() -> KernelCode {
        KernelCode::Nvrtc(None)
    }
}

/// Code for a kind of cards.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// The oldest that runs it; those of the same major version and a later minor one do too.
    pub capability: Capability,
    /// What [`compile`] has made.
    pub code: Code,
}

/// The program of the kernels, for NVRTC.
pub fn source() -> Source<'static> {
    Source {
        name: "kernels.cu",
        text: include_str!("../../../kernels/cuda/kernels.cu"),
        headers: HEADERS,
        options: &["--std=c++17", "--fmad=false"],
    }
}

/// Compiles the kernels for a kind of card. It takes seconds.
///
/// # Errors
/// Those of [`Nvrtc::compile`].
pub fn compile(nvrtc: &Nvrtc, capability: Capability) -> Result<Code> {
    nvrtc.compile(&source(), capability)
}

impl KernelCode {
    /// For this card.
    pub(crate) fn of(&self, driver: &Driver, card: Capability) -> Result<Code> {
        match self {
            KernelCode::Nvrtc(path) => compiled_now(path.clone(), driver.version().major, card),
            KernelCode::Compiled(list) => {
                let mut fitting: Vec<_> = list.iter().filter(|one| card.runs(one.capability)).collect();
                fitting.sort_by_key(|one| one.capability);
                fitting.last().map(|one| one.code.clone()).ok_or_else(|| no_code(list, card))
            }
        }
    }
}

fn no_code(list: &[Compiled], card: Capability) -> Error {
    let names: Vec<String> = list.iter().map(|one| one.capability.to_string()).collect();
    Error::Unsupported {
        what: format!("a card of {card}: its kernels were compiled for {}", names.join(", ")),
        backend: "compression on CUDA",
        instead: Some(
            "KernelCode::Nvrtc, which compiles for the card, or the processor's kernels".to_owned(),
        ),
    }
}

/// Compiled once in a process for each compiler and kind of card.
fn compiled_now(path: Option<PathBuf>, major: u32, card: Capability) -> Result<Code> {
    type Key = (Option<PathBuf>, u32, Capability);
    static DONE: LazyLock<Mutex<HashMap<Key, Code>>> = LazyLock::new(Mutex::default);
    // Those that ask at the same time wait for the first, which is quicker than compiling twice.
    let mut done = DONE.lock().unwrap_or_else(PoisonError::into_inner);
    let key = (path, major, card);
    if let Some(code) = done.get(&key) {
        return Ok(code.clone());
    }
    let code = compile(&Nvrtc::open(key.0.as_deref(), major)?, card)?;
    done.insert(key, code.clone());
    Ok(code)
}
