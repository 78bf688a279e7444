//! From measured times to prices, and how they are printed.

use serde::Serialize;
use unisono_transport_tcp::prices::Prices;

use super::probe::Probe;
use crate::bench::timing::Timing;
use crate::problem::{Problem, Result};

const NANOSECONDS: f64 = 1e9;
const FEMTOSECONDS: f64 = 1e15;

/// What was measured, pooled over the pairs of ranks.
pub(crate) struct Samples {
    /// In the order of [`Probe::ALL`].
    pub(crate) probes: Vec<Timing>,
    /// [`Probe::Turns`] between two ranks on one core.
    pub(crate) on_one_core: Option<Timing>,
    pub(crate) pairs: u32,
    pub(crate) is_one_host: bool,
}

/// One price, with the 10th and the 90th percentile of the blocks that it comes from.
#[derive(Clone, Debug, Serialize)]
struct Price {
    name: &'static str,
    median: u64,
    p10: u64,
    p90: u64,
    /// How it was measured.
    how: &'static str,
}

impl Price {
    /// Of `timing`'s seconds times `scale`, less `subtrahend`; never below 0.
    fn new(name: &'static str, how: &'static str, timing: &Timing, scale: f64, subtrahend: f64) -> Price {
        let [median, p10, p90] =
            [50, 10, 90].map(|percent| (timing.percentile(percent) * scale - subtrahend).max(0.0).round() as u64);
        Price { name, median, p10, p90, how }
    }
}

/// The document.
#[derive(Debug, Serialize)]
pub(crate) struct Calibration {
    /// Pairs of ranks that were measured.
    pairs: u32,
    /// What a message takes from its send to the end of its receive.
    alpha_us: f64,
    /// Of bulk one way.
    beta_gb_per_s: f64,
    /// Of what is summed as it arrives; nothing when that took no longer than to store it.
    gamma_gb_per_s: Option<f64>,
    prices: Vec<Price>,
    /// The value of UNISONO_PRICES.
    line: String,
}

impl Calibration {
    pub(crate) fn new(samples: &Samples, cores: u64) -> Result<Calibration> {
        // Two ranks on a host of one core take turns, so that each has only half of the time.
        let ranks_per_core = if samples.is_one_host && cores == 1 { 2.0 } else { 1.0 };
        let prices = prices(samples, ranks_per_core);
        let text: Vec<_> = prices.iter().map(|price| format!("{}={}", price.name, price.median)).collect();
        let text = format!("{},cores={cores}", text.join(","));
        // As who reads it will; what is missing keeps its default, and is printed too.
        let line = text.parse::<Prices>().map_err(|problem| Problem::failed("the measured prices", problem))?;
        let median = |name| prices.iter().find(|price| price.name == name).map_or(0, |price| price.median);
        let gb_per_s = |fs_per_byte: u64| Some(1e6 / fs_per_byte as f64).filter(|rate| rate.is_finite());
        Ok(Calibration {
            pairs: samples.pairs,
            alpha_us: median("latency_ns") as f64 / 1e3,
            beta_gb_per_s: gb_per_s(median("wire_fs_per_byte")).unwrap_or(0.0),
            gamma_gb_per_s: gb_per_s(median("reduce_fs_per_byte")),
            prices,
            line: line.to_string(),
        })
    }

    /// For a person; the last line is for the shell.
    pub(crate) fn table(&self) -> String {
        let gamma = self.gamma_gb_per_s.map_or("too fast to tell".to_owned(), |gamma| format!("{gamma:.2} GB/s"));
        let mut text = format!(
            "# {} pair(s) of ranks: alpha {:.2} us, beta {:.2} GB/s, gamma {gamma}\n#{:<21} {:>10} {:>10} {:>10}  {}\n",
            self.pairs, self.alpha_us, self.beta_gb_per_s, "price", "median", "p10", "p90", "how"
        );
        for Price { name, median, p10, p90, how } in &self.prices {
            text += &format!("{name:<22} {median:>10} {p10:>10} {p90:>10}  {how}\n");
        }
        text + &format!("UNISONO_PRICES={}", self.line)
    }
}

fn prices(samples: &Samples, ranks_per_core: f64) -> Vec<Price> {
    let of = |probe: Probe| &samples.probes[Probe::ALL.iter().position(|one| *one == probe).unwrap_or(0)];
    let per_byte = |probe: Probe| FEMTOSECONDS / probe.bytes();
    let stored = of(Probe::OneWay).median() * per_byte(Probe::OneWay);
    let message = of(Probe::Stream).median() * NANOSECONDS / ranks_per_core;
    let mut prices = vec![
        Price::new(
            "latency_ns",
            "half the round trip of 4 bytes, both ranks waiting",
            of(Probe::Turns),
            NANOSECONDS,
            0.0,
        ),
        Price::new(
            "wire_fs_per_byte",
            "4 MiB one way; no faster than the slower end copies",
            of(Probe::OneWay),
            per_byte(Probe::OneWay),
            0.0,
        ),
        Price::new(
            "reduce_fs_per_byte",
            "4 MiB one way, what summing f32 adds to storing; p10 and p90 of the sums",
            of(Probe::Summed),
            per_byte(Probe::Summed),
            stored,
        ),
        Price::new(
            "cpu_per_message_ns",
            "4 bytes one way without answers; of the slower end",
            of(Probe::Stream),
            NANOSECONDS / ranks_per_core,
            0.0,
        ),
        Price::new(
            "cpu_fs_per_byte",
            "4 MiB both ways at once, of each byte sent or received",
            of(Probe::BothWays),
            per_byte(Probe::BothWays) / 2.0 / ranks_per_core,
            0.0,
        ),
    ];
    prices.extend(samples.on_one_core.as_ref().map(|on_one_core| {
        Price::new(
            "switch_ns",
            "half the round trip of 4 bytes with both ranks on one core, less both ends of a message",
            on_one_core,
            NANOSECONDS,
            2.0 * message,
        )
    }));
    prices
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(on_one_core: Option<f64>) -> Samples {
        let blocks = |seconds: f64| Timing::new([1.0, 0.9, 1.5].map(|factor| factor * seconds).to_vec());
        let bulk = Probe::OneWay.bytes();
        // 5 us, 2 us, 10 GB/s one way, 5 GB/s each way at once, and 40 GB/s summed.
        let seconds = [5e-6, 2e-6, bulk / 10e9, bulk / 5e9, bulk / 10e9 + bulk / 40e9];
        let on_one_core = on_one_core.map(blocks);
        Samples { probes: seconds.map(blocks).to_vec(), on_one_core, pairs: 1, is_one_host: true }
    }

    #[test]
    fn every_price_is_its_definition() {
        let calibration = Calibration::new(&samples(Some(7e-6)), 2).unwrap();
        assert_eq!(
            calibration.line,
            "latency_ns=5000,wire_fs_per_byte=100000,reduce_fs_per_byte=25000,cpu_per_message_ns=2000,\
             cpu_fs_per_byte=100000,switch_ns=3000,cores=2"
        );
        assert_eq!((calibration.alpha_us, calibration.beta_gb_per_s), (5.0, 10.0));
        assert_eq!(calibration.gamma_gb_per_s, Some(40.0));
        let latency = &calibration.prices[0];
        assert_eq!((latency.p10, latency.median, latency.p90), (4500, 5000, 7500));
        let parsed: Prices = calibration.line.parse().unwrap();
        assert_eq!(parsed.to_string(), calibration.line);
        assert!(calibration.table().ends_with(&format!("\nUNISONO_PRICES={}", calibration.line)));
    }

    #[test]
    fn on_one_core_each_end_has_half_of_the_time() {
        let calibration = Calibration::new(&samples(None), 1).unwrap();
        let price = |name| calibration.prices.iter().find(|price| price.name == name).map(|price| price.median);
        assert_eq!((price("cpu_per_message_ns"), price("cpu_fs_per_byte")), (Some(1000), Some(50_000)));
        assert_eq!(price("switch_ns"), None);
        assert!(calibration.line.contains("switch_ns="), "the default: {}", calibration.line);
    }

    #[test]
    fn a_sum_that_costs_nothing_has_no_rate() {
        let mut samples = samples(None);
        samples.probes[4] = samples.probes[2].clone();
        let calibration = Calibration::new(&samples, 2).unwrap();
        assert_eq!(calibration.gamma_gb_per_s, None);
        assert!(calibration.table().contains("too fast to tell"));
    }
}
