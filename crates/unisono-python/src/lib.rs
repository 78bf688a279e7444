//! The module `unisono._unisono`: communicators, arrays, handles, errors and groups for Python. The package `unisono`,
//! in `python`, shows its names.
//!
//! | file | contents |
//! | --- | --- |
//! | `communicator.rs`, `world.rs` | the two classes of communicators, and how a program joins its job |
//! | `meeting.rs` | a meeting through a store that the program brings |
//! | `collectives.rs`, `point_to_point.rs`, `objects.rs` | their calls |
//! | `forms.rs`, `prepared.rs`, `group_calls.rs` | the forms of a call: made, started, prepared, made with others |
//! | `building.rs`, `coalesced.rs` | from arguments of collectives to requests |
//! | `request.rs` | one call with its arrays, to be made or started |
//! | `arrays.rs` | arrays of programs: their memory and their element types |
//! | `foreign.rs` | memory of arrays by its address, and frames of Python; the one file with `unsafe` |
//! | `dtypes.rs`, `operators.rs`, `messages.rs` | arguments: element types, operators, peers and tags |
//! | `results.rs`, `timeouts.rs` | values of calls and new arrays for them; timeouts |
//! | `work.rs`, `message.rs`, `store.rs` | handles of started calls, messages that a probe has found, the store |
//! | `mesh.rs`, `compressed.rs`, `compression.rs` | meshes and grids; compressed calls and their states |
//! | `errors.rs`, `site.rs` | exceptions, and the lines of the program that they name |
//! | `interrupt.rs`, `exit.rs` | waits that Ctrl-C ends; the interpreter and its end |
//!
//! No file names `libc`, `num_traits` and `rustix`, which the manifest has for their features.

mod arrays;
mod building;
mod coalesced;
mod collectives;
mod communicator;
mod compressed;
mod compression;
mod dtypes;
mod errors;
mod exit;
mod foreign;
mod forms;
mod group_calls;
mod interrupt;
mod meeting;
mod mesh;
mod message;
mod messages;
mod objects;
mod operators;
mod point_to_point;
mod prepared;
mod request;
mod results;
mod site;
mod store;
mod timeouts;
mod work;
mod world;

use pyo3::prelude::*;
// The C ABI, whose functions the module exports.
use unisono_c as _;

/// The names of the module.
#[pymodule]
fn _unisono(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<communicator::Communicator>()?;
    module.add_class::<communicator::Shrunk>()?;
    module.add_class::<world::World>()?;
    module.add_class::<work::Work>()?;
    module.add_class::<prepared::Prepared>()?;
    module.add_class::<group_calls::GroupCalls>()?;
    module.add_class::<store::Store>()?;
    module.add_class::<mesh::DeviceMesh>()?;
    module.add_class::<mesh::Cartesian>()?;
    module.add_class::<compression::CompressionState>()?;
    module.add_class::<message::Message>()?;
    module.add_class::<messages::Received>()?;
    module.add_class::<messages::Wildcard>()?;
    module.add_class::<operators::Op>()?;
    module.add("ANY", messages::Wildcard)?;
    operators::add_constants(module)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_function(wrap_pyfunction!(world::init, module)?)?;
    module.add_function(wrap_pyfunction!(world::is_initialized, module)?)?;
    module.add_function(wrap_pyfunction!(work::wait_all, module)?)?;
    module.add_function(wrap_pyfunction!(work::wait_any, module)?)?;
    module.add_function(wrap_pyfunction!(exit::enter, module)?)?;
    module.add_function(wrap_pyfunction!(exit::exit, module)?)
}
