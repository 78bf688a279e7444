//! `cargo xtask fuzz [--inputs N | --keep] [target]`: runs the fuzz targets of `fuzz/` one after the other, each for so
//! many inputs, and prints a line for each. The committed corpus, `fuzz/corpus/TARGET.hex`, is the start. New
//! inputs stay in `fuzz/target/corpus`; `--keep` adds the inputs with new coverage to the committed corpus.
//!
//! Without the address sanitizer: nearly all that is under test is safe Rust, and takes several times as many inputs in
//! the same time. Overflows and debug assertions are checked.

#[path = "../../fuzz/shared/corpus.rs"]
mod corpus;

use std::fs;
use std::io;
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
    "fuzz: usage: cargo xtask fuzz [--inputs N | --keep] [frame | handshake | store | control | compression]";

/// The work on each target.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Work {
    Inputs(u64),
    Keep,
}

/// Runs the work that `words` ask for; false when an input crashed a target, or when fuzzing is not possible here.
pub(crate) fn run(repository: &Path, words: &[&str]) -> bool {
    let outcome = parse(words).and_then(|(work, targets)| {
        let cargo = Cargo::find(repository)?;
        targets.iter().try_for_each(|(name, _)| cargo.build(name))?;
        let Work::Inputs(inputs) = work else {
            return targets.iter().try_for_each(|(name, _)| cargo.keep(name)).map(|()| true);
        };
        println!("target         inputs  seconds   found  crashes");
        let each = |passed, target: &Target| cargo.fuzz(*target, inputs).map(|well| well && passed);
        let passed = targets.iter().try_fold(true, each)?;
        println!("fuzz: cargo xtask fuzz --keep: adds the found inputs with new coverage to fuzz/corpus");
        Ok(passed)
    });
    outcome.unwrap_or_else(|problem| {
        println!("{problem}");
        false
    })
}

fn parse(words: &[&str]) -> Result<(Work, Vec<Target>), String> {
    let (work, rest) = match words {
        ["--inputs", inputs, rest @ ..] => (Work::Inputs(inputs.parse().map_err(|_| USAGE)?), rest),
        ["--keep", rest @ ..] => (Work::Keep, rest),
        rest => (Work::Inputs(INPUTS), rest),
    };
    match rest {
        [] => Ok((work, TARGETS.to_vec())),
        [name] => {
            let target = TARGETS.into_iter().find(|target| target.0 == *name);
            Ok((work, vec![target.ok_or(USAGE)?]))
        }
        _ => Err(USAGE.to_owned()),
    }
}

/// The cargo that can fuzz.
struct Cargo<'a> {
    repository: &'a Path,
    folder: PathBuf,
    has_nightly: bool,
}

impl Cargo<'_> {
    fn find(repository: &Path) -> Result<Cargo<'_>, String> {
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
        Ok(Cargo { repository, folder: repository.join("fuzz"), has_nightly })
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

    /// The committed inputs of a target, a file each, and the folder of the found ones.
    fn folders(&self, name: &str) -> Result<[PathBuf; 2], String> {
        let folders = ["seeds", "corpus"].map(|kind| self.folder.join("target").join(kind).join(name));
        let inputs = corpus::read(self.repository, name)?;
        // Seeds of an earlier commit may be there.
        let _ = fs::remove_dir_all(&folders[0]);
        let make = || {
            folders.iter().try_for_each(fs::create_dir_all)?;
            (1..)
                .zip(inputs)
                .try_for_each(|(line, input)| fs::write(folders[0].join(format!("{line}")), input))
        };
        make().map_err(|error| format!("fuzz: {name}: {error}"))?;
        Ok(folders)
    }

    /// Adds the found inputs with new coverage to the committed corpus of a target.
    fn keep(&self, name: &str) -> Result<(), String> {
        let folders = self.folders(name)?;
        let status = self.command(&["run", name]).args(&folders).args(["--", "-merge=1"]).status();
        if !status.as_ref().is_ok_and(ExitStatus::success) {
            return Err(format!("fuzz: {name}: {status:?}"));
        }
        let line = |file: io::Result<fs::DirEntry>| {
            let digits = fs::read(file?.path())?.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
            io::Result::Ok(digits + "\n")
        };
        let file = self.folder.join(format!("corpus/{name}.hex"));
        let pack = || {
            let mut lines: Vec<String> = fs::read_dir(&folders[0])?.map(line).collect::<Result<_, _>>()?;
            lines.sort_unstable();
            fs::write(&file, lines.concat())
                .map(|()| println!("fuzz: {} inputs in {}", lines.len(), file.display()))
        };
        pack().map_err(|error: io::Error| format!("fuzz: {name}: {error}"))
    }

    /// Runs one target; true unless an input crashed it.
    fn fuzz(&self, (name, bytes_max): Target, inputs: u64) -> Result<bool, String> {
        let [seeds, found] = self.folders(name)?;
        let log = self.folder.join("target").join(format!("{name}.log"));
        let problem = |error: io::Error| format!("fuzz: {name}: {error}");
        let output = fs::File::create(&log).map_err(problem)?;
        let start = Instant::now();
        let status = self
            .command(&["run", name])
            .args([&found, &seeds])
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
        let found = fs::read_dir(&found).map_err(problem)?.count();
        let (inputs, seconds) = (executed(&text), start.elapsed().as_secs());
        println!("{name:10} {inputs:10} {seconds:8} {found:7} {crashes:8}");
        if crashes > 0 {
            let lines: Vec<&str> = text.lines().collect();
            println!("{}", lines[lines.len().saturating_sub(40)..].join("\n"));
            println!("fuzz: all of it is in {}", log.display());
        }
        Ok(crashes == 0)
    }
}

/// The number of inputs of a run, as libFuzzer says every now and then behind `#`, and at its end.
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
        assert_eq!(parse(&[]), Ok((Work::Inputs(INPUTS), TARGETS.to_vec())));
        assert_eq!(parse(&["--inputs", "7", "store"]), Ok((Work::Inputs(7), vec![TARGETS[2]])));
        assert_eq!(parse(&["--keep", "store"]), Ok((Work::Keep, vec![TARGETS[2]])));
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
            let program = crate::repository().join(format!("fuzz/fuzz_targets/{name}.rs"));
            assert!(program.is_file(), "{name}");
            assert!(!corpus::read(crate::repository(), name).unwrap().is_empty(), "{name}");
        }
    }
}
