//! Small libraries that tests make with the system's compiler.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::skip;

/// Compiles `text`, in C, to the library `name` in `folder`. `options` follow the text, such as a library that it needs
/// or `-Wl,-soname,...`; without one the library has no `DT_SONAME`. `None`, after [`skip`], without g++.
///
/// # Panics
/// When it does not compile.
pub fn shared_library(folder: &Path, name: &str, text: &str, options: &[&str]) -> Option<PathBuf> {
    let library = folder.join(name);
    let source = folder.join(format!("{name}.c"));
    fs::write(&source, text).unwrap();
    let mut command = Command::new("g++");
    command.args(["-shared", "-fPIC", "-Wall", "-Werror", "-x", "c"]).arg(&source);
    command.args(["-x", "none"]).args(options).arg("-o").arg(&library);
    match command.output() {
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            Some(library)
        }
        Err(error) => {
            skip("g++", &error.to_string());
            None
        }
    }
}
