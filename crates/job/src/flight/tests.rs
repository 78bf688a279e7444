//! The content of records, and when they are written.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use unisono_backend::mismatch;
use unisono_communicator::{DType, GroupRank, JobRank, Peer, ShortText, Site, UserOp};
use unisono_control::handshake::JobId;

use super::recorder::REVOKED_KEPT;
use super::*;
use crate::secret::tests::TestDirectory;

const WORLD: CommunicatorKey = CommunicatorKey { id: 0, epoch: 0 };
/// This rank, in the group.
const OWN: GroupRank = GroupRank::new(1);

const OTHER: CommunicatorKey = CommunicatorKey { id: 0xabc, epoch: 2 };

/// Far longer than the writing of a file takes, so that only a hang reaches it.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// The middle one of the ranks 2, 4 and 6 of a job.
fn group() -> Group {
    Group::new(OWN, [2, 4, 6].map(JobRank::new).into(), [0; 3].into(), 2)
}

fn sum(count: u64) -> Descriptor {
    Descriptor { op: Some(ReduceOp::Sum), ..Descriptor::new(Collective::AllReduce, DType::F32, count) }
}

fn enter(board: &Board, descriptor: &Descriptor) -> u64 {
    board.calls().enter(descriptor, None, None, Site::caller(), None)
}

/// A board that has finished a call, and is in another one.
fn board() -> Board {
    let board = Board::new(OWN, 3);
    let first = enter(&board, &sum(10));
    board.progress().leave(first);
    let gather = Descriptor { root: Some(1), ..Descriptor::new(Collective::Gather, DType::U8, 5) };
    enter(&board, &gather);
    board.progress().await_rank(Some(GroupRank::new(2)));
    board
}

fn record_of(board: &Board) -> FlightRecord {
    let mut record = FlightRecord::new("job".to_owned(), 4);
    record.add(7, (OTHER, &group()), board, UnixClock::now());
    record
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn the_names_are_pytorchs() {
    let board = board();
    board.first_cause().revoke(JobRank::new(6), Arc::new(Error::closed()));
    let record = record_of(&board);
    let mut value = serde_json::to_value(&record).unwrap();
    assert_eq!(value["version"], "2.10");
    let name = "0000000000000abc-2";
    let config = json!({"name": name, "desc": "3 ranks, epoch 2", "ranks": "[2, 4, 6]", "pg_id": 7});
    assert_eq!(value["pg_config"][name], config);
    let status = json!({
        "last_enqueued_collective": 1, "last_started_collective": 1, "last_completed_collective": 0,
        "awaited_rank": 6, "revoked_by": 6, "first_cause": "the communicator is closed",
    });
    assert_eq!(serde_json::from_value::<FlightRecord>(value.clone()).unwrap(), record);
    let since = value["pg_status"]["7"].as_object_mut().unwrap().remove("awaited_since_ms").unwrap();
    assert_eq!(value["pg_status"]["7"], status);
    assert!(since.as_u64() > Some(0) && since.as_u64() <= value["written_ms"].as_u64(), "{since}");
    assert_eq!(value["pid"], std::process::id());
    assert!(!value["host"].as_str().unwrap().is_empty());
    let (done, running) = (&value["entries"][0], &value["entries"][1]);
    #[rustfmt::skip]
    let names = [
        "call", "collective_seq_id", "compared", "frames", "input_dtypes", "input_sizes", "is_p2p", "op_id",
        "output_dtypes", "output_sizes", "p2p_seq_id", "pg_id", "process_group", "profiling_name", "record_id",
        "retired", "state", "time_created_ns", "time_discovered_completed_ns", "time_discovered_started_ns",
        "timeout_ms",
    ];
    assert_eq!(keys(done), names);
    assert_eq!((&done["state"], &done["retired"]), (&json!("completed"), &json!(true)));
    assert_eq!((&running["state"], &running["retired"]), (&json!("started"), &json!(false)));
    assert_eq!(running["profiling_name"], "unisono:gather");
    assert_eq!(running["process_group"], json!([name, "3 ranks, epoch 2"]));
    assert_eq!((&running["input_sizes"], &running["output_sizes"]), (&json!([[5]]), &json!([[15]])));
    assert_eq!((&running["input_dtypes"], &running["collective_seq_id"]), (&json!(["u8"]), &json!(1)));
    let frame = &running["frames"][0];
    assert!(frame["filename"].as_str().unwrap().ends_with("tests.rs") && frame["name"].is_null(), "{frame}");
}

#[test]
fn sends_and_receives_are_behind_the_collectives() {
    let board = board();
    let message =
        |operation, peer| Descriptor { peer: Some(peer), ..Descriptor::new(operation, DType::F32, 6) };
    let send = board.messages().enter(&message(Operation::Send, Peer::Rank(2)), Site::caller());
    board.messages().enter(&message(Operation::Recv, Peer::Rank(0)), Site::caller());
    board.messages().enter(&message(Operation::Recv, Peer::Any), Site::caller());
    board.messages().leave(send);
    let record = record_of(&board);
    assert_eq!(
        record.entries.iter().map(|one| one.is_p2p).collect::<Vec<_>>(),
        [false, false, true, true, true]
    );
    let messages: Vec<_> = record.entries[2..]
        .iter()
        .map(|one| (one.p2p_seq_id, one.profiling_name.as_str(), one.state, one.input_sizes.len()))
        .collect();
    let expected = [
        (0, "unisono:send 1->2", CallState::Completed, 1),
        (1, "unisono:recv 1<-0", CallState::Started, 0),
        (2, "unisono:recv 1<-?", CallState::Started, 0),
    ];
    assert_eq!(messages, expected);
}

#[test]
fn a_board_without_calls_and_one_with_too_many() {
    let board = Board::new(OWN, 3);
    let status = record_of(&board).pg_status.remove(&7).unwrap();
    assert_eq!((status.last_enqueued_collective, status.last_completed_collective), (-1, -1));
    for count in 0..1500 {
        let number = enter(&board, &sum(count));
        board.progress().leave(number);
    }
    let record = record_of(&board);
    let numbers: Vec<u64> = record.entries.iter().map(|entry| entry.collective_seq_id).collect();
    assert_eq!(numbers, (1500 - CALLS_REMEMBERED as u64..1500).collect::<Vec<_>>());
    assert_eq!(record.pg_status[&7].last_completed_collective, 1499);
}

/// Two calls are told apart exactly when their headers are.
#[test]
fn what_is_compared_is_what_the_headers_compare() {
    let (base, uneven) =
        (sum(10), Descriptor { uneven: true, ..Descriptor::new(Collective::AllGather, DType::F32, 3) });
    let rooted = Descriptor {
        root: Some(0),
        op: Some(ReduceOp::Sum),
        ..Descriptor::new(Collective::Reduce, DType::F32, 9)
    };
    let user = |name| Some(ReduceOp::User(UserOp::commutative(name)));
    let calls = [
        base,
        sum(11),
        Descriptor { dtype: DType::F64, ..base },
        Descriptor { op: Some(ReduceOp::Max), ..base },
        Descriptor { op: Some(ReduceOp::PreMulSum(0.5)), ..base },
        Descriptor { op: Some(ReduceOp::PreMulSum(0.25)), ..base },
        Descriptor { op: user("mine"), ..base },
        Descriptor { place: Place::InPlace, ..base },
        Descriptor { label: Some(ShortText::new("loss")), ..base },
        Descriptor { label: Some(ShortText::new("norm")), ..base },
        uneven,
        Descriptor { count: 4, ..uneven },
        Descriptor { uneven: false, ..uneven },
        rooted,
        Descriptor { place: Place::InPlace, ..rooted },
        Descriptor { root: Some(1), ..rooted },
        Descriptor::new(Collective::Barrier, DType::U8, 0),
    ];
    let info = |descriptor| CallInfo::new(0, descriptor);
    for ours in calls {
        for theirs in calls {
            let is_mismatch =
                mismatch((JobRank::new(0), info(ours)), (JobRank::new(1), info(theirs))).is_some();
            assert_eq!(compared(&ours) != compared(&theirs), is_mismatch, "{ours} / {theirs}");
        }
    }
}

#[test]
fn a_file_is_replaced_at_once_and_a_failure_is_said() {
    let directory = TestDirectory::new();
    let folder = directory.0.join("new");
    let board = board();
    let path = record_of(&board).write(&folder).unwrap();
    board.progress().leave(1);
    let record = record_of(&board);
    assert_eq!(record.write(&folder).unwrap(), path);
    assert_eq!(path, folder.join("rank-4.json"));
    assert_eq!(serde_json::from_slice::<FlightRecord>(&fs::read(&path).unwrap()).unwrap(), record);
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
    let error = record.write(&path).unwrap_err().to_string();
    assert!(error.starts_with("write the flight record ") && error.contains("rank-4.json"), "{error}");
}

fn wait_for(path: &Path, fits: impl Fn(&FlightRecord) -> bool) {
    let deadline = Instant::now() + WAIT_MAX;
    loop {
        let read = fs::read(path).ok().map(|bytes| serde_json::from_slice::<FlightRecord>(&bytes).unwrap());
        if read.is_some_and(|record| fits(&record)) {
            return;
        }
        assert!(Instant::now() < deadline, "waited in vain for {}", path.display());
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_record_is_written_for_every_cause_and_nothing_before() {
    let directory = TestDirectory::new();
    let path = directory.0.join("rank-4.json");
    let recorder = Recorder::start(4, JobId([1; 16]), Some(directory.0.clone())).unwrap();
    let (world, other) = (Arc::new(board()), Arc::new(board()));
    recorder.register(WORLD, group(), &world);
    recorder.register(OTHER, group(), &other);
    let cause = |record: &FlightRecord, id: u32| {
        record.pg_status.get(&id).and_then(|status| status.first_cause.clone())
    };
    assert!(!path.exists());
    other.first_cause().revoke(JobRank::new(2), Arc::new(Error::closed()));
    // Its user has dropped it, but the record keeps it.
    drop(other);
    wait_for(&path, |record| cause(record, 0).is_none() && cause(record, 1).is_some());
    world.first_cause().revoke(JobRank::new(2), Arc::new(Error::closed()));
    wait_for(&path, |record| cause(record, 0).is_some() && cause(record, 1).is_some());
    world.first_cause().evict(JobRank::new(2), "silent".to_owned());
    wait_for(&path, |record| {
        let status = &record.pg_status[&0];
        status.revoked_by == Some(4) && cause(record, 0).is_some_and(|text| text.contains("taken for dead"))
    });
}

/// Every other rank may say that this one is evicted, and the record has it already.
#[test]
fn a_cause_is_written_once() {
    let directory = TestDirectory::new();
    let path = directory.0.join("rank-4.json");
    let recorder = Recorder::start(4, JobId([1; 16]), Some(directory.0.clone())).unwrap();
    let world = Arc::new(board());
    recorder.register(WORLD, group(), &world);
    world.first_cause().evict(JobRank::new(2), "silent".to_owned());
    wait_for(&path, |record| record.pg_status[&0].revoked_by == Some(4));
    fs::remove_file(&path).unwrap();
    (0..8).for_each(|rank| world.first_cause().evict(JobRank::new(rank), "silent".to_owned()));
    // It waits until the last record is written.
    drop(recorder);
    assert!(!path.exists());
}

#[test]
fn who_ends_at_once_leaves_the_record_and_who_is_well_leaves_none() {
    let directory = TestDirectory::new();
    for (rank, fails) in [(0, true), (1, false)] {
        let recorder = Recorder::start(rank, JobId([1; 16]), Some(directory.0.clone())).unwrap();
        let board = Arc::new(board());
        recorder.register(WORLD, group(), &board);
        if fails {
            board.first_cause().revoke(JobRank::new(2), Arc::new(Error::closed()));
        }
        drop(board);
        drop(recorder);
        let path = directory.0.join(FlightRecord::file_name(rank));
        assert_eq!(path.exists(), fails);
        if fails {
            let record: FlightRecord = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
            assert_eq!((record.entries.len(), record.pg_config.len()), (2, 1));
        }
    }
}

/// A board has a ring of calls and a descriptor that wakes its engine.
#[test]
fn the_last_revoked_communicators_are_kept_and_no_others() {
    let directory = TestDirectory::new();
    let recorder = Recorder::start(4, JobId([1; 16]), Some(directory.0.clone())).unwrap();
    let (kept, all) = (REVOKED_KEPT as u64, 3 * REVOKED_KEPT as u64);
    let key = |id| CommunicatorKey { id, epoch: 0 };
    let alive = Arc::new(board());
    let weak: Vec<_> = (0..all)
        .map(|id| {
            let board = if id == 0 { alive.clone() } else { Arc::new(board()) };
            recorder.register(key(id), group(), &board);
            board.first_cause().revoke(JobRank::new(2), Arc::new(Error::closed()));
            // The second call for the same board.
            board.first_cause().evict(JobRank::new(2), "silent".to_owned());
            Arc::downgrade(&board)
        })
        .collect();
    // The thread that writes holds some for a moment.
    let deadline = Instant::now() + WAIT_MAX;
    let are_held = || weak[1..weak.len() - REVOKED_KEPT].iter().any(|board| board.strong_count() > 0);
    while are_held() {
        assert!(Instant::now() < deadline, "older boards are held");
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut names: Vec<String> = recorder.record().pg_config.into_keys().collect();
    let mut expected: Vec<String> = (all - kept..all).chain([0]).map(|id| key(id).to_string()).collect();
    names.sort_unstable();
    expected.sort_unstable();
    assert_eq!(names, expected, "the last, and the one that its user has");
    drop(recorder);
    let path = directory.0.join("rank-4.json");
    let written: FlightRecord = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    assert!(written.pg_config.contains_key(&key(all - 1).to_string()), "the last is written");
}

/// In a folder that others may write to, a link could lead the record to any file of this user.
#[test]
fn a_link_in_the_place_of_a_file_is_not_followed() {
    let directory = TestDirectory::new();
    let (folder, precious) = (directory.0.join("open"), directory.0.join("precious"));
    fs::create_dir(&folder).unwrap();
    fs::write(&precious, "precious").unwrap();
    let record = record_of(&board());
    // The names under which the record may be written at first.
    for count in 0..1000 {
        let name = format!("rank-4.{}-{count}.partial", std::process::id());
        std::os::unix::fs::symlink(&precious, folder.join(name)).unwrap();
    }
    let path = record.write(&folder).unwrap();
    assert!(fs::symlink_metadata(&path).unwrap().is_file());
    assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink(&precious, &path).unwrap();
    let error = record.write(&folder).unwrap_err().to_string();
    assert!(error.contains("rank-4.json: it is a symbolic link"), "{error}");
    assert!(fs::symlink_metadata(&path).unwrap().is_symlink(), "nothing has changed");
    assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
}

/// A record that the program asks for has the communicators that are there.
#[test]
fn a_recorder_without_a_folder_only_answers() {
    let recorder = Recorder::start(4, JobId([1; 16]), None).unwrap();
    let (world, other) = (Arc::new(board()), Arc::new(board()));
    recorder.register(WORLD, group(), &world);
    recorder.register(OTHER, group(), &other);
    drop(other);
    world.first_cause().revoke(JobRank::new(2), Arc::new(Error::closed()));
    let record = recorder.record();
    assert_eq!(record.pg_config.keys().collect::<Vec<_>>(), ["world"]);
    assert_eq!((record.rank, record.entries.len()), (4, 2));
}

/// A call that never waited began when its first byte came.
#[test]
fn the_times_of_a_record_keep_their_order_and_lie_within_the_run() {
    let unix_ns = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    let (before, monotonic) = (unix_ns(), monotonic_ns(Instant::now()));
    let clock = UnixClock::now();
    let turned = [monotonic, monotonic, monotonic + 1].map(|time| clock.unix_ns(time).unwrap());
    assert_eq!([turned[0], turned[0] + 1], [turned[1], turned[2]]);
    // Two clocks are read one after the other.
    let apart_max = Duration::from_secs(1).as_nanos() as u64;
    assert!(turned[0] + apart_max > before && turned[0] < unix_ns() + apart_max, "{turned:?}, {before}");
    assert_eq!(clock.unix_ns(0), None);
}
