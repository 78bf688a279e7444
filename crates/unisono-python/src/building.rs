//! From the arguments of a collective to its request. Without `out`, all_reduce, broadcast, scan and exscan change the
//! array itself, and other calls make a new one; `out` that is the array itself makes any call in place.

use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use unisono::call::{Counts, Descriptor, Division};
use unisono::{Collective, DType};

use crate::arrays::{Array, is_immutable};
use crate::communicator::Communicator;
use crate::dtypes::of_name;
use crate::errors::invalid;
use crate::operators::operator;
use crate::request::{Arrays, Memory, Request};
use crate::results::{Gives, new_like};

/// An argument of a Python call.
pub(crate) type Argument<'a, 'py> = &'a Bound<'py, PyAny>;

/// An argument that may be missing.
pub(crate) type Maybe<'a, 'py> = Option<Argument<'a, 'py>>;

/// An argument that is an array, or a list of arrays.
pub(crate) struct Given<'a, 'py> {
    object: Argument<'a, 'py>,
    /// The element type that the caller gives, for every array of the call.
    explicit: Option<&'a str>,
    pub(crate) arrays: Arrays,
    pub(crate) dtype: DType,
    /// Elements of all arrays together.
    pub(crate) count: u64,
}

/// The arrays of an argument. `division` is the meaning of a list.
pub(crate) fn given<'a, 'py>(
    object: Argument<'a, 'py>,
    name: &'static str,
    explicit: Option<&'a str>,
    division: Division,
) -> PyResult<Given<'a, 'py>> {
    let py = object.py();
    let dtype = match explicit {
        Some(dtype) => Some(of_name(dtype).map_err(|problem| invalid(py, "dtype", problem))?),
        None => None,
    };
    if !(object.is_instance_of::<PyList>() || object.is_instance_of::<PyTuple>()) {
        let array = Array::of(object, name, dtype)?;
        let (dtype, count) = (array.dtype(), array.count());
        return Ok(Given { object, explicit, arrays: Arrays::One(array), dtype, count });
    }
    let arrays: Vec<Array> =
        object.try_iter()?.map(|item| Array::of(&item?, name, dtype)).collect::<PyResult<_>>()?;
    let Some(first) = arrays.first().map(Array::dtype) else {
        return Err(invalid(py, name, "an empty list has no element type"));
    };
    if let Some(other) = arrays.iter().map(Array::dtype).find(|other| *other != first) {
        return Err(invalid(
            py,
            name,
            format!("the arrays of a list have one element type, not {first} and {other}"),
        ));
    }
    let count = arrays.iter().map(Array::count).sum();
    Ok(Given { object, explicit, arrays: Arrays::Many(arrays, division), dtype: first, count })
}

impl<'a, 'py> Given<'a, 'py> {
    /// The lengths of the arrays of a list.
    pub(crate) fn lengths(&self) -> Option<Vec<u64>> {
        match &self.arrays {
            Arrays::Many(arrays, _) | Arrays::Pieces(arrays, ..) => {
                Some(arrays.iter().map(Array::count).collect())
            }
            Arrays::One(_) | Arrays::None => None,
        }
    }

    fn one(&self, name: &'static str) -> PyResult<&Array> {
        match &self.arrays {
            Arrays::One(array) => Ok(array),
            Arrays::Many(..) | Arrays::Pieces(..) | Arrays::None => Err(invalid(
                self.object.py(),
                name,
                "a list, but this call takes one array, or a list with out=",
            )),
        }
    }

    /// The number of elements of its one array in each dimension.
    fn shape(&self) -> PyResult<Vec<usize>> {
        Ok(self.one("array")?.shape(self.object.py()))
    }

    fn is_read_only(&self) -> bool {
        matches!(&self.arrays, Arrays::One(array) if array.is_read_only())
    }

    fn is(&self, out: Option<Argument<'_, 'py>>) -> bool {
        out.is_some_and(|out| out.is(self.object))
    }

    /// A new array of this shape for the result.
    fn new_result(&self, shape: &[usize]) -> PyResult<Bound<'py, PyAny>> {
        new_like(self.object, self.one("array")?, shape)
    }

    /// The memory of `out`, which has elements as this argument.
    pub(crate) fn output<'o>(&self, out: Argument<'o, 'py>, division: Division) -> PyResult<Given<'o, 'py>>
    where
        'a: 'o,
    {
        let output = given(out, "out", self.explicit, division)?;
        if output.dtype == self.dtype {
            return Ok(output);
        }
        let problem = format!("elements of {}, but the input has {}", output.dtype, self.dtype);
        Err(invalid(out.py(), "out", problem))
    }
}

/// The counts of an argument.
pub(crate) fn per_rank(counts: &[u64]) -> Counts {
    Counts::PerRank(counts.to_vec())
}

impl Communicator {
    fn is_root(&self, root: u32) -> bool {
        self.inner.rank() == root
    }

    /// The share of a rank in a buffer with one for each rank.
    pub(crate) fn share(&self, py: Python<'_>, name: &'static str, count: u64) -> PyResult<u64> {
        let ranks = self.size_of() as u64;
        if count.is_multiple_of(ranks) {
            return Ok(count / ranks);
        }
        let problem =
            format!("{count} elements do not divide among {ranks} ranks; counts= has a count for each rank");
        Err(invalid(py, name, problem))
    }

    /// The own entry of a list with a count for each rank. A list of another length is refused with the call.
    pub(crate) fn own_count(&self, counts: &[u64]) -> u64 {
        counts.get(self.inner.rank() as usize).copied().unwrap_or(0)
    }

    /// all_reduce, scan and exscan.
    pub(crate) fn reducing(
        &self,
        collective: Collective,
        array: Argument<'_, '_>,
        op: Maybe<'_, '_>,
        out: Maybe<'_, '_>,
        dtype: Option<&str>,
    ) -> PyResult<Request> {
        let input = given(array, "array", dtype, Division::Coalesced)?;
        let (op, function) = operator(op, input.dtype)?;
        let descriptor = Descriptor { op: Some(op), ..Descriptor::new(collective, input.dtype, input.count) };
        // The first rank of an exscan has no result; its array stays as it is.
        let has_result = collective != Collective::Exscan || self.inner.rank() > 0;
        let made = match out {
            None if input.is_read_only() && is_immutable(array)? => Some(input.new_result(&input.shape()?)?),
            None => None,
            Some(out) if input.is(Some(out)) => None,
            Some(out) => Some(out.clone()),
        };
        let (memory, result) = match made {
            None if has_result => (Memory::InPlace(input.arrays), array.clone()),
            None => (Memory::Separate { input: input.arrays, output: Arrays::None }, array.clone()),
            Some(out) => {
                let output = input.output(&out, Division::Coalesced)?.arrays;
                let output = if has_result { output } else { Arrays::None };
                (Memory::Separate { input: input.arrays, output }, out.clone())
            }
        };
        Ok(Request { function, ..Request::new(descriptor, memory, Gives::Array(result.unbind())) })
    }

    pub(crate) fn broadcasting(
        &self,
        array: Argument<'_, '_>,
        root: u32,
        dtype: Option<&str>,
    ) -> PyResult<Request> {
        let buffer = given(array, "array", dtype, Division::Anywhere)?;
        let descriptor = Descriptor {
            root: Some(root),
            ..Descriptor::new(Collective::Broadcast, buffer.dtype, buffer.count)
        };
        Ok(Request::new(descriptor, Memory::InPlace(buffer.arrays), Gives::Array(array.clone().unbind())))
    }

    pub(crate) fn reducing_to(
        &self,
        array: Argument<'_, '_>,
        op: Maybe<'_, '_>,
        root: u32,
        out: Maybe<'_, '_>,
        dtype: Option<&str>,
    ) -> PyResult<Request> {
        let input = given(array, "array", dtype, Division::Anywhere)?;
        let (op, function) = operator(op, input.dtype)?;
        let descriptor = Descriptor {
            op: Some(op),
            root: Some(root),
            ..Descriptor::new(Collective::Reduce, input.dtype, input.count)
        };
        let request = if !self.is_root(root) {
            let memory = Memory::Separate { input: input.arrays, output: Arrays::None };
            Request::new(descriptor, memory, Gives::Nothing)
        } else if input.is(out) {
            Request::new(descriptor, Memory::InPlace(input.arrays), Gives::Array(array.clone().unbind()))
        } else {
            let out = match out {
                Some(out) => out.clone(),
                None => input.new_result(&input.shape()?)?,
            };
            let output = input.output(&out, Division::Anywhere)?.arrays;
            Request::new(
                descriptor,
                Memory::Separate { input: input.arrays, output },
                Gives::Array(out.unbind()),
            )
        };
        Ok(Request { function, ..request })
    }

    /// all_gather, and gather with a root.
    pub(crate) fn gathering(
        &self,
        array: Argument<'_, '_>,
        root: Option<u32>,
        out: Maybe<'_, '_>,
        counts: Option<Vec<u64>>,
        dtype: Option<&str>,
    ) -> PyResult<Request> {
        let input = given(array, "array", dtype, Division::Anywhere)?;
        let collective = if root.is_some() { Collective::Gather } else { Collective::AllGather };
        let of_share = |share| Descriptor { root, ..Descriptor::new(collective, input.dtype, share) };
        if root.is_some_and(|root| !self.is_root(root)) {
            let descriptor = of_share(input.count);
            let memory = Memory::Separate { input: input.arrays, output: Arrays::None };
            return Ok(uneven(Request::new(descriptor, memory, Gives::Nothing), counts));
        }
        if input.is(out) {
            let share = match &counts {
                Some(counts) => self.own_count(counts),
                None => self.share(array.py(), "array", input.count)?,
            };
            let request = Request::new(
                of_share(share),
                Memory::InPlace(input.arrays),
                Gives::Array(array.clone().unbind()),
            );
            return Ok(uneven(request, counts));
        }
        let out = match out {
            Some(out) => out.clone(),
            None => {
                let shape = match &counts {
                    Some(counts) => vec![counts.iter().sum::<u64>() as usize],
                    None => [&[self.size_of()], &input.shape()?[..]].concat(),
                };
                input.new_result(&shape)?
            }
        };
        let output = input.output(&out, Division::Shares)?;
        // A list says itself how much each rank sends.
        let listed = output.lengths().filter(|lengths| lengths.iter().any(|&length| length != input.count));
        let descriptor = of_share(input.count);
        let memory = Memory::Separate { input: input.arrays, output: output.arrays };
        let request = Request::new(descriptor, memory, Gives::Array(out.unbind()));
        Ok(uneven(request, counts.or(listed)))
    }

    pub(crate) fn scattering(
        &self,
        array: Maybe<'_, '_>,
        out: Argument<'_, '_>,
        root: u32,
        counts: Option<Vec<u64>>,
        dtype: Option<&str>,
    ) -> PyResult<Request> {
        let gives = Gives::Array(out.clone().unbind());
        let of_share = |dtype, share| Descriptor {
            root: Some(root),
            ..Descriptor::new(Collective::Scatter, dtype, share)
        };
        let Some(array) = array else {
            let output = given(out, "out", dtype, Division::Anywhere)?;
            let descriptor = of_share(output.dtype, output.count);
            let memory = Memory::Separate { input: Arrays::None, output: output.arrays };
            return Ok(uneven(Request::new(descriptor, memory, gives), counts));
        };
        let input = given(array, "array", dtype, Division::Shares)?;
        if input.is(Some(out)) {
            let share = match &counts {
                Some(counts) => self.own_count(counts),
                None => self.share(array.py(), "array", input.count)?,
            };
            let request = Request::new(of_share(input.dtype, share), Memory::InPlace(input.arrays), gives);
            return Ok(uneven(request, counts));
        }
        let output = input.output(out, Division::Anywhere)?;
        let listed = input.lengths().filter(|lengths| lengths.iter().any(|&length| length != output.count));
        let descriptor = of_share(input.dtype, output.count);
        let memory = Memory::Separate { input: input.arrays, output: output.arrays };
        Ok(uneven(Request::new(descriptor, memory, gives), counts.or(listed)))
    }

    pub(crate) fn reduce_scattering(
        &self,
        array: Argument<'_, '_>,
        op: Maybe<'_, '_>,
        out: Maybe<'_, '_>,
        counts: Option<Vec<u64>>,
        dtype: Option<&str>,
    ) -> PyResult<Request> {
        let py = array.py();
        let input = given(array, "array", dtype, Division::Shares)?;
        let (op, function) = operator(op, input.dtype)?;
        let listed = input.lengths().filter(|lengths| lengths.iter().any(|&length| length != lengths[0]));
        let counts = counts.or(listed);
        let share = match &counts {
            Some(counts) => self.own_count(counts),
            None => self.share(py, "array", input.count)?,
        };
        let descriptor =
            Descriptor { op: Some(op), ..Descriptor::new(Collective::ReduceScatter, input.dtype, share) };
        let request = if input.is(out) {
            Request::new(descriptor, Memory::InPlace(input.arrays), Gives::Array(array.clone().unbind()))
        } else {
            let out = match out {
                Some(out) => out.clone(),
                None => input.new_result(&self.share_shape(&input, share)?)?,
            };
            let output = input.output(&out, Division::Anywhere)?.arrays;
            Request::new(
                descriptor,
                Memory::Separate { input: input.arrays, output },
                Gives::Array(out.unbind()),
            )
        };
        Ok(uneven(Request { function, ..request }, counts))
    }

    /// The shape of a rank's share: the first dimension counts the ranks, or is divided among them.
    fn share_shape(&self, input: &Given<'_, '_>, share: u64) -> PyResult<Vec<usize>> {
        match &input.shape()?[..] {
            [first, rest @ ..] if *first == self.size_of() && !rest.is_empty() => Ok(rest.to_vec()),
            _ => Ok(vec![share as usize]),
        }
    }

    pub(crate) fn exchanging(
        &self,
        array: Argument<'_, '_>,
        out: Maybe<'_, '_>,
        counts: [Option<Vec<u64>>; 2],
        dtype: Option<&str>,
    ) -> PyResult<Request> {
        let py = array.py();
        let input = given(array, "array", dtype, Division::Shares)?;
        let [send, receive] = counts;
        let mut send = send.or_else(|| input.lengths());
        let in_place = input.is(out);
        let out = match out {
            Some(out) => out.clone(),
            None => match &receive {
                Some(counts) => input.new_result(&[counts.iter().sum::<u64>() as usize])?,
                None => input.new_result(&input.shape()?)?,
            },
        };
        let (dtype, count) = (input.dtype, input.count);
        let gives = Gives::Array(out.clone().unbind());
        let (memory, listed) = if in_place {
            (Memory::InPlace(input.arrays), None)
        } else {
            let output = input.output(&out, Division::Shares)?;
            let listed = output.lengths();
            (Memory::Separate { input: input.arrays, output: output.arrays }, listed)
        };
        let mut receive = receive.or(listed);
        if in_place {
            send = send.or_else(|| receive.clone());
            receive = receive.or_else(|| send.clone());
        }
        match (send, receive) {
            (None, None) => {
                let share = self.share(py, "array", count)?;
                let descriptor = Descriptor::new(Collective::AllToAll, dtype, share);
                Ok(Request::new(descriptor, memory, gives))
            }
            (Some(send), Some(receive)) => {
                let descriptor =
                    Descriptor { uneven: true, ..Descriptor::new(Collective::AllToAll, dtype, count) };
                let counts = Counts::PerPair { send, receive };
                Ok(Request { counts, ..Request::new(descriptor, memory, gives) })
            }
            (Some(_), None) | (None, Some(_)) => {
                Err(invalid(py, "counts", "send_counts and receive_counts, or lists of arrays, go together"))
            }
        }
    }
}

/// The request with these counts, if there are any.
fn uneven(request: Request, counts: Option<Vec<u64>>) -> Request {
    match counts {
        None => request,
        Some(counts) => {
            let descriptor = Descriptor { uneven: true, ..request.descriptor };
            Request { descriptor, counts: per_rank(&counts), ..request }
        }
    }
}
