//! The neighbourhood collectives of a grid: each rank exchanges with its neighbours only (MPI 4.1, section 8.6).

use std::sync::{Arc, PoisonError};

use unisono_collectives::{Batch, PointToPoint};
use unisono_communicator::{Communicator, Element, Error, Result, Site};

use super::cartesian::{Cartesian, in_call};

impl Cartesian {
    /// Sends `input` to all neighbours, and receives theirs. `output` has two parts for each dimension, as long as
    /// `input`: first from the neighbour below (a shift by -1), then from the neighbour above. The part of a
    /// neighbour that is not there, beyond an edge, stays as it was. Collective: all ranks of the grid call it, with
    /// inputs of one length.
    ///
    /// Cost: a message to each neighbour, all at once; the first exchange of a grid also makes a communicator.
    ///
    /// ```text
    /// rank, in a row of four    0         1         2         3
    /// input                     [1]       [2]       [3]       [4]
    /// output                    [_, 2]    [1, 3]    [2, 4]    [3, _]
    /// output, in a ring         [4, 2]    [1, 3]    [2, 4]    [3, 1]
    /// ```
    ///
    /// ```
    /// use unisono::prelude::*;
    /// use unisono::Cartesian;
    ///
    /// let world = unisono::init()?;
    /// let ring = Cartesian::new(world.communicator(), &[world.size()], &[true])?;
    /// let mut beside = [0; 2];
    /// ring.neighbor_all_gather(&[world.rank()], &mut beside)?;
    /// let (below, above) = ring.shift(0, 1)?;
    /// assert_eq!(beside.map(Some), [below, above]);
    /// # Ok::<(), unisono::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for an output of another length, and for a neighbour with a shorter input;
    /// [`Error::Truncated`] for one with a longer input. Else as [`PointToPoint::exchange`].
    #[doc(alias = "MPI_Neighbor_allgather")]
    #[track_caller]
    pub fn neighbor_all_gather<T: Element>(&self, input: &[T], output: &mut [T]) -> Result<()> {
        self.exchange(Site::caller(), input.len(), |_| input, output).map_err(in_call("neighbor_all_gather"))
    }

    /// Sends a part of `input` to each neighbour, and receives one of each. Both have two parts for each dimension:
    /// first one for the neighbour below (a shift by -1), then one for the neighbour above. The part of a neighbour
    /// that is not there, beyond an edge, goes nowhere and stays as it was. Collective: all ranks of the grid call it,
    /// with inputs of one length.
    ///
    /// Cost: a message to each neighbour, all at once; the first exchange of a grid also makes a communicator.
    ///
    /// ```text
    /// rank, in a row of four    0         1         2         3
    /// input                     [1, 2]    [3, 4]    [5, 6]    [7, 8]
    /// output                    [_, 3]    [2, 5]    [4, 7]    [6, _]
    /// output, in a ring         [8, 3]    [2, 5]    [4, 7]    [6, 1]
    /// ```
    ///
    /// ```
    /// use unisono::prelude::*;
    /// use unisono::Cartesian;
    ///
    /// let world = unisono::init()?;
    /// let ring = Cartesian::new(world.communicator(), &[world.size()], &[true])?;
    /// let (edges, mut beyond) = ([1.0f64, 2.0], [0.0; 2]);
    /// ring.neighbor_all_to_all(&edges, &mut beyond)?;
    /// assert_eq!(beyond, [2.0, 1.0]);
    /// # Ok::<(), unisono::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for an input whose length the number of parts does not divide, an output of another
    /// length, and a neighbour with a shorter input; [`Error::Truncated`] for one with a longer input. Else as
    /// [`PointToPoint::exchange`].
    #[doc(alias = "MPI_Neighbor_alltoall")]
    #[track_caller]
    pub fn neighbor_all_to_all<T: Element>(&self, input: &[T], output: &mut [T]) -> Result<()> {
        let (site, in_call) = (Site::caller(), in_call("neighbor_all_to_all"));
        let parts = 2 * self.dims().len();
        if !input.len().is_multiple_of(parts) {
            let problem = format!("{} elements for {parts} parts, two for each dimension", input.len());
            return Err(in_call(Error::invalid("input", problem)));
        }
        let share = input.len() / parts;
        self.exchange(site, share, |part| &input[part * share..][..share], output).map_err(in_call)
    }

    /// Sends `sent(part)`, of `share` elements, to the neighbour of each part.
    fn exchange<'a, T: Element>(
        &self,
        site: Site,
        share: usize,
        sent: impl Fn(usize) -> &'a [T],
        output: &'a mut [T],
    ) -> Result<()> {
        let neighbors = self.neighbors()?;
        if output.len() != neighbors.len() * share {
            let (found, parts) = (output.len(), neighbors.len());
            let problem = format!("{found} elements for {parts} parts of {share}, two for each dimension");
            return Err(Error::invalid("output", problem));
        }
        let mut batch = Batch::new();
        let mut rest = output;
        for (part, neighbor) in (0..).zip(&neighbors) {
            let room;
            (room, rest) = rest.split_at_mut(share);
            // A tag is the direction of its message: in a ring of two ranks both neighbours are the same rank.
            let opposite = part ^ 1;
            batch.recv(room, *neighbor, opposite).send(sent(part as usize), *neighbor, part);
        }
        batch.at(site);
        let received = self.private()?.exchange(batch)?;
        match received.iter().find(|one| one.source.is_some() && one.count != share) {
            Some(short) => {
                let (rank, count) = (short.source.unwrap_or_default(), short.count);
                let problem = format!("{share} elements, but rank {rank} sent {count}");
                Err(Error::invalid("input", problem))
            }
            None => Ok(()),
        }
    }

    /// The neighbour of each part.
    fn neighbors(&self) -> Result<Vec<Option<u32>>> {
        let shifts: Result<Vec<_>> =
            (0..self.dims().len()).map(|dimension| self.shift(dimension, 1)).collect();
        Ok(shifts?.into_iter().flat_map(|(below, above)| [below, above]).collect())
    }

    /// The communicator for messages of neighbourhoods only.
    fn private(&self) -> Result<Arc<dyn Communicator>> {
        let mut made = self.neighborhood.lock().unwrap_or_else(PoisonError::into_inner);
        match &*made {
            Some(communicator) => Ok(communicator.clone()),
            None => Ok(made.insert(self.communicator().duplicate()?).clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use unisono_collectives::Collectives;

    use super::*;
    use crate::in_process;

    /// Runs `body` on each rank of a grid.
    fn on_grid(dims: &[u32], periodic: &[bool], body: impl Fn(&Cartesian) + Sync) {
        std::thread::scope(|scope| {
            for comm in in_process::world(dims.iter().product()) {
                let body = &body;
                scope.spawn(move || body(&Cartesian::new(comm.clone(), dims, periodic).unwrap()));
            }
        });
    }

    const GRIDS: [(&[u32], &[bool]); 7] = [
        (&[4], &[false]),
        (&[4], &[true]),
        (&[2], &[true]),
        (&[1], &[true]),
        (&[1, 3], &[false, true]),
        (&[2, 3], &[true, false]),
        (&[2, 2, 2], &[false, true, true]),
    ];

    /// The part that a rank sends to its neighbour `below` or above in a dimension: all differ.
    fn part_of(rank: u32, dimension: usize, above: bool, index: usize) -> u64 {
        u64::from(rank) * 1000 + dimension as u64 * 100 + u64::from(above) * 10 + index as u64
    }

    /// Rows: B25
    #[test]
    fn neighbors_get_the_part_that_is_for_them() {
        for ((dims, periodic), share) in GRIDS.into_iter().flat_map(|grid| [(grid, 0), (grid, 1), (grid, 3)])
        {
            on_grid(dims, periodic, |grid| {
                let sides = |dimension: usize| [(dimension, false), (dimension, true)];
                let of = |rank: u32, (dimension, above): (usize, bool)| {
                    (0..share).map(move |index| part_of(rank, dimension, above, index))
                };
                let all_sides = || (0..dims.len()).flat_map(sides);
                let rank = grid.communicator().rank();
                let input: Vec<u64> = all_sides().flat_map(|side| of(rank, side)).collect();
                // The neighbour above has sent its part for below.
                let expected = |is_one_for_all: bool| -> Vec<u64> {
                    let part = |(dimension, above): (usize, bool)| {
                        let (below, beyond) = grid.shift(dimension, 1).unwrap();
                        let side = if is_one_for_all { (0, false) } else { (dimension, !above) };
                        match if above { beyond } else { below } {
                            Some(neighbor) => of(neighbor, side).collect(),
                            None => vec![7; share],
                        }
                    };
                    all_sides().flat_map(part).collect()
                };
                // A message of the program's own meets none of theirs.
                grid.communicator().send(&[rank], rank, 0).unwrap();
                for _ in 0..2 {
                    let mut output = vec![7; input.len()];
                    grid.neighbor_all_to_all(&input, &mut output).unwrap();
                    assert_eq!(output, expected(false), "{dims:?} {periodic:?}");
                    let mut output = vec![7; input.len()];
                    grid.neighbor_all_gather(&input[..share], &mut output).unwrap();
                    assert_eq!(output, expected(true), "{dims:?} {periodic:?}");
                }
                let mut own = [0];
                grid.communicator().recv(&mut own, rank, 0).unwrap();
                assert_eq!(own, [rank]);
            });
        }
    }

    #[test]
    fn lengths_that_fit_no_neighbor_are_refused() {
        on_grid(&[2], &[false], |grid| {
            let problem = |result: Result<()>| result.unwrap_err().to_string();
            let text = problem(grid.neighbor_all_gather(&[1], &mut [0; 3]));
            assert!(
                text.contains("3 elements for 2 parts of 1") && text.contains("neighborhood.rs"),
                "{text}"
            );
            assert!(
                problem(grid.neighbor_all_to_all(&[1; 3], &mut [0; 3])).contains("3 elements for 2 parts")
            );
            assert!(
                problem(grid.neighbor_all_to_all(&[1; 2], &mut [0; 4])).contains("4 elements for 2 parts")
            );
            // Rank 1 gives more than rank 0.
            let share = 2 + grid.communicator().rank() as usize;
            let text = problem(grid.neighbor_all_gather(&vec![1; share], &mut vec![0; 2 * share]));
            let told = ["message", "3 elements, but rank 0 sent 2"][share - 2];
            assert!(text.contains(told), "{text}");
            let mut output = [0; 2];
            grid.neighbor_all_gather(&[5], &mut output).unwrap();
            assert!(output == [0, 5] || output == [5, 0], "{output:?}");
        });
    }
    #[test]
    fn an_abort_of_the_grids_communicator_ends_no_exchange() {
        on_grid(&[2], &[true], |grid| {
            let exchange = |value: u32| {
                let mut output = [0; 2];
                grid.neighbor_all_gather(&[value], &mut output).unwrap();
                assert_eq!(output, [value; 2]);
            };
            exchange(4);
            grid.communicator().abort().unwrap();
            exchange(5);
        });
    }
}
