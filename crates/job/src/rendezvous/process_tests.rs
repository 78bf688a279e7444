//! Ranks that are processes and meet through a file: killed ones, and ones bound to CPUs.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use unisono_communicator::Group;

use super::tests::{PATIENT, meet_as_a_world_would, watched};
use crate::config::Config;
use crate::program::words;
use crate::secret::tests::TestDirectory;

/// One rank, as a process of its own, with its rank in the environment.
pub(crate) fn one_rank_process() {
    let config = Config::from_environment().unwrap();
    let membership = watched(move || meet_as_a_world_would(&config));
    assert_eq!((membership.world_size, membership.job_settings.as_slice()), (3, &b"of rank 0"[..]));
    assert_eq!(membership.hosts, [0, 0, 0]);
}

fn start_process(directory: &Path, rank: u32) -> Child {
    command("rank", directory, rank, 3).spawn().unwrap()
}

/// The program of that name as rank `rank` of `ranks`.
fn command(program: &str, directory: &Path, rank: u32, ranks: u32) -> Command {
    let mut command = Command::new("env");
    command
        .args(words(program))
        .env("XDG_RUNTIME_DIR", directory)
        .env("UNISONO_RANK", rank.to_string())
        .env("UNISONO_WORLD_SIZE", ranks.to_string())
        .env("UNISONO_JOIN_TIMEOUT_S", PATIENT.as_secs().to_string())
        .stdout(Stdio::null());
    command
}

/// The first two CPUs that this thread may run on, or the only one.
#[cfg(target_os = "linux")]
fn two_cpus() -> Vec<usize> {
    let allowed = rustix::thread::sched_getaffinity(None).unwrap();
    (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).take(2).collect()
}

/// One rank of two, as launchers bind them: to a CPU of its own.
#[cfg(target_os = "linux")]
pub(crate) fn one_bound_process() {
    let config = Config::from_environment().unwrap();
    let cpus = two_cpus();
    let mut own = rustix::thread::CpuSet::new();
    own.set(cpus[config.placement.rank() as usize % cpus.len()]);
    rustix::thread::sched_setaffinity(None, &own).unwrap();
    assert_eq!(thread::available_parallelism().unwrap().get(), 1);
    watched(move || {
        let membership = meet_as_a_world_would(&config);
        let cores = cpus.len() as u64;
        assert_eq!(membership.cores, [cores as u32]);
        let settings = config.job_settings().unwrap();
        let crowd = |group: &Group| settings.cost_model(group, &membership.cores).ranks_per_core_thousandths;
        let world = Group::world_on(membership.rank, membership.hosts.as_slice().into());
        assert_eq!(crowd(&world), 2000 / cores);
        assert_eq!(crowd(&world.subgroup(&[world.own_rank()], 0).unwrap()), 1000 / cores);
    });
}

#[test]
#[cfg(target_os = "linux")]
fn bound_ranks_count_the_cores_of_all() {
    watched(|| {
        let directory = TestDirectory::new();
        let ranks = [0, 1].map(|rank| command("bound", &directory.0, rank, 2).spawn().unwrap());
        for mut one in ranks {
            assert!(one.wait().unwrap().success());
        }
    });
}

#[test]
fn killed_hosts_are_replaced() {
    watched(|| {
        let directory = TestDirectory::new();
        let mut first = start_process(&directory.0, 1);
        // No key is given: the processes identify the job by their parent. Its file appears once the host runs.
        let notices = || std::fs::read_dir(directory.0.join("unisono")).ok().into_iter().flatten().flatten();
        while !notices().any(|notice| notice.metadata().is_ok_and(|m| m.len() > 0)) {
            assert!(first.try_wait().unwrap().is_none(), "the host waits for the others");
            thread::sleep(Duration::from_millis(5));
        }
        let guest = start_process(&directory.0, 2);
        thread::sleep(Duration::from_millis(100));
        first.kill().unwrap();
        first.wait().unwrap();
        let all = [guest, start_process(&directory.0, 0), start_process(&directory.0, 1)];
        for mut one in all {
            assert!(one.wait().unwrap().success());
        }
        assert_eq!(notices().count(), 0, "nothing is left behind");
    });
}
