//! The input and the output of a rule: a text file, a violation.

use std::fmt;

/// One place that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Violation {
    /// Relative to the repository.
    pub(super) path: String,
    pub(super) line: usize,
    pub(super) rule: &'static str,
    pub(super) text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}: {}: {}", self.path, self.line, self.rule, self.text)
    }
}

/// A text file of the repository.
pub(super) struct Source<'a> {
    /// Relative to the repository, with `/`.
    pub(super) path: &'a str,
    pub(super) text: &'a str,
}

impl Source<'_> {
    pub(super) fn violation(&self, line: usize, rule: &'static str, text: impl Into<String>) -> Violation {
        Violation { path: self.path.to_owned(), line, rule, text: text.into() }
    }

    pub(super) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }
}
