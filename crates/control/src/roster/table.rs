//! The ranks of a job as a table of few bytes: who listens where, on which host, as which process.
//!
//! One host sends this table to every rank, so its length decides how long thousands of ranks take to meet. A rank
//! mostly says the same as its neighbours. So a site (an IP address, a host, its name, a pid namespace) is written
//! once, and a rank has the number of its site, its port, and the differences of its pid and start time from the
//! numbers of the rank before it at that site. A usual rank takes some 5 bytes, and a host some 15 more.
//!
//! The order of bytes: the number of ranks as `u32`; then for each rank its site, as 0 before a new site, else as 1 +
//! the difference from the site of the rank before; its port as `u16`; its pid; and, where the site has a pid
//! namespace, its start time. Numbers are as short as in [`Writer::short`] and [`Writer::beside`].

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use unisono_communicator::{Process, beginning};

use super::message::{HOST_NAME_BYTES_MAX, ProcessBirth, RankProcess};
use crate::codec::{Malformed, Reader, Writer, folded, unfolded};

/// The most bytes of a rank: its site with flags, address, host, name and pid namespace; its port, pid and start time.
pub(super) const ROW_BYTES_MAX: usize = 5 + (1 + 16 + 5 + 3 + HOST_NAME_BYTES_MAX + 10) + 2 + 5 + 10;

/// The fewest bytes of a rank: site, port, pid.
const ROW_BYTES_MIN: usize = 4;

/// The flags of a site.
const IS_V6: u8 = 1;
const HAS_BIRTH: u8 = 2;

/// The columns of a table, with a value for each rank.
#[derive(Debug, Default)]
pub(super) struct Rows {
    pub(super) addresses: Vec<SocketAddr>,
    pub(super) hosts: Vec<u32>,
    pub(super) processes: Vec<RankProcess>,
}

/// The common properties of ranks of one site.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Site {
    ip: IpAddr,
    host: u32,
    name: Arc<str>,
    pid_namespace: Option<u64>,
}

impl Site {
    /// The predecessor with which the first site of a table is compared.
    fn before_the_first() -> Site {
        Site { ip: Ipv4Addr::UNSPECIFIED.into(), host: 0, name: "".into(), pid_namespace: None }
    }

    /// The IPv4 address from which the next one differs.
    fn v4(&self) -> u32 {
        match self.ip {
            IpAddr::V4(ip) => ip.to_bits(),
            IpAddr::V6(_) => 0,
        }
    }

    /// Writes it behind `before`, the newest site until then; its host is most likely `next_host`.
    fn write(&self, writer: &mut Writer, before: &Site, next_host: u32) {
        let has_birth = if self.pid_namespace.is_some() { HAS_BIRTH } else { 0 };
        match self.ip {
            IpAddr::V4(ip) => writer.u8(has_birth).beside(before.v4().into(), ip.to_bits().into()),
            IpAddr::V6(ip) => writer.u8(has_birth | IS_V6).array(&ip.octets()),
        };
        writer.beside(next_host.into(), self.host.into());
        write_name(writer, before.name.as_bytes(), self.name.as_bytes());
        if let Some(namespace) = self.pid_namespace {
            writer.beside(before.pid_namespace.unwrap_or(0), namespace);
        }
    }

    fn read(reader: &mut Reader<'_>, before: &Site, next_host: u32) -> Result<Site, Malformed> {
        let flags = reader.u8()?;
        if flags & !(IS_V6 | HAS_BIRTH) != 0 {
            return Err(Malformed { what: "a site of an unknown kind" });
        }
        let ip = match flags & IS_V6 {
            0 => IpAddr::V4(Ipv4Addr::from_bits(reader.beside_u32(before.v4())?)),
            _ => IpAddr::from(reader.array::<16>()?),
        };
        let host = reader.beside_u32(next_host)?;
        let name = read_name(reader, before.name.as_bytes())?;
        let name = String::from_utf8(name).map_err(|_| Malformed { what: "a text is not UTF-8" })?;
        let namespace = (flags & HAS_BIRTH != 0).then(|| reader.beside(before.pid_namespace.unwrap_or(0)));
        Ok(Site { ip, host, name: name.into(), pid_namespace: namespace.transpose()? })
    }
}

/// Appends a name: how many bytes its beginning and its end have in common with another name, and those between.
/// The hosts of a cluster differ in a number.
fn write_name(writer: &mut Writer, old: &[u8], new: &[u8]) {
    let same = |(old, new): &(&u8, &u8)| old == new;
    let first = old.iter().zip(new).take_while(same).count();
    let (old, new) = (&old[first..], &new[first..]);
    let last = old.iter().rev().zip(new.iter().rev()).take_while(same).count();
    let between = &new[..new.len() - last];
    writer.short(first as u64).short(last as u64).short(between.len() as u64).array(between);
}

fn read_name(reader: &mut Reader<'_>, old: &[u8]) -> Result<Vec<u8>, Malformed> {
    let mut length = || Ok(usize::try_from(reader.short()?).unwrap_or(usize::MAX));
    let (first, last, between) = (length()?, length()?, length()?);
    let same = old.split_at_checked(first).and_then(|(first, rest)| {
        let at = rest.len().checked_sub(last)?;
        Some((first, &rest[at..]))
    });
    let (first, last) = same.ok_or(Malformed { what: "a name is shorter than its parts" })?;
    if between > HOST_NAME_BYTES_MAX.saturating_sub(first.len() + last.len()) {
        return Err(Malformed { what: "a name is longer than allowed" });
    }
    let mut name = first.to_vec();
    for _ in 0..between {
        name.push(reader.u8()?);
    }
    name.extend_from_slice(last);
    Ok(name)
}

/// The sites of a table so far.
#[derive(Debug)]
struct Sites {
    /// Each with the pid and the start time of its last rank.
    all: Vec<(Site, u32, u64)>,
    /// The site of the last rank.
    last: usize,
    next_host: u32,
}

impl Sites {
    fn new() -> Sites {
        Sites { all: Vec::new(), last: 0, next_host: 0 }
    }

    fn newest(&self) -> Site {
        self.all.last().map_or_else(Site::before_the_first, |(site, ..)| site.clone())
    }

    fn add(&mut self, site: Site) {
        self.next_host = self.next_host.max(site.host.saturating_add(1));
        // The first rank of a site has been started at about the time of the rank before it.
        let (pid, ticks) = self.all.get(self.last).map_or((0, 0), |(_, pid, ticks)| (*pid, *ticks));
        self.last = self.all.len();
        self.all.push((site, pid, ticks));
    }
}

/// Appends the table of these ranks.
pub(super) fn write_rows(
    writer: &mut Writer,
    (addresses, hosts, processes): (&[SocketAddr], &[u32], &[RankProcess]),
) {
    let count = addresses.len().min(hosts.len()).min(processes.len());
    writer.u32(count as u32);
    let (mut sites, mut known) = (Sites::new(), BTreeMap::new());
    for ((address, host), RankProcess { process, birth }) in addresses.iter().zip(hosts).zip(processes) {
        let pid_namespace = birth.map(|birth| birth.pid_namespace);
        let name = match beginning(&process.host, HOST_NAME_BYTES_MAX) {
            whole if whole.len() == process.host.len() => process.host.clone(),
            cut => cut.into(),
        };
        let site = Site { ip: address.ip(), host: *host, name, pid_namespace };
        match known.get(&site) {
            Some(&index) => {
                writer.short(1 + folded((index as u64).wrapping_sub(sites.last as u64)));
                sites.last = index;
            }
            None => {
                writer.u8(0);
                site.write(writer, &sites.newest(), sites.next_host);
                known.insert(site.clone(), sites.all.len());
                sites.add(site);
            }
        }
        let last = sites.last;
        let Some((_, pid, ticks)) = sites.all.get_mut(last) else { return };
        writer.u16(address.port()).beside((*pid).into(), process.pid.into());
        *pid = process.pid;
        if let Some(birth) = birth {
            writer.beside(*ticks, birth.start_ticks);
            *ticks = birth.start_ticks;
        }
    }
}

/// Reads a table of at most `ranks_max` ranks.
pub(super) fn read_rows(reader: &mut Reader<'_>, ranks_max: usize) -> Result<Rows, Malformed> {
    let count = reader.length(ranks_max, ROW_BYTES_MIN)?;
    let (mut sites, mut rows) = (Sites::new(), Rows::default());
    for _ in 0..count {
        match reader.short()?.checked_sub(1) {
            None => {
                let site = Site::read(reader, &sites.newest(), sites.next_host)?;
                sites.add(site);
            }
            Some(coded) => {
                let index = (sites.last as u64).wrapping_add(unfolded(coded));
                sites.last = usize::try_from(index).unwrap_or(usize::MAX);
            }
        }
        let last = sites.last;
        let known =
            sites.all.get_mut(last).ok_or(Malformed { what: "a site that the table does not have" })?;
        let (site, pid, ticks) = known;
        rows.addresses.push(SocketAddr::new(site.ip, reader.u16()?));
        rows.hosts.push(site.host);
        *pid = reader.beside_u32(*pid)?;
        let birth = match site.pid_namespace {
            None => None,
            Some(pid_namespace) => {
                *ticks = reader.beside(*ticks)?;
                Some(ProcessBirth { pid_namespace, start_ticks: *ticks })
            }
        };
        rows.processes.push(RankProcess { process: Process { host: site.name.clone(), pid: *pid }, birth });
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn table(rows: &Rows) -> Vec<u8> {
        let mut writer = Writer::new();
        write_rows(&mut writer, (&rows.addresses, &rows.hosts, &rows.processes));
        writer.finish()
    }

    fn read(bytes: &[u8]) -> Result<Rows, Malformed> {
        let mut reader = Reader::new(bytes);
        let rows = read_rows(&mut reader, 100_000)?;
        reader.finish().map(|()| rows)
    }

    /// A number that is the same for the same `seed`, and looks random.
    fn noise(seed: u32) -> u64 {
        u64::from(seed).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31) >> 8
    }

    /// A job as launchers start it: 8 ranks on each host, in blocks or one host after the other.
    fn usual(ranks: u32, is_cyclic: bool) -> Rows {
        let mut rows = Rows::default();
        let hosts = ranks / 8;
        for rank in 0..ranks {
            let host = if is_cyclic { rank % hosts } else { rank / 8 };
            let ip = Ipv4Addr::from_bits(0x0a00_0100 + host);
            let port = 32_768 + (noise(rank) % 28_232) as u16;
            rows.addresses.push((ip, port).into());
            rows.hosts.push(host);
            let name = format!("node{:05}.cluster.example", host + 1).into();
            let pid = (noise(host) % 4_000_000) as u32 + noise(rank) as u32 % 20;
            let start_ticks = noise(host) % 100_000_000 + noise(rank) % 50;
            let birth = Some(ProcessBirth { pid_namespace: 4_026_531_836, start_ticks });
            rows.processes.push(RankProcess { process: Process { host: name, pid }, birth });
        }
        rows
    }

    #[test]
    fn a_usual_rank_takes_few_bytes() {
        for ranks in [1024, 4096, 10_000] {
            for is_cyclic in [false, true] {
                let bytes = table(&usual(ranks, is_cyclic)).len();
                assert!(bytes as u32 <= 8 * ranks, "{bytes} bytes for {ranks} ranks, cyclic: {is_cyclic}");
            }
        }
    }

    fn site() -> impl Strategy<Value = (IpAddr, u32, String, Option<u64>)> {
        let ip = prop_oneof![
            any::<[u8; 4]>().prop_map(IpAddr::from),
            any::<[u8; 16]>().prop_map(IpAddr::from),
            (0u8..4).prop_map(|last| IpAddr::from([10, 0, 0, last])),
        ];
        let name = prop_oneof!["n[0-3]{0,3}", "n[0-9][.]cluster", ".{0,16}"];
        (ip, prop_oneof![0u32..4, any::<u32>()], name, any::<Option<u64>>())
    }

    prop_compose! {
        /// Ranks at a few sites, with usual or with any numbers.
        fn rows()(
            sites in proptest::collection::vec(site(), 1..6),
            ranks in proptest::collection::vec((any::<usize>(), any::<u16>(), any::<u32>(), any::<u64>()), 0..40),
        ) -> Rows {
            let mut rows = Rows::default();
            for (site, port, pid, start_ticks) in ranks {
                let (ip, host, name, namespace) = sites[site % sites.len()].clone();
                rows.addresses.push(SocketAddr::new(ip, port));
                rows.hosts.push(host);
                let birth = namespace.map(|pid_namespace| ProcessBirth { pid_namespace, start_ticks });
                rows.processes.push(RankProcess { process: Process { host: name.into(), pid }, birth });
            }
            rows
        }
    }

    proptest! {
        #[test]
        fn tables_survive_the_wire_whole_and_only_whole(rows in rows()) {
            let bytes = table(&rows);
            prop_assert!(bytes.len() <= 4 + rows.hosts.len() * ROW_BYTES_MAX);
            prop_assert!((0..bytes.len()).all(|end| read(&bytes[..end]).is_err()));
            let again = read(&bytes).unwrap();
            prop_assert_eq!(again.addresses, rows.addresses);
            prop_assert_eq!(again.hosts, rows.hosts);
            prop_assert_eq!(again.processes, rows.processes);
        }

        #[test]
        fn junk_is_refused_without_a_panic(ranks in 0u8..9, flags: u8, mut junk: Vec<u8>) {
            // Most junk would end at the number of ranks, or at the first site.
            junk.splice(0..0, [ranks, 0, 0, 0, 0, flags]);
            if let Ok(rows) = read(&junk) {
                let again = read(&table(&rows)).unwrap();
                prop_assert_eq!(again.processes, rows.processes);
            }
        }
    }
}
