//! What is measured: configurations (how the ranks run) and cells (what they call).

use std::fmt;
use std::str::FromStr;

use unisono::Collective;
use unisono_compare::ComparedOperation;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// How the kernel schedules the measured processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Scheduling {
    /// SCHED_RR with a slice of 4 ms: other programs of the machine do not get in between.
    RoundRobin,
    /// As any program.
    Plain,
    /// As any program, beside busy loops that take every core.
    Busy,
}

/// The default congestion control of the network namespace in which all systems of a configuration run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Congestion {
    Bbr,
    Reno,
}

macro_rules! names {
    ($type:ident { $($variant:ident = $name:literal),* }) => {
        impl $type {
            pub(crate) fn name(self) -> &'static str {
                match self { $($type::$variant => $name),* }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.pad(self.name())
            }
        }

        impl FromStr for $type {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                match text {
                    $($name => Ok($type::$variant),)*
                    _ => Err(format!("{text} is none of {}", [$($name),*].join(", "))),
                }
            }
        }
    };
}

names!(Scheduling { RoundRobin = "rr", Plain = "plain", Busy = "busy" });
names!(Congestion { Bbr = "bbr", Reno = "reno" });

/// How the ranks run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Configuration {
    pub(crate) ranks: u32,
    pub(crate) scheduling: Scheduling,
    pub(crate) congestion: Congestion,
}

impl fmt::Display for Configuration {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "n{}-{}-{}", self.ranks, self.scheduling, self.congestion)
    }
}

impl FromStr for Configuration {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let problem = || format!("{text} is no configuration such as n2-rr-bbr");
        let [ranks, scheduling, congestion]: [&str; 3] =
            text.split('-').collect::<Vec<_>>().try_into().map_err(|_| problem())?;
        let ranks = ranks.strip_prefix('n').and_then(|ranks| ranks.parse().ok()).ok_or_else(problem)?;
        Ok(Configuration { ranks, scheduling: scheduling.parse()?, congestion: congestion.parse()? })
    }
}

/// What is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Cell {
    pub(crate) operation: ComparedOperation,
    pub(crate) bytes: u64,
}

impl fmt::Display for Cell {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.operation {
            ComparedOperation::Collective(Collective::Barrier) => write!(formatter, "barrier"),
            operation => write!(formatter, "{operation} {}", Size(self.bytes)),
        }
    }
}

/// A number of bytes as people write it: 64, 16K, 64M.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size(pub(crate) u64);

impl fmt::Display for Size {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.0 {
            bytes if bytes >= MIB && bytes.is_multiple_of(MIB) => format!("{} MiB", bytes / MIB),
            bytes if bytes >= KIB && bytes.is_multiple_of(KIB) => format!("{} KiB", bytes / KIB),
            bytes => format!("{bytes} B"),
        };
        formatter.pad(&text)
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (digits, unit) = match text.as_bytes().last() {
            Some(b'K') => (&text[..text.len() - 1], KIB),
            Some(b'M') => (&text[..text.len() - 1], MIB),
            _ => (text, 1),
        };
        let number: Option<u64> = digits.parse().ok();
        let bytes = number.and_then(|number| number.checked_mul(unit)).filter(|&bytes| bytes > 0);
        bytes.map(Size).ok_or_else(|| format!("{text} is no size such as 64, 16K or 64M"))
    }
}

/// The cells of a comparison with so many ranks: those that the bar is about.
pub(crate) fn cells(ranks: u32) -> Vec<Cell> {
    let bulk = [16 * MIB, 64 * MIB];
    let all_reduce: &[u64] = match ranks {
        8.. => &[64, KIB, MIB],
        _ => &[64, KIB, 16 * KIB, 256 * KIB, MIB, 16 * MIB, 64 * MIB],
    };
    let cell = |collective: Collective, bytes| Cell { operation: collective.into(), bytes };
    let mut cells: Vec<Cell> = all_reduce.iter().map(|&bytes| cell(Collective::AllReduce, bytes)).collect();
    if ranks < 8 {
        for collective in [
            Collective::ReduceScatter,
            Collective::AllGather,
            Collective::AllToAll,
            Collective::Broadcast,
            Collective::Reduce,
        ] {
            cells.extend(bulk.map(|bytes| cell(collective, bytes)));
        }
    }
    if ranks == 2 {
        cells.push(cell(Collective::Barrier, 0));
        cells.push(Cell { operation: ComparedOperation::SendRecv, bytes: 64 });
    }
    cells
}

/// The cells of these operations and sizes, where somebody names them.
pub(crate) fn chosen_cells(ranks: u32, operations: &[ComparedOperation], sizes: &[Size]) -> Vec<Cell> {
    if sizes.is_empty() {
        let is_chosen = |cell: &Cell| operations.is_empty() || operations.contains(&cell.operation);
        return cells(ranks).into_iter().filter(is_chosen).collect();
    }
    let operations =
        if operations.is_empty() { ComparedOperation::all().collect() } else { operations.to_vec() };
    let mut chosen = Vec::new();
    for operation in operations {
        match operation {
            ComparedOperation::Collective(Collective::Barrier) => chosen.push(Cell { operation, bytes: 0 }),
            _ => chosen.extend(sizes.iter().map(|size| Cell { operation, bytes: size.0 })),
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_written_as_people_do() {
        for (text, bytes, written) in
            [("64", 64, "64 B"), ("16K", 16 * KIB, "16 KiB"), ("64M", 64 * MIB, "64 MiB")]
        {
            let size: Size = text.parse().unwrap();
            assert_eq!((size, size.to_string().as_str()), (Size(bytes), written));
        }
        for text in ["", "K", "0", "-1", "1G", "99999999999999999999M"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }

    #[test]
    fn configurations_have_names_that_can_be_read_back() {
        for scheduling in [Scheduling::RoundRobin, Scheduling::Plain] {
            for congestion in [Congestion::Bbr, Congestion::Reno] {
                let configuration = Configuration { ranks: 4, scheduling, congestion };
                assert_eq!(configuration.to_string().parse(), Ok(configuration));
            }
        }
        for text in ["", "n2", "2-rr-bbr", "n2-fifo-bbr", "n2-rr-cubic", "n2-rr-bbr-x"] {
            assert!(text.parse::<Configuration>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_chosen_is_measured_and_nothing_else() {
        let all = |ranks| chosen_cells(ranks, &[], &[]).len();
        assert_eq!([all(2), all(4), all(8)], [19, 17, 3]);
        let sizes = [Size(64), Size(MIB)];
        let chosen =
            chosen_cells(2, &[Collective::Reduce, Collective::Barrier].map(ComparedOperation::from), &sizes);
        let names: Vec<_> = chosen.iter().map(Cell::to_string).collect();
        assert_eq!(names, ["reduce 64 B", "reduce 1 MiB", "barrier"]);
    }

    #[test]
    fn every_cell_can_be_shared_out() {
        for ranks in [2, 4, 8] {
            for cell in cells(ranks) {
                assert_eq!(cell.bytes % cell.operation.granularity_bytes(ranks), 0, "{cell} on {ranks}");
            }
        }
    }
}
