//! The library's values as bytes.

use std::sync::Arc;

use unisono_communicator::{
    AlgorithmName, CallOptions, Collective, Completion, CostModel, Counts, DType, Descriptor, Determinism,
    Division, Group, GroupBackend, GroupOptions, GroupRank, JobRank, LengthList, LogName, MemoryKind,
    Operation, Outcome, ParentCall, Peer, Place, Process, Profile, ReduceOp, ShortText, Site, Sizes,
    SkippedOperations, Tag, Ticket, UserOp, WhenBusy,
};
use unisono_control::codec::{Malformed, Reader, Writer};
use unisono_schedule::INTERNED_BYTES_MAX;

use super::wire::{Wire, wire_struct};

/// [`Wire`] for a type whose values are few: the place in a list of all.
macro_rules! wire_choice {
    ($($type:ident: $($value:pat => $code:literal $make:expr),*;)*) => { $(
        impl Wire for $type {
            fn write(&self, writer: &mut Writer) {
                writer.u8(match self { $($value => $code),* });
            }

            fn read(reader: &mut Reader<'_>) -> Result<$type, Malformed> {
                match reader.u8()? {
                    $($code => Ok($make),)*
                    _ => Err(Malformed { what: concat!("an unknown ", stringify!($type)) }),
                }
            }
        }
    )* };
}

wire_choice! {
    GroupBackend:
        GroupBackend::OfParent => 0 GroupBackend::OfParent,
        GroupBackend::Companion => 1 GroupBackend::Companion;
    Place: Place::Separate => 0 Place::Separate, Place::InPlace => 1 Place::InPlace;
    MemoryKind: MemoryKind::Host => 0 MemoryKind::Host, MemoryKind::Device => 1 MemoryKind::Device;
    Determinism:
        Determinism::AnyOrder => 0 Determinism::AnyOrder, Determinism::Fixed => 1 Determinism::Fixed;
    Profile:
        Profile::AsConfigured => 0 Profile::AsConfigured,
        Profile::Always => 1 Profile::Always,
        Profile::Never => 2 Profile::Never;
    WhenBusy: WhenBusy::Refuse => 0 WhenBusy::Refuse, WhenBusy::Queue => 1 WhenBusy::Queue;
    Division:
        Division::Anywhere => 0 Division::Anywhere,
        Division::Shares => 1 Division::Shares,
        Division::Coalesced => 2 Division::Coalesced;
}

wire_struct! {
    CallOptions { timeout, label, algorithm, determinism, when_busy, is_needed, host_by_companion, profile, log_name }
    GroupOptions { backend, timeout, label, algorithm, determinism, spin }
    Descriptor { operation, dtype, count, op, root, peer, tag, label, place, uneven }
    ParentCall { name, descriptor, sizes, site }
    Outcome { completion, source, tag, bytes, algorithm }
    Process { host, pid }
    CostModel {
        latency_ns, wire_fs_per_byte, network_latency_ns, network_fs_per_byte, reduce_fs_per_byte,
        cpu_per_message_ns, cpu_fs_per_byte, network_cpu_per_message_ns, network_cpu_fs_per_byte, switch_ns,
        ranks_per_core_thousandths, per_peer_thousandths,
        piece_bytes
    }
    UserOp { name, commutative }
}

impl Wire for Arc<str> {
    fn write(&self, writer: &mut Writer) {
        writer.bytes(self.as_bytes());
    }

    fn read(reader: &mut Reader<'_>) -> Result<Arc<str>, Malformed> {
        reader.text(usize::MAX).map(Arc::from)
    }
}

/// A text that is too long stays too long.
impl Wire for ShortText {
    fn write(&self, writer: &mut Writer) {
        writer.u8(self.is_too_long().into()).bytes(self.as_str().as_bytes());
    }

    fn read(reader: &mut Reader<'_>) -> Result<ShortText, Malformed> {
        let (is_too_long, text) = (bool::read(reader)?, String::read(reader)?);
        let rest = if is_too_long { "x".repeat(ShortText::BYTES_MAX + 1) } else { String::new() };
        Ok(ShortText::new(&(text + &rest)))
    }
}

impl Wire for LogName {
    fn write(&self, writer: &mut Writer) {
        self.text().write(writer);
    }

    fn read(reader: &mut Reader<'_>) -> Result<LogName, Malformed> {
        Ok(LogName::new(ShortText::read(reader)?.as_str()))
    }
}

/// A name that is too long stays too long.
impl Wire for AlgorithmName {
    fn write(&self, writer: &mut Writer) {
        self.text().ok().map(str::to_owned).write(writer);
    }

    fn read(reader: &mut Reader<'_>) -> Result<AlgorithmName, Malformed> {
        let name = Option::<String>::read(reader)?;
        Ok(AlgorithmName::new(&name.unwrap_or_else(|| "x".repeat(INTERNED_BYTES_MAX + 1))))
    }
}

impl Wire for Collective {
    fn write(&self, writer: &mut Writer) {
        Operation::from(*self).write(writer);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Collective, Malformed> {
        Operation::read(reader)?.collective().ok_or(Malformed { what: "no collective" })
    }
}

impl Wire for Operation {
    fn write(&self, writer: &mut Writer) {
        writer.u8(self.code());
    }

    fn read(reader: &mut Reader<'_>) -> Result<Operation, Malformed> {
        Operation::from_code(reader.u8()?).ok_or(Malformed { what: "an unknown operation" })
    }
}

impl Wire for DType {
    fn write(&self, writer: &mut Writer) {
        writer.array(&self.code());
    }

    fn read(reader: &mut Reader<'_>) -> Result<DType, Malformed> {
        DType::from_code(reader.array()?).ok_or(Malformed { what: "an unknown dtype" })
    }
}

impl Wire for ReduceOp {
    fn write(&self, writer: &mut Writer) {
        writer.u8(self.code());
        match self {
            ReduceOp::PreMulSum(factor) => drop(writer.u64(factor.to_bits())),
            ReduceOp::User(user) => user.write(writer),
            _ => {}
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<ReduceOp, Malformed> {
        let code = reader.u8()?;
        if code == ReduceOp::PreMulSum(0.0).code() {
            return Ok(ReduceOp::PreMulSum(f64::from_bits(reader.u64()?)));
        }
        if code == ReduceOp::User(UserOp::ordered("")).code() {
            return UserOp::read(reader).map(ReduceOp::User);
        }
        let plain = ReduceOp::PLAIN.iter().copied().find(|op| op.code() == code);
        plain.ok_or(Malformed { what: "an unknown operator" })
    }
}

impl Wire for Peer {
    fn write(&self, writer: &mut Writer) {
        let (kind, rank) = match self {
            Peer::Rank(rank) => (0, *rank),
            Peer::Any => (1, 0),
            Peer::None => (2, 0),
        };
        writer.u8(kind).u32(rank);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Peer, Malformed> {
        match (reader.u8()?, reader.u32()?) {
            (0, rank) => Ok(Peer::Rank(rank)),
            (1, _) => Ok(Peer::Any),
            (2, _) => Ok(Peer::None),
            _ => Err(Malformed { what: "an unknown peer" }),
        }
    }
}

impl Wire for Tag {
    fn write(&self, writer: &mut Writer) {
        self.one().write(writer);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Tag, Malformed> {
        Ok(Option::<u32>::read(reader)?.map_or(Tag::Any, Tag::Is))
    }
}

impl Wire for Counts {
    fn write(&self, writer: &mut Writer) {
        let lists = match self {
            Counts::Even => (None, None),
            Counts::PerRank(counts) => (Some(counts.clone()), None),
            Counts::PerPair { send, receive } => (Some(send.clone()), Some(receive.clone())),
        };
        lists.write(writer);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Counts, Malformed> {
        match Wire::read(reader)? {
            (None, None) => Ok(Counts::Even),
            (Some(counts), None) => Ok(Counts::PerRank(counts)),
            (Some(send), Some(receive)) => Ok(Counts::PerPair { send, receive }),
            (None, Some(_)) => Err(Malformed { what: "counts of receives alone" }),
        }
    }
}

impl Wire for LengthList {
    fn write(&self, writer: &mut Writer) {
        writer.u64(self.count()).u64(self.digest());
        self.known().to_vec().write(writer);
    }

    fn read(reader: &mut Reader<'_>) -> Result<LengthList, Malformed> {
        let (count, digest) = (reader.u64()?, reader.u64()?);
        let list = LengthList::from_known(Vec::read(reader)?, count, digest);
        list.ok_or(Malformed { what: "a list of lengths of another size" })
    }
}

impl Wire for Sizes {
    fn write(&self, writer: &mut Writer) {
        match self {
            Sizes::Segments(list) => list.write(writer.u8(0)),
            Sizes::PerRank(list) => list.write(writer.u8(1)),
            Sizes::PerPair { send, receive } => {
                send.write(writer.u8(2));
                receive.write(writer);
            }
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Sizes, Malformed> {
        Ok(match reader.u8()? {
            0 => Sizes::Segments(LengthList::read(reader)?),
            1 => Sizes::PerRank(LengthList::read(reader)?),
            2 => Sizes::PerPair { send: LengthList::read(reader)?, receive: LengthList::read(reader)? },
            _ => return Err(Malformed { what: "unknown sizes" }),
        })
    }
}

impl Wire for Site {
    fn write(&self, writer: &mut Writer) {
        self.file().write(writer);
        self.line().write(writer);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Site, Malformed> {
        let (file, line) = (String::read(reader)?, reader.u32()?);
        Site::interned(&file, line).map_err(|_| Malformed { what: "a file's name is too long" })
    }
}

impl Wire for Ticket {
    fn write(&self, writer: &mut Writer) {
        writer.u64(self.issuer()).u64(self.number());
    }

    fn read(reader: &mut Reader<'_>) -> Result<Ticket, Malformed> {
        Ok(Ticket::new(reader.u64()?, reader.u64()?))
    }
}

impl Wire for Completion {
    fn write(&self, writer: &mut Writer) {
        match self {
            Completion::Done => drop(writer.u8(0)),
            Completion::Skipped => drop(writer.u8(1)),
            Completion::StreamOrdered(ticket) => ticket.write(writer.u8(2)),
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Completion, Malformed> {
        match reader.u8()? {
            0 => Ok(Completion::Done),
            1 => Ok(Completion::Skipped),
            2 => Ticket::read(reader).map(Completion::StreamOrdered),
            _ => Err(Malformed { what: "an unknown completion" }),
        }
    }
}

impl Wire for JobRank {
    fn write(&self, writer: &mut Writer) {
        writer.u32(self.get());
    }

    fn read(reader: &mut Reader<'_>) -> Result<JobRank, Malformed> {
        reader.u32().map(JobRank::new)
    }
}

/// With the processes of the whole job.
impl Wire for SkippedOperations {
    fn write(&self, writer: &mut Writer) {
        writer.u32(self.to_bits().into());
    }

    fn read(reader: &mut Reader<'_>) -> Result<SkippedOperations, Malformed> {
        let bits = u16::try_from(reader.u32()?).ok().and_then(SkippedOperations::from_bits);
        bits.ok_or(Malformed { what: "operations that no test skips" })
    }
}

impl Wire for Group {
    fn write(&self, writer: &mut Writer) {
        writer.u32(self.rank()).u32(self.epoch()).u64(self.id());
        self.options().write(writer);
        self.skipped().write(writer);
        self.job_ranks().to_vec().write(writer);
        self.hosts().to_vec().write(writer);
        let processes = (0..).map_while(|rank| self.process(JobRank::new(rank)).cloned());
        processes.collect::<Vec<Process>>().write(writer);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Group, Malformed> {
        let (rank, epoch) = (GroupRank::new(reader.u32()?), reader.u32()?);
        let (id, options) = (reader.u64()?, GroupOptions::read(reader)?);
        let skipped = SkippedOperations::read(reader)?;
        let (job_ranks, hosts) = (Vec::<JobRank>::read(reader)?, Vec::<u32>::read(reader)?);
        let group = Group::new(rank, job_ranks.into(), hosts.into(), epoch);
        let group = group.with_id(id).with_options(options).with_skipped(skipped);
        Ok(group.with_processes(Vec::read(reader)?.into()))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::processes::wire::{decode, encode};

    #[test]
    fn descriptors_and_options_arrive_as_they_are() {
        let long = "x".repeat(40);
        let ops = ReduceOp::PLAIN.iter().copied().chain([
            ReduceOp::PreMulSum(0.5),
            ReduceOp::User(UserOp::commutative("any")),
            ReduceOp::User(UserOp::ordered(&long)),
        ]);
        for (operation, op) in Operation::all().flat_map(|one| ops.clone().map(move |op| (one, op))) {
            for label in [None, Some(ShortText::new("")), Some(ShortText::new(&long))] {
                let descriptor = Descriptor {
                    op: Some(op),
                    label,
                    peer: Some(Peer::Any),
                    root: Some(u32::MAX),
                    ..Descriptor::new(operation, DType::opaque(7).unwrap(), u64::MAX)
                };
                assert_eq!(decode::<Descriptor>(&encode(&descriptor)), descriptor);
                let options = CallOptions { label, ..CallOptions::new().algorithm("ring").queued() };
                let back: CallOptions = decode(&encode(&options));
                assert_eq!(format!("{back:?}"), format!("{options:?}"));
            }
        }
    }

    #[test]
    fn a_group_arrives_whole() {
        let processes = [3, 4, 5].map(|pid| Process { host: "here".into(), pid });
        let whole = Group::world_on(2, vec![0, 1, 1].into()).with_processes(processes.into());
        let part = whole.subgroup(&[2, 0].map(GroupRank::new), 7).unwrap();
        let options = GroupOptions::new().label("part").backend(GroupBackend::Companion).algorithm("ring");
        let part = part
            .with_options(options.timeout(Duration::from_millis(7)).determinism(Determinism::Fixed))
            .with_id(1 << 40);
        for group in [whole, part] {
            assert_eq!(decode::<Group>(&encode(&group)), group);
        }
    }
}
