//! One round of ours: `unisono bench` with its ranks on the hosts, and what it says.

use std::fs::{self, File, OpenOptions};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::record::{Compressed, EXACT, MeasuredCall, Parts, Sample};
use crate::hosts::Job;
use crate::instance::Watch;
use crate::network::Network;
use crate::problem::{Problem, Result, While};

/// A round that takes longer hangs.
const ROUND_MAX: Duration = Duration::from_secs(300);
const GLANCE: Duration = Duration::from_millis(20);

/// A row of the bench, as far as it is of interest.
#[derive(Debug, Deserialize)]
struct BenchRow {
    op: String,
    bytes: u64,
    median_us: f64,
    wrong: u64,
    codec: Option<String>,
    route: Option<String>,
    wire_bytes: Option<u64>,
    relative_error: Option<f64>,
    parts: Option<Parts>,
}

/// What is measured in every round.
#[derive(Debug)]
pub(crate) struct Ours<'a> {
    pub(crate) program: PathBuf,
    pub(crate) job: Job,
    pub(crate) sizes: &'a [u64],
    pub(crate) codecs: &'a [String],
    pub(crate) logs: &'a Path,
}

/// The ranks of one round; they do not outlive it.
struct BenchRanks(Vec<Child>);

impl Drop for BenchRanks {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // One that has ended does not mind.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Ours<'_> {
    /// Runs the bench once, for everything. A wrong result is a failure.
    pub(crate) fn round(&self, network: &Network, round: u32, watch: Watch<'_>) -> Result<Vec<Sample>> {
        let output = self.logs.join("bench.json");
        let ranks = self.start(network, &output)?;
        self.wait(ranks, watch)?;
        let text = fs::read_to_string(&output).during(output.display().to_string())?;
        samples(&text, round, self.job)
    }

    fn words(&self) -> Vec<String> {
        let sizes: Vec<String> = self.sizes.iter().map(u64::to_string).collect();
        let (operations, options): (_, &[&str]) = match (self.codecs, self.job.ranks_per_host) {
            ([], _) => ("all_reduce", &[]),
            (_, 1) => ("all_reduce,compressed_all_reduce", &["--parts"]),
            _ => (
                "all_reduce,compressed_all_reduce,compressed_reduce_scatter",
                &["--route", "direct,two-levels"],
            ),
        };
        let sizes = sizes.join(",");
        let mut words = vec!["bench", operations, "--sizes", &sizes, "--json"];
        let codecs = self.codecs.join(",");
        if !codecs.is_empty() {
            words.extend(["--codec", &codecs]);
        }
        words.extend(options);
        words.into_iter().map(str::to_owned).collect()
    }

    fn start(&self, network: &Network, output: &Path) -> Result<BenchRanks> {
        let log = self.logs.join("unisono.log");
        let log =
            OpenOptions::new().create(true).append(true).open(&log).during(log.display().to_string())?;
        let output = File::create(output).during(output.display().to_string())?;
        let mut ranks = BenchRanks(Vec::new());
        for rank in 0..self.job.ranks() {
            let host = (rank / self.job.ranks_per_host) as usize;
            let place = (rank as usize, self.job.ranks() as usize);
            let mut command = network.rank((host, 0), place, &self.program);
            // Only rank 0 prints.
            let out = if rank == 0 { output.try_clone() } else { log.try_clone() };
            command
                .args(self.words())
                // The hosts share the cores of this machine, and none has one to spare for a second thread.
                .env("RAYON_NUM_THREADS", "1")
                .stdin(Stdio::null())
                .stdout(out.during("the bench's output")?)
                .stderr(log.try_clone().during("the log")?)
                // Its own group, so that Ctrl-C ends the run and not the ranks under it.
                .process_group(0);
            ranks.0.push(command.spawn().during("starting a rank")?);
        }
        Ok(ranks)
    }

    fn wait(&self, mut ranks: BenchRanks, watch: Watch<'_>) -> Result<()> {
        let until = Instant::now() + ROUND_MAX;
        let at = self.logs.join("unisono.log");
        while let Some(child) = ranks.0.last_mut() {
            watch.check()?;
            match child.try_wait().during("the state of a rank")? {
                Some(status) if status.success() => drop(ranks.0.pop()),
                Some(status) => {
                    let text = format!("unisono bench: {status}; {} says why", at.display());
                    return Err(Problem::Refused(text));
                }
                None if Instant::now() >= until => {
                    let text = format!("unisono bench has not ended after {} s", ROUND_MAX.as_secs());
                    return Err(Problem::Refused(text));
                }
                None => thread::sleep(GLANCE),
            }
        }
        Ok(())
    }
}

fn samples(text: &str, round: u32, job: Job) -> Result<Vec<Sample>> {
    let problem = |text: String| Problem::Refused(format!("unisono bench: {text}"));
    let rows: Vec<BenchRow> = serde_json::from_str(text).map_err(|error| problem(error.to_string()))?;
    let sample = |row: BenchRow| {
        if row.wrong > 0 {
            return Err(problem(format!("{} of {} bytes: {} wrong", row.op, row.bytes, row.wrong)));
        }
        let call = match row.op.as_str() {
            "all_reduce" | "compressed_all_reduce" => MeasuredCall::AllReduce,
            "compressed_reduce_scatter" => MeasuredCall::ReduceScatter,
            other => return Err(problem(format!("a row of {other}, which nobody asked for"))),
        };
        let system = row.codec.unwrap_or_else(|| EXACT.to_owned());
        let lacks_parts = row.parts.is_none() && job.ranks_per_host == 1;
        let compressed = match (row.relative_error, row.wire_bytes) {
            // One that is measured beside the codecs has their figures too.
            _ if system == EXACT => None,
            (Some(relative_error), Some(_)) if !lacks_parts => {
                Some(Compressed { relative_error, parts: row.parts })
            }
            _ => return Err(problem(format!("a row of {} lacks figures of its codec", row.op))),
        };
        let route = row.route.filter(|_| job.ranks_per_host > 1);
        let (bytes, median_us, network_bytes) = (row.bytes, row.median_us, row.wire_bytes);
        Ok(Sample { call, system, route, round, bytes, median_us, network_bytes, compressed })
    };
    rows.into_iter().map(sample).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXACT_ROW: &str =
        r#"{"op": "all_reduce", "bytes": 4096, "median_us": 9.5, "wrong": 0, "codec": null}"#;
    const SIGN_ROW: &str = r#"{"op": "compressed_all_reduce", "bytes": 4096, "median_us": 3, "wrong": 0,
        "codec": "sign", "route": "direct", "wire_bytes": 264, "relative_error": 0.6,
        "parts": {"encode_us": 1, "exchange_us": 2, "reduce_us": 3, "expand_us": 4}}"#;

    /// As the bench says it of two ranks on each host.
    const SCATTER_ROW: &str = r#"{"op": "compressed_reduce_scatter", "bytes": 4096, "median_us": 5, "wrong": 0,
        "codec": "exact", "route": "two levels", "wire_bytes": 4096, "relative_error": 1e-8, "parts": null}"#;

    const ONE_EACH: Job = Job { hosts: 2, ranks_per_host: 1 };
    const TWO_EACH: Job = Job { hosts: 2, ranks_per_host: 2 };

    fn sample(system: &str, median_us: f64, compressed: Option<Compressed>) -> Sample {
        Sample {
            call: MeasuredCall::AllReduce,
            system: system.to_owned(),
            route: None,
            round: 7,
            bytes: 4096,
            median_us,
            network_bytes: compressed.map(|_| 264),
            compressed,
        }
    }

    #[test]
    fn rows_of_the_bench_become_samples() {
        let found = samples(&format!("[{EXACT_ROW}, {SIGN_ROW}]"), 7, ONE_EACH).unwrap();
        let parts = Parts { encode_us: 1.0, exchange_us: 2.0, reduce_us: 3.0, expand_us: 4.0 };
        assert_eq!((parts.kernels_us(), parts.sum_us()), (8.0, 10.0));
        let compressed = Compressed { relative_error: 0.6, parts: Some(parts) };
        assert_eq!(found, [sample(EXACT, 9.5, None), sample("sign", 3.0, Some(compressed))]);
    }

    #[test]
    fn of_several_ranks_on_a_host_ways_are_told_apart() {
        let found = samples(&format!("[{SIGN_ROW}, {SCATTER_ROW}]"), 7, TWO_EACH).unwrap();
        assert_eq!(found[0].route.as_deref(), Some("direct"));
        let exact = Sample {
            call: MeasuredCall::ReduceScatter,
            route: Some("two levels".to_owned()),
            network_bytes: Some(4096),
            ..sample(EXACT, 5.0, None)
        };
        assert_eq!(found[1], exact);
    }

    #[test]
    fn wrong_results_and_rows_that_lack_figures_are_failures() {
        let wrong = EXACT_ROW.replace("\"wrong\": 0", "\"wrong\": 3");
        let lacking = SIGN_ROW.replace("wire_bytes", "bytes_of_wire");
        let without_parts = SIGN_ROW.replace("parts", "pieces");
        let other = EXACT_ROW.replace("all_reduce", "all_gather");
        for (text, expected) in [
            (format!("[{wrong}]"), "3 wrong"),
            (format!("[{lacking}]"), "lacks"),
            (format!("[{without_parts}]"), "lacks"),
            (format!("[{other}]"), "all_gather"),
            (String::new(), "EOF"),
        ] {
            let problem = samples(&text, 0, ONE_EACH).unwrap_err().to_string();
            assert!(problem.contains(expected), "{problem}");
        }
    }

    #[test]
    fn the_bench_is_asked_for_what_the_tables_show() {
        let (sizes, codecs) = ([4096], ["int8".to_owned()]);
        let words = |job, codecs: &[String]| {
            let ours = Ours { program: PathBuf::new(), job, sizes: &sizes, codecs, logs: Path::new("") };
            ours.words().join(" ")
        };
        assert_eq!(words(TWO_EACH, &[]), "bench all_reduce --sizes 4096 --json");
        assert!(words(ONE_EACH, &codecs).ends_with("--codec int8 --parts"));
        assert!(words(TWO_EACH, &codecs).ends_with("--codec int8 --route direct,two-levels"));
    }
}
