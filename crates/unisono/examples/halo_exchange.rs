//! A heat equation on a plane that the ranks divide among them: before each step, each rank exchanges the edges of its
//! part with its four neighbours. `unisono run -n 4 -- cargo run --release -p unisono --example halo_exchange`.

#![allow(clippy::print_stdout)]

use unisono::{Cartesian, Collectives, PointToPoint, ReduceOp, Result};

/// The cells of the plane along each side, which any grid of 1, 2, 3, 4, 6 or 8 ranks divides.
const PLANE: usize = 48;
const STEPS: usize = 100;

/// The one cell that is hot at first, counted from 1.
const HOT: [usize; 2] = [17, 25];

/// The cells of one rank, with one row or column of its neighbours' cells around them.
struct Part {
    rows: usize,
    columns: usize,
    cells: Vec<f64>,
}

impl Part {
    fn at(&self, row: usize, column: usize) -> usize {
        row * (self.columns + 2) + column
    }

    /// The own cells.
    fn places(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let columns = self.columns;
        (1..=self.rows).flat_map(move |row| (1..=columns).map(move |column| (row, column)))
    }

    /// The cells of a row (dimension 0) or of a column, in their order.
    fn line(&self, dimension: usize, place: usize) -> Vec<usize> {
        match dimension {
            0 => (1..=self.columns).map(|column| self.at(place, column)).collect(),
            _ => (1..=self.rows).map(|row| self.at(row, place)).collect(),
        }
    }

    /// Sends the own cells at one edge to the neighbour there, and receives the cells beyond the opposite edge. Beyond
    /// the edges of the plane there is nobody, and the cells stay 0.
    fn exchange(&mut self, grid: &Cartesian, dimension: usize, displacement: i64) -> Result<()> {
        let (source, destination) = grid.shift(dimension, displacement)?;
        let last = [self.rows, self.columns][dimension];
        let (own, beyond) = if displacement > 0 { (last, 0) } else { (1, last + 1) };
        let sent: Vec<f64> = self.line(dimension, own).into_iter().map(|cell| self.cells[cell]).collect();
        let mut received = vec![0.0; sent.len()];
        grid.communicator().send_recv(&sent, destination, &mut received, source, 0)?;
        self.line(dimension, beyond)
            .into_iter()
            .zip(received)
            .for_each(|(cell, value)| self.cells[cell] = value);
        Ok(())
    }

    fn step(&mut self) {
        let before = self.cells.clone();
        for (row, column) in self.places() {
            let [cell, above, below] = [row, row - 1, row + 1].map(|row| self.at(row, column));
            let around = before[above] + before[below] + before[cell - 1] + before[cell + 1];
            self.cells[cell] = before[cell] + 0.2 * (around - 4.0 * before[cell]);
        }
    }
}

fn main() -> Result<()> {
    let world = unisono::init()?;
    let dims = Cartesian::dims_create(world.size(), &[0, 0])?;
    assert!(
        dims.iter().all(|size| PLANE.is_multiple_of(*size as usize)),
        "{dims:?} do not divide {PLANE} cells"
    );
    let grid = Cartesian::new(world.communicator(), &dims, &[false, false])?;
    let [rows, columns] = [0, 1].map(|dimension| PLANE / dims[dimension] as usize);
    let mut part = Part { rows, columns, cells: vec![0.0; (rows + 2) * (columns + 2)] };
    // The place on the plane of the row and the column before the first.
    let before = [0, 1].map(|dimension| grid.coordinate()[dimension] as usize * [rows, columns][dimension]);
    let inside = |row, column| (1..=rows).contains(&row) && (1..=columns).contains(&column);
    let (row, column) = (HOT[0].wrapping_sub(before[0]), HOT[1].wrapping_sub(before[1]));
    if inside(row, column) {
        let hot = part.at(row, column);
        part.cells[hot] = 1000.0;
    }
    for _ in 0..STEPS {
        for (dimension, displacement) in [(0, 1), (0, -1), (1, 1), (1, -1)] {
            part.exchange(&grid, dimension, displacement)?;
        }
        part.step();
    }
    // Any number of ranks gives the same bits, since each cell is computed from the same cells in the same order.
    let mut bits = [0];
    for (row, column) in part.places() {
        let place = (before[0] + row) * PLANE + before[1] + column;
        bits[0] ^= part.cells[part.at(row, column)].to_bits().wrapping_mul(2 * place as u64 + 1);
    }
    world.all_reduce(&mut bits, ReduceOp::BitXor)?;
    println!("rank {} of the grid {dims:?}: the plane has the bits {:016x}", world.rank(), bits[0]);
    world.close()
}
