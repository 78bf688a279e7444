//! `cargo xtask slow-link`: exact and compressed all-reduces between two hosts with a slow link between them.
//!
//! The hosts are network namespaces, and a token bucket shapes what each of them sends. In every round the bench of
//! `unisono` measures the exact all-reduce and every codec in its turns, and torch's Gloo takes a turn of the
//! comparison; one TCP stream tells what the link carries. Where hosts have several ranks, codecs go straight and in
//! two levels, and reduce-scatters are measured too.

mod arguments;
mod drawing;
mod gloo;
mod model;
#[path = "../../../../../crates/job/tests/support/network.rs"]
mod network;
mod ours;
mod record;
mod report;
pub(crate) mod stream;
mod summary;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::Parser;

use crate::guard::Guard;
use crate::instance::Watch;
use crate::problem::{Problem, Result, While};
use crate::raw::Note;
use crate::{interruption, machine, new_folder_of_results, scheduling};
use arguments::SlowLinkArguments;
use gloo::Gloo;
use model::Job;
use network::Network;
use ours::Ours;
use record::{Link, SlowLinkRecord};

/// What starts this part of the program.
pub(crate) const COMMAND: &str = "slow-link";

const HOSTS: u32 = 2;

/// Measures, or reports again; `words` begins with [`COMMAND`].
pub(crate) fn run(words: impl Iterator<Item = String>) -> Result<()> {
    let arguments = SlowLinkArguments::parse_from(words);
    if let Some(path) = &arguments.report {
        let record = report::read(path)?;
        return report::write(&record, &out(&arguments)?);
    }
    let network = match Network::new(HOSTS as usize) {
        Ok(network) => network,
        Err(reason) => {
            println!("SKIP slow-link: {reason}");
            return Ok(());
        }
    };
    let interrupted = interruption()?;
    let _machine = scheduling::lock_machine()?;
    let guard = Guard::start()?;
    let out = out(&arguments)?;
    let watch = Watch { interrupted: &interrupted, guard: &guard };
    let job = Job { hosts: HOSTS, ranks_per_host: arguments.ranks_per_host };
    let mut record = SlowLinkRecord { facts: facts(), job, links: Vec::new() };
    let measured = measure(&arguments, &network, &out, watch, &mut record);
    // What was measured before a problem is worth its tables too.
    let reported = report::write(&record, &out);
    println!("results: {}", out.display());
    measured.and(reported)
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
    let (job, program) = (record.job, program()?);
    let sizes: Vec<u64> = arguments.sizes.iter().map(|size| size.0).collect();
    let ours = Ours { program, job, sizes: &sizes, codecs: &arguments.codecs, logs: &logs };
    let gloo = if arguments.no_gloo { None } else { Gloo::find(&arguments.peers_dir, network, job)? };
    for &gbit_per_s in &arguments.gbit {
        network.shape((gbit_per_s * 1e9) as u64).during("shaping the link")?;
        record.links.push(Link { gbit_per_s, stream_bits_per_s: Vec::new(), samples: Vec::new() });
        let around = gloo.as_ref().map(|gloo| (gloo, gloo.around(&logs, watch)));
        let mut peer = around.as_ref().map(|(gloo, around)| gloo.start(around)).transpose()?;
        for round in 0..arguments.rounds {
            eprintln!("{gbit_per_s} Gbit/s: round {} of {}", round + 1, arguments.rounds);
            watch.check()?;
            let stream_bits_per_s = stream::measure(network)?;
            let samples = match (&mut peer, round % 2) {
                (None, _) => ours.round(network, round, watch)?,
                // Whoever follows may be slower, so the order changes.
                (Some(peer), 0) => [ours.round(network, round, watch)?, peer.round(&sizes, round)?].concat(),
                (Some(peer), _) => [peer.round(&sizes, round)?, ours.round(network, round, watch)?].concat(),
            };
            let Some(link) = record.links.last_mut() else { continue };
            link.stream_bits_per_s.push(stream_bits_per_s);
            link.samples.extend(samples);
        }
    }
    Ok(())
}

/// The program `unisono`, built beside this one.
fn program() -> Result<PathBuf> {
    let program = std::env::current_exe().during("this program's path")?.with_file_name("unisono");
    if program.exists() {
        return Ok(program);
    }
    let error = io::Error::other("absent; `cargo xtask slow-link` builds it");
    Err(Problem::Failed { what: program.display().to_string(), error })
}

fn facts() -> Vec<(String, String)> {
    let fact = |note| match note {
        Note::Fact(name, text) => Some((name, text)),
        Note::System { .. } | Note::Loss { .. } => None,
    };
    machine::facts().into_iter().filter_map(fact).collect()
}
