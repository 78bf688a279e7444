//! The 64-byte header at the start of each call's bytes on a link and direction, byte by byte.
//!
//! Only fields that must be equal on both sides are written; other fields are zero. So two headers belong to one call
//! exactly if their bytes are equal, and a difference is a mismatch. Little-endian:
//!
//! | offset | size | field | must be equal |
//! | --- | --- | --- | --- |
//! | 0 | 2 | version of this format, [`HEADER_VERSION`] | always |
//! | 2 | 1 | collective | always |
//! | 3 | 3 | dtype: its number, and the bytes of an opaque element (0 for the others) | always |
//! | 6 | 1 | reduce op, 0 for none | always |
//! | 7 | 1 | flags: 1 in place, 2 uneven, 4 labelled | in place: unless rooted |
//! | 8 | 8 | number of the collective on its communicator | always |
//! | 16 | 8 | count | unless uneven (the plan hash covers uneven counts) |
//! | 24 | 4 | root, all ones for none | always |
//! | 28 | 4 | hash of the algorithm's name; for one from outside, of the schedules of all ranks | always |
//! | 32 | 4 | hash of the label, 0 for none | always |
//! | 36 | 4 | hash of the user operator's name, 0 for none | always |
//! | 40 | 4 | piece size in bytes | always |
//! | 44 | 4 | context: hash of the parent call, 0 for a plain call | always |
//! | 48 | 8 | plan hash: the lengths of coalesced segments, and of every step on this link and direction | always |
//! | 56 | 8 | digest of all earlier calls of the communicator | always |
//!
//! The digest detects different calls that share no message, such as two broadcasts from different roots: the next
//! header between any two ranks shows the difference.

#[cfg(test)]
mod tests;

use std::borrow::Cow;

use unisono_backend::{EARLIER_CALLS, mix_digest};
use unisono_communicator::{
    CallAlgorithm, CallInfo, Collective, Counts, DType, Descriptor, Operation, ParentCall, Place, ReduceOp,
    ShortText, Sizes, UserOp,
};
use unisono_schedule::algorithms;

/// Version of the header and of the order of pieces behind it.
pub const HEADER_VERSION: u16 = 4;

/// The largest piece size that a caller can set.
pub const PIECE_BYTES_MAX: u64 = 1 << 30;
const _: () = assert!(PIECE_BYTES_MAX <= u32::MAX as u64, "a piece's size has four bytes");

/// The offset of the plan hash.
const PLAN_HASH_AT: usize = 48;

/// Size of a call header.
pub const HEADER_BYTES: usize = 64;

const FLAG_IN_PLACE: u8 = 1;
const FLAG_UNEVEN: u8 = 2;
const FLAG_LABEL: u8 = 4;
const NO_ROOT: u32 = u32::MAX;

/// The text of a label or user operator of which only the hash is known.
const TEXT_UNKNOWN: &str = "(not known)";

/// A header's bytes.
pub type HeaderBytes = [u8; HEADER_BYTES];

/// Stands for a header where both sides have it: the digest of all its fields but the plan hash, and the plan hash.
pub type HeaderKey = [u64; 2];

/// The header of a call without the plan hash, which differs by link and direction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallHeader {
    bytes: HeaderBytes,
    /// The hash of lengths that the plan lacks. It goes into the plan hash of every link.
    sizes_hash: u64,
    /// See [`CallHeader::digest`]; 0 before the header is complete.
    digest: u64,
}

impl CallHeader {
    /// The header of call `number`, run by `algorithm` in pieces of `piece_bytes`.
    pub(crate) fn new(
        descriptor: &Descriptor,
        number: u64,
        algorithm_hash: u32,
        piece_bytes: u64,
    ) -> CallHeader {
        let mut bytes = [0; HEADER_BYTES];
        write_descriptor(&mut bytes, descriptor);
        bytes[0..2].copy_from_slice(&HEADER_VERSION.to_le_bytes());
        bytes[8..16].copy_from_slice(&number.to_le_bytes());
        bytes[28..32].copy_from_slice(&algorithm_hash.to_le_bytes());
        // No bits are lost: a piece has at most `PIECE_BYTES_MAX` bytes.
        bytes[40..44].copy_from_slice(&(piece_bytes as u32).to_le_bytes());
        CallHeader { bytes, sizes_hash: 0, digest: 0 }
    }

    /// The same header with this number.
    #[inline]
    pub(crate) fn numbered(mut self, number: u64) -> CallHeader {
        self.bytes[8..16].copy_from_slice(&number.to_le_bytes());
        self
    }

    /// The number of the call.
    #[inline]
    pub(crate) fn number(&self) -> u64 {
        u64_at(&self.bytes, 8)
    }

    /// The same header for a part of a parent call. `context` is [`context_of`] the parent, or 0 for a plain call.
    #[inline]
    pub(crate) fn within(mut self, context: u32) -> CallHeader {
        self.bytes[44..48].copy_from_slice(&context.to_le_bytes());
        self
    }

    /// The complete header, after earlier calls, whose [`CallHeader::digest`] is `earlier`.
    #[inline]
    pub(crate) fn behind(mut self, earlier: u64) -> CallHeader {
        self.bytes[56..64].copy_from_slice(&earlier.to_le_bytes());
        self.digest = header_digest(&self.bytes);
        self
    }

    /// The same header with a hash of `counts` and of segments that end at these bytes, for a call whose plan has
    /// neither. Lengths that differ by rank are left out.
    pub(crate) fn with_sizes(mut self, counts: &Counts, segment_ends: Option<&[usize]>) -> CallHeader {
        let hash = |words: &mut dyn Iterator<Item = u64>| words.fold(HASH_START, hash_word);
        self.sizes_hash = match (counts, segment_ends) {
            (Counts::Even | Counts::PerRank(_), Some(ends)) => hash(&mut ends.iter().map(|&end| end as u64)),
            (Counts::PerRank(list), None) => hash(&mut list.iter().copied()),
            (Counts::Even, None) | (Counts::PerPair { .. }, _) => 0,
        };
        self
    }

    /// The digest of this call and all earlier calls, without the fields that differ by link.
    pub(crate) fn digest(&self) -> u64 {
        self.digest
    }

    /// The key of [`CallHeader::with_plan_hash`].
    #[inline]
    pub(crate) fn key(&self, plan_hash: u64) -> HeaderKey {
        debug_assert_eq!(self.digest, header_digest(&self.bytes), "the header is complete");
        [self.digest, plan_hash ^ self.sizes_hash]
    }

    /// The bytes for one link and direction.
    #[inline]
    pub(crate) fn with_plan_hash(&self, plan_hash: u64) -> HeaderBytes {
        let mut bytes = self.bytes;
        let plan_hash = plan_hash ^ self.sizes_hash;
        bytes[PLAN_HASH_AT..PLAN_HASH_AT + 8].copy_from_slice(&plan_hash.to_le_bytes());
        bytes
    }
}

/// The digest of the call with this header and of all earlier calls; the next call's header contains it. It covers all
/// fields but the plan hash, which differs by link.
#[inline]
pub fn header_digest(header: &[u8; HEADER_BYTES]) -> u64 {
    let words = (0..HEADER_BYTES).step_by(8).filter(|at| *at != PLAN_HASH_AT);
    mix_digest(words.map(|at| u64_at(header, at)))
}

/// The hash of a parent call: of its name, its sizes, and the fields that any call compares. Never 0.
pub(crate) fn context_of(parent: &ParentCall) -> u32 {
    let header = CallHeader::new(&parent.descriptor, 0, hash_name(parent.name.as_str()), 0);
    let digest = hash_word(header_digest(&header.bytes), parent.sizes.as_deref().map_or(0, Sizes::digest));
    ((digest ^ digest >> 32) as u32).max(1)
}

/// Writes the compared fields of a descriptor. Other fields stay zero.
fn write_descriptor(bytes: &mut HeaderBytes, descriptor: &Descriptor) {
    let mut flags = 0;
    if descriptor.place == Place::InPlace
        && !descriptor.operation.collective().is_some_and(Collective::place_may_differ)
    {
        flags |= FLAG_IN_PLACE;
    }
    if descriptor.uneven {
        flags |= FLAG_UNEVEN;
    }
    // An empty label counts as none, since the wire cannot tell the two apart.
    let label = descriptor.label.filter(|label| !label.as_str().is_empty());
    if label.is_some() {
        flags |= FLAG_LABEL;
    }
    let user_name = match descriptor.op {
        Some(ReduceOp::User(user)) => hash_name(user.name.as_str()),
        _ => 0,
    };
    bytes[2] = descriptor.operation.code();
    bytes[3..6].copy_from_slice(&descriptor.dtype.code());
    bytes[6] = descriptor.op.map_or(0, ReduceOp::code);
    bytes[7] = flags;
    bytes[16..24].copy_from_slice(&if descriptor.uneven { 0 } else { descriptor.count }.to_le_bytes());
    bytes[24..28].copy_from_slice(&descriptor.root.unwrap_or(NO_ROOT).to_le_bytes());
    bytes[32..36].copy_from_slice(&label.map_or(0, |label| hash_name(label.as_str())).to_le_bytes());
    bytes[36..40].copy_from_slice(&user_name.to_le_bytes());
}

/// FNV-1a, 32 bits. Names are compared, not trusted.
pub(crate) fn hash_name(name: &str) -> u32 {
    name.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// The hash of an algorithm: of its name, and of its schedules if `schedules` is not 0.
pub(crate) fn hash_named((name, schedules): (&str, u32)) -> u32 {
    hash_name(name) ^ schedules
}

/// FNV-1a, 64 bits, continued by one word. A plan hash is this over the lengths of the steps in bytes.
pub(crate) fn hash_word(hash: u64, word: u64) -> u64 {
    word.to_le_bytes()
        .iter()
        .fold(hash, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The start value of a [`hash_word`] chain.
pub(crate) const HASH_START: u64 = 0xcbf2_9ce4_8422_2325;

#[inline]
fn u32_at(bytes: &HeaderBytes, at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn collective_of(bytes: &HeaderBytes) -> Option<Collective> {
    Operation::from_code(bytes[2]).and_then(Operation::collective)
}

fn dtype_of(bytes: &HeaderBytes) -> Option<DType> {
    DType::from_code([bytes[3], bytes[4], bytes[5]])
}

#[inline]
fn u64_at(bytes: &HeaderBytes, at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

/// The fields in which two headers differ; `None` if they belong to one call. A field that the header holds only as a
/// hash "differs"; the other rank's answer has its value.
pub(crate) fn header_difference(ours: &HeaderBytes, theirs: &HeaderBytes) -> Option<String> {
    if ours == theirs {
        return None;
    }
    let mut list = plain_differences(ours, theirs);
    let differs = |range: std::ops::Range<usize>| ours[range.clone()] != theirs[range];
    let is_labelled = |h: &HeaderBytes| if h[7] & FLAG_LABEL != 0 { "given" } else { "none" }.to_owned();
    if is_labelled(ours) != is_labelled(theirs) {
        push_difference(&mut list, "label", is_labelled(ours), is_labelled(theirs));
    } else if differs(32..36) {
        list.push("label differs".to_owned());
    }
    if differs(36..40) {
        list.push("name of the user op differs".to_owned());
    }
    match [u32_at(ours, 44), u32_at(theirs, 44)] {
        [ours, theirs] if ours == theirs => {}
        [0, _] => list.push("a plain call / part of another call".to_owned()),
        [_, 0] => list.push("part of another call / a plain call".to_owned()),
        [_, _] => list.push("part of one call / part of another".to_owned()),
    }
    // Most other differences change these fields too, so they are named only if no other field differs.
    if list.is_empty() && differs(40..44) {
        push_difference(
            &mut list,
            "piece bytes",
            u32_at(ours, 40).to_string(),
            u32_at(theirs, 40).to_string(),
        );
    }
    if list.is_empty() && differs(PLAN_HASH_AT..PLAN_HASH_AT + 8) {
        let is_uneven = ours[7] & FLAG_UNEVEN != 0;
        list.push(if is_uneven { "counts differ" } else { "segment lengths differ" }.to_owned());
    }
    // Calls of different numbers always have different digests, and the numbers say enough.
    if u64_at(ours, 8) == u64_at(theirs, 8) && differs(56..64) {
        list.push(format!("{EARLIER_CALLS} differ"));
    }
    if list.is_empty() {
        list.push("reserved bits".to_owned());
    }
    Some(list.join(", "))
}

fn push_difference(list: &mut Vec<String>, name: &str, ours: String, theirs: String) {
    if ours != theirs {
        list.push(format!("{name} {ours} / {theirs}"));
    }
}

/// The differences in fields that the header holds as values, not as hashes.
fn plain_differences(ours: &HeaderBytes, theirs: &HeaderBytes) -> Vec<String> {
    let mut list = Vec::new();
    let mut field = |name: &str, text: &dyn Fn(&HeaderBytes) -> String| {
        push_difference(&mut list, name, text(ours), text(theirs));
    };
    let flag = |bit: u8| move |h: &HeaderBytes| (h[7] & bit != 0).to_string();
    field("version", &|h| u16::from_le_bytes([h[0], h[1]]).to_string());
    field("collective", &|h| {
        collective_of(h).map_or(format!("unknown ({})", h[2]), |collective| collective.to_string())
    });
    field("dtype", &|h| dtype_of(h).map_or(format!("unknown ({:?})", &h[3..6]), |dtype| dtype.to_string()));
    field("op", &|h| op_text(h[6]));
    field("in place", &flag(FLAG_IN_PLACE));
    field("uneven", &flag(FLAG_UNEVEN));
    field("number", &|h| u64_at(h, 8).to_string());
    if (ours[7] ^ theirs[7]) & FLAG_UNEVEN == 0 {
        field("count", &|h| u64_at(h, 16).to_string());
    }
    field("root", &|h| match u32_at(h, 24) {
        NO_ROOT => "none".to_owned(),
        root => root.to_string(),
    });
    if u32_at(ours, 28) != u32_at(theirs, 28) {
        let known = [ours, theirs].map(|header| algorithm_of(u32_at(header, 28)));
        list.push(match known {
            // Two algorithms from outside, possibly of one name, or two bodies whose bytes a vendor's library moves.
            [None, None] => "algorithms, or their schedules, differ".to_owned(),
            [ours, theirs] => {
                let text = |name: Option<Cow<'static, str>>| name.unwrap_or(Cow::Borrowed("another"));
                format!("algorithm {} / {}", text(ours), text(theirs))
            }
        });
    }
    list
}

/// Algorithms with more leaders than this are not named.
const LEADERS_NAMED_MAX: u32 = 64;

/// The known algorithm whose name has this hash.
fn algorithm_of(hash: u32) -> Option<Cow<'static, str>> {
    let named = |name: &Cow<'static, str>| hash_name(name) == hash;
    let plain = algorithms().iter().map(|algorithm| Cow::Borrowed(algorithm.name));
    let numbered = (1..=LEADERS_NAMED_MAX).map(|leaders| Cow::Owned(format!("leaders:{leaders}")));
    plain.chain(numbered).find(named)
}

fn op_text(code: u8) -> String {
    let user = ReduceOp::User(UserOp::commutative(TEXT_UNKNOWN));
    let known = ReduceOp::PLAIN.iter().copied().chain([ReduceOp::PreMulSum(0.0), user]);
    match code {
        0 => "none".to_owned(),
        code => known
            .into_iter()
            .find(|op| op.code() == code)
            .map_or(format!("unknown ({code})"), |op| op.name().to_owned()),
    }
}

/// The call that a peer's header describes, as far as a header can; a question to the peer tells the rest. `None` if
/// the bytes are no header.
pub(crate) fn decode(bytes: &HeaderBytes) -> Option<CallInfo> {
    let op = match bytes[6] {
        0 => None,
        code => {
            let user = ReduceOp::User(UserOp::commutative(TEXT_UNKNOWN));
            let known = ReduceOp::PLAIN.iter().copied().chain([ReduceOp::PreMulSum(f64::NAN), user]);
            Some(known.into_iter().find(|op| op.code() == code)?)
        }
    };
    let label = (bytes[7] & FLAG_LABEL != 0).then(|| ShortText::new(TEXT_UNKNOWN));
    let descriptor = Descriptor {
        op,
        root: Some(u32_at(bytes, 24)).filter(|&root| root != NO_ROOT),
        label,
        place: if bytes[7] & FLAG_IN_PLACE != 0 { Place::InPlace } else { Place::Separate },
        uneven: bytes[7] & FLAG_UNEVEN != 0,
        ..Descriptor::new(collective_of(bytes)?, dtype_of(bytes)?, u64_at(bytes, 16))
    };
    let algorithm = algorithm_of(u32_at(bytes, 28)).map(|name| CallAlgorithm { name, schedules: 0 });
    Some(CallInfo { algorithm, ..CallInfo::new(u64_at(bytes, 8), descriptor) })
}
