//! A first cause on the wire: code `u8`, its words as a text, its fields as a byte string (`length u32`, bytes). The
//! code is the number of its `ErrorCode`, if it has fields here.
//!
//! | code | error | fields |
//! | --- | --- | --- |
//! | 0 | any other | none; the receiver keeps the words |
//! | 1 | mismatch | rank `u32` and its call, twice; difference text |
//! | 2 | peer lost | culprits (count `u32`), call (`u8` 0, or 1 and a call), reported by `u32`, certainty `u8`, text |
//! | 3 | timeout | reported by `u32`, call, waited ns `u64`, count `u32` and that many of rank `u32`, status text |
//! | 4 | cancelled | by `u32`, call |
//! | 5 | panicked | rank `u32`, call, words text |
//! | 6 | closed | none |
//! | 7 | refused | problem text |
//! | 8 | system | action text, words text |
//! | 9 | evicted | reported by `u32`, evidence text |
//! | 10 | corrupted | from `u32`, to `u32`, call (`u8` 0, or 1 and a call), reason text |
//! | 11 | revoked | by `u32`, the cause as an error |
//! | 20 | aborted | by `u32` |
//! | 22 | non-finite | rank `u32`, block `u64`, elements of a block `u64`, call |
//! | 23 | library missing | library text, count `u32` and that many texts of attempts, remedy text |
//! | 24 | vendor | library text, function text, code `u32` in two's complement, words text, remedy text |
//!
//! A culprit is its rank `u32`, its process (`u8` 0, or 1, pid `u32` and host text), its last call (`u8` 0, or 1 and a
//! call without sizes).
//!
//! A code that the receiver does not know is taken as 0, so a newer rank can still explain itself to an older one.

use std::sync::Arc;
use std::time::Duration;

use unisono_communicator::{Awaited, CallInfo, Culprit, Error, ErrorCode, JobRank, ParentCall, Process};

use super::{TEXT_BYTES_MAX, call, certainty_code, read_certainty, read_job_rank};
use crate::codec::{Malformed, Reader, Writer};
use crate::roster::message::HOST_NAME_BYTES_MAX;

/// Awaited ranks that a timeout names; the rest is left out.
const RANKS_MAX: usize = 32;

/// Ranks that a lost-peer report names; the rest is left out.
const CULPRITS_MAX: usize = 16;

/// The code of `Revoked`, the only error that holds another error.
const REVOKED: u8 = wire_code(ErrorCode::Revoked);

// The code is one byte.
const _: () = assert!(ErrorCode::ALL.len() < u8::MAX as usize);

/// The code of a kind that has fields.
const fn wire_code(kind: ErrorCode) -> u8 {
    kind.number() as u8
}

/// Files that a missing library names; the rest is left out.
const TRIED_MAX: usize = 16;

const STATUS_BYTES_MAX: usize = 300;
/// Longest text about an awaited rank, where few are awaited.
const AWAITED_BYTES_MAX: usize = 2048;
const FIELDS_BYTES_MAX: usize = 14 * 1024;

/// Writes an error. Long texts and lists are cut; a kind without fields here travels as its words alone.
pub fn write_error(writer: &mut Writer, error: &Error) {
    let mut fields = Writer::new();
    let code = if write_fields(&mut fields, error) { wire_code(error.code()) } else { 0 };
    writer.u8(code).text(&error.to_string(), TEXT_BYTES_MAX).bytes(&fields.finish());
}

/// Writes the fields of an error; false for a kind that travels as its words alone.
fn write_fields(fields: &mut Writer, error: &Error) -> bool {
    match error {
        Error::Mismatch { calls, difference } => {
            calls.iter().for_each(|(rank, one)| call::write(fields.u32(rank.get()), one));
            fields.words(difference, TEXT_BYTES_MAX);
        }
        Error::PeerLost { culprits, call, reported_by, certainty, evidence } => {
            fields.u32(culprits.len().min(CULPRITS_MAX) as u32);
            culprits.iter().take(CULPRITS_MAX).for_each(|culprit| write_culprit(fields, culprit));
            call::write_optional(fields, call.as_deref());
            fields.u32(reported_by.get()).u8(certainty_code(*certainty)).words(evidence, TEXT_BYTES_MAX);
        }
        Error::Timeout { call, reported_by, waited, not_arrived } => {
            call::write(fields.u32(reported_by.get()), call);
            fields.u64(waited.as_nanos().min(u64::MAX.into()) as u64);
            let ranks = not_arrived.len().min(RANKS_MAX);
            fields.u32(ranks as u32);
            // The fewer ranks there are, the longer may their texts be: they must be the same on all ranks.
            let bytes_max = (RANKS_MAX * STATUS_BYTES_MAX / ranks.max(1)).min(AWAITED_BYTES_MAX);
            for one in not_arrived.iter().take(RANKS_MAX) {
                fields.u32(one.rank.get()).words(&one.status, bytes_max);
            }
        }
        Error::Cancelled { by, call } => call::write(fields.u32(by.get()), call),
        Error::Panicked { rank, call, text } => {
            call::write(fields.u32(rank.get()), call);
            fields.text(text, TEXT_BYTES_MAX);
        }
        Error::Closed { call } => {
            fields.text(call.as_deref().unwrap_or_default(), TEXT_BYTES_MAX);
        }
        Error::Refused { problem } => {
            fields.text(problem, TEXT_BYTES_MAX);
        }
        Error::System { what, text } => {
            fields.text(what, TEXT_BYTES_MAX).text(text, TEXT_BYTES_MAX);
        }
        Error::Corrupted { from, to, call, reason } => {
            call::write_optional(fields.u32(from.get()).u32(to.get()), call.as_deref());
            fields.text(reason, TEXT_BYTES_MAX);
        }
        Error::Revoked { by, cause } => {
            // Only the root cause travels: it says everything, and the error fits into a frame.
            write_error(fields.u32(by.get()), cause.root_cause());
        }
        Error::Aborted { by } => {
            fields.u32(by.get());
        }
        Error::NonFinite { rank, block, block_elements, call } => {
            call::write(fields.u32(rank.get()).u64(*block).u64(*block_elements), call);
        }
        Error::Evicted { reported_by, evidence } => {
            fields.u32(reported_by.get()).words(evidence, TEXT_BYTES_MAX);
        }
        Error::LibraryMissing { library, tried, remedy } => {
            fields.text(library, TEXT_BYTES_MAX).u32(tried.len().min(TRIED_MAX) as u32);
            for one in tried.iter().take(TRIED_MAX) {
                fields.text(one, STATUS_BYTES_MAX);
            }
            fields.text(remedy, TEXT_BYTES_MAX);
        }
        Error::Vendor { library, call, code, text, remedy } => {
            fields.text(library, TEXT_BYTES_MAX).text(call, STATUS_BYTES_MAX);
            fields.u32(code.cast_unsigned()).text(text, TEXT_BYTES_MAX).text(remedy, TEXT_BYTES_MAX);
        }
        _ => return false,
    }
    true
}

fn write_culprit(fields: &mut Writer, culprit: &Culprit) {
    fields.u32(culprit.rank.get());
    match &culprit.process {
        None => fields.u8(0),
        Some(process) => fields.u8(1).u32(process.pid).text(&process.host, HOST_NAME_BYTES_MAX),
    };
    call::write_optional(fields, culprit.last_call.as_deref().cloned().map(without_sizes).as_ref());
}

/// Only a mismatch needs the sizes of a call, and there are many culprits.
fn without_sizes(call: CallInfo) -> CallInfo {
    let parent = call.parent.map(|parent| match parent.sizes {
        None => parent,
        Some(_) => Arc::new(ParentCall { sizes: None, ..ParentCall::clone(&parent) }),
    });
    CallInfo { sizes: None, parent, ..call }
}

fn read_culprit(fields: &mut Reader<'_>) -> Result<Culprit, Malformed> {
    let rank = read_job_rank(fields)?;
    let process = match fields.u8()? {
        0 => None,
        1 => Some(Process { pid: fields.u32()?, host: fields.text(HOST_NAME_BYTES_MAX)?.into() }),
        _ => return Err(Malformed { what: "neither a process nor none" }),
    };
    Ok(Culprit { rank, process, last_call: call::read_optional(fields)?.map(without_sizes).map(Box::new) })
}

/// Reads an error.
///
/// # Errors
/// [`Malformed`] for bytes that [`write_error`] does not write.
pub fn read_error(reader: &mut Reader<'_>) -> Result<Error, Malformed> {
    let code = reader.u8()?;
    if code != REVOKED {
        return read_plain(reader, code);
    }
    // The text of a revocation repeats the text of its cause.
    reader.text(TEXT_BYTES_MAX)?;
    let mut fields = Reader::new(reader.bytes(FIELDS_BYTES_MAX)?);
    let (by, inner) = (read_job_rank(&mut fields)?, fields.u8()?);
    if inner == REVOKED {
        return Err(Malformed { what: "a revocation within a revocation" });
    }
    let cause = Arc::new(read_plain(&mut fields, inner)?);
    fields.finish()?;
    Ok(Error::Revoked { by, cause })
}

/// Reads any error but a revocation, after its code.
fn read_plain(reader: &mut Reader<'_>, code: u8) -> Result<Error, Malformed> {
    let words = reader.text(TEXT_BYTES_MAX)?;
    let mut fields = Reader::new(reader.bytes(FIELDS_BYTES_MAX)?);
    let error = match read_fields(&mut fields, code)? {
        Some(error) => error,
        None => return Ok(Error::System { what: "reported".to_owned(), text: words.to_owned() }),
    };
    fields.finish()?;
    Ok(error)
}

/// `None` for a code without fields to read.
fn read_fields(fields: &mut Reader<'_>, code: u8) -> Result<Option<Error>, Malformed> {
    let Some(kind) = ErrorCode::from_number(code.into()) else { return Ok(None) };
    let error = match kind {
        ErrorCode::Mismatch => Error::Mismatch {
            calls: Box::new([read_rank_and_call(fields)?, read_rank_and_call(fields)?]),
            difference: text(fields)?,
        },
        ErrorCode::PeerLost => Error::PeerLost {
            culprits: {
                let count = fields.length(CULPRITS_MAX, 6)?;
                (0..count).map(|_| read_culprit(fields)).collect::<Result<_, _>>()?
            },
            call: call::read_optional(fields)?.map(Box::new),
            reported_by: read_job_rank(fields)?,
            certainty: read_certainty(fields)?,
            evidence: text(fields)?,
        },
        ErrorCode::Timeout => {
            let (reported_by, call) = (read_job_rank(fields)?, Box::new(call::read(fields)?));
            let waited = Duration::from_nanos(fields.u64()?);
            let count = fields.length(RANKS_MAX, 8)?;
            let not_arrived = (0..count).map(|_| read_awaited(fields)).collect::<Result<_, _>>()?;
            Error::Timeout { call, reported_by, waited, not_arrived }
        }
        ErrorCode::Cancelled => {
            Error::Cancelled { by: read_job_rank(fields)?, call: Box::new(call::read(fields)?) }
        }
        ErrorCode::Panicked => Error::Panicked {
            rank: read_job_rank(fields)?,
            call: Box::new(call::read(fields)?),
            text: text(fields)?,
        },
        ErrorCode::Closed => Error::Closed { call: Some(text(fields)?).filter(|call| !call.is_empty()) },
        ErrorCode::Refused => Error::Refused { problem: text(fields)? },
        ErrorCode::System => Error::System { what: text(fields)?, text: text(fields)? },
        ErrorCode::Corrupted => Error::Corrupted {
            from: read_job_rank(fields)?,
            to: read_job_rank(fields)?,
            call: call::read_optional(fields)?.map(Box::new),
            reason: text(fields)?,
        },
        ErrorCode::NonFinite => Error::NonFinite {
            rank: read_job_rank(fields)?,
            block: fields.u64()?,
            block_elements: fields.u64()?,
            call: Box::new(call::read(fields)?),
        },
        ErrorCode::Aborted => Error::Aborted { by: read_job_rank(fields)? },
        ErrorCode::Evicted => Error::Evicted { reported_by: read_job_rank(fields)?, evidence: text(fields)? },
        ErrorCode::LibraryMissing => read_library_missing(fields)?,
        ErrorCode::Vendor => Error::Vendor {
            library: text(fields)?.into(),
            call: fields.text(STATUS_BYTES_MAX)?.into(),
            code: fields.u32()?.cast_signed(),
            text: text(fields)?.into(),
            remedy: text(fields)?.into(),
        },
        _ => return Ok(None),
    };
    Ok(Some(error))
}

fn read_library_missing(fields: &mut Reader<'_>) -> Result<Error, Malformed> {
    let library = text(fields)?.into();
    let count = fields.length(TRIED_MAX, 4)?;
    let tried =
        (0..count).map(|_| fields.text(STATUS_BYTES_MAX).map(str::to_owned)).collect::<Result<_, _>>()?;
    Ok(Error::LibraryMissing { library, tried, remedy: text(fields)?.into() })
}

fn read_rank_and_call(fields: &mut Reader<'_>) -> Result<(JobRank, CallInfo), Malformed> {
    Ok((read_job_rank(fields)?, call::read(fields)?))
}

fn read_awaited(fields: &mut Reader<'_>) -> Result<Awaited, Malformed> {
    Ok(Awaited { rank: read_job_rank(fields)?, status: fields.text(AWAITED_BYTES_MAX)?.to_owned() })
}

fn text(fields: &mut Reader<'_>) -> Result<String, Malformed> {
    fields.text(TEXT_BYTES_MAX).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use unisono_communicator::{
        CallAlgorithm, CallInfo, Certainty, Collective, Counts, DType, Descriptor, ParentCall, SiteText,
        Sizes,
    };

    use super::*;
    use crate::wire::{FRAME_BYTES_MAX, RankSet};

    fn round_trip(error: &Error) -> Error {
        let mut writer = Writer::new();
        write_error(&mut writer, error);
        let bytes = writer.finish();
        assert!(bytes.len() < FRAME_BYTES_MAX - RankSet::BYTES_MAX - 64, "{} bytes", bytes.len());
        let mut reader = Reader::new(&bytes);
        let back = read_error(&mut reader).unwrap();
        assert_eq!(reader.finish(), Ok(()));
        back
    }

    fn call(number: u64, text: &str) -> Box<CallInfo> {
        let descriptor = Descriptor::new(Collective::AllGather, DType::F32, 3);
        let site = Some(SiteText { file: text.to_owned().into(), line: 1 });
        let counts = Counts::PerPair { send: vec![number; text.len()], receive: vec![7; text.len()] };
        // The sizes of a culprit's last call are not sent.
        let sizes = Sizes::of(DType::F32, &counts, None).filter(|_| number != 3).map(Arc::new);
        Box::new(CallInfo {
            number,
            descriptor,
            algorithm: Some(CallAlgorithm { name: text.to_owned().into(), schedules: number as u32 }),
            site,
            parent: Some(Arc::new(ParentCall { sizes: sizes.clone(), ..ParentCall::new(text, descriptor) })),
            sizes,
        })
    }

    fn examples(text: &str, ranks: u32) -> Vec<Error> {
        let rank = JobRank::new;
        let own = || text.to_owned();
        let awaited = |rank: JobRank| Awaited { rank, status: own() };
        let culprit = |rank: JobRank| Culprit {
            rank,
            process: (rank.get() > 0).then(|| Process { host: text.into(), pid: 7 }),
            last_call: (rank.get() > 1).then(|| call(3, text)),
        };
        vec![
            Error::Mismatch {
                calls: Box::new([(rank(3), *call(1, text)), (rank(4), *call(2, text))]),
                difference: own(),
            },
            Error::PeerLost {
                culprits: JobRank::all(ranks).map(culprit).collect(),
                call: Some(call(4, text)),
                reported_by: rank(2),
                certainty: Certainty::Suspected,
                evidence: own(),
            },
            Error::Timeout {
                call: call(5, text),
                reported_by: rank(1),
                waited: Duration::from_millis(6),
                not_arrived: JobRank::all(ranks).map(awaited).collect(),
            },
            Error::Cancelled { by: rank(1), call: call(7, text) },
            Error::Panicked { rank: rank(1), call: call(7, text), text: own() },
            Error::closed(),
            Error::closed().in_call(&"barrier(0 x u8) at train.py:7"),
            Error::Revoked {
                by: rank(5),
                cause: Arc::new(Error::Cancelled { by: rank(5), call: call(9, text) }),
            },
            Error::Refused { problem: own() },
            Error::System { what: own(), text: own() },
            Error::Evicted { reported_by: rank(1), evidence: own() },
            Error::Aborted { by: rank(4) },
            Error::NonFinite { rank: rank(6), block: 7, block_elements: 1024, call: call(8, text) },
            Error::Corrupted { from: rank(1), to: rank(2), call: Some(call(8, text)), reason: own() },
            Error::LibraryMissing {
                library: text.into(),
                tried: vec![own(); ranks as usize],
                remedy: text.into(),
            },
            Error::Vendor {
                library: text.into(),
                call: text.into(),
                code: -7,
                text: text.into(),
                remedy: text.into(),
            },
        ]
    }

    #[test]
    fn causes_survive_the_wire() {
        for error in examples("short", 3) {
            assert_eq!(format!("{:?}", round_trip(&error)), format!("{error:?}"));
        }
    }

    #[test]
    fn long_causes_are_cut_to_fit_a_frame() {
        for error in examples(&"long ".repeat(5000), 1000) {
            let kind = |error: &Error| std::mem::discriminant(error);
            assert_eq!(kind(&round_trip(&error)), kind(&error));
        }
    }

    #[test]
    fn a_revocation_keeps_its_root_and_the_rest_its_words() {
        let once = |cause| Error::Revoked { by: JobRank::new(3), cause: Arc::new(cause) };
        for nested in [once(Error::closed()), once(once(Error::closed()))] {
            let Error::Revoked { by, cause } = round_trip(&nested) else { panic!("{nested}") };
            assert_eq!(by, JobRank::new(3));
            assert!(matches!(*cause, Error::Closed { .. }));
        }
        let other = Error::invalid("root", "is 9 of 2");
        let Error::System { text, .. } = round_trip(&other) else { panic!("not kept as words") };
        assert_eq!(text, other.to_string());
        let unknown = Writer::new().u8(200).text("new words", 64).bytes(b"what only they know").finish();
        let read = read_error(&mut Reader::new(&unknown)).unwrap();
        assert!(matches!(read, Error::System { text, .. } if text == "new words"));
    }

    #[test]
    fn what_is_said_of_few_awaited_ranks_is_the_same_on_all_ranks() {
        let status = "is in send(1 x u8, to rank 2) at ".repeat(30);
        let timeout = |ranks| Error::Timeout {
            call: call(5, "f"),
            reported_by: JobRank::new(1),
            waited: Duration::from_millis(6),
            not_arrived: JobRank::all(ranks).map(|rank| Awaited { rank, status: status.clone() }).collect(),
        };
        assert_eq!(round_trip(&timeout(8)).to_string(), timeout(8).to_string());
        let Error::Timeout { not_arrived, .. } = round_trip(&timeout(32)) else { panic!("another error") };
        assert!(not_arrived.iter().all(|one| one.status.ends_with("...")), "{not_arrived:?}");
    }
}
