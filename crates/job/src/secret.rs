//! The source from which a process gets the secret of its job: a file that others cannot read, or a pipe that the
//! process has inherited. Never an argument or an environment variable.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use unisono_communicator::{Error, Result, open_regular};
pub use unisono_control::secret::{SECRET_BYTES, Secret};
use zeroize::Zeroizing;

use crate::private_files::{FILE_MODE, NO_GROUP_READER_MODE, OTHERS_MODE, bad_file, check_secret};
use crate::size_limit::write_limited;

/// The time that the writer of a pipe may take.
const PIPE_TIMEOUT: Duration = Duration::from_secs(5);

/// Between two looks into it.
const PIPE_PAUSE: Duration = Duration::from_millis(1);

/// The source of a job's secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretSource {
    /// A regular file of exactly [`SECRET_BYTES`] bytes, of this user or of root, and closed to all others.
    File(PathBuf),
    /// The same for a file that the group of the file may read too. Kubernetes mounts secrets so, as files of root.
    GroupFile(PathBuf),
    /// The reading end of an inherited pipe: exactly [`SECRET_BYTES`] bytes, written within 5 s. They are gone from the
    /// pipe then, so a process that inherits it after us finds nothing.
    Descriptor(u32),
}

impl SecretSource {
    /// The variable that names the source, and its value.
    pub(crate) fn setting(&self) -> (&'static str, String) {
        match self {
            SecretSource::File(path) => ("UNISONO_SECRET_FILE", path.display().to_string()),
            SecretSource::GroupFile(path) => ("UNISONO_SECRET_GROUP_FILE", path.display().to_string()),
            SecretSource::Descriptor(number) => ("UNISONO_SECRET_FD", number.to_string()),
        }
    }

    /// Fetches the secret.
    ///
    /// # Errors
    /// [`Error::System`] for any other file, and for a descriptor that is no pipe, is not there, or holds more or fewer
    /// bytes.
    pub fn read(&self) -> Result<Secret> {
        match self {
            SecretSource::File(path) => from_file(path),
            SecretSource::GroupFile(path) => from_group_file(path),
            SecretSource::Descriptor(descriptor) => from_descriptor(*descriptor),
        }
    }

    /// Looks whether a secret can be there, without taking it out of its pipe.
    ///
    /// # Errors
    /// As [`SecretSource::read`].
    pub fn check(&self) -> Result<()> {
        match self {
            SecretSource::File(_) | SecretSource::GroupFile(_) => self.read().map(drop),
            SecretSource::Descriptor(descriptor) => open_pipe(*descriptor).map(drop),
        }
    }
}

/// Reads a secret: `path` must be a regular file of exactly [`SECRET_BYTES`] bytes, of this user or of root, and
/// closed to all others.
fn from_file(path: &Path) -> Result<Secret> {
    from_file_closed_to(OTHERS_MODE, path)
}

/// The same for a file that the group of the file may read too. Kubernetes mounts secrets so, as files of root.
fn from_group_file(path: &Path) -> Result<Secret> {
    from_file_closed_to(NO_GROUP_READER_MODE, path)
}

fn from_file_closed_to(closed: u32, path: &Path) -> Result<Secret> {
    let open = |error| Error::system(format!("open the secret file {}", path.display()), &error);
    let (mut file, metadata) = open_regular(path, OpenOptions::new().read(true)).map_err(open)?;
    check_secret(path, &metadata, closed)?;
    let mut bytes = Zeroizing::new([0; SECRET_BYTES + 1]);
    let length = read_up_to(&mut file, bytes.as_mut_slice())
        .map_err(|error| Error::system(format!("read the secret file {}", path.display()), &error))?;
    match bytes.first_chunk_mut() {
        Some(secret) if length == SECRET_BYTES => Ok(Secret::take(secret)),
        _ => Err(bad_file(path, format!("a secret file has exactly {SECRET_BYTES} bytes"))),
    }
}

/// Takes a secret out of the pipe whose reading end is the inherited `descriptor`: exactly [`SECRET_BYTES`] bytes,
/// written within 5 s. They are gone from the pipe then, so a process that inherits it after us finds nothing.
fn from_descriptor(descriptor: u32) -> Result<Secret> {
    let mut pipe = open_pipe(descriptor)?;
    let mut bytes = Zeroizing::new([0; SECRET_BYTES + 1]);
    let length =
        read_pipe(&mut pipe, bytes.as_mut_slice()).map_err(|error| unread_pipe(descriptor, &error))?;
    match bytes.first_chunk_mut() {
        Some(secret) if length == SECRET_BYTES => Ok(Secret::take(secret)),
        Some(_) if length == 0 => {
            let problem = "the pipe is empty: a secret is taken out once, so a process that joins again needs \
                           UNISONO_SECRET_FILE";
            Err(bad_file(&path_of_descriptor(descriptor), problem.into()))
        }
        _ => {
            let problem = format!("{length} bytes came, and a secret has exactly {SECRET_BYTES}");
            Err(bad_file(&path_of_descriptor(descriptor), problem))
        }
    }
}

/// Writes a secret to a new file that only this user can read; refuses a path that exists.
///
/// # Errors
/// [`Error::System`] when the file exists or cannot be written.
pub fn create_secret_file(secret: &Secret, path: &Path) -> Result<()> {
    let written = write_limited(|| {
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(FILE_MODE).open(path)?;
        file.write_all(secret.expose())
    });
    written.map_err(|error| Error::system(format!("create the secret file {}", path.display()), &error))
}

fn path_of_descriptor(descriptor: u32) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{descriptor}"))
}

/// The path is named, because it is not there without `/proc`.
fn unread_pipe(descriptor: u32, error: &std::io::Error) -> Error {
    let text = format!("{}: {error}", path_of_descriptor(descriptor).display());
    Error::System { what: format!("read the secret from descriptor {descriptor}"), text }
}

/// Opens an inherited pipe anew, because a bare number is not proof of owning the descriptor.
fn open_pipe(descriptor: u32) -> Result<File> {
    let path = path_of_descriptor(descriptor);
    let system = |error| unread_pipe(descriptor, &error);
    let mut options = OpenOptions::new();
    let pipe = options.read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(&path).map_err(system)?;
    if pipe.metadata().map_err(system)?.file_type().is_fifo() {
        return Ok(pipe);
    }
    Err(bad_file(&path, "it is not a pipe; a file is named by UNISONO_SECRET_FILE".into()))
}

fn read_up_to(file: &mut File, mut room: &mut [u8]) -> std::io::Result<usize> {
    let all = room.len();
    while !room.is_empty() {
        match file.read(room) {
            Ok(0) => break,
            Ok(count) => room = &mut room[count..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(all - room.len())
}

/// Reads until the room is full, the pipe is closed, or nothing more comes after a whole secret.
fn read_pipe(pipe: &mut File, room: &mut [u8]) -> std::io::Result<usize> {
    let deadline = Instant::now() + PIPE_TIMEOUT;
    let mut length = 0;
    while length < room.len() {
        match pipe.read(&mut room[length..]) {
            Ok(0) => break,
            Ok(count) => length += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                // Its writer lives: it may be slow with the rest, or keep it open after all.
                let left = deadline.saturating_duration_since(Instant::now());
                if length == SECRET_BYTES || left.is_zero() {
                    break;
                }
                std::thread::sleep(PIPE_PAUSE.min(left));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(length)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::fs::{self, DirBuilder, Permissions};
    use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};

    use crate::private_files::DIRECTORY_MODE;

    /// A directory of one test, removed at its end.
    pub(crate) struct TestDirectory(pub(crate) PathBuf);

    impl TestDirectory {
        pub(crate) fn new() -> TestDirectory {
            let mut name = [0; 8];
            unisono_control::secret::fill_random(&mut name).unwrap();
            let path = std::env::temp_dir().join(format!("unisono-test-{:016x}", u64::from_le_bytes(name)));
            DirBuilder::new().mode(DIRECTORY_MODE).create(&path).unwrap();
            TestDirectory(path)
        }
    }

    impl Drop for TestDirectory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_secret_travels_by_a_private_file() {
        let directory = TestDirectory::new();
        let path = directory.0.join("secret");
        let secret = Secret::random().unwrap();
        create_secret_file(&secret, &path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, FILE_MODE);
        assert_eq!(from_file(&path).unwrap().expose(), secret.expose());
        assert!(create_secret_file(&secret, &path).is_err(), "an existing file is never overwritten");
        assert!(!format!("{secret:?}").contains(&secret.expose()[0].to_string()));
    }

    #[test]
    fn files_that_others_could_have_read_or_written_are_refused() {
        let directory = TestDirectory::new();
        let path = directory.0.join("secret");
        fs::write(&path, [7; SECRET_BYTES]).unwrap();
        for (mode, fine) in [(0o600, true), (0o400, true), (0o640, false), (0o604, false), (0o622, false)] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            assert_eq!(from_file(&path).is_ok(), fine, "mode {mode:o}");
        }
        for (mode, fine) in [(0o600, true), (0o440, true), (0o640, true), (0o660, false), (0o644, false)] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            assert_eq!(from_group_file(&path).is_ok(), fine, "mode {mode:o}");
        }
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        for length in [0, SECRET_BYTES - 1, SECRET_BYTES + 1] {
            fs::write(&path, vec![7; length]).unwrap();
            let text = from_file(&path).unwrap_err().to_string();
            assert!(text.contains("exactly 32 bytes"), "{text}");
        }
        assert!(from_file(&directory.0).unwrap_err().to_string().contains("not a regular file"));
        assert!(from_file(&directory.0.join("none")).is_err());
        rustix::fs::mknodat(
            rustix::fs::CWD,
            directory.0.join("pipe"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from(0o600),
            0,
        )
        .unwrap();
        assert!(from_file(&directory.0.join("pipe")).is_err(), "a pipe neither hangs nor passes");
    }

    #[test]
    fn a_secret_comes_through_a_pipe_once() {
        use std::os::fd::AsRawFd;

        let (reader, mut writer) = std::io::pipe().unwrap();
        let descriptor = reader.as_raw_fd() as u32;
        let text = || from_descriptor(descriptor).unwrap_err().to_string();
        let slow = std::thread::spawn(move || {
            writer.write_all(&[7; 30]).unwrap();
            std::thread::sleep(Duration::from_millis(20));
            writer.write_all(&[7; 2]).unwrap();
            writer
        });
        assert_eq!(from_descriptor(descriptor).unwrap().expose(), &[7; SECRET_BYTES]);
        let mut writer = slow.join().unwrap();
        writer.write_all(&[7; 40]).unwrap();
        assert!(text().contains("33 bytes came"), "{}", text());
        drop(writer);
        assert!(text().contains("7 bytes came"));
        assert!(text().contains("the pipe is empty: a secret is taken out once"));
        let file = File::open("/proc/self/stat").unwrap();
        let error = from_descriptor(file.as_raw_fd() as u32).unwrap_err().to_string();
        assert!(error.contains("not a pipe"), "{error}");
        assert!(from_descriptor(u32::MAX).is_err());
    }
}
