//! `unisono run --agent`: it starts the ranks of one host for a launcher on another one, which decides all else. It
//! speaks with the launcher over standard input and output. When its standard input ends, it kills its ranks.

use std::ffi::OsString;
use std::fs::File;
use std::io::BufReader;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::Signal;
use rustix::stdio;
use unisono_control::secret::Secret;
use unisono_job::settings::{GROUPS, Source};

use super::super::last_words::LastWords;
use super::super::local_ranks::{LocalRanks, Started, check_descriptors};
use super::super::meeting::{HostedStore, JobFolder, Meeting};
use super::super::output::{Output, Places, Stream};
use super::super::rank::{Event, Exited, Ranks};
use super::super::signals::{self, Request};
use super::address::{check_reach, meeting_address};
use super::frames::FrameSink;
use super::message::{AgentPlan, FromAgent, ToAgent, VERSION, read_from_launcher};
use crate::problem::{Problem, Result};

/// No descriptor of a standard stream.
const FIRST_OTHER: i32 = 3;

/// The status of an agent whose launcher is gone.
const STATUS_GONE: u8 = 1;

/// The events of an agent and of its launcher.
enum AgentEvent {
    Exited(Exited),
    /// The launcher asks for something.
    Asked(ToAgent),
    /// The launcher or the connection to it is gone, for this reason.
    LauncherGone(String),
}

impl From<Exited> for AgentEvent {
    fn from(exited: Exited) -> AgentEvent {
        AgentEvent::Exited(exited)
    }
}

type Events = Receiver<Event<AgentEvent>>;

/// The connection to the launcher.
struct Connection {
    sink: Arc<FrameSink>,
    sender: Sender<Event<AgentEvent>>,
}

impl Connection {
    fn open(sender: Sender<Event<AgentEvent>>) -> Result<Connection> {
        let stdout = fcntl_dupfd_cloexec(stdio::stdout(), FIRST_OTHER)
            .map_err(|error| Problem::failed("standard output", error))?;
        Ok(Connection { sink: Arc::new(FrameSink::new(stdout.into())), sender })
    }

    /// A launcher that is gone is noticed at standard input.
    fn send(&self, message: &FromAgent, behind: &[u8]) {
        let _ = self.sink.send(message, behind);
    }

    /// Takes the messages of the launcher from now on.
    fn listen(&self) -> Result<()> {
        let failed = |error| Problem::failed("reading from the launcher", error);
        let stdin = fcntl_dupfd_cloexec(stdio::stdin(), FIRST_OTHER).map_err(|error| failed(error.into()))?;
        let (sink, sender) = (self.sink.clone(), self.sender.clone());
        let listen = move || {
            let mut source = BufReader::new(File::from(stdin));
            let why = loop {
                match read_from_launcher(&mut source) {
                    Ok(Some(ToAgent::Taken { stream, bytes })) => sink.taken(stream, bytes),
                    Ok(Some(ToAgent::Refused { stream, rank })) => sink.refuse(stream, rank),
                    Ok(Some(asked)) => _ = sender.send(Event::Ranks(AgentEvent::Asked(asked))),
                    Ok(None) => break "the connection to the launcher has ended".to_owned(),
                    Err(error) => break error.to_string(),
                }
            };
            let _ = sender.send(Event::Ranks(AgentEvent::LauncherGone(why)));
        };
        thread::Builder::new().name("launcher".into()).spawn(listen).map(drop).map_err(failed)
    }
}

/// Serves a launcher.
///
/// # Errors
/// With the reason; the launcher has it too, if it is there.
pub(crate) fn serve() -> Result<()> {
    let (sender, events) = channel();
    signals::watch(sender.clone())?;
    let connection = Connection::open(sender)?;
    connection.send(&FromAgent::Hello { version: VERSION.to_owned() }, &[]);
    connection.listen()?;
    serve_by(&connection, &events).map_err(|problem| {
        let status = problem.status;
        // Without a text nobody is left to tell, or all has been told.
        if !problem.text.is_empty() {
            connection.send(&FromAgent::Failed(problem), &[]);
        }
        Problem::silent(status)
    })
}

fn serve_by(connection: &Connection, events: &Events) -> Result<()> {
    let ToAgent::Plan(mut plan) = asked(events)? else { return Err(out_of_turn()) };
    check_descriptors(plan.ranks.local_ranks, 0)?;
    let (folder, hosted) = prepare(&mut plan)?;
    connection.send(&FromAgent::Ready { place: hosted.as_ref().map(|hosted| hosted.place) }, &[]);
    let ToAgent::Start(place) = asked(events)? else { return Err(out_of_turn()) };
    let started = check_reach(place.store)
        .and_then(|()| Running::start(connection, &plan, Meeting::at(place, hosted, folder)));
    match started {
        Ok(running) => running.until_done(events),
        Err(problem) => {
            let status = problem.status;
            connection.send(&FromAgent::NotStarted { from: plan.ranks.first_rank, problem }, &[]);
            Err(Problem::silent(status))
        }
    }
}

fn out_of_turn() -> Problem {
    Problem::failed("the launcher", "its message came out of turn")
}

/// The next message of the launcher while no rank runs.
fn asked(events: &Events) -> Result<ToAgent> {
    for event in events {
        match event {
            Event::Ranks(AgentEvent::Asked(asked)) => return Ok(asked),
            Event::Ranks(AgentEvent::LauncherGone(_)) => break,
            Event::Signal(signal) if Request::of(signal) == Request::End => {
                let text = format!("signal {} came before its ranks were started", signal.as_raw());
                return Err(Problem::failed("the agent", text));
            }
            Event::Signal(_)
            | Event::Ranks(AgentEvent::Exited(_))
            | Event::Reported(_)
            | Event::StreamDone => {}
        }
    }
    Err(Problem::silent(STATUS_GONE))
}

/// Makes all that the ranks of this host need beside the others.
fn prepare(plan: &mut AgentPlan) -> Result<(JobFolder, Option<HostedStore>)> {
    std::env::set_current_dir(&plan.directory).map_err(|error| {
        let folder = std::path::Path::new(&plan.directory).display();
        Problem::failed(
            format!("the working directory {folder}"),
            format!("{error}; --wdir names another one"),
        )
    })?;
    let secret = Secret::take(&mut plan.secret);
    let folder = JobFolder::make(&secret)?;
    let hosted = match plan.ranks.host {
        0 => {
            let here = Source::of_environment(&GROUPS);
            let lookup = |name: &str| plan.variable(name).or_else(|| here.foreign(name).map(OsString::from));
            let settings = Source::new(&lookup, &GROUPS);
            let address = meeting_address(plan, &settings)?;
            Some(HostedStore::start(plan.ranks.ranks, &secret, address, &settings)?)
        }
        _ => None,
    };
    Ok((folder, hosted))
}

/// An agent whose ranks run.
struct Running<'c> {
    connection: &'c Connection,
    ranks: LocalRanks,
    output: Output,
    streams_open: usize,
    /// Whether the launcher has said that all ranks of the job have ended.
    is_finished: bool,
}

impl<'c> Running<'c> {
    fn start(connection: &'c Connection, plan: &AgentPlan, meeting: Meeting) -> Result<Running<'c>> {
        let Started { ranks, pipes, problem } =
            LocalRanks::start(&plan.ranks, meeting, None, &connection.sender)?;
        if let Some(problem) = problem {
            let from = plan.ranks.first_rank + ranks.running().len() as u32;
            connection.send(&FromAgent::NotStarted { from, problem }, &[]);
        }
        // The launcher remembers last words.
        let words = Arc::new(LastWords::new(0));
        let places = Places { sink: connection.sink.clone(), files: None, words };
        let output = Output::of_pipes(pipes, places, &connection.sender)
            .map_err(|error| Problem::failed("reading the output of ranks", error))?;
        Ok(Running { connection, ranks, output, streams_open: Stream::BOTH.len(), is_finished: false })
    }

    fn until_done(mut self, events: &Events) -> Result<()> {
        while !self.is_finished || self.streams_open > 0 {
            match events.recv() {
                Ok(Event::Ranks(AgentEvent::Exited(Exited { rank, .. }))) => {
                    if let Some(status) = self.ranks.reap(rank) {
                        let status = status.map(ExitStatus::into_raw).map_err(|error| error.to_string());
                        self.connection.send(&FromAgent::Ended { rank, status }, &[]);
                    }
                }
                Ok(Event::Reported(report)) => {
                    let report = report.message();
                    self.connection.send(&FromAgent::Report { bytes: report.len() }, &report);
                }
                Ok(Event::StreamDone) => self.streams_open -= 1,
                // A signal to an agent is meant for its ranks, and the launcher hears of their ends.
                Ok(Event::Signal(signal)) => match Request::of(signal) {
                    Request::Reap => self.ranks.reap_orphans(),
                    Request::End | Request::PassOn | Request::Stop => self.ranks.signal(signal),
                },
                Ok(Event::Ranks(AgentEvent::Asked(asked))) => self.obey(asked)?,
                Ok(Event::Ranks(AgentEvent::LauncherGone(why))) => {
                    self.end_all();
                    crate::print::tell(format!("{why}; its ranks on this host were killed"));
                    return Err(Problem::silent(STATUS_GONE));
                }
                Err(_) => return Err(Problem::silent(STATUS_GONE)),
            }
        }
        self.connection.send(&FromAgent::Done, &[]);
        Ok(())
    }

    fn obey(&mut self, asked: ToAgent) -> Result<()> {
        match asked {
            ToAgent::Signal { number } => {
                if let Some(signal) = Signal::from_named_raw(number) {
                    self.ranks.signal(signal);
                }
            }
            ToAgent::HasLeft { rank, how } => self.ranks.has_left(rank, &how),
            ToAgent::Finish { has_failed } => {
                self.ranks.all_have_ended(has_failed);
                self.output.ranks_have_ended();
                self.is_finished = true;
            }
            ToAgent::Plan(_) | ToAgent::Start(_) | ToAgent::Taken { .. } | ToAgent::Refused { .. } => {
                self.end_all();
                return Err(out_of_turn());
            }
        }
        Ok(())
    }

    /// Kills the ranks, and the processes that they have left behind.
    fn end_all(&mut self) {
        self.ranks.abandon();
        self.ranks.all_have_ended(true);
    }
}
