//! The backends that settings know: the abilities of each here, or the reason for none, and a remedy.

use std::fs::read_to_string;
use std::path::Path;

use serde::Serialize;
use unisono::extend::vendors;
use unisono::{Backend, Config, Error};
use unisono_offload::Vendor;
use unisono_offload_ccl::BACKEND as CCL;
use unisono_offload_hccl::{BACKEND as HCCL, HcclLibrary};
use unisono_offload_nccl::BACKEND as NCCL;
use unisono_transport_tcp::BACKEND as TCP;

use super::facts::HostNetwork;
use super::single_copy::single_copy;
use crate::print;

/// A backend, as this machine has it.
#[derive(Debug, Serialize)]
pub(super) struct BackendFacts {
    pub(super) name: &'static str,
    /// Why it cannot be used; if that is said, the rest is not known.
    pub(super) problem: Option<String>,
    /// The remedy, unless the problem says it.
    pub(super) remedy: Option<String>,
    pub(super) version: Option<String>,
    /// Of its library, by their paths.
    pub(super) files: Vec<String>,
    /// The devices whose memory calls may be on.
    pub(super) devices: Option<&'static str>,
    /// Name and value of each.
    pub(super) capabilities: Vec<(String, String)>,
}

impl BackendFacts {
    /// All of them but `auto`, which is no backend of its own.
    pub(super) fn all(network: &HostNetwork, config: &Config) -> Vec<BackendFacts> {
        Backend::ALL.into_iter().filter_map(|backend| BackendFacts::of(backend, network, config)).collect()
    }

    fn of(backend: Backend, network: &HostNetwork, config: &Config) -> Option<BackendFacts> {
        match backend {
            Backend::Auto => None,
            Backend::Tcp => Some(tcp(network, config)),
            Backend::Ccl => Some(ccl(config)),
            Backend::Nccl => Some(nccl(config)),
            Backend::Hccl => Some(hccl(config)),
        }
    }

    fn unusable(name: &'static str, problem: String, remedy: Option<String>) -> BackendFacts {
        let (version, files, devices, capabilities) = (None, Vec::new(), None, Vec::new());
        let problem = Some(problem);
        BackendFacts { name, problem, remedy, version, files, devices, capabilities }
    }
}

const HOST_MEMORY: &str = "memory of the host";
const MEMORY_OF_DEVICES: &str = "memory of a device; of the host by UNISONO_HOST_MEMORY";

fn tcp(network: &HostNetwork, config: &Config) -> BackendFacts {
    let listens = network.listens_on.clone().and_then(|address| {
        let listener = std::net::TcpListener::bind((address, 0));
        listener.map(drop).map_err(|error| format!("cannot listen at {address}: {error}"))
    });
    if let Err(problem) = listens {
        return BackendFacts::unusable(
            TCP,
            problem,
            Some("see UNISONO_ADDRESS and UNISONO_INTERFACE".to_owned()),
        );
    }
    let within_host = match unisono_job::memory_problem() {
        _ if !config.shares_memory => "TCP, because UNISONO_SHM is 0".to_owned(),
        None => format!("shared memory; {}", single_copy(config.single_copy)),
        Some(problem) => format!("Unix sockets, because no memory can be shared: {problem}"),
    };
    let capabilities = [
        ("between ranks of a host", within_host.as_str()),
        ("reductions", "every operator, functions of the program too, on every type that it is defined on"),
        ("a NaN among numbers in min and max", "the result"),
        ("equal bits on all ranks", "yes"),
        ("deadline of blocking calls", "yes"),
    ];
    BackendFacts {
        name: TCP,
        problem: None,
        remedy: None,
        version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        files: Vec::new(),
        devices: Some(HOST_MEMORY),
        capabilities: capabilities.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
    }
}

fn ccl(config: &Config) -> BackendFacts {
    let files = || mapped_files(&read_to_string("/proc/self/maps").unwrap_or_default());
    let devices = "memory of the host; by code, SYCL queues";
    of_vendor(CCL, print::aside(|| vendors::ccl(config)), files, devices)
}

fn nccl(config: &Config) -> BackendFacts {
    let files = || {
        let library = config.nccl.library.as_ref().map(|file| file.display().to_string());
        vec![library.unwrap_or_else(|| "libnccl.so.2, by the system's loader".to_owned())]
    };
    of_vendor(NCCL, print::aside(|| vendors::nccl(config)), files, MEMORY_OF_DEVICES)
}

fn hccl(config: &Config) -> BackendFacts {
    let files = || {
        let library = HcclLibrary::open(&config.hccl.directory);
        library.map(HcclLibrary::files).unwrap_or_default()
    };
    of_vendor(HCCL, print::aside(|| vendors::hccl(config)), files, MEMORY_OF_DEVICES)
}

/// A vendor's library in its own words.
fn of_vendor<V: Vendor>(
    name: &'static str,
    opened: Result<V, Error>,
    files: impl FnOnce() -> Vec<String>,
    devices: &'static str,
) -> BackendFacts {
    let vendor = match opened {
        Ok(vendor) => vendor,
        Err(error) => {
            let (problem, remedy) = problem_and_remedy(error);
            return BackendFacts::unusable(name, problem, remedy);
        }
    };
    let known = vendor.capabilities().to_string();
    let known = known.lines().filter_map(|line| line.split_once(": "));
    let over_tcp = [("messages", "over tcp")];
    BackendFacts {
        name,
        problem: None,
        remedy: None,
        version: Some(vendor.version()),
        files: files(),
        devices: Some(devices),
        capabilities: known
            .chain(over_tcp)
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect(),
    }
}

fn problem_and_remedy(error: Error) -> (String, Option<String>) {
    match error {
        Error::LibraryMissing { tried, remedy, .. } => (tried.join("; "), Some(remedy.to_string())),
        // The error has the remedy.
        other => (other.to_string(), None),
    }
}

/// The files of oneCCL and its libfabric among the files that a process has mapped.
fn mapped_files(maps: &str) -> Vec<String> {
    let paths = maps.lines().filter_map(|line| Some(&line[line.find('/')?..]));
    let is_its = |path: &&str| {
        let name = Path::new(path).file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("libccl") || name.starts_with("libfabric.")
    };
    let mut files: Vec<String> = paths.filter(is_its).map(str::to_owned).collect();
    files.sort_unstable();
    files.dedup();
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_a_library_are_found_where_the_process_has_them() {
        let maps = "\
7f00-7f01 r--p 00000000 08:01 17 /opt/ccl/libccl.so.2
7f01-7f02 r-xp 00001000 08:01 17 /opt/ccl/libccl.so.2
7f03-7f04 r--p 00000000 08:01 19 /usr/lib/libfabric.so.1.20
7f05-7f06 r--p 00000000 08:01 20 /opt/libccl/other.so
7f07-7f08 rw-p 00000000 00:00 0 [heap]
";
        assert_eq!(mapped_files(maps), ["/opt/ccl/libccl.so.2", "/usr/lib/libfabric.so.1.20"]);
    }

    #[test]
    fn a_missing_library_is_a_problem_and_a_remedy() {
        let error = Error::LibraryMissing {
            library: "oneCCL".into(),
            tried: vec!["/a: none".into(), "/b: none".into()],
            remedy: "fetch it".into(),
        };
        assert_eq!(problem_and_remedy(error), ("/a: none; /b: none".into(), Some("fetch it".into())));
    }
}
