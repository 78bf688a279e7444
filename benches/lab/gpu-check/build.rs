//! Lists the compiled kernels that the program is to hold: those in the folder that `GPU_CHECK_CUBINS` names, which
//! `cargo xtask gpu-check` sets. Without it the program compiles them when it starts.

#![expect(clippy::disallowed_methods, reason = "a build script is told by variables")]

use std::fmt::Write;
use std::path::{Path, PathBuf};

/// The programs of kernels, each with a list of its own.
const PROGRAMS: [&str; 2] = ["compression", "combine"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-env-changed=GPU_CHECK_CUBINS");
    let folder = std::env::var_os("GPU_CHECK_CUBINS").map(PathBuf::from);
    if let Some(folder) = &folder {
        println!("cargo:rerun-if-changed={}", folder.display());
    }
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    for program in PROGRAMS {
        std::fs::write(out.join(format!("{program}.rs")), list(folder.as_deref(), program)?)?;
    }
    Ok(())
}

fn list(folder: Option<&Path>, program: &str) -> Result<String, Box<dyn std::error::Error>> {
    let mut list = String::from("&[");
    if let Some(folder) = folder {
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            let Some(number) = capability(&path, program) else { continue };
            write!(list, "({number}, include_bytes!({path:?})),")?;
        }
    }
    list.push(']');
    Ok(list)
}

/// 90 of `combine_sm_90.cubin`.
fn capability(path: &Path, program: &str) -> Option<u32> {
    let name = path.file_name()?.to_str()?.strip_prefix(program)?;
    name.strip_prefix("_sm_")?.strip_suffix(".cubin")?.parse().ok()
}
