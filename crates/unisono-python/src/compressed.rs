//! Compressed calls.

use std::sync::{Arc, Mutex};

use pyo3::prelude::*;
use unisono::call::Division;
use unisono::compression::CompressedCollectives;
use unisono::extend::calls::With;
use unisono::{CallOptions, Collectives, DType, Element, Error, Outcome, ReduceOp};

use crate::arrays::Array;
use crate::building::{Argument, given};
use crate::communicator::{At, Communicator};
use crate::compression::{CompressionState, State, for_float, locked};
use crate::foreign::Started;
use crate::interrupt::waiting;
use crate::operators::operator;
use crate::request::Memory;
use crate::results::Gives;
use crate::work::Work;

/// A compressed call, ready to be made.
struct Compressed {
    name: &'static str,
    memory: Memory,
    op: Option<ReduceOp>,
    dtype: DType,
    state: Arc<Mutex<State>>,
    gives: Gives,
}

impl Compressed {
    /// A call of `array` in place, or into `out`.
    fn new(
        name: &'static str,
        array: Argument<'_, '_>,
        out: Option<Argument<'_, '_>>,
        op: Option<Argument<'_, '_>>,
        state: &Bound<'_, CompressionState>,
        dtype: Option<&str>,
    ) -> PyResult<Compressed> {
        let input = given(array, "array", dtype, Division::Coalesced)?;
        let (element, result) = (input.dtype, out.unwrap_or(array));
        let op = op.map(|op| operator(Some(op), element)).transpose()?.map(|(op, _)| op);
        let memory = match out {
            None => Memory::InPlace(input.arrays),
            Some(out) => {
                let output = input.output(out, Division::Coalesced)?.arrays;
                Memory::Separate { input: input.arrays, output }
            }
        };
        memory.check(array.py())?;
        let gives = Gives::Array(result.clone().unbind());
        Ok(Compressed { name, memory, op, dtype: element, state: state.get().shared(), gives })
    }

    fn make(&mut self, at: &At, options: CallOptions) -> unisono::Result<()> {
        let made = locked(&self.state).and_then(|mut state| {
            let comm = at.with(options);
            for_float!(self.dtype, T => made::<T>(&comm, &mut self.memory, self.op, &mut state))
        });
        made.map_err(|error| at.named(error, self.name))
    }

    fn run(mut self, py: Python<'_>, comm: &Communicator) -> PyResult<Py<PyAny>> {
        let (at, options) = (comm.at(py), comm.options);
        waiting(py, || self.make(&at, options))?;
        Ok(self.gives.array(py))
    }

    fn start(self, py: Python<'_>, comm: &Communicator) -> PyResult<Work> {
        let (at, options, dtype) = (comm.at(py), comm.options, self.dtype);
        let gives = Gives::Array(self.gives.array(py));
        let mut call = crate::exit::Kept::new(self);
        let inner = comm.inner.clone();
        let start = move || {
            unisono::Work::on_thread(inner, move |opened| {
                let Some(call) = call.get_mut() else { return Err(Error::closed()) };
                call.make(&at.that_tells(opened), options)?;
                Ok(Outcome::done(call.memory.bytes_written() as u64, call.name))
            })
        };
        let started = waiting(py, || Ok(start()))?;
        Ok(Work::new(Started::without_arrays(started), gives, dtype))
    }
}

/// Makes the call of one kind of elements.
fn made<T: Element>(
    comm: &With<'_, At>,
    memory: &mut Memory,
    op: Option<ReduceOp>,
    state: &mut State,
) -> unisono::Result<()> {
    match (memory, op) {
        (Memory::InPlace(arrays), Some(op)) => {
            comm.compressed_all_reduce_coalesced(&mut written::<T>(arrays.each_mut())?, op, state)
        }
        (Memory::Separate { input, output }, Some(op)) => {
            let mut outputs = written::<T>(output.each_mut())?;
            comm.compressed_reduce_scatter(&read::<T>(input.each())?, &mut outputs, op, state)
        }
        (Memory::Separate { input, output }, None) => {
            match (&*read::<T>(input.each())?, &mut *written::<T>(output.each_mut())?) {
                ([input], [output]) => comm.compressed_all_gather(input, output, state),
                _ => Err(Error::invalid("array", "a list, but a compressed all_gather takes one array")),
            }
        }
        (Memory::InPlace(_), None) => Err(Error::invalid("op", "missing")),
    }
}

fn read<T: Element>(arrays: &[Array]) -> unisono::Result<Vec<&[T]>> {
    arrays.iter().map(|array| bytemuck::try_cast_slice(array.bytes()).map_err(misplaced::<T>)).collect()
}

fn written<T: Element>(arrays: &mut [Array]) -> unisono::Result<Vec<&mut [T]>> {
    let cast = |array| bytemuck::try_cast_slice_mut(Array::bytes_mut(array)).map_err(misplaced::<T>);
    arrays.iter_mut().map(cast).collect()
}

fn misplaced<T: Element>(problem: bytemuck::PodCastError) -> Error {
    Error::invalid("array", format!("its memory holds no {}: {problem}", T::DTYPE))
}

/// The compressed calls, made and started.
macro_rules! compressed {
    ($(
        $(#[doc = $text:literal])*
        $name:ident, $started:ident ($($signature:tt)*) [$($parameters:tt)*] $array:expr, $out:expr, $op:expr;
    )*) => {
        #[pymethods]
        impl Communicator {
            $(
                $(#[doc = $text])*
                #[pyo3(signature = ($($signature)*, state, *, dtype = None))]
                fn $name(
                    &self,
                    py: Python<'_>,
                    $($parameters)*,
                    state: &Bound<'_, CompressionState>,
                    dtype: Option<&str>,
                ) -> PyResult<Py<PyAny>> {
                    Compressed::new(stringify!($name), $array, $out, $op, state, dtype)?.run(py, self)
                }

                #[doc = concat!("Starts ", stringify!($name), ": the handle gives its result.")]
                #[pyo3(signature = ($($signature)*, state, *, dtype = None))]
                fn $started(
                    &self,
                    py: Python<'_>,
                    $($parameters)*,
                    state: &Bound<'_, CompressionState>,
                    dtype: Option<&str>,
                ) -> PyResult<Work> {
                    Compressed::new(stringify!($name), $array, $out, $op, state, dtype)?.start(py, self)
                }
            )*
        }
    };
}

compressed! {
    /// The array becomes about the sum or the mean of all ranks' arrays, the same bits everywhere, with fewer bytes on
    /// the network; the compression error stays in the state, and comes with the next call. `op` is SUM or AVG. A list
    /// of arrays is reduced as if they were one.
    compressed_all_reduce, compressed_all_reduce_async (array, op)
        [array: Argument<'_, '_>, op: Argument<'_, '_>] array, None, Some(op);

    /// `out` becomes about this rank's share of the sum or the mean of all ranks' arrays, as `coalesced_share` has it.
    /// Both may be lists. The state is of `CompressionState.reduce_scatter`.
    compressed_reduce_scatter, compressed_reduce_scatter_async (array, out, op)
        [array: Argument<'_, '_>, out: Argument<'_, '_>, op: Argument<'_, '_>] array, Some(out), Some(op);

    /// `out` becomes about all ranks' arrays in rank order, the same bits everywhere. The state is of
    /// `CompressionState.all_gather`.
    compressed_all_gather, compressed_all_gather_async (array, out)
        [array: Argument<'_, '_>, out: Argument<'_, '_>] array, Some(out), None;
}
