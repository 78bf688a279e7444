//! The process of one rank of the conformance suite over TCP; see [`unisono_tests::processes`].

#![forbid(unsafe_code)]

use std::process::ExitCode;

use unisono_communicator::Result;
use unisono_engine::EngineOptions;
use unisono_job::Job;
use unisono_tests::processes::{Joined, RankProcess, serve};

struct TcpRank;

impl RankProcess for TcpRank {
    fn join(&self, world: &Job, _options: &EngineOptions) -> Result<Joined> {
        Ok(Joined { communicator: world.communicator()?, groups: Box::new(world.clone()) })
    }
}

fn main() -> ExitCode {
    serve(TcpRank)
}
