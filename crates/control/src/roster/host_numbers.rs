//! The ranks that share a host, as far as their reports can be believed. Where it is doubtful they count as on several:
//! then their streams have checksums, and the loss of a rank is proven less easily. The other mistake splits a job in
//! two.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::message::{Arrival, HostId, ranges, ranges_text};

/// The common properties of ranks of one host.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    id: HostId,
    /// The address at which they listen, and the launcher there that has started them; `None` for a host that a person
    /// has named.
    found: Option<(IpAddr, usize)>,
}

/// The number of every rank's host, hosts numbered by their first rank, and the doubt in words, if there is any.
pub(super) fn number_hosts(arrivals: &[Arrival]) -> (Vec<u32>, String) {
    let places = places(arrivals);
    let (mut numbers, mut hosts) = (BTreeMap::new(), Vec::with_capacity(places.len()));
    for place in &places {
        let next = numbers.len() as u32;
        hosts.push(*numbers.entry(*place).or_insert(next));
    }
    let mut ranks_of = BTreeMap::<HostId, Vec<u32>>::new();
    (0..).zip(&places).for_each(|(rank, place)| ranks_of.entry(place.id).or_default().push(rank));
    let is_doubtful =
        |ranks: &Vec<u32>| ranks.iter().any(|&rank| hosts[rank as usize] != hosts[ranks[0] as usize]);
    let doubtful: Vec<String> = ranks_of
        .into_values()
        .filter(is_doubtful)
        .map(|ranks| ranges_text(&ranges(ranks.iter().copied()), ranks.len() as u32))
        .collect();
    if doubtful.is_empty() {
        return (hosts, String::new());
    }
    let doubt = format!(
        "{} may share a host, but their addresses or the launchers' counts say otherwise: they count as on several \
         hosts; if they do share one, give them the same UNISONO_HOST_ID",
        doubtful.join("; ")
    );
    (hosts, doubt)
}

fn places(arrivals: &[Arrival]) -> Vec<Place> {
    let mut seen = BTreeMap::<(HostId, IpAddr), usize>::new();
    let key = |arrival: &Arrival| (arrival.host.id, arrival.address.ip());
    let mut totals = BTreeMap::<(HostId, IpAddr), usize>::new();
    arrivals.iter().for_each(|arrival| *totals.entry(key(arrival)).or_default() += 1);
    let place = |arrival: &Arrival| {
        let before = seen.entry(key(arrival)).or_default();
        let position = std::mem::replace(before, *before + 1);
        // A launcher that has started fewer than are here is not the only one here.
        let started = arrival.host.local_ranks.map(|ranks| ranks as usize);
        let launcher =
            started.filter(|&ranks| ranks < totals[&key(arrival)]).map_or(0, |ranks| position / ranks);
        let found = (!arrival.host.is_named).then_some((arrival.address.ip(), launcher));
        Place { id: arrival.host.id, found }
    };
    arrivals.iter().map(place).collect()
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use unisono_communicator::Process;

    use super::super::cpus::tests::bound_to;
    use super::super::message::{HOST_ID_BYTES, HostClaim, RankProcess};
    use super::*;

    fn arrival(ip: u8, local_ranks: Option<u32>, is_named: bool) -> Arrival {
        let process = RankProcess { process: Process { host: "h".into(), pid: 1 }, birth: None };
        Arrival {
            address: SocketAddr::from(([10, 0, 0, ip], 1)),
            host: HostClaim { id: [7; HOST_ID_BYTES], is_named, local_ranks },
            process,
            run: String::new(),
            wait: 0,
            wait_ms: 0,
            job_settings: Vec::new(),
            backend: "tcp".to_owned(),
            cpus: bound_to(0),
        }
    }

    fn hosts(arrivals: &[Arrival]) -> (Vec<u32>, bool) {
        let (hosts, doubt) = number_hosts(arrivals);
        (hosts, !doubt.is_empty())
    }

    #[test]
    fn ranks_that_say_the_same_share_a_host() {
        assert_eq!(hosts(&[arrival(1, None, false), arrival(1, None, false)]), (vec![0, 0], false));
        assert_eq!(hosts(&[arrival(1, Some(2), false), arrival(1, Some(2), false)]), (vec![0, 0], false));
    }

    #[test]
    fn other_addresses_make_it_doubtful() {
        let ranks = [arrival(1, None, false), arrival(2, None, false), arrival(1, None, false)];
        assert_eq!(hosts(&ranks), (vec![0, 1, 0], true));
    }

    #[test]
    fn two_launchers_on_one_host_count_as_two_hosts() {
        let ranks = [0; 4].map(|_| arrival(1, Some(2), false));
        assert_eq!(hosts(&ranks), (vec![0, 0, 1, 1], true));
        let text = number_hosts(&ranks).1;
        assert!(text.starts_with("ranks 0-3 may share a host") && text.contains("UNISONO_HOST_ID"), "{text}");
    }

    #[test]
    fn a_host_that_a_person_has_named_is_believed() {
        let ranks = [arrival(1, Some(1), true), arrival(2, Some(1), true)];
        assert_eq!(hosts(&ranks), (vec![0, 0], false));
    }
}
