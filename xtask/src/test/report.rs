//! The lines of cargo and of the test harness that belong to the end: tests that failed, and tests that were left out.

use std::collections::{BTreeMap, BTreeSet};

use crate::tool::regex;

/// The facts of the lines so far.
#[derive(Default)]
pub(crate) struct Report {
    failures: Vec<Failure>,
    /// Cargo's words for the workspace and the features of the coming lines.
    pub(crate) options: String,
    /// Whether the harness now shows the output of failed tests.
    shown: bool,
    /// The tests that began; the names of tests of documentation are their places.
    ran: BTreeSet<String>,
    /// The tests left out, by the reason.
    skipped: BTreeMap<String, BTreeSet<String>>,
}

/// A test that failed; no name when its whole program has ended, or was not built.
#[derive(Debug, Default)]
struct Failure {
    name: Option<String>,
    seed: Option<String>,
    /// As cargo says it, with the words for its workspace: `-p unisono --doc`.
    target: Option<String>,
}

impl Report {
    /// Takes a line of cargo's or of the harness's.
    pub(crate) fn hear(&mut self, line: &str) {
        let find = |pattern| regex(pattern).captures(line);
        if let Some(found) = find(r"^test (.*?) \.\.\. (.*)").filter(|found| !found[2].starts_with("ignored"))
        {
            self.ran.insert(found[1].to_owned());
        }
        // A harness that runs one test at a time has begun the line.
        if let Some(found) = find(r"^(?:.* \.\.\. )?SKIP (.*) \[([^\[]*)\]$") {
            self.skipped.entry(found[1].to_owned()).or_default().insert(found[2].to_owned());
        } else if let Some(found) = find("^---- (.*) stdout ----$|^WATCHDOG: .* s, in the test (.*)$") {
            self.shown |= found.get(1).is_some();
            let name = found.get(1).or_else(|| found.get(2)).map(|name| name.as_str().to_owned());
            self.failures.push(Failure { name, ..Failure::default() });
        } else if let Some(found) = find("UNISONO_TEST_SEED=([[:alnum:]]*)").filter(|_| self.shown) {
            if let Some(failure) = self.failures.last_mut() {
                failure.seed = Some(found[1].to_owned());
            }
        } else if line.starts_with("test result: ") {
            self.shown = false;
        } else if let Some(found) = find("to rerun pass `([^`]*)") {
            self.fails(&found[1]);
        }
    }

    /// The failures since the last target belong to this target.
    fn fails(&mut self, target: &str) {
        // The default form tests the library with these features, which come by the program.
        let is_library = self.options.is_empty() && target.starts_with("-p unisono ");
        let options = if is_library { " --features ccl,cli,compression,hccl,nccl" } else { &self.options };
        let target = format!("{target}{options}");
        if self.failures.iter().all(|failure| failure.target.is_some()) {
            self.failures.push(Failure::default());
        }
        for failure in self.failures.iter_mut().filter(|failure| failure.target.is_none()) {
            failure.target = Some(target.clone());
        }
        self.shown = false;
    }

    /// The tests left out, counted by their reason.
    pub(crate) fn skips(&self) -> Vec<String> {
        let line = |(reason, tests): (&String, &BTreeSet<String>)| format!("{:9}  {reason}", tests.len());
        self.skipped.iter().map(line).collect()
    }

    /// The names of the tests that have run or were left out.
    pub(crate) fn tests(&self) -> BTreeSet<String> {
        self.skipped.values().flatten().chain(&self.ran).cloned().collect()
    }

    /// A command for each test that failed.
    pub(crate) fn again(&self) -> Vec<String> {
        let line = |failure: &Failure| {
            let target = failure.target.as_deref()?;
            let seed =
                failure.seed.as_ref().map(|seed| format!("UNISONO_TEST_SEED={seed} ")).unwrap_or_default();
            let name = failure.name.as_ref().map(|name| format!(" -- --exact '{name}'")).unwrap_or_default();
            Some(format!("{seed}cargo test {target}{name}"))
        };
        let lines: BTreeSet<String> = self.failures.iter().filter_map(line).collect();
        lines.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(text: &str) -> Report {
        let mut report = Report::default();
        text.lines().for_each(|line| report.hear(line));
        report
    }

    #[test]
    fn each_failed_test_has_a_command() {
        let text = "\
UNISONO_TEST_SEED=1
test worlds::a ... FAILED
---- worlds::a stdout ----
UNISONO_TEST_SEED=77
UNISONO_TEST_SEED=77: wrong
---- worlds::b stdout ----
test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.12s
error: test failed, to rerun pass `-p unisono-transport-tcp --test tcp`
---- crates/unisono/src/lib.rs - init (line 30) stdout ----
error: doctest failed, to rerun pass `-p unisono --doc`
error: test failed, to rerun pass `-p unisono-cli --bin unisono`
WATCHDOG: inline has not ended after 300 s, in the test suite::calls
error: test failed, to rerun pass `-p unisono-tests --test conformance`
";
        let expected = [
            "UNISONO_TEST_SEED=77 cargo test -p unisono-transport-tcp --test tcp -- --exact 'worlds::a'",
            "cargo test -p unisono --doc --features ccl,cli,compression,hccl,nccl -- \
             --exact 'crates/unisono/src/lib.rs - init (line 30)'",
            "cargo test -p unisono-cli --bin unisono",
            "cargo test -p unisono-tests --test conformance -- --exact 'suite::calls'",
            "cargo test -p unisono-transport-tcp --test tcp -- --exact 'worlds::b'",
        ];
        assert_eq!(heard(text).again(), expected);
        assert!(heard("test result: ok. 1 passed; 0 failed;").again().is_empty());
        let mut report = Report { options: " --manifest-path x/Cargo.toml".to_owned(), ..Report::default() };
        report.hear("error: test failed, to rerun pass `-p y --lib`");
        assert_eq!(report.again(), ["cargo test -p y --lib --manifest-path x/Cargo.toml"]);
    }

    #[test]
    fn tests_left_out_are_counted_by_their_reason() {
        let text = "\
SKIP ccl: no folder [ccl::a]
test ccl::b ... SKIP ccl: no folder [ccl::b]
SKIP ccl: no folder [ccl::b]
SKIP wgpu: none [of both] [main]
SKIP is a word
";
        assert_eq!(heard(text).skips(), ["        2  ccl: no folder", "        1  wgpu: none [of both]"]);
    }
}
