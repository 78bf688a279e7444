//! The launcher's side of the hosts of a job: an agent on each, which owns the ranks there.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::sync::mpsc::Sender;
use std::time::Instant;

use rustix::process::{Signal, getpid};
use unisono_control::secret::Secret;

use super::super::meeting::MeetingPlace;
use super::super::orphans;
use super::super::pipes::Intake;
use super::super::plan::HostPlan;
use super::super::rank::{Event, News, Ranks};
use super::super::signals::Request;
use super::Hosts;
use super::layout::Share;
use super::line::AgentLine;
use super::listener::{AgentWords, Feeds, OfHost, listen};
use super::message::{AgentPlan, FromAgent, ToAgent, VERSION};
use crate::problem::{Problem, Result};

/// The status of a job that a host could not start.
const STATUS_FAILED: u8 = 1;

/// The progress of an agent.
enum Step {
    Called,
    Planned,
    Ready(Option<MeetingPlace>),
    Started,
    Gone,
}

struct Agent {
    share: Share,
    line: AgentLine,
    step: Step,
}

/// The agents of all hosts.
pub(crate) struct Agents {
    /// The plan of each host, until the hosts have started.
    plans: Vec<HostPlan>,
    secret: Secret,
    directory: std::ffi::OsString,
    program: std::path::PathBuf,
    agents: Vec<Agent>,
}

impl Agents {
    /// Starts the command of every host.
    pub(crate) fn call(
        hosts: &Hosts,
        plans: Vec<HostPlan>,
        intakes: [Intake; 2],
        events: &Sender<Event<OfHost>>,
    ) -> Result<Agents> {
        let own = std::env::current_exe().map_err(|error| Problem::failed("own program", error))?;
        let program = hosts.program.clone().unwrap_or_else(|| own.clone());
        let feeds = Feeds::new(intakes);
        let mut agents = Vec::new();
        for (number, share) in hosts.shares.iter().enumerate() {
            let (line, ends) = AgentLine::start(hosts.rsh.command(&share.host, &program, &own))
                .map_err(|error| not_called(hosts, share, &error))?;
            listen(number, (share, hosts.rsh.name(&share.host)), (line.clone(), ends), &feeds, events)
                .map_err(|error| Problem::failed(format!("host {}", share.host), error))?;
            agents.push(Agent { share: share.clone(), line, step: Step::Called });
        }
        let directory = hosts.directory.clone().into();
        Ok(Agents { plans, secret: Secret::random()?, directory, program, agents })
    }

    fn have_started(&self) -> bool {
        self.agents.iter().any(|agent| matches!(agent.step, Step::Started))
    }

    fn tell_all(&self, message: &ToAgent) {
        self.agents.iter().for_each(|agent| agent.line.send(message));
    }

    fn on_said(&mut self, host: usize, said: FromAgent) -> Vec<News> {
        let agent = &mut self.agents[host];
        match (said, &agent.step) {
            (FromAgent::Hello { version }, Step::Called) if version == VERSION => {
                agent.step = Step::Planned;
                let plan = AgentPlan {
                    host: agent.share.host.clone(),
                    secret: *self.secret.expose(),
                    directory: self.directory.clone(),
                    ranks: self.plans[host].clone(),
                };
                agent.line.send(&ToAgent::Plan(Box::new(plan)));
                Vec::new()
            }
            (FromAgent::Hello { version }, Step::Called) => {
                let there = self.program.display();
                let text =
                    format!("{there} has version {version} there, and this one {VERSION}: one is needed");
                self.unable(host, STATUS_FAILED, &text)
            }
            (FromAgent::Ready { place }, Step::Planned) => {
                agent.step = Step::Ready(place);
                self.start_if_ready()
            }
            (FromAgent::Failed { status, text }, Step::Called | Step::Planned | Step::Ready(_)) => {
                self.unable(host, status, &text)
            }
            (FromAgent::NotStarted { from, status, text }, Step::Started) => {
                let ranks = (from..agent.share.numbers().end).collect();
                let text = format!("host {}: {text}", agent.share.host);
                vec![News::NotStarted { ranks, problem: Problem { status, text } }]
            }
            (FromAgent::Ended { rank, status }, Step::Started) if agent.share.numbers().contains(&rank) => {
                let status = status.map(ExitStatus::from_raw).map_err(io::Error::other);
                vec![News::Ended { rank, at: Instant::now(), status }]
            }
            (FromAgent::Failed { text, .. }, Step::Started) => self.lost(host, &text),
            (FromAgent::Done, Step::Started) | (_, Step::Gone) => Vec::new(),
            (said, Step::Called | Step::Planned | Step::Ready(_) | Step::Started) => {
                let text = format!("its agent's message came out of turn: {said:?}");
                if self.have_started() {
                    self.lost(host, &text)
                } else {
                    self.unable(host, STATUS_FAILED, &text)
                }
            }
        }
    }

    /// No rank starts before all hosts can start theirs.
    fn start_if_ready(&mut self) -> Vec<News> {
        if !self.agents.iter().all(|agent| matches!(agent.step, Step::Ready(_))) {
            return Vec::new();
        }
        let Some(Agent { step: Step::Ready(Some(place)), .. }) = self.agents.first() else {
            return self.unable(0, STATUS_FAILED, "its agent has named no place for the meeting");
        };
        let start = ToAgent::Start(*place);
        for agent in &mut self.agents {
            agent.line.send(&start);
            agent.step = Step::Started;
        }
        Vec::new()
    }

    /// A host cannot start its ranks, so no host does.
    fn unable(&mut self, host: usize, status: u8, text: &str) -> Vec<News> {
        let text = format!("host {}: {text}", self.agents[host].share.host);
        self.agents.iter_mut().for_each(|agent| agent.step = Step::Gone);
        self.abandon();
        let ranks = self.agents.iter().flat_map(|agent| agent.share.numbers()).collect();
        vec![News::NotStarted { ranks, problem: Problem { status, text } }]
    }

    /// The ranks of a host are lost with it.
    fn lost(&mut self, host: usize, how: &str) -> Vec<News> {
        let agent = &mut self.agents[host];
        agent.step = Step::Gone;
        agent.line.cut();
        let (at, name) = (Instant::now(), &agent.share.host);
        let status = || Err(io::Error::other(format!("host {name}: {how}")));
        agent.share.numbers().map(|rank| News::Ended { rank, at, status: status() }).collect()
    }

    fn on_gone(&mut self, host: usize, how: &str, status: Option<i32>) -> Vec<News> {
        match self.agents[host].step {
            Step::Gone => Vec::new(),
            Step::Started => self.lost(host, how),
            Step::Called | Step::Planned | Step::Ready(_) => {
                let (text, status) = not_there(how, status, &self.program);
                self.unable(host, status, &text)
            }
        }
    }
}

/// The reason why a host has no agent, and the status of the job. A shell ends with 126 or 127 where it finds no
/// program.
fn not_there(how: &str, status: Option<i32>, program: &Path) -> (String, u8) {
    match status {
        Some(status @ (126 | 127)) => {
            let program = program.display();
            let remedy = "install unisono there, or name its path with --remote-program";
            (format!("the program {program} is not there or cannot run ({how}): {remedy}"), status as u8)
        }
        Some(_) | None => (how.to_owned(), STATUS_FAILED),
    }
}

fn not_called(hosts: &Hosts, share: &Share, error: &io::Error) -> Problem {
    Problem::failed(format!("host {}: {}", share.host, hosts.rsh.name(&share.host)), error)
}

impl Ranks for Agents {
    type Event = OfHost;

    fn signal(&mut self, signal: Signal) {
        if self.have_started() {
            self.tell_all(&ToAgent::Signal(signal.as_raw()));
        } else if Request::of(signal) == Request::End {
            // There is no rank that could end by itself.
            self.abandon();
        }
    }

    fn hear(&mut self, OfHost { host, words }: OfHost) -> Vec<News> {
        match words {
            AgentWords::Said(said) => self.on_said(host, said),
            AgentWords::Gone { how, status } => self.on_gone(host, &how, status),
        }
    }

    fn has_left(&mut self, rank: u32, how: &str) {
        if let Some(first) = self.agents.first() {
            first.line.send(&ToAgent::HasLeft { rank, how: how.to_owned() });
        }
    }

    fn all_have_ended(&mut self, has_failed: bool) {
        self.tell_all(&ToAgent::Finish { has_failed });
    }

    fn abandon(&mut self) {
        self.agents.iter().for_each(|agent| agent.line.cut());
    }

    fn reap_orphans(&mut self) {
        let own = self.agents.iter().map(|agent| agent.line.pid()).chain([getpid().as_raw_nonzero().get()]);
        orphans::reap(&own.collect());
    }
}
