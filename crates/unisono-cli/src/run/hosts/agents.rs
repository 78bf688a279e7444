//! The launcher's side of the hosts of a job: an agent on each, which owns the ranks there.

use std::io;
use std::ops::Range;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use unisono_control::secret::Secret;

use super::super::meeting::MeetingPlace;
use super::super::orphans;
use super::super::output::Stream;
use super::super::pipes::Intake;
use super::super::plan::HostPlan;
use super::super::queue::Queue;
use super::super::rank::{Event, News, Ranks};
use super::super::signals::Request;
use super::Hosts;
use super::line::AgentLine;
use super::listener::{OfAgents, feeds, listen};
use super::message::{AgentPlan, FromAgent, ToAgent, VERSION};
use crate::print::listed;
use crate::problem::{Problem, Result};

/// The status of a job that a host could not start.
const STATUS_FAILED: u8 = 1;

/// The time after which hosts are named that are not ready.
const ANSWER_WAIT: Duration = Duration::from_secs(5);

/// The time that a message may take before the launcher stops.
const STOP_WAIT: Duration = Duration::from_secs(1);

/// The progress of an agent.
enum Step {
    Called,
    Planned,
    Ready(Option<MeetingPlace>),
    Started,
    Gone,
}

struct Agent {
    plan: AgentPlan,
    line: AgentLine,
    step: Step,
    /// The number of its ranks that have ended.
    ended: u32,
}

impl Agent {
    fn numbers(&self) -> Range<u32> {
        self.plan.ranks.numbers()
    }
}

/// The agents of all hosts.
pub(crate) struct Agents {
    /// The path of their program.
    program: PathBuf,
    agents: Vec<Agent>,
    /// For words beside the output of the ranks.
    words: Arc<Queue>,
}

impl Agents {
    /// Starts the command of every host.
    pub(crate) fn call(
        hosts: &Hosts,
        plans: Vec<HostPlan>,
        intakes: [Intake; 2],
        events: &Sender<Event<OfAgents>>,
    ) -> Result<Agents> {
        let own = std::env::current_exe().map_err(|error| Problem::failed("own program", error))?;
        let program = hosts.program.clone().unwrap_or_else(|| own.clone());
        let secret = Secret::random()?;
        let words = intakes[Stream::Err as usize].queue.clone();
        let feeds = feeds(intakes);
        let mut agents = Vec::new();
        for (number, (share, ranks)) in hosts.shares.iter().zip(plans).enumerate() {
            let failed = |what: &str, error| Problem::failed(format!("host {}: {what}", share.host), error);
            let command = hosts.rsh.name(&share.host);
            let (line, ends) = AgentLine::start(hosts.rsh.command(&share.host, &program, &own))
                .map_err(|error| failed(&command, error))?;
            listen(number, (share, command), (line.clone(), ends), (&feeds, &words), events)
                .map_err(|error| failed("its threads", error))?;
            let (host, directory) = (share.host.clone(), hosts.directory.clone().into());
            let plan = AgentPlan { host, secret: *secret.expose(), directory, ranks };
            agents.push(Agent { plan, line, step: Step::Called, ended: 0 });
        }
        let due = events.clone();
        let remind = move || {
            thread::sleep(ANSWER_WAIT);
            _ = due.send(Event::Ranks(OfAgents::Due));
        };
        thread::Builder::new()
            .name("reminder".into())
            .spawn(remind)
            .map_err(|error| Problem::failed("a thread", error))?;
        Ok(Agents { program, agents, words })
    }

    /// Names the hosts for which the job has waited for long.
    fn remind(&self) {
        let is_awaited = |agent: &&Agent| matches!(agent.step, Step::Called | Step::Planned);
        let awaited = self.agents.iter().filter(is_awaited).map(|agent| agent.plan.host.clone());
        let (hosts, wait) = (listed(awaited.collect(), ", "), ANSWER_WAIT.as_secs());
        if !hosts.is_empty() {
            self.words.tell(format!("no answer after {wait} s, and the job waits for: {hosts}"));
        }
    }

    fn have_started(&self) -> bool {
        self.agents.iter().any(|agent| matches!(agent.step, Step::Started))
    }

    fn tell_all(&self, message: &ToAgent) -> Vec<Receiver<()>> {
        self.agents.iter().map(|agent| agent.line.send(message)).collect()
    }

    fn on_said(&mut self, host: usize, said: FromAgent) -> Vec<News> {
        let agent = &mut self.agents[host];
        match (said, &agent.step) {
            (FromAgent::Hello { version }, Step::Called) if version != VERSION => {
                let there = self.program.display();
                self.unable(host, failed(format!(
                    "{there} has version {version} there, and {VERSION} here: install the same version on all hosts"
                )))
            }
            (FromAgent::Hello { .. }, Step::Called) => {
                agent.step = Step::Planned;
                agent.line.send(&ToAgent::Plan(Box::new(agent.plan.clone())));
                Vec::new()
            }
            (FromAgent::Ready { place }, Step::Planned) => {
                agent.step = Step::Ready(place);
                self.start_if_ready()
            }
            (FromAgent::Failed(problem), Step::Called | Step::Planned | Step::Ready(_)) => {
                self.unable(host, problem)
            }
            (FromAgent::NotStarted { from, mut problem }, Step::Started) => {
                problem.text = format!("host {}: {}", agent.plan.host, problem.text);
                vec![News::NotStarted { ranks: (from..agent.numbers().end).collect(), problem }]
            }
            (FromAgent::Ended { rank, status }, Step::Started) if agent.numbers().contains(&rank) => {
                agent.ended += 1;
                let status = status.map(ExitStatus::from_raw).map_err(io::Error::other);
                vec![News::Ended { rank, at: Instant::now(), status }]
            }
            (FromAgent::Failed(problem), Step::Started) => self.lost(host, &problem.text),
            (FromAgent::Done, Step::Started) => {
                agent.step = Step::Gone;
                Vec::new()
            }
            (_, Step::Gone) => Vec::new(),
            (said, Step::Called | Step::Planned | Step::Ready(_) | Step::Started) => {
                let text = format!("its agent's message came out of turn: {said:?}");
                if self.have_started() { self.lost(host, &text) } else { self.unable(host, failed(text)) }
            }
        }
    }

    /// No rank starts before all hosts can start theirs.
    fn start_if_ready(&mut self) -> Vec<News> {
        if !self.agents.iter().all(|agent| matches!(agent.step, Step::Ready(_))) {
            return Vec::new();
        }
        let Some(Agent { step: Step::Ready(Some(place)), .. }) = self.agents.first() else {
            return self.unable(0, failed("its agent has named no place for the meeting".to_owned()));
        };
        let start = ToAgent::Start(*place);
        for agent in &mut self.agents {
            agent.line.send(&start);
            agent.step = Step::Started;
        }
        Vec::new()
    }

    /// A host cannot start its ranks, so no host does.
    fn unable(&mut self, host: usize, mut problem: Problem) -> Vec<News> {
        problem.text = format!("host {}: {}", self.agents[host].plan.host, problem.text);
        self.agents.iter_mut().for_each(|agent| agent.step = Step::Gone);
        self.abandon();
        let ranks = self.agents.iter().flat_map(|agent| agent.numbers()).collect();
        vec![News::NotStarted { ranks, problem }]
    }

    /// The ranks of a host are lost with it, or only the rest of their output if they have ended.
    fn lost(&mut self, host: usize, how: &str) -> Vec<News> {
        let agent = &mut self.agents[host];
        agent.step = Step::Gone;
        agent.line.cut();
        let (at, how) = (Instant::now(), format!("host {}: {how}", agent.plan.host));
        if agent.ended == agent.plan.ranks.local_ranks {
            return vec![News::OutputLost(how)];
        }
        let ended = |rank| News::Ended { rank, at, status: Err(io::Error::other(how.clone())) };
        agent.numbers().map(ended).collect()
    }

    fn on_gone(&mut self, host: usize, how: &str, status: Option<i32>) -> Vec<News> {
        match self.agents[host].step {
            Step::Gone => Vec::new(),
            Step::Started => self.lost(host, how),
            Step::Called | Step::Planned | Step::Ready(_) => {
                self.unable(host, not_there(how, status, &self.program))
            }
        }
    }
}

fn failed(text: String) -> Problem {
    Problem { status: STATUS_FAILED, text }
}

/// Why a host has no agent. A shell ends with 126 or 127 where it finds no program.
fn not_there(how: &str, status: Option<i32>, program: &Path) -> Problem {
    match status {
        Some(status @ (126 | 127)) => {
            let program = program.display();
            let remedy = "install unisono there, or name its path with --remote-program";
            let text = format!("the program {program} is not there or cannot run ({how}): {remedy}");
            Problem { status: status as u8, text }
        }
        Some(_) | None => failed(how.to_owned()),
    }
}

impl Ranks for Agents {
    type Event = OfAgents;

    fn signal(&mut self, signal: Signal) {
        if self.have_started() {
            let written = self.tell_all(&ToAgent::Signal { number: signal.as_raw() });
            // This process is going to stand still, and its threads with it.
            let until = Instant::now() + STOP_WAIT;
            for written in written.iter().filter(|_| Request::of(signal) == Request::Stop) {
                let _ = written.recv_timeout(until.saturating_duration_since(Instant::now()));
            }
        } else if Request::of(signal) == Request::End {
            // There is no rank that could end by itself.
            self.abandon();
        }
    }

    fn hear(&mut self, event: OfAgents) -> Vec<News> {
        match event {
            OfAgents::Said { host, said } => self.on_said(host, said),
            OfAgents::Gone { host, how, status } => self.on_gone(host, &how, status),
            OfAgents::Due => {
                self.remind();
                Vec::new()
            }
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
        orphans::reap(&self.agents.iter().map(|agent| agent.line.pid()).collect());
    }
}
