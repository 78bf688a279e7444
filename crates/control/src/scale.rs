//! The cost of jobs with many ranks: messages and simulated time until the ranks are connected, until they have agreed
//! to begin, until all of them name a killed rank, and until they know that a whole host has gone silently and have
//! agreed on the survivors. `cargo xtask scale` runs this, and benches/lab/measurements.md has the
//! table.

#![allow(clippy::print_stdout, reason = "a measurement for people at a terminal")]

use std::time::{Duration, Instant};

use plotters::prelude::*;
use unisono_backend::{Agreed, Ask, Question};
use unisono_communicator::Result;

use super::Presence;
use super::simulation::{Cut, MS, Simulation};

/// The sizes of the jobs.
const SIZES: [u32; 4] = [64, 256, 1024, 4096];

/// The most ranks of a job that loses a host here: every rank compares the second ballots of all, so the simulation
/// grows faster than the square of the ranks.
const SILENT_HOST_RANKS_MAX: u32 = 1024;

/// Ranks of one host.
const RANKS_PER_HOST: u32 = 8;

/// Longer than any phase takes.
const PHASE_MAX: Duration = Duration::from_secs(20);

const PICTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/scale.svg");

/// The cost of a phase.
#[derive(Clone, Copy, Debug)]
struct Cost {
    messages: u64,
    simulated: Duration,
}

/// Runs a job until `is_over`.
fn phase(simulation: &mut Simulation, what: &str, is_over: impl Fn(&Simulation) -> bool) -> Cost {
    let (messages, start) = (simulation.messages, simulation.now);
    while !is_over(simulation) {
        assert!(simulation.now - start < PHASE_MAX, "{what} takes too long");
        simulation.run(MS);
    }
    Cost { messages: simulation.messages - messages, simulated: simulation.now - start }
}

/// The question of a first agreement.
fn ask(question: Question, deadline: Instant) -> Ask {
    Ask { question, number: 0, flag: true, finished_calls: 0, deadline, heeds_cause: false }
}

/// The phases of a job of so many ranks.
fn job(ranks: u32) -> Vec<Cost> {
    let hosts: Vec<u32> = (0..ranks).map(|rank| rank / RANKS_PER_HOST).collect();
    let mut simulation = Simulation::on_hosts(&hosts, 1);
    simulation.is_measured = true;
    let all = || 0..ranks;
    let connected = phase(&mut simulation, "connecting", |job| all().all(|rank| job.is_connected(rank)));
    let deadline = simulation.now + PHASE_MAX;
    let begins = Ask { heeds_cause: true, ..ask(Question::Flag, deadline) };
    let answers: Vec<_> = all().map(|rank| simulation.agree(rank, begins)).collect();
    let agreed = phase(&mut simulation, "agreeing", |_| answers.iter().all(|answer| !answer.is_empty()));
    assert!(answers.iter().all(|answer| answer.try_recv().is_ok_and(|answer| answer.is_ok())));
    let victim = ranks / 2;
    simulation.kill(victim);
    let named = phase(&mut simulation, "naming", |job| {
        all().filter(|rank| *rank != victim).all(|rank| job.presence(rank, victim) == Presence::Lost)
    });
    let mut costs = vec![connected, agreed, named];
    if ranks <= SILENT_HOST_RANKS_MAX {
        costs.push(lose_a_host(&mut simulation, (ranks, victim)));
    }
    costs
}

/// The first host goes silently, and the others agree on the survivors. The victim has died before.
fn lose_a_host(simulation: &mut Simulation, (ranks, victim): (u32, u32)) -> Cost {
    let silent = || (0..RANKS_PER_HOST).chain(std::iter::once(victim));
    simulation.cut_off((0..RANKS_PER_HOST).collect(), 10 * PHASE_MAX, Cut::Silence);
    let survivors: Vec<u32> = (0..ranks).filter(|rank| silent().all(|one| one != *rank)).collect();
    let deadline = simulation.now + PHASE_MAX;
    let goes_on = ask(Question::Survivors, deadline);
    // As soon as a call has failed.
    let noticed = phase(simulation, "noticing", |job| {
        survivors
            .iter()
            .all(|&rank| silent().any(|one| one != victim && job.presence(rank, one) == Presence::Lost))
    });
    let answers: Vec<_> = survivors.iter().map(|&rank| simulation.agree(rank, goes_on)).collect();
    let survived = phase(simulation, "surviving", |_| answers.iter().all(|answer| !answer.is_empty()));
    let agreed_on = |answer: std::result::Result<_, _>| {
        answer.is_ok_and(|agreed: Result<Agreed>| {
            agreed.is_ok_and(|agreed| agreed.survivors.len() == survivors.len())
        })
    };
    assert!(answers.iter().all(|answer| agreed_on(answer.try_recv())));
    let messages = noticed.messages + survived.messages;
    Cost { messages, simulated: noticed.simulated + survived.simulated }
}

#[test]
#[ignore = "a measurement of some minutes and some gigabytes: cargo xtask scale"]
fn jobs_of_many_ranks() {
    let phases = ["connected", "agreed", "killed rank named", "silent host survived"];
    println!("| ranks | phase | messages | a rank | simulated ms | s of this machine |");
    println!("| ---: | --- | ---: | ---: | ---: | ---: |");
    let mut lines = phases.map(|phase| (phase, Vec::new()));
    for ranks in SIZES {
        let start = Instant::now();
        let costs = job(ranks);
        let took = start.elapsed().as_secs_f64();
        for (cost, (phase, line)) in costs.iter().zip(&mut lines) {
            let each = cost.messages as f64 / f64::from(ranks);
            let simulated = cost.simulated.as_millis();
            println!("| {ranks} | {phase} | {} | {each:.1} | {simulated} | {took:.1} |", cost.messages);
            line.push((f64::from(ranks).log2(), each.max(0.1).log10()));
        }
    }
    draw(&lines).unwrap();
    println!("picture: {PICTURE}");
}

/// Messages of a rank over the number of ranks, both logarithmic.
fn draw(lines: &[(&str, Vec<(f64, f64)>)]) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let root = SVGBackend::new(PICTURE, (720, 420)).into_drawing_area();
    root.fill(&WHITE)?;
    let (left, right) = (f64::from(SIZES[0]).log2(), f64::from(SIZES[SIZES.len() - 1]).log2());
    let highest = lines.iter().flat_map(|line| &line.1).map(|point| point.1).fold(1.0, f64::max);
    let mut chart = ChartBuilder::on(&root)
        .caption("Messages between control planes, of each rank", ("sans-serif", 17))
        .margin(16)
        .x_label_area_size(36)
        .y_label_area_size(64)
        .build_cartesian_2d(left..right, 0.0..highest.ceil())?;
    chart
        .configure_mesh()
        .x_desc("ranks")
        .y_desc("messages")
        .x_label_formatter(&|power| format!("{:.0}", power.exp2()))
        .y_label_formatter(&|power| format!("{:.0}", 10f64.powf(*power)))
        .draw()?;
    for ((phase, points), colour) in lines.iter().zip([BLUE, GREEN, RED, BLACK]) {
        let drawn = chart.draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)))?;
        drawn.label(*phase).legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], colour));
        chart.draw_series(points.iter().map(|point| Circle::new(*point, 3, colour.filled())))?;
    }
    chart.configure_series_labels().background_style(WHITE.filled()).border_style(BLACK).draw()?;
    Ok(root.present()?)
}
