//! What the trainings come to: a line for each method, and whether it reaches its goal.

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::trials::{Trial, Trials};
use crate::{Arguments, Problem, Result};

/// The method with exact gradients, with which the others are compared.
const EXACT: &str = "none";

/// By how many points the mean accuracy of a method may be below the exact one. The others are there to show what
/// happens without error feedback and without 1-bit Adam.
const GOALS: &[(&str, f64)] = &[("sign", 1.0), ("int8", 0.5), ("int4", 1.0), ("bf16", 0.5)];

/// The mean, the least and the largest.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Summary {
    pub(crate) mean: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Summary {
    fn of(values: &[f64]) -> Summary {
        let min = values.iter().copied().fold(f64::INFINITY, f64::min);
        let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Summary { mean: values.iter().sum::<f64>() / values.len() as f64, min, max }
    }
}

/// A point of the mean curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct MeanPoint {
    pub(crate) bytes: u64,
    pub(crate) loss: f64,
}

/// One method, over all seeds.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Line {
    pub(crate) codec: String,
    /// In per cent.
    pub(crate) test_accuracy: Summary,
    /// The exact mean less this mean, in points.
    pub(crate) shortfall: f64,
    /// The most it may be; null for a method that is there to be worse.
    pub(crate) shortfall_max: Option<f64>,
    pub(crate) seconds: Summary,
    pub(crate) warmup_bytes: u64,
    pub(crate) bytes_on_wire: u64,
    pub(crate) curve: Vec<MeanPoint>,
}

impl Line {
    fn is_good(&self) -> bool {
        self.shortfall_max.is_none_or(|most| self.shortfall <= most)
    }
}

/// All of it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Report {
    /// Where the data set was; null for the digits.
    pub(crate) data: Option<String>,
    pub(crate) ranks: u32,
    pub(crate) seeds: u64,
    pub(crate) methods: Vec<Line>,
}

impl Report {
    pub(crate) fn of(arguments: &Arguments, trials: &Trials) -> Report {
        let mut codecs: Vec<&str> = Vec::new();
        for trial in &trials.all {
            if !codecs.contains(&trial.codec.as_str()) {
                codecs.push(&trial.codec);
            }
        }
        let of = |codec: &str| trials.all.iter().filter(|trial| trial.codec == codec).collect::<Vec<_>>();
        let exact = accuracy(&of(EXACT)).mean;
        Report {
            data: arguments
                .data
                .as_ref()
                .and_then(|folder| Some(folder.file_name()?.to_string_lossy().into_owned())),
            ranks: arguments.ranks,
            seeds: arguments.seeds,
            methods: codecs.iter().map(|codec| line(codec, &of(codec), exact)).collect(),
        }
    }

    /// What [`Report::json`] has made.
    pub(crate) fn read(file: &Path) -> Result<Report> {
        let text = std::fs::read_to_string(file).map_err(|error| Problem::new(file.display(), error))?;
        serde_json::from_str(&text).map_err(|error| Problem::new(file.display(), error))
    }

    pub(crate) fn is_good(&self) -> bool {
        self.methods.iter().all(Line::is_good)
    }

    pub(crate) fn json(&self) -> Result<String> {
        serde_json::to_string_pretty(self).map_err(|error| Problem::new("the report", error))
    }

    pub(crate) fn title(&self) -> String {
        let data = self.data.as_deref().unwrap_or("handwritten digits");
        format!("{data}, {} ranks, {} seeds", self.ranks, self.seeds)
    }
}

fn accuracy(trials: &[&Trial]) -> Summary {
    Summary::of(&trials.iter().map(|trial| trial.test_accuracy * 100.0).collect::<Vec<_>>())
}

fn line(codec: &str, trials: &[&Trial], exact: f64) -> Line {
    let test_accuracy = accuracy(trials);
    // All seeds send the same bytes at the same steps.
    let first = trials[0];
    let point = |index: usize| {
        let losses = trials.iter().map(|trial| trial.curve[index].loss).sum::<f64>();
        MeanPoint { bytes: first.curve[index].bytes, loss: losses / trials.len() as f64 }
    };
    let points = trials.iter().map(|trial| trial.curve.len()).min().unwrap_or(0);
    Line {
        codec: codec.to_owned(),
        test_accuracy,
        shortfall: exact - test_accuracy.mean,
        shortfall_max: GOALS.iter().find(|(name, _)| *name == codec).map(|(_, most)| *most),
        seconds: Summary::of(&trials.iter().map(|trial| trial.seconds).collect::<Vec<_>>()),
        warmup_bytes: first.warmup_bytes,
        bytes_on_wire: first.bytes_on_wire,
        curve: (0..points).map(point).collect(),
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}; accuracy in per cent of the test images; bytes of gradients, all ranks together\n",
            self.title()
        )?;
        writeln!(
            f,
            "| method | accuracy | least | most | below none | goal | warm-up MB | MB after it | seconds |"
        )?;
        writeln!(f, "| --- | ---: | ---: | ---: | ---: | --- | ---: | ---: | ---: |")?;
        for line in &self.methods {
            let Line { codec, test_accuracy: Summary { mean, min, max }, shortfall, seconds, .. } = line;
            let (warmup, after) = (line.warmup_bytes as f64 / 1e6, line.bytes_on_wire as f64 / 1e6);
            let goal = line.shortfall_max.map_or("none".to_owned(), |most| {
                format!("at most {most:.1}: {}", if line.is_good() { "reached" } else { "MISSED" })
            });
            writeln!(
                f,
                "| {codec} | {mean:.2} | {min:.2} | {max:.2} | {shortfall:.2} | {goal} | {warmup:.1} | {after:.1} \
                 | {:.1} |",
                seconds.mean
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::trials::CurvePoint;

    fn trial(codec: &str, test_accuracy: f64, bytes: u64) -> Trial {
        let point = |part: u64| CurvePoint { bytes: bytes * part, loss: test_accuracy / part as f64 };
        Trial {
            codec: codec.to_owned(),
            test_accuracy,
            seconds: 2.0,
            warmup_bytes: 1_000_000,
            bytes_on_wire: bytes,
            weights_hash: vec![Some("a".to_owned())],
            curve: (1..=4).map(point).collect(),
        }
    }

    pub(crate) fn report(sign: f64) -> Report {
        let arguments = Arguments {
            data: Some(PathBuf::from("/x/fashion-mnist")),
            program: PathBuf::new(),
            ranks: 4,
            seeds: 2,
            methods: String::new(),
            report: None,
            json: PathBuf::new(),
            plot: PathBuf::new(),
        };
        let one = |codec, low, high, bytes| [trial(codec, low, bytes), trial(codec, high, bytes)];
        let all = [
            one("none", 0.85, 0.87, 4_000_000),
            one("sign", sign - 0.01, sign + 0.01, 130_000),
            one("sign-gradient", 0.8, 0.8, 130_000),
        ];
        Report::of(&arguments, &Trials { all: all.concat() })
    }

    #[test]
    fn means_are_compared_and_only_methods_with_a_goal_are_judged() {
        let good = report(0.8501);
        assert!(good.is_good(), "{good}");
        let sign = &good.methods[1];
        assert!((sign.shortfall - 0.99).abs() < 1e-9 && sign.shortfall_max == Some(1.0), "{sign:?}");
        assert!(
            (sign.test_accuracy.min - 84.01).abs() < 1e-9 && (sign.test_accuracy.max - 86.01).abs() < 1e-9
        );
        assert_eq!(sign.curve[1].bytes, 260_000);
        assert!((sign.curve[1].loss - 0.42505).abs() < 1e-9);
        let missed = report(0.849);
        assert!(!missed.is_good() && missed.to_string().contains("MISSED"), "{missed}");
        assert_eq!(missed.methods[2].shortfall_max, None);
    }

    #[test]
    fn the_table_and_the_document_say_the_same() {
        let report = report(0.855);
        let text = report.to_string();
        assert!(text.starts_with("fashion-mnist, 4 ranks, 2 seeds"), "{text}");
        let line = "| sign | 85.50 | 84.50 | 86.50 | 0.50 | at most 1.0: reached | 1.0 | 0.1 | 2.0 |";
        assert!(text.contains(line), "{text}");
        let document: serde_json::Value = serde_json::from_str(&report.json().unwrap()).unwrap();
        assert_eq!(document["methods"][1]["bytes_on_wire"], 130_000);
        assert_eq!(document["methods"][2]["shortfall_max"], serde_json::Value::Null);
        let again: Report = serde_json::from_value(document).unwrap();
        assert_eq!(again.to_string(), text);
    }
}
