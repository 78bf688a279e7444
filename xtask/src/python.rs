//! `cargo xtask python`: the wheel of `crates/unisono-python`, and its tests in an environment that has nothing else.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// The tool that makes wheels.
const MATURIN: &str = "maturin==1.16.0";

/// The packages beside the wheel that the tests need.
const TEST_PACKAGES: [&str; 4] = ["numpy", "pytest", "cloudpickle", "mypy"];

/// The number of ranks of the tests that run as ranks.
const RANKS: &str = "4";

/// An optimised wheel for users, or a wheel of crates that the tests of the workspace have compiled already.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Profile {
    Release,
    Dev,
}

impl Profile {
    /// The folder of its outputs, of cargo's and of ours.
    fn folder(self) -> &'static str {
        match self {
            Profile::Release => "release",
            Profile::Dev => "debug",
        }
    }

    fn options(self) -> &'static [&'static str] {
        match self {
            Profile::Release => &["--release"],
            Profile::Dev => &[],
        }
    }
}

/// Makes the wheel of the package in this folder of the repository, or makes and tests it; false when that failed.
pub(crate) fn run((repository, folder): (&Path, &str), target: PathBuf, words: &[&str]) -> bool {
    let python = Python {
        repository: repository.to_owned(),
        package: repository.join(folder),
        out: target.join("python"),
        target,
    };
    let outcome = match words {
        ["build"] => python.wheel(Profile::Release).map(|wheel| println!("{}", wheel.display())),
        ["test", options @ ..] => python.test(options),
        _ => Err("usage: cargo xtask python build | test [options of pytest]".to_owned()),
    };
    outcome.inspect_err(|problem| println!("python: {problem}")).is_ok()
}

/// The package, and the folder of everything that is made of it.
struct Python {
    repository: PathBuf,
    package: PathBuf,
    out: PathBuf,
    /// Cargo's.
    target: PathBuf,
}

impl Python {
    /// Makes the wheel, with the program in it.
    fn wheel(&self, profile: Profile) -> Result<PathBuf, String> {
        // The versions of the workspace.
        let lock = "Cargo.lock";
        let copied = fs::copy(self.repository.join(lock), self.package.join(lock));
        copied.map_err(|error| format!("{lock}: {error}"))?;
        self.program(profile)?;
        let tools = self.out.join("tools");
        if !tools.join("bin/maturin").exists() {
            environment(&tools, &[MATURIN])?;
        }
        let wheels = self.out.join("wheels").join(profile.folder());
        fresh(&wheels)?;
        let mut maturin = Command::new(tools.join("bin/maturin"));
        maturin.args(["build", "--strip", "--out"]).arg(&wheels).args(profile.options());
        maturin.arg("--interpreter").arg(tools.join("bin/python")).current_dir(&self.package);
        timed("the wheel", maturin.env("CARGO_TARGET_DIR", &self.target))?;
        let files = fs::read_dir(&wheels).map_err(|error| format!("{}: {error}", wheels.display()))?;
        let names: Vec<PathBuf> = files.filter_map(|file| Some(file.ok()?.path())).collect();
        match &names[..] {
            [wheel] => Ok(wheel.clone()),
            _ => Err(format!("{} wheels in {}", names.len(), wheels.display())),
        }
    }

    /// Puts the program `unisono` where maturin takes the scripts of the wheel from.
    fn program(&self, profile: Profile) -> Result<(), String> {
        let mut cargo = Command::new(env!("CARGO"));
        cargo
            .args(["build", "--package", "unisono-cli"])
            .args(profile.options())
            .current_dir(&self.repository);
        timed("the program", &mut cargo)?;
        let scripts = self.package.join("unisono.data/scripts");
        fresh(&scripts)?;
        let (built, script) = (self.target.join(profile.folder()).join("unisono"), scripts.join("unisono"));
        fs::copy(&built, &script).map_err(|error| format!("{}: {error}", built.display()))?;
        succeed(Command::new("strip").arg(&script))
    }

    fn test(&self, options: &[&str]) -> Result<(), String> {
        let wheel = self.wheel(Profile::Dev)?;
        let environment_folder = self.out.join("environment");
        let wheel = wheel.display().to_string();
        environment(&environment_folder, &[&[wheel.as_str()][..], &TEST_PACKAGES].concat())?;
        let bin = environment_folder.join("bin");
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
        let in_package = |program: &str, arguments: &[&str]| {
            let mut command = Command::new(bin.join(program));
            command.args(arguments).current_dir(&self.package).env("PATH", &path);
            // The tests see the installed package, and no sources.
            command.env_remove("PYTHONPATH").env("PYTHONDONTWRITEBYTECODE", "1");
            command
        };
        let ranks =
            [&["run", "-n", RANKS, "--", "python", "-m", "pytest", "-q", "tests/ranks"], options].concat();
        timed("tests as ranks", &mut in_package("unisono", &ranks))?;
        let alone = [&["-m", "pytest", "-q", "tests/ranks", "tests/alone"], options].concat();
        timed("tests in one process", &mut in_package("python", &alone))?;
        timed("types", &mut in_package("python", &["-m", "mypy", "python/unisono", "tests/typed.py"]))?;
        // The module in Rust has the names and the parameters that its types say.
        let stubs = ["-m", "mypy.stubtest", "--concise", "--ignore-disjoint-bases", "unisono._unisono"];
        timed("stubs", &mut in_package("python", &stubs))
    }
}

/// Makes an environment of Python with these packages and nothing else.
fn environment(folder: &Path, packages: &[&str]) -> Result<(), String> {
    succeed(Command::new("python3").args(["-m", "venv", "--clear"]).arg(folder))?;
    let mut pip = Command::new(folder.join("bin/python"));
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(packages);
    succeed(&mut pip)
}

/// Runs a command and tells how long it took.
fn timed(name: &str, command: &mut Command) -> Result<(), String> {
    let start = Instant::now();
    let outcome = succeed(command);
    println!("python: {name}: {:.0} s", start.elapsed().as_secs_f64());
    outcome
}

fn succeed(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().display().to_string();
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{name}: {status}")),
        Err(error) => Err(format!("{name}: {error}")),
    }
}

/// Makes an empty folder, in place of an old one if there is one.
fn fresh(folder: &Path) -> Result<(), String> {
    let problem = |error: std::io::Error| format!("{}: {error}", folder.display());
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(problem)?;
    }
    fs::create_dir_all(folder).map_err(problem)
}
