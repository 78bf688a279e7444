//! Reduce operators: constants of the package, a factor, or a function of the program.

use std::panic::resume_unwind;
use std::sync::Arc;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString, PyType};
use unisono::{DType, ReduceOp, UserFunction, UserOp};

use crate::arrays::Array;
use crate::dtypes::numpy_name;
use crate::errors::invalid;

/// A reduce operator.
///
/// >>> un.SUM, un.Op.pre_mul_sum(0.5)
/// (unisono.Op(sum), unisono.Op(pre_mul_sum(0.5)))
/// >>> longest = un.Op.user(np.maximum, name="longest", commutative=True)
/// >>> world.all_reduce(np.array([3, 4]), longest)
/// array([3, 4])
#[pyclass(frozen, module = "unisono", name = "Op")]
pub(crate) struct Op {
    pub(crate) op: ReduceOp,
    function: Option<Py<PyAny>>,
}

#[pymethods]
impl Op {
    /// The sum of the ranks' inputs, each multiplied by its rank's own factor, which may differ between ranks.
    #[classmethod]
    fn pre_mul_sum(_: &Bound<'_, PyType>, factor: f64) -> Op {
        Op { op: ReduceOp::PreMulSum(factor), function: None }
    }

    /// An operator of the program: `function(left, right)` gets two one-dimensional numpy arrays of the same length,
    /// which it must not change, and returns a third. It must be associative; unless `commutative`, the order of ranks
    /// is kept. Ranks compare the name, which is the function's unless it is given. An exception in it ends the call
    /// on every rank as `Panicked`.
    #[classmethod]
    #[pyo3(signature = (function, *, name = None, commutative = false))]
    fn user(
        _: &Bound<'_, PyType>,
        function: Bound<'_, PyAny>,
        name: Option<String>,
        commutative: bool,
    ) -> PyResult<Op> {
        if !function.is_callable() {
            return Err(PyTypeError::new_err("function: not callable"));
        }
        let name = match name {
            Some(name) => name,
            None => function.getattr("__name__")?.extract()?,
        };
        let op = if commutative { UserOp::commutative(&name) } else { UserOp::ordered(&name) };
        Ok(Op { op: ReduceOp::User(op), function: Some(function.unbind()) })
    }

    #[getter]
    fn name(&self) -> String {
        match self.op {
            ReduceOp::User(user) => user.name.to_string(),
            op => op.name().to_owned(),
        }
    }

    fn __repr__(&self) -> String {
        format!("unisono.Op({})", self.op)
    }
}

impl Op {
    fn function(&self, py: Python<'_>, dtype: DType) -> PyResult<Option<UserFunction>> {
        let Some(function) = &self.function else { return Ok(None) };
        let Some(name) = numpy_name(dtype) else {
            return Err(invalid(
                py,
                "op",
                format!("{}, but numpy, whose arrays it gets, has no {dtype}", self.op),
            ));
        };
        let function = function.clone_ref(py);
        let apply = move |left: &[u8], right: &[u8], out: &mut [u8]| {
            let applied = Python::attach(|py| {
                let result = result_of(py, &function, name, left, right);
                result
                    .and_then(|result| {
                        let result = Array::of(&result, "result", None)?;
                        if (result.dtype(), result.bytes().len()) != (dtype, out.len()) {
                            let count = left.len() / dtype.bytes();
                            let text =
                                format!("{} x {}, not {count} x {dtype}", result.count(), result.dtype());
                            return Err(PyTypeError::new_err(format!(
                                "a reduce function has returned {text}"
                            )));
                        }
                        out.copy_from_slice(result.bytes());
                        Ok(())
                    })
                    .map_err(|error| error.to_string())
            });
            // The engine ends the call on every rank with this text, without a message on standard error.
            if let Err(text) = applied {
                resume_unwind(Box::new(text));
            }
        };
        Ok(Some(Arc::new(apply)))
    }
}

fn result_of<'py>(
    py: Python<'py>,
    function: &Py<PyAny>,
    dtype: &str,
    left: &[u8],
    right: &[u8],
) -> PyResult<Bound<'py, PyAny>> {
    let numpy = py.import("numpy")?;
    let array = |bytes: &[u8]| numpy.call_method1("frombuffer", (PyBytes::new(py, bytes), dtype));
    function.bind(py).call1((array(left)?, array(right)?))
}

/// The operator of an argument, which is a constant of the package, or its name; a sum without one.
pub(crate) fn operator(
    argument: Option<&Bound<'_, PyAny>>,
    dtype: DType,
) -> PyResult<(ReduceOp, Option<UserFunction>)> {
    let Some(argument) = argument else { return Ok((ReduceOp::Sum, None)) };
    if let Ok(op) = argument.cast::<Op>() {
        let op = op.get();
        return Ok((op.op, op.function(argument.py(), dtype)?));
    }
    let Ok(name) = argument.cast::<PyString>() else {
        let kind = argument.get_type().fully_qualified_name()?;
        return Err(PyTypeError::new_err(format!("op: {kind} is no operator; unisono.SUM is one")));
    };
    match name.to_str()?.to_ascii_lowercase().parse() {
        Ok(op) => Ok((op, None)),
        Err(problem) => Err(invalid(argument.py(), "op", problem)),
    }
}

/// Adds the constants to the package: `SUM` and its like.
pub(crate) fn add_constants(module: &Bound<'_, PyModule>) -> PyResult<()> {
    for op in ReduceOp::PLAIN {
        module.add(op.name().to_ascii_uppercase(), Op { op: *op, function: None })?;
    }
    Ok(())
}
