//! The calls that ranks check: every collective, algorithm by name and fixed order, as values that the conformance
//! suite compares with its own reference.

use unisono_communicator::{
    CallOptions, Collective, Communicator, DType, Determinism, MemoryKind, Place, ReduceOp,
};
use unisono_schedule::{Shape, algorithms};
use unisono_tests::case::{Amount, Case, Operands};
use unisono_tests::suite::reductions::pairs;

/// No element, fewer than what a thread takes, and no multiple of that.
const COUNTS: [usize; 4] = [0, 1, 7, 1000];

/// What most calls have, which is more than one block of threads takes.
const SOME: usize = 3001;

/// More than one chunk of NCCL's.
const MANY: usize = (1 << 20) + 3;

/// Calls of one collective, or by one algorithm.
pub(crate) struct Subject {
    pub(crate) name: String,
    pub(crate) cases: Vec<Case>,
}

/// All of them, for so many ranks.
pub(crate) fn subjects(ranks: u32) -> Vec<Subject> {
    let of_collective = |collective: Collective| {
        let mut cases = if collective.reduces() { reductions(collective) } else { moves(collective) };
        cases.extend(uneven(collective, ranks));
        Subject { name: collective.to_string(), cases: everywhere(cases, ranks) }
    };
    let mut all: Vec<Subject> = Collective::ALL.into_iter().map(of_collective).collect();
    all.extend(by_name(ranks));
    all.push(Subject { name: "fixed order".to_owned(), cases: everywhere(fixed(), ranks) });
    all
}

/// At every root, separate and in place.
fn everywhere(cases: Vec<Case>, ranks: u32) -> Vec<Case> {
    let at = |case: Case| {
        let roots = if case.collective.is_rooted() { ranks } else { 1 };
        (0..roots).flat_map(move |root| {
            let case = case.clone();
            [Place::Separate, Place::InPlace].map(|place| Case { root, place, ..case.clone() })
        })
    };
    cases.into_iter().flat_map(at).collect()
}

/// Every type with every operator; every length.
fn reductions(collective: Collective) -> Vec<Case> {
    let case = |dtype, op, count| Case { op: Some(op), ..Case::new(collective, dtype, count) };
    let is_defined = |(_, op): &(DType, ReduceOp)| !collective.is_prefix() || *op != ReduceOp::Avg;
    let of_types = pairs().filter(is_defined).map(|(dtype, op)| case(dtype, op, SOME));
    let lengths = COUNTS.into_iter().chain([MANY]);
    of_types.chain(lengths.map(|count| case(DType::F32, ReduceOp::Sum, count))).collect()
}

/// Every type and every length.
fn moves(collective: Collective) -> Vec<Case> {
    if collective == Collective::Barrier {
        return vec![Case::new(collective, DType::U8, 0)];
    }
    let of_types = DType::ALL.iter().map(|&dtype| Case::new(collective, dtype, SOME));
    let lengths = COUNTS.into_iter().chain([MANY]).map(|count| Case::new(collective, DType::U8, count));
    of_types.chain(lengths).collect()
}

/// Shares of different lengths, some of them none.
fn uneven(collective: Collective, ranks: u32) -> Vec<Case> {
    let share = |at: usize| [3, 0, 1000][at % 3];
    let ranks = ranks as usize;
    let amount = match collective {
        Collective::ReduceScatter | Collective::AllGather | Collective::Gather | Collective::Scatter => {
            Amount::PerRank((0..ranks).map(share).collect())
        }
        Collective::AllToAll => {
            Amount::PerPair((0..ranks).map(|from| (0..ranks).map(|to| share(from + to)).collect()).collect())
        }
        _ => return Vec::new(),
    };
    vec![Case { amount, ..Case::new(collective, DType::F32, 0) }]
}

/// Every algorithm of ours that so many ranks can run.
fn by_name(ranks: u32) -> Vec<Subject> {
    let here = algorithms().iter().filter(|algorithm| algorithm.supports(&Shape::new(ranks)));
    let of = here.map(|algorithm| {
        let (collective, options) = (algorithm.collective, CallOptions::new().algorithm(algorithm.name));
        let counts: &[usize] = if collective == Collective::Barrier { &[0] } else { &COUNTS };
        let case = |dtype, count| {
            let op = collective.reduces().then_some(ReduceOp::Sum);
            Case { op, options, ..Case::new(collective, dtype, count) }
        };
        let mut cases: Vec<Case> = counts.iter().map(|&count| case(DType::I16, count)).collect();
        if collective != Collective::Barrier {
            cases.push(case(DType::F32, SOME));
        }
        let mut cases = everywhere(cases, ranks);
        cases.retain(|case| case.place == Place::Separate || !algorithm.requires.out_of_place);
        Subject { name: format!("{collective} by {}", algorithm.name), cases }
    });
    of.collect()
}

/// Sums and products whose order shows.
fn fixed() -> Vec<Case> {
    let options = CallOptions::new().determinism(Determinism::Fixed);
    let case = |collective, dtype, op| Case {
        op: Some(op),
        options,
        operands: Operands::Rough,
        ..Case::new(collective, dtype, SOME)
    };
    let collectives = Collective::ALL.into_iter().filter(|collective| collective.reduces());
    let dtypes = [DType::F16, DType::BF16, DType::F32, DType::F64];
    collectives
        .flat_map(|collective| dtypes.map(|dtype| (collective, dtype)))
        .flat_map(|(collective, dtype)| [ReduceOp::Sum, ReduceOp::Prod].map(|op| case(collective, dtype, op)))
        .collect()
}

/// Makes the calls that the backend supports, and compares what comes of them; how many they were.
pub(crate) fn run(subject: &Subject, comm: &dyn Communicator) -> Result<usize, String> {
    let (rank, ranks) = (comm.group().rank(), comm.group().size());
    let mut made = 0;
    for case in &subject.cases {
        let descriptor = case.descriptor(rank, ranks);
        let is_supported = comm.supports(&descriptor, &case.options, MemoryKind::Device).is_ok();
        case.check(comm).map_err(|error| format!("{case:?}: {error}"))?;
        made += usize::from(is_supported);
    }
    if made == 0 {
        return Err(format!("all {} calls are refused", subject.cases.len()));
    }
    Ok(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_collective_and_algorithm_is_among_the_calls() {
        for ranks in [1, 2] {
            let subjects = subjects(ranks);
            let has = |name: &str| subjects.iter().any(|one| one.name == name && !one.cases.is_empty());
            assert!(Collective::ALL.into_iter().all(|collective| has(&collective.to_string())));
            assert!(has("fixed order"));
            assert!(has("all_reduce by ring") && has("all_reduce by recursive_doubling"));
        }
    }
}
