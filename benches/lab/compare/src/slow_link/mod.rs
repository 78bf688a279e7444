//! `cargo xtask slow-link`: exact and compressed all-reduces between two hosts with a slow link between them.
//!
//! The hosts are network namespaces, and a token bucket shapes what each of them sends. In every round the bench of
//! `unisono` measures the exact all-reduce and every codec in its turns, and torch's Gloo takes a turn of the
//! comparison; one TCP stream tells what the link carries. Where hosts have several ranks, codecs go straight and in
//! two levels, and reduce-scatters are measured too.

mod arguments;
mod drawing;
mod model;
mod ours;
mod record;
mod report;
mod summary;

use std::fs;
use std::path::{Path, PathBuf};

use clap::Parser;
use unisono::Collective;

use crate::hosts::{self, Hosts, Job, Started};
use crate::instance::Watch;
use crate::network::Network;
use crate::problem::{Result, While};
use crate::saved::new_folder_of_results;
use crate::systems::TORCH;
use crate::{machine, saved, stream};
use arguments::SlowLinkArguments;
use ours::Ours;
use record::{Link, MeasuredCall, Sample, SlowLinkRecord};

/// What starts this part of the program.
pub(crate) const COMMAND: &str = "slow-link";

const HOSTS: u32 = 2;

/// Measures, or reports again; `words` begins with [`COMMAND`].
pub(crate) fn run(words: impl Iterator<Item = String>) -> Result<()> {
    let arguments = SlowLinkArguments::parse_from(words);
    if let Some(path) = &arguments.report {
        let record = saved::read(path)?;
        return report::write(&record, &out(&arguments)?);
    }
    hosts::on_network(COMMAND, HOSTS, |network, watch| {
        let out = out(&arguments)?;
        let job = Job { hosts: HOSTS, ranks_per_host: arguments.ranks_per_host };
        let mut record = SlowLinkRecord { facts: machine::named_facts(), job, links: Vec::new() };
        let measured = measure(&arguments, network, &out, watch, &mut record);
        // What was measured before a problem is worth its tables too.
        let reported = report::write(&record, &out);
        println!("results: {}", out.display());
        measured.and(reported)
    })
}

fn out(arguments: &SlowLinkArguments) -> Result<PathBuf> {
    new_folder_of_results(arguments.out.clone(), "target/slow-link")
}

fn measure(
    arguments: &SlowLinkArguments,
    network: &Network,
    out: &Path,
    watch: Watch<'_>,
    record: &mut SlowLinkRecord,
) -> Result<()> {
    let logs = out.join("logs");
    fs::create_dir_all(&logs).during(logs.display().to_string())?;
    let (job, program) = (record.job, hosts::built_beside("unisono")?);
    let sizes: Vec<u64> = arguments.sizes.iter().map(|size| size.0).collect();
    let ours = Ours { program, job, sizes: &sizes, codecs: &arguments.codecs, logs: &logs };
    let gloo = if arguments.no_gloo { None } else { hosts::gloo(&arguments.peers_dir)? };
    let on_hosts = Hosts::of(network, job);
    let around = on_hosts.around(&logs, watch);
    for &gbit_per_s in &arguments.gbit {
        network.shape((gbit_per_s * 1e9) as u64).during("shaping the link")?;
        record.links.push(Link { gbit_per_s, stream_bits_per_s: Vec::new(), samples: Vec::new() });
        let mut peer = gloo.as_ref().map(|gloo| Started::start(gloo, &around)).transpose()?;
        for round in 0..arguments.rounds {
            eprintln!("{gbit_per_s} Gbit/s: round {} of {}", round + 1, arguments.rounds);
            watch.check()?;
            let stream_bits_per_s = stream::measure(network)?;
            let samples = match (&mut peer, round % 2) {
                (None, _) => ours.round(network, round, watch)?,
                // Whoever follows may be slower, so the order changes.
                (Some(peer), 0) => {
                    [ours.round(network, round, watch)?, round_of_gloo(peer, &sizes, round)?].concat()
                }
                (Some(peer), _) => {
                    [round_of_gloo(peer, &sizes, round)?, ours.round(network, round, watch)?].concat()
                }
            };
            let Some(link) = record.links.last_mut() else { continue };
            link.stream_bits_per_s.push(stream_bits_per_s);
            link.samples.extend(samples);
        }
    }
    Ok(())
}

/// An exact all-reduce of each size.
fn round_of_gloo(gloo: &mut Started<'_>, sizes: &[u64], round: u32) -> Result<Vec<Sample>> {
    let sample = |&bytes: &u64| {
        Ok(Sample {
            call: MeasuredCall::AllReduce,
            system: TORCH.to_owned(),
            route: None,
            round,
            bytes,
            median_us: gloo.measure(Collective::AllReduce.into(), bytes)?,
            network_bytes: None,
            compressed: None,
        })
    };
    sizes.iter().map(sample).collect()
}
