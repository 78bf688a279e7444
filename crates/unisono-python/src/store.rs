//! The key-value store of a communicator.

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::interrupt::waiting;
use crate::timeouts::seconds;

/// A key-value store that the ranks of a communicator share; its rank 0 holds it. Values are bytes.
///
/// >>> store = world.store().prefixed("docs/")
/// >>> store.set("step", b"3")
/// >>> store.get("step", timeout=10), store.try_get("never")
/// (b'3', None)
#[pyclass(frozen, module = "unisono")]
pub(crate) struct Store {
    store: unisono::Store,
}

impl Store {
    pub(crate) fn new(store: unisono::Store) -> Store {
        Store { store }
    }
}

#[pymethods]
impl Store {
    /// A handle that puts `prefix` before every key.
    fn prefixed(&self, prefix: &str) -> Store {
        Store::new(self.store.prefixed(prefix))
    }

    /// Stores a value, in the place of an earlier one.
    fn set(&self, py: Python<'_>, key: &str, value: &[u8]) -> PyResult<()> {
        waiting(py, || self.store.set(key, value))
    }

    /// The value of a key, for which it waits at most `timeout` seconds.
    #[pyo3(signature = (key, timeout = None))]
    fn get<'py>(&self, py: Python<'py>, key: &str, timeout: Option<f64>) -> PyResult<Bound<'py, PyBytes>> {
        let timeout = timeout.map(seconds).transpose()?;
        let value = waiting(py, || self.store.get(key, timeout))?;
        Ok(PyBytes::new(py, &value))
    }

    /// The value of a key, or `None` if it is not there now.
    fn try_get<'py>(&self, py: Python<'py>, key: &str) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let value = waiting(py, || self.store.try_get(key))?;
        Ok(value.map(|value| PyBytes::new(py, &value)))
    }

    /// Waits until each of these keys has been there, in all at most `timeout` seconds.
    #[pyo3(signature = (keys, timeout = None))]
    fn wait(&self, py: Python<'_>, keys: Vec<String>, timeout: Option<f64>) -> PyResult<()> {
        let timeout = timeout.map(seconds).transpose()?;
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        waiting(py, || self.store.wait(&keys, timeout))
    }

    /// Adds to a number, and gives the sum; a missing key counts as 0.
    fn add(&self, py: Python<'_>, key: &str, number: i64) -> PyResult<i64> {
        waiting(py, || self.store.add(key, number))
    }

    /// Stores `desired` if the value is `expected`, and gives the value that is there then.
    fn compare_and_set<'py>(
        &self,
        py: Python<'py>,
        key: &str,
        expected: &[u8],
        desired: &[u8],
    ) -> PyResult<Bound<'py, PyBytes>> {
        let value = waiting(py, || self.store.compare_and_set(key, expected, desired))?;
        Ok(PyBytes::new(py, &value))
    }

    /// Takes a key out, and gives whether it was there.
    fn delete(&self, py: Python<'_>, key: &str) -> PyResult<bool> {
        waiting(py, || self.store.delete(key))
    }

    /// The number of keys that begin with the prefix of this handle.
    fn count(&self, py: Python<'_>) -> PyResult<u64> {
        waiting(py, || self.store.count())
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.store)
    }
}
