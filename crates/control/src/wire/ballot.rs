//! What a rank says in an agreement between survivors, as a value and on the wire.

use unisono_backend::Question;

use super::{CommunicatorKey, read_key, write_key};
use crate::codec::{Malformed, Reader, Writer};

/// The most ranks of a group in a ballot: a frame has no room for more.
const RANKS_MAX: usize = 1 << 16;

/// Ranks whose fates share a byte.
const FATES_PER_BYTE: usize = 4;

/// One agreement of one communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AgreementKey {
    /// The communicator.
    pub communicator: CommunicatorKey,
    /// What its ranks agree on.
    pub question: Question,
    /// The number of the agreement among those on that question, counted from 0.
    pub number: u64,
}

/// What has become of one rank of a communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It takes part.
    Live,
    /// It has said goodbye, or a rank on its own host has seen that it is gone.
    Gone,
    /// It is lost, and no rank on its own host has seen why: it may live on the other side of a network partition.
    Unproven,
}

/// The ballot of one rank, or the ballots of all ranks combined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ballot {
    /// The rank's flag; combined, the logical and of all flags.
    pub flag: bool,
    /// The number of collectives that the rank has finished without a gap; combined, the smallest of these numbers.
    pub finished_calls: u64,
    /// What has become of every rank of the group.
    pub fates: Vec<Fate>,
}

pub(super) fn write(writer: &mut Writer, agreement: AgreementKey, ballot: &Ballot) {
    write_key(writer, agreement.communicator);
    let question = match agreement.question {
        Question::Flag => 1,
        Question::Survivors => 2,
    };
    writer.u8(question).u64(agreement.number);
    writer.u8(ballot.flag.into()).u64(ballot.finished_calls).u32(ballot.fates.len() as u32);
    for fates in ballot.fates.chunks(FATES_PER_BYTE) {
        writer.u8(fates.iter().rev().fold(0, |byte, fate| byte << 2 | fate_code(*fate)));
    }
}

pub(super) fn read(reader: &mut Reader<'_>) -> Result<(AgreementKey, Ballot), Malformed> {
    let communicator = read_key(reader)?;
    let question = match reader.u8()? {
        1 => Question::Flag,
        2 => Question::Survivors,
        _ => return Err(Malformed { what: "an unknown question" }),
    };
    let number = reader.u64()?;
    let flag = match reader.u8()? {
        0 => false,
        1 => true,
        _ => return Err(Malformed { what: "a flag that is neither" }),
    };
    let finished_calls = reader.u64()?;
    let ranks = reader.u32()? as usize;
    if ranks > RANKS_MAX {
        return Err(Malformed { what: "a ballot about too many ranks" });
    }
    let mut fates = Vec::new();
    while fates.len() < ranks {
        let byte = reader.u8()?;
        for place in 0..FATES_PER_BYTE.min(ranks - fates.len()) {
            fates.push(fate_of(byte >> (2 * place) & 3)?);
        }
    }
    Ok((AgreementKey { communicator, question, number }, Ballot { flag, finished_calls, fates }))
}

fn fate_code(fate: Fate) -> u8 {
    match fate {
        Fate::Live => 0,
        Fate::Gone => 1,
        Fate::Unproven => 2,
    }
}

fn fate_of(code: u8) -> Result<Fate, Malformed> {
    match code {
        0 => Ok(Fate::Live),
        1 => Ok(Fate::Gone),
        2 => Ok(Fate::Unproven),
        _ => Err(Malformed { what: "an unknown fate" }),
    }
}
