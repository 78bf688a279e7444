//! The raw figures as a file: a head of `# key value` lines, then one row per turn. Every table and picture can be made
//! again from it.

use std::fmt;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::str::FromStr;

use unisono_compare::Measured;

use crate::plan::{Cell, Configuration};
use crate::problem::{Problem, Result, While};
use crate::systems::Role;

/// The columns. The congestion control and the scheduling are in the configuration.
pub(crate) const COLUMNS: &str = "configuration,round,session,system,op,ranks,bytes,median_us,min_us,blocks,calls,ok,\
                                  probe_before_us,probe_after_us,good";

/// One turn.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) configuration: Configuration,
    /// Of this configuration.
    pub(crate) round: u32,
    pub(crate) session: u32,
    pub(crate) system: String,
    pub(crate) cell: Cell,
    pub(crate) measured: Measured,
    pub(crate) probe_before_us: f64,
    pub(crate) probe_after_us: f64,
    /// As far as was known when it was written; reports decide by the whole run.
    pub(crate) good: bool,
}

impl fmt::Display for Row {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Row { configuration, round, session, system, cell, measured, .. } = self;
        let Measured { median_us, min_us, blocks, calls, ok } = measured;
        let (operation, ranks, bytes) = (cell.operation, configuration.ranks, cell.bytes);
        write!(formatter, "{configuration},{round},{session},{system},{operation},{ranks},{bytes},")?;
        write!(formatter, "{median_us:.4},{min_us:.4},{blocks},{calls},{},", u8::from(*ok))?;
        write!(formatter, "{:.2},{:.2},{}", self.probe_before_us, self.probe_after_us, u8::from(self.good))
    }
}

impl FromStr for Row {
    type Err = String;

    fn from_str(line: &str) -> std::result::Result<Row, String> {
        fn read<T: FromStr>(name: &str, text: &str) -> std::result::Result<T, String> {
            text.parse().map_err(|_| format!("{text} is no {name}"))
        }
        let columns = COLUMNS.split(',').count();
        let fields: Vec<&str> = line.split(',').collect();
        if fields.len() != columns {
            return Err(format!("{} columns, not {columns}", fields.len()));
        }
        let configuration: Configuration = fields[0].parse()?;
        if read::<u32>("number of ranks", fields[5])? != configuration.ranks {
            return Err(format!("{} ranks in {configuration}", fields[5]));
        }
        Ok(Row {
            configuration,
            round: read("round", fields[1])?,
            session: read("session", fields[2])?,
            system: fields[3].to_owned(),
            cell: Cell { operation: fields[4].parse()?, bytes: read("size", fields[6])? },
            measured: Measured {
                median_us: read("time", fields[7])?,
                min_us: read("time", fields[8])?,
                blocks: read("count", fields[9])?,
                calls: read("count", fields[10])?,
                ok: read::<u8>("verdict", fields[11])? == 1,
            },
            probe_before_us: read("time", fields[12])?,
            probe_after_us: read("time", fields[13])?,
            good: read::<u8>("verdict", fields[14])? == 1,
        })
    }
}

/// A line of the head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Note {
    /// About the machine or the run: a name and what it is.
    Fact(String, String),
    /// A system: its name, what it is compared as, and its version as it says itself.
    System { name: String, role: Role, version: String },
    /// A system lost a cell, or could not be started at all.
    Loss { configuration: Configuration, system: String, cell: Option<Cell>, problem: String },
}

impl fmt::Display for Note {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Note::Fact(name, text) => write!(formatter, "# fact,{name},{text}"),
            Note::System { name, role, version } => {
                write!(formatter, "# system,{name},{},{version}", role.name())
            }
            Note::Loss { configuration, system, cell, problem } => {
                let (operation, bytes) = match cell {
                    Some(cell) => (cell.operation.name(), cell.bytes),
                    None => ("all", 0),
                };
                write!(formatter, "# loss,{configuration},{system},{operation},{bytes},{problem}")
            }
        }
    }
}

impl FromStr for Note {
    type Err = String;

    fn from_str(line: &str) -> std::result::Result<Note, String> {
        let problem = || format!("not a note: {line}");
        let (kind, rest) =
            line.strip_prefix("# ").and_then(|line| line.split_once(',')).ok_or_else(problem)?;
        let fields = |count| rest.splitn(count, ',').map(str::to_owned).collect::<Vec<String>>();
        match kind {
            "fact" => {
                let [name, text] = fields(2).try_into().map_err(|_| problem())?;
                Ok(Note::Fact(name, text))
            }
            "system" => {
                let [name, role, version] = fields(3).try_into().map_err(|_| problem())?;
                Ok(Note::System { name, role: Role::parse(&role).ok_or_else(problem)?, version })
            }
            "loss" => {
                let [configuration, system, operation, bytes, text] =
                    fields(5).try_into().map_err(|_| problem())?;
                let cell = match operation.as_str() {
                    "all" => None,
                    name => {
                        Some(Cell { operation: name.parse()?, bytes: bytes.parse().map_err(|_| problem())? })
                    }
                };
                Ok(Note::Loss { configuration: configuration.parse()?, system, cell, problem: text })
            }
            _ => Err(problem()),
        }
    }
}

/// Everything that a run found.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Record {
    pub(crate) notes: Vec<Note>,
    pub(crate) rows: Vec<Row>,
}

impl Record {
    pub(crate) fn read(path: &Path) -> Result<Record> {
        let text = std::fs::read_to_string(path).during(path.display().to_string())?;
        let mut record = Record::default();
        for (number, line) in (1..).zip(text.lines()) {
            let added = if line == COLUMNS || line.is_empty() {
                Ok(())
            } else if line.starts_with('#') {
                line.parse().map(|note| record.notes.push(note))
            } else {
                line.parse().map(|row| record.rows.push(row))
            };
            added.map_err(|problem| Problem::Malformed {
                file: path.display().to_string(),
                line: number,
                problem,
            })?;
        }
        Ok(record)
    }

    /// The systems without a figure, or with too few, because they failed.
    pub(crate) fn lost(&self, configuration: Configuration, cell: Cell) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for note in &self.notes {
            match note {
                Note::Loss { configuration: of, system, cell: what, .. }
                    if *of == configuration && what.is_none_or(|what| what == cell) =>
                {
                    names.push(system);
                }
                Note::Loss { .. } | Note::Fact(..) | Note::System { .. } => {}
            }
        }
        names.dedup();
        names
    }

    pub(crate) fn role(&self, system: &str) -> Option<Role> {
        self.notes.iter().find_map(|note| match note {
            Note::System { name, role, .. } if name == system => Some(*role),
            _ => None,
        })
    }
}

/// The record of a run under way: in memory, and on disk line by line, so that nothing is lost.
#[derive(Debug)]
pub(crate) struct Recorder {
    file: File,
    pub(crate) record: Record,
}

impl Recorder {
    pub(crate) fn create(path: &Path) -> Result<Recorder> {
        let mut file = File::create(path).during(path.display().to_string())?;
        writeln!(file, "{COLUMNS}").during("writing the raw figures")?;
        Ok(Recorder { file, record: Record::default() })
    }

    /// Notes are told once.
    pub(crate) fn note(&mut self, note: Note) -> Result<()> {
        if !self.record.notes.contains(&note) {
            writeln!(self.file, "{note}").during("writing the raw figures")?;
            self.record.notes.push(note);
        }
        Ok(())
    }

    pub(crate) fn row(&mut self, row: Row) -> Result<()> {
        writeln!(self.file, "{row}").during("writing the raw figures")?;
        self.record.rows.push(row);
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use unisono::Collective;

    use super::*;

    /// A row with these figures and all else equal.
    pub(crate) fn row(system: &str, round: u32, median_us: f64, probe_us: f64) -> Row {
        Row {
            configuration: "n2-rr-reno".parse().unwrap(),
            round,
            session: 0,
            system: system.to_owned(),
            cell: Cell { operation: Collective::AllReduce.into(), bytes: 64 },
            measured: Measured { median_us, min_us: median_us / 2.0, blocks: 10, calls: 100, ok: true },
            probe_before_us: probe_us,
            probe_after_us: probe_us,
            good: true,
        }
    }

    #[test]
    fn a_record_can_be_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("raw.csv");
        let mut recorder = Recorder::create(&path).unwrap();
        let configuration = "n2-rr-reno".parse().unwrap();
        let cell = row("x", 0, 1.0, 1.0).cell;
        for note in [
            Note::Fact("kernel".to_owned(), "Linux, some version".to_owned()),
            Note::System { name: "a".to_owned(), role: Role::OursSame, version: "1, of today".to_owned() },
            Note::Loss {
                configuration,
                system: "b".to_owned(),
                cell: Some(cell),
                problem: "gone, lost".to_owned(),
            },
            Note::Loss { configuration, system: "b".to_owned(), cell: None, problem: "no start".to_owned() },
        ] {
            recorder.note(note.clone()).unwrap();
            recorder.note(note).unwrap();
        }
        for number in 0..3 {
            recorder.row(row("a", number, 5.25, 300.5)).unwrap();
        }
        assert_eq!(recorder.record.notes.len(), 4);
        assert_eq!(Record::read(&path).unwrap(), recorder.record);
        assert_eq!(recorder.record.role("a"), Some(Role::OursSame));
    }

    #[test]
    fn a_row_that_is_not_one_is_refused_with_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("raw.csv");
        let good = row("a", 0, 5.25, 300.5).to_string();
        for bad in [&good[..good.len() - 2], "# note,x", &good.replace("n2", "n4"), &good.replace("64", "x")]
        {
            std::fs::write(&path, format!("{COLUMNS}\n{good}\n{bad}\n")).unwrap();
            let problem = Record::read(&path).unwrap_err().to_string();
            assert!(problem.contains("line 3"), "{problem}");
        }
    }
}
