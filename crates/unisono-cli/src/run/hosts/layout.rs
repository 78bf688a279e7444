//! The layout of a job: its ranks on each host, in the order of the hosts.

use std::ops::Range;

use unisono_control::RANKS_MAX;

use super::hostfile::Host;

/// The ranks of one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) host: String,
    /// The numbers of its ranks.
    pub(crate) numbers: Range<u32>,
    /// The numbers of the slots in use, if they are not simply the first ones.
    pub(crate) chosen_slots: Option<Vec<u32>>,
}

/// Fills the slots of one host after the other with ranks; all slots if no number is given. A host without a rank has
/// no share.
pub(crate) fn shares(hosts: Vec<Host>, ranks: Option<u32>) -> Result<Vec<Share>, String> {
    let slots: u64 = hosts.iter().map(|host| host.slots.len() as u64).sum();
    if let Some(ranks) = ranks.filter(|ranks| u64::from(*ranks) > slots) {
        let have: Vec<String> =
            hosts.iter().map(|host| format!("{}:{}", host.name, host.slots.len())).collect();
        return Err(format!("{ranks} ranks do not fit into {slots} slots: {}", have.join(", ")));
    }
    let mut left = ranks.map_or(slots, u64::from);
    if left > u64::from(RANKS_MAX) {
        return Err(format!("{left} slots are more than the {RANKS_MAX} ranks that a job can have"));
    }
    let (mut shares, mut first_rank) = (Vec::new(), 0);
    for Host { name, mut slots } in hosts {
        slots.truncate(usize::try_from(left).unwrap_or(usize::MAX));
        if slots.is_empty() {
            break;
        }
        let ranks = slots.len() as u32;
        let numbers = first_rank..first_rank + ranks;
        let are_first = slots.iter().copied().eq(0..ranks);
        shares.push(Share { host: name, numbers, chosen_slots: (!are_first).then_some(slots) });
        first_rank += ranks;
        left -= u64::from(ranks);
    }
    Ok(shares)
}

#[cfg(test)]
mod tests {
    use super::super::hostfile::{Choice, parse_list};
    use super::*;

    fn laid_out(hosts: &str, ranks: Option<u32>) -> Result<Vec<(String, Range<u32>)>, String> {
        let shares = shares(parse_list(hosts).unwrap(), ranks)?;
        Ok(shares.iter().map(|share| (share.host.clone(), share.numbers.clone())).collect())
    }

    #[test]
    fn c10_slots_are_filled_in_the_order_of_the_hosts() {
        let of = |name: &str, range| (name.to_owned(), range);
        assert_eq!(laid_out("a:2,b", None).unwrap(), [of("a", 0..2), of("b", 2..3)]);
        assert_eq!(laid_out("a:2,b:4,c", Some(3)).unwrap(), [of("a", 0..2), of("b", 2..3)]);
        assert_eq!(laid_out("a:2,b:4", Some(1)).unwrap(), [of("a", 0..1)]);
        assert_eq!(laid_out("a:2,b:4", Some(7)).unwrap_err(), "7 ranks do not fit into 6 slots: a:2, b:4");
        let many: Vec<String> = (0..=RANKS_MAX / 1024).map(|host| format!("h{host}:1024")).collect();
        assert!(laid_out(&many.join(","), None).unwrap_err().contains("slots are more than the"));
    }

    #[test]
    fn c10_slots_that_were_chosen_by_number_are_known() {
        let hosts = Choice::Include("a:1,3@b:0").of(parse_list("a:4,b:2").unwrap()).unwrap();
        let shares = shares(hosts, None).unwrap();
        assert_eq!((shares[0].numbers.len(), shares[0].chosen_slots.clone()), (2, Some(vec![1, 3])));
        assert_eq!((shares[1].numbers.len(), shares[1].chosen_slots.clone()), (1, None));
    }
}
