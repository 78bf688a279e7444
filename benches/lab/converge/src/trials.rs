//! Trainings of `unisono demo`, and what it says about them.

use std::process::{Command, Stdio};

use serde::Deserialize;

use crate::{Arguments, Problem, Result};

/// What `unisono demo --json` prints; its other fields are not read.
#[derive(Debug, Deserialize)]
struct Document {
    compression: Vec<Trial>,
}

/// One training.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Trial {
    pub(crate) codec: String,
    pub(crate) test_accuracy: f64,
    pub(crate) seconds: f64,
    pub(crate) warmup_bytes: u64,
    pub(crate) bytes_on_wire: u64,
    pub(crate) weights_hash: Vec<Option<String>>,
    pub(crate) curve: Vec<CurvePoint>,
}

/// A part of a training.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct CurvePoint {
    /// Gradient bytes that all ranks had sent at its end.
    pub(crate) bytes: u64,
    /// The mean over its images.
    pub(crate) loss: f64,
}

/// All trainings so far.
#[derive(Debug, Default)]
pub(crate) struct Trials {
    pub(crate) all: Vec<Trial>,
}

impl Trials {
    /// Trains with this seed: exactly, and with every method that was asked for.
    pub(crate) fn run(&mut self, arguments: &Arguments, seed: u64) -> Result<()> {
        let mut command = Command::new(&arguments.program);
        command.args([
            "demo",
            "--json",
            "--ranks",
            &arguments.ranks.to_string(),
            "--seed",
            &seed.to_string(),
        ]);
        command.args(["--compress", &arguments.methods]);
        if let Some(folder) = &arguments.data {
            command.arg("--data").arg(folder);
        }
        // It also fails when a codec falls short of its own bounds; here means are judged.
        let output = command.stderr(Stdio::inherit()).output();
        let output = output.map_err(|error| Problem::new(arguments.program.display(), error))?;
        self.add(&output.stdout)
            .map_err(|error| Problem::new(format!("unisono demo ended with {}", output.status), error))
    }

    fn add(&mut self, document: &[u8]) -> std::result::Result<(), String> {
        let document: Document = serde_json::from_slice(document).map_err(|error| error.to_string())?;
        for trial in &document.compression {
            let mut hashes = trial.weights_hash.iter().flatten();
            let first = hashes.next().ok_or("a training without ranks")?;
            if hashes.any(|hash| hash != first) {
                return Err(format!("{}: the ranks' weights differ", trial.codec));
            }
        }
        self.all.extend(document.compression);
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// What the program prints, with fields that are not read.
    fn document(hashes: &str) -> String {
        format!(
            r#"{{"collectives": [], "recovery": null, "training": {{"epochs": 3}}, "compression": [{{
            "codec": "sign", "test_accuracy": 0.75, "seconds": 1.5, "warmup_steps": 2, "warmup_bytes": 40, "steps": 8,
            "bytes_on_wire": 10, "weights_hash": {hashes}, "recovery": null,
            "curve": [{{"step": 5, "bytes": 43, "loss": 2.5}}, {{"step": 10, "bytes": 50, "loss": 0.5}}]}}]}}"#
        )
    }

    #[test]
    fn a_document_is_read_and_ranks_that_drifted_apart_are_a_problem() {
        let mut trials = Trials::default();
        trials.add(document(r#"["a", "a", null]"#).as_bytes()).unwrap();
        let trial = &trials.all[0];
        assert_eq!((trial.codec.as_str(), trial.test_accuracy, trial.warmup_bytes), ("sign", 0.75, 40));
        assert_eq!((trial.curve[1].bytes, trial.curve[1].loss), (50, 0.5));
        let drifted = trials.add(document(r#"["a", "b"]"#).as_bytes());
        assert_eq!(drifted, Err("sign: the ranks' weights differ".to_owned()));
        assert!(trials.add(b"{}").is_err() && trials.add(document("[]").as_bytes()).is_err());
        assert_eq!(trials.all.len(), 1);
    }
}
