//! The hosts of a job: `unisono run --hosts` and `--hostfile`.
//!
//! | file | contents |
//! | --- | --- |
//! | `hostfile`, `layout` | hosts and slots as a user writes them; the ranks on each host |
//! | `environment` | the variables that ranks get from here |
//! | `rsh`, `line` | the command that starts an agent; its process and pipes |
//! | `message` | the messages between launcher and agent |
//! | `agents`, `listener` | the launcher's side |
//! | `agent`, `frames`, `address` | the agent's side |

mod address;
pub(crate) mod agent;
pub(super) mod agents;
mod environment;
mod frames;
mod hostfile;
mod layout;
mod line;
mod listener;
mod message;
mod rsh;

use std::ffi::OsString;
use std::path::PathBuf;

use crate::arguments::HostArguments;
use crate::problem::{Problem, Result};
pub(crate) use environment::named as named_variables;
use hostfile::{Choice, parse_hostfile, parse_list};
pub(super) use layout::Share;
use layout::shares;
pub(crate) use rsh::{RSH_DEFAULT, Rsh};

/// The variables of vendors' libraries that show a process some of the host's devices.
const VISIBLE_DEVICES: [&str; 2] = ["CUDA_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES"];

/// The hosts of a job, with their ranks.
#[derive(Debug)]
pub(crate) struct Hosts {
    pub(super) shares: Vec<Share>,
    rsh: Rsh,
    /// The path of this program on the hosts, if it is another one than here.
    program: Option<PathBuf>,
    /// The working directory of the ranks.
    directory: PathBuf,
}

impl Hosts {
    /// The hosts that the user names, for so many ranks or one in each slot; `None` if the user names no host.
    pub(crate) fn of_arguments(arguments: &HostArguments, ranks: Option<u32>) -> Result<Option<Hosts>> {
        let HostArguments { hosts, hostfile, include, exclude, rsh, remote_program, wdir } = arguments;
        let named = match (hosts, hostfile) {
            (Some(list), _) => parse_list(list).map_err(|problem| format!("--hosts {list}: {problem}")),
            (None, Some(path)) => {
                let text = std::fs::read_to_string(path).map_err(|error| error.to_string());
                let hosts = text.and_then(|text| parse_hostfile(&text));
                hosts.map_err(|problem| format!("--hostfile {}: {problem}", path.display()))
            }
            (None, None) => return Ok(None),
        };
        let choice = match (include, exclude) {
            (Some(text), _) => Choice::Include(text),
            (None, Some(text)) => Choice::Exclude(text),
            (None, None) => Choice::All,
        };
        let chosen = named.and_then(|named| choice.of(named));
        let shares = chosen.and_then(|chosen| shares(chosen, ranks)).map_err(Problem::usage)?;
        let directory = wdir.clone().map_or_else(std::env::current_dir, Ok);
        let directory = directory.map_err(|error| Problem::failed("the working directory", error))?;
        let (rsh, program) = (rsh.clone(), remote_program.clone());
        Ok(Some(Hosts { shares, rsh, program, directory }))
    }

    /// The number of ranks on all hosts.
    pub(crate) fn ranks(&self) -> u32 {
        self.shares.last().map_or(0, |share| share.numbers.end)
    }

    /// The variables that the ranks of a host get from here.
    pub(super) fn variables_of(&self, share: &Share) -> Vec<(OsString, OsString)> {
        [environment::travelling(), devices(share)].concat()
    }
}

/// The ranks of slots that were chosen by number see the devices of these numbers, as under DeepSpeed's launcher.
fn devices(share: &Share) -> Vec<(OsString, OsString)> {
    let Some(slots) = &share.chosen_slots else { return Vec::new() };
    let list = slots.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    VISIBLE_DEVICES.map(|name| (name.into(), list.clone().into())).to_vec()
}
