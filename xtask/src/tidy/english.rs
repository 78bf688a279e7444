//! The rule over a package's comments: the number of riddles. A riddle is a pronoun that stands for a noun, or a
//! question word at the start of documentation.

use super::source::{Violation, only_falls, package_of};
use crate::tool::regex;

/// The words that count. Such a pronoun sends the reader back for its noun; "unread messages" sends nobody back. A
/// question asks for its noun. The second of two words may be on the next line, behind its slashes.
const RIDDLES: &str = r"(?x)
    (?<question>\b(?i:what)\b[^.?\n]*(?:\n\s*//[^.?\n]*)*\?)
    | \b(?i:what|whatever|whichever|whoever)\b(?:[\s/!]+[a-z]+)?  # What it sends; whatever the length.
    | \b(?i:those|ones?)[\s/!]+(?:that|which|who|whose)\b         # Those that it waits for; one that it knows.
    | \b(?i:those)[\s/!]+(?:for|from|in|on|to|with)\b             # Those in it.
    | \b(?:(?i:that|those)[\s/!]+of|(?i:that)[\s/!]+which)\b      # Its time is that of a call.
    | \b(?i:the)[\s/!]+ones?[.,;:)]                             # It is the one; not `the one rank`.
    | \b(?i:the)[\s/!]+ones?[\s/!]+(?:above|at|before|below|beneath|for|from|in|of|on|to|with)\b
    | \bWho[\s/!]+[a-z]+\b                                      # Who reads one file; not `a rank who`.
    | (?<opening>//[/!]\ (?:How|Which|Where|Whose)\b)           # The first word, where a noun would name the thing.
";

/// A package, and the number of riddles in its comments.
const ROWS: &[(&str, usize)] = &[
    ("benches/lab/compare", 135),
    ("benches/lab/converge", 13),
    ("benches/lab/doubles", 20),
    ("benches/lab/gpu-check", 59),
    ("benches/lab/soak", 85),
    ("tests", 403),
    ("tests/doubles/common", 123),
    ("tests/doubles/hccl", 24),
    ("tests/doubles/nccl", 41),
    ("tests/vendors", 42),
];

/// The number of places that a violation shows.
const PLACES_SHOWN_MAX: usize = 5;

/// A line up to a place in its comment; a literal of the code may look like a comment.
const COMMENT: &str = r#"^(?:[^"'/]|/[^"'/]|'(?:\w|[^\\\w]'|\\.[^']*')|"(?:\\.|[^"\\])*")*//"#;

const DOCUMENTATION: &str = r"^\s*//[/!]";

/// One riddle in a comment.
pub(super) struct Riddle {
    path: String,
    line: usize,
    words: String,
}

/// The riddles of a Rust file.
pub(super) fn riddles(path: &str, text: &str) -> Vec<Riddle> {
    let riddle = |found: ::regex::Captures<'_>| {
        let place = found.get_match();
        let start = text[..place.start()].rfind('\n').map_or(0, |end| end + 1);
        // A riddle may begin with the two slashes, and has more letters than two.
        let is_comment = regex(COMMENT).is_match(&text[start..place.start() + 2]);
        let is_inside =
            || text[..start].lines().last().is_some_and(|line| regex(DOCUMENTATION).is_match(line));
        let is_none = found.name("question").is_some() || found.name("opening").is_some() && is_inside();
        (is_comment && !is_none).then(|| Riddle {
            path: path.to_owned(),
            line: text[..start].matches('\n').count() + 1,
            words: regex(r"[\s/!]+").replace_all(place.as_str(), " ").trim_start().to_owned(),
        })
    };
    regex(RIDDLES).captures_iter(text).filter_map(riddle).collect()
}

/// Every package with another number than its row.
pub(super) fn check(packages: &[&str], riddles: &[Riddle]) -> Vec<Violation> {
    only_falls("riddles", packages, 0, ROWS, |package| {
        let own = riddles.iter().filter(|one| package_of(packages, &one.path) == Some(package));
        let places: Vec<_> = own.map(|one| format!("{}:{} \"{}\"", one.path, one.line, one.words)).collect();
        (places.len(), places[places.len().saturating_sub(PLACES_SHOWN_MAX)..].join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The riddles with their lines.
    fn found(text: &str) -> String {
        let riddles = riddles("x/src/lib.rs", text).into_iter();
        riddles.map(|one| format!("{} {}", one.line, one.words)).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn riddles_in_all_kinds_of_comments_count() {
        for (text, counted) in [
            ("//! A rank whoever waits.\n\n/// Those that wait.", "1 whoever waits, 3 Those that"),
            ("fn f() {} // one whose rank", "1 one whose"),
            ("// Who reads it. A rank who reads it. The rank reads it.", "1 Who reads"),
            ("// What is left. Does what `f` does.", "1 What is, 1 what"),
            ("// Whatever it has, whichever side.", "1 Whatever it, 1 whichever side"),
            ("// Its time is that of a call, those of two.", "1 that of, 1 those of"),
            ("// The one before it, those in it.", "1 The one before, 1 those in"),
            ("// It is the one. That which waits.", "1 the one., 1 That which"),
            ("// What does a rank send? One of the ranks. The one rank. Those ranks. It says that.", ""),
            ("// What? What it sends. What?", "1 What it"),
            (
                "//! How it works.\n\n/// Which rank.\nfn f() {}\n    /// Whose it is.",
                "1 How, 3 Which, 5 Whose",
            ),
            ("// A rank.\n/// Where it is.\n// Where.", "2 Where"),
            ("/// A rank.\n/// Which one.\n\n// How it works.\n\n/// Whether. However. Wherever.", ""),
            // Words on two lines have the first line.
            ("\n    /// all but those\n    /// that wait", "2 those that"),
            ("let x = 1; // those\nlet y = 2; // that", ""),
            ("// a\n// b\n// c one that\n", "3 one that"),
            // Code and literals do not count.
            ("fn whoever() {}", ""),
            ("f(\"// whoever\");", ""),
            ("f(\"\\\"// whoever\");", ""),
            ("f('\"', \"// whoever\");", ""),
            ("f('\\'', \"// whoever\");", ""),
            ("f::<'a>(\"// whoever\");", ""),
            ("f('\"', a / b, \"//\"); // whoever \"", "1 whoever"),
        ] {
            assert_eq!(found(text), counted, "{text}");
        }
    }

    #[test]
    fn too_many_name_the_last_places() {
        let files = [("x/a.rs", "// whoever"), ("x/y/b.rs", &"\n// what is\n".repeat(7))];
        let riddles: Vec<Riddle> = files.iter().flat_map(|(path, text)| riddles(path, text)).collect();
        let found: Vec<String> = check(&["x", "x/y"], &riddles).iter().map(Violation::to_string).collect();
        assert_eq!(found[0], "x/Cargo.toml:1: riddles: 1, at most 0: x/a.rs:1 \"whoever\"");
        assert!(found[1].starts_with("x/y/Cargo.toml:1: riddles: 7"), "{found:?}");
        assert_eq!(found[1].matches("x/y/b.rs:").count(), PLACES_SHOWN_MAX);
    }
}
