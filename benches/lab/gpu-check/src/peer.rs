//! The same encoder as operations of PyTorch in DeepSpeed's order, where there is a python3 with torch.

use std::io::Write;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::measure::Measured;

const SCRIPT: &str = include_str!("torch_sign_encode.py");

/// What the script prints.
#[derive(Deserialize, Serialize)]
pub(crate) struct Pytorch {
    torch: String,
    /// Which function packs bits: CuPy's as in DeepSpeed, or torch's own operations.
    packed_by: String,
    median_ms: f64,
    min_ms: f64,
    max_ms: f64,
    /// How many times as long as `sign_encode`.
    #[serde(default)]
    times_sign_encode: f64,
}

/// Runs the script, and prints what it has found; `None` after a line that says why not.
pub(crate) fn run(python: &str, elements: usize, device: u32, measured: &Measured) -> Option<Pytorch> {
    match ask(python, elements, device) {
        Ok(mut found) => {
            found.times_sign_encode = found.median_ms / measured.sign_encode_ms();
            println!(
                "\n{}, bits packed by {}, in DeepSpeed's order: {:.3} ms ({:.3} - {:.3}), {:.1} times sign_encode",
                found.torch,
                found.packed_by,
                found.median_ms,
                found.min_ms,
                found.max_ms,
                found.times_sign_encode
            );
            Some(found)
        }
        Err(why) => {
            println!("\nnot beside PyTorch: {why}");
            None
        }
    }
}

fn ask(python: &str, elements: usize, device: u32) -> Result<Pytorch, String> {
    let mut command = Command::new(python);
    command.args(["-", &elements.to_string(), &device.to_string()]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("{python}: {error}"))?;
    if let Some(mut input) = child.stdin.take() {
        // A script that ends early says why itself.
        let _ = input.write_all(SCRIPT.as_bytes());
    }
    let output = child.wait_with_output().map_err(|error| format!("{python}: {error}"))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{python}: {}", text.lines().last().unwrap_or("failed without a word")));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| format!("{python}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_said() {
        let missing = ask("/nowhere/python3", 1, 0).err();
        assert!(missing.is_some_and(|why| why.starts_with("/nowhere/python3: ")));
        // A shell is no python, and says so.
        assert!(ask("false", 1, 0).is_err());
    }
}
