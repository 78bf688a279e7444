//! The command `price`: the expected times of algorithms, and the library's choice.

use std::io::Write;

use serde::Serialize;
use unisono_schedule::{Admit, Choice, Collective, Cost, CostModel, Registry};

use crate::arguments::PriceArguments;
use crate::choices::fitting;
use crate::figures::{FiguresHere, MachineFigures};
use crate::forecast::Forecast;
use crate::print;
use crate::problem::{Problem, Result};

/// One algorithm; messages and bytes count on the rank that has the most.
#[derive(Serialize)]
struct Prediction {
    collective: &'static str,
    name: String,
    ranks: u32,
    bytes: u64,
    rounds: u64,
    /// Sent and received.
    messages: u64,
    sent_bytes: u64,
    received_bytes: u64,
    reduced_bytes: u64,
    predicted_us: f64,
    /// The source of the figures for these times.
    figures: String,
    /// Whether a call that names no algorithm runs this one.
    chosen: bool,
}

impl Prediction {
    fn new(choice: &Choice, cost: &Cost, bytes: u64, forecast: &Forecast, figures: &Figures) -> Prediction {
        let algorithm = &choice.algorithm;
        // A barrier moves no data, so no number of bytes makes it longer.
        let bytes = if algorithm.collective == Collective::Barrier { 0 } else { bytes };
        let pick = forecast.pick(algorithm.collective, bytes, &Admit::ANY);
        Prediction {
            collective: algorithm.collective.name(),
            name: choice.to_string(),
            ranks: forecast.shape.ranks,
            bytes,
            rounds: cost.rounds,
            messages: cost.messages,
            sent_bytes: cost.sent.of(bytes),
            received_bytes: cost.received.of(bytes),
            reduced_bytes: cost.reduced.of(bytes),
            predicted_us: forecast.microseconds_of(cost, choice, bytes),
            figures: figures.whose.clone(),
            chosen: pick.as_ref() == Some(choice),
        }
    }

    fn line(&self) -> String {
        let Prediction { rounds, messages, sent_bytes, reduced_bytes, predicted_us, .. } = self;
        let name = format!("{}/{}", self.collective, self.name);
        let mark = if self.chosen { "  chosen" } else { "" };
        let moves_data = self.collective != Collective::Barrier.name();
        let [sent, reduced] = [sent_bytes, reduced_bytes]
            .map(|bytes| if moves_data { bytes.to_string() } else { "-".to_owned() });
        format!("{name:<34} {rounds:>6} {messages:>8} {sent:>14} {reduced:>14} {predicted_us:>14.3}{mark}")
    }
}

/// Prints the predictions. Algorithms that may not be used are named at the end.
pub(crate) fn price(
    arguments: &PriceArguments,
    registry: &Registry,
    here: &FiguresHere,
    out: &mut dyn Write,
) -> Result<()> {
    let &PriceArguments { ranks, bytes, json, .. } = arguments;
    let figures = Figures::asked_for(arguments, here)?;
    let model = figures.model;
    let hosts = vec![0; ranks as usize];
    let forecast = Forecast::new(registry.clone(), model.shape(&hosts), model);
    let (mut predictions, mut refused) = (Vec::new(), Vec::new());
    for choice in fitting(registry, arguments.name.as_deref(), &forecast.shape)? {
        match registry.facts(&choice.algorithm, &choice.shape) {
            Ok(facts) => {
                let prediction = |cost| Prediction::new(&choice, &cost, bytes, &forecast, &figures);
                predictions.extend(facts.cost.map(prediction));
            }
            Err(refusal) => refused.push(refusal.to_string()),
        }
    }
    if json {
        print::document(out, &predictions)?;
    } else {
        table(&predictions, &assumptions(&model, ranks), out)?;
        print::line(out, &figures.line())?;
    }
    if refused.is_empty() { Ok(()) } else { Err(Problem::failed("no prediction", refused.join("; "))) }
}

fn table(predictions: &[Prediction], assumptions: &str, out: &mut dyn Write) -> Result<()> {
    print::line(out, assumptions)?;
    let header = format!(
        "#{:<33} {:>6} {:>8} {:>14} {:>14} {:>14}",
        "algorithm", "rounds", "messages", "sent (B)", "reduced (B)", "predicted (us)"
    );
    print::line(out, &header)?;
    predictions.iter().try_for_each(|one| print::line(out, &one.line()))
}

/// Of `unisono calibrate -n 2`, rounded up; measured beside other work: 2.0 to 2.3 s.
const CALIBRATE_SECONDS: u32 = 3;

/// The figures of the cost model, and where they are from.
struct Figures {
    model: CostModel,
    whose: String,
    /// Whether nobody has measured or named any.
    are_built_in: bool,
}

impl Figures {
    /// The figures of the network that the arguments describe, else of `UNISONO_COST_MODEL`, else the built-in ones.
    fn asked_for(arguments: &PriceArguments, here: &FiguresHere) -> Result<Figures> {
        let &PriceArguments { ranks, alpha_us, beta_gb_per_s, gamma_gb_per_s, .. } = arguments;
        let MachineFigures { cost_model: here, built_in } = here(ranks)?;
        let are_built_in = built_in.is_some();
        let whose = match built_in {
            None => "UNISONO_COST_MODEL".to_owned(),
            Some(machine) => format!("built in, {machine}"),
        };
        let options = [
            ("--alpha-us", alpha_us),
            ("--beta-gb-per-s", beta_gb_per_s),
            ("--gamma-gb-per-s", gamma_gb_per_s),
        ];
        let (given, left): (Vec<_>, Vec<_>) = options.into_iter().partition(|(_, value)| value.is_some());
        if given.is_empty() {
            return Ok(Figures { model: here, whose, are_built_in });
        }
        let given: Vec<&str> = given.into_iter().map(|(name, _)| name).collect();
        let others = if left.is_empty() { String::new() } else { format!("; the others: {whose}") };
        // A GB/s is 1,000,000 fs per byte.
        let fs_per_byte = |gb_per_s: f64| (1e6 / gb_per_s).round() as u64;
        let model = CostModel {
            latency_ns: alpha_us.map_or(here.latency_ns, |alpha| (alpha * 1e3).round() as u64),
            wire_fs_per_byte: beta_gb_per_s.map_or(here.wire_fs_per_byte, fs_per_byte),
            reduce_fs_per_byte: gamma_gb_per_s.map_or(here.reduce_fs_per_byte, fs_per_byte),
            ..here.textbook()
        };
        Ok(Figures { model, whose: format!("{}{others}", given.join(", ")), are_built_in: false })
    }

    /// The last line of the table.
    fn line(&self) -> String {
        let own = match self.are_built_in {
            true => format!(
                "; for those of this machine, in about {CALIBRATE_SECONDS} s: \
                 export $(unisono calibrate -n 2 | tail -1)"
            ),
            false => String::new(),
        };
        format!("# figures: {}{own}", self.whose)
    }
}

fn assumptions(model: &CostModel, ranks: u32) -> String {
    let gb_per_s = |fs_per_byte: u64| 1e6 / fs_per_byte as f64;
    let alpha = model.latency_ns as f64 / 1e3;
    let beta = gb_per_s(model.wire_fs_per_byte);
    let gamma = gb_per_s(model.reduce_fs_per_byte);
    let processor = match (model.cpu_per_message_ns, model.cpu_fs_per_byte) {
        (0, 0) => "processor time not counted".to_owned(),
        (message, byte) => format!(
            "processor {:.2} us per message and {:.2} GB/s, {:.2} ranks per core",
            message as f64 / 1e3,
            gb_per_s(byte),
            model.ranks_per_core_thousandths.max(1_000) as f64 / 1e3
        ),
    };
    let noun = if ranks == 1 { "rank" } else { "ranks" };
    format!(
        "# {ranks} {noun}; alpha {alpha:.2} us, beta {beta:.2} GB/s, gamma {gamma:.2} GB/s, {processor}; \
         messages and bytes of the busiest rank"
    )
}
