//! The syntax of a Rust file, for the rules over whole crates: its statements about the modules of its crate, without
//! its tests, and the types that it declares.

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
    pub(super) statements: Vec<Statement>,
    /// Each struct, enum, union, trait and alias with its line, also in functions and tests. A type of a trait or an
    /// impl belongs to that trait or impl.
    pub(super) types: Vec<(usize, String)>,
}

/// A module, an import or a path.
pub(super) struct Statement {
    pub(super) line: usize,
    /// The modules in braces around it, from the outermost on.
    pub(super) within: Vec<String>,
    pub(super) path: Vec<String>,
    pub(super) said: Said,
}

/// The kind of a statement.
#[derive(PartialEq)]
pub(super) enum Said {
    /// `mod a;`
    File,
    /// `mod a { ... }`
    Braces,
    /// `use a::b as name;` An exported name is one for others, so it counts where code names it.
    Import { name: String, is_exported: bool },
    /// `use a::*;`
    Glob,
    /// A path in code.
    Mention,
}

/// Reads a file.
pub(super) fn read(source: &Source<'_>) -> Result<Syntax, Violation> {
    let file = syn::parse_file(source.text)
        .map_err(|error| source.violation(error.span().start().line, "syntax", error.to_string()))?;
    let mut reader = Reader::default();
    reader.visit_file(&file);
    let Reader { mut syntax, .. } = reader;
    let exported = |statement: &Statement| match &statement.said {
        Said::Import { name, is_exported: true } => Some(name.clone()),
        _ => None,
    };
    let exported: Vec<String> = syntax.statements.iter().filter_map(exported).collect();
    let counts =
        |one: &Statement| one.said != Said::Mention || one.path.len() > 1 || exported.contains(&one.path[0]);
    syntax.statements.retain(counts);
    syntax.path = source.path.to_owned();
    Ok(syntax)
}

/// The words of an attribute in its parentheses.
pub(super) fn words(attribute: &Attribute) -> String {
    attribute.meta.require_list().map_or_else(|_| String::new(), |list| list.tokens.to_string())
}

/// Gives each name that a `use` brings: its path, its name here, `None` for a glob, and its place.
pub(super) fn leaves(
    tree: &UseTree,
    path: &[String],
    each: &mut impl FnMut(&[String], Option<String>, Span),
) {
    let (ident, name) = match tree {
        UseTree::Path(part) => {
            return leaves(&part.tree, &[path, &[part.ident.to_string()]].concat(), each);
        }
        UseTree::Group(group) => return group.items.iter().for_each(|tree| leaves(tree, path, each)),
        UseTree::Glob(glob) => return each(path, None, glob.star_token.spans[0]),
        UseTree::Name(name) => (&name.ident, &name.ident),
        UseTree::Rename(name) => (&name.ident, &name.rename),
    };
    match path.last().filter(|_| ident == "self") {
        Some(last) => {
            each(path, Some(if name == "self" { last.clone() } else { name.to_string() }), ident.span())
        }
        None => each(&[path, &[ident.to_string()]].concat(), Some(name.to_string()), ident.span()),
    }
}

#[derive(Default)]
struct Reader {
    syntax: Syntax,
    within: Vec<String>,
    is_test: bool,
}

impl Reader {
    fn say(&mut self, place: Span, path: Vec<String>, said: Said) {
        if !self.is_test {
            let (line, within) = (place.start().line, self.within.clone());
            self.syntax.statements.push(Statement { line, within, path, said });
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
                        _ => self.say(first.span(), path, Said::Mention),
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
        module.attrs.iter().for_each(|attribute| self.visit_attribute(attribute));
        let name = module.ident.to_string();
        let said = if module.content.is_some() { Said::Braces } else { Said::File };
        self.say(module.ident.span(), vec![name.clone()], said);
        self.within.push(name);
        visit::visit_item_mod(self, module);
        self.within.pop();
    }

    fn visit_item_use(&mut self, used: &'ast ItemUse) {
        used.attrs.iter().for_each(|attribute| self.visit_attribute(attribute));
        let is_exported = !matches!(used.vis, Visibility::Inherited);
        leaves(&used.tree, &[], &mut |path, name, place| {
            let said = name.map_or(Said::Glob, |name| Said::Import { name, is_exported });
            self.say(place, path.to_vec(), said);
        });
    }

    fn visit_path(&mut self, path: &'ast Path) {
        if path.leading_colon.is_none() {
            let names = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
            self.say(path.segments[0].ident.span(), names, Said::Mention);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, called: &'ast Macro) {
        self.scan(called.tokens.clone());
        visit::visit_macro(self, called);
    }
}
