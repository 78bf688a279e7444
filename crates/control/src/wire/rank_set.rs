//! A set of ranks of the job, one bit for each.

use unisono_communicator::JobRank;

use crate::codec::{Malformed, Reader, Writer};

/// A set of ranks of the job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RankSet(Vec<u8>);

impl FromIterator<JobRank> for RankSet {
    fn from_iter<T: IntoIterator<Item = JobRank>>(ranks: T) -> RankSet {
        let mut bits = Vec::new();
        for rank in ranks {
            let (byte, bit) = place(rank);
            bits.resize(bits.len().max(byte + 1), 0);
            bits[byte] |= bit;
        }
        RankSet(bits)
    }
}

impl RankSet {
    /// The most bytes: as many ranks as a ballot has room for.
    pub const BYTES_MAX: usize = 1 << 13;

    /// Takes a rank out, if it is in.
    pub fn remove(&mut self, rank: JobRank) {
        let (byte, bit) = place(rank);
        if let Some(bits) = self.0.get_mut(byte) {
            *bits &= !bit;
        }
    }

    /// Whether a rank is in.
    pub(crate) fn contains(&self, rank: JobRank) -> bool {
        let (byte, bit) = place(rank);
        self.0.get(byte).is_some_and(|bits| bits & bit != 0)
    }

    /// Whether no rank is in.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|bits| *bits == 0)
    }

    pub(super) fn write(&self, writer: &mut Writer) {
        writer.bytes(&self.0);
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<RankSet, Malformed> {
        reader.bytes(RankSet::BYTES_MAX).map(|bits| RankSet(bits.to_vec()))
    }
}

/// The byte and the bit of a rank.
fn place(rank: JobRank) -> (usize, u8) {
    (rank.index() / 8, 1 << (rank.index() % 8))
}
