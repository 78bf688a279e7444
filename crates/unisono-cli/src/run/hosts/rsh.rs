//! The command that starts an agent on a host: ssh, or a command of the user. This machine needs no such command.

use std::path::Path;
use std::process::Command;

use rustix::system::uname;

/// Without questions that nobody would answer; a host that is down or falls silent ends the command.
pub(crate) const RSH_DEFAULT: &str =
    "ssh -T -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=10 -o ServerAliveCountMax=3";

/// This machine, wherever it is.
const LOCALHOST: &str = "localhost";

/// The words behind the program that make it an agent.
const AGENT: [&str; 2] = ["run", "--agent"];

/// A command that runs a line on a host: a program, which is there, and its first arguments.
#[derive(Clone, Debug)]
pub(crate) struct Rsh(Vec<String>);

impl Rsh {
    /// Takes the words of a command.
    pub(crate) fn parse(text: &str) -> Result<Rsh, String> {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        match words.first().map(|program| base_name(program)) {
            None => Err("a command is needed, such as ssh".into()),
            Some("pdsh") => Err("pdsh passes no input on, and the secret goes there; use ssh".into()),
            Some(_) => Ok(Rsh(words)),
        }
    }

    /// The command for a host. `program` is the path of this program there.
    pub(super) fn command(&self, host: &str, program: &Path, own: &Path) -> Command {
        if is_here(host) {
            let mut command = Command::new(own);
            command.args(AGENT);
            return command;
        }
        let mut command = Command::new(&self.0[0]);
        command.args(&self.0[1..]).arg(host);
        // A shell of the host takes it apart.
        let quoted = program.display().to_string().replace('\'', r"'\''");
        command.arg(format!("exec '{quoted}' {}", AGENT.join(" ")));
        command
    }

    /// The name of the command for a host, for messages.
    pub(super) fn name(&self, host: &str) -> String {
        let name = if is_here(host) { "the agent" } else { &self.0[0] };
        base_name(name).to_owned()
    }
}

fn base_name(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

/// Whether a name means this machine: localhost, or its own name with or without its domain.
fn is_here(host: &str) -> bool {
    let uname = uname();
    let own = uname.nodename().to_bytes();
    [LOCALHOST.as_bytes(), own, own.split(|byte| *byte == b'.').next().unwrap_or(own)]
        .contains(&host.as_bytes())
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
        let made = words(&Rsh::parse("ssh -p 2222").unwrap().command("user@b", there, Path::new("/own")));
        assert_eq!(made, ["ssh", "-p", "2222", "user@b", r"exec '/opt/it'\''s/unisono' run --agent"]);
        let made = words(&Rsh::parse(RSH_DEFAULT).unwrap().command(LOCALHOST, there, Path::new("/own")));
        assert_eq!(made, ["/own", "run", "--agent"]);
    }

    #[test]
    fn a_command_that_passes_no_input_on_is_refused() {
        for text in ["pdsh -R ssh -w", "/usr/bin/pdsh"] {
            assert!(Rsh::parse(text).unwrap_err().contains("passes no input on"), "{text}");
        }
    }

    #[test]
    fn c10_a_command_without_words_is_refused() {
        assert!(Rsh::parse(" ").unwrap_err().contains("a command is needed"));
        let by_default =
            words(&Rsh::parse(RSH_DEFAULT).unwrap().command("b", Path::new("/u"), Path::new("/own")));
        assert!(by_default.contains(&"BatchMode=yes".to_owned()), "{by_default:?}");
    }
}
