//! `unisono doctor`: the call of each rank, by the records that the ranks of a job have left.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use serde_json::Value;
use unisono::{CallOptions, Collectives, Communicator, Error, ReduceOp};
use unisono_control::handshake::JobId;
use unisono_control::secret::{SECRET_BYTES, Secret};
use unisono_job::Job;
use unisono_job::config::Config;
use unisono_job::rendezvous::Membership;
use unisono_transport_tcp::Tcp;

use crate::support::{Finished, WATCHDOG, unisono, wait_until};

fn doctor(folder: &Path, more: &[&str]) -> Finished {
    unisono(&[&["doctor", "--flight", folder.to_str().unwrap()], more].concat())
}

/// Runs `body` as every rank of a job whose ranks are threads here; a rank that hangs fails the test.
fn job(ranks: u32, flight: Option<&Path>, body: impl Fn(&Job, &dyn Communicator) + Send + Sync + 'static) {
    let body = Arc::new(body);
    let folder = flight.map(|folder| folder.to_str().unwrap().to_owned());
    let config = Config::from_lookup(&|name| match name {
        "UNISONO_FLIGHT_DIR" => folder.clone(),
        _ => None,
    });
    let config = Arc::new(config.unwrap());
    let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let secret = Secret::take(&mut [7; SECRET_BYTES]);
    let listen = |_| Job::listen(local, (&secret, None), &config).unwrap();
    let listeners: Vec<_> = (0..ranks).map(listen).collect();
    let members = Membership {
        rank: 0,
        world_size: ranks,
        job: JobId::random().unwrap(),
        secret,
        addresses: listeners.iter().map(|one| one.local_addr().unwrap()).collect(),
        hosts: vec![0; ranks as usize],
        processes: Vec::new(),
        job_settings: config.job_settings().unwrap().encode(),
        cores: Vec::new(),
    };
    let (done, all_done) = channel();
    for (rank, listener) in (0..).zip(listeners) {
        let (members, config, done, body) = (members.clone(), config.clone(), done.clone(), body.clone());
        std::thread::spawn(move || {
            let world =
                Job::start(Membership { rank, ..members }, listener, &config, &Tcp { memory: true }).unwrap();
            body(&world, &world.communicator().unwrap());
            drop(world);
            done.send(rank).unwrap();
        });
    }
    drop(done);
    let ended: Vec<u32> = (0..ranks).map_while(|_| all_done.recv_timeout(WATCHDOG).ok()).collect();
    assert_eq!(ended.len(), ranks as usize, "only ranks {ended:?} have ended well");
}

/// Ranks 0 and 1 give up waiting for rank 2, which has forgotten a call.
fn one_forgets(_world: &Job, communicator: &dyn Communicator) {
    let rank = communicator.rank();
    communicator.broadcast(&mut [rank; 8], 0).unwrap();
    // Rank 2 has then finished it too.
    communicator.barrier().unwrap();
    if rank == 2 {
        // This calls nobody, and fails once the communicator is revoked.
        let error = || communicator.subgroup(&[]).err();
        wait_until("the others have given up", || {
            error().is_some_and(|error| matches!(error.root_cause(), Error::Timeout { .. }))
        });
        return;
    }
    let hasty = communicator.with(CallOptions::new().timeout(Duration::from_millis(300)));
    let error = hasty.all_reduce(&mut [1f32; 1000], ReduceOp::Sum).unwrap_err();
    assert!(matches!(error.root_cause(), Error::Timeout { .. }), "{error}");
}

#[test]
fn a_rank_that_has_not_called_is_named_by_the_records_of_all() {
    let folder = tempfile::tempdir().unwrap();
    job(3, Some(folder.path()), one_forgets);
    let done = doctor(folder.path(), &[]);
    assert!(done.status.success() && done.err.is_empty(), "{}", done.err);
    let lines: Vec<&str> = done.out.lines().collect();
    let [summary, header, rank0, rank1, rank2, "", world, last] = lines[..] else { panic!("{}", done.out) };
    assert!(summary.contains(": records of ranks 0-2, the last written "), "{summary}");
    assert!(header.starts_with("communicator  rank  host") && header.ends_with("waits for"), "{header}");
    let pid = format!(" {} ", std::process::id());
    assert!(rank0.contains("call 2 all_reduce(1000 x f32, sum, in place), doctor.rs:"), "{rank0}");
    assert!(rank0.contains(&pid) && rank0.contains("failed in it"), "{rank0}");
    assert!(
        [rank0, rank1].iter().any(|row| row.contains(" s  rank ")),
        "who waits for whom: {rank0}, {rank1}"
    );
    assert!(rank2.contains("call 1 barrier(0 x u8)") && rank2.contains("finished it"), "{rank2}");
    let start = "world: ranks 0,1 are in call 2 all_reduce(1000 x f32, sum, in place) at ";
    assert!(world.starts_with(start), "{world}");
    assert!(world.contains("; rank 2 has not called it, its last is call 1 barrier(0 x u8) at "), "{world}");
    assert!(world.contains("doctor.rs:") && world.contains("timed out on rank"), "{world}");
    let start =
        "the culprit: rank 2 has not come to call 2 all_reduce(1000 x f32, sum, in place) at doctor.rs:";
    assert!(last.starts_with(start) && last.len() < 300, "{last}");
    assert!(
        last.contains(" of the world, as ranks 0,1 did: its last was call 1 barrier(0 x u8) at doctor.rs:"),
        "{last}"
    );

    std::fs::remove_file(folder.path().join("rank-2.json")).unwrap();
    let done = doctor(folder.path(), &["--json"]);
    let verdicts: Value = serde_json::from_str(&done.out).unwrap();
    assert_eq!(verdicts[0]["group"], "world");
    assert_eq!(verdicts[0]["is_well"], false);
    assert_eq!(
        (&verdicts[0]["ranks"][0]["at"], &verdicts[0]["ranks"][0]["call"]),
        (&"inside".into(), &2.into())
    );
    assert_eq!(verdicts[0]["ranks"][0]["pid"], std::process::id());
    let waited = |one: &Value| one["waited_s"].is_number() && one["awaited_since_ms"].is_number();
    assert!(verdicts[0]["ranks"].as_array().unwrap().iter().any(waited), "{verdicts}");
    assert_eq!(verdicts[0]["ranks"][2]["at"], "no_record");
    assert!(verdicts[0]["text"].as_str().unwrap().contains("; rank 2 left no record"), "{verdicts}");
}

#[test]
fn a_killed_process_leaves_no_record_and_the_others_say_who_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let setting = format!("UNISONO_FLIGHT_DIR={}", folder.path().display());
    // A launcher around it only sets the variable.
    let demo = [env!("CARGO_BIN_EXE_unisono"), "demo", "--ranks", "3", "--kill", "1@5"];
    let done = unisono(&[&["run", "-n", "1", "--", "env", &setting], &demo[..]].concat());
    assert!(done.status.success(), "{}", done.err);
    let done = doctor(folder.path(), &[]);
    assert!(done.status.success(), "{}", done.err);
    let mut rows = done.out.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let lost = ["world", "1", "-", "-", "-", "no", "record", "-", "-"];
    assert!(rows.any(|row| row == lost), "{}", done.out);
    let world = done.out.lines().find(|line| line.starts_with("world: ")).unwrap_or_default();
    assert!(world.starts_with("world: ") && world.contains("; rank 1 left no record; "), "{world}");
    assert!(world.contains(" saw: lost rank 1 (pid ") && world.contains(", reported by rank "), "{world}");
    let last = done.out.lines().last().unwrap();
    assert!(last.starts_with("the culprit: rank 1 left no record: its process was killed, "), "{last}");
}

/// The survivors end their processes at once, and may write nothing beyond some blocks.
#[test]
fn a_process_that_ends_leaves_no_half_written_record() {
    for limit in ["unlimited", "1"] {
        let folder = tempfile::tempdir().unwrap();
        for run in 0..8 {
            let records = folder.path().join(format!("{limit}-{run}"));
            let setting = format!("UNISONO_FLIGHT_DIR={}", records.display());
            let rank = crate::support::rank_command("rank_1_exits_silently");
            let line = format!("ulimit -f {limit}; {rank}");
            let done = unisono(&["run", "-n", "3", "--", "env", &setting, "sh", "-c", &line]);
            assert_eq!(done.status.code(), Some(3), "{}", done.err);
            let names = std::fs::read_dir(&records).unwrap().map(|file| file.unwrap().file_name());
            let names: Vec<_> = names.map(|name| name.to_string_lossy().into_owned()).collect();
            assert!(!names.iter().any(|name| name.ends_with(".partial")), "{limit}: {names:?}");
        }
    }
}

#[test]
fn a_job_that_is_well_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    job(2, Some(folder.path()), |_world, communicator| communicator.barrier().unwrap());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    let done = doctor(folder.path(), &[]);
    assert_eq!(done.status.code(), Some(1));
    assert!(
        done.err.contains("no rank has left a rank-N.json here")
            && done.err.contains("UNISONO_FLIGHT_DIR=DIR")
    );
    assert_eq!(done.err.lines().count(), 1, "{}", done.err);
}

#[test]
fn records_on_request_say_that_nothing_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("notes.txt"), "not a record").unwrap();
    let path = folder.path().to_owned();
    job(2, None, move |world, communicator| {
        let half = communicator.subgroup(&[1, 0]).unwrap().unwrap();
        half.barrier().unwrap();
        communicator.barrier().unwrap();
        world.dump_flight(&path).unwrap();
    });
    let done = doctor(folder.path(), &[]);
    assert!(done.status.success(), "{}", done.err);
    let lines: Vec<&str> = done.out.lines().collect();
    // A summary, a header, a row for each communicator.
    assert!(lines.len() == 7 && lines[2].starts_with("world ") && lines[4].is_empty(), "{}", done.out);
    assert!(lines[2].contains("  0,1  ") && lines[2].contains("finished it"), "{}", done.out);
    let lines = &lines[5..];
    assert!(lines[0].starts_with("world: nothing is wrong; all 2 ranks"), "{}", done.out);
    let half =
        "(2 ranks, epoch 0: ranks 1,0): nothing is wrong; all 2 ranks have finished call 0 barrier(0 x u8)";
    assert!(lines[1].starts_with("group ") && lines[1].contains(half), "{}", done.out);
}

#[test]
fn a_record_that_cannot_be_read_is_named() {
    let cases = [
        ("", "EOF"),
        ("{}", "no flight record"),
        (
            r#"{"version": "9.9", "comm_lib_version": "unisono 0.1.0"}"#,
            r#"version "9.9" by "unisono 0.1.0", not "2.10""#,
        ),
        (
            r#"{"version": "2.10", "comm_lib_version": "2.27"}"#,
            r#""2.10" by "2.27", not "2.10" by "unisono""#,
        ),
        (r#"{"version": "2.10", "comm_lib_version": "unisono 0.1.0"}"#, "missing field"),
    ];
    for (text, problem) in cases {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("rank-3.json"), text).unwrap();
        let done = doctor(folder.path(), &[]);
        assert_eq!(done.status.code(), Some(1), "{text}");
        assert_eq!(done.err.lines().count(), 1, "{}", done.err);
        assert!(done.err.contains("rank-3.json: ") && done.err.contains(problem), "{}", done.err);
    }
    let nowhere = tempfile::tempdir().unwrap().path().join("none");
    assert_eq!(doctor(&nowhere, &[]).status.code(), Some(1));
}

/// Files of another job, another library and a rank that died while it wrote do not hide the rest.
#[test]
fn what_can_be_read_is_shown_beside_what_cannot() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    let leave = move |world: &Job, communicator: &dyn Communicator| {
        communicator.barrier().unwrap();
        world.dump_flight(&path).unwrap();
    };
    job(3, None, leave.clone());
    job(2, None, leave);
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let done = doctor(folder.path(), &[]);
    assert!(done.status.success(), "the last run is whole: {}", done.err);
    assert_eq!(done.err, "unisono: left out, of an earlier run: rank-2.json\n");
    assert!(
        done.out.contains("records of ranks 0,1, ") && done.out.contains("all 2 ranks have finished call 0")
    );
    write("rank-2.json", "{\"version\": \"2.10\", \"comm");
    write("rank-3.77-0.partial", "{");
    write("rank-4.json", r#"{"version": "2.10", "comm_lib_version": "2.27", "pg_config": {}}"#);
    write("train.log", "epoch 1");
    let done = doctor(folder.path(), &[]);
    assert_eq!(done.status.code(), Some(1));
    assert!(done.out.contains("all 2 ranks have finished call 0"), "{}", done.out);
    let told =
        ["rank-2.json: no flight record: EOF", "rank-3.77-0.partial: half-written", "rank-4.json: version"];
    assert_eq!(done.err.lines().count(), told.len(), "{}", done.err);
    assert!(told.iter().all(|one| done.err.contains(one)), "{}", done.err);
}

/// The page about this machine agrees with the facts that this process can see of it.
#[test]
fn without_records_it_tells_the_machine_and_what_will_be_slow() {
    let done = unisono(&["doctor", "-n", "900", "--json"]);
    assert!(done.status.success() && done.err.is_empty(), "{}", done.err);
    let machine: Value = serde_json::from_str(&done.out).unwrap();
    let usable = std::thread::available_parallelism().unwrap().get();
    assert_eq!((&machine["ranks"], &machine["cores"]["usable"]), (&900.into(), &usable.into()));
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").ok();
    assert_eq!(machine["kernel"].as_str(), kernel.as_deref().map(str::trim));
    let interfaces = machine["network"]["interfaces"].as_array().unwrap();
    assert!(interfaces.iter().any(|one| one["address"] == "127.0.0.1"), "{machine}");
    assert_eq!(machine["network"]["listens_on"]["usable"], "127.0.0.1");
    assert!(machine["limits"]["open_files_of_rank"].as_u64() > Some(899), "{machine}");
    let backends: Vec<_> = machine["backends"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
    assert_eq!(backends, ["tcp", "ccl", "nccl", "hccl"]);
    let findings = machine["findings"].as_array().unwrap();
    let what = |text: &str| findings.iter().any(|one| one["what"].as_str().unwrap().contains(text));
    assert!(what("for 900 ranks: they take turns") || usable >= 900, "{machine}");
    assert!(findings.iter().all(|one| !one["remedy"].as_str().unwrap().is_empty()), "{machine}");

    let done = unisono(&["doctor"]);
    assert!(done.status.success() && done.err.is_empty(), "{}", done.err);
    for section in [
        "machine\n",
        "\ncores\n",
        "\nnetwork\n",
        "\nlimits\n",
        "\nTCP\n",
        "\nunisono\n",
        "\nbackend ccl\n",
        "\nsettings",
    ] {
        assert!(done.out.contains(section), "{section} in {}", done.out);
    }
    assert!(done.out.lines().count() <= 70, "a screen: {}", done.out);
}

#[test]
fn settings_in_effect_are_listed_and_wrong_ones_marked() {
    let program = env!("CARGO_BIN_EXE_unisono");
    let with = |settings: &[(&str, &str)]| {
        let done = std::process::Command::new(program)
            .arg("doctor")
            .envs(settings.iter().copied())
            .output()
            .unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap()
    };
    let out =
        with(&[("UNISONO_SPIN_US", "70"), ("UNISONO_SPIN", "70"), ("UNISONO_CONGESTION_CONTROL", "system")]);
    let row = |name: &str| {
        out.lines().find(|line| line.trim_start().starts_with(name)).unwrap_or_default().to_owned()
    };
    assert!(row("UNISONO_SPIN_US ").ends_with(" 70"), "{out}");
    assert!(row("UNISONO_SPIN ").contains("unknown") && out.contains("UNISONO_SPIN is no setting"), "{out}");
    assert!(row("within a host").ends_with("the system's"), "{out}");
    for (name, value) in [
        ("UNISONO_SPIN_US", "soon"),
        ("UNISONO_COST_MODEL", "latency=3"),
        ("UNISONO_NCCL_LIB", "libnccl.so.2"),
        ("UNISONO_ALGORITHM", "rnig"),
    ] {
        let out = with(&[(name, value)]);
        assert!(out.contains(&format!("a rank with these settings is refused: {name}={value}: ")), "{out}");
    }
    let out = with(&[("XDG_RUNTIME_DIR", "/nowhere"), ("TMPDIR", "/dev/null")]);
    assert!(
        out.contains("runtime directory            not usable: ") && out.contains("cannot meet"),
        "{out}"
    );
}
