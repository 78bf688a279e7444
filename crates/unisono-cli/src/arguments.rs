//! The command line. A command line that is not valid gets one line that says what is allowed.

use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use clap::builder::{RangedI64ValueParser, StyledStr};
use clap::error::{ContextKind, ErrorKind};
use clap::{Args, Command, CommandFactory, Parser, Subcommand};
use unisono::{DType, ReduceOp};

use crate::bench::operations::MeasuredOperation;
use crate::bench::sizes::parse_size;
use crate::demo::Kill;
use crate::problem::{Problem, Result};
use crate::run::GRACE_SECONDS_DEFAULT;

/// The most ranks that are started on one host.
pub(crate) const LOCAL_RANKS_MAX: u32 = 1024;
/// The most ranks that a schedule is shown or verified for: the work grows with their square.
const SCHEDULE_RANKS_MAX: u32 = 1024;
/// The most ranks for which a cost is predicted: an all-to-all between more has more parts than a step can name.
const PREDICTED_RANKS_MAX: u32 = 1 << 15;

/// Collective communication between the ranks of a job: try it, launch it, measure it, show its algorithms.
#[derive(Debug, Parser)]
#[command(name = "unisono", version, disable_help_subcommand = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Commands,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Commands {
    /// Checks and times every collective between processes on this machine, then trains a small network with them.
    Demo(DemoArguments),
    /// Starts ranks of a program on this machine and ends them together.
    Run(RunArguments),
    /// Measures operations and checks every element of their results.
    Bench(BenchArguments),
    /// Measures the parameters of the cost model, and prints them for UNISONO_COST_MODEL.
    Calibrate(CalibrateArguments),
    /// Lists, shows and proves the algorithms, and predicts their times.
    Algo {
        #[command(subcommand)]
        command: AlgoCommands,
    },
    /// Says which rank is at which call, from the records that ranks write to UNISONO_FLIGHT_DIR when a job fails.
    Doctor(DoctorArguments),
    /// A rank of the demonstration.
    #[command(name = crate::demo::RANK_COMMAND, hide = true)]
    DemoRank {
        /// Which rank dies, and at which step.
        #[arg(long)]
        kill: Option<Kill>,
    },
    /// The process that outlives a killed launcher.
    #[command(name = crate::run::guard::COMMAND, hide = true)]
    Guard {
        /// The folder that it removes at the end.
        folder: PathBuf,
    },
}

#[derive(Debug, Args)]
pub(crate) struct DemoArguments {
    /// How many ranks to start.
    #[arg(long, default_value_t = 4, value_parser = ranks_up_to(LOCAL_RANKS_MAX))]
    pub(crate) ranks: u32,
    /// Kills rank RANK (SIGKILL) after STEP steps of the training; the others go on without it.
    #[arg(long, value_name = "RANK@STEP", allow_hyphen_values = true)]
    pub(crate) kill: Option<Kill>,
    /// Print one JSON document.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    /// How many ranks to start.
    #[arg(short = 'n', value_name = "RANKS", value_parser = ranks_up_to(LOCAL_RANKS_MAX))]
    pub(crate) ranks: u32,
    /// Let the other ranks go on when one fails; the exit status is still that of the first that failed.
    #[arg(long)]
    pub(crate) keep_going: bool,
    /// Seconds between asking a rank to end (SIGTERM) and killing it.
    #[arg(long, value_name = "SECONDS", default_value_t = GRACE_SECONDS_DEFAULT)]
    pub(crate) grace: u64,
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM ARGS")]
    pub(crate) program: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct BenchArguments {
    /// What to measure: names separated by commas.
    #[arg(required = true, value_delimiter = ',', value_name = "OP")]
    pub(crate) operations: Vec<MeasuredOperation>,
    /// Start this many ranks here. Without it, join the job that this process is a rank of; if there is none, start 2.
    #[arg(short = 'n', value_name = "RANKS", value_parser = ranks_up_to(LOCAL_RANKS_MAX))]
    pub(crate) ranks: Option<u32>,
    /// Bytes of the larger of a rank's two buffers, with K, M or G; rounded down to whole elements per rank.
    #[arg(long, value_delimiter = ',', default_value = SIZES_DEFAULT, value_parser = parse_size)]
    #[arg(allow_hyphen_values = true)]
    pub(crate) sizes: Vec<u64>,
    /// The type of the elements.
    #[arg(long, default_value_t = DType::F32)]
    pub(crate) dtype: DType,
    /// How all_reduce, reduce_scatter and reduce combine elements [default: sum].
    #[arg(long)]
    pub(crate) op: Option<ReduceOp>,
    /// The algorithm, by its name in `unisono algo list`; auto: the one with the lowest predicted cost; all: every one
    /// that fits, measured in turns.
    #[arg(long, default_value = AUTO, value_name = "NAME")]
    pub(crate) algorithm: String,
    /// Write the input and output of the last call of each row to DIR/<row>.
    #[arg(long, value_name = "DIR")]
    pub(crate) dump: Option<PathBuf>,
    /// Print one JSON document.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CalibrateArguments {
    /// Start this many ranks here. Without it, join the job that this process is a rank of; if there is none, start 2.
    #[arg(short = 'n', value_name = "RANKS")]
    #[arg(value_parser = clap::value_parser!(u32).range(2..=i64::from(LOCAL_RANKS_MAX)))]
    pub(crate) ranks: Option<u32>,
    /// Print one JSON document.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArguments {
    /// The folder with a rank-N.json of each rank.
    #[arg(long, value_name = "DIR")]
    pub(crate) flight: PathBuf,
    /// Print one JSON document.
    #[arg(long)]
    pub(crate) json: bool,
}

const SIZES_DEFAULT: &str = "64,4K,64K,1M";
/// No forced algorithm.
pub(crate) const AUTO: &str = "auto";
/// Every algorithm, one after the other.
pub(crate) const ALL: &str = "all";

#[derive(Debug, Subcommand)]
pub(crate) enum AlgoCommands {
    /// Every algorithm: what it implements, requires and costs.
    List {
        /// Print one JSON document.
        #[arg(long)]
        json: bool,
    },
    /// The steps of every rank.
    Show {
        /// The algorithm as listed: collective/name.
        name: String,
        /// The number of ranks.
        #[arg(short = 'n', value_name = "RANKS", value_parser = ranks_up_to(SCHEDULE_RANKS_MAX))]
        ranks: u32,
        /// The root, for collectives that have one.
        #[arg(long, default_value_t = 0)]
        root: u32,
        /// Print one JSON document.
        #[arg(long)]
        json: bool,
    },
    /// Proves that an algorithm is right: matching messages, no deadlock, no race, exact results.
    Verify {
        /// The algorithm as listed: collective/name.
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
    /// What a call is expected to take, and which algorithm the library would choose.
    ///
    /// Uses the parameters of this machine, or of UNISONO_COST_MODEL. Any of alpha, beta and gamma describes another
    /// network: then only rounds, bytes on the link and reductions count, and processor time does not.
    Price(PriceArguments),
}

#[derive(Debug, Args)]
pub(crate) struct PriceArguments {
    /// The algorithm as listed: collective/name, or a name alone for all collectives that have it.
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    pub(crate) name: Option<String>,
    /// Every algorithm.
    #[arg(long)]
    pub(crate) all: bool,
    /// The number of ranks.
    #[arg(long, short = 'n', value_parser = ranks_up_to(PREDICTED_RANKS_MAX))]
    pub(crate) ranks: u32,
    /// Bytes of the larger of a rank's two buffers, with K, M or G.
    #[arg(long, value_parser = parse_size, allow_hyphen_values = true)]
    pub(crate) bytes: u64,
    /// Microseconds from a send to the end of its receive.
    #[arg(long, value_name = "A", value_parser = parse_latency, allow_hyphen_values = true)]
    pub(crate) alpha_us: Option<f64>,
    /// Gigabytes per second of a link.
    #[arg(long, value_name = "B", value_parser = parse_rate, allow_hyphen_values = true)]
    pub(crate) beta_gb_per_s: Option<f64>,
    /// Gigabytes per second that a rank reduces.
    #[arg(long, value_name = "G", value_parser = parse_rate, allow_hyphen_values = true)]
    pub(crate) gamma_gb_per_s: Option<f64>,
    /// Print one JSON document.
    #[arg(long)]
    pub(crate) json: bool,
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

fn ranks_up_to(most: u32) -> RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=i64::from(most))
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

/// The command, or `None` when help or the version was asked for and has been printed.
pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Option<Commands>> {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    match Arguments::try_parse_from(&arguments) {
        Ok(parsed) => Ok(Some(parsed.command)),
        Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            error.print().map_err(|error| Problem::failed("standard output", error))?;
            Ok(None)
        }
        Err(error) => Err(Problem::usage(one_line(&error, &arguments))),
    }
}

/// The error in one line that says what is allowed.
fn one_line(error: &clap::Error, arguments: &[OsString]) -> String {
    use std::error::Error;
    let command = named_command(arguments);
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
fn named_command(arguments: &[OsString]) -> Command {
    let mut command = Arguments::command();
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

/// How the command is used, with all its options.
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

    fn parsed(line: &str) -> Result<Option<Commands>> {
        parse(line.split(' ').map(OsString::from))
    }

    #[test]
    fn bad_input_is_one_line_that_says_what_is_allowed() {
        let cases = [
            ("unisono", "a command is missing, one of: demo, run, bench, calibrate, algo, doctor"),
            ("unisono dance", "unknown command \"dance\", one of: demo, run, bench, calibrate, algo, doctor"),
            ("unisono algo dance", "unknown command \"dance\", one of: list, show, verify, price"),
            ("unisono algo", "a command is missing, one of: list, show, verify, price"),
            ("unisono bench all_reduce,fold", "one of: all_reduce, reduce_scatter"),
            ("unisono bench", "missing: <OP>"),
            ("unisono bench all_reduce --dtype f31", "one of: f64, f32"),
            ("unisono bench all_reduce --op plus", "one of: sum, prod"),
            ("unisono bench all_reduce --sizes 64,1X", "K, M or G"),
            ("unisono bench all_reduce --sizes -1", "K, M or G"),
            ("unisono bench all_reduce -n 0", "1..=1024"),
            ("unisono bench all_reduce --speed 3", "--sizes"),
            ("unisono demo --ranks many", "--ranks"),
            ("unisono run -n 2", "PROGRAM"),
            ("unisono run", "PROGRAM"),
            ("unisono run sh", "-n <RANKS>"),
            ("unisono algo verify --all --ranks 4..1", "both ends included"),
            ("unisono algo verify", "--all"),
            ("unisono calibrate -n 1", "2..=1024"),
            ("unisono doctor", "--flight <DIR>"),
            ("unisono doctor --flight", "--flight"),
            ("unisono algo price ring --ranks 4", "--bytes"),
            ("unisono algo price --ranks 4 --bytes 1K", "--all"),
            ("unisono algo price ring --ranks 0 --bytes 1K", "1..=32768"),
            ("unisono algo price ring --ranks 4 --bytes -1", "K, M or G"),
            ("unisono algo price ring --ranks 4 --bytes 1K --alpha-us -1", "--alpha-us: unknown latency"),
            ("unisono algo price ring --ranks 4 --bytes 1K --alpha-us nan", "from 0 to 1000000"),
            (
                "unisono algo price ring --ranks 4 --bytes 1K --beta-gb-per-s 0",
                "--beta-gb-per-s: unknown rate",
            ),
            ("unisono algo price ring --ranks 4 --bytes 1K --gamma-gb-per-s -2", "GB/s from"),
            ("unisono algo price ring --ranks 4 --bytes 1K --gamma-gb-per-s inf", "GB/s from"),
        ];
        for (line, expected) in cases {
            let problem = parsed(line).unwrap_err();
            assert_eq!(problem.status, 2, "{line}");
            assert!(
                !problem.text.contains('\n') && problem.text.contains(expected),
                "{line}: {}",
                problem.text
            );
        }
    }

    #[test]
    fn a_programs_own_options_stay_its_own() {
        for line in ["unisono run -n 2 -- prog -n 3 --json", "unisono run -n 2 prog -n 3 --json"] {
            let Ok(Some(Commands::Run(run))) = parsed(line) else { panic!("{line}") };
            assert_eq!(
                (run.ranks, run.program),
                (2, ["prog", "-n", "3", "--json"].map(OsString::from).to_vec())
            );
        }
    }

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
        Arguments::command().debug_assert();
    }
}
