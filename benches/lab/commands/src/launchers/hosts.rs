//! Two hosts with names of their own, which are network namespaces of this machine.

#[path = "../../../../../crates/job/tests/support/network.rs"]
mod network;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::way::command;
use network::Network;

pub(super) const NAMES: [&str; 2] = ["node07", "node08"];

/// Runs a command with the host name `$0`, where the names of both hosts resolve.
const ON_HOST: &str = r#"mount --bind "$HOSTS_FILE" /etc/hosts && hostname "$0" && exec "$@""#;

/// The hosts. Their processes end with this, or with its process.
pub(super) struct Hosts {
    network: Network,
    /// A fresh folder for files of launchers.
    pub(super) folder: PathBuf,
}

impl Hosts {
    /// Makes them; an error says why this machine cannot.
    pub(super) fn start(folder: &Path) -> Result<Hosts, String> {
        let network = Network::new(NAMES.len()).map_err(|error| error.to_string())?;
        let problem = |error: std::io::Error| format!("{}: {error}", folder.display());
        if folder.exists() {
            fs::remove_dir_all(folder).map_err(problem)?;
        }
        fs::create_dir_all(folder).map_err(problem)?;
        let hosts =
            NAMES.iter().enumerate().map(|(host, name)| format!("{} {name}\n", Network::address(host)));
        let names = format!("127.0.0.1 localhost\n{}", hosts.collect::<String>());
        fs::write(folder.join("hosts"), names).map_err(problem)?;
        let hosts = Hosts { network, folder: folder.to_owned() };
        fs::write(hosts.wrong_secret(), [7; 32]).map_err(problem)?;
        fs::set_permissions(hosts.wrong_secret(), fs::Permissions::from_mode(0o600)).map_err(problem)?;
        Ok(hosts)
    }

    fn wrong_secret(&self) -> PathBuf {
        self.folder.join("wrong-secret")
    }

    /// A command on a host, in the folder, with the secret that both have.
    pub(super) fn command(&self, host: usize, words: &[&str]) -> Command {
        // Not by `ip netns exec`, which hides the control groups from Slurm.
        let [.., namespace] = self.network.entering(host);
        let mut command = command(Path::new("nsenter"));
        command
            .arg(format!("--net=/run/netns/{namespace}"))
            .args(["unshare", "--mount", "--uts", "sh", "-c", ON_HOST, NAMES[host]])
            .args(words);
        command.current_dir(&self.folder).env("HOSTS_FILE", self.folder.join("hosts"));
        command
            .env("UNISONO_SECRET_FILE", self.network.secret_file())
            .env("WRONG_SECRET", self.wrong_secret());
        command
    }

    /// The address of a host.
    pub(super) fn address(host: usize) -> String {
        Network::address(host).to_string()
    }
}
