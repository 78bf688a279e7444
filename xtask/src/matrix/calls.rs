//! The kinds of calls that the suite has made, counted: operations, backends, forms, operators and types.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::tool::{Outcome, at, read};

/// The titles of the three tables of the page.
const TITLES: [&str; 3] = [
    "Pairs of an element type and an operator, by operation and backend",
    "Pairs of an element type and an operator, by operation and form",
    "Operations, by operator and element type",
];

/// The numbers of different values by title, row and column.
pub(super) type Counts = BTreeMap<[String; 3], usize>;

/// Counts the calls in all files of a folder.
pub(super) fn counts(folder: &Path) -> Outcome<Counts> {
    let mut values = BTreeMap::<[String; 3], BTreeSet<String>>::new();
    for file in fs::read_dir(folder).map_err(at(folder))? {
        for line in read(&file.map_err(at(folder))?.path())?.lines() {
            // As `tests/src/calls_made.rs` writes it.
            let [backend, operation, dtype, op, form] = line.split('\t').collect::<Vec<_>>()[..] else {
                return Err(format!("{}: {line:?}", folder.display()));
            };
            let pair = format!("{dtype} {op}");
            let of_forms = form.split(' ').map(|form| ([TITLES[1], operation, form], &*pair));
            let others = [([TITLES[0], operation, backend], &*pair), ([TITLES[2], op, dtype], operation)];
            for (cell, value) in of_forms.chain(others) {
                values.entry(cell.map(str::to_owned)).or_default().insert(value.to_owned());
            }
        }
    }
    Ok(values.into_iter().map(|(cell, values)| (cell, values.len())).collect())
}

pub(super) fn tables(counts: &Counts) -> String {
    let mut page = String::new();
    for title in TITLES {
        let own = || counts.keys().filter(|cell| cell[0] == title);
        let rows: BTreeSet<&String> = own().map(|cell| &cell[1]).collect();
        let columns: BTreeSet<&String> = own().map(|cell| &cell[2]).collect();
        page += &format!("\n### {title}\n\n| |");
        columns.iter().for_each(|column| page += &format!(" {column} |"));
        page += &format!("\n| --- |{}\n", " ---: |".repeat(columns.len()));
        for row in rows {
            page += &format!("| {row} |");
            for &column in &columns {
                let count = counts.get(&[title.to_owned(), row.clone(), column.clone()]);
                page += &count.map_or_else(|| " |".to_owned(), |count| format!(" {count} |"));
            }
            page += "\n";
        }
    }
    page
}

/// Each number in the page's tables that is higher than in this run, in words. A column that this run lacks is of a
/// backend that this machine lacks.
pub(super) fn fewer(page: &str, run: &Counts) -> Vec<String> {
    let (mut title, mut columns, mut fell) = ("", Vec::<&str>::new(), Vec::new());
    for line in page.lines() {
        if line.starts_with('#') {
            (title, columns) = (line.trim_start_matches("### "), Vec::new());
        }
        let words: Vec<&str> = line.split('|').map(str::trim).collect();
        for (column, count) in columns.iter().zip(&words).skip(2) {
            let cell = [title, words[1], column].map(str::to_owned);
            let here = run.get(&cell).copied().unwrap_or_default();
            let is_known = run.keys().any(|known| known[0] == title && known[2] == *column);
            if is_known && count.parse().is_ok_and(|count: usize| here < count) {
                fell.push(format!("{title}: {}, {column}: {here}, and {count} on the page", words[1]));
            }
        }
        if columns.is_empty() && line.starts_with('|') {
            columns = words;
        }
    }
    fell
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(lines: &[&str]) -> Counts {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("1"), lines.join("\n")).unwrap();
        super::counts(folder.path()).unwrap()
    }

    #[test]
    fn kinds_are_counted_once_in_each_cell() {
        let tables = tables(&counts(&[
            "tcp\tall_reduce\tf32\tsum\tblocking",
            "tcp\tall_reduce\tf32\tsum\tblocking in-place",
            "tcp\tall_reduce\ti8\tsum\tblocking",
            "solo\tbarrier\t-\t-\tasynchronous",
        ]));
        assert!(tables.contains("| all_reduce | | 2 |\n| barrier | 1 | |\n"), "{tables}");
        assert!(tables.contains("| all_reduce | | 2 | 1 |\n"), "{tables}");
    }

    #[test]
    fn a_count_that_fell_is_told() {
        let both = ["tcp\tall_reduce\tf32\tsum\tblocking", "tcp\tall_reduce\ti8\tsum\tblocking"];
        let (page, run) = (counts(&both), counts(&both[..1]));
        let told = fewer(&tables(&page), &run);
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].ends_with(": all_reduce, tcp: 1, and 2 on the page"), "{told:?}");
        assert!(fewer(&tables(&run), &page).is_empty() && fewer(&tables(&page), &Counts::new()).is_empty());
    }
}
