//! The tokens of a Rust file as one flat list with lines: the same view inside and outside of macros.

use std::str::FromStr;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::source::{Source, Violation};

/// A token, or one side of a pair of brackets.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    /// From 1.
    pub(crate) line: usize,
    pub(crate) text: String,
    /// Of an opening bracket: the index of its closing one.
    pub(crate) close: Option<usize>,
    /// Inside an item under `#[cfg(test)]` or `#[test]`.
    pub(crate) is_test: bool,
}

/// The file's tokens. Comments are not among them; documentation is, as `#[doc = "..."]`.
pub(crate) fn parse(source: &Source<'_>) -> Result<Vec<Token>, Violation> {
    let stream = TokenStream::from_str(source.text).map_err(|error| {
        let line = error.span().start().line;
        source.violation(line, "syntax", error.to_string())
    })?;
    let mut tokens = Vec::new();
    flatten(stream, &mut tokens);
    mark_tests(&mut tokens);
    Ok(tokens)
}

fn flatten(stream: TokenStream, tokens: &mut Vec<Token>) {
    let push = |tokens: &mut Vec<Token>, line, text: String| {
        tokens.push(Token { line, text, close: None, is_test: false });
        tokens.len() - 1
    };
    for tree in stream {
        match tree {
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::None => ("", ""),
                };
                let opening = push(tokens, group.span_open().start().line, open.to_owned());
                flatten(group.stream(), tokens);
                let closing = push(tokens, group.span_close().start().line, close.to_owned());
                tokens[opening].close = Some(closing);
            }
            other => {
                push(tokens, other.span().start().line, other.to_string());
            }
        }
    }
}

/// Marks the tokens after a test attribute, up to the end of its item: the first brace group or semicolon beside it.
fn mark_tests(tokens: &mut [Token]) {
    for index in 0..tokens.len() {
        let text = |offset: usize| tokens.get(index + offset).map_or("", |token| token.text.as_str());
        let is_cfg = match [0, 1, 2, 3].map(text) {
            ["#", "[", "cfg", "("] => match text(4) {
                "all" | "any" => text(6) == "test",
                first => first == "test",
            },
            _ => false,
        };
        let is_test = [0, 1, 2, 3].map(text) == ["#", "[", "test", "]"];
        if !(is_cfg || is_test) {
            continue;
        }
        let mut end = index + 1;
        while end < tokens.len() && tokens[end].text != ";" {
            let is_body = tokens[end].text == "{";
            end = tokens[end].close.unwrap_or(end);
            if is_body {
                break;
            }
            end += 1;
        }
        for token in tokens.iter_mut().take(end + 1).skip(index) {
            token.is_test = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> Vec<Token> {
        parse(&Source { path: "a.rs", text }).unwrap()
    }

    #[test]
    fn brackets_know_their_other_side_and_lines_start_at_one() {
        let list = tokens("fn f(\n) {\n}");
        let brace = list.iter().find(|token| token.text == "{").unwrap();
        assert_eq!((brace.line, list[brace.close.unwrap()].line), (2, 3));
    }

    #[test]
    fn only_test_items_are_marked() {
        let list = tokens(
            "fn a() {}\n#[cfg(test)]\nmod tests { fn b() {} }\n#[test] fn c(x: [u8; 1]) { d() }\n\
             #[cfg(not(test))]\nfn e() {}\n#[cfg(any(test, fuzzing))]\nfn f() {}\nfn g() {}",
        );
        let marked = |name: &str| list.iter().find(|token| token.text == name).unwrap().is_test;
        assert_eq!(
            ["a", "b", "c", "d", "e", "f", "g"].map(marked),
            [false, true, true, true, false, true, false]
        );
    }

    #[test]
    fn a_file_that_is_not_rust_is_a_violation() {
        let found = parse(&Source { path: "a.rs", text: "//! x\nfn f( {\n" }).unwrap_err();
        assert_eq!(found.rule, "syntax");
    }
}
