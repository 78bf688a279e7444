//! Faults of a library's file that the loader does not name. The loader maps every byte that an ELF file promises, and
//! the process dies of SIGBUS where the file has ended before, as after an interrupted download. The loader calls a
//! library of another machine "no such file".

use std::fs::OpenOptions;
use std::path::Path;

use elf::endian::AnyEndian;
use elf::{ElfStream, ParseError, abi};
use unisono_communicator::open_regular;

/// This machine's number; `None` for a machine that is not told apart.
const MACHINE: Option<u16> = if cfg!(target_arch = "x86_64") {
    Some(abi::EM_X86_64)
} else if cfg!(target_arch = "aarch64") {
    Some(abi::EM_AARCH64)
} else {
    None
};

/// Finds faults of the library at `path` without opening it as one: a file that is missing, is not readable, is no ELF
/// file, is for another machine, or is cut off. Only the loader knows whether the library finds the libraries that it
/// needs.
///
/// # Errors
/// The fault, in words that follow the name of the file.
pub fn check_file(path: &Path) -> Result<(), String> {
    let opened = open_regular(path, OpenOptions::new().read(true));
    let (file, metadata) = opened.map_err(|error| error.to_string())?;
    let cut_off = |needed| format!("cut off: it has {} of at least {needed} bytes", metadata.len());
    let image = match ElfStream::<AnyEndian, _>::open_stream(file) {
        Ok(image) => image,
        Err(ParseError::BadOffset(needed)) if needed > abi::EI_NIDENT as u64 => return Err(cut_off(needed)),
        Err(ParseError::BadOffset(_) | ParseError::BadMagic(_)) => return Err("not an ELF file".to_owned()),
        Err(ParseError::IOError(error)) => return Err(error.to_string()),
        // The loader refuses headers that this parser does not know, and says why.
        Err(_) => return Ok(()),
    };
    let machine = image.ehdr.e_machine;
    if MACHINE.is_some_and(|own| own != machine) {
        return Err(format!("for another machine, number {machine} of ELF"));
    }
    let mapped = image.segments().iter().filter(|segment| segment.p_type == abi::PT_LOAD);
    let needed = mapped.map(|segment| segment.p_offset.saturating_add(segment.p_filesz)).max();
    match needed {
        Some(needed) if needed > metadata.len() => Err(cut_off(needed)),
        _ => Ok(()),
    }
}
