//! `unisono secret`: the files that it makes, and the files that it leaves alone.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use unisono_tests::skip;

use crate::support::{Finished, start_by, unisono};

fn secret(path: &Path, options: &[&str]) -> Finished {
    unisono(&[&["secret", path.to_str().unwrap()][..], options].concat())
}

/// The program in a shell, after a line.
fn secret_after(line: &str, path: &Path) -> Finished {
    let script = format!("{line} exec \"$0\" \"$@\"");
    start_by(&["sh", "-c", &script], &["secret", path.to_str().unwrap()]).finish()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

/// The names in a folder.
fn names(folder: &Path) -> Vec<String> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// The words of a rank with the file.
fn rank_with(path: &Path) -> String {
    let by = ["env", "RANK=0", "WORLD_SIZE=1", &format!("UNISONO_SECRET_FILE={}", path.display())];
    start_by(&by, &["bench", "barrier"]).finish().err
}

#[test]
fn a_secret_is_fresh_and_of_its_owner_alone_and_a_shell_takes_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("it's a secret");
    const EVAL: &str = "umask 0; eval \"$(\"$0\" secret \"$1\")\" && wc -c <\"$UNISONO_SECRET_FILE\"";
    let shell =
        Command::new("sh").args(["-c", EVAL, env!("CARGO_BIN_EXE_unisono")]).arg(&path).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&shell.stdout), "32\n", "{}", String::from_utf8_lossy(&shell.stderr));
    let plain = folder.path().join("plain");
    let done = secret(&plain, &[]);
    assert_eq!(
        (done.out, done.err),
        (format!("export UNISONO_SECRET_FILE={}\n", plain.display()), "".into())
    );
    assert_eq!((mode(&path), mode(&plain)), (0o600, 0o600));
    assert_ne!(fs::read(&path).unwrap(), fs::read(&plain).unwrap());
    assert_eq!(rank_with(&plain), "");
    fs::set_permissions(&plain, Permissions::from_mode(0o644)).unwrap();
    let said = rank_with(&plain);
    assert!(said.contains("others may use it (mode 0644); chmod go= closes it"), "{said}");
}

#[test]
fn without_a_name_it_is_the_file_that_ranks_look_for() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join(".config/unisono/secret");
    let by = ["env", "-i", &format!("HOME={}", home.path().display())];
    let done = start_by(&by, &["secret"]).finish();
    assert_eq!(done.out, format!("export UNISONO_SECRET_FILE={}\n", path.display()), "{}", done.err);
    assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
    let done = start_by(&["env", "-i"], &["secret"]).finish();
    assert_eq!(done.err, "unisono: neither XDG_CONFIG_HOME nor HOME is set: name a FILE\n");
}

#[test]
fn a_secret_that_is_there_stays_unless_a_new_one_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("secret");
    assert!(secret(&path, &[]).status.success());
    let first = fs::read(&path).unwrap();
    let done = secret(&path, &[]);
    assert!(!done.status.success() && done.err.contains("--replace"), "{}", done.err);
    assert_eq!(fs::read(&path).unwrap(), first);
    assert!(secret(&path, &["--replace"]).status.success());
    assert_ne!(fs::read(&path).unwrap(), first);
    let link = folder.path().join("link");
    symlink(&path, &link).unwrap();
    for other in [link.as_path(), folder.path()] {
        let done = secret(other, &["--replace"]);
        assert!(done.err.contains("no regular file"), "{}", done.err);
    }
    assert_eq!(names(folder.path()).len(), 2);
}

#[test]
fn a_secret_that_cannot_be_written_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("secret");
    let done = secret_after("ulimit -f 0;", &path);
    assert!(!done.status.success() && done.err.contains("secret: File too large"), "{}", done.err);
    assert_eq!(names(folder.path()), [""; 0]);
    for (path, expected) in [("none/secret", "No such file"), ("secret/secret", "Not a directory")] {
        fs::write(folder.path().join("secret"), "").unwrap();
        let done = secret(&folder.path().join(path), &[]);
        assert!(!done.status.success() && done.err.contains(expected), "{}", done.err);
        assert_eq!(done.err.lines().count(), 1, "{}", done.err);
    }
    let script = "\"$0\" secret \"$(printf '\\377')\"";
    let words = ["-c", script, env!("CARGO_BIN_EXE_unisono")];
    let done = Command::new("sh").args(words).current_dir(folder.path()).output().unwrap();
    assert!(String::from_utf8_lossy(&done.stderr).contains("its name is no UTF-8"), "{done:?}");
    assert_eq!(names(folder.path()), ["secret"]);
}

#[test]
fn a_full_or_read_only_file_system_is_named_and_has_no_secret() {
    if !Command::new("unshare").args(["--mount", "true"]).status().is_ok_and(|status| status.success()) {
        return skip("missing-files", "no mount namespace can be made here");
    }
    for (line, expected) in [
        ("head -c 4096 /dev/zero >/mnt/other", "No space left on device (os error 28)"),
        ("mount -o remount,ro /mnt", "Read-only file system (os error 30)"),
    ] {
        let script = format!(
            "mount -t tmpfs -o size=4k none /mnt && {line} && ! \"$0\" \"$@\" && ! ls -A /mnt | grep secret"
        );
        let by = ["unshare", "--mount", "sh", "-c", &script];
        let done = start_by(&by, &["secret", "/mnt/secret"]).finish();
        assert_eq!((done.err, done.out), (format!("unisono: /mnt/secret: {expected}\n"), String::new()));
        assert!(done.status.success(), "something is left");
    }
}
