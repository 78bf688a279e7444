//! `unisono bench`: checks its arguments, starts ranks if asked to, and prints their measurements.

use std::ffi::OsString;
use std::sync::Arc;

use unisono::compression::{Codec, Route, SignL1, residual_bytes};
use unisono::config::Placement;
use unisono::{Collective, Communicator, Config, DType, ReduceOp};
use unisono_schedule::{Choice, Registry, Shape, UnknownChoice, algorithms};

use super::form::Form;
use super::operations::{BenchOperation, CompressedOperation, MeasuredOperation};
use super::report::{Picks, Row, header};
use super::timing::Effort;
use super::{Algorithms, Plan, kernels, measure, plot};
use crate::arguments::{ALL, AUTO, BenchArguments, BenchCommands, ROUTES, VendorArguments};
use crate::print;
use crate::problem::{Problem, Result};
use crate::run::output::Spokesman;
use crate::run::{Job, launch};

/// The number of ranks to start by default.
const RANKS_DEFAULT: u32 = 2;

/// `unisono bench`.
pub(crate) fn bench(arguments: BenchArguments) -> Result<()> {
    if let Some(BenchCommands::Kernels(arguments)) = &arguments.command {
        return kernels::bench(arguments);
    }
    let plan = plan(&arguments)?;
    let ranks = match arguments.ranks {
        Some(ranks) => ranks,
        None => match config(&arguments)? {
            config if config.placement == Placement::Solo => RANKS_DEFAULT,
            config => {
                let world = print::aside(|| unisono::init_with(&config))?;
                return measure_and_print(&world, &plan, arguments.json);
            }
        },
    };
    algorithms_fit(&plan, ranks)?;
    memory_is_enough(&plan, ranks)?;
    plan.plot.as_deref().map_or(Ok(()), plot::check)?;
    let job = Job::of_this_program(ranks, rank_arguments(&arguments))?;
    launch(&Job { vendor_directory: arguments.vendor.vendor_dir, ..job }, Arc::new(Spokesman::default()))
}

/// The settings of a rank: its options win over its environment.
fn config(arguments: &BenchArguments) -> Result<Config> {
    let mut config = Config::from_environment()?;
    let BenchArguments { backend, vendor: VendorArguments { vendor_dir }, .. } = arguments;
    config.backend = backend.unwrap_or(config.backend);
    config.ccl.directory = vendor_dir.clone().or(config.ccl.directory);
    Ok(config)
}

/// The arguments of a rank: the same bench without the number of ranks, so that it joins the job it is started in.
fn rank_arguments(arguments: &BenchArguments) -> Vec<OsString> {
    let BenchArguments {
        command: _,
        operations,
        ranks: _,
        sizes,
        dtype,
        op,
        form,
        codec,
        route,
        parts,
        algorithm,
        backend,
        // In the environment of the ranks.
        vendor: VendorArguments { vendor_dir: _ },
        plot,
        dump,
        json,
    } = arguments;
    let list = |items: Vec<String>| items.join(",");
    let mut words: Vec<OsString> = vec![
        "bench".into(),
        list(operations.iter().map(BenchOperation::to_string).collect()).into(),
        "--sizes".into(),
        list(sizes.iter().map(u64::to_string).collect()).into(),
        "--dtype".into(),
        dtype.name().into(),
        "--algorithm".into(),
        list(algorithm.clone()).into(),
    ];
    if let Some(op) = op {
        words.extend(["--op".into(), op.name().into()]);
    }
    words.extend(["--form".into(), list(form.iter().map(Form::to_string).collect()).into()]);
    if !codec.is_empty() {
        words.extend([
            "--codec".into(),
            list(codec.iter().map(|codec| codec.name().to_owned()).collect()).into(),
        ]);
    }
    if !route.is_empty() {
        let name = |route: &Route| ROUTES.iter().find(|known| known.1 == *route).map_or("", |known| known.0);
        words.extend(["--route".into(), list(route.iter().map(|one| name(one).to_owned()).collect()).into()]);
    }
    if *parts {
        words.push("--parts".into());
    }
    if let Some(backend) = backend {
        words.extend(["--backend".into(), backend.name().into()]);
    }
    if let Some(plot) = plot {
        words.extend(["--plot".into(), plot.into()]);
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
    let BenchArguments { operations, sizes, dtype, op, form, algorithm, plot, dump, .. } = arguments;
    let reduces = operations.iter().any(|operation| operation.like().reduces());
    match op {
        Some(op) if !reduces => {
            let names: Vec<_> =
                MeasuredOperation::all().filter(|o| o.reduces()).map(MeasuredOperation::name).collect();
            let problem = format!("--op {op}: none of the operations reduces, only {}", names.join(", "));
            return Err(Problem::usage(problem));
        }
        _ => {}
    }
    let codecs = codecs(arguments)?;
    let op = op.unwrap_or(ReduceOp::Sum);
    if reduces && !op.accepts(*dtype) {
        let fitting = ReduceOp::PLAIN.iter().filter(|op| op.accepts(*dtype));
        let names: Vec<_> = fitting.map(|op| op.name()).collect();
        return Err(Problem::usage(format!("{op} is not defined on {dtype}, only {}", names.join(", "))));
    }
    let is_prefix = |operation: &&BenchOperation| operation.collective().is_some_and(Collective::is_prefix);
    if let Some(prefix) = operations.iter().find(is_prefix).filter(|_| op == ReduceOp::Avg) {
        return Err(Problem::usage(format!("{op} is not defined in {prefix}")));
    }
    let algorithms = match &algorithm.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [AUTO] => Algorithms::Cheapest,
        [ALL] => Algorithms::All,
        names if names.contains(&AUTO) || names.contains(&ALL) => {
            return Err(Problem::usage(format!("--algorithm {}: auto and all stand alone", names.join(","))));
        }
        names => Algorithms::Named(without_repeats(names)),
    };
    let routes = routes(arguments, &codecs)?;
    let are_many = algorithms.are_compared() || codecs.len() > 1 || routes.len() > 1 || arguments.parts;
    let plan = Plan {
        operations: operations.clone(),
        sizes: sizes.clone(),
        dtype: *dtype,
        op,
        forms: form.clone(),
        codecs,
        routes,
        parts: arguments.parts,
        effort: if are_many { Effort::COMPARING } else { Effort::THOROUGH },
        algorithms,
        plot: plot.clone(),
        dump: dump.clone(),
    };
    if let (Some(plot), false) =
        (plot, operations.iter().any(|one| one.like().has_size()) && sizes.iter().any(|&size| size > 0))
    {
        let problem = format!("--plot {}: nothing that has a size is measured", plot.display());
        return Err(Problem::usage(problem));
    }
    let fits = |form: &&Form| operations.iter().any(|operation| form.fits(operation.like()));
    if let Some(form) = plan.forms.iter().find(|form| !fits(form)) {
        return Err(Problem::usage(format!("--form {form}: none of the operations has it")));
    }
    for (operation, name) in plan.named() {
        algorithm_exists(operation, name)?;
    }
    Ok(plan)
}

/// The codecs to measure, each once. Everything that only compressed calls have, or cannot have, is checked here.
fn codecs(arguments: &BenchArguments) -> Result<Vec<Arc<dyn Codec>>> {
    let BenchArguments { operations, dtype, op, codec, parts, route, .. } = arguments;
    let all = CompressedOperation::ALL.map(CompressedOperation::name).join(" and ");
    let asked = operations.iter().find_map(|operation| match operation {
        BenchOperation::Measured(_) => None,
        BenchOperation::Compressed(operation) => Some(*operation),
    });
    let Some(compressed) = asked.map(CompressedOperation::name) else {
        return match (codec.first(), route.first(), parts) {
            (Some(codec), _, _) => Err(Problem::usage(format!("--codec {}: only for {all}", codec.name()))),
            (None, Some(_), _) => Err(Problem::usage(format!("--route: only for {all}"))),
            (None, None, true) => {
                let all_reduce = CompressedOperation::AllReduce.name();
                Err(Problem::usage(format!("--parts: only for {all_reduce}")))
            }
            (None, None, false) => Ok(Vec::new()),
        };
    };
    if *dtype != DType::F32 {
        return Err(Problem::usage(format!("{compressed} is measured on f32, not on {dtype}")));
    }
    // Calls follow each other in place, and sums of sums leave the range of f32.
    if let Some(op) = op.filter(|op| *op != ReduceOp::Avg) {
        return Err(Problem::usage(format!("{compressed} is measured with avg, not with {op}")));
    }
    let mut once: Vec<Arc<dyn Codec>> = Vec::new();
    for codec in codec {
        if !once.iter().any(|one| one.tag() == codec.tag()) {
            once.push(codec.clone());
        }
    }
    if once.is_empty() {
        once.push(Arc::new(SignL1::default()));
    }
    Ok(once)
}

/// The ways to measure, each once. The parts of a call belong to the direct way.
fn routes(arguments: &BenchArguments, codecs: &[Arc<dyn Codec>]) -> Result<Vec<Route>> {
    let BenchArguments { operations, route, parts, .. } = arguments;
    let mut once: Vec<Route> = Vec::new();
    route.iter().for_each(|route| {
        if !once.contains(route) {
            once.push(*route);
        }
    });
    if *parts {
        let all_reduce = BenchOperation::Compressed(CompressedOperation::AllReduce);
        if once.iter().any(|route| *route != Route::Direct) || !operations.contains(&all_reduce) {
            let problem = format!("--parts: only for {all_reduce} --route direct");
            return Err(Problem::usage(problem));
        }
        return Ok(vec![Route::Direct]);
    }
    if once.contains(&Route::SummedCodes) {
        if let Some(codec) = codecs.iter().find(|codec| codec.summable().is_none()) {
            let problem = format!("--route summed: the codes of {} cannot be added", codec.name());
            return Err(Problem::usage(problem));
        }
        let scatter = BenchOperation::Compressed(CompressedOperation::ReduceScatter);
        if operations.contains(&scatter) {
            return Err(Problem::usage(format!("--route summed: not for {scatter}")));
        }
    }
    Ok(once)
}

fn without_repeats(names: &[&str]) -> Vec<Arc<str>> {
    let mut once: Vec<Arc<str>> = Vec::new();
    for &name in names {
        if !once.iter().any(|one| **one == *name) {
            once.push(name.into());
        }
    }
    once
}

impl Plan {
    /// Every operation with every algorithm that is asked for by name.
    fn named(&self) -> impl Iterator<Item = (BenchOperation, &str)> {
        let names = match &self.algorithms {
            Algorithms::Named(names) => &names[..],
            Algorithms::Cheapest | Algorithms::All => &[],
        };
        self.operations.iter().flat_map(move |&operation| names.iter().map(move |name| (operation, &**name)))
    }
}

fn algorithm_exists(operation: BenchOperation, name: &str) -> Result<()> {
    let collective = operation.collective();
    let (registry, widest) = (Registry::built_in(), Shape::new(Shape::RANKS_MAX));
    let nearest = match collective.map(|collective| Choice::named(&registry, collective, name, &widest)) {
        Some(Ok(_)) => return Ok(()),
        None => String::new(),
        Some(Err(UnknownChoice::Name { nearest, .. })) => format!(", the nearest are {}", nearest.join(", ")),
        Some(Err(unknown)) => return Err(Problem::usage(unknown.to_string())),
    };
    let fitting = algorithms().iter().filter(|algorithm| Some(algorithm.collective) == collective);
    let names: Vec<_> = [AUTO, ALL].into_iter().chain(fitting.map(|algorithm| algorithm.name)).collect();
    let names = names.join(", ");
    Err(Problem::usage(format!("unknown algorithm {name:?} for {operation}{nearest}; one of: {names}")))
}

fn algorithms_fit(plan: &Plan, ranks: u32) -> Result<()> {
    for (operation, name) in plan.named() {
        let Some(collective) = operation.collective() else { continue };
        let choice = Choice::named(&Registry::built_in(), collective, name, &Shape::new(ranks));
        let Choice { algorithm, shape } = choice.map_err(|unknown| Problem::usage(unknown.to_string()))?;
        if !algorithm.supports(&shape) {
            return Err(Problem::usage(unisono_algorithms_cli::misfit(&algorithm, &shape)));
        }
    }
    Ok(())
}

/// Refuses a bench that would end with a killed process instead of an error: all buffers are touched.
fn memory_is_enough(plan: &Plan, ranks: u32) -> Result<()> {
    let available = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| available_bytes(&text));
    let Some((size, available)) = plan.sizes.iter().max().zip(available) else { return Ok(()) };
    let needed = plan.operations.iter().map(|operation| bytes_of_rank(plan, *operation, *size, ranks)).max();
    let needed = needed.unwrap_or(0).saturating_mul(ranks.into());
    if needed <= available {
        return Ok(());
    }
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    Err(Problem::usage(format!(
        "--sizes {size}: {ranks} ranks here need {:.1} GiB for their buffers, and {:.1} GiB are free",
        gib(needed),
        gib(available)
    )))
}

/// The bytes that a rank needs for calls of `size` bytes.
fn bytes_of_rank(plan: &Plan, operation: BenchOperation, size: u64, ranks: u32) -> u64 {
    let buffers = match (operation, operation.collective()) {
        (BenchOperation::Compressed(_), _) => {
            let elements = size as usize / size_of::<f32>();
            let of_codec = |codec: &Arc<dyn Codec>| {
                size.saturating_add(residual_bytes(&**codec, elements, 0, ranks as usize))
            };
            // To measure the parts takes as much again.
            let times = if plan.parts { 2 } else { plan.routes.len().max(1) as u64 };
            return plan.codecs.iter().map(of_codec).fold(0, u64::saturating_add).saturating_mul(times);
        }
        (_, Some(Collective::AllReduce | Collective::Broadcast | Collective::Scan)) => 1,
        (operation, _) if operation.like().has_size() => 2,
        _ => 0,
    };
    size.saturating_mul(buffers)
}

/// The memory that processes can have, by /proc/meminfo.
fn available_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The remarks that a row needs.
fn remarks(plan: &Plan, ranks: u32) -> Vec<String> {
    let mut remarks = Vec::new();
    if ranks == 1 {
        remarks.push(
            "# one rank: nothing is sent, and no algorithm runs; -n 2 measures between ranks".to_owned(),
        );
    }
    for operation in plan.operations.iter().filter(|operation| operation.like().has_size()) {
        let least = operation.like().shares(ranks) * plan.dtype.bytes() as u64;
        let small: Vec<String> =
            plan.sizes.iter().filter(|&&size| size > 0 && size < least).map(u64::to_string).collect();
        if !small.is_empty() {
            let small = small.join(", ");
            remarks.push(format!(
                "# {operation}: {small} B is measured as 0 B; its least size here is {least} B"
            ));
        }
    }
    remarks
}

/// One rank's part; rank 0 prints.
fn measure_and_print(comm: &dyn Communicator, plan: &Plan, json: bool) -> Result<()> {
    let (speaks, ranks) = (comm.rank() == 0, comm.size());
    // Every rank finds the same.
    algorithms_fit(plan, ranks)
        .map_err(|problem| if speaks { problem } else { Problem::silent(problem.status) })?;
    let mut printed = Ok(());
    let mut say = |text: &str| {
        if speaks && !json && printed.is_ok() {
            printed = print::line(text);
        }
    };
    remarks(plan, ranks).iter().for_each(|remark| say(remark));
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
    if !speaks {
        return Ok(());
    }
    let drawn = plan.plot.as_deref().map_or(Ok(()), |path| plot::write(&rows, path));
    judge(&rows)?;
    drawn
}

fn judge(rows: &[Row]) -> Result<()> {
    let bad: Vec<_> = rows.iter().filter(|row| row.wrong > 0).collect();
    for row in &bad {
        let (op, bytes, algorithm, wrong) = (&row.op, row.bytes, &row.algorithm, row.wrong);
        print::tell(format_args!("{op} of {bytes} bytes by {algorithm}: {wrong} wrong"));
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
        let line = "unisono bench all_reduce,barrier -n 7 --sizes 3K,64 --dtype i8 --op max --plot p --dump d --json";
        let asked = arguments(line);
        let told = rank_arguments(&asked).join(" ".as_ref()).into_string().unwrap();
        let told = arguments(&format!("unisono {told}"));
        assert_eq!((asked.ranks, told.ranks), (Some(7), None));
        let without_ranks = BenchArguments { ranks: None, ..asked };
        assert_eq!(format!("{told:?}"), format!("{without_ranks:?}"));
    }

    #[test]
    fn a_rank_is_told_its_codecs() {
        let asked = arguments("unisono bench compressed_all_reduce --codec int8,sign --route direct --parts");
        let told = rank_arguments(&asked).join(" ".as_ref()).into_string().unwrap();
        assert_eq!(format!("{:?}", arguments(&format!("unisono {told}"))), format!("{asked:?}"));
    }

    #[test]
    fn what_compressed_calls_have_or_cannot_have_is_told() {
        let tags = |line: &str| {
            let plan = plan(&arguments(&format!("unisono bench {line}"))).map_err(|problem| problem.text)?;
            Ok(plan.codecs.iter().map(|codec| codec.tag()).collect::<Vec<_>>())
        };
        let refused = |line: &str| -> String { tags(line).unwrap_err() };
        assert_eq!(tags("compressed_all_reduce --op avg"), Ok(vec!["sign".to_owned()]));
        assert_eq!(tags("compressed_all_reduce --codec bf16,bf16").map(|tags| tags.len()), Ok(1));
        assert_eq!(tags("all_reduce").map(|tags| tags.len()), Ok(0));
        assert_eq!(
            refused("all_reduce --codec int8"),
            "--codec int8: only for compressed_all_reduce and compressed_reduce_scatter"
        );
        assert_eq!(refused("all_reduce --parts"), "--parts: only for compressed_all_reduce");
        assert!(refused("compressed_all_reduce --op sum").contains("measured with avg, not with sum"));
        assert!(refused("compressed_all_reduce --dtype f16").contains("measured on f32, not on f16"));
        assert!(refused("compressed_all_reduce --algorithm ring").contains("for compressed_all_reduce"));
    }

    #[test]
    fn memory_that_is_not_there_is_refused_before_anything_starts() {
        assert_eq!(available_bytes("MemTotal: 9 kB\nMemAvailable:   2048 kB\n"), Some(2 << 20));
        let refused =
            |line: &str| memory_is_enough(&plan(&arguments(line)).unwrap(), 4).map_err(|one| one.text);
        assert_eq!(refused("unisono bench all_reduce,all_gather --sizes 64"), Ok(()));
        let text = refused("unisono bench all_reduce,all_gather --sizes 64,1024G").unwrap_err();
        assert!(text.contains("4 ranks here need 8192.0 GiB"), "{text}");
        // A vector, and two generations of the residuals of each rank and each owner.
        let text = refused("unisono bench compressed_all_reduce --codec sign --sizes 1024G").unwrap_err();
        assert!(text.contains("4 ranks here need 14336."), "{text}");
        assert_eq!(refused("unisono bench barrier --sizes 1024G"), Ok(()));
    }

    /// Rows: J2
    #[test]
    fn a_wrong_element_fails_the_bench() {
        let plan = plan(&arguments("unisono bench all_reduce --sizes 64")).unwrap();
        let mut rows = measure(&unisono::Solo::new(), &plan, |_, _| {}).unwrap();
        assert!(judge(&rows).is_ok());
        rows[0].wrong = 1;
        assert_eq!(judge(&rows).unwrap_err().status, 1);
    }
}
