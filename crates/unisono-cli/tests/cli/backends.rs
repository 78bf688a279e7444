//! Who does the calls, by the settings and options of the program, and what ranks find of a vendor's library.

use crate::support::{Finished, sorted_lines, start_by, unisono};

/// What oneCCL reads itself.
const VARIABLES: &str = "echo $CCL_WORKER_OFFLOAD,$CCL_YIELD,$FI_PROVIDER_PATH,$UNISONO_CCL_DIR";

/// Runs the program in an environment that has of these variables only those that are set here.
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
        done.err.contains("UNISONO_BACKEND=cccl: one of auto, tcp, nccl, ccl, hccl is needed"),
        "{}",
        done.err
    );
}
