//! `unisono run`: readers that want no more, prompts, standard input, and the duties of process 1.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};

use crate::support::{WATCHDOG, start_by};

/// A launcher whose three streams the test holds; it is killed with the test.
struct Held(Child);

impl Drop for Held {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Held {
    fn start(arguments: &[&str]) -> Held {
        let mut launcher = Command::new("timeout");
        // Without it a test that hangs would read for ever.
        launcher.args(["--kill-after=1", &WATCHDOG.as_secs().to_string(), env!("CARGO_BIN_EXE_unisono")]);
        launcher.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Held(launcher.spawn().unwrap())
    }

    fn read_one_line(&mut self) -> String {
        let mut line = String::new();
        BufReader::new(self.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        line
    }

    fn end(&mut self) -> (Option<i32>, String) {
        let mut err = String::new();
        self.0.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        (self.0.wait().unwrap().code(), err)
    }
}

const NO_READER: &str = "\
unisono: nobody reads standard output any more: it ends here, and a rank that prints more gets a broken pipe
";

/// As `unisono run -n 2 -- yes | head -1`.
#[test]
fn a_reader_that_closes_ends_ranks_that_print_for_ever_and_is_told_once() {
    let mut launcher = Held::start(&["run", "-n", "2", "--", "yes"]);
    assert!(launcher.read_one_line().ends_with("] y\n"));
    // SIGPIPE is signal 13.
    assert_eq!(launcher.end(), (Some(141), NO_READER.to_owned()));
}

#[test]
fn a_reader_that_closes_before_the_end_is_no_error() {
    let folder = tempfile::tempdir().unwrap();
    let flag = folder.path().join("closed");
    let line = format!("echo one; while [ ! -e {} ]; do sleep 0.01; done; echo two", flag.display());
    let mut launcher = Held::start(&["run", "-n", "1", "--", "sh", "-c", &line]);
    assert_eq!(launcher.read_one_line(), "[0] one\n");
    std::fs::write(&flag, "").unwrap();
    assert_eq!(launcher.end(), (Some(0), NO_READER.to_owned()));
}

/// The files still have a reader.
#[test]
fn a_reader_that_closes_does_not_end_the_logs() {
    let folder = tempfile::tempdir().unwrap();
    let option = format!("--log-dir={}", folder.path().display());
    let mut launcher = Held::start(&["run", "-n", "1", &option, "--", "seq", "100000"]);
    assert_eq!(launcher.read_one_line(), "[0] 1\n");
    let told = "unisono: nobody reads standard output any more: it goes on in the files of --log-dir\n";
    assert_eq!(launcher.end(), (Some(0), told.to_owned()));
    let log = std::fs::read_to_string(folder.path().join("rank-0.log")).unwrap();
    assert_eq!(log.lines().last(), Some("100000"));
}

/// The rank waits for an answer to a question without an end of line; another rank has none to read.
#[test]
fn a_prompt_is_shown_and_its_answer_reaches_the_rank() {
    let line = r#"[ $RANK = 1 ] && { read x; echo "nothing: $x"; exit; }
                  printf 'name? '; read name; printf 'hello %s\n' "$name"; read more || echo end"#;
    let mut launcher = Held::start(&["run", "-n", "2", "--stdin", "0", "--", "sh", "-c", line]);
    let mut out = launcher.0.stdout.take().unwrap();
    let mut shown = Vec::new();
    while !String::from_utf8_lossy(&shown).contains("[0] name? ") {
        let mut byte = [0];
        out.read_exact(&mut byte).unwrap();
        shown.extend(byte);
    }
    let mut input = launcher.0.stdin.take().unwrap();
    input.write_all(b"Ada\n").unwrap();
    drop(input);
    out.read_to_end(&mut shown).unwrap();
    let shown = String::from_utf8(shown).unwrap();
    assert!(shown.contains("[1] nothing: \n") && shown.ends_with("[0] end\n"), "{shown}");
    assert!(shown.contains("hello Ada\n"), "{shown}");
    assert_eq!(launcher.end(), (Some(0), String::new()));
}

/// A line goes on behind its beginning, unless another rank has printed meanwhile.
#[test]
fn a_line_that_comes_in_parts_is_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let flag = folder.path().join("seen").display().to_string();
    let line = format!("printf 'half '; while [ ! -e {flag} ]; do sleep 0.01; done; echo whole");
    let mut launcher = Held::start(&["run", "-n", "1", "--", "sh", "-c", &line]);
    let mut out = launcher.0.stdout.take().unwrap();
    let mut beginning = [0; "[0] half ".len()];
    out.read_exact(&mut beginning).unwrap();
    std::fs::write(&flag, "").unwrap();
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    assert_eq!((&beginning[..], rest.as_str()), (&b"[0] half "[..], "whole\n"));
    assert_eq!(launcher.end().0, Some(0));
}

#[test]
fn the_input_of_a_job_without_the_option_is_empty() {
    let done =
        start_by(&["sh", "-c", "echo word | \"$0\" \"$@\""], &["run", "-n", "1", "--", "cat"]).finish();
    assert!(done.status.success() && done.out.is_empty(), "{}", done.out);
}

/// As in a container whose first process is the launcher.
#[test]
fn process_1_reaps_what_has_lost_its_parent() {
    let namespace = ["unshare", "--pid", "--fork", "--mount-proc"];
    if !Command::new("unshare")
        .args([&namespace[1..], &["true"]].concat())
        .status()
        .is_ok_and(|it| it.success())
    {
        return unisono_tests::skip("process-1", "no namespace of processes can be made here");
    }
    // The child's parent ends at once, so process 1 gets the child; `ps` and `kill` would still show it unreaped.
    let line = "child=$(setsid sh -c 'exec sleep 0.2 >/dev/null 2>&1 & echo $!')
                while [ -e /proc/$child ]; do sleep 0.01; done; echo reaped; exit 5";
    let done = start_by(&namespace, &["run", "-n", "2", "--", "sh", "-c", line]).finish();
    assert_eq!(done.status.code(), Some(5), "the ranks' own statuses are not reaped: {}", done.err);
    assert_eq!(done.out.matches("reaped").count(), 2, "{}", done.out);
    let done = start_by(&namespace, &["run", "-n", "2", "--", "true"]).finish();
    assert!(done.status.success(), "{}", done.err);
}
