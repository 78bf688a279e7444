//! The source of the code of kernels: compiled now for the card, or before for several kinds of cards.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{LazyLock, Mutex, PoisonError};

use unisono_communicator::{Error, Result};

use crate::context::Capability;
use crate::driver::Driver;
use crate::module::Code;
use crate::nvrtc::{Nvrtc, Source};

/// The source of the code of kernels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KernelCode {
    /// Compiled now, by NVRTC at this path, or else by the system's.
    Nvrtc(Option<PathBuf>),
    /// Compiled before, for several kinds of cards; the newest that the card runs counts.
    Compiled(Vec<Compiled>),
}

impl Default for KernelCode {
    fn default() -> KernelCode {
        KernelCode::Nvrtc(None)
    }
}

/// Code for a kind of cards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compiled {
    /// The oldest capability that runs it; later minor versions of the same major version do too.
    pub capability: Capability,
    /// The output of [`Nvrtc::compile`].
    pub code: Code,
}

impl KernelCode {
    /// The code of a program for this card. Compiling takes seconds, once in a process for each program, compiler and
    /// kind of card.
    ///
    /// # Errors
    /// As [`Nvrtc::open`] and [`Nvrtc::compile`]; [`Error::Unsupported`] when all code is for other cards.
    pub fn of(&self, source: &Source<'static>, driver: &Driver, card: Capability) -> Result<Code> {
        match self {
            KernelCode::Nvrtc(path) => compiled_now(source, path.clone(), driver.version().major, card),
            KernelCode::Compiled(list) => {
                let mut fitting: Vec<_> = list.iter().filter(|one| card.runs(one.capability)).collect();
                fitting.sort_by_key(|one| one.capability);
                fitting.last().map(|one| one.code.clone()).ok_or_else(|| no_code(source, list, card))
            }
        }
    }

    /// Whether there is code for this card, or a compiler, which is opened.
    ///
    /// # Errors
    /// As [`KernelCode::of`], without the errors of compiling.
    pub fn check(&self, source: &Source<'static>, driver: &Driver, card: Capability) -> Result<()> {
        match self {
            KernelCode::Nvrtc(path) => Nvrtc::open(path.as_deref(), driver.version().major).map(drop),
            KernelCode::Compiled(_) => self.of(source, driver, card).map(drop),
        }
    }
}

fn no_code(source: &Source<'_>, list: &[Compiled], card: Capability) -> Error {
    let names: Vec<String> = list.iter().map(|one| one.capability.to_string()).collect();
    Error::Unsupported {
        what: format!("a card of {card}: {} was compiled for {}", source.name, names.join(", ")),
        backend: "CUDA",
        instead: Some(
            "KernelCode::Nvrtc, which compiles for the card, or the processor's kernels".to_owned(),
        ),
    }
}

fn compiled_now(
    source: &Source<'static>,
    path: Option<PathBuf>,
    major: u32,
    card: Capability,
) -> Result<Code> {
    type Key = (&'static str, Option<PathBuf>, u32, Capability);
    static DONE: LazyLock<Mutex<HashMap<Key, Code>>> = LazyLock::new(Mutex::default);
    // Threads that ask at the same time wait for the first, which is quicker than compiling twice.
    let mut done = DONE.lock().unwrap_or_else(PoisonError::into_inner);
    let key = (source.name, path, major, card);
    if let Some(code) = done.get(&key) {
        return Ok(code.clone());
    }
    let code = Nvrtc::open(key.1.as_deref(), major)?.compile(source, card)?;
    done.insert(key, code.clone());
    Ok(code)
}
