//! `cargo xtask test`: the checks of a change before it is taken, cheapest first.
//!
//! | file | contents |
//! | --- | --- |
//! | `shelter.rs` | the end of all processes and folders of the command |
//! | `report.rs` | the lines of cargo that belong to the end |

mod report;
pub(crate) mod shelter;

use std::io::{self, BufRead, BufReader, PipeReader, Write};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Instant, SystemTime};

use crate::tool::{Outcome, fresh, regex, repository, seed_lock, target_folder};
use crate::{lab, matrix, tidy};
use report::Report;

/// The packages that the default form leaves out, with all that only these packages depend on: kernels on devices,
/// vendors' libraries and the doubles of these, micro-benchmarks, the package for Python.
const LEFT_OUT: [&str; 7] = [
    "unisono-benches",
    "unisono-compression-*",
    "unisono-cuda",
    "unisono-double-*",
    "unisono-offload-*",
    "unisono-python",
    "unisono-vendor-tests",
];

const LEFT_OUT_TEXT: &str = "\
left out: format, clippy, documentation, packages; kernels on devices, vendors' libraries and their doubles,
          programs that measure, the packages for Python and under examples. All of it: cargo xtask test --full";

/// The commands of cargo of the full form, and the folder of each: the product, then a package that uses the library
/// from outside the workspace, then the other workspace.
const FULL: [(&str, &str); 15] = [
    ("", "fmt --all --check"),
    ("", "clippy --workspace --all-targets --all-features -- --deny warnings"),
    // As a program has it that asks for no feature.
    ("", "clippy -p unisono -p unisono-job --lib --no-default-features -- --deny warnings"),
    // The program has the library's name, and would write over its pages.
    ("", "doc --workspace --lib --no-deps --all-features"),
    // Built apart from the run, so that the time of each is seen. One run shows everything that fails.
    ("", "test --workspace --all-features --no-run"),
    ("", "test --workspace --all-features --no-fail-fast"),
    // Tries every order in which two sides of shared memory can see each other's stores. Loom's types take the place of
    // atomics in all of a build, which has a folder of its own.
    (
        "",
        "test -p unisono-shared-memory --lib --target-dir target/loom --config build.rustflags=['--cfg=loom']",
    ),
    (EXAMPLE, "fmt --check"),
    (EXAMPLE, "clippy --all-targets -- --deny warnings"),
    (EXAMPLE, "test --no-fail-fast"),
    // The command that its author runs all the time: without most of the library.
    (EXAMPLE, "check --no-default-features --all-targets"),
    (lab::FOLDER, "fmt --check"),
    (lab::FOLDER, "clippy --all-targets -- --deny warnings"),
    (lab::FOLDER, "test --no-run"),
    // Short forms of its programs.
    (lab::FOLDER, "test --no-fail-fast"),
];

const EXAMPLE: &str = "examples/bidirectional-ring";

/// Builds each published package from the files of its archive. The other packages need files outside of them.
const PACKAGE: &str = "package --workspace --allow-dirty --quiet --config profile.dev.debug=false";

/// The parts of the full form that need a tool beyond the toolchain: its name, cargo's words before `--version`, which
/// show whether it is here, the words behind these, its installation. Without the tool a part is skipped, unless
/// `UNISONO_REQUIRE` names it.
const TOOL_CHECKS: [[&str; 4]; 2] = [
    // Licences and sources of dependencies, by deny.toml. Advisories need a network.
    ["deny", "deny", "check licenses bans sources", "cargo install --locked cargo-deny"],
    // Interprets the unsafe code that needs no kernel, and finds undefined behaviour. The kernel maps shared memory.
    [
        "miri",
        "+nightly-2026-05-20 miri",
        "test --target-dir=target/miri --package=unisono-communicator --package=unisono-shared-memory --lib -- \
         memory:: indices:: --skip=memory::tests --skip=memory::other_process",
        "rustup toolchain install nightly-2026-05-20 --component miri,rust-src",
    ],
];

/// Many tests wait most of the time, for deadlines and for other processes.
const TESTS_PER_CORE: usize = 2;

/// The tests of endings run each job so often in the full form.
const FULL_ROUNDS: usize = 20;

/// A part of the work, and its outcome.
struct Part {
    command: String,
    outcome: Outcome,
    seconds: f64,
}

impl Part {
    fn verdict(&self) -> &str {
        self.outcome.as_ref().err().map_or("passed", |problem| problem)
    }
}

/// Runs all of it, up to the first part that fails, and ends with the time of each part, the skipped tests, and
/// commands that repeat the failed ones.
pub(crate) fn run(is_full: bool) -> Outcome {
    let mut report = Report::default();
    let mut parts = vec![timed("tidy", tidy::run)];
    let mut steps = Vec::new();
    if is_full {
        parts.push(timed("matrix", matrix::clear));
        steps.extend(FULL.map(|(folder, words)| (folder, words.to_owned())));
        steps.push(("", package_words()?));
        for [tool, words, options, install] in TOOL_CHECKS {
            match skipped(tool, words, install) {
                Some(line) => report.hear(&line),
                None => steps.push(("", format!("{words} {options}"))),
            }
        }
    } else {
        let words = format!("test --workspace{}", excluded(&LEFT_OUT));
        steps.extend(["--no-run", "--no-fail-fast"].map(|last| ("", format!("{words} {last}"))));
    }
    let passed = |parts: &[Part]| parts.iter().all(|part| part.outcome.is_ok());
    for (folder, words) in steps {
        if passed(&parts) {
            parts.push(cargo(folder, &words, is_full, &mut report));
        }
    }
    if is_full && passed(&parts) {
        let check = || matrix::keep(&report.tests()).and_then(|()| matrix::check());
        parts.push(timed("matrix --check", check));
    }
    println!("\n  seconds");
    parts.iter().for_each(|part| println!("{:9.0}  {}: {}", part.seconds, part.command, part.verdict()));
    let again = report.again();
    for (heading, lines) in [("  tests skipped", report.skips()), ("what failed, again:", again)] {
        if !lines.is_empty() {
            println!("\n{heading}\n{}", lines.join("\n"));
        }
    }
    if !is_full {
        println!("\n{LEFT_OUT_TEXT}");
    }
    if passed(&parts) { Ok(()) } else { Err("failed".to_owned()) }
}

/// Packs each published package, and builds it from its archive.
pub(crate) fn package() -> Outcome {
    cargo("", &package_words()?, false, &mut Report::default()).outcome
}

fn package_words() -> Outcome<String> {
    let left_out = tidy::unpublished()?;
    Ok(format!("{PACKAGE}{}", excluded(&left_out)))
}

fn excluded(packages: &[impl AsRef<str>]) -> String {
    packages.iter().map(|package| format!(" --exclude {}", package.as_ref())).collect()
}

/// The line about a tool that is neither here nor required.
fn skipped(tool: &str, words: &str, install: &str) -> Option<String> {
    let asked = Command::new("cargo").args(words.split_whitespace()).arg("--version").output();
    let is_here = asked.is_ok_and(|output| output.status.success());
    let required = std::env::var("UNISONO_REQUIRE").unwrap_or_default();
    let is_required = required.split(',').any(|name| name == tool);
    (!is_here && !is_required).then(|| format!("SKIP {tool}: not here ({install}) [{tool}]"))
}

fn timed(command: &str, work: impl FnOnce() -> Outcome) -> Part {
    let start = Instant::now();
    let outcome = work();
    Part { command: command.to_owned(), outcome, seconds: start.elapsed().as_secs_f64() }
}

/// The folder in which packages are packed and compiled from their archives: a folder that no run had before, and the
/// only one of its kind. Cargo unpacks an archive in its home once for each version and path of this folder, and
/// compiles it once: in a folder that stays, it would check the sources of an earlier run.
fn archives_folder() -> Outcome<PathBuf> {
    let all = target_folder().join("package");
    fresh(&all)?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Ok(all.join(now.as_nanos().to_string()))
}

/// Asks cargo in one folder. The example and the laboratory are checked with the versions of the workspace. The example
/// is checked in its target folder too, so that a package that both use alike is compiled once. The laboratory has its
/// own: the files of test doubles have no hash in their names, and two workspaces with other features overwrite them.
fn cargo(place: &str, words: &str, is_full: bool, report: &mut Report) -> Part {
    // For people, without the list of excluded packages.
    let shown = regex("(?: --exclude [a-z*-]+)+").replace(words, " --exclude ...").into_owned();
    let command = format!("cargo {shown} {place}");
    let command = command.trim_end();
    println!("\n== {command}");
    let part = timed(command, || {
        let target = match place {
            _ if words.starts_with(PACKAGE) => archives_folder()?,
            lab::FOLDER => target_folder().join("lab"),
            _ => target_folder(),
        };
        let folder = repository().join(place);
        report.options = if is_full { " --all-features".to_owned() } else { String::new() };
        if !place.is_empty() {
            seed_lock(&folder)?;
            report.options = format!(" --manifest-path {place}/Cargo.toml");
        }
        let mut started = Command::new("cargo");
        started.args(words.split_whitespace()).current_dir(folder).env("CARGO_TARGET_DIR", target);
        let cores = thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let settings = [("RUST_TEST_THREADS", TESTS_PER_CORE * cores), ("UNISONO_TEST_ROUNDS", FULL_ROUNDS)];
        for (name, value) in &settings[..if is_full { 2 } else { 1 }] {
            if std::env::var_os(name).is_none() {
                started.env(name, value.to_string());
            }
        }
        if place == lab::FOLDER {
            // Tables for a debugger would be three quarters of its programs.
            started.env("CARGO_PROFILE_DEV_DEBUG", "false");
        }
        if is_full {
            // The folder in which the suite lists its calls.
            started.env("UNISONO_TEST_CALLS", matrix::calls());
        }
        heard(started, report)
    });
    println!("== {}: {} after {:.0} s", part.command, part.verdict(), part.seconds);
    part
}

/// Runs a command as the tests are run.
pub(crate) fn alone(program: &str, arguments: &[&str]) -> Outcome {
    let mut command = Command::new(program);
    command.args(arguments);
    heard(command, &mut Report::default())
}

/// Runs a command, passes on the output of it and its children, as it comes, and ends the processes that it leaves
/// behind: a failure.
fn heard(command: Command, report: &mut Report) -> Outcome {
    let (status, left) = passed_on(command, report).map_err(|error| format!("did not start: {error}"))?;
    left.iter().for_each(|line| println!("left behind by tests, and ended: {line}"));
    match left.len() {
        _ if !status.success() => Err(format!("failed: {status}")),
        0 => Ok(()),
        left => Err(format!("failed: {left} processes left behind by tests")),
    }
}

fn passed_on(mut command: Command, report: &mut Report) -> io::Result<(ExitStatus, Vec<String>)> {
    let (reader, writer) = io::pipe()?;
    command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
    let mut child = command.spawn()?;
    // It holds the other end too.
    drop(command);
    thread::scope(|threads| {
        let passing = threads.spawn(|| pass_on(reader, report));
        let status = child.wait()?;
        let left = shelter::end_leftovers();
        // Nobody writes any more.
        let _ = passing.join();
        Ok((status, left))
    })
}

fn pass_on(reader: PipeReader, report: &mut Report) {
    for line in BufReader::new(reader).split(b'\n').map_while(Result::ok) {
        // The run goes on when nobody reads.
        let _ = io::stdout().write_all(&[&line[..], b"\n"].concat());
        report.hear(String::from_utf8_lossy(&line).trim_end());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_that_is_not_here_is_skipped_with_the_way_to_it() {
        let line = "SKIP none: not here (make none) [none]";
        assert_eq!(skipped("none", "no-such-command", "make none").as_deref(), Some(line));
        assert_eq!(skipped("none", "", "make none"), None);
    }

    #[test]
    fn what_the_default_form_leaves_out_is_there() {
        let manifest = crate::tool::read(&repository().join("Cargo.lock")).unwrap();
        for package in LEFT_OUT {
            assert!(manifest.contains(&format!("name = \"{}", package.trim_end_matches('*'))), "{package}");
        }
    }
}
