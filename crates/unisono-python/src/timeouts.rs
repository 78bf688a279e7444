//! Timeouts, which Python has in seconds.

use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// A timeout in seconds.
pub(crate) fn seconds(seconds: f64) -> PyResult<Duration> {
    if seconds.is_infinite() && seconds > 0.0 {
        return Ok(Duration::MAX);
    }
    Duration::try_from_secs_f64(seconds)
        .map_err(|problem| PyValueError::new_err(format!("timeout of {seconds} s: {problem}")))
}
