//! The hello: the claims of each side about itself, as users see them and as they travel.

use std::fmt;

use sha2::{Digest, Sha256};
use unisono_communicator::Result;

use super::{Expected, HELLO_BYTES, Nonce, Refusal, VERSION};
use crate::codec::{Malformed, Reader, Writer};
use crate::secret::fill_random;

/// The first bytes of every hello; no text protocol and no TLS record starts like this.
pub(super) const MAGIC: [u8; 8] = *b"\x9bunisono";

const ROLE_INITIATOR: u8 = 1;
const ROLE_RESPONDER: u8 = 2;

/// The rank that a store has in handshakes.
pub const RANK_STORE: u32 = u32::MAX;

/// The job that a process belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct JobId(pub [u8; 16]);

impl JobId {
    /// A fresh one.
    pub fn random() -> Result<JobId> {
        let mut bytes = [0; 16];
        fill_random(&mut bytes)?;
        Ok(JobId(bytes))
    }

    /// The id of the job that a launcher calls `key`: the same for equal keys.
    pub fn from_key(key: &str) -> JobId {
        let digest: [u8; 32] = Sha256::digest(key.as_bytes()).into();
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&digest[..16]);
        JobId(bytes)
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JobId({self})")
    }
}

/// The purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// The payload of one (communicator, epoch, lane, pair).
    Data = 1,
    /// The control plane of one pair of processes.
    Control = 2,
    /// Joining a job.
    Store = 3,
}

impl Purpose {
    const ALL: [Purpose; 3] = [Purpose::Data, Purpose::Control, Purpose::Store];

    fn from_wire(byte: u8) -> Option<Purpose> {
        Purpose::ALL.into_iter().find(|purpose| *purpose as u8 == byte)
    }
}

impl fmt::Display for Purpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Purpose::Data => "data",
            Purpose::Control => "control",
            Purpose::Store => "store",
        })
    }
}

/// The claims of one side of a connection about itself. Of a finished handshake they are the other side's: `from` is
/// its rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The purpose of the connection.
    pub purpose: Purpose,
    /// The job.
    pub job: JobId,
    /// The communicator; 0 when the purpose has none.
    pub communicator: u64,
    /// The communicator's epoch; 0 when the purpose has none.
    pub epoch: u32,
    /// The number of this one among the parallel connections of the pair.
    pub lane: u8,
    /// The number of ranks of the job.
    pub world_size: u32,
    /// The rank in the job of the side that speaks.
    pub from: u32,
    /// The rank in the job of the side that is addressed, or [`RANK_STORE`].
    pub to: u32,
}

/// A hello as it travels: its values are only believed, and its purpose only understood, once its tag has verified.
#[derive(Clone, Copy, Debug)]
pub(super) struct WireHello {
    version: u16,
    role: u8,
    purpose: u8,
    lane: u8,
    counts_as_lost: u8,
    epoch: u32,
    world_size: u32,
    from: u32,
    to: u32,
    communicator: u64,
    job: JobId,
    nonce: Nonce,
}

impl WireHello {
    pub(super) fn initiator(hello: &Hello, nonce: Nonce) -> WireHello {
        WireHello {
            version: VERSION,
            role: ROLE_INITIATOR,
            purpose: hello.purpose as u8,
            lane: hello.lane,
            // No rank dials a rank that it counts as lost.
            counts_as_lost: 0,
            epoch: hello.epoch,
            world_size: hello.world_size,
            from: hello.from,
            to: hello.to,
            communicator: hello.communicator,
            job: hello.job,
            nonce,
        }
    }

    /// The responder's hello: its own values where it has some, the initiator's where it accepts any.
    pub(super) fn answer(&self, expected: &Expected, nonce: Nonce) -> WireHello {
        let served = expected.purposes.iter().any(|purpose| *purpose as u8 == self.purpose);
        WireHello {
            version: VERSION,
            role: ROLE_RESPONDER,
            purpose: if served { self.purpose } else { expected.purposes.first().map_or(0, |p| *p as u8) },
            world_size: expected.world_size.unwrap_or(self.world_size),
            counts_as_lost: u8::from(expected.lost.contains(&self.from)),
            from: expected.rank,
            to: self.from,
            job: expected.job,
            nonce,
            ..*self
        }
    }

    pub(super) fn encode(&self) -> [u8; HELLO_BYTES] {
        let mut writer = Writer::new();
        writer.array(&MAGIC).u16(self.version).u8(self.role).u8(self.purpose).u8(self.lane);
        writer.u8(self.counts_as_lost).array(&[0; 2]);
        writer.u32(self.epoch).u32(self.world_size).u32(self.from).u32(self.to).u64(self.communicator);
        let bytes = writer.array(&self.job.0).array(&self.nonce).finish();
        #[expect(clippy::expect_used, reason = "the fields are HELLO_BYTES long, as tests of handshakes see")]
        bytes.try_into().expect("a hello of fixed length")
    }

    pub(super) fn decode(bytes: &[u8; HELLO_BYTES]) -> WireHello {
        #[expect(clippy::expect_used, reason = "the fields take any value, and are HELLO_BYTES long")]
        WireHello::read(&mut Reader::new(bytes)).expect("a hello of fixed length")
    }

    fn read(reader: &mut Reader<'_>) -> Result<WireHello, Malformed> {
        reader.array::<{ MAGIC.len() }>()?;
        let (version, role, purpose, lane) = (reader.u16()?, reader.u8()?, reader.u8()?, reader.u8()?);
        let counts_as_lost = reader.u8()?;
        reader.array::<2>()?;
        Ok(WireHello {
            version,
            role,
            purpose,
            lane,
            counts_as_lost,
            epoch: reader.u32()?,
            world_size: reader.u32()?,
            from: reader.u32()?,
            to: reader.u32()?,
            communicator: reader.u64()?,
            job: JobId(reader.array()?),
            nonce: reader.array()?,
        })
    }

    /// Compares two hellos that are known to be genuine: the purpose they share, or why they do not fit. Both sides
    /// call it with the same arguments.
    pub(super) fn compare(initiator: &WireHello, responder: &WireHello) -> Result<Purpose, Refusal> {
        if initiator.version != responder.version {
            return Err(Refusal::Version { initiator: initiator.version, responder: responder.version });
        }
        let are_roles_right = initiator.role == ROLE_INITIATOR && responder.role == ROLE_RESPONDER;
        if !are_roles_right || initiator.counts_as_lost != 0 {
            return Err(Refusal::Protocol);
        }
        let asked = Purpose::from_wire(initiator.purpose);
        let Some(purpose) = asked.filter(|_| initiator.purpose == responder.purpose) else {
            return Err(Refusal::Purpose { asked });
        };
        if initiator.job != responder.job {
            return Err(Refusal::Job);
        }
        if initiator.world_size != responder.world_size {
            return Err(Refusal::WorldSize {
                from: initiator.from,
                initiator: initiator.world_size,
                to: responder.from,
                responder: responder.world_size,
            });
        }
        if initiator.to != responder.from {
            return Err(Refusal::WrongRank { dialled: initiator.to, reached: responder.from });
        }
        if initiator.from >= initiator.world_size || initiator.from == responder.from {
            return Err(Refusal::NoSuchRank { from: initiator.from, world_size: initiator.world_size });
        }
        if responder.counts_as_lost != 0 {
            return Err(Refusal::Lost { from: initiator.from, to: responder.from });
        }
        Ok(purpose)
    }

    pub(super) fn hello(&self, purpose: Purpose) -> Hello {
        Hello {
            purpose,
            job: self.job,
            communicator: self.communicator,
            epoch: self.epoch,
            lane: self.lane,
            world_size: self.world_size,
            from: self.from,
            to: self.to,
        }
    }
}
