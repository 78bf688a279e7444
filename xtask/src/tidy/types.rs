//! The rule over a whole crate: no two types of one name, so that a name says which type it is wherever it stands.

use std::collections::HashMap;

use super::source::{Source, Violation};
use super::tokens::Token;

const RULE: &str = "type name";

/// The declaration of a type: struct, enum, union, trait or alias; a type of a trait or an impl belongs to that trait
/// or impl.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Declaration {
    path: String,
    line: usize,
    name: String,
}

/// The types that a file declares, also those inside functions and tests.
pub(super) fn declarations(source: &Source<'_>, tokens: &[Token]) -> Vec<Declaration> {
    let text = |index: usize| tokens.get(index).map_or("", |token| token.text.as_str());
    // Where the bodies of the traits and impls around this token end, from the outermost on.
    let mut bodies: Vec<usize> = Vec::new();
    let mut found = Vec::new();
    for (index, token) in tokens.iter().enumerate() {
        bodies.retain(|end| index <= *end);
        let is_declared = match token.text.as_str() {
            "struct" | "enum" | "trait" => true,
            "union" => text(index + 2) == "{" || text(index + 2) == "<",
            "type" => !is_directly_in(tokens, &bodies, index),
            _ => false,
        };
        let name = text(index + 1);
        if is_declared && name.starts_with(|first: char| first.is_alphabetic()) {
            found.push(Declaration {
                path: source.path.to_owned(),
                line: tokens[index + 1].line,
                name: name.to_owned(),
            });
        }
        // `impl` is also written in types, after a sign or a bracket.
        let opens_item =
            index == 0 || matches!(text(index - 1), ";" | "{" | "}" | "]" | "unsafe" | "default");
        if token.text == "trait" || token.text == "impl" && opens_item {
            bodies.extend(body_end(tokens, index));
        }
    }
    found
}

/// The index of the brace that closes the item which begins at `index`.
fn body_end(tokens: &[Token], index: usize) -> Option<usize> {
    let mut at = index + 1;
    while at < tokens.len() && tokens[at].text != "{" {
        if matches!(tokens[at].text.as_str(), ";" | "}" | ")" | "]") {
            return None;
        }
        at = tokens[at].close.unwrap_or(at) + 1;
    }
    tokens.get(at)?.close
}

/// Whether the token stands in the innermost of these bodies itself, not in a function's body there.
fn is_directly_in(tokens: &[Token], bodies: &[usize], index: usize) -> bool {
    let around = |open: &usize| tokens[*open].close.is_some_and(|close| close > index);
    let innermost = (0..index).rev().find(around).and_then(|open| tokens[open].close);
    innermost.is_some() && innermost == bodies.last().copied()
}

/// Every name that a crate declares twice. `paths` are all files of the repository.
pub(super) fn check(paths: &[String], declarations: &[Declaration]) -> Vec<Violation> {
    let packages: Vec<&str> = paths.iter().filter_map(|path| path.strip_suffix("Cargo.toml")).collect();
    let mut first: HashMap<(&str, &str), &Declaration> = HashMap::new();
    let mut violations = Vec::new();
    for again in declarations {
        let place = crate_of(&packages, &again.path);
        let Some(earlier) = first.get(&(place, again.name.as_str())) else {
            first.insert((place, &again.name), again);
            continue;
        };
        let text = format!("{} is declared at {}:{} too", again.name, earlier.path, earlier.line);
        violations.push(Violation { path: again.path.clone(), line: again.line, rule: RULE, text });
    }
    violations
}

/// The folder or file that is the crate of `path`: a package's `src`, or one of its test targets, benches, examples.
/// A module that several test targets share counts as a crate of its own.
fn crate_of<'a>(packages: &[&str], path: &'a str) -> &'a str {
    let within = packages.iter().filter(|package| path.starts_with(**package));
    let package = within.map(|package| package.len()).max().unwrap_or(0);
    let inside = &path[package..];
    let levels = if inside.starts_with("src/") { 1 } else { 2 };
    let length = inside.match_indices('/').map(|(at, _)| at).nth(levels - 1).unwrap_or(inside.len());
    &path[..package + length]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tokens::parse;

    fn declared(path: &str, text: &str) -> Vec<Declaration> {
        let source = Source { path, text };
        declarations(&source, &parse(&source).unwrap())
    }

    fn names(text: &str) -> Vec<String> {
        declared("a.rs", text).into_iter().map(|declaration| declaration.name).collect()
    }

    /// The violations of these files, where `a`, and `a/b` inside it, are packages.
    fn said(files: &[(&str, &str)]) -> Vec<String> {
        let paths = ["Cargo.toml", "a/Cargo.toml", "a/b/Cargo.toml"].map(str::to_owned);
        let all: Vec<_> = files.iter().flat_map(|(path, text)| declared(path, text)).collect();
        check(&paths, &all).iter().map(Violation::to_string).collect()
    }

    #[test]
    fn every_kind_of_type_is_declared() {
        let text = "pub struct A; enum B<T> { X(T) }\npub(crate) trait C {} union D { x: u8 } type E = u8;";
        assert_eq!(names(text), ["A", "B", "C", "D", "E"]);
        assert_eq!(names("mod m { struct A; } fn f() { struct B; }"), ["A", "B"]);
        assert_eq!(names("#[cfg(test)]\nmod tests { struct A; }"), ["A"]);
    }

    #[test]
    fn what_declares_no_type_is_none() {
        assert_eq!(names("/// struct A;\nfn union(a: &str) { union(\"struct B;\"); }"), [""; 0]);
        assert_eq!(names("macro_rules! m { ($name:ident) => { struct $name; } }"), [""; 0]);
        assert_eq!(names("trait T: U { type A: V; fn f() { type B = u8; } }"), ["T", "B"]);
        assert_eq!(names("#[x]\nunsafe impl<T> U for V<T> where T: W { type A = T; }\ntype B = u8;"), ["B"]);
        assert_eq!(names("fn f(x: impl T) -> impl T { type A = u8; }"), ["A"]);
    }

    #[test]
    fn two_types_of_one_name_are_found_in_a_crate_and_both_places_are_named() {
        let files = [("a/src/x.rs", "struct A;"), ("a/src/y/z.rs", "\nenum A {}")];
        assert_eq!(said(&files), ["a/src/y/z.rs:2: type name: A is declared at a/src/x.rs:1 too"]);
        let tests = [("a/src/x.rs", "struct A;\n#[cfg(test)]\nmod tests { type A = u8; }")];
        assert_eq!(said(&tests), ["a/src/x.rs:3: type name: A is declared at a/src/x.rs:1 too"]);
    }

    #[test]
    fn crates_do_not_meet() {
        let text = "struct A;";
        let places =
            ["a/src/lib.rs", "a/b/src/lib.rs", "a/tests/x.rs", "a/tests/y/main.rs", "a/benches/x.rs"];
        assert_eq!(said(&places.map(|place| (place, text))), [""; 0]);
        let one_target = [("a/tests/y/main.rs", text), ("a/tests/y/more.rs", text)];
        assert_eq!(said(&one_target).len(), 1);
    }
}
