//! Compiles programs, and runs them as ranks under a watchdog.

#[path = "../../../../tests/src/skip.rs"]
mod skip;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Far longer than any test needs, so that only a hang reaches it.
const WATCHDOG: Duration = Duration::from_secs(120);

/// Between two looks at the ranks.
const PAUSE: Duration = Duration::from_millis(10);

/// A compiler and its language.
#[derive(Clone, Copy)]
pub(crate) enum Compiler {
    Gcc,
    Gxx,
}

impl Compiler {
    fn words(self) -> &'static [&'static str] {
        match self {
            Compiler::Gcc => &["gcc", "-std=c11", "-D_GNU_SOURCE"],
            Compiler::Gxx => &["g++", "-std=c++17"],
        }
    }
}

/// The library that a program is linked with.
#[derive(Clone, Copy)]
pub(crate) enum Linked {
    Shared,
    Static,
}

/// A program that was compiled. Its file goes with it.
pub(crate) struct Program {
    folder: TempDir,
}

/// The end of a rank: its exit code, `None` after a signal, and everything that it has written.
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) said: String,
}

/// Compiles a file with these words more. `None` where this machine lacks the compiler, and says so.
pub(crate) fn compile(compiler: Compiler, source: &Path, linked: Linked, more: &[&str]) -> Option<Program> {
    let words = compiler.words();
    if Command::new(words[0]).arg("--version").output().is_err() {
        skip::skip(words[0], "not here, and no program of C is tried");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let libraries = libraries();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).args(["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"]).args(more);
    command.arg("-I").arg(here).arg("-I").arg(here.join("tests/c"));
    command.arg(source).arg("-o").arg(folder.path().join("program"));
    match linked {
        Linked::Shared => {
            // The old tag wins over LD_LIBRARY_PATH, in which cargo puts a folder that may have an older library.
            let path = format!("-Wl,--disable-new-dtags,-rpath,{}", libraries.display());
            command.arg("-L").arg(&libraries).arg(path);
            command.args(["-lunisono_c", "-lm"]);
        }
        Linked::Static => {
            command.arg(libraries.join("libunisono_c.a")).args(["-lm", "-ldl", "-lrt"]);
        }
    }
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", source.display());
    Some(Program { folder })
}

/// The folder of the libraries of this build: cargo puts them beside the tests that depend on them.
fn libraries() -> PathBuf {
    let this = std::env::current_exe().unwrap();
    let folder = this.parent().unwrap().to_owned();
    for name in ["libunisono_c.so", "libunisono_c.a"] {
        assert!(folder.join(name).exists(), "{name} is not in {}", folder.display());
    }
    folder
}

/// A file of this folder.
pub(crate) fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(name)
}

impl Program {
    /// The path of the program.
    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("program")
    }

    /// A folder that goes with the program.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Runs it as the ranks of a job that were started by hand.
    pub(crate) fn run(&self, ranks: u32, words: &[&str], variables: &[(&str, &str)]) -> Vec<Ended> {
        static JOBS: AtomicU32 = AtomicU32::new(0);
        let job = format!("c {} {}", std::process::id(), JOBS.fetch_add(1, Ordering::Relaxed));
        let size = ranks.to_string();
        self.run_each(ranks, |rank, command| {
            command.args(words).envs(variables.iter().copied());
            command.env("UNISONO_RANK", rank.to_string()).env("UNISONO_WORLD_SIZE", &size);
            command.env("UNISONO_JOB", &job).env("UNISONO_JOIN_TIMEOUT_S", "60");
        })
    }

    /// Runs it so many times at once, with no variables of this library but from `prepare`.
    pub(crate) fn run_each(&self, ranks: u32, prepare: impl Fn(u32, &mut Command)) -> Vec<Ended> {
        let output = |rank: u32| self.folder.path().join(format!("output-{rank}"));
        let start = |rank: u32| {
            let mut command = Command::new(self.path());
            clear(&mut command);
            prepare(rank, &mut command);
            let file = File::create(output(rank)).unwrap();
            let streams = command.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file);
            Rank(streams.spawn().unwrap())
        };
        let mut started: Vec<Rank> = (0..ranks).map(start).collect();
        let deadline = Instant::now() + WATCHDOG;
        let said = |rank: u32| std::fs::read_to_string(output(rank)).unwrap_or_default();
        let mut ended = Vec::new();
        for rank in 0..ranks {
            let code = loop {
                if let Some(status) = started[rank as usize].0.try_wait().unwrap() {
                    break status.code();
                }
                let all: Vec<String> = (0..ranks).map(said).collect();
                assert!(Instant::now() < deadline, "rank {rank} hangs: {all:#?}");
                sleep(PAUSE);
            };
            ended.push(Ended { code, said: said(rank) });
        }
        ended
    }
}

/// Takes the settings of this library out of a command's environment.
pub(crate) fn clear(command: &mut Command) {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    for name in names.filter(|name| name.starts_with("UNISONO_")) {
        command.env_remove(name);
    }
}

/// A rank, which is ended with this.
struct Rank(Child);

impl Drop for Rank {
    fn drop(&mut self) {
        // A process that has ended does not mind.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// All ranks have ended well.
pub(crate) fn assert_good(ended: &[Ended]) {
    for (rank, ended) in ended.iter().enumerate() {
        assert_eq!(ended.code, Some(0), "rank {rank}: {}", ended.said);
    }
}

/// Says that a test is left out.
pub(crate) fn skip(name: &str, reason: &str) {
    skip::skip(name, reason);
}
