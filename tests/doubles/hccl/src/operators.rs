//! Operators. A first call checks the arguments, and says how much memory the second needs, which gives the work to a
//! stream. Arithmetic is done in 64-bit floats and rounded once, to nearest even.

use std::sync::Mutex;

use unisono_double_common::memory::{self, Part};
use unisono_double_common::{Element, Handles, Out, export, lock};

use crate::codes::{AclError, OperatorError};
use crate::product::Product;
use crate::runtime_stream::enqueue_output;
use crate::tensors::{Tensor, element, list, scalar, tensor};

/// So that whoever gives none is found out.
const WORKSPACE_BYTES: u64 = 512;

/// The elements of the output, or why there are none.
type Compute = Box<dyn FnOnce(Vec<Vec<f64>>) -> Option<Vec<f64>> + Send>;

/// What the second call does.
struct Executor {
    call: &'static str,
    inputs: Vec<Tensor>,
    output: Tensor,
    compute: Mutex<Option<Compute>>,
}

static EXECUTORS: Handles<Executor> = Handles::new("executor");

/// Where the results of a first call go.
#[derive(Clone, Copy)]
struct Results {
    workspace: Out<u64>,
    executor: Out<usize>,
}

impl Results {
    fn put(self, executor: Executor) -> Result<(), OperatorError> {
        if self.executor.is_null() || !self.workspace.put(WORKSPACE_BYTES) {
            return Err(OperatorError::NULL);
        }
        let _ = self.executor.put(EXECUTORS.insert(executor));
        Ok(())
    }
}

/// The first call of an operator that works on each element by itself.
fn each(
    call: &'static str,
    inputs: Vec<Tensor>,
    output: Tensor,
    results: Results,
    compute: impl Fn(&[f64]) -> f64 + Send + 'static,
) -> Result<(), OperatorError> {
    let is_same = |one: &Tensor| one.shape == output.shape && one.element == output.element;
    if !inputs.iter().all(is_same) {
        return Err(OperatorError::INVALID);
    }
    let compute = move |inputs: Vec<Vec<f64>>| {
        let count = inputs.first().map_or(0, Vec::len);
        let at = |index: usize| inputs.iter().map(|input| input[index]).collect::<Vec<_>>();
        Some((0..count).map(|index| compute(&at(index))).collect())
    };
    results.put(Executor { call, inputs, output, compute: Mutex::new(Some(Box::new(compute))) })
}

/// The second call.
fn run(
    call: &str,
    workspace: usize,
    bytes: u64,
    executor: usize,
    stream: usize,
) -> Result<(), OperatorError> {
    if executor == 0 {
        return Err(OperatorError::NULL);
    }
    let executor = EXECUTORS.remove(executor).filter(|one| one.call == call).ok_or(OperatorError::INVALID)?;
    let workspace = Part::new(workspace, WORKSPACE_BYTES as usize);
    if bytes < WORKSPACE_BYTES || memory::find(workspace).is_none() {
        return Err(OperatorError::INVALID);
    }
    let inputs = executor.inputs.iter().map(|one| one.part).collect();
    let parts = [inputs, vec![executor.output.part, workspace]];
    let work = move || {
        let is_done = execute(&executor);
        if is_done.is_some() { 0 } else { AclError::RUNTIME_INTERNAL.0 }
    };
    enqueue_output(stream, parts, work).map_err(|_| OperatorError::RUNTIME)
}

fn execute(executor: &Executor) -> Option<()> {
    let read = |tensor: &Tensor| Some(tensor.element.to_numbers(&memory::read(tensor.part)?));
    let inputs = executor.inputs.iter().map(read).collect::<Option<_>>()?;
    let compute = lock(&executor.compute).take()?;
    let numbers = compute(inputs)?;
    let output = &executor.output;
    memory::write(output.part.address, &output.element.from_numbers(&numbers)).then_some(())
}

/// A tensor of its own, as the second call finds it.
fn own(handle: usize) -> Result<Tensor, OperatorError> {
    tensor(handle).map(|tensor| (*tensor).clone())
}

/// Rounds to the type.
fn rounded(element: Element, value: f64) -> f64 {
    element.to_numbers(&element.from_numbers(&[value])).first().copied().unwrap_or(value)
}

fn norm(values: &[f64], p: f64) -> f64 {
    let magnitudes = values.iter().map(|value| value.abs());
    if p == f64::INFINITY {
        magnitudes.fold(0.0, f64::max)
    } else if p == 1.0 {
        magnitudes.sum()
    } else {
        magnitudes.map(|value| value.powf(p)).sum::<f64>().powf(1.0 / p)
    }
}

const FLOATS: [Element; 2] = [Element::F16, Element::F32];

fn check_signs(numbers: &Tensor, bytes: &Tensor) -> Result<(), OperatorError> {
    let is_right =
        Product::chosen().packs_signs() && FLOATS.contains(&numbers.element) && bytes.element == Element::U8;
    if is_right { Ok(()) } else { Err(OperatorError::INVALID) }
}

/// The signs of eight numbers, the first in the lowest bit; a bit is set for zero and above.
fn pack(numbers: &[f64]) -> f64 {
    let bits = numbers.iter().enumerate().map(|(at, value)| u8::from(*value >= 0.0) << at);
    f64::from(bits.fold(0, |byte, bit| byte | bit))
}

fn unpack(byte: f64) -> impl Iterator<Item = f64> {
    (0..8).map(move |at| if byte as u8 >> at & 1 == 1 { 1.0 } else { -1.0 })
}

/// Whether `output` has `size` rows that hold `count` elements together.
fn has_rows(output: &Tensor, size: i64, count: usize) -> bool {
    let Some(rows) = usize::try_from(size).ok().filter(|rows| *rows > 0) else { return false };
    count.is_multiple_of(rows) && output.shape == [size, (count / rows) as i64]
}

export! {
    fn aclnnMulsGetWorkspaceSize(
        input: usize, factor: usize, output: usize, workspace: Out<u64>, executor: Out<usize>,
    ) -> OperatorError {
        let (output, factor) = (own(output)?, scalar(factor)?);
        let factor = rounded(output.element, factor);
        let results = Results { workspace, executor };
        each("Muls", vec![own(input)?], output, results, move |value| value[0] * factor)
    }

    fn aclnnMuls(workspace: usize, bytes: u64, executor: usize, stream: usize) -> OperatorError {
        run("Muls", workspace, bytes, executor, stream)
    }

    fn aclnnDivsGetWorkspaceSize(
        input: usize, divisor: usize, output: usize, workspace: Out<u64>, executor: Out<usize>,
    ) -> OperatorError {
        let (output, divisor) = (own(output)?, scalar(divisor)?);
        let divisor = rounded(output.element, divisor);
        let results = Results { workspace, executor };
        each("Divs", vec![own(input)?], output, results, move |value| value[0] / divisor)
    }

    fn aclnnDivs(workspace: usize, bytes: u64, executor: usize, stream: usize) -> OperatorError {
        run("Divs", workspace, bytes, executor, stream)
    }

    fn aclnnAddGetWorkspaceSize(
        left: usize, right: usize, alpha: usize, output: usize, workspace: Out<u64>, executor: Out<usize>,
    ) -> OperatorError {
        let (output, alpha) = (own(output)?, scalar(alpha)?);
        let element = output.element;
        let results = Results { workspace, executor };
        let add = move |values: &[f64]| values[0] + rounded(element, values[1] * alpha);
        each("Add", vec![own(left)?, own(right)?], output, results, add)
    }

    fn aclnnAdd(workspace: usize, bytes: u64, executor: usize, stream: usize) -> OperatorError {
        run("Add", workspace, bytes, executor, stream)
    }

    fn aclnnNormGetWorkspaceSize(
        input: usize, p: usize, dims: usize, keep_dims: bool, output: usize, workspace: Out<u64>,
        executor: Out<usize>,
    ) -> OperatorError {
        let (input, output, p, dims) = (own(input)?, own(output)?, scalar(p)?, list(dims)?);
        let is_whole = dims.is_empty() || dims.len() == input.shape.len();
        let kept = if keep_dims { vec![1; input.shape.len()] } else { Vec::new() };
        if !is_whole || output.shape != kept || !FLOATS.contains(&input.element) || output.count() != 1 {
            return Err(OperatorError::INVALID);
        }
        let compute = Box::new(move |inputs: Vec<Vec<f64>>| inputs.first().map(|input| vec![norm(input, p)]));
        let compute = Mutex::new(Some(compute as Compute));
        Results { workspace, executor }.put(Executor { call: "Norm", inputs: vec![input], output, compute })
    }

    fn aclnnNorm(workspace: usize, bytes: u64, executor: usize, stream: usize) -> OperatorError {
        run("Norm", workspace, bytes, executor, stream)
    }

    fn aclnnSignBitsPackGetWorkspaceSize(
        input: usize, size: i64, output: usize, workspace: Out<u64>, executor: Out<usize>,
    ) -> OperatorError {
        let (input, output) = (own(input)?, own(output)?);
        check_signs(&input, &output)?;
        if input.shape.len() != 1 || !has_rows(&output, size, input.count().div_ceil(8)) {
            return Err(OperatorError::INVALID);
        }
        // The operator's page allows no NaN, so the work fails.
        let compute = |inputs: Vec<Vec<f64>>| {
            let numbers = inputs.first().filter(|numbers| !numbers.iter().any(|value| value.is_nan()))?;
            Some(numbers.chunks(8).map(pack).collect())
        };
        let compute = Mutex::new(Some(Box::new(compute) as Compute));
        Results { workspace, executor }.put(Executor { call: "SignBitsPack", inputs: vec![input], output, compute })
    }

    fn aclnnSignBitsPack(workspace: usize, bytes: u64, executor: usize, stream: usize) -> OperatorError {
        run("SignBitsPack", workspace, bytes, executor, stream)
    }

    fn aclnnSignBitsUnpackGetWorkspaceSize(
        input: usize, size: i64, dtype: i32, output: usize, workspace: Out<u64>, executor: Out<usize>,
    ) -> OperatorError {
        let (input, output) = (own(input)?, own(output)?);
        check_signs(&output, &input)?;
        let is_named = element(dtype) == Some(output.element);
        if !is_named || input.shape.len() != 1 || !has_rows(&output, size, 8 * input.count()) {
            return Err(OperatorError::INVALID);
        }
        let compute = |inputs: Vec<Vec<f64>>| {
            inputs.first().map(|bytes| bytes.iter().flat_map(|byte| unpack(*byte)).collect())
        };
        let compute = Mutex::new(Some(Box::new(compute) as Compute));
        Results { workspace, executor }.put(Executor { call: "SignBitsUnpack", inputs: vec![input], output, compute })
    }

    fn aclnnSignBitsUnpack(workspace: usize, bytes: u64, executor: usize, stream: usize) -> OperatorError {
        run("SignBitsUnpack", workspace, bytes, executor, stream)
    }
}
