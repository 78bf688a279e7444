//! The house rules, each a small function over a file, a crate or the workspace; a violation names file, line and rule.

mod circles;
mod english;
mod lines;
mod links;
mod names;
mod orphans;
mod outline;
mod packages;
mod source;
mod tokens;
mod types;
mod unused;
mod workspace;

use std::path::{Path, PathBuf};

use source::{Source, Violation};
pub(crate) use workspace::unpublished;

/// Checks the repository and prints the violations.
pub(crate) fn run(repository: &Path) -> bool {
    match check(repository) {
        Ok((files, violations)) => {
            violations.iter().for_each(|violation| println!("{violation}"));
            println!("tidy: {files} files, {} violations", violations.len());
            violations.is_empty()
        }
        Err(problem) => {
            println!("tidy: {problem}");
            false
        }
    }
}

/// The number of files, and every violation.
fn check(repository: &Path) -> Result<(usize, Vec<Violation>), String> {
    let paths = text_files(repository)?;
    let packages = workspace::packages(repository)?;
    let mut violations = workspace::check(&packages, repository)?;
    violations.extend(packages::check(repository)?);
    violations.extend(names::check(repository, names::USERS_MAX)?);
    let (mut declarations, mut outlines, mut riddles) = (Vec::new(), Vec::new(), Vec::new());
    let (mut modules, mut words) = (Vec::new(), unused::Words::default());
    for path in &paths {
        let bytes =
            std::fs::read(repository.join(path)).map_err(|error| format!("{}: {error}", path.display()))?;
        // A file that is not text (data sets, pictures) has no lines to judge.
        let Ok(text) = String::from_utf8(bytes) else { continue };
        let path = path.to_string_lossy();
        let source = Source { path: &path, text: &text };
        let (found, declared, outline) = check_source(&source, repository);
        violations.extend(found);
        declarations.extend(declared);
        outlines.extend(outline);
        if source.is_rust() {
            riddles.extend(english::riddles(&source));
            modules.push(orphans::declared(&source));
            words.add(&source);
        }
    }
    let names: Vec<String> = paths.iter().map(|path| path.to_string_lossy().into_owned()).collect();
    violations.extend(words.check(&packages));
    violations.extend(orphans::check(&names, &modules));
    violations.extend(types::check(&names, &declarations));
    violations.extend(circles::check(&names, &outlines));
    violations.extend(english::check(&names, &riddles));
    Ok((paths.len(), violations))
}

/// The violations of this file, the types that it declares, and its statements about modules.
fn check_source(
    source: &Source<'_>,
    repository: &Path,
) -> (Vec<Violation>, Vec<types::Declaration>, Option<outline::Outline>) {
    let mut violations = lines::check(source, repository);
    violations.extend(links::check(source, repository));
    let (mut declarations, mut outline) = (Vec::new(), None);
    if source.is_rust() {
        match tokens::parse(source) {
            Ok(tokens) => {
                declarations = types::declarations(source, &tokens);
                outline = Some(outline::outline(source, &tokens));
            }
            Err(violation) => violations.push(violation),
        }
    }
    (violations, declarations, outline)
}

/// Every file that git would see, relative to the repository; also where there is no git.
pub(crate) fn text_files(repository: &Path) -> Result<Vec<PathBuf>, String> {
    let mut walk = ignore::WalkBuilder::new(repository);
    walk.hidden(false).require_git(false).sort_by_file_name(Ord::cmp);
    walk.filter_entry(|entry| entry.file_name() != ".git");
    let mut paths = Vec::new();
    for entry in walk.build() {
        let entry = entry.map_err(|error| error.to_string())?;
        if entry.file_type().is_some_and(|kind| kind.is_file()) {
            paths.extend(entry.path().strip_prefix(repository).map(Path::to_path_buf));
        }
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_repository_keeps_the_house_rules() {
        let (files, violations) = check(crate::repository()).unwrap();
        let list: Vec<String> = violations.iter().map(Violation::to_string).collect();
        assert!(list.is_empty(), "\n{}\n", list.join("\n"));
        assert!(files > 50, "only {files} files were found");
    }

    #[test]
    fn the_walk_finds_this_file_and_no_build_output() {
        let files = text_files(crate::repository()).unwrap();
        assert!(files.contains(&PathBuf::from("xtask/src/tidy/mod.rs")));
        assert!(!files.iter().any(|path| path.starts_with("target") || path.starts_with(".git")));
    }

    #[test]
    fn a_violation_says_where_and_which_rule() {
        let source = Source { path: "crates/x/src/lib.rs", text: "fn f() {}\n" };
        let (list, _, _) = check_source(&source, crate::repository());
        assert_eq!(list.len(), 1, "{list:?}");
        assert!(list[0].to_string().starts_with("crates/x/src/lib.rs:1: header: "), "{}", list[0]);
    }
}
