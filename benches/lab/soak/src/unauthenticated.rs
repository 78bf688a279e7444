//! Unauthenticated connections to the ranks of a job: a thousand handshakes that never end, and a thousand new ones a
//! second.

use std::fmt;
use std::io::{BufRead, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use unisono::{Collectives, ReduceOp};

use crate::Problem;
use crate::job::{Job, Process};

const RANKS: u32 = 2;

/// Handshakes that are begun at each rank and not ended.
pub(crate) const HALF_OPEN: usize = 1000;

/// Connections with nonsense, a second, to each rank in turn.
const JUNK_PER_SECOND: u32 = 1000;
const JUNK_SECONDS: u32 = 5;

/// Communicators that are made for one median.
const JOINS: usize = 101;

/// What a handshake may take, and a little more.
const FREED_AFTER: Duration = Duration::from_millis(5500);

/// What came of it.
pub(crate) struct Unauthenticated {
    join_us: f64,
    join_beside_us: f64,
    /// Of one core, of the rank's control thread, during the flood.
    control_percent: f64,
}

impl fmt::Display for Unauthenticated {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Unauthenticated { join_us, join_beside_us, control_percent } = self;
        write!(
            formatter,
            "{HALF_OPEN} half-open handshakes at each rank: a new communicator's first call takes {join_beside_us:.0} \
             us, \
             alone {join_us:.0} us (at most twice); all closed within {:.1} s\n\
             {JUNK_PER_SECOND} junk connections a second: the control thread takes {control_percent:.1} % of a core \
             (at most 5 %)",
            FREED_AFTER.as_secs_f64()
        )
    }
}

/// One rank: on every line of its input it makes communicators, and says the median of the first call of each.
pub(crate) fn rank() -> Result<(), Problem> {
    let world = unisono::init()?;
    world.barrier()?;
    println!("ready");
    for _ in std::io::stdin().lock().lines().map_while(Result::ok) {
        let mut times = Vec::with_capacity(JOINS);
        for _ in 0..JOINS {
            let communicator = world.duplicate()?;
            world.barrier()?;
            let started = Instant::now();
            communicator.all_reduce(&mut [1u32; 10], ReduceOp::Sum)?;
            times.push(started.elapsed());
            communicator.close()?;
        }
        times.sort_unstable();
        println!("joined {}", times[JOINS / 2].as_nanos());
    }
    Ok(())
}

/// Starts a job and opens unauthenticated connections to its listeners.
pub(crate) fn measure() -> Result<Unauthenticated, Problem> {
    let name = format!("soak-{}-unauthenticated", std::process::id());
    let mut job = Job::start(RANKS, &name, &["unauthenticated"])?;
    let mut listeners = Vec::new();
    for rank in &job.ranks {
        rank.hear("ready")?;
        listeners.push(listener(rank)?);
    }
    let join_us = join(&mut job)?;
    let mut half_open = Vec::new();
    for listener in &listeners {
        for _ in 0..HALF_OPEN {
            let mut connection = TcpStream::connect(listener)?;
            connection.write_all(b"hello")?;
            half_open.push(connection);
        }
    }
    let opened = Instant::now();
    let join_beside_us = join(&mut job)?;
    std::thread::sleep(FREED_AFTER.saturating_sub(opened.elapsed()));
    for connection in &mut half_open {
        connection.set_nonblocking(true)?;
        match connection.read(&mut [0]) {
            Ok(0) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            other => {
                return Err(Problem::Broken(format!("an unauthenticated connection was kept: {other:?}")));
            }
        }
    }
    let control_percent = flood(&job.ranks[0], listeners[0])?;
    job.ranks.iter_mut().try_for_each(Process::end)?;
    let measured = Unauthenticated { join_us, join_beside_us, control_percent };
    if join_beside_us > 2.0 * join_us || control_percent > 5.0 {
        return Err(Problem::Broken(measured.to_string()));
    }
    Ok(measured)
}

fn join(job: &mut Job) -> Result<f64, Problem> {
    job.ranks.iter_mut().try_for_each(|rank| rank.tell("go"))?;
    let mut slowest: f64 = 0.0;
    for rank in &job.ranks {
        let line = rank.hear("joined")?;
        let ns: f64 = line.parse().map_err(|_| Problem::Broken(format!("not a time: {line}")))?;
        slowest = slowest.max(ns / 1e3);
    }
    Ok(slowest)
}

/// Connects again and again, says nonsense and goes; what the control thread of `rank` makes of it.
fn flood(rank: &Process, listener: SocketAddr) -> Result<f64, Problem> {
    let (started, before) = (Instant::now(), control_ticks(rank)?);
    for index in 0..JUNK_PER_SECOND * JUNK_SECONDS {
        let due = Duration::from_secs(1) / JUNK_PER_SECOND * index;
        std::thread::sleep(due.saturating_sub(started.elapsed()));
        // The rank may close before all of it is written.
        let _ = TcpStream::connect(listener)?.write_all(&[0xa5; 200]);
    }
    let ticks = control_ticks(rank)? - before;
    // Linux counts processor time in hundredths of a second here.
    Ok(ticks as f64 / started.elapsed().as_secs_f64())
}

/// Processor time of the control thread of a process, in hundredths of a second.
fn control_ticks(rank: &Process) -> Result<u64, Problem> {
    for task in std::fs::read_dir(format!("/proc/{}/task", rank.id()))? {
        let stat = std::fs::read_to_string(task?.path().join("stat"))?;
        // "pid (name) state ...": user and system time are the 12th and 13th fields behind the name.
        if let Some((name, rest)) = stat.split_once('(').and_then(|(_, rest)| rest.rsplit_once(") "))
            && name.starts_with("unisono-control")
        {
            let times = rest.split(' ').skip(11).take(2).map(|field| field.parse::<u64>().unwrap_or(0));
            return Ok(times.sum());
        }
    }
    Err(Problem::Broken("no control thread".to_owned()))
}

/// The address of a process that listens at one.
fn listener(rank: &Process) -> Result<SocketAddr, Problem> {
    let first = listeners(rank)?.first().copied();
    first.ok_or_else(|| Problem::Broken("a rank listens nowhere".to_owned()))
}

/// All addresses at which a process listens.
pub(crate) fn listeners(rank: &Process) -> Result<Vec<SocketAddr>, Problem> {
    let own: Vec<String> = std::fs::read_dir(format!("/proc/{}/fd", rank.id()))?
        .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
        .filter_map(|link| Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
        .collect();
    let table = std::fs::read_to_string(format!("/proc/{}/net/tcp", rank.id()))?;
    let mut listeners = Vec::new();
    for line in table.lines().skip(1) {
        let fields: Vec<&str> = line.split_whitespace().collect();
        // Local address, state 0A for listening, inode.
        if let [_, local, _, "0A", _, _, _, _, _, inode, ..] = fields[..]
            && own.iter().any(|own| own == inode)
            && let Some((_, port)) = local.split_once(':')
            && let Ok(port) = u16::from_str_radix(port, 16)
        {
            listeners.push((Ipv4Addr::LOCALHOST, port).into());
        }
    }
    Ok(listeners)
}
