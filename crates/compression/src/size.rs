//! The sizes of things, before they are made.

use crate::codec::Codec;
use crate::layout::Layout;
use crate::message::message_words;
use crate::route::{Route, Teams};
use crate::summed::code_size;

/// The bytes that all ranks together send to others in one compressed all-reduce of `elements` elements: statuses,
/// scales and codes, without the transport's headers.
///
/// ```
/// # mod unisono { pub use unisono_compression as compression; }
/// use unisono::compression::{SignL1, wire_bytes};
/// let exact = 2 * 1_000_000 * 4;
/// assert!(wire_bytes(&SignL1::default(), 1_000_000, 2) * 30 < exact);
/// ```
pub fn wire_bytes(codec: &dyn Codec, elements: usize, ranks: usize) -> u64 {
    let layout = Layout::even(codec, elements, ranks, Teams::alone(ranks));
    let pieces = (0..ranks).flat_map(|owner| (0..layout.pieces).map(move |piece| (piece, owner)));
    let words: usize =
        pieces.map(|(piece, owner)| message_words(codec, layout.piece(piece, owner).len())).sum();
    // Each message goes to its owner from all others, and the sum from the owner to all others.
    2 * (ranks as u64 - 1) * (words * size_of::<u32>()) as u64
}

/// The bytes that all ranks together send to ranks of other hosts in one compressed all-reduce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetworkBytes {
    /// To the owners: a reduce-scatter sends these too.
    pub to_owners: u64,
    /// From the owners, when each sum comes to each host once, as by an all-gather in the order of hosts.
    pub to_all: u64,
}

/// The same as [`wire_bytes`], but only between hosts; rank r is on host `hosts[r]`.
///
/// ```
/// # mod unisono { pub use unisono_compression as compression; }
/// use unisono::compression::{Int8, Route, network_bytes};
/// let [direct, two_levels] = [Route::Direct, Route::TwoLevels]
///     .map(|route| network_bytes(&Int8::default(), 1 << 20, &[0, 0, 1, 1], route).to_owners);
/// // Each host sends its elements for the other's owners once instead of twice: half of the vector.
/// assert_eq!(direct, 2 * two_levels);
/// assert!(two_levels < 2 * (1 << 20) / 2 * 4 * 27 / 100);
/// ```
pub fn network_bytes(codec: &dyn Codec, elements: usize, hosts: &[u32], route: Route) -> NetworkBytes {
    let ranks = hosts.len();
    let teams = match route {
        Route::Direct | Route::SummedCodes => Teams::alone(ranks),
        Route::TwoLevels => Teams::of(hosts),
    };
    let layout = Layout::even(codec, elements, ranks, teams);
    let bytes = |owner| {
        let words = layout.pieces_of(owner).map(|part| message_words(codec, part.elements.len()));
        (words.sum::<usize>() * size_of::<u32>()) as u64
    };
    let other_hosts = Teams::of(hosts).count() as u64 - 1;
    let is_sent = |rank: usize, owner: &usize| hosts[rank] != hosts[*owner];
    let to_owners = (0..ranks).flat_map(|rank| {
        layout.teams.owners(rank).filter(move |owner| is_sent(rank, owner)).map(bytes).collect::<Vec<u64>>()
    });
    let to_owners = match (route, codec.summable().map(|summable| code_size(summable, ranks))) {
        // A ring passes the codes of all elements but a share's from each host to the next.
        (Route::SummedCodes, Some(Ok(size))) if other_hosts > 0 => {
            let codes = (elements * size.bytes()) as u64;
            codes * (ranks as u64 - 1) / ranks as u64 * (other_hosts + 1)
        }
        _ => to_owners.sum(),
    };
    NetworkBytes { to_owners, to_all: other_hosts * (0..ranks).map(bytes).sum::<u64>() }
}

/// The memory of the residuals that rank `rank` of `ranks` keeps for a vector of `elements` elements, in bytes; see
/// [`crate::CompressionState::bytes`].
pub fn residual_bytes(codec: &dyn Codec, elements: usize, rank: usize, ranks: usize) -> u64 {
    if !codec.has_feedback() {
        return 0;
    }
    let layout = Layout::even(codec, elements, ranks, Teams::alone(ranks));
    (2 * (layout.padded + layout.share(rank).len()) * size_of::<f32>()) as u64
}
