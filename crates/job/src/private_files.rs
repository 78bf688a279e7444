//! Private files and directories: of one user, and closed to others.

use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use unisono_communicator::{Error, Result, open_regular};

/// The user who may read every file anyway.
const ROOT: u32 = 0;

pub(crate) const FILE_MODE: u32 = 0o600;
pub(crate) const DIRECTORY_MODE: u32 = 0o700;
/// The permissions on a private file that nobody but its owner may have.
pub(crate) const OTHERS_MODE: u32 = 0o077;
/// The same for a file that the group may read.
pub(crate) const NO_GROUP_READER_MODE: u32 = 0o037;

/// Opens a file with `options` and checks that it is a regular file, ours, and closed to others. A created file gets
/// mode 0600; a pipe or device is not waited for. `unopened` makes an error of the system's error.
pub(crate) fn open_private(
    path: &Path,
    options: &mut OpenOptions,
    unopened: impl FnOnce(std::io::Error) -> Error,
) -> Result<File> {
    let (file, metadata) = open_regular(path, options.mode(FILE_MODE)).map_err(unopened)?;
    check_private(path, &metadata)?;
    Ok(file)
}

/// The directory for files that processes of this user on this host share: `unisono` in `runtime` (XDG_RUNTIME_DIR)
/// when that is there, private and writable, else one named after the user under `temporary`. It is made if need be.
///
/// All ranks of a job must find the same directory. So the choice depends only on properties that are the same for all
/// processes of a user on a host: owner, mode, and whether the file system is read-only. That a directory is full is a
/// matter of the moment: one rank may find room where another has found none. It is an error, not a reason to go
/// elsewhere.
///
/// # Errors
/// [`Error::System`] with the directory and a remedy.
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
pub fn no_runtime_file(what: &str, path: &Path, error: &std::io::Error) -> Error {
    let remedy = "make it writable or make room there, or set XDG_RUNTIME_DIR for all ranks to another directory of \
                  mode 0700, such as one in /dev/shm where the root file system is read-only";
    Error::System { what: format!("{what} {}", path.display()), text: format!("{error}; {remedy}") }
}

fn check_private(path: &Path, metadata: &Metadata) -> Result<()> {
    check_owner(path, metadata)?;
    check_mode(path, metadata, OTHERS_MODE)
}

/// Refuses a secret that is neither of this user nor of root, or that has any of the bits `closed` in its mode.
pub(crate) fn check_secret(path: &Path, metadata: &Metadata, closed: u32) -> Result<()> {
    if metadata.uid() != ROOT {
        check_owner(path, metadata)?;
    }
    check_mode(path, metadata, closed)
}

fn check_owner(path: &Path, metadata: &Metadata) -> Result<()> {
    let user = rustix::process::geteuid().as_raw();
    if metadata.uid() != user {
        return Err(bad_file(path, format!("it belongs to user {}, not to us ({user})", metadata.uid())));
    }
    Ok(())
}

/// Refuses a file that has any of the bits `closed` in its mode.
fn check_mode(path: &Path, metadata: &Metadata, closed: u32) -> Result<()> {
    if metadata.mode() & closed != 0 {
        let mode = metadata.mode() & 0o7777;
        return Err(bad_file(path, format!("others may use it (mode {mode:04o}); chmod go= closes it")));
    }
    Ok(())
}

pub(crate) fn bad_file(path: &Path, problem: String) -> Error {
    Error::System { what: format!("trust {}", path.display()), text: problem }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::secret::tests::TestDirectory;

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
}
