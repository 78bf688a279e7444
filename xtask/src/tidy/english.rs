//! The rule over a package's comments: how many pronouns stand for a thing that a noun would name.

use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;

use super::source::{Source, Violation};

const RULE: &str = "english";

/// The words that count. Such a pronoun sends the reader back for its noun; "unread messages" sends nobody back.
const RIDDLES: &str = r"(?x)
    \b(?i:those|ones?)\ (that|which|who|whose)\b  # Those that it waits for; one that it knows.
    | \b(?i:what)\ (is|was|are|were|has|had)\b    # What is no text; what has arrived.
    | \b(?i:whoever)\b                            # Whoever waits.
    | \bWho\ [a-z]+\b                             # Who reads one file; not `a rank who`.
";

/// How many riddles the comments of a package have; 0 without a row. A row is exact: every comment that is rewritten
/// lowers it.
const LIMITS: &[(&str, usize)] = &[
    ("benches", 2),
    ("benches/compare", 28),
    ("benches/gpu-check", 8),
    ("benches/soak", 21),
    ("crates/compression", 74),
    ("crates/compression-cuda", 8),
    ("crates/compression-npu", 5),
    ("crates/compression-wgpu", 21),
    ("crates/control", 4),
    ("crates/cuda", 14),
    ("crates/offload-ccl", 8),
    ("crates/offload-hccl", 17),
    ("crates/offload-nccl", 22),
    ("crates/unisono", 3),
    ("crates/unisono-cli", 76),
    ("crates/vendor-library", 15),
    ("kernels", 11),
    ("tests", 89),
    ("tests/doubles/common", 41),
    ("tests/doubles/hccl", 5),
    ("tests/doubles/nccl", 13),
    ("tests/vendors", 6),
    ("xtask", 26),
];

/// How many places a violation shows.
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
    // INVARIANT: the expressions of this file are constants, and each test uses them.
    Regex::new(expression).expect("a constant expression is valid")
}

static WORDS: LazyLock<Regex> = LazyLock::new(|| compiled(RIDDLES));
static LEXER: LazyLock<Regex> = LazyLock::new(|| compiled(COMMENTS_AND_LITERALS));

/// One riddle in a comment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Riddle {
    path: String,
    line: usize,
    words: String,
}

/// The riddles of a Rust file. The lines of one comment are one text: its words may be on two lines.
pub(super) fn riddles(source: &Source<'_>) -> Vec<Riddle> {
    let mut riddles = Vec::new();
    for comment in comments(source.text) {
        let mut text = String::new();
        let mut starts = Vec::new();
        for (line, range) in comment {
            starts.push((text.len(), line));
            text.push_str(source.text[range].trim_start_matches(['/', '!']).trim());
            text.push(' ');
        }
        for found in WORDS.find_iter(&text) {
            let line =
                starts.iter().rev().find(|(start, _)| *start <= found.start()).map_or(1, |(_, line)| *line);
            let words = found.as_str().to_owned();
            riddles.push(Riddle { path: source.path.to_owned(), line, words });
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

/// Every package whose number of riddles is not what its row says. `paths` are all files of the repository.
pub(super) fn check(paths: &[String], riddles: &[Riddle]) -> Vec<Violation> {
    check_table(paths, riddles, LIMITS)
}

fn check_table(paths: &[String], riddles: &[Riddle], table: &[(&str, usize)]) -> Vec<Violation> {
    let packages: Vec<&str> = paths.iter().filter_map(|path| path.strip_suffix("/Cargo.toml")).collect();
    let gone = table.iter().filter(|(name, _)| !packages.contains(name)).map(|(name, _)| {
        let text = "a row of xtask/src/tidy/english.rs, but no package".to_owned();
        Violation { path: (*name).to_owned(), line: 1, rule: RULE, text }
    });
    let judged = packages.iter().filter_map(|package| {
        let own: Vec<&Riddle> =
            riddles.iter().filter(|riddle| package_of(&packages, &riddle.path) == Some(package)).collect();
        let limit = table.iter().find(|(name, _)| name == package).map_or(0, |(_, limit)| *limit);
        check_package(package, &own, limit)
    });
    judged.chain(gone).collect()
}

/// The innermost package around a file.
fn package_of<'a>(packages: &[&'a str], path: &str) -> Option<&'a str> {
    let is_around = |package: &&str| path.strip_prefix(package).is_some_and(|rest| rest.starts_with('/'));
    packages.iter().copied().filter(is_around).max_by_key(|package| package.len())
}

fn check_package(package: &str, riddles: &[&Riddle], limit: usize) -> Option<Violation> {
    let count = riddles.len();
    let text = if count < limit {
        format!("lower its row in xtask/src/tidy/english.rs to {count}")
    } else if count > limit {
        let shown = &riddles[count.saturating_sub(PLACES_SHOWN_MAX)..];
        let place = |riddle: &&Riddle| format!("{}:{} \"{}\"", riddle.path, riddle.line, riddle.words);
        let places: Vec<String> = shown.iter().map(place).collect();
        format!(
            "{package} has {count} pronouns in place of nouns, at most {limit}: ... {}",
            places.join(", ")
        )
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
        riddles.into_iter().map(|riddle| (riddle.line, riddle.words)).collect()
    }

    fn words(text: &str) -> Vec<String> {
        found(text).into_iter().map(|(_, words)| words).collect()
    }

    #[test]
    fn pronouns_in_all_kinds_of_comments_count() {
        assert_eq!(
            words("//! Whoever waits.\n\n/// Those that wait.\n// What is left."),
            ["Whoever", "Those that", "What is"]
        );
        assert_eq!(words("fn f() {} // one whose rank"), ["one whose"]);
        assert_eq!(
            words("// Who reads it. A rank who reads it. The rank reads what it sent."),
            ["Who reads"]
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

    /// What the rule says of a package that has these files and this row.
    fn said_of(limit: usize, files: &[(&str, &str)]) -> Vec<String> {
        let riddles: Vec<Riddle> =
            files.iter().flat_map(|(path, text)| riddles(&Source { path, text })).collect();
        let paths = ["x/Cargo.toml".to_owned(), "x/y/Cargo.toml".to_owned()];
        check_table(&paths, &riddles, &[("x", limit)]).iter().map(Violation::to_string).collect()
    }

    #[test]
    fn too_many_name_the_last_places() {
        let text = "x/Cargo.toml:1: english: x has 2 pronouns in place of nouns, at most 1: ... \
                    x/a.rs:1 \"whoever\", x/tests/b.rs:2 \"what is\"";
        let files = [("x/a.rs", "// whoever"), ("x/tests/b.rs", "\n// what is")];
        assert_eq!(said_of(1, &files), [text]);
        assert_eq!(said_of(2, &files), [""; 0]);
        let many = "// whoever\n".repeat(7);
        assert_eq!(said_of(0, &[("x/a.rs", &many)])[0].matches("x/a.rs:").count(), PLACES_SHOWN_MAX);
    }

    #[test]
    fn a_row_is_exact() {
        let text = "x/Cargo.toml:1: english: lower its row in xtask/src/tidy/english.rs to 1";
        assert_eq!(said_of(2, &[("x/a.rs", "// whoever")]), [text]);
        let gone = check_table(&[], &[], &[("x", 2)]);
        assert_eq!(gone[0].to_string(), "x:1: english: a row of xtask/src/tidy/english.rs, but no package");
    }

    #[test]
    fn a_file_counts_for_the_innermost_package() {
        let list = said_of(0, &[("x/y/src/a.rs", "// whoever"), ("xy/a.rs", "// whoever")]);
        assert_eq!(list.len(), 1, "{list:?}");
        assert!(list[0].starts_with("x/y/Cargo.toml:1: english: x/y has 1"), "{list:?}");
    }
}
