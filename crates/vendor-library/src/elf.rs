//! The faults of a library's file that the loader does not name: it maps the parts that an ELF file claims to have, and
//! the process dies of SIGBUS where the file has ended before, as after an interrupted download; and a library of
//! another machine it calls "no such file".

use std::fs::OpenOptions;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use unisono_communicator::open_regular;

/// The bytes of the header of a 64-bit ELF file, and of one program header.
const HEADER_BYTES: usize = 64;
const SEGMENT_BYTES: usize = 56;

/// The beginning of ELF files, and then the class and the byte order of files that are read here.
const ELF: &[u8] = b"\x7fELF";
const BITS_64: u8 = 2;
const LITTLE_ENDIAN: u8 = 1;

/// This machine's number; 0 for machines that are not told apart.
const MACHINE: u64 = if cfg!(target_arch = "x86_64") {
    62
} else if cfg!(target_arch = "aarch64") {
    183
} else {
    0
};

/// `PT_LOAD`: a part of the file that is mapped.
const LOAD: u64 = 1;

/// Finds the fault that keeps the file at `path` from being opened as a library, without opening it as one: it is not
/// there or cannot be read, is no ELF file, is one of another machine, or is cut off. Whether the loader finds the
/// libraries that it needs, only the loader knows.
///
/// # Errors
/// The fault, in words that follow the name of the file.
pub fn check_file(path: &Path) -> Result<(), String> {
    let opened = open_regular(path, OpenOptions::new().read(true));
    let (mut file, metadata) = opened.map_err(|error| error.to_string())?;
    match read(&mut file) {
        Ok(Kind::Other) => Err("not an ELF file".to_owned()),
        Ok(Kind::Image { machine, .. }) if MACHINE != 0 && machine != MACHINE => {
            Err(format!("for another machine, number {machine} of ELF"))
        }
        Ok(Kind::Image { needed_bytes, .. }) if needed_bytes > metadata.len() => {
            Err(format!("cut off: it has {} of at least {needed_bytes} bytes", metadata.len()))
        }
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            Err(format!("cut off: it ends after {} bytes", metadata.len()))
        }
        Err(error) => Err(error.to_string()),
    }
}

/// The claims of a file about itself.
#[derive(Debug, PartialEq)]
enum Kind {
    /// No ELF file.
    Other,
    /// An ELF file that the loader judges: not one of 64 bits.
    Foreign,
    Image {
        machine: u64,
        /// The end of the last byte of the file that is mapped.
        needed_bytes: u64,
    },
}

fn read(file: &mut (impl Read + Seek)) -> io::Result<Kind> {
    let mut header = Vec::with_capacity(HEADER_BYTES);
    file.by_ref().take(HEADER_BYTES as u64).read_to_end(&mut header)?;
    if !header.starts_with(ELF) {
        return Ok(Kind::Other);
    }
    if header.len() < HEADER_BYTES {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    if (header[4], header[5]) != (BITS_64, LITTLE_ENDIAN) {
        return Ok(Kind::Foreign);
    }
    let (first, size, count) = (number(&header[32..40]), number(&header[54..56]), number(&header[56..58]));
    let mut needed_bytes = 0;
    for index in 0..count {
        // Numbers of a damaged file may be any; a place beyond all files is one at which nothing can be read.
        file.seek(SeekFrom::Start(first.saturating_add(index * size).min(i64::MAX.unsigned_abs())))?;
        let mut segment = [0; SEGMENT_BYTES];
        file.read_exact(&mut segment)?;
        if number(&segment[..4]) == LOAD {
            let end = number(&segment[8..16]).saturating_add(number(&segment[32..40]));
            needed_bytes = needed_bytes.max(end);
        }
    }
    Ok(Kind::Image { machine: number(&header[18..20]), needed_bytes })
}

/// A number in little-endian bytes, at most 8.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header, and one segment of `length` bytes from `offset` on.
    fn image(offset: u64, length: u64) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_BYTES + SEGMENT_BYTES];
        bytes[..4].copy_from_slice(ELF);
        (bytes[4], bytes[5]) = (BITS_64, LITTLE_ENDIAN);
        (bytes[32], bytes[54], bytes[56]) = (HEADER_BYTES as u8, SEGMENT_BYTES as u8, 1);
        bytes[HEADER_BYTES] = 1;
        bytes[HEADER_BYTES + 8..][..8].copy_from_slice(&offset.to_le_bytes());
        bytes[HEADER_BYTES + 32..][..8].copy_from_slice(&length.to_le_bytes());
        bytes
    }

    fn read_bytes(bytes: &[u8]) -> io::Result<Kind> {
        read(&mut io::Cursor::new(bytes))
    }

    #[test]
    fn the_machine_and_the_end_of_the_last_segment_are_found() {
        let mut bytes = image(0x1000, 0x234);
        bytes[18] = 183;
        assert_eq!(read_bytes(&bytes).unwrap(), Kind::Image { machine: 183, needed_bytes: 0x1234 });
        let far = read_bytes(&image(u64::MAX, 2)).unwrap();
        assert_eq!(far, Kind::Image { machine: 0, needed_bytes: u64::MAX });
    }

    #[test]
    fn other_files_are_told_apart() {
        for bytes in [&b"x".repeat(100)[..], b"", b"\x7fEL"] {
            assert_eq!(read_bytes(bytes).unwrap(), Kind::Other, "{bytes:?}");
        }
        let mut other = image(0x1000, 0x234);
        other[4] = 1;
        assert_eq!(read_bytes(&other).unwrap(), Kind::Foreign, "32 bits");
    }

    #[test]
    fn headers_beyond_the_end_are_an_end() {
        let whole = image(0, 120);
        for length in [4, 63, 64, 119] {
            assert_eq!(
                read_bytes(&whole[..length]).unwrap_err().kind(),
                io::ErrorKind::UnexpectedEof,
                "{length}"
            );
        }
        let mut far = whole;
        far[32..40].fill(0xff);
        assert_eq!(read_bytes(&far).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
