//! `UNISONO_SKIP` in a job: rank 0's is every rank's, another rank's is nobody's, and each rank says so in a line.

use unisono::{Collectives, CollectivesOfObjects, Communicator, Peer, ReduceOp};

use crate::support::start;

const PROGRAM: &str = "skipped::program_that_may_skip";

/// Says of each call whether it was made, by lines of standard error.
pub(crate) fn program_that_may_skip() {
    let world = unisono::init().unwrap();
    let peer = 1 - world.rank();
    for _ in 0..2 {
        let mut sum = [1u32];
        world.all_reduce(&mut sum, ReduceOp::Sum).unwrap();
        eprintln!("all_reduce gives {}", sum[0]);
    }
    world.send(&[7u8], peer, 1).unwrap();
    eprintln!("recv gives {:?}", world.recv_vec::<u8>(Peer::Rank(peer), 1).unwrap().0);
    world.send_object(format!("from {}", world.rank()), peer, 2).unwrap();
    eprintln!("recv_object gives {}", world.recv_object::<String>(Peer::Any, 2).unwrap().0);
    world.barrier().unwrap();
    world.close().unwrap();
}

/// The lines of the two ranks, of which one has `UNISONO_SKIP`.
fn lines(setter: u32, shares_memory: &str) -> [Vec<String>; 2] {
    let job = format!("skipped by {setter} with {shares_memory} {}", std::process::id());
    let ranks = [0, 1].map(|rank: u32| {
        let rank_text = rank.to_string();
        let own = [
            ("UNISONO_RANK", rank_text.as_str()),
            ("UNISONO_WORLD_SIZE", "2"),
            ("UNISONO_JOB", &job),
            ("UNISONO_JOIN_TIMEOUT_S", "60"),
            ("UNISONO_SHM", shares_memory),
        ];
        let skip = (rank == setter).then_some(("UNISONO_SKIP", "all_reduce,send,recv"));
        start(PROGRAM, &own.into_iter().chain(skip).collect::<Vec<_>>())
    });
    ranks.map(|rank| {
        let (has_succeeded, lines) = rank.end();
        assert!(has_succeeded, "{lines:?}");
        lines
    })
}

#[test]
fn a16_the_setting_of_rank_0_is_that_of_all() {
    for shares_memory in ["1", "0"] {
        for (rank, lines) in lines(0, shares_memory).into_iter().enumerate() {
            let said: Vec<&str> =
                lines.iter().filter(|line| line.contains(" gives ")).map(|line| &**line).collect();
            let object = format!("recv_object gives from {}", 1 - rank);
            assert_eq!(said, ["all_reduce gives 1", "all_reduce gives 1", "recv gives []", &object]);
            // Once for each operation, however often it is called.
            for operation in ["all_reduce", "send", "recv"] {
                let text = format!("{operation} does nothing: rank 0 has it in UNISONO_SKIP");
                let told = lines.iter().filter(|line| line.contains(&text)).count();
                assert_eq!(told, 1, "{operation} on rank {rank}: {lines:?}");
            }
            assert_eq!(lines.len(), said.len() + 3, "{lines:?}");
        }
    }
}

#[test]
fn a16_the_setting_of_another_rank_is_nobodys() {
    for shares_memory in ["1", "0"] {
        for (rank, lines) in lines(1, shares_memory).into_iter().enumerate() {
            let object = format!("recv_object gives from {}", 1 - rank);
            assert_eq!(lines, ["all_reduce gives 2", "all_reduce gives 2", "recv gives [7]", &object]);
        }
    }
}
