//! `cargo xtask launchers`: real launchers start 4 ranks of examples, on one host and on two, which are network
//! namespaces. `--record` runs no job, and writes the environments of their ranks for the tests of `crates/job`.
//!
//! | launcher | where it comes from | ranks are |
//! | --- | --- | --- |
//! | Open MPI, MPICH, Intel MPI | `cargo xtask fetch-vendor` | here; on two hosts of Slurm |
//! | torchrun | the environment that `VIRTUAL_ENV` names, or `cargo xtask compare --install` | here; on two hosts |
//! | Slurm | the system's packages | on one host and on two: srun, srun --mpi=pmi2 |
//!
//! A launcher that is not here is a SKIP, and a failure where `UNISONO_REQUIRE` lists it. Open MPI, MPICH and Intel MPI
//! on two hosts without Slurm are tests of `unisono-cli` (`run_mpiexec.rs`).

mod hosts;
mod jobs;
mod local;
mod record;
mod slurm;
mod way;

use crate::workspaces::target_folder;
use hosts::Hosts;
use jobs::Programs;
use slurm::Cluster;
use way::Launcher;

/// Tries all of them; false when one has failed.
pub(crate) fn run(words: &[&str]) -> bool {
    let is_recording = match words {
        [] => false,
        ["--record"] => true,
        _ => {
            println!("launchers: {words:?} is not understood; the option is --record");
            return false;
        }
    };
    let folder = target_folder().join("launchers");
    let hosts = Hosts::start(&folder);
    let hosts = hosts.as_ref().map_err(String::clone);
    let cluster = hosts.clone().and_then(Cluster::start);
    let managers = local::managers();
    let slurm = cluster.as_ref().map_err(String::clone).map(|cluster| cluster.ways(&managers));
    let mut launchers: Vec<Launcher<'_>> = managers.iter().map(local::Found::launcher).collect();
    launchers.push(("torchrun", local::torchrun(hosts)));
    launchers.push(("slurm", slurm));
    if is_recording {
        return record::all(&launchers);
    }
    let programs = match Programs::build() {
        Ok(programs) => programs,
        Err(problem) => {
            println!("launchers: {problem}");
            return false;
        }
    };
    let required = std::env::var("UNISONO_REQUIRE").unwrap_or_default();
    let tried = launchers.into_iter().map(|launcher| attempt(launcher, &programs, &required));
    // All of them, also after a failure.
    tried.fold(true, |all, one| all & one)
}

/// Prints a line for each job of a launcher.
fn attempt((name, ways): Launcher<'_>, programs: &Programs, required: &str) -> bool {
    match ways {
        Ok(ways) => {
            let jobs = ways.iter().flat_map(|way| way.jobs.iter().map(move |job| (way, job)));
            let tried = jobs.map(|(way, job)| match job.attempt(&way.start, programs) {
                Ok(()) => {
                    println!("{}: {job}: passed", way.name);
                    true
                }
                Err(why) => {
                    println!("{}: {job}: FAILED: {why}", way.name);
                    false
                }
            });
            tried.fold(true, |all, one| all & one)
        }
        Err(why) if required.split(',').any(|one| one == name) => {
            println!("{name}: FAILED: it is required: {why}");
            false
        }
        Err(why) => {
            println!("SKIP {name}: {why}");
            true
        }
    }
}
