//! Bad input is answered with one line that says the allowed values, and status 2; a reader that wants no more is no
//! error.

use std::process::{Command, Stdio};

use crate::support::unisono;

#[test]
fn bad_input_is_one_line_on_standard_error_and_status_2() {
    let cases: [(&[&str], &str); 36] = [
        (&[], "demo, run, bench, calibrate, algo, doctor"),
        (&["fly"], "demo, run, bench, calibrate, algo, doctor"),
        (&["run", "-n", "2"], "PROGRAM"),
        (&["run", "-n", "2", "--"], "PROGRAM"),
        (&["run", "-n", "2", "--stdin", "2", "--", "true"], "the ranks are 0 to 1"),
        (&["bench", "all_sum"], "all_reduce, reduce_scatter"),
        (&["bench", "all_reduce", "--algorithm", "magic"], "auto, all, recursive_doubling"),
        (&["bench", "sendrecv", "--algorithm", "ring"], "auto"),
        (&["bench", "all_reduce", "--algorithm", "ring,lederas"], "the nearest are leaders, "),
        (&["bench", "all_reduce", "--algorithm", "ring,all"], "auto and all stand alone"),
        (&["bench", "all_gather", "-n", "3", "--algorithm", "ring,recursive_doubling"], "all_gather"),
        (&["bench", "all_reduce", "--sizes", "1024G"], "GiB are free"),
        (&["algo", "verify", "leaders:2"], "ask for leaders"),
        (&["algo", "verify", "rng"], "\"rng\", the nearest are ring, "),
        (&["algo", "verify", "rng:2"], "\"rng\", the nearest are ring, "),
        (&["algo", "verify", "ring:2"], "\"ring:2\": only leaders takes a number"),
        (&["algo", "show", "rng", "-n", "2"], "\"rng\", the nearest are ring, "),
        (&["bench", "all_reduce", "--algorithm", "rng"], "the nearest are ring, "),
        (&["bench", "all_reduce", "--algorithm", "rng:2"], "the nearest are ring, "),
        (&["bench", "all_reduce", "--dtype", "f33"], "f64, f32"),
        (&["bench", "all_gather", "--dtype", "opaque"], "need a program that defines them"),
        (&["bench", "all_reduce", "--dtype", "complex64", "--op", "min"], "only sum, prod, avg"),
        (&["bench", "all_reduce", "--sizes", "1Q"], "K, M or G"),
        (&["bench", "all_reduce", "--dtype", "bool", "--op", "sum"], "min, max"),
        (&["bench", "all_gather", "--op", "max"], "only all_reduce"),
        (&["algo", "show", "rings", "-n", "4"], "the nearest are ring, "),
        (&["algo", "list", "ring"], "unknown collective \"ring\", one of: all_reduce, reduce_scatter"),
        (&["demo", "-np", "0"], "1..=1024"),
        (&["doctor", "-n", "2", "--flight", "x"], "cannot be used with"),
        (&["calibrate", "-n", "1"], "2..=1024"),
        (&["secret", "/dev/null", "--replace"], "/dev/null: it is there, and no regular file"),
        (
            &["algo", "price", "all_reduce/rnig", "--ranks", "4", "--bytes", "1K"],
            "nearest are all_reduce/ring, ",
        ),
        (&["algo", "price", "ring", "--ranks", "0", "--bytes", "1K"], "1..=32768"),
        (&["algo", "price", "ring", "--ranks", "4", "--bytes", "much"], "K, M or G"),
        (&["algo", "price", "ring", "--ranks", "4", "--bytes", "1K", "--beta-gb-per-s", "-1"], "GB/s from"),
        (
            &["algo", "price", "ring", "--ranks", "4", "--bytes", "1K", "--alpha-us", "NaN"],
            "microseconds from",
        ),
    ];
    for (arguments, allowed) in cases {
        let done = unisono(arguments);
        assert_eq!(done.status.code(), Some(2), "{arguments:?}: {}", done.err);
        assert!(done.out.is_empty(), "{arguments:?}: {}", done.out);
        assert_eq!(done.err.lines().count(), 1, "{arguments:?}: {}", done.err);
        assert!(done.err.contains(allowed), "{arguments:?}: {}", done.err);
    }
}

/// As `unisono ... | head -1`, but with a reader that is gone before the first line.
#[test]
fn a_reader_that_has_gone_is_no_error() {
    let commands: [&[&str]; 9] = [
        &["--help"],
        &["--version"],
        &["bench", "--help"],
        &["settings"],
        &["doctor"],
        &["algo", "list"],
        &["algo", "list", "--json"],
        &["algo", "price", "--all", "--ranks", "4", "--bytes", "1K"],
        &["bench", "all_reduce", "-n", "2", "--sizes", "64"],
    ];
    for arguments in commands {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = Command::new(env!("CARGO_BIN_EXE_unisono"));
        let done = command.args(arguments).stdin(Stdio::null()).stdout(writer).output().unwrap();
        let err = String::from_utf8_lossy(&done.stderr);
        assert_eq!((done.status.code(), &*err), (Some(0), ""), "{arguments:?}");
    }
}

#[test]
fn help_and_version_go_to_standard_output() {
    for argument in ["--help", "--version"] {
        let done = unisono(&[argument]);
        assert!(done.status.success() && done.out.contains("unisono") && done.err.is_empty());
    }
}

#[test]
fn the_help_of_the_demonstration_begins_with_its_death_of_a_rank() {
    for argument in ["--help", "-h"] {
        let help = unisono(&["demo", argument]).out;
        let first: Vec<&str> = help.lines().take(3).collect();
        assert!(first.join(" ").contains("--kill 2@300"), "{help}");
    }
}
