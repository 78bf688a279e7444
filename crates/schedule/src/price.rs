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
    /// Of a byte reduced, in femtoseconds.
    pub reduce_fs_per_byte: u64,
    /// The processor's time for a message at either end, in nanoseconds.
    pub cpu_per_message_ns: u64,
    /// The processor's time for a byte at either end, in femtoseconds.
    pub cpu_fs_per_byte: u64,
    /// The processor's time to pass from one rank to the next, in nanoseconds: for every message at either end, where
    /// ranks share cores.
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
    /// TCP over loopback, a core for every rank, about as `unisono calibrate` finds it on a quiet machine.
    pub const LOOPBACK: Self = Self {
        latency_ns: 4_000,
        wire_fs_per_byte: 250_000,
        reduce_fs_per_byte: 71_000,
        cpu_per_message_ns: 2_500,
        cpu_fs_per_byte: 125_000,
        switch_ns: 1_500,
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
/// max(rounds * latency, (cpu per message + switch where ranks share cores) * work(messages sent and received))
///   + max(wire * max(sent, received, rounds * one piece), cpu per byte * work(sent + received))
///     * (1 + per peer * (peers beyond 2))
///   + reduce * work(reduced)
/// ```
///
/// A latency holds one send and one receive: while a message is on its way, a core that has nothing else to do waits
/// for it, and one that has handles other messages, hence the first maximum. The link works beside the processor,
/// hence the second; reductions are the caller's thread's own work, hence the sum. A pipeline of many rounds passes at
/// least a piece from each rank to the next. When ranks share cores, what counts is what all of them do together, so
/// that the fewest messages win, not the fewest rounds.
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
    let of = |part: Fraction| u128::from(part.of(bytes));
    let crowding = u128::from(parameters.ranks_per_core_thousandths.max(1_000));
    let work = |busiest: u128, all: u128| busiest.max(all * crowding / (1_000 * u128::from(shape.ranks)));
    let [sent, received, reduced] = [cost.sent, cost.received, cost.reduced].map(of);
    let piece = parameters.piece_bytes.min(bytes.div_ceil(u64::from(width.max(1))));
    let passed_on = u128::from(cost.rounds) * u128::from(piece);
    let wire = u128::from(parameters.wire_fs_per_byte) * sent.max(received).max(passed_on);
    let copied = u128::from(parameters.cpu_fs_per_byte) * work(sent + received, 2 * of(cost.all.sent));
    let crowd = u128::from(cost.peers.saturating_sub(2)) * u128::from(parameters.per_peer_thousandths);
    let moved = wire.max(copied) * (1_000 + crowd) / 1_000;
    let summed = u128::from(parameters.reduce_fs_per_byte) * work(reduced, of(cost.all.reduced));
    // In thousandths, as the mean of all ranks need not be whole. Every message has two ends.
    let messages = work(u128::from(cost.messages) * 1_000, 2_000 * u128::from(cost.all.messages));
    let switch = if crowding > 1_000 { parameters.switch_ns } else { 0 };
    let handled = u128::from(parameters.cpu_per_message_ns + switch) * messages / 1_000;
    let waited = u128::from(cost.rounds) * u128::from(parameters.latency_ns);
    let nanoseconds = waited.max(handled) + (moved + summed) / FEMTOSECONDS;
    u64::try_from(nanoseconds).unwrap_or(u64::MAX)
}

/// Sizes in bytes between which [`price_of`] is a straight line, but for rounding: where its pieces stop to grow and
/// where one side of a maximum overtakes the other.
pub(crate) fn bends(cost: &Cost, shape: &Shape, width: u32, parameters: &Parameters) -> Vec<u64> {
    const UNIT: u64 = 1 << 32;
    let of = |part: Fraction| u128::from(part.of(UNIT));
    let crowding = u128::from(parameters.ranks_per_core_thousandths.max(1_000));
    let mean = 2 * of(cost.all.sent) * crowding / (1_000 * u128::from(shape.ranks));
    let copied = u128::from(parameters.cpu_fs_per_byte) * (of(cost.sent) + of(cost.received)).max(mean);
    let wire = u128::from(parameters.wire_fs_per_byte);
    let unit_of_pieces = u128::from(cost.rounds) * u128::from(parameters.piece_bytes) * u128::from(UNIT);
    let passed_on = wire.saturating_mul(unit_of_pieces);
    let overtakes = |per_unit: u128| passed_on.checked_div(per_unit).and_then(|at| u64::try_from(at).ok());
    let whole_pieces = parameters.piece_bytes.checked_mul(u64::from(width.max(1)));
    let found = [whole_pieces, overtakes(wire * of(cost.sent)), overtakes(wire * of(cost.received))];
    found.into_iter().chain([overtakes(copied)]).flatten().collect()
}
