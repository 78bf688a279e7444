//! The rule over a whole crate: no two types of one name, so that a name says which type it is wherever it stands.

use std::collections::HashMap;

use super::source::{Violation, package_of};
use super::syntax::Syntax;

/// Every name that a crate declares twice.
pub(super) fn check(packages: &[&str], files: &[Syntax]) -> Vec<Violation> {
    let mut first: HashMap<(&str, &str), (&String, usize)> = HashMap::new();
    let mut violations = Vec::new();
    let types = files.iter().flat_map(|file| file.types.iter().map(|(line, name)| (&file.path, *line, name)));
    for (path, line, name) in types {
        let place = crate_of(packages, path);
        let Some((other, at)) = first.get(&(place, name.as_str())) else {
            first.insert((place, name), (path, line));
            continue;
        };
        let text = format!("{name} is declared at {other}:{at} too");
        violations.push(Violation::new(path, line, "type name", text));
    }
    violations
}

/// The folder or file that is the crate of `path`: a package's `src`, or one of its test targets, benches, examples.
/// A module that several test targets share counts as a crate of its own.
fn crate_of<'a>(packages: &[&str], path: &'a str) -> &'a str {
    let package = package_of(packages, path).map_or(0, |package| package.len() + 1);
    let inside = &path[package..];
    let level = if inside.starts_with("src/") { 0 } else { 1 };
    let length = inside.match_indices('/').map(|(at, _)| at).nth(level).unwrap_or(inside.len());
    &path[..package + length]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::syntax;

    /// The violations of these files, where `a`, and `a/b` inside it, are packages.
    fn said(files: &[(&str, &str)]) -> Vec<String> {
        let read = |&(path, text): &(&str, &str)| syntax::read(path, text).unwrap();
        let files: Vec<Syntax> = files.iter().map(read).collect();
        check(&["a", "a/b"], &files).iter().map(Violation::to_string).collect()
    }

    fn names(text: &str) -> String {
        let types = syntax::read("a.rs", text).unwrap().types.into_iter();
        types.map(|(_, name)| name).collect()
    }

    #[test]
    fn every_kind_of_type_is_declared_and_nothing_else_is() {
        for (text, expected) in [
            ("pub struct A; enum B<T> { X(T) } pub(crate) trait C {}", "ABC"),
            ("union A { x: u8 } type B = u8;", "AB"),
            ("mod m { struct A; } fn f() { struct B; } #[cfg(test)] mod tests { struct C; }", "ABC"),
            ("m! { pub struct A; enum B {} } macro_rules! m { ($name:ident) => { struct $name; } }", "AB"),
            ("/// struct A;\nfn union(a: &str) { union(\"struct B;\"); }", ""),
            ("trait T: U { type A: V; fn f() { type B = u8; } } unsafe impl T for V { type A = T; }", "TB"),
        ] {
            assert_eq!(names(text), expected, "{text}");
        }
    }

    #[test]
    fn two_types_of_one_name_are_found_in_a_crate_and_both_places_are_named() {
        let files = [("a/src/x.rs", "struct A;"), ("a/src/y/z.rs", "\nenum A {}")];
        assert_eq!(said(&files), ["a/src/y/z.rs:2: type name: A is declared at a/src/x.rs:1 too"]);
        let files = ["a/tests/y/main.rs", "a/tests/y/more.rs"];
        assert_eq!(said(&files.map(|path| (path, "struct A;"))).len(), 1);
        let crates =
            ["a/src/lib.rs", "a/b/src/lib.rs", "a/tests/x.rs", "a/tests/y/main.rs", "a/benches/x.rs"];
        assert_eq!(said(&crates.map(|path| (path, "struct A;"))), [""; 0]);
    }
}
