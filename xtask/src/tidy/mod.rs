//! The house rules, each a small function over a file, a crate or the workspace; a violation names file, line and rule.

mod circles;
mod english;
mod lines;
pub(crate) mod names;
mod orphans;
mod source;
mod syntax;
mod types;
mod workspace;

use std::path::{Path, PathBuf};

use crate::tool::{Outcome, at, repository};
use source::Violation;
pub(crate) use workspace::unpublished;

/// Checks the repository and prints the violations.
pub(crate) fn run() -> Outcome {
    let (files, violations) = check()?;
    violations.iter().for_each(|violation| println!("{violation}"));
    println!("tidy: {files} files, {} violations", violations.len());
    if violations.is_empty() { Ok(()) } else { Err("the house rules are broken".to_owned()) }
}

/// The number of files, and every violation.
fn check() -> Outcome<(usize, Vec<Violation>)> {
    let repository = repository();
    let paths = text_files(repository)?;
    let mut violations = names::check(repository)?;
    let (mut rust, mut syntax, mut riddles) = (Vec::new(), Vec::new(), Vec::new());
    for path in &paths {
        let bytes = std::fs::read(repository.join(path)).map_err(at(path.as_ref()))?;
        // A file that is not text (data sets, pictures) has no lines to judge.
        let Ok(text) = String::from_utf8(bytes) else { continue };
        violations.extend(lines::check(path, &text, repository));
        if path.ends_with(".rs") {
            riddles.extend(english::riddles(path, &text));
            match syntax::read(path, &text) {
                Ok(read) => syntax.push(read),
                Err(violation) => violations.push(violation),
            }
            rust.push((path.clone(), text));
        }
    }
    let packages: Vec<&str> = paths.iter().filter_map(|path| path.strip_suffix("/Cargo.toml")).collect();
    violations.extend(workspace::check(repository, &rust)?);
    violations.extend(orphans::check(&rust));
    violations.extend(types::check(&packages, &syntax));
    violations.extend(circles::check(&packages, &syntax));
    violations.extend(english::check(&packages, &riddles));
    Ok((paths.len(), violations))
}

/// Every file that git would see, relative to the repository; also where there is no git.
pub(crate) fn text_files(repository: &Path) -> Outcome<Vec<String>> {
    let mut walk = ignore::WalkBuilder::new(repository);
    walk.hidden(false).require_git(false).sort_by_file_name(Ord::cmp);
    walk.filter_entry(|entry| entry.file_name() != ".git");
    let files = walk.build().filter(|entry| {
        entry.as_ref().map_or(true, |entry| entry.file_type().is_some_and(|kind| kind.is_file()))
    });
    let relative = |path: PathBuf| path.strip_prefix(repository).unwrap_or(&path).display().to_string();
    files
        .map(|entry| entry.map(|entry| relative(entry.into_path())).map_err(|error| error.to_string()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_repository_keeps_the_house_rules() {
        let (files, violations) = check().unwrap();
        let list: Vec<String> = violations.iter().map(Violation::to_string).collect();
        assert!(list.is_empty(), "\n{}\n", list.join("\n"));
        let paths = text_files(repository()).unwrap();
        assert_eq!(paths.len(), files);
        assert!(paths.contains(&"xtask/src/tidy/mod.rs".to_owned()));
        assert!(!paths.iter().any(|path| path.starts_with("target/") || path.starts_with(".git/")));
    }
}
