//! Every example runs, as four ranks that were started by hand and alone.

use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The example is about its own unit tests; here they run with the others.
#[allow(dead_code)]
#[path = "../../examples/test_with_threads.rs"]
mod threads;

const RANKS: usize = 4;
const JOB_TIME_MAX: Duration = Duration::from_secs(120);

/// Variables of a launcher around this test would make its ranks another job's.
const LAUNCHER_PREFIXES: [&str; 6] = ["UNISONO_", "OMPI_", "PMI", "MPI_", "SLURM_", "TORCHELASTIC_"];

fn example(name: &str) -> Command {
    let deps = std::env::current_exe().unwrap();
    let folder = deps.ancestors().nth(2).unwrap().join("examples");
    let program: PathBuf = folder.join(name);
    assert!(program.is_file(), "{}: first `cargo build -p unisono --examples`", program.display());
    let mut command = Command::new(program);
    for (variable, _) in std::env::vars_os() {
        let is_foreign = |variable: &str| LAUNCHER_PREFIXES.iter().any(|prefix| variable.starts_with(prefix));
        if variable.to_str().is_none_or(is_foreign) {
            command.env_remove(variable);
        }
    }
    command.env_remove("RANK").env_remove("WORLD_SIZE").env_remove("LOCAL_WORLD_SIZE");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The ends of these processes, which are killed when they take too long.
fn ends(mut ranks: Vec<Child>) -> Vec<Output> {
    let until = Instant::now() + JOB_TIME_MAX;
    while ranks.iter_mut().any(|rank| rank.try_wait().unwrap().is_none()) {
        if Instant::now() > until {
            ranks.iter_mut().for_each(|rank| rank.kill().unwrap());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let ended: Vec<Output> = ranks.into_iter().map(|rank| rank.wait_with_output().unwrap()).collect();
    assert!(Instant::now() <= until, "hangs: {ended:#?}");
    ended
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The output of each of four ranks; all ranks must succeed, but for the ranks in `dies`.
fn job(name: &str, dies: &[usize]) -> Vec<String> {
    let job = format!("{name} of the test in process {}", std::process::id());
    let start = |rank: usize| {
        let mut command = example(name);
        command.env("RANK", rank.to_string()).env("WORLD_SIZE", RANKS.to_string()).env("UNISONO_JOB", &job);
        command.spawn().unwrap()
    };
    let ended = ends((0..RANKS).map(start).collect());
    for (rank, end) in ended.iter().enumerate() {
        assert_eq!(end.status.success(), !dies.contains(&rank), "{name}, rank {rank}: {end:?}");
    }
    ended.iter().map(|end| text(&end.stdout)).collect()
}

fn alone(name: &str) -> String {
    let ended = ends(vec![example(name).spawn().unwrap()]).remove(0);
    assert!(ended.status.success(), "{name} alone: {ended:?}");
    text(&ended.stdout)
}

#[test]
fn hello() {
    for (rank, said) in job("hello", &[]).iter().enumerate() {
        assert_eq!(*said, format!("rank {rank} of 4: the sum is 10\n"));
    }
    assert_eq!(alone("hello"), "rank 0 of 1: the sum is 1\n");
}

#[test]
fn test_with_threads() {
    for (rank, said) in job("test_with_threads", &[]).iter().enumerate() {
        assert_eq!(*said, format!("rank {rank}: the mean is 2.000\n"));
    }
    assert_eq!(alone("test_with_threads"), "rank 0: the mean is 0.000\n");
}

#[test]
fn survive() {
    let said = job("survive", &[2]);
    assert_eq!(said[2], "rank 2 crashes\n");
    // 5 steps with 4 ranks, then 5 with 3; or 4 and 6, when the last data of rank 2 died with it.
    let weights = ["35", "34"].map(|weight| {
        [(0, 0), (1, 1), (3, 2)]
            .map(|(rank, new)| format!("rank {rank} is rank {new} of 3 after 10 steps: {weight}"))
    });
    let said = [0, 1, 3].map(|rank| {
        let lines: Vec<&str> = said[rank].lines().collect();
        assert!(lines[0].starts_with(&format!("rank {rank}: lost rank 2 (pid")), "{lines:?}");
        lines[1].to_owned()
    });
    assert!(weights.contains(&said), "{said:?}");
    assert_eq!(alone("survive"), "rank 0 is rank 0 of 1 after 10 steps: 10\n");
}

#[test]
fn own_algorithm() {
    for (rank, said) in job("own_algorithm", &[]).iter().enumerate() {
        assert_eq!(*said, format!("rank {rank}: 16 ranks need 30 rounds; ours is right\n"));
    }
    assert_eq!(alone("own_algorithm"), "rank 0: 16 ranks need 30 rounds; ours is right\n");
}

#[test]
fn overlap() {
    for (rank, said) in job("overlap", &[]).iter().enumerate() {
        assert!(
            said.starts_with(&format!("rank {rank}: ")) && said.contains("one after the other"),
            "{said}"
        );
    }
    alone("overlap");
}

#[test]
fn two_groups() {
    for (rank, said) in job("two_groups", &[]).iter().enumerate() {
        let in_row = if rank < 2 { 1 } else { 5 };
        assert_eq!(*said, format!("rank {rank}: {in_row} in its row of 2, 6 in all\n"));
    }
    assert_eq!(alone("two_groups"), "rank 0: 0 in its row of 1, 0 in all\n");
}

#[test]
fn one_bit_adam() {
    for (rank, said) in job("one_bit_adam", &[]).iter().enumerate() {
        assert_eq!(*said, format!("rank {rank} of 4: learned; a step sends 7848 bytes instead of 240000\n"));
    }
    assert_eq!(alone("one_bit_adam"), "rank 0 of 1: learned; a step sends 0 bytes instead of 0\n");
}

/// Any number of ranks computes the same bits as one rank.
///
/// Rows: B25
#[test]
fn halo_exchange() {
    let alone = alone("halo_exchange");
    let (grid, bits) = alone.split_once(": ").unwrap();
    assert_eq!(grid, "rank 0 of the grid [1, 1]");
    assert!(!bits.contains(&"0".repeat(16)), "{bits}");
    for (rank, said) in job("halo_exchange", &[]).iter().enumerate() {
        assert_eq!(*said, format!("rank {rank} of the grid [2, 2]: {bits}"));
    }
}

/// The example itself compares the file of all ranks with the text of one rank.
#[test]
fn heat_rod() {
    let cells = [(0, 250), (251, 501), (502, 751), (752, 1001)];
    for (rank, said) in job("heat_rod", &[]).iter().enumerate() {
        let (first, last) = cells[rank];
        assert_eq!(*said, format!("rank {rank} of 4 wrote cells {first} to {last}\n"));
    }
    assert_eq!(alone("heat_rod"), "rank 0 of 1 wrote cells 0 to 1001\n");
}

/// The example itself compares the particles with the particles of one rank.
#[test]
fn task_farm() {
    for (rank, said) in job("task_farm", &[]).iter().enumerate() {
        assert_eq!(*said, format!("rank {rank} of 4: the workers moved 100 particles\n"));
    }
    assert_eq!(alone("task_farm"), "rank 0 of 1: the workers moved 0 particles\n");
}
