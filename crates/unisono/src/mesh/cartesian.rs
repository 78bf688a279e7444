//! Cartesian grids: the coordinates and neighbours of the ranks of a communicator.

use std::fmt;
use std::sync::{Arc, Mutex};

use unisono_collectives::Collectives;
use unisono_communicator::{Communicator, Error, Result, Site};

/// The ranks of a communicator as a grid, as MPI's Cartesian topologies (MPI 4.1, section 8.5). Each rank has a
/// coordinate in each dimension; the last dimension varies fastest. A periodic dimension is a ring; the others have
/// edges, at which a rank has no neighbour.
///
/// These are 6 ranks in 2 rows and 3 columns. Rank 4 has the coordinate (1, 1).
///
/// ```text
///         columns
///          0  1  2
/// row 0    0  1  2
///     1    3  4  5
/// ```
///
/// | MPI | here |
/// | --- | --- |
/// | `MPI_Dims_create` | [`Cartesian::dims_create`] |
/// | `MPI_Cart_create` without `reorder` | [`Cartesian::new`] |
/// | `MPI_Cart_coords`, `MPI_Cart_rank` | [`Cartesian::coordinate_of`], [`Cartesian::rank_at`] |
/// | `MPI_Cart_shift`, with `MPI_PROC_NULL` | [`Cartesian::shift`], with `None` |
/// | `MPI_Cart_sub` | [`Cartesian::sub_grid`] |
/// | `MPI_Neighbor_allgather` | [`Cartesian::neighbor_all_gather`] |
/// | `MPI_Neighbor_alltoall` | [`Cartesian::neighbor_all_to_all`] |
///
/// Two things differ from MPI. A grid has all ranks of its communicator, and uses the communicator itself: no message
/// is sent, and a call on the grid is a call on the communicator. Only the exchanges with neighbours have a
/// communicator of their own, whose messages meet no others; the first exchange makes it. As with any group that is
/// made from another, an abort of the grid's communicator does not end an exchange; the death of a rank does.
///
/// A ring of all ranks, in which each sends to its right neighbour:
///
/// ```
/// use unisono::prelude::*;
/// use unisono::Cartesian;
///
/// let world = unisono::init()?;
/// let ring = Cartesian::new(world.communicator(), &[world.size()], &[true])?;
/// let (Some(left), Some(right)) = ring.shift(0, 1)? else { unreachable!("a ring has no edges") };
/// let sent = world.send_async(vec![world.rank()], right, 0);
/// let mut received = [0];
/// world.recv(&mut received, Peer::Rank(left), 0)?;
/// sent.wait()?;
/// assert_eq!(received, [left]);
/// # Ok::<(), unisono::Error>(())
/// ```
#[derive(Clone)]
pub struct Cartesian {
    communicator: Arc<dyn Communicator>,
    dims: Vec<u32>,
    periodic: Vec<bool>,
    /// The communicator of the exchanges with neighbours, once there has been one.
    pub(super) neighborhood: Arc<Mutex<Option<Arc<dyn Communicator>>>>,
}

/// Names the method and the line of its caller in errors of arguments.
#[track_caller]
pub(super) fn in_call(method: &'static str) -> impl Fn(Error) -> Error {
    let site = Site::caller();
    move |error| error.in_call(&format_args!("Cartesian::{method} at {site}"))
}

impl Cartesian {
    /// The grid of all ranks of a communicator: `dims` has the size of each dimension, `periodic` says which dimensions
    /// are rings. A rank makes it alone; ranks that shall find each other give the same arguments.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for no dimension, for the size 0, for lists of different lengths, and when the
    /// product of the sizes is not the size of the communicator.
    #[doc(alias = "MPI_Cart_create")]
    #[track_caller]
    pub fn new(communicator: Arc<dyn Communicator>, dims: &[u32], periodic: &[bool]) -> Result<Cartesian> {
        check(dims, periodic, communicator.size()).map_err(in_call("new"))?;
        Ok(Cartesian::on(communicator, dims.to_vec(), periodic.to_vec()))
    }

    /// The sizes of a grid of so many ranks, as equal as possible: a 0 in `dims` is chosen, other sizes stay. The
    /// chosen sizes fall from dimension to dimension.
    ///
    /// ```
    /// use unisono::Cartesian;
    ///
    /// assert_eq!(Cartesian::dims_create(12, &[0, 0])?, [4, 3]);
    /// assert_eq!(Cartesian::dims_create(12, &[0, 2, 0])?, [3, 2, 2]);
    /// # Ok::<(), unisono::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for no ranks, and when the fixed sizes do not divide their number, or fill no grid of
    /// it.
    #[doc(alias = "MPI_Dims_create")]
    #[track_caller]
    pub fn dims_create(ranks: u32, dims: &[u32]) -> Result<Vec<u32>> {
        create_dims(ranks, dims).map_err(in_call("dims_create"))
    }

    /// The communicator whose ranks these are.
    pub fn communicator(&self) -> &Arc<dyn Communicator> {
        &self.communicator
    }

    /// The sizes of the dimensions.
    pub fn dims(&self) -> &[u32] {
        &self.dims
    }

    /// Whether each dimension is a ring.
    pub fn periodic(&self) -> &[bool] {
        &self.periodic
    }

    /// The coordinate of this rank.
    pub fn coordinate(&self) -> Vec<u32> {
        self.place(self.communicator.rank())
    }

    /// The coordinate of a rank.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a rank that the communicator does not have.
    #[doc(alias = "MPI_Cart_coords")]
    #[track_caller]
    pub fn coordinate_of(&self, rank: u32) -> Result<Vec<u32>> {
        let size = self.communicator.size();
        if rank >= size {
            let problem = format!("{rank}, but the grid has ranks 0 to {}", size - 1);
            return Err(in_call("coordinate_of")(Error::invalid("rank", problem)));
        }
        Ok(self.place(rank))
    }

    /// The rank at a coordinate; `None` beyond an edge. In a periodic dimension every number is a place.
    ///
    /// ```
    /// use unisono::{Cartesian, in_process};
    ///
    /// let comm = in_process::world(6).remove(0);
    /// let grid = Cartesian::new(comm.clone(), &[2, 3], &[false, true])?;
    /// assert_eq!(grid.rank_at(&[1, -1])?, Some(5));
    /// assert_eq!(grid.rank_at(&[2, 0])?, None);
    /// # Ok::<(), unisono::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] unless there is a number for each dimension.
    #[doc(alias = "MPI_Cart_rank")]
    #[track_caller]
    pub fn rank_at(&self, coordinate: &[i64]) -> Result<Option<u32>> {
        if coordinate.len() != self.dims.len() {
            let problem = format!("{} numbers for {} dimensions", coordinate.len(), self.dims.len());
            return Err(in_call("rank_at")(Error::invalid("coordinate", problem)));
        }
        let places = coordinate.iter().zip(&self.dims).zip(&self.periodic);
        let places = places.map(|((&at, &size), &is_ring)| place_in(at.into(), size, is_ring));
        Ok(places.zip(&self.dims).try_fold(0, |rank, (place, size)| Some(rank * size + place?)))
    }

    /// The source and the destination of a shift along a dimension: the rank whose data comes here, and the rank to
    /// which this rank's data goes, when all data moves by `displacement` places. `None` beyond an edge.
    ///
    /// ```
    /// use unisono::{Cartesian, in_process};
    ///
    /// let comm = in_process::world(6).remove(4);
    /// let grid = Cartesian::new(comm.clone(), &[2, 3], &[false, true])?;
    /// assert_eq!(grid.shift(0, 1)?, (Some(1), None));
    /// assert_eq!(grid.shift(1, 1)?, (Some(3), Some(5)));
    /// assert_eq!(grid.shift(1, -2)?, (Some(3), Some(5)));
    /// # Ok::<(), unisono::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a dimension that the grid does not have.
    #[doc(alias = "MPI_Cart_shift")]
    #[track_caller]
    pub fn shift(&self, dimension: usize, displacement: i64) -> Result<(Option<u32>, Option<u32>)> {
        let in_call = in_call("shift");
        let (Some(&size), Some(&is_ring)) = (self.dims.get(dimension), self.periodic.get(dimension)) else {
            let problem = format!("{dimension}, but the grid has {} dimensions", self.dims.len());
            return Err(in_call(Error::invalid("dimension", problem)));
        };
        let own = self.coordinate()[dimension];
        let stride: u32 = self.dims[dimension + 1..].iter().product();
        let base = self.communicator.rank() - own * stride;
        let displacement = i128::from(displacement);
        let neighbour = |distance: i128| {
            let place = place_in(i128::from(own) + distance, size, is_ring);
            place.map(|place| base + place * stride)
        };
        Ok((neighbour(-displacement), neighbour(displacement)))
    }

    /// The grid of the dimensions for which `kept` is true, with the ranks that have the other coordinates of this
    /// rank. Collective: all ranks of the grid call it, and each gets the grid that it is in.
    ///
    /// Cost: as for a subgroup; the ranks know the members without a message.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] unless `kept` has a value for each dimension and keeps one; otherwise as
    /// [`Communicator::subgroup_with`].
    #[doc(alias = "MPI_Cart_sub")]
    #[track_caller]
    pub fn sub_grid(&self, kept: &[bool]) -> Result<Cartesian> {
        let in_call = in_call("sub_grid");
        if kept.len() != self.dims.len() || !kept.contains(&true) {
            let problem = format!("{kept:?} for {} dimensions, of which at least one stays", self.dims.len());
            return Err(in_call(Error::invalid("kept", problem)));
        }
        let own = self.coordinate();
        let is_member = |rank: &u32| {
            let place = self.place(*rank);
            (0..kept.len()).all(|dimension| kept[dimension] || place[dimension] == own[dimension])
        };
        let members: Vec<u32> = (0..self.communicator.size()).filter(is_member).collect();
        let group = self.communicator.subgroups(&[&members]).map_err(&in_call)?;
        let communicator = group.ok_or_else(|| in_call(Error::invalid("kept", "this rank is in no row")))?;
        Ok(Cartesian::on(communicator, of_kept(&self.dims, kept), of_kept(&self.periodic, kept)))
    }

    fn on(communicator: Arc<dyn Communicator>, dims: Vec<u32>, periodic: Vec<bool>) -> Cartesian {
        Cartesian { communicator, dims, periodic, neighborhood: Arc::default() }
    }

    fn place(&self, rank: u32) -> Vec<u32> {
        let mut rest = rank;
        let mut place = vec![0; self.dims.len()];
        for (place, size) in place.iter_mut().zip(&self.dims).rev() {
            *place = rest % size;
            rest /= size;
        }
        place
    }
}

impl fmt::Debug for Cartesian {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text: Vec<String> = self.dims.iter().map(u32::to_string).collect();
        write!(formatter, "Cartesian({}, rank {})", text.join(" x "), self.communicator.rank())
    }
}

fn of_kept<T: Copy>(list: &[T], kept: &[bool]) -> Vec<T> {
    list.iter().zip(kept).filter(|(_, is_kept)| **is_kept).map(|(value, _)| *value).collect()
}

/// The place in a dimension; `None` beyond an edge.
fn place_in(at: i128, size: u32, is_ring: bool) -> Option<u32> {
    let size = i128::from(size);
    let place = if is_ring { at.rem_euclid(size) } else { at };
    (0..size).contains(&place).then_some(place as u32)
}

fn check(dims: &[u32], periodic: &[bool], ranks: u32) -> Result<()> {
    if periodic.len() != dims.len() {
        let problem = format!("{} values for {} dimensions", periodic.len(), dims.len());
        return Err(Error::invalid("periodic", problem));
    }
    if dims.is_empty() || product(dims) != u64::from(ranks) {
        let problem = format!("the product of {dims:?} is not {ranks}, the size of the communicator");
        return Err(Error::invalid("dims", problem));
    }
    Ok(())
}

/// Saturates: a size of 0 among large ones still gives 0.
fn product(dims: &[u32]) -> u64 {
    match dims.contains(&0) {
        true => 0,
        false => dims.iter().fold(1, |product: u64, size| product.saturating_mul(u64::from(*size))),
    }
}

fn create_dims(ranks: u32, dims: &[u32]) -> Result<Vec<u32>> {
    let fixed: Vec<u32> = dims.iter().copied().filter(|size| *size > 0).collect();
    let free = dims.len() - fixed.len();
    let rest = (ranks > 0).then(|| u64::from(ranks) % product(&fixed));
    let factor = u64::from(ranks) / product(&fixed);
    if rest != Some(0) || (free == 0 && factor != 1) {
        return Err(Error::invalid("dims", format!("{dims:?} make no grid of {ranks} ranks")));
    }
    let mut chosen = balanced(factor as u32, free).into_iter();
    let choose = |&size: &u32| if size == 0 { chosen.next().unwrap_or(1) } else { size };
    Ok(dims.iter().map(choose).collect())
}

/// The `count` sizes with this product that fall and are as equal as possible: the largest is as small as it can be,
/// then the next one.
fn balanced(mut product: u32, count: usize) -> Vec<u32> {
    let choose = |left: usize| {
        let fits_below = |size: &u32| fits(product / size, *size, left);
        let largest = divisors(product).into_iter().find(fits_below).unwrap_or(product);
        product /= largest;
        largest
    };
    (0..count).rev().map(choose).collect()
}

/// Whether `product` is the product of `count` sizes of at most `most`.
fn fits(product: u32, most: u32, count: usize) -> bool {
    if product == 1 || count == 0 {
        return product == 1;
    }
    let largest = u64::from(most).saturating_pow(u32::try_from(count).unwrap_or(u32::MAX));
    let is_next = |size: &u32| *size > 1 && *size <= most && fits(product / size, *size, count - 1);
    u64::from(product) <= largest && divisors(product).iter().rev().any(is_next)
}

/// In ascending order.
fn divisors(number: u32) -> Vec<u32> {
    let low: Vec<u32> = (1..=number.isqrt()).filter(|low| number.is_multiple_of(*low)).collect();
    let high = low.iter().rev().map(|low| number / low).filter(|high| *high > number.isqrt());
    low.iter().copied().chain(high).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::in_process;

    /// All grids of so many ranks and dimensions, the sizes of each falling.
    fn grids(ranks: u32, count: usize, most: u32) -> Vec<Vec<u32>> {
        if count == 0 {
            return if ranks == 1 { vec![Vec::new()] } else { Vec::new() };
        }
        let sizes = (1..=most.min(ranks)).filter(|size| ranks.is_multiple_of(*size));
        let below = |size: u32| {
            grids(ranks / size, count - 1, size).into_iter().map(move |rest| [vec![size], rest].concat())
        };
        sizes.flat_map(below).collect()
    }

    #[test]
    fn chosen_sizes_are_the_smallest_in_their_order() {
        for ranks in 1..=200 {
            for count in 1..=4 {
                let expected = grids(ranks, count, ranks).into_iter().min();
                assert_eq!(
                    Some(Cartesian::dims_create(ranks, &vec![0; count]).unwrap()),
                    expected,
                    "{ranks}"
                );
            }
        }
    }

    #[test]
    fn sizes_of_huge_grids_are_chosen_at_once() {
        assert_eq!(Cartesian::dims_create(2_147_483_647, &[0, 0]).unwrap(), [2_147_483_647, 1]);
        assert_eq!(Cartesian::dims_create(1 << 31, &[0; 31]).unwrap(), [2; 31]);
        assert_eq!(Cartesian::dims_create(764_411_904, &[0; 10]).unwrap(), [9, 9, 8, 8, 8, 8, 8, 8, 6, 6]);
        assert_eq!(Cartesian::dims_create(1, &[0; 1000]).unwrap(), [1; 1000]);
    }

    #[test]
    fn sizes_that_make_no_grid_are_refused() {
        let cases: [(u32, &[u32]); 6] =
            [(0, &[0]), (6, &[4, 0]), (6, &[2, 2]), (6, &[]), (6, &[7]), (0, &[])];
        for (ranks, dims) in cases {
            let problem = format!("{dims:?} make no grid of {ranks} ranks");
            let error = Cartesian::dims_create(ranks, dims).unwrap_err().to_string();
            assert!(error.contains(&problem) && error.contains("Cartesian::dims_create at "), "{error}");
        }
    }

    #[test]
    fn arguments_that_fit_no_grid_are_refused() {
        let comm = in_process::world(6).remove(0);
        let refused = |result: Result<Cartesian>| result.unwrap_err().to_string();
        let no_grid = "is not 6, the size of the communicator";
        for dims in [&[][..], &[0, 3], &[5, 1], &[u32::MAX, u32::MAX, 6]] {
            assert!(refused(Cartesian::new(comm.clone(), dims, &vec![true; dims.len()])).contains(no_grid));
        }
        assert!(
            refused(Cartesian::new(comm.clone(), &[2, 3], &[true])).contains("1 values for 2 dimensions")
        );
        let grid = Cartesian::new(comm.clone(), &[2, 3], &[true, true]).unwrap();
        for kept in [&[][..], &[true], &[false, false]] {
            assert!(refused(grid.sub_grid(kept)).contains("for 2 dimensions, of which at least one stays"));
        }
        assert!(grid.shift(2, 1).unwrap_err().to_string().contains("2, but the grid has 2 dimensions"));
        assert!(grid.rank_at(&[1]).unwrap_err().to_string().contains("1 numbers for 2 dimensions"));
        assert!(grid.coordinate_of(6).unwrap_err().to_string().contains("the grid has ranks 0 to 5"));
    }

    /// A grid of up to four dimensions, as one of its ranks sees it.
    fn any_grid() -> impl Strategy<Value = Cartesian> {
        let dimension = (1u32..4, any::<bool>());
        let dimensions = proptest::collection::vec(dimension, 1..5);
        (dimensions, any::<proptest::sample::Index>()).prop_map(|(dimensions, rank)| {
            let (dims, periodic): (Vec<u32>, Vec<bool>) = dimensions.into_iter().unzip();
            let size: u32 = dims.iter().product();
            let comm = in_process::world(size).remove(rank.index(size as usize));
            Cartesian::new(comm.clone(), &dims, &periodic).unwrap()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        /// Rows: B25
        #[test]
        fn ranks_and_coordinates_are_inverse(grid in any_grid()) {
            let size = grid.communicator().size();
            let places: Vec<Vec<u32>> = (0..size).map(|rank| grid.coordinate_of(rank).unwrap()).collect();
            // Row-major.
            prop_assert!(places.is_sorted());
            for (rank, place) in (0..).zip(&places) {
                let place: Vec<i64> = place.iter().map(|at| i64::from(*at)).collect();
                prop_assert_eq!(grid.rank_at(&place).unwrap(), Some(rank));
            }
        }

        /// A shift is a step of the coordinate, in both directions, also by far.
        ///
        /// Rows: B25
        #[test]
        fn shifts_are_steps_of_the_coordinate(grid in any_grid(), far in any::<i64>()) {
            let own = grid.coordinate();
            for dimension in 0..own.len() {
                let (at, size) = (i128::from(own[dimension]), i128::from(grid.dims()[dimension]));
                for displacement in [0, 1, -1, 2, 7, far, i64::MIN, i64::MAX] {
                    let neighbour = |place: i128| {
                        let is_there = grid.periodic()[dimension] || (0..size).contains(&place);
                        let mut coordinate: Vec<i64> = own.iter().map(|at| i64::from(*at)).collect();
                        coordinate[dimension] = place.rem_euclid(size) as i64;
                        grid.rank_at(&coordinate).unwrap().filter(|_| is_there)
                    };
                    let expected = (neighbour(at - i128::from(displacement)), neighbour(at + i128::from(displacement)));
                    prop_assert_eq!(grid.shift(dimension, displacement).unwrap(), expected);
                }
            }
        }
    }

    /// Rows: B25
    #[test]
    fn sub_grids_are_rows_and_columns() {
        std::thread::scope(|scope| {
            for comm in in_process::world(6) {
                scope.spawn(move || {
                    let grid = Cartesian::new(comm.clone(), &[2, 3], &[true, false]).unwrap();
                    let (row, column) = (comm.rank() / 3, comm.rank() % 3);
                    let rows = grid.sub_grid(&[false, true]).unwrap();
                    assert_eq!(
                        (rows.dims(), rows.periodic(), rows.coordinate()),
                        (&[3][..], &[false][..], vec![column])
                    );
                    let mut ranks = [0; 3];
                    rows.communicator().all_gather(&[comm.rank()], &mut ranks).unwrap();
                    assert_eq!(ranks, [0, 1, 2].map(|column| 3 * row + column));
                    let columns = grid.sub_grid(&[true, false]).unwrap();
                    assert_eq!(
                        (columns.dims(), columns.periodic(), columns.coordinate()),
                        (&[2][..], &[true][..], vec![row])
                    );
                    let mut ranks = [0; 2];
                    columns.communicator().all_gather(&[comm.rank()], &mut ranks).unwrap();
                    assert_eq!(ranks, [column, 3 + column]);
                });
            }
        });
    }

    /// Two dimensions of three stay, of other sizes, and not beside each other.
    ///
    /// Rows: B25
    #[test]
    fn sub_grids_keep_the_order_of_their_dimensions() {
        std::thread::scope(|scope| {
            for comm in in_process::world(12) {
                scope.spawn(move || {
                    let grid = Cartesian::new(comm.clone(), &[2, 2, 3], &[true, false, false]).unwrap();
                    let (plane, row, column) = (comm.rank() / 6, comm.rank() / 3 % 2, comm.rank() % 3);
                    let kept = grid.sub_grid(&[true, false, true]).unwrap();
                    assert_eq!((kept.dims(), kept.periodic()), (&[2, 3][..], &[true, false][..]));
                    assert_eq!(kept.coordinate(), [plane, column]);
                    let mut ranks = [0; 6];
                    kept.communicator().all_gather(&[comm.rank()], &mut ranks).unwrap();
                    assert_eq!(ranks, [0, 1, 2, 6, 7, 8].map(|of_first_row| of_first_row + 3 * row));
                });
            }
        });
    }
}
