//! The kinds of calls that the suite has made, counted: operations, backends, forms, operators and types.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

/// A kind of call, as `tests/src/calls_made.rs` writes it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Kind {
    backend: String,
    operation: String,
    dtype: String,
    op: String,
    form: String,
}

/// Counts by row and column.
type Counts = BTreeMap<(String, String), usize>;

/// The kinds in all files of a folder; none where there is no folder.
pub(super) fn read(folder: &Path) -> Result<BTreeSet<Kind>, String> {
    let said = |error: std::io::Error| format!("{}: {error}", folder.display());
    let files = match fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(BTreeSet::new()),
        files => files.map_err(said)?,
    };
    let mut kinds = BTreeSet::new();
    for file in files {
        let text = fs::read_to_string(file.map_err(said)?.path()).map_err(said)?;
        for line in text.lines() {
            let mut words = line.split('\t').map(str::to_owned);
            let mut word = || words.next().ok_or_else(|| format!("{}: {line:?}", folder.display()));
            kinds.insert(Kind {
                backend: word()?,
                operation: word()?,
                dtype: word()?,
                op: word()?,
                form: word()?,
            });
        }
    }
    Ok(kinds)
}

/// The three tables of the page.
pub(super) fn tables(kinds: &BTreeSet<Kind>) -> String {
    let cell = |row: &str, column: &str| (row.to_owned(), column.to_owned());
    let of_backends = counted(kinds, |kind| vec![cell(&kind.operation, &kind.backend)], pair);
    let forms = |kind: &Kind| kind.form.split(' ').map(|form| cell(&kind.operation, form)).collect();
    let of_forms = counted(kinds, forms, pair);
    let of_ops = counted(kinds, |kind| vec![cell(&kind.op, &kind.dtype)], |kind| kind.operation.clone());
    let mut page = String::new();
    let parts = [
        ("Pairs of an element type and an operator, by operation and backend", of_backends),
        ("Pairs of an element type and an operator, by operation and form", of_forms),
        ("Operations, by operator and element type", of_ops),
    ];
    for (title, counts) in parts {
        // Writing into a string cannot fail.
        let _ = write!(page, "\n### {title}\n\n{}", table(&counts));
    }
    page
}

fn pair(kind: &Kind) -> String {
    format!("{} {}", kind.dtype, kind.op)
}

/// The number of different values of the kinds in each cell.
fn counted(
    kinds: &BTreeSet<Kind>,
    cells: impl Fn(&Kind) -> Vec<(String, String)>,
    value: impl Fn(&Kind) -> String,
) -> Counts {
    let mut values: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    for kind in kinds {
        for cell in cells(kind) {
            values.entry(cell).or_default().insert(value(kind));
        }
    }
    values.into_iter().map(|(cell, values)| (cell, values.len())).collect()
}

fn table(counts: &Counts) -> String {
    let rows: BTreeSet<&str> = counts.keys().map(|(row, _)| row.as_str()).collect();
    let columns: BTreeSet<&str> = counts.keys().map(|(_, column)| column.as_str()).collect();
    let mut table = String::from("| |");
    columns.iter().for_each(|column| table += &format!(" {column} |"));
    table += "\n| --- |";
    columns.iter().for_each(|_| table += " ---: |");
    table += "\n";
    for row in rows {
        table += &format!("| {row} |");
        for column in &columns {
            let count = counts.get(&(row.to_owned(), (*column).to_owned()));
            table += &count.map_or_else(|| " |".to_owned(), |count| format!(" {count} |"));
        }
        table += "\n";
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
        read(folder.path()).unwrap()
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
