//! `unisono run` where the machine or the user makes trouble: full disks, no descriptors, a launcher that is killed.

use std::fs;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;

use crate::support::{shell, start, start_by, unisono, wait_until};

/// Runs the program through a shell that does `first`, and `redirects` its output.
fn after(first: &str, redirects: &str, arguments: &[&str]) -> crate::support::Finished {
    let line = format!("{first} exec \"$0\" \"$@\" {redirects}");
    start_by(&["sh", "-c", &line], arguments).finish()
}

#[test]
fn what_cannot_be_said_changes_no_job_and_no_status() {
    let folder = tempfile::tempdir().unwrap();
    let flag = folder.path().join("done");
    let line = format!("[ $RANK = 0 ] && exit 6; sleep 0.3; touch {}", flag.display());
    let job = ["run", "-n", "2", "--keep-going", "--", "sh", "-c", &line];
    for redirects in ["2>/dev/full", "2>&-"] {
        let done = after("", redirects, &job);
        assert!(done.status.success() && flag.exists(), "{redirects}: {:?}", done.status);
        fs::remove_file(&flag).unwrap();
        let cases: [(&[&str], i32); 4] = [
            (&["run", "-n", "2", "--", "sh", "-c", "exit 6"], 6),
            (&["run", "-n", "1", "--timeout", "0.2", "--", "sleep", "600"], 124),
            (&["run", "-n", "1", "--", "no-such-program"], 127),
            (&["fly"], 2),
        ];
        for (arguments, status) in cases {
            assert_eq!(
                after("", redirects, arguments).status.code(),
                Some(status),
                "{arguments:?} {redirects}"
            );
        }
    }
}

#[test]
fn lost_output_is_no_success() {
    let done = after("", ">/dev/full", &["run", "-n", "2", "--", "sh", "-c", "echo; echo"]);
    assert_eq!(done.status.code(), Some(1), "{}", done.err);
    let told = "unisono: output of the ranks was lost: 4 lines for standard output (No space left";
    assert!(done.err.starts_with(told), "{}", done.err);
    assert_eq!(done.err.lines().count(), 1, "{}", done.err);
}

#[test]
fn long_lines_stay_whole() {
    let line = "head -c 300000 /dev/zero | tr '\\0' x; echo; echo end";
    let done = shell("2", &[], line);
    let mut lengths: Vec<usize> = done.out.lines().map(str::len).collect();
    lengths.sort_unstable();
    assert_eq!(lengths, [7, 7, 300_004, 300_004]);
}

#[test]
fn what_another_job_has_left_in_the_environment_does_not_matter() {
    let left = ["env", "RANK=0", "UNISONO_WORLD_SIZE=none", "MASTER_PORT=tcp://10.0.0.7:29500"];
    let done = start_by(&left, &["run", "-n", "2", "--", "sh", "-c", "echo $RANK $WORLD_SIZE"]).finish();
    assert!(done.status.success(), "{}", done.err);
    assert_eq!(crate::support::sorted_lines(&done.out), ["[0] 0 2", "[1] 1 2"]);
}

#[test]
fn a_launcher_without_descriptors_refuses_what_it_cannot_serve() {
    let done = after("ulimit -n 40;", "", &["run", "-n", "8", "--", "true"]);
    let told = "unisono: 8 ranks need 64 open files in the launcher: the limit is 40: ulimit -n 64\n";
    assert_eq!((done.status.code(), done.err.as_str()), (Some(1), told));
}

#[test]
fn files_of_logs_are_open_files_too() {
    let folder = tempfile::tempdir().unwrap();
    let option = format!("--log-dir={}", folder.path().display());
    let done = after("ulimit -n 68;", "", &["run", "-n", "8", &option, "--", "true"]);
    let told = "unisono: 8 ranks need 72 open files in the launcher: the limit is 68: ulimit -n 72\n";
    assert_eq!((done.status.code(), done.err.as_str()), (Some(1), told));
    assert!(after("ulimit -n 72;", "", &["run", "-n", "8", &option, "--", "true"]).status.success());
}

#[test]
fn a_file_that_may_not_grow_ends_neither_the_launcher_nor_its_ranks() {
    let folder = tempfile::tempdir().unwrap();
    let option = format!("--log-dir={}", folder.path().display());
    let line =
        "for line in 1 2 3 4 5 6 7 8; do printf '%0200d\\n' $line; done; grep SigIgn /proc/self/status";
    let done = after("ulimit -f 1;", "", &["run", "-n", "2", &option, "--", "sh", "-c", line]);
    assert_eq!((done.status.code(), done.out.lines().count()), (Some(1), 18), "{}", done.err);
    assert!(done.err.contains("rank-1.log ends here: File too large"), "{}", done.err);
    // SIGXFSZ is signal 25.
    let ignored = done.out.lines().last().unwrap().rsplit('\t').next().unwrap();
    assert_eq!(u64::from_str_radix(ignored, 16).unwrap() >> 24 & 1, 0, "{}", done.out);
}

#[test]
fn signals_that_the_launcher_needs_reach_it_whoever_has_started_it() {
    for by in [["env", "--ignore-signal=CHLD"], ["env", "--block-signal=TERM"]] {
        let done = start_by(&by, &["run", "-n", "2", "--", "sh", "-c", "exit 6"]).finish();
        assert_eq!(done.status.code(), Some(6), "{by:?}: {}", done.err);
        let done = start_by(&by, &["run", "-n", "2", "--", "true"]).finish();
        assert!(done.status.success(), "{by:?}: {}", done.err);
        let mut running = start_by(&by, &["run", "-n", "1", "--", "sh", "-c", "echo ready; exec sleep 600"]);
        running.next_line();
        running.signal(Signal::TERM);
        assert_eq!(running.finish().status.code(), Some(143), "{by:?}");
    }
}

/// As in a container.
#[test]
fn a_file_of_the_system_that_is_missing_is_named() {
    let hidden = |folder| format!("mount -t tmpfs none {folder} && exec \"$0\" \"$@\"");
    if !Command::new("unshare").args(["--mount", "true"]).status().is_ok_and(|status| status.success()) {
        return unisono_tests::skip("missing-files", "no mount namespace can be made here");
    }
    for (folder, file) in [("/proc", "/proc/self/status"), ("/dev", "/dev/null")] {
        let by = ["unshare", "--mount", "sh", "-c", &hidden(folder)];
        let done = start_by(&by, &["run", "-n", "2", "--", "true"]).finish();
        let told = format!("unisono: {file}: No such file or directory");
        assert!(!done.status.success() && done.err.starts_with(&told), "{}", done.err);
    }
}

/// As in containers: with a read-only root, and with a loopback interface that is off.
#[test]
fn a_host_on_which_no_ranks_can_meet_is_told_with_the_remedy() {
    let read_only = "mount -t tmpfs none /mnt && mkdir -m 700 /mnt/unisono-0 && mount -o remount,ro /mnt && exec env \
                     -u XDG_RUNTIME_DIR TMPDIR=/mnt \"$0\" \"$@\"";
    for (namespace, line, told, remedy) in [
        (
            "--mount",
            read_only,
            "make a folder for the secret in /mnt/unisono-0: Read-only",
            "set XDG_RUNTIME_DIR",
        ),
        ("--net", "exec \"$0\" \"$@\"", "reach this host at 127.0.0.1: ", "`ip link set lo up`"),
    ] {
        if !Command::new("unshare").args([namespace, "true"]).status().is_ok_and(|status| status.success()) {
            unisono_tests::skip("start-up", "no namespace can be made here");
            continue;
        }
        let done =
            start_by(&["unshare", namespace, "sh", "-c", line], &["run", "-n", "2", "--", "true"]).finish();
        let is_told = done.err.starts_with(&format!("unisono: {told}")) && done.err.contains(remedy);
        assert!(!done.status.success() && is_told, "{}", done.err);
    }
}

/// The guard may not have heard of the rank that was being started.
#[test]
fn a_launcher_that_is_killed_while_it_starts_ranks_leaves_none() {
    let token = format!("600.{}", std::process::id());
    let running = || {
        let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
        let lines = processes.filter_map(|one| fs::read(one.path().join("cmdline")).ok());
        lines
            .filter(|line| line.starts_with(b"sleep") && line.ends_with(format!("{token}\0").as_bytes()))
            .count()
    };
    for milliseconds in [5, 15, 25, 40] {
        let launcher = start(&["run", "-n", "60", "--", "sleep", &token]);
        std::thread::sleep(Duration::from_millis(milliseconds));
        launcher.signal(Signal::KILL);
        launcher.finish();
        wait_until("all ranks are gone", || running() == 0);
    }
}

#[test]
fn misspelt_options_are_not_the_program() {
    for (arguments, told) in [
        (vec!["run", "-n", "2", "--keepgoing", "true"], "--keep-going"),
        (vec!["run", "-n", "two", "true"], "\"two\" is no number of ranks within 1..=65535"),
        (vec!["run", "-n", "1025", "true"], "-n 1025: at most 1024 ranks start on one host"),
    ] {
        let done = unisono(&arguments);
        assert_eq!(done.status.code(), Some(2), "{}", done.err);
        assert!(done.err.contains(told) && done.err.lines().count() == 1, "{}", done.err);
    }
    assert!(unisono(&["run", "-n2", "true"]).status.success());
}
