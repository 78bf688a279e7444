//! A meeting through a store that the program brings, such as torch's: an object with `set` and `get`.

use std::fmt;
use std::time::Instant;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use unisono::extend::tcp::MeetingStore;

/// The error of a store, as its library has it.
type StoreError = Box<dyn std::error::Error + Send + Sync>;

/// An object with `set(key, value)` and `get(key, seconds)`, which gives bytes, or `None` if there is no value yet.
pub(crate) struct ProgramsStore(Py<PyAny>);

impl ProgramsStore {
    pub(crate) fn new(store: Py<PyAny>) -> ProgramsStore {
        ProgramsStore(store)
    }
}

impl fmt::Debug for ProgramsStore {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a store of the program")
    }
}

impl MeetingStore for ProgramsStore {
    fn set(&self, key: &str, value: &[u8]) -> Result<(), StoreError> {
        Python::attach(|py| {
            self.0.call_method1(py, "set", (key, PyBytes::new(py, value)))?;
            Ok(())
        })
        .map_err(|error: PyErr| error.to_string().into())
    }

    fn get(&self, key: &str, deadline: Instant) -> Result<Option<Vec<u8>>, StoreError> {
        let seconds = deadline.saturating_duration_since(Instant::now()).as_secs_f64();
        Python::attach(|py| {
            let value = self.0.call_method1(py, "get", (key, seconds))?;
            value.extract::<Option<Vec<u8>>>(py)
        })
        .map_err(|error: PyErr| error.to_string().into())
    }
}
