//! News: events that every rank must learn, and their way.
//!
//! A message with news has the number of its origins `u32`, the rank `u32` and the sequence `u64` of each origin, and
//! the topic `u8` with its fields.
//!
//! Every rank forwards each piece of news once, to every rank that it is connected to. The sequence counts the origin's
//! news, from 1.
//!
//! | topic | name | fields |
//! | --- | --- | --- |
//! | 1 | revoked | communicator `u64`, epoch `u32`, members, error |
//! | 2 | lost | rank `u32`, certainty `u8` (1 confirmed, 2 suspected), reason text |
//! | 3 | closed | communicator `u64`, epoch `u32`, members, departure |
//! | 4 | goodbye | none: the origin leaves the job |
//! | 5 | ballot | agreement, ballot: the origin's word, and the ranks that it takes for gone |
//! | 6 | decision | agreement, ballot: the decision |
//!
//! A departure is calls `u64`, digest of these `u64`, by close `u8`, calls in progress `u32`, sends and receives `u64`,
//! and the last call (`u8` 0, or 1 and a call).
//!
//! An agreement is communicator `u64`, epoch `u32`, question `u8` (1 a flag, 2 who survives), number `u64`. A ballot is
//! flag `u8`, finished calls `u64`, ranks of the group `u32`, and two bits for each rank, the first in the lowest bits
//! of the first byte: 0 live, 1 gone, 2 lost without proof.
//!
//! Members are a length `u32` and that many bytes, one bit for each rank, the first in the lowest bit of the first
//! byte.

use unisono_backend::CallHistory;
use unisono_communicator::{CallInfo, Certainty, Error, JobRank};

use super::{
    AgreementKey, Ballot, CommunicatorKey, RankSet, TEXT_BYTES_MAX, ballot, call, certainty_code,
    read_certainty, read_error, read_job_rank, read_key, write_error, write_key,
};
use crate::codec::{Malformed, Reader, Writer};

/// Something that every rank must learn.
#[derive(Clone, Debug)]
pub struct News {
    /// The rank that published it.
    pub origin: JobRank,
    /// The number of events that the origin has published, this one included.
    pub sequence: u64,
    /// The event.
    pub topic: Topic,
}

/// The same news of some origins, as it travels.
#[derive(Clone, Debug)]
pub struct JointNews {
    /// The rank that published it.
    pub origins: Vec<Publisher>,
    /// The event.
    pub topic: Topic,
}

/// A rank that has published news.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Publisher {
    /// The rank.
    pub rank: JobRank,
    /// The number of events that the rank has published, this one included.
    pub sequence: u64,
}

impl JointNews {
    /// The most origins of one message. A frame has room for them beside the longest topic that ranks have in common.
    pub const ORIGINS_MAX: usize = 512;

    pub(super) fn write(&self, writer: &mut Writer) {
        writer.u32(self.origins.len() as u32);
        for Publisher { rank, sequence } in &self.origins {
            writer.u32(rank.get()).u64(*sequence);
        }
        write_topic(writer, &self.topic);
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<JointNews, Malformed> {
        let count = reader.u32()? as usize;
        if !(1..=JointNews::ORIGINS_MAX).contains(&count) {
            return Err(Malformed { what: "news of no rank, or of too many" });
        }
        let mut origin = |_| Ok(Publisher { rank: read_job_rank(reader)?, sequence: reader.u64()? });
        let origins = (0..count).map(&mut origin).collect::<Result<_, Malformed>>()?;
        Ok(JointNews { origins, topic: read_topic(reader)? })
    }

    /// The news of each origin.
    #[cfg(test)]
    pub fn each(self) -> impl Iterator<Item = News> {
        let JointNews { origins, topic } = self;
        origins.into_iter().map(move |Publisher { rank, sequence }| News {
            origin: rank,
            sequence,
            topic: topic.clone(),
        })
    }
}

impl From<News> for JointNews {
    fn from(News { origin, sequence, topic }: News) -> JointNews {
        JointNews { origins: vec![Publisher { rank: origin, sequence }], topic }
    }
}

/// The state in which a rank has left a communicator.
#[derive(Clone, Debug, PartialEq)]
pub struct Departure {
    /// The number of collectives that it has made, and their digest.
    pub history: CallHistory,
    /// It has called `close`; else it has dropped the communicator, or its process has ended.
    pub by_close: bool,
    /// The number of calls that it has left in progress.
    pub in_progress: u32,
    /// The number of sends and receives that it has made.
    pub messages: u64,
    /// The last of its collectives.
    pub last: Option<CallInfo>,
}

impl Departure {
    /// The departure of a rank that never had the communicator.
    pub fn before_first_call() -> Departure {
        Departure { history: CallHistory::UNUSED, by_close: false, in_progress: 0, messages: 0, last: None }
    }
}

/// The event.
#[derive(Clone, Debug)]
pub enum Topic {
    /// The origin found the first cause that ends a communicator of these ranks.
    Revoked {
        /// The communicator.
        key: CommunicatorKey,
        /// All its ranks.
        members: RankSet,
        /// The first cause.
        cause: Error,
    },
    /// The origin noticed that a rank of the job is gone.
    Lost {
        /// The rank.
        rank: JobRank,
        /// The certainty of the loss.
        certainty: Certainty,
        /// The evidence.
        reason: String,
    },
    /// The origin takes no part in a communicator any more.
    Closed {
        /// The communicator.
        key: CommunicatorKey,
        /// All its ranks.
        members: RankSet,
        /// The departure of its origin.
        departure: Departure,
    },
    /// The origin leaves the job in good order.
    Goodbye,
    /// The ballot of the origin in an agreement.
    Ballot {
        /// The agreement.
        agreement: AgreementKey,
        /// The ballot of its origin.
        ballot: Ballot,
    },
    /// The decision of the ranks.
    Decision {
        /// The agreement.
        agreement: AgreementKey,
        /// The decision.
        ballot: Ballot,
    },
}

impl Topic {
    /// Whether the same has happened to two origins, and one message may tell it. First causes and losses travel alone:
    /// they are rare, and nothing may delay them.
    pub fn joins(&self, other: &Topic) -> bool {
        match (self, other) {
            (Topic::Goodbye, Topic::Goodbye) => true,
            (
                Topic::Closed { key, members, departure },
                Topic::Closed { key: other, members: of_other, departure: its },
            ) => (key, members, departure) == (other, of_other, its),
            (Topic::Ballot { agreement, ballot }, Topic::Ballot { agreement: other, ballot: its })
            | (Topic::Decision { agreement, ballot }, Topic::Decision { agreement: other, ballot: its }) => {
                (agreement, ballot) == (other, its)
            }
            _ => false,
        }
    }

    /// Whether it may wait for the same news of other origins.
    pub fn may_wait(&self) -> bool {
        match self {
            Topic::Goodbye | Topic::Closed { .. } | Topic::Ballot { .. } | Topic::Decision { .. } => true,
            Topic::Revoked { .. } | Topic::Lost { .. } => false,
        }
    }

    /// The communicator it is about, unless it is about the job.
    pub fn key(&self) -> Option<CommunicatorKey> {
        match self {
            Topic::Revoked { key, .. } | Topic::Closed { key, .. } => Some(*key),
            Topic::Ballot { agreement, .. } | Topic::Decision { agreement, .. } => {
                Some(agreement.communicator)
            }
            Topic::Lost { .. } | Topic::Goodbye => None,
        }
    }
}

fn write_topic(writer: &mut Writer, topic: &Topic) {
    match topic {
        Topic::Revoked { key, members, cause } => {
            write_key(writer.u8(1), *key);
            members.write(writer);
            write_error(writer, cause);
        }
        Topic::Lost { rank, certainty, reason } => {
            writer.u8(2).u32(rank.get()).u8(certainty_code(*certainty)).words(reason, TEXT_BYTES_MAX);
        }
        Topic::Closed { key, members, departure } => {
            write_key(writer.u8(3), *key);
            members.write(writer);
            let Departure { history, by_close, in_progress, messages, last } = departure;
            writer.u64(history.calls).u64(history.digest).u8((*by_close).into());
            writer.u32(*in_progress).u64(*messages);
            call::write_optional(writer, last.as_ref());
        }
        Topic::Goodbye => {
            writer.u8(4);
        }
        Topic::Ballot { agreement, ballot } => ballot::write(writer.u8(5), *agreement, ballot),
        Topic::Decision { agreement, ballot } => ballot::write(writer.u8(6), *agreement, ballot),
    }
}

fn read_topic(reader: &mut Reader<'_>) -> Result<Topic, Malformed> {
    Ok(match reader.u8()? {
        1 => Topic::Revoked {
            key: read_key(reader)?,
            members: RankSet::read(reader)?,
            cause: read_error(reader)?,
        },
        2 => Topic::Lost {
            rank: read_job_rank(reader)?,
            certainty: read_certainty(reader)?,
            reason: reader.text(TEXT_BYTES_MAX)?.to_owned(),
        },
        3 => {
            let (key, members) = (read_key(reader)?, RankSet::read(reader)?);
            let history = CallHistory { calls: reader.u64()?, digest: reader.u64()? };
            let by_close = match reader.u8()? {
                0 => false,
                1 => true,
                _ => return Err(Malformed { what: "neither closed nor dropped" }),
            };
            let (in_progress, messages) = (reader.u32()?, reader.u64()?);
            let last = call::read_optional(reader)?;
            Topic::Closed {
                key,
                members,
                departure: Departure { history, by_close, in_progress, messages, last },
            }
        }
        4 => Topic::Goodbye,
        5 => {
            let (agreement, ballot) = ballot::read(reader)?;
            Topic::Ballot { agreement, ballot }
        }
        6 => {
            let (agreement, ballot) = ballot::read(reader)?;
            Topic::Decision { agreement, ballot }
        }
        _ => return Err(Malformed { what: "an unknown topic" }),
    })
}
