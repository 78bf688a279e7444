//! Processes as `/proc` shows them: who descends from whom, and how much CPU time they took.

use std::fs;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// What one line of `/proc/PID/stat` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    parent: i32,
    cpu_ticks: u64,
}

/// `pid` and all that descend from it.
pub(crate) fn family(pid: i32) -> Vec<i32> {
    let everybody: Vec<(i32, i32)> = all().into_iter().map(|(pid, stat)| (pid, stat.parent)).collect();
    descendants(pid, &everybody)
}

/// All processes with `word` in their command line.
pub(crate) fn with_argument(word: &str) -> Vec<i32> {
    let has_it = |pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|argument| argument == word.as_bytes())
    };
    all().into_iter().map(|(pid, _)| pid).filter(has_it).collect()
}

fn descendants(pid: i32, everybody: &[(i32, i32)]) -> Vec<i32> {
    let mut found = vec![pid];
    let mut next = 0;
    while next < found.len() {
        let parent = found[next];
        let children = everybody.iter().filter(|(child, of)| *of == parent && !found.contains(child));
        let children: Vec<i32> = children.map(|(child, _)| *child).collect();
        found.extend(children);
        next += 1;
    }
    found
}

/// CPU time that these processes have taken so far.
pub(crate) fn cpu_time(pids: &[i32]) -> Duration {
    let ticks: u64 = pids.iter().filter_map(|pid| read(*pid)).map(|stat| stat.cpu_ticks).sum();
    Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// A signal to each of them that is still there.
pub(crate) fn signal(pids: &[i32], signal: Signal) {
    for pid in pids.iter().filter_map(|pid| Pid::from_raw(*pid)) {
        // It may have ended, which is no problem for any use of this.
        let _ = kill_process(pid, signal);
    }
}

fn all() -> Vec<(i32, Stat)> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid| Some((pid, read(pid)?))).collect()
}

fn read(pid: i32) -> Option<Stat> {
    parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The name stands in brackets and may itself hold brackets and spaces, so fields count from its end.
fn parse(line: &str) -> Option<Stat> {
    let (_, fields) = line.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let ticks = |index: usize| fields.get(index)?.parse::<u64>().ok();
    Some(Stat { parent: fields.get(1)?.parse().ok()?, cpu_ticks: ticks(11)? + ticks(12)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_whatever_the_name() {
        let line = "42 (a) b (c) S 7 42 42 0 -1 4194560 1 2 3 4 50 60 0 0 20 0 1 0 9 8 7";
        assert_eq!(parse(line), Some(Stat { parent: 7, cpu_ticks: 110 }));
        assert_eq!(parse("42 (x) S"), None);
    }

    #[test]
    fn families_are_found_over_generations() {
        let everybody = [(2, 1), (3, 2), (4, 3), (5, 1), (6, 3), (1, 0)];
        assert_eq!(descendants(2, &everybody), [2, 3, 4, 6]);
        assert_eq!(descendants(9, &everybody), [9]);
    }

    #[test]
    fn this_process_is_in_its_own_family() {
        let own = std::process::id() as i32;
        assert_eq!(family(own).first(), Some(&own));
    }
}
