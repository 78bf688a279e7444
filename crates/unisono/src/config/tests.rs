//! The table of settings, whole: each row is read, and the values of the vendors' rows arrive.

use std::path::PathBuf;
use std::sync::Arc;

use unisono_communicator::{Algorithm, Collective};

use super::backend::Backend;
use super::process::Config;
use super::table::{FORMER_NAMES, OF_VENDORS, knobs};
use super::unknown::unknown_names;

fn read(variables: &[(&str, &str)]) -> Config {
    let lookup = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| value.to_string());
    Config::from_lookup(&lookup).unwrap()
}

fn refusal(config: &Config) -> String {
    config.check().unwrap_err().to_string()
}

#[test]
fn every_row_of_the_table_is_read_and_documented() {
    let asked = std::cell::RefCell::new(Vec::new());
    let nothing_set = Config::from_lookup(&|name| {
        asked.borrow_mut().push(name.to_string());
        None
    });
    assert_eq!(nothing_set.unwrap().backend, Backend::Auto);
    for knob in knobs() {
        assert!(knob.name.starts_with("UNISONO_") && !knob.doc.is_empty() && !knob.unit.is_empty());
        for name in std::iter::once(&knob.name).chain(knob.also) {
            // The local numbers are asked for only after a rank.
            assert!(asked.borrow().iter().any(|n| n == name) || knob.name.contains("LOCAL"), "{name}");
        }
        assert_eq!(knobs().filter(|other| other.name == knob.name).count(), 1, "{}", knob.name);
    }
}

/// In any environment: a rank of each launcher reads more variables.
#[test]
#[cfg(feature = "cli")]
fn every_variable_that_is_read_is_on_the_page_of_settings() {
    use unisono_job::environment::{FOREIGN, LAUNCHERS};

    let page = super::page::settings_page();
    // The variables of the search for oneCCL's folders are in docs/backends.md.
    let of_ccl = |name: &str| name.starts_with("CCL") || name.starts_with("FI_") || name.ends_with("ROOT");
    let others = || FOREIGN.iter().flat_map(|row| row.names).map(|name| (*name, "1"));
    for row in &LAUNCHERS {
        let numbers =
            [(row.rank, "0"), (row.world_size, "2"), (row.local_rank, "0"), (row.local_world_size, "1")];
        let set = numbers.into_iter().filter_map(|(names, value)| Some((*names.first()?, value)));
        let set: Vec<(&str, &str)> = set.chain(others()).collect();
        let asked = std::cell::RefCell::new(std::collections::BTreeSet::new());
        let read = Config::from_lookup(&|name| {
            asked.borrow_mut().insert(name.to_owned());
            let hosts = ("SM_HOSTS", "[\"algo-1\"]");
            let found = std::iter::once(&hosts).chain(&set).find(|(set, _)| *set == name);
            found.map(|(_, value)| (*value).to_owned())
        });
        assert!(read.is_ok(), "{read:?}");
        for name in asked.take().iter().filter(|name| !of_ccl(name)) {
            assert!(page.contains(&format!("`{name}`")), "{name}");
        }
    }
}

#[test]
#[cfg(all(feature = "ccl", feature = "nccl", feature = "hccl"))]
fn vendors_bring_the_settings_that_are_said_to_be_theirs() {
    assert!(OF_VENDORS.iter().all(|name| knobs().any(|knob| knob.name == *name)));
    let library = "/vendor/library";
    let config = read(&[
        ("UNISONO_BACKEND", "nccl"),
        ("UNISONO_CCL_DIR", library),
        ("UNISONO_CUDA_LIB", library),
        ("UNISONO_HCCL_DIR", library),
        ("UNISONO_DEVICE", "3"),
        ("UNISONO_HOST_MEMORY", "staged"),
    ]);
    config.check().unwrap();
    let named = [&config.ccl.directory, &config.nccl.driver, &config.hccl.directory, &config.nccl.library];
    assert_eq!(named.map(Option::is_some), [true, true, true, false]);
    assert_eq!((config.backend, config.device(2)), (Backend::Nccl, 3));
    assert_eq!(config.devices.host_memory, Some(unisono_offload::HostMemory::Staged));
    for name in
        ["UNISONO_CCL_DIR", "UNISONO_NCCL_LIB", "UNISONO_CUDA_LIB", "UNISONO_NVRTC_LIB", "UNISONO_HCCL_DIR"]
    {
        let expected = format!("{name}=vendor: an absolute path is needed");
        let text = refusal(&read(&[(name, "vendor")]));
        assert!(text.starts_with(&expected), "{text}");
    }
}

#[test]
fn algorithms_are_refused_together_with_a_backend_that_takes_none() {
    let ccl = read(&[]).with_backend(Backend::Ccl);
    ccl.check().unwrap();
    let expected = "UNISONO_ALGORITHM=ring: oneCCL chooses among algorithms of its own";
    let named = ccl.clone().with_algorithm("ring");
    assert!(refusal(&named).starts_with(expected), "{}", refusal(&named));
    let outside = Algorithm::new("mine", Collective::Barrier, |_builder| {});
    let with = ccl.with_own_algorithm(Arc::new(outside));
    assert!(refusal(&with).starts_with("UNISONO_ALGORITHM=mine: oneCCL chooses"), "{}", refusal(&with));
}

/// Every variable of ours that is written anywhere in the repository's code is a row of the table.
#[test]
fn every_variable_in_the_code_is_known() {
    // Their tests have names that are none, and the C ABI has constants.
    let excepted = ["cli/doctor.rs", "cli/settings.rs", "in_effect.rs", "programs/main.rs", "unknown.rs"];
    let repository = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let mut folders: Vec<PathBuf> =
        ["crates", "tests", "benches", "xtask"].map(|one| repository.join(one)).into();
    let mut names = std::collections::BTreeSet::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let is_excepted = excepted.iter().any(|name| path.ends_with(name));
            if path.is_dir() && !path.ends_with("target") && !path.ends_with("unisono-c") {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") && !is_excepted {
                names.extend(variables_in(&std::fs::read_to_string(path).unwrap()));
            }
        }
    }
    assert!(names.len() > 30, "{names:?}");
    names.retain(|name| name != FORMER_NAMES[0].0 && !OF_VENDORS.contains(&name.as_str()));
    assert_eq!(unknown_names(names.into_iter()), Vec::<String>::new());
}

fn variables_in(text: &str) -> Vec<String> {
    let is_letter = |letter: char| letter.is_ascii_uppercase() || letter.is_ascii_digit() || letter == '_';
    let from = text.match_indices("UNISONO_").map(|(at, _)| &text[at..]);
    let names = from.map(|rest| rest[..rest.find(|c| !is_letter(c)).unwrap_or(rest.len())].to_owned());
    names.filter(|name| !name.ends_with('_')).collect()
}
