//! The transport: communicators with two ranks on one host use memory there, all others only TCP.

use unisono_backend::Companion;
use unisono_communicator::Result;
use unisono_engine::EngineCommunicator;
use unisono_job::transport::{NewCommunicator, Transport};
use unisono_transport_tcp::{BACKEND, Tcp};

use crate::links::ShmLinks;

/// A communicator through memory within hosts.
pub type ShmCommunicator = EngineCommunicator<ShmLinks>;

/// Data through memory within a host, over TCP between hosts.
#[derive(Clone, Copy, Debug)]
pub struct Shm;

impl Transport for Shm {
    fn communicator(&self, new: NewCommunicator<'_>) -> Result<Companion> {
        let (own, is_checked, within_host) = (new.group().own_rank(), new.is_checked(), new.shares_memory());
        // This rank counts as one of its host.
        if within_host.iter().filter(|is_here| **is_here).count() < 2 {
            return Tcp.communicator(new);
        }
        new.over(BACKEND, |connections| ShmLinks::new(own, is_checked, within_host, connections))
    }

    fn shares_memory(&self) -> bool {
        true
    }
}
