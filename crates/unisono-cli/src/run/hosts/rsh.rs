//! The command that starts an agent on a host: ssh, or a command of the user. A host called localhost is this
//! one, and needs no such command.

use std::path::Path;
use std::process::Command;

/// Without questions that nobody would answer; a host that is down or falls silent ends the command.
pub(crate) const RSH_DEFAULT: &str =
    "ssh -T -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=10 -o ServerAliveCountMax=3";

/// This machine.
pub(crate) const LOCALHOST: &str = "localhost";

/// The words behind the program that make it an agent.
const AGENT: [&str; 2] = ["run", "--agent"];

/// The command for a host. `program` is the path of this program there.
pub(super) fn command(rsh: &str, host: &str, program: &Path, own: &Path) -> Command {
    if host == LOCALHOST {
        let mut command = Command::new(own);
        command.args(AGENT);
        return command;
    }
    let mut words = rsh.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or("ssh"));
    command.args(words).arg(host);
    // A shell of the host takes it apart.
    let quoted = program.display().to_string().replace('\'', r"'\''");
    command.arg(format!("exec '{quoted}' {}", AGENT.join(" ")));
    command
}

/// The name of the command, for messages.
pub(super) fn name(rsh: &str, host: &str) -> String {
    let first = if host == LOCALHOST { "the agent" } else { rsh.split_whitespace().next().unwrap_or("ssh") };
    first.rsplit('/').next().unwrap_or(first).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(command: &Command) -> Vec<String> {
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        words.map(|word| word.to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn c10_the_command_has_no_secret_and_survives_a_shell() {
        let there = Path::new("/opt/it's/unisono");
        let made = words(&command("ssh -p 2222", "user@b", there, Path::new("/own")));
        assert_eq!(made, ["ssh", "-p", "2222", "user@b", r"exec '/opt/it'\''s/unisono' run --agent"]);
        let made = words(&command(RSH_DEFAULT, LOCALHOST, there, Path::new("/own")));
        assert_eq!(made, ["/own", "run", "--agent"]);
    }
}
