//! The command line of algorithms, and how any command line is read. An invalid command line gets one line with the
//! allowed words.

use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::path::Path;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ErrorKind};
use clap::{Arg, Args, Command, CommandFactory, Parser, Subcommand};

use crate::problem::{Problem, Result};
use crate::sizes::parse_size;
use unisono_schedule::Collective;

/// The most ranks that a schedule is shown or verified for: the work grows with their square.
const SCHEDULE_RANKS_MAX: u32 = 1024;
/// The most ranks for which a cost is predicted: an all-to-all between more has more parts than a step can name.
const PREDICTED_RANKS_MAX: u32 = 1 << 15;

/// Lists, shows and proves algorithms, and predicts their times.
#[derive(Debug, Parser)]
#[command(disable_help_subcommand = true)]
pub(crate) struct AlgorithmsArguments {
    #[command(subcommand)]
    pub(crate) command: AlgoCommands,
}

/// The questions about algorithms.
#[derive(Debug, Subcommand)]
pub enum AlgoCommands {
    /// Every algorithm, or all of one collective, with its collective, requirements and costs.
    List {
        /// The collective: all_reduce, reduce_scatter, all_gather, all_to_all, broadcast, reduce, gather, scatter,
        /// barrier.
        #[arg(value_parser = parse_collective)]
        collective: Option<Collective>,
        /// Print one JSON document.
        #[arg(long)]
        json: bool,
    },
    /// The steps of every rank.
    Show {
        /// The algorithm as listed: collective/name, or a name alone for all collectives that have it.
        name: String,
        /// The number of ranks.
        #[arg(short = 'n', value_name = "RANKS", value_parser = ranks_up_to(SCHEDULE_RANKS_MAX))]
        ranks: u32,
        /// The root, for collectives that have one [default: 0].
        #[arg(long)]
        root: Option<u32>,
        /// Print one JSON document.
        #[arg(long)]
        json: bool,
    },
    /// Proves that an algorithm is right: matching messages, no deadlock, no race, exact results.
    ///
    /// For every number of ranks that you name, and every count. Of collectives with a root, every root is tried up to
    /// 16 ranks, above that roots 0, 1, half and last; of algorithms with leaders, several numbers of them.
    Verify {
        /// The algorithm as listed: collective/name, or a name alone for all collectives that have it; or --all.
        #[arg(required_unless_present = "all", conflicts_with = "all")]
        name: Option<String>,
        /// Every algorithm.
        #[arg(long)]
        all: bool,
        /// Numbers of ranks: N, or A..B with both ends included.
        #[arg(long, default_value = "1..16", value_parser = parse_ranks, value_name = "A..B")]
        ranks: RangeInclusive<u32>,
        /// Print one JSON document.
        #[arg(long)]
        json: bool,
    },
    /// The expected time of a call, and the algorithm that the library would choose.
    ///
    /// Uses the parameters of UNISONO_COST_MODEL, else the built-in ones, and says whose they are. Any of alpha, beta
    /// and gamma describes another network: then only rounds, bytes on the link and reductions count, not processor
    /// time.
    Price(PriceArguments),
}

/// The algorithms whose times are predicted, and the network.
#[derive(Debug, Args)]
pub struct PriceArguments {
    /// The algorithm as listed: collective/name, or a name alone for all collectives that have it.
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    pub name: Option<String>,
    /// Every algorithm.
    #[arg(long)]
    pub all: bool,
    /// The number of ranks.
    #[arg(long, short = 'n', value_parser = ranks_up_to(PREDICTED_RANKS_MAX))]
    pub ranks: u32,
    /// Bytes of the larger of a rank's two buffers, with K, M or G.
    #[arg(long, value_parser = parse_size, allow_hyphen_values = true)]
    pub bytes: u64,
    /// Microseconds from a send to the end of its receive.
    #[arg(long, value_name = "A", value_parser = parse_latency, allow_hyphen_values = true)]
    pub alpha_us: Option<f64>,
    /// Gigabytes per second of a link.
    #[arg(long, value_name = "B", value_parser = parse_rate, allow_hyphen_values = true)]
    pub beta_gb_per_s: Option<f64>,
    /// Gigabytes per second that a rank reduces.
    #[arg(long, value_name = "G", value_parser = parse_rate, allow_hyphen_values = true)]
    pub gamma_gb_per_s: Option<f64>,
    /// Print one JSON document.
    #[arg(long)]
    pub json: bool,
}

/// A latency in microseconds; at most a second, which is more than any network has.
fn parse_latency(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|microseconds| (0.0..=1e6).contains(microseconds));
    number.ok_or_else(|| format!("unknown latency {text:?}: microseconds from 0 to 1000000"))
}

/// A rate in GB/s, within the range of the cost model's parameters.
fn parse_rate(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|rate| (1e-5..=1e5).contains(rate));
    number.ok_or_else(|| format!("unknown rate {text:?}: GB/s from 0.00001 to 100000"))
}

/// A number of ranks from 1 to `most`.
pub fn ranks_up_to(most: u32) -> impl Fn(&str) -> Result<u32, String> + Clone + Send + Sync {
    ranks_within(1..=most)
}

/// A number of ranks within a range.
pub fn ranks_within(
    range: RangeInclusive<u32>,
) -> impl Fn(&str) -> Result<u32, String> + Clone + Send + Sync {
    move |text| {
        let number = text.parse().ok().filter(|ranks| range.contains(ranks));
        number.ok_or_else(|| format!("{text:?} is no number of ranks within {range:?}"))
    }
}

fn parse_collective(text: &str) -> Result<Collective, String> {
    let names = || Collective::ALL.map(Collective::name).join(", ");
    text.parse().map_err(|_| format!("unknown collective {text:?}, one of: {}", names()))
}

fn parse_ranks(text: &str) -> Result<RangeInclusive<u32>, String> {
    let (first, last) = text.split_once("..").unwrap_or((text, text));
    let last = last.strip_prefix('=').unwrap_or(last);
    let number = |text: &str| text.parse().ok().filter(|ranks| (1..=SCHEDULE_RANKS_MAX).contains(ranks));
    match (number(first), number(last)) {
        (Some(first), Some(last)) if first <= last => Ok(first..=last),
        _ => Err(format!(
            "unknown ranks {text:?}: N, or A..B with both ends included, from 1 to {SCHEDULE_RANKS_MAX}"
        )),
    }
}

/// The question of a command line.
#[derive(Debug)]
pub enum Asked<T> {
    /// To do something.
    Command(T),
    /// To print the help or the version.
    Text(clap::Error),
}

/// Reads a command line, whose first word is the program.
///
/// # Errors
/// A [`Problem`] of usage for an invalid command line.
pub fn ask<T: Parser>(words: impl IntoIterator<Item = OsString>) -> Result<Asked<T>> {
    let words = with_short_ranks::<T>(words.into_iter().collect());
    match T::try_parse_from(&words) {
        Ok(command) => Ok(Asked::Command(command)),
        Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            Ok(Asked::Text(error))
        }
        Err(error) => Err(Problem::usage(one_line::<T>(&error, &words))),
    }
}

/// The same words with `-n` for `-np`, as mpirun's users write it. The words of a program that is started stay its own.
fn with_short_ranks<T: CommandFactory>(mut words: Vec<OsString>) -> Vec<OsString> {
    let command = named_command::<T>(&words);
    let starts_program = command.get_positionals().any(|argument| argument.is_trailing_var_arg_set());
    let takes_value = |word: &str| {
        let name = word.trim_start_matches('-');
        let is_it = |argument: &&Arg| {
            argument.get_long() == Some(name)
                || argument.get_short().is_some_and(|short| name == short.to_string())
        };
        command.get_arguments().find(is_it).is_some_and(|argument| argument.get_action().takes_values())
    };
    let mut is_value = false;
    for word in words.iter_mut().skip_while(|word| **word != *command.get_name()).skip(1) {
        let Some(text) = word.to_str().filter(|text| *text != "--") else { break };
        if is_value {
            is_value = false;
        } else if text == "-np" {
            (*word, is_value) = ("-n".into(), true);
        } else if text.starts_with('-') {
            is_value = takes_value(text);
        } else if starts_program {
            break;
        }
    }
    words
}

/// The name under which the program was started, without its folder.
pub(crate) fn program_name(words: &[OsString]) -> String {
    let name = words.first().and_then(|program| Path::new(program).file_name());
    name.map_or_else(|| "algorithms".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// The error in one line, with the allowed words.
fn one_line<T: CommandFactory>(error: &clap::Error, arguments: &[OsString]) -> String {
    use std::error::Error;
    let command = named_command::<T>(arguments);
    let text = |kind| error.get(kind).map(|value| value.to_string());
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let name = text(ContextKind::InvalidSubcommand).unwrap_or_default();
            format!("unknown command {name:?}, one of: {}", commands(&command))
        }
        ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
            if command.has_subcommands() =>
        {
            format!("a command is missing, one of: {}", commands(&command))
        }
        ErrorKind::UnknownArgument => {
            let name = text(ContextKind::InvalidArg).unwrap_or_default();
            format!("unknown argument {name:?}; {}", usage(command))
        }
        // The value's own parser gives the reason.
        ErrorKind::ValueValidation => match (error.source(), text(ContextKind::InvalidArg)) {
            (Some(source), Some(name)) if name.starts_with('-') => format!("{}: {source}", flag(&name)),
            (Some(source), _) => source.to_string(),
            (None, _) => first_line(error),
        },
        ErrorKind::MissingRequiredArgument => {
            let missing = text(ContextKind::InvalidArg).unwrap_or_default();
            format!("missing: {missing}; {}", usage(command))
        }
        _ => format!("{}; {}", first_line(error), usage(command)),
    }
}

/// `--sizes <SIZES>` without its placeholder.
fn flag(name: &str) -> &str {
    name.split(' ').next().unwrap_or(name)
}

fn first_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}

/// The innermost command that the arguments name.
fn named_command<T: CommandFactory>(arguments: &[OsString]) -> Command {
    let mut command = T::command().bin_name(program_name(arguments));
    command.build();
    for argument in arguments.iter().skip(1) {
        let Some(inner) = argument.to_str().and_then(|name| command.find_subcommand(name)) else { break };
        command = inner.clone();
    }
    command
}

fn commands(command: &Command) -> String {
    let visible = command.get_subcommands().filter(|command| !command.is_hide_set());
    visible.map(Command::get_name).collect::<Vec<_>>().join(", ")
}

/// The usage of the command, with all its options.
fn usage(mut command: Command) -> String {
    let usage: StyledStr = command.render_usage();
    let options: Vec<String> = command
        .get_arguments()
        .filter(|argument| !argument.is_positional() && !argument.is_hide_set())
        .map(|argument| match argument.get_long() {
            Some(long) => format!("--{long}"),
            None => format!("-{}", argument.get_short().unwrap_or('?')),
        })
        .collect();
    let usage = usage.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    format!("{}; options: {}", usage.replacen("Usage:", "usage:", 1), options.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_ranks_include_their_end() {
        assert_eq!(parse_ranks("1..64"), Ok(1..=64));
        assert_eq!(parse_ranks("3..=5"), Ok(3..=5));
        assert_eq!(parse_ranks("7"), Ok(7..=7));
        for text in ["0..4", "4..", "..4", "a..b", "1..100000"] {
            assert!(parse_ranks(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_definition_is_consistent() {
        AlgorithmsArguments::command().debug_assert();
    }
}
