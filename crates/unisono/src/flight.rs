//! Flight records: the last calls of a rank, which [`World::flight_record`](crate::World::flight_record) gives and
//! `unisono doctor --flight` reads.

pub use unisono_job::flight::{CallState, Entry, FlightRecord, Frame, GroupConfig, GroupStatus};
