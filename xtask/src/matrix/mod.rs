//! `cargo xtask matrix` writes docs/matrix.md: the rows of the table of features with their tests, and the kinds of
//! calls that the suite made, as the last full run of the tests saw them. With `--check` it compares the page with this
//! run.
//!
//! | file | contents |
//! | --- | --- |
//! | `rows.rs` | the table of features |
//! | `marks.rs` | functions that name rows |
//! | `calls.rs` | the kinds of calls, counted |
//! | `held.rs` | tests that hold the rules and promises of pages |

mod calls;
mod held;
mod marks;
mod rows;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::tidy;
use calls::Kind;
use marks::Function;

const PAGE: &str = "docs/matrix.md";

const HEAD: &str = "\
# Tests of each feature

`cargo xtask matrix` writes this page from the sources and from a run of all tests (`cargo xtask test --full`), which
fails when a test on it has not run. A test names its rows at the start of its name, or in a line `Rows:` of its
documentation. A function of `tests/src/suite` is a test of every backend.
";

const CALLS: &str = "
## Calls of the conformance suite

Each number counts what the suite has called with success at least once, and has compared with a reference. `solo` is
the world of one; `faulty` and `late` are in-process worlds over links that misbehave; `mixed` is two hosts, with
checksums; the doubles and `offloaded` are vendors' libraries played by tests.
";

/// The facts of a run.
pub(crate) struct Evidence(PathBuf);

impl Evidence {
    /// Of the last full run, in the folder in which the workspace is compiled.
    pub(crate) fn last(target: &Path) -> Evidence {
        Evidence(target.join("matrix"))
    }

    /// Forgets the run.
    pub(crate) fn clear(&self) -> Result<(), String> {
        let made = fs::remove_dir_all(&self.0).or_else(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Ok(()),
            _ => Err(error),
        });
        made.and_then(|()| fs::create_dir_all(self.calls())).map_err(|error| self.said(&error))
    }

    /// The folder in which the suite lists its calls.
    pub(crate) fn calls(&self) -> PathBuf {
        self.0.join("calls")
    }

    /// Keeps the names of the tests that have run, and of the tests that were left out for want of something.
    pub(crate) fn keep(&self, ran: &BTreeSet<String>, skipped: &BTreeSet<String>) -> Result<(), String> {
        let write = |name: &str, names: &BTreeSet<String>| {
            let lines: String = names.iter().map(|name| format!("{name}\n")).collect();
            fs::write(self.0.join(name), lines)
        };
        write("ran", ran).and_then(|()| write("skipped", skipped)).map_err(|error| self.said(&error))
    }

    fn names(&self, file: &str) -> Result<BTreeSet<String>, String> {
        let text = fs::read_to_string(self.0.join(file));
        let text =
            text.map_err(|error| format!("{}; cargo xtask test --full makes it", self.said(&error)))?;
        Ok(text.lines().map(str::to_owned).collect())
    }

    fn said(&self, error: &std::io::Error) -> String {
        format!("{}: {error}", self.0.display())
    }
}

/// Writes the page, or prints how it differs from the last full run.
pub(crate) fn run(repository: &Path, evidence: &Evidence, is_check: bool) -> bool {
    match if is_check { check(repository, evidence) } else { write(repository, evidence) } {
        Ok(lines) => {
            lines.iter().for_each(|line| println!("matrix: {line}"));
            lines.is_empty()
        }
        Err(problem) => {
            println!("matrix: {problem}");
            false
        }
    }
}

fn write(repository: &Path, evidence: &Evidence) -> Result<Vec<String>, String> {
    let sources = Sources::read(repository)?;
    let kinds = calls::read(&evidence.calls())?;
    fs::write(repository.join(PAGE), sources.page(&kinds)).map_err(|error| format!("{PAGE}: {error}"))?;
    Ok(Vec::new())
}

/// The differences between the page, the sources and the last full run.
fn check(repository: &Path, evidence: &Evidence) -> Result<Vec<String>, String> {
    let sources = Sources::read(repository)?;
    let (ran, skipped) = (evidence.names("ran")?, evidence.names("skipped")?);
    let kinds = calls::read(&evidence.calls())?;
    let page = fs::read_to_string(repository.join(PAGE)).map_err(|error| format!("{PAGE}: {error}"))?;
    let tests = &ran | &skipped;
    let mut found = Vec::new();
    let marked = sources.functions.iter().filter(|function| !function.rows.is_empty());
    found.extend(marked.filter(|function| function.among(&tests).next().is_none()).map(|function| {
        let rows: Vec<&str> = function.rows.iter().map(String::as_str).collect();
        let Function { path, line, name, .. } = function;
        format!("{path}:{line}: `{name}` names {}, and has not run", rows.join(", "))
    }));
    found.extend(held::violations(repository, &sources.paths, &sources.functions, &tests)?);
    if !page.starts_with(&sources.rows()) {
        found.push(format!("{PAGE} has other rows than the sources; cargo xtask matrix writes it"));
    }
    found.extend(calls::fewer(&page, &calls::tables(&kinds)));
    Ok(found)
}

/// The files of the repository, and the functions in them.
struct Sources {
    paths: Vec<String>,
    functions: Vec<Function>,
}

impl Sources {
    fn read(repository: &Path) -> Result<Sources, String> {
        let paths = tidy::text_files(repository)?;
        let paths: Vec<String> = paths.iter().map(|path| path.to_string_lossy().into_owned()).collect();
        let functions = marks::functions(repository, &paths)?;
        Ok(Sources { paths, functions })
    }

    fn page(&self, kinds: &BTreeSet<Kind>) -> String {
        self.rows() + CALLS + &calls::tables(kinds)
    }

    /// The part of the page that the sources decide.
    fn rows(&self) -> String {
        let mut page = HEAD.to_owned();
        for chapter in rows::CHAPTERS {
            page += &format!(
                "\n## {}. {}\n\n| row | | tests |\n| --- | --- | --- |\n",
                chapter.letter, chapter.title
            );
            for (row, text) in rows::rows().filter(|(row, _)| row.starts_with(chapter.letter)) {
                page += &format!("| {row} | {text} | {} |\n", self.tests(&row));
            }
        }
        page
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
