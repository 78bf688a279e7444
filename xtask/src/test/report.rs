//! The lines of cargo and of the test harness that belong to the end: tests that failed, and tests that were left out.

use std::collections::{BTreeMap, BTreeSet};

/// The variable that repeats a randomised test.
const SEED: &str = "UNISONO_TEST_SEED";

/// The facts of the lines so far.
#[derive(Default)]
pub(crate) struct Report {
    failures: Vec<Failure>,
    /// Cargo's words for the workspace of the coming lines; none for the product's.
    pub(crate) workspace: String,
    /// Whether the harness now shows the output of failed tests.
    shown: bool,
    /// The tests that began; the names of tests of documentation are their places.
    pub(crate) ran: BTreeSet<String>,
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
        if let Some((test, verdict)) = line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... "))
            && !verdict.starts_with("ignored")
        {
            self.ran.insert(test.to_owned());
        }
        // A harness that runs one test at a time has begun the line.
        let skip = line.strip_prefix("SKIP ").or_else(|| Some(line.split_once(" ... SKIP ")?.1));
        if let Some((reason, test)) = skip.and_then(|skip| skip.strip_suffix(']')?.rsplit_once(" [")) {
            self.skipped.entry(reason.to_owned()).or_default().insert(test.to_owned());
        } else if let Some(name) =
            line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----"))
        {
            self.shown = true;
            self.failures.push(Failure { name: Some(name.to_owned()), ..Failure::default() });
        } else if let Some((_, name)) =
            line.split_once(" s, in the test ").filter(|_| line.starts_with("WATCHDOG: "))
        {
            self.failures.push(Failure { name: Some(name.to_owned()), ..Failure::default() });
        } else if let Some((_, seed)) = line.split_once(&format!("{SEED}=")).filter(|_| self.shown) {
            let digits = seed.split(|end: char| !end.is_ascii_alphanumeric()).next();
            if let Some(failure) = self.failures.last_mut() {
                failure.seed = digits.map(str::to_owned);
            }
        } else if line.starts_with("test result: ") {
            self.shown = false;
        } else if let Some((_, target)) = line.split_once("to rerun pass `") {
            self.fails(target.trim_end_matches('`'));
        }
    }

    /// The failures since the last target belong to this target.
    fn fails(&mut self, target: &str) {
        let target = format!("{target}{}", self.workspace);
        let own = self.failures.iter().position(|failure| failure.target.is_none());
        match own {
            Some(first) => {
                let own = self.failures[first..].iter_mut();
                own.for_each(|failure| failure.target = Some(target.clone()));
            }
            None => self.failures.push(Failure { target: Some(target), ..Failure::default() }),
        }
        self.shown = false;
    }

    /// The tests left out, counted by their reason.
    pub(crate) fn skips(&self) -> Vec<String> {
        let line = |(reason, tests): (&String, &BTreeSet<String>)| format!("{:9}  {reason}", tests.len());
        self.skipped.iter().map(line).collect()
    }

    /// The names of the tests left out.
    pub(crate) fn left_out(&self) -> BTreeSet<String> {
        self.skipped.values().flatten().cloned().collect()
    }

    /// A command for each test that failed; `features` are cargo's words for the tests of a package.
    pub(crate) fn again(&self, features: impl Fn(&str) -> &'static str) -> Vec<String> {
        let line = |failure: &Failure| {
            let target = failure.target.as_deref()?;
            let seed = failure.seed.as_ref().map(|seed| format!("{SEED}={seed} ")).unwrap_or_default();
            let name = failure.name.as_ref().map(|name| format!(" -- --exact '{name}'")).unwrap_or_default();
            Some(format!("{seed}cargo test {target}{}{name}", features(target)))
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
     Running tests/tcp.rs (target/debug/deps/tcp-0)
UNISONO_TEST_SEED=1
test worlds::a ... FAILED
test worlds::b ... FAILED

failures:

---- worlds::a stdout ----
UNISONO_TEST_SEED=77

thread 'worlds::a' (3) panicked at x.rs:1:1:
UNISONO_TEST_SEED=77: wrong

---- worlds::b stdout ----
wrong

failures:
    worlds::a
    worlds::b

test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.12s

error: test failed, to rerun pass `-p unisono-transport-tcp --test tcp`
   Doc-tests unisono
---- crates/unisono/src/lib.rs - init (line 30) stdout ----
error: doctest failed, to rerun pass `-p unisono --doc`
error: test failed, to rerun pass `-p unisono-cli --bin unisono`
WATCHDOG: inline has not ended after 300 s, in the test suite::calls
error: test failed, to rerun pass `-p unisono-tests --test conformance`
";
        let expected = [
            "UNISONO_TEST_SEED=77 cargo test -p unisono-transport-tcp --test tcp -- --exact 'worlds::a'",
            "cargo test -p unisono --doc --features cli -- --exact 'crates/unisono/src/lib.rs - init (line 30)'",
            "cargo test -p unisono-cli --bin unisono",
            "cargo test -p unisono-tests --test conformance -- --exact 'suite::calls'",
            "cargo test -p unisono-transport-tcp --test tcp -- --exact 'worlds::b'",
        ];
        let features = |target: &str| if target.starts_with("-p unisono ") { " --features cli" } else { "" };
        assert_eq!(heard(text).again(features), expected);
        assert!(heard("test result: ok. 1 passed; 0 failed;").again(features).is_empty());
    }

    #[test]
    fn a_test_of_another_workspace_is_run_in_it() {
        let mut report =
            Report { workspace: " --manifest-path x/Cargo.toml".to_owned(), ..Report::default() };
        report.hear("error: test failed, to rerun pass `-p y --lib`");
        assert_eq!(report.again(|_| ""), ["cargo test -p y --lib --manifest-path x/Cargo.toml"]);
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
