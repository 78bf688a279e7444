//! The rule over a package's comments: the number of pronouns that stand for a noun, and of documentation that opens
//! with a question word.

use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;

use super::source::{Source, Violation};

const RULE: &str = "english";

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

/// A package, and the numbers of riddles and of openings in its comments; 0 without a row. A row is exact: every
/// comment that is rewritten lowers it.
type Row = (&'static str, usize, usize);

const LIMITS: &[Row] = &[
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

/// A file's text as comments and as literals, which may look like comments. An unclosed literal is no Rust.
const COMMENTS_AND_LITERALS: &str = r##"(?x)
    //(?<text>[^\n]*)
    | (?s: /\*.*?\*/ )
    | r"[^"]*" | (?s: r\#".*?"\# ) | (?s: r\#\#".*?"\#\# )
    | "(?: \\(?s:.) | [^"\\] )*"
    | '(?: \\.[^'\n]* | [^'\\\n] )'
"##;

fn compiled(expression: &str) -> Regex {
    #[expect(clippy::expect_used, reason = "the expressions are constants, and each test uses them")]
    Regex::new(expression).expect("a constant expression is valid")
}

static WORDS: LazyLock<Regex> = LazyLock::new(|| compiled(RIDDLES));
static FIRST_WORDS: LazyLock<Regex> = LazyLock::new(|| compiled(OPENINGS));
static LEXER: LazyLock<Regex> = LazyLock::new(|| compiled(COMMENTS_AND_LITERALS));

/// One riddle in a comment, or one opening.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Riddle {
    path: String,
    line: usize,
    words: String,
    opens: bool,
}

/// The riddles and openings of a Rust file. The lines of one comment are one text: its words may be on two lines.
pub(super) fn riddles(source: &Source<'_>) -> Vec<Riddle> {
    let path = source.path;
    let riddle =
        |line, words: &str, opens| Riddle { path: path.to_owned(), line, words: words.to_owned(), opens };
    let mut riddles = Vec::new();
    for comment in comments(source.text) {
        let (mut text, mut starts, mut in_docs) = (String::new(), Vec::new(), false);
        for (line, range) in comment {
            let (whole, was_in_docs) = (&source.text[range], in_docs);
            let words = whole.trim_start_matches(['/', '!']).trim();
            in_docs = whole.starts_with(['/', '!']);
            let opening = FIRST_WORDS.find(words).filter(|_| in_docs && !was_in_docs);
            riddles.extend(opening.map(|found| riddle(line, found.as_str(), true)));
            starts.push((text.len(), line));
            text.push_str(words);
            text.push(' ');
        }
        for found in WORDS.captures_iter(&text).filter(|found| found.name("question").is_none()) {
            let place = found.get_match();
            let start = starts.iter().rev().find(|(start, _)| *start <= place.start());
            riddles.push(riddle(start.map_or(1, |(_, line)| *line), place.as_str(), false));
        }
    }
    riddles
}

/// The comments after `//`, each as its lines: the number and the place of the text. Only lines that stand alone and
/// follow each other are one comment.
fn comments(text: &str) -> Vec<Vec<(usize, Range<usize>)>> {
    let mut comments: Vec<Vec<(usize, Range<usize>)>> = Vec::new();
    let (mut line, mut seen) = (1, 0);
    for found in LEXER.captures_iter(text) {
        let Some(comment) = found.name("text") else { continue };
        let between = &text[seen..comment.start()];
        line += between.matches('\n').count();
        let goes_on = seen > 0 && between.trim() == "//" && !comments.is_empty();
        seen = comment.end();
        let piece = (line, comment.range());
        match comments.last_mut() {
            Some(last) if goes_on && last.last().is_some_and(|(before, _)| before + 1 == line) => {
                last.push(piece)
            }
            _ => comments.push(vec![piece]),
        }
    }
    comments
}

/// Every package with other numbers than its row. `paths` are all files of the repository.
pub(super) fn check(paths: &[String], riddles: &[Riddle]) -> Vec<Violation> {
    check_table(paths, riddles, LIMITS)
}

fn check_table(paths: &[String], riddles: &[Riddle], table: &[Row]) -> Vec<Violation> {
    let packages: Vec<&str> = paths.iter().filter_map(|path| path.strip_suffix("/Cargo.toml")).collect();
    let gone = table.iter().filter(|(name, ..)| !packages.contains(name)).map(|(name, ..)| {
        let text = "a row of xtask/src/tidy/english.rs, but no package".to_owned();
        Violation { path: (*name).to_owned(), line: 1, rule: RULE, text }
    });
    let judged = packages.iter().flat_map(|package| {
        let own = |riddle: &&Riddle| package_of(&packages, &riddle.path) == Some(package);
        let (openings, own): (Vec<_>, Vec<_>) = riddles.iter().filter(own).partition(|riddle| riddle.opens);
        let row = table.iter().find(|(name, ..)| name == package);
        let (own_max, openings_max) = row.map_or((0, 0), |row| (row.1, row.2));
        let riddles = check_package(package, &own, own_max, "pronouns in place of nouns");
        riddles.into_iter().chain(check_package(package, &openings, openings_max, "question words first"))
    });
    judged.chain(gone).collect()
}

/// The innermost package around a file.
fn package_of<'a>(packages: &[&'a str], path: &str) -> Option<&'a str> {
    let is_around = |package: &&str| path.strip_prefix(package).is_some_and(|rest| rest.starts_with('/'));
    packages.iter().copied().filter(is_around).max_by_key(|package| package.len())
}

fn check_package(package: &str, riddles: &[&Riddle], limit: usize, kind: &str) -> Option<Violation> {
    let count = riddles.len();
    let text = if count < limit {
        format!("lower its row in xtask/src/tidy/english.rs to {count} {kind}")
    } else if count > limit {
        let shown = &riddles[count.saturating_sub(PLACES_SHOWN_MAX)..];
        let place = |riddle: &&Riddle| format!("{}:{} \"{}\"", riddle.path, riddle.line, riddle.words);
        let places: Vec<String> = shown.iter().map(place).collect();
        format!("{package} has {count} {kind}, at most {limit}: ... {}", places.join(", "))
    } else {
        return None;
    };
    Some(Violation { path: format!("{package}/Cargo.toml"), line: 1, rule: RULE, text })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<(usize, String)> {
        let riddles = riddles(&Source { path: "x/src/lib.rs", text });
        riddles.into_iter().filter(|riddle| !riddle.opens).map(|riddle| (riddle.line, riddle.words)).collect()
    }

    fn words(text: &str) -> Vec<String> {
        found(text).into_iter().map(|(_, words)| words).collect()
    }

    #[test]
    fn pronouns_in_all_kinds_of_comments_count() {
        for (text, counted) in [
            (
                "//! Whoever waits.\n\n/// Those that wait.\n// What is left.",
                "Whoever waits, Those that, What is",
            ),
            ("fn f() {} // one whose rank", "one whose"),
            ("// Who reads it. A rank who reads it. The rank reads it.", "Who reads"),
            ("// Does what `f` does, whatever it has, whichever side.", "what, whatever it, whichever side"),
            ("// Its time is that of a call, those of two, those in it.", "that of, those of, those in"),
            ("// The one before it is the one. That which waits.", "The one before, the one., That which"),
            ("// What does a rank send? One of the ranks. The one rank. Those ranks. It says that.", ""),
            ("// What? What it sends. What?", "What it"),
        ] {
            assert_eq!(words(text).join(", "), counted, "{text}");
        }
    }

    #[test]
    fn documentation_that_opens_with_a_question_word_counts() {
        let opens = |text| riddles(&Source { path: "x", text }).iter().filter(|riddle| riddle.opens).count();
        assert_eq!(opens("//! How it works.\n\n/// What it does.\nfn f() {}\n    /// Whose it is.\n"), 3);
        assert_eq!(opens("// A rank.\n/// Where it is."), 1);
        assert_eq!(
            opens("/// A rank.\n/// Which one.\n\n// How it works.\n\n/// Whether. However. Wherever."),
            0
        );
    }

    #[test]
    fn words_on_two_lines_count_and_have_the_first_line() {
        assert_eq!(found("\n    /// all but those\n    /// that wait"), [(2, "those that".to_owned())]);
        assert_eq!(found("// those\n\n// that"), []);
        assert_eq!(found("let x = 1; // those\nlet y = 2; // that"), []);
        assert_eq!(found("// a\n// b\n// c one that\n"), [(3, "one that".to_owned())]);
    }

    #[test]
    fn code_and_literals_do_not_count() {
        for text in [
            "fn whoever() {}",
            r#"f("// whoever");"#,
            r#"f("\"// whoever");"#,
            "f(r#\"a\" // whoever\"#);",
            "f(r\"\\\"); g(\"// whoever\");",
            "f(\"a\n// whoever\");",
            "f('\"', \"// whoever\");",
            "f('\\'', \"// whoever\");",
            "f::<'a>(\"// whoever\");",
        ] {
            assert_eq!(found(text), [], "{text}");
        }
        assert_eq!(words("f('\"'); // whoever \"").len(), 1);
    }

    /// The violations of a package that has these files and this row.
    fn said_of(limit: usize, files: &[(&str, &str)]) -> Vec<String> {
        let riddles: Vec<Riddle> =
            files.iter().flat_map(|(path, text)| riddles(&Source { path, text })).collect();
        let paths = ["x/Cargo.toml".to_owned(), "x/y/Cargo.toml".to_owned()];
        check_table(&paths, &riddles, &[("x", limit, 1)]).iter().map(Violation::to_string).collect()
    }

    #[test]
    fn too_many_name_the_last_places() {
        let text = "x/Cargo.toml:1: english: x has 2 pronouns in place of nouns, at most 1: ... \
                    x/a.rs:1 \"whoever\", x/tests/b.rs:2 \"what is\"";
        let files = [("x/a.rs", "// whoever\n\n/// How."), ("x/tests/b.rs", "\n// what is")];
        assert_eq!(said_of(1, &files), [text]);
        assert_eq!(said_of(2, &files), [""; 0]);
        let many = "/// How.\n\n".repeat(7);
        let said = said_of(0, &[("x/a.rs", &many)]);
        assert!(said[0].contains("x has 7 question words first, at most 1: ... "), "{said:?}");
        assert_eq!(said[0].matches("x/a.rs:").count(), PLACES_SHOWN_MAX);
    }

    #[test]
    fn a_row_is_exact() {
        let text = "x/Cargo.toml:1: english: lower its row in xtask/src/tidy/english.rs to ";
        let said = [format!("{text}1 pronouns in place of nouns"), format!("{text}0 question words first")];
        assert_eq!(said_of(2, &[("x/a.rs", "// whoever")]), said);
        let gone = check_table(&[], &[], &[("x", 2, 0)]);
        assert_eq!(gone[0].to_string(), "x:1: english: a row of xtask/src/tidy/english.rs, but no package");
    }

    #[test]
    fn a_file_counts_for_the_innermost_package() {
        let files = ["x/y/src/a.rs", "xy/a.rs", "x/a.rs"].map(|path| (path, "/// How."));
        let list = said_of(0, &files);
        assert_eq!(list.len(), 1, "{list:?}");
        assert!(list[0].starts_with("x/y/Cargo.toml:1: english: x/y has 1 question"), "{list:?}");
    }
}
