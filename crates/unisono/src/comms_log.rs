//! The communication log: the cost of a rank's calls, as data and as a table. [`World::comms_logger`] gives it, and so
//! does [`Group::comms_logger`] for any communicator.
//!
//! [`World::comms_logger`]: crate::World::comms_logger
//! [`Group::comms_logger`]: crate::Group::comms_logger
//!
//! ```
//! use unisono::CallOptions;
//! use unisono::comms_log::CommsLoggerConfig;
//! use unisono::prelude::*;
//!
//! let world = unisono::init()?;
//! let log = world.comms_logger();
//! log.configure(CommsLoggerConfig::enabled());
//! for _ in 0..3 {
//!     let loss = CallOptions::new().log_name("loss");
//!     world.with(loss).all_reduce(&mut [0.5f32], ReduceOp::Avg)?;
//! }
//! assert_eq!(log.count("loss"), 3);
//! for row in log.report().rows {
//!     println!("{}: {} calls, {:.3} GB/s", row.name, row.count, row.bandwidth.busbw_gb_per_s);
//! }
//! # Ok::<(), unisono::Error>(())
//! ```

#[cfg(feature = "serde")]
pub use unisono_collectives::{RankWaits, RowSpread, SlowLink, StragglerReport, Stragglers, Verdict};
pub use unisono_communicator::{
    Bandwidth, CommsLogger, CommsLoggerConfig, CommsReport, CommsRow, Counted, Counters, Histogram, shares,
};
