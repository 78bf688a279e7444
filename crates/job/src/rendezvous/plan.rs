//! The way of meeting that the settings ask for.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use unisono_communicator::{Error, Result};
use unisono_control::handshake::JobId;

use super::address::{join_host, resolve, split_store};
use super::host::Hosted;
use super::join::JoinConfig;
use super::key::own_process;
use super::waiting::Waiting;
use crate::config::Config;
use crate::environment::{Launcher, Placement};
use crate::meeting_store::MeetingStore;
use crate::secret::SecretSource;
use crate::settings::configuration;
use crate::task_thread::TaskThread;

/// The id of the job for the ranks of a launcher that hosts the store at `store`, given as in `UNISONO_STORE`.
pub fn store_job(store: &str) -> JobId {
    JobId::from_key(&format!("store {store}"))
}

/// The id of the job of ranks that meet at a port of rank 0. They may spell its host in several ways.
pub(super) fn job_at(config: &Config, port: u16) -> JobId {
    config.job_key.as_deref().map_or_else(|| JobId::from_key(&format!("port {port}")), JobId::from_key)
}

/// A way of meeting.
#[derive(Clone, Debug)]
pub(super) enum Meeting {
    /// This rank is the only one.
    Solo,
    /// Through a private file.
    SameHost,
    /// Through a store that the program brings, with the secret of the settings.
    Program { store: Arc<dyn MeetingStore>, secret: Option<SecretSource> },
    /// Through the store of a launcher that speaks PMI.
    Pmi { descriptor: i32, secret: SecretSource },
    /// Through a private file that the program names, where all ranks see it.
    File(PathBuf),
    /// At the launcher's store.
    Launched { store: String, secret: SecretSource },
    /// At a store that rank 0 hosts.
    AtRankZero { host: String, port: u16, secret: SecretSource },
}

pub(super) fn meeting(config: &Config) -> Result<Meeting> {
    let Placement::Ranked { world_size, local_world_size, .. } = config.placement else {
        return Ok(Meeting::Solo);
    };
    if world_size == 1 {
        return Ok(Meeting::Solo);
    }
    if let Some(store) = config.meeting_store.clone() {
        return Ok(Meeting::Program { store, secret: secret(config) });
    }
    if let Some(path) = &config.meeting_file {
        return Ok(Meeting::File(path.clone()));
    }
    if let Some(store) = config.store.clone() {
        split_store(&store).map_err(|problem| configuration("UNISONO_STORE", &store, problem))?;
        let secret = secret(config).ok_or_else(|| {
            configuration("UNISONO_STORE", &store, format!("the secret is missing: {SECRET_REMEDY}"))
        })?;
        return Ok(Meeting::Launched { store, secret });
    }
    let one_host = match local_world_size {
        Some(local) => local == world_size,
        None => config.master_address.as_deref().is_none_or(is_literal_loopback),
    };
    if one_host {
        return Ok(Meeting::SameHost);
    }
    let (Some(host), Some(port)) = (config.master_address.clone(), config.master_port) else {
        return match (config.pmi, secret(config)) {
            (Some(descriptor), Some(secret)) => Ok(Meeting::Pmi { descriptor, secret }),
            _ => Err(nowhere(config, local_world_size)),
        };
    };
    let secret = secret(config).ok_or_else(|| {
        let problem = format!(
            "ranks of other hosts may meet there only with a secret: {SECRET_REMEDY}; if all ranks are on this host, \
             set UNISONO_LOCAL_WORLD_SIZE to their number"
        );
        configuration(config.variable("UNISONO_MASTER_ADDRESS"), &host, problem)
    })?;
    Ok(Meeting::AtRankZero { host, port: port + 1, secret })
}

/// The error of ranks on several hosts that are not told where to meet, or that may not. The setting that says that
/// there are several hosts is at its head, since no setting is wrong and one is missing.
fn nowhere(config: &Config, local_world_size: Option<u32>) -> Error {
    let (remedy, lacks) = match config.pmi {
        Some(_) => (remedy(config, false), "may meet only with a secret"),
        None => (remedy(config, secret(config).is_some()), "nothing says where to meet"),
    };
    let problem = format!(
        "some of the ranks are on other hosts, and {lacks}: {remedy}; if all are on this host, set \
         UNISONO_LOCAL_WORLD_SIZE"
    );
    let (name, number) = match local_world_size {
        Some(local) => ("UNISONO_LOCAL_WORLD_SIZE", local),
        None => ("UNISONO_WORLD_SIZE", config.placement.world_size()),
    };
    config.refused(name, &number.to_string(), problem)
}

/// The words to add to the command of the launcher, and the secret if it is missing.
fn remedy(config: &Config, has_secret: bool) -> String {
    let Placement::Ranked { launcher, rank, .. } = config.placement else { return String::new() };
    let host = match rank {
        0 => own_process().process.host,
        _ => "HOST".into(),
    };
    let whose = if rank == 0 { "" } else { ", HOST being the host of rank 0" };
    let set = |option: &str, sign: &str| {
        let secret = if has_secret { "" } else { &format!(" {option}UNISONO_SECRET_FILE{sign}FILE") };
        format!("{option}MASTER_ADDR{sign}{host}{secret}")
    };
    let line = match launcher {
        Launcher::OpenMpi => format!("mpirun {} ...{whose}", set("-x ", "=")),
        Launcher::Pmi if config.pmi.is_some() => "mpiexec -genv UNISONO_SECRET_FILE FILE ...".to_owned(),
        Launcher::Pmi => format!("mpiexec {} ...{whose}", set("-genv ", " ")),
        Launcher::Mvapich => format!("mpirun_rsh ... {} PROGRAM{whose}", set("", "=")),
        Launcher::Named | Launcher::Pmix | Launcher::Slurm => {
            "set UNISONO_STORE, or MASTER_ADDR and MASTER_PORT".to_owned()
        }
    };
    if has_secret { line } else { format!("{line}; {SECRET_REMEDY}") }
}

pub(super) const SECRET_REMEDY: &str = "\
    UNISONO_SECRET_FILE must name a file with the same 32 random bytes on every host, mode 0600 \
    (unisono secret FILE, or umask 077; head -c 32 /dev/urandom > FILE), or UNISONO_SECRET_FD a pipe with them, or \
    have the file as unisono/secret in the user's configuration directory";

fn secret(config: &Config) -> Option<SecretSource> {
    let own = || config.user_secret_file.clone().filter(|path| path.exists()).map(SecretSource::File);
    config.secret.clone().or_else(own)
}

/// Whether `host` is literally a loopback address, which is one on every host.
pub(super) fn is_literal_loopback(host: &str) -> bool {
    host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

/// Hosts the store as rank 0: on the address that `host` resolves to or, where that is not an address of this host or
/// other hosts cannot reach it, on the address that this rank listens on.
pub(super) async fn host_at(
    (host, port): (&str, u16),
    ours: SocketAddr,
    rank: &JoinConfig,
    thread: &TaskThread,
) -> Result<Hosted> {
    let remedy = |error: Error| match error {
        Error::System { what, text } => {
            let remedy =
                "if another job has this port, set another MASTER_PORT, the same for all ranks of one job";
            Error::System { what, text: format!("{text}; {remedy}") }
        }
        other => other,
    };
    let start =
        |listen: SocketAddr| Hosted::start(thread, rank.store_at(listen), rank.run.clone()).map_err(remedy);
    let mut waiting = Waiting::new(&rank.wait, rank.rank, rank.world_size);
    let named = resolve(&join_host(host, port), &mut waiting).await?;
    let mut ours = ours;
    ours.set_port(port);
    if named.ip().is_loopback() && !is_literal_loopback(host) {
        return start(ours);
    }
    start(named).or_else(|error: Error| if named == ours { Err(error) } else { start(ours) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(variables: &[(&str, &str)]) -> Result<Meeting> {
        let lookup =
            |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| value.to_string());
        meeting(&Config::from_lookup(&lookup).unwrap())
    }

    impl PartialEq for Meeting {
        fn eq(&self, other: &Meeting) -> bool {
            format!("{self:?}") == format!("{other:?}")
        }
    }

    const RANKS: [(&str, &str); 2] = [("RANK", "1"), ("WORLD_SIZE", "2")];

    fn with(more: &[(&'static str, &'static str)]) -> Result<Meeting> {
        plan(&[&RANKS[..], more].concat())
    }

    #[test]
    fn who_is_alone_meets_nobody() {
        assert_eq!(plan(&[]).unwrap(), Meeting::Solo);
        let one = [("RANK", "0"), ("WORLD_SIZE", "1"), ("UNISONO_STORE", "h:1")];
        assert_eq!(plan(&one).unwrap(), Meeting::Solo);
    }

    #[test]
    fn one_host_is_what_all_ranks_can_see_alike() {
        let master = ("MASTER_PORT", "29500");
        assert_eq!(with(&[]).unwrap(), Meeting::SameHost);
        assert_eq!(with(&[("MASTER_ADDR", "localhost"), master]).unwrap(), Meeting::SameHost);
        assert_eq!(with(&[("MASTER_ADDR", "127.0.0.1"), master]).unwrap(), Meeting::SameHost);
        let local = ("LOCAL_WORLD_SIZE", "2");
        assert_eq!(with(&[("MASTER_ADDR", "node7"), master, local]).unwrap(), Meeting::SameHost);
    }

    #[test]
    fn several_hosts_meet_where_they_are_told_or_are_refused_with_the_remedies() {
        let (host, port, secret) =
            (("MASTER_ADDR", "node7"), ("MASTER_PORT", "29500"), ("UNISONO_SECRET_FILE", "/s"));
        let at_zero = Meeting::AtRankZero {
            host: "node7".into(),
            port: 29_501,
            secret: SecretSource::File("/s".into()),
        };
        assert_eq!(with(&[host, port, secret]).unwrap(), at_zero);
        let launched = Meeting::Launched { store: "node7:1".into(), secret: SecretSource::Descriptor(7) };
        assert_eq!(with(&[("UNISONO_STORE", "node7:1"), ("UNISONO_SECRET_FD", "7")]).unwrap(), launched);
        let ompi = ["RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE"].map(|name| format!("OMPI_COMM_WORLD_{name}"));
        let variables: Vec<_> = ompi.iter().map(String::as_str).zip(["1", "2", "0", "1"]).collect();
        let text = plan(&variables).unwrap_err().to_string();
        assert!(text.starts_with("OMPI_COMM_WORLD_LOCAL_SIZE=1: some of the ranks"), "{text}");
        let refused = [
            (vec![("UNISONO_STORE", "node7:1")], "UNISONO_STORE=node7:1: the secret is missing"),
            (vec![host, port], "MASTER_ADDR=node7: ranks of other hosts may meet there only with a secret"),
            (
                vec![("LOCAL_WORLD_SIZE", "1"), secret],
                "LOCAL_WORLD_SIZE=1: some of the ranks are on other hosts",
            ),
        ];
        for (variables, expected) in refused {
            let text = with(&variables).unwrap_err().to_string();
            assert!(text.starts_with(expected), "{text}");
        }
    }

    /// Of the launchers without a way for us to ask where rank 0 is.
    #[test]
    fn ranks_that_are_not_told_where_to_meet_name_the_words_for_their_launcher() {
        let host = own_process().process.host;
        let names = |beginning: &str| {
            [("RANK", "0"), ("SIZE", "2"), ("LOCAL_RANK", "0"), ("LOCAL_SIZE", "1")]
                .map(|(name, value)| (format!("{beginning}_{name}"), value))
        };
        let pmi = ["PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"].map(str::to_owned);
        let pmi: [(String, &str); 4] =
            std::array::from_fn(|one| (pmi[one].clone(), ["0", "2", "0", "1"][one]));
        for (variables, line) in [
            (
                names("OMPI_COMM_WORLD"),
                format!("mpirun -x MASTER_ADDR={host} -x UNISONO_SECRET_FILE=FILE ...; "),
            ),
            (
                names("MV2_COMM_WORLD"),
                format!("mpirun_rsh ... MASTER_ADDR={host} UNISONO_SECRET_FILE=FILE PROGRAM; "),
            ),
            (pmi, format!("mpiexec -genv MASTER_ADDR {host} -genv UNISONO_SECRET_FILE FILE ...; ")),
        ] {
            let mut variables: Vec<(&str, &str)> =
                variables.iter().map(|(name, value)| (name.as_str(), *value)).collect();
            let text = plan(&variables).unwrap_err().to_string();
            assert!(
                text.contains(&format!("nothing says where to meet: {line}UNISONO_SECRET_FILE must")),
                "{text}"
            );
            variables.push(("UNISONO_SECRET_FILE", "/s"));
            let text = plan(&variables).unwrap_err().to_string();
            assert!(text.contains(&*host) && !text.contains("UNISONO_SECRET_FILE"), "{text}");
            variables[0].1 = "1";
            let text = plan(&variables).unwrap_err().to_string();
            assert!(text.contains("MASTER_ADDR") && text.contains("HOST being the host of rank 0"), "{text}");
        }
        let asked: Vec<(&str, &str)> = [("PMI_RANK", "1"), ("PMI_SIZE", "2"), ("PMI_FD", "7")].to_vec();
        let asked = [&asked[..], &[("MPI_LOCALNRANKS", "1")]].concat();
        let text = plan(&asked).unwrap_err().to_string();
        assert!(text.contains("only with a secret: mpiexec -genv UNISONO_SECRET_FILE FILE"), "{text}");
        let with_secret = [&asked[..], &[("UNISONO_SECRET_FILE", "/s")]].concat();
        let secret = SecretSource::File("/s".into());
        assert_eq!(plan(&with_secret).unwrap(), Meeting::Pmi { descriptor: 7, secret });
    }
}
