//! The memory that the rings of all ranks of a host may have together: a ring is memory that is there from the start,
//! and a process that exceeds a limit on memory is killed.
//!
//! The limits are the machine's own and the limits of control groups: of both versions, of this process's group and of
//! all groups above it (`memory.max`, `memory.high`, `memory.limit_in_bytes`; cgroups(7)).

use std::fs::read_to_string;
use std::path::{Path, PathBuf};

/// No host gives more.
const BYTES_MAX: u64 = 1 << 30;

/// The part of the smallest limit that rings may have.
const PART: u64 = 8;

/// So many times the budget stays free beside the rings when one more is made.
const FREE: u64 = 2;

/// The memory that the rings of a host may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budget {
    limits: Vec<MemoryLimit>,
}

/// A limit on the memory of this process and of others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryLimit {
    /// The bytes that they may have.
    pub bytes: u64,
    /// The place at which the system tells it: the folder of a control group, or the file with the memory of the
    /// machine.
    pub place: PathBuf,
}

impl Budget {
    /// Reads the limits on this process.
    pub fn read() -> Budget {
        Budget::within(Path::new("/"))
    }

    /// The same, with all files of the system in `root`.
    fn within(root: &Path) -> Budget {
        let text = |path: &str| read_to_string(root.join(path)).unwrap_or_default();
        let (groups, mounts) = (text("proc/self/cgroup"), text("proc/self/mountinfo"));
        let groups = mounts.lines().filter_map(Mount::of_memory).flat_map(|mount| {
            let own = cgroup_path(&groups, mount.controller).unwrap_or_default();
            // In a container the path may begin above the group that is mounted.
            let below = own.strip_prefix(mount.root.trim_end_matches('/')).unwrap_or_default();
            let folder = |path: &str| root.join(format!("{}{path}", mount.point).trim_start_matches('/'));
            with_parents(below).into_iter().map(folder).collect::<Vec<_>>()
        });
        let machine = root.join("proc/meminfo");
        let limits = groups.chain([machine]).filter_map(MemoryLimit::read).collect();
        Budget { limits }
    }

    /// The smallest of the limits, if there is one.
    pub fn limit(&self) -> Option<&MemoryLimit> {
        self.limits.iter().min_by_key(|limit| limit.bytes)
    }

    /// The bytes that all rings of the host may have.
    pub fn bytes(&self) -> u64 {
        self.limit().map_or(BYTES_MAX, |limit| BYTES_MAX.min(limit.bytes / PART))
    }

    /// Whether `bytes` more leave enough for everything else. Ranks that ask at the same time do not see each other.
    pub fn has_room(&self, bytes: u64) -> bool {
        let needed = (FREE * self.bytes()).saturating_add(bytes);
        self.limits.iter().all(|limit| limit.available().is_none_or(|available| available >= needed))
    }
}

impl MemoryLimit {
    fn read(place: PathBuf) -> Option<MemoryLimit> {
        let bytes = if place.is_dir() {
            // Beyond `high` a group is slowed down, and beyond the others a process of it is killed.
            let files = ["memory.max", "memory.high", "memory.limit_in_bytes"];
            files.iter().filter_map(|file| number(&place.join(file))).min()
        } else {
            field(&read_to_string(&place).ok()?, "MemTotal:").map(|kib| kib << 10)
        };
        bytes.map(|bytes| MemoryLimit { bytes, place })
    }

    /// The free bytes within it. Pages of files are free too: the kernel takes them back before it kills.
    fn available(&self) -> Option<u64> {
        if !self.place.is_dir() {
            return field(&read_to_string(&self.place).ok()?, "MemAvailable:").map(|kib| kib << 10);
        }
        let files = ["memory.current", "memory.usage_in_bytes"];
        let used = files.iter().find_map(|file| number(&self.place.join(file)))?;
        let text = read_to_string(self.place.join("memory.stat")).unwrap_or_default();
        // Version 1 counts the groups below in fields of their own.
        let of_all = |name: &str| field(&text, &format!("total_{name}")).or_else(|| field(&text, name));
        let of_files: u64 = ["inactive_file", "active_file"].into_iter().filter_map(of_all).sum();
        Some((self.bytes + of_files).saturating_sub(used))
    }
}

/// A mounted hierarchy of control groups that counts memory.
struct Mount<'a> {
    /// The group that is mounted.
    root: &'a str,
    point: &'a str,
    /// The name of the hierarchy in `/proc/self/cgroup`.
    controller: &'static str,
}

impl Mount<'_> {
    /// The hierarchy in a line of `/proc/self/mountinfo`, if it is about one.
    fn of_memory(line: &str) -> Option<Mount<'_>> {
        let (mount, system) = line.split_once(" - ")?;
        let (mut mount, mut system) = (mount.split(' '), system.split(' '));
        let (root, point) = (mount.nth(3)?, mount.next()?);
        let controller = match (system.next()?, system.nth(1)?) {
            ("cgroup2", _) => "",
            ("cgroup", options) if options.split(',').any(|option| option == "memory") => "memory",
            _ => return None,
        };
        Some(Mount { root, point, controller })
    }
}

fn number(file: &Path) -> Option<u64> {
    read_to_string(file).ok()?.trim().parse().ok()
}

/// The number behind `name`, at the start of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().map(str::split_whitespace);
    lines.find_map(|mut words| (words.next()? == name).then(|| words.next()?.parse().ok())?)
}

/// The path of this process in the hierarchy with `controller`, as /proc/self/cgroup names it; "" for version 2.
///
/// ```
/// use unisono_shared_memory::{cgroup_path, with_parents};
/// let own = cgroup_path("5:cpu,cpuacct:/jobs/7\n0::/user\n", "cpu").unwrap();
/// assert_eq!(with_parents(own), ["/jobs/7", "/jobs", ""]);
/// ```
pub fn cgroup_path<'a>(cgroups: &'a str, controller: &str) -> Option<&'a str> {
    let of_line = |line: &'a str| {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        controllers.split(',').any(|one| one == controller).then_some(path)
    };
    cgroups.lines().find_map(of_line)
}

/// A path of control groups and all that are above it, deepest first.
pub fn with_parents(path: &str) -> Vec<&str> {
    let mut paths = vec![path.trim_end_matches('/')];
    while let Some((above, _)) = paths.last().and_then(|path| path.rsplit_once('/')) {
        paths.push(above);
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// A made-up system.
    struct System(tempfile::TempDir);

    impl System {
        fn new(files: &[(&str, &str)]) -> System {
            let system = System(tempfile::tempdir().unwrap());
            files.iter().for_each(|(path, text)| system.write(path, text));
            system
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.0.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }

        fn budget(&self) -> Budget {
            Budget::within(self.0.path())
        }

        fn smallest(&self) -> (u64, String) {
            let budget = self.budget();
            let limit = budget.limit().unwrap();
            let place = limit.place.strip_prefix(self.0.path()).unwrap();
            (limit.bytes, place.display().to_string())
        }
    }

    const MEMINFO: (&str, &str) =
        ("proc/meminfo", "MemTotal: 4194304 kB\nMemFree: 1 kB\nMemAvailable: 3145728 kB\n");
    const V2: (&str, &str) =
        ("proc/self/mountinfo", "30 1 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n");

    #[test]
    fn without_a_limit_the_machine_is_one() {
        let system = System::new(&[MEMINFO, V2, ("proc/self/cgroup", "0::/user\n")]);
        assert_eq!(system.smallest(), (4096 * MIB, "proc/meminfo".to_owned()));
        assert_eq!(system.budget().bytes(), 512 * MIB);
        assert!(system.budget().has_room(2048 * MIB) && !system.budget().has_room(2049 * MIB));
        assert_eq!(System::new(&[]).budget(), Budget { limits: Vec::new() });
        assert_eq!(System::new(&[]).budget().bytes(), 1024 * MIB);
        let large = System::new(&[("proc/meminfo", "MemTotal: 999999999 kB\n")]);
        assert_eq!(large.budget().bytes(), 1024 * MIB);
    }

    #[test]
    fn the_smallest_limit_above_a_group_of_version_2_counts() {
        let group = "sys/fs/cgroup/user/job/rank";
        let system = System::new(&[
            MEMINFO,
            V2,
            ("proc/self/cgroup", "0::/user/job/rank\n"),
            (&format!("{group}/memory.max"), "max\n"),
            (&format!("{group}/memory.high"), "max\n"),
            ("sys/fs/cgroup/user/job/memory.max", "67108864\n"),
            ("sys/fs/cgroup/user/job/memory.high", "50331648\n"),
            ("sys/fs/cgroup/user/memory.max", "134217728\n"),
            // A group beside it.
            ("sys/fs/cgroup/user/other/memory.max", "1\n"),
        ]);
        assert_eq!(system.smallest(), (48 * MIB, "sys/fs/cgroup/user/job".to_owned()));
        assert_eq!(system.budget().bytes(), 6 * MIB);
        // 12 MiB stay free. Pages of files count as free.
        system.write("sys/fs/cgroup/user/job/memory.current", "41943040\n");
        assert!(!system.budget().has_room(MIB));
        system.write(
            "sys/fs/cgroup/user/job/memory.stat",
            "anon 1\ninactive_file 4194304\nactive_file 1048576\n",
        );
        assert!(system.budget().has_room(MIB) && !system.budget().has_room(MIB + 1));
        // So does a larger limit that is nearly reached.
        system.write("sys/fs/cgroup/user/memory.current", "134217728\n");
        assert!(!system.budget().has_room(1));
    }

    #[test]
    fn groups_of_version_1_are_found_where_they_are_mounted() {
        let mounts = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
                      32 31 0:29 / /sys/fs/cgroup/cpu rw shared:9 - cgroup cgroup rw,cpu\n\
                      35 31 0:32 /docker/7 /sys/fs/cgroup/memory rw shared:12 - cgroup cgroup rw,memory\n\
                      41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let system = System::new(&[
            MEMINFO,
            ("proc/self/mountinfo", mounts),
            ("proc/self/cgroup", "4:memory:/docker/7/job\n1:cpu:/\n0::/\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "33554432\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "25165824\n"),
            ("sys/fs/cgroup/memory/memory.stat", "inactive_file 0\ntotal_inactive_file 1048576\n"),
            ("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/fs/cgroup/unified/cgroup.procs", ""),
        ]);
        assert_eq!(system.smallest(), (32 * MIB, "sys/fs/cgroup/memory".to_owned()));
        assert!(system.budget().has_room(MIB) && !system.budget().has_room(MIB + 1));
        // The path of a process outside of the group that is mounted.
        system.write("proc/self/cgroup", "4:memory:/docker/8\n");
        assert_eq!(system.smallest(), (32 * MIB, "sys/fs/cgroup/memory".to_owned()));
    }

    #[test]
    fn groups_are_found_by_their_controller_and_have_parents() {
        let cgroups = "5:memory:/jobs/7\n3:cpu,cpuacct:/jobs/8:a\n0::/user.slice\n";
        assert_eq!(
            (cgroup_path(cgroups, "cpu"), cgroup_path(cgroups, "")),
            (Some("/jobs/8:a"), Some("/user.slice"))
        );
        assert_eq!(cgroup_path("0::/\n", "cpu"), None);
        assert_eq!(with_parents("/jobs/8"), ["/jobs/8", "/jobs", ""]);
        assert_eq!(with_parents("/"), [""]);
    }

    #[test]
    fn this_machine_has_memory() {
        assert!(Budget::read().limit().is_some_and(|limit| limit.bytes > MIB));
    }
}
