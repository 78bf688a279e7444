//! `cargo xtask two-hosts`: calls between two hosts with several ranks each, beside torch's Gloo and Open MPI.
//!
//! The hosts are network namespaces, and a token bucket shapes the traffic of each. Ranks of a host share memory.
//! All systems stay up at one speed and take turns in every round; one TCP stream tells the rate of the link.

mod arguments;
mod drawing;
mod record;
mod report;
mod summary;
mod systems;

use std::fs;
use std::path::{Path, PathBuf};

use clap::Parser;

use crate::driver::order;
use crate::hosts::{self, Hosts, Job, Started};
use crate::instance::Watch;
use crate::network::Network;
use crate::plan::{Cell, chosen_cells};
use crate::problem::{Problem, Result, While};
use crate::saved::new_folder_of_results;
use crate::{machine, saved, stream};
use arguments::TwoHostsArguments;
use record::{SpeedTurns, TimedTurn, TwoHostsRecord};
use systems::Participant;

/// The word that starts this part of the program.
pub(crate) const COMMAND: &str = "two-hosts";

const HOSTS: u32 = 2;

/// Measures, or reports again; `words` begins with [`COMMAND`].
pub(crate) fn run(words: impl Iterator<Item = String>) -> Result<()> {
    let arguments = TwoHostsArguments::parse_from(words);
    if let [first, later @ ..] = &arguments.report[..] {
        let mut record: TwoHostsRecord = saved::read(first)?;
        for path in later {
            record.join(saved::read(path)?).map_err(Problem::Refused)?;
        }
        return report::write(&record, &out(&arguments)?);
    }
    let job = Job { hosts: HOSTS, ranks_per_host: arguments.ranks_per_host };
    let cells = chosen_cells(job.ranks(), &arguments.ops, &arguments.sizes);
    let shared_out = |cell: &&Cell| cell.bytes.is_multiple_of(cell.operation.granularity_bytes(job.ranks()));
    if let Some(cell) = cells.iter().find(|cell| !shared_out(cell)) {
        let text = format!("{cell} cannot be shared out among {} ranks in whole f32", job.ranks());
        return Err(Problem::Refused(text));
    }
    systems::check_algorithms(&arguments, job)?;
    hosts::on_network(COMMAND, HOSTS, |network, watch| {
        let out = out(&arguments)?;
        let mut record = TwoHostsRecord { facts: machine::named_facts(), job, links: Vec::new() };
        let measured = measure(&arguments, &cells, network, &out, watch, &mut record);
        // Turns before a problem are worth a table too.
        let reported = report::write(&record, &out);
        println!("results: {}", out.display());
        measured.and(reported)
    })
}

fn out(arguments: &TwoHostsArguments) -> Result<PathBuf> {
    new_folder_of_results(arguments.out.clone(), "target/two-hosts")
}

fn measure(
    arguments: &TwoHostsArguments,
    cells: &[Cell],
    network: &Network,
    out: &Path,
    watch: Watch<'_>,
    record: &mut TwoHostsRecord,
) -> Result<()> {
    let logs = out.join("logs");
    fs::create_dir_all(&logs).during(logs.display().to_string())?;
    let on_hosts = Hosts::of(network, record.job);
    let around = on_hosts.around(&logs, watch);
    let systems = systems::all(arguments, network, &on_hosts, &logs)?;
    for &speed in &arguments.gbit {
        let shaped = match speed.0 {
            Some(gbit_per_s) => network.shape((gbit_per_s * 1e9) as u64),
            None => network.unshape(),
        };
        shaped.during("shaping the link")?;
        record.links.push(SpeedTurns { speed, stream_bits_per_s: Vec::new(), samples: Vec::new() });
        let start = |participant: &Participant| Started::start(&participant.system, &around);
        let mut started = systems.iter().map(start).collect::<Result<Vec<_>>>()?;
        for round in 0..arguments.rounds {
            eprintln!("{speed} Gbit/s: round {} of {}", round + 1, arguments.rounds);
            let Some(link) = record.links.last_mut() else { continue };
            link.stream_bits_per_s.push(stream::measure(network)?);
            for &Cell { operation, bytes } in cells {
                for index in order(systems.len(), round) {
                    let participant = &systems[index];
                    if !participant.takes(operation, record.job) {
                        continue;
                    }
                    watch.check()?;
                    let median_us = started[index].measure(operation, bytes)?;
                    let system = participant.system.name.clone();
                    link.samples.push(TimedTurn { operation, bytes, system, round, median_us });
                }
            }
        }
    }
    Ok(())
}
