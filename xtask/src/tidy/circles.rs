//! The rule over a crate's files: the number of files that name each other in a circle. A reader of one file of a
//! circle reads all.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::outline::{Outline, Said};
use super::source::Violation;

const RULE: &str = "circle";

/// The number of files in the largest circle of a package; 1, which is none, without a row. A row is exact: a change
/// that breaks a circle lowers it.
const CIRCLES: &[(&str, usize)] = &[
    ("benches/lab/commands", 2),
    ("benches/lab/compare", 5),
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
    ("xtask", 3),
];

/// The end of a path, by index.
#[derive(Clone, Copy)]
enum Place {
    Module(usize),
    /// The file that defines an item.
    File(usize),
}

struct Module<'a> {
    file: usize,
    parent: Option<usize>,
    children: HashMap<&'a str, usize>,
    names: HashMap<&'a str, &'a [String]>,
}

/// The modules of a package.
struct Tree<'a> {
    files: &'a [&'a Outline],
    modules: Vec<Module<'a>>,
}

impl<'a> Tree<'a> {
    fn new(files: &'a [&'a Outline]) -> Tree<'a> {
        let mut tree = Tree { files, modules: Vec::new() };
        for (index, file) in files.iter().enumerate() {
            if is_root(&file.path) {
                tree.grow(index, None);
            }
        }
        tree
    }

    /// Adds the module that a file is, and those below it.
    fn grow(&mut self, file: usize, parent: Option<usize>) -> usize {
        let module = self.add(file, parent);
        let Outline { path, statements } = self.files[file];
        let folder = match path.rsplit_once('/') {
            Some((folder, _)) if parent.is_none() || path.ends_with("/mod.rs") => folder,
            _ => path.strip_suffix(".rs").unwrap_or(path),
        };
        for statement in statements {
            let Some(around) = self.inner(module, &statement.within) else { continue };
            let name = statement.path.last().map_or("", String::as_str);
            match &statement.said {
                Said::File => {
                    let place = [&[folder.to_owned()], &statement.within[..], &statement.path[..]].concat();
                    let place = place.join("/");
                    let names = [format!("{place}.rs"), format!("{place}/mod.rs")];
                    if let Some(child) = self.files.iter().position(|file| names.contains(&file.path)) {
                        let child = self.grow(child, Some(around));
                        self.modules[around].children.insert(name, child);
                    }
                }
                Said::Braces => {
                    let child = self.add(file, Some(around));
                    self.modules[around].children.insert(name, child);
                }
                Said::Import { name, .. } => {
                    self.modules[around].names.insert(name, &statement.path);
                }
                Said::Glob | Said::Mention => {}
            }
        }
        module
    }

    fn add(&mut self, file: usize, parent: Option<usize>) -> usize {
        self.modules.push(Module { file, parent, children: HashMap::new(), names: HashMap::new() });
        self.modules.len() - 1
    }

    /// The module at the end of these braces.
    fn inner(&self, module: usize, within: &[String]) -> Option<usize> {
        within.iter().try_fold(module, |at, name| self.modules[at].children.get(name.as_str()).copied())
    }

    /// The end of `path` from a module; `None` out of the crate. `steps` bounds imports that lead in a circle.
    fn place(&self, module: usize, path: &[String], steps: usize) -> Option<Place> {
        let (first, rest) = path.split_first()?;
        let at = match first.as_str() {
            "crate" => {
                Place::Module(std::iter::successors(Some(module), |at| self.modules[*at].parent).last()?)
            }
            "self" => Place::Module(module),
            "super" => Place::Module(self.modules[module].parent?),
            name => self.named(module, name, rest.is_empty(), steps)?,
        };
        self.follow(at, rest, steps)
    }

    fn follow(&self, at: Place, rest: &[String], steps: usize) -> Option<Place> {
        let (Place::Module(module), Some((first, rest))) = (at, rest.split_first()) else { return Some(at) };
        let next = match first.as_str() {
            "super" => Place::Module(self.modules[module].parent?),
            // A name that is neither a module nor imported is defined here.
            name => match self.named(module, name, rest.is_empty(), steps) {
                Some(place) => place,
                None if self.modules[module].names.contains_key(name) => return None,
                None => Place::File(self.modules[module].file),
            },
        };
        self.follow(next, rest, steps)
    }

    /// The child or the import of that name. An item may have the name of a module: it is meant at the end of a path.
    fn named(&self, module: usize, name: &str, is_last: bool, steps: usize) -> Option<Place> {
        let Module { children, names, .. } = &self.modules[module];
        let child = children.get(name).map(|child| Place::Module(*child));
        if child.is_some() && !(is_last && names.contains_key(name)) {
            return child;
        }
        let place = names.get(name).and_then(|path| self.place(module, path, steps.checked_sub(1)?));
        place.or(child)
    }

    /// For each file the files that it names, with the line.
    fn edges(&self) -> Edges<'a> {
        let mut edges = Edges::new();
        for module in (0..self.modules.len()).filter(|module| self.is_file(*module)) {
            let file = self.files[self.modules[module].file];
            for statement in &file.statements {
                let Some(around) = self.inner(module, &statement.within) else { continue };
                let place = match statement.said {
                    Said::File | Said::Braces | Said::Import { is_exported: true, .. } => None,
                    _ => self.place(around, &statement.path, STEPS),
                };
                let to = match (place, &statement.said) {
                    (Some(Place::File(to)), _) => to,
                    (Some(Place::Module(to)), Said::Glob) => self.modules[to].file,
                    _ => continue,
                };
                let to = self.files[to].path.as_str();
                if to != file.path {
                    edges.entry(&file.path).or_default().entry(to).or_insert(statement.line);
                }
            }
        }
        edges
    }

    /// Whether a module is a whole file.
    fn is_file(&self, module: usize) -> bool {
        let Module { file, parent, .. } = self.modules[module];
        parent.is_none_or(|parent| self.modules[parent].file != file)
    }
}

/// The number of imports that may lead from a name to its meaning.
const STEPS: usize = 16;

type Edges<'a> = BTreeMap<&'a str, BTreeMap<&'a str, usize>>;

/// The file from which a library or a program begins.
fn is_root(path: &str) -> bool {
    let is_named = path.ends_with("/lib.rs") || path.ends_with("/main.rs");
    is_named || path.rsplit_once('/').is_some_and(|(folder, _)| folder.ends_with("src/bin"))
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

/// Every package whose largest circle differs from its row. `paths` are all files of the repository.
pub(super) fn check(paths: &[String], outlines: &[Outline]) -> Vec<Violation> {
    check_table(paths, outlines, CIRCLES)
}

fn check_table(paths: &[String], outlines: &[Outline], table: &[(&str, usize)]) -> Vec<Violation> {
    let packages: Vec<&str> = paths.iter().filter_map(|path| path.strip_suffix("/Cargo.toml")).collect();
    let gone = table.iter().filter(|(name, _)| !packages.contains(name)).map(|(name, _)| {
        let text = "a row of xtask/src/tidy/circles.rs, but no package".to_owned();
        Violation { path: (*name).to_owned(), line: 1, rule: RULE, text }
    });
    packages.iter().filter_map(|package| check_package(package, outlines, table)).chain(gone).collect()
}

fn check_package(package: &str, outlines: &[Outline], table: &[(&str, usize)]) -> Option<Violation> {
    let source = format!("{package}/src/");
    let files: Vec<&Outline> = outlines.iter().filter(|outline| outline.path.starts_with(&source)).collect();
    let edges = Tree::new(&files).edges();
    let circle = largest_circle(&edges);
    let (found, row) = (circle.len().max(1), table.iter().find(|(name, _)| *name == package));
    let most = row.map_or(1, |(_, most)| *most);
    if found < most {
        let text = format!("lower its row in xtask/src/tidy/circles.rs to {found}");
        return Some(Violation { path: format!("{package}/Cargo.toml"), line: 1, rule: RULE, text });
    }
    if found == most {
        return None;
    }
    let short = |path: &str| path.strip_prefix(&source).unwrap_or(path).to_owned();
    let edge = |from: &str| {
        let (to, line) = edges[from].iter().find(|(to, _)| circle.contains(**to))?;
        Some(format!("{}:{line} names {}", short(from), short(to)))
    };
    let list: Vec<String> = circle.iter().filter_map(|from| edge(from)).collect();
    let text = format!("{found} files name each other, at most {most}: {}", list.join(", "));
    Some(Violation { path: circle.first()?.to_string(), line: 1, rule: RULE, text })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::outline::outline;
    use crate::tidy::source::Source;
    use crate::tidy::tokens::parse;

    /// The violations of the files of one package, whose row is `most`.
    fn said_of(most: usize, files: &[(&str, &str)]) -> Vec<String> {
        let files = files.iter().map(|(path, text)| (format!("x/src/{path}"), *text));
        let outlines: Vec<Outline> = files
            .map(|(path, text)| {
                let source = Source { path: &path, text };
                outline(&source, &parse(&source).unwrap())
            })
            .collect();
        let paths = ["x/Cargo.toml".to_owned()];
        check_table(&paths, &outlines, &[("x", most)]).iter().map(Violation::to_string).collect()
    }

    /// The largest circle of a library of these modules.
    fn largest(files: &[(&str, &str)]) -> usize {
        (1..).find(|most| said_of(*most, files).is_empty()).unwrap()
    }

    const ROOT: (&str, &str) = ("lib.rs", "mod a; mod b; mod c;");

    #[test]
    fn a_circle_is_found_and_names_its_files() {
        let files = [
            ROOT,
            ("a.rs", "use crate::b::B;"),
            ("b.rs", "\nuse super::a::{A, A2};"),
            ("c.rs", "use crate::a::A;"),
        ];
        let text =
            "x/src/a.rs:1: circle: 2 files name each other, at most 1: a.rs:1 names b.rs, b.rs:2 names a.rs";
        assert_eq!(said_of(1, &files), [text]);
        assert_eq!(said_of(2, &files), [""; 0]);
    }

    #[test]
    fn a_row_is_exact() {
        let text = "x/Cargo.toml:1: circle: lower its row in xtask/src/tidy/circles.rs to 1";
        assert_eq!(said_of(2, &[ROOT, ("a.rs", "use crate::b::B;"), ("b.rs", "")]), [text]);
        let gone = check_table(&[], &[], &[("x", 2)]);
        assert_eq!(gone[0].to_string(), "x:1: circle: a row of xtask/src/tidy/circles.rs, but no package");
    }

    #[test]
    fn a_name_leads_through_facades_to_the_file_that_defines_it() {
        let facade = ("lib.rs", "mod a; mod b; mod c; pub use a::A; pub use b::{B as Other, C};");
        let b = ("b/mod.rs", "mod d; mod e; pub use d::B; pub(crate) use e::C;");
        let files =
            |d| [facade, ("a.rs", "use crate::Other;"), b, ("b/d.rs", d), ("b/e.rs", "use super::B;")];
        assert_eq!(largest(&files("use crate::A;")), 2, "a and d, not what exports them");
        assert_eq!(largest(&files("use crate::{A, C};")), 3);
        assert_eq!(largest(&files("")), 1);
    }

    #[test]
    fn a_facade_counts_where_its_own_code_names_what_it_exports() {
        let files = |code| [("lib.rs", code), ("a.rs", "use crate::LIMIT;")];
        assert_eq!(largest(&files("mod a; pub use a::A; const LIMIT: usize = 1;")), 1);
        assert_eq!(largest(&files("mod a; pub use a::A; const LIMIT: usize = A::LIMIT;")), 2);
        assert_eq!(largest(&files("mod a; const LIMIT: usize = a::MOST;")), 2);
    }

    #[test]
    fn constants_and_paths_in_code_count() {
        let files = |b| [ROOT, ("a.rs", "use crate::b::LIMIT;"), ("b.rs", b)];
        for b in ["use crate::a::MOST;", "fn f() { crate::a::g() }", "fn f(x: super::a::X<u8>) {}"] {
            assert_eq!(largest(&files(b)), 2, "{b}");
        }
        let through_module = "use crate::a; fn f() { a::g::<u8>() }";
        assert_eq!(largest(&files(through_module)), 2);
        assert_eq!(largest(&files("use crate::a; pub(in crate::a) fn f() {}")), 1, "a module is no item");
        assert_eq!(largest(&files("use crate::a::*;")), 2);
        assert_eq!(largest(&files("/// [`crate::a::A`]\nfn f() { std::a::A::new(self.a) }")), 1);
    }

    #[test]
    fn modules_in_braces_belong_to_their_file() {
        let files = |b| [ROOT, ("a.rs", "use crate::b::inner::B;"), ("b.rs", b)];
        assert_eq!(largest(&files("mod inner { pub struct B; }")), 1);
        assert_eq!(largest(&files("mod inner { use super::super::a::A; }")), 2);
        assert_eq!(largest(&files("mod inner { use super::a::A; } fn a() {}")), 1);
    }

    #[test]
    fn tests_are_left_out() {
        let a = "use crate::b::B;";
        let files = |b| [ROOT, ("a.rs", a), ("b.rs", b), ("b/tests.rs", "use crate::a::A;")];
        for b in [
            "#[cfg(test)]\nmod tests { use crate::a::A; }",
            "#[cfg(test)]\nmod tests;",
            "#[cfg(any(test, fuzzing))]\nmod tests;",
            "#[cfg(all(test, unix))]\nuse crate::a::A;",
        ] {
            assert_eq!(largest(&files(b)), 1, "{b}");
        }
        assert_eq!(largest(&files("mod tests;")), 1, "nobody in it is named by b");
        assert_eq!(largest(&files("mod tests; use tests::T;")), 3);
    }

    #[test]
    fn imports_that_lead_nowhere_end() {
        let files =
            [ROOT, ("a.rs", "use crate::b::X; use x::x;"), ("b.rs", "use crate::a::X; pub use crate::a::Y;")];
        assert_eq!(largest(&files), 1);
    }
}
