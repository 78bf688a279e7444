//! The messages between the launcher and the agent of a host: lines of JSON over the agent's standard input and output.
//! Bytes from ranks follow the line that announces them.
//!
//! | from | message | when |
//! | --- | --- | --- |
//! | agent | `Hello` | first; lines before it are words of the host |
//! | launcher | `Plan` | after the hello of an agent of the same version |
//! | agent | `Ready`, or `Failed` | the host can obey the plan, the first one with the place of the meeting; or not |
//! | launcher | `Start` | all hosts are ready |
//! | agent | `NotStarted` | the ranks from this one on have not been started |
//! | agent | `Output`, `Report` | so many bytes follow: a piece of a rank's output, or a report |
//! | agent | `Ended` | a rank has this wait status, or is lost for this reason |
//! | launcher | `Signal` | ranks get it |
//! | launcher | `HasLeft` | a rank of any host has ended, and will not come to the meeting |
//! | launcher | `Taken`, `Refused` | it has taken so many bytes; nobody reads the output of this rank any more |
//! | launcher | `Finish` | all ranks of the job have ended |
//! | agent | `Done` | all output has been sent |
//!
//! Output is sent up to a window; [`ToAgent::Taken`] opens the window again. So a reader of the job's output who pauses
//! holds ranks, as a pipe would, and no other message.

use std::ffi::OsString;
use std::io::{self, BufRead, Read, Write};

use serde::{Deserialize, Serialize};
use unisono_job::secret::SECRET_BYTES;

use super::super::meeting::MeetingPlace;
use super::super::output::{PIECE_BYTES_MAX, Stream};
use super::super::plan::HostPlan;
use crate::problem::Problem;

/// Launcher and agents must be of one version: the messages are of no other.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The bytes of output of one stream that an agent sends before the launcher has taken them.
pub(crate) const WINDOW_BYTES: usize = 1 << 20;

/// The longest line: a plan has the program's arguments and variables.
const LINE_BYTES_MAX: u64 = 16 << 20;

/// The bytes of a line that an error shows.
const SHOWN_BYTES_MAX: usize = 80;

/// All that an agent needs before it can start its ranks.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct AgentPlan {
    /// The name of this host, as the user wrote it.
    pub(crate) host: String,
    pub(crate) secret: [u8; SECRET_BYTES],
    /// The working directory of the ranks.
    pub(crate) directory: OsString,
    pub(crate) ranks: HostPlan,
}

impl AgentPlan {
    /// A variable that the ranks get from the launcher; the last value counts.
    pub(crate) fn variable(&self, name: &str) -> Option<OsString> {
        let mut set = self.ranks.variables.iter().rev();
        set.find(|(set, _)| set == name).map(|(_, value)| value.clone())
    }
}

#[derive(Serialize, Deserialize)]
pub(crate) enum ToAgent {
    Plan(Box<AgentPlan>),
    Start(MeetingPlace),
    Signal { number: i32 },
    HasLeft { rank: u32, how: String },
    Taken { stream: Stream, bytes: usize },
    Refused { stream: Stream, rank: u32 },
    Finish { has_failed: bool },
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum FromAgent {
    Hello { version: String },
    Ready { place: Option<MeetingPlace> },
    Failed(Problem),
    NotStarted { from: u32, problem: Problem },
    Output { rank: u32, stream: Stream, bytes: usize },
    Report { bytes: usize },
    Ended { rank: u32, status: Result<i32, String> },
    Done,
}

/// A message as it is sent.
pub(crate) fn bytes_of(message: &impl Serialize) -> Vec<u8> {
    #[expect(clippy::expect_used, reason = "no message has a map, or can fail in another way")]
    let mut bytes = serde_json::to_vec(message).expect("a message is JSON");
    bytes.push(b'\n');
    bytes
}

/// Writes a message, and the bytes behind it.
pub(crate) fn write(target: &mut impl Write, message: &FromAgent, behind: &[u8]) -> io::Result<()> {
    target.write_all(&[&bytes_of(message), behind].concat())
}

/// The next line without its end; `None` at the end of the stream.
pub(crate) fn read_line(source: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    source.take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Ok(None);
    }
    if line.pop_if(|last| *last == b'\n').is_none() && line.len() as u64 >= LINE_BYTES_MAX {
        return Err(io::Error::other(format!("a line is longer than {LINE_BYTES_MAX} bytes")));
    }
    Ok(Some(line))
}

/// The next message of the launcher; `None` at the end of the stream. An error shows nothing of the line, which may
/// hold the secret.
pub(crate) fn read_from_launcher(source: &mut impl BufRead) -> io::Result<Option<ToAgent>> {
    let Some(line) = read_line(source)? else { return Ok(None) };
    let unknown =
        |_| io::Error::other(format!("a message of {} bytes from the launcher is none", line.len()));
    serde_json::from_slice(&line).map(Some).map_err(unknown)
}

/// The message in a line of an agent.
pub(crate) fn parse(line: &[u8]) -> io::Result<FromAgent> {
    serde_json::from_slice(line).map_err(|error| {
        let shown = String::from_utf8_lossy(&line[..line.len().min(SHOWN_BYTES_MAX)]).into_owned();
        io::Error::other(format!("{shown:?} is no message: {error}"))
    })
}

/// The next message of an agent, and the bytes behind it; `None` at the end of the stream.
pub(crate) fn read_from_agent(source: &mut impl BufRead) -> io::Result<Option<(FromAgent, Vec<u8>)>> {
    let Some(line) = read_line(source)? else { return Ok(None) };
    let message = parse(&line)?;
    let bytes = match &message {
        FromAgent::Output { bytes, .. } | FromAgent::Report { bytes } => *bytes,
        FromAgent::Hello { .. } | FromAgent::Ready { .. } | FromAgent::Failed(_) => 0,
        FromAgent::NotStarted { .. } | FromAgent::Ended { .. } | FromAgent::Done => 0,
    };
    if bytes > PIECE_BYTES_MAX {
        return Err(io::Error::other(format!("{bytes} bytes are announced, {PIECE_BYTES_MAX} are allowed")));
    }
    let mut behind = vec![0; bytes];
    source.read_exact(&mut behind)?;
    Ok(Some((message, behind)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c10_messages_and_bytes_of_any_value_arrive_in_order() {
        let bytes: Vec<u8> = (0..=255).collect();
        let mut wire = Vec::new();
        let output = FromAgent::Output { rank: 3, stream: Stream::Err, bytes: bytes.len() };
        write(&mut wire, &output, &bytes).unwrap();
        write(&mut wire, &FromAgent::Ended { rank: 3, status: Ok(9) }, &[]).unwrap();
        let mut source = &wire[..];
        let (first, behind) = read_from_agent(&mut source).unwrap().unwrap();
        assert!(matches!(first, FromAgent::Output { rank: 3, stream: Stream::Err, .. }) && behind == bytes);
        let (second, _) = read_from_agent(&mut source).unwrap().unwrap();
        assert!(matches!(second, FromAgent::Ended { rank: 3, status: Ok(9) }));
        assert!(read_from_agent(&mut source).unwrap().is_none());
    }

    #[test]
    fn c10_a_stream_of_something_else_is_refused_and_takes_no_memory() {
        let huge = format!("{{\"Output\":{{\"rank\":0,\"stream\":\"Out\",\"bytes\":{}}}}}\n", u64::MAX);
        for (wire, expected) in [
            (b"Welcome!\n".to_vec(), "\"Welcome!\" is no message"),
            (huge.into_bytes(), "bytes are announced"),
            (b"{\"Report\":{\"bytes\":9}}\nabc".to_vec(), "fill whole buffer"),
        ] {
            let text = read_from_agent(&mut &wire[..]).unwrap_err().to_string();
            assert!(text.contains(expected), "{text}");
        }
    }

    #[test]
    fn c10_an_error_about_a_plan_shows_no_secret() {
        let wire = br#"{"Plan":{"host":"a","secret":[77,77,77,77,77,77,77,77,77,77,77,77,77,77"#;
        let text = read_from_launcher(&mut &wire[..]).err().unwrap().to_string();
        assert!(!text.contains("77") && text.contains("from the launcher is none"), "{text}");
    }
}
