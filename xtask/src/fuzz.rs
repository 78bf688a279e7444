//! `cargo xtask fuzz [--inputs N | --keep] [target]`: runs the fuzz targets of `fuzz/` one after the other, each for so
//! many inputs, and prints a line for each. The committed corpus, `fuzz/corpus/TARGET.hex`, is the start. New
//! inputs stay in `fuzz/target/corpus`; `--keep` adds the inputs with new coverage to the committed corpus.
//!
//! Without the address sanitizer: nearly all that is under test is safe Rust, and takes several times as many inputs in
//! the same time. Overflows and debug assertions are checked.

#[path = "../../fuzz/shared/corpus.rs"]
mod corpus;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::tool::{Outcome, at, fresh, repository, succeed};

/// A target, and the longest input that it gets: twice as long, half as many in the same time.
type Target = (&'static str, u32);

const TARGETS: [Target; 5] =
    [("frame", 256), ("handshake", 400), ("store", 512), ("control", 256), ("compression", 512)];

const INPUTS: u64 = 10_000_000;

/// Memory above which an input counts as a crash.
const RSS_MB_MAX: u32 = 2048;

const USAGE: &str =
    "usage: cargo xtask fuzz [--inputs N | --keep] [frame | handshake | store | control | compression]";

/// Runs the work that `words` ask for.
pub(crate) fn run(words: &[&str]) -> Outcome {
    // No number of inputs: the found ones are kept.
    let (inputs, rest) = match words {
        ["--inputs", inputs, rest @ ..] => (Some(inputs.parse().map_err(|_| USAGE)?), rest),
        ["--keep", rest @ ..] => (None, rest),
        rest => (Some(INPUTS), rest),
    };
    let is_meant = |target: &Target| rest.is_empty() || *rest == [target.0];
    let targets: Vec<Target> = TARGETS.into_iter().filter(is_meant).collect();
    if targets.is_empty() {
        return Err(USAGE.to_owned());
    }
    if !answers(&["fuzz", "--version"]) {
        return Err("cargo-fuzz is missing: cargo install cargo-fuzz, and its folder in PATH".to_owned());
    }
    if !answers(&["+nightly", "--version"]) {
        println!("fuzz: no nightly toolchain (rustup toolchain install nightly): trying the present one");
    }
    targets.iter().try_for_each(|(name, _)| succeed(&mut cargo(&["build", name])))?;
    let Some(inputs) = inputs else { return targets.iter().try_for_each(|(name, _)| keep(name)) };
    let crashed: Vec<String> = targets.into_iter().filter_map(|target| fuzz(target, inputs).err()).collect();
    println!("fuzz: cargo xtask fuzz --keep: adds the found inputs with new coverage to fuzz/corpus");
    if crashed.is_empty() { Ok(()) } else { Err(crashed.join("; ")) }
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
    let mut lines = Vec::new();
    for input in fs::read_dir(&seeds).map_err(at(&seeds))? {
        let bytes = input.and_then(|input| fs::read(input.path())).map_err(at(&seeds))?;
        lines.push(bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>() + "\n");
    }
    lines.sort_unstable();
    println!("fuzz: {} inputs in {}", lines.len(), file.display());
    fs::write(&file, lines.concat()).map_err(at(&file))
}

/// Runs one target, and prints libFuzzer's figures and a line of ours.
fn fuzz((name, bytes_max): Target, inputs: u64) -> Outcome {
    let [seeds, found] = folders(name)?;
    let start = Instant::now();
    let outcome = succeed(
        cargo(&["run", name])
            .args([&found, &seeds])
            .args(["--", "-verbosity=0", "-print_final_stats=1", "-timeout=10"])
            .args([format!("-runs={inputs}"), format!("-max_len={bytes_max}")])
            .arg(format!("-rss_limit_mb={RSS_MB_MAX}"))
            // Memory that is taken for every input comes from the heap, not from the system anew.
            .envs([("MALLOC_MMAP_THRESHOLD_", "1073741824"), ("MALLOC_TRIM_THRESHOLD_", "1073741824")]),
    );
    let (found, seconds) = (fs::read_dir(&found).map_err(at(&found))?.count(), start.elapsed().as_secs());
    let verdict = if outcome.is_ok() { "no crash" } else { "a crash" };
    println!("fuzz: {name}: {verdict} in {seconds} s, {found} inputs found so far");
    outcome.map_err(|problem| format!("{name}: {problem}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_words_are_refused() {
        for words in [&["nothing"][..], &["--inputs"], &["--inputs", "x"], &["store", "frame"]] {
            assert_eq!(run(words), Err(USAGE.to_owned()), "{words:?}");
        }
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
