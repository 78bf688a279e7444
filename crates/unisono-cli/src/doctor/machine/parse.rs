//! Reads the kernel's texts in /proc and /sys: pure functions of a text, `None` for a value that is not there.

/// "0-3,8" as a number of CPUs.
pub(super) fn cpus_in_list(list: &str) -> Option<u32> {
    let mut count = 0;
    for part in list.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        count += last.checked_sub(first)? + 1;
    }
    Some(count)
}

/// The value of a line "name: value".
pub(super) fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let of_line = |line: &'a str| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim())
    };
    text.lines().find_map(of_line)
}

/// Cores in a quota of cgroups v2, "50000 100000" or "max 100000".
pub(super) fn quota_v2(cpu_max: &str) -> Option<f64> {
    let (quota, period) = cpu_max.trim().split_once(' ')?;
    ratio(quota.parse().ok()?, period.trim().parse().ok()?)
}

/// Cores in a quota of cgroups v1; -1 stands for none.
pub(super) fn quota_v1(quota_us: &str, period_us: &str) -> Option<f64> {
    ratio(quota_us.trim().parse().ok()?, period_us.trim().parse().ok()?)
}

fn ratio(quota_us: f64, period_us: f64) -> Option<f64> {
    (quota_us > 0.0 && period_us > 0.0).then(|| quota_us / period_us)
}

/// Scheduling policy and nice value, from /proc/self/stat.
pub(super) fn scheduling(stat: &str) -> Option<(&'static str, i32)> {
    // The name of the program may hold anything, and ends with the last parenthesis. The field after it is the third.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let (nice, policy) = (fields.get(19 - 3)?.parse().ok()?, *fields.get(41 - 3)?);
    let name = match policy {
        "0" => "other",
        "1" => "fifo",
        "2" => "rr",
        "3" => "batch",
        "5" => "idle",
        "6" => "deadline",
        "7" => "ext",
        _ => "unknown",
    };
    Some((name, nice))
}

/// The soft and the hard limit of this name in /proc/self/limits; `u64::MAX` for none.
pub(super) fn limit(limits: &str, name: &str) -> Option<(u64, u64)> {
    let mut words = limits.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace();
    let mut next = || match words.next()? {
        "unlimited" => Some(u64::MAX),
        number => number.parse().ok(),
    };
    Some((next()?, next()?))
}

/// The kind of container that /proc/1/cgroup or a mount betrays.
pub(super) fn container(cgroups: &str, has_dockerenv: bool, has_containerenv: bool) -> Option<&'static str> {
    let named = ["kubepods", "docker", "libpod", "lxc", "containerd"];
    let names = ["kubernetes", "docker", "podman", "lxc", "containerd"];
    let found = named.iter().position(|word| cgroups.contains(word)).map(|index| names[index]);
    found.or(has_dockerenv.then_some("docker")).or(has_containerenv.then_some("podman"))
}

/// Three numbers, as tcp_rmem has them: least, default, most.
pub(super) fn triple(text: &str) -> Option<[u64; 3]> {
    let numbers: Vec<u64> = text.split_whitespace().map_while(|word| word.parse().ok()).collect();
    numbers.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_counted() {
        for (list, count) in [("0", 1), ("0-3\n", 4), ("0-3,8,10-11", 7), ("", 0)] {
            assert_eq!(cpus_in_list(list), Some(count), "{list}");
        }
        assert_eq!((cpus_in_list("3-1"), cpus_in_list("a")), (None, None));
    }

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let status = "Name:\tcat\nCpus_allowed:\tff\nCpus_allowed_list:\t0-7\n";
        assert_eq!(field(status, "Cpus_allowed_list"), Some("0-7"));
        assert_eq!(field("model name\t: AMD EPYC 9\n", "model name"), Some("AMD EPYC 9"));
        assert_eq!(field(status, "Cpus"), None);
    }

    #[test]
    fn quotas_are_cores() {
        assert_eq!(
            (quota_v2("50000 100000\n"), quota_v2("max 100000\n"), quota_v2("")),
            (Some(0.5), None, None)
        );
        assert_eq!((quota_v1("250000\n", "100000\n"), quota_v1("-1\n", "100000\n")), (Some(2.5), None));
    }

    #[test]
    fn policies_are_read_behind_any_name() {
        let rest = "0 ".repeat(15);
        let stat = |policy: u32| format!("7 (a (b) c) R {rest}5 {}{policy} 0 0", "0 ".repeat(21));
        assert_eq!(scheduling(&stat(0)), Some(("other", 5)));
        assert_eq!(scheduling(&stat(2)), Some(("rr", 5)));
        assert_eq!(scheduling("7 (x) R 1 2"), None);
    }

    #[test]
    fn limits_are_two_numbers() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units     \n\
                      Max processes             96365                unlimited            processes \n\
                      Max open files            1024                 4096                 files     \n";
        assert_eq!(limit(limits, "Max open files"), Some((1024, 4096)));
        assert_eq!(limit(limits, "Max processes"), Some((96_365, u64::MAX)));
        assert_eq!(limit(limits, "Max locked memory"), None);
    }

    #[test]
    fn containers_are_known_by_their_marks() {
        assert_eq!(container("0::/kubepods/besteffort/docker-1", true, false), Some("kubernetes"));
        assert_eq!((container("0::/", true, false), container("0::/", false, false)), (Some("docker"), None));
    }

    #[test]
    fn triples_have_three_numbers() {
        assert_eq!(triple("4096\t131072\t6291456\n"), Some([4096, 131_072, 6_291_456]));
        assert_eq!((triple("1 2"), triple("1 2 x")), (None, None));
    }
}
