//! The threads that listen to the agent of a host: one for its messages, one for its standard error, and one for the
//! output of its ranks on each stream, which may wait for a reader.

use std::io::{self, BufRead, BufReader};
use std::ops::Range;
use std::os::unix::process::ExitStatusExt;
use std::process::{ChildStderr, ChildStdout, ExitStatus};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use unisono_job::report::ErrorReport;

use super::super::output::Stream;
use super::super::pipes::Intake;
use super::super::queue::Queue;
use super::super::rank::Event;
use super::layout::Share;
use super::line::{AgentLine, LineEnds};
use super::message::{FromAgent, ToAgent, parse, read_from_agent, read_line};

/// The time for which the last words on a standard error are waited for: a background process of ssh may keep it open.
const LAST_WORDS_WAIT: Duration = Duration::from_millis(500);

/// An event of the agents: a message of one, the end of the command that started it, or that hosts have had time to
/// answer.
pub(crate) enum OfAgents {
    Said { host: usize, said: FromAgent },
    Gone { host: usize, how: String, status: Option<i32> },
    Due,
}

/// An intake that several hosts feed; with the last of them its queue ends.
pub(super) struct Feed(Intake);

impl Drop for Feed {
    fn drop(&mut self) {
        self.0.queue.close();
    }
}

/// The intakes of both streams.
pub(super) type Feeds = [Arc<Feed>; 2];

pub(super) fn feeds(intakes: [Intake; 2]) -> Feeds {
    intakes.map(|intake| Arc::new(Feed(intake)))
}

/// A piece of output, and its rank.
type Piece = (u32, Vec<u8>);

/// Listens to the agent of host number `host` from now on.
pub(super) fn listen(
    host: usize,
    (share, command): (&Share, String),
    (line, ends): (AgentLine, LineEnds),
    (feeds, queue): (&Feeds, &Arc<Queue>),
    events: &Sender<Event<OfAgents>>,
) -> io::Result<()> {
    let LineEnds { mut process, out, err } = ends;
    let start = |stream: Stream| {
        let (sender, pieces) = channel();
        let (feed, line, ranks) = (feeds[stream as usize].clone(), line.clone(), share.numbers.clone());
        thread::Builder::new().name("feed".into()).spawn(move || pass_on(&pieces, &feed.0, &line, ranks))?;
        io::Result::Ok(sender)
    };
    let pieces = [start(Stream::Out)?, start(Stream::Err)?];
    let words = HostWords { host: share.host.clone(), queue: queue.clone() };
    let (last, last_words) = channel();
    thread::Builder::new().name("host".into()).spawn({
        let words = words.clone();
        move || _ = last.send(words.tell_all(err))
    })?;
    let messages = Messages { host, words, pieces, events: events.clone() };
    thread::Builder::new().name("agent".into()).spawn(move || {
        let events = messages.events.clone();
        let fault = messages.take_all(out).inspect_err(|_| line.cut());
        let ended = process.wait();
        let said = last_words.recv_timeout(LAST_WORDS_WAIT).unwrap_or_default();
        let status = ended.as_ref().ok().and_then(ExitStatus::code);
        let how = [Some(ended_as(&command, ended)), fault.err().map(|error| error.to_string()), said];
        let how = how.into_iter().flatten().collect::<Vec<_>>().join(": ");
        let _ = events.send(Event::Ranks(OfAgents::Gone { host, how, status }));
    })?;
    Ok(())
}

fn ended_as(command: &str, ended: io::Result<ExitStatus>) -> String {
    match ended {
        Ok(status) => match status.signal() {
            Some(signal) => format!("{command} was ended by signal {signal}"),
            None => format!("{command} exited with status {}", status.code().unwrap_or_default()),
        },
        Err(error) => format!("{command} ended, its status is lost: {error}"),
    }
}

/// The words of a host that are no messages, such as a banner.
#[derive(Clone)]
struct HostWords {
    host: String,
    queue: Arc<Queue>,
}

impl HostWords {
    /// Gives whether the line says anything.
    fn tell(&self, line: &[u8]) -> Option<String> {
        let text = String::from_utf8_lossy(line).trim_end().to_owned();
        let text = text.strip_prefix("unisono: ").unwrap_or(&text).to_owned();
        if text.is_empty() {
            return None;
        }
        self.queue.tell(format!("host {}: {text}", self.host));
        Some(text)
    }

    /// Tells the lines of a standard error to its end; gives the last one.
    fn tell_all(&self, err: ChildStderr) -> Option<String> {
        let lines = BufReader::new(err).split(b'\n').map_while(Result::ok);
        lines.filter_map(|line| self.tell(&line)).last()
    }
}

/// The reader of an agent's messages.
struct Messages {
    host: usize,
    words: HostWords,
    pieces: [Sender<Piece>; 2],
    events: Sender<Event<OfAgents>>,
}

impl Messages {
    /// Takes all messages. Nobody hears the ones after the end of the launcher.
    fn take_all(self, out: ChildStdout) -> io::Result<()> {
        let mut source = BufReader::new(out);
        let Some(hello) = self.greeting(&mut source)? else { return Ok(()) };
        self.say(hello);
        while let Some((message, behind)) = read_from_agent(&mut source)? {
            match message {
                FromAgent::Output { rank, stream, .. } => {
                    _ = self.pieces[stream as usize].send((rank, behind))
                }
                FromAgent::Report { .. } => {
                    for report in ErrorReport::take_all(&mut { behind }) {
                        let _ = self.events.send(Event::Reported(Box::new(report)));
                    }
                }
                FromAgent::Done => {
                    self.say(FromAgent::Done);
                    return Ok(());
                }
                message @ (FromAgent::Hello { .. }
                | FromAgent::Ready { .. }
                | FromAgent::Failed(_)
                | FromAgent::NotStarted { .. }
                | FromAgent::Ended { .. }) => self.say(message),
            }
        }
        Ok(())
    }

    fn say(&self, said: FromAgent) {
        let _ = self.events.send(Event::Ranks(OfAgents::Said { host: self.host, said }));
    }

    /// The hello. A shell of the host may print lines before it.
    fn greeting(&self, source: &mut impl BufRead) -> io::Result<Option<FromAgent>> {
        while let Some(line) = read_line(source)? {
            match parse(&line) {
                Ok(hello @ FromAgent::Hello { .. }) => return Ok(Some(hello)),
                Ok(_) | Err(_) => _ = self.words.tell(&line),
            }
        }
        Ok(None)
    }
}

/// Hands on output until the agent sends no more.
fn pass_on(pieces: &Receiver<Piece>, intake: &Intake, line: &AgentLine, ranks: Range<u32>) {
    let stream = intake.stream;
    for (rank, piece) in pieces {
        let bytes = piece.len();
        // An agent speaks for its own ranks.
        if ranks.contains(&rank) && !intake.take(rank, piece) {
            line.send(&ToAgent::Refused { stream, rank });
        }
        line.send(&ToAgent::Taken { stream, bytes });
    }
    if stream == Stream::Err {
        ranks.for_each(|rank| intake.words.end(rank));
    }
}
