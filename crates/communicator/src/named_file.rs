//! Files that users name, in settings and on command lines. Another kind of file under the name must neither hang nor
//! fill the memory: a pipe waits for a writer, and a device may have no end.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

/// Opens a regular file with `options`, and refuses everything else without waiting.
///
/// # Errors
/// The system's, and `InvalidInput` for a folder, a pipe, a socket or a device.
pub fn open_regular(path: &Path, options: &mut OpenOptions) -> io::Result<(File, Metadata)> {
    let unusual = || io::Error::new(ErrorKind::InvalidInput, "it is not a regular file");
    // The opening of such a file has an effect that depends on its kind: some devices act.
    if path.metadata().is_ok_and(|metadata| !metadata.is_file()) {
        return Err(unusual());
    }
    let file = options.custom_flags(OFlags::NONBLOCK.bits() as i32).open(path)?;
    let metadata = file.metadata()?;
    // Another file may have its name now.
    if metadata.is_file() { Ok((file, metadata)) } else { Err(unusual()) }
}

/// The content of a regular file of at most `bytes_max` bytes.
///
/// ```
/// use unisono_communicator::read_regular;
/// let error = read_regular("/dev/zero".as_ref(), 1 << 20).unwrap_err();
/// assert_eq!(error.to_string(), "it is not a regular file");
/// ```
///
/// # Errors
/// As [`open_regular`], and `FileTooLarge` for a longer file.
pub fn read_regular(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let (file, _) = open_regular(path, OpenOptions::new().read(true))?;
    let mut bytes = Vec::new();
    // Files of the system are longer than they say.
    file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 <= bytes_max {
        return Ok(bytes);
    }
    Err(io::Error::new(ErrorKind::FileTooLarge, format!("it has more than {bytes_max} bytes")))
}
