//! `unisono algo`.

use serde_json::Value;

use crate::support::unisono;

fn json(arguments: &[&str]) -> Value {
    let done = unisono(arguments);
    assert!(done.status.success(), "{}", done.err);
    serde_json::from_str(&done.out).unwrap()
}

#[test]
fn every_listed_algorithm_can_be_shown_and_is_proved() {
    let list = json(&["algo", "list", "--json"]);
    let list = list.as_array().unwrap();
    assert!(list.len() >= 9, "at least one per collective");
    let proved = json(&["algo", "verify", "--all", "--ranks", "1..9", "--json"]);
    assert_eq!(proved.as_array().unwrap().len(), list.len());
    assert!(proved.as_array().unwrap().iter().all(|one| one["proved"] == true && one["ranks"][1] == 9));
    for listed in list {
        let name = format!("{}/{}", listed["collective"].as_str().unwrap(), listed["name"].as_str().unwrap());
        let shown = json(&["algo", "show", &name, "-n", "4", "--json"]);
        assert_eq!(shown[0]["schedules"].as_array().unwrap().len(), 4, "{name}");
    }
}

#[test]
fn the_list_may_be_of_one_collective() {
    let (all, some) = (json(&["algo", "list", "--json"]), json(&["algo", "list", "all_reduce", "--json"]));
    let of = |list: &Value| {
        let all_reduce = |one: &&Value| one["collective"] == "all_reduce";
        list.as_array().unwrap().iter().filter(all_reduce).count()
    };
    assert!(of(&some) > 1 && of(&some) == of(&all) && of(&some) == some.as_array().unwrap().len(), "{some}");
}

/// Every send of a shown schedule has its receive, in order: judged from the JSON alone.
#[test]
fn what_is_shown_of_a_ring_fits_together() {
    let shown = json(&["algo", "show", "all_reduce/ring", "-n", "3", "--json"]);
    let steps = |rank: usize| shown[0]["schedules"][rank]["steps"].as_array().unwrap();
    for rank in 0..3 {
        let next = (rank + 1) % 3;
        let sent: Vec<_> = steps(rank).iter().filter(|step| step["action"] == "send").collect();
        let received: Vec<_> =
            steps(next).iter().filter(|step| step["action"].as_str().unwrap().starts_with("recv")).collect();
        assert_eq!((sent.len(), received.len()), (4, 4));
        for (sent, received) in sent.iter().zip(received) {
            assert_eq!((&sent["peer"], &received["peer"]), (&next.into(), &rank.into()));
            assert_eq!(sent["extent"], received["extent"]);
        }
    }
}

#[test]
fn a_person_reads_one_line_per_step_and_per_proof() {
    let shown = unisono(&["algo", "show", "all_reduce/ring", "-n", "2"]);
    assert!(shown.out.contains("rank 0:") && shown.out.contains("rank 1:"), "{}", shown.out);
    assert_eq!(shown.out.lines().filter(|line| line.contains("recv_reduce")).count(), 2, "{}", shown.out);
    let proved = unisono(&["algo", "verify", "ring", "--ranks", "2..4"]);
    assert!(proved.status.success() && proved.out.contains("all_reduce/ring: proved"), "{}", proved.out);
}

const ALL_REDUCE_4_RANKS: [&str; 7] = ["algo", "price", "--all", "--ranks", "4", "--bytes", "1M"];

#[test]
fn the_prediction_for_a_described_network_is_the_textbooks() {
    let network = ["--alpha-us", "10", "--beta-gb-per-s", "12.5", "--gamma-gb-per-s", "40", "--json"];
    let predicted = json(&[&ALL_REDUCE_4_RANKS[..], &network].concat());
    let of = |collective: &str, name: &str| {
        let mut rows = predicted.as_array().unwrap().iter();
        rows.find(|row| row["collective"] == collective && row["name"] == name).unwrap()
    };
    let (bytes, close) = (f64::from(1 << 20), |a: f64, b: f64| (a - b).abs() <= 0.01);
    let (beta, gamma) = (bytes / 12.5e3, bytes / 40e3);
    let ring = of("all_reduce", "ring");
    assert!(close(ring["predicted_us"].as_f64().unwrap(), 60.0 + 1.5 * beta + 0.75 * gamma), "{ring}");
    assert_eq!((&ring["rounds"], &ring["messages"]), (&6.into(), &12.into()));
    assert_eq!((&ring["sent_bytes"], &ring["reduced_bytes"]), (&(3 << 19).into(), &(3 << 18).into()));
    let doubling = of("all_reduce", "recursive_doubling");
    assert!(close(doubling["predicted_us"].as_f64().unwrap(), 20.0 + 2.0 * beta + 2.0 * gamma), "{doubling}");
}

#[test]
fn of_each_collective_the_cheapest_is_chosen() {
    for ranks in ["1", "4", "7", "64"] {
        for bytes in ["0", "64", "16K", "1M", "1G"] {
            let predicted = json(&["algo", "price", "--all", "--ranks", ranks, "--bytes", bytes, "--json"]);
            let rows = predicted.as_array().unwrap();
            for collective in rows.iter().map(|row| &row["collective"]) {
                let same = || rows.iter().filter(|row| &row["collective"] == collective);
                let chosen: Vec<_> = same().filter(|row| row["chosen"] == true).collect();
                assert_eq!(chosen.len(), 1, "{collective}, {ranks} ranks, {bytes} bytes");
                let us = |row: &Value| row["predicted_us"].as_f64().unwrap();
                let least = same().map(us).fold(f64::INFINITY, f64::min);
                // Near a break point the neighbour may be a nanosecond less.
                assert!(us(chosen[0]) <= least + 0.0011, "{collective}, {ranks} ranks, {bytes} bytes");
            }
        }
    }
}

#[test]
fn a_person_reads_a_table_of_predictions() {
    let done = unisono(&ALL_REDUCE_4_RANKS);
    assert!(done.status.success(), "{}", done.err);
    assert!(done.out.contains("predicted (us)") && done.out.contains("alpha"), "{}", done.out);
    assert!(done.out.lines().any(|line| line.starts_with("barrier/") && line.ends_with("chosen")));
}

/// It moves no data, so no number of bytes makes it longer.
#[test]
fn a_barrier_has_one_price() {
    let of = |bytes| {
        let predicted =
            json(&["algo", "price", "barrier/dissemination", "-n", "4", "--bytes", bytes, "--json"]);
        predicted.as_array().unwrap().clone()
    };
    let nothing = of("0");
    assert!(nothing[0]["predicted_us"].as_f64().unwrap() > 0.0, "{nothing:?}");
    assert_eq!(of("1M"), nothing);
    let table = unisono(&["algo", "price", "barrier/dissemination", "-n", "4", "--bytes", "1M"]).out;
    let row = table.lines().find(|line| line.starts_with("barrier/")).unwrap();
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert_eq!((cells[3], cells[4]), ("-", "-"), "no bytes: {row}");
}

/// The source of the figures, and the way to one's own.
#[test]
fn a_prediction_says_whose_figures_it_uses() {
    let last_with = |shared_memory: &str, options: &[&str], cost_model: &str| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_unisono"));
        command.args(["algo", "price", "all_reduce/ring", "--ranks", "4", "--bytes", "1M"]).args(options);
        command.envs([("UNISONO_COST_MODEL", cost_model), ("UNISONO_SHM", shared_memory)]);
        let done = command.output().unwrap();
        let out = String::from_utf8(done.stdout).unwrap();
        out.lines().last().unwrap_or_default().to_owned()
    };
    for (shared_memory, machine) in [("1", "memory shared by"), ("0", "TCP over loopback on")] {
        let built_in = last_with(shared_memory, &[], "");
        let source = format!("# figures: built in, {machine} two idle cores of ");
        assert!(built_in.starts_with(&source), "{built_in}");
        assert!(built_in.ends_with("export $(unisono calibrate -n 2 | tail -1)"), "{built_in}");
    }
    let last = |options: &[&str], cost_model: &str| last_with("1", options, cost_model);
    assert_eq!(last(&[], "latency_ns=9"), "# figures: UNISONO_COST_MODEL");
    let alpha = last(&["--alpha-us", "2"], "latency_ns=9");
    assert_eq!(alpha, "# figures: --alpha-us; the others: UNISONO_COST_MODEL");
    let all = last(&["--alpha-us", "2", "--beta-gb-per-s", "1", "--gamma-gb-per-s", "1"], "");
    assert_eq!(all, "# figures: --alpha-us, --beta-gb-per-s, --gamma-gb-per-s");
}
