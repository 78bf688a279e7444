//! The collectives on arrays.

use unisono::call::Descriptor;
use unisono::{Collective, DType};

use crate::building::{Argument, Maybe};
use crate::forms::calls;
use crate::request::{Arrays, Memory, Request};
use crate::results::Gives;

calls! {
    /// The array becomes the reduction of all ranks' arrays, the same bits everywhere; with `out`, which is given back,
    /// it stays as it is. A list of arrays is reduced in one call, with the same lengths on every rank.
    all_reduce, all_reduce_async (array, op = None, *, out = None, dtype = None)
        [array: Argument<'_, '_>, op: Maybe<'_, '_>, out: Maybe<'_, '_>, dtype: Option<&str>]
        |comm| comm.reducing(Collective::AllReduce, array, op, out, dtype);

    /// Rank r's array becomes the reduction of the arrays of ranks 0 to r.
    scan, scan_async (array, op = None, *, out = None, dtype = None)
        [array: Argument<'_, '_>, op: Maybe<'_, '_>, out: Maybe<'_, '_>, dtype: Option<&str>]
        |comm| comm.reducing(Collective::Scan, array, op, out, dtype);

    /// Rank r's array becomes the reduction of the arrays of ranks 0 to r-1; rank 0's stays as it is.
    exscan, exscan_async (array, op = None, *, out = None, dtype = None)
        [array: Argument<'_, '_>, op: Maybe<'_, '_>, out: Maybe<'_, '_>, dtype: Option<&str>]
        |comm| comm.reducing(Collective::Exscan, array, op, out, dtype);

    /// Every rank's array becomes the root's.
    broadcast, broadcast_async (array, root = 0, *, dtype = None)
        [array: Argument<'_, '_>, root: u32, dtype: Option<&str>]
        |comm| comm.broadcasting(array, root, dtype);

    /// The reduction of all ranks' arrays on the root, `None` elsewhere.
    reduce, reduce_async (array, op = None, root = 0, *, out = None, dtype = None)
        [array: Argument<'_, '_>, op: Maybe<'_, '_>, root: u32, out: Maybe<'_, '_>, dtype: Option<&str>]
        |comm| comm.reducing_to(array, op, root, out, dtype);

    /// The arrays of all ranks: a new array with a row for each rank, or `out`, which may be a list with an array for
    /// each rank. With `counts`, a count for each rank, a flat array.
    all_gather, all_gather_async (array, *, out = None, counts = None, dtype = None)
        [array: Argument<'_, '_>, out: Maybe<'_, '_>, counts: Option<Vec<u64>>, dtype: Option<&str>]
        |comm| comm.gathering(array, None, out, counts, dtype);

    /// As all_gather on the root, `None` elsewhere. All ranks give the counts, if any does.
    gather, gather_async (array, root = 0, *, out = None, counts = None, dtype = None)
        [array: Argument<'_, '_>, root: u32, out: Maybe<'_, '_>, counts: Option<Vec<u64>>, dtype: Option<&str>]
        |comm| comm.gathering(array, Some(root), out, counts, dtype);

    /// Rank r's `out` becomes share r of the root's array, or array r of its list; the other ranks give `None`.
    scatter, scatter_async (array, out, root = 0, *, counts = None, dtype = None)
        [array: Maybe<'_, '_>, out: Argument<'_, '_>, root: u32, counts: Option<Vec<u64>>, dtype: Option<&str>]
        |comm| comm.scattering(array, out, root, counts, dtype);

    /// Share r of the reduction of all ranks' arrays on rank r: a new array, or `out`.
    reduce_scatter, reduce_scatter_async (array, op = None, *, out = None, counts = None, dtype = None)
        [array: Argument<'_, '_>, op: Maybe<'_, '_>, out: Maybe<'_, '_>, counts: Option<Vec<u64>>,
         dtype: Option<&str>]
        |comm| comm.reduce_scattering(array, op, out, counts, dtype);

    /// Part s of rank r's result is part r of rank s's array: a new array, or `out`. Uneven parts have `send_counts`
    /// and `receive_counts`, or are lists of arrays.
    all_to_all, all_to_all_async (array, *, out = None, send_counts = None, receive_counts = None, dtype = None)
        [array: Argument<'_, '_>, out: Maybe<'_, '_>, send_counts: Option<Vec<u64>>,
         receive_counts: Option<Vec<u64>>, dtype: Option<&str>]
        |comm| comm.exchanging(array, out, [send_counts, receive_counts], dtype);

    /// Every array of the list `out` becomes the shares of all ranks in rank order; `arrays[i]` is this rank's share of
    /// `out[i]`, as `coalesced_share` has it. One call of all elements.
    all_gather_coalesced, all_gather_coalesced_async (arrays, out, *, dtype = None)
        [arrays: Argument<'_, '_>, out: Argument<'_, '_>, dtype: Option<&str>]
        |comm| comm.gathering_coalesced(arrays, out, dtype);

    /// `out[i]` becomes this rank's share of the reduction of all ranks' `arrays[i]`, as `coalesced_share` has it. One
    /// call of all elements.
    reduce_scatter_coalesced, reduce_scatter_coalesced_async (arrays, out, op = None, *, dtype = None)
        [arrays: Argument<'_, '_>, out: Argument<'_, '_>, op: Maybe<'_, '_>, dtype: Option<&str>]
        |comm| comm.scattering_coalesced(arrays, out, op, dtype);

    /// Returns when every rank has called it.
    barrier, barrier_async () [] |_comm| barrier();
}

fn barrier() -> pyo3::PyResult<Request> {
    let memory = Memory::Separate { input: Arrays::None, output: Arrays::None };
    Ok(Request::new(Descriptor::new(Collective::Barrier, DType::U8, 0), memory, Gives::Nothing))
}
