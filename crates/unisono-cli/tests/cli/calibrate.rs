//! `unisono calibrate`: `UNISONO_COST_MODEL` takes its output.

use std::process::Command;

use serde_json::Value;

use crate::support::unisono;

/// The prediction of `unisono algo price` with this cost model.
fn predicted_us(cost_model: &str, name: &str, bytes: &str) -> f64 {
    let predicted = Command::new(env!("CARGO_BIN_EXE_unisono"))
        .args(["algo", "price", name, "--ranks", "2", "--bytes", bytes, "--json"])
        .env("UNISONO_COST_MODEL", cost_model)
        .output()
        .unwrap();
    assert!(predicted.status.success(), "{cost_model}: {}", String::from_utf8_lossy(&predicted.stderr));
    let predicted: Value = serde_json::from_slice(&predicted.stdout).unwrap();
    predicted[0]["predicted_us"].as_f64().unwrap()
}

#[test]
fn what_is_measured_has_its_spread_and_becomes_the_cost_model() {
    let done = unisono(&["calibrate", "-n", "3", "--json"]);
    assert!(done.status.success(), "{}", done.err);
    let document: Value = serde_json::from_str(&done.out).unwrap();
    assert_eq!(document["pairs"], 2);
    let parameters = document["parameters"].as_array().unwrap();
    let line = document["line"].as_str().unwrap();
    for parameter in parameters {
        let number = |field: &str| parameter[field].as_u64().unwrap();
        assert!(number("p10") <= number("median") && number("median") <= number("p90"), "{parameter}");
        let said = format!("{}={}", parameter["name"].as_str().unwrap(), number("median"));
        assert!(line.split(',').any(|part| part == said), "{said} in {line}");
    }
    let alpha_us = document["alpha_us"].as_f64().unwrap();
    assert!(alpha_us > 0.0 && document["beta_gb_per_s"].as_f64().unwrap() > 0.0, "{document}");
    // One hop of one byte is the latency, unless a core has more to do than to wait for it.
    assert!(predicted_us(line, "broadcast/binomial", "1") >= alpha_us, "{line}");
    assert!(predicted_us(line, "broadcast/binomial", "1G") > predicted_us(line, "broadcast/binomial", "1M"));
}

#[test]
fn the_last_line_is_for_the_shell() {
    let done = unisono(&["calibrate"]);
    assert!(done.err.is_empty(), "no bar without a terminal: {}", done.err);
    assert!(done.status.success() && done.out.contains("alpha") && done.out.contains("p90"), "{}", done.err);
    let cost_model = done.out.lines().last().unwrap().strip_prefix("UNISONO_COST_MODEL=").unwrap();
    assert!(predicted_us(cost_model, "all_reduce/ring", "1M") > 0.0);
}
