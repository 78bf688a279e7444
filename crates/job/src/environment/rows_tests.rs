//! The rows of the feature table about discovery, by their numbers: MVAPICH, Azure ML, SageMaker, DLTS, the timeout,
//! and a process that nobody has placed; and the faults of DeepSpeed that cannot happen here.

use std::time::Duration;

use super::tests::{Variables, problem, read, recorded, told};
use super::*;

fn discovered(variables: &[(&str, &str)]) -> Discovery {
    let lookup = |name: &str| variables.iter().rfind(|(n, _)| *n == name).map(|(_, value)| (*value).into());
    discover(&Source::new(&lookup, &GROUPS)).unwrap()
}

/// A value and its source.
type By<T> = Option<(T, String)>;

/// The address of rank 0 and its port.
fn master(variables: &[(&str, &str)]) -> (By<String>, By<u16>) {
    let Discovery { address, port, .. } = discovered(variables);
    (address.map(|one| (one.value, one.source)), port.map(|one| (one.value, one.source)))
}

fn by<T>(value: T, source: &str) -> By<T> {
    Some((value, source.to_owned()))
}

/// The reason why this variable changed nothing.
fn lost(variables: &[(&str, &str)], variable: &str) -> Option<String> {
    let has = |one: &Lost| one.variables.iter().any(|(name, _)| name == variable);
    discovered(variables).lost.into_iter().find(has).map(|one| one.reason)
}

fn with(recorded: &Variables, more: &[(&'static str, &'static str)]) -> Variables {
    [recorded, more].concat()
}

#[test]
fn c5_mvapich_places_a_rank_and_its_mpirun_names_the_job() {
    let mpirun_rsh = recorded!("mvapich2-mpirun_rsh");
    let key = Some("mpirun_rsh 27868".to_owned());
    assert_eq!(told(&mpirun_rsh), ((3, 4), (Some(1), Some(2)), Launcher::Mvapich, key, None));
    let numbers = discovered(&mpirun_rsh).numbers;
    let sources =
        [Some(numbers.rank), Some(numbers.world_size), numbers.local_rank, numbers.local_world_size]
            .map(|number| number.unwrap().source);
    assert_eq!(
        sources,
        ["RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE"].map(|name| format!("MV2_COMM_WORLD_{name}"))
    );
    // Ranks on several hosts have an address from the command line: mpirun_rsh -np 4 node07 node08 MASTER_ADDR=node07.
    let port = by(29_500, "the default of torchrun and DeepSpeed");
    assert_eq!(
        master(&with(&mpirun_rsh, &[("MASTER_ADDR", "node07")])),
        (by("node07".into(), "MASTER_ADDR"), port)
    );
    // The Hydra of MVAPICH says the same as PMI; a PMI that does not is another launcher.
    let hydra = with(&mpirun_rsh, &[("PMI_RANK", "3"), ("PMI_SIZE", "4")]);
    assert_eq!(told(&hydra).2, Launcher::Mvapich);
    let text = problem(&with(&mpirun_rsh, &[("PMI_RANK", "1"), ("PMI_SIZE", "4")]));
    assert!(
        text.starts_with("MV2_COMM_WORLD_RANK=3: ") && text.contains("PMI_RANK=1 with PMI_SIZE=4"),
        "{text}"
    );
    let text = problem(&with(&mpirun_rsh, &[("MV2_COMM_WORLD_RANK", "4")]));
    assert!(
        text.starts_with("MV2_COMM_WORLD_RANK=4: ") && text.contains("MV2_COMM_WORLD_SIZE is 4"),
        "{text}"
    );
}

#[test]
fn c7_azure_ml_names_the_host_of_rank_0_on_several_hosts() {
    let two = recorded!("azure-ml-two-hosts");
    let (placed, port) = ((3, 4), by(6105, "the default on Azure ML"));
    assert_eq!(told(&two).0, placed);
    assert_eq!(master(&two), (by("10.0.0.4".into(), "AZ_BATCH_MASTER_NODE"), port.clone()));
    assert_eq!(discovered(&two).platform, Some(Platform::AzureMl));
    // A variable that is missing is no KeyError, and an IPv6 address stays whole.
    let without = with(&two, &[("AZ_BATCH_MASTER_NODE", "")]);
    assert_eq!(master(&without), (by("10.0.0.4".into(), "AZ_BATCHAI_MPI_MASTER_NODE"), port.clone()));
    let v6 = with(&two, &[("AZ_BATCH_MASTER_NODE", "[fd00::4]:6000")]);
    assert_eq!(master(&v6), (by("fd00::4".into(), "AZ_BATCH_MASTER_NODE"), port));
    let bad = problem(&with(&two, &[("AZ_BATCH_MASTER_NODE", "http://10.0.0.4:6000")]));
    assert!(
        bad.starts_with("AZ_BATCH_MASTER_NODE=http://10.0.0.4:6000: a host with or without its port"),
        "{bad}"
    );
}

#[test]
fn c7_azure_ml_keeps_the_address_port_and_interface_that_a_user_has_set() {
    for recorded in [recorded!("azure-ml-two-hosts"), recorded!("azure-ml-one-host")] {
        let set = with(&recorded, &[("MASTER_ADDR", "10.0.0.9"), ("MASTER_PORT", "7000")]);
        assert_eq!(master(&set), (by("10.0.0.9".into(), "MASTER_ADDR"), by(7000, "MASTER_PORT")));
        let reason = lost(&set, "AZUREML_EXPERIMENT_ID");
        assert_eq!(reason.as_deref(), Some("the address of rank 0 is that of MASTER_ADDR"));
        let port = with(&recorded, &[("MASTER_PORT", "7000")]);
        assert_eq!(master(&port).1, by(7000, "MASTER_PORT"));
        let interface = with(&recorded, &[("NCCL_SOCKET_IFNAME", "eth1")]);
        assert_eq!(read(&interface).unwrap().interfaces.unwrap().value, "eth1");
        assert!(read(&recorded).unwrap().interfaces.is_none());
    }
}

#[test]
fn c7_azure_ml_on_one_host_has_the_place_of_all_its_ranks() {
    let one = recorded!("azure-ml-one-host");
    assert_eq!((told(&one).0, told(&one).1), ((2, 4), (Some(2), Some(4))));
    let address = by("10.0.0.4".to_owned(), "AZ_BATCHAI_MPI_MASTER_NODE");
    assert_eq!(master(&one), (address.clone(), by(6105, "the default on Azure ML")));
    assert_eq!(master(&with(&one, &[("AZ_BATCH_MASTER_NODE", "10.0.0.5:6000")])).0, address);
    // A notebook or a job of one process has no launcher, and is alone.
    let none: Variables = one.into_iter().filter(|(name, _)| name.starts_with("AZ")).collect();
    assert_eq!(read(&none).unwrap().placement, Placement::Solo);
    assert_eq!(
        lost(&none, "AZUREML_EXPERIMENT_ID").as_deref(),
        Some("no rank counts, so this process is alone")
    );
}

#[test]
fn c8_sagemaker_names_the_host_of_rank_0_and_nothing_has_to_be_set() {
    let two = recorded!("sagemaker-two-hosts");
    assert_eq!((told(&two).0, told(&two).1), ((3, 4), (Some(1), Some(2))));
    assert_eq!(master(&two), (by("algo-1".into(), "SM_HOSTS"), by(29_500, "the default on SageMaker")));
    assert_eq!(discovered(&two).platform, Some(Platform::SageMaker));
    // SageMaker's container of PyTorch sets both.
    let torch = with(&two, &[("MASTER_ADDR", "algo-1"), ("MASTER_PORT", "7777")]);
    assert_eq!(master(&torch), (by("algo-1".into(), "MASTER_ADDR"), by(7777, "MASTER_PORT")));
    assert!(lost(&torch, "SM_HOSTS").is_some());
    assert_eq!(master(&with(&two, &[("SM_HOSTS", "")])), (None, None));
    let bad = problem(&with(&two, &[("SM_HOSTS", "algo-1,algo-2")]));
    assert!(bad.starts_with("SM_HOSTS=algo-1,algo-2: a JSON list of hosts is needed"), "{bad}");
}

#[test]
fn c9_dlts_leaves_everything_to_the_launcher_within() {
    let two = recorded!("dlts-two-hosts");
    assert_eq!((told(&two).0, told(&two).2), ((3, 4), Launcher::OpenMpi));
    assert_eq!((master(&two), discovered(&two).platform), ((None, None), Some(Platform::Dlts)));
    assert_eq!(lost(&two, "AZ_BATCH_MASTER_NODE").as_deref(), Some("DLTS_JOB_ID is set"));
    let named = with(&two, &[("MASTER_ADDR", "10.0.0.7")]);
    let torch = by(29_500, "the default of torchrun and DeepSpeed");
    assert_eq!(master(&named), (by("10.0.0.7".into(), "MASTER_ADDR"), torch));
    assert_eq!(lost(&named, "AZ_BATCH_MASTER_NODE").as_deref(), Some("DLTS_JOB_ID is set"));
}

#[test]
fn c7_mpirun_in_slurm_in_azure_ml_meets_where_slurm_says() {
    let azure = [
        ("AZUREML_EXPERIMENT_ID", "x"),
        ("AZ_BATCH_MASTER_NODE", "10.0.0.4:6000"),
        ("AZ_BATCHAI_MPI_MASTER_NODE", "10.0.0.4"),
    ];
    let hosts = [
        recorded!("slurm-22.05.8-openmpi-5.0.11-first-host"),
        recorded!("slurm-22.05.8-openmpi-5.0.11-second-host"),
    ];
    for slurm in &hosts {
        assert_eq!(told(&with(slurm, &azure)), told(slurm));
        assert!(lost(&with(slurm, &azure), "AZ_BATCH_MASTER_NODE").unwrap().ends_with("SLURM_JOB_NODELIST"));
    }
    // Where rank 0 sees that Slurm's answer is wrong, it must not meet elsewhere than the others.
    let first = with(&with(&hosts[0], &azure), &[("SLURMD_NODENAME", "node08")]);
    assert_eq!(master(&first), (None, None));
}

#[test]
fn c11_the_timeout_of_deepspeed_is_in_minutes_and_ours_wins() {
    let times = |variables: &[(&str, &str)]| {
        let config = read(variables).unwrap();
        config.check().unwrap();
        (config.call_timeout.as_secs_f64(), config.join_timeout.as_secs_f64(), config.has_call_timeout())
    };
    assert_eq!(times(&[]), (600.0, 300.0, false));
    assert_eq!(times(&[("DEEPSPEED_TIMEOUT", "")]), (600.0, 300.0, false));
    assert_eq!(times(&[("DEEPSPEED_TIMEOUT", "120")]), (7200.0, 7200.0, true));
    assert_eq!(times(&[("DEEPSPEED_TIMEOUT", " 0.5 ")]), (30.0, 30.0, true));
    assert_eq!(times(&[("DEEPSPEED_TIMEOUT", "10")]), (600.0, 600.0, true), "a deadline that is asked for");
    assert_eq!(times(&[("DEEPSPEED_TIMEOUT", "16000000")]), (9.6e8, 9.6e8, true));
    let ours = ("UNISONO_CALL_TIMEOUT_S", "5");
    assert_eq!(times(&[("DEEPSPEED_TIMEOUT", "120"), ours]), (5.0, 7200.0, true));
    assert_eq!(
        times(&[("DEEPSPEED_TIMEOUT", "120"), ours, ("UNISONO_JOIN_TIMEOUT_S", "7")]),
        (5.0, 7.0, true)
    );
    for bad in ["soon", "0", "-1", "NaN", "inf", "17000000", "10m", " "] {
        let expected = format!("DEEPSPEED_TIMEOUT={bad}: a number of minutes above 0 is needed");
        assert_eq!(problem(&[("DEEPSPEED_TIMEOUT", bad)]), expected);
    }
    // Code may change both, and each is checked in its own unit.
    let mut config = read(&[("DEEPSPEED_TIMEOUT", "16000000")]).unwrap();
    config.join_timeout = Duration::ZERO;
    let text = config.check().unwrap_err().to_string();
    assert!(text.starts_with("UNISONO_JOIN_TIMEOUT_S=0: a number of seconds"), "{text}");
}

#[test]
fn c12_deepspeeds_launcher_says_how_many_hosts_there_are() {
    let two = recorded!("deepspeed-two-hosts");
    let key = Some("MASTER_PORT=29500".to_owned());
    let place = Some(("10.0.0.4".to_owned(), 29_500));
    assert_eq!(told(&two), ((3, 4), (Some(1), Some(2)), Launcher::Named, key, place));
    let numbers = discovered(&two).numbers;
    assert_eq!((numbers.cross_rank.unwrap().value, numbers.cross_size.unwrap().value), (1, 2));
    // One host is the place of all ranks, also where nobody has counted them.
    let one = [("RANK", "1"), ("WORLD_SIZE", "4"), ("MASTER_ADDR", "10.0.0.4"), ("CROSS_SIZE", "1")];
    let local = discovered(&one).numbers.local_world_size;
    assert_eq!(local, Some(Sourced { value: 4, source: "CROSS_SIZE".to_owned() }));
    // In a rank of torchrun within, they are left over.
    let nested = with(&recorded!("torchrun"), &two[..2]);
    assert_eq!(told(&nested), told(&recorded!("torchrun")));
    assert!(lost(&nested, "CROSS_SIZE").unwrap().starts_with("torchrun sets none of these"));
    for (more, expected) in [
        (&[("CROSS_SIZE", "1")][..], "CROSS_RANK=1: a whole number from 0 to 0 is needed: CROSS_SIZE is 1"),
        (
            &[("CROSS_SIZE", "1"), ("CROSS_RANK", "0")],
            "CROSS_SIZE=1: it contradicts LOCAL_SIZE=2 with WORLD_SIZE=4",
        ),
        (&[("CROSS_SIZE", "4")], "CROSS_SIZE=4: it contradicts LOCAL_SIZE=2 with WORLD_SIZE=4"),
        (&[("LOCAL_SIZE", "4")], "CROSS_SIZE=2: it contradicts LOCAL_SIZE=4 with WORLD_SIZE=4"),
        (&[("CROSS_SIZE", "5")], "CROSS_SIZE=5: a whole number from 1 to 4 is needed: WORLD_SIZE is 4"),
        (&[("CROSS_RANK", "two")], "CROSS_RANK=two: a whole number from 0 to 1 is needed"),
    ] {
        let text = problem(&with(&two, more));
        assert!(text.starts_with(expected), "{text}");
    }
}

#[test]
fn c13_without_any_launcher_a_process_is_alone() {
    let Discovery { placement, numbers, address, port, platform, lost, .. } = discovered(&[]);
    assert_eq!((placement, address, port, platform, lost), (Placement::Solo, None, None, None, Vec::new()));
    assert_eq!((numbers.rank.value, numbers.world_size.value), (0, 1));
    for (name, value) in
        [("LOCAL_RANK", "x"), ("CROSS_RANK", "-1"), ("CROSS_SIZE", "0"), ("LOCAL_SIZE", "1.5")]
    {
        let text = problem(&[(name, value)]);
        assert!(text.starts_with(&format!("{name}={value}: a whole number")), "{text}");
    }
}

#[test]
fn discovery_that_is_off_reads_only_settings() {
    let off = ("UNISONO_DISCOVERY", "off");
    let everything = [
        recorded!("openmpi-5.0.11"),
        recorded!("intel-mpi-2021.18.1"),
        recorded!("slurm-22.05.8-srun"),
        recorded!("azure-ml-two-hosts"),
        recorded!("sagemaker-two-hosts"),
        vec![("TORCHELASTIC_RUN_ID", "r"), off],
    ]
    .concat();
    let alone = read(&everything).unwrap();
    assert_eq!((alone.placement, &alone.job_key, &alone.launcher_run), (Placement::Solo, &None, &None));
    assert_eq!((alone.slurm_step, alone.master_address, alone.master_port), (None, None, None));
    for lost in ["OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID", "SLURM_STEP_NODELIST", "SM_HOSTS"] {
        assert_eq!(self::lost(&everything, lost).as_deref(), Some("UNISONO_DISCOVERY=off"), "{lost}");
    }
    // Without it this is refused: both mpirun and the settings give a rank.
    let named = [("RANK", "0"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "h")];
    let mpirun = with(&recorded!("openmpi-5.0.11"), &named);
    assert!(problem(&mpirun).starts_with("RANK=0: with WORLD_SIZE=2 it contradicts OMPI_COMM_WORLD_RANK=2"));
    let key = Some("MASTER_PORT=29500".to_owned());
    let place = Some(("h".to_owned(), 29_500));
    assert_eq!(told(&with(&mpirun, &[off])), ((0, 2), (None, None), Launcher::Named, key, place));
    let bad = problem(&[("UNISONO_DISCOVERY", "no")]);
    assert_eq!(bad, "UNISONO_DISCOVERY=no: one of auto, off is needed");
}

#[test]
fn c1_the_port_that_nobody_sets_is_torchs_beside_an_address_that_somebody_has_set() {
    let port = |more: &[(&'static str, &'static str)]| {
        let ranks = [("RANK", "1"), ("WORLD_SIZE", "2")];
        read(&[&ranks[..], more].concat()).map(|config| (config.master_port, config.job_key))
    };
    let torch = (Some(29_500), Some("MASTER_PORT=29500".to_owned()));
    for set in [
        &[("MASTER_ADDR", "node7")][..],
        &[("UNISONO_MASTER_ADDRESS", "node7")],
        &[("MASTER_ADDR", "node7"), ("MASTER_PORT", "")],
        &[("MASTER_ADDR", "node7"), ("MASTER_PORT", " 29500 ")],
    ] {
        assert_eq!(port(set).unwrap(), torch, "{set:?}");
    }
    assert_eq!(port(&[]).unwrap(), (None, None));
    // It does not depend on Slurm, of which the ranks of one job may see different things.
    let slurm = with(&recorded!("slurm-22.05.8-srun"), &[("MASTER_ADDR", "node07")]);
    assert_eq!(master(&slurm).1, by(29_500, "the default of torchrun and DeepSpeed"));
}

#[test]
fn c1_an_address_is_a_host_and_nothing_else() {
    let address = |value| read(&[("RANK", "1"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", value)]);
    for (value, host) in [
        (" node7\n", "node7"),
        ("[fd00::4]", "fd00::4"),
        ("fd00::4", "fd00::4"),
        ("fe80::1%eth0", "fe80::1%eth0"),
        ("[fe80::1%eth0]", "fe80::1%eth0"),
        ("10.0.0.4", "10.0.0.4"),
    ] {
        assert_eq!(address(value).unwrap().master_address.as_deref(), Some(host), "{value}");
    }
    for bad in ["node7:29500", "tcp://node7", "[fd00::4]:29500", "two hosts", "  ", "[]", "\"node7\""] {
        let text = address(bad).unwrap_err().to_string();
        assert!(
            text.starts_with(&format!("MASTER_ADDR={bad}: a host name or an IP address is needed")),
            "{text}"
        );
    }
}

#[test]
fn c1_numbers_that_contradict_each_other_are_refused_by_both_names() {
    for (variables, expected) in [
        (
            &[("RANK", "4"), ("WORLD_SIZE", "4")][..],
            "RANK=4: a whole number from 0 to 3 is needed: WORLD_SIZE is 4",
        ),
        (
            &[("RANK", "1"), ("WORLD_SIZE", "4"), ("LOCAL_WORLD_SIZE", "5")],
            "LOCAL_WORLD_SIZE=5: a whole number from 1 to 4 is needed: WORLD_SIZE is 4",
        ),
        (
            &[("RANK", "3"), ("WORLD_SIZE", "4"), ("LOCAL_WORLD_SIZE", "2"), ("LOCAL_RANK", "3")],
            "LOCAL_RANK=3: a whole number from 0 to 1 is needed: by LOCAL_WORLD_SIZE 2 ranks are on this host",
        ),
        (&[("RANK", " "), ("WORLD_SIZE", "4")], "RANK= : a whole number from 0 to 3 is needed"),
        (&[("RANK", "0x1"), ("WORLD_SIZE", "4")], "RANK=0x1: a whole number"),
        (
            &[("RANK", "1"), ("WORLD_SIZE", "4"), ("MASTER_PORT", "tcp://h:1")],
            "MASTER_PORT=tcp://h:1: a whole number",
        ),
    ] {
        let text = problem(variables);
        assert!(text.starts_with(expected), "{text}");
    }
    assert_eq!(told(&[("RANK", " 1 "), ("WORLD_SIZE", "\t4\n")]).0, (1, 4));
}

#[test]
fn every_variable_that_loses_is_named_with_its_reason() {
    let both = [("UNISONO_RANK", "1"), ("RANK", "3"), ("WORLD_SIZE", "4")];
    assert_eq!(lost(&both, "RANK").as_deref(), Some("UNISONO_RANK is set, and comes first"));
    let left = with(&recorded!("openmpi-5.0.11"), &[("LOCAL_RANK", "0")]);
    assert_eq!(lost(&left, "LOCAL_RANK").as_deref(), Some("the rank is that of Open MPI"));
    assert_eq!(lost(&left, "PMIX_RANK").as_deref(), Some("the rank is that of Open MPI"));
    let pmi2 = recorded!("slurm-22.05.8-pmi2");
    assert!(lost(&pmi2, "PMI_RANK").unwrap().starts_with("srun itself says this"));
    let batch = with(&recorded!("slurm-22.05.8-srun"), &[("SLURM_STEP_ID", ""), ("SLURM_STEPID", "")]);
    assert!(lost(&batch, "SLURM_PROCID").unwrap().starts_with("outside a step of srun"));
    assert!(lost(&batch, "SLURM_STEP_NODELIST").is_some());
}
