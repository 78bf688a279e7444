//! `cargo xtask compare`: unisono and its peers over TCP, measured in the same run.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a program for people at a terminal")]

mod arguments;
mod bar;
mod bootstrap;
mod busy_loops;
mod driver;
mod guard;
mod hosts;
mod instance;
mod judge;
mod machine;
mod namespace;
mod network;
mod picture;
mod plan;
mod plot;
mod probe;
mod problem;
mod processes;
mod raw;
mod report;
mod saved;
mod scheduling;
mod slow_link;
mod stream;
mod systems;
mod two_hosts;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;

use arguments::Arguments;
use guard::Guard;
use instance::{Watch, interruption};
use plan::{Cell, Configuration};
use problem::{Problem, Result, While};
use raw::{Record, Recorder};
use saved::new_folder_of_results;
use systems::{Medium, Peers, System};

/// What a good probe takes is known better later in a run, and then rounds that seemed good may no longer count:
/// whoever lacks some gets them in another pass over the configurations.
const PASSES_MAX: u32 = 3;

fn main() -> ExitCode {
    let outcome = match std::env::args().nth(1) {
        Some(word) if word == probe::SERVER => probe::serve(),
        Some(word) if word == busy_loops::SERVER => busy_loops::serve(),
        Some(word) if word == guard::SERVER => guard::serve(),
        Some(word) if word == stream::RECEIVER => stream::receive(),
        Some(word) if word == stream::SENDER => stream::send(),
        Some(word) if word == slow_link::COMMAND => slow_link::run(std::env::args().skip(1)),
        Some(word) if word == two_hosts::COMMAND => two_hosts::run(std::env::args().skip(1)),
        _ => run(&Arguments::parse()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    if !arguments.report.is_empty() {
        let record = read_all(&arguments.report)?;
        return report::write(&record, arguments.rounds, &folder_of_results(arguments)?);
    }
    let interrupted = interruption()?;
    let (systems, plan) = (chosen_systems(arguments)?, plan(arguments)?);
    let out = folder_of_results(arguments)?;
    let _machine = scheduling::lock_machine()?;
    let guard = Guard::start()?;
    let mut recorder = Recorder::create(&out.join("raw.csv"))?;
    machine::facts().into_iter().try_for_each(|fact| recorder.note(fact))?;
    let measured = measure(
        arguments,
        plan,
        &systems,
        &out,
        Watch { interrupted: &interrupted, guard: &guard },
        &mut recorder,
    );
    // What was measured before a problem is worth its tables too.
    let reported = report::write(&recorder.record, arguments.rounds, &out);
    println!("results: {}", out.display());
    measured.and(reported)
}

fn measure(
    arguments: &Arguments,
    plan: Vec<(Configuration, Vec<Cell>)>,
    systems: &[System],
    out: &Path,
    watch: Watch<'_>,
    recorder: &mut Recorder,
) -> Result<()> {
    let logs = out.join("logs");
    fs::create_dir_all(&logs).during(logs.display().to_string())?;
    for _ in 0..PASSES_MAX {
        let rows = recorder.record.rows.len();
        for (configuration, cells) in &plan {
            let systems = systems::fitting(systems, configuration.congestion);
            driver::measure(arguments, *configuration, cells.clone(), &systems, &logs, watch, recorder)?;
        }
        if recorder.record.rows.len() == rows {
            break;
        }
    }
    Ok(())
}

fn plan(arguments: &Arguments) -> Result<Vec<(Configuration, Vec<Cell>)>> {
    let mut all = Vec::new();
    let congestions = match arguments.medium {
        Medium::Tcp => &arguments.congestion[..],
        Medium::Memory => &arguments.congestion[..1],
    };
    for &ranks in &arguments.ranks {
        for &scheduling in &arguments.sched {
            for &congestion in congestions {
                let cells = plan::chosen_cells(ranks, &arguments.ops, &arguments.sizes);
                if let Some(cell) =
                    cells.iter().find(|cell| cell.bytes % cell.operation.granularity_bytes(ranks) != 0)
                {
                    let text = format!("{cell} cannot be shared out among {ranks} ranks in whole f32");
                    return Err(Problem::Refused(text));
                }
                all.push((Configuration { ranks, scheduling, congestion }, cells));
            }
        }
    }
    Ok(all)
}

/// The systems that the user names, or all; what is missing is an error, not a shorter table.
fn chosen_systems(arguments: &Arguments) -> Result<Vec<System>> {
    let own = std::env::current_exe().during("this program's path")?;
    let rank_program = own.with_file_name("unisono-compare-rank");
    let folder = std::path::absolute(&arguments.peers_dir).during("the folder of the peers")?;
    let mut systems = systems::table(&Peers { folder }, &rank_program, arguments.medium);
    if !arguments.systems.is_empty() {
        if let Some(name) = arguments.systems.iter().find(|name| systems.iter().all(|one| one.name != **name))
        {
            let names: Vec<&str> = systems.iter().map(|system| system.name.as_str()).collect();
            return Err(Problem::Refused(format!("{name} is none of {}", names.join(", "))));
        }
        systems.retain(|system| arguments.systems.contains(&system.name));
    }
    systems.extend(systems::added((&rank_program, arguments.medium), &arguments.ours, &arguments.ours_env));
    let missing: Vec<String> = systems
        .iter()
        .flat_map(|system| system.command.iter().filter(|word| word.starts_with('/')))
        .filter(|path| !Path::new(path.as_str()).exists())
        .cloned()
        .collect();
    if missing.is_empty() {
        Ok(systems)
    } else {
        let text =
            format!("missing: {}; `cargo xtask compare --install` installs the peers", missing.join(", "));
        Err(Problem::Refused(text))
    }
}

fn read_all(files: &[PathBuf]) -> Result<Record> {
    let mut all = Record::default();
    for file in files {
        let record = Record::read(file)?;
        all.notes.extend(record.notes);
        all.rows.extend(record.rows);
    }
    Ok(all)
}

fn folder_of_results(arguments: &Arguments) -> Result<PathBuf> {
    new_folder_of_results(arguments.out.clone(), "target/compare")
}
