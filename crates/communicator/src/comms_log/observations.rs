//! A backend's observations of the calls of one communicator.

use crate::comms_log::clocks::ClockOffset;
use crate::comms_log::link_time::LinkTime;
use crate::comms_log::recorded::RecordedCall;

/// A backend's observations of a communicator, for the analysis of stragglers.
#[derive(Clone, Debug, Default)]
pub struct Observations {
    /// The last recorded collectives that ended well, by number.
    pub calls: Vec<(u64, RecordedCall)>,
    /// The clocks of other hosts.
    pub clocks: Vec<ClockOffset>,
    /// The work of the network since the observations before these.
    pub links: Vec<LinkTime>,
    /// The time since those observations, in nanoseconds; since the communicator was made, if there were none.
    pub links_ns: u64,
}
