//! The backends that settings know: what each can do here, or why it can do nothing, and what to do about that.

use std::fs::read_to_string;
use std::net::SocketAddr;
use std::path::Path;

use serde::Serialize;
use unisono::{Error, World};
use unisono_offload::Vendor;
use unisono_offload_ccl::{BACKEND as CCL, Ccl, CclOptions, CclVendor};
use unisono_transport_tcp::BACKEND as TCP;
use unisono_transport_tcp::config::{AUTO, BACKEND_NAMES, Config};

use super::facts::HostNetwork;
use crate::print;

/// A backend, as this machine has it.
#[derive(Debug, Serialize)]
pub(super) struct Backend {
    pub(super) name: &'static str,
    /// Why it cannot be used; if that is said, the rest is not known.
    pub(super) problem: Option<String>,
    /// What to do about that, unless the problem says it.
    pub(super) remedy: Option<String>,
    pub(super) version: Option<String>,
    /// Of its library, by their paths.
    pub(super) files: Vec<String>,
    /// Whose memory calls may be on.
    pub(super) devices: Option<&'static str>,
    /// Name and value of each.
    pub(super) capabilities: Vec<(String, String)>,
}

impl Backend {
    /// All of them but `auto`, which is no backend of its own.
    pub(super) fn all(network: &HostNetwork, config: &Config) -> Vec<Backend> {
        let names = BACKEND_NAMES.into_iter().filter(|name| *name != AUTO);
        names.map(|name| Backend::of(name, network, config)).collect()
    }

    fn of(name: &'static str, network: &HostNetwork, config: &Config) -> Backend {
        match name {
            TCP => tcp(network, config),
            CCL => ccl(config),
            _ => Backend::unusable(name, "not in this build".to_owned(), None),
        }
    }

    fn unusable(name: &'static str, problem: String, remedy: Option<String>) -> Backend {
        let (version, files, devices, capabilities) = (None, Vec::new(), None, Vec::new());
        let problem = Some(problem);
        Backend { name, problem, remedy, version, files, devices, capabilities }
    }
}

const HOST_MEMORY: &str = "memory of the host";

fn tcp(network: &HostNetwork, config: &Config) -> Backend {
    let listens = network.listens_on.clone().and_then(|address| {
        let listener = World::listen(SocketAddr::new(address, 0), config);
        listener.map(drop).map_err(|error| error.to_string())
    });
    if let Err(problem) = listens {
        return Backend::unusable(TCP, problem, Some("see UNISONO_ADDRESS and UNISONO_INTERFACE".to_owned()));
    }
    let capabilities = [
        ("reductions", "every operator, functions of the program too, on every type that it is defined on"),
        ("a NaN among numbers in min and max", "the result"),
        ("equal bits on all ranks", "yes"),
        ("deadline of blocking calls", "yes"),
    ];
    Backend {
        name: TCP,
        problem: None,
        remedy: None,
        version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        files: Vec::new(),
        devices: Some(HOST_MEMORY),
        capabilities: capabilities.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
    }
}

fn ccl(config: &Config) -> Backend {
    let opened = print::aside(|| Ccl::open(&CclOptions { directory: config.ccl_directory.clone() }));
    let ccl = match opened {
        Ok(ccl) => CclVendor::on_host(ccl),
        Err(error) => {
            let (problem, remedy) = problem_and_remedy(error);
            return Backend::unusable(CCL, problem, remedy);
        }
    };
    let known = ccl.capabilities().to_string();
    let known = known.lines().filter_map(|line| line.split_once(": "));
    let over_tcp = [("messages", "over tcp")];
    Backend {
        name: CCL,
        problem: None,
        remedy: None,
        version: Some(ccl.version()),
        files: mapped_files(&read_to_string("/proc/self/maps").unwrap_or_default()),
        devices: Some("memory of the host; none of a device"),
        capabilities: known
            .chain(over_tcp)
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect(),
    }
}

fn problem_and_remedy(error: Error) -> (String, Option<String>) {
    match error {
        Error::LibraryMissing { tried, remedy, .. } => (tried.join("; "), Some(remedy.to_string())),
        // It says what to do.
        other => (other.to_string(), None),
    }
}

/// The files of oneCCL and its libfabric among those that a process has mapped.
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
