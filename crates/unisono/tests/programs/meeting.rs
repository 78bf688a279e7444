//! Programs that say in code who they are, and where they meet (rows A2 and A18).

use std::collections::HashMap;
use std::fs;

use unisono::{Communicator, Config};
use unisono_communicator::settings::environment;

use crate::add;
use crate::support::{Folder, Program, start};

fn url(folder: &Folder) -> String {
    format!("file://{}/meeting", folder.path().display())
}

fn entries(folder: &Folder) -> usize {
    fs::read_dir(folder.path()).unwrap().count()
}

/// Takes the URL, the rank, the size and the number of worlds from its caller, as a program does from its arguments.
pub(crate) fn program_that_meets_at_a_url() {
    let variables = environment();
    let variables: HashMap<String, String> = variables.collect();
    let argument = |name: &str| &variables[name];
    let number = |name: &str| argument(name).parse::<u32>().unwrap();
    for _ in 0..number("MEETINGS") {
        let config = Config::from_environment().unwrap().with_init_method(argument("MEETING_URL")).unwrap();
        let config = config.with_rank(number("MEETING_RANK"), number("MEETING_SIZE")).unwrap();
        let world = unisono::init_with(&config).unwrap_or_else(|error| {
            eprintln!("{error}");
            std::process::exit(1);
        });
        add(&world);
        world.close().unwrap();
    }
}

/// A rank in an environment that says other things.
fn rank(url: &str, meetings: u32, (rank, size): (u32, u32)) -> Program {
    let variables = [
        ("MEETING_URL", url),
        ("MEETINGS", &meetings.to_string()),
        ("MEETING_RANK", &rank.to_string()),
        ("MEETING_SIZE", &size.to_string()),
        ("RANK", "0"),
        ("WORLD_SIZE", "7"),
        ("MASTER_ADDR", "192.0.2.7"),
        ("MASTER_PORT", "9"),
        ("UNISONO_JOIN_TIMEOUT_S", "60"),
    ];
    start("meeting::program_that_meets_at_a_url", &variables)
}

fn ranks(url: &str, meetings: u32, size: u32) -> Vec<Program> {
    (0..size).map(|one| rank(url, meetings, (one, size))).collect()
}

fn all_succeed(ranks: Vec<Program>) {
    for rank in ranks {
        let (is_good, lines) = rank.end();
        assert!(is_good, "{lines:?}");
    }
}

#[test]
fn a2_a18_ranks_meet_at_a_port_of_this_host() {
    // A name for the job: no port is bound where all ranks are on this host.
    let port = 20_000 + std::process::id() % 40_000;
    all_succeed(ranks(&format!("tcp://localhost:{port}"), 2, 3));
}

#[test]
fn a18_ranks_meet_in_a_file_again_and_again() {
    let folder = Folder::new();
    fs::write(folder.path().join("of another.store"), "").unwrap();
    all_succeed(ranks(&url(&folder), 3, 3));
    assert_eq!(entries(&folder), 1, "the meeting's file is gone, and no other");
}

/// A rank that is killed while it waits leaves its file behind.
#[test]
fn a18_a_file_that_is_left_over_is_used_again() {
    let folder = Folder::new();
    let path = folder.path().join("meeting");
    let mut alone = rank(&url(&folder), 1, (0, 2));
    // It says so after a while, and has written the file before.
    alone.hear("waiting to join");
    drop(alone);
    assert!(fs::metadata(&path).unwrap().len() > 0);
    all_succeed(ranks(&url(&folder), 1, 2));
    assert_eq!(entries(&folder), 0);
}

#[test]
fn a18_a_file_of_something_else_is_left_alone() {
    let folder = Folder::new();
    let path = folder.path().join("meeting");
    fs::write(&path, "a diary").unwrap();
    let closed = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(&path, closed).unwrap();
    let (is_good, lines) = rank(&url(&folder), 1, (0, 2)).end();
    assert!(!is_good && lines.iter().any(|line| line.contains("it holds something else")), "{lines:?}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "a diary");
}

#[test]
fn a18_bad_urls_name_the_argument_and_the_line() {
    let config = || Config::from_lookup(&|_| None).unwrap();
    for url in ["http://node7:1", "file:///", "file:///tmp", "tcp://node7"] {
        let line = line!() + 1;
        let text = config().with_init_method(url).unwrap_err().to_string();
        assert!(text.contains("init_method") && text.contains(url), "{text}");
        assert!(text.contains(&format!("{}:{line}", file!())), "{text}");
    }
    let line = line!() + 1;
    let text = config().with_rank(2, 2).unwrap_err().to_string();
    assert!(text.contains("rank") && text.contains(&format!("{}:{line}", file!())), "{text}");
}
