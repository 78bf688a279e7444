//! The arrangement of the ranks of a world by dimensions, row-major: the last dimension varies fastest. This file has
//! only arithmetic, and no communicator.

use unisono_communicator::{Error, Result};

/// The ranks of a mesh.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ranks<'a> {
    /// All ranks of the world, in their own order.
    All,
    /// All ranks of the world, in this row-major order.
    Ordered(&'a [u32]),
    /// These ranks of the world, in this row-major order.
    Part(&'a [u32]),
}

/// Ranks of a world in the shape of a mesh, as one of these ranks sees them.
#[derive(Debug)]
pub(super) struct Arrangement {
    sizes: Vec<u32>,
    /// For each dimension, the distance in `ranks` of two neighbours along the dimension.
    strides: Vec<u32>,
    ranks: Vec<u32>,
    /// The place of this rank in `ranks`.
    own: u32,
}

impl Arrangement {
    /// The arrangement of these ranks. `own` of `world_size` ranks looks at it; `None` if it is none of them.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for names, sizes or ranks that make no mesh.
    pub(super) fn new(
        dimensions: &[(&str, u32)],
        ranks: Ranks<'_>,
        (own, world_size): (u32, u32),
    ) -> Result<Option<Arrangement>> {
        let ranks = match ranks {
            Ranks::All => {
                check_dimensions(dimensions, world_size, "the size of the world")?;
                (0..world_size).collect()
            }
            Ranks::Ordered(ranks) => {
                check_dimensions(dimensions, world_size, "the size of the world")?;
                permutation(ranks, world_size)?
            }
            Ranks::Part(ranks) => {
                check_dimensions(dimensions, ranks.len() as u32, "the number of ranks")?;
                each_once(ranks, world_size)?;
                ranks.to_vec()
            }
        };
        let sizes: Vec<u32> = dimensions.iter().map(|&(_, size)| size).collect();
        let stride = |dimension: usize| sizes[dimension + 1..].iter().product();
        let strides = (0..sizes.len()).map(stride).collect();
        let own = ranks.iter().position(|&rank| rank == own);
        Ok(own.map(|own| Arrangement { sizes, strides, ranks, own: own as u32 }))
    }

    fn coordinate(&self, dimension: usize) -> u32 {
        self.own / self.strides[dimension] % self.sizes[dimension]
    }

    /// The ranks that differ from this rank in these dimensions only, row-major in the order of the list.
    pub(super) fn ranks_along(&self, dimensions: &[usize]) -> Vec<u32> {
        let distance = |dimension: usize| self.coordinate(dimension) * self.strides[dimension];
        let first = self.own - dimensions.iter().map(|&dimension| distance(dimension)).sum::<u32>();
        let mut places = vec![first];
        for &dimension in dimensions {
            let stride = self.strides[dimension];
            let along = |place: u32| (0..self.sizes[dimension]).map(move |step| place + step * stride);
            places = places.into_iter().flat_map(along).collect();
        }
        places.into_iter().map(|place| self.ranks[place as usize]).collect()
    }

    /// The place of this rank in [`Arrangement::ranks_along`].
    pub(super) fn place_along(&self, dimensions: &[usize]) -> u32 {
        let step = |place, &dimension: &usize| place * self.sizes[dimension] + self.coordinate(dimension);
        dimensions.iter().fold(0, step)
    }

    /// The number of [`Arrangement::ranks_along`].
    pub(super) fn size_along(&self, dimensions: &[usize]) -> u32 {
        dimensions.iter().map(|&dimension| self.sizes[dimension]).product()
    }
}

/// Refuses names and sizes that make no mesh of so many ranks.
fn check_dimensions(dimensions: &[(&str, u32)], ranks: u32, whose: &str) -> Result<()> {
    let refused = |problem: String| Err(Error::invalid("dimensions", problem));
    if dimensions.is_empty() {
        return refused("none, but a mesh has at least one".to_owned());
    }
    for (index, (name, size)) in dimensions.iter().enumerate() {
        if name.is_empty() {
            return refused(format!("dimension {index} has an empty name"));
        }
        if dimensions[..index].iter().any(|(earlier, _)| earlier == name) {
            return refused(format!("{name:?} twice"));
        }
        if *size == 0 {
            return refused(format!("{name:?} of size 0"));
        }
    }
    // Each size is above 0, so the product never falls, and a product that is too large stays so.
    let product = dimensions.iter().fold(1u64, |product, (_, size)| product.saturating_mul(u64::from(*size)));
    if product != u64::from(ranks) {
        return refused(format!("the product of {} is not {ranks}, {whose}", text(dimensions)));
    }
    Ok(())
}

/// Refuses a list that has not every rank of the world once.
fn permutation(ranks: &[u32], world_size: u32) -> Result<Vec<u32>> {
    let is_there = each_once(ranks, world_size)?;
    match is_there.iter().position(|is_there| !is_there) {
        Some(missing) => {
            let problem = format!("rank {missing} is missing, but a mesh has all ranks of the world");
            Err(Error::invalid("ranks", problem))
        }
        None => Ok(ranks.to_vec()),
    }
}

/// Refuses a rank that comes twice, or that the world does not have. Gives for each rank of the world whether it comes.
fn each_once(ranks: &[u32], world_size: u32) -> Result<Vec<bool>> {
    let refused = |problem: String| Err(Error::invalid("ranks", problem));
    let mut is_there = vec![false; world_size as usize];
    for &rank in ranks {
        match is_there.get_mut(rank as usize) {
            Some(true) => return refused(format!("{rank} twice")),
            Some(free) => *free = true,
            None => return refused(format!("{rank}, but the world has ranks 0 to {}", world_size - 1)),
        }
    }
    Ok(is_there)
}

/// Dimensions as a person reads them.
pub(super) fn text(dimensions: &[(&str, u32)]) -> String {
    let texts: Vec<String> = dimensions.iter().map(|(name, size)| format!("{name}={size}")).collect();
    texts.join(", ")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Sizes of up to four dimensions, and the order of their ranks.
    fn shapes() -> impl Strategy<Value = (Vec<u32>, Vec<u32>)> {
        proptest::collection::vec(1u32..4, 1..5).prop_flat_map(|sizes| {
            let ranks: Vec<u32> = (0..sizes.iter().product()).collect();
            (Just(sizes), Just(ranks).prop_shuffle())
        })
    }

    /// The coordinates of all places, counted as an odometer counts.
    fn all_coordinates(sizes: &[u32]) -> Vec<Vec<u32>> {
        let mut coordinates = vec![vec![0; sizes.len()]];
        loop {
            let mut next = coordinates[coordinates.len() - 1].clone();
            let Some(turned) = (0..sizes.len()).rev().find(|&wheel| next[wheel] + 1 < sizes[wheel]) else {
                return coordinates;
            };
            next[turned] += 1;
            next[turned + 1..].fill(0);
            coordinates.push(next);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]

        /// By definition: the ranks whose coordinates are equal in all other dimensions, sorted by the coordinates in
        /// these. Every rank and every set of dimensions of a random mesh is compared.
        #[test]
        fn a14_any_arrangement_is_as_defined((sizes, ranks) in shapes()) {
            let dims: Vec<(&str, u32)> = ["a", "b", "c", "d"].into_iter().zip(sizes.iter().copied()).collect();
            let coordinates = all_coordinates(&sizes);
            prop_assert_eq!(coordinates.len(), ranks.len());
            for (own, rank) in coordinates.iter().zip(&ranks) {
                let at = (*rank, ranks.len() as u32);
                let mesh = Arrangement::new(&dims, Ranks::Ordered(&ranks), at).unwrap().unwrap();
                for set in 0..1u32 << sizes.len() {
                    let (along, across): (Vec<usize>, Vec<usize>) =
                        (0..sizes.len()).partition(|&dimension| set >> dimension & 1 == 1);
                    let of = |place: &[u32], dims: &[usize]| -> Vec<u32> {
                        dims.iter().map(|&dimension| place[dimension]).collect()
                    };
                    let is_equal = |place: &[u32]| of(place, &across) == of(own, &across);
                    let mut expected: Vec<(Vec<u32>, u32)> = coordinates
                        .iter()
                        .zip(&ranks)
                        .filter(|(place, _)| is_equal(place))
                        .map(|(place, &rank)| (of(place, &along), rank))
                        .collect();
                    expected.sort();
                    let expected: Vec<u32> = expected.into_iter().map(|(_, rank)| rank).collect();
                    prop_assert_eq!(mesh.size_along(&along) as usize, expected.len());
                    prop_assert_eq!(expected[mesh.place_along(&along) as usize], *rank);
                    prop_assert_eq!(mesh.ranks_along(&along), expected);
                }
            }
        }
    }

    #[test]
    fn a14_no_order_of_ranks_is_their_own_order() {
        let mesh = Arrangement::new(&[("a", 2), ("b", 3)], Ranks::All, (4, 6)).unwrap().unwrap();
        assert_eq!((mesh.ranks_along(&[0]), mesh.ranks_along(&[1])), (vec![1, 4], vec![3, 4, 5]));
        assert_eq!((mesh.place_along(&[0]), mesh.place_along(&[1]), mesh.place_along(&[0, 1])), (1, 1, 4));
    }

    #[test]
    fn a14_what_is_no_mesh_of_the_world_is_refused() {
        let refused = |dimensions: &[(&str, u32)], ranks: Ranks<'_>| {
            Arrangement::new(dimensions, ranks, (0, 6)).unwrap_err().to_string()
        };
        let huge = [("a", u32::MAX), ("b", u32::MAX), ("c", u32::MAX)];
        let dimensions: [(&[(&str, u32)], &str); 7] = [
            (&[], "none, but a mesh has at least one"),
            (&[("dp", 2), ("", 3)], "dimension 1 has an empty name"),
            (&[("dp", 2), ("dp", 3)], "\"dp\" twice"),
            (&[("dp", 6), ("tp", 0)], "\"tp\" of size 0"),
            (&[("dp", 2), ("tp", 2)], "the product of dp=2, tp=2 is not 6, the size of the world"),
            (&[("dp", 3), ("tp", 4)], "the product of dp=3, tp=4 is not 6, the size of the world"),
            (
                &huge,
                "the product of a=4294967295, b=4294967295, c=4294967295 is not 6, the size of the world",
            ),
        ];
        for (dimensions, problem) in dimensions {
            assert_eq!(refused(dimensions, Ranks::All), format!("invalid dimensions: {problem}"));
        }
        let ranks: [(&[u32], &str); 4] = [
            (&[0, 1, 2, 3, 4, 6], "6, but the world has ranks 0 to 5"),
            (&[0, 1, 2, 3, 1, 4], "1 twice"),
            (&[0, 1, 2, 3, 5], "rank 4 is missing, but a mesh has all ranks of the world"),
            (&[], "rank 0 is missing, but a mesh has all ranks of the world"),
        ];
        for (ranks, problem) in ranks {
            let error = refused(&[("dp", 2), ("tp", 3)], Ranks::Ordered(ranks));
            assert_eq!(error, format!("invalid ranks: {problem}"));
        }
    }
}
