//! A status on the wire, `u8`: 0 not yet with the last call (`u8` 0, or 1 and a call) and the doings of the rank, 1
//! running with a call, the doings of the rank, and the call ahead of it (`u8` 0, or 1 and a call, which is `u8` 0 on
//! the device, or 1 on the stream with its communicator and epoch), 2 done with a call and the doings of the rank, 3
//! forgotten. The doings of a rank are the awaited rank `u32` (all ones: none), the message in which it waits (`u8` 0,
//! or 1 and a call), the messages that have no receive (`u8` pairs of sender and tag, each as sender `u32`, tag `u32`
//! and number `u64`), and the call of another communicator in which it waits (`u8` 0, or 1 and a call, its communicator
//! `u64` and epoch `u32`, text of the list of its ranks, awaited rank `u32`, and the collective about which that rank
//! can be asked `u64`). Awaited ranks are ranks of the job, senders ranks of the communicator.

use unisono_backend::{CallAhead, CallElsewhere, CallStatus, Doing, UnreadMessages};
use unisono_communicator::{GroupRank, JobRank};

use super::{NOBODY, TEXT_BYTES_MAX, call, read_key, write_key};
use crate::codec::{Malformed, Reader, Writer};

pub(super) fn write(writer: &mut Writer, status: &CallStatus) {
    match status {
        CallStatus::NotYet { last, doing } => {
            call::write_optional(writer.u8(0), last.as_ref());
            write_doing(writer, doing);
        }
        CallStatus::Running { call, doing, ahead } => {
            call::write(writer.u8(1), call);
            write_doing(writer, doing);
            write_ahead(writer, ahead.as_deref());
        }
        CallStatus::Done { call, doing } => {
            call::write(writer.u8(2), call);
            write_doing(writer, doing);
        }
        CallStatus::Forgotten => {
            writer.u8(3);
        }
    }
}

pub(super) fn read(reader: &mut Reader<'_>) -> Result<CallStatus, Malformed> {
    Ok(match reader.u8()? {
        0 => CallStatus::NotYet { last: call::read_optional(reader)?, doing: Box::new(read_doing(reader)?) },
        1 => CallStatus::Running {
            call: call::read(reader)?,
            doing: Box::new(read_doing(reader)?),
            ahead: read_ahead(reader)?.map(Box::new),
        },
        2 => CallStatus::Done { call: call::read(reader)?, doing: Box::new(read_doing(reader)?) },
        3 => CallStatus::Forgotten,
        _ => return Err(Malformed { what: "an unknown status" }),
    })
}

fn write_doing(writer: &mut Writer, doing: &Doing) {
    write_awaited(writer, doing.awaited);
    call::write_optional(writer, doing.message.as_deref());
    let unread = &doing.unread[..doing.unread.len().min(Doing::UNREAD_MAX)];
    writer.u8(unread.len() as u8);
    for UnreadMessages { from, tag, messages } in unread {
        writer.u32(from.get()).u32(*tag).u64(*messages);
    }
    let elsewhere = doing.elsewhere.as_deref();
    call::write_optional(writer, elsewhere.map(|elsewhere| &elsewhere.call));
    if let Some(CallElsewhere { communicator, ranks, awaited, number, .. }) = elsewhere {
        write_key(writer, *communicator);
        writer.text(ranks, TEXT_BYTES_MAX);
        write_awaited(writer, *awaited);
        writer.u64(*number);
    }
}

fn write_awaited(writer: &mut Writer, rank: Option<JobRank>) {
    writer.u32(rank.map_or(NOBODY, JobRank::get));
}

fn read_awaited(reader: &mut Reader<'_>) -> Result<Option<JobRank>, Malformed> {
    Ok(Some(reader.u32()?).filter(|&rank| rank != NOBODY).map(JobRank::new))
}

fn read_doing(reader: &mut Reader<'_>) -> Result<Doing, Malformed> {
    let awaited = read_awaited(reader)?;
    let message = call::read_optional(reader)?.map(Box::new);
    let pairs = usize::from(reader.u8()?);
    if pairs > Doing::UNREAD_MAX {
        return Err(Malformed { what: "too many messages without a receive" });
    }
    let mut unread = Vec::with_capacity(pairs);
    for _ in 0..pairs {
        let from = GroupRank::new(reader.u32()?);
        unread.push(UnreadMessages { from, tag: reader.u32()?, messages: reader.u64()? });
    }
    let elsewhere = read_elsewhere(reader)?.map(Box::new);
    Ok(Doing { awaited, message, unread, elsewhere })
}

fn read_elsewhere(reader: &mut Reader<'_>) -> Result<Option<CallElsewhere>, Malformed> {
    let Some(call) = call::read_optional(reader)? else { return Ok(None) };
    let (communicator, ranks) = (read_key(reader)?, reader.text(TEXT_BYTES_MAX)?.to_owned());
    let (awaited, number) = (read_awaited(reader)?, reader.u64()?);
    Ok(Some(CallElsewhere { communicator, ranks, call, awaited, number }))
}

fn write_ahead(writer: &mut Writer, ahead: Option<&CallAhead>) {
    call::write_optional(writer, ahead.map(|ahead| &ahead.call));
    if let Some(ahead) = ahead {
        writer.u8(u8::from(ahead.communicator.is_some()));
        if let Some(key) = ahead.communicator {
            write_key(writer, key);
        }
    }
}

fn read_ahead(reader: &mut Reader<'_>) -> Result<Option<CallAhead>, Malformed> {
    let Some(call) = call::read_optional(reader)? else { return Ok(None) };
    let communicator = match reader.u8()? {
        0 => None,
        1 => Some(read_key(reader)?),
        _ => return Err(Malformed { what: "an unknown call ahead" }),
    };
    Ok(Some(CallAhead { call, communicator }))
}
