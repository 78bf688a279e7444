//! This rank's measurements of other hosts and of the network between them. The control thread adds to them; other
//! threads read them and do not wait for the control thread.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use unisono_communicator::{ClockOffset, JobRank, LinkTime};

use crate::sockets::{DataSocket, TcpTimes, tcp_times};

/// The measurements of one rank.
#[derive(Debug, Default)]
pub(crate) struct Measurements(Mutex<Measured>);

#[derive(Debug, Default)]
struct Measured {
    clocks: BTreeMap<JobRank, ClockOffset>,
    /// The data sockets that communicators have, or have had, each as it was at the last look.
    sockets: Vec<(Weak<DataSocket>, TcpTimes)>,
    links: BTreeMap<JobRank, LinkTime>,
}

impl Measurements {
    fn lock(&self) -> MutexGuard<'_, Measured> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The clock of a rank was measured.
    pub(super) fn note_clock(&self, offset: ClockOffset) {
        self.lock().clocks.insert(offset.rank, offset);
    }

    /// As [`unisono_backend::Control::clock_offsets`].
    pub(crate) fn clock_offsets(&self) -> Vec<ClockOffset> {
        self.lock().clocks.values().copied().collect()
    }

    /// A communicator gets this socket.
    pub(super) fn add(&self, socket: &Arc<DataSocket>) {
        let sockets = &mut self.lock().sockets;
        sockets.retain(|one| one.0.strong_count() > 0);
        // Without the segments that made the connection, of which a full machine drops some.
        sockets.push((Arc::downgrade(socket), tcp_times(&**socket).unwrap_or_default()));
    }

    /// The sockets that are still there.
    pub(super) fn sockets(&self) -> Vec<Arc<DataSocket>> {
        self.lock().sockets.iter().filter_map(|one| one.0.upgrade()).collect()
    }

    /// As [`unisono_backend::Control::link_times`]. Looks at every socket.
    pub(crate) fn link_times(&self) -> Vec<LinkTime> {
        let Measured { sockets, links, .. } = &mut *self.lock();
        for (socket, last) in sockets {
            if let Some(socket) = socket.upgrade()
                && let Some(now) = tcp_times(&*socket)
            {
                let link = links.entry(socket.peer()).or_insert_with(|| unused(socket.peer()));
                add(link, &std::mem::replace(last, now), &now);
            }
        }
        links.values().copied().collect()
    }
}

fn unused(rank: JobRank) -> LinkTime {
    LinkTime {
        rank,
        acknowledged_bytes: 0,
        network_us: 0,
        min_round_trip_us: 0,
        sent_segments: 0,
        retransmitted_segments: 0,
        duplicate_segments: 0,
    }
}

/// Adds the work on a socket between two looks. A receiver acknowledges when it reads, so a busy receiver
/// keeps a socket busy, and only the rate of delivery, which the kernel takes from the quickest moments, tells the
/// network from the receiver.
fn add(link: &mut LinkTime, last: &TcpTimes, now: &TcpTimes) {
    let bytes = now.acknowledged_bytes.saturating_sub(last.acknowledged_bytes);
    let at_rate_us = (u128::from(bytes) * 1_000_000).checked_div(now.bytes_per_s.into()).unwrap_or(0);
    link.acknowledged_bytes += bytes;
    link.network_us += at_rate_us.min(now.busy_us.saturating_sub(last.busy_us).into()) as u64;
    // The kernel's counters are short, and begin again.
    let since = |now: u32, last: u32| u64::from(now.wrapping_sub(last));
    link.sent_segments += since(now.sent_segments, last.sent_segments);
    link.retransmitted_segments += since(now.retransmitted_segments, last.retransmitted_segments);
    link.duplicate_segments += since(now.duplicate_segments, last.duplicate_segments);
    if now.min_round_trip_us > 0 {
        link.min_round_trip_us = now.min_round_trip_us;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_in_the_network_as_long_as_its_bytes_take_and_no_longer_than_it_is_busy() {
        let mut link = unused(JobRank::new(3));
        let look = |busy_us, acknowledged_bytes, bytes_per_s| TcpTimes {
            busy_us,
            acknowledged_bytes,
            bytes_per_s,
            min_round_trip_us: if busy_us == 100 { 40 } else { 0 },
            sent_segments: u32::MAX.wrapping_add(busy_us as u32),
            retransmitted_segments: (busy_us / 100) as u32,
            duplicate_segments: (busy_us / 300) as u32,
        };
        let looks = [look(0, 0, 0), look(100, 10, 0), look(700, 1010, 10_000_000), look(900, 9010, 1_000)];
        looks.windows(2).for_each(|pair| add(&mut link, &pair[0], &pair[1]));
        let expected = LinkTime {
            acknowledged_bytes: 9010,
            network_us: 100 + 200,
            min_round_trip_us: 40,
            sent_segments: 900,
            retransmitted_segments: 9,
            duplicate_segments: 3,
            ..unused(JobRank::new(3))
        };
        assert_eq!(link, expected);
    }
}
