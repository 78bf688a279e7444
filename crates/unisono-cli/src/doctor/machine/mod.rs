//! This machine, the share that this process may use of it, and the causes of slowness on it.

mod backends;
mod facts;
mod parse;
pub(crate) mod single_copy;
mod slow;

use std::fmt::Display;

use serde::Serialize;

use crate::print;
use crate::problem::Result;
use backends::BackendFacts;
use facts::{Cores, HostNetwork, Limits, Machine, Tcp};
use slow::{Finding, findings};

/// The JSON document.
#[derive(Serialize)]
struct Examined<'a> {
    #[serde(flatten)]
    machine: &'a Machine,
    findings: &'a [Finding],
}

/// Prints the facts about this machine.
pub(super) fn machine(ranks: Option<u32>, json: bool) -> Result<()> {
    let machine = Machine::read(ranks)?;
    let findings = findings(&machine);
    if json {
        return print::document(&Examined { machine: &machine, findings: &findings });
    }
    let mut page = Page::default();
    whole(&machine, &mut page);
    judgement(&machine, &findings, &mut page);
    print::line(page.text.trim_end())
}

/// Sections of names and values.
#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    fn section(&mut self, title: &str) {
        self.text += &format!("{title}\n");
    }

    fn row(&mut self, name: &str, value: impl Display) {
        self.text += &format!("  {name:<28} {value}\n");
    }
}

const UNKNOWN: &str = "unknown";

fn known(value: &Option<impl Display>) -> String {
    value.as_ref().map_or_else(|| UNKNOWN.to_owned(), ToString::to_string)
}

fn whole(machine: &Machine, page: &mut Page) {
    page.section("machine");
    page.row("host", known(&machine.host));
    page.row("kernel", format!("{} on {}", known(&machine.kernel), machine.architecture));
    page.row("container", machine.container.unwrap_or("no sign of one"));
    page.row("clock source", known(&machine.clock_source));
    cores(&machine.cores, page);
    network(&machine.network, page);
    limits(&machine.limits, machine.ranks, page);
    tcp(&machine.tcp, page);
    page.section("unisono");
    match &machine.runtime_directory {
        Ok(path) => page.row("runtime directory", format!("{path}, usable")),
        Err(problem) => page.row("runtime directory", format!("not usable: {problem}")),
    }
    backends(&machine.backends, page);
    page.section(if machine.settings.is_empty() { "settings: all have their defaults" } else { "settings" });
    for one in &machine.settings {
        let mark = if one.problem.is_none() { "" } else { "   (unknown: no setting has this name)" };
        page.row(&one.name, format!("{}{mark}", one.value));
    }
}

fn backends(backends: &[BackendFacts], page: &mut Page) {
    for BackendFacts { name, problem, remedy, version, files, devices, capabilities } in backends {
        page.section(&format!("backend {name}"));
        match problem {
            Some(problem) => page.row("not usable", problem),
            None => page.row("usable", known(version)),
        }
        remedy.iter().for_each(|remedy| page.row("to do", remedy));
        if !files.is_empty() {
            page.row("files", files.join(" "));
        }
        devices.iter().for_each(|devices| page.row("works on", devices));
        // Operators, whose names are single words, mostly have the same types.
        let is_alike = |one: &(String, String), other: &(String, String)| {
            one.1 == other.1 && !one.0.contains(' ') && !other.0.contains(' ')
        };
        for alike in capabilities.chunk_by(is_alike) {
            let names: Vec<&str> = alike.iter().map(|(name, _)| name.as_str()).collect();
            page.row(&names.join(", "), &alike[0].1);
        }
    }
}

fn cores(cores: &Cores, page: &mut Page) {
    page.section("cores");
    page.row("processor", known(&cores.model));
    page.row("CPUs", format!("{} online", known(&cores.online)));
    page.row("affinity", format!("{} of them: {}", known(&cores.allowed), known(&cores.affinity)));
    page.row("quota", cores.quota.map_or("none".to_owned(), |quota| format!("{quota:.2} cores")));
    page.row("usable", format!("{} at a time", cores.usable));
    page.row("scheduling", format!("{}, nice {}", known(&cores.policy), known(&cores.nice)));
}

fn network(network: &HostNetwork, page: &mut Page) {
    page.section("network");
    for one in &network.interfaces {
        let speed = one.megabits_per_s.map_or(String::new(), |speed| format!(", {speed} Mbit/s"));
        page.row(&one.name, format!("{}, mtu {}{speed}", one.address, known(&one.mtu)));
    }
    match &network.listens_on {
        Ok(address) => page.row("ranks listen on", format!("{address}{}", named(network, *address))),
        Err(problem) => page.row("ranks listen on", format!("nothing: {problem}")),
    }
    let others = network.towards_others.map(|address| format!("{address}{}", named(network, address)));
    page.row("to other hosts", others.unwrap_or_else(|| "no default route of IPv4".to_owned()));
}

fn named(network: &HostNetwork, address: std::net::IpAddr) -> String {
    network.interface_of(address).map_or(String::new(), |one| format!(" ({})", one.name))
}

fn limits(limits: &Limits, ranks: u32, page: &mut Page) {
    let pair = |limit: Option<(u64, u64)>| {
        let text = |number: u64| if number == u64::MAX { "unlimited".to_owned() } else { number.to_string() };
        limit.map_or_else(
            || UNKNOWN.to_owned(),
            |(soft, hard)| format!("{} (hard {})", text(soft), text(hard)),
        )
    };
    page.section("limits");
    let needed = format!("; a rank among {ranks} needs up to {}", limits.open_files_of_rank);
    page.row("open files", pair(limits.open_files) + &needed);
    page.row("locked memory", format!("{} bytes", pair(limits.locked_memory_bytes)));
    page.row("processes", pair(limits.processes));
    let by = limits.memory_limited_by.as_ref().map_or(String::new(), |place| format!(" ({place})"));
    let shared = format!("at most {} of them carry data between ranks here", limits.rings_bytes);
    page.row("memory", format!("{} bytes{by}; {shared}", known(&limits.memory_bytes)));
}

fn tcp(tcp: &Tcp, page: &mut Page) {
    let pair =
        |least: &Option<u64>, most: &Option<u64>| format!("default {}, most {}", known(least), known(most));
    let triple = |numbers: &Option<[u64; 3]>| {
        let text =
            numbers.map(|[least, default, most]| format!("least {least}, default {default}, most {most}"));
        known(&text)
    };
    page.section("TCP");
    page.row("between hosts", known(&tcp.congestion_control));
    page.row(
        "within a host",
        match (&tcp.within_host, &tcp.within_host_problem) {
            (None, _) => "the system's".to_owned(),
            (Some(name), None) => name.clone(),
            (Some(name), Some(problem)) => format!("the system's, since {name} cannot be set: {problem}"),
        },
    );
    page.row("available", known(&tcp.available));
    page.row("net.core.rmem", pair(&tcp.core_rmem_default, &tcp.core_rmem_max));
    page.row("net.core.wmem", pair(&tcp.core_wmem_default, &tcp.core_wmem_max));
    page.row("net.ipv4.tcp_rmem", triple(&tcp.tcp_rmem));
    page.row("net.ipv4.tcp_wmem", triple(&tcp.tcp_wmem));
    page.row("net.ipv4.tcp_mem", format!("{} pages", triple(&tcp.tcp_mem_pages)));
}

fn judgement(machine: &Machine, findings: &[Finding], page: &mut Page) {
    let ranks = machine.ranks;
    if findings.is_empty() {
        page.section(&format!("nothing that would be slow with {ranks} ranks here"));
        return;
    }
    page.section(&format!("what will be slow with {ranks} ranks here, and why"));
    for Finding { what, remedy } in findings {
        page.text += &format!("  * {what}\n    {remedy}\n");
    }
}
