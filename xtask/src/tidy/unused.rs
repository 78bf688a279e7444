//! The rule over a package's dependencies: its code names each of them. A dependency that nothing names costs every
//! user its compilation.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use regex::Regex;

use super::source::{Source, Violation};
use super::workspace::Package;

const RULE: &str = "unused";

/// Dependencies that only the code of a macro names.
const NAMED_BY_MACROS: &[(&str, &str)] = &[("unisono-vendor-tests", "allocation-counter")];

/// The words of every Rust file, and the files elsewhere that it takes in.
#[derive(Default)]
pub(crate) struct Words(BTreeMap<PathBuf, (BTreeSet<String>, Vec<PathBuf>)>);

impl Words {
    /// Reads a Rust file.
    pub(crate) fn add(&mut self, source: &Source<'_>) {
        let is_of_name = |letter: char| letter.is_alphanumeric() || letter == '_';
        let words = source.text.split(|letter| !is_of_name(letter)).map(str::to_owned).collect();
        #[expect(clippy::expect_used, reason = "the pattern is valid")]
        let included = Regex::new(r#"path\s*=\s*"([^"]+\.rs)""#).expect("a valid pattern");
        let folder = Path::new(source.path).parent().unwrap_or(Path::new(""));
        let included = included.captures_iter(source.text).map(|found| straight(&folder.join(&found[1])));
        self.0.insert(source.path.into(), (words, included.collect()));
    }

    /// The dependencies of these packages that no file of theirs names.
    pub(crate) fn check(&self, packages: &[Package]) -> Vec<Violation> {
        packages.iter().flat_map(|package| self.unused(package, packages)).collect()
    }

    fn unused(&self, package: &Package, packages: &[Package]) -> Vec<Violation> {
        let owner = |path: &Path| {
            let folders = packages.iter().map(Package::folder).filter(|folder| path.starts_with(folder));
            folders.max_by_key(|folder| folder.as_os_str().len())
        };
        let own = self.0.iter().filter(|(path, _)| owner(path) == Some(package.folder()));
        let files: BTreeSet<&PathBuf> =
            own.flat_map(|(path, (_, included))| included.iter().chain([path])).collect();
        let is_named = |dependency: &str| {
            let word = dependency.replace('-', "_");
            files.iter().any(|file| self.0.get(*file).is_some_and(|(words, _)| words.contains(&word)))
        };
        let is_unused = |dependency: &&String| {
            !is_named(dependency) && !NAMED_BY_MACROS.contains(&(package.name.as_str(), dependency.as_str()))
        };
        let unused = package.dependencies.iter().filter(is_unused);
        unused
            .map(|name| {
                package.violation(package.line_of(name), RULE, format!("no code names {name}: remove it"))
            })
            .collect()
    }
}

/// The path without `..`.
fn straight(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut straight, part| {
        match part {
            Component::ParentDir => drop(straight.pop()),
            part => straight.push(part),
        }
        straight
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dependency_that_no_file_names_is_found() {
        let manifest = "[dependencies]\nsome-thing = \"1\"\nother = \"1\"\nthird = \"1\"\n";
        let dependencies = ["some-thing", "other", "third"].map(str::to_owned).into();
        let (name, path) = ("x".to_owned(), "crates/x/Cargo.toml".to_owned());
        let (manifest, is_published, uses) = (manifest.to_owned(), true, Vec::new());
        let packages = [Package { name, path, manifest, is_published, uses, dependencies }];
        let mut words = Words::default();
        words.add(&Source {
            path: "crates/x/src/lib.rs",
            text: "#[path = \"../../y/a.rs\"]\nmod a;\nuse some_thing::T;",
        });
        words.add(&Source { path: "crates/y/a.rs", text: "third::f()" });
        words.add(&Source { path: "crates/y/b.rs", text: "another, other" });
        let found = words.check(&packages);
        assert_eq!(found.iter().map(|one| (one.line, one.rule)).collect::<Vec<_>>(), [(3, "unused")]);
    }
}
