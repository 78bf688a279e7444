//! The rule over the packages that a user compiles: the number that `unisono` brings by default.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use super::source::Violation;

const RULE: &str = "packages";

/// The most packages that a program compiles for `unisono` with its default features: 60 when this was written, and a
/// few to spare for shared memory and objects.
const PACKAGES_MAX: usize = 68;

/// Asks cargo.
///
/// # Errors
/// When cargo cannot tell.
pub(crate) fn check(repository: &Path) -> Result<Vec<Violation>, String> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["tree", "-p", "unisono", "-e", "normal,build", "--prefix", "none", "--locked"]);
    let output = cargo.current_dir(repository).output().map_err(|error| format!("cargo tree: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo tree: {}", String::from_utf8_lossy(&output.stderr)));
    }
    Ok(judge(&String::from_utf8_lossy(&output.stdout), PACKAGES_MAX))
}

fn judge(tree: &str, most: usize) -> Vec<Violation> {
    let packages: BTreeSet<&str> = tree.lines().map(|line| line.trim_end_matches(" (*)")).collect();
    if packages.len() <= most {
        return Vec::new();
    }
    let text = format!(
        "a program compiles {} packages for it, at most {most}: cargo tree -p unisono",
        packages.len()
    );
    vec![Violation { path: "crates/unisono/Cargo.toml".to_owned(), line: 1, rule: RULE, text }]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_counted_once() {
        let tree = "unisono v0.1.0 (/a)\nlibc v0.2.1\nhalf v2.7.1\nlibc v0.2.1 (*)\n";
        assert_eq!(judge(tree, 3), []);
        let found = judge(tree, 2);
        let expected = "crates/unisono/Cargo.toml:1: packages: a program compiles 3 packages for it, at most 2: \
                        cargo tree -p unisono";
        assert_eq!(found[0].to_string(), expected);
    }
}
