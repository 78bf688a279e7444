//! How ranks line up outside of what is timed: through a file that all of them have open, so that the library which is
//! measured takes no part in it.
//!
//! Each rank has one byte that counts the times it has arrived. A single byte is never seen half-written, and no rank
//! can be more than one arrival ahead of another, so modulo 256 is enough.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;

/// Where the values begin: the arrival bytes are before it.
const VALUES: u64 = 4096;
/// A value is 8 bytes; each rank's are in a cache line of their own.
const VALUE_STRIDE_BYTES: u64 = 64;

/// This rank's view of the file.
#[derive(Debug)]
pub(crate) struct Ranks {
    file: File,
    rank: usize,
    arrivals: Vec<u8>,
    generation: u8,
}

impl Ranks {
    pub(crate) fn open(path: &Path, rank: u32, ranks: u32) -> io::Result<Ranks> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        Ok(Ranks { file, rank: rank as usize, arrivals: vec![0; ranks as usize], generation: 0 })
    }

    pub(crate) fn rank(&self) -> u32 {
        self.rank as u32
    }

    pub(crate) fn size(&self) -> u32 {
        self.arrivals.len() as u32
    }

    /// Returns when all ranks have called it.
    pub(crate) fn line_up(&mut self) -> io::Result<()> {
        self.generation = self.generation.wrapping_add(1);
        self.file.write_all_at(&[self.generation], self.rank as u64)?;
        let next = self.generation.wrapping_add(1);
        loop {
            self.file.read_exact_at(&mut self.arrivals, 0)?;
            if self.arrivals.iter().all(|&arrival| arrival == self.generation || arrival == next) {
                return Ok(());
            }
            thread::yield_now();
        }
    }

    /// What every rank gave, in rank order.
    pub(crate) fn gather(&mut self, value: f64) -> io::Result<Vec<f64>> {
        let place = |rank: u64| VALUES + rank * VALUE_STRIDE_BYTES;
        self.file.write_all_at(&value.to_le_bytes(), place(self.rank as u64))?;
        self.line_up()?;
        let mut bytes = [0; 8];
        let values = (0..self.arrivals.len() as u64).map(|rank| {
            self.file.read_exact_at(&mut bytes, place(rank))?;
            Ok(f64::from_le_bytes(bytes))
        });
        let values = values.collect::<io::Result<_>>()?;
        // Nobody may write the next value before all have read this one.
        self.line_up()?;
        Ok(values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_sees_every_value_of_every_round() {
        const RANKS: u32 = 3;
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(unisono_compare::SHARED_BYTES).unwrap();
        thread::scope(|scope| {
            for rank in 0..RANKS {
                let path = file.path();
                scope.spawn(move || {
                    let mut ranks = Ranks::open(path, rank, RANKS).unwrap();
                    // More rounds than a byte can count.
                    for round in 0..300 {
                        let values = ranks.gather(f64::from(10 * round + rank)).unwrap();
                        let expected: Vec<_> = (0..RANKS).map(|rank| f64::from(10 * round + rank)).collect();
                        assert_eq!(values, expected);
                    }
                });
            }
        });
    }
}
