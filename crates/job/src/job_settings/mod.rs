//! The decisions of rank 0 for all ranks of the job: the cost model, the cores of a host, the streams that carry
//! checksums, whether data within a host goes through memory, the operations that do nothing, and the intervals of
//! heartbeats. Rank 0 sends it with the rendezvous. So ranks cannot choose different algorithms, and no rank is silent
//! for longer than another rank waits.
//!
//! As bytes: version `u8`, then one little-endian `u64` for each parameter in the order of the table, the piece size
//! as `u64`, which streams carry checksums and whether memory is shared as `u8` each, the set of operations as `u32`,
//! and the two intervals in nanoseconds as `u64`. `text.rs` reads the text of `UNISONO_COST_MODEL`.

mod text;

use std::time::Duration;

use unisono_communicator::{Group, Result, SkippedOperations};
use unisono_control::codec::{Malformed, Reader, Writer};
use unisono_control::intervals::Intervals;
use unisono_engine::CostModel;

use text::{PARAMETER_MAX, PARAMETERS};

const VERSION: u8 = 7;

/// Of a piece, as `UNISONO_PIECE_BYTES` can be.
const PIECE_BYTES_LIMIT: u64 = 1 << 32;

/// The data streams that carry checksums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checksum {
    /// The streams that leave a host: within a host, bytes pass no wire.
    #[default]
    BetweenHosts,
    /// All of them.
    Always,
    /// None.
    Never,
}

impl Checksum {
    /// Whether a stream carries them that leaves its host, or does not.
    pub fn applies(self, leaves_host: bool) -> bool {
        match self {
            Checksum::BetweenHosts => leaves_host,
            Checksum::Always => true,
            Checksum::Never => false,
        }
    }
}

/// The decisions of rank 0 for all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobSettings {
    /// Without the ranks per core, which [`JobSettings::cost_model`] computes for each group. It holds the piece size.
    cost_model: CostModel,
    /// Cores of every host; 0, the default, for as many as its ranks may use together: the store has counted them.
    cores: u64,
    checksum: Checksum,
    shares_memory: bool,
    skipped: SkippedOperations,
    intervals: Intervals,
}

impl Default for JobSettings {
    fn default() -> JobSettings {
        JobSettings::built_in(true)
    }
}

impl JobSettings {
    /// Of a job whose ranks share memory within a host, or do not.
    pub(crate) fn built_in(shares_memory: bool) -> JobSettings {
        JobSettings {
            cost_model: if shares_memory { CostModel::MEMORY } else { CostModel::LOOPBACK },
            cores: 0,
            checksum: Checksum::default(),
            shares_memory,
            skipped: SkippedOperations::default(),
            intervals: Intervals::default(),
        }
    }

    /// With these, which are no parameters of the cost model.
    #[must_use]
    pub(crate) fn with(
        mut self,
        piece_bytes: u64,
        (checksum, skipped): (Checksum, SkippedOperations),
        intervals: Intervals,
    ) -> JobSettings {
        self.cost_model.piece_bytes = piece_bytes;
        (self.checksum, self.skipped, self.intervals) = (checksum, skipped, intervals);
        self
    }

    /// For the rendezvous.
    pub fn encode(mut self) -> Vec<u8> {
        let mut writer = Writer::new();
        writer.u8(VERSION);
        for (_, parameter) in PARAMETERS {
            writer.u64(*parameter(&mut self));
        }
        let checksum = match self.checksum {
            Checksum::BetweenHosts => 0,
            Checksum::Always => 1,
            Checksum::Never => 2,
        };
        writer.u64(self.cost_model.piece_bytes).u8(checksum).u8(self.shares_memory.into());
        writer.u32(self.skipped.to_bits().into());
        let Intervals { beat, suspect } = self.intervals;
        [beat, suspect].into_iter().for_each(|interval| {
            writer.u64(u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX));
        });
        writer.finish()
    }

    /// From the rendezvous.
    ///
    /// # Errors
    /// [`Malformed`] when rank 0 is of another version, or the bytes never come from [`JobSettings::encode`].
    pub fn decode(bytes: &[u8]) -> Result<JobSettings, Malformed> {
        let mut reader = Reader::new(bytes);
        if reader.u8()? != VERSION {
            return Err(Malformed { what: "job settings of another version" });
        }
        let mut settings = JobSettings::default();
        for (_, parameter) in PARAMETERS {
            *parameter(&mut settings) = reader.u64()?;
        }
        settings.cost_model.piece_bytes = reader.u64()?;
        settings.checksum = match reader.u8()? {
            0 => Checksum::BetweenHosts,
            1 => Checksum::Always,
            2 => Checksum::Never,
            _ => return Err(Malformed { what: "an unknown choice of checksums" }),
        };
        settings.shares_memory = match reader.u8()? {
            0 => false,
            1 => true,
            _ => return Err(Malformed { what: "an unknown choice of shared memory" }),
        };
        let bits = u16::try_from(reader.u32()?).ok().and_then(SkippedOperations::from_bits);
        settings.skipped = bits.ok_or(Malformed { what: "an unknown set of operations" })?;
        let mut interval = || reader.u64().map(Duration::from_nanos);
        settings.intervals = Intervals { beat: interval()?, suspect: interval()? };
        reader.finish()?;
        if !settings.intervals.are_safe() {
            return Err(Malformed { what: "intervals of heartbeats that no rank can keep" });
        }
        let is_bounded = PARAMETERS.iter().all(|(_, parameter)| *parameter(&mut settings) <= PARAMETER_MAX);
        let is_piece = (1..=PIECE_BYTES_LIMIT).contains(&settings.cost_model.piece_bytes);
        if is_bounded && is_piece {
            Ok(settings)
        } else {
            Err(Malformed { what: "a parameter of the cost model out of range" })
        }
    }

    /// The cores of a host: as the settings say, else as `counted` when the ranks met, by the number of the host. Where
    /// they were not counted, the cores that this process may use.
    pub fn cores(&self, host: u32, counted: &[u32]) -> u64 {
        let own = || std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
        match self.cores {
            0 => counted.get(host as usize).map_or_else(own, |&cores| cores.into()),
            set => set,
        }
    }

    /// The intervals of the failure detector.
    pub(crate) fn intervals(&self) -> Intervals {
        self.intervals
    }

    /// The streams that are checked.
    pub fn checksum(&self) -> Checksum {
        self.checksum
    }

    /// Whether data goes through memory between ranks of one host.
    pub fn shares_memory(&self) -> bool {
        self.shares_memory
    }

    /// The operations that do nothing.
    pub fn skipped(&self) -> SkippedOperations {
        self.skipped
    }

    /// The size of pieces.
    pub fn piece_bytes(&self) -> u64 {
        self.cost_model.piece_bytes
    }

    /// The cost model of a group: its most crowded host decides how many ranks share a core. `counted` as for
    /// [`JobSettings::cores`].
    pub fn cost_model(&self, group: &Group, counted: &[u32]) -> CostModel {
        let mut hosts = group.hosts().to_vec();
        hosts.sort_unstable();
        let on_host = |ranks: &[u32]| {
            let cores = self.cores(ranks[0], counted);
            self.cost_model.with_ranks_on_cores(ranks.len() as u64, cores)
        };
        let all = hosts.chunk_by(|a, b| a == b).map(on_host);
        all.max_by_key(|one| one.ranks_per_core_thousandths).unwrap_or(self.cost_model)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_survive_text_and_wire() {
        let built_in = [true, false].map(JobSettings::built_in);
        let text = "latency_ns=50000, cores=8 wire_fs_per_byte=900000";
        let [settings, over_tcp] = built_in.map(|one| one.with_parameters(text).unwrap());
        assert_eq!((settings.cost_model.latency_ns, settings.cores), (50_000, 8));
        assert_eq!(settings.cost_model.cpu_fs_per_byte, CostModel::MEMORY.cpu_fs_per_byte);
        assert_eq!(over_tcp.cost_model.cpu_fs_per_byte, CostModel::LOOPBACK.cpu_fs_per_byte);
        assert_eq!(built_in[0].with_parameters(&settings.to_string()), Ok(settings));
        let bytes = settings.encode();
        assert_eq!(JobSettings::decode(&bytes), Ok(settings));
        assert!((0..bytes.len()).all(|end| JobSettings::decode(&bytes[..end]).is_err()));
        assert!(
            JobSettings::decode(&[&bytes[..1], &[255; 104], &[0; 18][..]].concat()).is_err(),
            "out of range"
        );
        assert!(JobSettings::decode(&[&[9], &bytes[1..]].concat()).is_err(), "another version");
        let (interval, before) = (size_of::<u64>(), bytes.len() - size_of::<u64>());
        let rare = [&bytes[..before - interval], &bytes[before..], &bytes[before..]].concat();
        assert!(JobSettings::decode(&rare).is_err(), "as many beats as silences");
    }

    #[test]
    fn the_most_crowded_host_decides_how_crowded_a_core_is() {
        let crowd = |text: &str, hosts: &[u32], counted: &[u32]| {
            let settings = JobSettings::default().with_parameters(text).unwrap();
            settings.cost_model(&Group::world_on(0, hosts.into()), counted).ranks_per_core_thousandths
        };
        let named = |hosts| crowd("cores=2", hosts, &[32; 6]);
        assert_eq!([named(&[0, 0, 0]), named(&[0, 1, 0, 0, 0]), named(&[4, 5])], [1500, 2000, 500]);
        let counted = |hosts| crowd("", hosts, &[8, 1, 2]);
        assert_eq!([counted(&[0; 8]), counted(&[0, 1, 0, 1, 0]), counted(&[2, 0])], [1000, 2000, 500]);
        let own = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
        assert_eq!(crowd("", &[3, 3, 3], &[8]), 3000 / own, "not counted");
    }
}
