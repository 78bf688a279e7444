//! Jobs whose ranks are processes: this test program again, which runs one test as a rank.

use std::env;
use std::io::Read;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;
use unisono_tests::doubles;

/// Tells the process that it is a rank.
const IS_RANK: &str = "TEST_IS_RANK";

/// Whether this process is a rank of a [`Job`].
pub(crate) fn is_rank() -> bool {
    env::var_os(IS_RANK).is_some()
}

/// The processes of one job over the double, killed when this goes.
pub(crate) struct Job {
    _directory: TempDir,
    ranks: Vec<Child>,
}

impl Job {
    /// Starts `ranks` ranks that run the test of this name; `settings` are those of each besides what it needs.
    pub(crate) fn start(
        test: &str,
        ranks: u32,
        settings: impl Fn(u32) -> Vec<(&'static str, String)>,
    ) -> Job {
        let directory = tempfile::tempdir().unwrap();
        let start = |rank: u32| {
            let mut command = Command::new(env::current_exe().unwrap());
            // Whatever started the tests must not look like the launcher of these ranks.
            command.env_clear().env(IS_RANK, "").args(["--exact", test, "--nocapture", "--test-threads=1"]);
            command.env("UNISONO_RANK", rank.to_string()).env("UNISONO_WORLD_SIZE", ranks.to_string());
            command.env("UNISONO_JOB", "nccl-double").env("XDG_RUNTIME_DIR", directory.path());
            command.env("UNISONO_NCCL_LIB", doubles::nccl()).env("UNISONO_CUDA_LIB", doubles::nccl());
            command.env("TMPDIR", directory.path()).env("HOME", directory.path());
            command.env("UNISONO_DEVICE", rank.to_string()).envs(settings(rank));
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            command.current_dir(directory.path()).spawn().unwrap()
        };
        let ranks = (0..ranks).map(start).collect();
        Job { _directory: directory, ranks }
    }

    /// Waits for all ranks.
    ///
    /// # Panics
    /// When one has failed, with what all that have failed have said.
    pub(crate) fn end(mut self) {
        let mut failures = String::new();
        for (rank, child) in self.ranks.iter_mut().enumerate() {
            let [mut said, mut told] = [String::new(), String::new()];
            child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
            child.stdout.take().unwrap().read_to_string(&mut told).unwrap();
            // A name that no test has runs nothing, which goes well.
            if !child.wait().unwrap().success() || !told.contains("test result: ok. 1 passed") {
                failures += &format!("rank {rank} has failed: {told}{said}");
            }
        }
        assert!(failures.is_empty(), "{failures}");
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        for rank in &mut self.ranks {
            let _ = rank.kill();
            let _ = rank.wait();
        }
    }
}
