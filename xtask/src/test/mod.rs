//! `cargo xtask test`: the checks of a change before it is taken, cheapest first.
//!
//! | file | contents |
//! | --- | --- |
//! | `shelter.rs` | the end of all processes and folders of the command |
//! | `report.rs` | the lines of cargo that belong to the end |

mod report;
pub(crate) mod shelter;

use std::io::{self, BufRead, BufReader, PipeReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Instant, SystemTime};

use crate::matrix::{self, Evidence};
use crate::{lab, tidy};
use report::Report;

/// The packages that the default form leaves out, with all that only these packages depend on: kernels on devices,
/// vendors' libraries and the doubles of these, micro-benchmarks.
const LEFT_OUT: [&str; 12] = [
    "unisono-benches",
    "unisono-compression-cuda",
    "unisono-compression-npu",
    "unisono-compression-wgpu",
    "unisono-cuda",
    "unisono-double-common",
    "unisono-double-hccl",
    "unisono-double-nccl",
    "unisono-offload-ccl",
    "unisono-offload-hccl",
    "unisono-offload-nccl",
    "unisono-vendor-tests",
];

const EXCLUDE: &str = "--exclude";

const LEFT_OUT_TEXT: &str = "\
left out: format, clippy, documentation, packages; kernels on devices, vendors' libraries and their doubles,
          programs that measure, the package under examples. All of it: cargo xtask test --full";

/// The commands of cargo that the full form runs first.
const CHECKS: [&[&str]; 4] = [
    &["fmt", "--all", "--check"],
    &["clippy", "--workspace", "--all-targets", "--all-features", "--", "--deny", "warnings"],
    // As a program has it that asks for no feature.
    &[
        "clippy",
        "-p",
        "unisono",
        "-p",
        "unisono-job",
        "--lib",
        "--no-default-features",
        "--",
        "--deny",
        "warnings",
    ],
    // The program has the library's name, and would write over its pages.
    &["doc", "--workspace", "--lib", "--no-deps", "--all-features"],
];

/// Builds each published package from the files of its archive. The other packages need files outside of them.
const PACKAGE: [&str; 4] = ["package", "--workspace", "--allow-dirty", "--quiet"];

/// Tries every order in which two sides of shared memory can see each other's stores. Loom's types take the place of
/// atomics in all of a build, which has a folder of its own.
const LOOM: [&str; 8] = [
    "test",
    "--package",
    "unisono-shared-memory",
    "--lib",
    "--target-dir",
    "target/loom",
    "--config",
    "build.rustflags=['--cfg=loom']",
];

/// A part of the full form that needs a tool beyond the toolchain. Without the tool it is skipped, unless
/// `UNISONO_REQUIRE` names it.
struct ToolCheck {
    tool: &'static str,
    /// Cargo's words before `--version`, which show whether the tool is there.
    words: &'static [&'static str],
    /// The words behind these.
    options: &'static [&'static str],
    install: &'static str,
}

const TOOL_CHECKS: [ToolCheck; 2] = [
    // Licences and sources of dependencies, by deny.toml. Advisories need a network.
    ToolCheck {
        tool: "deny",
        words: &["deny"],
        options: &["check", "licenses", "bans", "sources"],
        install: "cargo install --locked cargo-deny",
    },
    // Interprets the unsafe code that needs no kernel, and finds undefined behaviour. The kernel maps shared memory.
    ToolCheck {
        tool: "miri",
        words: &["+nightly-2026-05-20", "miri"],
        options: &[
            "test",
            "--target-dir=target/miri",
            "--package=unisono-communicator",
            "--package=unisono-shared-memory",
            "--lib",
            "--",
            "memory::",
            "indices::",
            "--skip=memory::tests",
        ],
        install: "rustup toolchain install nightly-2026-05-20 --component miri,rust-src",
    },
];

/// A package that uses the library from outside the workspace.
const EXAMPLE: &str = "examples/bidirectional-ring";

/// The commands of cargo there. The last is the command that its author runs all the time: without most of the library.
const CARGO_IN_EXAMPLE: [&[&str]; 4] = [
    &["fmt", "--check"],
    &["clippy", "--all-targets", "--", "--deny", "warnings"],
    &["test", NO_FAIL_FAST],
    &["check", "--no-default-features", "--all-targets"],
];

/// The commands of cargo in the laboratory. Its tests are short forms of its programs.
const CARGO_IN_LAB: [&[&str]; 4] = [
    &["fmt", "--check"],
    &["clippy", "--all-targets", "--", "--deny", "warnings"],
    &["test", "--no-run"],
    &["test", NO_FAIL_FAST],
];

/// The package for Python.
pub(crate) const PYTHON: &str = "crates/unisono-python";

/// The commands of cargo there. Its tests are programs in Python: `cargo xtask python test`.
const CARGO_IN_PYTHON: [&[&str]; 2] =
    [&["fmt", "--check"], &["clippy", "--all-targets", "--", "--deny", "warnings"]];

/// The cargo that understands `+nightly`.
const RUSTUP_CARGO: &str = "cargo";

/// One run shows everything that fails.
const NO_FAIL_FAST: &str = "--no-fail-fast";

/// The variable of Rust's test harness that says how many tests of a binary run at once.
const TEST_THREADS: &str = "RUST_TEST_THREADS";

/// Many tests wait most of the time, for deadlines and for other processes.
const TESTS_PER_CORE: usize = 2;

/// The variable that says how often the tests of endings run each job, and the number of the full form.
const TEST_ROUNDS: &str = "UNISONO_TEST_ROUNDS";
const FULL_ROUNDS: usize = 20;

/// The variable that names the folder in which the suite lists its calls.
const TEST_CALLS: &str = "UNISONO_TEST_CALLS";

/// A part of the work, and its outcome.
struct Part {
    command: String,
    verdict: String,
    passed: bool,
    seconds: f64,
}

/// Runs all of it, up to the first part that fails, and ends with the time of each part, the skipped tests, and
/// commands that repeat the failed ones.
pub(crate) fn run(repository: &Path, is_full: bool) -> bool {
    let mut report = Report::default();
    let mut parts = vec![timed("tidy", || if tidy::run(repository) { Ok(()) } else { Err("failed".into()) })];
    if is_full {
        parts.push(timed("matrix", || Evidence::last(&target_folder()).clear()));
    }
    let mut steps = steps(repository, is_full);
    if is_full {
        match package_words(repository) {
            Ok(words) => steps.push((repository.to_owned(), words)),
            Err(problem) => parts.push(timed("cargo metadata", || Err(problem))),
        }
    }
    for check in TOOL_CHECKS.iter().filter(|_| is_full) {
        match check.skipped() {
            Some(line) => report.hear(&line),
            None => steps.push((repository.to_owned(), check.arguments())),
        }
    }
    for (folder, arguments) in steps {
        if parts.iter().all(|part| part.passed) {
            parts.push(cargo(&folder, &arguments, is_full, &mut report));
        }
    }
    if is_full && parts.iter().all(|part| part.passed) {
        parts.push(timed("matrix --check", || checked_matrix(repository, &report)));
    }
    println!("\n  seconds");
    parts.iter().for_each(|part| println!("{:9.0}  {}: {}", part.seconds, part.command, part.verdict));
    for (heading, lines) in [
        ("  tests skipped", report.skips()),
        ("what failed, again:", report.again(|target| features(target, is_full))),
    ] {
        if !lines.is_empty() {
            println!("\n{heading}\n{}", lines.join("\n"));
        }
    }
    if !is_full {
        println!("\n{LEFT_OUT_TEXT}");
    }
    parts.iter().all(|part| part.passed)
}

/// Compares docs/matrix.md with the run.
fn checked_matrix(repository: &Path, report: &Report) -> Result<(), String> {
    let evidence = Evidence::last(&target_folder());
    evidence.keep(&report.ran, &report.left_out())?;
    if matrix::run(repository, &evidence, true) { Ok(()) } else { Err("failed".to_owned()) }
}

/// Packs each published package, and builds it from its archive.
pub(crate) fn package(repository: &Path) -> bool {
    let words = package_words(repository);
    words.as_ref().map_or_else(
        |problem| {
            println!("package: {problem}");
            false
        },
        |words| cargo(repository, words, false, &mut Report::default()).passed,
    )
}

fn package_words(repository: &Path) -> Result<Vec<String>, String> {
    let left_out = tidy::unpublished(repository)?;
    let left_out = left_out.into_iter().flat_map(|name| [EXCLUDE.to_owned(), name]);
    Ok(PACKAGE.map(str::to_owned).into_iter().chain(left_out).collect())
}

/// The commands of cargo, and the folder of each.
fn steps(repository: &Path, is_full: bool) -> Vec<(PathBuf, Vec<String>)> {
    let mut tests = vec!["test", "--workspace"];
    match is_full {
        true => tests.push("--all-features"),
        false => tests.extend(LEFT_OUT.iter().flat_map(|package| [EXCLUDE, package])),
    }
    // Built apart from the run, so that the time of each is seen.
    let tests = ["--no-run", NO_FAIL_FAST].map(|last| [&tests[..], &[last]].concat());
    let owned = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
    let within = |words: Vec<&'static str>| (repository.to_owned(), owned(&words));
    if !is_full {
        return tests.map(within).into();
    }
    let checks = CHECKS.map(|words| within(words.to_vec()));
    let example = CARGO_IN_EXAMPLE.map(|words| (repository.join(EXAMPLE), owned(words)));
    let lab = CARGO_IN_LAB.map(|words| (repository.join(lab::FOLDER), owned(words)));
    let python = CARGO_IN_PYTHON.map(|words| (repository.join(PYTHON), owned(words)));
    let tests = tests.map(within).into_iter().chain([within(LOOM.to_vec())]);
    checks.into_iter().chain(tests).chain(example).chain(lab).chain(python).collect()
}

/// The features with which a target of the product was tested, for cargo: the program brings these of the library's.
fn features(target: &str, is_full: bool) -> &'static str {
    match is_full {
        _ if target.contains("--manifest-path") => "",
        true => " --all-features",
        false if target.starts_with("-p unisono ") => " --features ccl,cli,compression,hccl,nccl",
        false => "",
    }
}

impl ToolCheck {
    fn arguments(&self) -> Vec<String> {
        [self.words, self.options].concat().into_iter().map(str::to_owned).collect()
    }

    /// The line about a tool that is neither here nor required.
    fn skipped(&self) -> Option<String> {
        let asked = Command::new(RUSTUP_CARGO).args(self.words).arg("--version").output();
        let is_here = asked.is_ok_and(|output| output.status.success());
        let required = std::env::var_os("UNISONO_REQUIRE").unwrap_or_default();
        let is_required = required.to_string_lossy().split(',').any(|name| name == self.tool);
        let ToolCheck { tool, install, .. } = self;
        (!is_here && !is_required).then(|| format!("SKIP {tool}: not here ({install}) [{tool}]"))
    }
}

fn timed(command: &str, work: impl FnOnce() -> Result<(), String>) -> Part {
    let start = Instant::now();
    let (passed, verdict) = match work() {
        Ok(()) => (true, "passed".to_owned()),
        Err(problem) => (false, problem),
    };
    Part { command: command.to_owned(), verdict, passed, seconds: start.elapsed().as_secs_f64() }
}

/// The folder in which the workspace is compiled.
pub(crate) fn target_folder() -> PathBuf {
    crate::repository().join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

/// The folder in which packages are packed and compiled from their archives: a folder that no run had before, and the
/// only one of its kind. Cargo unpacks an archive in its home once for each version and path of this folder, and
/// compiles it once: in a folder that stays, it would check the sources of an earlier run.
fn archives_folder() -> Result<PathBuf, String> {
    let all = target_folder().join("package");
    match std::fs::remove_dir_all(&all) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(format!("{}: {error}", all.display()));
        }
        Err(_) | Ok(()) => {}
    }
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Ok(all.join(now.as_nanos().to_string()))
}

/// The words for people, without the list of excluded packages.
fn shown(arguments: &[String]) -> String {
    let mut parts = arguments.split(|word| *word == EXCLUDE);
    let first = parts.next().unwrap_or_default().join(" ");
    match parts.next_back() {
        Some(last) => format!("{first} {EXCLUDE} ... {}", last[1..].join(" ")),
        None => first,
    }
}

/// Gives a workspace of its own the versions of the root's.
pub(crate) fn seed_lock(folder: &Path) -> Result<(), String> {
    let lock = "Cargo.lock";
    let copied = std::fs::copy(crate::repository().join(lock), folder.join(lock));
    copied.map(drop).map_err(|error| format!("{}: {error}", folder.join(lock).display()))
}

/// Asks cargo in one folder. The example and the laboratory are checked with the versions of the workspace. The example
/// is checked in its target folder too, so that a package that both use alike is compiled once. The laboratory has its
/// own: the files of test doubles have no hash in their names, and two workspaces with other features overwrite them.
fn cargo(folder: &Path, arguments: &[String], is_full: bool, report: &mut Report) -> Part {
    let place = folder.strip_prefix(crate::repository()).unwrap_or(folder).display();
    let command = format!("cargo {} {place}", shown(arguments));
    let command = command.trim_end();
    println!("\n== {command}");
    let part = timed(command, || {
        let target = if arguments.starts_with(&PACKAGE.map(str::to_owned)) {
            archives_folder()?
        } else if folder.ends_with(lab::FOLDER) {
            target_folder().join("lab")
        } else {
            target_folder()
        };
        report.workspace.clear();
        if folder != crate::repository() {
            seed_lock(folder)?;
            report.workspace = format!(" --manifest-path {place}/Cargo.toml");
        }
        let is_toolchain = |word: &String| word.starts_with('+');
        let program = if arguments.first().is_some_and(is_toolchain) { RUSTUP_CARGO } else { env!("CARGO") };
        let mut started = Command::new(program);
        started.args(arguments).current_dir(folder).env("CARGO_TARGET_DIR", target);
        let cores = thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let settings = [(TEST_THREADS, TESTS_PER_CORE * cores), (TEST_ROUNDS, FULL_ROUNDS)];
        for (name, value) in settings.into_iter().filter(|(name, _)| is_full || *name != TEST_ROUNDS) {
            if std::env::var_os(name).is_none() {
                started.env(name, value.to_string());
            }
        }
        if is_full {
            started.env(TEST_CALLS, Evidence::last(&target_folder()).calls());
        }
        let (status, left) = heard(started, report).map_err(|error| format!("did not start: {error}"))?;
        left.iter().for_each(|line| println!("left behind by tests, and ended: {line}"));
        match (status.success(), left.len()) {
            (true, 0) => Ok(()),
            (true, left) => Err(format!("failed: {left} processes left behind by tests")),
            (false, _) => Err(format!("failed: {status}")),
        }
    });
    println!("== {}: {} after {:.0} s", part.command, part.verdict, part.seconds);
    part
}

/// Runs a command, passes on the output of it and its children, as it comes, and ends the processes that it leaves
/// behind.
fn heard(mut command: Command, report: &mut Report) -> io::Result<(ExitStatus, Vec<String>)> {
    // A process that a compiler keeps running, as a cache, is no test's.
    let known = shelter::descendants();
    let (reader, writer) = io::pipe()?;
    command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
    let mut child = command.spawn()?;
    // It holds the other end too.
    drop(command);
    thread::scope(|threads| {
        let passing = threads.spawn(|| pass_on(reader, report));
        let status = child.wait()?;
        let left = shelter::end_leftovers(&known, shelter::PATIENCE);
        // Nobody writes any more, but for processes that were there before, which do not have the pipe.
        let _ = passing.join();
        Ok((status, left))
    })
}

fn pass_on(reader: PipeReader, report: &mut Report) {
    let (mut reader, mut line) = (BufReader::new(reader), Vec::new());
    while reader.read_until(b'\n', &mut line).is_ok_and(|bytes| bytes > 0) {
        // The run goes on when nobody reads.
        let _ = io::stdout().write_all(&line);
        report.hear(String::from_utf8_lossy(&line).trim_end());
        line.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_fails_is_a_failure() {
        shelter::tests::alone("test::tests::a_command_that_fails_is_a_failure", || {
            let passes = |word: &str| {
                cargo(crate::repository(), &[word.to_owned()], false, &mut Report::default()).passed
            };
            assert!(passes("--version") && !passes("no-such-command"));
        });
    }

    #[test]
    fn a_tool_that_is_not_here_is_skipped_with_the_way_to_it() {
        let check =
            ToolCheck { tool: "none", words: &["no-such-command"], options: &[], install: "make none" };
        assert_eq!(check.skipped().as_deref(), Some("SKIP none: not here (make none) [none]"));
        assert_eq!(ToolCheck { words: &[], ..check }.skipped(), None);
    }

    #[test]
    fn what_the_default_form_leaves_out_is_there() {
        let manifest = std::fs::read_to_string(crate::repository().join("Cargo.lock")).unwrap();
        for package in LEFT_OUT {
            assert!(manifest.contains(&format!("name = \"{package}\"")), "{package}");
        }
    }
}
