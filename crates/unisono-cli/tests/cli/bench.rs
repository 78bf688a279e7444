//! `unisono bench` between processes, its rows and its dumps judged from outside.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::{Finished, operations, unisono};

fn rows(done: &Finished) -> Vec<Value> {
    assert!(done.status.success(), "{}", done.err);
    serde_json::from_str(&done.out).expect("one document")
}

fn number(row: &Value, field: &str) -> f64 {
    row[field].as_f64().unwrap_or_else(|| panic!("{field} in {row}"))
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
}

#[test]
fn j2_every_operation_is_right_between_three_ranks_and_the_arithmetic_of_its_row_holds() {
    let done = unisono(&["bench", &operations().join(","), "-np", "3", "--sizes", "0,100,10Ki", "--json"]);
    let rows = rows(&done);
    assert_eq!(rows.len(), 11 * 3 + 1);
    for row in &rows {
        let op = row["op"].as_str().unwrap();
        assert_eq!((&row["wrong"], &row["ranks"]), (&0.into(), &3.into()), "{row}");
        let shared = ["reduce_scatter", "all_gather", "all_to_all", "gather", "scatter"].contains(&op);
        let bytes = if shared { [0, 96, 10_236] } else { [0, 100, 10_240] };
        assert!(op == "barrier" || bytes.contains(&row["bytes"].as_u64().unwrap()), "{row}");
        let factor = match op {
            "all_reduce" => 4.0 / 3.0,
            _ if shared => 2.0 / 3.0,
            _ => 1.0,
        };
        let algbw = number(row, "bytes") / number(row, "median_us") / 1e3;
        assert!(close(number(row, "algbw_gb_per_s"), algbw), "{row}");
        assert!(close(number(row, "busbw_gb_per_s"), algbw * factor), "{row}");
        assert!(number(row, "min_us") > 0.0 && number(row, "min_us") <= number(row, "median_us"), "{row}");
        let redop =
            ["all_reduce", "reduce_scatter", "reduce", "scan", "exscan"].contains(&op).then_some("sum");
        assert_eq!(row["redop"].as_str(), redop, "{row}");
    }
}

/// A row for each form that an operation has.
#[test]
fn j1_every_form_is_right_between_three_ranks() {
    let ops = "all_reduce,reduce_scatter,all_gather,gather,sendrecv";
    let forms = "plain,v,list,coalesced,prepared,async,objects,exchange";
    let done = unisono(&["bench", ops, "-np", "3", "--sizes", "100,10Ki", "--form", forms, "--json"]);
    let rows = rows(&done);
    let named = |op: &str| rows.iter().filter(|row| row["op"].as_str() == Some(op)).count();
    assert_eq!(["all_gather", "all_gather_v", "all_gather_list", "all_gather_prepared"].map(named), [2; 4]);
    assert_eq!(
        ["all_reduce_coalesced", "reduce_scatter_v", "gather_async", "gather_objects", "sendrecv_objects"]
            .map(named),
        [2; 5]
    );
    assert_eq!(rows.len(), 2 * (4 + 5 + 6 + 6 + 3));
    assert!(rows.iter().all(|row| row["wrong"] == 0), "{rows:?}");
    assert!(rows.iter().all(|row| number(row, "p99_us") >= number(row, "p50_us")), "{rows:?}");
    let refused = unisono(&["bench", "barrier", "-np", "2", "--form", "v"]);
    assert!(refused.err.contains("--form v: none of the operations has it"), "{}", refused.err);
}

#[test]
fn j2_other_types_and_operators_are_right_too() {
    for (dtype, op) in [
        ("f16", "avg"),
        ("bf16", "prod"),
        ("f8e4m3", "sum"),
        ("f8e5m2", "avg"),
        ("complex64", "prod"),
        ("complex128", "avg"),
        ("i8", "min"),
        ("u64", "bit_xor"),
        ("bool", "max"),
    ] {
        let operations = "all_reduce,reduce_scatter,reduce,all_gather";
        let arguments =
            ["bench", operations, "-n", "3", "--sizes", "1000", "--dtype", dtype, "--op", op, "--json"];
        for row in rows(&unisono(&arguments)) {
            assert_eq!((&row["wrong"], row["dtype"].as_str()), (&0.into(), Some(dtype)), "{row}");
        }
    }
}

#[test]
fn compressed_calls_are_right_for_every_codec_size_and_number_of_ranks() {
    let codecs = ["sign", "sign-rms", "int8", "int4", "bf16"];
    for ranks in ["2", "3"] {
        let words = ["bench", "all_reduce,compressed_all_reduce", "--codec", &codecs.join(","), "-n", ranks];
        let rows = rows(&unisono(&[&words[..], &["--sizes", "0,4,4K,1M", "--json"]].concat()));
        assert_eq!(rows.len(), 4 + 4 * codecs.len());
        assert!(rows[..4].iter().all(|row| row.get("codec").is_none() && row["op"] == "all_reduce"));
        for (row, place) in rows[4..].iter().zip(0..) {
            assert_eq!((&row["wrong"], &row["op"]), (&0.into(), &"compressed_all_reduce".into()), "{row}");
            let codec = codecs[place % codecs.len()];
            assert_eq!((row["codec"].as_str(), row["redop"].as_str()), (Some(codec), Some("avg")), "{row}");
            let (bytes, wire, error) =
                (number(row, "bytes"), number(row, "wire_bytes"), number(row, "relative_error"));
            assert_eq!(row["parts"], Value::Null);
            if bytes == f64::from(1 << 20) {
                let others = f64::from(ranks.parse::<u32>().unwrap() - 1);
                let bits = wire * 8.0 / (2.0 * others * bytes / 4.0);
                let (expected_bits, error_max) = match codec {
                    "sign" | "sign-rms" => (1.0..1.1, 1.0),
                    "int8" => (8.0..8.3, 0.02),
                    "int4" => (4.0..4.3, 0.25),
                    _ => (16.0..16.1, 0.005),
                };
                assert!(expected_bits.contains(&bits) && error > 0.0 && error < error_max, "{row}");
            }
        }
    }
}

/// Four ranks on two hosts, as they say themselves.
#[test]
fn compressed_calls_are_right_by_every_route_between_hosts() {
    let program = env!("CARGO_BIN_EXE_unisono");
    let of_rank = |bench: &str| {
        let script = format!("UNISONO_HOST_ID=host$((RANK / 2)) exec {program} bench {bench} --json");
        let done = unisono(&["run", "-n", "4", "--tag-output", "off", "--", "sh", "-c", &script]);
        rows(&done)
    };
    let sizes = "--sizes 0,40,100K,1M";
    let all_reduces =
        of_rank(&format!("compressed_all_reduce --codec int8,int4 --route direct,two-levels,summed {sizes}"));
    let scatters = of_rank(&format!(
        "compressed_reduce_scatter --codec sign,int8,bf16 --route two-levels,direct {sizes}"
    ));
    assert_eq!((all_reduces.len(), scatters.len()), (4 * 6, 4 * 7));
    assert!(all_reduces.iter().chain(&scatters).all(|row| row["wrong"] == 0), "{all_reduces:?} {scatters:?}");
    let bytes = |rows: &[Value], codec: &str, route: &str| {
        let row = rows.iter().rev().find(|row| row["codec"] == codec && row["route"] == route);
        number(row.unwrap_or_else(|| panic!("{codec} by {route}")), "wire_bytes")
    };
    let (exact, two) = (bytes(&scatters, "exact", "two levels"), bytes(&scatters, "int8", "two levels"));
    assert!(two < 0.27 * exact && bytes(&scatters, "int8", "direct") == 2.0 * two);
    let direct = bytes(&all_reduces, "int4", "direct");
    assert!(bytes(&all_reduces, "int4", "two levels") < 0.7 * direct);
}

#[test]
fn the_parts_of_a_compressed_call_are_measured_on_request() {
    let words = ["bench", "compressed_all_reduce", "-n", "2", "--sizes", "64K", "--parts"];
    let rows = rows(&unisono(&[&words[..], &["--json"]].concat()));
    for part in ["encode_us", "exchange_us", "reduce_us", "expand_us"] {
        assert!(number(&rows[0]["parts"], part) > 0.0, "{rows:?}");
    }
    let done = unisono(&words);
    assert!(done.out.contains("B on the wire, relative error of one call 0."), "{}", done.out);
    assert!(done.out.contains("; alone, us: encode "), "{}", done.out);
}

/// The definition of the codec again, from the files alone.
///
/// Rows: G3
#[test]
fn a_dumped_compressed_call_can_be_judged_from_outside() {
    const BLOCK: usize = 1024;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let words = ["bench", "compressed_all_reduce", "-n", "2", "--sizes", "10000", "--dump", path, "--json"];
    assert_eq!(rows(&unisono(&words)).len(), 1);
    let call: Value =
        serde_json::from_slice(&std::fs::read(folder.path().join("0/call.json")).unwrap()).unwrap();
    assert_eq!((&call["op"], &call["codec"]), (&"compressed_all_reduce".into(), &"sign".into()));
    assert_eq!((&call["redop"], &call["count"]), (&"avg".into(), &2500.into()));
    let words = |rank: u32, side: &str| -> Vec<u32> {
        let bytes = std::fs::read(folder.path().join(format!("0/rank{rank}.{side}"))).unwrap();
        bytes.chunks_exact(4).map(bytemuck::pod_read_unaligned).collect()
    };
    let floats =
        |rank: u32, side: &str| words(rank, side).into_iter().map(f32::from_bits).collect::<Vec<_>>();
    for rank in 0..2 {
        let (input, residual, encoded) =
            (floats(rank, "in"), floats(rank, "residual"), words(rank, "encoded"));
        let blocks = input.len().div_ceil(BLOCK);
        assert_eq!(
            (input.len(), residual.len(), encoded.len()),
            (2500, 2500, blocks + 2500_usize.div_ceil(32))
        );
        let (scales, bits) = encoded.split_at(blocks);
        for (index, (value, left)) in input.iter().zip(&residual).enumerate() {
            let block = &input[index / BLOCK * BLOCK..input.len().min((index / BLOCK + 1) * BLOCK)];
            let mean = block.iter().map(|x| f64::from(x.abs())).sum::<f64>() / block.len() as f64;
            let scale = f32::from_bits(scales[index / BLOCK]);
            assert!((f64::from(scale) - mean).abs() < 1e-6, "{scale} {mean}");
            let is_plus = bits[index / 32] >> (index % 32) & 1 == 1;
            assert_eq!(is_plus, *value >= 0.0);
            assert_eq!(*left, if is_plus { value - scale } else { value + scale });
        }
        assert_eq!(words(rank, "out"), words(0, "out"));
    }
}

#[test]
fn a_forced_algorithm_is_the_one_that_runs() {
    let list = unisono(&["algo", "list", "--json"]);
    let list: Vec<Value> = serde_json::from_str(&list.out).unwrap();
    let all_reduce: Vec<_> = list.iter().filter(|one| one["collective"] == "all_reduce").collect();
    for name in all_reduce.iter().map(|one| one["name"].as_str().unwrap()) {
        let arguments = ["bench", "all_reduce", "-n", "2", "--sizes", "4K", "--algorithm", name, "--json"];
        let rows = rows(&unisono(&arguments));
        assert_eq!((rows[0]["algorithm"].as_str(), &rows[0]["wrong"]), (Some(name), &0.into()));
    }
}

#[test]
fn a_list_of_algorithms_is_measured_in_turns() {
    let arguments = [
        "bench",
        "all_reduce,broadcast",
        "-n",
        "2",
        "--sizes",
        "4K",
        "--algorithm",
        "binomial,binomial,k_nomial_4",
    ];
    let rows = rows(&unisono(&[&arguments[..], &["--json"]].concat()));
    let measured: Vec<_> =
        rows.iter().map(|row| (row["op"].as_str().unwrap(), row["algorithm"].as_str().unwrap())).collect();
    let [one, other] = ["binomial", "k_nomial_4"];
    let expected = [("all_reduce", one), ("all_reduce", other), ("broadcast", one), ("broadcast", other)];
    assert_eq!(measured, expected);
    for pair in rows.chunks(2) {
        let best = number(&pair[0], "median_us").min(number(&pair[1], "median_us"));
        assert!(
            pair.iter().all(|row| close(number(row, "times_best"), number(row, "median_us") / best)),
            "{pair:?}"
        );
    }
}

#[test]
fn what_a_size_or_one_rank_means_is_said_above_the_table() {
    let done = unisono(&["bench", "all_gather", "-n", "2", "--sizes", "0,7"]);
    assert!(
        done.out.starts_with("# all_gather: 7 B is measured as 0 B; its least size here is 8 B\n"),
        "{}",
        done.out
    );
    let done = unisono(&["bench", "all_reduce", "-n", "1", "--sizes", "64"]);
    assert!(done.out.starts_with("# one rank: nothing is sent"), "{}", done.out);
}

#[test]
fn a_picture_has_a_line_for_every_algorithm() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.svg");
    let path = path.to_str().unwrap();
    let bench = ["bench", "all_reduce", "-n", "2", "--sizes", "64,4K"];
    let done = unisono(&[&bench[..], &["--algorithm", "ring,direct", "--plot", path]].concat());
    assert!(done.status.success() && done.err.is_empty(), "{}", done.err);
    let picture = std::fs::read_to_string(path).unwrap();
    assert!(picture.starts_with("<svg ") && picture.trim_end().ends_with("</svg>"), "{picture}");
    for word in ["2 ranks, f32 sum", "all_reduce", "ring", "direct", "time, us", "size, bytes", "64 B", "4 K"]
    {
        assert!(picture.contains(word), "{word} in {picture}");
    }
    for (file, operation) in
        [("/dev/null/x.svg", "all_reduce"), ("/dev/full", "all_reduce"), (path, "barrier")]
    {
        let done = unisono(&["bench", operation, "-n", "2", "--sizes", "64", "--plot", file]);
        assert!(!done.status.success() && done.err.contains(&format!("--plot {file}: ")), "{}", done.err);
    }
}

#[test]
fn a_name_fixes_how_many_ranks_lead() {
    let mut predicted = Vec::new();
    for name in ["leaders:1", "leaders:3"] {
        let arguments = ["bench", "all_reduce", "-n", "6", "--sizes", "4K", "--algorithm", name, "--json"];
        let rows = rows(&unisono(&arguments));
        assert_eq!((rows[0]["algorithm"].as_str(), &rows[0]["wrong"]), (Some(name), &0.into()));
        predicted.push(number(&rows[0], "predicted_us"));
    }
    assert_ne!(predicted[0], predicted[1]);
    for (name, said) in
        [("leaders:4", "at most 3 of them can lead"), ("ring:2", "only leaders takes a number")]
    {
        let refused = unisono(&["bench", "all_reduce", "-n", "6", "--sizes", "4K", "--algorithm", name]);
        assert!(refused.status.code() == Some(2) && refused.err.contains(said), "{}", refused.err);
    }
}

#[test]
fn all_algorithms_are_measured_against_each_other_and_the_pick_is_the_one_that_runs_by_itself() {
    let common = ["bench", "all_reduce,reduce,sendrecv", "-n", "3", "--sizes", "8K", "--json"];
    let all = rows(&unisono(&[&common[..], &["--algorithm", "all"]].concat()));
    let alone = rows(&unisono(&common));
    assert!(alone.iter().all(|row| row["chosen"] == true && row["times_best"].is_null()));
    for by_itself in &alone {
        let cell =
            || all.iter().filter(|row| row["op"] == by_itself["op"] && row["bytes"] == by_itself["bytes"]);
        let chosen: Vec<_> = cell().filter(|row| row["chosen"] == true).collect();
        assert_eq!(chosen.len(), 1, "{by_itself}");
        assert_eq!(chosen[0]["algorithm"], by_itself["algorithm"]);
        let predicted = |row: &Value| row["predicted_us"].as_f64();
        assert_eq!(predicted(chosen[0]), predicted(by_itself), "{by_itself}");
        assert_eq!(predicted(by_itself).is_some(), by_itself["op"] != "sendrecv", "{by_itself}");
        let best = cell().map(|row| number(row, "median_us")).fold(f64::INFINITY, f64::min);
        for row in cell() {
            assert_eq!(row["wrong"], 0, "{row}");
            assert!(close(number(row, "times_best"), number(row, "median_us") / best), "{row}");
        }
    }
    let list = unisono(&["algo", "list", "--json"]);
    let list: Vec<Value> = serde_json::from_str(&list.out).unwrap();
    // On three ranks all algorithms run that do not need a power of two.
    let needs = |one: &Value| one["requires"].as_array().unwrap().contains(&"a power of two of ranks".into());
    for one in list.iter().filter(|one| one["collective"] == "all_reduce" && !needs(one)) {
        let measured = all.iter().filter(|row| row["op"] == "all_reduce" && row["algorithm"] == one["name"]);
        assert_eq!(measured.count(), 1, "{}", one["name"]);
    }
}

#[test]
fn all_algorithms_end_with_a_line_that_counts_the_good_picks() {
    for (ranks, cells) in [("1", "of 3"), ("2", "of 2")] {
        let operations = if ranks == "1" { "all_reduce,all_gather,barrier" } else { "barrier,sendrecv" };
        let arguments = ["bench", operations, "-n", ranks, "--sizes", "64", "--algorithm", "all"];
        let done = unisono(&arguments);
        assert!(done.status.success(), "{}", done.err);
        let last = done.out.lines().last().unwrap();
        assert!(
            last.starts_with("# pick (*) within 1.25 of best: ") && last.ends_with(cells),
            "{}",
            done.out
        );
    }
}

/// The vector is 64 MiB; the rest of a rank's memory is at most a quarter of that.
#[test]
fn extra_memory_is_what_a_rank_needs_beside_the_buffers() {
    let arguments = ["bench", "all_reduce,all_gather", "-n", "2", "--sizes", "64M,64", "--json"];
    for row in rows(&unisono(&arguments)) {
        // Where the system keeps no mark that can be set back, nothing is claimed.
        let is_known = Path::new("/proc/self/clear_refs").exists();
        assert_eq!(row["extra_rss_mib"].is_number(), is_known, "{row}");
        let extra = row["extra_rss_mib"].as_f64().unwrap_or(1.0);
        assert!(extra > 0.0 && extra <= 16.0, "{row}");
    }
}

#[test]
fn without_a_number_of_ranks_it_joins_its_job_or_starts_two() {
    let alone = rows(&unisono(&["bench", "all_reduce", "--sizes", "64", "--json"]));
    assert_eq!(alone[0]["ranks"], 2);
    let program = env!("CARGO_BIN_EXE_unisono");
    let done = unisono(&["run", "-n", "3", "--", program, "bench", "all_reduce", "--sizes", "64", "--json"]);
    assert!(done.out.lines().all(|line| line.starts_with("[0] ")), "only rank 0 speaks: {}", done.out);
    let out = done.out.lines().map(|line| &line[4..]).collect::<Vec<_>>().join("\n");
    assert_eq!(rows(&Finished { out, ..done })[0]["ranks"], 3);
}

#[test]
fn a_rank_that_fails_is_named_and_gives_its_status() {
    let done = unisono(&["bench", "all_reduce", "-n", "2", "--dump", "/dev/null/nowhere", "--json"]);
    assert_eq!(done.status.code(), Some(1));
    assert!(done.out.is_empty(), "{}", done.out);
    assert!(done.err.contains("--dump") && done.err.contains("exited with status 1"), "{}", done.err);
}

/// The numbers of a dumped buffer.
fn numbers(folder: &Path, file: &str) -> Vec<i32> {
    let bytes = std::fs::read(folder.join(file)).unwrap();
    bytes.as_chunks::<4>().0.iter().map(|&number| i32::from_le_bytes(number)).collect()
}

/// The values that each rank must hold in the end, from the inputs of all: the definitions once more, from the files
/// alone.
fn judge(op: &str, root: Option<usize>, inputs: &[Vec<i32>]) -> Vec<Vec<i32>> {
    let ranks = inputs.len();
    let columns = |rows: &[Vec<i32>]| -> Vec<i32> {
        (0..rows[0].len()).map(|i| rows.iter().fold(0i32, |sum, row| sum.wrapping_add(row[i]))).collect()
    };
    let share =
        |row: &[i32], rank: usize| row[row.len() / ranks * rank..row.len() / ranks * (rank + 1)].to_vec();
    (0..ranks)
        .map(|rank| match op {
            "all_reduce" => columns(inputs),
            "scan" => columns(&inputs[..=rank]),
            "exscan" if rank > 0 => columns(&inputs[..rank]),
            "reduce" if root == Some(rank) => columns(inputs),
            "reduce_scatter" => share(&columns(inputs), rank),
            "all_gather" => inputs.concat(),
            "gather" if root == Some(rank) => inputs.concat(),
            "reduce" | "gather" | "barrier" | "exscan" => Vec::new(),
            "all_to_all" => (0..ranks).flat_map(|from| share(&inputs[from], rank)).collect(),
            "broadcast" => inputs[root.unwrap()].clone(),
            "scatter" => share(&inputs[root.unwrap()], rank),
            // The third of three has no partner.
            "sendrecv" => inputs.get(rank ^ 1).cloned().unwrap_or_default(),
            _ => panic!("{op}"),
        })
        .collect()
}

#[test]
fn j2_dumps_can_be_judged_by_someone_else() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().display().to_string();
    let arguments = [
        "bench",
        &operations().join(","),
        "-n",
        "3",
        "--sizes",
        "1K",
        "--dtype",
        "i32",
        "--dump",
        &directory,
        "--json",
    ];
    let rows = rows(&unisono(&arguments));
    assert_eq!(rows.len(), operations().len());
    for (index, row) in rows.iter().enumerate() {
        let folder = folder.path().join(index.to_string());
        let call: Value = serde_json::from_slice(&std::fs::read(folder.join("call.json")).unwrap()).unwrap();
        let op = call["op"].as_str().unwrap();
        assert_eq!((&call["op"], &call["redop"]), (&row["op"], &row["redop"]));
        assert_eq!(call["ranks"], 3);
        let read = |side: &str| -> Vec<Vec<i32>> {
            (0..3).map(|rank| numbers(&folder, &format!("rank{rank}.{side}"))).collect()
        };
        let root = call["root"].as_u64().map(|root| root as usize);
        assert_eq!(root.is_some(), ["broadcast", "reduce", "gather", "scatter"].contains(&op), "{call}");
        let inputs = read("in");
        let length = inputs.iter().map(Vec::len).max().unwrap() as u64;
        let shares = if ["all_to_all", "reduce_scatter", "scatter"].contains(&op) { 3 } else { 1 };
        assert_eq!(call["count"].as_u64().unwrap() * shares, length, "{call}");
        assert_eq!(read("out"), judge(op, root, &inputs), "{call}");
    }
}

/// The first lines of `bench kernels`, and the status after its reader has gone.
fn first_lines_of_kernels(arguments: &[&str], lines: usize) -> (Vec<String>, Option<i32>) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_unisono"))
        .args(["bench", "kernels"])
        .args(arguments)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    let lines = out.lines().take(lines).map(|line| line.unwrap()).collect();
    (lines, child.wait().unwrap().code())
}

#[test]
fn kernels_are_printed_one_by_one_and_end_with_their_reader() {
    let json = std::thread::spawn(|| first_lines_of_kernels(&["--json"], 1));
    let (lines, status) = first_lines_of_kernels(&["--target", "portable"], 4);
    let columns: Vec<_> = lines[2].split_whitespace().collect();
    assert_eq!(columns, ["kernel", "target", "elements", "gelem_s", "memcpy_gelem_s", "ratio"]);
    let row: Vec<_> = lines[3].split_whitespace().collect();
    assert_eq!((row.len(), &row[..3]), (6, &["sign_encode", "portable", "32768"][..]));
    assert_eq!(status, Some(0));
    let (lines, status) = json.join().unwrap();
    let row: Value = serde_json::from_str(lines[0].strip_prefix('[').unwrap()).unwrap();
    assert!(row["kernel"] == "sign_encode" && number(&row, "gelem_s") > 0.0, "{row}");
    assert_eq!(status, Some(0));
}
