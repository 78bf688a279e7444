//! The statements of a file about the modules of its crate: declarations, imports, and the paths that its code names.

use std::collections::HashSet;

use super::source::Source;
use super::tokens::Token;

/// The statements of a file about modules, without its tests.
pub(super) struct Outline {
    pub(super) path: String,
    pub(super) statements: Vec<Statement>,
}

/// One of its modules, imports or paths.
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

struct Reader<'a> {
    tokens: &'a [Token],
    /// The modules in braces around the token that is read, and where they end.
    around: Vec<(String, usize)>,
    statements: Vec<Statement>,
}

/// Reads the modules, the imports and the paths of a file.
pub(super) fn outline(source: &Source<'_>, tokens: &[Token]) -> Outline {
    let mut reader = Reader { tokens, around: Vec::new(), statements: Vec::new() };
    let mut at = 0;
    while at < tokens.len() {
        reader.around.retain(|(_, end)| at <= *end);
        at = match reader.text(at) {
            _ if tokens[at].is_test => at + 1,
            "use" if reader.text(at + 1) != "<" => {
                let is_exported = at > 0 && matches!(reader.text(at - 1), "pub" | ")");
                reader.tree(at + 1, Vec::new(), is_exported)
            }
            "mod" => reader.module(at + 1),
            _ => reader.mention(at),
        };
    }
    let exported = |statement: &Statement| match &statement.said {
        Said::Import { name, is_exported: true } => Some(name.clone()),
        _ => None,
    };
    let exported: HashSet<String> = reader.statements.iter().filter_map(exported).collect();
    let counts =
        |one: &Statement| one.said != Said::Mention || one.path.len() > 1 || exported.contains(&one.path[0]);
    reader.statements.retain(counts);
    Outline { path: source.path.to_owned(), statements: reader.statements }
}

impl Reader<'_> {
    fn text(&self, at: usize) -> &str {
        self.tokens.get(at).map_or("", |token| token.text.as_str())
    }

    fn is_name(&self, at: usize) -> bool {
        self.text(at).starts_with(|first: char| first.is_alphabetic() || first == '_')
    }

    fn is_colons(&self, at: usize) -> bool {
        self.text(at) == ":" && self.text(at + 1) == ":"
    }

    fn say(&mut self, at: usize, path: Vec<String>, said: Said) {
        let within = self.around.iter().map(|(name, _)| name.clone()).collect();
        self.statements.push(Statement { line: self.tokens[at].line, within, path, said });
    }

    /// The name after `mod`, and its braces. Returns the index behind it, as do all that read.
    fn module(&mut self, at: usize) -> usize {
        let name = self.text(at).to_owned();
        match self.tokens.get(at + 1).and_then(|token| token.close) {
            Some(end) => {
                self.say(at, vec![name.clone()], Said::Braces);
                self.around.push((name, end));
            }
            None => self.say(at, vec![name], Said::File),
        }
        at + 1
    }

    /// One tree of a `use`, `path` being the names before it.
    fn tree(&mut self, mut at: usize, mut path: Vec<String>, is_exported: bool) -> usize {
        loop {
            match self.text(at) {
                ":" => at += 1,
                "{" => {
                    let end = self.tokens[at].close.unwrap_or(at);
                    at += 1;
                    while at < end {
                        at = self.tree(at, path.clone(), is_exported) + 1;
                    }
                    return end + 1;
                }
                "*" => {
                    self.say(at, path, Said::Glob);
                    return at + 1;
                }
                _ if !self.is_name(at) => return at,
                name => {
                    if name != "self" || path.is_empty() {
                        path.push(name.to_owned());
                    }
                    if self.is_colons(at + 1) {
                        at += 3;
                        continue;
                    }
                    let renamed = self.text(at + 1) == "as";
                    let name = if renamed { self.text(at + 2) } else { &path[path.len() - 1] };
                    let name = name.to_owned();
                    self.say(at, path, Said::Import { name, is_exported });
                    return at + if renamed { 3 } else { 1 };
                }
            }
        }
    }

    /// The path that begins here, if one does.
    fn mention(&mut self, at: usize) -> usize {
        let begins =
            at == 0 || !matches!(self.text(at - 1), "." | "'") && (at < 2 || !self.is_colons(at - 2));
        if !self.is_name(at) || !begins {
            return at + 1;
        }
        let (mut path, mut end) = (vec![self.text(at).to_owned()], at + 1);
        while self.is_colons(end) && self.is_name(end + 2) {
            path.push(self.text(end + 2).to_owned());
            end += 3;
        }
        self.say(at, path, Said::Mention);
        end
    }
}
