//! The rule over all Rust files: some file declares each as a module, or cargo finds it as the root of a target. A file
//! that nobody declares is never compiled, and its tests never run.

use std::collections::BTreeSet;

use super::source::Violation;
use crate::tool::regex;

/// The root of a library, a program or a build script.
const ROOT: &str = r"/(?:main|lib|build)\.rs$|/(?:bin|fuzz_targets)/\w+\.rs$";

/// The root of another target, beside the sources.
const TARGET: &str = r"/(?:benches|examples|tests)/\w+\.rs$";

/// The files, by path and text, that no other file declares.
pub(super) fn check(files: &[(String, String)]) -> Vec<Violation> {
    let module = regex(r"(?m)^\s*(?:pub(?:\([a-z]+\))?\s+)?mod\s+(\w+)\s*;");
    // A path may lead anywhere; its last part is enough.
    let elsewhere = regex(r#"path\s*=\s*"(?:[^"]*/)?([^"/]+\.rs)""#);
    let (mut declared, mut names) = (BTreeSet::new(), BTreeSet::new());
    for (path, text) in files {
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        for home in [folder, path.trim_end_matches(".rs")] {
            let place = |found: ::regex::Captures<'_>| format!("{home}/{}", &found[1]);
            let places = module.captures_iter(text).map(place);
            declared.extend(places.flat_map(|place| [format!("{place}.rs"), format!("{place}/mod.rs")]));
        }
        names.extend(elsewhere.captures_iter(text).map(|found| found[1].to_owned()));
    }
    let is_orphan = |path: &&String| {
        let file = path.rsplit('/').next().unwrap_or_default();
        let is_root = regex(ROOT).is_match(path) || !path.contains("/src/") && regex(TARGET).is_match(path);
        !is_root && !declared.contains(*path) && !names.contains(file)
    };
    let text = "no file declares this module, so nobody compiles it";
    let orphans = files.iter().map(|(path, _)| path).filter(is_orphan);
    orphans.map(|path| Violation::new(path, 1, "orphan", text)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_nobody_declares_is_found_and_no_other() {
        let files = [
            ("x/src/lib.rs", "pub(crate) mod a;\n#[path = \"b_tests.rs\"]\nmod tests;\nmod c;\n// mod init;"),
            ("x/src/a.rs", "mod deep;"),
            ("x/src/a/deep.rs", ""),
            ("x/src/b_tests.rs", ""),
            ("x/src/c/mod.rs", "    mod d;"),
            ("x/src/c/d.rs", ""),
            ("x/src/bin/tool.rs", ""),
            ("x/tests/one.rs", ""),
            ("x/examples/shown.rs", ""),
            ("x/src/init.rs", ""),
            // A module of this name in another folder is another module.
            ("x/src/c/a.rs", ""),
        ];
        let found = check(&files.map(|(path, text)| (path.to_owned(), text.to_owned())));
        let found: Vec<&str> = found.iter().map(|orphan| orphan.path.as_str()).collect();
        assert_eq!(found, ["x/src/init.rs", "x/src/c/a.rs"]);
    }
}
