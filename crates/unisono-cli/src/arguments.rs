//! The command line. A command line that is not valid gets one line with the allowed values.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::{ArgAction, ArgGroup, Args, Parser, Subcommand};
use unisono::compression::{Codec, Route, codec_by_name};
use unisono::{BACKENDS, Backend, DType, Error, ReduceOp};
use unisono_algorithms_cli::arguments::{AlgoCommands, Asked, ask, ranks_up_to, ranks_within};
use unisono_algorithms_cli::print::unprinted;
use unisono_algorithms_cli::sizes::parse_size;
use unisono_control::RANKS_MAX;

use crate::bench::form::Form;
use crate::bench::operations::BenchOperation;
use crate::demo::kill::Kill;
use crate::demo::method::{Method, Methods};
use crate::problem::Result;
use crate::run::cores::Binding;
use crate::run::hosts::{RSH_DEFAULT, Rsh};

/// The most ranks that are started on one host.
pub(crate) const LOCAL_RANKS_MAX: u32 = 1024;

/// The hidden commands: a rank of the demonstration, the process beside a launcher, and the child by which doctor tries
/// whether the memory of a process can be read.
pub(crate) const DEMO_RANK: &str = "demo-rank";
pub(crate) const GUARD: &str = "guard";
pub(crate) const READ_PARENT: &str = "read-parent";

/// Collective communication between the ranks of a job: try it, launch it, measure it, show its algorithms.
#[derive(Debug, Parser)]
#[command(name = "unisono", version, disable_help_subcommand = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Commands,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Commands {
    /// Checks and times every collective between processes on this machine, then trains a small network with them;
    /// with --kill 2@300 rank 2 dies after 300 steps, and the others go on without it.
    Demo(DemoArguments),
    /// Starts ranks of a program on this machine and ends them together.
    Run(RunArguments),
    /// Measures operations and checks every element of their results.
    Bench(BenchArguments),
    /// Measures the parameters of the cost model, and prints them for UNISONO_COST_MODEL. Takes about 2 s for each
    /// rank but the first.
    Calibrate(CalibrateArguments),
    /// Lists, shows and proves the algorithms, and predicts their times.
    Algo {
        #[command(subcommand)]
        command: AlgoCommands,
    },
    /// Describes this machine and the causes of slowness on it; with --flight, the place of each rank of a failed job;
    /// with --discovery, the variables that give this process its rank.
    Doctor(DoctorArguments),
    /// Makes a secret for jobs on several hosts that no `unisono run` starts: a file that only its owner can read. Each
    /// host of such a job needs the same file.
    Secret(SecretArguments),
    /// Prints every setting: name, unit, default, other names, meaning. docs/settings.md is this page.
    Settings,
    /// A rank of the demonstration.
    #[command(name = DEMO_RANK, hide = true)]
    DemoRank(DemoRankArguments),
    /// The process that outlives a killed launcher.
    #[command(name = GUARD, hide = true)]
    Guard {
        /// The folder that it removes at the end.
        folder: PathBuf,
    },
    /// The process that tries to read the memory of its parent.
    #[command(name = READ_PARENT, hide = true)]
    ReadParent {
        /// The nonce of the parent, in hexadecimal digits.
        nonce: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct DemoArguments {
    /// The number of ranks to start.
    #[arg(short = 'n', long, default_value_t = 4, value_parser = ranks_up_to(LOCAL_RANKS_MAX))]
    pub(crate) ranks: u32,
    /// Kills rank RANK (SIGKILL) after STEP steps of the training; the others go on without it.
    #[arg(long, value_name = "RANK@STEP", allow_hyphen_values = true)]
    pub(crate) kill: Option<Kill>,
    /// Train with Adam and compressed gradients, once with each of these codecs, with commas between, and once with
    /// exact ones: sign (1-bit Adam), int8, int4, bf16, none; all: all of these; sign-no-feedback and sign-gradient
    /// show the worth of error feedback and 1-bit Adam. In a program, CompressionState::or_exact measures whether
    /// compression pays, and goes on with exact calls where it does not.
    #[arg(long, value_name = "CODEC")]
    pub(crate) compress: Option<Methods>,
    /// With --compress: train a 784-128-10 network on the data set in DIR, four IDX files as MNIST has them.
    #[arg(long, value_name = "DIR", requires = "compress")]
    pub(crate) data: Option<PathBuf>,
    /// With --compress: decides the first weights and the order of the images.
    #[arg(long, value_name = "NUMBER", requires = "compress")]
    pub(crate) seed: Option<u64>,
    #[command(flatten)]
    pub(crate) vendor: VendorArguments,
    /// Print one JSON document.
    #[arg(long)]
    pub(crate) json: bool,
}

/// The place of a vendor's libraries for ranks that are started.
#[derive(Debug, Args)]
pub(crate) struct VendorArguments {
    /// The folder with the libraries of Intel's oneCCL: UNISONO_CCL_DIR of the ranks. It does not choose the backend.
    #[arg(long, value_name = "DIR", value_parser = PathBufValueParser::new().try_map(folder))]
    pub(crate) vendor_dir: Option<PathBuf>,
}

/// One rank of a demonstration.
#[derive(Debug, Args)]
pub(crate) struct DemoRankArguments {
    /// The rank that dies, and the step at which it does.
    #[arg(long)]
    pub(crate) kill: Option<Kill>,
    /// Measure no collectives.
    #[arg(long)]
    pub(crate) only_training: bool,
    #[arg(long)]
    pub(crate) method: Option<Method>,
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    #[arg(long)]
    pub(crate) data: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    /// The number of ranks to start; with hosts, all slots by default.
    #[arg(short = 'n', value_name = "RANKS", value_parser = ranks_up_to(RANKS_MAX))]
    #[arg(required_unless_present = "named")]
    pub(crate) ranks: Option<u32>,
    #[command(flatten)]
    pub(crate) hosts: HostArguments,
    /// Give every rank a variable: the value that it has here, or another one. Ranks on other hosts get from here only
    /// these, and variables such as UNISONO_*, NCCL_*, OMP_* and PYTHON*.
    #[arg(short = 'x', value_name = "NAME[=VALUE]")]
    pub(crate) variables: Vec<String>,
    /// The agent of a launcher on another host.
    #[arg(long, hide = true, exclusive = true)]
    pub(crate) agent: bool,
    /// Let the other ranks go on when one fails: the status is 0 if at least one rank succeeds, the last line names the
    /// others, and if none succeeds, the status comes from the first that failed. When only ranks run that a rank which
    /// has succeeded has lost (one may be stopped), they are asked to end.
    #[arg(long)]
    pub(crate) keep_going: bool,
    /// End the job after so many seconds, with status 124. Time in which the job is stopped does not count.
    #[arg(long, value_name = "SECONDS", value_parser = parse_timeout, allow_hyphen_values = true)]
    pub(crate) timeout: Option<Duration>,
    /// Seconds between asking the ranks to end (SIGTERM, or the signal that the launcher got) and killing them.
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = parse_grace)]
    #[arg(allow_hyphen_values = true)]
    pub(crate) grace: Duration,
    /// Write the output of each rank also to DIR/rank-N.log.
    #[arg(long, value_name = "DIR")]
    pub(crate) log_dir: Option<PathBuf>,
    /// Record the calls of every rank, and print the cost of rank 0's calls when it ends.
    #[arg(long)]
    pub(crate) comms: bool,
    /// Pass the standard input of this program on to rank RANK; every other rank's is empty.
    #[arg(long, value_name = "RANK")]
    pub(crate) stdin: Option<u32>,
    /// Whether each line has its rank in front, as in `[0] `.
    #[arg(long, value_name = "on|off", default_value = "on", value_parser = parse_switch, action = ArgAction::Set)]
    pub(crate) tag_output: bool,
    /// core: bind each rank to its share of the cores that the launcher may use. none: let each use all of them. auto:
    /// core where every core then has the same number of ranks, at least two; otherwise none.
    #[arg(long, value_name = "auto|core|none", default_value = "auto", value_parser = Binding::parse)]
    pub(crate) bind_to: Binding,
    #[command(flatten)]
    pub(crate) vendor: VendorArguments,
    /// The program, whose standard input is empty without --stdin, and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM ARGS")]
    pub(crate) program: Vec<OsString>,
}

/// The hosts of the ranks, if they are not all here.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("named").args(["hosts", "hostfile"])))]
pub(crate) struct HostArguments {
    /// Start the ranks on these hosts, in this order, so many on each: a,b:4. A host without a number gets one rank.
    /// localhost and this machine's own name need no ssh; each other host is reached by ssh, without a password.
    #[arg(long, value_name = "NAME[:SLOTS],...")]
    pub(crate) hosts: Option<String>,
    /// The same from a file of DeepSpeed, Open MPI or MPICH, whose lines are: NAME slots=NUMBER, or NAME:NUMBER.
    #[arg(long, value_name = "FILE")]
    pub(crate) hostfile: Option<PathBuf>,
    /// Of these hosts only some, or only some slots: a@b:0,2. The ranks of slots that are named by number see the
    /// devices of these numbers (CUDA_VISIBLE_DEVICES).
    #[arg(long, value_name = "NAME[:SLOT,...][@...]", requires = "named", conflicts_with = "exclude")]
    pub(crate) include: Option<String>,
    /// All hosts and slots but these.
    #[arg(long, value_name = "NAME[:SLOT,...][@...]", requires = "named")]
    pub(crate) exclude: Option<String>,
    /// The command that runs a line on a host: it gets the host and the line as arguments.
    #[arg(long, value_name = "COMMAND", value_parser = Rsh::parse, default_value = RSH_DEFAULT, requires = "named")]
    pub(crate) rsh: Rsh,
    /// The path of this program on the other hosts [default: the path of this one].
    #[arg(long, value_name = "PATH", requires = "named")]
    pub(crate) remote_program: Option<PathBuf>,
    /// The working directory of the ranks on every host [default: this one].
    #[arg(long, value_name = "DIR", requires = "named")]
    pub(crate) wdir: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct BenchArguments {
    #[command(subcommand)]
    pub(crate) command: Option<BenchCommands>,
    #[arg(required = true, value_delimiter = ',', value_name = "OP", help = operations_help())]
    pub(crate) operations: Vec<BenchOperation>,
    /// Start this many ranks here. Without it, join the job that this process is a rank of; if there is none, start 2.
    #[arg(short = 'n', value_name = "RANKS", value_parser = ranks_up_to(LOCAL_RANKS_MAX))]
    pub(crate) ranks: Option<u32>,
    /// Bytes of the larger of a rank's two buffers, with K, M or G (or Ki, Mi or Gi) for powers of 1,024; rounded
    /// down to whole elements per rank.
    #[arg(long, value_delimiter = ',', default_value = SIZES_DEFAULT, value_parser = parse_size)]
    #[arg(allow_hyphen_values = true)]
    pub(crate) sizes: Vec<u64>,
    /// The type of the elements: f64, f32, f16, bf16, f8e4m3, f8e5m2, i8 to i64, u8 to u64, bool, complex64 or 128.
    #[arg(long, default_value_t = DType::F32)]
    pub(crate) dtype: DType,
    /// The operator of all_reduce, reduce_scatter and reduce: sum, prod, avg, min, max, bit_and, bit_or, bit_xor
    /// [default: sum; compressed_all_reduce: avg].
    #[arg(long)]
    pub(crate) op: Option<ReduceOp>,
    /// The form of the calls: plain, v (a list of counts), list (a buffer for each rank), coalesced (eight buffers in
    /// one call), prepared (a plan that is made once), async (started, then awaited), objects (of bytes),
    /// exchange (both messages of a pair at once); several with commas. An operation is measured in the forms that it
    /// has.
    #[arg(long, value_delimiter = ',', value_name = "NAME", default_value = "plain")]
    pub(crate) form: Vec<Form>,
    /// The codec of compressed_all_reduce: sign, sign-rms, int8, int4, bf16; several with commas are measured in turns
    /// [default: sign].
    #[arg(long, value_delimiter = ',', value_name = "NAME", value_parser = parse_codec)]
    pub(crate) codec: Vec<Arc<dyn Codec>>,
    /// The route of compressed calls: direct, two-levels (hosts sum exactly before they encode), summed (codes are
    /// added on their way; int8 and int4); several with commas are measured in turns [default: the cheaper of the first
    /// two].
    #[arg(long, value_delimiter = ',', value_name = "NAME", value_parser = parse_route)]
    pub(crate) route: Vec<Route>,
    /// Measure also the parts of a compressed_all_reduce, each alone: encode, exchange, reduce, expand.
    #[arg(long)]
    pub(crate) parts: bool,
    /// The algorithm, by its name in `unisono algo list`; several names with commas are measured in turns; auto: the
    /// algorithm with the lowest predicted cost; all: every algorithm that fits, in turns.
    #[arg(long, default_value = AUTO, value_delimiter = ',', value_name = "NAME")]
    pub(crate) algorithm: Vec<String>,
    /// The backend of the calls: auto, tcp, ccl, nccl or hccl [default: UNISONO_BACKEND].
    #[arg(long, value_name = "NAME", value_parser = parse_backend)]
    pub(crate) backend: Option<Backend>,
    #[command(flatten)]
    pub(crate) vendor: VendorArguments,
    /// Draw time against size to FILE, an SVG picture: a line for each algorithm, the prediction dashed.
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) plot: Option<PathBuf>,
    /// Write the input and output of the last call of each row to DIR/<row>.
    #[arg(long, value_name = "DIR")]
    pub(crate) dump: Option<PathBuf>,
    /// Print one JSON document.
    #[arg(long)]
    pub(crate) json: bool,
}

/// From the list itself, so that no operation is left out.
fn operations_help() -> String {
    let names: Vec<_> = BenchOperation::all().map(BenchOperation::name).collect();
    format!("What to measure, with commas between: {}", names.join(", "))
}

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommands {
    /// Measures the kernels of compressed collectives beside a copy, on one core and without ranks; every result is
    /// checked first.
    Kernels(KernelsArguments),
}

#[derive(Debug, Args)]
pub(crate) struct KernelsArguments {
    /// The instructions to use: reference, portable, avx2, avx512; several with commas [default: the fastest].
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    pub(crate) target: Vec<String>,
    /// Print one JSON document.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CalibrateArguments {
    /// Start this many ranks here. Without it, join the job that this process is a rank of; if there is none, start 2.
    #[arg(short = 'n', value_name = "RANKS")]
    #[arg(value_parser = ranks_within(2..=LOCAL_RANKS_MAX))]
    pub(crate) ranks: Option<u32>,
    /// Print one JSON document.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SecretArguments {
    /// The file to make [default: unisono/secret in XDG_CONFIG_HOME or ~/.config, where ranks look if no variable names
    /// another file].
    pub(crate) file: Option<PathBuf>,
    /// Put a new secret in the place of an old file. Ranks with the old secret and ranks with the new one refuse each
    /// other.
    #[arg(long)]
    pub(crate) replace: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArguments {
    /// Say which rank is at which call and who waits for whom, from the records in this folder: ranks write them to
    /// UNISONO_FLIGHT_DIR when a job fails.
    #[arg(long, value_name = "DIR")]
    pub(crate) flight: Option<PathBuf>,
    /// Say which rank a process started like this one is, and where rank 0 is: each with the variable that says it, and
    /// with the variables that changed nothing. To be started like a rank: mpirun -n 4 unisono doctor --discovery.
    #[arg(long, conflicts_with_all = ["flight", "ranks"])]
    pub(crate) discovery: bool,
    /// Judge this machine for so many ranks on it [default: as many as the job of this process has, else one for each
    /// core, at least 2].
    #[arg(short = 'n', value_name = "RANKS", conflicts_with = "flight", value_parser = ranks_up_to(LOCAL_RANKS_MAX))]
    pub(crate) ranks: Option<u32>,
    /// Print one JSON document.
    #[arg(long)]
    pub(crate) json: bool,
}

/// The longest time in seconds that an option can name, some 30 years.
const SECONDS_MAX: f64 = 1e9;

fn parse_codec(text: &str) -> Result<Arc<dyn Codec>, String> {
    codec_by_name(text).map_err(|error| match error {
        Error::InvalidArgument { problem, .. } => problem,
        other => other.to_string(),
    })
}

/// The routes as options name them.
pub(crate) const ROUTES: [(&str, Route); 3] =
    [("direct", Route::Direct), ("two-levels", Route::TwoLevels), ("summed", Route::SummedCodes)];

fn parse_route(text: &str) -> Result<Route, String> {
    let known = ROUTES.iter().find(|(name, _)| *name == text);
    known.map(|(_, route)| *route).ok_or_else(|| {
        let names = ROUTES.map(|(name, _)| name).join(", ");
        format!("{text:?} is not one of {names}")
    })
}

fn parse_backend(text: &str) -> Result<Backend, String> {
    let named = BACKENDS.iter().find(|backend| backend.name() == text).copied();
    named.ok_or_else(|| format!("unknown backend {text:?}, one of: {}", Backend::names(BACKENDS)))
}

/// A folder that is there, by an absolute path: ranks may have another working directory.
fn folder(path: PathBuf) -> Result<PathBuf, String> {
    let found = std::fs::metadata(&path).and_then(|found| {
        let kind = if found.is_dir() { Ok(()) } else { Err(std::io::ErrorKind::NotADirectory.into()) };
        kind.and_then(|()| std::path::absolute(&path))
    });
    found.map_err(|error: std::io::Error| format!("{}: {error}", path.display()))
}

fn parse_switch(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(format!("unknown value {text:?}, one of: on, off")),
    }
}

fn parse_timeout(text: &str) -> Result<Duration, String> {
    let seconds = parse_grace(text).ok().filter(|seconds| !seconds.is_zero());
    seconds.ok_or_else(|| {
        format!("unknown time {text:?}: seconds above 0, such as 90 or 0.5, up to {SECONDS_MAX}")
    })
}

fn parse_grace(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.0..=SECONDS_MAX).contains(seconds));
    let seconds = seconds.map(Duration::from_secs_f64);
    seconds.ok_or_else(|| format!("unknown time {text:?}: seconds from 0 to {SECONDS_MAX}, such as 5 or 0.5"))
}

const SIZES_DEFAULT: &str = "64,4K,64K,1M";
/// No forced algorithm.
pub(crate) const AUTO: &str = "auto";
/// Every algorithm, one after the other.
pub(crate) const ALL: &str = "all";

/// The command, or `None` when help or the version was asked for and has been printed.
pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Option<Commands>> {
    match ask::<Arguments>(arguments)? {
        Asked::Command(Arguments { command }) => Ok(Some(command)),
        Asked::Text(text) => {
            text.print().map_err(|error| unprinted(&error))?;
            Ok(None)
        }
    }
}

#[cfg(test)]
#[path = "arguments_tests.rs"]
mod tests;
