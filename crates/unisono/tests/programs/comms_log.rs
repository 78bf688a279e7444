//! The communication log of programs: its settings, its table at the end, its lines (rows I2, I5, I7 and I9).

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use unisono::comms_log::CommsLoggerConfig;
use unisono::{Collectives, CollectivesAsync, Communicator, Config, Peer, ReduceOp, SecondInit};
use unisono_communicator::settings::environment;

use crate::support::{Folder, start, start_by, start_ranks};
use crate::{add, join_and_add};

const TITLE: &str = "unisono: rank 0: calls of this rank by size";

/// Calls at two lines, then an end as the test says.
pub(crate) fn program_with_a_log() {
    let variables: HashMap<String, String> = environment().collect();
    let world = join_and_add();
    for _ in 0..2 {
        world.all_reduce(&mut vec![1u32; 1000], ReduceOp::Sum).unwrap();
    }
    world.barrier().unwrap();
    match variables.get("END").map(String::as_str) {
        Some("exit") => std::process::exit(0),
        Some("panic") => panic!("a bug of the program"),
        _ => world.close().unwrap(),
    }
}

const PROGRAM: &str = "comms_log::program_with_a_log";

/// The lines of the program's calls.
const LINES: [&str; 2] = ["tests/programs/main.rs:", "tests/programs/comms_log.rs:"];

fn file(folder: &Folder, text: &str) -> String {
    let path = folder.path().join("comms.json");
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// The first words of the rows of the only table in these lines, and the counts of calls.
fn rows(lines: &[String]) -> Vec<(String, u64)> {
    let titles: Vec<_> = (0..lines.len()).filter(|&line| lines[line] == TITLE).collect();
    assert_eq!(titles.len(), 1, "{lines:#?}");
    let cells = |line: &String| -> Vec<String> {
        line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).map(str::to_owned).collect()
    };
    let table: Vec<_> = lines[titles[0] + 1..].iter().map(cells).collect();
    assert!(table[0][0] == "operation" && table[0][3] == "count", "{lines:#?}");
    let rows = table[1..].iter().take_while(|cells| cells.len() == table[0].len());
    rows.map(|cells| (cells[0].clone(), cells[3].parse().unwrap())).collect()
}

fn usual_rows() -> Vec<(String, u64)> {
    vec![("all_reduce".to_owned(), 3), ("barrier".to_owned(), 1)]
}

#[test]
fn i5_a_world_of_one_prints_its_table_however_it_ends() {
    for backend in ["auto", "tcp"] {
        for end in ["close", "exit", "panic"] {
            let variables = [("UNISONO_COMMS_LOGGER", "on"), ("UNISONO_BACKEND", backend), ("END", end)];
            let (is_good, lines) = start(PROGRAM, &variables).end();
            assert_eq!(
                (is_good, rows(&lines)),
                (end != "panic", usual_rows()),
                "{backend}, {end}: {lines:#?}"
            );
        }
    }
}

#[test]
fn i2_what_deepspeed_reads_is_read() {
    let folder = Folder::new();
    let block = r#"{"enabled": true, "verbose": false, "prof_all": false, "debug": false,
                    "prof_ops": ["barrier"]}"#;
    let whole = format!(
        r#"{{"train_batch_size": 8, "optimizer": {{"type": "Adam", "params": {{"lr": 1e-3}}}},
            "comms_logger": {block}, "zero_optimization": {{"stage": 2}}}}"#
    );
    for text in [block, &whole] {
        let path = file(&folder, text);
        for program in
            start_ranks(PROGRAM, "block", 2, &[("UNISONO_COMMS_LOGGER", &path)]).into_iter().take(1)
        {
            let (is_good, lines) = program.end();
            assert_eq!((is_good, rows(&lines)), (true, vec![("barrier".to_owned(), 1)]), "{lines:?}");
        }
    }
    for text in [r#"{"enabled": false}"#, "{}", r#"{"comms_logger": {}}"#] {
        let path = file(&folder, text);
        let done = start(PROGRAM, &[("UNISONO_COMMS_LOGGER", &path)]).end();
        assert_eq!(done, (true, Vec::new()), "{text}");
    }
}

#[test]
fn i2_a_file_that_is_no_configuration_is_an_error_of_every_rank() {
    let folder = Folder::new();
    let path = folder.path().join("comms.json").to_str().unwrap().to_owned();
    let refused = |path: &str, job: &str, reason: &str| {
        for program in start_ranks(PROGRAM, job, 2, &[("UNISONO_COMMS_LOGGER", path)]) {
            let (is_good, lines) = program.end();
            assert!(!is_good && lines.len() == 1, "{job}: {lines:?}");
            let start = format!("UNISONO_COMMS_LOGGER={path}: ");
            assert!(lines[0].starts_with(&start) && lines[0].contains(reason), "{job}: {lines:?}");
        }
    };
    for (text, reason) in [
        (r#"{"enabled": true, "prof_opps": []}"#, "unknown field `prof_opps`"),
        (r#"{"enabled": "yes"}"#, "invalid type: string \"yes\", expected a boolean"),
        (r#"{"enabled": true, "prof_ops": "all_reduce"}"#, "expected a sequence"),
        (r#"{"enabled": true"#, "EOF"),
        (r#"{"comms_logger": null}"#, "null"),
        ("", "EOF"),
        ("[]", "a list"),
        ("[true, true]", "a list"),
        ("7", "7"),
    ] {
        file(&folder, text);
        refused(&path, text, reason);
    }
    std::fs::write(&path, [0xff, 0xfe, b'{']).unwrap();
    refused(&path, "no text", "UTF-8");
    refused(folder.path().to_str().unwrap(), "a folder", "not a regular file");
    refused(&format!("{path}/or/not"), "no folder", "on, off or a file is needed");
    refused("ON", "upper case", "on, off or a file is needed");
}

#[test]
fn i7_verbose_lines_name_the_callers_line_on_rank_0() {
    let folder = Folder::new();
    let path = file(&folder, r#"{"enabled": true, "verbose": true}"#);
    for (level, shows) in [("", true), ("warn", true), ("info", true), ("off", false)] {
        let variables = [("UNISONO_COMMS_LOGGER", path.as_str()), ("UNISONO_LOG", level)];
        // Empty counts as not set.
        let ranks = start_ranks(PROGRAM, level, 2, &variables);
        for (rank, program) in ranks.into_iter().enumerate() {
            let (is_good, lines) = program.end();
            assert!(is_good, "{lines:?}");
            let told: Vec<_> = lines.iter().filter(|line| line.contains(" ms, ")).collect();
            assert_eq!(
                told.len(),
                if rank == 0 && shows { 4 } else { 0 },
                "{level}, rank {rank}: {lines:#?}"
            );
            for (told, line) in told.iter().zip([LINES[0], LINES[1], LINES[1], LINES[1]]) {
                let is_right = told.starts_with("unisono: rank 0: ") && told.contains(line);
                assert!(is_right && told.contains("busbw"), "{told}");
                let figure = |before: &str| told.split(before).nth(1).unwrap().split(' ').next().unwrap();
                if told.contains("all_reduce") {
                    let ms = told.split(" ms, ").next().unwrap().rsplit(' ').next().unwrap();
                    let [ms, algbw] = [ms, figure("algbw ")].map(|figure| figure.parse::<f64>().unwrap());
                    // 4,000 bytes. Both figures are rounded to the third place, and a call on a busy machine is long.
                    let (least, most) = (0.004 / (ms + 0.001), 0.004 / (ms - 0.001));
                    let is_right = (least - 0.001..most + 0.001).contains(&algbw);
                    assert!(told.contains("3.91 KiB") && is_right, "{told}");
                    assert_eq!(figure("algbw "), figure("busbw "), "of two ranks");
                }
            }
        }
    }
}

#[test]
fn i7_debug_tells_lines_apart() {
    let folder = Folder::new();
    let path = file(&folder, r#"{"enabled": true, "debug": true}"#);
    let (is_good, lines) = start(PROGRAM, &[("UNISONO_COMMS_LOGGER", &path)]).end();
    let rows = rows(&lines);
    assert!(is_good && rows.len() == 3, "{lines:#?}");
    for (name, line, count) in
        [("all_reduce | [", LINES[0], 1), ("all_reduce | [", LINES[1], 2), ("barrier | [", LINES[1], 1)]
    {
        let is_row = |row: &&(String, u64)| row.0.starts_with(name) && row.0.contains(line);
        assert_eq!(rows.iter().find(is_row).map(|row| row.1), Some(count), "{lines:#?}");
    }
}

#[test]
fn i9_an_operation_that_is_unknown_is_a_line() {
    let folder = Folder::new();
    let path =
        file(&folder, r#"{"enabled": true, "prof_all": false, "prof_ops": ["all_redduce", "barrier"]}"#);
    let (is_good, lines) = start(PROGRAM, &[("UNISONO_COMMS_LOGGER", &path)]).end();
    assert_eq!((is_good, rows(&lines)), (true, vec![("barrier".to_owned(), 1)]), "{lines:?}");
    let told = lines.iter().filter(|line| line.contains("no operation is called \"all_redduce\"")).count();
    assert_eq!(told, 1, "{lines:?}");
}

/// Two worlds, of which the second makes one call more.
pub(crate) fn program_with_two_logs() {
    let first = join_and_add();
    let another = Config::from_environment().unwrap().with_second_init(SecondInit::Another);
    let second = unisono::init_with(&another).unwrap();
    second.barrier().unwrap();
    second.barrier().unwrap();
    let counts = [&first, &second].map(|world| {
        let log = world.comms_logger();
        (log.count("all_reduce"), log.count("barrier"))
    });
    assert_eq!(counts, [(1, 0), (0, 2)]);
    first.comms_logger().reset();
    assert!(second.comms_logger().has_calls());
    add(&first);
    second.close().unwrap();
    drop(second);
    std::process::exit(0);
}

#[test]
fn two_worlds_of_a_process_have_logs_of_their_own() {
    let variables = [("UNISONO_COMMS_LOGGER", "on")];
    let mut jobs = vec![vec![start("comms_log::program_with_two_logs", &variables)]];
    jobs.push(start_ranks("comms_log::program_with_two_logs", "two logs", 2, &variables));
    for job in jobs {
        for (rank, program) in job.into_iter().enumerate() {
            let (is_good, lines) = program.end();
            let tables = lines.iter().filter(|line| *line == TITLE).count();
            assert_eq!((is_good, tables), (true, if rank == 0 { 2 } else { 0 }), "rank {rank}: {lines:#?}");
            let starts = |word: &str| lines.iter().filter(|line| line.starts_with(word)).count();
            let expected = if rank == 0 { [1, 1] } else { [0, 0] };
            assert_eq!([starts("all_reduce "), starts("barrier ")], expected, "{lines:#?}");
        }
    }
}

#[test]
fn i5_a_table_that_nobody_reads_harms_nobody() {
    let folder = Folder::new();
    let path = file(&folder, r#"{"enabled": true, "verbose": true}"#);
    for end in ["close", "exit"] {
        let variables = [("UNISONO_COMMS_LOGGER", path.as_str()), ("END", end)];
        for line in ["exec \"$0\" \"$@\" 2>&-", "exec \"$0\" \"$@\" 2>/dev/full"] {
            assert_eq!(
                start_by(&["sh", "-c", line], PROGRAM, &variables).end(),
                (true, Vec::new()),
                "{line}"
            );
        }
        let status = folder.path().join("status");
        let line = format!("(\"$0\" \"$@\" 2>&1 >/dev/null; echo $? >{}) | head -1 >&2", status.display());
        let (is_good, lines) = start_by(&["sh", "-c", &line], PROGRAM, &variables).end();
        assert!(is_good && lines.len() == 1, "{lines:?}");
        assert_eq!(read(&status), "0\n", "{end}");
    }
}

/// Calls with and without times in the flight record, which is looked at once and again.
pub(crate) fn program_with_times() {
    let unix_ns = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    let before = unix_ns();
    let world = join_and_add();
    let (log, mut values) = (world.comms_logger(), vec![0u64; 64]);
    log.start();
    for _ in 0..200 {
        world.broadcast(&mut values, 0).unwrap();
        world.barrier().unwrap();
    }
    world.send_async(vec![1u8; 3], 0, 7).wait().unwrap();
    if world.rank() == 0 {
        for _ in 0..world.size() {
            world.recv(&mut [0u8; 3], Peer::Any, 7).unwrap();
        }
    }
    log.stop();
    add(&world);
    let record = world.flight_record().unwrap();
    let after = unix_ns();
    let (mut with_times, mut last) = (0, before);
    for entry in &record.entries {
        let times = [entry.time_created_ns, entry.time_discovered_completed_ns];
        if entry.profiling_name.ends_with("all_reduce") {
            assert_eq!((times, entry.time_discovered_started_ns), ([None; 2], None), "{entry:?}");
            continue;
        }
        let [created, completed] = times.map(|time| time.unwrap());
        let started = entry.time_discovered_started_ns.unwrap_or(created);
        assert!(created <= started && started <= completed, "{entry:?}");
        assert!(before <= created && completed <= after, "{before}, {after}: {entry:?}");
        if !entry.is_p2p {
            assert!(last <= created, "{last}: {entry:?}");
            last = completed;
        }
        with_times += 1;
    }
    assert!(with_times > 400, "{record:?}");
    assert_eq!(record.entries.len(), with_times + 2);
    world.close().unwrap();
}

#[test]
fn flight_records_have_times_while_the_log_is_on() {
    let variables = [("UNISONO_BACKEND", "tcp")];
    for program in start_ranks("comms_log::program_with_times", "times", 3, &variables) {
        assert_eq!(program.end(), (true, Vec::new()));
    }
}

/// Calls of several threads and communicators, while another thread switches the log.
pub(crate) fn program_with_a_switched_log() {
    const CALLS: u64 = 2000;
    let world = join_and_add();
    let log = world.comms_logger();
    let comms: Vec<_> = (0..3).map(|_| world.duplicate().unwrap()).collect();
    let (names, is_over) = (["barrier", "all_reduce"], AtomicBool::new(false));
    let call = |calls: u64| {
        std::thread::scope(|threads| {
            for comm in &comms {
                threads.spawn(move || {
                    for _ in 0..calls {
                        comm.barrier().unwrap();
                        add(&**comm);
                    }
                });
            }
        });
    };
    let most = comms.len() as u64 * CALLS;
    std::thread::scope(|threads| {
        threads.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                log.start();
                assert!(names.iter().all(|name| log.count(name) <= most));
                log.stop_operations(&["barrier"]);
                log.start_operations(&["all_reduce", "my loss"]);
                assert!(log.report().to_string().starts_with("operation"));
                log.stop();
                log.configure(CommsLoggerConfig { debug: true, ..CommsLoggerConfig::enabled() });
                log.reset();
                log.start_counting();
            }
        });
        call(CALLS);
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(names.iter().all(|name| log.count(name) <= most));
    log.configure(CommsLoggerConfig::enabled());
    log.reset();
    call(10);
    assert_eq!(names.map(|name| log.count(name)), [30; 2]);
    world.close().unwrap();
}

#[test]
fn i8_a_log_that_is_switched_while_threads_call_counts_no_call_twice() {
    for program in start_ranks("comms_log::program_with_a_switched_log", "switched", 2, &[]) {
        let (is_good, lines) = program.end();
        let is_told = |line: &String| line.contains("no operation is called \"my loss\"");
        assert!(is_good && lines.iter().all(is_told), "{lines:?}");
    }
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}
