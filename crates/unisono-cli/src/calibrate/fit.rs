//! From measured times to the parameters of the cost model, and how these are printed.

use serde::Serialize;
use unisono_job::job_settings::JobSettings;
use unisono_schedule::CostModel;

use super::probe::Probe;
use crate::bench::timing::Timing;
use crate::problem::{Problem, Result};

const NANOSECONDS: f64 = 1e9;
const FEMTOSECONDS: f64 = 1e15;

const REDUCTION: &str = "reduce_fs_per_byte";
/// A difference of two medians counts when it is more than this many of its standard errors.
const NOISE: f64 = 2.0;

/// The blocks of each probe, of all pairs of ranks together; empty if there was no such pair.
#[derive(Clone, Default)]
pub(crate) struct Pool {
    seconds: Vec<Vec<f64>>,
}

impl Pool {
    /// Adds the blocks of one more pair, in the order of the probes.
    pub(crate) fn add(&mut self, measured: Vec<Timing>) {
        self.seconds.resize(self.seconds.len().max(measured.len()), Vec::new());
        for (pooled, timing) in self.seconds.iter_mut().zip(measured) {
            pooled.extend(timing.into_seconds());
        }
    }

    fn of(&self, probes: &[Probe], probe: Probe) -> Option<Timing> {
        let index = probes.iter().position(|one| *one == probe)?;
        self.seconds.get(index).map(|seconds| Timing::new(seconds.clone()))
    }
}

/// The measurements.
#[derive(Clone, Default)]
pub(crate) struct Samples {
    pub(crate) pairs: u32,
    /// [`Probe::ALL`] between ranks of one host.
    pub(crate) local: Pool,
    /// [`Probe::ALL`] between ranks of different hosts.
    pub(crate) remote: Pool,
    /// [`Probe::ON_ONE_CORE`], of the ranks of one host.
    pub(crate) on_one_core: Pool,
}

/// One parameter, with the 10th and the 90th percentile of the blocks that it is computed from.
#[derive(Clone, Debug, Serialize)]
struct Parameter {
    name: &'static str,
    median: u64,
    p10: u64,
    p90: u64,
    /// The method of the measurement.
    how: &'static str,
}

impl Parameter {
    /// The seconds of `timing` times `scale`, minus `subtrahend`; never below 0.
    fn new(name: &'static str, how: &'static str, timing: &Timing, scale: f64, subtrahend: f64) -> Parameter {
        let [median, p10, p90] = [50, 10, 90]
            .map(|percent| (timing.percentile(percent) * scale - subtrahend).max(0.0).round() as u64);
        Parameter { name, median, p10, p90, how }
    }
}

/// The JSON document.
#[derive(Debug, Serialize)]
pub(crate) struct Calibration {
    /// Pairs of ranks that were measured.
    pairs: u32,
    /// From the send of a message to the end of its receive, on the slowest kind of link.
    alpha_us: f64,
    /// The rate of a long message one way, on the slowest kind of link.
    beta_gb_per_s: f64,
    /// The rate at which arriving data is summed.
    gamma_gb_per_s: f64,
    /// Whether it was measured. If summing took no longer than storing, it is the built-in one.
    gamma_is_measured: bool,
    parameters: Vec<Parameter>,
    /// The value of UNISONO_COST_MODEL.
    line: String,
}

impl Calibration {
    pub(crate) fn new(samples: Samples, cores: u64) -> Result<Calibration> {
        let parameters = parameters(&samples, cores);
        let text: Vec<_> =
            parameters.iter().map(|parameter| format!("{}={}", parameter.name, parameter.median)).collect();
        let text = format!("{},cores={cores}", text.join(","));
        // Parsed as its reader will parse it; a parameter that was not measured has its default, and is printed too.
        let line = JobSettings::default()
            .with_parameters(&text)
            .map_err(|problem| Problem::failed("the measured parameters", problem))?;
        let found = |name| parameters.iter().find(|parameter| parameter.name == name);
        let median = |name| found(name).map_or(0, |parameter| parameter.median);
        let gb_per_s = |fs_per_byte: u64| Some(1e6 / fs_per_byte as f64).filter(|rate| rate.is_finite());
        let gamma = found(REDUCTION).map(|parameter| parameter.median);
        let built_in = CostModel::MEMORY.reduce_fs_per_byte;
        Ok(Calibration {
            pairs: samples.pairs,
            alpha_us: median("latency_ns").max(median("network_latency_ns")) as f64 / 1e3,
            beta_gb_per_s: gb_per_s(median("wire_fs_per_byte").max(median("network_fs_per_byte")))
                .unwrap_or(0.0),
            gamma_gb_per_s: 1e6 / gamma.unwrap_or(built_in) as f64,
            gamma_is_measured: gamma.is_some(),
            parameters,
            line: line.to_string(),
        })
    }

    /// The table for a person; the last line is for the shell.
    pub(crate) fn table(&self) -> String {
        let gamma = self.gamma_gb_per_s;
        let pairs = if self.pairs == 1 { "1 pair".to_owned() } else { format!("{} pairs", self.pairs) };
        let mut text = format!(
            "# {} of ranks: alpha {:.2} us, beta {:.2} GB/s, gamma {gamma:.2} GB/s\n#{:<21} {:>10} {:>10} {:>10}  {}\n",
            pairs, self.alpha_us, self.beta_gb_per_s, "parameter", "median", "p10", "p90", "how"
        );
        for Parameter { name, median, p10, p90, how } in &self.parameters {
            text += &format!("{name:<22} {median:>10} {p10:>10} {p90:>10}  {how}\n");
        }
        if !self.gamma_is_measured {
            text += "# gamma is the built-in figure: here summing took no longer than storing, within the noise\n";
        }
        text += "# other parameters have their built-in values; to use these, set this for all ranks (rank 0's \
                 count):\n";
        text + &format!("UNISONO_COST_MODEL={}", self.line)
    }
}

fn parameters(samples: &Samples, cores: u64) -> Vec<Parameter> {
    let mut parameters = Vec::new();
    let link = |pool: &Pool, names: [&'static str; 2]| {
        let of = |probe| pool.of(&Probe::ALL, probe);
        let how = "half the round trip of 4 bytes, both ranks waiting";
        let latency = of(Probe::Turns).map(|turns| Parameter::new(names[0], how, &turns, NANOSECONDS, 0.0));
        let how = "4 MiB one way; not faster than the slower end copies";
        let per_byte = FEMTOSECONDS / Probe::OneWay.bytes();
        let wire = of(Probe::OneWay).map(|one_way| Parameter::new(names[1], how, &one_way, per_byte, 0.0));
        latency.into_iter().chain(wire)
    };
    parameters.extend(link(&samples.local, ["latency_ns", "wire_fs_per_byte"]));
    parameters.extend(link(&samples.remote, ["network_latency_ns", "network_fs_per_byte"]));
    let is_local = !samples.local.seconds.is_empty();
    parameters.extend(reduction(if is_local { &samples.local } else { &samples.remote }));
    // Two ranks on a host with one core take turns, so each has only half of the time.
    let ranks_per_core = if cores == 1 { 2.0 } else { 1.0 };
    let on_one_core = &samples.on_one_core;
    parameters.extend(message(&samples.local, on_one_core, "cpu_per_message_ns", ranks_per_core));
    parameters.extend(byte(&samples.local, "cpu_fs_per_byte", ranks_per_core));
    parameters.extend(message(&samples.remote, &Pool::default(), "network_cpu_per_message_ns", 1.0));
    parameters.extend(byte(&samples.remote, "network_cpu_fs_per_byte", 1.0));
    parameters.extend(switch(on_one_core));
    parameters
}

/// The additional time of summing over storing; `None` if chance may do as much, as where the sum hides behind the
/// transfer.
fn reduction(pool: &Pool) -> Option<Parameter> {
    let (summed, stored) = (pool.of(&Probe::ALL, Probe::Summed)?, pool.of(&Probe::ALL, Probe::Stored)?);
    let noise = NOISE * summed.median_error().hypot(stored.median_error());
    let is_longer = summed.median() - stored.median() > noise;
    let per_byte = FEMTOSECONDS / Probe::Summed.bytes();
    let how = "longer than any cache, time of summing f32 minus time of storing; p10 and p90 of the sums";
    let parameter = Parameter::new(REDUCTION, how, &summed, per_byte, stored.median() * per_byte);
    (is_longer && parameter.median > 0).then_some(parameter)
}

/// The processor time of a message at either end.
fn message(pool: &Pool, on_one_core: &Pool, name: &'static str, ranks_per_core: f64) -> Option<Parameter> {
    if let Some(stream) = on_one_core.of(&Probe::ON_ONE_CORE, Probe::Stream) {
        let how = "4 bytes one way without answers, both ranks on one core; half of it";
        return Some(Parameter::new(name, how, &stream, NANOSECONDS / 2.0, 0.0));
    }
    let how = "4 bytes one way without answers; the slower end";
    let stream = pool.of(&Probe::ALL, Probe::Stream)?;
    Some(Parameter::new(name, how, &stream, NANOSECONDS / ranks_per_core, 0.0))
}

/// The processor time of a byte at either end.
fn byte(pool: &Pool, name: &'static str, ranks_per_core: f64) -> Option<Parameter> {
    let both_ways = pool.of(&Probe::ALL, Probe::BothWays)?;
    let how = "4 MiB both ways at once; per byte sent or received";
    let scale = FEMTOSECONDS / Probe::BothWays.bytes() / 2.0 / ranks_per_core;
    Some(Parameter::new(name, how, &both_ways, scale, 0.0))
}

/// The cost of two ranks on one core.
fn switch(on_one_core: &Pool) -> Option<Parameter> {
    let of = |probe| on_one_core.of(&Probe::ON_ONE_CORE, probe);
    let (turns, stream) = (of(Probe::Turns)?, of(Probe::Stream)?);
    let how = "both ranks on one core: half a round trip, minus the cost of a message";
    Some(Parameter::new("switch_ns", how, &turns, NANOSECONDS, stream.median() * NANOSECONDS))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(seconds: &[f64]) -> Pool {
        let blocks = |seconds: &f64| Timing::new([1.0, 0.9, 1.5].map(|factor| factor * seconds).repeat(11));
        let mut pool = Pool::default();
        pool.add(seconds.iter().map(blocks).collect());
        pool
    }

    /// 5 us, 3 us; 10 GB/s one way, 5 GB/s each way at once, and 40 GB/s summed.
    fn link() -> Pool {
        let bulk = Probe::OneWay.bytes();
        pool(&[5e-6, 3e-6, bulk / 10e9, bulk / 5e9, 1.0 / 10e9, 1.0 / 10e9 + 1.0 / 40e9])
    }

    fn samples() -> Samples {
        Samples { pairs: 1, local: link(), ..Samples::default() }
    }

    fn parameter<'a>(calibration: &'a Calibration, name: &str) -> Option<&'a Parameter> {
        calibration.parameters.iter().find(|parameter| parameter.name == name)
    }

    #[test]
    fn every_parameter_is_its_definition() {
        let calibration =
            Calibration::new(Samples { on_one_core: pool(&[7e-6, 4e-6]), ..samples() }, 2).unwrap();
        let link = ["latency_ns=5000", "wire_fs_per_byte=100000", "reduce_fs_per_byte=25000"];
        let processor = ["cpu_per_message_ns=2000", "cpu_fs_per_byte=100000", "switch_ns=3000", "cores=2"];
        let said = link.iter().chain(&processor);
        for said in said {
            assert!(calibration.line.split(',').any(|part| part == *said), "{said} in {}", calibration.line);
        }
        assert_eq!((calibration.alpha_us, calibration.beta_gb_per_s), (5.0, 10.0));
        assert_eq!((calibration.gamma_gb_per_s, calibration.gamma_is_measured), (40.0, true));
        assert!(!calibration.table().contains("gamma is the built-in figure"));
        let latency = parameter(&calibration, "latency_ns").unwrap();
        assert_eq!((latency.p10, latency.median, latency.p90), (4500, 5000, 7500));
        let parsed = JobSettings::default().with_parameters(&calibration.line).unwrap();
        assert_eq!(parsed.to_string(), calibration.line);
        assert!(calibration.table().ends_with(&format!("\nUNISONO_COST_MODEL={}", calibration.line)));
    }

    #[test]
    fn on_one_core_each_end_has_half_of_the_time() {
        let calibration = Calibration::new(samples(), 1).unwrap();
        let median = |name| parameter(&calibration, name).map(|parameter| parameter.median);
        assert_eq!((median("cpu_per_message_ns"), median("cpu_fs_per_byte")), (Some(1500), Some(50_000)));
        assert_eq!(median("switch_ns"), None);
        assert!(calibration.line.contains("switch_ns="), "the default: {}", calibration.line);
    }

    #[test]
    fn between_hosts_the_network_is_measured_and_loopback_is_not() {
        let remote = Samples { pairs: 1, remote: link(), ..Samples::default() };
        let calibration = Calibration::new(remote, 1).unwrap();
        let median = |name| parameter(&calibration, name).map(|parameter| parameter.median);
        assert_eq!((median("network_latency_ns"), median("latency_ns")), (Some(5000), None));
        assert_eq!(
            (median("network_fs_per_byte"), median("network_cpu_per_message_ns")),
            (Some(100_000), Some(3000))
        );
        assert_eq!((median("network_cpu_fs_per_byte"), median("cpu_per_message_ns")), (Some(100_000), None));
        assert_eq!((calibration.alpha_us, calibration.beta_gb_per_s), (5.0, 10.0));
    }

    /// Otherwise a sum would be free, and an algorithm that sums everything on every rank the best.
    #[test]
    fn a_sum_that_costs_nothing_that_can_be_told_keeps_the_built_in_rate() {
        let built_in = CostModel::MEMORY.reduce_fs_per_byte;
        // As long as storing, shorter, longer by less than the blocks differ, and no time at all.
        for summed in [1.0 / 10e9, 1.0 / 12e9, 1.02 / 10e9, 0.0, f64::NAN, f64::INFINITY] {
            let bulk = Probe::OneWay.bytes();
            let local = pool(&[5e-6, 3e-6, bulk / 10e9, bulk / 5e9, 1.0 / 10e9, summed]);
            let calibration = Calibration::new(Samples { local, ..samples() }, 2).unwrap();
            assert!(parameter(&calibration, "reduce_fs_per_byte").is_none(), "{summed}");
            assert!(
                calibration.line.contains(&format!("reduce_fs_per_byte={built_in},")),
                "{}",
                calibration.line
            );
            assert!(!calibration.gamma_is_measured && calibration.gamma_gb_per_s == 1e6 / built_in as f64);
            let said = calibration.table();
            assert_eq!(
                said.lines().filter(|line| line.starts_with("# gamma is the built-in")).count(),
                1,
                "{said}"
            );
        }
    }
}
