//! The common ground of the rules: a violation, the package of a file, a number that only falls.

use std::cmp::Ordering;
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

impl Violation {
    pub(super) fn new(path: &str, line: usize, rule: &'static str, text: impl Into<String>) -> Violation {
        Violation { path: path.to_owned(), line, rule, text: text.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}: {}: {}", self.path, self.line, self.rule, self.text)
    }
}

/// The innermost package around a file.
pub(super) fn package_of<'a>(packages: &[&'a str], path: &str) -> Option<&'a str> {
    let is_around = |package: &&str| path.strip_prefix(package).is_some_and(|rest| rest.starts_with('/'));
    packages.iter().copied().filter(is_around).max_by_key(|package| package.len())
}

/// Compares a number of each package, found with its places, with the package's row; a package without a row has
/// `least`. A row is exact: every change for the better lowers it.
pub(super) fn only_falls(
    rule: &'static str,
    packages: &[&str],
    least: usize,
    rows: &[(&str, usize)],
    found: impl Fn(&str) -> (usize, String),
) -> Vec<Violation> {
    let judge = |package: &&str| {
        let most = rows.iter().find(|(name, _)| name == package).map_or(least, |(_, most)| *most);
        let (count, places) = found(package);
        let text = match count.cmp(&most) {
            Ordering::Less => format!("lower its row in xtask/src/tidy to {count}"),
            Ordering::Equal => return None,
            Ordering::Greater => format!("{count}, at most {most}: {places}"),
        };
        Some(Violation::new(&format!("{package}/Cargo.toml"), 1, rule, text))
    };
    packages.iter().filter_map(judge).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_exact() {
        let counts = |package: &str| match package {
            "a" | "c" => (2, "here".to_owned()),
            _ => (1, String::new()),
        };
        let found = only_falls("rule", &["a", "b", "c", "d"], 1, &[("a", 2), ("b", 2)], counts);
        let found: Vec<String> = found.iter().map(Violation::to_string).collect();
        let expected = [
            "b/Cargo.toml:1: rule: lower its row in xtask/src/tidy to 1",
            "c/Cargo.toml:1: rule: 2, at most 1: here",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_file_belongs_to_the_innermost_package() {
        let package = |path| package_of(&["x", "x/y"], path);
        assert_eq!(["x/y/a.rs", "x/a.rs", "xy/a.rs"].map(package), [Some("x/y"), Some("x"), None]);
    }
}
