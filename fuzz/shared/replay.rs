//! The work of a fuzz target on stable Rust: every input of its corpus, then seeded changes of them, under a watchdog.

mod corpus;

use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// Changed inputs for each target.
const MUTATIONS: u64 = 20_000;

/// Longest changed input, also of the fuzzer.
const INPUT_BYTES_MAX: usize = 4096;

/// For all inputs of a target, far beyond the time that they take.
const WATCHDOG: Duration = Duration::from_secs(300);

/// The seed of the changes.
const SEED: u64 = 1;

/// Says which input was running when a target panicked.
struct Running<'a> {
    name: &'a str,
    what: &'a str,
    bytes: &'a [u8],
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            let bytes: String = self.bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            eprintln!("target {}, {}, {} bytes: {bytes}", self.name, self.what, self.bytes.len());
        }
    }
}

/// Runs a target on its corpus and on changes of it. Panics as the target does, or when it hangs.
pub(crate) fn replay(name: &'static str, target: fn(&[u8])) {
    let (done, result) = mpsc::channel();
    let body = thread::spawn(move || {
        run(name, target);
        let _ = done.send(());
    });
    match result.recv_timeout(WATCHDOG) {
        Ok(()) => {}
        Err(RecvTimeoutError::Timeout) => panic!("target {name} hangs"),
        Err(RecvTimeoutError::Disconnected) => {
            // Only a panic ends it before it is done.
            body.join().map_or_else(|panic| std::panic::resume_unwind(panic), drop)
        }
    }
}

fn run(name: &str, target: fn(&[u8])) {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let corpus = corpus::read(&repository, name).unwrap_or_else(|error| panic!("{error}"));
    assert!(!corpus.is_empty(), "no inputs");
    eprintln!("target {name}: {} inputs of its corpus", corpus.len());
    for (line, bytes) in (1..).zip(&corpus) {
        let _running = Running { name, what: &format!("line {line} of its corpus"), bytes };
        target(bytes);
    }
    let mut random = Random(SEED);
    for number in 0..MUTATIONS {
        let bytes = mutated(&corpus, &mut random);
        let _running = Running { name, what: &format!("seed {SEED}, change {number}"), bytes: &bytes };
        target(&bytes);
    }
}

/// One input of the corpus, changed in up to 8 ways.
fn mutated(corpus: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut bytes = corpus[random.below(corpus.len())].clone();
    for _ in 0..1 + random.below(8) {
        let at = random.below(bytes.len() + 1);
        let count = random.below(16).min(bytes.len() - at);
        match random.below(7) {
            0 if count > 0 => bytes[at] ^= 1 << random.below(8),
            1 if count > 0 => bytes[at] = random.below(256) as u8,
            2 if count > 0 => bytes[at..at + count].fill([0, 0xff][random.below(2)]),
            3 => drop(bytes.drain(at..at + count)),
            4 => {
                let new: Vec<u8> = (0..random.below(16)).map(|_| random.below(256) as u8).collect();
                bytes.splice(at..at, new);
            }
            5 => {
                let copied = bytes[at..at + count].to_vec();
                let to = random.below(bytes.len() + 1);
                bytes.splice(to..to, copied);
            }
            _ => {
                // The front of this one, the back of another.
                let other = &corpus[random.below(corpus.len())];
                bytes.truncate(at);
                bytes.extend_from_slice(&other[random.below(other.len() + 1)..]);
            }
        }
        bytes.truncate(INPUT_BYTES_MAX);
    }
    bytes
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}
