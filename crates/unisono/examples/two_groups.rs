//! Ranks in a grid of two rows (one, if their number is odd): sums along the rows, then between the rows.
//! `unisono run -n 4 -- cargo run -p unisono --example two_groups`.

#![allow(clippy::print_stdout)]

use unisono::{Collectives, ReduceOp};

fn main() -> unisono::Result<()> {
    let world = unisono::init()?;
    let (rank, size) = (world.rank(), world.size());
    let columns = if size.is_multiple_of(2) { size / 2 } else { size };

    // Every rank names every group, in the same order; no message is sent.
    let rows = [(0..columns).collect::<Vec<_>>(), (columns..size).collect()];
    let mut row = None;
    for ranks in rows.iter().filter(|ranks| !ranks.is_empty()) {
        row = world.subgroup(ranks)?.or(row);
    }
    let mut column = None;
    for first in 0..columns {
        let ranks: Vec<u32> = (first..size).step_by(columns as usize).collect();
        column = world.subgroup(&ranks)?.or(column);
    }
    let (Some(row), Some(column)) = (row, column) else { unreachable!("each rank is in a row and a column") };

    let mut sum = [rank];
    row.all_reduce(&mut sum, ReduceOp::Sum)?;
    let in_row = sum[0];
    column.all_reduce(&mut sum, ReduceOp::Sum)?;
    assert_eq!(sum[0], (0..size).sum::<u32>());
    println!("rank {rank}: {in_row} in its row of {}, {} in all", row.group().size(), sum[0]);

    // Groups close like the world, or when they are dropped.
    row.close()?;
    column.close()?;
    world.close()
}
