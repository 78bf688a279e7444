//! Tables from the figures.

use std::path::Path;

use crate::bootstrap::interval;
use crate::judge::{Reference, Rounds, median};
use crate::plan::{Cell, Configuration};
use crate::problem::Result;
use crate::raw::Record;
use crate::systems::Role;

pub(crate) fn write(record: &Record, rounds_wanted: u32, _out: &Path) -> Result<()> {
    let reference = Reference::of(&record.rows);
    let mut cells: Vec<(Configuration, Cell)> =
        record.rows.iter().map(|row| (row.configuration, row.cell)).collect();
    cells.sort_unstable();
    cells.dedup();
    for (configuration, cell) in cells {
        let rounds = Rounds::of(&record.rows, configuration, cell, &reference);
        println!(
            "{configuration} {cell}: {} good rounds of {} ({rounds_wanted} wanted)",
            rounds.good.len(),
            rounds.measured
        );
        let all = rounds.systems();
        for ours in all.iter().filter(|name| record.role(name) != Some(Role::Peer)) {
            for other in all.iter().filter(|name| *name != ours) {
                let ratios = rounds.ratios(ours, other);
                let (low, high) = interval(&ratios);
                let min = ratios.iter().copied().fold(f64::INFINITY, f64::min);
                println!(
                    "  {ours:>14} {:>10.2} (min {:>10.2}) vs {other:>12} {:>10.2}: {:.2} [{low:.2}, {high:.2}] min {min:.2}",
                    rounds.median_us(ours),
                    rounds.min_us(ours),
                    rounds.median_us(other),
                    median(&ratios)
                );
            }
        }
    }
    Ok(())
}
