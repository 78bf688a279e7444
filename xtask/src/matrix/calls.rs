//! The kinds of calls that the suite has made, counted: operations, backends, forms, operators and types.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use crate::tool::{Outcome, at, read};

/// A kind of call, as `tests/src/calls_made.rs` writes it: backend, operation, dtype, operator, form.
pub(super) type Kind = [String; 5];

/// The kinds in all files of a folder; none where there is no folder.
pub(super) fn kinds(folder: &Path) -> Outcome<BTreeSet<Kind>> {
    let files = match fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(BTreeSet::new()),
        files => files.map_err(at(folder))?,
    };
    let mut kinds = BTreeSet::new();
    for file in files {
        for line in read(&file.map_err(at(folder))?.path())?.lines() {
            let words: Vec<String> = line.split('\t').map(str::to_owned).collect();
            kinds.insert(words.try_into().map_err(|_| format!("{}: {line:?}", folder.display()))?);
        }
    }
    Ok(kinds)
}

/// The three tables of the page.
pub(super) fn tables(kinds: &BTreeSet<Kind>) -> String {
    let pair = |dtype: &str, op: &str| format!("{dtype} {op}");
    let of_backends =
        kinds.iter().map(|[backend, operation, dtype, op, _]| (operation, &**backend, pair(dtype, op)));
    let of_forms = kinds.iter().flat_map(|[_, operation, dtype, op, form]| {
        form.split(' ').map(move |form| (operation, form, pair(dtype, op)))
    });
    let of_ops = kinds.iter().map(|[_, operation, dtype, op, _]| (op, &**dtype, operation.clone()));
    table("Pairs of an element type and an operator, by operation and backend", of_backends)
        + &table("Pairs of an element type and an operator, by operation and form", of_forms)
        + &table("Operations, by operator and element type", of_ops)
}

/// Counts the different values in each cell, by row and column.
fn table<'a>(title: &str, values: impl Iterator<Item = (&'a String, &'a str, String)>) -> String {
    let (mut cells, mut columns) = (BTreeMap::<_, BTreeMap<_, BTreeSet<_>>>::new(), BTreeSet::new());
    for (row, column, value) in values {
        cells.entry(row).or_default().entry(column).or_default().insert(value);
        columns.insert(column);
    }
    let mut table = format!("\n### {title}\n\n| |");
    columns.iter().for_each(|column| table += &format!(" {column} |"));
    table += &format!("\n| --- |{}\n", " ---: |".repeat(columns.len()));
    for (row, counts) in cells {
        let count = |column| {
            counts.get(column).map_or_else(|| " |".to_owned(), |found| format!(" {} |", found.len()))
        };
        table += &format!("| {row} |{}\n", columns.iter().map(count).collect::<String>());
    }
    table
}

/// Each cell of the page's tables that has a lower count in this run, in words. A column that this run lacks is of a
/// backend that this machine lacks.
pub(super) fn fewer(page: &str, run: &str) -> Vec<String> {
    let (before, now) = (cells(page), cells(run));
    let columns: BTreeSet<(&str, &str)> =
        now.keys().map(|(title, _, column)| (title.as_str(), column.as_str())).collect();
    let fell = before.iter().filter_map(|(cell @ (title, row, column), &count)| {
        let here = now.get(cell).copied().unwrap_or_default();
        let is_known = columns.contains(&(title.as_str(), column.as_str()));
        (is_known && here < count)
            .then(|| format!("{title}: {row}, {column}: {here}, and {count} on the page"))
    });
    fell.collect()
}

/// The numbers of the tables under headings of the third level, by heading, row and column.
fn cells(page: &str) -> BTreeMap<(String, String, String), usize> {
    let (mut title, mut columns, mut found) = (None, Vec::new(), BTreeMap::new());
    for line in page.lines() {
        if line.starts_with('#') {
            (title, columns) = (line.strip_prefix("### "), Vec::new());
        }
        let (Some(title), Some(row)) = (title, line.strip_prefix('|')) else { continue };
        let words: Vec<&str> = row.split('|').map(str::trim).collect();
        if columns.is_empty() {
            columns = words;
            continue;
        }
        let numbers = columns.iter().zip(&words).skip(1);
        found.extend(numbers.filter_map(|(column, word)| {
            let cell = (title.to_owned(), words[0].to_owned(), (*column).to_owned());
            Some((cell, word.parse().ok()?))
        }));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(lines: &[&str]) -> BTreeSet<Kind> {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("1"), lines.join("\n")).unwrap();
        super::kinds(folder.path()).unwrap()
    }

    #[test]
    fn kinds_are_counted_once_in_each_cell() {
        let tables = tables(&kinds(&[
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
        let (page, run) = (tables(&kinds(&both)), tables(&kinds(&both[..1])));
        let told = fewer(&page, &run);
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].ends_with(": all_reduce, tcp: 1, and 2 on the page"), "{told:?}");
        assert!(fewer(&run, &page).is_empty() && fewer(&page, "").is_empty());
    }
}
