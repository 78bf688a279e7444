//! A bar for who waits at a terminal: how long the calibration has taken, and about how long it takes.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::run::output::{Sink, Spokesman, Stream};

/// Of each rank but the first; measured on two cores beside other work: 2.0 to 2.3 s with 2 ranks, 6.5 s with 4.
const MILLISECONDS_PER_PAIR: u64 = 2_150;
const STEP: Duration = Duration::from_millis(100);
const TEMPLATE: &str = "{wide_bar} {msg}";

/// Shows the bar until the first line of the result, and hands lines on. Without a terminal nothing is shown.
pub(super) struct Progress {
    bar: ProgressBar,
    is_over: Arc<AtomicBool>,
    cleared: OnceLock<()>,
    spokesman: Spokesman,
}

impl Progress {
    pub(super) fn start(ranks: u32) -> Progress {
        let expected_ms = MILLISECONDS_PER_PAIR * u64::from(ranks - 1);
        let bar = ProgressBar::new(expected_ms);
        // The template is a constant, and a test parses it.
        bar.set_style(
            ProgressStyle::with_template(TEMPLATE).unwrap_or_else(|_| ProgressStyle::default_bar()),
        );
        let (is_over, started) = (Arc::new(AtomicBool::new(false)), Instant::now());
        if !bar.is_hidden() {
            let (bar, is_over) = (bar.clone(), is_over.clone());
            thread::spawn(move || {
                while !is_over.load(Ordering::Acquire) {
                    let elapsed_ms = started.elapsed().as_millis() as u64;
                    bar.set_position(elapsed_ms.min(expected_ms));
                    let seconds = |milliseconds: u64| milliseconds as f64 / 1e3;
                    let (now, expected) = (seconds(elapsed_ms), seconds(expected_ms));
                    bar.set_message(format!("{now:.1} s of about {expected:.1}"));
                    thread::sleep(STEP);
                }
            });
        }
        Progress { bar, is_over, cleared: OnceLock::new(), spokesman: Spokesman::default() }
    }

    fn clear(&self) {
        self.cleared.get_or_init(|| {
            self.is_over.store(true, Ordering::Release);
            self.bar.finish_and_clear();
        });
    }
}

impl Sink for Progress {
    fn piece(&self, rank: u32, stream: Stream, piece: &[u8]) -> io::Result<()> {
        self.clear();
        self.spokesman.piece(rank, stream, piece)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_template_can_be_parsed() {
        assert!(ProgressStyle::with_template(TEMPLATE).is_ok());
    }
}
