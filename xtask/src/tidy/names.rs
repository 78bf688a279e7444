//! The rule over the names that a program can reach in `unisono`, for users and for authors of transports, vendors'
//! backends and codecs: `crates/unisono/names.txt` lists each, so that nobody adds a name by accident; no glob and no
//! re-export of a whole module of ours adds names by itself. `cargo xtask names` prints the list.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use syn::{Attribute, Item, UseTree, Visibility};

use super::source::Violation;
use super::syntax::{self, join};
use crate::tool::{Outcome, read, repository};

/// The folder of the crate whose names count.
const SOURCES: &str = "crates/unisono/src";
const LIST: &str = "crates/unisono/names.txt";

/// The names of the crate, and the re-exports that hide names from this list.
#[derive(Default)]
struct Names {
    repository: PathBuf,
    /// The path of each name without the crate's, and the features that it needs, in words.
    reachable: BTreeMap<String, String>,
    /// Re-exports that bring names without naming them.
    unnamed: Vec<Violation>,
}

/// A module of the crate: its path, its file, the features that it needs.
type Spot<'a> = (&'a str, &'a str, String);

/// Compares the list with the crate.
///
/// # Errors
/// When a file is missing or is no Rust.
pub(super) fn check(repository: &Path) -> Outcome<Vec<Violation>> {
    let mut names = Names::read(repository)?;
    let (is, should) = (std::fs::read_to_string(repository.join(LIST)).unwrap_or_default(), names.list());
    if is != should {
        let same = is.lines().zip(should.lines()).take_while(|(left, right)| left == right).count();
        let text = format!("the names differ: cargo xtask names > {LIST}");
        names.unnamed.push(Violation::new(LIST, same + 1, "names", text));
    }
    Ok(names.unnamed)
}

/// Prints the list.
pub(crate) fn run() -> Outcome {
    Names::read(repository()).map(|names| print!("{}", names.list()))
}

impl Names {
    fn read(repository: &Path) -> Outcome<Names> {
        let mut names = Names { repository: repository.to_owned(), ..Names::default() };
        let file = format!("{SOURCES}/lib.rs");
        names.walk(&parse(repository, &file)?, &("", &file, String::new()))?;
        Ok(names)
    }

    /// Both parts of the list, each under its count.
    fn list(&self) -> String {
        let part = |of: &str, is_extension: bool| {
            let is_in = |path: &str| path.starts_with("extend::") == is_extension;
            let names: Vec<_> = self.reachable.iter().filter(|(path, _)| is_in(path)).collect();
            let always = names.iter().filter(|(_, features)| features.is_empty()).count();
            let lines = names.iter().map(|(path, features)| format!("unisono::{path}{features}\n"));
            let head = format!("For {of}: {} names, {always} of them without a feature", names.len());
            format!("{head}\n\n{}", lines.collect::<String>())
        };
        part("users", false) + "\n" + &part("authors of transports, vendors' backends and codecs", true)
    }

    fn walk(&mut self, items: &[Item], place: &Spot<'_>) -> Outcome {
        let (path, file, of_module) = place;
        for item in items {
            let (vis, attrs, name) = match item {
                Item::Const(syn::ItemConst { vis, attrs, ident, .. })
                | Item::Enum(syn::ItemEnum { vis, attrs, ident, .. })
                | Item::Fn(syn::ItemFn { vis, attrs, sig: syn::Signature { ident, .. }, .. })
                | Item::Mod(syn::ItemMod { vis, attrs, ident, .. })
                | Item::Static(syn::ItemStatic { vis, attrs, ident, .. })
                | Item::Struct(syn::ItemStruct { vis, attrs, ident, .. })
                | Item::Trait(syn::ItemTrait { vis, attrs, ident, .. })
                | Item::Type(syn::ItemType { vis, attrs, ident, .. })
                | Item::Union(syn::ItemUnion { vis, attrs, ident, .. }) => (vis, attrs, ident.to_string()),
                Item::Use(syn::ItemUse { vis, attrs, .. }) => (vis, attrs, String::new()),
                _ => continue,
            };
            if !is_reachable(vis, attrs) {
                continue;
            }
            let features = features(attrs).unwrap_or_else(|| of_module.clone());
            match item {
                Item::Use(used) => self.reexport(&used.tree, &(path, file, features)),
                Item::Mod(module) => {
                    let path = join(path, &name);
                    if let Some((_, items)) = &module.content {
                        self.walk(items, &(&path, file, features))?;
                        continue;
                    }
                    let folder = format!("{SOURCES}/{}", path.replace("::", "/"));
                    let files = [format!("{folder}/mod.rs"), format!("{folder}.rs")];
                    let is_there = usize::from(!self.repository.join(&files[0]).exists());
                    let file = &files[is_there];
                    self.walk(&parse(&self.repository, file)?, &(&path, file, features))?;
                }
                _ => drop(self.reachable.insert(join(path, &name), features)),
            }
        }
        Ok(())
    }

    /// Takes each name of a re-export.
    fn reexport(&mut self, tree: &UseTree, (module, file, features): &Spot<'_>) {
        syntax::leaves(tree, "", &mut |path, name, span| {
            if name == syntax::GLOB || is_module_of_ours(&self.repository, path) {
                let text = format!("list the names instead of all of `{path}`");
                self.unnamed.push(Violation::new(file, span.start().line, "names", text));
            } else {
                self.reachable.insert(join(module, name), features.clone());
            }
        });
    }
}

/// Whether a program sees an item: documentation leaves hidden items out, and the compiler items of `cfg(doc)`.
fn is_reachable(visibility: &Visibility, attributes: &[Attribute]) -> bool {
    let hides = |attribute: &Attribute| {
        let words = syntax::words(attribute);
        let is = |name: &str| attribute.path().is_ident(name);
        (is("doc") && words == "hidden") || (is("cfg") && ["doc", "test"].contains(&words.as_str()))
    };
    matches!(visibility, Visibility::Public(_)) && !attributes.iter().any(hides)
}

/// The features that an item's own attribute asks for.
fn features(attributes: &[Attribute]) -> Option<String> {
    let condition = attributes.iter().find(|attribute| attribute.path().is_ident("cfg"))?;
    let words = syntax::words(condition);
    let names: Vec<&str> = words.split('"').skip(1).step_by(2).collect();
    (!names.is_empty()).then(|| format!(" [{}]", names.join(" or ")))
}

/// Whether a path is a crate of ours or a public module at its root.
fn is_module_of_ours(repository: &Path, path: &str) -> bool {
    let Some(path) = path.strip_prefix("unisono_") else { return false };
    let (package, name) = path.split_once("::").unwrap_or((path, ""));
    let package = package.replace('_', "-");
    let roots = [format!("crates/{package}/src/lib.rs"), format!("{package}/src/lib.rs")];
    let text = roots.iter().find_map(|file| read(&repository.join(file)).ok()).unwrap_or_default();
    name.is_empty() || [";", " {"].iter().any(|end| text.contains(&format!("pub mod {name}{end}")))
}

fn parse(repository: &Path, file: &str) -> Outcome<Vec<Item>> {
    let text = read(&repository.join(file))?;
    syn::parse_file(&text).map(|file| file.items).map_err(|error| format!("{file}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The list of a crate of these files, and the violations where `names.txt` holds that list and `more`.
    fn checked(files: &[(&str, &str)], more: &str) -> (String, Vec<String>) {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("crates/x-y/src/lib.rs", "pub mod inner; mod private;");
        files.iter().for_each(|(path, text)| write(&format!("crates/unisono/src/{path}"), text));
        let list = Names::read(folder.path()).unwrap().list();
        write(LIST, &format!("{list}{more}"));
        (list, check(folder.path()).unwrap().iter().map(Violation::to_string).collect())
    }

    #[test]
    fn names_are_found_through_modules_groups_and_renames() {
        let lib = r#"
            mod world;
            pub mod call;
            #[doc(hidden)] pub mod hidden { pub fn inner() {} }
            #[cfg(feature = "fast")] pub mod extend {
                pub use unisono_x::Plain;
                #[cfg(any(feature = "a", feature = "b"))] pub use unisono_x::{Other as Else, deep::{Third}};
            }
            pub mod prelude { pub use crate::{World, world::Private}; }
            pub use world::World;
            fn own() {}
        "#;
        let call = ("call.rs", "pub struct Call; pub(crate) struct Inner; pub mod deep;");
        let (list, found) =
            checked(&[("lib.rs", lib), call, ("call/deep/mod.rs", "pub const MOST: u8 = 0;")], "");
        let expected = "For users: 5 names, 5 of them without a feature\n\n\
            unisono::World\nunisono::call::Call\nunisono::call::deep::MOST\nunisono::prelude::Private\n\
            unisono::prelude::World\n\n\
            For authors of transports, vendors' backends and codecs: 3 names, 0 of them without a feature\n\n\
            unisono::extend::Else [a or b]\nunisono::extend::Plain [fast]\nunisono::extend::Third [a or b]\n";
        assert_eq!((list.as_str(), found), (expected, vec![]));
    }

    #[test]
    fn a_list_that_differs_is_found() {
        let (_, found) = checked(&[("lib.rs", "pub fn a() {}\npub use bytemuck;")], "old\n");
        assert_eq!(found, [format!("{LIST}:8: names: the names differ: cargo xtask names > {LIST}")]);
    }

    #[test]
    fn globs_and_whole_modules_are_found() {
        let cases = [
            ("pub use unisono_x_y::private::*;", "all of `unisono_x_y::private::*`"),
            ("pub use unisono_x_y as short;", "all of `unisono_x_y`"),
            ("pub use unisono_x_y::inner;", "all of `unisono_x_y::inner`"),
            ("pub use unisono_x_y::inner::{Named, self};", "all of `unisono_x_y::inner`"),
        ];
        for (line, what) in cases {
            let expected = format!("crates/unisono/src/lib.rs:1: names: list the names instead of {what}");
            assert_eq!(checked(&[("lib.rs", line)], "").1, [expected]);
        }
    }
}
