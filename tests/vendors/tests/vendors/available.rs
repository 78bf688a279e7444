//! `unisono::is_available` for every vendor: a library that is there, a missing one, files that are no library or
//! another one. Each answer is asked of a process of its own, since a process remembers a library of no use.

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;

use unisono::{Backend, is_available};
use unisono_tests::{doubles, watchdog};

const SECONDS_MAX: u64 = 120;
/// Tells the process the backend that it is asked about.
const BACKEND: &str = "TEST_BACKEND";
/// Tells the process the answer.
const ANSWER: &str = "TEST_ANSWER";

/// Asks a process with these settings.
fn ask(backend: &str, answer: bool, settings: &[(&str, &Path)]) {
    let mut child = Command::new(env::current_exe().unwrap());
    child.args(["--exact", "available::a_library_is_there_if_it_can_be_opened", "--nocapture"]);
    // The loader of the system must find no library of its own.
    child.env_clear().env(BACKEND, backend).env(ANSWER, answer.to_string());
    child.env("UNISONO_RANK", "0").env("UNISONO_WORLD_SIZE", "1").envs(settings.iter().copied());
    assert!(child.status().unwrap().success(), "{backend}, {answer}, {settings:?}");
}

/// Rows: A5, D1
#[test]
fn a_library_is_there_if_it_can_be_opened() {
    if let Some(name) = env::var_os(BACKEND) {
        let backend: Backend = name.to_str().unwrap().parse().unwrap();
        let answer = env::var(ANSWER).unwrap() == "true";
        // The same again: an answer that a process remembers is no other one.
        assert_eq!([is_available(backend), is_available(backend)], [answer; 2]);
        assert!(is_available(Backend::Tcp) && is_available(Backend::Auto));
        return;
    }
    watchdog(SECONDS_MAX, "available", || {
        let folder = tempfile::tempdir().unwrap();
        let [missing, text] = ["missing.so", "text.so"].map(|name| folder.path().join(name));
        fs::write(&text, "no library").unwrap();
        let (nccl, hccl) = (doubles::nccl(), doubles::hccl_folder());
        let (library, driver) = ("UNISONO_NCCL_LIB", "UNISONO_CUDA_LIB");
        ask("nccl", true, &[(library, &nccl), (driver, &nccl)]);
        for wrong in [&missing, &text, &doubles::hccl()] {
            ask("nccl", false, &[(library, wrong), (driver, &nccl)]);
            ask("nccl", false, &[(library, &nccl), (driver, wrong)]);
        }
        ask("hccl", true, &[("UNISONO_HCCL_DIR", &hccl)]);
        let [empty, other, words] = ["empty", "other", "words"].map(|name| folder.path().join(name));
        [&empty, &other, &words].into_iter().for_each(|folder| fs::create_dir(folder).unwrap());
        doubles::name_as_cann(&nccl, &other);
        doubles::name_as_cann(&text, &words);
        for wrong in [&missing, &empty, &other, &words] {
            ask("hccl", false, &[("UNISONO_HCCL_DIR", wrong)]);
        }
        fs::write(words.join("libccl.so.2"), "no library").unwrap();
        for wrong in [&missing, &empty, &words] {
            ask("ccl", false, &[("UNISONO_CCL_DIR", wrong)]);
        }
    });
}
