//! `cargo xtask names` prints the names that a program can reach in the crate `unisono`, for users and for authors of
//! transports, vendors' backends and codecs. `crates/unisono/names.txt` holds the same lines.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use syn::{Attribute, Ident, Item, UseTree, Visibility};

/// The folder of the crate whose names count.
const SOURCES: &str = "crates/unisono/src";

/// The names of the crate, and the re-exports that hide names from this list.
#[derive(Debug, Default)]
pub(crate) struct Names {
    /// The path of each name without the crate's, and the features that it needs.
    reachable: BTreeMap<String, Option<String>>,
    /// The modules that a program can name.
    modules: BTreeSet<String>,
    /// Names with the names of this crate that they repeat.
    repeated: Vec<(String, String, Option<String>)>,
    /// Re-exports that bring names without naming them: their file, their line, their contents in words.
    pub(crate) unnamed: Vec<(String, usize, String)>,
}

/// A module of the crate: its path, its file, the folder of its modules' files, the features that it needs.
type Spot<'a> = (&'a str, &'a str, &'a str, Option<String>);

/// Prints the list.
pub(crate) fn run(repository: &Path) -> bool {
    let names = Names::read(repository);
    match &names {
        Ok(names) => print!("{}", names.list()),
        Err(problem) => eprintln!("names: {problem}"),
    }
    names.is_ok()
}

impl Names {
    /// # Errors
    /// When a file is missing or is no Rust.
    pub(crate) fn read(repository: &Path) -> Result<Names, String> {
        let (mut names, file) = (Names::default(), format!("{SOURCES}/lib.rs"));
        names.walk(repository, &parse(repository, &file)?, &("", &file, SOURCES, None))?;
        for (name, target, features) in std::mem::take(&mut names.repeated) {
            if !names.reachable.contains_key(&target) && !names.modules.contains(&target) {
                names.reachable.insert(name, features);
            }
        }
        Ok(names)
    }

    /// The number of names for users.
    pub(crate) fn of_users(&self) -> usize {
        self.reachable.keys().filter(|path| !path.starts_with("extend::")).count()
    }

    /// Both parts of the list, each under its count.
    pub(crate) fn list(&self) -> String {
        let part = |of: &str, is_extension: bool| {
            let is_in = |path: &str| path.starts_with("extend::") == is_extension;
            let names: Vec<_> = self.reachable.iter().filter(|(path, _)| is_in(path)).collect();
            let always = names.iter().filter(|(_, features)| features.is_none()).count();
            let lines = names.iter().map(|(path, features)| match features {
                Some(features) => format!("unisono::{path} [{features}]\n"),
                None => format!("unisono::{path}\n"),
            });
            let head = format!("For {of}: {} names, {always} of them without a feature", names.len());
            format!("{head}\n\n{}", lines.collect::<String>())
        };
        part("users", false) + "\n" + &part("authors of transports, vendors' backends and codecs", true)
    }

    fn walk(&mut self, repository: &Path, items: &[Item], place: &Spot<'_>) -> Result<(), String> {
        let (path, file, folder, of_module) = place;
        for item in items {
            let (visibility, name, attributes) = match item {
                Item::Const(item) => (&item.vis, Some(&item.ident), &item.attrs),
                Item::Enum(item) => (&item.vis, Some(&item.ident), &item.attrs),
                Item::Fn(item) => (&item.vis, Some(&item.sig.ident), &item.attrs),
                Item::Mod(item) => (&item.vis, Some(&item.ident), &item.attrs),
                Item::Static(item) => (&item.vis, Some(&item.ident), &item.attrs),
                Item::Struct(item) => (&item.vis, Some(&item.ident), &item.attrs),
                Item::Trait(item) => (&item.vis, Some(&item.ident), &item.attrs),
                Item::Type(item) => (&item.vis, Some(&item.ident), &item.attrs),
                Item::Union(item) => (&item.vis, Some(&item.ident), &item.attrs),
                Item::Use(item) => (&item.vis, None, &item.attrs),
                _ => continue,
            };
            if !is_reachable(visibility, attributes) {
                continue;
            }
            let features = features(attributes).or_else(|| of_module.clone());
            let path = name.map_or_else(|| (*path).to_owned(), |name| join(path, name));
            match item {
                Item::Use(used) => {
                    self.reexport(repository, &used.tree, &[], &(&path, file, folder, features));
                }
                Item::Mod(module) => {
                    self.modules.insert(path.clone());
                    let folder = format!("{folder}/{}", module.ident);
                    let files = [format!("{folder}/mod.rs"), format!("{folder}.rs")];
                    let file =
                        files.iter().find(|file| repository.join(file).exists()).map_or(*file, |file| file);
                    match &module.content {
                        Some((_, items)) => {
                            self.walk(repository, items, &(&path, file, &folder, features))?
                        }
                        None => {
                            let items = parse(repository, file)?;
                            self.walk(repository, &items, &(&path, file, &folder, features))?;
                        }
                    }
                }
                _ => drop(self.reachable.insert(path, features)),
            }
        }
        Ok(())
    }

    /// Takes each name of a re-export; `prefix` is the path before this part of it.
    fn reexport(&mut self, repository: &Path, tree: &UseTree, prefix: &[String], place: &Spot<'_>) {
        let (path, file, _, features) = place;
        let (used, name) = match tree {
            UseTree::Path(path) => {
                let prefix = [prefix, &[path.ident.to_string()]].concat();
                return self.reexport(repository, &path.tree, &prefix, place);
            }
            UseTree::Group(group) => {
                return group.items.iter().for_each(|tree| self.reexport(repository, tree, prefix, place));
            }
            UseTree::Glob(glob) => {
                let (line, what) = (glob.star_token.spans[0].start().line, prefix.join("::"));
                return self.unnamed.push(((*file).to_owned(), line, format!("a glob of `{what}`")));
            }
            UseTree::Name(name) => (&name.ident, &name.ident),
            UseTree::Rename(rename) => (&rename.ident, &rename.rename),
        };
        let target = if used == "self" { prefix.to_vec() } else { [prefix, &[used.to_string()]].concat() };
        let name = join(path, name);
        if is_module_of_ours(repository, &target) {
            let what = format!("all of `{}`", target.join("::"));
            self.unnamed.push(((*file).to_owned(), used.span().start().line, what));
        } else if target[0] == "crate" {
            self.repeated.push((name, target[1..].join("::"), features.clone()));
        } else {
            self.reachable.insert(name, features.clone());
        }
    }
}

fn join(path: &str, name: &Ident) -> String {
    if path.is_empty() { name.to_string() } else { format!("{path}::{name}") }
}

/// Whether a program sees an item: documentation leaves hidden items out, and the compiler items of `cfg(doc)`.
fn is_reachable(visibility: &Visibility, attributes: &[Attribute]) -> bool {
    let hides = |attribute: &Attribute| {
        let words = attribute.meta.require_list().map(|list| format!("{}", list.tokens)).unwrap_or_default();
        let is = |name: &str| attribute.path().is_ident(name);
        (is("doc") && words == "hidden") || (is("cfg") && ["doc", "test"].contains(&words.as_str()))
    };
    matches!(visibility, Visibility::Public(_)) && !attributes.iter().any(hides)
}

/// The features that an item's own attribute asks for.
fn features(attributes: &[Attribute]) -> Option<String> {
    let condition = attributes.iter().find(|attribute| attribute.path().is_ident("cfg"))?;
    let tokens = condition.meta.require_list().ok()?.tokens.to_string();
    let names: Vec<&str> = tokens.split('"').skip(1).step_by(2).collect();
    (!names.is_empty()).then(|| names.join(" or "))
}

/// Whether a path is a crate of ours or a public module at its root.
fn is_module_of_ours(repository: &Path, path: &[String]) -> bool {
    let Some(package) = path[0].strip_prefix("unisono_") else { return false };
    let package = package.replace('_', "-");
    let roots = [format!("crates/{package}/src/lib.rs"), format!("{package}/src/lib.rs")];
    let items = || roots.iter().find_map(|file| parse(repository, file).ok()).unwrap_or_default();
    let is_it =
        |item| matches!(item, Item::Mod(module) if module.ident == path[1] && is_reachable(&module.vis, &[]));
    path.len() == 1 || (path.len() == 2 && items().into_iter().any(is_it))
}

fn parse(repository: &Path, file: &str) -> Result<Vec<Item>, String> {
    let text = std::fs::read_to_string(repository.join(file)).map_err(|error| format!("{file}: {error}"))?;
    syn::parse_file(&text).map(|file| file.items).map_err(|error| format!("{file}: {error}"))
}
