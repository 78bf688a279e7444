//! The environments of processes that real launchers have started, and the results. The first lines of each recorded
//! environment say where it is from.

use unisono_control::roster::message::RUN_BYTES_MAX;

use super::placement::NESTING;
use super::*;
use crate::config::Config;

pub(super) type Variables = Vec<(&'static str, &'static str)>;

pub(super) fn read(variables: &[(&str, &str)]) -> Result<Config> {
    let lookup = |name: &str| variables.iter().rfind(|(n, _)| *n == name).map(|(_, value)| value.to_string());
    Config::from_lookup(&lookup)
}

pub(super) fn problem(variables: &[(&str, &str)]) -> String {
    read(variables).unwrap_err().to_string()
}

pub(super) fn variables(recorded: &'static str) -> Variables {
    assert!(recorded.starts_with("# "), "it does not say where it is from");
    recorded.lines().filter(|line| !line.starts_with('#')).map(|line| line.split_once('=').unwrap()).collect()
}

macro_rules! recorded {
    ($name:literal) => {
        $crate::environment::tests::variables(include_str!(concat!("recorded/", $name, ".env")))
    };
}
pub(super) use recorded;

/// Rank and size, place and number on the host, who said so, the job's name, and host and port where ranks meet that
/// are on several hosts.
pub(super) type Read =
    ((u32, u32), (Option<u32>, Option<u32>), Launcher, Option<String>, Option<(String, u16)>);

pub(super) fn told(variables: &[(&str, &str)]) -> Read {
    let config = read(variables).unwrap();
    let Placement::Ranked { rank, world_size, local_rank, local_world_size, launcher } = config.placement
    else {
        panic!("alone: {variables:?}")
    };
    let meeting = config.master_address.zip(config.master_port);
    ((rank, world_size), (local_rank, local_world_size), launcher, config.job_key, meeting)
}

/// A host, and the port that Slurm's ranks with this in common find, or torchrun's.
fn at(host: &str, key: Option<&str>) -> Option<(String, u16)> {
    Some((host.to_owned(), key.map_or(29_500, slurm::port)))
}

fn name(name: &str) -> Option<String> {
    Some(name.to_owned())
}

/// A recorded value.
fn value<'v>(variables: &'v Variables, name: &str) -> &'v str {
    variables.iter().find(|(set, _)| *set == name).unwrap().1
}

/// The step of Slurm that a recording is of.
fn step(variables: &Variables) -> String {
    format!("{}.{}", value(variables, "SLURM_JOB_ID"), value(variables, "SLURM_STEP_ID"))
}

/// The name of Open MPI's job.
fn pmix(variables: &Variables) -> String {
    format!("pmix {}", value(variables, "PMIX_NAMESPACE"))
}

/// Rows: A1, C2, C3, C4
#[test]
fn launchers_on_one_host_are_understood() {
    let here = ((2, 4), (Some(2), Some(4)));
    let openmpi = recorded!("openmpi-5.0.11");
    let local: u32 = value(&openmpi, "OMPI_COMM_WORLD_LOCAL_RANK").parse().unwrap();
    let expected = (here.0, (Some(local), Some(4)), Launcher::OpenMpi, Some(pmix(&openmpi)), None);
    assert_eq!(told(&openmpi), expected);
    for hydra in [recorded!("mpich-5.0.2"), recorded!("intel-mpi-2021.18.1")] {
        assert_eq!(told(&hydra), (here.0, here.1, Launcher::Pmi, None, None));
    }
    let torchrun = (here.0, here.1, Launcher::Named, name("torchrun none 29500 0"), at("localhost", None));
    assert_eq!(told(&recorded!("torchrun")), torchrun);
    let agents = recorded!("torchrun-two-hosts");
    let port = value(&agents, "MASTER_PORT");
    let named = (name(&format!("torchrun job7 {port}")), Some(("node07".to_owned(), port.parse().unwrap())));
    assert_eq!(told(&agents), ((3, 4), (Some(1), Some(2)), Launcher::Named, named.0, named.1));
    let pmi2 = recorded!("slurm-22.05.8-pmi2");
    let step = step(&pmi2);
    let named = (name(&format!("slurm {step}")), at("node07", Some(&step)));
    assert_eq!(told(&pmi2), (here.0, here.1, Launcher::Slurm, named.0, named.1));
    let host = "c5n-st-c5n18xlarge-1";
    let one = ((0, 1), (Some(0), Some(1)), Launcher::Slurm, name("slurm 134.0"), at(host, Some("134.0")));
    assert_eq!(told(&recorded!("slurm-20.11-srun")), one);
}

/// Only where the launcher has started all ranks: else two ranks of one run could differ.
#[test]
fn a_run_has_the_name_that_its_launcher_gives() {
    let run = |variables: &[(&str, &str)]| read(variables).unwrap().launcher_run;
    let slurm = recorded!("slurm-22.05.8-srun");
    let of_step = Some(format!("Slurm's step {}", step(&slurm)));
    assert_eq!(run(&slurm), of_step);
    let openmpi = recorded!("openmpi-5.0.11");
    assert_eq!(run(&openmpi), Some(format!("the PMIx namespace {}", value(&openmpi, "PMIX_NAMESPACE"))));
    assert_eq!(run(&recorded!("torchrun")), name("torchrun's run none"));
    assert_eq!(run(&recorded!("mpich-5.0.2")), None);
    let named = |rank, size| [("RANK", rank), ("WORLD_SIZE", size), ("UNISONO_JOB", "mine")];
    assert_eq!(run(&named("3", "4")), None, "by hand");
    assert_eq!(run(&[&named("3", "4")[..], &slurm].concat()), of_step);
    assert_eq!(run(&[&named("9", "16")[..], &slurm].concat()), None, "several in each process of the step");
    let long = "x".repeat(2 * RUN_BYTES_MAX);
    let torchrun = [&named("3", "4")[..], &[("TORCHELASTIC_RUN_ID", long.as_str())]].concat();
    assert_eq!(run(&torchrun).map(|run| run.len()), Some(RUN_BYTES_MAX));
}

/// Rows: C6
#[test]
fn ranks_on_several_hosts_of_slurm_meet_at_one_place() {
    let last = ((3, 4), (Some(1), Some(2)));
    let first = recorded!("slurm-22.05.8-openmpi-5.0.11-first-host");
    let job = pmix(&first);
    let (job, place) = (name(&job), at("node07", Some(&job)));
    assert_eq!(told(&first), ((0, 4), (Some(0), Some(2)), Launcher::OpenMpi, job.clone(), place.clone()));
    let second = told(&recorded!("slurm-22.05.8-openmpi-5.0.11-second-host"));
    assert_eq!(second, (last.0, last.1, Launcher::OpenMpi, job, place));
    for hydra in [recorded!("slurm-22.05.8-mpich-5.0.2"), recorded!("slurm-22.05.8-intel-mpi-2021.18.1")] {
        assert_eq!(told(&hydra), (last.0, last.1, Launcher::Pmi, None, at("node07", Some(&step(&hydra)))));
    }
    let srun = recorded!("slurm-22.05.8-srun");
    let step = step(&srun);
    let named = (name(&format!("slurm {step}")), at("node07", Some(&step)));
    assert_eq!(told(&srun), (last.0, (Some(1), None), Launcher::Slurm, named.0, named.1));
}

#[test]
fn where_slurm_does_not_tell_the_place_nobody_guesses() {
    let meeting =
        |variables: &Variables, more: &[(&'static str, &'static str)]| told(&[variables, more].concat()).4;
    let first = recorded!("slurm-22.05.8-openmpi-5.0.11-first-host");
    let second = recorded!("slurm-22.05.8-openmpi-5.0.11-second-host");
    // Without the name of the job two of them would have one port.
    for variables in [&first, &second] {
        assert_eq!(meeting(variables, &[("PMIX_NAMESPACE", "")]), None);
    }
    // mpirun --host node08,node07: rank 0 is not where the others would look for it.
    assert_eq!(meeting(&first, &[("SLURMD_NODENAME", "node08")]), None);
    // Proxies that came by other ways than one step of srun.
    let hydra = recorded!("slurm-22.05.8-mpich-5.0.2");
    assert_eq!(meeting(&hydra, &[("SLURM_STEP_NUM_NODES", "1"), ("SLURM_STEP_NODELIST", "node08")]), None);
    assert_eq!(meeting(&hydra, &[("SLURM_STEP_ID", ""), ("SLURM_STEPID", "")]), None);
}

const LEFT_OVER: [(&str, &str); 2] = [("RANK", "0"), ("WORLD_SIZE", "1")];

/// Rank 2 of 4, as each process manager says it.
const MANAGERS: [[(&str, &str); 2]; 3] = [
    [("OMPI_COMM_WORLD_RANK", "2"), ("OMPI_COMM_WORLD_SIZE", "4")],
    [("MV2_COMM_WORLD_RANK", "2"), ("MV2_COMM_WORLD_SIZE", "4")],
    [("PMI_RANK", "2"), ("PMI_SIZE", "4")],
];

#[test]
fn a_rank_that_is_left_over_is_refused_beside_a_process_manager() {
    let slurm = recorded!("slurm-22.05.8-srun");
    for manager in MANAGERS.iter().map(|manager| &manager[..]).chain([&slurm[..]]) {
        let text = problem(&[&LEFT_OVER, manager].concat());
        assert!(text.starts_with("RANK=0: with WORLD_SIZE=1 it contradicts "), "{text}");
        assert!(!text.contains('\n'), "{text}");
    }
    let text = problem(&[&LEFT_OVER[..], &MANAGERS[0]].concat());
    assert!(text.contains("OMPI_COMM_WORLD_RANK=2 with OMPI_COMM_WORLD_SIZE=4"), "{text}");
    assert!(text.contains("unset RANK and WORLD_SIZE, or OMPI_COMM_WORLD_RANK and"), "{text}");
    // Not less so for a launcher that was there before: mpirun in a rank of torchrun, or of ours.
    for mark in NESTING {
        let text = problem(&[&LEFT_OVER[..], &MANAGERS[0], &[(mark, "4")]].concat());
        assert!(text.starts_with("RANK=0: with WORLD_SIZE=1 it contradicts "), "{text}");
    }
    // Another PMIx server says no size, so it may belong to a world of one, and nothing shows it.
    for rank in ["0", "3"] {
        let text = problem(&[&LEFT_OVER[..], &[("PMIX_RANK", rank)]].concat());
        assert!(text.starts_with(&format!("RANK=0: with WORLD_SIZE=1 it contradicts PMIX_RANK={rank}, and")));
        assert!(text.contains("unset RANK and WORLD_SIZE, or PMIX_RANK, whichever"), "{text}");
    }
    for size in ["2", "4"] {
        let text =
            problem(&[&[("UNISONO_RANK", "1"), ("UNISONO_WORLD_SIZE", size)][..], &MANAGERS[2]].concat());
        assert!(text.starts_with(&format!("UNISONO_RANK=1: with UNISONO_WORLD_SIZE={size} it")), "{text}");
    }
}

#[test]
fn two_process_managers_that_disagree_are_refused() {
    let [mpirun, _, hydra] = MANAGERS;
    let one = [("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "1")];
    assert!(
        problem(&[one, hydra].concat()).starts_with("OMPI_COMM_WORLD_RANK=0: with OMPI_COMM_WORLD_SIZE=1 it")
    );
    assert!(
        problem(&[mpirun, [("PMI_RANK", "1"), ("PMI_SIZE", "4")]].concat())
            .contains("PMI_RANK=1 with PMI_SIZE=4")
    );
    // mpirun as the only process of mpiexec.
    let outer = [("PMI_RANK", "0"), ("PMI_SIZE", "1")];
    assert_eq!(told(&[mpirun, outer].concat()).0, (2, 4));
    assert_eq!(told(&[mpirun, hydra].concat()).0, (2, 4));
}

#[test]
fn launchers_within_others_are_no_contradiction() {
    let named = |rank, size| [("RANK", rank), ("WORLD_SIZE", size)];
    let slurm = recorded!("slurm-22.05.8-srun");
    // A script that passes on the manager's words.
    for manager in &MANAGERS {
        assert_eq!(told(&[&named("2", "4")[..], manager].concat()).2, Launcher::Named);
    }
    assert_eq!(told(&[&named("3", "4")[..], &slurm].concat()).0, (3, 4));
    // Each process of the manager has started several, by any means.
    assert_eq!(told(&[&named("9", "16")[..], &slurm].concat()).0, (9, 16));
    assert_eq!(told(&[&named("9", "16")[..], &MANAGERS[0]].concat()).0, (9, 16));
    // torchrun and ours in processes of srun and mpirun: jobs of their own, or a job with other numbers.
    for mark in NESTING {
        let marked = |named: [(&'static str, &'static str); 2], outer: &[(&'static str, &'static str)]| {
            told(&[&named[..], outer, &[(mark, "1")]].concat()).0
        };
        assert_eq!(marked(named("1", "4"), &slurm), (1, 4));
        assert_eq!(marked(named("1", "2"), &slurm), (1, 2));
        assert_eq!(marked(named("0", "1"), &slurm), (0, 1));
        assert_eq!(marked(named("3", "4"), &MANAGERS[0]), (3, 4));
        assert_eq!(marked(named("1", "2"), &MANAGERS[2]), (1, 2));
    }
    // The same in processes of a PMIx server.
    let pmix = |rank| [("PMIX_RANK", rank)];
    assert_eq!(told(&[&named("2", "4")[..], &pmix("2")].concat()).0, (2, 4));
    assert_eq!(told(&[&named("9", "16")[..], &pmix("2")].concat()).0, (9, 16));
    assert_eq!(told(&[&named("0", "1")[..], &pmix("0"), &[("UNISONO_STORE", "a:1")]].concat()).0, (0, 1));
    assert_eq!(told(&[&slurm[..], &pmix("3"), &named("3", "4")].concat()).0, (3, 4));
    // A process manager's daemons are a step, and a batch script has variables of its own.
    let second = recorded!("slurm-22.05.8-openmpi-5.0.11-second-host");
    assert_eq!(told(&second).0, (3, 4));
    assert_eq!(told(&[&named("3", "4")[..], &second].concat()).0, (3, 4));
    let one = [("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "1")];
    assert_eq!(told(&[&one[..], &slurm].concat()).0, (0, 1));
    let batch = [&slurm[..], &[("SLURM_STEP_ID", ""), ("SLURM_STEPID", "")]].concat();
    assert_eq!(told(&[&LEFT_OVER[..], &batch].concat()).0, (0, 1));
}

#[test]
fn a_list_of_hosts_that_is_cut_short_is_refused_under_its_variable() {
    let slurm = recorded!("slurm-22.05.8-pmi2");
    let step = problem(&[&slurm[..], &[("SLURM_STEP_NODELIST", "n[1")]].concat());
    assert!(step.starts_with("SLURM_STEP_NODELIST=n[1: a bracket does not end"), "{step}");
    let job = problem(&[&slurm[..], &[("SLURM_JOB_NODELIST", "node[07-")]].concat());
    assert!(job.starts_with("SLURM_JOB_NODELIST=node[07-: "), "{job}");
    // Nobody asks for the list where the address of rank 0 has a setting.
    let named = [("MASTER_ADDR", "node07"), ("MASTER_PORT", "29500"), ("SLURM_STEP_NODELIST", "n[1")];
    read(&[&slurm[..], &named].concat()).unwrap();
}
