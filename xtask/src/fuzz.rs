//! `cargo xtask fuzz [--inputs N | --keep] [target]`: runs the fuzz targets of `fuzz/` one after the other, each for so
//! many inputs. The committed corpus, `fuzz/corpus/TARGET.hex`, is the start. New inputs stay in `fuzz/target/corpus`;
//! `--keep` adds the inputs with new coverage to the committed corpus.
//!
//! Without the address sanitizer: nearly all that is under test is safe Rust, and takes several times as many inputs in
//! the same time. Overflows and debug assertions are checked.

#[path = "../../fuzz/shared/corpus.rs"]
mod corpus;

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::tool::{Outcome, at, fresh, repository, succeed};

/// A target, and the longest input that it gets: twice as long, half as many in the same time.
type Target = (&'static str, u32);

const TARGETS: [Target; 5] =
    [("frame", 256), ("handshake", 400), ("store", 512), ("control", 256), ("compression", 512)];

const INPUTS: u64 = 10_000_000;

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
    let Some(inputs) = inputs else { return targets.iter().try_for_each(|(name, _)| keep(name)) };
    let crashed: Vec<String> = targets.into_iter().filter_map(|target| fuzz(target, inputs).err()).collect();
    println!("fuzz: cargo xtask fuzz --keep: adds the found inputs with new coverage to fuzz/corpus");
    if crashed.is_empty() { Ok(()) } else { Err(crashed.join("; ")) }
}

/// Runs a target on these folders with options of libFuzzer. Cargo-fuzz counts coverage by options of the compiler that
/// a stable one takes by this variable.
fn cargo_fuzz(name: &str, folders: [&PathBuf; 2], options: &[String]) -> Outcome {
    let mut command = Command::new("cargo");
    command.args(["fuzz", "run", "--sanitizer", "none", name]).args(folders).arg("--").args(options);
    // Memory that is taken for every input comes from the heap, not from the system anew.
    command.envs([("MALLOC_MMAP_THRESHOLD_", "1073741824"), ("MALLOC_TRIM_THRESHOLD_", "1073741824")]);
    succeed(command.current_dir(repository().join("fuzz")).env("RUSTC_BOOTSTRAP", "1"))
}

/// The committed inputs of a target, a file each, and the folder of the found ones.
fn folders(name: &str) -> Outcome<[PathBuf; 2]> {
    let [seeds, found] =
        ["seeds", "corpus"].map(|kind| repository().join("fuzz/target").join(kind).join(name));
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
    cargo_fuzz(name, [&seeds, &found], &["-merge=1".to_owned()])?;
    let file = repository().join(format!("fuzz/corpus/{name}.hex"));
    let mut lines = Vec::new();
    for input in fs::read_dir(&seeds).map_err(at(&seeds))? {
        let bytes = input.and_then(|input| fs::read(input.path())).map_err(at(&seeds))?;
        lines.push(bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>() + "\n");
    }
    lines.sort_unstable();
    println!("fuzz: {} inputs in {}", lines.len(), file.display());
    fs::write(&file, lines.concat()).map_err(at(&file))
}

/// Runs one target, and prints libFuzzer's figures.
fn fuzz((name, bytes_max): Target, inputs: u64) -> Outcome {
    let [seeds, found] = folders(name)?;
    println!("fuzz: {name}");
    let mut options = ["-verbosity=0", "-print_final_stats=1", "-timeout=10"].map(str::to_owned).to_vec();
    options.extend([format!("-runs={inputs}"), format!("-max_len={bytes_max}")]);
    cargo_fuzz(name, [&found, &seeds], &options).map_err(|problem| format!("{name}: {problem}"))
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
}
