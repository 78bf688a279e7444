//! Collectives of vendors' libraries behind the communicator's trait: the part that all vendors share.
//!
//! A vendor is a table of about a dozen calls ([`Vendor`]) and a declaration of its [`Capabilities`]. [`Offloaded`]
//! makes a communicator of it, on top of another communicator of the same ranks, its companion. Nothing here knows a
//! particular library.
//!
//! | file | contents |
//! | --- | --- |
//! | `settings` | [`DeviceSettings`]: the settings of all libraries that work on a device |
//! | `vendor` | [`Vendor`]: the calls of a library |
//! | `device` | [`Device`]: the calls of its device, if it has one |
//! | `capabilities` | [`Capabilities`]: its operations, and the behaviour of its arithmetic |
//! | `compose`, `program` | from a call to the library's calls, copies and scalings: pure functions |
//! | `scheduled` | from a schedule to such a program: algorithms by name over the library's sends and receives |
//! | `run`, `scale` | a program on the memory of its call |
//! | `staged` | memory of the host by way of a device's |
//! | `enqueue` | a call on memory of a device: its steps on a stream |
//! | `known` | a call on a stream as the board knows it |
//! | `messages` | sends and receives on memory of a device: a group of the library's |
//! | `pending`, `tend` | calls that are under way on streams, and how their ends are learned |
//! | `open` | how the ranks of a group agree on a library and get a communicator of it |
//! | `offloaded` | the communicator |
//! | `thread`, `body` | the thread that runs calls whose ranks have met; such a call |
//! | `signal` | the slots at which threads wait for others |
//! | `turn` | [`LibraryTurn`]: libraries that serve one thread at a time |
//! | `device_turn` | [`DeviceTurn`]: devices on which one communicator is served at a time |
//! | `together` | the turns of a call, and the turns on all ranks of a communicator that is made |
//! | `connect` | the first calls of a communicator, in which ranks connect |
//! | `watch` | calls that make no progress in the library |

mod body;
mod capabilities;
mod compose;
mod connect;
mod device;
mod device_turn;
mod enqueue;
mod known;
mod messages;
mod offloaded;
mod open;
mod pending;
mod program;
mod revocation;
mod run;
mod scale;
mod scheduled;
mod settings;
mod signal;
mod staged;
mod tend;
mod thread;
mod together;
mod turn;
mod vendor;
mod watch;

pub use capabilities::{Arithmetic, Capabilities, NanInMinMax, Native, REDUCIBLE};
pub use device::{Combination, Device, RawEvent, RawStream, Scale};
pub use device_turn::DeviceTurn;
pub use offloaded::{HostMemory, OffloadOptions, Offloaded};
pub use settings::{DeviceSettings, SETTINGS};
pub use turn::LibraryTurn;
pub use vendor::{Elements, NativeCall, NativeOp, Vendor, lacks};
