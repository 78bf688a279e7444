//! The output of the programs: alone, as the ranks of a job, and about the algorithm.
#![cfg(feature = "programs")]

use std::process::{Command, Output, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_bidirectional-ring");

/// The output of a program that ends well, by lines.
fn lines(output: &Output) -> Vec<String> {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

/// Rows: A17
#[test]
fn threads_register_force_choose_and_refuse() {
    let lines = lines(&Command::new(PROGRAM).output().unwrap());
    let expected = [
        "8 ranks",
        "before: invalid algorithm: \"bidirectional_ring\" is no algorithm of all_reduce; \
         the nearest are binomial, direct, recursive_doubling",
        "forced, short: bidirectional_ring",
        "chosen, short: k_nomial_8, as before",
        "chosen, long: bidirectional_ring, before it was ring",
        "refused: all_reduce/deadlocks",
        "    all_reduce/deadlocks with 8 ranks: deadlock: \
         rank 0 step 1 [send to 1 extent 0 output -> wire], waits for rank 7 step 1 ",
        "refused: all_reduce/forgets",
        "    all_reduce/forgets with 8 ranks (out of place): \
         rank 1 step 7 [recv_reduce from 0 extent 1 wire + input -> output, complete] \
         is marked as completing, but lacks the contribution of ranks 2, 3, 4",
        "after, long: bidirectional_ring",
    ];
    assert_eq!(lines.len(), expected.len(), "{lines:#?}");
    for (line, expected) in lines.iter().zip(expected) {
        // The deadlock goes on around the whole ring.
        assert!(line.starts_with(expected), "{line}\nis not\n{expected}");
    }
}

#[test]
fn processes_do_the_same() {
    let job = format!("bidirectional-ring-{}", std::process::id());
    let start = |rank: u32| {
        let mut command = Command::new(PROGRAM);
        command.env("UNISONO_RANK", rank.to_string()).env("UNISONO_WORLD_SIZE", "3").env("UNISONO_JOB", &job);
        // A rank that waits in vain ends by itself.
        command.env("UNISONO_JOIN_TIMEOUT_S", "60").env("UNISONO_CALL_TIMEOUT_S", "60");
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let ranks: Vec<_> = (0..3).map(start).collect();
    let printed: Vec<Vec<String>> =
        ranks.into_iter().map(|rank| lines(&rank.wait_with_output().unwrap())).collect();
    assert_eq!(printed[0][0], "3 ranks");
    assert_eq!(printed[0][2], "forced, short: bidirectional_ring");
    assert!(printed[0].contains(&"refused: all_reduce/deadlocks".to_owned()));
    assert!(printed[1].is_empty() && printed[2].is_empty(), "rank 0 speaks for all");
}

#[test]
fn the_command_line_answers_about_it() {
    let asked = |words: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_algorithms"));
        // The figures of this library, for every description of the machine.
        command.args(words.split(' ')).env_remove("UNISONO_COST_MODEL");
        lines(&command.output().unwrap())
    };
    let listed = asked("list");
    let at = listed.iter().position(|line| line.starts_with("all_reduce/bidirectional_ring: ")).unwrap();
    assert_eq!(listed[at + 1], "    of this program");
    assert_eq!(
        listed[at + 2],
        "    8 ranks: 8 rounds, 28 messages, 2 peers; of the vector 7/4 sent, 7/4 received, 7/8 reduced"
    );
    assert_eq!(asked("show bidirectional_ring -n 2").len(), 1 + 2 * (1 + 4));
    assert_eq!(
        asked("verify bidirectional_ring --ranks 1..16"),
        ["all_reduce/bidirectional_ring: proved for 1 to 16 ranks: 16 shapes, 5441 steps"]
    );
    // By rounds, bytes and reductions alone: between the ring and the direct exchange, which talks to 7 peers at once.
    let priced = asked("price --all -n 8 --bytes 64M --alpha-us 10 --beta-gb-per-s 10 --gamma-gb-per-s 20");
    let row =
        "all_reduce/bidirectional_ring           8       28      117440512       58720256      14760.064";
    assert!(priced.contains(&row.to_owned()), "{priced:#?}");
}
