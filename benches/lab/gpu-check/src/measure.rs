//! How fast kernels are on the card, in the bytes of memory that they must move, beside the card's own copy.

use std::fmt;

use serde::Serialize;
use unisono_communicator::Result;
use unisono_compression_cuda::CudaKernels;

use crate::kinds::{Bench, Kind};

/// One kernel, or the copy.
#[derive(Serialize)]
pub(crate) struct Row {
    kernel: String,
    /// Bytes of memory that it must read and write.
    bytes: usize,
    median_ms: f64,
    min_ms: f64,
    max_ms: f64,
    gb_s: f64,
    /// Its rate by that of the copy: the medians of rounds in which all took turns.
    of_copy: f64,
}

/// All of them; the copy is the first.
#[derive(Serialize)]
pub(crate) struct Measured {
    elements: usize,
    rounds: usize,
    rows: Vec<Row>,
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} MiB of f32, {} rounds, time on the card", self.elements >> 18, self.rounds)?;
        writeln!(f, "{:38} {:>9} {:>17} {:>7} {:>8}", "kernel", "ms", "min - max", "GB/s", "of copy")?;
        for row in &self.rows {
            let spread = format!("{:.3} - {:.3}", row.min_ms, row.max_ms);
            let of_copy = 100.0 * row.of_copy;
            writeln!(
                f,
                "{:38} {:9.3} {spread:>17} {:7.0} {of_copy:7.0}%",
                row.kernel, row.median_ms, row.gb_s
            )?;
        }
        Ok(())
    }
}

impl Measured {
    /// The median of the kernel that encodes signs.
    pub(crate) fn sign_encode_ms(&self) -> f64 {
        let row = self.rows.iter().find(|row| row.kernel.starts_with("sign_encode"));
        row.map_or(f64::NAN, |row| row.median_ms)
    }
}

/// Measures a vector of so many elements, every kernel once in each round.
pub(crate) fn run(kernels: &CudaKernels, elements: usize, rounds: usize) -> Result<Measured> {
    let kinds = Kind::all();
    let mut bench = Bench::new(kernels, elements)?;
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); kinds.len()];
    // The first rounds are for the card to wake up.
    const WARM_UP: usize = 3;
    for round in 0..WARM_UP + rounds {
        for ((kind, _), times) in kinds.iter().zip(&mut times) {
            let ((), milliseconds) = kernels.timed(|| bench.run(*kind))?;
            if round >= WARM_UP {
                times.push(f64::from(milliseconds));
            }
        }
    }
    let rows =
        kinds.into_iter().zip(times).map(|((kind, name), times)| row(name, kind.bytes(elements), times));
    let mut rows: Vec<Row> = rows.collect();
    let copy = rows[0].gb_s;
    rows.iter_mut().for_each(|row| row.of_copy = row.gb_s / copy);
    Ok(Measured { elements, rounds, rows })
}

fn row(kernel: String, bytes: usize, mut times: Vec<f64>) -> Row {
    times.sort_by(f64::total_cmp);
    let at = |index: usize| times.get(index).copied().unwrap_or(f64::NAN);
    let (min_ms, median_ms, max_ms) = (at(0), at(times.len() / 2), at(times.len().saturating_sub(1)));
    Row { kernel, bytes, median_ms, min_ms, max_ms, gb_s: bytes as f64 / median_ms / 1e6, of_copy: f64::NAN }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_the_median_of_its_rounds() {
        let row = row("x".to_owned(), 3_000_000, vec![3.0, 1.0, 2.0]);
        assert_eq!((row.min_ms, row.median_ms, row.max_ms, row.gb_s), (1.0, 2.0, 3.0, 1.5));
    }

    #[test]
    fn the_table_has_a_line_for_each_kernel() {
        let rows = vec![
            row("copy of the card".to_owned(), 8, vec![2.0]),
            row("sign_encode".to_owned(), 8, vec![4.0]),
        ];
        let measured = Measured { elements: 1 << 18, rounds: 1, rows };
        assert_eq!(measured.to_string().lines().count(), 4);
        assert_eq!(measured.sign_encode_ms(), 4.0);
    }
}
