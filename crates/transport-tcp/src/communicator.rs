//! The communicator between processes: the engine over this crate's links and the job's control plane.

use unisono_backend::Companion;
use unisono_communicator::Result;
use unisono_engine::EngineCommunicator;
use unisono_job::transport::{NewCommunicator, Transport};

use crate::links::DataLinks;

/// A communicator over TCP, and through memory within hosts.
pub type TcpCommunicator = EngineCommunicator<DataLinks>;

/// The backend's name.
pub const BACKEND: &str = "tcp";

/// Data over the connections of the job.
#[derive(Clone, Copy, Debug)]
pub struct Tcp {
    /// Whether data goes through memory between ranks of one host. Without it, all data goes over TCP.
    pub memory: bool,
}

impl Transport for Tcp {
    fn communicator(&self, new: NewCommunicator<'_>) -> Result<Companion> {
        let (own, is_checked, within_host) = (new.group().own_rank(), new.is_checked(), new.shares_memory());
        new.over(BACKEND, |connections| DataLinks::new(own, is_checked, within_host, connections))
    }

    fn shares_memory(&self) -> bool {
        self.memory
    }
}
