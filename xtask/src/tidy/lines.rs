//! Rules that need only the lines of a file.

use std::path::Path;

use super::source::{Source, Violation};

const FILE_LINES_MAX: usize = 500;
const LINE_COLUMNS_MAX: usize = 120;

/// Every rule of this file.
pub(crate) fn check(source: &Source<'_>, repository: &Path) -> Vec<Violation> {
    let mut violations = machine_names(source, repository);
    if source.is_rust() {
        violations.extend(file_length(source));
        violations.extend(header(source));
        violations.extend(ascii(source));
    }
    if source.is_rust() || source.path.starts_with(".ci/") {
        violations.extend(line_length(source));
    }
    if source.path.starts_with("crates/schedule/src/algorithms/") && !source.path.ends_with("/mod.rs") {
        violations.extend(algorithm_source(source));
    }
    violations
}

fn file_length(source: &Source<'_>) -> Option<Violation> {
    let lines = source.text.lines().count();
    let text = format!("{lines} lines, at most {FILE_LINES_MAX}");
    (lines > FILE_LINES_MAX).then(|| source.violation(lines, "file length", text))
}

fn line_length(source: &Source<'_>) -> Vec<Violation> {
    let lines = (1..).zip(source.text.lines().map(|line| line.chars().count()));
    lines
        .filter(|&(_, columns)| columns > LINE_COLUMNS_MAX)
        .map(|(line, columns)| {
            source.violation(line, "line length", format!("{columns} columns, at most {LINE_COLUMNS_MAX}"))
        })
        .collect()
}

fn header(source: &Source<'_>) -> Option<Violation> {
    let says_something = |line: &str| line.strip_prefix("//!").is_some_and(|text| !text.trim().is_empty());
    let missing = !source.text.lines().next().is_some_and(says_something);
    missing.then(|| source.violation(1, "header", "the first line must say what the file is for, after //!"))
}

fn ascii(source: &Source<'_>) -> Vec<Violation> {
    let lines = (1..).zip(source.text.lines());
    lines
        .filter_map(|(line, text)| {
            let strange = text.chars().find(|character| !character.is_ascii())?;
            Some(source.violation(
                line,
                "ascii",
                format!("{strange:?} is not ASCII; write an escape or a word"),
            ))
        })
        .collect()
}

/// Paths and hosts of the machine at hand, which mean nothing on another one.
fn machine_names(source: &Source<'_>, repository: &Path) -> Vec<Violation> {
    let mut names = vec![["/ro", "ot/"].concat(), ["registry/", "src/"].concat()];
    if repository.components().count() > 2 {
        names.push(repository.display().to_string());
    }
    let lines = (1..).zip(source.text.lines());
    lines
        .filter_map(|(line, text)| {
            if let Some(name) = names.iter().find(|name| text.contains(name.as_str())) {
                return Some(source.violation(
                    line,
                    "machine path",
                    format!("{name} is a path of one machine"),
                ));
            }
            let problem = "packages come from crates.io by its own name, whatever mirror a machine uses";
            names_registry(source.path, text).then(|| source.violation(line, "registry", problem))
        })
        .collect()
}

fn names_registry(path: &str, line: &str) -> bool {
    let line = line.trim();
    if path.ends_with("Cargo.lock") {
        let from = line.strip_prefix("source = ");
        return from.is_some_and(|from| from != "\"registry+https://github.com/rust-lang/crates.io-index\"");
    }
    let keys = ["[registries", "[source.", "registry =", "replace-with", "index =", "registry-index ="];
    path.ends_with(".toml") && keys.iter().any(|key| line.starts_with(key))
}

fn algorithm_source(source: &Source<'_>) -> Option<Violation> {
    let cites = source.text.split(".source(").skip(1).any(|after| {
        let citation = after.trim_start().strip_prefix('"').and_then(|text| text.lines().next());
        citation.is_some_and(|citation| citation.chars().filter(|one| one.is_alphabetic()).count() > 3)
    });
    (!cites).then(|| {
        source.violation(1, "algorithm source", "no `.source(..)` says where the algorithm comes from")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source<'a>(path: &'a str, text: &'a str) -> Source<'a> {
        Source { path, text }
    }

    #[test]
    fn a_long_file_is_found() {
        let long = "//! x\n".repeat(FILE_LINES_MAX + 1);
        assert_eq!(file_length(&source("a.rs", &long)).map(|found| found.line), Some(501));
        assert_eq!(file_length(&source("a.rs", &long[6..])), None);
    }

    #[test]
    fn a_long_line_is_found() {
        let text = format!("short\n{}\n", "x".repeat(LINE_COLUMNS_MAX + 1));
        let found = line_length(&source("a.rs", &text));
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].line, found[0].rule), (2, "line length"));
        assert_eq!(line_length(&source("a.rs", &text[..text.len() - 2])), []);
    }

    #[test]
    fn a_missing_or_empty_header_is_found() {
        assert!(header(&source("a.rs", "use std::io;\n")).is_some());
        assert!(header(&source("a.rs", "//!\n//! late\n")).is_some());
        assert!(header(&source("a.rs", "")).is_some());
        assert!(header(&source("a.rs", "//! What it is for.\n")).is_none());
    }

    #[test]
    fn a_letter_beyond_ascii_is_found() {
        let found = ascii(&source("a.rs", "//! x\n// gr\u{fc}n\n"));
        assert_eq!(found.iter().map(|one| one.line).collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn a_path_of_this_machine_is_found() {
        let home = ["see /ro", "ot/notes"].concat();
        let here = format!("see {}/notes", crate::repository().display());
        for text in [home, here] {
            assert_eq!(machine_names(&source("a.md", &text), crate::repository()).len(), 1, "{text}");
        }
        assert_eq!(machine_names(&source("a.md", "see docs/notes"), crate::repository()), []);
    }

    #[test]
    fn a_registry_by_another_name_is_found() {
        assert!(names_registry("Cargo.lock", "source = \"registry+https://mirror.example/index\""));
        assert!(!names_registry(
            "Cargo.lock",
            "source = \"registry+https://github.com/rust-lang/crates.io-index\""
        ));
        assert!(names_registry(".cargo/config.toml", "replace-with = \"mirror\""));
        assert!(!names_registry("Cargo.toml", "name = \"registry\""));
    }

    #[test]
    fn an_algorithm_without_its_source_is_found() {
        let path = "crates/schedule/src/algorithms/x.rs";
        assert!(algorithm_source(&source(path, "    .source(\"\",\n")).is_some());
        assert!(algorithm_source(&source(path, "    .source(\"Patarasuk, Yuan 2009\",\n")).is_none());
    }
}
