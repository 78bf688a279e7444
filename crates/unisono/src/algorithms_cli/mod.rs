//! The command line of algorithms: `unisono algo`, and the same for the algorithms of a user's program.
//!
//! Hidden, except for [`algorithms_main`]: the rest is for the program `unisono`.

pub mod arguments;
pub mod axis;
mod commands;
pub mod forecast;
mod panics;
mod price;
pub mod print;
pub mod problem;
pub mod sizes;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

use arguments::{AlgoCommands, AlgorithmsArguments, Asked, ask, program_name};
pub use commands::misfit;
use panics::TellOnce;
use problem::{Problem, Result};
use unisono_schedule::{Algorithm, Registry, Trust};

/// The whole `main` of a program that answers questions about its own algorithms, beside those of this crate, as
/// `unisono algo` does:
///
/// ```text
/// program list                              every algorithm; the program's own are marked
/// program show all_reduce/pair -n 2         the steps of every rank
/// program verify pair --ranks 1..16         a proof, or a counterexample
/// program price --all --ranks 64 --bytes 1M what each is expected to take, and which one is chosen
/// ```
///
/// The exit status is 0; 1 when an algorithm is wrong or something failed; 2 for a command line that is not valid, and
/// for an algorithm whose name is taken or is none. Needs the feature `cli`.
///
/// ```no_run
/// use std::sync::Arc;
/// use unisono::schedule::{Algorithm, Own};
/// use unisono::Collective;
///
/// // Both ranks send their whole vector, and add what comes, the lower rank's on the left.
/// fn pair() -> Arc<Algorithm> {
///     let pair = Algorithm::new("pair", Collective::AllReduce, |builder| {
///         let (peer, own) = (1 - builder.rank(), if builder.rank() == 0 { Own::Left } else { Own::Right });
///         builder.send(peer, 0);
///         builder.recv_reduce(peer, 0, own, true);
///     });
///     Arc::new(pair.fits(|shape| shape.ranks == 2))
/// }
///
/// fn main() -> std::process::ExitCode {
///     unisono::algorithms_main(&[pair()])
/// }
/// ```
pub fn algorithms_main(own: &[Arc<Algorithm>]) -> ExitCode {
    let (mut out, mut errors) = (std::io::stdout().lock(), std::io::stderr().lock());
    ExitCode::from(answer(own, std::env::args_os().collect(), &mut out, &mut errors))
}

/// [`algorithms_main`] with these words and writers; gives the exit status.
fn answer(own: &[Arc<Algorithm>], words: Vec<OsString>, out: &mut dyn Write, errors: &mut dyn Write) -> u8 {
    let program = program_name(&words);
    let done = ask(words).and_then(|asked| match asked {
        Asked::Command(AlgorithmsArguments { command }) => execute(command, own, out),
        Asked::Text(text) => print::line(out, text.to_string().trim_end()),
    });
    let Err(Problem { status, text }) = done else { return 0 };
    if !text.is_empty() {
        // Nobody can be told that the standard error takes nothing; the status says that something is wrong.
        let _ = writeln!(errors, "{program}: {text}");
    }
    status
}

/// Answers a command about the algorithms of this crate and the program's `own`.
///
/// # Errors
/// A [`Problem`] of usage for an own algorithm whose name is taken or is none; as the command says.
pub fn execute(command: AlgoCommands, own: &[Arc<Algorithm>], out: &mut dyn Write) -> Result<()> {
    let _told_once = TellOnce::start();
    let mut registry = Registry::built_in();
    for algorithm in own {
        let added = registry.add(algorithm.clone(), Trust::Prove);
        added.map_err(|refused| Problem::usage(refused.to_string()))?;
    }
    commands::execute(command, &registry, out)
}
