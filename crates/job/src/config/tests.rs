//! The table of settings: accepted values and names, and the refusal of all others.

use super::*;
use crate::environment::Launcher;
use crate::program::words;

fn read(variables: &[(&str, &str)]) -> Result<Config> {
    let lookup = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| value.to_string());
    Config::from_lookup(&lookup)
}

fn problem(variables: &[(&str, &str)]) -> String {
    read(variables).unwrap_err().to_string()
}

fn ranked(launcher: Launcher, local: Option<(u32, u32)>) -> Placement {
    let (local_rank, local_world_size) = (local.map(|l| l.0), local.map(|l| l.1));
    Placement::Ranked { rank: 2, world_size: 4, local_rank, local_world_size, launcher }
}

#[test]
fn nothing_set_is_a_world_of_one_with_the_defaults() {
    let config = read(&[("RANK", ""), ("UNISONO_CALL_TIMEOUT_S", "")]).unwrap();
    assert_eq!(config.placement, Placement::Solo);
    assert_eq!((config.placement.rank(), config.placement.world_size()), (0, 1));
    assert_eq!(config.call_timeout, Duration::from_secs(600));
    assert_eq!(config.join_timeout, Duration::from_secs(300));
    assert_eq!(config.handshake_timeout, Duration::from_secs(5));
    assert_eq!(config.heartbeat, Duration::from_millis(100));
    assert_eq!(config.spin, Duration::from_micros(50));
    assert_eq!(
        (config.socket_buffer_bytes, config.unsent_bytes, config.piece_bytes),
        (None, 128 << 10, 512 << 10)
    );
    assert_eq!(config.congestion_control.as_deref(), Some("reno"));
    assert_eq!((config.store, config.job_key, config.address), (None, None, None));
}

/// Rows: A1, C2, C3, C4, C6
#[test]
fn every_launcher_is_understood() {
    let slurm = [
        ("SLURM_PROCID", "2"),
        ("SLURM_NTASKS", "4"),
        ("SLURM_LOCALID", "2"),
        ("SLURM_STEP_ID", "0"),
        ("SLURM_JOB_ID", "77"),
        ("SLURM_NNODES", "1"),
    ];
    let cases: [(&[(&str, &str)], Placement); 8] = [
        (&[("RANK", "2"), ("WORLD_SIZE", "4")], ranked(Launcher::Named, None)),
        (
            &[("RANK", "2"), ("WORLD_SIZE", "4"), ("LOCAL_RANK", "0"), ("LOCAL_WORLD_SIZE", "2")],
            ranked(Launcher::Named, Some((0, 2))),
        ),
        (
            &[
                ("OMPI_COMM_WORLD_RANK", "2"),
                ("OMPI_COMM_WORLD_SIZE", "4"),
                ("OMPI_COMM_WORLD_LOCAL_RANK", "2"),
                ("OMPI_COMM_WORLD_LOCAL_SIZE", "4"),
                ("PMIX_RANK", "2"),
            ],
            ranked(Launcher::OpenMpi, Some((2, 4))),
        ),
        (&[("MV2_COMM_WORLD_RANK", "2"), ("MV2_COMM_WORLD_SIZE", "4")], ranked(Launcher::Mvapich, None)),
        (
            &[("PMI_RANK", "2"), ("PMI_SIZE", "4"), ("MPI_LOCALRANKID", "1"), ("MPI_LOCALNRANKS", "2")],
            ranked(Launcher::Pmi, Some((1, 2))),
        ),
        (
            &[("PMI_RANK", "2"), ("PMI_SIZE", "4"), ("PALS_LOCAL_RANKID", "1"), ("PALS_LOCAL_SIZE", "2")],
            ranked(Launcher::Pmi, Some((1, 2))),
        ),
        (&[("PMIX_RANK", "2"), ("SLURM_NTASKS", "4")], ranked(Launcher::Pmix, None)),
        (&slurm, ranked(Launcher::Slurm, Some((2, 4)))),
    ];
    for (variables, placement) in cases {
        assert_eq!(read(variables).unwrap().placement, placement, "{variables:?}");
    }
    // The launcher that is nearest to the program wins over those around it.
    let mut nested = slurm.to_vec();
    nested.extend([("RANK", "2"), ("WORLD_SIZE", "4"), ("LOCAL_WORLD_SIZE", "4"), ("LOCAL_RANK", "2")]);
    assert_eq!(read(&nested).unwrap().placement, ranked(Launcher::Named, Some((2, 4))));
}

/// Rows: C6
#[test]
fn slurm_counts_only_within_a_step() {
    let batch = [("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4"), ("SLURM_JOB_ID", "77")];
    assert_eq!(read(&batch).unwrap().placement, Placement::Solo);
    for step in ["4294967291", "4294967294", "batch"] {
        let mut variables = batch.to_vec();
        variables.push(("SLURM_STEP_ID", step));
        assert_eq!(read(&variables).unwrap().placement, Placement::Solo, "{step}");
    }
    let mut step = batch.to_vec();
    step.extend([("SLURM_STEP_ID", "3"), ("SLURM_STEP_NODELIST", "node[07-08]")]);
    let config = read(&step).unwrap();
    assert_eq!(config.placement.world_size(), 4);
    assert_eq!(config.job_key.as_deref(), Some("slurm 77.3"));
    assert_eq!(config.master_address.as_deref(), Some("node07"));
    assert!((20_000..30_000).contains(&config.master_port.unwrap()));
}

#[test]
fn jobs_are_named_by_whoever_started_them() {
    let torch = [("RANK", "2"), ("WORLD_SIZE", "4"), ("MASTER_ADDR", "localhost"), ("MASTER_PORT", "29500")];
    assert_eq!(read(&torch).unwrap().job_key.as_deref(), Some("MASTER_PORT=29500"));
    let mut run = torch.to_vec();
    run.extend([("TORCHELASTIC_RUN_ID", "abc"), ("TORCHELASTIC_RESTART_COUNT", "1")]);
    assert_eq!(read(&run).unwrap().job_key.as_deref(), Some("torchrun abc 29500"));
    for (local, key) in [("2", "torchrun abc 29500"), ("4", "torchrun abc 29500 1")] {
        let run = [&run[..], &[("LOCAL_WORLD_SIZE", local)]].concat();
        assert_eq!(read(&run).unwrap().job_key.as_deref(), Some(key), "hosts count restarts differently");
    }
    run.push(("UNISONO_JOB", "mine"));
    assert_eq!(read(&run).unwrap().job_key.as_deref(), Some("UNISONO_JOB=mine"));
    let mpi =
        [("OMPI_COMM_WORLD_RANK", "2"), ("OMPI_COMM_WORLD_SIZE", "4"), ("PMIX_NAMESPACE", "prterun-1@1")];
    assert_eq!(read(&mpi).unwrap().job_key.as_deref(), Some("pmix prterun-1@1"));
    assert_eq!(read(&[("PMI_RANK", "2"), ("PMI_SIZE", "4")]).unwrap().job_key, None);
    assert_eq!(read(&torch[..2]).unwrap().job_key, None);
}

#[test]
fn bad_values_are_refused_by_variable_value_and_problem() {
    let cases: [(&[(&str, &str)], &str); 15] = [
        (&[("RANK", "4"), ("WORLD_SIZE", "4")], "RANK=4: a whole number from 0 to 3 is needed"),
        (&[("UNISONO_RANK", "-1"), ("RANK", "0"), ("WORLD_SIZE", "4")], "UNISONO_RANK=-1: a whole"),
        (&[("RANK", "x"), ("WORLD_SIZE", "4")], "RANK=x: a whole number"),
        (&[("RANK", "0"), ("WORLD_SIZE", "0")], "WORLD_SIZE=0: a whole number from 1 to 65535"),
        (&[("RANK", "0"), ("WORLD_SIZE", "65536")], "WORLD_SIZE=65536: a whole number from 1 to 65535"),
        (&[("RANK", "1")], "RANK=1: the world size is missing: set UNISONO_WORLD_SIZE or WORLD_SIZE"),
        (&[("PMIX_RANK", "1")], "PMIX_RANK=1: the world size is missing: set SLURM_STEP_NUM_TASKS"),
        (&[("WORLD_SIZE", "4")], "WORLD_SIZE=4: the rank is missing"),
        (&[("RANK", "0"), ("WORLD_SIZE", "2"), ("LOCAL_WORLD_SIZE", "3")], "LOCAL_WORLD_SIZE=3: a whole"),
        (&[("MASTER_PORT", "65535")], "MASTER_PORT=65535: a whole number from 1 to 65534"),
        (
            &[("UNISONO_ADDRESS", "0.0.0.0")],
            "UNISONO_ADDRESS=0.0.0.0: an IP address that other ranks can dial",
        ),
        (
            &[("UNISONO_HEARTBEAT_MS", "0")],
            "UNISONO_HEARTBEAT_MS=0: a number of milliseconds above 0 is needed",
        ),
        (&[("UNISONO_CALL_TIMEOUT_S", "NaN")], "UNISONO_CALL_TIMEOUT_S=NaN: a number of seconds above 0"),
        (&[("UNISONO_CALL_TIMEOUT_S", "inf")], "UNISONO_CALL_TIMEOUT_S=inf: a number of seconds above 0"),
        (&[("UNISONO_PIECE_BYTES", "512K")], "UNISONO_PIECE_BYTES=512K: a whole number from 1"),
    ];
    for (variables, expected) in cases {
        let text = problem(variables);
        assert!(text.starts_with(expected), "{text}");
    }
}

#[test]
fn values_are_parsed_in_their_unit() {
    let config = read(&[
        ("UNISONO_CALL_TIMEOUT_S", "0.25"),
        ("UNISONO_SPIN_US", "7"),
        ("UNISONO_SUSPECT_AFTER_MS", " 300 "),
        ("UNISONO_CONGESTION_CONTROL", "system"),
        ("UNISONO_ADDRESS", "::1"),
        ("HOME", "/home/me"),
        ("NCCL_HOSTID", "h"),
    ])
    .unwrap();
    assert_eq!(config.call_timeout, Duration::from_millis(250));
    assert_eq!(config.spin, Duration::from_micros(7));
    assert_eq!(config.suspect_after, Duration::from_millis(300));
    assert_eq!(config.congestion_control, None);
    assert_eq!(config.address, Some("::1".parse().unwrap()));
    assert_eq!(config.user_secret_file, Some("/home/me/.config/unisono/secret".into()));
    assert_eq!(config.host_id.as_deref(), Some("h"));
}

#[test]
fn the_secret_comes_from_one_place() {
    let (file, descriptor) = (("UNISONO_SECRET_FILE", "/s"), ("UNISONO_SECRET_FD", "5"));
    assert_eq!(read(&[file]).unwrap().secret, Some(SecretSource::File("/s".into())));
    assert_eq!(read(&[descriptor]).unwrap().secret, Some(SecretSource::Descriptor(5)));
    let group = ("UNISONO_SECRET_GROUP_FILE", "/g");
    assert_eq!(read(&[group]).unwrap().secret, Some(SecretSource::GroupFile("/g".into())));
    let both = read(&[file, group]).unwrap_err().to_string();
    assert!(both.starts_with("UNISONO_SECRET_FILE=/s: UNISONO_SECRET_GROUP_FILE names another"), "{both}");
    let both = read(&[file, descriptor]).unwrap_err().to_string();
    assert!(both.starts_with("UNISONO_SECRET_FILE=/s: UNISONO_SECRET_FD names another"), "{both}");
    assert!(read(&[("UNISONO_SECRET_FD", "-1")]).is_err());
}

#[test]
fn interfaces_are_chosen_as_nccl_and_gloo_users_expect() {
    let cases = [
        ("UNISONO_INTERFACE", "eth", "eth0", true),
        ("NCCL_SOCKET_IFNAME", "ib,eth1", "eth10", true),
        ("NCCL_SOCKET_IFNAME", "=eth1", "eth10", false),
        ("NCCL_SOCKET_IFNAME", "=eth1,eth2", "eth2", true),
        ("NCCL_SOCKET_IFNAME", "^lo,docker", "docker0", false),
        ("NCCL_SOCKET_IFNAME", "^lo,docker", "eth0", true),
        ("NCCL_SOCKET_IFNAME", "^=lo", "lo2", true),
        ("GLOO_SOCKET_IFNAME", "eth1", "eth10", false),
        ("GLOO_SOCKET_IFNAME", "eth0, eth1", "eth1", true),
    ];
    for (name, value, interface, fits) in cases {
        let interfaces = read(&[(name, value)]).unwrap().interfaces.unwrap();
        assert_eq!(interfaces.matches(interface), fits, "{name}={value} {interface}");
    }
}

fn refusal(config: &Config) -> String {
    config.check().unwrap_err().to_string()
}

#[test]
fn what_only_this_machine_can_tell_is_refused_before_anybody_is_met() {
    let file = tests_file();
    let below_a_file = file.join("records").display().to_string();
    let cases: [(&str, &str, &str); 12] = [
        (
            "UNISONO_ALGORITHM",
            "rign",
            "UNISONO_ALGORITHM=rign: \"rign\" is no algorithm; the nearest are ring",
        ),
        (
            "UNISONO_COST_MODEL",
            "latency=3",
            "UNISONO_COST_MODEL=latency=3: \"latency\" is not one of latency_ns",
        ),
        (
            "UNISONO_INTERFACE",
            "nosuch0",
            "UNISONO_INTERFACE=nosuch0: no interface with an address matches; there",
        ),
        ("UNISONO_ADDRESS", "192.0.2.1", "UNISONO_ADDRESS=192.0.2.1: this host cannot listen there: "),
        (
            "UNISONO_FLIGHT_DIR",
            &below_a_file,
            &format!("UNISONO_FLIGHT_DIR={below_a_file}: flight records cannot"),
        ),
        ("UNISONO_STORE", "node7", "UNISONO_STORE=node7: the port is missing; the form is host:port"),
        ("UNISONO_STORE", "node7:0", "UNISONO_STORE=node7:0: \"0\" is no port"),
        ("UNISONO_SECRET_FILE", "/no/such", "UNISONO_SECRET_FILE=/no/such: No such file"),
        ("UNISONO_SECRET_FD", "4000000", "UNISONO_SECRET_FD=4000000: /proc/self/fd/4000000: No such file"),
        (
            "UNISONO_HEARTBEAT_MS",
            "800",
            "UNISONO_HEARTBEAT_MS=800: 3 heartbeats must fit in UNISONO_SUSPECT_AFTER_MS, which",
        ),
        ("UNISONO_SUSPECT_AFTER_MS", "40", "UNISONO_HEARTBEAT_MS=100: 3 heartbeats must fit"),
        ("UNISONO_CONGESTION_CONTROL", "teleport", "UNISONO_CONGESTION_CONTROL=teleport: "),
    ];
    for placement in [&[("HOME", "/")][..], &[("RANK", "1"), ("WORLD_SIZE", "2")][..]] {
        read(placement).unwrap().check().unwrap();
        for (name, value, expected) in cases {
            let text = refusal(&read(&[placement, &[(name, value)]].concat()).unwrap());
            assert!(text.starts_with(expected) && !text.contains('\n'), "{text}");
        }
    }
    std::fs::remove_file(&file).unwrap();
}

/// The variables whose value is a path, and the paths in the settings.
fn paths(config: &Config) -> Vec<(&'static str, Option<PathBuf>)> {
    let secret = config.secret.clone().map(|source| match source {
        SecretSource::File(path) => path,
        other @ (SecretSource::GroupFile(_) | SecretSource::Descriptor(_)) => panic!("{other:?}"),
    });
    let user = config.user_secret_file.as_deref().map(|file| file.ancestors().nth(2).unwrap().to_owned());
    vec![
        ("XDG_RUNTIME_DIR", config.runtime_directory.clone()),
        ("TMPDIR", Some(config.temporary_directory.clone())),
        ("XDG_CONFIG_HOME", user),
        ("UNISONO_SECRET_FILE", secret),
        ("UNISONO_FLIGHT_DIR", config.flight_directory.clone()),
    ]
}

/// Its working directory is the path that all of them have.
pub(crate) fn one_process_with_paths() {
    let config = Config::from_environment().unwrap();
    let here = std::env::current_dir().unwrap();
    for (name, path) in paths(&config) {
        assert_eq!(path.as_ref(), Some(&here), "{name}");
    }
    Config { secret: None, flight_directory: Some(here.join("records")), ..config }.check().unwrap();
}

#[test]
fn a_path_need_not_be_utf_8() {
    use std::os::unix::ffi::OsStringExt;

    let folder = crate::secret::tests::TestDirectory::new();
    let path = folder.0.join(OsString::from_vec(b"folder-\xff".to_vec()));
    std::fs::create_dir(&path).unwrap();
    let mut command = std::process::Command::new("env");
    command.args(words("with_paths")).current_dir(&path);
    command.envs(paths(&read(&[]).unwrap()).into_iter().map(|(name, _)| (name, &path)));
    let done = command.output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
    assert!(path.join("records").is_dir());
}

fn tests_file() -> PathBuf {
    let file = std::env::temp_dir().join(format!("unisono-settings-{}", std::process::id()));
    std::fs::write(&file, "").unwrap();
    file
}

#[test]
fn what_code_sets_is_checked_too() {
    let good = read(&[]).unwrap();
    let fast = Config { heartbeat: Duration::ZERO, ..good.clone() };
    assert!(refusal(&fast).starts_with("UNISONO_HEARTBEAT_MS=0: a number of milliseconds above 0"));
    let seconds = "a number of seconds above 0 is needed";
    for (changed, text) in [
        (
            Config { call_timeout: Duration::ZERO, ..good.clone() },
            format!("UNISONO_CALL_TIMEOUT_S=0: {seconds}"),
        ),
        (
            Config { warn_after: Duration::MAX, ..good.clone() },
            "UNISONO_WARN_AFTER_S=18446744073709552000".into(),
        ),
        (
            Config { join_timeout: Duration::ZERO, ..good.clone() },
            format!("UNISONO_JOIN_TIMEOUT_S=0: {seconds}"),
        ),
        (Config { piece_bytes: 0, ..good.clone() }, "UNISONO_PIECE_BYTES=0: a whole number from 1".into()),
        (
            Config { unsent_bytes: 1, ..good.clone() },
            "UNISONO_UNSENT_BYTES=1: a whole number from 4096".into(),
        ),
        (
            Config { address: Some(IpAddr::from([0; 4])), ..good.clone() },
            "UNISONO_ADDRESS=0.0.0.0: an IP address that other ranks can dial is needed".into(),
        ),
        (
            Config { socket_buffer_bytes: Some(1), ..good.clone() },
            "UNISONO_SOCKET_BUFFER_BYTES=1: 0, or a whole number from".into(),
        ),
    ] {
        assert!(refusal(&changed).starts_with(&text), "{}", refusal(&changed));
    }
    let named = Config { algorithm: Some("rign".into()), ..good };
    assert!(refusal(&named).starts_with("UNISONO_ALGORITHM=rign: "));
}

#[test]
fn a_deadline_that_somebody_has_set_is_known_whatever_it_is() {
    let has = |variables: &[(&str, &str)]| read(variables).unwrap().has_call_timeout();
    assert!(!has(&[]) && !has(&[("UNISONO_CALL_TIMEOUT_S", "")]));
    assert!(has(&[("UNISONO_CALL_TIMEOUT_S", "600")]) && has(&[("UNISONO_CALL_TIMEOUT_S", "20")]));
    assert!(Config { call_timeout: Duration::from_secs(20), ..read(&[]).unwrap() }.has_call_timeout());
}

#[test]
fn a_setting_knows_the_variable_that_gave_it() {
    let config =
        read(&[("RANK", "0"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "h"), ("UNISONO_MASTER_PORT", "9")])
            .unwrap();
    let variables = ["UNISONO_MASTER_ADDRESS", "UNISONO_MASTER_PORT", "UNISONO_STORE"];
    assert_eq!(
        variables.map(|name| config.variable(name)),
        ["MASTER_ADDR", "UNISONO_MASTER_PORT", "UNISONO_STORE"]
    );
}

#[test]
fn a_table_without_its_rank_is_checked_all_the_same() {
    assert!(problem(&[("UNISONO_LOCAL_RANK", "one")]).starts_with("UNISONO_LOCAL_RANK=one: a whole number"));
    assert!(problem(&[("LOCAL_WORLD_SIZE", "0")]).starts_with("LOCAL_WORLD_SIZE=0: a whole number from 1"));
}
