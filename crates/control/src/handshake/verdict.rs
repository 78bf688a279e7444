//! The verdict of the lower rank about an authenticated data connection before any data moves on it.
//!
//! Either side of a pair dials when it first needs the edge. If both do, two connections exist; the lower rank alone
//! answers [`Verdict::Keep`] on one and [`Verdict::Drop`] on the other, although either side may have dialled, so that
//! both sides keep the same one. It answers [`Verdict::Refuse`] when the two ranks mean different communicators.

use crate::codec::{Malformed, Reader, Writer};

/// Length of every verdict on the wire.
pub const VERDICT_BYTES: usize = 256;

const REASON_BYTES_MAX: usize = VERDICT_BYTES - 1 - 4;
const KEEP: u8 = 1;
const DROP: u8 = 2;
const REFUSE: u8 = 3;

/// The lower rank's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// This is the connection; data may follow at once.
    Keep,
    /// Another connection of the same pair stays; close this.
    Drop,
    /// There will be no connection, for this reason.
    Refuse(String),
}

impl Verdict {
    /// The verdict on the wire; a long reason is cut.
    pub fn encode(&self) -> [u8; VERDICT_BYTES] {
        let (kind, reason) = match self {
            Verdict::Keep => (KEEP, ""),
            Verdict::Drop => (DROP, ""),
            Verdict::Refuse(reason) => (REFUSE, reason.as_str()),
        };
        let message = Writer::new().u8(kind).text(reason, REASON_BYTES_MAX).finish();
        let mut bytes = [0; VERDICT_BYTES];
        bytes[..message.len()].copy_from_slice(&message);
        bytes
    }

    /// Reads a verdict.
    pub fn decode(bytes: &[u8; VERDICT_BYTES]) -> Result<Verdict, Malformed> {
        let mut reader = Reader::new(bytes);
        let kind = reader.u8()?;
        let reason = reader.text(REASON_BYTES_MAX)?;
        match kind {
            KEEP => Ok(Verdict::Keep),
            DROP => Ok(Verdict::Drop),
            REFUSE => Ok(Verdict::Refuse(reason.to_owned())),
            _ => Err(Malformed { what: "an unknown verdict" }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_survive_the_wire() {
        for verdict in [Verdict::Keep, Verdict::Drop, Verdict::Refuse("epoch 3 is over".into())] {
            assert_eq!(Verdict::decode(&verdict.encode()), Ok(verdict));
        }
        let long = Verdict::Refuse("x".repeat(VERDICT_BYTES));
        assert_eq!(Verdict::decode(&long.encode()), Ok(Verdict::Refuse("x".repeat(REASON_BYTES_MAX))));
        assert!(Verdict::decode(&[0; VERDICT_BYTES]).is_err());
        assert!(Verdict::decode(&[0xff; VERDICT_BYTES]).is_err());
    }
}
