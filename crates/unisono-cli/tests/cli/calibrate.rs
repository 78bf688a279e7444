//! `unisono calibrate`: what it prints is what `UNISONO_PRICES` takes.

use std::process::Command;

use serde_json::Value;

use crate::support::unisono;

/// The bench's prediction under these prices.
fn predicted_us(prices: &str, name: &str, bytes: &str) -> f64 {
    let priced = Command::new(env!("CARGO_BIN_EXE_unisono"))
        .args(["algo", "price", name, "--ranks", "2", "--bytes", bytes, "--json"])
        .env("UNISONO_PRICES", prices)
        .output()
        .unwrap();
    assert!(priced.status.success(), "{prices}: {}", String::from_utf8_lossy(&priced.stderr));
    let priced: Value = serde_json::from_slice(&priced.stdout).unwrap();
    priced[0]["predicted_us"].as_f64().unwrap()
}

#[test]
fn what_is_measured_has_its_spread_and_becomes_the_price() {
    let done = unisono(&["calibrate", "-n", "3", "--json"]);
    assert!(done.status.success(), "{}", done.err);
    let document: Value = serde_json::from_str(&done.out).unwrap();
    assert_eq!(document["pairs"], 2);
    let prices = document["prices"].as_array().unwrap();
    let line = document["line"].as_str().unwrap();
    for price in prices {
        let number = |field: &str| price[field].as_u64().unwrap();
        assert!(number("p10") <= number("median") && number("median") <= number("p90"), "{price}");
        let said = format!("{}={}", price["name"].as_str().unwrap(), number("median"));
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
    assert!(done.status.success() && done.out.contains("alpha") && done.out.contains("p90"), "{}", done.err);
    let prices = done.out.lines().last().unwrap().strip_prefix("UNISONO_PRICES=").unwrap();
    assert!(predicted_us(prices, "all_reduce/ring", "1M") > 0.0);
}
