//! For tests: where the library of a double lies, and copies of it that are set otherwise. Whoever depends on a
//! double's package has its library built by Cargo, in `target/PROFILE/deps`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The library of a package that the running program depends on: `unisono_double_nccl`.
///
/// # Errors
/// When it is not there.
pub fn library(name: &str) -> io::Result<PathBuf> {
    let program = std::env::current_exe()?;
    let file = format!("lib{name}.so");
    // Tests are in `deps`, examples in `examples` and programs above both.
    let folders = program.ancestors().skip(1).take(2);
    let found = folders.flat_map(|folder| [folder.join("deps").join(&file), folder.join(&file)]);
    found.into_iter().find(|path| path.exists()).ok_or_else(|| {
        io::Error::new(io::ErrorKind::NotFound, format!("no {file} beside {}", program.display()))
    })
}

/// A copy in `folder` with these settings (see [`crate::settings`]), such as `devices=2.version=22703`, and without
/// these functions. A process that opens two copies has two libraries, which share nothing. Settings may hold words
/// that mean nothing.
///
/// # Errors
/// When it cannot be written, or lacks one of the functions already.
pub fn copy(library: &Path, folder: &Path, settings: &str, without: &[&str]) -> io::Result<PathBuf> {
    let mut bytes = fs::read(library)?;
    for symbol in without {
        hide(&mut bytes, symbol)?;
    }
    let name = library.file_stem().unwrap_or_default().to_string_lossy();
    let copy = folder.join(format!("{name}.{settings}.so"));
    fs::write(&copy, bytes)?;
    Ok(copy)
}

/// Gives a symbol another name.
fn hide(bytes: &mut [u8], symbol: &str) -> io::Result<()> {
    let name = format!("\0{symbol}\0");
    let is_it = |at: &usize| bytes[*at..].starts_with(name.as_bytes());
    let places: Vec<usize> = (0..bytes.len()).filter(is_it).collect();
    if places.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, format!("no symbol {symbol}")));
    }
    places.iter().for_each(|at| bytes[at + 1] = b'x');
    Ok(())
}
