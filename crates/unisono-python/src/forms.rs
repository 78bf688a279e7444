//! The forms of a call on arrays: a communicator makes it or starts it, and a group of calls takes it.

/// The forms of calls, which share their arguments: `name` makes the call, `name_async` starts it, and `name` of a
/// group adds it. Each has its signature for Python, its parameters, and its request of a communicator.
macro_rules! calls {
    ($(
        $(#[doc = $text:literal])*
        $name:ident, $started:ident ($($signature:tt)*) [$($parameters:tt)*] |$comm:ident| $request:expr;
    )*) => {
        #[pyo3::pymethods]
        impl $crate::communicator::Communicator {
            $(
                $(#[doc = $text])*
                #[pyo3(signature = ($($signature)*))]
                fn $name(&self, py: pyo3::Python<'_>, $($parameters)*) -> pyo3::PyResult<pyo3::Py<pyo3::PyAny>> {
                    let $comm = self;
                    $request?.run(py, self)
                }

                #[doc = concat!("Starts ", stringify!($name), ": the handle gives its result.")]
                #[pyo3(signature = ($($signature)*))]
                fn $started(&self, py: pyo3::Python<'_>, $($parameters)*) -> pyo3::PyResult<$crate::work::Work> {
                    let $comm = self;
                    $request?.start(py, self)
                }
            )*
        }

        #[pyo3::pymethods]
        impl $crate::group_calls::GroupCalls {
            $(
                #[doc = concat!("Adds ", stringify!($name), ", whose result it gives: it is there after the block.")]
                #[pyo3(signature = ($($signature)*))]
                fn $name(&self, py: pyo3::Python<'_>, $($parameters)*) -> pyo3::PyResult<pyo3::Py<pyo3::PyAny>> {
                    let $comm = self.communicator();
                    self.add(py, $request?)
                }
            )*
        }
    };
}

pub(crate) use calls;
