//! How fast the two cores exchange data right now: the probe that tells the phases of the machine apart.
//!
//! A virtual machine shares its caches with neighbours it cannot see. For seconds on end everything that moves data
//! between cores takes 2 to 3 times as long, with nothing to notice inside. So between any two turns a process of its
//! own exchanges 1 MiB both ways between two pinned threads, for about 20 ms; what was measured between two good
//! probes was measured in a good phase.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Instant;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::problem::{Problem, Result, While};

/// Exchanged in each direction.
const EXCHANGE_BYTES: usize = 1 << 20;
/// In one probe: about 20 ms in a good phase.
const EXCHANGES: usize = 60;
/// What starts the probing process: a word no user writes.
pub(crate) const SERVER: &str = "probe-server";

/// The process that probes.
#[derive(Debug)]
pub(crate) struct Probe {
    process: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Probe {
    /// `words` come before the command, see [`crate::scheduling::entering`].
    pub(crate) fn start(words: &[String]) -> Result<Probe> {
        let own = std::env::current_exe().during("this program's path")?;
        let Some((first, rest)) = words.split_first() else {
            return Err(Problem::Refused("a probe needs its scheduling".to_owned()));
        };
        let mut process = Command::new(first)
            .args(rest)
            .arg(own)
            .arg(SERVER)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Its own group, so that Ctrl-C ends the run and not the probe under it.
            .process_group(0)
            .spawn()
            .during("starting the probe")?;
        let (Some(input), Some(output)) = (process.stdin.take(), process.stdout.take()) else {
            return Err(Problem::Refused("the probe has no pipes".to_owned()));
        };
        Ok(Probe { process, input: Some(input), output: BufReader::new(output) })
    }

    /// Microseconds per exchange, the median of one probe.
    pub(crate) fn take(&mut self) -> Result<f64> {
        if let Some(input) = &mut self.input {
            input.write_all(b"\n").during("asking the probe")?;
        }
        let mut line = String::new();
        self.output.read_line(&mut line).during("the probe's answer")?;
        line.trim().parse().map_err(|_| Problem::Refused(format!("the probe answered {line:?}")))
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        // The end of its input is the end of it.
        self.input = None;
        let _ = self.process.wait();
    }
}

/// The probing process: one probe per line of its input.
pub(crate) fn serve() -> Result<()> {
    let cores = two_cores()?;
    let (near, far) = UnixStream::pair().during("a pair of sockets")?;
    near.set_nonblocking(true).and_then(|()| far.set_nonblocking(true)).during("a pair of sockets")?;
    let mut memory = [(); 4].map(|()| vec![1u8; EXCHANGE_BYTES]);
    for line in io::stdin().lock().lines() {
        line.during("the probe's input")?;
        let mut times_us = exchanges(&near, &far, cores, &mut memory).during("the probe's exchange")?;
        times_us.sort_by(f64::total_cmp);
        let mut output = io::stdout().lock();
        writeln!(output, "{:.2}", times_us[times_us.len() / 2]).during("the probe's output")?;
        output.flush().during("the probe's output")?;
    }
    Ok(())
}

fn two_cores() -> Result<[usize; 2]> {
    let allowed = sched_getaffinity(None).during("the cores of this machine")?;
    let mut cores = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core));
    match (cores.next(), cores.next()) {
        (Some(first), Some(second)) => Ok([first, second]),
        _ => Err(Problem::Refused("the comparison needs two cores".to_owned())),
    }
}

fn exchanges(
    near: &UnixStream,
    far: &UnixStream,
    cores: [usize; 2],
    memory: &mut [Vec<u8>; 4],
) -> io::Result<Vec<f64>> {
    let [near_out, near_in, far_out, far_in] = memory;
    thread::scope(|scope| {
        let other = scope.spawn(move || {
            pin(cores[1])?;
            (0..EXCHANGES).try_for_each(|_| exchange(far, far_out, far_in))
        });
        pin(cores[0])?;
        let mut times_us = Vec::with_capacity(EXCHANGES);
        for _ in 0..EXCHANGES {
            let start = Instant::now();
            exchange(near, near_out, near_in)?;
            times_us.push(start.elapsed().as_secs_f64() * 1e6);
        }
        other.join().unwrap_or_else(|_| Err(io::Error::other("the other thread has ended")))?;
        Ok(times_us)
    })
}

fn pin(core: usize) -> io::Result<()> {
    let mut cores = CpuSet::new();
    cores.set(core);
    Ok(sched_setaffinity(None, &cores)?)
}

/// Sends and receives all of both at the same time.
fn exchange(mut stream: &UnixStream, out: &[u8], into: &mut [u8]) -> io::Result<()> {
    let (mut sent, mut received) = (0, 0);
    while sent < out.len() || received < into.len() {
        let moved = bytes_moved(stream.write(&out[sent..]))?;
        sent += moved;
        let came = if received < into.len() { bytes_moved(stream.read(&mut into[received..]))? } else { 0 };
        received += came;
        if moved + came == 0 {
            thread::yield_now();
        }
    }
    Ok(())
}

fn bytes_moved(outcome: io::Result<usize>) -> io::Result<usize> {
    match outcome {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
        outcome => outcome,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_exchange_moves_everything_both_ways() {
        let (near, far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        far.set_nonblocking(true).unwrap();
        let mut memory = [1, 0, 2, 0].map(|byte| vec![byte; EXCHANGE_BYTES]);
        let core = two_cores().unwrap_or([0, 0]);
        let times_us = exchanges(&near, &far, core, &mut memory).unwrap();
        assert_eq!(times_us.len(), EXCHANGES);
        assert!(memory[1].iter().all(|byte| *byte == 2) && memory[3].iter().all(|byte| *byte == 1));
    }
}
