//! A call on the wire: number `u64`, operation `u8`, dtype 3 bytes ([`DType::code`]), count `u64`, op `u8` (0: none),
//! for a factor `u64` (the bits of the f64), for a user operator commutative `u8` and name text, root `u32` (all ones:
//! none), peer `u8` (0 none, 1 a rank, 2 any, 3 nobody; 0x80 beside these: any tag) and `u32`, tag `u32`, label text
//! (empty: none), flags `u8` (1 in place, 2 uneven), algorithm text (empty: none) and hash of its schedules `u32`,
//! file text (empty: unknown), line `u32`,
//! sizes `u8` (0 none, 1 of segments, 2 of ranks, 3 of pairs) and their lists: one, or for pairs the sent and the
//! received lengths. A list is the number of its lengths `u64`, their digest `u64`, and the first [`LENGTHS_KNOWN_MAX`]
//! of them, or all, as `u64`.
//!
//! At the end `u8` 0, or 1 for a call within a scope, and the parent call: the fields from operation to flags, name
//! text, sizes.

use std::borrow::Cow;
use std::sync::Arc;

use unisono_communicator::{
    CallAlgorithm, CallInfo, DType, Descriptor, LENGTHS_KNOWN_MAX, LengthList, Operation, ParentCall, Peer,
    Place, ReduceOp, ShortText, SiteText, Sizes, Tag, UserOp,
};

use crate::codec::{Malformed, Reader, Writer};

const FILE_BYTES_MAX: usize = 256;
const NO_ROOT: u32 = u32::MAX;
/// Beside the kind of the peer: any tag will do.
const PEER_ANY_TAG: u8 = 0x80;
const FLAG_IN_PLACE: u8 = 1;
const FLAG_UNEVEN: u8 = 2;

pub(super) fn write_optional(writer: &mut Writer, call: Option<&CallInfo>) {
    match call {
        None => drop(writer.u8(0)),
        Some(call) => write(writer.u8(1), call),
    }
}

pub(super) fn read_optional(reader: &mut Reader<'_>) -> Result<Option<CallInfo>, Malformed> {
    match reader.u8()? {
        0 => Ok(None),
        1 => read(reader).map(Some),
        _ => Err(Malformed { what: "neither a call nor none" }),
    }
}

pub(super) fn write(writer: &mut Writer, call: &CallInfo) {
    writer.u64(call.number);
    write_descriptor(writer, &call.descriptor);
    let (name, schedules) = call.algorithm.as_ref().map_or(("", 0), |one| (&*one.name, one.schedules));
    writer.text(name, CallAlgorithm::NAME_BYTES_MAX).u32(schedules);
    let (file, line) = call.site.as_ref().map_or(("", 0), |site| (&*site.file, site.line));
    writer.text(file, FILE_BYTES_MAX).u32(line);
    write_sizes(writer, call.sizes.as_deref());
    write_parent(writer, call.parent.as_deref());
}

fn write_parent(writer: &mut Writer, parent: Option<&ParentCall>) {
    match parent {
        None => drop(writer.u8(0)),
        Some(parent) => {
            write_descriptor(writer.u8(1), &parent.descriptor);
            writer.text(parent.name.as_str(), ShortText::BYTES_MAX);
            write_sizes(writer, parent.sizes.as_deref());
        }
    }
}

fn read_parent(reader: &mut Reader<'_>) -> Result<Option<ParentCall>, Malformed> {
    Ok(match reader.u8()? {
        0 => None,
        1 => Some(ParentCall {
            descriptor: read_descriptor(reader)?,
            name: read_short_text(reader)?,
            sizes: read_sizes(reader)?.map(Arc::new),
            site: None,
        }),
        _ => return Err(Malformed { what: "neither a parent nor none" }),
    })
}

pub(super) fn read(reader: &mut Reader<'_>) -> Result<CallInfo, Malformed> {
    let number = reader.u64()?;
    let descriptor = read_descriptor(reader)?;
    let (name, schedules) = (reader.text(CallAlgorithm::NAME_BYTES_MAX)?.to_owned(), reader.u32()?);
    let file = reader.text(FILE_BYTES_MAX)?.to_owned();
    let line = reader.u32()?;
    Ok(CallInfo {
        number,
        descriptor,
        algorithm: (!name.is_empty()).then_some(CallAlgorithm { name: Cow::Owned(name), schedules }),
        site: (!file.is_empty()).then_some(SiteText { file: Cow::Owned(file), line }),
        sizes: read_sizes(reader)?.map(Arc::new),
        parent: read_parent(reader)?.map(Arc::new),
    })
}

fn write_sizes(writer: &mut Writer, sizes: Option<&Sizes>) {
    match sizes {
        None => drop(writer.u8(0)),
        Some(Sizes::Segments(list)) => write_lengths(writer.u8(1), list),
        Some(Sizes::PerRank(list)) => write_lengths(writer.u8(2), list),
        Some(Sizes::PerPair { send, receive }) => {
            write_lengths(writer.u8(3), send);
            write_lengths(writer, receive);
        }
    }
}

fn read_sizes(reader: &mut Reader<'_>) -> Result<Option<Sizes>, Malformed> {
    Ok(match reader.u8()? {
        0 => None,
        1 => Some(Sizes::Segments(read_lengths(reader)?)),
        2 => Some(Sizes::PerRank(read_lengths(reader)?)),
        3 => Some(Sizes::PerPair { send: read_lengths(reader)?, receive: read_lengths(reader)? }),
        _ => return Err(Malformed { what: "an unknown kind of sizes" }),
    })
}

fn write_lengths(writer: &mut Writer, list: &LengthList) {
    writer.u64(list.count()).u64(list.digest());
    for length in list.known() {
        writer.u64(*length);
    }
}

fn read_lengths(reader: &mut Reader<'_>) -> Result<LengthList, Malformed> {
    let (count, digest) = (reader.u64()?, reader.u64()?);
    let known = (0..count.min(LENGTHS_KNOWN_MAX as u64)).map(|_| reader.u64());
    let list = LengthList::from_known(known.collect::<Result<_, _>>()?, count, digest);
    list.ok_or(Malformed { what: "a list of lengths of another size" })
}

fn write_descriptor(writer: &mut Writer, descriptor: &Descriptor) {
    writer.u8(descriptor.operation.code()).array(&descriptor.dtype.code()).u64(descriptor.count);
    writer.u8(descriptor.op.map_or(0, ReduceOp::code));
    match descriptor.op {
        Some(ReduceOp::PreMulSum(factor)) => drop(writer.u64(factor.to_bits())),
        Some(ReduceOp::User(user)) => {
            writer.u8(user.commutative.into()).text(user.name.as_str(), ShortText::BYTES_MAX);
        }
        _ => {}
    }
    writer.u32(descriptor.root.unwrap_or(NO_ROOT));
    let any_tag = if descriptor.tag == Tag::Any { PEER_ANY_TAG } else { 0 };
    let (kind, rank) = match descriptor.peer {
        None => (0, 0),
        Some(Peer::Rank(rank)) => (1, rank),
        Some(Peer::Any) => (2, 0),
        Some(Peer::None) => (3, 0),
    };
    writer.u8(kind | any_tag).u32(rank).u32(descriptor.tag.one().unwrap_or_default());
    writer.text(descriptor.label.as_ref().map_or("", ShortText::as_str), ShortText::BYTES_MAX);
    let in_place = if descriptor.place == Place::InPlace { FLAG_IN_PLACE } else { 0 };
    writer.u8(in_place | if descriptor.uneven { FLAG_UNEVEN } else { 0 });
}

fn read_descriptor(reader: &mut Reader<'_>) -> Result<Descriptor, Malformed> {
    let operation = Operation::from_code(reader.u8()?).ok_or(Malformed { what: "an unknown operation" })?;
    let dtype = DType::from_code(reader.array()?).ok_or(Malformed { what: "an unknown dtype" })?;
    let count = reader.u64()?;
    let op = read_op(reader)?;
    let root = Some(reader.u32()?).filter(|&root| root != NO_ROOT);
    let (kind, rank, tag) = (reader.u8()?, reader.u32()?, reader.u32()?);
    let peer = match kind & !PEER_ANY_TAG {
        0 => None,
        1 => Some(Peer::Rank(rank)),
        2 => Some(Peer::Any),
        3 => Some(Peer::None),
        _ => return Err(Malformed { what: "an unknown kind of peer" }),
    };
    let tag = if kind & PEER_ANY_TAG == 0 { Tag::Is(tag) } else { Tag::Any };
    let label = Some(read_short_text(reader)?).filter(|label| !label.as_str().is_empty());
    let flags = reader.u8()?;
    let place = if flags & FLAG_IN_PLACE != 0 { Place::InPlace } else { Place::Separate };
    let uneven = flags & FLAG_UNEVEN != 0;
    Ok(Descriptor { op, root, peer, tag, label, place, uneven, ..Descriptor::new(operation, dtype, count) })
}

fn read_op(reader: &mut Reader<'_>) -> Result<Option<ReduceOp>, Malformed> {
    let code = reader.u8()?;
    if code == 0 {
        return Ok(None);
    }
    if code == ReduceOp::PreMulSum(0.0).code() {
        return Ok(Some(ReduceOp::PreMulSum(f64::from_bits(reader.u64()?))));
    }
    if code == ReduceOp::User(UserOp::ordered("")).code() {
        let commutative = reader.u8()? != 0;
        return Ok(Some(ReduceOp::User(UserOp { commutative, name: read_short_text(reader)? })));
    }
    let plain = ReduceOp::PLAIN.iter().copied().find(|op| op.code() == code);
    plain.map(Some).ok_or(Malformed { what: "an unknown reduce op" })
}

fn read_short_text(reader: &mut Reader<'_>) -> Result<ShortText, Malformed> {
    reader.text(ShortText::BYTES_MAX).map(ShortText::new)
}

#[cfg(test)]
mod tests {
    use unisono_communicator::Collective;

    use super::*;

    #[test]
    fn every_field_arrives() {
        let ops = ReduceOp::PLAIN.iter().copied().map(Some).chain([
            None,
            Some(ReduceOp::PreMulSum(0.5)),
            Some(ReduceOp::User(UserOp::commutative("affine"))),
        ]);
        let opaque = DType::opaque(0x0304).unwrap();
        let list = |count: u64| LengthList::new((0..count).collect::<Vec<_>>().into_iter());
        let kinds = [
            None,
            Some(Sizes::Segments(list(0))),
            Some(Sizes::PerRank(list(3))),
            Some(Sizes::PerPair { send: list(LENGTHS_KNOWN_MAX as u64), receive: list(1000) }),
        ];
        let mut sizes = kinds.map(|kind| kind.map(Arc::new)).into_iter().cycle();
        let peers = [Peer::Rank(4), Peer::Any, Peer::None].into_iter();
        let mut peers = peers.flat_map(|peer| [(peer, Tag::Is(5)), (peer, Tag::Any)]).cycle();
        for (op, dtype) in ops.flat_map(|op| [(op, DType::BF16), (op, opaque)]) {
            let (peer, tag) = peers.next().unwrap();
            let descriptor = Descriptor {
                op,
                root: Some(2),
                peer: Some(peer),
                tag,
                label: Some(ShortText::new("gradients")),
                place: Place::InPlace,
                uneven: true,
                ..Descriptor::new(Collective::Reduce, dtype, 77)
            };
            let site = Some(SiteText { file: "train.rs".into(), line: 9 });
            let sizes = sizes.next().flatten();
            let parent = ParentCall { sizes: sizes.clone(), ..ParentCall::new("compressed", descriptor) };
            let parent = sizes.is_some().then(|| Arc::new(parent));
            // As long as a name can be.
            let name = Cow::Owned("n".repeat(CallAlgorithm::NAME_BYTES_MAX));
            let algorithm = Some(CallAlgorithm { name, schedules: 0xfeed });
            let call = CallInfo { number: 8, descriptor, algorithm, site, sizes, parent };
            let mut writer = Writer::new();
            write(&mut writer, &call);
            let bytes = writer.finish();
            let mut reader = Reader::new(&bytes);
            assert_eq!(read(&mut reader), Ok(call));
            assert_eq!(reader.finish(), Ok(()));
        }
    }
}
