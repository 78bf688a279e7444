//! The collectives on arrays, blocking and started.

use pyo3::prelude::*;
use unisono::call::Descriptor;
use unisono::{Collective, DType};

use crate::building::Argument;
use crate::communicator::Communicator;
use crate::request::{Arrays, Memory, Request};
use crate::results::Gives;
use crate::work::Work;

#[pymethods]
impl Communicator {
    /// The array becomes the reduction of all ranks' arrays, the same bits everywhere; with `out`, which is given back,
    /// it stays as it is. A list of arrays is reduced in one call, with the same lengths on every rank.
    #[pyo3(signature = (array, op = None, *, out = None, dtype = None))]
    fn all_reduce(
        &self,
        py: Python<'_>,
        array: Argument<'_, '_>,
        op: Option<Argument<'_, '_>>,
        out: Option<Argument<'_, '_>>,
        dtype: Option<&str>,
    ) -> PyResult<Py<PyAny>> {
        self.reducing(Collective::AllReduce, array, op, out, dtype)?.run(py, self)
    }

    /// Starts all_reduce.
    #[pyo3(signature = (array, op = None, *, out = None, dtype = None))]
    fn all_reduce_async(
        &self,
        py: Python<'_>,
        array: Argument<'_, '_>,
        op: Option<Argument<'_, '_>>,
        out: Option<Argument<'_, '_>>,
        dtype: Option<&str>,
    ) -> PyResult<Work> {
        self.reducing(Collective::AllReduce, array, op, out, dtype)?.start(py, self)
    }

    /// Rank r's array becomes the reduction of the arrays of ranks 0 to r.
    #[pyo3(signature = (array, op = None, *, out = None, dtype = None))]
    fn scan(
        &self,
        py: Python<'_>,
        array: Argument<'_, '_>,
        op: Option<Argument<'_, '_>>,
        out: Option<Argument<'_, '_>>,
        dtype: Option<&str>,
    ) -> PyResult<Py<PyAny>> {
        self.reducing(Collective::Scan, array, op, out, dtype)?.run(py, self)
    }

    /// Starts scan.
    #[pyo3(signature = (array, op = None, *, out = None, dtype = None))]
    fn scan_async(
        &self,
        py: Python<'_>,
        array: Argument<'_, '_>,
        op: Option<Argument<'_, '_>>,
        out: Option<Argument<'_, '_>>,
        dtype: Option<&str>,
    ) -> PyResult<Work> {
        self.reducing(Collective::Scan, array, op, out, dtype)?.start(py, self)
    }

    /// Rank r's array becomes the reduction of the arrays of ranks 0 to r-1; rank 0's stays as it is.
    #[pyo3(signature = (array, op = None, *, out = None, dtype = None))]
    fn exscan(
        &self,
        py: Python<'_>,
        array: Argument<'_, '_>,
        op: Option<Argument<'_, '_>>,
        out: Option<Argument<'_, '_>>,
        dtype: Option<&str>,
    ) -> PyResult<Py<PyAny>> {
        self.reducing(Collective::Exscan, array, op, out, dtype)?.run(py, self)
    }

    /// Starts exscan.
    #[pyo3(signature = (array, op = None, *, out = None, dtype = None))]
    fn exscan_async(
        &self,
        py: Python<'_>,
        array: Argument<'_, '_>,
        op: Option<Argument<'_, '_>>,
        out: Option<Argument<'_, '_>>,
        dtype: Option<&str>,
    ) -> PyResult<Work> {
        self.reducing(Collective::Exscan, array, op, out, dtype)?.start(py, self)
    }

    /// Every rank's array becomes the root's.
    #[pyo3(signature = (array, root = 0, *, dtype = None))]
    fn broadcast(
        &self,
        py: Python<'_>,
        array: Argument<'_, '_>,
        root: u32,
        dtype: Option<&str>,
    ) -> PyResult<Py<PyAny>> {
        self.broadcasting(array, root, dtype)?.run(py, self)
    }

    /// Starts broadcast.
    #[pyo3(signature = (array, root = 0, *, dtype = None))]
    fn broadcast_async(
        &self,
        py: Python<'_>,
        array: Argument<'_, '_>,
        root: u32,
        dtype: Option<&str>,
    ) -> PyResult<Work> {
        self.broadcasting(array, root, dtype)?.start(py, self)
    }

    /// The reduction of all ranks' arrays on the root, `None` elsewhere.
    #[pyo3(signature = (array, op = None, root = 0, *, out = None, dtype = None))]
    fn reduce(
        &self,
        py: Python<'_>,
        array: Argument<'_, '_>,
        op: Option<Argument<'_, '_>>,
        root: u32,
        out: Option<Argument<'_, '_>>,
        dtype: Option<&str>,
    ) -> PyResult<Py<PyAny>> {
        self.reducing_to(array, op, root, out, dtype)?.run(py, self)
    }

    /// Starts reduce.
    #[pyo3(signature = (array, op = None, root = 0, *, out = None, dtype = None))]
    fn reduce_async(
        &self,
        py: Python<'_>,
        array: Argument<'_, '_>,
        op: Option<Argument<'_, '_>>,
        root: u32,
        out: Option<Argument<'_, '_>>,
        dtype: Option<&str>,
    ) -> PyResult<Work> {
        self.reducing_to(array, op, root, out, dtype)?.start(py, self)
    }

    /// The arrays of all ranks: a new array with a row for each rank, or `out`, which may be a list with an array for
    /// each rank. With `counts`, a count for each rank, a flat array.
    #[pyo3(signature = (array, *, out = None, counts = None, dtype = None))]
    fn all_gather(
        &self,
        py: Python<'_>,
        array: Argument<'_, '_>,
        out: Option<Argument<'_, '_>>,
        counts: Option<Vec<u64>>,
        dtype: Option<&str>,
    ) -> PyResult<Py<PyAny>> {
        self.gathering(array, None, out, counts, dtype)?.run(py, self)
    }

    /// Starts all_gather.
    #[pyo3(signature = (array, *, out = None, counts = None, dtype = None))]
    fn all_gather_async(
        &self,
        py: Python<'_>,
        array: Argument<'_, '_>,
        out: Option<Argument<'_, '_>>,
        counts: Option<Vec<u64>>,
        dtype: Option<&str>,
    ) -> PyResult<Work> {
        self.gathering(array, None, out, counts, dtype)?.start(py, self)
    }

    /// As all_gather on the root, `None` elsewhere. All ranks give the counts, if any does.
    #[pyo3(signature = (array, root = 0, *, out = None, counts = None, dtype = None))]
    fn gather(
        &self,
        py: Python<'_>,
        array: Argument<'_, '_>,
        root: u32,
        out: Option<Argument<'_, '_>>,
        counts: Option<Vec<u64>>,
        dtype: Option<&str>,
    ) -> PyResult<Py<PyAny>> {
        self.gathering(array, Some(root), out, counts, dtype)?.run(py, self)
    }

    /// Starts gather.
    #[pyo3(signature = (array, root = 0, *, out = None, counts = None, dtype = None))]
    fn gather_async(
        &self,
        py: Python<'_>,
        array: Argument<'_, '_>,
        root: u32,
        out: Option<Argument<'_, '_>>,
        counts: Option<Vec<u64>>,
        dtype: Option<&str>,
    ) -> PyResult<Work> {
        self.gathering(array, Some(root), out, counts, dtype)?.start(py, self)
    }

    /// Rank r's `out` becomes share r of the root's array, or array r of its list; the other ranks give `None`.
    #[pyo3(signature = (array, out, root = 0, *, counts = None, dtype = None))]
    fn scatter(
        &self,
        py: Python<'_>,
        array: Option<Argument<'_, '_>>,
        out: Argument<'_, '_>,
        root: u32,
        counts: Option<Vec<u64>>,
        dtype: Option<&str>,
    ) -> PyResult<Py<PyAny>> {
        self.scattering(array, out, root, counts, dtype)?.run(py, self)
    }

    /// Starts scatter.
    #[pyo3(signature = (array, out, root = 0, *, counts = None, dtype = None))]
    fn scatter_async(
        &self,
        py: Python<'_>,
        array: Option<Argument<'_, '_>>,
        out: Argument<'_, '_>,
        root: u32,
        counts: Option<Vec<u64>>,
        dtype: Option<&str>,
    ) -> PyResult<Work> {
        self.scattering(array, out, root, counts, dtype)?.start(py, self)
    }

    /// Share r of the reduction of all ranks' arrays on rank r: a new array, or `out`.
    #[pyo3(signature = (array, op = None, *, out = None, counts = None, dtype = None))]
    fn reduce_scatter(
        &self,
        py: Python<'_>,
        array: Argument<'_, '_>,
        op: Option<Argument<'_, '_>>,
        out: Option<Argument<'_, '_>>,
        counts: Option<Vec<u64>>,
        dtype: Option<&str>,
    ) -> PyResult<Py<PyAny>> {
        self.reduce_scattering(array, op, out, counts, dtype)?.run(py, self)
    }

    /// Starts reduce_scatter.
    #[pyo3(signature = (array, op = None, *, out = None, counts = None, dtype = None))]
    fn reduce_scatter_async(
        &self,
        py: Python<'_>,
        array: Argument<'_, '_>,
        op: Option<Argument<'_, '_>>,
        out: Option<Argument<'_, '_>>,
        counts: Option<Vec<u64>>,
        dtype: Option<&str>,
    ) -> PyResult<Work> {
        self.reduce_scattering(array, op, out, counts, dtype)?.start(py, self)
    }

    /// Part s of rank r's result is part r of rank s's array: a new array, or `out`. Uneven parts have `send_counts`
    /// and `receive_counts`, or are lists of arrays.
    #[pyo3(signature = (array, *, out = None, send_counts = None, receive_counts = None, dtype = None))]
    fn all_to_all(
        &self,
        py: Python<'_>,
        array: Argument<'_, '_>,
        out: Option<Argument<'_, '_>>,
        send_counts: Option<Vec<u64>>,
        receive_counts: Option<Vec<u64>>,
        dtype: Option<&str>,
    ) -> PyResult<Py<PyAny>> {
        self.exchanging(array, out, [send_counts, receive_counts], dtype)?.run(py, self)
    }

    /// Starts all_to_all.
    #[pyo3(signature = (array, *, out = None, send_counts = None, receive_counts = None, dtype = None))]
    fn all_to_all_async(
        &self,
        py: Python<'_>,
        array: Argument<'_, '_>,
        out: Option<Argument<'_, '_>>,
        send_counts: Option<Vec<u64>>,
        receive_counts: Option<Vec<u64>>,
        dtype: Option<&str>,
    ) -> PyResult<Work> {
        self.exchanging(array, out, [send_counts, receive_counts], dtype)?.start(py, self)
    }

    /// Returns when every rank has called it.
    fn barrier(&self, py: Python<'_>) -> PyResult<()> {
        barrier().run(py, self).map(drop)
    }

    /// Starts barrier.
    fn barrier_async(&self, py: Python<'_>) -> PyResult<Work> {
        barrier().start(py, self)
    }
}

fn barrier() -> Request {
    let memory = Memory::Separate { input: Arrays::None, output: Arrays::None };
    Request::new(Descriptor::new(Collective::Barrier, DType::U8, 0), memory, Gives::Nothing)
}
