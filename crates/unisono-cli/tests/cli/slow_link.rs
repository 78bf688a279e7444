//! `unisono bench` between two hosts with a slow link. Needs root and iproute2.

use std::path::Path;
use std::process::{Child, Stdio};

use serde_json::Value;

use crate::network::Network;

const BITS_PER_S: u64 = 200_000_000;
const BYTES: u64 = 2 << 20;

/// No time is asserted but the least that the link allows.
#[test]
fn a_compressed_call_over_a_slow_link_is_right_and_an_exact_one_is_not_faster_than_the_link() {
    let Some(network) = Network::or_skip(2) else { return };
    network.shape(BITS_PER_S).unwrap();
    let start = |rank: usize| -> Child {
        let mut command = network.rank((rank, 0), (rank, 2), Path::new(env!("CARGO_BIN_EXE_unisono")));
        command
            .args(["bench", "all_reduce,compressed_all_reduce", "--codec", "sign,int8", "--json"])
            .args(["--sizes", &BYTES.to_string()])
            .stdout(Stdio::piped());
        command.spawn().unwrap()
    };
    let ranks = [0, 1].map(start);
    let [first, second] = ranks.map(|rank| rank.wait_with_output().unwrap());
    assert!(first.status.success() && second.status.success());
    let rows: Vec<Value> = serde_json::from_slice(&first.stdout).unwrap();
    assert_eq!(rows.len(), 3);
    assert!(rows.iter().all(|row| row["wrong"] == 0), "{rows:?}");
    // Half of the bytes leave a rank twice. The burst that the token bucket lets pass at once is less than a tenth of
    // them.
    let least_us = BYTES as f64 * 8.0 / BITS_PER_S as f64 * 1e6 * 0.9;
    assert!(rows[0]["min_us"].as_f64().unwrap() > least_us, "{rows:?}");
}
