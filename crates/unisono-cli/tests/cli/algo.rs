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
