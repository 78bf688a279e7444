//! The definition of every kernel, one element after the other. Tests compare all other bodies with these.

use half::bf16;

use crate::format::{
    self, CodeSize, IntFormat, IntWidth, LANES, Rounding, SQUARES_BLOCK, flush, int_reciprocal, is_plus,
    mean, power_of_two, squares_shift, tree,
};
use crate::{GlobalSignPart, IntPart, Residual, SignPart};

/// Elements of a block of [`bf16_encode`], as errors count them.
pub const BF16_BLOCK: usize = 1024;

fn bit(bits: &[u32], index: usize) -> bool {
    bits[index / 32] >> (index % 32) & 1 == 1
}

/// Plus or minus `scale`.
fn signed(plus: bool, scale: f32) -> f32 {
    if plus { scale } else { -scale }
}

/// `input + old`, element by element.
fn compensated(input: f32, old: Option<&[f32]>, index: usize) -> f32 {
    let input = flush(input);
    old.map_or(input, |old| flush(input + old[index]))
}

/// The sum of signs: parts are summed by fours, and the sums of the fours in their order. All sums begin with +0.0.
fn sum_of_signs(values: impl Iterator<Item = f32>) -> f32 {
    let values: Vec<f32> = values.collect();
    let sum = |values: &[f32]| values.iter().fold(0.0, |sum, value| flush(sum + value));
    sum(&values.chunks(4).map(sum).collect::<Vec<f32>>())
}

/// [`crate::Kernels::sign_encode`].
pub fn sign_encode(
    input: &[f32],
    residual: Option<Residual<'_>>,
    block: usize,
    scales: &mut [f32],
    bits: &mut [u32],
) -> Option<usize> {
    let (old, new) = residual.map_or((None, None), |Residual { old, new }| (Some(old), Some(new)));
    let values: Vec<f32> = (0..input.len()).map(|index| compensated(input[index], old, index)).collect();
    encode_signs(&values, new, block, scales, bits)
}

fn encode_signs(
    values: &[f32],
    mut new: Option<&mut [f32]>,
    block: usize,
    scales: &mut [f32],
    bits: &mut [u32],
) -> Option<usize> {
    assert!(block.is_multiple_of(LANES) && scales.len() == values.len().div_ceil(block));
    bits.fill(0);
    for (number, values) in values.chunks(block).enumerate() {
        let mut lanes = [0.0; LANES];
        for (index, value) in values.iter().enumerate() {
            lanes[index % LANES] += value.abs();
        }
        let scale = mean(&lanes, values.len());
        scales[number] = scale;
        for (index, value) in values.iter().enumerate() {
            let at = number * block + index;
            bits[at / 32] |= u32::from(is_plus(*value)) << (at % 32);
            if let Some(new) = &mut new {
                new[at] = flush(value - signed(is_plus(*value), scale));
            }
        }
    }
    scales.iter().position(|scale| !scale.is_finite())
}

/// [`crate::Kernels::sign_reduce_encode`].
pub fn sign_reduce_encode(
    parts: &[SignPart<'_>],
    elements: usize,
    residual: Option<Residual<'_>>,
    block: usize,
    scales: &mut [f32],
    bits: &mut [u32],
) -> Option<usize> {
    let (old, new) = residual.map_or((None, None), |Residual { old, new }| (Some(old), Some(new)));
    let sum = |index: usize| {
        let values = parts.iter().map(|part| signed(bit(part.bits, index), part.scales[index / block]));
        compensated(sum_of_signs(values), old, index)
    };
    let values: Vec<f32> = (0..elements).map(sum).collect();
    encode_signs(&values, new, block, scales, bits)
}

/// [`crate::Kernels::sign_expand`].
pub fn sign_expand(part: SignPart<'_>, block: usize, weight: f32, output: &mut [f32]) {
    for (index, output) in output.iter_mut().enumerate() {
        *output = signed(bit(part.bits, index), flush(part.scales[index / block] * weight));
    }
}

/// [`crate::Kernels::sign_decode_sum`].
pub fn sign_decode_sum(parts: &[SignPart<'_>], block: usize, weight: f32, output: &mut [f32]) {
    for (index, output) in output.iter_mut().enumerate() {
        let values = parts.iter().map(|part| signed(bit(part.bits, index), part.scales[index / block]));
        *output = flush(sum_of_signs(values) * weight);
    }
}

/// The sum of squares of each block of [`SQUARES_BLOCK`]; its lanes are summed in f32.
fn sum_squares(values: &[f32], squares: &mut [f64]) {
    assert!(squares.len() == values.len().div_ceil(SQUARES_BLOCK));
    for (values, squares) in values.chunks(SQUARES_BLOCK).zip(squares) {
        let largest = values.iter().map(|value| value.abs().to_bits()).max().unwrap_or(0);
        let shift = squares_shift(f32::from_bits(largest));
        let mut lanes = [0.0; LANES];
        for (index, value) in values.iter().enumerate() {
            let value = flush(value * power_of_two(-shift));
            lanes[index % LANES] += flush(value * value);
        }
        *squares = format::squares(tree(&lanes), shift);
    }
}

/// [`crate::Kernels::compensate`], whose result is the sum of the `squares` of blocks in their order.
pub fn compensate(input: &[f32], old: &[f32], sum: &mut [f32], squares: &mut [f64]) {
    for (index, sum) in sum.iter_mut().enumerate() {
        *sum = compensated(input[index], Some(old), index);
    }
    sum_squares(sum, squares);
}

/// [`crate::Kernels::sign_reduce_global`], whose result is the sum of the `squares` of blocks in their order.
pub fn sign_reduce_global(parts: &[GlobalSignPart<'_>], old: &[f32], sum: &mut [f32], squares: &mut [f64]) {
    for (index, sum) in sum.iter_mut().enumerate() {
        let values = parts.iter().map(|part| signed(bit(part.bits, index), part.scale));
        *sum = compensated(sum_of_signs(values), Some(old), index);
    }
    sum_squares(sum, squares);
}

/// [`crate::Kernels::sign_pack`].
pub fn sign_pack(values: &mut [f32], scale: f32, bits: &mut [u32]) {
    bits.fill(0);
    for (index, value) in values.iter_mut().enumerate() {
        bits[index / 32] |= u32::from(is_plus(*value)) << (index % 32);
        *value = flush(*value - signed(is_plus(*value), scale));
    }
}

/// [`crate::Kernels::int_encode`].
pub fn int_encode(
    input: &[f32],
    residual: Option<Residual<'_>>,
    format: IntFormat,
    rounding: Rounding,
    scales: &mut [f32],
    codes: &mut [u8],
) -> Option<usize> {
    let (old, new) = residual.map_or((None, None), |Residual { old, new }| (Some(old), Some(new)));
    let values: Vec<f32> = (0..input.len()).map(|index| compensated(input[index], old, index)).collect();
    encode_ints(&values, new, format, rounding, scales, codes)
}

fn encode_ints(
    values: &[f32],
    mut new: Option<&mut [f32]>,
    format: IntFormat,
    rounding: Rounding,
    scales: &mut [f32],
    codes: &mut [u8],
) -> Option<usize> {
    assert!(format.block.is_multiple_of(LANES) && scales.len() == format.scales(values.len()));
    codes.fill(0);
    let mut bad = None;
    for (number, values) in values.chunks(format.block).enumerate() {
        let scales = &mut scales[number * format.scales_per_block()..][..format.scales_per_block()];
        if !scale_block(values, format, scales) {
            bad = bad.or(Some(number));
            continue;
        }
        for (index, value) in values.iter().enumerate() {
            let at = number * format.block + index;
            let code = code_of(*value, scales, format, rounding, at);
            match format.width {
                IntWidth::Eight => codes[at] = code as u8,
                IntWidth::Four => codes[at / 2] |= (code as u8 & 15) << (at % 2 * 4),
            }
            if let Some(new) = &mut new {
                new[at] = flush(value - value_of(code, scales));
            }
        }
    }
    bad
}

/// Whether all is finite.
fn scale_block(values: &[f32], format: IntFormat, scales: &mut [f32]) -> bool {
    let range = if format.symmetric {
        values.iter().fold(0.0f32, |max, value| f32::from_bits(max.to_bits().max(value.abs().to_bits())))
    } else {
        let (min, max) = (
            values.iter().copied().fold(f32::INFINITY, f32::min),
            values.iter().copied().fold(f32::NEG_INFINITY, f32::max),
        );
        if values.iter().any(|value| !value.is_finite()) {
            return false;
        }
        // Zeros of both signs are the same smallest element.
        scales[1] = flush(min);
        flush(max - min)
    };
    if !range.is_finite() {
        return false;
    }
    format.scale(range).inspect(|scale| scales[0] = *scale).is_some()
}

fn code_of(value: f32, scales: &[f32], format: IntFormat, rounding: Rounding, index: usize) -> i32 {
    if scales[0] == 0.0 {
        return 0;
    }
    let distance = if format.symmetric { value } else { flush(value - scales[1]) };
    let steps = distance * int_reciprocal(scales[0]);
    match rounding {
        Rounding::Nearest => steps.round_ties_even() as i32,
        Rounding::Stochastic(counter) => {
            ((steps * 65536.0).round_ties_even() as i32 + counter.bits(index) as i32) >> 16
        }
    }
}

/// The product is exact.
fn value_of(code: i32, scales: &[f32]) -> f32 {
    let product = code as f32 * scales[0];
    if scales.len() == 1 { product } else { flush(product + scales[1]) }
}

/// The code of element `index`.
fn code_at(codes: &[u8], format: IntFormat, index: usize) -> i32 {
    match (format.width, format.symmetric) {
        (IntWidth::Eight, true) => i32::from(codes[index] as i8),
        (IntWidth::Eight, false) => i32::from(codes[index]),
        (IntWidth::Four, true) => i32::from((codes[index / 2] << (4 - index % 2 * 4)) as i8 >> 4),
        (IntWidth::Four, false) => i32::from(codes[index / 2] >> (index % 2 * 4) & 15),
    }
}

fn decoded(part: IntPart<'_>, format: IntFormat, index: usize) -> f32 {
    let first = index / format.block * format.scales_per_block();
    value_of(code_at(part.codes, format, index), &part.scales[first..][..format.scales_per_block()])
}

fn decoded_sum(parts: &[IntPart<'_>], format: IntFormat, index: usize) -> f32 {
    let values = parts.iter().map(|part| decoded(*part, format, index));
    values.fold(0.0, |sum, value| flush(sum + value))
}

/// [`crate::Kernels::int_reduce_encode`].
pub fn int_reduce_encode(
    parts: &[IntPart<'_>],
    elements: usize,
    residual: Option<Residual<'_>>,
    format: IntFormat,
    rounding: Rounding,
    scales: &mut [f32],
    codes: &mut [u8],
) -> Option<usize> {
    let (old, new) = residual.map_or((None, None), |Residual { old, new }| (Some(old), Some(new)));
    let sum = |index: usize| compensated(decoded_sum(parts, format, index), old, index);
    let values: Vec<f32> = (0..elements).map(sum).collect();
    encode_ints(&values, new, format, rounding, scales, codes)
}

/// [`crate::Kernels::int_decode_sum`].
pub fn int_decode_sum(parts: &[IntPart<'_>], format: IntFormat, weight: f32, output: &mut [f32]) {
    for (index, output) in output.iter_mut().enumerate() {
        *output = flush(decoded_sum(parts, format, index) * weight);
    }
}

/// [`crate::Kernels::int_expand`].
pub fn int_expand(part: IntPart<'_>, format: IntFormat, weight: f32, output: &mut [f32]) {
    for (index, output) in output.iter_mut().enumerate() {
        *output = flush(decoded(part, format, index) * weight);
    }
}

/// [`crate::Kernels::int_magnitudes`].
pub fn int_magnitudes(input: &[f32], old: Option<&[f32]>, block: usize, output: &mut [u32]) {
    assert!(block.is_multiple_of(LANES) && output.len() == input.len().div_ceil(block));
    output.fill(0);
    for index in 0..input.len() {
        let magnitude = compensated(input[index], old, index).abs().to_bits();
        // Devices differ in the bits of NaN.
        output[index / block] = output[index / block].max(magnitude.min(f32::INFINITY.to_bits()));
    }
}

/// The scale of the block of element `index`.
fn shared_scale(format: IntFormat, magnitudes: &[u32], index: usize) -> f32 {
    format.scale(f32::from_bits(magnitudes[index / format.block])).unwrap_or(0.0)
}

/// [`crate::Kernels::int_encode_shared`].
pub fn int_encode_shared(
    input: &[f32],
    residual: Option<Residual<'_>>,
    format: IntFormat,
    rounding: Rounding,
    magnitudes: &[u32],
    size: CodeSize,
    codes: &mut [u8],
) {
    assert!(format.symmetric && magnitudes.len() == format.scales(input.len()));
    let (old, mut new) = residual.map_or((None, None), |Residual { old, new }| (Some(old), Some(new)));
    for index in 0..input.len() {
        let value = compensated(input[index], old, index);
        let scales = [shared_scale(format, magnitudes, index)];
        let code = code_of(value, &scales, format, rounding, index);
        codes[index * size.bytes()..][..size.bytes()].copy_from_slice(&code.to_le_bytes()[..size.bytes()]);
        if let Some(new) = &mut new {
            new[index] = flush(value - value_of(code, &scales));
        }
    }
}

/// Element `index`.
fn shared_code_at(codes: &[u8], size: CodeSize, index: usize) -> i32 {
    let bytes = &codes[index * size.bytes()..];
    match size {
        CodeSize::One => i32::from(bytes[0] as i8),
        CodeSize::Two => i32::from(i16::from_le_bytes([bytes[0], bytes[1]])),
        CodeSize::Four => i32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
    }
}

/// [`crate::Kernels::int_expand_shared`].
pub fn int_expand_shared(
    codes: &[u8],
    size: CodeSize,
    format: IntFormat,
    magnitudes: &[u32],
    weight: f32,
    output: &mut [f32],
) {
    for (index, output) in output.iter_mut().enumerate() {
        let code = shared_code_at(codes, size, index) as f32;
        *output = flush(flush(code * shared_scale(format, magnitudes, index)) * weight);
    }
}

/// [`crate::Kernels::bf16_encode`].
pub fn bf16_encode(input: &[f32], output: &mut [u16]) -> Option<usize> {
    let mut bad = None;
    for (index, (input, output)) in input.iter().zip(output).enumerate() {
        let narrow = bf16::from_f32(flush(*input));
        *output = narrow.to_bits();
        if !narrow.is_finite() {
            bad = bad.or(Some(index / BF16_BLOCK));
        }
    }
    bad
}

/// [`crate::Kernels::bf16_decode_sum`].
pub fn bf16_decode_sum(parts: &[&[u16]], weight: f32, output: &mut [f32]) {
    for (index, output) in output.iter_mut().enumerate() {
        let values = parts.iter().map(|part| flush(bf16::from_bits(part[index]).to_f32()));
        *output = flush(values.fold(0.0, |sum, value| flush(sum + value)) * weight);
    }
}

/// [`crate::Kernels::bf16_expand`].
pub fn bf16_expand(input: &[u16], weight: f32, output: &mut [f32]) {
    for (output, input) in output.iter_mut().zip(input) {
        *output = flush(flush(bf16::from_bits(*input).to_f32()) * weight);
    }
}

/// [`crate::Kernels::sum`].
pub fn sum(parts: &[&[f32]], output: &mut [f32]) {
    for (index, output) in output.iter_mut().enumerate() {
        *output = parts.iter().fold(0.0, |sum, part| flush(sum + flush(part[index])));
    }
}

/// [`crate::Kernels::average`].
pub fn average(old: &[f32], shift: u32, new: &mut [f32]) {
    for (old, new) in old.iter().zip(new) {
        let part = flush(flush(*new - old) * power_of_two(-(shift as i32)));
        *new = flush(old + part);
    }
}
