//! The rule over a package's comments: the number of pronouns that stand for a noun, and of documentation that opens
//! with a question word.

use super::source::{Source, Violation, only_falls, package_of};
use crate::tool::regex;

/// The words that count. Such a pronoun sends the reader back for its noun; "unread messages" sends nobody back. A
/// question asks for its noun.
const RIDDLES: &str = r"(?x)
    (?<question>\b(?i:what)\b[^.?]*\?)
    | \b(?i:what|whatever|whichever|whoever)\b(?:\ [a-z]+)?  # What it sends; whatever the length.
    | \b(?i:those|ones?)\ (?:that|which|who|whose)\b         # Those that it waits for; one that it knows.
    | \b(?i:those)\ (?:for|from|in|on|to|with)\b             # Those in it.
    | \b(?:(?i:that|those)\ of|(?i:that)\ which)\b           # Its time is that of a call.
    | \b(?i:the)\ ones?(?:[.,;:)]|\ (?:above|at|before|below|beneath|for|from|in|of|on|to|with)\b) # Not `the one rank`.
    | \bWho\ [a-z]+\b                                        # Who reads one file; not `a rank who`.
";

/// The first words of documentation that count: they open a question, where a noun would name the thing.
const OPENINGS: &str = r"^(?:What|How|Which|Where|Who|Whose)\b";

/// A package, and the numbers of riddles and of openings in its comments.
const ROWS: &[(&str, usize, usize)] = &[
    ("benches/lab/compare", 115, 80),
    ("benches/lab/converge", 9, 10),
    ("benches/lab/doubles", 15, 12),
    ("benches/lab/gpu-check", 48, 26),
    ("benches/lab/soak", 66, 45),
    ("tests", 355, 149),
    ("tests/doubles/common", 99, 48),
    ("tests/doubles/hccl", 21, 11),
    ("tests/doubles/nccl", 36, 13),
    ("tests/vendors", 38, 12),
];

/// The number of places that a violation shows.
const PLACES_SHOWN_MAX: usize = 5;

/// The text of a comment behind code; a literal of the code may look like a comment.
const COMMENT: &str = r#"^(?:[^"'/]|/[^"'/]|'(?:\w|[^\\\w]'|\\.[^']*')|"(?:\\.|[^"\\])*")*//(.*)"#;

/// One riddle in a comment, or one opening.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Riddle {
    path: String,
    line: usize,
    words: String,
    opens: bool,
}

/// The riddles and openings of a Rust file. Comments on lines of their own that follow each other are one text: its
/// words may be on two lines.
pub(super) fn riddles(source: &Source<'_>) -> Vec<Riddle> {
    let mut riddles = Vec::new();
    let mut say = |line, words: &str, opens| {
        riddles.push(Riddle { path: source.path.to_owned(), line, words: words.to_owned(), opens });
    };
    // The comment so far, where its lines start, and whether its last line is documentation.
    let (mut text, mut starts, mut in_docs) = (String::new(), Vec::new(), false);
    for (number, line) in (1..).zip(source.text.lines().chain([""])) {
        let alone = line.trim_start().strip_prefix("//");
        if alone.is_none() {
            for found in regex(RIDDLES).captures_iter(&text).filter(|found| found.name("question").is_none())
            {
                let place = found.get_match();
                let start = starts.iter().rev().find(|(start, _)| *start <= place.start());
                say(start.map_or(1, |(_, line)| *line), place.as_str(), false);
            }
            (text, starts, in_docs) = (String::new(), Vec::new(), false);
        }
        let behind =
            || regex(COMMENT).captures(line).map(|found| found.get(1).map_or("", |text| text.as_str()));
        let Some(comment) = alone.or_else(behind) else { continue };
        let (was_in_docs, words) = (in_docs, comment.trim_start_matches(['/', '!']).trim());
        in_docs = comment.starts_with(['/', '!']);
        if let Some(opening) = regex(OPENINGS).find(words).filter(|_| in_docs && !was_in_docs) {
            say(number, opening.as_str(), true);
        }
        starts.push((text.len(), number));
        text += &format!("{words} ");
    }
    riddles
}

/// Every package with other numbers than its row.
pub(super) fn check(packages: &[&str], riddles: &[Riddle]) -> Vec<Violation> {
    let found = |package: &str, opens: bool| {
        let is_own = |one: &&Riddle| one.opens == opens && package_of(packages, &one.path) == Some(package);
        let place = |one: &Riddle| format!("{}:{} \"{}\"", one.path, one.line, one.words);
        let places: Vec<String> = riddles.iter().filter(is_own).map(place).collect();
        (places.len(), places[places.len().saturating_sub(PLACES_SHOWN_MAX)..].join(", "))
    };
    let (pronouns, questions): (Vec<_>, Vec<_>) =
        ROWS.iter().map(|(name, pronouns, questions)| ((*name, *pronouns), (*name, *questions))).unzip();
    let mut violations = only_falls("pronouns", packages, 0, &pronouns, |package| found(package, false));
    violations.extend(only_falls("questions", packages, 0, &questions, |package| found(package, true)));
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The riddles with their lines, and the openings with a `!`.
    fn found(text: &str) -> String {
        let riddles = riddles(&Source { path: "x/src/lib.rs", text }).into_iter();
        let shown =
            riddles.map(|one| format!("{} {}{}", one.line, one.words, if one.opens { "!" } else { "" }));
        shown.collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn pronouns_and_openings_in_all_kinds_of_comments_count() {
        for (text, counted) in [
            (
                "//! A rank whoever waits.\n\n/// Those that wait.\n// What is left.",
                "1 whoever waits, 3 Those that, 4 What is",
            ),
            ("fn f() {} // one whose rank", "1 one whose"),
            ("// Who reads it. A rank who reads it. The rank reads it.", "1 Who reads"),
            (
                "// Does what `f` does, whatever it has, whichever side.",
                "1 what, 1 whatever it, 1 whichever side",
            ),
            (
                "// Its time is that of a call, those of two, those in it.",
                "1 that of, 1 those of, 1 those in",
            ),
            (
                "// The one before it is the one. That which waits.",
                "1 The one before, 1 the one., 1 That which",
            ),
            ("// What does a rank send? One of the ranks. The one rank. Those ranks. It says that.", ""),
            ("// What? What it sends. What?", "1 What it"),
            (
                "//! How it works.\n\n/// Which rank.\nfn f() {}\n    /// Whose it is.\n",
                "1 How!, 3 Which!, 5 Whose!",
            ),
            ("// A rank.\n/// Where it is.", "2 Where!"),
            ("/// A rank.\n/// Which one.\n\n// How it works.\n\n/// Whether. However. Wherever.", ""),
            // Words on two lines have the first line.
            ("\n    /// all but those\n    /// that wait", "2 those that"),
            ("// those\n\n// that", ""),
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
        let files = [("x/a.rs", "// whoever\n\n/// How."), ("x/y/b.rs", &"\n// what is\n".repeat(7))];
        let riddles: Vec<Riddle> =
            files.iter().flat_map(|(path, text)| riddles(&Source { path, text })).collect();
        let found: Vec<String> = check(&["x", "x/y"], &riddles).iter().map(Violation::to_string).collect();
        let is_said = |text: &str| found.iter().any(|line| line.starts_with(text));
        assert!(is_said("x/Cargo.toml:1: pronouns: 1, at most 0: x/a.rs:1 \"whoever\""), "{found:?}");
        assert!(is_said("x/Cargo.toml:1: questions: 1, at most 0: x/a.rs:3 \"How\""), "{found:?}");
        let many = found.iter().find(|line| line.starts_with("x/y/Cargo.toml:1: pronouns: 7")).unwrap();
        assert_eq!(many.matches("x/y/b.rs:").count(), PLACES_SHOWN_MAX);
    }
}
