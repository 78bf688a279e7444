//! One call for many arrays, of each of which every rank has a share.

use pyo3::prelude::*;
use unisono::call::{Counts, Descriptor, Division};
use unisono::{Collective, CollectivesOfLists};

use crate::building::{Argument, Given, Maybe, given};
use crate::communicator::Communicator;
use crate::errors::invalid;
use crate::foreign::Piece;
use crate::operators::operator;
use crate::request::{Memory, Request};
use crate::results::Gives;

#[pymethods]
impl Communicator {
    /// The first element that rank `rank` has of an array of `elements` elements in the coalesced calls, and the first
    /// one behind: all ranks but the last ones have `elements / size`, rounded up.
    fn coalesced_share(&self, elements: usize, rank: u32) -> (usize, usize) {
        let share = self.inner.coalesced_share(elements, rank);
        (share.start, share.end)
    }
}

impl Communicator {
    pub(crate) fn gathering_coalesced(
        &self,
        arrays: Argument<'_, '_>,
        out: Argument<'_, '_>,
        dtype: Option<&str>,
    ) -> PyResult<Request> {
        let input = given(arrays, "arrays", dtype, Division::Anywhere)?;
        let output = input.output(out, Division::Coalesced)?;
        let gives = Gives::Array(out.clone().unbind());
        self.coalesced(Collective::AllGather, (arrays, &input, "arrays"), (out, &output, "out")).map(
            |(descriptor, counts, pieces)| {
                let output = output.arrays.pieces(pieces, Division::Coalesced);
                let memory = Memory::Separate { input: input.arrays, output };
                Request { counts, ..Request::new(descriptor, memory, gives) }
            },
        )
    }

    pub(crate) fn scattering_coalesced(
        &self,
        arrays: Argument<'_, '_>,
        out: Argument<'_, '_>,
        op: Maybe<'_, '_>,
        dtype: Option<&str>,
    ) -> PyResult<Request> {
        let input = given(arrays, "arrays", dtype, Division::Coalesced)?;
        let output = input.output(out, Division::Anywhere)?;
        let (op, function) = operator(op, input.dtype)?;
        let gives = Gives::Array(out.clone().unbind());
        let (descriptor, counts, pieces) =
            self.coalesced(Collective::ReduceScatter, (out, &output, "out"), (arrays, &input, "arrays"))?;
        let descriptor = Descriptor { op: Some(op), ..descriptor };
        let input = input.arrays.pieces(pieces, Division::Coalesced);
        let memory = Memory::Separate { input, output: output.arrays };
        Ok(Request { counts, function, ..Request::new(descriptor, memory, gives) })
    }

    /// The call of lists with this rank's shares and with the whole arrays, and the share of each rank in each whole
    /// array, in the order of the ranks.
    fn coalesced(
        &self,
        collective: Collective,
        shares: (Argument<'_, '_>, &Given<'_, '_>, &'static str),
        whole: (Argument<'_, '_>, &Given<'_, '_>, &'static str),
    ) -> PyResult<(Descriptor, Counts, Vec<Piece>)> {
        let lengths = |(object, given, name): (Argument<'_, '_>, &Given<'_, '_>, &'static str)| {
            let problem = "one array, but a coalesced call takes lists of arrays";
            given.lengths().ok_or_else(|| invalid(object.py(), name, problem))
        };
        let (own_shares, elements) = (lengths(shares)?, lengths(whole)?);
        let (py, own_rank, ranks) = (shares.0.py(), self.inner.rank(), self.inner.size());
        let share = |elements: u64, rank| self.inner.coalesced_share(elements as usize, rank);
        if own_shares.len() != elements.len() {
            let problem = format!("{} arrays, but {} has {}", own_shares.len(), whole.2, elements.len());
            return Err(invalid(py, shares.2, problem));
        }
        for (at, (&found, &elements)) in own_shares.iter().zip(&elements).enumerate() {
            let needs = share(elements, own_rank).len();
            if found != needs as u64 {
                let problem = format!(
                    "array {at} has {found} elements, but the share of rank {own_rank} in {elements} has {needs}"
                );
                return Err(invalid(py, shares.2, problem));
            }
        }
        let dtype = shares.1.dtype;
        let of_rank = |rank| elements.iter().map(move |&elements| share(elements, rank));
        let pieces = (0..ranks)
            .flat_map(|rank| of_rank(rank).enumerate())
            .map(|(array, part)| (array, part.start * dtype.bytes()..part.end * dtype.bytes()));
        let uneven = !elements.iter().all(|elements| elements.is_multiple_of(u64::from(ranks)));
        let count = |rank| of_rank(rank).map(|part| part.len() as u64).sum();
        let counts = if uneven { Counts::PerRank((0..ranks).map(count).collect()) } else { Counts::Even };
        let descriptor = Descriptor { uneven, ..Descriptor::new(collective, dtype, count(own_rank)) };
        Ok((descriptor, counts, pieces.collect()))
    }
}
