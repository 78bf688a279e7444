//! Requests to a store and their answers on the wire. A value is `length u32` and that many bytes.
//!
//! A request: slot `u16`, sequence `u64`, communicator `u64`, epoch `u32`, key text, operation `u8`:
//!
//! | operation | name | fields |
//! | --- | --- | --- |
//! | 1 | set | value |
//! | 2 | get | none |
//! | 3 | try get | none |
//! | 4 | wait | none |
//! | 5 | add | addend `u64` in two's complement |
//! | 6 | compare and set | expected value, desired value |
//! | 7 | delete | none |
//! | 8 | count | none |
//!
//! An answer: slot `u16`, sequence `u64`, reply `u8`:
//!
//! | reply | name | fields |
//! | --- | --- | --- |
//! | 1 | done | none |
//! | 2 | value | value |
//! | 3 | missing | none |
//! | 4 | number | `u64` in two's complement |
//! | 5 | deleted | `u8`: 1 if the key was there, else 0 |
//! | 6 | count | `u64` |
//! | 7 | refused | `u8`: 1 full, 2 not a number, 3 overflow |

use unisono_backend::CommunicatorKey;

use crate::codec::{Malformed, Reader, Writer};
use crate::store::{
    CALLS_MAX, KEY_BYTES_MAX, StoreAnswer, StoreCallId, StoreKey, StoreOperation, StoreRefusal, StoreReply,
    StoreRequest, VALUE_BYTES_MAX,
};

/// The most bytes of a request: of a comparison.
pub(super) const REQUEST_BYTES_MAX: usize = 64 + KEY_BYTES_MAX + 2 * VALUE_BYTES_MAX;

pub(super) fn write_request(writer: &mut Writer, request: &StoreRequest) {
    write_call(writer, request.call);
    let CommunicatorKey { id, epoch } = request.key.store;
    writer.u64(id).u32(epoch).text(&request.key.key, KEY_BYTES_MAX);
    match &request.operation {
        StoreOperation::Set(value) => writer.u8(1).bytes(value),
        StoreOperation::Get => writer.u8(2),
        StoreOperation::TryGet => writer.u8(3),
        StoreOperation::Wait => writer.u8(4),
        StoreOperation::Add(number) => writer.u8(5).u64(number.cast_unsigned()),
        StoreOperation::CompareAndSet { expected, desired } => writer.u8(6).bytes(expected).bytes(desired),
        StoreOperation::Delete => writer.u8(7),
        StoreOperation::Count => writer.u8(8),
    };
}

pub(super) fn read_request(reader: &mut Reader<'_>) -> Result<StoreRequest, Malformed> {
    let call = read_call(reader)?;
    let store = CommunicatorKey { id: reader.u64()?, epoch: reader.u32()? };
    let key = StoreKey { store, key: reader.text(KEY_BYTES_MAX)?.into() };
    let operation = match reader.u8()? {
        1 => StoreOperation::Set(reader.bytes(VALUE_BYTES_MAX)?.into()),
        2 => StoreOperation::Get,
        3 => StoreOperation::TryGet,
        4 => StoreOperation::Wait,
        5 => StoreOperation::Add(reader.u64()?.cast_signed()),
        6 => StoreOperation::CompareAndSet {
            expected: reader.bytes(VALUE_BYTES_MAX)?.into(),
            desired: reader.bytes(VALUE_BYTES_MAX)?.into(),
        },
        7 => StoreOperation::Delete,
        8 => StoreOperation::Count,
        _ => return Err(Malformed { what: "an unknown operation of a store" }),
    };
    Ok(StoreRequest { call, key, operation })
}

pub(super) fn write_answer(writer: &mut Writer, answer: &StoreAnswer) {
    write_call(writer, answer.call);
    match &answer.reply {
        StoreReply::Done => writer.u8(1),
        StoreReply::Value(value) => writer.u8(2).bytes(value),
        StoreReply::Missing => writer.u8(3),
        StoreReply::Number(number) => writer.u8(4).u64(number.cast_unsigned()),
        StoreReply::Deleted(was_there) => writer.u8(5).u8((*was_there).into()),
        StoreReply::Count(keys) => writer.u8(6).u64(*keys),
        StoreReply::Refused(StoreRefusal::Full) => writer.u8(7).u8(1),
        StoreReply::Refused(StoreRefusal::NotANumber) => writer.u8(7).u8(2),
        StoreReply::Refused(StoreRefusal::Overflow) => writer.u8(7).u8(3),
    };
}

pub(super) fn read_answer(reader: &mut Reader<'_>) -> Result<StoreAnswer, Malformed> {
    let call = read_call(reader)?;
    let reply = match reader.u8()? {
        1 => StoreReply::Done,
        2 => StoreReply::Value(reader.bytes(VALUE_BYTES_MAX)?.into()),
        3 => StoreReply::Missing,
        4 => StoreReply::Number(reader.u64()?.cast_signed()),
        5 => match reader.u8()? {
            0 => StoreReply::Deleted(false),
            1 => StoreReply::Deleted(true),
            _ => return Err(Malformed { what: "neither deleted nor missing" }),
        },
        6 => StoreReply::Count(reader.u64()?),
        7 => match reader.u8()? {
            1 => StoreReply::Refused(StoreRefusal::Full),
            2 => StoreReply::Refused(StoreRefusal::NotANumber),
            3 => StoreReply::Refused(StoreRefusal::Overflow),
            _ => return Err(Malformed { what: "an unknown refusal of a store" }),
        },
        _ => return Err(Malformed { what: "an unknown reply of a store" }),
    };
    Ok(StoreAnswer { call, reply })
}

fn write_call(writer: &mut Writer, call: StoreCallId) {
    writer.u16(call.slot).u64(call.sequence);
}

fn read_call(reader: &mut Reader<'_>) -> Result<StoreCallId, Malformed> {
    let call = StoreCallId { slot: reader.u16()?, sequence: reader.u64()? };
    if call.slot < CALLS_MAX { Ok(call) } else { Err(Malformed { what: "a slot beyond the last one" }) }
}

/// A request and an answer of each kind.
#[cfg(test)]
pub(super) fn examples() -> (Vec<StoreRequest>, Vec<StoreAnswer>) {
    let call = StoreCallId { slot: CALLS_MAX - 1, sequence: u64::MAX };
    let store = CommunicatorKey { id: 7, epoch: 2 };
    let text = |text: &str| text.as_bytes().into();
    let operations = [
        StoreOperation::Set(text("value")),
        StoreOperation::Get,
        StoreOperation::TryGet,
        StoreOperation::Wait,
        StoreOperation::Add(-3),
        StoreOperation::CompareAndSet { expected: b"old"[..].into(), desired: text("new") },
        StoreOperation::Delete,
        StoreOperation::Count,
    ];
    let replies = [
        StoreReply::Done,
        StoreReply::Value(text("value")),
        StoreReply::Missing,
        StoreReply::Number(i64::MIN),
        StoreReply::Deleted(true),
        StoreReply::Deleted(false),
        StoreReply::Count(9),
        StoreReply::Refused(StoreRefusal::Full),
        StoreReply::Refused(StoreRefusal::NotANumber),
        StoreReply::Refused(StoreRefusal::Overflow),
    ];
    let key = StoreKey { store, key: "epoch/\u{e9}".into() };
    let requests = operations.map(|operation| StoreRequest { call, key: key.clone(), operation });
    (requests.into(), replies.map(|reply| StoreAnswer { call, reply }).into())
}
