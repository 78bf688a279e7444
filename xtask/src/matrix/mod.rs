//! `cargo xtask matrix` writes docs/matrix.md anew: behind each row of the table of features its tests, and the kinds
//! of calls that the suite made, as the last full run of the tests saw them. With `--check` it compares the page with
//! this run. The names of the rows stand on the page, and never change.
//!
//! | file | contents |
//! | --- | --- |
//! | `marks.rs` | functions that name rows |
//! | `calls.rs` | the kinds of calls, counted |
//! | `held.rs` | tests that hold the rules and promises of pages |

mod calls;
mod held;
mod marks;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use crate::tidy;
use crate::tool::{Outcome, at, fresh, read, repository, target_folder};
use marks::Function;

const PAGE: &str = "docs/matrix.md";

/// The facts of the last full run.
fn evidence(name: &str) -> PathBuf {
    target_folder().join("matrix").join(name)
}

/// The folder in which the suite lists its calls.
pub(crate) fn calls() -> PathBuf {
    evidence("calls")
}

/// Forgets the last run.
pub(crate) fn clear() -> Outcome {
    fresh(&evidence("")).and_then(|()| fresh(&calls()))
}

/// Keeps the names of the tests that have run, and of the tests that were left out for want of something.
pub(crate) fn keep(tests: &BTreeSet<String>) -> Outcome {
    let file = evidence("tests");
    fs::write(&file, tests.iter().map(|name| format!("{name}\n")).collect::<String>()).map_err(at(&file))
}

/// Writes the page.
pub(crate) fn write() -> Outcome {
    let page = read(&repository().join(PAGE))?;
    let rows = Sources::read(&page)?.filled(&page);
    let head = rows.split("\n### ").next().unwrap_or_default();
    let page = head.to_owned() + &calls::tables(&calls::counts(&calls())?);
    fs::write(repository().join(PAGE), page).map_err(at(PAGE.as_ref()))
}

/// Prints the differences between the page, the sources and the last full run.
pub(crate) fn check() -> Outcome {
    let page = read(&repository().join(PAGE))?;
    let sources = Sources::read(&page)?;
    let tests =
        read(&evidence("tests")).map_err(|problem| format!("{problem}; cargo xtask test --full makes it"))?;
    let tests = tests.lines().map(str::to_owned).collect();
    let mut found = sources.violations(&tests);
    found.extend(held::violations(&sources.paths, &sources.functions, &tests)?);
    if sources.filled(&page) != page {
        found.push(format!("{PAGE} has other tests than the sources; cargo xtask matrix writes it"));
    }
    found.extend(calls::fewer(&page, &calls::counts(&calls())?));
    found.iter().for_each(|line| println!("matrix: {line}"));
    if found.is_empty() { Ok(()) } else { Err("failed".to_owned()) }
}

/// The rows of the page, the files of the repository, and the functions in them.
struct Sources {
    rows: BTreeSet<String>,
    paths: Vec<String>,
    functions: Vec<Function>,
}

/// The name of the row that a line of the page is, and its contents.
fn row(line: &str) -> Option<(&str, &str)> {
    let (name, rest) = line.strip_prefix("| ")?.split_once(" | ")?;
    let is_name =
        name.starts_with(|letter: char| letter.is_ascii_uppercase()) && name[1..].parse::<u8>().is_ok();
    is_name.then_some((name, rest.split_once(" | ")?.0))
}

impl Sources {
    fn read(page: &str) -> Outcome<Sources> {
        let rows = page.lines().filter_map(row).map(|(name, _)| name.to_owned()).collect();
        let paths = tidy::text_files(repository())?;
        let functions = marks::functions(&paths, &rows)?;
        Ok(Sources { rows, paths, functions })
    }

    /// Functions that name a row and have not run, or name a row that the page lacks.
    fn violations(&self, tests: &BTreeSet<String>) -> Vec<String> {
        let mut found = Vec::new();
        for function in self.functions.iter().filter(|function| !function.rows.is_empty()) {
            let Function { path, name, rows } = function;
            let said = format!("{path}: `{name}` names {}", Vec::from_iter(rows.iter().cloned()).join(", "));
            if !function.is_among(tests) {
                found.push(format!("{said}, and has not run"));
            }
            if !rows.is_subset(&self.rows) {
                found.push(format!("{said}, of which {PAGE} lacks one"));
            }
        }
        found
    }

    /// The page with the tests of each row.
    fn filled(&self, page: &str) -> String {
        let line = |line| match row(line) {
            Some((name, text)) => format!("| {name} | {text} | {} |\n", self.tests(name)),
            None => format!("{line}\n"),
        };
        page.lines().map(line).collect()
    }

    /// The tests of a row, by their files.
    fn tests(&self, row: &str) -> String {
        let mut files: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for function in self.functions.iter().filter(|function| function.rows.contains(row)) {
            files.entry(&function.path).or_default().push(format!("`{}`", function.name));
        }
        if files.is_empty() {
            return "**not yet**".to_owned();
        }
        let lists = files.iter().map(|(path, names)| format!("{path}: {}", names.join(", ")));
        lists.collect::<Vec<_>>().join("; ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_get_their_tests_and_other_names_are_found() {
        let page = "# Tests\n\n| row | | tests |\n| B1 | x `y` | old |\n| B2 | z |  |\n\n| op | 1 |\n";
        let rows: BTreeSet<String> = page.lines().filter_map(row).map(|(name, _)| name.to_owned()).collect();
        let function = |name: &str, rows: &[&str]| Function {
            path: "a.rs".to_owned(),
            name: name.to_owned(),
            rows: rows.iter().map(|&row| row.to_owned()).collect(),
        };
        let functions = vec![function("f", &["B1"]), function("g", &["B1", "B3"]), function("h", &[])];
        let sources = Sources { rows, paths: Vec::new(), functions };
        let filled = page.replace("old", "a.rs: `f`, `g`").replace("|  |", "| **not yet** |");
        assert_eq!(sources.filled(page), filled);
        let found = sources.violations(&["m::g".to_owned()].into());
        let expected = [
            "a.rs: `f` names B1, and has not run",
            "a.rs: `g` names B1, B3, of which docs/matrix.md lacks one",
        ];
        assert_eq!(found, expected);
    }
}
