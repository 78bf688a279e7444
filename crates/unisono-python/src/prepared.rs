//! Calls that are prepared once and made again and again, as MPI's persistent collectives.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use unisono::Collective;
use unisono::call::MemoryKind;
use unisono::extend::calls::PreparedCall;

use crate::building::{Argument, Maybe};
use crate::communicator::Communicator;
use crate::errors::{Raise, invalid};
use crate::request::Request;
use crate::site::site;
use crate::work::Work;

/// A call whose arguments are checked once and whose plan is made once. It is made with arrays of the lengths and the
/// element type with which it was prepared, on the same terms: in place, or with `out`. It gives the results of the
/// plain call, and may meet it.
///
/// >>> gradients = np.ones(4)
/// >>> mean = world.prepare_all_reduce(gradients, un.AVG)
/// >>> for _ in range(3):
/// ...     gradients = mean.call(gradients)
/// >>> mean.start(gradients).wait()
/// array([1., 1., 1., 1.])
#[pyclass(frozen, module = "unisono")]
pub(crate) struct Prepared {
    comm: Py<Communicator>,
    form: Form,
    plan: PreparedCall,
}

/// The arguments of a call but its arrays.
struct Form {
    collective: Collective,
    op: Option<Py<PyAny>>,
    root: u32,
    dtype: Option<String>,
}

impl Form {
    fn request(
        &self,
        py: Python<'_>,
        comm: &Communicator,
        array: Maybe<'_, '_>,
        out: Maybe<'_, '_>,
    ) -> PyResult<Request> {
        let (collective, root, dtype) = (self.collective, self.root, self.dtype.as_deref());
        let op = self.op.as_ref().map(|op| op.bind(py));
        let needed = if collective == Collective::Scatter { ("out", out) } else { ("array", array) };
        let Some(needed) = needed.1 else {
            return Err(PyTypeError::new_err(format!("{}: missing in {collective}", needed.0)));
        };
        match collective {
            Collective::Scatter => comm.scattering(array, needed, root, None, dtype),
            Collective::Broadcast => comm.broadcasting(needed, root, dtype),
            Collective::Reduce => comm.reducing_to(needed, op, root, out, dtype),
            Collective::AllGather => comm.gathering(needed, None, out, None, dtype),
            Collective::Gather => comm.gathering(needed, Some(root), out, None, dtype),
            Collective::ReduceScatter => comm.reduce_scattering(needed, op, out, None, dtype),
            Collective::AllToAll => comm.exchanging(needed, out, [None, None], dtype),
            Collective::AllReduce | Collective::Scan | Collective::Exscan | Collective::Barrier => {
                comm.reducing(collective, needed, op, out, dtype)
            }
        }
    }
}

impl Prepared {
    fn new(
        comm: &Bound<'_, Communicator>,
        form: Form,
        array: Maybe<'_, '_>,
        out: Maybe<'_, '_>,
    ) -> PyResult<Prepared> {
        let (py, own) = (comm.py(), comm.get());
        let descriptor = form.request(py, own, array, out)?.descriptor;
        let inner = &own.inner;
        let made = inner.life().prepare(inner.group(), &descriptor, &own.options, MemoryKind::Host);
        let named =
            |error: unisono::Error| error.in_call(&format_args!("prepare {descriptor}{}", site(py).at()));
        Ok(Prepared { comm: comm.clone().unbind(), form, plan: made.map_err(named).raise(py)? })
    }

    fn request(&self, py: Python<'_>, array: Maybe<'_, '_>, out: Maybe<'_, '_>) -> PyResult<Request> {
        let request = self.form.request(py, self.comm.get(), array, out)?;
        if request.descriptor != self.plan.descriptor {
            let problem = format!("makes {}, but {} was prepared", request.descriptor, self.plan.descriptor);
            return Err(invalid(py, "array", problem));
        }
        Ok(Request { prepared: self.plan.number, ..request })
    }
}

#[pymethods]
impl Prepared {
    /// Makes the call with these arrays, which are the arguments of the plain call.
    #[pyo3(signature = (array = None, out = None))]
    fn call(&self, py: Python<'_>, array: Maybe<'_, '_>, out: Maybe<'_, '_>) -> PyResult<Py<PyAny>> {
        self.request(py, array, out)?.run(py, self.comm.get())
    }

    /// Starts the call with these arrays.
    #[pyo3(signature = (array = None, out = None))]
    fn start(&self, py: Python<'_>, array: Maybe<'_, '_>, out: Maybe<'_, '_>) -> PyResult<Work> {
        self.request(py, array, out)?.start(py, self.comm.get())
    }

    fn __repr__(&self) -> String {
        format!("Prepared({})", self.plan.descriptor)
    }
}

/// The preparations: each has its signature for Python and its parameters.
macro_rules! preparations {
    ($(
        $name:ident, $collective:ident ($($signature:tt)*) [$($parameters:tt)*]
        $op:expr, $root:expr, $array:expr, $out:expr, $dtype:expr;
    )*) => {
        #[pymethods]
        impl Communicator {
            $(
                #[doc = concat!("Prepares `", stringify!($collective), "` of arrays as these; it sends nothing.")]
                #[pyo3(signature = ($($signature)*))]
                fn $name(slf: &Bound<'_, Communicator>, $($parameters)*) -> PyResult<Prepared> {
                    let op: Maybe<'_, '_> = $op;
                    let (op, dtype) = (op.map(|op| op.clone().unbind()), $dtype.map(str::to_owned));
                    let form = Form { collective: Collective::$collective, op, root: $root, dtype };
                    Prepared::new(slf, form, $array, $out)
                }
            )*
        }
    };
}

preparations! {
    prepare_all_reduce, AllReduce (array, op = None, *, out = None, dtype = None)
        [array: Argument<'_, '_>, op: Maybe<'_, '_>, out: Maybe<'_, '_>, dtype: Option<&str>]
        op, 0, Some(array), out, dtype;
    prepare_broadcast, Broadcast (array, root = 0, *, dtype = None)
        [array: Argument<'_, '_>, root: u32, dtype: Option<&str>]
        None, root, Some(array), None, dtype;
    prepare_reduce, Reduce (array, op = None, root = 0, *, out = None, dtype = None)
        [array: Argument<'_, '_>, op: Maybe<'_, '_>, root: u32, out: Maybe<'_, '_>, dtype: Option<&str>]
        op, root, Some(array), out, dtype;
    prepare_all_gather, AllGather (array, *, out = None, dtype = None)
        [array: Argument<'_, '_>, out: Maybe<'_, '_>, dtype: Option<&str>]
        None, 0, Some(array), out, dtype;
    prepare_gather, Gather (array, root = 0, *, out = None, dtype = None)
        [array: Argument<'_, '_>, root: u32, out: Maybe<'_, '_>, dtype: Option<&str>]
        None, root, Some(array), out, dtype;
    prepare_scatter, Scatter (array, out, root = 0, *, dtype = None)
        [array: Maybe<'_, '_>, out: Argument<'_, '_>, root: u32, dtype: Option<&str>]
        None, root, array, Some(out), dtype;
    prepare_reduce_scatter, ReduceScatter (array, op = None, *, out = None, dtype = None)
        [array: Argument<'_, '_>, op: Maybe<'_, '_>, out: Maybe<'_, '_>, dtype: Option<&str>]
        op, 0, Some(array), out, dtype;
    prepare_all_to_all, AllToAll (array, *, out = None, dtype = None)
        [array: Argument<'_, '_>, out: Maybe<'_, '_>, dtype: Option<&str>]
        None, 0, Some(array), out, dtype;
}
