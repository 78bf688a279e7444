//! `unisono bench`: checks its arguments, starts ranks if asked to, and prints what they measured.

use std::ffi::OsString;
use std::sync::Arc;

use unisono::{Communicator, ReduceOp};
use unisono_schedule::{Choice, Registry, Shape, UnknownChoice, algorithms};
use unisono_transport_tcp::config::Config;
use unisono_transport_tcp::environment::Placement;

use super::operations::MeasuredOperation;
use super::report::{Picks, Row, header};
use super::timing::Effort;
use super::{Algorithms, Plan, measure};
use crate::arguments::{ALL, AUTO, BenchArguments};
use crate::print;
use crate::problem::{Problem, Result};
use crate::run::output::Spokesman;
use crate::run::{Job, launch};

/// How many ranks to start by default.
const RANKS_DEFAULT: u32 = 2;

/// `unisono bench`.
pub(crate) fn bench(arguments: BenchArguments) -> Result<()> {
    let plan = plan(&arguments)?;
    let ranks = match arguments.ranks {
        Some(ranks) => ranks,
        None if Config::from_environment()?.placement != Placement::Solo => {
            return measure_and_print(&*unisono::init()?, &plan, arguments.json);
        }
        None => RANKS_DEFAULT,
    };
    for &operation in &plan.operations {
        algorithm_fits(operation, &plan, ranks)?;
    }
    launch(&Job::of_this_program(ranks, rank_arguments(&arguments))?, Arc::new(Spokesman))
}

/// The arguments of a rank: the same bench without the number of ranks, so that it joins the job it is started in.
fn rank_arguments(arguments: &BenchArguments) -> Vec<OsString> {
    let BenchArguments { operations, ranks: _, sizes, dtype, op, algorithm, dump, json } = arguments;
    let list = |items: Vec<String>| items.join(",");
    let mut words: Vec<OsString> = vec![
        "bench".into(),
        list(operations.iter().map(MeasuredOperation::to_string).collect()).into(),
        "--sizes".into(),
        list(sizes.iter().map(u64::to_string).collect()).into(),
        "--dtype".into(),
        dtype.name().into(),
        "--algorithm".into(),
        algorithm.into(),
    ];
    if let Some(op) = op {
        words.extend(["--op".into(), op.name().into()]);
    }
    if let Some(dump) = dump {
        words.extend(["--dump".into(), dump.into()]);
    }
    if *json {
        words.push("--json".into());
    }
    words
}

fn plan(arguments: &BenchArguments) -> Result<Plan> {
    let BenchArguments { operations, sizes, dtype, op, algorithm, dump, .. } = arguments;
    let reduces = operations.iter().any(|operation| operation.reduces());
    match op {
        Some(op) if !reduces => {
            let names: Vec<_> =
                MeasuredOperation::all().filter(|o| o.reduces()).map(MeasuredOperation::name).collect();
            let problem = format!("--op {op}: none of the operations reduces, only {}", names.join(", "));
            return Err(Problem::usage(problem));
        }
        _ => {}
    }
    let op = op.unwrap_or(ReduceOp::Sum);
    if reduces && !op.accepts(*dtype) {
        let fitting = ReduceOp::PLAIN.iter().filter(|op| op.accepts(*dtype));
        let names: Vec<_> = fitting.map(|op| op.name()).collect();
        return Err(Problem::usage(format!("{op} is not defined on {dtype}, only {}", names.join(", "))));
    }
    let plan = Plan {
        operations: operations.clone(),
        sizes: sizes.clone(),
        dtype: *dtype,
        op,
        algorithms: match algorithm.as_str() {
            AUTO => Algorithms::Cheapest,
            ALL => Algorithms::All,
            name => Algorithms::Named(name.into()),
        },
        dump: dump.clone(),
        effort: if algorithm == ALL { Effort::COMPARING } else { Effort::THOROUGH },
    };
    operations.iter().try_for_each(|&operation| algorithm_exists(operation, &plan))?;
    Ok(plan)
}

fn algorithm_exists(operation: MeasuredOperation, plan: &Plan) -> Result<()> {
    let Algorithms::Named(name) = &plan.algorithms else { return Ok(()) };
    let collective = operation.collective();
    let (registry, widest) = (Registry::built_in(), Shape::new(Shape::RANKS_MAX));
    match collective.map(|collective| Choice::named(&registry, collective, name, &widest)) {
        Some(Ok(_)) => return Ok(()),
        None | Some(Err(UnknownChoice::Name { .. })) => {}
        Some(Err(unknown)) => return Err(Problem::usage(unknown.to_string())),
    }
    let fitting = algorithms().iter().filter(|algorithm| Some(algorithm.collective) == collective);
    let names: Vec<_> = [AUTO, ALL].into_iter().chain(fitting.map(|algorithm| algorithm.name)).collect();
    let problem = format!("unknown algorithm {name:?} for {operation}, one of: {}", names.join(", "));
    Err(Problem::usage(problem))
}

fn algorithm_fits(operation: MeasuredOperation, plan: &Plan, ranks: u32) -> Result<()> {
    let Algorithms::Named(name) = &plan.algorithms else { return Ok(()) };
    let Some(collective) = operation.collective() else { return Ok(()) };
    let shape = Shape::new(ranks);
    let choice = Choice::named(&Registry::built_in(), collective, name, &shape);
    let Choice { algorithm, shape } = choice.map_err(|unknown| Problem::usage(unknown.to_string()))?;
    if algorithm.supports(&shape) {
        return Ok(());
    }
    let requires = unisono::algorithms_cli::requirements(&algorithm).join(", ");
    Err(Problem::usage(format!(
        "{} does not fit {ranks} ranks, it requires: {requires}",
        algorithm.qualified_name()
    )))
}

/// One rank's part; rank 0 prints.
fn measure_and_print(comm: &dyn Communicator, plan: &Plan, json: bool) -> Result<()> {
    let speaks = comm.group().rank() == 0;
    let mut printed = Ok(());
    let mut say = |text: &str| {
        if speaks && !json && printed.is_ok() {
            printed = print::line(text);
        }
    };
    say(&header());
    let rows = measure(comm, plan, |_, line| say(line))?;
    if plan.algorithms == Algorithms::All {
        say(&Picks::of(&rows).to_string());
    }
    if speaks && json {
        printed = print::document(&rows);
    }
    comm.close()?;
    printed?;
    // Only rank 0 fails: if another rank failed, the launcher might end rank 0 before it has printed.
    if speaks { judge(&rows) } else { Ok(()) }
}

fn judge(rows: &[Row]) -> Result<()> {
    let bad: Vec<_> = rows.iter().filter(|row| row.wrong > 0).collect();
    for row in &bad {
        eprintln!("unisono: {} of {} bytes by {}: {} wrong", row.op, row.bytes, row.algorithm, row.wrong);
    }
    if bad.is_empty() { Ok(()) } else { Err(Problem::reported()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::{Commands, parse};

    fn arguments(line: &str) -> BenchArguments {
        match parse(line.split(' ').map(OsString::from)) {
            Ok(Some(Commands::Bench(arguments))) => arguments,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_rank_is_told_all_but_the_number_of_ranks() {
        let line = "unisono bench all_reduce,barrier -n 7 --sizes 3K,64 --dtype i8 --op max --dump d --json";
        let asked = arguments(line);
        let told = rank_arguments(&asked).join(" ".as_ref()).into_string().unwrap();
        let told = arguments(&format!("unisono {told}"));
        assert_eq!((asked.ranks, told.ranks), (Some(7), None));
        let without_ranks = BenchArguments { ranks: None, ..asked };
        assert_eq!(format!("{told:?}"), format!("{without_ranks:?}"));
    }

    #[test]
    fn a_wrong_element_fails_the_bench() {
        let plan = plan(&arguments("unisono bench all_reduce --sizes 64")).unwrap();
        let mut rows = measure(&unisono::Solo::new(), &plan, |_, _| {}).unwrap();
        assert!(judge(&rows).is_ok());
        rows[0].wrong = 1;
        assert_eq!(judge(&rows).unwrap_err().status, 1);
    }
}
