//! The program `unisono`: it demonstrates, launches and measures, shows and proves algorithms, and says why a job
//! stopped.

#![forbid(unsafe_code)]

mod arguments;
mod bench;
mod calibrate;
mod combine;
mod demo;
mod doctor;
mod print;
mod random;
mod run;
mod secret;

use std::process::ExitCode;

use arguments::{Commands, parse};
use problem::Result;
use unisono::config::settings_page;
use unisono_algorithms_cli::{self as algorithms_cli, forecast, problem};

fn main() -> ExitCode {
    let done = parse(std::env::args_os()).and_then(|command| command.map_or(Ok(()), execute));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            if !problem.text.is_empty() {
                print::tell(problem.text);
            }
            ExitCode::from(problem.status)
        }
    }
}

fn execute(command: Commands) -> Result<()> {
    match command {
        Commands::Demo(arguments) => demo::demo(arguments),
        Commands::Run(arguments) => run::run(arguments),
        Commands::Bench(arguments) => bench::command::bench(arguments),
        Commands::Calibrate(arguments) => calibrate::calibrate(&arguments),
        Commands::Algo { command } => algorithms_cli::execute(
            command,
            &[],
            &unisono::algorithms::figures_here,
            &mut std::io::stdout().lock(),
        ),
        Commands::Doctor(arguments) => doctor::doctor(&arguments),
        Commands::Secret(arguments) => secret::secret(&arguments),
        Commands::Settings => print::line(settings_page().trim_end()),
        Commands::DemoRank(arguments) => demo::rank(arguments),
        Commands::Guard { folder } => run::guard::watch(&folder),
        Commands::ReadParent { nonce } => doctor::read_parent(&nonce),
    }
}
