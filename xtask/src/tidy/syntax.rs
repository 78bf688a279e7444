//! The syntax of a Rust file, for the rules over whole crates: the names of its crate that it imports and uses, without
//! its tests, and the types that it declares.

use std::collections::HashMap;

use proc_macro2::{Span, TokenStream, TokenTree};
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::visit::{self, Visit};
use syn::{Attribute, Ident, Item, ItemMod, ItemUse, Macro, Path, Token, UseTree, Visibility};

use super::source::{Source, Violation};

/// The facts of a file.
#[derive(Default)]
pub(super) struct Syntax {
    pub(super) path: String,
    /// The names that it imports, with their paths.
    pub(super) imports: HashMap<String, Vec<String>>,
    /// The paths in its code and its imports, with their lines. An exported import is one for others: it counts where
    /// code names it.
    pub(super) uses: Vec<(usize, Vec<String>)>,
    /// The modules of its tests that are files.
    pub(super) test_modules: Vec<String>,
    /// Each struct, enum, union, trait and alias with its line, also in functions and tests. A type of a trait or an
    /// impl belongs to that trait or impl.
    pub(super) types: Vec<(usize, String)>,
}

/// The name of all that a glob imports.
pub(super) const GLOB: &str = "*";

/// Reads a file.
pub(super) fn read(source: &Source<'_>) -> Result<Syntax, Violation> {
    let file = syn::parse_file(source.text)
        .map_err(|error| source.violation(error.span().start().line, "syntax", error.to_string()))?;
    let mut reader = Reader::default();
    reader.visit_file(&file);
    Ok(Syntax { path: source.path.to_owned(), ..reader.syntax })
}

/// The words of an attribute in its parentheses.
pub(super) fn words(attribute: &Attribute) -> String {
    attribute.meta.require_list().map_or_else(|_| String::new(), |list| list.tokens.to_string())
}

/// Gives each name that a `use` brings: its path, its name here, and its place.
pub(super) fn leaves(tree: &UseTree, path: &[String], each: &mut impl FnMut(&[String], String, Span)) {
    let (ident, name) = match tree {
        UseTree::Path(part) => {
            return leaves(&part.tree, &[path, &[part.ident.to_string()]].concat(), each);
        }
        UseTree::Group(group) => return group.items.iter().for_each(|tree| leaves(tree, path, each)),
        UseTree::Glob(glob) => {
            return each(&[path, &[GLOB.to_owned()]].concat(), GLOB.to_owned(), glob.star_token.spans[0]);
        }
        UseTree::Name(name) => (&name.ident, &name.ident),
        UseTree::Rename(name) => (&name.ident, &name.rename),
    };
    match path.last().filter(|_| ident == "self") {
        Some(last) => each(path, if name == "self" { last.clone() } else { name.to_string() }, ident.span()),
        None => each(&[path, &[ident.to_string()]].concat(), name.to_string(), ident.span()),
    }
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
    fn uses(&mut self, place: Span, mut path: Vec<String>) {
        let above = path.iter().take(self.depth).take_while(|name| *name == "super").count();
        path.drain(..above);
        if !self.is_test {
            self.syntax.uses.push((place.start().line, path));
        }
    }

    /// Reads the tokens of a macro: their syntax is its own, but paths and types look like everywhere.
    fn scan(&mut self, tokens: TokenStream) {
        let read = |input: ParseStream<'_>| {
            let mut before = String::new();
            while !input.is_empty() {
                if let Ok(first) = input.call(Ident::parse_any) {
                    let mut path = vec![first.to_string()];
                    while input.peek(Token![::]) && input.peek3(Ident::peek_any) {
                        input.parse::<Token![::]>()?;
                        path.push(input.call(Ident::parse_any)?.to_string());
                    }
                    match before.as_str() {
                        "struct" | "enum" | "trait" => self.declare(&first),
                        // A field, a method or a lifetime.
                        "." | "'" => {}
                        _ => self.uses(first.span(), path),
                    }
                    before = first.to_string();
                } else if let Ok(tree) = input.parse::<TokenTree>() {
                    before = tree.to_string();
                    if let TokenTree::Group(group) = tree {
                        self.scan(group.stream());
                    }
                }
            }
            Ok(())
        };
        // `read` takes every token.
        let _ = read.parse2(tokens);
    }

    fn declare(&mut self, name: &Ident) {
        self.syntax.types.push((name.span().start().line, name.to_string()));
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
            | Item::Type(syn::ItemType { ident, .. }) => self.declare(ident),
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
        let words = words(attribute).replace(' ', "");
        let is_for_tests = ["test", "all(test", "any(test"].iter().any(|test| words.starts_with(test));
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
        leaves(&used.tree, &[], &mut |path, name, place| {
            if matches!(used.vis, Visibility::Inherited) {
                self.uses(place, path.to_vec());
            }
            if !self.is_test && name != GLOB {
                self.syntax.imports.insert(name, path.to_vec());
            }
        });
    }

    fn visit_path(&mut self, path: &'ast Path) {
        if path.leading_colon.is_none() {
            let names = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
            self.uses(path.segments[0].ident.span(), names);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, called: &'ast Macro) {
        self.scan(called.tokens.clone());
        visit::visit_macro(self, called);
    }
}
