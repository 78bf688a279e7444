//! Ranks that join a job beside a thousand half-open unauthenticated connections, half of them to the store and half to
//! rank 0: a rank that waits for the others accepts nobody yet, so these connections come before the first real one.

use std::fmt;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use unisono::Collectives;

use crate::Problem;
use crate::job::{Job, Process};
use crate::unauthenticated::{HALF_OPEN, listeners};

const RANKS: u32 = 2;

/// How long the first rank may take to listen, for its store and for itself.
const LISTENS_WITHIN: Duration = Duration::from_secs(20);

/// The pause after the unauthenticated connections are open; well below the time after which they are closed.
const SETTLED_AFTER: Duration = Duration::from_millis(500);

/// Medians, alone and beside the unauthenticated connections.
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

/// Rank 0 waits for rank 1, unauthenticated connections come, rank 1 joins: how many nanoseconds that takes.
fn one(run: u32, unauthenticated: usize) -> Result<u64, Problem> {
    let name = format!("soak-{}-joins-{run}-{unauthenticated}", std::process::id());
    let mut first = Job::start_some(0..1, RANKS, &name, &["joins"])?;
    let started = Instant::now();
    let listeners = loop {
        let listeners = listeners(&first.ranks[0])?;
        if listeners.len() == 2 {
            break listeners;
        }
        if started.elapsed() > LISTENS_WITHIN {
            return Err(Problem::Broken(format!("rank 0 listens at {listeners:?} only")));
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    let mut half_open = Vec::with_capacity(unauthenticated);
    for listener in listeners.iter().cycle().take(unauthenticated) {
        let mut connection = TcpStream::connect(listener)?;
        connection.write_all(b"hello")?;
        half_open.push(connection);
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
