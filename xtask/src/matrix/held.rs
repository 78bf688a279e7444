//! The tests that hold the rules of ARCHITECTURE.md and the promises of docs/reliability.md. Each named test must have
//! run, and a test of each named file.

use std::collections::BTreeSet;

use super::marks::Function;
use crate::tool::{Outcome, read, regex, repository};

/// The pages that name tests, the expressions that find the text with the names in group 1, and whether a file there
/// stands for the tests in it.
const PAGES: [(&str, &str, bool); 2] = [
    ("ARCHITECTURE.md", r"(?ms)\*Held by:\*(.*?)^\S", false),
    ("docs/reliability.md", r"(?m)^\| \*\*.*?\| ([^|]*) \| [^|]* \| [^|]* \|$", true),
];

/// The names on both pages that no test of this run has.
pub(super) fn violations(
    paths: &[String],
    functions: &[Function],
    tests: &BTreeSet<String>,
) -> Outcome<Vec<String>> {
    let has_run = |function: &Function| function.is_among(tests);
    let problem = |name: &str, holds_tests: bool| {
        if !name.contains(['/', '.']) {
            let mut named = functions.iter().filter(|function| function.name == name);
            return (!named.any(has_run)).then_some("it has not run");
        }
        let is_it = |path: &str| {
            let path = format!("/{path}");
            path.ends_with(&format!("/{name}")) || path.contains(&format!("/{name}/"))
        };
        if !paths.iter().any(|path| is_it(path)) {
            return Some("no such file");
        }
        let mut within = functions.iter().filter(|function| is_it(&function.path));
        (holds_tests && !within.any(has_run)).then_some("no test of it has run")
    };
    let mut found = Vec::new();
    for (path, pattern, holds_tests) in PAGES {
        let names = names(&read(&repository().join(path))?, pattern);
        let problems = names.iter().filter_map(|name| Some((name, problem(name, holds_tests)?)));
        found.extend(problems.map(|(name, problem)| format!("{path}: `{name}`: {problem}")));
    }
    Ok(found)
}

/// The names of tests and files in a text: in backticks, but for names of a tool's, as in "clippy's `expect_used`".
fn names(text: &str, pattern: &'static str) -> Vec<String> {
    let (of_tests, name) = (regex(pattern), regex(r"(\S*)\s\(?`(/?[a-z0-9_./-]+)`"));
    // The last paragraph ends with the text.
    let text = format!("{text}\n.");
    let parts: Vec<String> = of_tests.captures_iter(&text).map(|found| format!(" {}", &found[1])).collect();
    let words = parts.iter().flat_map(|part| name.captures_iter(part));
    let of_tests = words
        .filter(|found| !found[1].ends_with("'s"))
        .map(|found| found[2].trim_end_matches('/').to_owned());
    of_tests.filter(|name| name.contains(['_', '/', '.'])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_in_paragraphs_and_in_columns() {
        let rules = "\
1.  **A rule** (`not_here`).
    *Held by:* `a_test` (`suite/x.rs`), clippy's `a_lint`,
    and `another_one`.
2.  **Another.**
    *Held by:* review.
";
        assert_eq!(names(rules, PAGES[0].1), ["a_test", "suite/x.rs", "another_one"]);
        let promises =
            "| **Promise** `no_test` | `failures.rs`, `job/x.rs` | 3 | - |\n| other | `y.rs` | | |\n";
        assert_eq!(names(promises, PAGES[1].1), ["failures.rs", "job/x.rs"]);
    }
}
