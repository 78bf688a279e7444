//! Operators. A first call checks the arguments, and says how much memory the second needs, which gives the work to a
//! stream. Those on two tensors work in the type of their elements; integers wrap around. Other arithmetic is done in
//! 64-bit floats and rounded once, to nearest even.

use std::sync::Mutex;

use unisono_double_common::element::{reduce, scale};
use unisono_double_common::memory::{self, Part};
use unisono_double_common::{Element, Handles, Out, Reduction, export, lock};

use crate::codes::{AclError, OperatorError};
use crate::product::Product;
use crate::runtime_stream::enqueue_output;
use crate::tensors::{Tensor, element, list, scalar, scalar_as, tensor};

/// So that whoever gives none is found out.
const WORKSPACE_BYTES: u64 = 512;

/// The bytes of the output, or why there are none, of those of the inputs.
type Compute = Box<dyn FnOnce(Vec<Vec<u8>>) -> Option<Vec<u8>> + Send>;

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

/// What works on numbers instead of bytes.
fn on_numbers(
    inputs: &[Tensor],
    output: &Tensor,
    compute: impl FnOnce(Vec<Vec<f64>>) -> Option<Vec<f64>> + Send + 'static,
) -> Compute {
    let (elements, output): (Vec<Element>, _) =
        (inputs.iter().map(|one| one.element).collect(), output.element);
    Box::new(move |inputs| {
        let numbers =
            elements.iter().zip(&inputs).map(|(element, bytes)| element.to_numbers(bytes)).collect();
        Some(output.from_numbers(&compute(numbers)?))
    })
}

impl Results {
    fn put(
        self,
        call: &'static str,
        inputs: Vec<Tensor>,
        output: Tensor,
        compute: Compute,
    ) -> Result<(), OperatorError> {
        if self.executor.is_null() || !self.workspace.put(WORKSPACE_BYTES) {
            return Err(OperatorError::NULL);
        }
        let compute = Mutex::new(Some(compute));
        let _ = self.executor.put(EXECUTORS.insert(Executor { call, inputs, output, compute }));
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
    check_same(&inputs, &output)?;
    let compute = on_numbers(&inputs, &output, move |inputs: Vec<Vec<f64>>| {
        let count = inputs.first().map_or(0, Vec::len);
        let at = |index: usize| inputs.iter().map(|input| input[index]).collect::<Vec<_>>();
        Some((0..count).map(|index| compute(&at(index))).collect())
    });
    results.put(call, inputs, output, compute)
}

fn check_same(inputs: &[Tensor], output: &Tensor) -> Result<(), OperatorError> {
    let is_same = |one: &Tensor| one.shape == output.shape && one.element == output.element;
    if inputs.iter().all(is_same) { Ok(()) } else { Err(OperatorError::INVALID) }
}

/// The first call of an operator that makes one tensor of two, of which the second is multiplied by `alpha` first.
fn pair(
    call: &'static str,
    reduction: Reduction,
    inputs: [Tensor; 2],
    alpha: f64,
    output: Tensor,
    results: Results,
) -> Result<(), OperatorError> {
    let inputs = Vec::from(inputs);
    check_same(&inputs, &output)?;
    let element = output.element;
    if !Product::chosen().computes(element) {
        return Err(OperatorError::INVALID);
    }
    let compute = move |mut inputs: Vec<Vec<u8>>| {
        if alpha != 1.0 {
            scale(element, inputs.last_mut()?, &element.from_numbers(&[alpha]));
        }
        Some(reduce(element, &reduction, &inputs))
    };
    results.put(call, inputs, output, Box::new(compute))
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
    let inputs = executor.inputs.iter().map(|tensor| memory::read(tensor.part)).collect::<Option<_>>()?;
    let compute = lock(&executor.compute).take()?;
    memory::write(executor.output.part.address, &compute(inputs)?).then_some(())
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
        let (inputs, output) = ([own(left)?, own(right)?], own(output)?);
        // The products of 310P have no such operator.
        if Product::chosen() == Product::Ascend310P {
            return Err(OperatorError::INVALID);
        }
        let alpha = scalar_as(alpha, output.element)?;
        pair("Add", Reduction::Sum, inputs, alpha, output, Results { workspace, executor })
    }

    fn aclnnAdd(workspace: usize, bytes: u64, executor: usize, stream: usize) -> OperatorError {
        run("Add", workspace, bytes, executor, stream)
    }

    fn aclnnMulGetWorkspaceSize(
        left: usize, right: usize, output: usize, workspace: Out<u64>, executor: Out<usize>,
    ) -> OperatorError {
        let (inputs, results) = ([own(left)?, own(right)?], Results { workspace, executor });
        pair("Mul", Reduction::Prod, inputs, 1.0, own(output)?, results)
    }

    fn aclnnMul(workspace: usize, bytes: u64, executor: usize, stream: usize) -> OperatorError {
        run("Mul", workspace, bytes, executor, stream)
    }

    fn aclnnMaximumGetWorkspaceSize(
        left: usize, right: usize, output: usize, workspace: Out<u64>, executor: Out<usize>,
    ) -> OperatorError {
        let (inputs, results) = ([own(left)?, own(right)?], Results { workspace, executor });
        pair("Maximum", Reduction::Max, inputs, 1.0, own(output)?, results)
    }

    fn aclnnMaximum(workspace: usize, bytes: u64, executor: usize, stream: usize) -> OperatorError {
        run("Maximum", workspace, bytes, executor, stream)
    }

    fn aclnnMinimumGetWorkspaceSize(
        left: usize, right: usize, output: usize, workspace: Out<u64>, executor: Out<usize>,
    ) -> OperatorError {
        let (inputs, results) = ([own(left)?, own(right)?], Results { workspace, executor });
        pair("Minimum", Reduction::Min, inputs, 1.0, own(output)?, results)
    }

    fn aclnnMinimum(workspace: usize, bytes: u64, executor: usize, stream: usize) -> OperatorError {
        run("Minimum", workspace, bytes, executor, stream)
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
        let inputs = vec![input];
        let compute =
            on_numbers(&inputs, &output, move |inputs| inputs.first().map(|input| vec![norm(input, p)]));
        Results { workspace, executor }.put("Norm", inputs, output, compute)
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
        let inputs = vec![input];
        let compute = on_numbers(&inputs, &output, |inputs| {
            let numbers = inputs.first().filter(|numbers| !numbers.iter().any(|value| value.is_nan()))?;
            Some(numbers.chunks(8).map(pack).collect())
        });
        Results { workspace, executor }.put("SignBitsPack", inputs, output, compute)
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
        let inputs = vec![input];
        let compute = on_numbers(&inputs, &output, |inputs| {
            inputs.first().map(|bytes| bytes.iter().flat_map(|byte| unpack(*byte)).collect())
        });
        Results { workspace, executor }.put("SignBitsUnpack", inputs, output, compute)
    }

    fn aclnnSignBitsUnpack(workspace: usize, bytes: u64, executor: usize, stream: usize) -> OperatorError {
        run("SignBitsUnpack", workspace, bytes, executor, stream)
    }
}
