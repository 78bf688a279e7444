//! Errors as bytes. Those that ranks tell each other are written as the control plane writes them; the others, which
//! never leave their rank otherwise, are written here.

use std::sync::Arc;

use unisono_communicator::{Error, GroupRank, JobRank};
use unisono_control::codec::{Malformed, Reader, Writer};
use unisono_control::wire::{read_error, write_error};

use super::wire::Wire;

impl Wire for Error {
    fn write(&self, writer: &mut Writer) {
        match self {
            Error::InvalidArgument { argument, problem, call } => {
                argument.write(writer.u8(1));
                problem.write(writer);
                call.write(writer);
            }
            Error::AlgorithmRefused { algorithm, reason } => {
                algorithm.write(writer.u8(2));
                reason.write(writer);
            }
            Error::Unsupported { what, backend, instead } => {
                what.write(writer.u8(3));
                backend.write(writer);
                instead.write(writer);
            }
            Error::ConcurrentUse { call } => call.write(writer.u8(4)),
            Error::Truncated { source_rank, tag, sent_bytes, room_bytes } => {
                writer.u8(5).u32(source_rank.get()).u32(*tag).u64(*sent_bytes).u64(*room_bytes);
            }
            Error::NoQuorum { survivors, silent } => {
                survivors.write(writer.u8(6));
                silent.write(writer);
            }
            Error::Rendezvous { missing, problem } => {
                missing.write(writer.u8(7));
                problem.write(writer);
            }
            Error::Configuration { name, value, problem } => {
                [name, value, problem].into_iter().fold(writer.u8(8), |writer, text| {
                    text.write(writer);
                    writer
                });
            }
            Error::Forked { owner, pid } => drop(writer.u8(9).u32(*owner).u32(*pid)),
            Error::Revoked { by, cause } => {
                by.write(writer.u8(10));
                cause.write(writer);
            }
            told => write_error(writer.u8(0), told),
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Error, Malformed> {
        Ok(match reader.u8()? {
            0 => read_error(reader)?,
            1 => Error::InvalidArgument {
                argument: Wire::read(reader)?,
                problem: Wire::read(reader)?,
                call: Wire::read(reader)?,
            },
            2 => Error::AlgorithmRefused { algorithm: Wire::read(reader)?, reason: Wire::read(reader)? },
            3 => Error::Unsupported {
                what: Wire::read(reader)?,
                backend: Wire::read(reader)?,
                instead: Wire::read(reader)?,
            },
            4 => Error::ConcurrentUse { call: Wire::read(reader)? },
            5 => Error::Truncated {
                source_rank: GroupRank::new(reader.u32()?),
                tag: reader.u32()?,
                sent_bytes: reader.u64()?,
                room_bytes: reader.u64()?,
            },
            6 => Error::NoQuorum { survivors: Wire::read(reader)?, silent: Wire::read(reader)? },
            7 => Error::Rendezvous { missing: Wire::read(reader)?, problem: Wire::read(reader)? },
            8 => Error::Configuration {
                name: Wire::read(reader)?,
                value: Wire::read(reader)?,
                problem: Wire::read(reader)?,
            },
            9 => Error::Forked { owner: reader.u32()?, pid: reader.u32()? },
            10 => Error::Revoked { by: JobRank::read(reader)?, cause: Arc::<Error>::read(reader)? },
            _ => return Err(Malformed { what: "an unknown error" }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processes::wire::{decode, encode};

    #[test]
    fn errors_of_one_rank_arrive_as_they_are() {
        let (rank, text) = (JobRank::new(3), || "a text".to_owned());
        let timeout = std::time::Duration::from_millis(7);
        let descriptor = unisono_communicator::Descriptor::new(
            unisono_communicator::Collective::Barrier,
            unisono_communicator::DType::U8,
            0,
        );
        let call = Box::new(unisono_communicator::CallInfo::new(4, descriptor));
        let errors = [
            Error::invalid("root", text()),
            Error::invalid("root", text()).in_call(&text()),
            Error::AlgorithmRefused { algorithm: text(), reason: text() },
            Error::no_device("tcp"),
            Error::Unsupported { what: text(), backend: "tcp", instead: None },
            Error::ConcurrentUse { call: text() },
            Error::Truncated { source_rank: GroupRank::new(1), tag: 2, sent_bytes: 3, room_bytes: 4 },
            Error::NoQuorum { survivors: vec![rank], silent: vec![] },
            Error::Rendezvous { missing: vec![rank, rank], problem: text() },
            Error::Configuration { name: text(), value: String::new(), problem: text() },
            Error::Forked { owner: 1, pid: 2 },
            Error::closed(),
            Error::Aborted { by: rank },
            Error::Timeout { call, reported_by: rank, waited: timeout, not_arrived: vec![] },
            Error::Revoked { by: rank, cause: Arc::new(Error::invalid("x", text())) },
        ];
        for error in errors {
            let back: Error = decode(&encode(&error));
            assert_eq!((back.to_string(), back.code()), (error.to_string(), error.code()));
        }
    }
}
