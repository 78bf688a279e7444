//! `unisono run` on several hosts: the places, the environment and the output of the ranks.

use std::fs;
use std::process::Command;

use unisono_tests::skip;

use crate::hosts_support::Rsh;
use crate::network::{Cut, Network};
use crate::support::{Finished, sorted_lines, start_by, unisono};

const TWO_HOSTS: [&str; 2] = ["--hosts", "a,b:2"];

/// On these hosts, and a call among them is right.
fn assert_four_ranks_meet(rsh: &Rsh, hosts: &str) {
    let program = [env!("CARGO_BIN_EXE_unisono"), "bench", "all_reduce", "--sizes", "64K", "--json"];
    let done = rsh.run(&["--tag-output", "off", "--hosts", hosts], &program);
    assert!(done.status.success(), "{}", done.err);
    let rows: Vec<serde_json::Value> = serde_json::from_str(&done.out).unwrap();
    assert!(rows[0]["wrong"] == 0 && rows[0]["ranks"] == 4, "{rows:?}");
}

#[test]
fn c10_ranks_follow_the_hosts_and_know_their_places() {
    let rsh = Rsh::of_reachable_hosts();
    let line = "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $CROSS_RANK/$CROSS_SIZE";
    let expected = ["[0] 0/3 0/1 0/2", "[1] 1/3 0/2 1/2", "[2] 2/3 1/2 1/2"];
    let done = rsh.shell(&TWO_HOSTS, line);
    assert!(done.status.success(), "{}", done.err);
    assert_eq!(sorted_lines(&done.out), expected);
    let hostfile = rsh.file("hosts").display().to_string();
    fs::write(&hostfile, "# two\na slots=1\nb slots=8 max_slots=8\nc slots=1\n").unwrap();
    let done = rsh.shell(&["-n", "3", "--hostfile", &hostfile], line);
    assert!(done.status.success(), "{}", done.err);
    assert_eq!(sorted_lines(&done.out), expected, "slots are filled in the order of the hosts");
}

#[test]
fn c10_ranks_of_all_hosts_meet_at_the_first_one() {
    let rsh = Rsh::of_reachable_hosts();
    assert_four_ranks_meet(&rsh, "a:2,b:2");
}

#[test]
fn c10_ranks_of_slots_that_are_named_see_the_devices_of_these_numbers() {
    let rsh = Rsh::of_reachable_hosts();
    let options = ["--hosts", "a:4,b:2,c", "--include", "a:1,3@b"];
    let done = rsh.shell(&options, "echo $LOCAL_RANK/$LOCAL_WORLD_SIZE ${CUDA_VISIBLE_DEVICES-all}");
    assert!(done.status.success(), "{}", done.err);
    assert_eq!(sorted_lines(&done.out), ["[0] 0/2 1,3", "[1] 1/2 1,3", "[2] 0/2 all", "[3] 1/2 all"]);
    let done = rsh.shell(&["--hosts", "a:2,b", "--exclude", "a"], "echo $WORLD_SIZE");
    assert_eq!(done.out, "[0] 1\n", "{}", done.err);
}

/// It needs nothing that starts a command on another host.
#[test]
fn c10_localhost_and_this_machines_own_name_are_this_machine() {
    let rsh = Rsh::new("echo not asked >&2; exit 1");
    let own = String::from_utf8(Command::new("uname").arg("-n").output().unwrap().stdout).unwrap();
    for host in ["localhost", own.trim()] {
        let done = rsh.shell(&["--hosts", &format!("{host}:2")], "echo $UNISONO_STORE");
        assert!(done.status.success(), "{}", done.err);
        assert_eq!(done.out.matches("127.0.0.1:").count(), 2, "{}", done.out);
    }
}

#[test]
fn c10_the_secret_is_on_no_command_line_and_goes_with_the_job() {
    let rsh = Rsh::new("printf '%s\\n' \"$0\" \"$@\" >>\"${0%/*}/lines\"; in_session \"$2\"");
    let line = "echo $(stat -c '%a %s' $UNISONO_SECRET_FILE) $(od -An -v -tx1 $UNISONO_SECRET_FILE | tr -d ' \\n') \
                $UNISONO_SECRET_FILE";
    let done = rsh.shell(&["--hosts", "a,b"], line);
    assert!(done.status.success(), "{}", done.err);
    let words: Vec<Vec<&str>> = done.out.lines().map(|line| line[4..].split(' ').collect()).collect();
    assert_eq!(words[0][..3], words[1][..3]);
    assert_eq!((words[0][..2].join(" ").as_str(), words[0][2].len()), ("600 32", 64));
    assert_ne!(words[0][3], words[1][3], "each host has a file of its own");
    assert!(words.iter().all(|words| !std::path::Path::new(words[3]).exists()), "{words:?}");
    let program = format!("exec '{}' run --agent", env!("CARGO_BIN_EXE_unisono"));
    let lines = fs::read_to_string(rsh.file("lines")).unwrap();
    let script = rsh.file("rsh").display().to_string();
    let told: Vec<&str> = lines.lines().collect();
    assert_eq!(told.len(), 6, "{told:?}");
    let is_known = |line: &&str| [script.as_str(), "a", "b", &program].contains(line);
    assert!(told.iter().all(is_known), "{told:?}");
}

#[test]
fn c10_settings_and_named_variables_reach_other_hosts_and_nothing_else_does() {
    let rsh = Rsh::of_reachable_hosts();
    let script = rsh.file("rsh").display().to_string();
    let line =
        "echo $UNISONO_LOG $OMP_NUM_THREADS ${SECRET_OF_MINE-unset} $NAMED $VALUE ${UNISONO_RANK-unset}";
    let by =
        ["env", "UNISONO_LOG=info", "OMP_NUM_THREADS=3", "SECRET_OF_MINE=x", "NAMED=a b", "UNISONO_RANK=7"];
    let options = ["-x", "NAMED", "-x", "VALUE=1=2", "--hosts", "a,b"];
    let words = [&["run", "--rsh", &script], &options[..], &["--", "sh", "-c", line]].concat();
    let done: Finished = start_by(&by, &words).finish();
    assert!(done.status.success(), "{}", done.err);
    let expected = "info 3 unset a b 1=2 unset";
    assert_eq!(sorted_lines(&done.out), [format!("[0] {expected}"), format!("[1] {expected}")]);
    let done = unisono(&["run", "-n", "1", "-x", "VALUE=1", "--", "sh", "-c", "echo $VALUE"]);
    assert_eq!(done.out, "[0] 1\n", "{}", done.err);
}

#[test]
fn c10_output_of_other_hosts_is_whole_and_in_the_files_of_this_one() {
    const LINES: usize = 200_000;
    let rsh = Rsh::of_reachable_hosts();
    let folder = rsh.file("logs").display().to_string();
    let line = format!("seq {LINES}; printf '\\377 no end' >&2");
    let done = rsh.shell(&["--hosts", "a,b", "--log-dir", &folder], &line);
    assert!(done.status.success(), "{}", done.err);
    for rank in [0, 1] {
        let prefix = format!("[{rank}] ");
        let lines = done.out.lines().filter_map(|line| line.strip_prefix(&prefix));
        assert!(lines.eq((1..=LINES).map(|number| number.to_string())), "rank {rank}");
        let file = fs::read(rsh.file("logs").join(format!("rank-{rank}.log"))).unwrap();
        let numbers: usize = (1..=LINES).map(|number| number.to_string().len() + 1).sum();
        assert_eq!(file.len(), numbers + b"\xff no end".len(), "rank {rank}");
    }
    assert_eq!(done.err.matches("\u{fffd} no end").count(), 2);
}

#[test]
fn c10_ranks_of_other_hosts_end_when_nobody_reads_their_output() {
    let rsh = Rsh::of_reachable_hosts();
    let (script, program) = (rsh.file("rsh").display().to_string(), env!("CARGO_BIN_EXE_unisono"));
    let line = format!("{program} run --rsh {script} --hosts a,b -- yes | head -n 3");
    let done = start_by(&["sh", "-c", &line, "env"], &[]).finish();
    assert_eq!(done.out.lines().count(), 3, "{}", done.err);
    assert!(done.err.contains("nobody reads standard output any more"), "{}", done.err);
}

/// A script that enters two namespaces by these names.
fn entering(network: &Network, [a, b]: [&str; 2]) -> Rsh {
    let [first, second] = [0, 1].map(|host| network.entering(host).join(" "));
    Rsh::new(&format!("case $1 in {a}) exec {first} sh -c \"$2\";; {b}) exec {second} sh -c \"$2\";; esac"))
}

/// Two hosts in namespaces, with the addresses that their names say, and a script that enters them. Gives
/// also the value of `--hosts` for two ranks on each, and both names.
fn namespaces(network: &Network) -> (Rsh, String, [String; 2]) {
    let names = [0, 1].map(|host| Network::address(host).to_string());
    let [a, b] = &names;
    (entering(network, [a, b]), format!("{a}:2,{b}:2"), names)
}

#[test]
fn c10_hosts_in_networks_of_their_own_meet_at_the_first_ones_address() {
    let Some(network) = Network::or_skip(2) else { return };
    let (rsh, hosts, [a, _]) = namespaces(&network);
    let done = rsh.shell(&["--hosts", &hosts], "echo ${UNISONO_STORE%:*} $MASTER_ADDR");
    assert!(done.status.success(), "{}", done.err);
    assert_eq!(sorted_lines(&done.out), [0, 1, 2, 3].map(|rank| format!("[{rank}] {a} {a}")));
    assert_four_ranks_meet(&rsh, &hosts);
}

/// The launcher reaches both hosts, and nothing passes between these.
#[test]
fn c10_a_host_that_does_not_reach_the_meeting_is_named_before_its_ranks_wait() {
    let Some(network) = Network::or_skip(2) else { return };
    let (rsh, hosts, [a, b]) = namespaces(&network);
    network.cut(1, Cut::Silence).unwrap();
    let done = rsh.shell(&["--hosts", &hosts], "sleep 600");
    assert_eq!(done.status.code(), Some(1), "{}", done.err);
    let last = done.err.lines().last().unwrap();
    assert!(last.starts_with(&format!("unisono: host {b}: no connection to {a}:")), "{}", done.err);
    assert!(last.contains("allow TCP between the hosts"), "{}", done.err);
}

/// Hosts that have no other addresses.
#[test]
fn c10_hosts_with_ipv6_alone_meet() {
    let Some(network) = Network::or_skip(2) else { return };
    let addresses = ["fd77::1", "fd77::2"];
    for (host, address) in addresses.iter().enumerate() {
        let commands = format!(
            "ip -4 addr flush dev port && ip -6 addr add {address}/64 dev port nodad && ip -4 addr show dev port"
        );
        let words = [&network.entering(host)[..], &["sh".into(), "-c".into(), commands]].concat();
        let done = Command::new(&words[0]).args(&words[1..]).output().unwrap();
        assert!(done.status.success() && done.stdout.is_empty(), "{done:?}");
    }
    let [a, b] = addresses;
    assert_four_ranks_meet(&entering(&network, addresses), &format!("[{a}]:2,[{b}]:2"));
}

/// It has another time since its start, and where faketime is here also another date.
#[test]
fn c10_a_host_whose_clock_is_a_year_off_takes_part() {
    const YEAR_AHEAD: &str = "unshare --time --monotonic 31622400 --boottime 31622400 --fork";
    let has =
        |line: &str| Command::new("sh").args(["-c", line]).output().is_ok_and(|done| done.status.success());
    if !has(&format!("{YEAR_AHEAD} true")) {
        return skip("unshare", "no clock of another host can be made here");
    }
    let dated = if has("faketime -f +366d true") { "faketime -f +366d" } else { "" };
    let rsh = Rsh::new(&format!(
        "case $1 in a) in_session \"$2\";; b) exec {dated} {YEAR_AHEAD} sh -c \"$2\";; esac"
    ));
    let done = rsh.shell(&["--hosts", "a,b"], "cut -d . -f 1 /proc/uptime");
    let uptimes = sorted_lines(&done.out).into_iter().map(|line| line[4..].parse::<u64>().unwrap());
    assert!(uptimes.is_sorted() && done.out.lines().any(|line| line.len() > 11), "{}", done.out);
    assert_four_ranks_meet(&rsh, "a:2,b:2");
    let line = "test $RANK = 3 && exit 9; exec \"$0\" bench all_reduce --sizes 64M";
    let done = rsh.run(&["--hosts", "a:2,b:2"], &["sh", "-c", line, env!("CARGO_BIN_EXE_unisono")]);
    assert!(done.err.lines().last().unwrap().contains("rank 3 exited with status 9"), "{}", done.err);
}
