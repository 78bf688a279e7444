//! The ranks of a communicator that form a group: by colour and key, or by rows.

use unisono_communicator::{CallOptions, Communicator, DType, Descriptor, Error, Result};
use unisono_schedule::Collective;

use crate::blocking::{issue, separate};
use crate::with::With;

/// The colour of a rank that wants no group: no other colour is negative.
const NO_COLOUR: i64 = -1;

/// The ranks that have given the colour of this rank, by a call of all ranks.
#[track_caller]
pub(crate) fn ranks_of_same_colour<C: Communicator + ?Sized>(
    comm: &C,
    colour: Option<u32>,
    key: i64,
) -> Result<Vec<u32>> {
    let own = [colour.map_or(NO_COLOUR, i64::from), key];
    let mut all = vec![[0i64; 2]; comm.size() as usize];
    let labelled = CallOptions::new().label("split").needed().host_by_companion();
    let all_gather = Descriptor::new(Collective::AllGather, DType::I64, own.len() as u64);
    issue(&With::new(comm, labelled), separate(all_gather, &own, all.as_flattened_mut()))?;
    Ok(ranks_of_colour(&all, own[0]))
}

/// The ranks with this colour, in the order of their keys; equal keys stay in the order of ranks. `all` has the colour
/// and the key of every rank.
fn ranks_of_colour(all: &[[i64; 2]], colour: i64) -> Vec<u32> {
    if colour == NO_COLOUR {
        return Vec::new();
    }
    let mut ranks: Vec<u32> = (0..all.len() as u32).filter(|&rank| all[rank as usize][0] == colour).collect();
    ranks.sort_by_key(|&rank| all[rank as usize][1]);
    ranks
}

/// The row that has `rank`, or an empty one.
///
/// # Errors
/// [`Error::InvalidArgument`] when a rank is in two rows.
pub(crate) fn own_row<'r>(rows: &[&'r [u32]], rank: u32) -> Result<&'r [u32]> {
    let mut all: Vec<u32> = rows.concat();
    all.sort_unstable();
    if let Some(twice) = all.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(Error::invalid(
            "rows",
            format!("rank {} twice, but a rank is in one row at most", twice[0]),
        ));
    }
    Ok(rows.iter().find(|row| row.contains(&rank)).copied().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1_000))]

        /// By MPI's own words: sorted by colour, then key, then rank of the parent.
        #[test]
        fn a7_split_is_as_mpi_defines_it(all in proptest::collection::vec((-1i64..4, -3i64..3), 1..40)) {
            let all: Vec<[i64; 2]> = all.into_iter().map(|(colour, key)| [colour, key]).collect();
            let mut sorted: Vec<(i64, i64, u32)> =
                all.iter().zip(0..).map(|(&[colour, key], rank)| (colour, key, rank)).collect();
            sorted.sort_unstable();
            for colour in 0..4 {
                let expected: Vec<u32> = sorted.iter().filter(|one| one.0 == colour).map(|one| one.2).collect();
                prop_assert_eq!(ranks_of_colour(&all, colour), expected);
            }
            prop_assert!(ranks_of_colour(&all, NO_COLOUR).is_empty());
        }
    }

    #[test]
    fn a_rank_has_one_row_at_most() {
        let rows: [&[u32]; 2] = [&[3, 1], &[0]];
        assert_eq!([1, 2].map(|rank| own_row(&rows, rank).unwrap()), [&[3, 1][..], &[]]);
        let twice: [&[u32]; 2] = [&[3, 1], &[0, 3]];
        assert!(own_row(&twice, 2).unwrap_err().to_string().contains("rows: rank 3 twice"));
    }
}
