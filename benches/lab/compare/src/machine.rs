//! What the figures were measured on.

use std::fs;
use std::process::Command;

use crate::raw::Note;

/// Files that say in one line what matters.
const FILES: &[(&str, &str)] = &[
    ("kernel", "/proc/sys/kernel/osrelease"),
    ("system's congestion control", "/proc/sys/net/ipv4/tcp_congestion_control"),
    ("tcp_rmem", "/proc/sys/net/ipv4/tcp_rmem"),
    ("tcp_wmem", "/proc/sys/net/ipv4/tcp_wmem"),
    ("transparent huge pages", "/sys/kernel/mm/transparent_hugepage/enabled"),
    ("load at the start", "/proc/loadavg"),
];

/// The head of the raw figures.
pub(crate) fn facts() -> Vec<Note> {
    let fact = |name: &str, text: String| {
        let words: Vec<&str> = text.split_whitespace().collect();
        Note::Fact(name.to_owned(), words.join(" "))
    };
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let mut facts = vec![
        fact("processor", format!("{} x {}", cores, value("/proc/cpuinfo", "model name"))),
        fact("memory", value("/proc/meminfo", "MemTotal")),
    ];
    let read = |path: &str| fs::read_to_string(path).unwrap_or_else(|error| format!("unknown: {error}"));
    facts.extend(FILES.iter().map(|(name, path)| fact(name, read(path))));
    facts.push(fact("date", said_by("date", &["--utc", "+%Y-%m-%d %H:%M UTC"])));
    facts.push(fact("revision", said_by("git", &["describe", "--always", "--dirty"])));
    facts
}

/// The same as pairs of a name and a text.
pub(crate) fn named_facts() -> Vec<(String, String)> {
    let fact = |note| match note {
        Note::Fact(name, text) => Some((name, text)),
        Note::System { .. } | Note::Loss { .. } => None,
    };
    facts().into_iter().filter_map(fact).collect()
}

/// What stands behind `key` and a colon.
fn value(path: &str, key: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.split_once(':'));
    line.map_or_else(|| "unknown".to_owned(), |(_, value)| value.trim().to_owned())
}

fn said_by(program: &str, arguments: &[&str]) -> String {
    match Command::new(program).args(arguments).output() {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).into_owned(),
        Ok(output) => format!("unknown: {}", output.status),
        Err(error) => format!("unknown: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fact_is_one_line() {
        let facts = facts();
        assert!(facts.len() >= 8);
        for fact in facts {
            let line = fact.to_string();
            assert_eq!(line.parse(), Ok(fact));
            assert_eq!(line.lines().count(), 1, "{line}");
        }
    }
}
