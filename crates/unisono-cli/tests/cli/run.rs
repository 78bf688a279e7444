//! `unisono run`: the environment of the ranks, and the way of their output.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::support::{shell, sorted_lines, start_by, unisono};

#[test]
fn c1_every_rank_finds_its_place_in_the_environment() {
    let done = shell("3", &[], "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR");
    assert!(done.status.success(), "{}", done.err);
    assert_eq!(
        sorted_lines(&done.out),
        ["[0] 0 3 0 3 127.0.0.1", "[1] 1 3 1 3 127.0.0.1", "[2] 2 3 2 3 127.0.0.1"]
    );
    let done = shell("2", &[], "echo $MASTER_PORT");
    let ports: Vec<u16> = done.out.lines().map(|line| line[4..].parse().unwrap()).collect();
    assert!(ports.len() == 2 && ports[0] == ports[1] && ports[0] >= 1024, "{ports:?}");
}

#[test]
fn c12_ranks_get_a_store_and_a_fresh_private_secret_that_goes_with_the_job() {
    let line = "echo $UNISONO_STORE $UNISONO_SECRET_FILE $(stat -c '%a %s' $UNISONO_SECRET_FILE)";
    let mut folders = Vec::new();
    for _ in 0..2 {
        let done = shell("2", &[], line);
        let words: Vec<_> = done.out.lines().map(|line| line[4..].split(' ').collect::<Vec<_>>()).collect();
        assert!(words.len() == 2 && words[0] == words[1] && words[0][2..] == ["600", "32"], "{words:?}");
        assert!(words[0][0].starts_with("127.0.0.1:"), "{words:?}");
        let file = std::path::Path::new(words[0][1]);
        assert!(!file.parent().unwrap().exists(), "{words:?}");
        folders.push(file.to_owned());
    }
    assert_ne!(folders[0], folders[1]);
}

#[test]
fn c12_a_launcher_inside_a_job_hides_the_outer_one() {
    let inner = format!("{} run -n 2 -- env", env!("CARGO_BIN_EXE_unisono"));
    let done = shell("1", &[], &format!("UNISONO_RANK=5 UNISONO_WORLD_SIZE=9 {inner}"));
    assert!(done.status.success(), "{}", done.err);
    assert!(done.out.contains("[0] [1] RANK=1") && done.out.contains("[0] [1] WORLD_SIZE=2"), "{}", done.out);
    assert!(!done.out.contains("UNISONO_RANK") && !done.out.contains("UNISONO_WORLD_SIZE"), "{}", done.out);
}

#[test]
fn c12_lines_are_whole_prefixed_and_stay_on_their_stream() {
    let line = r#"printf 'a b\n\nlast of %s' $RANK; printf 'bad %s' $RANK >&2"#;
    let done = shell("2", &[], line);
    assert!(done.status.success());
    let out = ["[0] ", "[0] a b", "[0] last of 0", "[1] ", "[1] a b", "[1] last of 1"];
    assert_eq!(sorted_lines(&done.out), out);
    assert_eq!(sorted_lines(&done.err), ["[0] bad 0", "[1] bad 1"]);
}

#[test]
fn c12_lines_of_many_ranks_do_not_mix() {
    let done = shell("8", &[], "for i in 1 2 3 4 5 6 7 8 9; do echo $RANK$RANK$RANK$RANK; done");
    assert_eq!(done.out.lines().count(), 72);
    for line in done.out.lines() {
        let rank = &line[1..2];
        assert_eq!(line, format!("[{rank}] {rank}{rank}{rank}{rank}"));
    }
}

#[test]
fn a_program_that_cannot_be_started_is_named() {
    let done = unisono(&["run", "-n", "2", "--", "no-such-program"]);
    assert_eq!((done.status.code(), done.err.lines().count()), (Some(127), 1), "{}", done.err);
    assert!(done.err.contains("no-such-program"), "{}", done.err);
}

#[test]
fn lines_have_no_rank_in_front_when_that_is_switched_off() {
    let done = shell("2", &["--tag-output=off"], "echo out; echo err >&2");
    assert!(done.status.success());
    assert_eq!((done.out.as_str(), done.err.as_str()), ("out\nout\n", "err\nerr\n"));
}

/// The rank waits until the piece before has been shown: only then does it print an end of line.
#[test]
fn a_line_that_ends_in_a_carriage_return_is_shown_as_it_comes() {
    let folder = tempfile::tempdir().unwrap();
    let flag = folder.path().join("seen").display().to_string();
    let line = format!(r"printf '50%%\r'; while [ ! -e {flag} ]; do sleep 0.01; done; printf '100%%\r\n'");
    let mut running = start_by(&["env"], &["run", "-n", "1", "--", "sh", "-c", &line]);
    assert_eq!(running.next_line(), "[0] 50%\r");
    fs::write(&flag, "").unwrap();
    assert_eq!(running.finish().out, "[0] 100%\r\n");
}

/// Rows: C12
#[test]
fn every_rank_has_a_log_of_both_its_streams() {
    let folder = tempfile::tempdir().unwrap();
    let logs = folder.path().join("new/logs");
    let option = format!("--log-dir={}", logs.display());
    let done = shell("2", &[&option], "echo out $RANK; exec 1>&2; sleep 0.1; printf 'err %s' $RANK");
    assert!(done.status.success());
    assert_eq!(sorted_lines(&done.out), ["[0] out 0", "[1] out 1"]);
    assert_eq!(sorted_lines(&done.err), ["[0] err 0", "[1] err 1"]);
    for rank in [0, 1] {
        let log = fs::read_to_string(logs.join(format!("rank-{rank}.log"))).unwrap();
        assert_eq!(log, format!("out {rank}\nerr {rank}"));
    }
}

#[test]
fn a_log_that_cannot_be_made_is_refused_and_one_that_cannot_be_written_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let done = shell("2", &[&format!("--log-dir={}", file.display())], "echo started");
    assert_eq!((done.status.code(), done.out.as_str()), (Some(1), ""), "{}", done.err);
    assert!(done.err.starts_with("unisono: --log-dir: ") && done.err.lines().count() == 1, "{}", done.err);
    // A full disk.
    std::os::unix::fs::symlink("/dev/full", folder.path().join("rank-0.log")).unwrap();
    let option = format!("--log-dir={}", folder.path().display());
    let done = shell("2", &[&option], "for line in 1 2 3; do echo $line; done");
    assert_eq!(done.status.code(), Some(1), "{}", done.err);
    assert_eq!(done.out.lines().count(), 6, "{}", done.out);
    let [ends, lost] = done.err.lines().collect::<Vec<_>>()[..] else { panic!("{}", done.err) };
    assert!(ends.contains("rank-0.log ends here: No space left"), "{}", done.err);
    let told = "unisono: output of the ranks was lost: 3 lines for ";
    assert!(lost.starts_with(told) && lost.contains("rank-0.log (No space left"), "{}", done.err);
    assert_eq!(fs::read_to_string(folder.path().join("rank-1.log")).unwrap(), "1\n2\n3\n");
}

/// Rows: C12
#[test]
fn ranks_are_bound_to_their_shares_of_the_cores() {
    let line = "grep Cpus_allowed_list /proc/self/status";
    let cores = |options: &[&str], ranks: &str| {
        let done = shell(ranks, options, line);
        assert!(done.status.success(), "{}", done.err);
        let lines = sorted_lines(&done.out);
        lines.iter().map(|line| line.rsplit('\t').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let all = cores(&[], "1").remove(0);
    assert_eq!(cores(&["--bind-to=none"], "2"), [all.clone(), all.clone()]);
    assert_eq!(cores(&["--bind-to=core"], "1"), std::slice::from_ref(&all), "the share of the only rank");
    let many = std::thread::available_parallelism().unwrap().get().min(8) + 1;
    let bound = cores(&["--bind-to", "core"], &many.to_string());
    assert_eq!(bound.len(), many);
    if many > 2 {
        assert!(bound.iter().all(|own| *own != all) && bound.first() != bound.last(), "{bound:?} of {all}");
    }
    let usable = std::thread::available_parallelism().unwrap().get();
    if (2..=8).contains(&usable) {
        assert_eq!(cores(&[], &usable.to_string()), vec![all.clone(); usable], "a core for each rank");
        assert_eq!(cores(&[], &(usable + 1).to_string()), vec![all.clone(); usable + 1], "uneven shares");
        let (unspoken, bound) =
            (cores(&[], &(2 * usable).to_string()), cores(&["--bind-to=core"], &(2 * usable).to_string()));
        assert_eq!(unspoken, bound, "two ranks for each core");
    }
}

/// As after `su`, and on a machine where nobody made that folder.
#[test]
fn a_runtime_directory_that_cannot_be_used_is_not_used() {
    let folder = tempfile::tempdir().unwrap();
    let open = folder.path().join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let missing = folder.path().join("missing");
    for runtime in [&open, &file, &missing] {
        let variables =
            [format!("XDG_RUNTIME_DIR={}", runtime.display()), format!("TMPDIR={}", folder.path().display())];
        let by = ["env", &variables[0], &variables[1]];
        let done = start_by(&by, &["run", "-n", "1", "--", "sh", "-c", "echo $UNISONO_SECRET_FILE"]).finish();
        assert!(done.status.success(), "{runtime:?}: {}", done.err);
        let own = format!("[0] {}/unisono-", folder.path().display());
        assert!(done.out.starts_with(&own), "{runtime:?}: {}", done.out);
    }
}
