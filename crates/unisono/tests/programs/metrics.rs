//! `UNISONO_METRICS`: counts of calls as files for Prometheus, also where they cannot be written.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use unisono::{Collectives, Communicator, Peer};
use unisono_communicator::settings::environment;

use crate::support::{Folder, Program, start_by, start_ranks};
use crate::{join_and_add, wait_for_a_word};

#[path = "../../../../tests/src/skip.rs"]
mod skip;

const PROGRAM: &str = "metrics::program_that_is_counted";

/// Longer than several files take, which are replaced every second.
const SECONDS: Duration = Duration::from_millis(3500);

/// Makes calls, then waits for a word if the test says so.
pub(crate) fn program_that_is_counted() {
    let variables: HashMap<String, String> = environment().collect();
    let argument = |name: &str| variables.get(name).map_or("", String::as_str);
    let world = join_and_add();
    for _ in 0..2 {
        world.broadcast(&mut [0u8; 64], 0).unwrap();
    }
    match world.rank() {
        0 => world.send(&[1u8; 5], 1, 0).unwrap(),
        1 => drop(world.recv(&mut [0u8; 100], Peer::Any, 0).unwrap()),
        _ => {}
    }
    world.barrier().unwrap();
    if argument("WAITS") == "yes" {
        eprintln!("called");
        wait_for_a_word();
    }
    match argument("END") {
        "exit" => std::process::exit(0),
        _ => world.close().unwrap(),
    }
}

/// The values of a text in the format of Prometheus, version 0.0.4, by name, rank and operation.
fn parsed(text: &str) -> BTreeMap<(String, String, String), u64> {
    let (mut values, mut typed, mut helped) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
    assert!(text.ends_with('\n'), "the last line has no end: {text:?}");
    let is_name = |name: &str| {
        let is_inner = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == ':';
        name.chars().all(is_inner) && name.chars().next().is_some_and(|first| !first.is_ascii_digit())
    };
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, help) = help.split_once(' ').expect(line);
            assert!(is_name(name) && !help.is_empty() && !help.contains('\\'), "{line}");
            assert!(helped.insert(name.to_owned()), "{line}");
            continue;
        }
        if let Some(typing) = line.strip_prefix("# TYPE ") {
            let (name, kind) = typing.split_once(' ').expect(line);
            assert!(helped.contains(name) && kind == "counter", "{line}");
            assert!(typed.insert(name.to_owned()), "{line}");
            continue;
        }
        let (name, rest) = line.split_once('{').expect(line);
        let (labels, value) = rest.split_once("} ").expect(line);
        assert!(is_name(name) && typed.contains(name) && name.ends_with("_total"), "{line}");
        let labels: BTreeMap<&str, &str> = labels
            .split(',')
            .map(|label| label.split_once('=').expect(line))
            .map(|(name, value)| (name, value.strip_prefix('"').unwrap().strip_suffix('"').unwrap()))
            .collect();
        assert_eq!(labels.keys().copied().collect::<Vec<_>>(), ["operation", "rank"], "{line}");
        assert!(labels.values().all(|value| is_name(value) || value.parse::<u32>().is_ok()), "{line}");
        let key = (name.to_owned(), labels["rank"].to_owned(), labels["operation"].to_owned());
        assert_eq!(values.insert(key, value.parse::<u64>().expect(line)), None, "{line}");
    }
    values
}

/// The counts of the program's calls, of rank 0 or 1 of 2.
fn check(text: &str, rank: u32) {
    let values = parsed(text);
    let names: BTreeSet<&str> = values.keys().map(|(name, _, _)| name.as_str()).collect();
    let expected_names =
        ["unisono_bytes_total", "unisono_calls_total", "unisono_errors_total", "unisono_waits_total"];
    assert_eq!(names.into_iter().collect::<Vec<_>>(), expected_names);
    let message = if rank == 0 { "send" } else { "recv" };
    let expected = [("all_reduce", 1, 4000), ("broadcast", 2, 128), ("barrier", 1, 0), (message, 1, 5)];
    for ((name, of_rank, operation), value) in &values {
        assert_eq!(*of_rank, rank.to_string());
        let found = expected.iter().find(|one| one.0 == operation).unwrap_or(&("", 0, 0));
        match name.as_str() {
            "unisono_calls_total" => assert_eq!(*value, found.1, "{operation}: {text}"),
            "unisono_bytes_total" => assert_eq!(*value, found.2, "{operation}: {text}"),
            "unisono_errors_total" => assert_eq!(*value, 0, "{operation}: {text}"),
            _ => assert!(*value <= found.1, "{operation}: {text}"),
        }
    }
}

fn names(folder: &Folder) -> Vec<String> {
    let entries = fs::read_dir(folder.path()).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort_unstable();
    names
}

fn ends_well(program: Program) {
    assert_eq!(program.end(), (true, Vec::new()));
}

#[test]
fn the_counts_are_complete_however_the_program_ends() {
    for end in ["close", "exit"] {
        let folder = Folder::new();
        let variables = [("UNISONO_METRICS", folder.path().to_str().unwrap()), ("END", end)];
        start_ranks(PROGRAM, &format!("counted, {end}"), 2, &variables).into_iter().for_each(ends_well);
        assert_eq!(names(&folder), ["unisono-rank-0.prom", "unisono-rank-1.prom"], "{end}");
        for rank in 0..2 {
            let text = fs::read_to_string(folder.path().join(format!("unisono-rank-{rank}.prom"))).unwrap();
            check(&text, rank);
        }
    }
}

/// A reader at any time sees a whole file.
#[test]
fn the_file_is_replaced_while_the_program_runs() {
    let folder = Folder::new();
    let variables = [("UNISONO_METRICS", folder.path().to_str().unwrap()), ("WAITS", "yes")];
    let mut ranks = start_ranks(PROGRAM, "replaced", 2, &variables);
    ranks.iter_mut().for_each(|rank| drop(rank.hear("called")));
    let path = folder.path().join("unisono-rank-1.prom");
    let modified = || fs::metadata(&path).and_then(|there| there.modified()).ok();
    let mut seen = BTreeSet::new();
    let until = std::time::Instant::now() + 20 * SECONDS;
    while seen.len() < 3 {
        assert!(std::time::Instant::now() < until, "the file is not replaced");
        if let Some(modified) = modified() {
            seen.insert(modified);
            check(&fs::read_to_string(&path).unwrap(), 1);
        }
    }
    for mut rank in ranks {
        rank.tell("go on");
        assert!(rank.end().0);
    }
}

/// Runs the two ranks so that no file can be written; gives the lines of one rank.
fn complaints(by: &[&str], folder: &str) -> Vec<String> {
    // Several tests of this process run at once.
    static JOBS: AtomicU32 = AtomicU32::new(0);
    let number = JOBS.fetch_add(1, Ordering::Relaxed);
    let (job, mut ranks) = (format!("no file {} {number}", std::process::id()), Vec::new());
    for rank in ["0", "1"] {
        let variables = [
            ("UNISONO_METRICS", folder),
            ("WAITS", "yes"),
            ("UNISONO_RANK", rank),
            ("UNISONO_WORLD_SIZE", "2"),
            ("UNISONO_JOB", &job),
            ("UNISONO_JOIN_TIMEOUT_S", "60"),
        ];
        ranks.push(start_by(by, PROGRAM, &variables));
    }
    ranks.iter_mut().for_each(|rank| drop(rank.hear("called")));
    std::thread::sleep(SECONDS);
    ranks.iter_mut().for_each(|rank| rank.tell("go on"));
    let ended: Vec<_> = ranks.into_iter().map(Program::end).collect();
    for (rank, (is_good, lines)) in ended.iter().enumerate() {
        let start =
            format!("unisono: rank {rank}: cannot write counts of calls into {folder}, and goes on trying: ");
        assert!(*is_good, "{lines:?}");
        let complaints = lines.iter().filter(|line| line.starts_with(&start)).count();
        assert_eq!(complaints, 1, "not one every second: {lines:?}");
    }
    ended.into_iter().flat_map(|(_, lines)| lines).collect()
}

fn complain_of(lines: &[String], reason: &str) {
    assert_eq!(lines.iter().filter(|line| line.contains(reason)).count(), 2, "{lines:?}");
}

#[test]
fn a_folder_that_is_a_file_is_one_line_and_no_error_of_the_job() {
    let folder = Folder::new();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    complain_of(&complaints(&["env"], file.to_str().unwrap()), "File exists");
    complain_of(&complaints(&["env"], file.join("under").to_str().unwrap()), "Not a directory");
}

#[test]
fn a_folder_without_permission_is_one_line() {
    let folder = Folder::new();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o555)).unwrap();
    let path = folder.path().to_str().unwrap();
    // Root may write everywhere, but in a user namespace of its own it is nobody.
    let by: &[&str] = match fs::write(folder.path().join("probe"), "") {
        Err(_) => &["env"],
        Ok(()) if runs(&["unshare", "--user", "true"]) => &["unshare", "--user", "env"],
        Ok(()) => return skip::skip("unshare", "this is root, who may write everywhere"),
    };
    complain_of(&complaints(by, path), "Permission denied");
}

fn runs(words: &[&str]) -> bool {
    let output = Command::new(words[0]).args(&words[1..]).output();
    output.is_ok_and(|output| output.status.success())
}

#[test]
fn a_full_disk_is_one_line_and_leaves_nothing() {
    let folder = Folder::new();
    let path = folder.path().to_str().unwrap();
    // A limit of the size of files is such a disk that needs no rights. The meeting's file is smaller.
    let line = "ulimit -f 2; exec \"$0\" \"$@\"";
    complain_of(&complaints(&["sh", "-c", line], path), "File too large");
    assert_eq!(names(&folder), [""; 0]);
    if !runs(&["unshare", "--user", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "tmpfs", path]) {
        return skip::skip("unshare", "no file system of a user's own can be mounted");
    }
    // The first write fills the disk, and `partial` is all that may be there.
    let line = format!(
        "mount -t tmpfs -o size=4k tmpfs {path} && head -c 4096 /dev/zero >{path}/full && \"$0\" \"$@\" && \
         [ \"$(ls {path})\" = full ]"
    );
    let by = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", &line];
    complain_of(&complaints(&by, path), "No space left on device");
}
