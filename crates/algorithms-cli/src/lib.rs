//! The command line of algorithms: `unisono algo`, and the same for the algorithms of a user's program.
//!
//! It reads no settings: the caller gives the figures of its machine ([`FiguresHere`]).
//!
//! | module | contents |
//! | --- | --- |
//! | [`arguments`], [`sizes`] | the command line |
//! | `commands`, `choices`, `price` | the answers |
//! | [`forecast`], `figures` | the choices of the library, and the figures of a machine |
//! | [`problem`], [`mod@print`], `panics` | the lines for a user when something is wrong |
//! | [`axis`] | axes of pictures |

#![forbid(unsafe_code)]

pub mod arguments;
pub mod axis;
mod choices;
mod commands;
mod figures;
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

use unisono_schedule::{Algorithm, Registry, Trust};

use arguments::{AlgoCommands, AlgorithmsArguments, Asked, ask, program_name};
pub use choices::misfit;
pub use figures::{FiguresHere, MachineFigures};
use panics::TellOnce;
use problem::{Problem, Result};

/// The whole `main` of a program that answers questions about its `own` algorithms, beside the built-in ones. Gives the
/// exit status: 0; 1 when an algorithm is wrong or something failed; 2 for a command line that is not valid, and for an
/// algorithm whose name is taken or is none.
pub fn main(own: &[Arc<Algorithm>], here: &FiguresHere) -> ExitCode {
    let (mut out, mut errors) = (std::io::stdout().lock(), std::io::stderr().lock());
    ExitCode::from(answer(own, std::env::args_os().collect(), here, (&mut out, &mut errors)))
}

/// [`main`] with these words and writers.
fn answer(
    own: &[Arc<Algorithm>],
    words: Vec<OsString>,
    here: &FiguresHere,
    (out, errors): (&mut dyn Write, &mut dyn Write),
) -> u8 {
    let program = program_name(&words);
    let done = ask(words).and_then(|asked| match asked {
        Asked::Command(AlgorithmsArguments { command }) => execute(command, own, here, out),
        Asked::Text(text) => print::line(out, text.to_string().trim_end()),
    });
    let Err(Problem { status, text }) = done else { return 0 };
    if !text.is_empty() {
        // Nobody can be told that the standard error takes nothing; the status says that something is wrong.
        let _ = writeln!(errors, "{program}: {text}");
    }
    status
}

/// Answers a command about the built-in algorithms and the program's `own`.
///
/// # Errors
/// A [`Problem`] of usage for an own algorithm whose name is taken or is none; as the command says.
pub fn execute(
    command: AlgoCommands,
    own: &[Arc<Algorithm>],
    here: &FiguresHere,
    out: &mut dyn Write,
) -> Result<()> {
    let _told_once = TellOnce::start();
    let mut registry = Registry::built_in();
    for algorithm in own {
        let added = registry.add(algorithm.clone(), Trust::Prove);
        added.map_err(|refused| Problem::usage(refused.to_string()))?;
    }
    commands::execute(command, &registry, here, out)
}
