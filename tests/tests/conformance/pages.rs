//! Pages of documentation that say what the code says.

use std::collections::HashSet;

use unisono_communicator::ErrorCode;

/// The compiler checks that each variant has a code and that no two have the same number; this checks the page.
#[test]
fn the_page_of_errors_lists_every_code() {
    let page = include_str!("../../../docs/errors.md");
    let cells = |line: &str| {
        let mut cells = line.strip_prefix("| ")?.split(" | ");
        Some((cells.next()?.parse().ok()?, cells.next()?.trim_matches('`').to_owned()))
    };
    let rows: Vec<(u16, String)> = page.lines().filter_map(cells).collect();
    let codes: Vec<_> = ErrorCode::ALL.iter().map(|code| (code.number(), code.name().to_owned())).collect();
    assert_eq!(rows, codes);
    let has_no_gap = codes.iter().zip(1..).all(|(code, number)| code.0 == number);
    assert!(has_no_gap, "no number is left out or used again");
}

/// Fewer names mean that the test no longer finds the tables.
const PORTED_NAMES_MIN: usize = 150;

/// The parts of a text between characters that no name has.
fn names(text: &str) -> impl Iterator<Item = &str> {
    text.split(|character: char| !character.is_alphanumeric() && character != '_')
        .filter(|name| !name.is_empty())
}

/// A call in a table, without its arguments: `split(Some(colour), key)` is `split`, `group().id()` stays.
fn without_arguments(call: &str) -> &str {
    let mut opened = call.match_indices('(').map(|(at, _)| at);
    opened.find(|at| !call[at + 1..].starts_with(')')).map_or(call, |at| &call[..at])
}

/// Each name of ours in a table of the page is in a program of the same section, which the compiler sees. Variables and
/// the program `unisono` are no names of Rust.
#[test]
fn the_page_about_porting_has_a_compiled_line_for_each_row() {
    let mut found = 0;
    for section in include_str!("../../../docs/porting.md").split("\n## ").skip(1) {
        let (title, _) = section.split_once('\n').expect("a title");
        let parts: Vec<&str> = section.split("```").collect();
        let (texts, programs) = (parts.iter().step_by(2), parts.iter().skip(1).step_by(2));
        let compiled: HashSet<&str> = programs.flat_map(|program| names(program)).collect();
        let mut is_ours = false;
        for line in texts.flat_map(|text| text.lines()) {
            is_ours = line.ends_with("| unisono |") || is_ours && line.starts_with('|');
            let (_, cell) = line.trim_end_matches(" |").rsplit_once("| ").unwrap_or_default();
            let codes = cell.split('`').skip(1).step_by(2);
            let is_rust = |code: &&str| !code.starts_with("UNISONO_") && !code.starts_with("unisono ");
            for code in codes.filter(|code| is_ours && is_rust(code)) {
                let missing = names(without_arguments(code)).find(|name| !compiled.contains(name));
                assert_eq!(missing, None, "`{code}` in the section {title:?}");
                found += 1;
            }
        }
    }
    assert!(found >= PORTED_NAMES_MIN, "{found} names");
}
