//! Links of the pages lead somewhere: every relative link and picture of a Markdown file names a file or a folder.

use std::path::Path;

use super::source::{Source, Violation};

pub(crate) fn check(source: &Source<'_>, repository: &Path) -> Vec<Violation> {
    if !source.path.ends_with(".md") {
        return Vec::new();
    }
    let page = repository.join(source.path);
    let folder = page.parent().unwrap_or(repository);
    let mut violations = Vec::new();
    for (line, text) in (1..).zip(source.text.lines()) {
        for target in targets(text).filter(|target| !folder.join(target).exists()) {
            violations.push(source.violation(line, "link", format!("{target} is not there")));
        }
    }
    violations
}

/// The files that the links of a line name within the repository, without the place on the page.
fn targets(text: &str) -> impl Iterator<Item = &str> {
    let links = text.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    let files = links.map(|(target, _)| target.split('#').next().unwrap_or(target));
    files.filter(|target| !target.is_empty() && !target.contains("://"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_that_lead_nowhere_are_found() {
        let text =
            "[a](README.md) and ![b](docs/none.svg)\n[c](https://a.b/x) [d](#here) [e](docs/errors.md#x)";
        let page = |path| Source { path, text };
        let found = check(&page("CHANGELOG.md"), crate::repository());
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].to_string(), "CHANGELOG.md:1: link: docs/none.svg is not there");
        assert_eq!(check(&page("docs/errors.md"), crate::repository()).len(), 3, "relative to the page");
        assert_eq!(check(&page("src/lib.rs"), crate::repository()), []);
    }
}
