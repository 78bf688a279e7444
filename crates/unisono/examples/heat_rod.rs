//! A heat equation on a rod, and one file of its result, ported call by call from MPI: `MPI_Cart_shift`, `MPI_Sendrecv`
//! with nobody beyond the ends, `MPI_Exscan` for the place of each rank's cells and of its text in the file.
//! `unisono run -n 4 -- cargo run -p unisono --example heat_rod`.

#![allow(clippy::print_stdout)]

use std::error::Error;
use std::fmt::Write as _;
use std::fs::{OpenOptions, read_to_string, remove_file};
use std::io::{Seek, SeekFrom, Write as _};

use unisono::Cartesian;
use unisono::prelude::*;

const CELLS: usize = 1002;

/// The one cell that is hot at first.
const HOT: usize = 301;

/// The heat has spread when no cell changes by more in a step.
const CHANGE_MAX: f64 = 0.05;

/// The cells, with one cell more at each end.
fn at_first(first: usize, own: usize) -> Vec<f64> {
    (0..own + 2).map(|place| if first + place == HOT + 1 { 1000.0 } else { 0.0 }).collect()
}

/// A step of all cells but the two outer ones. Gives the greatest change.
fn step(cells: &mut [f64]) -> f64 {
    let (before, mut change) = (cells.to_vec(), 0.0f64);
    for (cell, around) in cells[1..].iter_mut().zip(before.windows(3)) {
        *cell += 0.25 * (around[0] - 2.0 * around[1] + around[2]);
        change = change.max((*cell - around[1]).abs());
    }
    change
}

fn text(first: usize, cells: &[f64]) -> String {
    let own = &cells[1..cells.len() - 1];
    own.iter().zip(first..).fold(String::new(), |mut text, (cell, number)| {
        let _ = writeln!(text, "{number} {cell}"); // a text takes all that is written to it
        text
    })
}

/// The text of the whole rod, as one rank computes it.
fn serial() -> String {
    let mut cells = at_first(0, CELLS);
    while step(&mut cells) > CHANGE_MAX {}
    text(0, &cells)
}

fn main() -> Result<(), Box<dyn Error>> {
    let world = unisono::init()?;
    let dims = Cartesian::dims_create(world.size(), &[0])?;
    let grid = Cartesian::new(world.communicator(), &dims, &[false])?;
    let (left, right) = grid.shift(0, 1)?;
    let line = grid.communicator();
    let (rank, size) = (line.rank() as usize, line.size() as usize);
    let own = CELLS / size + usize::from(rank < CELLS % size);
    let mut first = [0]; // which stays on rank 0
    line.exscan_into(&[own as u64], &mut first, ReduceOp::Sum)?;
    let first = first[0] as usize;

    let mut cells = at_first(first, own);
    loop {
        line.send_recv(&[cells[1]], left, &mut cells[own + 1..], right, 0)?;
        line.send_recv(&[cells[own]], right, &mut cells[..1], left, 1)?;
        let mut change = [step(&mut cells)];
        line.all_reduce(&mut change, ReduceOp::Max)?;
        if change[0] <= CHANGE_MAX {
            break;
        }
    }

    let (text, mut offset) = (text(first, &cells), [0]);
    line.exscan_into(&[text.len() as u64], &mut offset, ReduceOp::Sum)?;
    let path = std::env::temp_dir().join(format!("heat-rod-{}.txt", std::process::id()));
    let path = line.broadcast_object((rank == 0).then(|| path.display().to_string()), 0)?;
    let mut file = OpenOptions::new().create(true).truncate(false).write(true).open(&path)?;
    file.seek(SeekFrom::Start(offset[0]))?;
    file.write_all(text.as_bytes())?;
    line.barrier()?;
    if rank == 0 {
        assert!(read_to_string(&path)? == serial(), "{path} is not what one rank computes");
        remove_file(path)?;
    }
    println!("rank {rank} of {size} wrote cells {first} to {}", first + own - 1);
    Ok(world.close()?)
}
