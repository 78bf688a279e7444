//! Lists the compiled kernels that the program is to hold: those in the folder that `GPU_CHECK_CUBINS` names, which
//! `cargo xtask gpu-check` sets. Without it the program compiles them when it starts.

use std::fmt::Write;
use std::path::{Path, PathBuf};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-env-changed=GPU_CHECK_CUBINS");
    let mut list = String::from("&[");
    if let Some(folder) = std::env::var_os("GPU_CHECK_CUBINS") {
        println!("cargo:rerun-if-changed={}", folder.display());
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            let Some(number) = capability(&path) else { continue };
            write!(list, "({number}, include_bytes!({path:?})),")?;
        }
    }
    list.push(']');
    let out = std::env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?;
    std::fs::write(PathBuf::from(out).join("cubins.rs"), list)?;
    Ok(())
}

/// 90 of `sm_90.cubin`.
fn capability(path: &Path) -> Option<u32> {
    path.file_name()?.to_str()?.strip_prefix("sm_")?.strip_suffix(".cubin")?.parse().ok()
}
