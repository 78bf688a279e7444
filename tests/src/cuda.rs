//! The test double of the CUDA driver (`kernels/cuda/host`), built by g++ when a test needs it, and NVRTC from its
//! wheel.

use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::ffi::OsString;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use unisono_cuda::{Capability, Code, Compiled, KernelCode};

use crate::processes::Environment;
use crate::skip;

/// What the compiler is told: arithmetic as IEEE has it, one rounding for each operation.
const OPTIONS: [&str; 10] = [
    "-std=c++17",
    "-O1",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fPIC",
    "-shared",
    "-fvisibility=hidden",
    "-Wall",
    "-Wno-unknown-pragmas",
    "-Werror",
];

/// Code that the double loads in place of a cubin.
pub const DOUBLE_CODE: &[u8] = b"test double";

/// It, for these cards.
pub fn double_kernels(cards: &[u32]) -> KernelCode {
    let compiled =
        |card: &u32| Compiled { capability: Capability::from_number(*card), code: Code::new(DOUBLE_CODE) };
    KernelCode::Compiled(cards.iter().map(compiled).collect())
}

fn repository() -> &'static Path {
    // This package is one folder below.
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the repository")
}

/// The folder of what is built, as `target/debug`.
fn build_folder() -> PathBuf {
    let program = std::env::current_exe().expect("the path of this program");
    let folder = program.ancestors().nth(2).expect("a test is in deps, in the folder of its profile");
    folder.to_owned()
}

/// The double's library, built once for each version of its sources. `None`, after [`skip`], without g++.
///
/// # Panics
/// When the kernels do not compile.
pub fn driver_double() -> Option<&'static Path> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    built(&BUILT, "double.cpp", "libcuda-double.so")
}

/// The kernels alone, for the double of the driver in `tests/doubles/nccl`. `None`, after [`skip`], without g++.
///
/// # Panics
/// When they do not compile.
pub fn kernels_for_host() -> Option<&'static Path> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    built(&BUILT, "kernels.cpp", "libcuda-kernels.so")
}

/// What a process is to find in its environment so that the double in `tests/doubles/nccl` has the kernels. `None`,
/// after [`skip`], without g++.
pub fn kernels_environment() -> Option<Environment> {
    static VARIABLES: OnceLock<[(&str, OsString); 1]> = OnceLock::new();
    let kernels = kernels_for_host()?;
    Some(VARIABLES.get_or_init(|| [("UNISONO_DOUBLE_KERNELS", kernels.into())]))
}

/// Each test says that it is left out, not only the first one.
fn built(
    built: &'static OnceLock<Result<PathBuf, String>>,
    source: &str,
    library: &str,
) -> Option<&'static Path> {
    let found = built.get_or_init(|| match Command::new("g++").arg("--version").output() {
        Ok(output) if output.status.success() => Ok(build(source, library)),
        Ok(output) => Err(format!("g++ --version: {}", output.status)),
        Err(error) => Err(error.to_string()),
    });
    found.as_deref().inspect_err(|reason| skip("g++", reason)).ok()
}

fn build(source: &str, library: &str) -> PathBuf {
    let sources = repository().join("kernels/cuda");
    let mut hasher = DefaultHasher::new();
    OPTIONS.hash(&mut hasher);
    for folder in [sources.clone(), sources.join("host")] {
        let mut files: Vec<PathBuf> = fs::read_dir(&folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.is_file())
            .collect();
        files.sort();
        files.iter().for_each(|file| fs::read(file).unwrap().hash(&mut hasher));
    }
    let folder = build_folder().join("cuda-double").join(format!("{:016x}", hasher.finish()));
    let library = folder.join(library);
    if library.exists() {
        return library;
    }
    fs::create_dir_all(&folder).unwrap();
    let own = own_file(&library);
    let output =
        Command::new("g++").args(OPTIONS).arg("-o").arg(&own).arg(sources.join("host").join(source)).output();
    let output = output.unwrap();
    assert!(output.status.success(), "g++ {OPTIONS:?}: {}", String::from_utf8_lossy(&output.stderr));
    fs::rename(&own, &library).unwrap();
    library
}

/// Where this process writes what becomes `file` when it is complete: several test programs may make it at once.
fn own_file(file: &Path) -> PathBuf {
    file.with_extension(format!("{}-{:?}", std::process::id(), std::thread::current().id()))
}

/// The double's library with other bytes, or only another name.
fn variant(double: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let file = double.with_file_name(format!("libcuda-double.{name}.so"));
    if !file.exists() {
        let own = own_file(&file);
        fs::write(&own, bytes).unwrap();
        fs::rename(&own, &file).unwrap();
    }
    file
}

/// A copy of the double that fails as `requests` say (`kernels/cuda/host/double.cpp`), such as `memory=4096`. Those of
/// one name are one library in a process, so a test that counts on what its double has done takes a name of its own:
/// `.` and a word that is no request may follow.
///
/// # Panics
/// When files cannot be written.
pub fn failing_double(requests: &str) -> Option<PathBuf> {
    let double = driver_double()?;
    Some(variant(double, requests, &fs::read(double).unwrap()))
}

/// A copy of the double whose symbol of this name has another one.
///
/// # Panics
/// When files cannot be written, or it has no such symbol.
pub fn double_without(symbol: &str) -> Option<PathBuf> {
    let double = driver_double()?;
    let mut bytes = fs::read(double).unwrap();
    let name = format!("\0{symbol}\0");
    let at =
        bytes.windows(name.len()).position(|window| window == name.as_bytes()).expect("the symbol's name");
    bytes[at + 1] = b'x';
    Some(variant(double, &format!("without-{symbol}"), &bytes))
}

/// A file of the wheels that `cargo xtask fetch-vendor nvrtc` has fetched. `None`, after [`skip`], without it.
pub fn nvrtc_file(name: &str) -> Option<PathBuf> {
    let file = repository().join("target/vendor/nvrtc").join(name);
    if !file.exists() {
        skip("nvrtc", &format!("no {}: cargo xtask fetch-vendor nvrtc", file.display()));
        return None;
    }
    Some(file)
}

/// What a kernel uses, by the names of `cuobjdump -res-usage`: `REG`, `STACK`, `LOCAL`, ...
pub type Usage = BTreeMap<String, u32>;

/// Of each kernel in the code for a card.
///
/// # Panics
/// When `cuobjdump` fails.
pub fn resource_usage(cuobjdump: &Path, code: &Code) -> BTreeMap<String, Usage> {
    let folder = tempfile::tempdir().unwrap();
    let cubin = folder.path().join("kernels.cubin");
    fs::write(&cubin, code.bytes()).unwrap();
    let output = Command::new(cuobjdump).arg("-res-usage").arg(&cubin).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let (mut found, mut function) = (BTreeMap::new(), None);
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("Function ") {
            function = Some(name.trim_end_matches(':').to_owned());
        } else if let (Some(name), true) = (function.clone(), line.starts_with("REG:")) {
            let pair = |word: &str| {
                word.split_once(':').and_then(|(key, value)| Some((key.to_owned(), value.parse().ok()?)))
            };
            found.insert(name, line.split_whitespace().filter_map(pair).collect());
            function = None;
        }
    }
    found
}
