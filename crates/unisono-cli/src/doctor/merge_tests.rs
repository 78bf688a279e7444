//! The result of a merge, case by case.

use serde_json::{Value, json};

use super::*;

const TRAIN: &str = "train.rs";
const WRITTEN_MS: u64 = 1_000_000;

/// A call as a record has it.
fn call(number: u64, call: &str, line: u32) -> Value {
    let name = call.split('(').next().unwrap_or_default();
    json!({
        "record_id": number, "pg_id": 0, "process_group": ["world", ""], "collective_seq_id": number,
        "p2p_seq_id": 0, "op_id": number, "profiling_name": format!("unisono:{name}"), "time_created_ns": null,
        "input_sizes": [], "input_dtypes": [], "output_sizes": [], "output_dtypes": [], "state": "completed",
        "time_discovered_started_ns": null, "time_discovered_completed_ns": null, "retired": true,
        "timeout_ms": null, "is_p2p": false, "call": call, "compared": call,
        "frames": [{"name": null, "filename": TRAIN, "line": line}],
    })
}

/// The record of a rank among `ranks` that has finished all but `open` of its calls.
fn record(rank: u32, ranks: u32, entries: &[Value], open: usize) -> FlightRecord {
    let last =
        |count: usize| count.checked_sub(1).map_or(json!(-1), |at| entries[at]["collective_seq_id"].clone());
    let record = json!({
        "version": "2.10", "comm_lib_version": "unisono", "job": "one", "rank": rank, "entries": entries,
        "host": format!("node{}", rank / 4), "pid": 100 + rank, "written_ms": WRITTEN_MS,
        "pg_config": {"world": {
            "name": "world", "desc": "", "ranks": format!("{:?}", (0..ranks).collect::<Vec<_>>()), "pg_id": 0,
        }},
        "pg_status": {"0": {
            "last_enqueued_collective": last(entries.len()), "last_started_collective": last(entries.len()),
            "last_completed_collective": last(entries.len() - open),
            "awaited_rank": null, "awaited_since_ms": null, "revoked_by": null, "first_cause": null,
        }},
    });
    serde_json::from_value(record).unwrap()
}

fn sum(number: u64) -> Value {
    call(number, "all_reduce(1000 x f32, sum)", 42)
}

fn broadcast(number: u64) -> Value {
    call(number, "broadcast(8 x f32, root 0, in place)", 40)
}

/// The result for the only communicator.
fn judge(records: &[FlightRecord]) -> Verdict {
    let mut verdicts = merge(records).unwrap();
    assert_eq!(verdicts.len(), 1);
    verdicts.remove(0)
}

/// A receive that waits.
fn receive(number: u64) -> Value {
    let mut receive = call(number, "recv(4 x f32, from rank 1, tag 7)", 55);
    receive["is_p2p"] = json!(true);
    receive["state"] = json!("started");
    receive
}

#[test]
fn messages_that_have_not_ended_are_named() {
    let mut records = [0, 1].map(|rank| record(rank, 2, &[sum(0)], 0));
    records[0].entries.extend([receive(0), receive(1)].map(|one| serde_json::from_value(one).unwrap()));
    let mut done: Entry = serde_json::from_value(receive(0)).unwrap();
    done.state = CallState::Completed;
    records[1].entries.push(done);
    let verdict = judge(&records);
    assert!(!verdict.is_well);
    let expected = "rank 0 has not ended recv(4 x f32, from rank 1, tag 7) at train.rs:55 and 1 more";
    assert!(verdict.text.ends_with(expected), "{}", verdict.text);
}

fn fail(record: &mut FlightRecord, by: u32, text: &str) {
    for status in record.pg_status.values_mut() {
        (status.revoked_by, status.first_cause) = (Some(by), Some(text.to_owned()));
    }
}

#[test]
fn who_has_not_called_is_named_with_its_last_call() {
    let ahead = |rank| record(rank, 5, &[broadcast(16), sum(17)], 1);
    let verdict = judge(&[ahead(0), ahead(1), record(2, 5, &[broadcast(16)], 0), ahead(3)]);
    assert_eq!(
        verdict.text,
        "world: ranks 0,1,3 are in call 17 all_reduce(1000 x f32, sum) at train.rs:42; rank 2 has not called it, \
         its last is call 16 broadcast(8 x f32, root 0, in place) at train.rs:40; rank 4 left no record"
    );
    assert!(!verdict.is_well && verdict.mismatch.is_none());
    let at: Vec<Standing> = verdict.ranks.iter().map(|one| one.standing).collect();
    let (inside, finished) = (Standing::Inside(17), Standing::Finished(16));
    assert_eq!(at, [inside, inside, finished, inside, Standing::NoRecord]);
}

#[test]
fn when_nothing_is_wrong_that_is_said() {
    let all = |open| judge(&[0, 1, 2].map(|rank| record(rank, 3, &[sum(4)], open)));
    let text = "all_reduce(1000 x f32, sum) at train.rs:42";
    assert_eq!(all(0).text, format!("world: nothing is wrong; all 3 ranks have finished call 4 {text}"));
    assert_eq!(all(1).text, format!("world: nothing is wrong; all 3 ranks are in call 4 {text}"));
    let none = judge(&[0, 1].map(|rank| record(rank, 2, &[], 0)));
    assert_eq!(none.text, "world: nothing is wrong; all 2 ranks have called no collective");
    assert!(none.is_well);
}

#[test]
fn a_failure_is_told_by_who_saw_it() {
    let mut records = [0, 1, 2].map(|rank| record(rank, 3, &[sum(4)], 0));
    records.iter_mut().for_each(|one| fail(one, 1, "heard that the disk is full"));
    fail(&mut records[1], 1, "disk\nfull");
    let verdict = judge(&records);
    assert!(
        !verdict.is_well && verdict.text.ends_with("at train.rs:42; rank 1 saw: disk full"),
        "{}",
        verdict.text
    );
    fail(&mut records[2], 2, "evicted");
    let verdict = judge(&records);
    assert!(verdict.text.ends_with("; rank 1 saw: disk full; rank 2 saw: evicted"), "{}", verdict.text);
    // The rank that saw it has left no record.
    let verdict = judge(&records[2..]);
    assert_eq!(verdict.causes, [Cause { by: 2, text: "evicted".to_owned() }]);
    let verdict = judge(&records[..1]);
    assert_eq!(verdict.causes, [Cause { by: 1, text: "heard that the disk is full".to_owned() }]);
}

#[test]
fn calls_that_differ_are_both_shown() {
    let wide = call(17, "all_reduce(1000 x f64, sum)", 50);
    let records = [record(0, 3, &[sum(17)], 1), record(1, 3, &[wide], 1), record(2, 3, &[sum(17)], 1)];
    let verdict = judge(&records);
    assert_eq!(
        verdict.text,
        "world: all 3 ranks are in call 17; call 17 is not the same everywhere: ranks 0,2 call \
         all_reduce(1000 x f32, sum) at train.rs:42, rank 1 calls all_reduce(1000 x f64, sum) at train.rs:50"
    );
    assert!(verdict.mismatch == Some(17) && !verdict.is_well);
}

#[test]
fn an_older_difference_is_found_too() {
    let other = [call(15, "barrier(0 x u8)", 9), sum(16)];
    let records = [record(0, 2, &[sum(15), sum(16)], 1), record(1, 2, &other, 1)];
    let verdict = judge(&records);
    assert_eq!(verdict.mismatch, Some(15));
    assert!(verdict.text.contains("all 2 ranks are in call 16 all_reduce"), "{}", verdict.text);
    assert!(verdict.text.contains("rank 1 calls barrier(0 x u8) at train.rs:9"), "{}", verdict.text);
}

#[test]
fn the_same_call_from_other_lines_names_the_lines() {
    let elsewhere = call(3, "all_reduce(1000 x f32, sum)", 77);
    let records = [record(0, 2, &[sum(3)], 1), record(1, 2, &[elsewhere], 1)];
    let text = judge(&records).text;
    assert!(
        text.ends_with("(1000 x f32, sum) at train.rs:42 (rank 0) and at train.rs:77 (rank 1)"),
        "{text}"
    );
}

/// The root of a broadcast may be ahead, while others are still inside an earlier call.
#[test]
fn ranks_in_different_calls_are_told_apart() {
    let records = [
        record(0, 5, &[broadcast(0), sum(1)], 1),
        record(1, 5, &[broadcast(0)], 1),
        record(2, 5, &[broadcast(0), sum(1)], 0),
        record(3, 5, &[], 0),
        record(4, 5, &[broadcast(0)], 0),
    ];
    assert_eq!(
        judge(&records).text,
        "world: rank 0 is in call 1 all_reduce(1000 x f32, sum) at train.rs:42; rank 2 has finished it; rank 1 is in \
         call 0 broadcast(8 x f32, root 0, in place) at train.rs:40; rank 4 has not called it, its last is call 0 \
         broadcast(8 x f32, root 0, in place) at train.rs:40; rank 3 has called no collective"
    );
}

#[test]
fn communicators_are_judged_apart_and_the_world_first() {
    let mut records = [0, 1, 2].map(|rank| record(rank, 3, &[sum(4)], 0));
    for one in &mut records[..1] {
        let config =
            GroupConfig { name: "0f-0".into(), desc: "2 ranks, epoch 0".into(), ranks: vec![0, 2], pg_id: 1 };
        one.pg_config.insert(config.name.clone(), config);
        let status = GroupStatus {
            last_enqueued_collective: -1,
            last_completed_collective: -1,
            ..one.pg_status[&0].clone()
        };
        one.pg_status.insert(1, status);
    }
    let verdicts = merge(&records).unwrap();
    assert_eq!(verdicts.iter().map(|one| one.is_well).collect::<Vec<_>>(), [true, false]);
    assert!(verdicts[0].text.starts_with("world: nothing is wrong"), "{}", verdicts[0].text);
    assert_eq!(
        verdicts[1].text,
        "group 0f-0 (2 ranks, epoch 0: ranks 0,2): rank 0 has called no collective; rank 2 has closed it, or not \
         created it yet"
    );
}

#[test]
fn records_that_contradict_each_other_are_refused() {
    let records = [record(0, 2, &[], 0), record(1, 3, &[], 0)];
    assert!(
        merge(&records).unwrap_err().contains("rank 1: it differs from the others in the members of world")
    );
    let mut records = [record(0, 1, &[], 0)];
    records[0].pg_status.clear();
    assert!(merge(&records).unwrap_err().contains("rank 0: there is no status of world"));
}

#[test]
fn the_culprit_is_named_in_one_sentence() {
    let ahead = |rank| record(rank, 4, &[broadcast(16), sum(17)], 1);
    let late = record(2, 4, &[broadcast(16)], 0);
    let culprit_of = |records: &[FlightRecord]| judge(records).culprit.unwrap();
    let all = "call 17 all_reduce(1000 x f32, sum) at train.rs:42";
    let last = "its last was call 16 broadcast(8 x f32, root 0, in place) at train.rs:40";
    let behind = format!("rank 2 has not come to {all} of the world, as ranks 0,1,3 did: {last}");
    assert_eq!(culprit_of(&[ahead(0), ahead(1), late.clone(), ahead(3)]), behind);
    let mut panicked = late.clone();
    fail(&mut panicked, 2, &format!("a bug\n{}", "x".repeat(1000)));
    let told = culprit_of(&[ahead(0), ahead(1), panicked, ahead(3)]);
    assert!(told.starts_with(&format!("{behind}, and rank 2 saw: a bug xxx")) && told.len() < 500, "{told}");
    let dead = format!(
        "rank 3 left no record: its process was killed, stands still or has written elsewhere, while ranks 0,1 came \
         to {all}"
    );
    assert_eq!(culprit_of(&[ahead(0), ahead(1), late]), dead);
    let other = record(1, 4, &[broadcast(16), call(17, "barrier(0 x u8)", 9)], 1);
    assert_eq!(
        culprit_of(&[ahead(0), other, ahead(2), ahead(3)]),
        "rank 1 calls barrier(0 x u8) at train.rs:9 as call 17 of the world, where ranks 0,2,3 called \
         all_reduce(1000 x f32, sum)"
    );
    let mut even = [0, 1].map(|rank| record(rank, 2, &[sum(4)], 0));
    assert_eq!(judge(&even).culprit, None, "nothing is wrong");
    even.iter_mut().for_each(|one| fail(one, 1, "disk full"));
    assert_eq!(culprit_of(&even), "by rank 1, which saw the first error: disk full");
    let mut waiting = [0, 1].map(|rank| record(rank, 2, &[], 0));
    waiting[0].entries.push(serde_json::from_value(receive(0)).unwrap());
    waiting[0].pg_status.get_mut(&0).unwrap().awaited_rank = Some(1);
    assert_eq!(
        culprit_of(&waiting),
        "rank 1 is waited for by rank 0 in recv(4 x f32, from rank 1, tag 7) at train.rs:55 of the world"
    );
}

/// A missing record and a difference are named before a rank that is late in another communicator.
#[test]
fn the_strongest_clue_of_all_communicators_counts() {
    let verdict = |clue, text: &str| Verdict {
        clue: Some(clue),
        culprit: Some(text.to_owned()),
        ..judge(&[record(0, 1, &[], 0)])
    };
    let verdicts =
        [verdict(Clue::Behind, "late"), verdict(Clue::Mismatch, "other"), verdict(Clue::Cause, "saw")];
    assert_eq!(
        (culprit(&verdicts), culprit(&verdicts[2..]), culprit(&[])),
        (Some("other"), Some("saw"), None)
    );
}

#[test]
fn many_ranks_stay_short() {
    assert_eq!(ranks_text(&[2]), "rank 2");
    assert_eq!(ranks_text(&[0, 1, 3]), "ranks 0,1,3");
    assert_eq!(ranks_text(&[0, 1, 2, 3, 9, 11, 12, 13]), "ranks 0-3,9,11-13");
    assert_eq!(ranks_text(&[5, 4, u32::MAX, 0]), "ranks 5,4,4294967295,0");
}

/// As the error of a deadline says it.
#[test]
fn ranks_that_wait_for_each_other_and_messages_without_a_receive_are_told() {
    let mut records: Vec<FlightRecord> = (0..3).map(|rank| record(rank, 3, &[], 0)).collect();
    let mut set = |rank: usize, awaited: Option<u32>, unread: Option<&str>| {
        let status = records[rank].pg_status.get_mut(&0).unwrap();
        (status.awaited_rank, status.unread) = (awaited, unread.map(str::to_owned));
    };
    set(0, Some(2), None);
    set(1, Some(0), None);
    set(2, Some(1), Some("1 message of tag 7 from rank 0 without a receive"));
    let text = judge(&records).text;
    assert!(text.contains("; ranks 0 -> 2 -> 1 -> 0 wait for each other;"), "{text}");
    assert!(text.ends_with("; on rank 2 lie 1 message of tag 7 from rank 0 without a receive"), "{text}");
    let status = records[1].pg_status.get_mut(&0).unwrap();
    (status.awaited_rank, status.left_ranks) = (None, vec![2]);
    let text = judge(&records).text;
    assert!(text.ends_with("; rank 2 has left it in good order"), "{text}");
    assert!(!judge(&records).text.contains("wait for each other"));
}

#[test]
fn a_circle_through_several_communicators_is_drawn_in_each_of_them() {
    // Rank 0 waits for 1 in the world, 1 for 2 in the group a, and 2 for 0 in the group b.
    let waits = [("world", [0, 1]), ("a", [1, 2]), ("b", [2, 0])];
    let records = |waits: &[(&str, [u32; 2])]| {
        let mut records = [0, 1, 2].map(|rank| record(rank, 3, &[], 0));
        for record in &mut records {
            let (status, config) = (record.pg_status[&0].clone(), record.pg_config["world"].clone());
            for (name, pg_id) in [("world", 0), ("a", 1), ("b", 2)] {
                let config = GroupConfig { name: name.to_owned(), pg_id, ..config.clone() };
                let awaited = waits.iter().find(|(group, [from, _])| *group == name && *from == record.rank);
                let awaited_rank = awaited.map(|(_, [_, to])| *to);
                record.pg_config.insert(name.to_owned(), config);
                record.pg_status.insert(pg_id, GroupStatus { awaited_rank, ..status.clone() });
            }
        }
        merge(&records).unwrap().into_iter().map(|verdict| verdict.text).collect::<Vec<_>>()
    };
    let drawn = ["0 -> 1 -> 2 -> 0", "1 -> 2 -> 0 -> 1", "2 -> 0 -> 1 -> 2"];
    for (text, circle) in records(&waits).iter().zip(drawn) {
        assert!(
            text.contains(&format!("; ranks {circle} wait for each other, in a and b and world")),
            "{text}"
        );
    }
    assert!(records(&waits[..2]).iter().all(|text| !text.contains("each other")));
}
