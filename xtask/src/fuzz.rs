//! `cargo xtask fuzz [--inputs N] [target]`: runs the fuzz targets of `fuzz/` one after the other, each for so many
//! inputs, and prints a line for each. What is found on the way stays in `fuzz/target/corpus`; the committed corpus is
//! where they start from.
//!
//! Without the address sanitizer: nearly all that is under test is safe Rust, and takes several times as many inputs in
//! the same time. Overflows and debug assertions are checked.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Instant;

/// A target, and the longest input that it gets: twice as long, half as many in the same time.
type Target = (&'static str, u32);

const TARGETS: [Target; 5] =
    [("frame", 256), ("handshake", 400), ("store", 512), ("control", 256), ("compression", 512)];

const INPUTS: u64 = 10_000_000;

/// Memory above which an input counts as a crash.
const RSS_MB_MAX: u32 = 2048;

const USAGE: &str =
    "fuzz: usage: cargo xtask fuzz [--inputs N] [frame | handshake | store | control | compression]";

/// Runs what `words` ask for; false when an input crashed a target, or when fuzzing is not possible here.
pub(crate) fn run(repository: &Path, words: &[&str]) -> bool {
    let outcome = parse(words).and_then(|(inputs, targets)| {
        let cargo = Cargo::find(repository)?;
        targets.iter().try_for_each(|(name, _)| cargo.build(name))?;
        println!("target         inputs  seconds  corpus  crashes");
        targets.iter().try_fold(true, |passed, target| Ok(cargo.fuzz(*target, inputs)? && passed))
    });
    outcome.unwrap_or_else(|problem| {
        println!("{problem}");
        false
    })
}

/// How many inputs, to which targets.
fn parse(words: &[&str]) -> Result<(u64, Vec<Target>), String> {
    let (inputs, rest) = match words {
        ["--inputs", inputs, rest @ ..] => (inputs.parse().map_err(|_| USAGE)?, rest),
        rest => (INPUTS, rest),
    };
    match rest {
        [] => Ok((inputs, TARGETS.to_vec())),
        [name] => {
            let target = TARGETS.into_iter().find(|target| target.0 == *name);
            Ok((inputs, vec![target.ok_or(USAGE)?]))
        }
        _ => Err(USAGE.to_owned()),
    }
}

/// The cargo that can fuzz.
struct Cargo {
    folder: PathBuf,
    has_nightly: bool,
}

impl Cargo {
    fn find(repository: &Path) -> Result<Cargo, String> {
        let answers = |words: &[&str]| {
            let output =
                Command::new("cargo").args(words).stdout(Stdio::null()).stderr(Stdio::null()).status();
            output.is_ok_and(|status| status.success())
        };
        if !answers(&["fuzz", "--version"]) {
            return Err(
                "fuzz: cargo-fuzz is missing: cargo install cargo-fuzz, and its folder in PATH".to_owned()
            );
        }
        let has_nightly = answers(&["+nightly", "--version"]);
        if !has_nightly {
            println!("fuzz: no nightly toolchain (rustup toolchain install nightly): trying the present one");
        }
        Ok(Cargo { folder: repository.join("fuzz"), has_nightly })
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("cargo");
        if self.has_nightly {
            command.arg("+nightly");
        } else {
            command.env("RUSTC_BOOTSTRAP", "1");
        }
        command.args(["fuzz", words[0], "--sanitizer", "none"]).args(&words[1..]).current_dir(&self.folder);
        command
    }

    fn build(&self, name: &str) -> Result<(), String> {
        let status = self.command(&["build", name]).status();
        let is_built = status.as_ref().is_ok_and(ExitStatus::success);
        is_built.then_some(()).ok_or_else(|| format!("fuzz: target {name} cannot be built: {status:?}"))
    }

    /// Runs one target; true unless an input crashed it.
    fn fuzz(&self, (name, bytes_max): Target, inputs: u64) -> Result<bool, String> {
        let work = self.folder.join("target/corpus").join(name);
        let log = self.folder.join("target").join(format!("{name}.log"));
        let problem = |error: std::io::Error| format!("fuzz: {name}: {error}");
        fs::create_dir_all(&work).map_err(problem)?;
        let output = fs::File::create(&log).map_err(problem)?;
        let start = Instant::now();
        let status = self
            .command(&["run", name])
            .arg(&work)
            .arg(self.folder.join("corpus").join(name))
            .arg("--")
            .args([format!("-runs={inputs}"), format!("-max_len={bytes_max}")])
            .args([format!("-rss_limit_mb={RSS_MB_MAX}"), "-timeout=10".to_owned()])
            // Memory that is taken for every input comes from the heap, not from the system anew.
            .env("MALLOC_MMAP_THRESHOLD_", "1073741824")
            .env("MALLOC_TRIM_THRESHOLD_", "1073741824")
            .stderr(output)
            .status()
            .map_err(problem)?;
        let text = String::from_utf8_lossy(&fs::read(&log).map_err(problem)?).into_owned();
        let crashes = usize::from(!status.success());
        let corpus = fs::read_dir(&work).map_err(problem)?.count();
        let (inputs, seconds) = (executed(&text), start.elapsed().as_secs());
        println!("{name:10} {inputs:10} {seconds:8} {corpus:7} {crashes:8}");
        if crashes > 0 {
            let lines: Vec<&str> = text.lines().collect();
            println!("{}", lines[lines.len().saturating_sub(40)..].join("\n"));
            println!("fuzz: all of it is in {}", log.display());
        }
        Ok(crashes == 0)
    }
}

/// How many inputs a run had, as libFuzzer says every now and then behind `#`, and at its end.
fn executed(log: &str) -> u64 {
    let number = |line: &str| line.strip_prefix('#')?.split_whitespace().next()?.parse().ok();
    let done = |line: &str| line.strip_prefix("Done ")?.split(' ').next()?.parse().ok();
    log.lines().filter_map(|line| number(line).or_else(|| done(line))).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_understood_or_refused() {
        assert_eq!(parse(&[]), Ok((INPUTS, TARGETS.to_vec())));
        assert_eq!(parse(&["--inputs", "7", "store"]), Ok((7, vec![TARGETS[2]])));
        for words in [&["nothing"][..], &["--inputs"], &["--inputs", "x"], &["store", "frame"]] {
            assert_eq!(parse(words), Err(USAGE.to_owned()), "{words:?}");
        }
    }

    #[test]
    fn the_inputs_of_a_run_are_counted() {
        let log = "INFO: Seed: 1\n#2\tINITED cov: 3\n#4096\tpulse  cov: 9\n";
        assert_eq!((executed(""), executed(log)), (0, 4096));
        assert_eq!(executed(&format!("{log}Done 5000 runs in 2 second(s)\n")), 5000);
    }

    #[test]
    fn every_target_has_its_program_and_its_corpus() {
        for (name, _) in TARGETS {
            let folder = crate::repository().join("fuzz");
            assert!(folder.join(format!("fuzz_targets/{name}.rs")).is_file(), "{name}");
            let inputs = fs::read_dir(folder.join("corpus").join(name)).map(Iterator::count);
            assert!(inputs.is_ok_and(|inputs| inputs > 0), "{name}");
        }
    }
}
