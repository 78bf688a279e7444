//! `unisono run` on several hosts: hosts that cannot be used or are lost, ranks that fail, signals.

use std::fs;

use rustix::process::Signal;

use crate::hosts_support::Rsh;
use crate::support::{
    Finished, Running, exists, is_stopped, signal, start_unread, status_line, unisono, wait_until,
    wait_until_gone,
};

const TWO_HOSTS: [&str; 2] = ["--hosts", "a:2,b:2"];

/// The first message of an agent.
const HELLO: &str = r#"{"Hello":{"version":"VERSION"}}"#;

fn last_line(done: &Finished) -> &str {
    done.err.lines().last().unwrap_or_default()
}

#[test]
fn c10_a_host_that_cannot_be_used_is_named_and_no_rank_starts() {
    let hello = format!("echo '{HELLO}'");
    let [garbage, early] =
        ["garbage", "'\"Done\"'; exec cat >/dev/null"].map(|words| format!("{hello}; echo {words}"));
    let old = format!("{}; exec cat >/dev/null", hello.replace("VERSION", "0.0.1"));
    for (body, status, expected) in [
        (
            "echo 'b: Permission denied (publickey,password).' >&2; exit 255",
            1,
            "host b: rsh exited with status 255: b: Permission denied (publickey,password).",
        ),
        ("exit 127", 127, "is not there or cannot run (rsh exited with status 127): install unisono there"),
        ("exit 0", 1, "host b: rsh exited with status 0"),
        ("echo hello; echo welcome", 1, "host b: rsh exited with status 0"),
        ("kill -KILL $$", 1, "host b: rsh was ended by signal 9"),
        (&old, 1, "has version 0.0.1 there, and "),
        (&garbage, 1, "\"garbage\" is no message"),
        (&early, 1, "out of turn"),
    ] {
        let body = body.replace("VERSION", env!("CARGO_PKG_VERSION"));
        let rsh = Rsh::new(&format!("case $1 in a) in_session \"$2\";; *) {body};; esac"));
        let started = rsh.file("started").display().to_string();
        let done = rsh.shell(&TWO_HOSTS, &format!("touch {started}"));
        let last = last_line(&done);
        assert_eq!(done.status.code(), Some(status), "{body}: {}", done.err);
        assert!(last.starts_with("unisono: host b: ") && last.contains(expected), "{body}: {}", done.err);
        assert!(!rsh.file("started").exists(), "{body}");
    }
}

/// Its pipe is full before the plan has been written.
#[test]
fn c10_a_host_that_reads_nothing_is_named_and_holds_no_signal() {
    let rsh =
        Rsh::new(&format!("echo '{HELLO}'; exec sleep 600").replace("VERSION", env!("CARGO_PKG_VERSION")));
    let large = format!("LARGE={}", "x".repeat(100_000));
    let mut running = rsh.start(&["-x", &large, "--hosts", "a,b"], &["true"]);
    assert_eq!(running.next_error_line(), "unisono: no answer after 5 s, and the job waits for: a, b\n");
    running.signal(Signal::INT);
    assert_eq!(running.finish().status.code(), Some(130));
}

#[test]
fn c10_output_that_is_lost_with_a_host_whose_ranks_have_ended_is_told() {
    let ended =
        [2, 3].map(|rank| format!("echo '{{\"Ended\":{{\"rank\":{rank},\"status\":{{\"Ok\":0}}}}}}'"));
    let body = format!(
        "echo '{HELLO}'; read plan; echo '{{\"Ready\":{{\"place\":null}}}}'; read start; {}",
        ended.join("; ")
    );
    let body = body.replace("VERSION", env!("CARGO_PKG_VERSION"));
    let rsh = Rsh::new(&format!("case $1 in a) in_session \"$2\";; *) {body};; esac"));
    let done = rsh.shell(&TWO_HOSTS, "true");
    assert_eq!(done.status.code(), Some(1), "{}", done.err);
    let end = "unisono: output of the ranks was lost: host b: rsh exited with status 0";
    assert_eq!(last_line(&done), end, "{}", done.err);
}

#[test]
fn c10_a_host_without_what_the_job_needs_says_so_by_name() {
    let rsh = Rsh::of_reachable_hosts();
    let hosts = |more: &[&str], program: &str| rsh.run(&[&TWO_HOSTS[..], more].concat(), &[program]);
    let done = hosts(&["--remote-program", "/no/such/unisono"], "true");
    assert_eq!(done.status.code(), Some(127), "{}", done.err);
    assert!(last_line(&done).contains("the program /no/such/unisono is not there"), "{}", done.err);
    let done = hosts(&["--wdir", "/no/such"], "true");
    assert_eq!(done.status.code(), Some(1), "{}", done.err);
    let expected = ": the working directory /no/such: No such file or directory (os error 2); --wdir names";
    assert!(last_line(&done).contains(expected), "{}", done.err);
    let done = hosts(&["-x", "UNISONO_INTERFACE=nosuch0"], "true");
    assert_eq!(done.status.code(), Some(1), "{}", done.err);
    let expected = "unisono: host a: UNISONO_INTERFACE=nosuch0: no interface with an address matches";
    assert!(last_line(&done).starts_with(expected), "{}", done.err);
    let done = hosts(&[], "/no/such/program");
    assert_eq!(done.status.code(), Some(127), "{}", done.err);
    assert!(last_line(&done).contains(": /no/such/program: No such file or directory"), "{}", done.err);
    let done = unisono(&["run", "--rsh", "/no/such/rsh", "--hosts", "a", "true"]);
    assert_eq!(done.status.code(), Some(1), "{}", done.err);
    assert!(done.err.contains("host a: rsh: No such file"), "{}", done.err);
}

#[test]
fn c10_a_program_that_one_host_lacks_ends_the_ranks_of_the_others() {
    let rsh = Rsh::new("PATH=${0%/*}/$1:$PATH; in_session \"$2\"");
    fs::create_dir(rsh.file("a")).unwrap();
    std::os::unix::fs::symlink("/bin/sleep", rsh.file("a/nap")).unwrap();
    let done = rsh.run(&["--hosts", "a:2,b"], &["nap", "600"]);
    assert_eq!(done.status.code(), Some(127), "{}", done.err);
    assert_eq!(last_line(&done), "unisono: host b: nap: No such file or directory (os error 2)");
}

#[test]
fn c10_what_a_host_says_is_told_with_its_name() {
    let rsh = Rsh::new("echo \"Welcome to $1\"; echo '***' >&2; in_session \"$2\"");
    let done = rsh.shell(&["--hosts", "a,b"], "echo $RANK");
    assert!(done.status.success(), "{}", done.err);
    assert_eq!(done.out.lines().count(), 2, "the output is that of the ranks: {}", done.out);
    for line in ["host a: Welcome to a", "host b: Welcome to b", "host a: ***", "host b: ***"] {
        assert!(done.err.contains(&format!("unisono: {line}\n")), "{}", done.err);
    }
}

#[test]
fn c10_hosts_and_ranks_that_do_not_go_together_are_refused() {
    let hostfile = Rsh::new("");
    let path = hostfile.file("hosts").display().to_string();
    fs::write(&path, "a slots=2\na slots=2\n").unwrap();
    for (options, expected) in [
        (&["--hosts", "a:2,b", "-n", "4"][..], "4 ranks do not fit into 3 slots: a:2, b:1"),
        (&["--hosts", "a,a"], "--hosts a,a: host a is there twice: a:NUMBER"),
        (&["--hosts", "a", "--include", "b"], "--include b: unknown host \"b\", one of: a"),
        (&["--hostfile", &path], "line 2: host a is in line 1 too"),
        (&["--hostfile", "/no/such"], "--hostfile /no/such: No such file"),
        (&["--hosts", "a", "--stdin", "0"], "standard input reaches no rank of --hosts"),
        (&["-n", "2", "--include", "a"], "--hosts"),
        (&["-n", "2", "--wdir", "/"], "--hosts"),
        (&["--hosts", "a", "--rsh", " "], "--rsh: a command is needed"),
        (&["--hosts", "a", "-x", "NO_SUCH_VARIABLE"], "-x NO_SUCH_VARIABLE: it is not set here"),
    ] {
        let done = unisono(&[&["run"], options, &["--", "true"]].concat());
        assert_eq!(done.status.code(), Some(2), "{options:?}: {}", done.err);
        assert!(done.err.contains(expected) && done.err.lines().count() == 1, "{options:?}: {}", done.err);
    }
}

#[test]
fn c10_a_failing_rank_of_any_host_is_named_and_ends_all() {
    let rsh = Rsh::of_reachable_hosts();
    let done = rsh.shell(&TWO_HOSTS, "if [ $RANK = 3 ]; then echo no data >&2; exit 7; fi; sleep 600");
    assert_eq!(done.status.code(), Some(7), "{}", done.err);
    let end = "unisono: first failure: rank 3 exited with status 7; its last line: no data";
    assert_eq!(last_line(&done), end, "{}", done.err);
}

/// The ranks of the other host report that they have lost rank 3.
#[test]
fn c10_the_rank_that_dies_is_blamed_and_not_those_of_other_hosts_that_notice() {
    let rsh = Rsh::of_reachable_hosts();
    let (program, this) = (env!("CARGO_BIN_EXE_unisono"), rsh.file("pid").display().to_string());
    let bench = format!("exec {program} bench all_reduce --sizes 1G");
    let line = format!("[ $RANK = 3 ] && echo $$ >{this}.new && mv {this}.new {this}; {bench}");
    let running = rsh.start(&TWO_HOSTS, &["sh", "-c", &line]);
    wait_until("rank 3 has begun", || rsh.file("pid").exists());
    let pid = fs::read_to_string(rsh.file("pid")).unwrap().trim().to_owned();
    let has_begun =
        || fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim() == "unisono";
    wait_until("it is a rank", has_begun);
    signal(&pid, Signal::KILL);
    let done = running.finish();
    assert_eq!(done.status.code(), Some(137), "{}", done.err);
    let end = "unisono: first failure: rank 3 was ended by signal 9 (SIGKILL)";
    assert!(last_line(&done).starts_with(end), "{}", done.err);
}

/// Starts four ranks on two hosts, each with a child. Gives the numbers of the agents, and of ranks and children.
fn sleepers(rsh: &Rsh, options: &[&str]) -> (Running, [String; 2], Vec<String>) {
    let line = "sleep 600 & echo $RANK $PPID $! $$; wait";
    let mut running = rsh.start(&[&TWO_HOSTS, options].concat(), &["sh", "-c", line]);
    let (mut agents, mut pids) = ([String::new(), String::new()], Vec::new());
    for _ in 0..4 {
        let line = running.next_line();
        let words: Vec<&str> = line.split_whitespace().skip(1).collect();
        agents[words[0].parse::<usize>().unwrap() / 2] = words[1].to_owned();
        pids.extend(words[2..].iter().map(|&pid| pid.to_owned()));
    }
    assert!(pids.iter().all(|pid| exists(pid)), "{pids:?}");
    (running, agents, pids)
}

#[test]
fn c10_a_host_that_is_lost_is_named_and_ends_the_job() {
    let rsh = Rsh::of_reachable_hosts();
    let (running, [_, second], pids) = sleepers(&rsh, &[]);
    signal(&second, Signal::KILL);
    let done = running.finish();
    assert_eq!(done.status.code(), Some(255), "{}", done.err);
    let end = "unisono: first failure: rank 2 ended, its status is lost: host b: rsh was ended by signal 9";
    assert!(last_line(&done).starts_with(end), "{}", done.err);
    wait_until_gone(&pids);
}

#[test]
fn c10_the_ranks_of_other_hosts_go_on_when_they_are_told_to() {
    let rsh = Rsh::of_reachable_hosts();
    let flag = rsh.file("flag").display().to_string();
    let line = format!("echo $RANK $PPID; while [ ! -e {flag} ]; do sleep 0.02; done; echo $RANK survived");
    let mut running = rsh.start(&["--keep-going", "--hosts", "a,b"], &["sh", "-c", &line]);
    let lines = [running.next_line(), running.next_line()];
    let second = lines.iter().find_map(|line| line.strip_prefix("[1] 1 ")).unwrap().trim();
    signal(second, Signal::KILL);
    wait_until_gone(&[second.to_owned()]);
    fs::write(&flag, "").unwrap();
    assert_eq!(running.next_line(), "[0] 0 survived\n");
    let done = running.finish();
    assert!(done.status.success(), "{}", done.err);
    let end = "unisono: 1 of 2 ranks were lost: rank 1 ended, its status is lost: host b: rsh was ended by signal 9";
    assert!(last_line(&done).starts_with(end), "{}", done.err);
}

#[test]
fn c10_no_rank_of_any_host_outlives_a_killed_launcher() {
    let rsh = Rsh::of_reachable_hosts();
    let (running, agents, pids) = sleepers(&rsh, &[]);
    running.signal(Signal::KILL);
    running.finish();
    wait_until_gone(&[pids, agents.to_vec()].concat());
}

#[test]
fn c10_signals_to_the_launcher_end_the_ranks_of_all_hosts() {
    let rsh = Rsh::of_reachable_hosts();
    for (signal, status) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)] {
        let (running, agents, pids) = sleepers(&rsh, &[]);
        running.signal(signal);
        assert_eq!(running.finish().status.code(), Some(status));
        wait_until_gone(&[pids, agents.to_vec()].concat());
    }
}

#[test]
fn c10_a_second_signal_kills_at_once_on_all_hosts() {
    let rsh = Rsh::of_reachable_hosts();
    let line = "trap 'echo asked' INT; echo ready; while :; do sleep 0.02; done";
    let mut running = rsh.start(&["--hosts", "a,b", "--grace", "1000"], &["sh", "-c", line]);
    for word in ["ready", "asked"] {
        let mut lines = [running.next_line(), running.next_line()];
        lines.sort_unstable();
        assert_eq!(lines, [format!("[0] {word}\n"), format!("[1] {word}\n")]);
        running.signal(Signal::INT);
    }
    assert_eq!(running.finish().status.code(), Some(130));
}

#[test]
fn c10_a_stop_stops_the_ranks_of_all_hosts_until_they_are_continued() {
    let rsh = Rsh::of_reachable_hosts();
    let (running, _, pids) = sleepers(&rsh, &[]);
    running.signal(Signal::TSTP);
    let launcher = running.pid();
    wait_until("all have been stopped", || pids.iter().chain([&launcher]).all(|pid| is_stopped(pid)));
    running.signal(Signal::CONT);
    wait_until("all go on", || !pids.iter().any(|pid| is_stopped(pid)));
    running.signal(Signal::TERM);
    assert_eq!(running.finish().status.code(), Some(143));
    wait_until_gone(&pids);
}

/// Nobody reads until the ranks have been asked to end. Without bounds they would have printed far more in a second.
/// The lines are as short as lines can be: each in memory of its own would fill it.
#[test]
fn c10_a_reader_who_pauses_holds_the_ranks_of_other_hosts_and_no_signal() {
    const BYTES_MAX: usize = 64 << 20;
    const MEMORY_KIB_MAX: u64 = 64 << 10;
    let rsh = Rsh::of_reachable_hosts();
    let script = rsh.file("rsh").display().to_string();
    let began = rsh.file("began").display().to_string();
    let line = format!("touch {began}-$RANK; exec yes ''");
    let words = ["run", "--rsh", &script, "--hosts", "a,b", "--", "sh", "-c", &line];
    let mut running = start_unread(&["env"], &words);
    wait_until("both print", || [0, 1].iter().all(|rank| rsh.file(&format!("began-{rank}")).exists()));
    std::thread::sleep(std::time::Duration::from_secs(1));
    let memory = status_line(&running.pid(), "VmHWM");
    let kib: u64 = memory.split_whitespace().find_map(|word| word.parse().ok()).unwrap();
    assert!(kib < MEMORY_KIB_MAX, "{memory}");
    running.signal(Signal::INT);
    running.read();
    let done = running.finish();
    assert_eq!(done.status.code(), Some(130), "{}", done.err);
    assert!(done.out.len() < BYTES_MAX, "{} bytes", done.out.len());
}

/// The agent of host b has been stopped, and neither obeys nor answers.
#[test]
fn c10_a_third_signal_gives_up_a_host_that_does_not_answer() {
    let rsh = Rsh::of_reachable_hosts();
    let (running, [_, second], pids) = sleepers(&rsh, &["--grace", "1000"]);
    signal(&second, Signal::STOP);
    wait_until("the agent has been stopped", || is_stopped(&second));
    running.signal(Signal::INT);
    wait_until("the ranks of host a have ended", || pids.iter().filter(|pid| exists(pid)).count() <= 4);
    running.signal(Signal::INT);
    running.signal(Signal::TERM);
    assert_eq!(running.finish().status.code(), Some(130));
    wait_until_gone(&pids);
}

#[test]
fn c10_a_signal_while_a_host_does_not_answer_yet_ends_the_job() {
    let rsh = Rsh::new("case $1 in a) in_session \"$2\";; *) echo waiting >&2; exec sleep 600;; esac");
    let running = rsh.start(&TWO_HOSTS, &["true"]);
    wait_until("the launcher has called", || rsh_children(&running.pid()) == 2);
    running.signal(Signal::INT);
    assert_eq!(running.finish().status.code(), Some(130));
    let done = rsh.run(&["--timeout", "0.5", "--hosts", "a,b"], &["true"]);
    assert_eq!(done.status.code(), Some(124), "{}", done.err);
}

/// The number of children of a process.
fn rsh_children(pid: &str) -> usize {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let children = tasks.map(|task| fs::read_to_string(task.path().join("children")).unwrap_or_default());
    children.map(|children| children.split_whitespace().count()).sum()
}

#[test]
fn c10_a_job_that_takes_too_long_is_ended_on_all_hosts() {
    let rsh = Rsh::of_reachable_hosts();
    let options = [&TWO_HOSTS[..], &["--timeout", "0.5", "--grace", "0.1"]].concat();
    let done = rsh.shell(&options, "[ $RANK = 2 ] && exit 0; trap '' TERM; while :; do sleep 0.05; done");
    assert_eq!(done.status.code(), Some(124), "{}", done.err);
    let told = "the job was ended after 0.5 s (--timeout); these ranks had not ended: 0, 1";
    assert!(last_line(&done).contains(told), "{}", done.err);
}

#[test]
fn c10_two_jobs_on_the_same_hosts_do_not_meet() {
    let rsh = Rsh::of_reachable_hosts();
    let program = [env!("CARGO_BIN_EXE_unisono"), "bench", "barrier", "--sizes", "64"];
    let jobs = [0, 1].map(|_| rsh.start(&["--hosts", "a,b"], &program));
    for done in jobs.map(Running::finish) {
        assert!(done.status.success(), "{}", done.err);
    }
}
