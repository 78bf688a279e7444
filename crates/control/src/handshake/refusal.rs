//! Why a connection is refused: one text that both sides show.

use std::fmt;

use unisono_communicator::Error;

use super::Purpose;

/// Why a handshake failed. Fields are compared only once the other side has proven that it knows the secret, and both
/// sides compare the same two hellos, so both show the same reason.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// The other side does not speak this protocol at all.
    Protocol,
    /// The secrets differ, or a byte was changed on the way.
    Secret,
    /// The versions of the protocol differ.
    Version {
        /// The dialling side's.
        initiator: u16,
        /// The listening side's.
        responder: u16,
    },
    /// The listener does not serve this purpose.
    Purpose {
        /// The purpose that the initiator asked for; `None` when it is unknown here.
        asked: Option<Purpose>,
    },
    /// The two belong to different jobs.
    Job,
    /// The two believe in worlds of different sizes.
    WorldSize {
        /// The rank that dialled.
        from: u32,
        /// Its world size.
        initiator: u32,
        /// The rank that was reached.
        to: u32,
        /// Its world size.
        responder: u32,
    },
    /// The address does not belong to the rank that was dialled.
    WrongRank {
        /// The rank that was dialled.
        dialled: u32,
        /// The rank that was reached.
        reached: u32,
    },
    /// The initiator's rank is not one of the world's, or is the responder's own.
    NoSuchRank {
        /// The rank it gave.
        from: u32,
        /// The size of the world.
        world_size: u32,
    },
    /// The responder counts the initiator as lost, so it makes no connection to it.
    Lost {
        /// The rank that dialled.
        from: u32,
        /// The rank that was reached.
        to: u32,
    },
    /// The handshake did not finish in time.
    Deadline,
    /// The connection ended within the handshake.
    Closed {
        /// The system's message.
        text: String,
    },
}

impl Refusal {
    /// Whether another attempt may succeed: nothing was proven wrong about the other side.
    pub fn is_transient(&self) -> bool {
        matches!(self, Refusal::Deadline | Refusal::Closed { .. })
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Protocol => f.write_str("the other side does not speak this protocol"),
            Refusal::Secret => {
                f.write_str("the two sides have different secrets, or a byte was changed on the way")
            }
            Refusal::Version { initiator, responder } => {
                write!(f, "version {initiator} of the protocol dialled version {responder}: ")?;
                f.write_str("the launcher and all ranks must be built with the same version of unisono")
            }
            Refusal::Purpose { asked: Some(asked) } => write!(f, "a {asked} connection is not served there"),
            Refusal::Purpose { asked: None } => {
                f.write_str("an unknown kind of connection is not served there")
            }
            Refusal::Job => f.write_str("the two sides belong to different jobs"),
            Refusal::WorldSize { from, initiator, to, responder } => write!(
                f,
                "world sizes differ: {} has {initiator}, {} has {responder}",
                side_text(*from),
                side_text(*to)
            ),
            Refusal::WrongRank { dialled, reached } => {
                write!(f, "{} was dialled, {} was reached", side_text(*dialled), side_text(*reached))
            }
            Refusal::NoSuchRank { from, world_size } => {
                write!(f, "{} may not dial this one in a world of {world_size}", side_text(*from))
            }
            Refusal::Lost { from, to } => write!(f, "{} counts {} as lost", side_text(*to), side_text(*from)),
            Refusal::Deadline => f.write_str("the handshake did not finish in time"),
            Refusal::Closed { text } => write!(f, "the connection ended within the handshake: {text}"),
        }
    }
}

impl std::error::Error for Refusal {}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Error {
        Error::Refused { problem: refusal.to_string() }
    }
}

fn side_text(rank: u32) -> String {
    if rank == super::RANK_STORE { "the store".into() } else { format!("rank {rank}") }
}
