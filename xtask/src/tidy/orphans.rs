//! The rule over all Rust files: some file declares each as a module, or cargo finds it as the root of a target. A file
//! that nobody declares is never compiled, and its tests never run.

use std::collections::BTreeSet;
use std::path::Path;

use regex::Regex;

use super::source::{Source, Violation};

const RULE: &str = "orphan";

/// Folders in which cargo takes each file for the root of a target.
const TARGET_FOLDERS: [&str; 4] = ["benches", "bin", "examples", "tests"];

/// The modules that one file declares.
pub(crate) struct Declared {
    path: String,
    names: BTreeSet<String>,
    /// The file names of `path` attributes.
    elsewhere: BTreeSet<String>,
}

/// Reads the modules that a file declares.
pub(crate) fn declared(source: &Source<'_>) -> Declared {
    let all = |pattern: &str| {
        #[expect(clippy::expect_used, reason = "the patterns below are valid")]
        let pattern = Regex::new(pattern).expect("a valid pattern");
        pattern.captures_iter(source.text).map(|found| found[1].to_owned()).collect()
    };
    Declared {
        path: source.path.to_owned(),
        names: all(r"(?m)^\s*(?:pub(?:\([a-z]+\))?\s+)?mod\s+(\w+)\s*;"),
        elsewhere: all(r#"path\s*=\s*"(?:[^"]*/)?([^"/]+\.rs)""#),
    }
}

/// The files that no other file declares.
pub(crate) fn check(names: &[String], files: &[Declared]) -> Vec<Violation> {
    let is_orphan = |file: &&Declared| !is_root(names, &file.path) && !is_declared(&file.path, files);
    let text = "no file declares this module, so nobody compiles it";
    let found = files.iter().filter(is_orphan);
    found
        .map(|file| Violation { path: file.path.clone(), line: 1, rule: RULE, text: text.to_owned() })
        .collect()
}

/// Whether cargo finds the file by itself.
fn is_root(names: &[String], path: &str) -> bool {
    let (folder, file) = path.rsplit_once('/').unwrap_or(("", path));
    let (above, last) = folder.rsplit_once('/').unwrap_or(("", folder));
    let has_manifest = |folder: &str| {
        let manifest =
            if folder.is_empty() { "Cargo.toml".to_owned() } else { format!("{folder}/Cargo.toml") };
        names.contains(&manifest)
    };
    let is_target = TARGET_FOLDERS.contains(&last) && (last == "bin" || has_manifest(above));
    ["main.rs", "lib.rs", "build.rs"].contains(&file) || is_target || last == "fuzz_targets"
}

fn is_declared(path: &str, files: &[Declared]) -> bool {
    let path = Path::new(path);
    let (Some(file), Some(stem)) = (path.file_name(), path.file_stem()) else { return true };
    // The module `folder/mod.rs` is called as its folder is.
    let (name, home) = match (stem == "mod", path.parent()) {
        (true, Some(folder)) => (folder.file_name().unwrap_or_default(), folder.parent()),
        (_, folder) => (stem, folder),
    };
    let is_parent = |other: &Path| {
        let of_folder = home.is_some_and(|home| other == home.with_extension("rs"));
        other != path && (other.parent() == home || of_folder)
    };
    files.iter().any(|other| {
        let declares = is_parent(Path::new(&other.path)) && other.names.contains(&*name.to_string_lossy());
        declares || other.elsewhere.contains(&*file.to_string_lossy())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn orphans(files: &[(&str, &str)]) -> Vec<String> {
        let names: Vec<String> =
            files.iter().map(|file| file.0.to_owned()).chain(["x/Cargo.toml".to_owned()]).collect();
        let files: Vec<Declared> =
            files.iter().map(|&(path, text)| declared(&Source { path, text })).collect();
        check(&names, &files).iter().map(|found| found.to_string()).collect()
    }

    #[test]
    fn a_file_that_nobody_declares_is_found() {
        let main = ("x/tests/all/main.rs", "mod support;\n// mod init;\n");
        let found = orphans(&[main, ("x/tests/all/support.rs", ""), ("x/tests/all/init.rs", "")]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("x/tests/all/init.rs:1: orphan: "), "{}", found[0]);
        // A module of this name in another folder is another module.
        let far = [("x/src/lib.rs", "mod a;"), ("x/src/a/mod.rs", ""), ("x/src/b/a.rs", "")];
        assert_eq!(orphans(&far).len(), 1);
    }

    #[test]
    fn files_of_modules_and_of_targets_are_no_orphans() {
        let files = [
            ("x/src/lib.rs", "pub(crate) mod a;\n#[path = \"b_tests.rs\"]\nmod tests;\nmod c;"),
            ("x/src/a.rs", "mod deep;"),
            ("x/src/a/deep.rs", ""),
            ("x/src/b_tests.rs", ""),
            ("x/src/c/mod.rs", "    mod d;"),
            ("x/src/c/d.rs", ""),
            ("x/src/bin/tool.rs", ""),
            ("x/tests/one.rs", ""),
            ("x/examples/shown.rs", ""),
        ];
        assert_eq!(orphans(&files), Vec::<String>::new());
    }
}
