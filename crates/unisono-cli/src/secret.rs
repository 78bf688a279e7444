//! `unisono secret`: a fresh secret in a file, for jobs that another launcher starts or that a user starts by hand.

use std::borrow::Cow;
use std::fs::{DirBuilder, File};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use tempfile::TempPath;
use unisono::Error;
use unisono_control::secret::{Secret, fill_random};
use unisono_job::config::user_secret_file;
use unisono_job::secret::{SecretSource, create_secret_file};
use unisono_job::settings::{GROUPS, Source};

use crate::arguments::SecretArguments;
use crate::print;
use crate::problem::{Problem, Result};

/// Of folders above the file that ranks look for unasked.
const FOLDER_MODE: u32 = 0o700;

/// Makes the file, and prints the variable that names it.
pub(crate) fn secret(arguments: &SecretArguments) -> Result<()> {
    let path = match &arguments.file {
        Some(path) => std::path::absolute(path).map_err(|error| Problem::failed(path.display(), error))?,
        None => own_file()?,
    };
    let no_text =
        || Problem::usage(format!("{}: its name is no UTF-8, so no line can say it", path.display()));
    let name = path.to_str().ok_or_else(no_text)?;
    make(&path, arguments.replace)?;
    print::line(&format!("export UNISONO_SECRET_FILE={}", quoted(name)))
}

/// The file that ranks of this user look for unasked; its folder is made if need be.
fn own_file() -> Result<PathBuf> {
    let path = user_secret_file(&Source::of_environment(&GROUPS));
    let path = path.ok_or_else(|| Problem::usage("neither XDG_CONFIG_HOME nor HOME is set: name a FILE"))?;
    let folder = path.parent().unwrap_or(&path);
    let made = DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(folder);
    made.map_err(|error| Problem::failed(folder.display(), error))?;
    Ok(path)
}

/// The file appears whole or not at all, and only if ranks would accept it: a file system may know no private files.
fn make(path: &Path, replaces: bool) -> Result<()> {
    let failed = |error: &dyn std::fmt::Display| Problem::failed(path.display(), error);
    let refused = |problem: &str| Problem::usage(format!("{}: {problem}", path.display()));
    match path.symlink_metadata() {
        Ok(found) if !found.is_file() => return Err(refused("it is there, and no regular file")),
        Ok(_) if !replaces => {
            return Err(refused(
                "it is there, and jobs may use it; --replace puts a new secret in its place",
            ));
        }
        Ok(_) | Err(_) => {}
    }
    let mut number = [0; 8];
    fill_random(&mut number)?;
    let name = format!(".unisono-secret-{:016x}", u64::from_le_bytes(number));
    let new = TempPath::try_from_path(path.with_file_name(name)).map_err(|error| failed(&error))?;
    create_secret_file(&Secret::random()?, &new).map_err(|error| match error {
        Error::System { text, .. } => failed(&text),
        other => failed(&other),
    })?;
    // Some file systems notice only then that they are full.
    File::open(&new).and_then(|file| file.sync_all()).map_err(|error| failed(&error))?;
    SecretSource::File(new.to_path_buf()).check()?;
    let moved = if replaces { new.persist(path) } else { new.persist_noclobber(path) };
    moved.map_err(|error| failed(&error.error))
}

/// One word for a shell.
fn quoted(text: &str) -> Cow<'_, str> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-+,:@".contains(letter);
    match text.chars().all(is_plain) {
        true => text.into(),
        false => format!("'{}'", text.replace('\'', r"'\''")).into(),
    }
}
