//! Processes that die in the middle of a compressed call, at every kind of place: the survivors' states are those of
//! ranks that have never failed, and training goes on.

use std::io::Read;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;
use unisono_tests::suite::SECONDS_MAX;
use unisono_tests::watchdog;

/// The processes of one job, killed when this goes.
struct CompressingJob {
    _directory: TempDir,
    ranks: Vec<Child>,
}

impl CompressingJob {
    fn start(ranks: u32, words: &[&str]) -> CompressingJob {
        let directory = tempfile::tempdir().unwrap();
        let start = |rank: u32| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_compressing"));
            // Whatever started the tests must not look like the launcher of these ranks.
            command.env_clear().args(words);
            command.env("UNISONO_RANK", rank.to_string()).env("UNISONO_WORLD_SIZE", ranks.to_string());
            command.env("UNISONO_JOB", "compressing").env("XDG_RUNTIME_DIR", directory.path());
            command.env("TMPDIR", directory.path()).env("HOME", directory.path());
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            // The last one dies, and the core of a process that aborts would be large.
            command.current_dir(directory.path()).spawn().unwrap()
        };
        let ranks = (0..ranks).map(start).collect();
        CompressingJob { _directory: directory, ranks }
    }

    /// What the survivors say.
    fn end(mut self) -> Vec<String> {
        let mut victim = self.ranks.pop().unwrap();
        assert!(!victim.wait().unwrap().success(), "the last rank lives");
        let mut said = Vec::new();
        for rank in &mut self.ranks {
            let mut line = Vec::new();
            let out = rank.stdout.as_mut().unwrap();
            let mut byte = [0];
            while out.read(&mut byte).unwrap() == 1 && byte != [b'\n'] {
                line.push(byte[0]);
            }
            said.push(String::from_utf8(line).unwrap());
        }
        for rank in &mut self.ranks {
            drop(rank.stdin.take());
            assert!(rank.wait().unwrap().success(), "{said:?}");
        }
        said
    }
}

impl Drop for CompressingJob {
    fn drop(&mut self) {
        for rank in &mut self.ranks {
            let _ = rank.kill();
            let _ = rank.wait();
        }
    }
}

fn survivors_go_on(codec: &str, ranks: u32, points: &[(&str, u32)]) {
    watchdog(SECONDS_MAX, "survivors of a compressed call", || {
        for (step, number) in points {
            let said = CompressingJob::start(ranks, &[codec, step, &number.to_string()]).end();
            let what = format!("{codec} on {ranks} ranks, {step} {number}: {said:?}");
            assert!(said[0].contains(" calls, then "), "{what}");
            assert!(said.iter().all(|line| *line == said[0]), "{what}");
        }
    });
}

/// The first call and later ones; the first piece, the last piece, what comes before the last bytes leave and after.
#[test]
fn a_rank_dies_while_it_encodes_or_sums() {
    survivors_go_on(
        "sign",
        3,
        &[("encode", 1), ("encode", 19), ("encode", 24), ("reduce", 7), ("reduce", 8)],
    );
}

#[test]
fn a_rank_dies_when_all_has_come() {
    survivors_go_on("sign", 3, &[("accept", 25), ("accept", 36), ("decode", 13), ("decode", 18)]);
}

#[test]
fn a_rank_dies_with_other_codecs() {
    survivors_go_on("sign-rms", 3, &[("encode", 8), ("reduce", 3), ("decode", 7)]);
    survivors_go_on("int8", 4, &[("reduce", 5), ("decode", 20)]);
    survivors_go_on("sign", 2, &[("reduce", 5)]);
}
