//! What a call is expected to take, in closed form and in integer nanoseconds, so that all ranks agree.

use crate::{Algorithm, Cost, Fraction, Shape};

/// In a nanosecond.
const FEMTOSECONDS: u128 = 1_000_000;

/// The figures of a kind of link and of the ranks' cores.
///
/// Times per byte are in femtoseconds: 1,000,000 of them is 1 GB/s, and 400 GB/s is still a whole number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Parameters {
    /// From the call that sends to the return of the call that receives, both ranks waiting, in nanoseconds.
    pub latency_ns: u64,
    /// Of a byte on the link, in femtoseconds.
    pub wire_fs_per_byte: u64,
    /// The latency between hosts.
    pub network_latency_ns: u64,
    /// Of a byte on the network, in femtoseconds: all ranks of a host share its access.
    pub network_fs_per_byte: u64,
    /// Of a byte reduced, in femtoseconds.
    pub reduce_fs_per_byte: u64,
    /// The processor's time for a message at either end, in nanoseconds.
    pub cpu_per_message_ns: u64,
    /// The processor's time for a byte at either end, in femtoseconds.
    pub cpu_fs_per_byte: u64,
    /// The processor's time to pass from one rank of a core to the next, in nanoseconds.
    pub switch_ns: u64,
    /// How many ranks share a core, in thousandths; below 1000 counts as 1000.
    pub ranks_per_core_thousandths: u64,
    /// How much longer bytes take for every peer of a rank beyond two, in thousandths: many streams at once disturb
    /// each other in caches and buffers. Measured: with 4 ranks direct exchange takes 5 to 20 % longer than a ring.
    pub per_peer_thousandths: u64,
    /// The most bytes of a piece: what a rank of a pipeline holds before it passes it on.
    pub piece_bytes: u64,
}

impl Parameters {
    /// TCP over loopback, as `unisono calibrate` found it on two quiet cores of an Intel Xeon with AVX-512; between
    /// hosts the usual of 10 Gbit/s.
    pub const LOOPBACK: Self = Self {
        latency_ns: 3_500,
        wire_fs_per_byte: 105_000,
        network_latency_ns: 30_000,
        network_fs_per_byte: 800_000,
        reduce_fs_per_byte: 22_000,
        cpu_per_message_ns: 1_300,
        cpu_fs_per_byte: 97_000,
        switch_ns: 1_700,
        ranks_per_core_thousandths: 1_000,
        per_peer_thousandths: 50,
        piece_bytes: 512 << 10,
    };

    /// The same link with `ranks` ranks on a host of `cores` cores.
    ///
    /// ```
    /// let crowded = unisono_schedule::Parameters::LOOPBACK.with_ranks_on_cores(6, 4);
    /// assert_eq!(crowded.ranks_per_core_thousandths, 1_500);
    /// ```
    #[must_use]
    pub const fn with_ranks_on_cores(self, ranks: u64, cores: u64) -> Self {
        let cores = if cores == 0 { 1 } else { cores };
        Self { ranks_per_core_thousandths: ranks * 1_000 / cores, ..self }
    }

    /// The same link in the textbook's model, alpha, beta and gamma alone: every rank a core of its own, whose time
    /// costs nothing, and peers that do not disturb each other.
    ///
    /// ```
    /// use unisono_schedule::{Parameters, Shape, find_by_name, price};
    /// let textbook = Parameters { latency_ns: 1000, wire_fs_per_byte: 1_000_000, ..Parameters::LOOPBACK.textbook() };
    /// let textbook = Parameters { reduce_fs_per_byte: 100_000, ..textbook };
    /// let ring = find_by_name("all_reduce/ring").unwrap();
    /// // 6 rounds, 6/4 of the vector on the link, 3/4 reduced.
    /// assert_eq!(price(ring, &Shape::new(4), 4000, &textbook), 6 * 1000 + 6000 + 300);
    /// ```
    #[must_use]
    pub const fn textbook(self) -> Self {
        Self {
            cpu_per_message_ns: 0,
            cpu_fs_per_byte: 0,
            switch_ns: 0,
            ranks_per_core_thousandths: 1_000,
            per_peer_thousandths: 0,
            ..self
        }
    }

    /// The shape of a group whose rank r lies on host `hosts[r]`, root 0. On each host as many ranks lead as it has
    /// cores: more would only take turns with them.
    ///
    /// ```
    /// let two_cores = unisono_schedule::Parameters::LOOPBACK.with_ranks_on_cores(4, 2);
    /// let shape = two_cores.shape(&[0, 0, 0, 0]);
    /// assert_eq!((shape.ranks, shape.hosts, shape.leaders), (4, 1, 2));
    /// ```
    #[must_use]
    pub fn shape(&self, hosts: &[u32]) -> Shape {
        let mut runs = hosts.to_vec();
        runs.sort_unstable();
        let runs: Vec<u64> = runs.chunk_by(|a, b| a == b).map(|run| run.len() as u64).collect();
        let fullest = runs.iter().copied().max().unwrap_or(1);
        let cores = fullest * 1_000 / self.ranks_per_core_thousandths.max(1_000);
        let leaders = cores.clamp(1, fullest) as u32;
        Shape { hosts: runs.len().max(1) as u32, leaders, ..Shape::new(hosts.len() as u32) }
    }
}

impl Default for Parameters {
    fn default() -> Self {
        Self::LOOPBACK
    }
}

/// The expected time of one call, in nanoseconds.
///
/// `bytes` is the full vector: the larger of one rank's input and output. With r ranks per core, at least 1, a core's
/// work is `work(x) = max(x of the busiest rank, r * mean x of all ranks)`:
///
/// ```text
/// max(rounds * latency, cpu per message * work(messages sent and received) + rounds * (r - 1) * switch)
///   + max(wire * max(sent, received, rounds * one piece, what leaves a host), cpu per byte * work(sent + received))
///     * (1 + per peer * (peers beyond 2))
///   + reduce * work(reduced)
/// ```
///
/// * A latency holds one send and one receive: while a message is on its way, a core that has nothing else to do waits
///   for it, and one that has handles other messages; hence the first maximum.
/// * Where ranks share a core, a rank whose message has come waits in every round until the others have had their
///   turn. So few messages win first, then few rounds.
/// * The link works beside the processor, hence the second maximum; reductions are the caller's thread's own work,
///   hence the sum. A pipeline of many rounds passes at least a piece from each rank to the next.
/// * Between hosts, latency and wire are the network's, and the ranks of a host share its access. A rank with two peers
///   talks to its neighbours, so that one rank of a host talks to another host; peers of the others may be anywhere.
///
/// ```
/// use unisono_schedule::{Parameters, Shape, find_by_name, price};
/// let (shape, loopback) = (Shape::new(8), Parameters::LOOPBACK);
/// let of = |name, bytes| price(find_by_name(name).unwrap(), &shape, bytes, &loopback);
/// assert!(of("all_reduce/recursive_doubling", 1 << 10) < of("all_reduce/ring", 1 << 10));
/// assert!(of("all_reduce/recursive_doubling", 1 << 26) > of("all_reduce/ring", 1 << 26));
/// ```
pub fn price(algorithm: &Algorithm, shape: &Shape, bytes: u64, parameters: &Parameters) -> u64 {
    price_of(&(algorithm.cost)(shape), shape, algorithm.width(shape), bytes, parameters)
}

/// As [`price`], from a cost and the number of chunks that make the full vector.
pub(crate) fn price_of(cost: &Cost, shape: &Shape, width: u32, bytes: u64, parameters: &Parameters) -> u64 {
    let (latency, wire) = link(shape, parameters);
    let crowding = u128::from(parameters.ranks_per_core_thousandths.max(1_000));
    let rounds = u128::from(cost.rounds);
    // In thousandths, as the mean of all ranks need not be whole. Every message has two ends.
    let ends = (u128::from(cost.messages) * 1_000, 2_000 * u128::from(cost.all.messages));
    let handled = u128::from(parameters.cpu_per_message_ns) * work(shape, parameters, ends) / 1_000;
    let turns = rounds * (crowding - 1_000) * u128::from(parameters.switch_ns) / 1_000;
    let started = (rounds * latency).max(handled + turns);

    let piece = parameters.piece_bytes.min(bytes.div_ceil(u64::from(width.max(1))));
    let passed_on = wire * rounds * u128::from(piece);
    let moved = per_byte(cost, shape, parameters, bytes).into_iter().fold(passed_on, u128::max);
    let peers = u128::from(cost.peers.saturating_sub(2)) * u128::from(parameters.per_peer_thousandths);
    let moved = moved.saturating_mul(1_000 + peers) / 1_000;
    let reduced = (cost.reduced.of(bytes).into(), cost.all.reduced.of(bytes).into());
    let summed = u128::from(parameters.reduce_fs_per_byte) * work(shape, parameters, reduced);
    u64::try_from(started + (moved + summed) / FEMTOSECONDS).unwrap_or(u64::MAX)
}

/// Latency and femtoseconds per byte of the slowest link.
fn link(shape: &Shape, parameters: &Parameters) -> (u128, u128) {
    let local = (parameters.latency_ns, parameters.wire_fs_per_byte);
    let network = (parameters.network_latency_ns.max(local.0), parameters.network_fs_per_byte.max(local.1));
    let (latency, wire) = if shape.hosts > 1 { network } else { local };
    (latency.into(), wire.into())
}

/// What a core does, when the busiest rank and all ranks together do that much.
fn work(shape: &Shape, parameters: &Parameters, (busiest, all): (u128, u128)) -> u128 {
    let crowding = u128::from(parameters.ranks_per_core_thousandths.max(1_000));
    busiest.max(all * crowding / (1_000 * u128::from(shape.ranks)))
}

/// The times of which the longest counts, in femtoseconds; all of them grow with the bytes, and with nothing else.
fn per_byte(cost: &Cost, shape: &Shape, parameters: &Parameters, bytes: u64) -> [u128; 4] {
    let of = |part: Fraction| u128::from(part.of(bytes));
    let [sent, received, all] = [cost.sent, cost.received, cost.all.sent].map(of);
    let (_, wire) = link(shape, parameters);
    let copied = u128::from(parameters.cpu_fs_per_byte) * work(shape, parameters, (sent + received, 2 * all));
    let (ranks, hosts) = (u128::from(shape.ranks), u128::from(shape.hosts));
    let on_host = ranks.div_ceil(hosts);
    let leaves_host = match (shape.hosts, cost.peers) {
        (..=1, _) => 0,
        (_, ..=2) => all / on_host / hosts,
        _ => all * (ranks - on_host) / (ranks - 1).max(1) / hosts,
    };
    [wire * sent, wire * received, wire * leaves_host, copied]
}

/// Sizes in bytes between which [`price_of`] is a straight line, but for rounding: where its pieces stop to grow and
/// where one side of a maximum overtakes the other.
pub(crate) fn bends(cost: &Cost, shape: &Shape, width: u32, parameters: &Parameters) -> Vec<u64> {
    const UNIT: u64 = 1 << 32;
    let (_, wire) = link(shape, parameters);
    let unit_of_pieces = u128::from(cost.rounds) * u128::from(parameters.piece_bytes) * u128::from(UNIT);
    let passed_on = wire.saturating_mul(unit_of_pieces);
    let overtakes = |per_unit: u128| passed_on.checked_div(per_unit).and_then(|at| u64::try_from(at).ok());
    let whole_pieces = parameters.piece_bytes.checked_mul(u64::from(width.max(1)));
    let found = per_byte(cost, shape, parameters, UNIT).into_iter().filter_map(overtakes);
    found.chain(whole_pieces).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::find_by_name;

    fn of(name: &str, shape: &Shape, bytes: u64, parameters: &Parameters) -> u64 {
        price(find_by_name(name).unwrap(), shape, bytes, parameters)
    }

    #[test]
    fn ranks_of_a_core_wait_for_their_turn_in_every_round() {
        let shape = Shape::new(8);
        let crowded = Parameters::LOOPBACK.with_ranks_on_cores(8, 2);
        // 7 messages either way, so that only the rounds differ: 1, 2 and 3.
        let names = ["gather/k_nomial_8", "gather/k_nomial_4", "gather/binomial"];
        let prices = names.map(|name| of(name, &shape, 0, &crowded));
        assert_eq!([prices[1] - prices[0], prices[2] - prices[1]], [3 * crowded.switch_ns; 2]);
        assert_eq!(prices[0], 7 * crowded.cpu_per_message_ns + 3 * crowded.switch_ns);
    }

    #[test]
    fn between_hosts_the_network_counts_and_neighbours_are_cheap() {
        let parameters = Parameters::LOOPBACK;
        let (one, two) = (Shape::new(8), Shape { hosts: 2, ..Shape::new(8) });
        let ring = |shape, bytes| of("all_gather/ring", shape, bytes, &parameters);
        assert_eq!(ring(&two, 0), 7 * parameters.network_latency_ns);
        assert_eq!(ring(&one, 0), 14 * parameters.cpu_per_message_ns.max(parameters.latency_ns / 2));
        // Everybody sends 7/8 in both; in the ring one rank of each host sends it to the other host, in the direct
        // exchange each of four sends 4/7 of it there.
        let bytes = 1 << 30;
        let network = |sent: u64| sent * parameters.network_fs_per_byte / 1_000_000;
        let sent = bytes / 8 * 7;
        assert_eq!(ring(&two, bytes) - ring(&two, 0), network(sent));
        let peers = 1.0 + 5.0 * parameters.per_peer_thousandths as f64 / 1e3;
        let direct = |bytes| of("all_gather/direct", &two, bytes, &parameters);
        let expected = network(4 * sent / 7 * 4) as f64 * peers;
        assert!(((direct(bytes) - direct(0)) as f64 / expected - 1.0).abs() < 1e-6);
        assert_eq!(ring(&one, bytes) - ring(&one, 0), 2 * sent * parameters.cpu_fs_per_byte / 1_000_000);
    }

    #[test]
    fn absurd_figures_do_not_overflow() {
        let most = 1_000_000_000_000;
        let parameters = Parameters {
            latency_ns: most,
            wire_fs_per_byte: most,
            network_latency_ns: most,
            network_fs_per_byte: most,
            reduce_fs_per_byte: most,
            cpu_per_message_ns: most,
            cpu_fs_per_byte: most,
            switch_ns: most,
            ranks_per_core_thousandths: 1_000 << 16,
            per_peer_thousandths: most,
            piece_bytes: 1 << 32,
        };
        for algorithm in crate::algorithms() {
            for hosts in [1, 2, 1 << 14] {
                let shape = Shape { hosts, ..Shape::new(1 << 14) };
                let (cost, width) = ((algorithm.cost)(&shape), algorithm.width(&shape));
                assert!(price_of(&cost, &shape, width, u64::MAX, &parameters) > 0);
                bends(&cost, &shape, width, &parameters);
            }
        }
    }
}
