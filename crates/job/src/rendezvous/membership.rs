//! The knowledge of a rank that has met the others.

use std::net::SocketAddr;
use std::os::unix::net::UnixListener;

use unisono_control::handshake::JobId;
use unisono_control::roster::message::RankProcess;
use unisono_control::secret::Secret;

/// A rank's knowledge once all have met.
#[derive(Clone, Debug)]
pub struct Membership {
    /// Our rank.
    pub rank: u32,
    /// The number of ranks.
    pub world_size: u32,
    /// The fresh id that all ranks got when they met: a process of an earlier job has another one.
    pub job: JobId,
    /// The job's secret.
    pub secret: Secret,
    /// The address at which each rank listens.
    pub addresses: Vec<SocketAddr>,
    /// The number of the host of each rank, hosts numbered from 0 by their first rank.
    pub hosts: Vec<u32>,
    /// The process of each rank; empty when nobody knows.
    pub processes: Vec<RankProcess>,
    /// The settings that rank 0 distributed, encoded.
    pub job_settings: Vec<u8>,
    /// The number of cores that the ranks of each host may use together, by the number of the host; unknown for a host
    /// that is not in the list.
    pub cores: Vec<u32>,
}

/// A rank that has met the others.
#[derive(Debug)]
pub(crate) struct Joined {
    /// Its knowledge of them.
    pub(crate) membership: Membership,
    /// The socket on which it listens within its host; `None` where the system has no such sockets, where no descriptor
    /// is left, and where it is alone.
    pub(crate) within_host: Option<UnixListener>,
}
