//! The causes of slowness or failure on this machine, and a remedy for each: a pure function of the facts.

use serde::Serialize;
use unisono_job::RING_BYTES;

use super::facts::{Cores, HostNetwork, Limits, Machine, Tcp};

/// Clock sources that a process reads without asking the kernel.
const FAST_CLOCKS: [&str; 6] =
    ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter", "timebase", "riscv_clocksource"];
/// A rank has its own thread, and the threads of the control plane, of asynchronous calls and of records.
const THREADS_PER_RANK: u64 = 5;
/// A window that lets one connection on 10 Gbit/s and 1 ms go at full rate.
const SOCKET_BUFFER_BYTES_MIN: u64 = 1 << 20;
const SLOW_NETWORK_MEGABITS_PER_S: u32 = 1_000;

/// Something that will be slow, or fail.
#[derive(Debug, Serialize)]
pub(super) struct Finding {
    pub(super) what: String,
    pub(super) remedy: String,
}

fn finding(what: impl Into<String>, remedy: impl Into<String>) -> Finding {
    Finding { what: what.into(), remedy: remedy.into() }
}

/// All findings, the worst first.
pub(super) fn findings(machine: &Machine) -> Vec<Finding> {
    let broken = [
        machine.settings_problem.as_ref().map(|problem| {
            finding(
                format!("a rank with these settings is refused: {problem}"),
                "give it a value that can be obeyed, or unset it",
            )
        }),
        machine.runtime_directory.as_ref().err().map(|problem| {
            finding(
                format!("ranks of one host cannot meet without a launcher: {problem}"),
                "set XDG_RUNTIME_DIR or TMPDIR to a folder that is yours alone, or start with unisono run",
            )
        }),
    ];
    let mut all: Vec<Finding> = broken.into_iter().flatten().collect();
    all.extend(of_settings(machine));
    all.extend(of_backend(machine));
    all.extend(of_cores(&machine.cores, machine.ranks));
    all.extend(of_limits(&machine.limits, machine.ranks));
    all.extend(of_tcp(&machine.tcp));
    all.extend(of_network(&machine.network));
    all.extend(of_build(machine));
    all
}

/// Of the backend that the settings ask for.
fn of_backend(machine: &Machine) -> Vec<Finding> {
    let asked = machine.backends.iter().find(|one| one.name == machine.backend);
    let Some(asked) = asked else { return Vec::new() };
    if let Some(problem) = &asked.problem {
        let remedy = asked.remedy.as_deref().unwrap_or("let UNISONO_BACKEND be another");
        return vec![finding(format!("the backend {} cannot be used: {problem}", asked.name), remedy)];
    }
    if asked.name != "ccl" || machine.missing_ccl_variables.is_empty() {
        return Vec::new();
    }
    let variables = machine.missing_ccl_variables.join(" ");
    let what = "oneCCL waits in vain where ranks share cores: up to 34 ms for 4 KiB instead of 17 us";
    vec![finding(what, format!("start ranks with unisono run, or with {variables} in their environment"))]
}

fn of_settings(machine: &Machine) -> Vec<Finding> {
    let problems = machine.settings.iter().filter_map(|one| one.problem.clone());
    problems.map(|problem| finding(problem, "spell it as docs/settings.md does, or unset it")).collect()
}

fn of_cores(cores: &Cores, ranks: u32) -> Vec<Finding> {
    let usable = cores.usable;
    let crowded = || {
        let noun = if usable == 1 { "core" } else { "cores" };
        finding(
            format!(
                "{usable} {noun} for {ranks} ranks: they take turns, with a context switch in every round"
            ),
            format!(
                "start {usable} here, or give the job more cores: taskset, cpuset, --cpus of the container"
            ),
        )
    };
    let all = [
        (usable < ranks).then(crowded),
        cores.quota.filter(|&quota| quota < 1.0).map(|quota| {
            finding(
                format!("a quota of {quota:.2} cores: every rank is stopped for part of each 100 ms"),
                "raise the quota of the container or service to a core for each rank: --cpus, CPUQuota=",
            )
        }),
        cores.allowed.zip(cores.online).filter(|(allowed, online)| *allowed == 1 && *online > 1).map(
            |(_, online)| {
                finding(
                    format!("bound to 1 of {online} CPUs, and so is every rank that is started from here"),
                    "widen it: taskset -c, mpirun --bind-to none, srun --cpu-bind=none",
                )
            },
        ),
        cores.policy.filter(|policy| ["batch", "idle"].contains(policy)).map(|policy| {
            finding(
                format!("scheduling policy {policy}: a rank that waits wakes up late"),
                "start with the usual policy: chrt --other 0 COMMAND",
            )
        }),
        cores.nice.filter(|&nice| nice > 0).map(|nice| {
            finding(
                format!("nice {nice}: other programs go first on the same cores"),
                "start without nice, or on cores of its own",
            )
        }),
    ];
    all.into_iter().flatten().collect()
}

fn of_limits(limits: &Limits, ranks: u32) -> Vec<Finding> {
    let needed = limits.open_files_of_rank;
    let (files, processes) = (limits.open_files, limits.processes);
    let threads = THREADS_PER_RANK * u64::from(ranks);
    // One for each direction of each connection.
    let rings = u64::from(ranks) * u64::from(ranks - 1) * RING_BYTES as u64;
    let all = [
        (limits.rings_bytes < rings).then(|| {
            finding(
                format!(
                    "{} bytes for shared memory, and {ranks} ranks that all exchange data need {rings}: some of it \
                     goes over sockets",
                    limits.rings_bytes
                ),
                "give the container or service more memory (an eighth of it is shared, at most 1 GiB), or start fewer \
                 ranks here",
            )
        }),
        files.filter(|(soft, _)| *soft < needed).map(|(soft, hard)| {
            let remedy = match hard >= needed {
                true => format!("ulimit -n {needed}"),
                false => format!(
                    "let the administrator raise the hard limit of {hard} (limits.conf, LimitNOFILE=)"
                ),
            };
            finding(
                format!(
                    "{soft} open files, and a rank among {ranks} needs up to {needed}: connections may fail"
                ),
                remedy,
            )
        }),
        processes.filter(|(soft, _)| *soft < threads).map(|(soft, _)| {
            finding(
                format!(
                    "{soft} processes and threads, and {ranks} ranks have about {threads}: some cannot start"
                ),
                format!("ulimit -u {}", threads * 2),
            )
        }),
    ];
    all.into_iter().flatten().collect()
}

fn of_tcp(tcp: &Tcp) -> Vec<Finding> {
    let between = tcp.congestion_control.as_deref();
    let most = |triple: Option<[u64; 3]>| {
        triple.map(|[_, _, most]| most).filter(|&most| most < SOCKET_BUFFER_BYTES_MIN)
    };
    let all = [
        tcp.within_host.as_ref().zip(tcp.within_host_problem.as_ref()).map(|(name, problem)| {
            let system = between.unwrap_or("the system's");
            let allow = "sysctl -w net.ipv4.tcp_allowed_congestion_control";
            finding(
                format!("within this host {name} cannot be set ({problem}), so it stays {system}"),
                format!("modprobe tcp_{name}, or {allow}=\"{name} {system}\""),
            )
        }),
        between.filter(|name| *name == "bbr").map(|_| {
            finding(
                "bbr between hosts: within a host, long calls took up to twice as long on it as on reno",
                "measure with another: sysctl -w net.ipv4.tcp_congestion_control=reno",
            )
        }),
        most(tcp.tcp_rmem).map(|most| {
            finding(
                format!("a receive buffer grows to {most} bytes only, too little for a fast network"),
                "sysctl -w net.ipv4.tcp_rmem=\"4096 131072 33554432\"",
            )
        }),
        most(tcp.tcp_wmem).map(|most| {
            finding(
                format!("a send buffer grows to {most} bytes only, too little for a fast network"),
                "sysctl -w net.ipv4.tcp_wmem=\"4096 16384 33554432\"",
            )
        }),
    ];
    all.into_iter().flatten().collect()
}

fn of_network(network: &HostNetwork) -> Vec<Finding> {
    let address = network.towards_others;
    let interface = address.and_then(|address| network.interface_of(address));
    let slow = interface.and_then(|one| Some((one, one.megabits_per_s?)));
    let all = [
        network.listens_on.as_ref().err().map(|problem| {
            finding(format!("no rank can listen: {problem}"), "set UNISONO_INTERFACE or UNISONO_ADDRESS")
        }),
        slow.filter(|(_, speed)| *speed <= SLOW_NETWORK_MEGABITS_PER_S).map(|(one, speed)| {
            finding(
                format!("{} leads to other hosts with {speed} Mbit/s", one.name),
                "name a faster interface with UNISONO_INTERFACE, if there is one",
            )
        }),
    ];
    all.into_iter().flatten().collect()
}

fn of_build(machine: &Machine) -> Vec<Finding> {
    let slow_clock = machine.clock_source.as_deref().filter(|name| !FAST_CLOCKS.contains(name));
    let all = [
        slow_clock.map(|name| {
            finding(
                format!("clock source {name}: each look at the clock goes through the kernel"),
                "boot with clocksource=tsc, if the machine's tsc is stable",
            )
        }),
        machine
            .has_debug_assertions
            .then(|| finding("this program was built with debug assertions", "build with --release")),
    ];
    all.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cores() -> Cores {
        Cores {
            model: None,
            online: Some(8),
            affinity: None,
            allowed: Some(8),
            quota: None,
            usable: 8,
            policy: Some("other"),
            nice: Some(0),
        }
    }

    fn said(findings: &[Finding]) -> String {
        findings.iter().map(|one| format!("{} -> {}\n", one.what, one.remedy)).collect()
    }

    #[test]
    fn a_core_for_each_rank_is_well_and_less_is_not() {
        assert_eq!(said(&of_cores(&cores(), 8)), "");
        assert!(said(&of_cores(&cores(), 9)).contains("8 cores for 9 ranks"));
        let one = Cores { usable: 1, allowed: Some(1), ..cores() };
        let said_of_one = said(&of_cores(&one, 4));
        assert!(
            said_of_one.contains("1 core for 4 ranks") && said_of_one.contains("bound to 1 of 8"),
            "{said_of_one}"
        );
        assert!(said(&of_cores(&Cores { quota: Some(0.5), ..cores() }, 2)).contains("0.50 cores"));
        assert!(
            said(&of_cores(&Cores { policy: Some("batch"), nice: Some(5), ..cores() }, 2)).contains("nice 5")
        );
    }

    #[test]
    fn limits_are_held_against_what_a_job_needs() {
        let limits = |soft, hard| Limits {
            open_files: Some((soft, hard)),
            open_files_of_rank: 500,
            locked_memory_bytes: None,
            processes: Some((100, 100)),
            memory_bytes: None,
            memory_limited_by: None,
            rings_bytes: 1 << 30,
        };
        assert_eq!(said(&of_limits(&limits(500, 500), 8)), "");
        assert!(said(&of_limits(&limits(499, 4096), 8)).contains("ulimit -n 500"));
        assert!(said(&of_limits(&limits(499, 499), 8)).contains("administrator"));
        assert!(said(&of_limits(&limits(500, 500), 64)).contains("100 processes"));
        let rings = |rings_bytes| Limits { rings_bytes, processes: None, ..limits(500, 500) };
        assert_eq!(said(&of_limits(&rings(14 << 20), 8)), "");
        assert!(said(&of_limits(&rings((14 << 20) - 1), 8)).contains("goes over sockets"));
    }

    #[test]
    fn congestion_controls_and_buffers_are_judged() {
        let tcp = |between: &str, problem: Option<&str>, most| Tcp {
            congestion_control: Some(between.to_owned()),
            available: None,
            within_host: Some("reno".to_owned()),
            within_host_problem: problem.map(str::to_owned),
            core_rmem_default: None,
            core_rmem_max: None,
            core_wmem_default: None,
            core_wmem_max: None,
            tcp_rmem: Some([1, 2, most]),
            tcp_wmem: None,
            tcp_mem_pages: None,
        };
        assert_eq!(said(&of_tcp(&tcp("reno", None, 1 << 24))), "");
        assert!(said(&of_tcp(&tcp("bbr", None, 1 << 24))).starts_with("bbr between hosts"));
        assert_eq!(said(&of_tcp(&tcp("cubic", None, 1 << 24))), "");
        assert!(said(&of_tcp(&tcp("reno", Some("EPERM"), 1 << 24))).contains("reno cannot be set (EPERM)"));
        assert!(said(&of_tcp(&tcp("reno", None, 65_536))).contains("grows to 65536 bytes"));
    }
}
