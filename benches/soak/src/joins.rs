//! Ranks that join a job while strangers hold a thousand half-open connections, half of them at the store and half at
//! rank 0: a rank that waits for the others accepts nobody yet, and has the strangers before the first real connection.

use std::fmt;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use unisono::Collectives;

use crate::Problem;
use crate::job::{Job, Process};
use crate::strangers::{HALF_OPEN, doors};

const RANKS: u32 = 2;

/// How long the first rank may take to listen, for its store and for itself.
const LISTENS_WITHIN: Duration = Duration::from_secs(20);

/// How long after they have come strangers are only there; well below the time after which they are closed.
const SETTLED_AFTER: Duration = Duration::from_millis(500);

/// Medians, alone and beside the strangers.
pub(crate) struct Joins {
    runs: u32,
    alone_ms: f64,
    beside_ms: f64,
}

impl fmt::Display for Joins {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Joins { runs, alone_ms, beside_ms } = self;
        write!(
            formatter,
            "{HALF_OPEN} half-open handshakes, half at the store and half at rank 0: a rank joins and makes its \
             first call in {beside_ms:.1} ms, alone {alone_ms:.1} ms (medians of {runs}; at most twice)"
        )
    }
}

impl Joins {
    /// Whether the promise is kept.
    pub(crate) fn is_kept(&self) -> bool {
        self.beside_ms <= 2.0 * self.alone_ms
    }
}

/// One rank: joins, calls, and says how long that took.
pub(crate) fn rank() -> Result<(), Problem> {
    let started = Instant::now();
    let communicator = unisono::init()?;
    communicator.barrier()?;
    println!("joined {}", started.elapsed().as_nanos());
    let _ = std::io::stdin().read(&mut [0]);
    communicator.close()?;
    Ok(())
}

/// So many joins of each kind, in turn.
pub(crate) fn measure(runs: u32) -> Result<Joins, Problem> {
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    for run in 0..runs {
        alone.push(one(run, 0)?);
        beside.push(one(run, HALF_OPEN)?);
    }
    let median_ms = |times: &mut Vec<u64>| {
        times.sort_unstable();
        times.get(times.len() / 2).map_or(0.0, |ns| *ns as f64 / 1e6)
    };
    Ok(Joins { runs, alone_ms: median_ms(&mut alone), beside_ms: median_ms(&mut beside) })
}

/// Rank 0 waits for rank 1, strangers come, rank 1 joins: how many nanoseconds that takes.
fn one(run: u32, strangers: usize) -> Result<u64, Problem> {
    let name = format!("soak-{}-joins-{run}-{strangers}", std::process::id());
    let mut first = Job::start_some(0..1, RANKS, &name, &["joins"])?;
    let started = Instant::now();
    let doors = loop {
        let doors = doors(&first.ranks[0])?;
        if doors.len() == 2 {
            break doors;
        }
        if started.elapsed() > LISTENS_WITHIN {
            return Err(Problem::Broken(format!("rank 0 listens at {doors:?} only")));
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    let mut half_open = Vec::with_capacity(strangers);
    for door in doors.iter().cycle().take(strangers) {
        let mut stranger = TcpStream::connect(door)?;
        stranger.write_all(b"hello")?;
        half_open.push(stranger);
    }
    // Whatever connecting has cost is over.
    std::thread::sleep(SETTLED_AFTER);
    let mut second = Job::start_some(1..2, RANKS, &name, &["joins"])?;
    let line = second.ranks[0].hear("joined")?;
    let took_ns = line.parse().map_err(|_| Problem::Broken(format!("not a time: {line}")))?;
    first.ranks[0].hear("joined")?;
    first.ranks.iter_mut().chain(&mut second.ranks).try_for_each(Process::close_input)?;
    first.ranks.iter_mut().chain(&mut second.ranks).try_for_each(Process::end)?;
    Ok(took_ns)
}
