//! One job: its ranks are started, its faults happen, and what the ranks say is compared with what must be.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::plan::{Event, Fault, Plan, Random, When};
use super::proxy::Proxies;
use crate::Problem;
use crate::job::{Job, Said};

/// A job that has not ended by then hangs; its own calls end sooner.
const PATIENCE: Duration = Duration::from_secs(60);

/// Between two looks at what the ranks say.
const LOOK_PAUSE: Duration = Duration::from_micros(200);

/// How a rank has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Done,
    Evicted,
    Killed,
}

/// What one rank has said.
#[derive(Default)]
struct Record {
    step: u64,
    last: String,
    /// The first cause of every failure.
    failed: Vec<String>,
    /// Members and common step, by epoch.
    shrunk: BTreeMap<String, String>,
    end: Option<End>,
}

/// What came of a job.
pub(crate) struct Outcome {
    pub(crate) ends: Vec<End>,
    /// How many times the survivors have shrunk.
    pub(crate) epochs: usize,
    /// Ranks that were stopped.
    pub(crate) stops: usize,
    /// Faults on the way that hit something.
    pub(crate) hits: usize,
    /// Whether the survivors of the only failure also named the same rank as the one who noticed.
    pub(crate) has_one_witness: bool,
}

struct Run<'a> {
    plan: &'a Plan,
    job: Job,
    proxies: Option<Proxies>,
    random: Random,
    records: Vec<Record>,
    /// Who is stopped until when.
    stopped: Vec<(usize, Instant)>,
    stops: usize,
    hits: usize,
}

/// Makes one job; an error says what was broken.
pub(crate) fn run(plan: &Plan, name: &str) -> Result<Outcome, Problem> {
    let words = ["faults", &plan.seed.to_string(), &plan.steps.to_string(), &plan.has_proxy.to_string()];
    let mut job = Job::start(plan.ranks, name, &words)?;
    let proxies = introduce(&mut job, name, plan.has_proxy)?;
    for rank in &job.ranks {
        rank.hear("ready")?;
    }
    let records = job.ranks.iter().map(|_| Record::default()).collect();
    let random = Random::new(!plan.seed);
    let mut run = Run { plan, job, proxies, random, records, stopped: Vec::new(), stops: 0, hits: 0 };
    run.watch()?;
    for (rank, record) in run.records.iter().enumerate() {
        if record.end != Some(End::Killed) {
            run.job.ranks[rank].end()?;
        }
    }
    run.judge()
}

/// Tells the ranks of a job of one another, through proxies if that is wanted.
pub(crate) fn introduce(job: &mut Job, name: &str, has_proxy: bool) -> Result<Option<Proxies>, Problem> {
    let mut addresses = Vec::new();
    for rank in &job.ranks {
        let line = rank.hear("listens")?;
        let address: SocketAddr = line.parse().map_err(|_| Problem::Broken(format!("no address: {line}")))?;
        addresses.push(address);
    }
    let proxies = if has_proxy { Some(Proxies::start(&addresses)?) } else { None };
    let known = proxies.as_ref().map_or(&addresses[..], Proxies::addresses);
    let list: Vec<String> = known.iter().map(SocketAddr::to_string).collect();
    for (rank, process) in job.ranks.iter_mut().enumerate() {
        process.tell(&format!("{rank} {name} {}", list.join(" ")))?;
    }
    Ok(proxies)
}

impl Run<'_> {
    /// Until every rank has ended in some way, and every stopped one goes on.
    fn watch(&mut self) -> Result<(), Problem> {
        let started = Instant::now();
        let (mut events, mut last_event) = (self.plan.events.iter().peekable(), started);
        while !self.is_over() {
            for rank in 0..self.records.len() {
                self.listen(rank)?;
            }
            self.go_on()?;
            let is_due = |event: &&Event| match event.when {
                When::Step(step) => self.records.iter().any(|record| record.step >= step),
                When::After(pause) => last_event.elapsed() >= pause,
            };
            if let Some(event) = events.next_if(is_due) {
                self.happen(&event.fault)?;
                last_event = Instant::now();
            }
            if started.elapsed() > PATIENCE {
                return Err(Problem::Broken(format!("it hangs: {}", self.last_words())));
            }
            std::thread::sleep(LOOK_PAUSE);
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.stopped.is_empty() && self.records.iter().all(|record| record.end.is_some())
    }

    fn last_words(&self) -> String {
        let words = self.records.iter().enumerate();
        let words = words.map(|(rank, one)| format!("rank {rank} ({:?}): {:?}", one.end, one.last));
        words.collect::<Vec<_>>().join("; ")
    }

    fn listen(&mut self, rank: usize) -> Result<(), Problem> {
        let record = &mut self.records[rank];
        loop {
            let line = match self.job.ranks[rank].listen() {
                Said::Nothing => return Ok(()),
                Said::Ended if record.end.is_some() => return Ok(()),
                Said::Ended => {
                    return Err(Problem::Broken(format!("rank {rank} has ended after {:?}", record.last)));
                }
                Said::Line(line) => line,
            };
            let (word, rest) = line.split_once(' ').unwrap_or((&line, ""));
            match word {
                "step" => record.step = rest.parse().unwrap_or(record.step),
                "failed" => record.failed.push(rest.to_owned()),
                "shrunk" => {
                    let (epoch, members) = rest.split_once(' ').unwrap_or((rest, ""));
                    record.shrunk.insert(epoch.to_owned(), members.to_owned());
                }
                // Who was killed right after is no survivor.
                "done" => record.end = record.end.or(Some(End::Done)),
                "evicted" => record.end = record.end.or(Some(End::Evicted)),
                _ => return Err(Problem::Broken(format!("rank {rank} says: {line}"))),
            }
            record.last = line;
        }
    }

    /// Lets those go on whose pause is over.
    fn go_on(&mut self) -> Result<(), Problem> {
        for index in (0..self.stopped.len()).rev() {
            let (rank, until) = self.stopped[index];
            if Instant::now() >= until {
                self.stopped.remove(index);
                if self.records[rank].end != Some(End::Killed) {
                    self.job.ranks[rank].signal(Signal::CONT)?;
                }
            }
        }
        Ok(())
    }

    fn happen(&mut self, fault: &Fault) -> Result<(), Problem> {
        match fault {
            Fault::Kill(ranks) => {
                for &rank in ranks {
                    self.job.ranks[rank as usize].signal(Signal::KILL)?;
                    self.records[rank as usize].end = Some(End::Killed);
                }
            }
            Fault::Stop(rank, pause) => {
                if self.records[*rank as usize].end != Some(End::Killed) {
                    self.job.ranks[*rank as usize].signal(Signal::STOP)?;
                    self.stops += 1;
                    self.stopped.push((*rank as usize, Instant::now() + *pause));
                }
            }
            Fault::Wire(pair, harm) => {
                if let Some(proxies) = &self.proxies {
                    self.hits += usize::from(proxies.harm(*pair, *harm, &mut self.random));
                }
            }
        }
        Ok(())
    }

    fn judge(&self) -> Result<Outcome, Problem> {
        let broken = |what: String| Err(Problem::Broken(what));
        let ends: Vec<End> = self.records.iter().filter_map(|record| record.end).collect();
        for (rank, end) in (0u32..).zip(&ends) {
            if *end == End::Evicted && !self.plan.is_stopped(rank) {
                return broken(format!("rank {rank} was evicted and had done nothing"));
            }
        }
        let epochs = self.judge_shrinks()?;
        let failures: Vec<&String> = self.survivors().filter_map(|record| record.failed.first()).collect();
        if self.plan.has_only(Fault::is_gentle) && !failures.is_empty() {
            return broken(format!("nothing was lost but time, and ranks failed: {failures:?}"));
        }
        if let Some(expected) = self.only_cause(&ends)
            && failures.iter().any(|failure| split_witness(failure).0 != expected)
        {
            return broken(format!("the only failure is {expected:?}, and the survivors say {failures:?}"));
        }
        let has_one_witness =
            failures.windows(2).all(|pair| split_witness(pair[0]) == split_witness(pair[1]));
        Ok(Outcome { ends, epochs, stops: self.stops, hits: self.hits, has_one_witness })
    }

    fn survivors(&self) -> impl Iterator<Item = &Record> {
        self.records.iter().filter(|record| record.end == Some(End::Done))
    }

    /// In every epoch all have gone on with the same members from the same step, and those who were done have been
    /// through the same ones.
    fn judge_shrinks(&self) -> Result<usize, Problem> {
        let mut all: BTreeMap<&String, (&str, u64)> = BTreeMap::new();
        for (rank, record) in self.records.iter().enumerate() {
            for (epoch, line) in &record.shrunk {
                let (members, own) = line.rsplit_once(" of ").unwrap_or((line, ""));
                let common = members.rsplit_once(' ').map_or("", |split| split.1);
                match (common.parse::<u64>(), own.parse::<u64>()) {
                    (Ok(common), Ok(own)) if common <= own => {
                        let first = *all.entry(epoch).or_insert((members, common));
                        if first != (members, common) {
                            let what = format!("epoch {epoch}: {first:?}, and rank {rank} says {line:?}");
                            return Err(Problem::Broken(what));
                        }
                    }
                    _ => return Err(Problem::Broken(format!("rank {rank} has lost steps: {line:?}"))),
                }
            }
        }
        let mut epochs = self.survivors().map(|record| record.shrunk.len());
        let first = epochs.next().unwrap_or(0);
        match epochs.all(|epochs| epochs == first) {
            true => Ok(first),
            false => Err(Problem::Broken("survivors are in different epochs".to_owned())),
        }
    }

    /// What every survivor must say, where there was one failure.
    fn only_cause(&self, ends: &[End]) -> Option<String> {
        let [event] = &self.plan.events[..] else { return None };
        match &event.fault {
            Fault::Kill(ranks) if ranks.len() == 1 => Some(format!("lost {ranks:?} Confirmed")),
            Fault::Stop(rank, _) if ends[*rank as usize] == End::Evicted => {
                Some(format!("lost [{rank}] Suspected"))
            }
            Fault::Kill(_) | Fault::Stop(..) | Fault::Wire(..) => None,
        }
    }
}

fn split_witness(failure: &str) -> (&str, &str) {
    failure.split_once(", by ").unwrap_or((failure, ""))
}
