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
//! | 2 | ask | communicator `u64`, epoch `u32`, number `u64`: a question about the call of that number |
//! | 3 | answer | communicator `u64`, epoch `u32`, number `u64`, status |
//! | 4 | news | see `news.rs` |
//! | 5 | other group | two communicators `u64`, epoch `u32`: the sender's, the receiver's; six texts: list, options |
//! | 6 | ask clock | the sender's clock `u64`, nanoseconds: a question about the receiver's clock |
//! | 7 | clock | the question's `u64`; the sender's clock `u64`, nanoseconds |
//! | 8 | store request | see `store.rs` |
//! | 9 | store answer | see `store.rs` |
//!
//! Ranks are ranks of the job, but in a status they are ranks of the communicator.
//!
//! Calls are laid out in `call.rs`, statuses in `status.rs`, errors in `error.rs`.

mod ballot;
mod call;
mod error;
mod fates;
mod news;
mod rank_set;
mod status;
mod store;

pub use unisono_backend::CommunicatorKey;
use unisono_backend::{CallStatus, GroupText};
use unisono_communicator::{Certainty, JobRank};

use crate::checksum::{CheckedHeader, HEADER_BYTES};
use crate::codec::{Malformed, Reader, Writer};
use crate::store::{StoreAnswer, StoreRequest};

pub use ballot::{AgreementKey, Ballot};
pub use error::{read_error, write_error};
pub use fates::{Fate, Fates};
pub use news::{Departure, JointNews, News, Publisher, Topic};
pub use rank_set::RankSet;

/// Longest frame, kind included: a request to a store with two values, or an error with many ranks.
pub const FRAME_BYTES_MAX: usize = 36 * 1024;

const _: () = assert!(store::REQUEST_BYTES_MAX <= FRAME_BYTES_MAX, "a request to a store fits");

/// Longest text in a message.
pub const TEXT_BYTES_MAX: usize = 512;

/// The higher rank answers `Keep` with this byte. Only then does the lower rank know that the other side has not given
/// the connection up meanwhile.
pub const ACKNOWLEDGED: u8 = 6;

const NOBODY: u32 = u32::MAX;

/// The purpose of a connection. The number is bound in the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ConnectionRole {
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
    pub const DATA: [ConnectionRole; 3] =
        [ConnectionRole::First, ConnectionRole::Second, ConnectionRole::PointToPoint];

    /// The number on the wire.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// The role of a number.
    pub fn from_code(code: u8) -> Option<ConnectionRole> {
        [ConnectionRole::First, ConnectionRole::Second, ConnectionRole::PointToPoint, ConnectionRole::Control]
            .get(usize::from(code))
            .copied()
    }
}

/// A message between two control planes.
#[derive(Clone, Debug)]
pub enum Message {
    /// A heartbeat: the sender lives.
    Beat,
    /// Asks about the receiver's call of that number.
    Ask {
        /// Of which communicator.
        key: CommunicatorKey,
        /// The call.
        number: u64,
    },
    /// Answers such a question.
    Answer {
        /// Of which communicator.
        key: CommunicatorKey,
        /// The call.
        number: u64,
        /// The state of the call.
        status: CallStatus,
    },
    /// News, which the receiver forwards.
    News(JointNews),
    /// The receiver has dialled for a communicator that the sender has made in the same way for other ranks.
    OtherGroup(OtherGroup),
    /// Asks for the receiver's clock.
    AskClock {
        /// The sender's clock, in nanoseconds.
        asked_ns: u64,
    },
    /// Answers such a question.
    Clock {
        /// The time in the question.
        asked_ns: u64,
        /// The sender's clock, in nanoseconds, between question and answer.
        clock_ns: u64,
    },
    /// Asks the receiver, which holds a store.
    StoreRequest(StoreRequest),
    /// Answers such a request.
    StoreAnswer(StoreAnswer),
}

impl Message {
    /// Whether two messages ask the same, or tell of the same list.
    pub fn repeats(&self, other: &Message) -> bool {
        match (self, other) {
            (Message::Ask { key, number }, Message::Ask { key: other_key, number: other_number }) => {
                (key, number) == (other_key, other_number)
            }
            (Message::OtherGroup(one), Message::OtherGroup(other)) => one == other,
            _ => false,
        }
    }
}

/// One of two communicators that were made in the same way for different ranks or with different options, as its member
/// tells the member of the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherGroup {
    /// The sender's.
    pub mine: CommunicatorKey,
    /// The receiver's.
    pub yours: CommunicatorKey,
    /// The list and the options of the sender's.
    pub group: GroupText,
}

/// Appends a frame to the bytes that a connection will send.
pub fn encode(message: &Message, out: &mut Vec<u8>) {
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
        Message::News(news) => {
            writer.u8(4);
            news.write(&mut writer);
        }
        Message::OtherGroup(OtherGroup { mine, yours, group }) => {
            writer.u8(5);
            write_key(&mut writer, *mine);
            write_key(&mut writer, *yours);
            writer.text(&group.list, TEXT_BYTES_MAX);
            for option in &group.options {
                writer.text(option, TEXT_BYTES_MAX);
            }
        }
        Message::AskClock { asked_ns } => {
            writer.u8(6).u64(*asked_ns);
        }
        Message::Clock { asked_ns, clock_ns } => {
            writer.u8(7).u64(*asked_ns).u64(*clock_ns);
        }
        Message::StoreRequest(request) => {
            writer.u8(8);
            store::write_request(&mut writer, request);
        }
        Message::StoreAnswer(answer) => {
            writer.u8(9);
            store::write_answer(&mut writer, answer);
        }
    }
    let body = writer.finish();
    debug_assert!(body.len() <= FRAME_BYTES_MAX, "every part has a cap");
    out.extend_from_slice(&CheckedHeader::of(&body).encode());
    out.extend_from_slice(&body);
}

/// Why bytes are no frame.
#[derive(Debug, PartialEq, Eq)]
pub enum BadFrame {
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
pub fn read_frame(bytes: &[u8]) -> Result<Option<(Message, usize)>, BadFrame> {
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

/// Takes the first message out of the received bytes, once the whole of it is there.
pub fn take_message(received: &mut Vec<u8>) -> Result<Option<Message>, BadFrame> {
    let Some((message, bytes)) = read_frame(received)? else { return Ok(None) };
    received.drain(..bytes);
    Ok(Some(message))
}

/// Reads the bytes behind a frame's header.
fn decode(frame: &[u8]) -> Result<Message, Malformed> {
    let mut reader = Reader::new(frame);
    let message = match reader.u8()? {
        1 => Message::Beat,
        2 => Message::Ask { key: read_key(&mut reader)?, number: reader.u64()? },
        3 => {
            let (key, number) = (read_key(&mut reader)?, reader.u64()?);
            Message::Answer { key, number, status: status::read(&mut reader)? }
        }
        4 => Message::News(JointNews::read(&mut reader)?),
        5 => Message::OtherGroup(OtherGroup {
            mine: read_key(&mut reader)?,
            yours: read_key(&mut reader)?,
            group: read_group(&mut reader)?,
        }),
        6 => Message::AskClock { asked_ns: reader.u64()? },
        7 => Message::Clock { asked_ns: reader.u64()?, clock_ns: reader.u64()? },
        8 => Message::StoreRequest(store::read_request(&mut reader)?),
        9 => Message::StoreAnswer(store::read_answer(&mut reader)?),
        _ => return Err(Malformed { what: "an unknown kind of message" }),
    };
    reader.finish()?;
    Ok(message)
}

fn read_group(reader: &mut Reader<'_>) -> Result<GroupText, Malformed> {
    let mut text = || reader.text(TEXT_BYTES_MAX).map(str::to_owned);
    Ok(GroupText { list: text()?, options: [text()?, text()?, text()?, text()?, text()?, text()?] })
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
    use unisono_backend::{CallAhead, CallElsewhere, CallHistory, Doing, Question, UnreadMessages};
    use unisono_communicator::{CallInfo, Collective, DType, Descriptor, Error, GroupRank};

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
        let other = CommunicatorKey { id: 8, epoch: 1 };
        let [on_stream, on_device] = [Some(other), None]
            .map(|communicator| Some(Box::new(CallAhead { communicator, call: call.clone() })));
        let agreement = AgreementKey { communicator: key, question: Question::Survivors, number: 3 };
        let ballot = |ranks| {
            let mut fates = Fates::all_live(ranks);
            fates.note(GroupRank::new(1), Fate::Gone);
            fates.note(GroupRank::new(3), Fate::Unproven);
            Ballot { flag: true, finished_calls: 9, fates }
        };
        let history = CallHistory { calls: 5, digest: 6 };
        let departure =
            Departure { history, by_close: false, in_progress: 2, messages: 7, last: Some(call.clone()) };
        let topics = [
            Topic::Revoked { key, members: JobRank::all(11).collect(), cause: Error::closed() },
            Topic::Lost { rank: JobRank::new(3), certainty: Certainty::Suspected, reason: "silent".into() },
            Topic::Closed { key, members: JobRank::all(9).collect(), departure },
            Topic::Goodbye,
            Topic::Ballot { agreement, ballot: ballot(5) },
            Topic::Decision { agreement, ballot: ballot(4) },
        ];
        let elsewhere = CallElsewhere {
            communicator: other,
            ranks: "[0, 1]".to_owned(),
            call: call.clone(),
            awaited: Some(JobRank::new(7)),
            number: 9,
        };
        let doing = Box::new(Doing {
            elsewhere: Some(Box::new(elsewhere)),
            awaited: Some(JobRank::new(2)),
            message: Some(Box::new(call.clone())),
            unread: vec![UnreadMessages { from: GroupRank::new(1), tag: 7, messages: 3 }; Doing::UNREAD_MAX],
        });
        let statuses = [
            CallStatus::NotYet { last: None, doing: Box::default() },
            CallStatus::NotYet { last: Some(call.clone()), doing: doing.clone() },
            CallStatus::Running { call: call.clone(), doing, ahead: None },
            CallStatus::Running { call: call.clone(), doing: Box::default(), ahead: on_stream },
            CallStatus::Running { call: call.clone(), doing: Box::default(), ahead: on_device },
            CallStatus::Done { call, doing: Box::default() },
            CallStatus::Forgotten,
        ];
        let news =
            topics.map(|topic| Message::News(News { origin: JobRank::new(1), sequence: 9, topic }.into()));
        let answers = statuses.map(|status| Message::Answer { key, number: 4, status });
        let options = ["", "3s", "a, b", "ring", "fixed", "1ms"].map(str::to_owned);
        let group = GroupText { list: "[0, 1]".to_owned(), options };
        let other = OtherGroup { mine: key, yours: key, group };
        let others = [Message::Beat, Message::Ask { key, number: 1 }, Message::OtherGroup(other)];
        let clocks = [Message::AskClock { asked_ns: 3 }, Message::Clock { asked_ns: 3, clock_ns: u64::MAX }];
        let (requests, answers_of_stores) = store::examples();
        let requests = requests.into_iter().map(Message::StoreRequest);
        let stores: Vec<Message> =
            requests.chain(answers_of_stores.into_iter().map(Message::StoreAnswer)).collect();
        for message in others.iter().chain(&clocks).chain(&news).chain(&answers).chain(&stores) {
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
        fn junk_is_refused_without_a_panic(junk: Vec<u8>, kind in 1u8..10) {
            let _ = decode(&junk);
            let _ = decode(&[&[kind], &junk[..]].concat());
        }
    }
}
