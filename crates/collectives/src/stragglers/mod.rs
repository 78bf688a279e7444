//! The search for the rank that all others wait for: gathers the records of all ranks about a communicator's calls, and
//! analyses them.

mod analysis;
mod observed;
pub(crate) mod report;

use unisono_communicator::{CallOptions, CommsLogger, Communicator, Group, Observations, Result};

use crate::collectives::Collectives;
use crate::objects::CollectivesOfObjects;
use crate::objects::object::Serialized;
use crate::stragglers::analysis::analyse;
use crate::stragglers::observed::{CallTimes, RankTimes, RowTimes};
use crate::stragglers::report::StragglerReport;

/// The name of the analysis's own calls.
const LABEL: &str = "stragglers";

/// The search for the rank that all others wait for.
pub trait Stragglers {
    /// The waits of ranks for each other in the last 1,024 collectives of `comm` that all ranks have recorded, and
    /// their cause: a rank that came late, or bytes that moved slowly. The same report on every rank.
    ///
    /// Collective on `comm`: it gathers the times of all ranks on a copy of the communicator. These calls are not
    /// recorded themselves. Ranks may have recorded different calls, and a rank whose log is off has none. On the
    /// communicator of all ranks the rows of all logs are compared too.
    ///
    /// Entry times of ranks on several hosts are compared by the measured offsets of their clocks, which are measured
    /// every 2 s from the start of the job on; the report has the error of each.
    ///
    /// Cost: a [`Communicator::duplicate`] and an all-gather, from each rank about 20 bytes for each call and 60 for
    /// each row of its log.
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
    /// use unisono::{Collectives, Communicator, Solo, Stragglers};
    /// let comm = Solo::new();
    /// let log = comm.group().comms_logger();
    /// log.start();
    /// comm.barrier()?;
    /// let report = log.stragglers(&comm)?;
    /// assert_eq!(report.rows[0].name, "barrier");
    /// assert!(report.to_string().ends_with("no call was recorded by all ranks\n"));
    /// # Ok::<(), unisono::Error>(())
    /// ```
    ///
    /// # Errors
    /// Errors of [`Communicator::duplicate`] and of the calls, such as `Error::PeerLost` for a rank that dies
    /// meanwhile.
    #[doc(alias = "log_summary")]
    #[track_caller]
    fn stragglers(&self, comm: &dyn Communicator) -> Result<StragglerReport>;
}

impl Stragglers for CommsLogger {
    #[track_caller]
    fn stragglers(&self, comm: &dyn Communicator) -> Result<StragglerReport> {
        let own = times(self, comm.group(), &comm.observations());
        // A vendor's library may not take memory of the host.
        let beneath = comm.companion();
        let copy = beneath.as_deref().unwrap_or(comm).duplicate()?;
        let quiet = copy.with(CallOptions::new().label(LABEL).profiled(false).needed());
        let all = quiet.all_gather_object(Serialized(own))?;
        copy.close()?;
        let all: Vec<RankTimes> = all.into_iter().map(|Serialized(times)| times).collect();
        Ok(analyse(&all))
    }
}

fn times(log: &CommsLogger, group: &Group, observed: &Observations) -> RankTimes {
    let Observations { calls, clocks, links, links_ns } = observed;
    let ppm = |network_us: u64| network_us.saturating_mul(1_000_000_000) / links_ns.max(&1);
    let own_host = group.hosts()[group.rank() as usize];
    // Within a host there is no network, although its kernel has figures for its sockets.
    let network = links.iter().filter_map(|link| {
        let peer = group.group_rank_of(link.rank)?;
        (group.hosts()[peer.index()] != own_host).then(|| (peer.get(), ppm(link.network_us)))
    });
    RankTimes {
        calls: calls.iter().map(CallTimes::of).collect(),
        rows: log.report().rows.into_iter().map(RowTimes::of).collect(),
        host: own_host,
        clocks: clocks.clone(),
        network_ppm: network.collect(),
    }
}

#[cfg(test)]
mod tests;
