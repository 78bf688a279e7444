//! Hosts and their slots, as a user writes them: hostfiles of DeepSpeed, Open MPI and MPICH, and the list of `--hosts`.

use std::collections::BTreeMap;

use crate::arguments::LOCAL_RANKS_MAX;

/// A host, and the numbers of its slots. A slot is a place for one rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) slots: Vec<u32>,
}

impl Host {
    fn new(name: &str, slots: u32) -> Host {
        Host { name: name.to_owned(), slots: (0..slots).collect() }
    }
}

/// The hosts of a hostfile, in its order. An error names the line.
pub(crate) fn parse_hostfile(text: &str) -> Result<Vec<Host>, String> {
    let mut lines: BTreeMap<String, usize> = BTreeMap::new();
    let mut hosts = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let said = line.split('#').next().unwrap_or_default();
        let in_line = |problem: String| format!("line {number}: {problem}");
        let Some(host) = parse_line(said).map_err(in_line)? else { continue };
        if let Some(earlier) = lines.insert(host.name.clone(), number) {
            let problem =
                format!("host {} is in line {earlier} too: one line a host, with all slots", host.name);
            return Err(in_line(problem));
        }
        hosts.push(host);
    }
    if hosts.is_empty() { Err("it names no host; a line is: NAME slots=NUMBER".into()) } else { Ok(hosts) }
}

/// `NAME slots=NUMBER`, with `max_slots=NUMBER` behind it or not; spaces may stand around the sign. Or `NAME:NUMBER`.
fn parse_line(line: &str) -> Result<Option<Host>, String> {
    let spaced = line.replace('=', " = ");
    let mut words = spaced.split_whitespace();
    let Some(item) = words.next() else { return Ok(None) };
    let (name, mut slots) = parse_item(item)?;
    let words: Vec<&str> = words.collect();
    let mut slots_max = None;
    for words in words.chunks(3) {
        let &[key, "=", value] = words else {
            return Err(format!(
                "host {name}: {:?} is not understood; a line is: NAME slots=NUMBER",
                words.join(" ")
            ));
        };
        let place = match key {
            "slots" => &mut slots,
            "max_slots" | "max-slots" => &mut slots_max,
            _ => return Err(format!("host {name}: unknown word {key:?}, one of: slots, max_slots")),
        };
        let number = parse_slots(key, value).map_err(|problem| format!("host {name}: {problem}"))?;
        if place.replace(number).is_some() {
            return Err(format!("host {name}: {key} is there twice"));
        }
    }
    // Without a number DeepSpeed refuses the line, and Open MPI counts the cores of the host.
    let missing = || format!("host {name}: the number of its slots is missing; write: {name} slots=NUMBER");
    let slots = slots.ok_or_else(missing)?;
    match slots_max.filter(|most| *most < slots) {
        Some(most) => Err(format!("host {name}: slots={slots} is more than max_slots={most}")),
        None => Ok(Some(Host::new(name, slots))),
    }
}

/// The hosts of `--hosts a,b:4`; a host without a number has one slot.
pub(crate) fn parse_list(text: &str) -> Result<Vec<Host>, String> {
    let mut hosts: Vec<Host> = Vec::new();
    for item in text.split(',').map(str::trim) {
        let (name, slots) = parse_item(item)?;
        if hosts.iter().any(|host| host.name == name) {
            return Err(format!("host {name} is there twice: {name}:NUMBER gives it several ranks"));
        }
        hosts.push(Host::new(name, slots.unwrap_or(1)));
    }
    Ok(hosts)
}

/// `NAME` or `NAME:SLOTS`; an IPv6 address with a number needs brackets.
fn parse_item(item: &str) -> Result<(&str, Option<u32>), String> {
    let bracketed = item.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    let (name, number) = match (bracketed, item.split_once(':')) {
        (Some((address, "")), _) => (address, None),
        (Some((address, rest)), _) => match rest.strip_prefix(':') {
            Some(number) => (address, Some(number)),
            None => return Err(format!("{item:?} is not understood; the form is NAME or NAME:SLOTS")),
        },
        (None, Some((name, number))) if !number.contains(':') => (name, Some(number)),
        (None, _) => (item, None),
    };
    check_name(name)?;
    let slots = number.map(|number| parse_slots("slots", number)).transpose();
    Ok((name, slots.map_err(|problem| format!("host {name}: {problem}"))?))
}

fn parse_slots(key: &str, value: &str) -> Result<u32, String> {
    let number = value.parse().ok().filter(|number| (1..=LOCAL_RANKS_MAX).contains(number));
    number.ok_or_else(|| format!("{key}={value}: a whole number from 1 to {LOCAL_RANKS_MAX} is needed"))
}

/// A name becomes a word of a command, so it must not look like an option.
fn check_name(name: &str) -> Result<(), String> {
    let is_part = |letter: char| letter.is_alphanumeric() || "-._@:%".contains(letter);
    if name.starts_with(char::is_alphanumeric) && name.chars().all(is_part) || name.starts_with("::") {
        return Ok(());
    }
    Err(format!("{name:?} is no name or address of a host"))
}

/// A choice among the hosts, in DeepSpeed's form: `NAME@NAME:SLOT,SLOT`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Choice<'t> {
    All,
    Include(&'t str),
    Exclude(&'t str),
}

impl Choice<'_> {
    /// The hosts and slots that are left, in the order of the hosts.
    pub(crate) fn of(self, hosts: Vec<Host>) -> Result<Vec<Host>, String> {
        let (option, text) = match self {
            Choice::All => return Ok(hosts),
            Choice::Include(text) => ("--include", text),
            Choice::Exclude(text) => ("--exclude", text),
        };
        let failed = |problem: String| format!("{option} {text}: {problem}");
        let named = parse_choice(text, &hosts).map_err(failed)?;
        let is_included = matches!(self, Choice::Include(_));
        let mut left = Vec::new();
        for Host { name, mut slots } in hosts {
            slots.retain(|slot| named.get(&name).is_some_and(|chosen| chosen.contains(slot)) == is_included);
            if !slots.is_empty() {
                left.push(Host { name, slots });
            }
        }
        if left.is_empty() { Err(failed("it leaves no host".into())) } else { Ok(left) }
    }
}

/// The named hosts, each with the named slots, or with all.
fn parse_choice(text: &str, hosts: &[Host]) -> Result<BTreeMap<String, Vec<u32>>, String> {
    let mut named = BTreeMap::new();
    for item in text.split('@').map(str::trim) {
        // The name itself may have colons, as an IPv6 address has.
        let whole = hosts.iter().find(|host| host.name == item);
        let (name, numbers) = match item.rsplit_once(':') {
            Some((name, numbers)) if whole.is_none() => (name, Some(numbers)),
            Some(_) | None => (item, None),
        };
        let host = hosts.iter().find(|host| host.name == name).ok_or_else(|| {
            let names: Vec<&str> = hosts.iter().map(|host| host.name.as_str()).collect();
            format!("unknown host {name:?}, one of: {}", names.join(", "))
        })?;
        let slots = match numbers {
            None => host.slots.clone(),
            Some(numbers) => numbers.split(',').map(|number| slot(host, number)).collect::<Result<_, _>>()?,
        };
        if named.insert(name.to_owned(), slots).is_some() {
            return Err(format!("host {name} is there twice"));
        }
    }
    Ok(named)
}

fn slot(host: &Host, number: &str) -> Result<u32, String> {
    let slot = number.trim().parse().ok().filter(|slot| host.slots.contains(slot));
    slot.ok_or_else(|| {
        format!("host {} has no slot {number:?}: its slots are 0 to {}", host.name, host.slots.len() - 1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(hosts: &[Host]) -> Vec<(&str, Vec<u32>)> {
        hosts.iter().map(|host| (host.name.as_str(), host.slots.clone())).collect()
    }

    #[test]
    fn c10_hostfiles_of_deepspeed_open_mpi_and_mpich_are_read() {
        let text = "# my hosts\nworker-1 slots=2\r\n\n  10.0.0.7 slots = 1   # the old one\n\
                    user@c max_slots=8 slots=3\nd slots=1 max-slots=1\nfe80::1 slots=1\nlocalhost slots=1\n\
                    e:2 # of MPICH\n[::1]:2\n";
        let hosts = parse_hostfile(text).unwrap();
        let slots = [2, 1, 3, 1, 1, 1, 2, 2].map(|slots| (0..slots).collect::<Vec<u32>>());
        let expected = ["worker-1", "10.0.0.7", "user@c", "d", "fe80::1", "localhost", "e", "::1"];
        assert_eq!(names(&hosts), expected.into_iter().zip(slots).collect::<Vec<_>>());
    }

    #[test]
    fn c10_a_hostfile_that_cannot_be_obeyed_names_line_and_fault() {
        for (text, expected) in [
            ("", "it names no host"),
            ("# nothing\n", "it names no host"),
            ("a slots=1\n\na slots=2\n", "line 3: host a is in line 1 too"),
            ("a\n", "line 1: host a: the number of its slots is missing; write: a slots=NUMBER"),
            ("a:2 slots=2\n", "slots is there twice"),
            ("a:0\n", "line 1: host a: slots=0: a whole number"),
            ("a slots=0\n", "line 1: host a: slots=0: a whole number from 1 to 1024"),
            ("a slots=1025\n", "slots=1025: a whole number from 1 to 1024"),
            ("a slots=99999999999\n", "slots=99999999999: a whole number"),
            ("a slots=-1\n", "slots=-1: a whole number"),
            ("a slots\n", "\"slots\" is not understood"),
            ("a slots=\n", "\"slots =\" is not understood"),
            ("a slots=1 slots=2\n", "slots is there twice"),
            ("a slots=4 max_slots=2\n", "slots=4 is more than max_slots=2"),
            ("a cpus=4\n", "unknown word \"cpus\", one of: slots, max_slots"),
            ("-oProxyCommand=x slots=1\n", "is no name or address of a host"),
            ("+n0 slots=1\n", "\"+n0\" is no name"),
            ("^a slots=1\n", "\"^a\" is no name"),
            ("a;b slots=1\n", "\"a;b\" is no name"),
            ("=4\n", "\"=\" is no name"),
        ] {
            let problem = parse_hostfile(text).unwrap_err();
            assert!(problem.contains(expected), "{text:?}: {problem}");
        }
    }

    #[test]
    fn c10_hosts_of_the_command_line_are_read() {
        let hosts = parse_list("a, b:4,[fe80::1]:2,::1,[::2],user@c:1").unwrap();
        let counts: Vec<_> = hosts.iter().map(|host| (host.name.as_str(), host.slots.len())).collect();
        assert_eq!(counts, [("a", 1), ("b", 4), ("fe80::1", 2), ("::1", 1), ("::2", 1), ("user@c", 1)]);
        for (text, expected) in [
            ("", "\"\" is no name"),
            ("a,,b", "\"\" is no name"),
            ("a,b,a", "host a is there twice: a:NUMBER"),
            ("a:0", "host a: slots=0"),
            ("a:x", "host a: slots=x"),
            ("a:", "host a: slots=:"),
            ("[::1]4", "\"[::1]4\" is not understood"),
            ("-n:4", "\"-n\" is no name"),
        ] {
            let problem = parse_list(text).unwrap_err();
            assert!(problem.contains(expected), "{text:?}: {problem}");
        }
    }

    #[test]
    fn c10_a_choice_keeps_or_leaves_out_hosts_and_slots() {
        let hosts = || parse_list("a:4,b:4,[fe80::1]:2").unwrap();
        let include = |text| Choice::Include(text).of(hosts());
        let exclude = |text| Choice::Exclude(text).of(hosts());
        let (all, two) = (vec![0, 1, 2, 3], vec![0, 1]);
        assert_eq!(names(&Choice::All.of(hosts()).unwrap()).len(), 3);
        assert_eq!(names(&include("b@a:0,2").unwrap()), [("a", vec![0, 2]), ("b", all.clone())]);
        assert_eq!(names(&include("fe80::1").unwrap()), [("fe80::1", two.clone())]);
        assert_eq!(names(&include("fe80::1:1").unwrap()), [("fe80::1", vec![1])]);
        assert_eq!(names(&exclude("a@b:0").unwrap()), [("b", vec![1, 2, 3]), ("fe80::1", two)]);
        for (result, expected) in [
            (include("c"), "--include c: unknown host \"c\", one of: a, b, fe80::1"),
            (include("a:4"), "--include a:4: host a has no slot \"4\": its slots are 0 to 3"),
            (include("a@a:1"), "host a is there twice"),
            (include("a:"), "host a has no slot \"\""),
            (exclude("a@b@fe80::1"), "it leaves no host"),
        ] {
            let problem = result.unwrap_err();
            assert!(problem.contains(expected), "{problem}");
        }
        assert_eq!(names(&exclude("b@fe80::1").unwrap()), [("a", all)]);
    }
}
