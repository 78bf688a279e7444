//! Flight records: the last calls of a rank, which [`World::flight_record`](crate::World::flight_record) gives and
//! `unisono doctor --flight` reads.

pub use unisono_transport_tcp::flight::{CallState, Entry, FlightRecord, Frame, GroupConfig, GroupStatus};
