//! Jobs in a control group with little memory. Needs root, or a control group that may be written to.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::{Finished, start_by};

/// A control group with a limit on memory, of either version.
struct MemoryGroup {
    folder: PathBuf,
    limit: &'static str,
    peak: &'static str,
}

impl MemoryGroup {
    /// `None`, and a line that says why, where this machine cannot; a failure where `cgroups` is required.
    fn or_skip(test: &str) -> Option<MemoryGroup> {
        let name = format!("unisono-test-{}-{test}", std::process::id());
        let versions = [
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.max_usage_in_bytes"),
            ("/sys/fs/cgroup", "memory.max", "memory.peak"),
        ];
        let mut problem = "no hierarchy of control groups counts memory".to_owned();
        for (parent, limit, peak) in versions {
            let group = MemoryGroup { folder: Path::new(parent).join(&name), limit, peak };
            match std::fs::create_dir(&group.folder) {
                Ok(()) if group.folder.join(limit).exists() && group.folder.join(peak).exists() => {
                    return Some(group);
                }
                Ok(()) => {}
                Err(error) => problem = format!("{parent}: {error}"),
            }
        }
        unisono_tests::skip("cgroups", &problem);
        None
    }

    /// Runs the program in the group, with so much memory.
    fn run(&self, limit_bytes: u64, setting: &str, arguments: &[&str]) -> Finished {
        std::fs::write(self.folder.join(self.limit), limit_bytes.to_string()).unwrap();
        let enter = format!("echo $$ > {}/cgroup.procs && exec \"$@\"", self.folder.display());
        start_by(&["sh", "-c", &enter, "sh", "env", setting], arguments).finish()
    }

    /// The most memory that it has had.
    fn peak_bytes(&self) -> u64 {
        std::fs::read_to_string(self.folder.join(self.peak)).unwrap().trim().parse().unwrap()
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // It goes when its last process is gone.
        while std::fs::remove_dir(&self.folder).is_err_and(|error| error.raw_os_error() == Some(16)) {
            std::thread::yield_now();
        }
    }
}

const BENCH: [&str; 6] = ["bench", "all_reduce,all_to_all", "--sizes", "4K,64K", "-n", "16"];

#[test]
fn memory_that_ranks_share_lets_no_job_be_killed_that_runs_without_it() {
    let Some(group) = MemoryGroup::or_skip("rings") else { return };
    let done = group.run(1 << 30, "UNISONO_SHM=0", &BENCH);
    assert!(done.status.success(), "{}", done.err);
    let limit = group.peak_bytes() / 8 * 9;
    // Not each time of the machine is alike.
    for _ in 0..3 {
        let done = group.run(limit, "UNISONO_SHM=1", &BENCH);
        assert!(done.status.success(), "{limit} bytes: {}", done.err);
    }
}

#[test]
fn doctor_shows_how_much_memory_ranks_may_share() {
    let Some(group) = MemoryGroup::or_skip("doctor") else { return };
    let done = group.run(256 << 20, "UNISONO_SHM=1", &["doctor", "-n", "16", "--json"]);
    let page: Value = serde_json::from_str(&done.out).unwrap();
    let limits = &page["limits"];
    assert_eq!((&limits["memory_bytes"], &limits["rings_bytes"]), (&(256 << 20).into(), &(32 << 20).into()));
    assert_eq!(limits["memory_limited_by"], group.folder.to_str().unwrap());
    assert!(done.out.contains("33554432 bytes for shared memory, and 16 ranks"), "{}", done.out);
    let done = group.run(256 << 20, "UNISONO_SHM=1", &["doctor", "-n", "2"]);
    assert!(done.out.contains("at most 33554432 of them carry data"), "{}", done.out);
}
