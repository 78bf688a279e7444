//! The ballot of a rank in an agreement between survivors, as a value and on the wire.

use unisono_backend::Question;
use unisono_communicator::GroupRank;

use super::{CommunicatorKey, Fate, Fates, read_key, write_key};
use crate::codec::{Malformed, Reader, Writer};

/// The most ranks of a group in a ballot: a frame has no room for more.
const RANKS_MAX: u32 = 1 << 16;

/// Ranks whose fates share a byte.
const FATES_PER_BYTE: usize = 4;

/// One agreement of one communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AgreementKey {
    /// The communicator.
    pub communicator: CommunicatorKey,
    /// The question that its ranks agree on.
    pub question: Question,
    /// The number of the agreement among the agreements on that question, counted from 0.
    pub number: u64,
}

/// The ballot of one rank, or the ballots of all ranks combined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ballot {
    /// The rank's flag; combined, the logical and of all flags.
    pub flag: bool,
    /// The number of collectives that the rank has finished without a gap; combined, the smallest of these numbers.
    pub finished_calls: u64,
    /// The fates of all ranks of the group.
    pub fates: Fates,
}

pub(super) fn write(writer: &mut Writer, agreement: AgreementKey, ballot: &Ballot) {
    write_key(writer, agreement.communicator);
    let question = match agreement.question {
        Question::Flag => 1,
        Question::Survivors => 2,
        Question::Barrier => 3,
    };
    writer.u8(question).u64(agreement.number);
    writer.u8(ballot.flag.into()).u64(ballot.finished_calls).u32(ballot.fates.ranks());
    let ranks: Vec<GroupRank> = GroupRank::all(ballot.fates.ranks()).collect();
    for ranks in ranks.chunks(FATES_PER_BYTE) {
        writer.u8(ranks.iter().rev().fold(0, |byte, rank| byte << 2 | fate_code(ballot.fates.get(*rank))));
    }
}

pub(super) fn read(reader: &mut Reader<'_>) -> Result<(AgreementKey, Ballot), Malformed> {
    let communicator = read_key(reader)?;
    let question = match reader.u8()? {
        1 => Question::Flag,
        2 => Question::Survivors,
        3 => Question::Barrier,
        _ => return Err(Malformed { what: "an unknown question" }),
    };
    let number = reader.u64()?;
    let flag = match reader.u8()? {
        0 => false,
        1 => true,
        _ => return Err(Malformed { what: "a flag that is neither" }),
    };
    let finished_calls = reader.u64()?;
    let ranks = reader.u32()?;
    if ranks > RANKS_MAX {
        return Err(Malformed { what: "a ballot about too many ranks" });
    }
    let mut fates = Fates::all_live(ranks);
    let (mut all, mut byte) = (GroupRank::all(ranks), 0);
    for place in 0..ranks as usize {
        byte = if place % FATES_PER_BYTE == 0 { reader.u8()? } else { byte >> 2 };
        if let (Some(rank), Some(fate)) = (all.next(), fate_of(byte & 3)?) {
            fates.note(rank, fate);
        }
    }
    Ok((AgreementKey { communicator, question, number }, Ballot { flag, finished_calls, fates }))
}

fn fate_code(fate: Option<Fate>) -> u8 {
    match fate {
        None => 0,
        Some(Fate::Gone) => 1,
        Some(Fate::Unproven) => 2,
    }
}

fn fate_of(code: u8) -> Result<Option<Fate>, Malformed> {
    match code {
        0 => Ok(None),
        1 => Ok(Some(Fate::Gone)),
        2 => Ok(Some(Fate::Unproven)),
        _ => Err(Malformed { what: "an unknown fate" }),
    }
}
