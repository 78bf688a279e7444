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
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::tool::{Outcome, at, fresh, read, regex, repository, succeed};

/// A target, and the longest input that it gets: twice as long, half as many in the same time.
type Target = (&'static str, u32);

const TARGETS: [Target; 5] =
    [("frame", 256), ("handshake", 400), ("store", 512), ("control", 256), ("compression", 512)];

const INPUTS: u64 = 10_000_000;

/// Memory above which an input counts as a crash.
const RSS_MB_MAX: u32 = 2048;

const USAGE: &str =
    "usage: cargo xtask fuzz [--inputs N | --keep] [frame | handshake | store | control | compression]";

/// The work on each target.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Work {
    Inputs(u64),
    Keep,
}

/// Runs the work that `words` ask for.
pub(crate) fn run(words: &[&str]) -> Outcome {
    let (work, targets) = parse(words)?;
    if !answers(&["fuzz", "--version"]) {
        return Err("cargo-fuzz is missing: cargo install cargo-fuzz, and its folder in PATH".to_owned());
    }
    if !answers(&["+nightly", "--version"]) {
        println!("fuzz: no nightly toolchain (rustup toolchain install nightly): trying the present one");
    }
    targets.iter().try_for_each(|(name, _)| succeed(&mut cargo(&["build", name])))?;
    let Work::Inputs(inputs) = work else { return targets.iter().try_for_each(|(name, _)| keep(name)) };
    println!("target         inputs  seconds   found  crashes");
    let mut crashed = 0;
    for target in targets {
        crashed += usize::from(!fuzz(target, inputs)?);
    }
    println!("fuzz: cargo xtask fuzz --keep: adds the found inputs with new coverage to fuzz/corpus");
    if crashed == 0 { Ok(()) } else { Err(format!("{crashed} targets crashed")) }
}

fn parse(words: &[&str]) -> Outcome<(Work, Vec<Target>)> {
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

/// Whether there is a cargo that understands these words.
fn answers(words: &[&str]) -> bool {
    let status = Command::new("cargo").args(words).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

fn folder() -> PathBuf {
    repository().join("fuzz")
}

/// The cargo that can fuzz.
fn cargo(words: &[&str]) -> Command {
    let mut command = Command::new("cargo");
    if answers(&["+nightly", "--version"]) {
        command.arg("+nightly");
    } else {
        command.env("RUSTC_BOOTSTRAP", "1");
    }
    command.args(["fuzz", words[0], "--sanitizer", "none"]).args(&words[1..]).current_dir(folder());
    command
}

/// The committed inputs of a target, a file each, and the folder of the found ones.
fn folders(name: &str) -> Outcome<[PathBuf; 2]> {
    let [seeds, found] = ["seeds", "corpus"].map(|kind| folder().join("target").join(kind).join(name));
    // Seeds of an earlier commit may be there.
    fresh(&seeds)?;
    fs::create_dir_all(&found).map_err(at(&found))?;
    for (line, input) in corpus::read(repository(), name)?.iter().enumerate() {
        fs::write(seeds.join(line.to_string()), input).map_err(at(&seeds))?;
    }
    Ok([seeds, found])
}

/// Adds the found inputs with new coverage to the committed corpus of a target.
fn keep(name: &str) -> Outcome {
    let [seeds, found] = folders(name)?;
    succeed(cargo(&["run", name]).args([&seeds, &found]).args(["--", "-merge=1"]))?;
    let file = folder().join(format!("corpus/{name}.hex"));
    let line = |input: io::Result<fs::DirEntry>| {
        let digits = fs::read(input?.path())?.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        io::Result::Ok(digits + "\n")
    };
    let lines = fs::read_dir(&seeds).and_then(|inputs| inputs.map(line).collect::<Result<Vec<_>, _>>());
    let mut lines = lines.map_err(at(&seeds))?;
    lines.sort_unstable();
    println!("fuzz: {} inputs in {}", lines.len(), file.display());
    fs::write(&file, lines.concat()).map_err(at(&file))
}

/// Runs one target; true unless an input crashed it.
fn fuzz((name, bytes_max): Target, inputs: u64) -> Outcome<bool> {
    let [seeds, found] = folders(name)?;
    let log = folder().join("target").join(format!("{name}.log"));
    let start = Instant::now();
    let passed = succeed(
        cargo(&["run", name])
            .args([&found, &seeds])
            .args(["--", &format!("-runs={inputs}"), &format!("-max_len={bytes_max}")])
            .args([&format!("-rss_limit_mb={RSS_MB_MAX}"), "-timeout=10"])
            // Memory that is taken for every input comes from the heap, not from the system anew.
            .envs([("MALLOC_MMAP_THRESHOLD_", "1073741824"), ("MALLOC_TRIM_THRESHOLD_", "1073741824")])
            .stderr(fs::File::create(&log).map_err(at(&log))?),
    )
    .is_ok();
    let text = read(&log)?;
    let found = fs::read_dir(&found).map_err(at(&found))?.count();
    let (inputs, seconds) = (executed(&text), start.elapsed().as_secs());
    println!("{name:10} {inputs:10} {seconds:8} {found:7} {:8}", usize::from(!passed));
    if !passed {
        let lines: Vec<&str> = text.lines().collect();
        println!("{}", lines[lines.len().saturating_sub(40)..].join("\n"));
        println!("fuzz: all of it is in {}", log.display());
    }
    Ok(passed)
}

/// The number of inputs of a run, as libFuzzer says every now and then behind `#`, and at its end.
fn executed(log: &str) -> u64 {
    let said = regex(r"(?m)^(?:#|Done )([0-9]+)");
    said.captures_iter(log).filter_map(|found| found[1].parse().ok()).max().unwrap_or(0)
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
            let program = repository().join(format!("fuzz/fuzz_targets/{name}.rs"));
            assert!(program.is_file(), "{name}");
            assert!(!corpus::read(repository(), name).unwrap().is_empty(), "{name}");
        }
    }
}
