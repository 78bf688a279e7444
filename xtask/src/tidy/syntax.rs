//! The syntax of a Rust file, for the rules over whole crates: the names of its crate that it imports and uses, without
//! its tests, and the types that it declares.

use std::collections::HashMap;
use std::fmt::Display;

use proc_macro2::Span;
use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemMod, ItemUse, Macro, Path, UseTree, Visibility};

use super::source::Violation;
use crate::tool::regex;

/// The facts of a file.
#[derive(Default)]
pub(super) struct Syntax {
    pub(super) path: String,
    /// The names that it imports, with their paths.
    pub(super) imports: HashMap<String, String>,
    /// The paths in its code and its imports, with their lines. An exported import is one for others: it counts where
    /// code names it.
    pub(super) uses: Vec<(usize, String)>,
    /// The modules of its tests that are files.
    pub(super) test_modules: Vec<String>,
    /// Each struct, enum, union, trait and alias with its line, also in functions and tests. A type of a trait or an
    /// impl belongs to that trait or impl.
    pub(super) types: Vec<(usize, String)>,
}

/// The name of all that a glob imports.
pub(super) const GLOB: &str = "*";

/// Reads a file.
pub(super) fn read(path: &str, text: &str) -> Result<Syntax, Violation> {
    let file = syn::parse_file(text)
        .map_err(|error| Violation::new(path, error.span().start().line, "syntax", error.to_string()))?;
    let mut reader = Reader::default();
    reader.visit_file(&file);
    Ok(Syntax { path: path.to_owned(), ..reader.syntax })
}

/// The words of an attribute in its parentheses.
pub(super) fn words(attribute: &Attribute) -> String {
    attribute.meta.require_list().map_or_else(|_| String::new(), |list| list.tokens.to_string())
}

pub(super) fn join(path: &str, name: impl Display) -> String {
    if path.is_empty() { name.to_string() } else { format!("{path}::{name}") }
}

/// Gives each name that a `use` brings: its path, its name here, and its place.
pub(super) fn leaves(tree: &UseTree, path: &str, each: &mut impl FnMut(&str, String, Span)) {
    let (ident, name) = match tree {
        UseTree::Path(part) => return leaves(&part.tree, &join(path, &part.ident), each),
        UseTree::Group(group) => return group.items.iter().for_each(|tree| leaves(tree, path, each)),
        UseTree::Glob(glob) => return each(&join(path, GLOB), GLOB.to_owned(), glob.star_token.spans[0]),
        UseTree::Name(name) => (&name.ident, &name.ident),
        UseTree::Rename(name) => (&name.ident, &name.rename),
    };
    let path = if ident == "self" { path.to_owned() } else { join(path, ident) };
    let name = if name == "self" {
        path.rsplit("::").next().unwrap_or_default().to_owned()
    } else {
        name.to_string()
    };
    each(&path, name, ident.span());
}

#[derive(Default)]
struct Reader {
    syntax: Syntax,
    /// The number of modules in braces around the place.
    depth: usize,
    is_test: bool,
}

impl Reader {
    /// A path inside modules in braces is one from the file.
    fn uses(&mut self, place: Span, mut path: &str) {
        for _ in 0..self.depth {
            path = path.strip_prefix("super::").unwrap_or(path);
        }
        if !self.is_test {
            self.syntax.uses.push((place.start().line, path.to_owned()));
        }
    }

    fn declare(&mut self, place: Span, name: &str) {
        self.syntax.types.push((place.start().line, name.to_owned()));
    }
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item(&mut self, item: &'ast Item) {
        let was_test = self.is_test;
        match item {
            Item::Struct(syn::ItemStruct { ident, .. })
            | Item::Enum(syn::ItemEnum { ident, .. })
            | Item::Union(syn::ItemUnion { ident, .. })
            | Item::Trait(syn::ItemTrait { ident, .. })
            | Item::Type(syn::ItemType { ident, .. }) => self.declare(ident.span(), &ident.to_string()),
            _ => {}
        }
        visit::visit_item(self, item);
        self.is_test = was_test;
    }

    fn visit_impl_item(&mut self, item: &'ast syn::ImplItem) {
        let was_test = self.is_test;
        visit::visit_impl_item(self, item);
        self.is_test = was_test;
    }

    /// An item has its attributes before everything else.
    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        let is_for_tests = regex(r"^(?:(?:all|any) \()?test").is_match(&words(attribute));
        let is_cfg = attribute.path().is_ident("cfg") && is_for_tests;
        self.is_test |= is_cfg || attribute.path().is_ident("test");
    }

    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        self.depth += 1;
        visit::visit_item_mod(self, module);
        self.depth -= 1;
        if self.is_test && module.content.is_none() {
            self.syntax.test_modules.push(module.ident.to_string());
        }
    }

    fn visit_item_use(&mut self, used: &'ast ItemUse) {
        visit::visit_item_use(self, used);
        leaves(&used.tree, "", &mut |path, name, place| {
            if matches!(used.vis, Visibility::Inherited) {
                self.uses(place, path);
            }
            if !self.is_test && name != GLOB {
                self.syntax.imports.insert(name, path.to_owned());
            }
        });
    }

    fn visit_path(&mut self, path: &'ast Path) {
        if path.leading_colon.is_none() {
            let names = path.segments.iter().fold(String::new(), |names, next| join(&names, &next.ident));
            self.uses(path.segments[0].ident.span(), &names);
        }
        visit::visit_path(self, path);
    }

    /// The syntax in a macro is its own, but paths and types look like everywhere.
    fn visit_macro(&mut self, called: &'ast Macro) {
        let (place, tokens) = (called.path.segments[0].ident.span(), called.tokens.to_string());
        for path in regex(r"(?:\w+ :: )+\w+").find_iter(&tokens) {
            self.uses(place, &path.as_str().replace(' ', ""));
        }
        // A literal is no code.
        let types = regex(r#""(?:\\.|[^"\\])*"|\b(?:struct|enum|trait) (\w+)"#).captures_iter(&tokens);
        types.filter_map(|found| found.get(1)).for_each(|name| self.declare(place, name.as_str()));
        visit::visit_macro(self, called);
    }
}
