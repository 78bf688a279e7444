//! The cost model: predicts a call's time in closed form, in integer nanoseconds, so that all ranks get the same
//! result.

use crate::algorithm::BetweenHosts;
use crate::{Algorithm, Cost, Fraction, Shape};

/// Femtoseconds in a nanosecond.
const FEMTOSECONDS: u128 = 1_000_000;

/// The parameters of the cost model: figures of the network and of the ranks' cores.
///
/// Times per byte are in femtoseconds: 1,000,000 is 1 GB/s, and 400 GB/s is still a whole number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CostModel {
    /// The latency within a host in nanoseconds, from the sending call to the return of the waiting, receiving call.
    pub latency_ns: u64,
    /// The time of a byte on the link within a host, in femtoseconds.
    pub wire_fs_per_byte: u64,
    /// The latency between hosts, in nanoseconds.
    pub network_latency_ns: u64,
    /// The time of a byte on the network, in femtoseconds. All ranks of a host share one network interface.
    pub network_fs_per_byte: u64,
    /// The time to reduce a byte, in femtoseconds.
    pub reduce_fs_per_byte: u64,
    /// The processor time of a message at either end within a host, in nanoseconds.
    pub cpu_per_message_ns: u64,
    /// The processor time of a byte at either end within a host, in femtoseconds.
    pub cpu_fs_per_byte: u64,
    /// The processor time of a message between hosts at either end, in nanoseconds.
    pub network_cpu_per_message_ns: u64,
    /// The processor time of a byte between hosts at either end, in femtoseconds.
    pub network_cpu_fs_per_byte: u64,
    /// The time of a context switch from one rank to the next on the same core, in nanoseconds.
    pub switch_ns: u64,
    /// The number of ranks that share a core, in thousandths; values below 1000 count as 1000.
    pub ranks_per_core_thousandths: u64,
    /// The extra time of a byte for each peer of a rank beyond two, in thousandths: many streams compete for caches and
    /// buffers. Measured: with 4 ranks, direct exchange takes 5 to 20 % longer than a ring.
    pub per_peer_thousandths: u64,
    /// The largest size of a piece, the part of a chunk that a rank of a pipeline receives before it passes it on.
    pub piece_bytes: u64,
}

impl CostModel {
    /// TCP over loopback, measured by `unisono calibrate` on two idle cores of an Intel Xeon with AVX-512; between
    /// hosts, typical figures of 10 Gbit/s.
    pub const LOOPBACK: Self = Self {
        latency_ns: 3_500,
        wire_fs_per_byte: 105_000,
        network_latency_ns: 30_000,
        network_fs_per_byte: 800_000,
        reduce_fs_per_byte: 22_000,
        cpu_per_message_ns: 1_300,
        cpu_fs_per_byte: 97_000,
        network_cpu_per_message_ns: 1_300,
        network_cpu_fs_per_byte: 97_000,
        switch_ns: 1_700,
        ranks_per_core_thousandths: 1_000,
        per_peer_thousandths: 50,
        piece_bytes: 512 << 10,
    };

    /// The machine of [`CostModel::LOOPBACK`], for people.
    pub const LOOPBACK_MACHINE: &str = "TCP over loopback on two idle cores of an Intel Xeon with AVX-512";

    /// Memory within a host. `unisono calibrate` gave figures near these on such a machine; these choose the best
    /// algorithms for 2, 3, 4 and 8 ranks on its two cores. Between hosts as [`CostModel::LOOPBACK`].
    pub const MEMORY: Self = Self {
        latency_ns: 1_000,
        wire_fs_per_byte: 80_000,
        reduce_fs_per_byte: 8_000,
        cpu_per_message_ns: 200,
        cpu_fs_per_byte: 75_000,
        switch_ns: 2_300,
        per_peer_thousandths: 150,
        ..Self::LOOPBACK
    };

    /// The machine of [`CostModel::MEMORY`], for people.
    pub const MEMORY_MACHINE: &str = "memory shared by two idle cores of an Intel Xeon with AVX-512";

    /// The same link with `ranks` ranks on a host of `cores` cores.
    ///
    /// ```
    /// let crowded = unisono_schedule::CostModel::LOOPBACK.with_ranks_on_cores(6, 4);
    /// assert_eq!(crowded.ranks_per_core_thousandths, 1_500);
    /// ```
    #[must_use]
    pub const fn with_ranks_on_cores(self, ranks: u64, cores: u64) -> Self {
        let cores = if cores == 0 { 1 } else { cores };
        Self { ranks_per_core_thousandths: ranks * 1_000 / cores, ..self }
    }

    /// The same link in the textbook model of alpha, beta and gamma: every rank has its own core, processor time is
    /// free, and peers do not disturb each other.
    ///
    /// ```
    /// use unisono_schedule::{CostModel, Shape, find_by_name};
    /// let textbook = CostModel { latency_ns: 1000, wire_fs_per_byte: 1_000_000, ..CostModel::LOOPBACK.textbook() };
    /// let textbook = CostModel { reduce_fs_per_byte: 100_000, ..textbook };
    /// let ring = find_by_name("all_reduce/ring").unwrap();
    /// // 6 rounds, 6/4 of the vector on the link, 3/4 reduced.
    /// assert_eq!(textbook.predicted_ns(ring, &Shape::new(4), 4000), Some(6 * 1000 + 6000 + 300));
    /// ```
    #[must_use]
    pub const fn textbook(self) -> Self {
        Self {
            cpu_per_message_ns: 0,
            cpu_fs_per_byte: 0,
            network_cpu_per_message_ns: 0,
            network_cpu_fs_per_byte: 0,
            switch_ns: 0,
            ranks_per_core_thousandths: 1_000,
            per_peer_thousandths: 0,
            ..self
        }
    }

    /// The shape of a group whose rank r is on host `hosts[r]`, with root 0. There are as many leaders as cores of all
    /// hosts, because more leaders would share cores.
    ///
    /// ```
    /// let two_cores = unisono_schedule::CostModel::LOOPBACK.with_ranks_on_cores(4, 2);
    /// let shape = two_cores.shape(&[0, 0, 0, 0]);
    /// assert_eq!((shape.ranks, shape.hosts, shape.leaders), (4, 1, 2));
    /// let shape = two_cores.shape(&[0, 0, 0, 0, 1, 1, 1, 1]);
    /// assert_eq!((shape.ranks, shape.hosts, shape.leaders), (8, 2, 4));
    /// ```
    #[must_use]
    pub fn shape(&self, hosts: &[u32]) -> Shape {
        let mut runs = hosts.to_vec();
        runs.sort_unstable();
        let runs: Vec<u64> = runs.chunk_by(|a, b| a == b).map(|run| run.len() as u64).collect();
        let fullest = runs.iter().copied().max().unwrap_or(1);
        let cores = fullest * 1_000 / self.ranks_per_core_thousandths.max(1_000);
        // As many runs as hosts: no host has a second run.
        let is_even =
            hosts.chunk_by(|a, b| a == b).count() == runs.len() && runs.iter().all(|run| *run == fullest);
        let hosts_used = runs.len().max(1) as u32;
        let leaders = hosts_used.saturating_mul(cores.clamp(1, fullest) as u32);
        Shape { hosts: hosts_used, leaders, even_hosts: is_even, ..Shape::new(hosts.len() as u32) }
    }

    /// The expected time of one call, in nanoseconds; `None` for an algorithm that claims no cost.
    ///
    /// `bytes` is the full vector: the larger of one rank's input and output. With r ranks per core, at least 1, a
    /// core's work is `work(x) = max(x of the busiest rank, r * mean x of all ranks)`:
    ///
    /// ```text
    /// max(latency of all rounds, cpu per message * work(messages sent and received) + rounds * (r - 1) * switch)
    ///   + max(wire * max(sent, received, one piece in all rounds, bytes that leave a host),
    ///         cpu per byte * work(sent + received))
    ///     * (1 + per peer * (peers beyond 2))
    ///   + reduce * work(reduced)
    /// ```
    ///
    /// * A latency contains one send and one receive. While a message is on its way, a core waits for it or handles
    ///   other messages: hence the first maximum.
    /// * On a shared core, a rank whose message has arrived waits, in every round, until the other ranks have run. So
    ///   the number of messages matters first, then the number of rounds.
    /// * The link and the processor work at the same time: hence the second maximum. Reductions run in the caller's
    ///   thread: hence the sum. In a pipeline, each rank passes on at least one piece per round.
    /// * Between hosts the network's figures count, and a host's ranks share its interface. Recursive halving and
    ///   doubling know how many of their rounds and bytes leave a host, if every host has as many consecutive ranks, a
    ///   power of two. For other algorithms the figures count for all messages; with up to two peers, ranks talk to
    ///   neighbours only, so one rank of a host talks to another host; more peers may be on any host.
    ///
    /// ```
    /// use unisono_schedule::{CostModel, Shape, find_by_name};
    /// let (shape, loopback) = (Shape::new(8), CostModel::LOOPBACK);
    /// let of = |name, bytes| loopback.predicted_ns(find_by_name(name).unwrap(), &shape, bytes).unwrap();
    /// assert!(of("all_reduce/recursive_doubling", 1 << 10) < of("all_reduce/ring", 1 << 10));
    /// assert!(of("all_reduce/recursive_doubling", 1 << 26) > of("all_reduce/ring", 1 << 26));
    /// ```
    #[must_use]
    pub fn predicted_ns(&self, algorithm: &Algorithm, shape: &Shape, bytes: u64) -> Option<u64> {
        let cost = algorithm.cost_of(shape)?;
        Some(self.predicted_ns_of(algorithm, &cost, shape, bytes))
    }

    /// As [`CostModel::predicted_ns`], for an algorithm whose cost is known.
    pub fn predicted_ns_of(&self, algorithm: &Algorithm, cost: &Cost, shape: &Shape, bytes: u64) -> u64 {
        let far = algorithm.between_hosts_of(shape);
        let cpu_per_message = link(shape, self).cpu_per_message;
        let crowding = u128::from(self.ranks_per_core_thousandths.max(1_000));
        let rounds = u128::from(cost.rounds);
        // In thousandths, since the mean of all ranks need not be whole. Every message has two ends.
        let (own_ends, all_ends) = (u128::from(cost.messages) * 1_000, 2_000 * u128::from(cost.all.messages));
        let handled = cpu_per_message * work(shape, self, own_ends, all_ends) / 1_000;
        let turns = rounds * (crowding - 1_000) * u128::from(self.switch_ns) / 1_000;
        let started = over_rounds(cost, far, shape, self, |figures| figures.latency).max(handled + turns);

        let piece = self.piece_bytes.min(bytes.div_ceil(u64::from(algorithm.width(shape).max(1))));
        let passed_on = over_rounds(cost, far, shape, self, |figures| figures.wire) * u128::from(piece);
        let moved = per_byte(cost, far, shape, self, bytes).into_iter().fold(passed_on, u128::max);
        let peers = u128::from(cost.peers.saturating_sub(2)) * u128::from(self.per_peer_thousandths);
        let moved = moved.saturating_mul(1_000 + peers) / 1_000;
        let (own, all) = (cost.reduced.of(bytes), cost.all.reduced.of(bytes));
        let summed = u128::from(self.reduce_fs_per_byte) * work(shape, self, own.into(), all.into());
        u64::try_from(started + (moved + summed) / FEMTOSECONDS).unwrap_or(u64::MAX)
    }
}

impl Default for CostModel {
    fn default() -> Self {
        Self::LOOPBACK
    }
}

/// The figures of the slowest link, in nanoseconds and femtoseconds.
struct LinkFigures {
    latency: u128,
    wire: u128,
    cpu_per_message: u128,
    cpu_per_byte: u128,
}

/// The figures within a host.
fn near(model: &CostModel) -> LinkFigures {
    LinkFigures {
        latency: model.latency_ns.into(),
        wire: model.wire_fs_per_byte.into(),
        cpu_per_message: model.cpu_per_message_ns.into(),
        cpu_per_byte: model.cpu_fs_per_byte.into(),
    }
}

/// The sum of a figure over the rounds; all are between hosts if `far` does not say how many are.
fn over_rounds(
    cost: &Cost,
    far: Option<BetweenHosts>,
    shape: &Shape,
    model: &CostModel,
    figure: fn(&LinkFigures) -> u128,
) -> u128 {
    let far_rounds = far.map_or(cost.rounds, |far| far.rounds.min(cost.rounds));
    let (far_rounds, near_rounds) = (u128::from(far_rounds), u128::from(cost.rounds - far_rounds));
    far_rounds * figure(&link(shape, model)) + near_rounds * figure(&near(model))
}

fn link(shape: &Shape, model: &CostModel) -> LinkFigures {
    // The network is no faster than a link within a host.
    let slower = |local: u64, network: u64| if shape.hosts > 1 { local.max(network) } else { local }.into();
    LinkFigures {
        latency: slower(model.latency_ns, model.network_latency_ns),
        wire: slower(model.wire_fs_per_byte, model.network_fs_per_byte),
        cpu_per_message: slower(model.cpu_per_message_ns, model.network_cpu_per_message_ns),
        cpu_per_byte: slower(model.cpu_fs_per_byte, model.network_cpu_fs_per_byte),
    }
}

/// The work of a core, if the busiest rank does `busiest` and all ranks together do `all`.
fn work(shape: &Shape, model: &CostModel, busiest: u128, all: u128) -> u128 {
    let crowding = u128::from(model.ranks_per_core_thousandths.max(1_000));
    busiest.max(all * crowding / (1_000 * u128::from(shape.ranks)))
}

/// Times in femtoseconds, all proportional to the bytes; the longest counts.
fn per_byte(
    cost: &Cost,
    far: Option<BetweenHosts>,
    shape: &Shape,
    model: &CostModel,
    bytes: u64,
) -> [u128; 4] {
    let of = |part: Fraction| u128::from(part.of(bytes));
    let [sent, received, all] = [cost.sent, cost.received, cost.all.sent].map(of);
    let LinkFigures { wire, cpu_per_byte, .. } = link(shape, model);
    let copied = cpu_per_byte * work(shape, model, sent + received, 2 * all);
    if let Some(far) = far {
        let near = u128::from(model.wire_fs_per_byte);
        return [near * sent, near * received, wire * of(far.sent), copied];
    }
    let (ranks, hosts) = (u128::from(shape.ranks), u128::from(shape.hosts));
    let on_host = ranks.div_ceil(hosts);
    let leaves_host = match (shape.hosts, cost.peers) {
        (..=1, _) => 0,
        (_, ..=2) => all / on_host / hosts,
        _ => all * (ranks - on_host) / (ranks - 1).max(1) / hosts,
    };
    [wire * sent, wire * received, wire * leaves_host, copied]
}

/// The sizes in bytes where the slope of [`CostModel::predicted_ns`] changes: where pieces stop growing, and where one
/// side of a maximum overtakes the other. Between them it is straight, apart from rounding.
pub(crate) fn bends(algorithm: &Algorithm, cost: &Cost, shape: &Shape, model: &CostModel) -> Vec<u64> {
    const UNIT: u64 = 1 << 32;
    let far = algorithm.between_hosts_of(shape);
    let wire = over_rounds(cost, far, shape, model, |figures| figures.wire);
    let passed_on = wire.saturating_mul(u128::from(model.piece_bytes) * u128::from(UNIT));
    let overtakes = |per_unit: u128| passed_on.checked_div(per_unit).and_then(|at| u64::try_from(at).ok());
    let whole_pieces = model.piece_bytes.checked_mul(u64::from(algorithm.width(shape).max(1)));
    let found = per_byte(cost, far, shape, model, UNIT).into_iter().filter_map(overtakes);
    found.chain(whole_pieces).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::find_by_name;

    fn of(name: &str, shape: &Shape, bytes: u64, model: &CostModel) -> u64 {
        model.predicted_ns(find_by_name(name).unwrap(), shape, bytes).unwrap()
    }

    #[test]
    fn ranks_of_a_core_wait_for_their_turn_in_every_round() {
        let shape = Shape::new(8);
        let crowded = CostModel::LOOPBACK.with_ranks_on_cores(8, 2);
        // All have 7 messages; the rounds are 1, 2 and 3.
        let names = ["gather/k_nomial_8", "gather/k_nomial_4", "gather/binomial"];
        let predicted = names.map(|name| of(name, &shape, 0, &crowded));
        assert_eq!([predicted[1] - predicted[0], predicted[2] - predicted[1]], [3 * crowded.switch_ns; 2]);
        assert_eq!(predicted[0], 7 * crowded.cpu_per_message_ns + 3 * crowded.switch_ns);
    }

    #[test]
    fn between_hosts_the_network_counts_and_neighbours_are_cheap() {
        let model = CostModel::LOOPBACK;
        let (one, two) = (Shape::new(8), Shape { hosts: 2, ..Shape::new(8) });
        let ring = |shape, bytes| of("all_gather/ring", shape, bytes, &model);
        assert_eq!(ring(&two, 0), 7 * model.network_latency_ns);
        assert_eq!(ring(&one, 0), 14 * model.cpu_per_message_ns.max(model.latency_ns / 2));
        // Every rank sends 7/8 in both algorithms. In the ring, one rank of each host sends to the other host; in the
        // direct exchange, each of four ranks sends 4/7 of its bytes there.
        let bytes = 1 << 30;
        let network = |sent: u64| sent * model.network_fs_per_byte / 1_000_000;
        let sent = bytes / 8 * 7;
        assert_eq!(ring(&two, bytes) - ring(&two, 0), network(sent));
        let peers = 1.0 + 5.0 * model.per_peer_thousandths as f64 / 1e3;
        let direct = |bytes| of("all_gather/direct", &two, bytes, &model);
        let expected = network(4 * sent / 7 * 4) as f64 * peers;
        assert!(((direct(bytes) - direct(0)) as f64 / expected - 1.0).abs() < 1e-6);
        assert_eq!(ring(&one, bytes) - ring(&one, 0), 2 * sent * model.cpu_fs_per_byte / 1_000_000);
    }

    /// Ranks in blocks of as many; else nothing is known.
    #[test]
    fn hosts_are_even_if_their_ranks_are_consecutive_and_as_many() {
        let is_even = |hosts: &[u32]| CostModel::LOOPBACK.shape(hosts).even_hosts;
        assert!(
            is_even(&[0, 0, 1, 1]) && is_even(&[1, 0]) && is_even(&[0, 0, 0]) && is_even(&[7, 7, 0, 0, 1, 1])
        );
        assert!(!is_even(&[0, 1, 0, 1]) && !is_even(&[0, 0, 1]) && !is_even(&[0, 1, 1, 0]));
    }

    /// In these algorithms every rank sends one message in each round between hosts.
    #[test]
    fn claims_between_hosts_are_what_the_schedules_send() {
        let mut claims = 0;
        for algorithm in crate::algorithms() {
            for (ranks, hosts) in [(2, 2), (4, 2), (8, 2), (8, 4), (16, 4), (8, 8)] {
                let shape = Shape { hosts, ..Shape::new(ranks) };
                let Some(claim) = algorithm.between_hosts_of(&shape) else { continue };
                claims += 1;
                let (on_host, name) = (ranks / hosts, algorithm.qualified_name());
                let mut chunks = vec![0; hosts as usize];
                for rank in 0..ranks {
                    let (mut messages, mut last) = (0, None);
                    for step in &algorithm.schedule(&shape, rank).steps {
                        let sent_to =
                            step.action.link().and_then(|(peer, sends)| sends.then_some(u32::from(peer)));
                        let far = sent_to.filter(|peer| peer / on_host != rank / on_host);
                        chunks[(rank / on_host) as usize] += u64::from(far.is_some());
                        messages += u64::from(far.is_some() && far != last);
                        last = far;
                    }
                    assert_eq!(messages, claim.rounds, "{name} of {ranks} ranks on {hosts} hosts");
                }
                let width = u64::from(algorithm.width(&shape));
                let sent: Vec<Fraction> = chunks.iter().map(|chunks| Fraction::new(*chunks, width)).collect();
                assert_eq!(
                    sent,
                    vec![claim.sent; hosts as usize],
                    "{name} of {ranks} ranks on {hosts} hosts"
                );
            }
        }
        assert_eq!(claims, 4 * 6);
        let uneven = Shape { hosts: 2, even_hosts: false, ..Shape::new(4) };
        assert!(crate::algorithms().iter().all(|one| one.between_hosts_of(&uneven).is_none()));
    }

    #[test]
    fn absurd_figures_do_not_overflow() {
        let most = 1_000_000_000_000;
        let model = CostModel {
            latency_ns: most,
            wire_fs_per_byte: most,
            network_latency_ns: most,
            network_fs_per_byte: most,
            reduce_fs_per_byte: most,
            cpu_per_message_ns: most,
            cpu_fs_per_byte: most,
            network_cpu_per_message_ns: most,
            network_cpu_fs_per_byte: most,
            switch_ns: most,
            ranks_per_core_thousandths: 1_000 << 16,
            per_peer_thousandths: most,
            piece_bytes: 1 << 32,
        };
        for algorithm in crate::algorithms() {
            for hosts in [1, 2, 1 << 14] {
                let shape = Shape { hosts, ..Shape::new(1 << 14) };
                let cost = algorithm.cost_of(&shape).unwrap();
                assert!(model.predicted_ns_of(algorithm, &cost, &shape, u64::MAX) > 0);
                bends(algorithm, &cost, &shape, &model);
            }
        }
    }
}
