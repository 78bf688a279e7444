//! How large things are, before they are made.

use crate::codec::Codec;
use crate::layout::Layout;
use crate::message::message_words;
use crate::route::Teams;

/// The bytes that all ranks together send to others in one compressed all-reduce of `elements` elements: statuses,
/// scales and codes, without the transport's headers.
///
/// ```
/// use unisono_compression::{SignL1, wire_bytes};
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

/// The memory of the residuals that rank `rank` of `ranks` keeps for a vector of `elements` elements, in bytes; see
/// [`crate::CompressionState::bytes`].
pub fn residual_bytes(codec: &dyn Codec, elements: usize, rank: usize, ranks: usize) -> u64 {
    if !codec.has_feedback() {
        return 0;
    }
    let layout = Layout::even(codec, elements, ranks, Teams::alone(ranks));
    (2 * (layout.padded + layout.share(rank).len()) * size_of::<f32>()) as u64
}
