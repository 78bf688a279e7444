//! The TCP communicator: the engine over this crate's links and the job's control plane.

use unisono_backend::Companion;
use unisono_communicator::Result;
use unisono_engine::EngineCommunicator;
use unisono_job::transport::{NewCommunicator, Transport};

use crate::links::TcpLinks;

/// A communicator over TCP.
pub type TcpCommunicator = EngineCommunicator<TcpLinks>;

/// The backend's name.
pub const BACKEND: &str = "tcp";

/// Data over the TCP connections of the job.
#[derive(Clone, Copy, Debug)]
pub struct Tcp;

impl Transport for Tcp {
    fn communicator(&self, new: NewCommunicator<'_>) -> Result<Companion> {
        let (own, is_checked) = (new.group().own_rank(), new.is_checked());
        new.over(BACKEND, |connections| TcpLinks::new(own, is_checked, connections))
    }
}
