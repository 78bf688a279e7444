//! The parent of the demonstration: it starts the ranks, and prints and checks their reports.

use std::ffi::OsString;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use indicatif::{ProgressBar, ProgressStyle};
use unisono::Config;

use super::kill::Kill;
use super::method::Method;
use super::recipe::Task;
use super::report;
use super::training::{Recovery, Trained};
use super::{Depth, Note};
use crate::arguments::{DEMO_RANK, DemoArguments};
use crate::bench::report::{Row, header};
use crate::print;
use crate::problem::{Problem, Result};
use crate::run::output::{Sink, Stream, Terminal};
use crate::run::{Job, launch};

/// `unisono demo`.
pub(crate) fn demo(arguments: DemoArguments) -> Result<()> {
    check(&arguments)?;
    let DemoArguments { ranks, kill, json, .. } = arguments;
    let screen = Screen { json };
    let compress = arguments.compress.as_ref();
    let methods = compress.map_or(vec![None], |methods| methods.in_order().into_iter().map(Some).collect());
    let seconds = Depth::of(kill).seconds(methods.len());
    let config = Config::from_environment()?;
    let way = if config.shares_memory { "through memory" } else { "over loopback (UNISONO_SHM=0)" };
    let first =
        format!("unisono: {ranks} processes on this machine, talking {way}, for about {seconds} seconds");
    screen.line(&first)?;
    screen.line("\nEvery collective, every element of every result checked:")?;
    screen.line(&header())?;
    screen.line(LEGEND)?;
    screen.line(&figures(config.cost_model.is_some()))?;
    let mut runs: Vec<Run> = Vec::new();
    // A job for each, so that all of them have all ranks, also when one of these is to be killed.
    for method in methods {
        runs.push(Run::of(&arguments, screen, method, !runs.is_empty())?);
    }
    report::print(screen, &runs)?;
    report::judge(kill, &runs)?;
    screen.line(NEXT)
}

/// The parts of the table that do not explain themselves.
const LEGEND: &str = "\
# #wrong: how many elements of the results of all ranks are not what they must be
# leaders:2: two ranks, the leaders, add for all; k_nomial_4: a tree whose ranks send to three others in a round";

/// The assumption of the predicted times. On other machines than the measured one they are several times too low.
fn figures(are_set: bool) -> String {
    let whose = match are_set {
        true => "the figures of UNISONO_COST_MODEL",
        false => "built-in figures of TCP over loopback; `unisono calibrate` measures this machine's",
    };
    format!("# predicted: with {whose}")
}

/// Commands to try after the demonstration.
const NEXT: &str = "
Next:
  unisono demo --kill 2@300        rank 2 dies in the middle of the training, and the others go on
  unisono bench all_reduce -n 4    times sizes and algorithms of your choice
  unisono run -n 4 -- PROGRAM      starts 4 ranks of your own program";

/// Finds the errors that the ranks would find one after the other.
fn check(arguments: &DemoArguments) -> Result<()> {
    let task = Task { data: arguments.data.clone(), ..Task::default() };
    let (data, recipe) = task.load()?;
    let Some(Kill { rank, step }) = arguments.kill else { return Ok(()) };
    let (ranks, steps) = (arguments.ranks, recipe.steps(data.training.len()));
    if ranks < 2 {
        return Err(Problem::usage("--kill: no rank would be left".to_owned()));
    }
    if rank >= ranks {
        let problem = format!("--kill {rank}: of {ranks} ranks, one of 0 to {} can die", ranks - 1);
        return Err(Problem::usage(problem));
    }
    if step >= steps {
        let problem = format!("--kill {rank}@{step}: the training has {steps} steps; 1 to {}", steps - 1);
        return Err(Problem::usage(problem));
    }
    Ok(())
}

/// The reports of one job.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) method: Option<Method>,
    /// The collectives that it has measured.
    pub(super) rows: Vec<Row>,
    /// Null when no rank has died.
    pub(super) recovery: Option<Recovery>,
    pub(super) trained: Trained,
}

impl Run {
    /// Starts the ranks, and listens until they have ended.
    fn of(
        arguments: &DemoArguments,
        screen: Screen,
        method: Option<Method>,
        only_training: bool,
    ) -> Result<Run> {
        let DemoArguments { ranks, kill, seed, data, vendor, .. } = arguments;
        let rows = if only_training { 0 } else { Depth::of(*kill).rows() };
        let listener = Arc::new(Listener {
            screen,
            heard: Mutex::default(),
            rows,
            bar: bar(),
            terminal: Terminal::default(),
        });
        let mut words: Vec<OsString> = vec![DEMO_RANK.into()];
        words.extend(only_training.then(|| "--only-training".into()));
        words.extend(kill.iter().flat_map(|kill| ["--kill".into(), kill.to_string().into()]));
        words.extend(method.iter().flat_map(|method| ["--method".into(), method.name().into()]));
        words.extend(seed.iter().flat_map(|seed| ["--seed".into(), seed.to_string().into()]));
        words.extend(data.iter().flat_map(|folder| ["--data".into(), folder.into()]));
        let job = Job {
            victim: kill.map(|kill| kill.rank),
            vendor_directory: vendor.vendor_dir.clone(),
            ..Job::of_this_program(*ranks, words)?
        };
        let ended = launch(&job, listener.clone());
        listener.bar.finish_and_clear();
        ended?;
        let Heard { rows, recovery, trained, result } = std::mem::take(&mut *listener.heard());
        result?;
        let mut trained = trained.ok_or_else(|| Problem::failed("the ranks", "ended without a report"))?;
        // The ranks after the last survivor are gone and not in the report.
        trained.weights_hash.resize(*ranks as usize, None);
        Ok(Run { method, rows, recovery, trained })
    }
}

const BAR: &str = "{wide_bar} {msg}";

fn bar() -> ProgressBar {
    let bar = ProgressBar::no_length();
    // The template is a constant, and a test parses it.
    let style = ProgressStyle::with_template(BAR);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_message("the processes start");
    bar
}

/// Standard output. If JSON was asked for, nothing but the document may appear in it.
#[derive(Clone, Copy)]
pub(super) struct Screen {
    pub(super) json: bool,
}

impl Screen {
    fn line(self, text: &str) -> Result<()> {
        if self.json { Ok(()) } else { print::line(text) }
    }
}

/// The reports of the ranks so far.
struct Heard {
    rows: Vec<Row>,
    recovery: Option<Recovery>,
    trained: Option<Trained>,
    /// The first thing that went wrong while listening.
    result: Result<()>,
}

impl Default for Heard {
    fn default() -> Heard {
        Heard { rows: Vec::new(), recovery: None, trained: None, result: Ok(()) }
    }
}

struct Listener {
    screen: Screen,
    heard: Mutex<Heard>,
    /// The number of collectives that are measured.
    rows: u64,
    bar: ProgressBar,
    terminal: Terminal,
}

impl Listener {
    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn show(&self, done: u64, of: u64, message: &str) {
        self.bar.set_length(of);
        self.bar.set_message(message.to_owned());
        self.bar.set_position(done);
    }

    fn hear(&self, heard: &mut Heard, line: &[u8]) -> Result<()> {
        let note = serde_json::from_slice(line).map_err(|error| Problem::failed("a rank's report", error))?;
        match note {
            Note::Row(row, line) => {
                heard.rows.push(row);
                let row = heard.rows.len() as u64;
                self.show(row, self.rows, &format!("measurement {row} of {}", self.rows));
                self.bar.suspend(|| self.screen.line(&line))
            }
            Note::Epoch { epoch, epochs, loss } => {
                self.show(epoch.into(), epochs.into(), &format!("epoch {epoch} of {epochs}, loss {loss:.4}"));
                Ok(())
            }
            Note::Recovered(recovery) => {
                heard.recovery = Some(recovery);
                Ok(())
            }
            Note::Trained(trained) => {
                heard.trained = Some(trained);
                Ok(())
            }
        }
    }
}

impl Sink for Listener {
    fn piece(&self, rank: u32, stream: Stream, piece: &[u8]) -> io::Result<()> {
        if stream == Stream::Err {
            return self.bar.suspend(|| self.terminal.piece(rank, Stream::Err, piece));
        }
        let mut heard = self.heard();
        if heard.result.is_ok() {
            heard.result = self.hear(&mut heard, piece);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::report::tests::row;

    #[test]
    fn ranks_are_heard_and_nonsense_is_a_problem() {
        let (screen, heard) = (Screen { json: true }, Mutex::default());
        let (bar, terminal) = (bar(), Terminal::default());
        let listener = Listener { screen, heard, rows: 28, bar, terminal };
        let note = Note::Row(row(3), "line".to_owned());
        listener.piece(0, Stream::Out, &serde_json::to_vec(&note).unwrap()).unwrap();
        assert_eq!(listener.heard().rows, [row(3)]);
        listener.piece(0, Stream::Out, b"hello").unwrap();
        assert!(listener.heard().result.is_err());
    }

    #[test]
    fn the_progress_template_is_valid() {
        assert!(ProgressStyle::with_template(BAR).is_ok());
    }
}
