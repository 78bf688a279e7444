//! The backend of calls, by the settings and options of the program, and the environment of ranks for a vendor's
//! library.

use std::path::Path;

use serde_json::Value;
use unisono::{Collectives, Peer, ReduceOp};
use unisono_tests::ccl::ccl_directory;
use unisono_tests::cuda::{kernels_for_host, nvrtc_file};
use unisono_tests::program::words;

use crate::support::{Finished, sorted_lines, start_by, unisono};

/// The variables that oneCCL reads itself.
const VARIABLES: &str = "echo $CCL_WORKER_OFFLOAD,$CCL_YIELD,$FI_PROVIDER_PATH,$UNISONO_CCL_DIR";

/// Runs the program in an environment that has of these variables only the given ones.
fn with(variables: &[&str], arguments: &[&str]) -> Finished {
    let unset = ["CCL_WORKER_OFFLOAD", "CCL_YIELD", "FI_PROVIDER_PATH", "UNISONO_CCL_DIR", "UNISONO_BACKEND"];
    let unset: Vec<&str> = unset.iter().flat_map(|name| ["-u", *name]).collect();
    start_by(&[&["env"], &unset[..], variables].concat(), arguments).finish()
}

#[test]
fn ranks_find_what_oneccl_reads_unless_the_user_has_said_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let shown = |variables: &[&str], options: &[&str]| {
        let arguments = [&["run", "-n", "2", "--tag-output=off"], options, &["sh", "-c", VARIABLES]].concat();
        let done = with(variables, &arguments);
        assert!(done.status.success() && done.err.is_empty(), "{}", done.err);
        let lines = sorted_lines(&done.out);
        assert!(lines.len() == 2 && lines[0] == lines[1], "{lines:?}");
        lines[0].to_owned()
    };
    assert_eq!(shown(&[], &[]), "0,sched_yield,,");
    assert_eq!(shown(&["CCL_WORKER_OFFLOAD=1", "CCL_YIELD="], &[]), "1,sched_yield,,");
    assert_eq!(shown(&[], &["--vendor-dir", path]), format!("0,sched_yield,,{path}"));
    std::fs::write(folder.path().join("libtcp-fi.so"), "").unwrap();
    let whole = format!("0,sched_yield,{path},{path}");
    assert_eq!(shown(&[], &["--vendor-dir", path]), whole);
    // The option wins over the variable, which does the same without it.
    let variable = format!("UNISONO_CCL_DIR={path}");
    assert_eq!(shown(&[&variable], &[]), whole);
    assert_eq!(shown(&["UNISONO_CCL_DIR=/other"], &["--vendor-dir", path]), whole);
    let own = shown(&["FI_PROVIDER_PATH=/own", "CCL_YIELD=pause"], &["--vendor-dir", path]);
    assert_eq!(own, format!("0,pause,/own,{path}"));
}

/// The ranks may work elsewhere than the launcher.
#[test]
fn a_relative_folder_is_that_of_the_launcher() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("vendor")).unwrap();
    let by = ["env", "-C", folder.path().to_str().unwrap()];
    let line = ["run", "-n", "1", "--vendor-dir", "vendor", "--", "sh", "-c", "echo $UNISONO_CCL_DIR"];
    let done = start_by(&by, &line).finish();
    assert_eq!(done.out, format!("[0] {}/vendor\n", folder.path().display()), "{}", done.err);
    let done = start_by(&by, &["bench", "all_reduce", "--vendor-dir", "vendors"]).finish();
    assert_eq!((done.status.code(), done.err.lines().count()), (Some(2), 1), "{}", done.err);
    assert!(done.err.contains("--vendor-dir: vendors: No such file"), "{}", done.err);
}

#[test]
fn a_backend_that_is_none_is_refused_by_name() {
    let done = unisono(&["bench", "all_reduce", "--backend", "cccl"]);
    assert_eq!((done.status.code(), done.err.lines().count()), (Some(2), 1), "{}", done.err);
    assert!(done.err.contains("--backend: unknown backend \"cccl\", one of: auto, tcp"), "{}", done.err);
    let done = with(&["UNISONO_BACKEND=cccl"], &["bench", "all_reduce", "-n", "2"]);
    assert!(!done.status.success() && done.out.is_empty(), "{}", done.out);
    assert!(
        done.err.contains("UNISONO_BACKEND=cccl: one of auto, tcp, ccl, nccl, hccl is needed"),
        "{}",
        done.err
    );
}

/// The lines of ranks on standard error, without their numbers; the launcher's lines are left out.
fn of_ranks(done: &Finished) -> Vec<&str> {
    let tagged = done.err.lines().filter(|line| line.starts_with('['));
    tagged.filter_map(|line| line.split_once("] ")).map(|(_, text)| text).collect()
}

/// Runs two ranks that must be refused, and gives the line that both of them print.
fn refused(variables: &[&str], arguments: &[&str]) -> String {
    let done = with(variables, arguments);
    assert_eq!(done.status.code(), Some(1), "{}{}", done.out, done.err);
    let said: Vec<&str> = of_ranks(&done).into_iter().filter(|line| line.starts_with("unisono: ")).collect();
    assert!(said.len() == 2 && said[0] == said[1], "{said:?}");
    said[0].to_owned()
}

/// The options of a bench of two ranks by oneCCL.
const BENCH: [&str; 6] = ["bench", "barrier", "-n", "2", "--backend", "ccl"];

#[test]
fn a_missing_library_is_one_error_that_says_what_was_tried() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let said = refused(&[], &[&BENCH[..], &["--vendor-dir", path]].concat());
    assert!(said.starts_with("unisono: revoked by rank 0: oneCCL cannot be used: "), "{said}");
    for file in ["libccl.so.2", "libccl.so.1", "libccl_legacy_cpu.so"] {
        assert!(said.contains(&format!("{path}/{file}: ")), "{file}: {said}");
    }
    assert!(said.contains("let UNISONO_CCL_DIR be a folder with "), "{said}");
    // The variable does the same as the option.
    let variables = ["UNISONO_BACKEND=ccl".to_owned(), format!("UNISONO_CCL_DIR={path}")];
    assert_eq!(refused(&variables.each_ref().map(String::as_str), &["bench", "barrier", "-n", "2"]), said);
    // Alone, nobody has told it.
    let alone = with(&[], &["bench", "barrier", "-n", "1", "--backend", "ccl", "--vendor-dir", path]);
    assert!(alone.err.starts_with("[0] unisono: oneCCL cannot be used: "), "{}", alone.err);
}

#[test]
fn files_that_are_no_libraries_are_named() {
    let folder = tempfile::tempdir().unwrap();
    for file in ["libccl.so.2", "libccl.so.1", "libccl_legacy_cpu.so"] {
        std::fs::write(folder.path().join(file), "no library").unwrap();
    }
    let path = folder.path().to_str().unwrap();
    let said = refused(&[], &[&BENCH[..], &["--vendor-dir", path]].concat());
    assert!(said.contains(&format!("{path}/libccl.so.2: ")) && !said.contains("No such file"), "{said}");
}

/// Rank 0 would have it, or has another problem: both get the error of the first rank that has none.
///
/// Rows: D1
#[test]
fn all_ranks_have_the_error_of_the_one_that_lacks_the_library() {
    let (empty, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let line = |first: &Path| {
        let [first, empty] = [first, empty.path()].map(|path| path.display().to_string());
        let program = env!("CARGO_BIN_EXE_unisono");
        format!(
            "export UNISONO_CCL_DIR={first}; [ $RANK = 0 ] || UNISONO_CCL_DIR={empty}; \
             exec {program} bench barrier --backend ccl"
        )
    };
    let run = |first: &Path, options: &[&str]| {
        refused(&[], &[&["run", "-n", "2"], options, &["--", "sh", "-c", &line(first)]].concat())
    };
    let said = run(other.path(), &[]);
    let expected = format!("revoked by rank 0: oneCCL cannot be used: {}/libccl", other.path().display());
    assert!(said.contains(&expected), "{said}");
    if let Some(ccl) = ccl_directory() {
        let said = run(&ccl, &["--vendor-dir", ccl.to_str().unwrap()]);
        let expected = format!("revoked by rank 1: oneCCL cannot be used: {}/libccl", empty.path().display());
        assert!(said.contains(&expected), "{said}");
    }
}

/// Rows of a bench by oneCCL, whose document is nothing but the document.
fn rows(ccl: &Path, variables: &[&str], arguments: &[&str]) -> Vec<Value> {
    let options = ["--backend", "ccl", "--json", "--vendor-dir", ccl.to_str().unwrap()];
    let done = with(variables, &[&["bench"], arguments, &options].concat());
    assert!(done.status.success(), "{}{}", done.out, done.err);
    assert!(!done.err.contains("oneCCL needs"), "the launcher sets its variables: {}", done.err);
    let Ok(Value::Array(rows)) = serde_json::from_str(&done.out) else { panic!("{}", done.out) };
    rows
}

#[test]
fn an_operation_is_measured_over_oneccl_and_right() {
    let Some(ccl) = ccl_directory() else { return };
    for ranks in ["1", "2"] {
        let rows = rows(&ccl, &[], &["all_reduce", "-n", ranks, "--sizes", "4K"]);
        assert_eq!(rows.len(), 1);
        assert_eq!((&rows[0]["wrong"], &rows[0]["algorithm"]), (&0.into(), &"ccl".into()), "{}", rows[0]);
        assert_eq!(rows[0]["predicted_us"], Value::Null, "no cost model knows it: {}", rows[0]);
    }
}

pub(crate) fn program_that_computes_with_oneccl() {
    let world = unisono::init().unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(world.backend(), "ccl");
    let (rank, size) = (world.rank(), world.size());
    for call in 0..20 {
        let mut mean = vec![f64::from(rank); 100];
        world.all_reduce(&mut mean, ReduceOp::Avg).unwrap();
        assert!(mean.iter().all(|&mean| mean == f64::from(size - 1) / 2.0));
        let mut all = vec![0; size as usize];
        world.all_gather(&[rank + call], &mut all).unwrap();
        assert!(all.iter().zip(call..).all(|(&one, expected)| one == expected));
        world.send(&[call], (rank + 1) % size, 7).unwrap();
        let mut received = [0];
        world.recv(&mut received, Peer::Rank((rank + size - 1) % size), 7).unwrap();
        assert_eq!(received, [call]);
    }
    world.close().unwrap();
}

/// Blocking calls without a deadline and with one are done by different threads; a world of one has the backend too.
///
/// Rows: A9, D1
#[test]
fn a_program_computes_with_oneccl_by_a_variable_alone() {
    let Some(ccl) = ccl_directory() else { return };
    let folder = format!("UNISONO_CCL_DIR={}", ccl.display());
    let words = words("program_that_computes_with_oneccl");
    for (ranks, deadline) in [("2", ""), ("2", "UNISONO_CALL_TIMEOUT_S=100"), ("1", "UNISONO_LOG=info")] {
        let command =
            [&["run", "-n", ranks, "--", "env"][..], &words.each_ref().map(String::as_str)].concat();
        let variables = ["UNISONO_BACKEND=ccl", &folder, deadline];
        let variables: Vec<&str> = variables.into_iter().filter(|one| !one.is_empty()).collect();
        let done = with(&variables, &command);
        assert!(done.status.success(), "{ranks} {deadline}: {}{}", done.out, done.err);
        let chosen = "backend ccl: UNISONO_BACKEND=ccl; oneCCL 20";
        assert_eq!(done.err.contains(chosen), deadline == "UNISONO_LOG=info", "{}", done.err);
    }
}

/// Rows: D10
#[test]
fn what_oneccl_cannot_do_is_refused_on_every_rank_alike() {
    let Some(ccl) = ccl_directory() else { return };
    let options = ["-n", "2", "--backend", "ccl", "--vendor-dir", ccl.to_str().unwrap()];
    for (call, what) in [
        (&["all_reduce", "--dtype", "i16"][..], "sum of i16 in all_reduce"),
        (&["all_reduce", "--algorithm", "ring"], "algorithms by name"),
        (&["reduce_scatter", "--dtype", "u8", "--op", "bit_xor"], "bit_xor of u8 in reduce_scatter"),
    ] {
        let said = refused(&[], &[&["bench"], call, &options].concat());
        let expected = format!("unisono: ccl does not support {what}");
        assert!(said.starts_with(&expected) && said.ends_with("; instead: UNISONO_BACKEND=tcp"), "{said}");
    }
    let said = refused(&["UNISONO_ALGORITHM=ring"], &[&["bench", "barrier"], &options[..]].concat());
    assert!(said.contains("UNISONO_ALGORITHM=ring: oneCCL chooses among algorithms of its own"), "{said}");
    let calibrated =
        with(&["UNISONO_BACKEND=ccl", &format!("UNISONO_CCL_DIR={}", ccl.display())], &["calibrate"]);
    assert!(calibrated.err.contains("calibrate measures the algorithms of tcp"), "{}", calibrated.err);
}

/// Started by another launcher, or by hand.
#[test]
fn a_rank_without_the_variables_of_oneccl_says_so_once() {
    let Some(ccl) = ccl_directory() else { return };
    let folder = format!("UNISONO_CCL_DIR={}", ccl.display());
    let provider = format!("FI_PROVIDER_PATH={}", ccl.display());
    let by_hand = ["UNISONO_RANK=0", "UNISONO_WORLD_SIZE=1", "UNISONO_BACKEND=ccl", &folder, &provider];
    let done = with(&by_hand, &["bench", "all_reduce", "--sizes", "64"]);
    assert!(done.status.success(), "{}", done.err);
    let said: Vec<&str> = done.err.lines().filter(|line| line.contains("oneCCL needs")).collect();
    let expected =
        "unisono: rank 0: oneCCL needs CCL_WORKER_OFFLOAD=0 CCL_YIELD=sched_yield in the environment";
    assert!(said.len() == 1 && said[0].starts_with(expected), "{said:?}");
}

/// The variables that ranks need for the test double of NCCL and of the CUDA driver, on memory of the host.
fn nccl_double() -> [String; 3] {
    let double = unisono_tests::doubles::nccl().display().to_string();
    let memory = "UNISONO_HOST_MEMORY=staged".to_owned();
    [format!("UNISONO_NCCL_LIB={double}"), format!("UNISONO_CUDA_LIB={double}"), memory]
}

/// The same for the double of HCCL, ACL and aclnn.
fn hccl_double() -> [String; 2] {
    let folder = unisono_tests::doubles::hccl_folder().display().to_string();
    [format!("UNISONO_HCCL_DIR={folder}"), "UNISONO_HOST_MEMORY=staged".to_owned()]
}

/// `variables` end with the variable for memory of the host.
fn is_measured(backend: &str, variables: &[String]) {
    let variables: Vec<&str> = variables.iter().map(String::as_str).collect();
    let options = ["bench", "all_reduce", "-n", "2", "--backend", backend, "--sizes", "64,4K", "--json"];
    let done = with(&variables, &options);
    let Ok(Value::Array(rows)) = serde_json::from_str(&done.out) else { panic!("{}{}", done.out, done.err) };
    assert_eq!(rows.len(), 2, "{rows:?}");
    for row in rows {
        assert_eq!((&row["wrong"], &row["algorithm"]), (&0.into(), &backend.into()), "{row}");
    }
    // Without a word, memory of the host is refused on every rank.
    let done = with(&variables[..variables.len() - 1], &options);
    assert!(!done.status.success() && done.err.contains("memory of the host"), "{}", done.err);
}

/// NVRTC's own compiler makes the kernels; the double of the driver runs the same text, compiled for the host.
#[test]
fn algorithms_by_name_are_measured_over_the_test_double_of_nccl() {
    let (Some(nvrtc), Some(kernels)) = (nvrtc_file("libnvrtc.so.12"), kernels_for_host()) else { return };
    let (nvrtc, kernels) = (
        format!("UNISONO_NVRTC_LIB={}", nvrtc.display()),
        format!("UNISONO_DOUBLE_KERNELS={}", kernels.display()),
    );
    let double = nccl_double();
    let variables = [&double[0], &double[1], &double[2], &nvrtc, &kernels].map(String::as_str);
    algorithms_are_measured("nccl", &variables);
}

#[test]
fn algorithms_by_name_are_measured_over_the_test_double_of_hccl() {
    let double = hccl_double();
    algorithms_are_measured("hccl", &double.each_ref().map(String::as_str));
}

fn algorithms_are_measured(backend: &str, variables: &[&str]) {
    let options = ["bench", "all_reduce", "-n", "3", "--backend", backend, "--sizes", "4K", "--json"];
    let done = with(variables, &[&options[..], &["--algorithm", "ring,recursive_doubling"]].concat());
    let Ok(Value::Array(rows)) = serde_json::from_str(&done.out) else { panic!("{}{}", done.out, done.err) };
    let ran: Vec<_> = rows.iter().map(|row| (row["wrong"].as_u64(), row["algorithm"].as_str())).collect();
    let names = ["ring", "recursive_doubling"].map(|name| format!("{name} over {backend}"));
    assert_eq!(ran, names.each_ref().map(|name| (Some(0), Some(&**name))));
    let forced = [variables, &["UNISONO_ALGORITHM=ring"]].concat();
    let done = with(&forced, &options);
    let Ok(Value::Array(rows)) = serde_json::from_str(&done.out) else { panic!("{}{}", done.out, done.err) };
    assert_eq!(rows[0]["algorithm"], format!("ring over {backend}"), "{rows:?}");
}

#[test]
fn an_operation_is_measured_over_the_test_double_of_nccl() {
    is_measured("nccl", &nccl_double());
}

#[test]
fn an_operation_is_measured_over_the_test_double_of_hccl() {
    is_measured("hccl", &hccl_double());
}

/// Nobody takes a double's results for a device's: its version says so, in `doctor` and in the log of a job. A
/// real library has no such mark.
///
/// Rows: F5
#[test]
fn a_test_double_is_said_to_be_one() {
    let version_of = |backend: &str, variables: &[&str]| {
        let done = with(variables, &["doctor", "--json"]);
        assert!(done.status.success(), "{}", done.err);
        let machine: Value = serde_json::from_str(&done.out).unwrap();
        let facts = machine["backends"].as_array().unwrap().iter().find(|one| one["name"] == backend);
        facts.unwrap()["version"].as_str().unwrap().to_owned()
    };
    for (backend, double) in [("nccl", nccl_double().to_vec()), ("hccl", hccl_double().to_vec())] {
        let variables: Vec<&str> = double.iter().map(String::as_str).chain(["UNISONO_LOG=info"]).collect();
        let version = version_of(backend, &variables);
        assert!(version.ends_with(" (test double)"), "{version}");
        let done = with(&variables, &["bench", "barrier", "-n", "2", "--backend", backend]);
        assert!(done.status.success() && done.err.contains(&version), "{version}: {}", done.err);
    }
    if let Some(variables) = unisono_tests::ccl::ccl_environment() {
        let set: Vec<_> =
            variables.iter().map(|(name, value)| format!("{name}={}", value.display())).collect();
        let version = version_of("ccl", &set.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(version.starts_with("oneCCL 2") && !version.contains("double"), "{version}");
    }
}

/// Every fault of a library or a device is said with its name and a remedy.
#[test]
fn what_hccl_cannot_work_with_is_said() {
    let [folder, memory] = hccl_double();
    let bench = ["bench", "barrier", "-n", "2", "--backend", "hccl"];
    let said = |variables: &[&str], texts: &[&str]| {
        let done = with(&[variables, &[memory.as_str()]].concat(), &bench);
        let is_said = texts.iter().all(|text| done.err.contains(text));
        assert!(!done.status.success() && is_said, "{texts:?} in {}", done.err);
    };
    said(&["UNISONO_HCCL_DIR=/no/lib64"], &["/no/lib64/libascendcl.so: ", "UNISONO_HCCL_DIR"]);
    said(&[&folder, "UNISONO_DEVICE=8"], &["invalid device: 8, and ACL has 8"]);
    said(&[&folder, "UNISONO_DOUBLE_DEVICES=0"], &["ACL has 0", "npu-smi info"]);
    // Each rank has another version.
    let program = env!("CARGO_BIN_EXE_unisono");
    let rank = format!("export UNISONO_DOUBLE_VERSION=$((RANK + 1)); exec {program} bench barrier");
    let done =
        with(&[&folder, &memory, "UNISONO_BACKEND=hccl"], &["run", "-n", "2", "--", "sh", "-c", &rank]);
    let texts =
        ["HCCL with ACL 1.0.0 (test double) on rank 0", "HCCL with ACL 2.0.0 (test double) on rank 1"];
    let is_said = texts.iter().all(|text| done.err.contains(text));
    assert!(!done.status.success() && is_said, "{}{}", done.out, done.err);
}

/// Rows: A9
#[test]
fn auto_takes_nccl_where_every_rank_has_it() {
    let double = nccl_double();
    let variables = [double[0].as_str(), double[1].as_str(), "UNISONO_LOG=info"];
    let done = with(&variables, &["bench", "barrier", "-n", "2", "--backend", "auto"]);
    assert!(
        done.status.success() && done.err.contains("backend nccl: UNISONO_BACKEND=auto; NCCL"),
        "{}",
        done.err
    );
    let missing = ["UNISONO_CUDA_LIB=/no/libcuda.so.1", "UNISONO_LOG=info"];
    let done = with(&missing, &["bench", "barrier", "-n", "2", "--backend", "auto"]);
    let said = "backend tcp: UNISONO_BACKEND=auto; no NCCL here: ";
    assert!(done.status.success() && done.err.contains(said), "{}", done.err);
    // Only rank 1 lacks the driver.
    let program = env!("CARGO_BIN_EXE_unisono");
    let line = format!(
        "[ $RANK = 0 ] || {}; exec {program} bench barrier --backend auto",
        "export UNISONO_CUDA_LIB=/no/libcuda.so.1"
    );
    let done = with(&variables, &["run", "-n", "2", "--", "sh", "-c", &line]);
    let chosen = ["; not every rank has NCCL and a device", "; no NCCL here: "];
    let is_chosen = (0..2).zip(chosen).all(|(rank, why)| {
        done.err.contains(&format!("unisono: rank {rank}: backend tcp: UNISONO_BACKEND=auto{why}"))
    });
    assert!(done.status.success() && is_chosen, "{}", done.err);
}

#[test]
fn the_doctor_knows_every_backend() {
    let folder = tempfile::tempdir().unwrap();
    let directory = format!("UNISONO_CCL_DIR={}", folder.path().display());
    let examined = |variables: &[&str]| {
        let done = with(variables, &["doctor", "--json"]);
        assert!(done.status.success(), "{}", done.err);
        let Ok(Value::Object(machine)) = serde_json::from_str(&done.out) else { panic!("{}", done.out) };
        machine
    };
    let cuda_library = format!("UNISONO_CUDA_LIB={}", folder.path().join("libcuda.so.1").display());
    let [hccl_folder, _] = hccl_double();
    let machine = examined(&[&directory, &cuda_library, &hccl_folder, "UNISONO_BACKEND=ccl"]);
    let [tcp, ccl, nccl, hccl] = &machine["backends"].as_array().unwrap()[..] else { panic!("{machine:?}") };
    assert!(tcp["problem"].is_null() && !tcp["capabilities"].as_array().unwrap().is_empty(), "{tcp}");
    assert!(ccl["problem"].as_str().unwrap().contains("libccl.so.2: "), "{ccl}");
    assert!(ccl["remedy"].as_str().unwrap().contains("UNISONO_CCL_DIR"), "{ccl}");
    assert!(nccl["problem"].as_str().unwrap().contains("libcuda.so.1: "), "{nccl}");
    assert!(
        hccl["problem"].is_null() && hccl["files"][0].as_str().unwrap().ends_with("/libhccl.so"),
        "{hccl}"
    );
    let products = hccl["capabilities"].as_array().unwrap();
    assert!(products.iter().any(|one| one[0] == "sum" && one[1] == "i8 i16 i32 i64 f16 bf16 f32"), "{hccl}");
    let finding = &machine["findings"].as_array().unwrap()[0];
    assert!(finding["what"].as_str().unwrap().starts_with("the backend ccl cannot be used: "), "{finding}");

    let Some(real) = ccl_directory() else { return };
    let machine = examined(&[&format!("UNISONO_CCL_DIR={}", real.display()), "UNISONO_BACKEND=ccl"]);
    let ccl = &machine["backends"][1];
    assert!(ccl["problem"].is_null() && ccl["version"].as_str().unwrap().starts_with("oneCCL 20"), "{ccl}");
    let files = ccl["files"].as_array().unwrap();
    assert!(files.iter().any(|file| file.as_str().unwrap().ends_with("/libccl.so.2")), "{ccl}");
    let capability = |name: &str| {
        let all = ccl["capabilities"].as_array().unwrap();
        all.iter().find(|one| one[0] == name).map(|one| one[1].as_str().unwrap().to_owned())
    };
    assert!(capability("sum").unwrap().contains("bf16"), "{ccl}");
    assert_eq!(capability("messages").unwrap(), "over tcp");
    assert!(capability("deadline of blocking calls").unwrap().starts_with("no"), "{ccl}");
    let what = |text: &str| machine["findings"].as_array().unwrap().iter().any(|one| one["what"] == text);
    assert!(what("oneCCL waits in vain where ranks share cores: up to 34 ms for 4 KiB instead of 17 us"));
}
