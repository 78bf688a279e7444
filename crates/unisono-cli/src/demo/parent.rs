//! The parent of the demonstration: it starts the ranks, and prints and checks what they report.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use super::training::{EPOCHS, Recovery, Trained};
use super::{Kill, Note, RANK_COMMAND};
use crate::arguments::DemoArguments;
use crate::bench::report::{Row, header};
use crate::print;
use crate::problem::{Problem, Result};
use crate::run::output::{Sink, Stream, Terminal};
use crate::run::{Job, launch};

/// The least accuracy. One rank alone reaches more, so a lower one means that the gradients are wrong.
const ACCURACY_MIN: f64 = 0.95;
/// Digits of a hash that the table shows.
const HASH_DIGITS: usize = 16;

/// `unisono demo`.
pub(crate) fn demo(arguments: DemoArguments) -> Result<()> {
    let DemoArguments { ranks, kill, json } = arguments;
    if let Some(Kill { rank, .. }) = kill.filter(|kill| ranks < 2 || kill.rank >= ranks) {
        let problem = format!("--kill {rank}: of {ranks} ranks, one of 0 to {} can die", ranks - 1);
        let problem = if ranks < 2 { "--kill: no rank would be left".to_owned() } else { problem };
        return Err(Problem::usage(problem));
    }
    let screen = Screen { json };
    screen.line(&format!("unisono: {ranks} processes on this machine, talking over loopback"))?;
    screen.line("\nEvery collective, every element of every result checked:")?;
    screen.line(&header())?;
    let listener = Arc::new(Listener { screen, heard: Mutex::default(), bar: bar() });
    let mut words = vec![RANK_COMMAND.into()];
    words.extend(kill.iter().flat_map(|kill| ["--kill".into(), kill.to_string().into()]));
    let job = Job { victim: kill.map(|kill| kill.rank), ..Job::of_this_program(ranks, words)? };
    let ended = launch(&job, listener.clone());
    listener.bar.finish_and_clear();
    ended?;
    let heard = std::mem::take(&mut *listener.heard());
    heard.result?;
    let mut trained = heard.trained.ok_or_else(|| Problem::failed("the ranks", "ended without a report"))?;
    // The ranks after the last survivor are gone and not in the report.
    trained.weights_hash.resize(ranks as usize, None);
    report(screen, &heard.rows, heard.recovery.as_ref(), &trained)?;
    judge(kill, &heard.rows, heard.recovery.as_ref(), &trained)
}

fn bar() -> ProgressBar {
    let bar = ProgressBar::new(u64::from(EPOCHS));
    // INVARIANT: the template is a constant, and a test parses it.
    let style = ProgressStyle::with_template("{wide_bar} epoch {pos} of {len}, loss {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

/// Standard output. If JSON was asked for, nothing but the document may appear in it.
#[derive(Clone, Copy)]
struct Screen {
    json: bool,
}

impl Screen {
    fn line(self, text: &str) -> Result<()> {
        if self.json { Ok(()) } else { print::line(text) }
    }
}

/// What the ranks have reported so far.
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
    bar: ProgressBar,
}

impl Listener {
    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hear(&self, heard: &mut Heard, line: &[u8]) -> Result<()> {
        let note = serde_json::from_slice(line).map_err(|error| Problem::failed("a rank's report", error))?;
        match note {
            Note::Row(row, line) => {
                heard.rows.push(row);
                self.screen.line(&line)
            }
            Note::Epoch(epoch, loss) => {
                self.bar.set_message(format!("{loss:.4}"));
                self.bar.set_position(u64::from(epoch));
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
    fn piece(&self, rank: u32, stream: Stream, piece: &[u8]) {
        if stream == Stream::Err {
            return self.bar.suspend(|| Terminal { tags: true }.piece(rank, Stream::Err, piece));
        }
        let mut heard = self.heard();
        if heard.result.is_ok() {
            heard.result = self.hear(&mut heard, piece);
        }
    }
}

/// The JSON document: the same as the table.
#[derive(Serialize)]
struct Document<'a> {
    collectives: Vec<CollectiveReport<'a>>,
    /// Null when no rank has died.
    recovery: Option<&'a Recovery>,
    training: &'a Trained,
}

#[derive(Serialize)]
struct CollectiveReport<'a> {
    op: &'a str,
    ranks: u32,
    bytes: u64,
    median_us: f64,
    busbw_gb_per_s: f64,
    wrong: u64,
}

impl<'a> From<&'a Row> for CollectiveReport<'a> {
    fn from(row: &'a Row) -> CollectiveReport<'a> {
        let Row { op, ranks, bytes, median_us, busbw_gb_per_s, wrong, .. } = row;
        CollectiveReport {
            op,
            ranks: *ranks,
            bytes: *bytes,
            median_us: *median_us,
            busbw_gb_per_s: *busbw_gb_per_s,
            wrong: *wrong,
        }
    }
}

fn report(screen: Screen, rows: &[Row], recovery: Option<&Recovery>, trained: &Trained) -> Result<()> {
    if screen.json {
        let collectives = rows.iter().map(CollectiveReport::from).collect();
        return print::document(&Document { collectives, recovery, training: trained });
    }
    let Trained { test_accuracy, epochs, seconds, bytes_on_wire, weights_hash } = trained;
    let (percent, megabytes) = (test_accuracy * 100.0, *bytes_on_wire as f64 / 1e6);
    print::line(
        "\nA 64-64-10 network learned to read handwritten digits, its gradients averaged by all_reduce:",
    )?;
    if let Some(Recovery { lost, survivors, step, milliseconds }) = recovery {
        print::line(&format!(
            "rank {} was killed; ranks {} went on from step {step}, {milliseconds:.1} ms after they noticed",
            list(lost),
            list(survivors)
        ))?;
    }
    print::line(&format!(
        "test accuracy {percent:.1} % on 360 images after {epochs} epochs on 1,437 others"
    ))?;
    print::line(&format!("{seconds:.2} s, {megabytes:.1} MB of gradients on the wire"))?;
    weights_hash.iter().enumerate().try_for_each(|(rank, hash)| {
        let hash = hash.as_deref().map_or("gone", |hash| hash.get(..HASH_DIGITS).unwrap_or(hash));
        print::line(&format!("rank {rank:<4} weights {hash}"))
    })
}

fn list(ranks: &[u32]) -> String {
    ranks.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

/// Prints everything that is wrong.
fn judge(kill: Option<Kill>, rows: &[Row], recovery: Option<&Recovery>, trained: &Trained) -> Result<()> {
    let mut faults: Vec<String> = rows
        .iter()
        .filter(|row| row.wrong > 0)
        .map(|row| format!("{} of {} bytes: {} wrong elements", row.op, row.bytes, row.wrong))
        .collect();
    if trained.test_accuracy < ACCURACY_MIN {
        faults.push(format!("the test accuracy is {}, below {ACCURACY_MIN}", trained.test_accuracy));
    }
    let victim = kill.map(|kill| kill.rank);
    let lost = recovery.map_or(&[][..], |recovery| &recovery.lost);
    if !lost.iter().eq(&victim) {
        faults.push(format!("ranks {lost:?} died, but {victim:?} was to be killed"));
    }
    let (gone, left): (Vec<_>, Vec<_>) =
        (0u32..).zip(&trained.weights_hash).partition(|(_, hash)| hash.is_none());
    let hashes: Vec<&str> = left.iter().filter_map(|(_, hash)| hash.as_deref()).collect();
    if !gone.iter().map(|(rank, _)| rank).eq(&victim) || hashes.iter().any(|hash| *hash != hashes[0]) {
        faults.push(format!("the ranks' weights differ: {:?}", trained.weights_hash));
    }
    faults.iter().for_each(print::tell);
    if faults.is_empty() { Ok(()) } else { Err(Problem::reported()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trained(accuracy: f64, hashes: &[Option<&str>]) -> Trained {
        let weights_hash = hashes.iter().map(|hash| hash.map(str::to_owned)).collect();
        Trained { test_accuracy: accuracy, epochs: 1, seconds: 1.0, bytes_on_wire: 1, weights_hash }
    }

    fn row(wrong: u64) -> Row {
        Row {
            op: "all_gather".to_owned(),
            ranks: 2,
            bytes: 64,
            dtype: "f32".to_owned(),
            redop: None,
            algorithm: "ring".to_owned(),
            median_us: 1.0,
            min_us: 1.0,
            algbw_gb_per_s: 1.0,
            busbw_gb_per_s: 1.0,
            predicted_us: None,
            chosen: true,
            times_best: None,
            extra_rss_mib: None,
            wrong,
            compressed: None,
        }
    }

    #[test]
    fn every_fault_makes_the_demonstration_fail() {
        let same = [Some("a"), Some("a")];
        let whole = |rows: &[Row], trained: &Trained| judge(None, rows, None, trained);
        assert!(whole(&[row(0)], &trained(0.96, &same)).is_ok());
        assert!(whole(&[row(0), row(1)], &trained(0.96, &same)).is_err());
        assert!(whole(&[row(0)], &trained(0.94, &same)).is_err());
        assert!(whole(&[row(0)], &trained(0.96, &[Some("a"), Some("b")])).is_err());
        assert!(whole(&[row(0)], &trained(0.96, &[Some("a"), None])).is_err());
        let kill = Some(Kill { rank: 1, step: 3 });
        let recovery =
            |lost: &[u32]| Recovery { lost: lost.into(), survivors: vec![0], step: 3, milliseconds: 1.0 };
        let half = trained(0.96, &[Some("a"), None]);
        assert!(judge(kill, &[], Some(&recovery(&[1])), &half).is_ok());
        assert!(judge(kill, &[], Some(&recovery(&[0])), &half).is_err());
        assert!(judge(kill, &[], None, &half).is_err());
        assert!(judge(kill, &[], Some(&recovery(&[1])), &trained(0.96, &same)).is_err());
    }

    #[test]
    fn ranks_are_heard_and_nonsense_is_a_problem() {
        let listener = Listener { screen: Screen { json: true }, heard: Mutex::default(), bar: bar() };
        let note = Note::Row(row(3), "line".to_owned());
        listener.piece(0, Stream::Out, &serde_json::to_vec(&note).unwrap());
        assert_eq!(listener.heard().rows, [row(3)]);
        listener.piece(0, Stream::Out, b"hello");
        assert!(listener.heard().result.is_err());
    }

    #[test]
    fn the_progress_template_is_valid() {
        assert!(ProgressStyle::with_template("{wide_bar} epoch {pos} of {len}, loss {msg}").is_ok());
    }
}
