//! The functions of the sources that name rows: by the start of their name, as `b12_uneven_splits`, or by a line of
//! their documentation, `/// Rows: B8, B9`.

use std::collections::BTreeSet;

use crate::tool::{Outcome, read, regex, repository};

/// The functions of the conformance suite, each of which is a test of every backend.
const SUITE: &str = "tests/src/suite/";

/// A function, and the rows that it names.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Function {
    /// Relative to the repository, with `/`.
    pub(super) path: String,
    pub(super) name: String,
    pub(super) rows: BTreeSet<String>,
}

impl Function {
    /// Whether one of these tests is of this function: its name ends with the function's, and in the suite with the
    /// module's before it.
    pub(super) fn is_among(&self, tests: &BTreeSet<String>) -> bool {
        let module = self.path.strip_prefix(SUITE).and_then(|file| file.strip_suffix(".rs"));
        let end = module.map_or_else(|| self.name.clone(), |module| format!("{module}::{}", self.name));
        let mut starts = tests.iter().filter_map(|test| test.strip_suffix(&end));
        starts.any(|start| start.is_empty() || start.ends_with("::"))
    }
}

/// The functions of all Rust files. `rows` are the rows of the table.
pub(super) fn functions(paths: &[String], rows: &BTreeSet<String>) -> Outcome<Vec<Function>> {
    let mut found = Vec::new();
    // The tests of these tools are no tests of a feature.
    for path in paths.iter().filter(|path| path.ends_with(".rs") && !path.starts_with("xtask/")) {
        found.extend(of_file(path, &read(&repository().join(path))?, rows));
    }
    Ok(found)
}

/// A function's documentation and attributes, and its name.
const FUNCTION: &str = concat!(
    r"(?m)((?:^\s*(?:///|#\[).*\n)*)",
    r"^\s*(?:pub(?:\([a-z]+\))? )?(?:async )?(?:unsafe )?fn ([a-z0-9_]+)"
);

fn of_file(path: &str, text: &str, known: &BTreeSet<String>) -> Vec<Function> {
    let function = |found: ::regex::Captures<'_>| {
        let lists = regex(r"/// Rows: .*").find_iter(found.get(1).map_or("", |above| above.as_str()));
        let listed = lists.flat_map(|list| regex(r"\b[A-Z][0-9]{1,2}\b").find_iter(list.as_str()));
        let name = found[2].to_owned();
        let start =
            regex("^(?:[a-z][0-9]{1,2}_)+").find(&name).map_or("", |start| start.as_str()).to_uppercase();
        let named = start.split_terminator('_').filter(|row| known.contains(*row));
        let rows = listed.map(|row| row.as_str()).chain(named).map(str::to_owned).collect();
        Function { path: path.to_owned(), name, rows }
    };
    regex(FUNCTION).captures_iter(text).map(function).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stand_in_names_and_in_documentation() {
        let text = "\
/// A test.
///
/// Rows: B8, H1
#[test]
fn b10_b11_lists() {}

fn f16_to_bits() {}
// Rows: B1
pub(crate) fn plain() {}
";
        let known = ["B10", "B11"].map(str::to_owned).into();
        let found = of_file("tests/src/suite/lists.rs", text, &known);
        let rows = found.iter().map(|one| one.rows.iter().cloned().collect::<Vec<_>>().join(" "));
        let rows: Vec<String> = rows.collect();
        assert_eq!(rows, ["B10 B11 B8 H1", "", ""]);
    }

    #[test]
    fn a_test_of_the_suite_has_the_name_of_its_file() {
        let is_among = |path: &str, test: &str| {
            of_file(path, "fn plain() {}", &BTreeSet::new())[0].is_among(&[test.to_owned()].into())
        };
        let tests = ["tcp::lists::plain", "plain", "tcp::calls::plain", "x::not_plain"];
        let among = |path| tests.map(|test| is_among(path, test));
        assert_eq!(among("tests/src/suite/lists.rs"), [true, false, false, false]);
        assert_eq!(among("crates/x/src/lib.rs"), [true, true, true, false]);
    }
}
