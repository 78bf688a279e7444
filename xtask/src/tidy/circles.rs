//! The rule over a crate's files: the number of files that name each other in a circle. A reader of one file of a
//! circle reads all.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::source::{Violation, only_falls};
use super::syntax::{Syntax, join};

/// The number of files in the largest circle of a package; 1, which is none, without a row. A row is exact: a change
/// that breaks a circle lowers it.
const CIRCLES: &[(&str, usize)] = &[
    ("benches/lab/commands", 2),
    ("benches/lab/compare", 2),
    ("benches/lab/converge", 4),
    ("benches/lab/soak", 16),
    ("crates/backend", 5),
    // The traits of a communicator and its scopes: parts of one definition.
    ("crates/communicator", 4),
    ("crates/compression", 8),
    ("crates/compression-cuda", 3),
    ("crates/compression-npu", 2),
    ("crates/compression-wgpu", 2),
    ("crates/control", 5),
    ("crates/cuda", 6),
    ("crates/engine", 3),
    ("crates/job", 6),
    ("crates/offload", 3),
    ("crates/offload-ccl", 2),
    ("crates/offload-hccl", 8),
    ("crates/offload-nccl", 3),
    ("crates/schedule", 5),
    ("crates/unisono", 2),
    ("crates/unisono-cli", 7),
    ("kernels", 12),
    ("tests", 2),
    ("tests/doubles/common", 2),
    ("tests/doubles/hccl", 2),
    ("tests/doubles/nccl", 3),
];

/// The number of imports that may lead from a name to its meaning.
const STEPS: usize = 16;

/// The files that have the name of their folder or of no module.
const ROOTS: [&str; 3] = ["lib", "main", "mod"];

/// For each file the files that it names, with the line.
type Edges<'a> = BTreeMap<&'a str, BTreeMap<&'a str, usize>>;

/// The files of a package without its tests, by the names of their modules from the crate's root on.
struct Modules<'a>(HashMap<String, &'a Syntax>);

impl<'a> Modules<'a> {
    /// Takes the files below the folder `source`.
    fn new(source: &str, files: &'a [Syntax]) -> Modules<'a> {
        let mut modules = HashMap::new();
        for file in files {
            let Some(place) = file.path.strip_prefix(source) else { continue };
            let names = place.trim_end_matches(".rs").split('/').filter(|name| !ROOTS.contains(name));
            // A library beside a program is one file.
            modules.insert(names.collect::<Vec<_>>().join("::"), file);
        }
        let tests = modules
            .iter()
            .flat_map(|(module, file)| file.test_modules.iter().map(move |name| join(module, name) + "::"));
        let tests: Vec<String> = tests.collect();
        modules.retain(|module, _| !tests.iter().any(|test| format!("{module}::").starts_with(test)));
        Modules(modules)
    }

    /// The file that defines the end of `path`, from a module; `None` out of the crate, and for a module. `steps`
    /// bounds imports that lead in a circle.
    fn end(&self, module: &str, path: &str, is_first: bool, steps: usize) -> Option<&'a str> {
        let (name, rest) = path.split_once("::").unwrap_or((path, ""));
        let (file, child) = (self.0.get(module)?, join(module, name));
        let is_module = self.0.contains_key(&child);
        match (name, file.imports.get(name)) {
            ("", _) => None,
            ("crate", _) => self.end("", rest, false, steps),
            ("self", _) => self.end(module, rest, false, steps),
            ("super", _) => {
                self.end(module.rsplit_once("::").map_or("", |(above, _)| above), rest, false, steps)
            }
            // An item may have the name of a module: it is meant at the end of a path.
            (_, Some(import)) if !is_module || rest.is_empty() => {
                self.end(module, &format!("{import}::{rest}"), true, steps.checked_sub(1)?)
            }
            _ if is_module => self.end(&child, rest, false, steps),
            // Of another crate, or of a function.
            _ if is_first => None,
            _ => Some(&file.path),
        }
    }

    fn edges(&self) -> Edges<'a> {
        let mut edges = Edges::new();
        for (module, file) in &self.0 {
            for (line, path) in &file.uses {
                if let Some(to) = self.end(module, path, true, STEPS).filter(|to| *to != file.path) {
                    edges.entry(&file.path).or_default().entry(to).or_insert(*line);
                }
            }
        }
        edges
    }
}

/// The largest set of files that all lead to each other.
fn largest_circle<'a>(edges: &Edges<'a>) -> BTreeSet<&'a str> {
    let reached = |from: &'a str| {
        let (mut found, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(at) = open.pop() {
            let new = edges.get(at).into_iter().flat_map(BTreeMap::keys).filter(|to| found.insert(**to));
            open.extend(new.copied());
        }
        found
    };
    let reached: BTreeMap<&str, BTreeSet<&str>> = edges.keys().map(|from| (*from, reached(from))).collect();
    let leads_back = |to: &str, from: &str| reached.get(to).is_some_and(|found| found.contains(from));
    let circle = |from: &&'a str| reached[from].iter().copied().filter(|to| leads_back(to, from)).collect();
    edges.keys().map(circle).max_by_key(BTreeSet::len).unwrap_or_default()
}

/// Every package whose largest circle differs from its row.
pub(super) fn check(packages: &[&str], files: &[Syntax]) -> Vec<Violation> {
    only_falls("circle", packages, 1, CIRCLES, |package| largest(package, files))
}

/// The size of the largest circle of a package, and its files.
fn largest(package: &str, files: &[Syntax]) -> (usize, String) {
    let source = format!("{package}/src/");
    let edges = Modules::new(&source, files).edges();
    let circle = largest_circle(&edges);
    let edge = |from: &&str| {
        let (to, line) = edges[from].iter().find(|(to, _)| circle.contains(**to))?;
        Some(format!("{from}:{line} names {}", to.strip_prefix(&source)?))
    };
    (circle.len().max(1), circle.iter().filter_map(edge).collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use crate::tidy::syntax;

    fn circle(files: &[(&str, &str)]) -> (usize, String) {
        let read = |(path, text): &(&str, &str)| syntax::read(&format!("x/src/{path}"), text).unwrap();
        super::largest("x", &files.iter().map(read).collect::<Vec<_>>())
    }

    const ROOT: (&str, &str) = ("lib.rs", "mod a; mod b; mod c;");
    const A: (&str, &str) = ("a.rs", "use crate::b::B;");

    #[test]
    fn a_circle_is_found_and_names_its_files() {
        let files = [ROOT, A, ("b.rs", "\nuse super::a::{A, A2};"), ("c.rs", "use crate::a::A;")];
        let text = "x/src/a.rs:1 names b.rs, x/src/b.rs:2 names a.rs";
        assert_eq!(circle(&files), (2, text.to_owned()));
        assert_eq!(circle(&[ROOT, A]), (1, String::new()));
    }

    #[test]
    fn a_name_leads_through_facades_to_the_file_that_defines_it() {
        let facade = ("lib.rs", "mod a; mod b; mod c; pub use a::A; pub use b::{B as Other, C};");
        let b = ("b/mod.rs", "mod d; mod e; pub use d::B; pub(crate) use e::C;");
        let files =
            |d| [facade, ("a.rs", "use crate::Other;"), b, ("b/d.rs", d), ("b/e.rs", "use super::B;")];
        // The first: a and d, not the files that export them.
        for (d, size) in [("use crate::A;", 2), ("use crate::{A, C};", 3), ("", 1)] {
            assert_eq!(circle(&files(d)).0, size, "{d}");
        }
        for (own, size) in [("1", 1), ("A::LIMIT", 2), ("a::MOST", 2)] {
            let code = format!("mod a; pub use a::A; const LIMIT: usize = {own};");
            assert_eq!(circle(&[("lib.rs", &code), ("a.rs", "use crate::LIMIT;")]).0, size, "{code}");
        }
    }

    /// The file `b.rs` has each text, and `a.rs` imports its items.
    #[test]
    fn code_that_names_a_file_counts_and_tests_do_not() {
        for (b, size) in [
            ("use crate::a::MOST;", 2),
            ("fn f() { crate::a::g() }", 2),
            ("fn f(x: super::a::X<u8>) {}", 2),
            ("use crate::a; fn f() { a::g::<u8>() }", 2),
            ("use crate::a; fn f() { m!(x, [a::g::<u8>()]) }", 2),
            ("use crate::a; macro_rules! m { () => { $crate::a::g() } }", 2),
            ("use crate::a::*;", 2),
            // A module is no item.
            ("use crate::a; pub(in crate::a) fn f() {}", 1),
            ("/// [`crate::a::A`]\nfn f() { std::a::A::new(self.a); m!(self.a, \"crate::a::A\") }", 1),
            ("mod inner { use super::super::a::A; }", 2),
            ("mod inner { use super::a::A; } fn a() {}", 1),
            ("mod tests; use tests::T;", 3),
            // No code of `b.rs` names a file.
            ("mod tests;", 1),
            ("#[cfg(test)]\nmod tests; use tests::T;", 1),
            ("#[cfg(test)]\nmod tests { use crate::a::A; }", 1),
            ("#[cfg(any(test, fuzzing))]\nmod tests { use crate::a::A; }", 1),
            ("#[cfg(all(test, unix))]\nuse crate::a::A;", 1),
            ("#[test] fn f() { crate::a::g() }", 1),
            ("#[cfg(not(test))]\nuse crate::a::A;", 2),
            // Imports that lead nowhere end.
            ("use crate::a::X; pub use crate::a::Y;", 1),
        ] {
            let a = if b.contains("::Y") { ("a.rs", "use crate::b::X; use x::x;") } else { A };
            assert_eq!(circle(&[ROOT, a, ("b.rs", b), ("b/tests.rs", "use crate::a::A;")]).0, size, "{b}");
        }
        let inner = [ROOT, ("a.rs", "use crate::b::inner::B;"), ("b.rs", "mod inner { pub struct B; }")];
        assert_eq!(circle(&inner).0, 1);
    }
}
