//! Where reductions of floats may differ between backends: each does what it says of itself.

use unisono_collectives::Collectives;
use unisono_communicator::{Collective, Communicator, DType, FloatFormat, Kind, ReduceOp};

use crate::backend::Backend;
use crate::capabilities::{Arithmetic, NanInMinMax};
use crate::case::Case;
use crate::sample::{Sample, mix};
use crate::with_dtype;
use crate::world::{options, run, run_each};

/// Of one call: one, not divisible, more than a vector register.
const COUNTS: &[usize] = &[1, 13, 130];

/// The floats that `op` of this backend takes; those that it must take are among them.
fn floats(backend: &dyn Backend, comm: &dyn Communicator, op: ReduceOp) -> Vec<(DType, FloatFormat)> {
    let format = |dtype: DType| match dtype.kind() {
        Kind::Float(format) => Some((dtype, format)),
        _ => None,
    };
    let is_supported =
        |dtype| Case { op: Some(op), ..Case::new(Collective::AllReduce, dtype, 3) }.refusal(comm).is_none();
    let all = DType::ALL.iter().copied().filter_map(format);
    let supported: Vec<_> = all.filter(|(dtype, _)| is_supported(*dtype)).collect();
    let mut must = backend.always_reduces().iter().filter(|dtype| format(**dtype).is_some());
    assert!(must.all(|must| supported.iter().any(|(dtype, _)| dtype == must)));
    supported
}

/// The results of all collectives that reduce, of the numbers that `operand` gives for rank and index.
fn reduced(
    comm: &dyn Communicator,
    (dtype, format): (DType, FloatFormat),
    op: ReduceOp,
    count: usize,
    operand: &dyn Fn(u32, usize) -> f64,
) -> Vec<(Collective, usize, f64)> {
    let (rank, ranks) = (comm.group().rank(), comm.group().size());
    with_dtype!(dtype, T => {
        let number = |index| {
            let mut bytes = vec![0; format.bytes];
            format.write(operand(rank, index), &mut bytes);
            bytemuck::pod_read_unaligned::<T>(&bytes)
        };
        let read = |value: &T| format.read(bytemuck::bytes_of(value));
        let input: Vec<T> = (0..count).map(number).collect();
        let mut results = Vec::new();
        let mut keep = |collective, start: usize, output: &[T]| {
            results.extend((start..).zip(output).map(|(index, value)| (collective, index, read(value))));
        };
        let mut output = input.clone();
        comm.all_reduce(&mut output, op).unwrap();
        keep(Collective::AllReduce, 0, &output);
        let root = ranks - 1;
        comm.reduce(&input, (rank == root).then_some(&mut output[..]), op, root).unwrap();
        if rank == root {
            keep(Collective::Reduce, 0, &output);
        }
        let wide: Vec<T> = (0..count * ranks as usize).map(number).collect();
        comm.reduce_scatter(&wide, &mut output, op).unwrap();
        keep(Collective::ReduceScatter, count * rank as usize, &output);
        results
    })
}

/// Every result of `op` passes `is_right`, which is given the operands and the result.
fn check(
    backend: &dyn Backend,
    ops: &[ReduceOp],
    operand: impl Fn(u32, usize) -> f64 + Sync,
    is_right: impl Fn(ReduceOp, &[f64], f64) -> bool + Sync,
) {
    run_each(backend, backend.rank_counts(), |comm| {
        for &op in ops {
            for (float, &count) in floats(backend, comm, op)
                .into_iter()
                .flat_map(|float| COUNTS.iter().map(move |count| (float, count)))
            {
                for (collective, index, result) in reduced(comm, float, op, count, &operand) {
                    let operands: Vec<f64> =
                        (0..comm.group().size()).map(|rank| operand(rank, index)).collect();
                    assert!(
                        is_right(op, &operands, result),
                        "{collective} {op} {}, {count} elements: {result:?} of {operands:?} at {index}",
                        float.0
                    );
                }
            }
        }
    });
}

fn extreme(op: ReduceOp, numbers: impl Iterator<Item = f64>) -> Option<f64> {
    let is_min = op == ReduceOp::Min;
    numbers.reduce(|left, right| if (left < right) == is_min { left } else { right })
}

/// One rank has a NaN, at some places.
pub fn a_nan_among_numbers(backend: &dyn Backend) {
    let operand = |rank: u32, index: usize| {
        let random = mix(index as u64 ^ mix(rank.into()));
        // Of three ranks in a row one has it, at most: with two ranks there are places with and without.
        let is_hole = index.is_multiple_of(3) && rank as usize == index / 3 % 2;
        if is_hole { f64::NAN } else { (random % 15) as f64 - 7.0 }
    };
    let rule = backend.arithmetic().nan_in_min_max;
    check(backend, &[ReduceOp::Min, ReduceOp::Max], operand, |op, operands, result| {
        let has_nan = operands.iter().any(|operand| operand.is_nan());
        let numbers = || operands.iter().copied().filter(|operand| !operand.is_nan());
        let least = extreme(op, numbers());
        match rule {
            _ if !has_nan => Some(result) == least,
            NanInMinMax::Propagates => result.is_nan(),
            NanInMinMax::Ignored => {
                least.is_none_or(|least| result == least) || least.is_none() && result.is_nan()
            }
            NanInMinMax::AnyOperand => result.is_nan() || numbers().any(|number| number == result),
        }
    });
}

/// -0.0 and 0.0 on different ranks.
pub fn zeros_of_either_sign(backend: &dyn Backend) {
    let operand =
        |rank: u32, index: usize| if (rank as usize + index).is_multiple_of(3) { -0.0 } else { 0.0 };
    let orders = backend.arithmetic().orders_zeros;
    check(backend, &[ReduceOp::Min, ReduceOp::Max], operand, |op, operands, result| {
        let has = |is_negative| operands.iter().any(|zero| zero.is_sign_negative() == is_negative);
        let is_negative = if op == ReduceOp::Min { has(true) } else { !has(false) };
        result == 0.0 && (!orders || result.is_sign_negative() == is_negative)
    });
}

/// Sums of two numbers halfway between two others, and beyond: to the nearest, of two to the even one; or cut off.
pub fn sums_are_rounded(backend: &dyn Backend) {
    let Arithmetic { truncates, .. } = backend.arithmetic();
    run(backend, 2, &options(), |comm| {
        for (dtype, format) in floats(backend, comm, ReduceOp::Sum) {
            let unit = f64::exp2(1.0 - f64::from(format.digits));
            // In units behind 1.0: the left operand, the right one, the nearest, the next below.
            let rows =
                [(0.0, 0.5, 0.0, 0.0), (1.0, 0.5, 2.0, 1.0), (0.0, 0.75, 1.0, 0.0), (2.0, 0.25, 2.0, 2.0)];
            let operand = |rank: u32, index: usize| {
                let (left, right, ..) = rows[index % rows.len()];
                if rank == 0 { 1.0 + left * unit } else { right * unit }
            };
            for (collective, index, result) in reduced(comm, (dtype, format), ReduceOp::Sum, 33, &operand) {
                let (.., nearest, below) = rows[index % rows.len()];
                let expected = if truncates.contains(&dtype) { below } else { nearest };
                let place = (result - 1.0) / unit;
                assert!(
                    place == expected,
                    "{collective} of {dtype} at {index}: {place} in place of {expected}"
                );
            }
        }
        comm.close().unwrap();
    });
}

/// Sums whose order shows are near the exact sum, and the same bits on all ranks where the backend says so.
pub fn sums_of_any_order(backend: &dyn Backend) {
    for &ranks in backend.rank_counts() {
        let all = run(backend, ranks, &options(), |comm| {
            let mut results = Vec::new();
            for (dtype, format) in floats(backend, comm, ReduceOp::Sum) {
                let operand = |rank: u32, index: usize| {
                    with_dtype!(dtype, T => {
                        let rough = T::rough(mix(index as u64 ^ mix(rank.into())));
                        format.read(bytemuck::bytes_of(&rough))
                    })
                };
                for (collective, index, result) in
                    reduced(comm, (dtype, format), ReduceOp::Sum, 500, &operand)
                {
                    let operands = || (0..ranks).map(|rank| operand(rank, index));
                    let (exact, sizes) = (operands().sum::<f64>(), operands().map(f64::abs).sum::<f64>());
                    // Each of the steps errs by at most one unit in the last place of what it adds up.
                    let error_max = f64::from(ranks) * sizes * f64::exp2(1.0 - f64::from(format.digits));
                    let error = (result - exact).abs();
                    assert!(error <= error_max, "{collective} of {dtype} at {index}: {result} for {exact}");
                    if collective == Collective::AllReduce {
                        results.push((dtype, index, result.to_bits()));
                    }
                }
            }
            comm.close().unwrap();
            results
        });
        let is_equal = all.iter().all(|results| *results == all[0]);
        assert!(is_equal || !backend.arithmetic().equal_bits, "ranks of {ranks} differ in their last bits");
    }
}
