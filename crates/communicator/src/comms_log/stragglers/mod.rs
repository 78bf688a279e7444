//! The search for the rank that all others wait for: gathers the records of all ranks about a communicator's calls, and
//! analyses them.

mod analysis;
mod observed;
pub(crate) mod report;

use crate::call::options::CallOptions;
use crate::comms_log::CommsLogger;
use crate::comms_log::observations::Observations;
use crate::comms_log::rows::{Key, Row};
use crate::comms_log::stragglers::analysis::analyse;
use crate::comms_log::stragglers::observed::{CallTimes, RankTimes, RowTimes};
use crate::comms_log::stragglers::report::StragglerReport;
use crate::communicator::Communicator;
use crate::error::Result;
use crate::group::Group;
use crate::typed::Collectives;
use crate::typed::objects::CollectivesOfObjects;
use crate::typed::objects::object::Serialized;

/// The name of the analysis's own calls.
const LABEL: &str = "stragglers";

impl CommsLogger {
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
    /// use unisono_communicator::{Collectives, Communicator, Solo, Verdict};
    /// let comm = Solo::new();
    /// let log = comm.group().comms_logger();
    /// log.start();
    /// comm.barrier()?;
    /// let report = log.stragglers(&comm)?;
    /// assert_eq!(report.rows[0].name, "barrier");
    /// assert!(report.to_string().ends_with("no call was recorded by all ranks\n"));
    /// # Ok::<(), unisono_communicator::Error>(())
    /// ```
    ///
    /// # Errors
    /// Errors of [`Communicator::duplicate`] and of the calls, such as [`crate::Error::PeerLost`] for a rank that dies
    /// meanwhile.
    #[doc(alias = "log_summary")]
    #[track_caller]
    pub fn stragglers(&self, comm: &dyn Communicator) -> Result<StragglerReport> {
        let own = self.times(comm.group(), &comm.observations());
        // A vendor's library may not take memory of the host.
        let beneath = comm.companion();
        let copy = beneath.as_deref().unwrap_or(comm).duplicate()?;
        let quiet = copy.with(CallOptions::new().label(LABEL).profiled(false).needed());
        let all = quiet.all_gather_object(Serialized(own))?;
        copy.close()?;
        let all: Vec<RankTimes> = all.into_iter().map(|Serialized(times)| times).collect();
        Ok(analyse(&all))
    }

    fn times(&self, group: &Group, observed: &Observations) -> RankTimes {
        let Observations { calls, clocks, links, links_ns } = observed;
        let ppm = |network_us: u64| network_us.saturating_mul(1_000_000_000) / links_ns.max(&1);
        let own_host = group.hosts()[group.rank() as usize];
        // Within a host there is no network, whatever its kernel says of its sockets.
        let network = links.iter().filter_map(|link| {
            let peer = group.group_rank_of(link.rank)?;
            (group.hosts()[peer.index()] != own_host).then(|| (peer.get(), ppm(link.network_us)))
        });
        RankTimes {
            calls: calls.iter().map(CallTimes::of).collect(),
            rows: self.row_times(),
            host: own_host,
            clocks: clocks.clone(),
            network_ppm: network.collect(),
        }
    }

    fn row_times(&self) -> Vec<RowTimes> {
        let state = self.lock();
        let times = |(key, row): (&Key, &Row)| RowTimes {
            name: key.shown(),
            parent: key.parent.map(|parent| parent.to_string()),
            ranks: key.ranks,
            size_class: key.size_class,
            bytes_max: row.bytes_max,
            count: row.times.count(),
            sum_ns: row.times.sum_ns(),
        };
        state.rows.iter().map(times).collect()
    }
}

#[cfg(test)]
mod tests;
