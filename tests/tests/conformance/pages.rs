//! Pages of documentation that say what the code says.

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
