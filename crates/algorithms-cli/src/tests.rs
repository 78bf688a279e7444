//! `algorithms_main` of programs with an algorithm of their own, good and wrong.

use unisono_communicator::Communicator;
use unisono_engine::in_process;
use unisono_schedule::{Collective, Cost, CostModel, Own, Shape, verify};

use super::*;

/// An all-reduce between two ranks. The wrong one leaves out the sum.
fn pair(name: &'static str, right: bool) -> Arc<Algorithm> {
    let pair = Algorithm::new(name, Collective::AllReduce, move |builder| {
        let (peer, own) = (1 - builder.rank(), if builder.rank() == 0 { Own::Left } else { Own::Right });
        builder.send(peer, 0);
        if right {
            builder.recv_reduce(peer, 0, own, true);
        } else {
            builder.recv(peer, 0);
        }
    });
    Arc::new(pair.fits(|shape| shape.ranks == 2))
}

/// The exit status, the output and the errors.
fn asked(own: &[Arc<Algorithm>], line: &str) -> (u8, String, String) {
    let (mut out, mut errors) = (Vec::new(), Vec::new());
    let words = line.split(' ').map(OsString::from).collect();
    let here = |_| {
        Ok(MachineFigures { cost_model: CostModel::LOOPBACK, built_in: Some(CostModel::LOOPBACK_MACHINE) })
    };
    let status = answer(own, words, &here, (&mut out, &mut errors));
    (status, String::from_utf8(out).unwrap(), String::from_utf8(errors).unwrap())
}

#[test]
fn a_programs_own_algorithm_is_listed_shown_proved_and_priced() {
    let own = [pair("pair", true)];
    let (status, listed, _) = asked(&own, "prog list");
    assert_eq!((status, listed.matches("of this program").count()), (0, 1), "{listed}");
    assert!(listed.contains("all_reduce/pair\n    of this program") && listed.contains("all_reduce/ring: "));
    let (status, shown, _) = asked(&own, "prog show pair -n 2");
    assert_eq!((status, shown.matches("recv_reduce").count()), (0, 2), "{shown}");
    let (status, proved, _) = asked(&own, "prog verify pair --ranks 1..4");
    assert_eq!(
        (status, proved.contains("all_reduce/pair: proved for 1 to 4 ranks: 1 shape, ")),
        (0, true),
        "{proved}"
    );
    let (status, verified, _) = asked(&own, "prog verify pair --ranks 3");
    let nothing = "all_reduce/pair: it fits no group of 3 ranks, nothing is proved\n";
    assert_eq!((status, verified.as_str()), (0, nothing));
    let (status, priced, _) = asked(&own, "prog price pair --ranks 2 --bytes 1K --alpha-us 1 --json");
    let priced: serde_json::Value = serde_json::from_str(&priced).unwrap();
    assert_eq!((status, &priced[0]["rounds"], &priced[0]["sent_bytes"]), (0, &1.into(), &1024.into()));
}

#[test]
fn a_wrong_algorithm_gets_its_counterexample() {
    let own = [pair("pair", false)];
    let (status, verified, errors) = asked(&own, "prog verify pair --ranks 2");
    assert_eq!((status, errors.as_str()), (1, ""));
    assert!(verified.starts_with("wrong: all_reduce/pair"), "{verified}");
    let (status, priced, errors) = asked(&own, "prog price --all --ranks 2 --bytes 1K");
    assert!(status == 1 && priced.contains("all_reduce/ring"), "{priced}");
    assert!(errors.starts_with("prog: no prediction: ") && errors.contains("all_reduce/pair"), "{errors}");
    // Others are not stopped by it.
    assert_eq!(asked(&own, "prog verify all_reduce/ring --ranks 2").0, 0);
}

/// The command line and `register` say the same of a wrong claim: the figures that differ.
#[test]
fn a_wrong_claim_is_told_by_the_figures_that_differ() {
    let true_cost = verify(&pair("pair", true), &Shape::new(2)).unwrap().cost;
    let wrong = move |_: &Shape| Cost { messages: 8, peers: 3, ..true_cost };
    let own = [Arc::new((*pair("pair", true)).clone().cost(wrong))];
    let expected = "messages: claimed 8, counted 2; peers: claimed 3, counted 1";
    let (_, verified, _) = asked(&own, "prog verify pair --ranks 2");
    assert_eq!(verified, format!("wrong: all_reduce/pair with 2 ranks: {expected}\n"));
    // On a host with several cores the shape has leaders, which this algorithm has not.
    let (_, _, priced) = asked(&own, "prog price pair --ranks 2 --bytes 1K");
    assert_eq!(priced, format!("prog: no prediction: all_reduce/pair with 2 ranks: {expected}\n"));
    in_process::run(2, move |comm| {
        let refused = comm.register(own[0].clone(), Trust::Prove).unwrap_err().to_string();
        assert!(refused.contains(expected), "{refused}");
    });
}

#[test]
fn a_name_that_is_taken_or_none_and_a_bad_command_line_are_one_line() {
    let twice = [pair("pair", true), pair("pair", true)];
    let line = |own: &[Arc<Algorithm>], words| {
        let (status, out, errors) = asked(own, words);
        assert_eq!((status, out.as_str(), errors.lines().count()), (2, "", 1), "{errors}");
        errors
    };
    assert_eq!(line(&twice, "bin/prog list"), "prog: there is another all_reduce/pair\n");
    assert_eq!(line(&[pair("ring", true)], "prog list"), "prog: there is another all_reduce/ring\n");
    assert!(line(&[pair("a pair", true)], "prog list").contains("is no name"));
    assert!(line(&[pair("pair", true)], "prog show pair -n 3").contains("does not fit 3 ranks"));
    assert!(line(&[], "bin/prog dance").contains("one of: list, show, verify, price"));
    assert!(line(&[], "bin/prog verify").contains("usage: prog verify"));
    let (status, help, _) = asked(&[], "bin/prog --help");
    assert!(status == 0 && help.contains("Usage: prog <COMMAND>"), "{help}");
}

/// If any of its functions panics, each command says so in a line, and the other algorithms are answered about.
#[test]
fn an_algorithm_that_panics_ends_no_command() {
    let good = || (*pair("pair", true)).clone();
    let built = Algorithm::new("pair", Collective::AllReduce, |_| panic!("no idea"));
    let all = [
        (built, "building the schedule of rank 0 panicked: no idea"),
        (good().fits(|_| panic!("no idea")), "the algorithm panicked: no idea"),
        (good().chunks(|_| panic!("no idea")), "building the schedule of rank 0 panicked: no idea"),
        (good().scratch_chunks(|_| panic!("no idea")), "the algorithm panicked: no idea"),
        (good().cost(|_| panic!("no idea")), "the algorithm panicked: no idea"),
    ];
    for (algorithm, text) in all {
        let own = [Arc::new(algorithm)];
        let (status, listed, _) = asked(&own, "prog list");
        assert!(status == 0 && listed.contains("all_reduce/ring: "), "{listed}");
        let (status, verified, _) = asked(&own, "prog verify pair --ranks 2");
        assert!(status == 1 && verified.starts_with("wrong: ") && verified.contains(text), "{verified}");
        let (status, verified, _) = asked(&own, "prog verify --all --ranks 2");
        assert!(status == 1 && verified.contains("all_reduce/ring: proved"), "{verified}");
        let (status, priced, errors) = asked(&own, "prog price --all --ranks 2 --bytes 1K");
        assert!(status == 1 && priced.contains("all_reduce/ring "), "{priced}");
        assert!(errors.starts_with("prog: no prediction: ") && errors.contains(text), "{errors}");
    }
    let fits = [Arc::new(good().fits(|_| panic!("no idea")))];
    let (status, _, errors) = asked(&fits, "prog show pair -n 2");
    assert!(
        status == 1 && errors.starts_with("prog: the schedules: all_reduce/pair with 2 ranks: "),
        "{errors}"
    );
}

/// Tells this test, in a process of its own, to be the program.
const CHILD: &str = "ALGORITHMS_CLI_CHILD";

/// Every rank of every shape panics, at one place.
#[test]
#[expect(clippy::disallowed_methods, reason = "variables of tests, no settings of the library")]
fn a_panic_is_told_once() {
    if std::env::var_os(CHILD).is_some() {
        let built =
            Algorithm::new("built", Collective::AllReduce, |builder| panic!("rank {}", builder.rank()));
        let (status, verified, _) = asked(&[Arc::new(built)], "prog verify built --ranks 1..8");
        assert!(status == 1 && verified.ends_with("panicked: rank 0\n"), "{verified}");
        return;
    }
    let mut test = std::process::Command::new(std::env::current_exe().unwrap());
    let name = "tests::a_panic_is_told_once";
    let done = test.args([name, "--exact", "--nocapture"]).env(CHILD, "1").output().unwrap();
    let told = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{told}");
    assert_eq!(told.matches("panicked at").count(), 1, "{told}");
}
