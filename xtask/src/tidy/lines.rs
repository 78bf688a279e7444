//! Rules that need only the lines of a file.

use std::path::Path;

use super::source::Violation;
use crate::tool::regex;

const FILE_LINES_MAX: usize = 500;
const LINE_COLUMNS_MAX: usize = 120;

/// Paths of the machine at hand mean nothing on another one.
const MACHINE_PATHS: [&str; 2] = [concat!("/ro", "ot/"), concat!("registry/", "src/")];

/// Keys of a manifest or of cargo's settings.
const REGISTRY: &str = r"^(?:\[registries|\[source\.|registry =|replace-with|index =|registry-index =)";

const CRATES_IO: &str = "\"registry+https://github.com/rust-lang/crates.io-index\"";

/// Every rule of this file.
pub(super) fn check(path: &str, text: &str, repository: &Path) -> Vec<Violation> {
    let (is_rust, mut found) = (path.ends_with(".rs"), Vec::new());
    let mut say = |line, rule, text: &str| found.push(Violation::new(path, line, rule, text));
    let here = repository.display().to_string();
    let is_here_long = repository.components().count() > 2;
    for (line, text) in (1..).zip(text.lines()) {
        let columns = text.chars().count();
        if columns > LINE_COLUMNS_MAX && (is_rust || path.starts_with(".ci/")) {
            say(line, "line length", &format!("{columns} columns, at most {LINE_COLUMNS_MAX}"));
        }
        if is_rust && !text.is_ascii() {
            say(line, "ascii", "write an escape or a word");
        }
        if MACHINE_PATHS.iter().any(|path| text.contains(path)) || is_here_long && text.contains(&here) {
            say(line, "machine path", "a path of one machine");
        }
        let is_mirror =
            path.ends_with("Cargo.lock") && text.starts_with("source = ") && !text.contains(CRATES_IO);
        if is_mirror || path.ends_with(".toml") && regex(REGISTRY).is_match(text.trim()) {
            say(line, "registry", "packages come from crates.io by its own name, whatever its mirror");
        }
        for link in regex(r"\]\(([^)#]+)[^)]*\)").captures_iter(text).filter(|_| path.ends_with(".md")) {
            let folder = repository.join(path);
            if !link[1].contains("://") && !folder.with_file_name(&link[1]).exists() {
                say(line, "link", &format!("{} is not there", &link[1]));
            }
        }
    }
    let lines = text.lines().count();
    if is_rust && lines > FILE_LINES_MAX {
        say(lines, "file length", &format!("{lines} lines, at most {FILE_LINES_MAX}"));
    }
    if is_rust && !regex(r"\A//!.*\S").is_match(text) {
        say(1, "header", "the first line must say the purpose of the file, after //!");
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::repository;

    #[test]
    fn each_rule_is_found_at_its_line() {
        let (wide, home) = ("x".repeat(LINE_COLUMNS_MAX), format!("see {}note", MACHINE_PATHS[0]));
        let here = format!("see {}/notes", repository().display());
        let long = "//! x\n".repeat(FILE_LINES_MAX);
        let lock = "fuzz/Cargo.lock";
        let links = "[a](README.md) ![b](docs/none.svg)\n[c](https://a.b/x) [d](#here) [e](docs/errors.md#x)";
        for (path, text, expected) in [
            ("a.rs", &*long, ""),
            ("a.rs", &format!("{long}\n"), "501 file length"),
            ("a.rs", &format!("//! x\n{wide}"), ""),
            ("a.rs", &format!("//! x\n{wide}x"), "2 line length"),
            ("a.rs", "use std::io;\n", "1 header"),
            ("a.rs", "//! \n//! late\n", "1 header"),
            ("a.rs", "", "1 header"),
            ("a.rs", "//! x\n// gr\u{fc}n\n", "2 ascii"),
            ("a.md", &home, "1 machine path"),
            ("a.md", &here, "1 machine path"),
            ("a.md", "gr\u{fc}n, see docs/notes", ""),
            (lock, "source = \"registry+https://mirror.example/index\"", "1 registry"),
            (lock, "source = \"registry+https://github.com/rust-lang/crates.io-index\"", ""),
            (".cargo/config.toml", "replace-with = \"mirror\"", "1 registry"),
            ("Cargo.toml", "name = \"registry\"", ""),
            ("CHANGELOG.md", links, "1 link"),
            // Relative to the page.
            ("docs/errors.md", links, "1 link, 1 link, 2 link"),
            ("a.txt", links, ""),
        ] {
            let found = check(path, text, repository());
            let found: Vec<String> = found.iter().map(|one| format!("{} {}", one.line, one.rule)).collect();
            assert_eq!(found.join(", "), expected, "{path}: {text}");
        }
    }
}
