//! The messages between control planes, byte by byte. All integers are little-endian, nothing is aligned.
//!
//! After the handshake of a data or control connection the lower rank sends its verdict (see
//! [`crate::handshake::Verdict`]), and to `Keep` the higher rank answers one byte, [`ACKNOWLEDGED`]. Data follows as
//! the engine lays it out.
//!
//! A control connection then carries frames: a header with the frame's length and checksum (see [`crate::checksum`]),
//! `kind u8`, then the fields of the kind. A text is `length u32` and that many bytes of UTF-8; texts longer than their
//! cap are cut.
//!
//! | kind | name | fields |
//! | --- | --- | --- |
//! | 1 | beat | none: the sender lives |
//! | 2 | ask | communicator `u64`, epoch `u32`, number `u64`: what about your call of that number? |
//! | 3 | answer | communicator `u64`, epoch `u32`, number `u64`, status |
//! | 4 | news | number of origins `u32`, for each its rank `u32` and sequence `u64`; topic `u8`, the fields of the topic |
//! | 5 | other list | communicator `u64`, epoch `u32` of the sender and of the receiver; ranks of the sender's text |
//!
//! Ranks are those of the job, but those in a status are of the communicator.
//!
//! Every rank forwards each piece of news once, to every rank that it is connected to. The sequence counts what the
//! origin has published, from 1.
//!
//! | topic | name | fields |
//! | --- | --- | --- |
//! | 1 | revoked | communicator `u64`, epoch `u32`, members, error |
//! | 2 | lost | rank `u32`, certainty `u8` (1 confirmed, 2 suspected), reason text |
//! | 3 | closed | communicator `u64`, epoch `u32`, calls `u64`, digest of these `u64`, by close `u8` |
//! | 4 | goodbye | none: the origin leaves the job |
//! | 5 | ballot | agreement, ballot: what the origin says, and whom it takes for gone |
//! | 6 | decision | agreement, ballot: what was decided |
//!
//! An agreement is communicator `u64`, epoch `u32`, question `u8` (1 a flag, 2 who survives), number `u64`. A ballot is
//! flag `u8`, finished calls `u64`, ranks of the group `u32`, and two bits for each rank, the first in the lowest bits
//! of the first byte: 0 live, 1 gone, 2 lost without proof.
//!
//! Members are a length `u32` and that many bytes, one bit for each rank, the first in the lowest bit of the first
//! byte.
//!
//! Calls are laid out in `call.rs`, statuses in `status.rs`, errors in `error.rs`.

mod ballot;
mod call;
mod error;
mod rank_set;
mod status;

pub(crate) use unisono_backend::CommunicatorKey;
use unisono_backend::{CallHistory, CallStatus};
use unisono_communicator::{CallInfo, Certainty, Error, JobRank};

use crate::checksum::{CheckedHeader, HEADER_BYTES};
use crate::codec::{Malformed, Reader, Writer};

pub(crate) use ballot::{AgreementKey, Ballot, Fate};
pub use error::{read_error, write_error};
pub(crate) use rank_set::RankSet;

/// Longest frame, kind included.
pub(crate) const FRAME_BYTES_MAX: usize = 28 * 1024;

/// Longest text in a message.
pub(crate) const TEXT_BYTES_MAX: usize = 512;

/// The higher rank answers `Keep` with this byte. Only then does the lower rank know that the other side has not given
/// the connection up meanwhile.
pub(crate) const ACKNOWLEDGED: u8 = 6;

const NOBODY: u32 = u32::MAX;

/// What a connection is for. The number is bound in the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub(crate) enum ConnectionRole {
    /// Data: short collectives both ways, long ones from the lower to the higher rank.
    First = 0,
    /// Data: long collectives from the higher to the lower rank.
    Second = 1,
    /// Data: sends and receives.
    PointToPoint = 2,
    /// Messages between control planes.
    Control = 3,
}

impl ConnectionRole {
    /// The roles of data sockets.
    pub(crate) const DATA: [ConnectionRole; 3] =
        [ConnectionRole::First, ConnectionRole::Second, ConnectionRole::PointToPoint];

    /// The number on the wire.
    pub(crate) fn code(self) -> u8 {
        self as u8
    }

    /// The role of a number.
    pub(crate) fn from_code(code: u8) -> Option<ConnectionRole> {
        [ConnectionRole::First, ConnectionRole::Second, ConnectionRole::PointToPoint, ConnectionRole::Control]
            .get(usize::from(code))
            .copied()
    }
}

/// A message between two control planes.
#[derive(Clone, Debug)]
pub(crate) enum Message {
    /// A heartbeat: the sender lives.
    Beat,
    /// Asks about the receiver's call of that number.
    Ask { key: CommunicatorKey, number: u64 },
    /// Answers such a question.
    Answer { key: CommunicatorKey, number: u64, status: CallStatus },
    /// News, which the receiver forwards.
    News(JointNews),
    /// The receiver has dialled for a communicator that the sender has made in the same way for other ranks.
    OtherList(OtherList),
}

impl Message {
    /// Whether two messages ask the same, or tell of the same list.
    pub(crate) fn repeats(&self, other: &Message) -> bool {
        match (self, other) {
            (Message::Ask { key, number }, Message::Ask { key: other_key, number: other_number }) => {
                (key, number) == (other_key, other_number)
            }
            (Message::OtherList(one), Message::OtherList(other)) => one == other,
            _ => false,
        }
    }
}

/// One of two communicators that were made in the same way for different ranks, as its member tells the member of the
/// other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OtherList {
    /// The sender's.
    pub(crate) mine: CommunicatorKey,
    /// The receiver's.
    pub(crate) yours: CommunicatorKey,
    /// The ranks of the sender's, as a person reads them.
    pub(crate) list: String,
}

/// Something that every rank must learn.
#[derive(Clone, Debug)]
pub(crate) struct News {
    /// Who published it.
    pub(crate) origin: JobRank,
    /// How many things the origin has published, this one included.
    pub(crate) sequence: u64,
    /// What has happened.
    pub(crate) topic: Topic,
}

/// The same news of some origins, as it travels.
#[derive(Clone, Debug)]
pub(crate) struct JointNews {
    /// Who published it.
    pub(crate) origins: Vec<Origin>,
    /// What has happened.
    pub(crate) topic: Topic,
}

/// A rank that has published news.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    /// The rank.
    pub(crate) rank: JobRank,
    /// How many things the rank has published, this one included.
    pub(crate) sequence: u64,
}

impl JointNews {
    /// The most origins of one message. A frame has room for them beside the longest topic that ranks have in common.
    pub(crate) const ORIGINS_MAX: usize = 512;

    /// The news of each origin.
    pub(crate) fn each(self) -> impl Iterator<Item = News> {
        let JointNews { origins, topic } = self;
        origins.into_iter().map(move |Origin { rank, sequence }| News {
            origin: rank,
            sequence,
            topic: topic.clone(),
        })
    }
}

impl From<News> for JointNews {
    fn from(News { origin, sequence, topic }: News) -> JointNews {
        JointNews { origins: vec![Origin { rank: origin, sequence }], topic }
    }
}

/// How a rank has left a communicator.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Departure {
    /// How many collectives it has made, and which.
    pub(crate) history: CallHistory,
    /// It has called `close`; else it has dropped the communicator, or its process has ended.
    pub(crate) by_close: bool,
    /// How many calls it has left in progress.
    pub(crate) in_progress: u32,
    /// The last of its collectives.
    pub(crate) last: Option<CallInfo>,
}

impl Departure {
    /// That of a rank that never had the communicator.
    pub(crate) fn before_first_call() -> Departure {
        Departure { history: CallHistory::UNUSED, by_close: false, in_progress: 0, last: None }
    }
}

/// What has happened.
#[derive(Clone, Debug)]
pub(crate) enum Topic {
    /// The origin found the first cause that ends a communicator of these ranks.
    Revoked { key: CommunicatorKey, members: RankSet, cause: Error },
    /// The origin noticed that a rank of the job is gone.
    Lost { rank: JobRank, certainty: Certainty, reason: String },
    /// The origin takes no part in a communicator any more.
    Closed { key: CommunicatorKey, departure: Departure },
    /// The origin leaves the job in good order.
    Goodbye,
    /// The ballot of the origin in an agreement.
    Ballot { agreement: AgreementKey, ballot: Ballot },
    /// What the ranks have agreed on.
    Decision { agreement: AgreementKey, ballot: Ballot },
}

impl Topic {
    /// Whether the same has happened to two origins, and one message may tell it. First causes and losses travel alone:
    /// they are rare, and nothing may delay them.
    pub(crate) fn joins(&self, other: &Topic) -> bool {
        match (self, other) {
            (Topic::Goodbye, Topic::Goodbye) => true,
            (Topic::Closed { key, departure }, Topic::Closed { key: other, departure: its }) => {
                (key, departure) == (other, its)
            }
            (Topic::Ballot { agreement, ballot }, Topic::Ballot { agreement: other, ballot: its })
            | (Topic::Decision { agreement, ballot }, Topic::Decision { agreement: other, ballot: its }) => {
                (agreement, ballot) == (other, its)
            }
            _ => false,
        }
    }

    /// Whether it may wait for the same news of other origins.
    pub(crate) fn may_wait(&self) -> bool {
        match self {
            Topic::Goodbye | Topic::Closed { .. } | Topic::Ballot { .. } | Topic::Decision { .. } => true,
            Topic::Revoked { .. } | Topic::Lost { .. } => false,
        }
    }

    /// The communicator it is about, unless it is about the job.
    pub(crate) fn key(&self) -> Option<CommunicatorKey> {
        match self {
            Topic::Revoked { key, .. } | Topic::Closed { key, .. } => Some(*key),
            Topic::Ballot { agreement, .. } | Topic::Decision { agreement, .. } => {
                Some(agreement.communicator)
            }
            Topic::Lost { .. } | Topic::Goodbye => None,
        }
    }
}

/// Appends a frame to what a connection will send.
pub(crate) fn encode(message: &Message, out: &mut Vec<u8>) {
    let mut writer = Writer::new();
    match message {
        Message::Beat => {
            writer.u8(1);
        }
        Message::Ask { key, number } => {
            writer.u8(2);
            write_key(&mut writer, *key);
            writer.u64(*number);
        }
        Message::Answer { key, number, status } => {
            writer.u8(3);
            write_key(&mut writer, *key);
            writer.u64(*number);
            status::write(&mut writer, status);
        }
        Message::News(JointNews { origins, topic }) => {
            writer.u8(4).u32(origins.len() as u32);
            for Origin { rank, sequence } in origins {
                writer.u32(rank.get()).u64(*sequence);
            }
            write_topic(&mut writer, topic);
        }
        Message::OtherList(OtherList { mine, yours, list }) => {
            writer.u8(5);
            write_key(&mut writer, *mine);
            write_key(&mut writer, *yours);
            writer.text(list, TEXT_BYTES_MAX);
        }
    }
    let body = writer.finish();
    debug_assert!(body.len() <= FRAME_BYTES_MAX, "every part has a cap");
    out.extend_from_slice(&CheckedHeader::of(&body).encode());
    out.extend_from_slice(&body);
}

/// Why bytes are no frame.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum BadFrame {
    /// The bytes do not match their checksum: they were changed on the way.
    Changed,
    /// The sender has sent them like this.
    Malformed(Malformed),
}

impl From<Malformed> for BadFrame {
    fn from(malformed: Malformed) -> BadFrame {
        BadFrame::Malformed(malformed)
    }
}

/// Reads the frame with which `bytes` begin, once the whole of it is there; gives its length too.
pub(crate) fn read_frame(bytes: &[u8]) -> Result<Option<(Message, usize)>, BadFrame> {
    let Some((header, behind)) = bytes.split_first_chunk() else { return Ok(None) };
    let header = CheckedHeader::decode(header).ok_or(BadFrame::Changed)?;
    if !(1..=FRAME_BYTES_MAX).contains(&header.length) {
        return Err(Malformed { what: "a frame is empty, or longer than allowed" }.into());
    }
    let Some(body) = behind.get(..header.length) else { return Ok(None) };
    if header != CheckedHeader::of(body) {
        return Err(BadFrame::Changed);
    }
    Ok(Some((decode(body)?, HEADER_BYTES + header.length)))
}

/// Reads what follows a frame's header.
fn decode(frame: &[u8]) -> Result<Message, Malformed> {
    let mut reader = Reader::new(frame);
    let message = match reader.u8()? {
        1 => Message::Beat,
        2 => Message::Ask { key: read_key(&mut reader)?, number: reader.u64()? },
        3 => {
            let (key, number) = (read_key(&mut reader)?, reader.u64()?);
            Message::Answer { key, number, status: status::read(&mut reader)? }
        }
        4 => {
            let count = reader.u32()? as usize;
            if !(1..=JointNews::ORIGINS_MAX).contains(&count) {
                return Err(Malformed { what: "news of no rank, or of too many" });
            }
            let origin = |_| Ok(Origin { rank: read_job_rank(&mut reader)?, sequence: reader.u64()? });
            let origins = (0..count).map(origin).collect::<Result<_, Malformed>>()?;
            Message::News(JointNews { origins, topic: read_topic(&mut reader)? })
        }
        5 => Message::OtherList(OtherList {
            mine: read_key(&mut reader)?,
            yours: read_key(&mut reader)?,
            list: reader.text(TEXT_BYTES_MAX)?.to_owned(),
        }),
        _ => return Err(Malformed { what: "an unknown kind of message" }),
    };
    reader.finish()?;
    Ok(message)
}

fn write_key(writer: &mut Writer, key: CommunicatorKey) {
    writer.u64(key.id).u32(key.epoch);
}

fn read_key(reader: &mut Reader<'_>) -> Result<CommunicatorKey, Malformed> {
    Ok(CommunicatorKey { id: reader.u64()?, epoch: reader.u32()? })
}

fn read_job_rank(reader: &mut Reader<'_>) -> Result<JobRank, Malformed> {
    reader.u32().map(JobRank::new)
}

fn write_topic(writer: &mut Writer, topic: &Topic) {
    match topic {
        Topic::Revoked { key, members, cause } => {
            write_key(writer.u8(1), *key);
            members.write(writer);
            write_error(writer, cause);
        }
        Topic::Lost { rank, certainty, reason } => {
            writer.u8(2).u32(rank.get()).u8(certainty_code(*certainty)).text(reason, TEXT_BYTES_MAX);
        }
        Topic::Closed { key, departure } => {
            write_key(writer.u8(3), *key);
            let Departure { history, by_close, in_progress, last } = departure;
            writer.u64(history.calls).u64(history.digest).u8((*by_close).into()).u32(*in_progress);
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
            let key = read_key(reader)?;
            let history = CallHistory { calls: reader.u64()?, digest: reader.u64()? };
            let by_close = match reader.u8()? {
                0 => false,
                1 => true,
                _ => return Err(Malformed { what: "neither closed nor dropped" }),
            };
            let in_progress = reader.u32()?;
            let last = call::read_optional(reader)?;
            Topic::Closed { key, departure: Departure { history, by_close, in_progress, last } }
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

fn certainty_code(certainty: Certainty) -> u8 {
    match certainty {
        Certainty::Confirmed => 1,
        Certainty::Suspected => 2,
    }
}

fn read_certainty(reader: &mut Reader<'_>) -> Result<Certainty, Malformed> {
    match reader.u8()? {
        1 => Ok(Certainty::Confirmed),
        2 => Ok(Certainty::Suspected),
        _ => Err(Malformed { what: "an unknown certainty" }),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use unisono_backend::{CallAhead, Doing, Question, UnreadMessages};
    use unisono_communicator::GroupRank;
    use unisono_communicator::{CallInfo, Collective, DType, Descriptor};

    use super::*;

    /// Each bit of its frame is changed too: that is always noticed, and nothing is waited for.
    fn round_trip(message: &Message) -> Message {
        let mut bytes = Vec::new();
        encode(message, &mut bytes);
        for cut in 0..bytes.len() {
            assert!(matches!(read_frame(&bytes[..cut]), Ok(None)), "cut at {cut} of {}", bytes.len());
        }
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(read_frame(&bytes).unwrap_err(), BadFrame::Changed, "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        let body = &bytes[HEADER_BYTES..];
        for cut in 0..body.len() {
            assert!(decode(&body[..cut]).is_err(), "cut at {cut} of {}", body.len());
        }
        let (read, length) = read_frame(&bytes).unwrap().unwrap();
        assert_eq!(length, bytes.len());
        read
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        let key = CommunicatorKey { id: 7, epoch: 2 };
        let descriptor = Descriptor::new(Collective::Barrier, DType::U8, 0);
        let call = CallInfo::new(4, descriptor);
        let other = Some(CommunicatorKey { id: 8, epoch: 1 });
        let [on_stream, on_device] =
            [other, None].map(|communicator| Some(Box::new(CallAhead { communicator, call: call.clone() })));
        let agreement = AgreementKey { communicator: key, question: Question::Survivors, number: 3 };
        let fates = [Fate::Live, Fate::Gone, Fate::Live, Fate::Unproven, Fate::Live];
        let ballot = |ranks| Ballot { flag: true, finished_calls: 9, fates: fates[..ranks].to_vec() };
        let history = CallHistory { calls: 5, digest: 6 };
        let departure = Departure { history, by_close: false, in_progress: 2, last: Some(call.clone()) };
        let topics = [
            Topic::Revoked { key, members: JobRank::all(11).collect(), cause: Error::closed() },
            Topic::Lost { rank: JobRank::new(3), certainty: Certainty::Suspected, reason: "silent".into() },
            Topic::Closed { key, departure },
            Topic::Goodbye,
            Topic::Ballot { agreement, ballot: ballot(5) },
            Topic::Decision { agreement, ballot: ballot(4) },
        ];
        let doing = Box::new(Doing {
            awaited: Some(GroupRank::new(2)),
            message: Some(Box::new(call.clone())),
            unread: vec![UnreadMessages { from: GroupRank::new(1), tag: 7, messages: 3 }; Doing::UNREAD_MAX],
        });
        let statuses = [
            CallStatus::NotYet { last: None, doing: Box::default() },
            CallStatus::NotYet { last: Some(call.clone()), doing: doing.clone() },
            CallStatus::Running { call: call.clone(), doing, ahead: None },
            CallStatus::Running { call: call.clone(), doing: Box::default(), ahead: on_stream },
            CallStatus::Running { call: call.clone(), doing: Box::default(), ahead: on_device },
            CallStatus::Done { call },
            CallStatus::Forgotten,
        ];
        let news =
            topics.map(|topic| Message::News(News { origin: JobRank::new(1), sequence: 9, topic }.into()));
        let answers = statuses.map(|status| Message::Answer { key, number: 4, status });
        let other = OtherList { mine: key, yours: key, list: "[0, 1]".to_owned() };
        let others = [Message::Beat, Message::Ask { key, number: 1 }, Message::OtherList(other)];
        for message in others.iter().chain(&news).chain(&answers) {
            assert_eq!(format!("{:?}", round_trip(message)), format!("{message:?}"));
        }
    }

    #[test]
    fn lengths_are_capped() {
        for length in [0, FRAME_BYTES_MAX + 1] {
            let frame = [&CheckedHeader { length, checksum: 0 }.encode()[..], &[0; 4]].concat();
            assert!(matches!(read_frame(&frame), Err(BadFrame::Malformed(_))), "{length}");
        }
        let reason = "x".repeat(FRAME_BYTES_MAX);
        let topic = Topic::Lost { rank: JobRank::new(0), certainty: Certainty::Confirmed, reason };
        let news = News { origin: JobRank::new(0), sequence: 1, topic };
        let Message::News(JointNews { topic: Topic::Lost { reason, .. }, .. }) =
            round_trip(&Message::News(news.into()))
        else {
            panic!("another message came out")
        };
        assert_eq!(reason.len(), TEXT_BYTES_MAX);
    }

    proptest! {
        #[test]
        fn junk_is_refused_without_a_panic(junk: Vec<u8>, kind in 1u8..6) {
            let _ = decode(&junk);
            let _ = decode(&[&[kind], &junk[..]].concat());
        }
    }
}
