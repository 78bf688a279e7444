//! Platforms that start a launcher of MPI, and say beside it where rank 0 is. The ranks come from the launcher.
//!
//! | platform | known by | host of rank 0 | port |
//! | --- | --- | --- | --- |
//! | DLTS | `DLTS_JOB_ID` | | |
//! | Azure ML | `AZUREML_EXPERIMENT_ID` | `AZ_BATCH_MASTER_NODE`, `AZ_BATCHAI_MPI_MASTER_NODE` | 6105 |
//! | SageMaker | `SM_TRAINING_ENV` | the first host in `SM_HOSTS` | 29500 |
//!
//! Hosts and ports are the same as DeepSpeed's, but for four of its faults. An address or a port that the user has set
//! is kept, also in a job on one host; so is `NCCL_SOCKET_IFNAME`, which need not be set. An IPv6 address stays whole.
//! On SageMaker the address does not have to be set. A process without a rank is alone.

use std::net::IpAddr;

use unisono_communicator::Result;

use super::rows::{
    AZURE_ML, AZURE_ML_MASTERS, DLTS, SAGE_MAKER, SAGE_MAKER_HOSTS, Sourced, TORCH_PORT, first,
};
use crate::settings::{Source, configuration};

/// The platform on which a job runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Platform {
    /// Azure Machine Learning.
    AzureMl,
    /// Amazon SageMaker.
    SageMaker,
    /// DLTS, of which DeepSpeed knows that the variables of Azure ML do not count there.
    Dlts,
}

impl Platform {
    /// Its name for people.
    pub const fn name(self) -> &'static str {
        match self {
            Platform::AzureMl => "Azure ML",
            Platform::SageMaker => "SageMaker",
            Platform::Dlts => "DLTS",
        }
    }

    /// The port of rank 0 where nobody has set one.
    const fn port(self) -> u16 {
        match self {
            // As in DeepSpeed: the port in AZ_BATCH_MASTER_NODE belongs to Azure's own agent.
            Platform::AzureMl => 6105,
            Platform::SageMaker | Platform::Dlts => TORCH_PORT,
        }
    }
}

/// The platform by its marks.
pub(super) fn platform(source: &Source<'_>) -> Option<Platform> {
    let marks = [(DLTS, Platform::Dlts), (AZURE_ML, Platform::AzureMl), (SAGE_MAKER, Platform::SageMaker)];
    marks.into_iter().find(|(names, _)| first(source, names).is_some()).map(|(_, platform)| platform)
}

/// The host of rank 0 and a port, as a platform says them.
pub(super) fn master(
    source: &Source<'_>,
    is_on_one_host: bool,
) -> Result<Option<(Sourced<String>, Sourced<u16>)>> {
    let Some(platform) = platform(source) else { return Ok(None) };
    let named = match platform {
        Platform::Dlts => None,
        Platform::SageMaker => first(source, SAGE_MAKER_HOSTS),
        Platform::AzureMl => {
            let [on_several, on_one] = [&AZURE_ML_MASTERS[..1], &AZURE_ML_MASTERS[1..]];
            let names = if is_on_one_host { [on_one, on_several] } else { [on_several, on_one] };
            names.into_iter().find_map(|names| first(source, names))
        }
    };
    let Some((name, value)) = named else { return Ok(None) };
    let (host, form) = match platform {
        Platform::SageMaker => {
            (first_of_list(&value), "a JSON list of hosts is needed, such as [\"algo-1\"]")
        }
        Platform::AzureMl | Platform::Dlts => {
            (host_part(&value), "a host with or without its port is needed, such as 10.0.0.4:6000")
        }
    };
    let host = host.ok_or_else(|| configuration(&name, &value, form))?.to_owned();
    let port = Sourced { value: platform.port(), source: format!("the default on {}", platform.name()) };
    Ok(Some((Sourced { value: host, source: name }, port)))
}

/// The host of `host:port` or of `host`. An IPv6 address with a port has brackets.
fn host_part(text: &str) -> Option<&str> {
    let text = text.trim();
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            (host, port.strip_prefix(':').or(port.is_empty().then_some("0"))?)
        }
        None if text.parse::<IpAddr>().is_ok() => (text, "0"),
        None => text.split_once(':').unwrap_or((text, "0")),
    };
    (is_host(host) && port.parse::<u16>().is_ok()).then_some(host)
}

/// The first element of a JSON list of hosts, whose names have no escapes.
fn first_of_list(text: &str) -> Option<&str> {
    let inside = text.trim().strip_prefix('[')?.strip_suffix(']')?.trim_start();
    let (host, _) = inside.strip_prefix('"')?.split_once('"')?;
    is_host(host).then_some(host)
}

/// Whether a text may be a host name or an address, perhaps with an interface after `%`.
pub(super) fn is_host(text: &str) -> bool {
    let is_address = text.split('%').next().is_some_and(|address| address.parse::<IpAddr>().is_ok());
    let is_letter =
        |letter: char| !letter.is_whitespace() && !letter.is_control() && !"[]:/\\\"'".contains(letter);
    is_address || (!text.is_empty() && text.chars().all(is_letter))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_of_a_master_node_is_whole_also_as_an_ipv6_address() {
        for (text, host) in [
            ("10.0.0.4:6000", Some("10.0.0.4")),
            (" 10.0.0.4 ", Some("10.0.0.4")),
            ("node7:6000", Some("node7")),
            ("[fd00::4]:6000", Some("fd00::4")),
            ("[fd00::4]", Some("fd00::4")),
            ("fd00::4", Some("fd00::4")),
            (":6000", None),
            ("[fd00::4", None),
            ("tcp://10.0.0.4:6000", None),
            ("10.0.0.4:http", None),
            ("[fd00::4]6000", None),
            ("two hosts:1", None),
            (" ", None),
        ] {
            assert_eq!(host_part(text), host, "{text}");
        }
    }

    #[test]
    fn the_first_host_of_a_list_is_found_or_the_list_is_none() {
        for (text, host) in [
            (r#"["algo-1","algo-2"]"#, Some("algo-1")),
            (r#" [ "algo-1" ] "#, Some("algo-1")),
            ("[]", None),
            ("algo-1", None),
            (r#"[""]"#, None),
            (r#"["algo 1"]"#, None),
            (r#"{"hosts":"algo-1"}"#, None),
            (r#"[1,"algo-1"]"#, None),
        ] {
            assert_eq!(first_of_list(text), host, "{text}");
        }
    }
}
