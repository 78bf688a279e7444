//! The typed collectives over any [`Communicator`](unisono_communicator::Communicator), and the world of one rank.
//!
//! Users write these calls. They check the arguments once, above all backends, make a
//! [`Call`](unisono_communicator::Call) of them, and hand it to the communicator:
//!
//! ```
//! # mod unisono { pub use unisono_collectives::*; pub use unisono_communicator::*; }
//! use unisono::{Collectives, ReduceOp, Solo};
//! let comm = Solo::new();
//! let mut gradients = vec![0.5f32; 8];
//! comm.all_reduce(&mut gradients, ReduceOp::Sum)?;
//! # Ok::<(), unisono::Error>(())
//! ```
//!
//! | module | contents |
//! | --- | --- |
//! | `collectives` | [`Collectives`]: the blocking calls on slices |
//! | `prefix` | [`CollectivesPrefix`]: scan and exscan |
//! | `uneven`, `lists`, `objects` | the same with counts that differ, on lists of buffers, and on values |
//! | `asynchronous` | [`CollectivesAsync`]: calls with handles |
//! | `point_to_point` | [`PointToPoint`]: sends and receives at once, batches, probes |
//! | `on_device` | [`CollectivesOnDevice`]: calls on elements on a device |
//! | `grouped` | [`CollectivesGrouped`]: several calls as one |
//! | `prepared` | [`CollectivesPrepared`]: plans that are made once |
//! | [`operators`] | MinLoc, logical operators and others for these |
//! | `user` | [`UserOperators`]: reductions with the caller's own operator |
//! | `arguments`, `blocking`, `coalesced`, `skip`, `split` | the parts of these |
//! | `with` | a communicator with a caller's options |
//! | `solo` | [`Solo`]: the world of one rank |
//! | `stragglers` | the search for the rank that all others wait for |

mod arguments;
mod asynchronous;
mod blocking;
mod coalesced;
mod collectives;
mod grouped;
mod lists;
mod objects;
mod on_device;
pub mod operators;
mod point_to_point;
mod prefix;
mod prepared;
mod skip;
mod solo;
mod split;
#[cfg(feature = "serde")]
mod stragglers;
mod uneven;
mod user;
mod with;

pub use asynchronous::CollectivesAsync;
pub use collectives::Collectives;
pub use grouped::{CollectivesGrouped, GroupedCalls};
pub use lists::CollectivesOfLists;
pub use objects::CollectivesOfObjects;
pub use objects::exchange::OBJECT_BYTES_MAX;
pub use objects::object::Object;
#[cfg(feature = "serde")]
pub use objects::object::Serialized;
pub use on_device::{CollectivesOnDevice, DeviceBatch, OnStream};
pub use point_to_point::{Batch, PointToPoint};
pub use prefix::CollectivesPrefix;
pub use prepared::{AllReduceCache, CollectivesPrepared, Prepared, PreparedInPlace};
pub use skip::skips;
pub use solo::Solo;
#[cfg(feature = "serde")]
pub use stragglers::Stragglers;
#[cfg(feature = "serde")]
pub use stragglers::report::{RankWaits, RowSpread, SlowLink, StragglerReport, Verdict};
pub use uneven::CollectivesUneven;
pub use user::UserOperators;
pub use with::With;
