//! What one TCP stream carries from host to host: the rate of the link, as everything that is measured over it finds
//! it. Both ends are this program again.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::network::Network;
use crate::problem::{Problem, Result, While};

/// What starts the ends: words no user writes.
pub(crate) const RECEIVER: &str = "stream-receiver";
pub(crate) const SENDER: &str = "stream-sender";

const PORT: u16 = 29_499;
/// Of a stream: its start is not counted.
const START: Duration = Duration::from_millis(200);
const COUNTED: Duration = Duration::from_millis(800);
const BUFFER_BYTES: usize = 1 << 20;
/// After this an end is taken to hang.
const PATIENCE: Duration = Duration::from_secs(10);

/// Bits per second from host 1 to host 0.
pub(crate) fn measure(network: &Network) -> Result<f64> {
    let end = |host, word| {
        let mut command = network.command(host, &std::env::current_exe().during("this program's path")?);
        // Its own group, so that Ctrl-C ends the run and not the stream under it.
        command.arg(word).process_group(0);
        Ok::<Command, Problem>(command)
    };
    let started = |mut command: Command| command.spawn().map(End).during("starting an end of a stream");
    let mut receiver = started({
        let mut command = end(0, RECEIVER)?;
        command.stdout(Stdio::piped());
        command
    })?;
    let output = receiver.0.stdout.take();
    let mut lines = output.into_iter().flat_map(|output| BufReader::new(output).lines());
    let mut line = || match lines.next() {
        Some(line) => line.during("reading what a stream carries"),
        None => Err(Problem::Refused("the receiver of the stream has ended".to_owned())),
    };
    line()?;
    let _sender = started(end(1, SENDER)?)?;
    let answer = line()?;
    answer.parse().map_err(|_| Problem::Refused(format!("the receiver of the stream says {answer:?}")))
}

/// One end, which does not outlive the measurement.
struct End(Child);

impl Drop for End {
    fn drop(&mut self) {
        // One that has ended does not mind.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The process on host 0: says that it listens, then bits per second.
pub(crate) fn receive() -> Result<()> {
    receive_at(&TcpListener::bind((Network::address(0), PORT)).during("listening")?, &mut std::io::stdout())
}

fn receive_at(listener: &TcpListener, output: &mut impl Write) -> Result<()> {
    writeln!(output, "listening").and_then(|()| output.flush()).during("the receiver's output")?;
    let (mut stream, _) = listener.accept().during("accepting the stream")?;
    stream.set_read_timeout(Some(PATIENCE)).during("the stream")?;
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut read = || stream.read(&mut buffer).during("reading the stream");
    let started = Instant::now();
    let (mut counted, mut last) = (None, 0);
    loop {
        let bytes = read()? as u64;
        let now = Instant::now();
        if bytes == 0 || counted.is_some_and(|(since, _)| now.duration_since(since) >= COUNTED) {
            break;
        }
        counted = match counted {
            Some((since, so_far)) => Some((since, so_far + bytes)),
            None => Some((now, 0)).filter(|_| started.elapsed() >= START),
        };
        last = counted.map_or(0, |(since, _)| now.duration_since(since).as_nanos());
    }
    let bits_per_s = counted.map_or(0.0, |(_, bytes)| bytes as f64 * 8.0 / (last as f64 / 1e9));
    writeln!(output, "{bits_per_s:.0}").during("the receiver's output")
}

/// The process on host 1: sends until the other side has enough.
pub(crate) fn send() -> Result<()> {
    send_to(Network::address(0), PORT)
}

fn send_to(address: Ipv4Addr, port: u16) -> Result<()> {
    let mut stream = TcpStream::connect((address, port)).during("connecting the stream")?;
    stream.set_write_timeout(Some(PATIENCE)).during("the stream")?;
    let buffer = vec![0; BUFFER_BYTES];
    // The end of the receiver is the end of the stream.
    while stream.write_all(&buffer).is_ok() {}
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_has_a_rate() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let sender = std::thread::spawn(move || send_to(Ipv4Addr::LOCALHOST, port));
        let mut output = Vec::new();
        receive_at(&listener, &mut output).unwrap();
        drop(listener);
        sender.join().unwrap().unwrap();
        let text = String::from_utf8(output).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((lines.len(), lines[0]), (2, "listening"));
        assert!(lines[1].parse::<f64>().unwrap() > 1e6, "{text}");
    }
}
