//! The job's secret, and the private files and directories that carry it between processes of one user.
//!
//! Whoever holds the secret is a member of the job. It is 32 random bytes, never an argument or an environment
//! variable, and it is read only from a file that nobody else can read, or from a pipe that the process has inherited.

use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hmac::{Hmac, Mac};
use rustix::fs::{Access, OFlags, access};
use sha2::Sha256;
use unisono_communicator::{Error, Result};
use zeroize::{Zeroize, Zeroizing};

use crate::size_limit::write_limited;

/// Length of a secret.
pub const SECRET_BYTES: usize = 32;

/// Length of an authentication tag made with a secret.
pub const TAG_BYTES: usize = 32;

/// How long the writer of a pipe may take.
const PIPE_TIMEOUT: Duration = Duration::from_secs(5);

/// Between two looks into it.
const PIPE_PAUSE: Duration = Duration::from_millis(1);

const FILE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;
const OTHERS_MODE: u32 = 0o077;

/// The secret of a job; wiped when its last copy goes, never printed.
#[derive(Clone)]
pub struct Secret {
    // Behind one pointer, so that moving and cloning leaves no copies of the bytes behind.
    bytes: Arc<Zeroizing<[u8; SECRET_BYTES]>>,
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Where the secret of a job comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretSource {
    /// A file, see [`Secret::from_file`].
    File(PathBuf),
    /// An inherited descriptor, see [`Secret::from_descriptor`].
    Descriptor(u32),
}

impl SecretSource {
    /// Fetches the secret.
    ///
    /// # Errors
    /// Those of [`Secret::from_file`] and [`Secret::from_descriptor`].
    pub fn read(&self) -> Result<Secret> {
        match self {
            SecretSource::File(path) => Secret::from_file(path),
            SecretSource::Descriptor(descriptor) => Secret::from_descriptor(*descriptor),
        }
    }

    /// Looks whether a secret can be there, without taking it out of its pipe.
    ///
    /// # Errors
    /// As [`SecretSource::read`].
    pub fn check(&self) -> Result<()> {
        match self {
            SecretSource::File(path) => Secret::from_file(path).map(drop),
            SecretSource::Descriptor(descriptor) => open_pipe(*descriptor).map(drop),
        }
    }
}

impl Secret {
    /// A fresh secret from the system's generator.
    pub fn random() -> Result<Secret> {
        let mut bytes = [0; SECRET_BYTES];
        fill_random(&mut bytes)?;
        Ok(Secret::take(&mut bytes))
    }

    /// The secret of these bytes, which are wiped where they stand.
    pub fn take(bytes: &mut [u8; SECRET_BYTES]) -> Secret {
        let secret = Secret { bytes: Arc::new(Zeroizing::new(*bytes)) };
        bytes.zeroize();
        secret
    }

    /// Reads a secret: `path` must be a regular file of exactly [`SECRET_BYTES`] bytes, ours, and closed to others.
    pub fn from_file(path: &Path) -> Result<Secret> {
        let open = |error| Error::system(format!("open the secret file {}", path.display()), &error);
        let mut file = open_private(path, OpenOptions::new().read(true), open)?;
        let mut bytes = Zeroizing::new([0; SECRET_BYTES + 1]);
        let length = read_up_to(&mut file, bytes.as_mut_slice())
            .map_err(|error| Error::system(format!("read the secret file {}", path.display()), &error))?;
        match bytes.first_chunk_mut() {
            Some(secret) if length == SECRET_BYTES => Ok(Secret::take(secret)),
            _ => Err(bad_file(path, format!("a secret file has exactly {SECRET_BYTES} bytes"))),
        }
    }

    /// Takes a secret out of the pipe whose reading end is the inherited `descriptor`: exactly [`SECRET_BYTES`] bytes,
    /// written within 5 s. They are gone from the pipe then, so whoever inherits it after us finds nothing.
    ///
    /// # Errors
    /// [`Error::System`] for a descriptor that is no pipe, is not there, or holds more or fewer bytes.
    pub fn from_descriptor(descriptor: u32) -> Result<Secret> {
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

    /// Writes the secret to a new file that only this user can read; refuses a path that exists.
    pub fn create_file(&self, path: &Path) -> Result<()> {
        let written = write_limited(|| {
            let mut options = OpenOptions::new();
            let mut file = options.write(true).create_new(true).mode(FILE_MODE).open(path)?;
            file.write_all(self.expose())
        });
        written.map_err(|error| Error::system(format!("create the secret file {}", path.display()), &error))
    }

    /// HMAC-SHA256 over `parts`, one after the other.
    pub(crate) fn tag(&self, parts: &[&[u8]]) -> [u8; TAG_BYTES] {
        self.mac(parts).finalize().into_bytes().into()
    }

    /// Whether `tag` is the tag over `parts`, in constant time.
    pub(crate) fn verifies(&self, parts: &[&[u8]], tag: &[u8]) -> bool {
        self.mac(parts).verify_slice(tag).is_ok()
    }

    fn mac(&self, parts: &[&[u8]]) -> Hmac<Sha256> {
        // INVARIANT: HMAC takes keys of every length.
        let mut mac = Hmac::<Sha256>::new_from_slice(self.expose()).expect("a key of any length");
        for part in parts {
            mac.update(part);
        }
        mac
    }

    pub(crate) fn expose(&self) -> &[u8; SECRET_BYTES] {
        &self.bytes
    }
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

/// Fills `bytes` from the system's generator.
pub(crate) fn fill_random(bytes: &mut [u8]) -> Result<()> {
    getrandom::fill(bytes)
        .map_err(|error| Error::System { what: "get random bytes".into(), text: error.to_string() })
}

/// Opens a file with `options` and checks that it is a regular file, ours, and closed to others. A created file gets
/// mode 0600; a pipe or device is not waited for. `unopened` makes an error of what the system says.
pub(crate) fn open_private(
    path: &Path,
    options: &mut OpenOptions,
    unopened: impl FnOnce(std::io::Error) -> Error,
) -> Result<File> {
    let options = options.mode(FILE_MODE).custom_flags(OFlags::NONBLOCK.bits() as i32);
    let file = options.open(path).map_err(unopened)?;
    let metadata = file
        .metadata()
        .map_err(|error| Error::system(format!("examine the private file {}", path.display()), &error))?;
    if !metadata.is_file() {
        return Err(bad_file(path, "it is not a regular file".into()));
    }
    check_private(path, &metadata)?;
    Ok(file)
}

/// The directory for files that processes of this user on this host share: `unisono` in `runtime` (XDG_RUNTIME_DIR)
/// when that is there, private and writable, else one named after the user under `temporary`. It is made if need be.
///
/// All ranks of a job must find the same one. So the choice depends only on what is the same for all processes of a
/// user on a host as long as nobody changes it: owner, mode, and whether the file system is read-only. That a
/// directory is full is a matter of the moment: one rank may find room where another has found none. It is an error,
/// not a reason to go elsewhere.
///
/// # Errors
/// [`Error::System`] with the directory and what to do about it.
pub fn runtime_directory(runtime: Option<&Path>, temporary: &Path) -> Result<PathBuf> {
    let is_private =
        |path: &Path| path.symlink_metadata().is_ok_and(|m| m.is_dir() && check_private(path, &m).is_ok());
    let is_writable = |path: &Path| access(path, Access::WRITE_OK | Access::EXEC_OK).is_ok();
    let usable = |path: &&Path| is_private(path) && is_writable(path);
    let path = match runtime.filter(usable) {
        Some(runtime) => runtime.join("unisono"),
        None => temporary.join(format!("unisono-{}", rustix::process::geteuid().as_raw())),
    };
    let unusable = |what: &str, error| no_runtime_file(&format!("{what} the directory"), &path, &error);
    match DirBuilder::new().mode(DIRECTORY_MODE).create(&path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            return Err(unusable("create", error));
        }
        _ => {}
    }
    let metadata = path.symlink_metadata().map_err(|error| unusable("examine", error))?;
    if !metadata.is_dir() {
        return Err(bad_file(&path, "it is not a directory".into()));
    }
    check_private(&path, &metadata)?;
    Ok(path)
}

/// The error of a file or directory that the ranks of this host need, with the remedies.
pub(crate) fn no_runtime_file(what: &str, path: &Path, error: &std::io::Error) -> Error {
    let remedy = "make it writable or make room there, or set XDG_RUNTIME_DIR for all ranks to another directory of \
                  mode 0700";
    Error::System { what: format!("{what} {}", path.display()), text: format!("{error}; {remedy}") }
}

fn check_private(path: &Path, metadata: &Metadata) -> Result<()> {
    let user = rustix::process::geteuid().as_raw();
    if metadata.uid() != user {
        return Err(bad_file(path, format!("it belongs to user {}, not to us ({user})", metadata.uid())));
    }
    if metadata.mode() & OTHERS_MODE != 0 {
        let mode = metadata.mode() & 0o7777;
        return Err(bad_file(path, format!("others may use it (mode {mode:04o}); chmod go= closes it")));
    }
    Ok(())
}

fn bad_file(path: &Path, problem: String) -> Error {
    Error::System { what: format!("trust {}", path.display()), text: problem }
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
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    /// A directory of one test, removed at its end.
    pub(crate) struct TestDirectory(pub(crate) PathBuf);

    impl TestDirectory {
        pub(crate) fn new() -> TestDirectory {
            let mut name = [0; 8];
            fill_random(&mut name).unwrap();
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
        secret.create_file(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, FILE_MODE);
        assert_eq!(Secret::from_file(&path).unwrap().expose(), secret.expose());
        assert!(secret.create_file(&path).is_err(), "an existing file is never overwritten");
        assert!(!format!("{secret:?}").contains(&secret.expose()[0].to_string()));
    }

    #[test]
    fn files_that_others_could_have_read_or_written_are_refused() {
        let directory = TestDirectory::new();
        let path = directory.0.join("secret");
        fs::write(&path, [7; SECRET_BYTES]).unwrap();
        for (mode, fine) in [(0o600, true), (0o400, true), (0o640, false), (0o604, false), (0o622, false)] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            assert_eq!(Secret::from_file(&path).is_ok(), fine, "mode {mode:o}");
        }
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        for length in [0, SECRET_BYTES - 1, SECRET_BYTES + 1] {
            fs::write(&path, vec![7; length]).unwrap();
            let text = Secret::from_file(&path).unwrap_err().to_string();
            assert!(text.contains("exactly 32 bytes"), "{text}");
        }
        assert!(Secret::from_file(&directory.0).unwrap_err().to_string().contains("not a regular file"));
        assert!(Secret::from_file(&directory.0.join("none")).is_err());
        rustix::fs::mknodat(
            rustix::fs::CWD,
            directory.0.join("pipe"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from(0o600),
            0,
        )
        .unwrap();
        assert!(Secret::from_file(&directory.0.join("pipe")).is_err(), "a pipe neither hangs nor passes");
    }

    #[test]
    fn a_secret_comes_through_a_pipe_once() {
        use std::os::fd::AsRawFd;

        let (reader, mut writer) = std::io::pipe().unwrap();
        let descriptor = reader.as_raw_fd() as u32;
        let text = || Secret::from_descriptor(descriptor).unwrap_err().to_string();
        let slow = std::thread::spawn(move || {
            writer.write_all(&[7; 30]).unwrap();
            std::thread::sleep(Duration::from_millis(20));
            writer.write_all(&[7; 2]).unwrap();
            writer
        });
        assert_eq!(Secret::from_descriptor(descriptor).unwrap().expose(), &[7; SECRET_BYTES]);
        let mut writer = slow.join().unwrap();
        writer.write_all(&[7; 40]).unwrap();
        assert!(text().contains("33 bytes came"), "{}", text());
        drop(writer);
        assert!(text().contains("7 bytes came"));
        assert!(text().contains("the pipe is empty: a secret is taken out once"));
        let file = File::open("/proc/self/stat").unwrap();
        let error = Secret::from_descriptor(file.as_raw_fd() as u32).unwrap_err().to_string();
        assert!(error.contains("not a pipe"), "{error}");
        assert!(Secret::from_descriptor(u32::MAX).is_err());
    }

    #[test]
    fn the_runtime_directory_is_private_or_refused() {
        let directory = TestDirectory::new();
        let own = runtime_directory(Some(&directory.0), Path::new("/nowhere")).unwrap();
        assert_eq!(own, directory.0.join("unisono"));
        assert_eq!(fs::metadata(&own).unwrap().mode() & 0o7777, DIRECTORY_MODE);
        assert_eq!(runtime_directory(Some(&directory.0), Path::new("/nowhere")).unwrap(), own);

        let temporary = directory.0.join("tmp");
        fs::create_dir(&temporary).unwrap();
        fs::set_permissions(&temporary, Permissions::from_mode(0o777)).unwrap();
        let open_to_all = runtime_directory(Some(&temporary), &temporary).unwrap();
        assert_eq!(open_to_all.parent(), Some(temporary.as_path()));
        assert!(open_to_all.ends_with(format!("unisono-{}", rustix::process::geteuid().as_raw())));

        // Nobody can write there, so no rank does. Root can write wherever the mount lets it.
        let read_only = directory.0.join("read-only");
        fs::create_dir(&read_only).unwrap();
        fs::set_permissions(&read_only, Permissions::from_mode(0o500)).unwrap();
        let is_root = rustix::process::geteuid().is_root();
        let elsewhere = runtime_directory(Some(&read_only), &temporary).unwrap();
        assert_eq!(elsewhere, if is_root { read_only.join("unisono") } else { open_to_all.clone() });
        let text = runtime_directory(None, &directory.0.join("none")).unwrap_err().to_string();
        assert!(text.starts_with("create the directory ") && text.contains("set XDG_RUNTIME_DIR"), "{text}");

        fs::set_permissions(&open_to_all, Permissions::from_mode(0o755)).unwrap();
        assert!(runtime_directory(None, &temporary).unwrap_err().to_string().contains("mode 0755"));
        fs::remove_dir(&open_to_all).unwrap();
        std::os::unix::fs::symlink(&own, &open_to_all).unwrap();
        assert!(runtime_directory(None, &temporary).unwrap_err().to_string().contains("not a directory"));
    }

    #[test]
    fn tags_depend_on_secret_and_parts() {
        let secret = Secret::take(&mut [1; SECRET_BYTES]);
        let tag = secret.tag(&[b"ab", b"c"]);
        assert!(secret.verifies(&[b"abc"], &tag));
        assert!(!secret.verifies(&[b"abd"], &tag));
        assert!(!secret.verifies(&[b"abc"], &tag[1..]));
        assert!(!Secret::take(&mut [2; SECRET_BYTES]).verifies(&[b"abc"], &tag));
    }
}
